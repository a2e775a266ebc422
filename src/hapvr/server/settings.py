"""The settings of a server, and their defaults."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from hapvr.errors import ConfigError

LogFormat = Literal["json", "text"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MIN_TOKEN = 16  # characters


def is_everywhere(host: str) -> bool:
    """Whether a server that listens on this address listens on all addresses of the machine."""
    return host in ("0.0.0.0", "::")  # noqa: S104 - it needs a token, see `ServerSettings`


@dataclass(frozen=True)
class Root:
    """A folder that clients may add videos from; they name it by its id."""

    id: str
    name: str
    path: Path  # as links resolve
    forms: tuple[str, ...]  # as it was given and as links resolve, absolute


@dataclass(frozen=True)
class ServerSettings:
    """How a server listens, whom it answers, and what work may cost."""

    host: str = "127.0.0.1"  # the address to listen on
    port: int = 8787  # 0 takes a free one
    token: str | None = field(default=None, repr=False)  # what clients must show; needed to serve other machines
    roots: tuple[Path, ...] = ()  # folders that clients may add videos from, and whose paths may be shown
    allowed_hosts: tuple[str, ...] = ()  # further names that the Host header may have, such as that of a proxy
    secure_cookie: bool = False  # the login cookie is for HTTPS only
    log_format: LogFormat = "json"  # of the lines on stderr
    device: str = "auto"  # where its models compute, see `hapvr.load`
    allow_actions: bool = False  # clients may move files of duplicates to the trash, or replace them by links
    move_to: Path | None = None  # and move them to this folder

    max_connections: int = 256  # open at a time; each takes a file descriptor, or two
    max_connections_per_client: int = (
        64  # of one address (IPv6: one /64 network); this machine, maybe a proxy, has no limit
    )
    max_requests_per_s: float = 50.0  # of one address, and ten times as many at once; this machine has no limit
    max_head_s: float = 10.0  # seconds that the head of a request may take
    max_stall_s: float = 30.0  # seconds that a client may pause while it sends a body or reads an answer
    min_bytes_per_s: float = 4_000.0  # a client that is slower for long is cut off
    min_body_bytes_per_s: float = 100_000.0  # of a line on which the largest body still arrives in time
    max_linger_s: float = 5.0  # seconds that a body may still come after the request has been answered
    max_keep_alive_s: float = 30.0  # seconds that a connection is kept for another request

    max_upload_bytes: int = 2 * 2**30  # bytes of one upload
    max_uploads_bytes: int = 8 * 2**30  # bytes of all uploads that are kept
    max_uploads_at_once: int = 32  # uploads that are stored at a time; those of which little has come do not count
    max_uploads_at_once_per_client: int = 8  # of those, of one address
    max_uploads_bytes_per_client: int = 4 * 2**30  # bytes of uploads that are kept for one address
    keep_uploads_s: float = 3600.0  # seconds that an upload is kept after it was last used

    keep_linked_uploads_s: float = 30 * 86400.0  # seconds that an upload is kept after a link to it was asked for
    max_linked_bytes: int = 4 * 2**30  # bytes of all uploads that are kept for links; they outlive the server

    max_queued_jobs: int = 64  # jobs that may wait for a worker
    max_queued_jobs_per_client: int = 16  # of those, of one address
    # Searches and comparisons that are worked on at a time, each in a process of half a GB. All but one are begun when
    # a search has to wait. Two: one that takes long, such as by a file, does not hold up all others.
    max_searches_at_once: int = 2
    max_held_bytes: int = 512 * 2**20  # memory of all search workers for videos that they have compared
    max_job_s: float = 900.0  # seconds that a search or comparison may take
    max_kept_jobs: int = 200  # finished jobs that are remembered
    max_result_chars: int = 64 * 2**20  # characters of JSON that their results may have together

    max_picture_s: float = 20.0  # seconds that a thumbnail or strip may take
    max_preview_s: float = 180.0  # seconds that a preview may take
    max_preview_length_s: float = 3600.0  # seconds of a video that a preview shows at most
    max_preview_wait_s: float = 60.0  # seconds that a request waits for a preview
    max_queued_pictures: int = 256  # thumbnails, strips and previews that may wait for a worker
    max_queued_pictures_per_client: int = 64  # of those, of one address
    max_cache_bytes: int = 512 * 2**20  # bytes of thumbnails, strips and previews that are kept

    max_decode_s: float = 120.0  # seconds that decoding a part of an upload may take
    max_decode_pixels: int = 2**25  # pixels of a frame of an upload
    max_decode_frames: int = 14_400  # frames of an upload that are described
    max_decode_bytes: int = 4 * 2**30  # memory of the process that decodes an upload

    max_stop_s: float = 10.0  # seconds that workers have to end when the server stops
    eager: bool = True  # start the workers that a search needs at once, and any that has died; else for the next task
    folder: Path | None = None  # where uploads and pictures are kept; a private temporary folder if None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type in ("int", "float") and one.name != "port" and not 0 < value < math.inf:
                raise ConfigError(f"{one.name} must be a positive number, got {value!r}.")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be 0 to 65535, got {self.port}.")
        if self.log_format not in get_args(LogFormat):
            raise ConfigError(f"log_format is {' or '.join(get_args(LogFormat))}, got {self.log_format!r}.")
        if self.token is not None and (len(self.token) < _MIN_TOKEN or not self.token.isascii()):
            raise ConfigError(
                f"A token has at least {_MIN_TOKEN} characters, all of them ASCII; the one given has "
                f"{len(self.token)}. Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if self.token is None and not self.is_local:
            raise ConfigError(
                f"Listening on '{self.host}' lets other machines in: give a token (--token, or HAPVR_TOKEN), or listen "
                "on 127.0.0.1."
            )
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ConfigError(f"'{self.folder}' is no folder to keep uploads and pictures in. Make it first.")
        if self.move_to is not None and not self.allow_actions:
            raise ConfigError("A folder that files are moved to needs --allow-actions: without it none is moved.")
        for root in self.roots:
            if not Path(root).is_dir():
                raise ConfigError(f"The root '{root}' is not a folder.")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host in _LOOPBACK or ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name
            return False

    @property
    def actions(self) -> tuple[str, ...]:
        """What clients may do with files of duplicates."""
        if not self.allow_actions:
            return ()
        return ("trash", "hardlink", "symlink", *(() if self.move_to is None else ("move",)))

    def body_s(self, max_bytes: int) -> float:
        """Seconds that a body of at most `max_bytes` may take.

        >>> round(ServerSettings().body_s(2 * 2**30) / 3600, 1)
        6.0
        """
        return self.max_stall_s + max_bytes / self.min_body_bytes_per_s

    @property
    def root_paths(self) -> tuple[str, ...]:
        """The roots as they were given and as links resolve, absolute: paths below them may be shown."""
        return tuple(dict.fromkeys(form(root) for root in self.roots for form in (os.path.abspath, os.path.realpath)))

    @property
    def named_roots(self) -> dict[str, Root]:
        """The roots by id; the id is derived from the path, so that it outlives a restart."""
        found = {}
        for path in self.roots:
            real = Path(os.path.realpath(path))
            id = hashlib.blake2b(os.fsencode(real), digest_size=6).hexdigest()
            forms = tuple(dict.fromkeys((os.path.abspath(path), str(real))))
            found[id] = Root(id, real.name or str(real), real, forms)
        return found
