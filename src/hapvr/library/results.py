"""What a library answers: small frozen records, each with the JSON that the command line prints."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from hapvr.audio.matching import SameSound, SoundEvidence
from hapvr.judge.judge import Verdict
from hapvr.library.text_model import TextModel
from hapvr.matching import Instant, list_insets
from hapvr.places import ObjectPath
from hapvr.records import Box
from hapvr.similarity import Segment

State = Literal["ready", "failed", "missing"]
STATES: tuple[State, ...] = ("ready", "failed", "missing")


def utc_now() -> datetime:
    """The current time."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class VideoRecord:
    """One file that a library knows."""

    id: str  # short, stable, safe in URLs: the beginning of the content hash, with "-2", "-3", ... for further copies
    path: str  # absolute; bytes that are no text in the file system's encoding are escaped as `os.fsdecode` does
    size: int  # bytes
    mtime_ns: int  # when it was last changed, in nanoseconds; -1 if it is to be read again whatever its time is
    content_hash: str  # BLAKE2b of the whole file, 40 hexadecimal digits; of its path, if it could not be read
    duration: float = 0.0  # seconds; 0 for a picture
    frames: int = 0  # how many were described
    width: int = 0  # pixels, as a player shows it
    height: int = 0
    bitrate: float = 0.0  # bits a second, sound and container included; 0 for a picture
    state: State = "ready"  # or "failed", with `error`; or "missing": described, but the file is no longer there
    error: str | None = None  # why it failed
    added: datetime = field(default_factory=utc_now)  # when it was described, or failed; in UTC
    warnings: tuple[str, ...] = ()  # what was wrong with the file though it could be read, in sentences

    def to_json(self) -> dict[str, Any]:
        """Plain values; the path as it is shown."""
        shown = {"path": display_path(self.path), "added": self.added.isoformat(), "warnings": list(self.warnings)}
        return dataclasses.asdict(self) | shown


@dataclass(frozen=True)
class Hit:
    """A video that a search found: its score, whether it matches, and where."""

    id: str
    path: str
    score: float  # in [-1, 1]
    verdict: Verdict
    segments: tuple[Segment, ...]
    best: Instant  # the most similar frames of the query and of this video
    warnings: tuple[str, ...] = ()  # what was wrong with its file when it was added
    sound: SoundEvidence | None = None  # what the sound of both says; None in a library without sound
    inset: Box | None = None  # the window of the query that was compared, in its pixels; None: the whole of it

    @property
    def probability(self) -> float | None:
        """The probability that both share footage; None for a model that gives none."""
        return self.verdict.probability

    def to_json(self) -> dict[str, Any]:
        """What `hapvr search --json` prints of a hit."""
        return {
            "id": self.id,
            "path": display_path(self.path),
            "score": self.score,
            **self.verdict.to_json(),
            "segments": [one.to_json() for one in self.segments],
            "best": dataclasses.asdict(self.best),
            "insets": list_insets(self.inset, None),
            "warnings": list(self.warnings),
            "sound": None if self.sound is None else self.sound.to_json(),
        }


@dataclass(frozen=True)
class SoundHit:
    """A video that holds the sound of the query."""

    id: str
    path: str
    stretches: tuple[SameSound, ...]  # of the same sound
    picture: Literal["other"] | None = "other"  # None where pictures were not compared

    @property
    def seconds(self) -> float:
        """How much of the query is heard in it."""
        return sum(one.query[1] - one.query[0] for one in self.stretches)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return "same sound" if self.picture is None else "same sound, other picture"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "id": self.id,
            "path": display_path(self.path),
            "verdict": self.verdict,
            "stretches": [one.to_json() for one in self.stretches],
        }


