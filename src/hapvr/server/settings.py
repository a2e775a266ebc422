"""What a server is started with; the one home of its defaults."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from hapvr.errors import ConfigError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LEAST_TOKEN = 16
_POSITIVE = (
    "connections", "connections_per_client", "head_s", "stall_s", "min_rate", "line_rate", "linger_s", "keep_alive_s",
    "max_upload", "uploads_bytes", "uploads_at_once", "keep_uploads_s", "queue", "search_slots", "held_bytes",
    "job_s", "keep_jobs", "keep_results", "picture_s", "preview_s", "preview_length_s", "preview_wait_s", "cache_bytes",
    "decode_s", "decode_pixels", "decode_frames", "decode_bytes", "stop_s",
)  # fmt: skip


@dataclass(frozen=True)
class Root:
    """A folder whose videos may be added; clients know it by its id."""

    id: str
    name: str
    path: Path


@dataclass(frozen=True)
class ServerSettings:
    """How a server listens, whom it answers, and what work may cost.

    Attributes:
        host: address to listen on.
        port: likewise; 0 takes a free one.
        token: what clients must show; needed for any other host than this machine.
        roots: folders that may be added.
        allowed_hosts: further names that the Host header may have, such as that of a proxy.
        secure_cookie: the login cookie is for HTTPS only.
        connections: that may be open at a time; each takes a file descriptor, or two.
        connections_per_client: of one address (one network of /64 for IPv6); this machine is not limited, for it may be
            a proxy for many.
        head_s: seconds that the head of a request may take.
        stall_s: seconds that a client may pause while it sends a body or reads an answer.
        min_rate: bytes a second that make up for the time they take: a client that is slower for long is cut off.
        line_rate: bytes a second of a line on which the largest body still arrives in time.
        linger_s: seconds that a body may still come after the request has been answered.
        keep_alive_s: seconds that a connection is kept for another request.
        max_upload: bytes of one upload.
        uploads_bytes: bytes of all uploads that are kept.
        uploads_at_once: uploads that are stored at a time; those of which little has come do not count.
        keep_uploads_s: seconds that an upload is kept after it was last used.
        queue: jobs that may wait for a worker.
        search_slots: searches and comparisons that are worked on at a time.
        held_bytes: memory of the searching worker for videos that it has compared.
        job_s: seconds that a search or comparison may take.
        keep_jobs: finished jobs that are remembered.
        keep_results: characters of JSON that their results may have together.
        picture_s: seconds that a thumbnail or strip may take.
        preview_s: seconds that a preview may take.
        preview_length_s: seconds of a video that a preview shows at most.
        preview_wait_s: seconds that a request waits for a preview.
        cache_bytes: bytes of thumbnails, strips and previews that are kept.
        decode_s: seconds that decoding a part of an upload may take.
        decode_pixels: pixels of a frame of an upload.
        decode_frames: frames of an upload that are described.
        decode_bytes: memory of the process that decodes an upload.
        stop_s: seconds that workers have to end when the server stops.
        eager: start the workers that a search needs at once, so that the first one need not wait for them, and any that
            ends again.
        folder: where uploads and pictures are kept; a private temporary folder if None.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    token: str | None = field(default=None, repr=False)
    roots: tuple[Path, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    secure_cookie: bool = False
    connections: int = 256
    connections_per_client: int = 64
    head_s: float = 10.0
    stall_s: float = 30.0
    min_rate: float = 4_000.0
    line_rate: float = 100_000.0
    linger_s: float = 5.0
    keep_alive_s: float = 30.0
    max_upload: int = 2 * 2**30
    uploads_bytes: int = 8 * 2**30
    uploads_at_once: int = 32
    keep_uploads_s: float = 3600.0
    queue: int = 64
    search_slots: int = 2
    held_bytes: int = 512 * 2**20
    job_s: float = 900.0
    keep_jobs: int = 200
    keep_results: int = 64 * 2**20
    picture_s: float = 20.0
    preview_s: float = 180.0
    preview_length_s: float = 3600.0
    preview_wait_s: float = 60.0
    cache_bytes: int = 512 * 2**20
    decode_s: float = 120.0
    decode_pixels: int = 2**25
    decode_frames: int = 14_400
    decode_bytes: int = 4 * 2**30
    stop_s: float = 10.0
    eager: bool = True
    folder: Path | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} must be a positive number, got {value!r}.")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be 0 to 65535, got {self.port}.")
        if self.token is not None and (len(self.token) < _LEAST_TOKEN or not self.token.isascii()):
            raise ConfigError(
                f"A token has at least {_LEAST_TOKEN} characters, all of them ASCII; the one given has "
                f"{len(self.token)}. Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if self.token is None and not self.is_local:
            raise ConfigError(
                f"Listening on '{self.host}' lets other machines in: give a token (--token, or HAPVR_TOKEN), or listen "
                "on 127.0.0.1."
            )
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ConfigError(f"'{self.folder}' is no folder to keep uploads and pictures in. Make it first.")
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

    def body_s(self, most: int) -> float:
        """Seconds that a body of at most so many bytes may take.

        >>> round(ServerSettings().body_s(2 * 2**30) / 3600, 1)
        6.0
        """
        return self.stall_s + most / self.line_rate

    @property
    def root_paths(self) -> tuple[str, ...]:
        """The roots as they were given and as links resolve, absolute: paths below them may be shown."""
        return tuple(dict.fromkeys(form(root) for root in self.roots for form in (os.path.abspath, os.path.realpath)))

    @property
    def named_roots(self) -> dict[str, Root]:
        """The roots by id; the id is of the path, so that it stays when the server starts anew."""
        found = {}
        for path in self.roots:
            real = Path(os.path.realpath(path))
            id = hashlib.blake2b(os.fsencode(real), digest_size=6).hexdigest()
            found[id] = Root(id, real.name or str(real), real)
        return found
