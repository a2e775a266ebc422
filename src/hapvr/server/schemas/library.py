"""Health, the library and its videos, uploads; what adds videos and checks the library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from hapvr.library.results import VideoRecord
from hapvr.server.access import file_name, visible_path, visible_record
from hapvr.server.schemas.base import QUERY_ID, VIDEO_ID, ErrorDetail, Strict, example

_VIDEO = {
    "id": VIDEO_ID, "name": "holiday.mp4", "path": "/videos/2026/holiday.mp4", "duration": 61.2, "frames": 62,
    "width": 1920, "height": 1080, "bitrate": 4_200_000.0, "size": 32_130_000, "state": "ready", "error": None,
    "added": "2026-03-01T12:00:00+00:00",
    "warnings": ["The file holds 61.20 s of the 90.00 s it declares: 28.80 s (32%) are missing at the end."],
}  # fmt: skip
_CLIP = {
    "id": "5d41402a", "seconds": 4.5, "videos": 12,
    "occurrences": [{"id": VIDEO_ID, "name": "holiday.mp4", "start_s": 56.5, "end_s": 61.0}],
}  # fmt: skip
_HEALTH = {
    "status": "ok", "cause": None, "version": "0.1.0", "library": {"videos": 1000, "failed": 2}, "model": "lite",
    "workers": {"search": {"state": "ready", "cause": None}, "add": {"state": "idle", "cause": None}},
}  # fmt: skip


class LibraryCounts(Strict):
    """How many videos there are."""

    videos: int
    failed: int


class WorkerHealth(Strict):
    """The state of a worker process."""

    state: Literal["idle", "starting", "ready", "ended", "failed"] = Field(
        description="idle: not needed yet. ended: it died, and is started again. failed: it could not be started."
    )
    cause: str | None = Field(description="Why it ended or could not be started.")


class Health(Strict):
    """Whether the server works, and what it serves."""

    model_config = example(_HEALTH)
    status: Literal["ok", "starting", "degraded", "failed"] = Field(
        description="starting: searches wait a moment. degraded: searching works, something else does not. "
        "failed: searching does not work; the status of the answer is 503, and it also has an error."
    )
    cause: str | None = Field(description="Why it is not ok.")
    version: str
    library: LibraryCounts
    model: str
    workers: dict[str, WorkerHealth] = Field(description="By name: search, add, pictures, previews.")


class FailedHealth(Health):
    """The health of a server that cannot search."""

    error: ErrorDetail


class Readiness(Strict):
    """That a search can begin now."""

    ready: Literal[True]


class RootInfo(Strict):
    """A folder that clients may add videos from."""

    id: str
    name: str


class Folders(Strict):
    """The folders at a place in a root."""

    model_config = example({"path": "2026", "folders": ["march", "may"], "more": False})
    path: str = Field(description="The place, relative to the root; empty for the root itself.")
    folders: list[str] = Field(description="Names of folders in it, without hidden ones.")
    more: bool = Field(description="Whether there are more than are listed.")


class Upload(Strict):
    """An upload that is kept."""

    model_config = example({"id": QUERY_ID, "name": "clip.mp4", "duration": 12.5, "until": None})
    id: str
    name: str
    duration: float
    until: str | None = Field(description="Until when it is kept for a link; null if no link was asked for.")


class LibraryDescription(Strict):
    """What the library holds."""

    path: str = Field(description="The name of its folder.")
    videos: int = Field(description="Those that a search looks through.")
    failed: int
    missing: int
    warned: int = Field(description="Those that were added though something was wrong with their files.")
    duration_s: float
    bytes: int
    model: str
    codec: str
    fps: float
    calibration: Literal["judge", "library", "model"] | None = Field(
        description="What the probabilities of hits are based on: a calibration on this library's own videos, the "
        "model's judge, or the model's calibration."
    )
    roots: list[RootInfo]
    max_upload_bytes: int = Field(description="Bytes of an upload at most.")
    text_search: bool = Field(description="Whether it has a text model: POST /api/searches/text.")
    actions: list[Literal["trash", "hardlink", "symlink", "move"]] = Field(
        description="What may be done with files of duplicates: nothing, unless the server was started so."
    )


class Video(Strict):
    """A video of the library."""

    model_config = example(_VIDEO)
    id: str
    name: str = Field(description="The name of its file.")
    path: str | None = Field(description="The path of its file, if that is in one of the server's roots.")
    duration: float
    frames: int
    width: int
    height: int
    bitrate: float
    size: int
    state: Literal["ready", "failed", "missing"]
    error: str | None
    added: str
    warnings: list[str] = Field(description="What was wrong with its file though it could be read, in sentences.")


def video_json(record: VideoRecord, roots: Sequence[str]) -> dict[str, Any]:
    """A `Video`."""
    plain = dataclasses.asdict(visible_record(record, roots))
    del plain["mtime_ns"], plain["content_hash"]
    return plain | {
        "name": file_name(record.path),
        "path": visible_path(record.path, roots),
        "added": record.added.isoformat(),
    }


class VideoPage(Strict):
    """Some of the videos, and how many there are."""

    total: int
    videos: list[Video]


class Occurrence(Strict):
    """Where a video shows a shared clip."""

    id: str = Field(description="Of the video.")
    name: str
    start_s: float
    end_s: float


class SharedClip(Strict):
    """Footage that many videos share, such as an end card."""

    id: str
    seconds: float = Field(description="The median of its occurrences.")
    videos: int = Field(description="How many videos show it.")
    occurrences: list[Occurrence] = Field(description="Some of them.")


class SharedFootage(Strict):
    """All footage that many videos of the library share, that of the most videos first."""

    model_config = example({"complete": True, "clips": [_CLIP]})
    complete: bool = Field(description="False for a library that is too large to look for it.")
    clips: list[SharedClip]


class Failure(Strict):
    """A video that could not be indexed."""

    id: str
    name: str
    error: str


class Removed(Strict):
    """How many were removed."""

    removed: int


class AddRequest(Strict):
    """Add the videos of a root, or of a folder in it."""

    model_config = example({"root": "9f86d081884c", "path": "2026/march"})
    root: str = Field(min_length=1, max_length=64, description="The id of a root, see /api/library.")
    path: str = Field("", max_length=1000, description="A folder in it; empty for all of it.")
    prune: bool = Field(False, description="Remove videos whose files are gone.")
    retry: bool = Field(False, description="Try again those that failed before.")


class AddFailure(Strict):
    """A file that could not be added."""

    name: str
    error: str


class AddWarning(Strict):
    """A file that was added though something was wrong with it."""

    name: str
    warning: str


class AddResult(Strict):
    """What became of the files of a folder."""

    added: int
    updated: int
    moved: int
    unchanged: int
    removed: int
    missing: int
    failed: list[AddFailure]
    skipped: int
    excluded: int
    linked: int
    still_failed: int
    warnings: list[AddWarning]
    stopped: bool
    seconds: float
    frames: int
    sounds: int = Field(description="Different videos whose sound was read, in a library with sound.")
    silent: int
    text_described: int = Field(description="Different videos that a text model described, in a library with one.")
    sound_failed: int


class CheckRequest(Strict):
    """Check that the library is as it was written; nothing is changed."""

    model_config = example({"quick": False})
    quick: bool = Field(False, description="Leave out the content of large files: seconds for a large library.")


class CheckProblem(Strict):
    """Something in the library that is not as it was written."""

    place: str = Field(description="A file of the library, or the name of a video.")
    what: str
    repair: Literal["exact", "again", "lost", "none"]
    repairable: bool = Field(description="Whether `hapvr check LIBRARY --repair` makes the library sound again.")
    remedy: str


class CheckResult(Strict):
    """What a check of the library found."""

    intact: bool
    quick: bool
    problems: list[CheckProblem]
    notes: list[str]
    videos: int
    files: int
    bytes: int
    seconds: float