@dataclass(frozen=True)
class SoundResult:
    """What a search by sound alone found, the longest stretches first."""

    hits: tuple[SoundHit, ...]
    database: int  # different contents whose sound was compared
    seconds: dict[str, float]  # decode, search
    note: str | None = None  # why there are no hits, if it is because of what was asked
    warnings: tuple[str, ...] = ()  # what was wrong with the query's sound

    def to_json(self) -> dict[str, Any]:
        """What `hapvr search --sound --json` prints, beside the query's name."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        hits = [hit.to_json() for hit in self.hits]
        return plain | {"match": bool(hits), "sound_hits": hits, "hits": [], "warnings": list(self.warnings)}


@dataclass(frozen=True)
class TextInstant:
    """A frame that fits a description."""

    time_s: float
    similarity: float  # in [-1, 1]; what is high depends on the text model


@dataclass(frozen=True)
class TextHit:
    """A video with frames that fit a description."""

    id: str
    path: str
    instants: tuple[TextInstant, ...]  # the best first

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self) | {
            "path": display_path(self.path),
            "instants": [dataclasses.asdict(one) for one in self.instants],
        }


@dataclass(frozen=True)
class TextResult:
    """What a search by text found, the best first."""

    hits: tuple[TextHit, ...]
    database: int  # contents that the text model has described
    seconds: dict[str, float]  # text, search
    note: str | None = None  # why there are no hits

    def to_json(self) -> dict[str, Any]:
        """What `hapvr search --text --json` prints, beside the text."""
        return dataclasses.asdict(self) | {"hits": [hit.to_json() for hit in self.hits]}


@dataclass(frozen=True)
class SearchResult:
    """The hits of a search, matches first, and how long each stage took."""

    hits: tuple[Hit, ...]
    database: int  # videos that were searched
    scored: int  # of them, how many were compared exactly
    seconds: dict[str, float]  # decode, candidates, score, segments
    note: str | None = None  # why there are no hits, if it is because of what was asked
    prior: float | None = None  # of the probabilities; None for a model that gives none
    warnings: tuple[str, ...] = ()  # what was wrong with the query's file, and how many of its frames are left out
    sound_hits: tuple[SoundHit, ...] = ()  # the same sound with other pictures, the longest stretches first

    @property
    def matches(self) -> tuple[Hit, ...]:
        """The hits that share footage with the query."""
        return tuple(hit for hit in self.hits if hit.verdict.match)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr search --json` prints, beside the query's name; `match` is whether any hit is one."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain["match"] = bool(self.matches)
        sounds = [hit.to_json() for hit in self.sound_hits]
        hits = [hit.to_json() for hit in self.hits]
        return plain | {"hits": hits, "warnings": list(self.warnings), "sound_hits": sounds}


@dataclass(frozen=True)
class AddProgress:
    """How far an `add` has come."""

    done: int  # files
    total: int
    added: int  # described, whether new or changed
    failed: int
    unchanged: int
    frames: int
    seconds: float
    current: str | None  # the file that was finished last


@dataclass(frozen=True)
class AddOptions:
    """The options of `add`, `rebuild` and `watch`; see `Library.add`."""

    prune: bool = False
    retry: bool = False
    workers: int | None = None
    progress: Callable[[AddProgress], None] | None = None
    stop: Callable[[], bool] | None = None
    sound: bool | None = None  # None: as the library remembers
    text_model: TextModel | None = None  # None: the one that the library remembers
    cluster: str | None = None  # a Ray cluster that reads the videos


@dataclass(frozen=True)
class AddReport:
    """What `add` did with the files that it was given."""

    added: int = 0
    updated: int = 0  # files whose content had changed
    moved: int = 0
    unchanged: int = 0  # failed ones that were not tried again are among them
    removed: int = 0  # vanished ones: with `prune`, and failed ones always
    missing: int = 0  # vanished ones that are kept
    failed: tuple[tuple[str, str], ...] = ()  # path and reason
    skipped: int = 0  # files in folders that are no videos by their names
    excluded: int = 0  # videos in folders that the rules of the folder leave out, by name, size or length
    linked: int = 0  # links to folders below those that were given: they are not followed
    still_failed: int = 0  # of those unchanged: failed before, and not tried again
    warnings: tuple[tuple[str, str], ...] = ()  # path and what was wrong, of files that were added all the same
    stopped: bool = False  # before the end, because it was asked to
    seconds: float = 0.0
    frames: int = 0
    sounds: int = 0  # contents whose sound was read
    silent: int = 0  # of which there is none: no sound track, or a silent one
    text_described: int = 0  # contents that a text model described
    sound_failed: int = 0  # whose sound cannot be read; a warning says why, and the video is added all the same

    def to_json(self) -> dict[str, Any]:
        """What `hapvr add --json` prints."""
        return dataclasses.asdict(self) | {
            "failed": [{"path": display_path(path), "error": reason} for path, reason in self.failed],
            "warnings": [{"path": display_path(path), "warning": text} for path, text in self.warnings],
        }


@dataclass(frozen=True)
class LibraryInfo:
    """What a library consists of, and its size."""

    path: str
    version: str  # the folder of the tables in use
    model: str
    model_digest: str
    codec: str
    fps: float
    keyframes: bool  # whether key frames alone are read
    videos: int  # ready and missing: what a search looks through
    failed: int
    missing: int
    warned: int  # added though something was wrong with their files: cut off, damaged, frames left out
    contents: int  # different ones: copies of one file are one
    frames: int
    duration: float  # seconds of video
    bytes: int  # on disk
    indexed: int  # frame vectors in the index; 0 while there are few, which are searched one by one
    vectors: int  # frame vectors
    building: str | None  # the model of a rebuild that is under way, or was interrupted
    writer: str | None  # who is writing at this moment
    unchecked: int  # files without a checksum, of an older release or a writer that was killed: the next writer adds it
    text_model: str | None = None  # the folder or name of the text model that described its frames
    candidates: str = "embedded"  # where frame vectors lie: in its tables, or the address of a collection

    @property
    def bytes_per_minute(self) -> float:
        """Bytes on disk for a minute of video; 0 for an empty library."""
        return self.bytes / (self.duration / 60) if self.duration else 0.0

    def to_json(self) -> dict[str, Any]:
        """What `hapvr info --json` prints."""
        plain = dataclasses.asdict(self)
        return plain | {"path": display_path(self.path), "bytes_per_minute": self.bytes_per_minute}


def display_path(path: str | os.PathLike[str] | ObjectPath) -> str:
    r"""A path as it can be printed anywhere: bytes that are no UTF-8 are written out.

    >>> display_path(os.fsdecode(b"caf\xe9.mp4"))
    'caf\\xe9.mp4'
    """
    return os.fsencode(str(path) if isinstance(path, ObjectPath) else path).decode("utf-8", "backslashreplace")


def escape_text(text: str) -> str:
    """A message that can be encoded: characters that cannot, such as bytes of a path, are written as escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not text.isascii() else text
