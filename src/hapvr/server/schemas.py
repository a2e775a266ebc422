"""The shapes of requests and answers, as the OpenAPI document shows them; and what fills those of videos and links.

Nothing else may be in a request, nor in an answer: tests hold every answer of every route against its model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hapvr.library.duplicate_report import Link as DuplicateLink
from hapvr.library.results import VideoRecord
from hapvr.server.access import file_name, visible_path, visible_record
from hapvr.server.problems import Kind

VIDEO_ID, QUERY_ID, JOB_ID = "3f2a91c07be4", "q1f0c8a94be1d2e3f40516273", "j9d1e0c7b6a5f4e3d"
_LINK_WORDS = {
    "identical": "the same bytes",
    "duplicate": "a copy",
    "contained": "a part of the other",
    "shared": "a part of both is the same",
}
_SEGMENT = {"query": [0.0, 12.5], "target": [31.0, 43.5], "score": 0.81, "backwards": False}
_HIT = {
    "id": VIDEO_ID, "name": "holiday.mp4", "path": "/videos/2026/holiday.mp4", "score": 0.83,
    "verdict": "copy", "match": True, "probability": 0.985, "scene_probability": 0.985, "prior": 0.3,
    "false_per_million": 7.4, "reason": "Along 12 frames they are closely alike and in step; what moves agrees.",
    "second_look": False, "evidence": {"similarity": 0.81, "in_step": 0.7}, "duration": 61.2,
    "segments": [_SEGMENT], "best": {"query": 4.0, "target": 35.0, "similarity": 0.91}, "warnings": [],
}  # fmt: skip
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
_SEARCH = {
    "query": {"id": QUERY_ID, "name": "clip.mp4", "duration": 12.5}, "database": 1000, "scored": 50,
    "seconds": {"decode": 0.9, "candidates": 0.01, "score": 0.05, "segments": 0.02}, "note": None, "prior": 0.3,
    "match": True, "warnings": [], "filter": {}, "hits": [_HIT],
}  # fmt: skip
_JOB = {
    "id": JOB_ID, "kind": "search", "state": "done", "result": _SEARCH, "error": None,
    "progress": {"done": 62, "total": 62, "message": "searching", "rate": None, "eta_s": None},
    "created": "2026-03-01T12:00:00+00:00", "started": "2026-03-01T12:00:00+00:00",
    "finished": "2026-03-01T12:00:01+00:00",
}  # fmt: skip
_HEALTH = {
    "status": "ok", "cause": None, "version": "0.1.0", "library": {"videos": 1000, "failed": 2}, "model": "lite",
    "workers": {"search": {"state": "ready", "cause": None}, "add": {"state": "idle", "cause": None}},
}  # fmt: skip


class Strict(BaseModel):
    """A request or an answer: keys that are not named here are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _example(value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


Id = Field(min_length=1, max_length=64)
IgnoreShared = Field(True, description="Footage that many videos of the library share makes no match.")


# --- requests --------------------------------------------------------------------------------------------------------


class FilterOptions(Strict):
    """Which videos are meant; without any of these all are."""

    root: str | None = Field(None, min_length=1, max_length=64, description="Only files in this root: its id.")
    folder: str = Field("", max_length=1000, description="Only files in this folder of the root.")
    min_size: int | None = Field(None, ge=0, le=10**15, description="Only files of at least this many bytes.")
    max_size: int | None = Field(None, ge=0, le=10**15, description="Only files of at most this many bytes.")
    min_seconds: float | None = Field(None, ge=0, le=1e7, description="Only videos of at least this length.")
    max_seconds: float | None = Field(None, ge=0, le=1e7, description="Only videos of at most this length.")
    after: datetime | None = Field(None, description="Only files that were last changed at this time or later.")
    before: datetime | None = Field(None, description="Only files that were last changed before this time.")


class SearchOptions(FilterOptions):
    """The options of a search; the fields of a form beside its file."""

    start_s: float | None = Field(None, ge=0, le=1e7, description="Seconds where the query starts.")
    end_s: float | None = Field(None, gt=0, le=1e7, description="Seconds where the query ends.")
    k: int = Field(10, ge=1, le=200, description="Number of hits at most.")
    min_probability: float | None = Field(None, ge=0, le=1, description="Leave out hits with a lower probability.")
    exact: bool = Field(False, description="Compare with every video.")
    ignore_shared: bool = IgnoreShared


class SearchRequest(SearchOptions):
    """Search by a video of the library, or by an upload that is still kept."""

    model_config = _example({"id": VIDEO_ID, "k": 10})
    id: str = Id


class TextSearchRequest(FilterOptions):
    """Search by a description, in a library with a text model (`text_search` of /api/library)."""

    model_config = _example({"text": "a red car at night", "k": 10})
    text: str = Field(min_length=1, max_length=500, pattern=r"\S", description="What is to be seen.")
    k: int = Field(10, ge=1, le=200, description="Number of hits at most.")


class Pair(Strict):
    """Two videos of the library."""

    model_config = _example({"a": VIDEO_ID, "b": "77aa0c1d2e3f"})
    a: str = Id
    b: str = Id


class CompareRequest(Pair):
    """Compare two videos: `a` is what is looked for, a video or an upload."""

    model_config = _example({"a": QUERY_ID, "b": VIDEO_ID})
    ignore_shared: bool = IgnoreShared


class AddRequest(Strict):
    """Add the videos of a root, or of a folder in it."""

    model_config = _example({"root": "9f86d081884c", "path": "2026/march"})
    root: str = Field(min_length=1, max_length=64, description="The id of a root, see /api/library.")
    path: str = Field("", max_length=1000, description="A folder in it; empty for all of it.")
    prune: bool = Field(False, description="Remove videos whose files are gone.")
    retry: bool = Field(False, description="Try again those that failed before.")


class CheckRequest(Strict):
    """Check that the library is as it was written; nothing is changed."""

    model_config = _example({"quick": False})
    quick: bool = Field(False, description="Leave out the content of large files: seconds for a large library.")


class DuplicatesRequest(FilterOptions):
    """Look for duplicates in the whole library; of what is found, list groups and links with a video that is meant."""

    model_config = _example({"min_probability": 0.5, "since": None})
    min_probability: float = Field(0.5, gt=0, le=1, description="Report links that are copies with this probability.")
    since: str | None = Field(None, max_length=40, description="Only pairs with a video added since: ISO 8601.")
    ignore_shared: bool = IgnoreShared


class ActionGroup(Strict):
    """Videos of one group of the last search for duplicates."""

    keep: str = Field(min_length=1, max_length=64, description="The id of the copy that is kept.")
    videos: list[str] = Field(min_length=1, max_length=1000, description="The ids of copies to do something with.")


class ActionRequest(Strict):
    """Do something with files of duplicates; `actions` of /api/library says what is allowed."""

    model_config = _example({"action": "trash", "groups": [{"keep": VIDEO_ID, "videos": ["77aa0c1d2e3f"]}]})
    action: Literal["trash", "hardlink", "symlink", "move"]
    groups: list[ActionGroup] = Field(min_length=1, max_length=1000)


# --- answers ---------------------------------------------------------------------------------------------------------


class ErrorDetail(Strict):
    """What went wrong."""

    type: Kind
    message: str = Field(description="A sentence.")
    hint: str | None = Field(description="What to do.")


class Error(Strict):
    """The body of every answer that is no success."""

    model_config = _example(
        {"error": {"type": "NotFound", "message": f"There is no video '{VIDEO_ID}'.", "hint": None}}
    )
    error: ErrorDetail


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

    model_config = _example(_HEALTH)
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

    model_config = _example({"path": "2026", "folders": ["march", "may"], "more": False})
    path: str = Field(description="The place, relative to the root; empty for the root itself.")
    folders: list[str] = Field(description="Names of folders in it, without hidden ones.")
    more: bool = Field(description="Whether there are more than are listed.")


class Upload(Strict):
    """An upload that is kept."""

    model_config = _example({"id": QUERY_ID, "name": "clip.mp4", "duration": 12.5, "until": None})
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

    model_config = _example(_VIDEO)
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

    model_config = _example({"complete": True, "clips": [_CLIP]})
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


class Marked(Strict):
    """Whether two videos are marked as no duplicates."""

    distinct: bool


class Segment(Strict):
    """A stretch of the query and the stretch of the target that shows the same footage, in seconds."""

    query: tuple[float, float]
    target: tuple[float, float]
    score: float
    backwards: bool
    shared: bool = Field(False, description="It is footage that many videos of the library share.")


class Instant(Strict):
    """The most similar frames, in seconds."""

    query: float
    target: float
    similarity: float


class Verdict(Strict):
    """How well a query and a target match."""

    id: str = Field(description="Of the target.")
    name: str
    score: float
    verdict: Literal["copy", "same scene", "no match"]
    match: bool
    probability: float | None = Field(description="That they share footage.")
    scene_probability: float | None = Field(description="That they show the same scene or event, or share footage.")
    prior: float | None
    false_per_million: float | None
    reason: str = Field(description="The evidence in a sentence.")
    second_look: bool = Field(description="Whether the files were compared at full size.")
    evidence: dict[str, float]
    duration: float
    segments: list[Segment]
    best: Instant


class SameSound(Strict):
    """A stretch of the query that sounds like one of the video, in seconds."""

    query: tuple[float, float]
    target: tuple[float, float]
    events: int = Field(description="Moments that agree.")
    speed: float = Field(description="Of the query, of 1 for that of the video.")


class Sound(Strict):
    """What the sound of two videos says about them."""

    kind: Literal["same", "other", "silent", "not indexed"]
    stretches: list[SameSound]
    audible: Literal["query", "target"] | None = Field(description="Which has sound, if the other is silent.")


class SoundHit(Strict):
    """A video with the same sound and other pictures."""

    id: str
    name: str = Field(description="The name of its file.")
    path: str | None
    verdict: str
    stretches: list[SameSound]


class Hit(Verdict):
    """A video that was found."""

    path: str | None
    warnings: list[str]
    sound: Sound | None = Field(description="Null if sound was not compared.")


class QueryInfo(Strict):
    """What was searched for."""

    id: str
    name: str
    duration: float


class SearchResult(Strict):
    """What a search found, matches first."""

    query: QueryInfo
    match: bool = Field(description="Whether any hit is a match.")
    database: int
    scored: int
    seconds: dict[str, float]
    note: str | None = Field(description="Why there are no hits, if the reason is the query.")
    prior: float | None
    warnings: list[str]
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")
    hits: list[Hit]
    sound_hits: list[SoundHit] = Field(description="The same sound with other pictures.")


class TextInstant(Strict):
    """A frame that fits a description."""

    time_s: float
    similarity: float = Field(description="From -1 to 1; what is high depends on the text model.")


class TextHit(Strict):
    """A video with frames that fit a description."""

    id: str
    name: str = Field(description="The name of its file.")
    path: str | None
    duration: float
    instants: list[TextInstant] = Field(description="When it shows what fits, the best first.")


class TextSearchResult(Strict):
    """What a search by text found, the best first. There are hits whatever is asked for: they tell no match."""

    text: str
    database: int = Field(description="Different videos that the text model has described.")
    seconds: dict[str, float]
    note: str | None = Field(description="Why there are no hits.")
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")
    hits: list[TextHit]


class Matrix(Strict):
    """The similarities of all frames; `values` and `before` are base64 of one byte a cell, row by row."""

    rows: int
    columns: int
    query_times: list[float]
    target_times: list[float]
    lowest: float = Field(description="The similarity of byte 0.")
    highest: float = Field(description="The similarity of byte 255.")
    before: str = Field(description="Before the network.")
    values: str = Field(description="After the network; of a model without one, as before.")


class CompareWarnings(Strict):
    """What was wrong with the files."""

    query: list[str]
    target: list[str]


class CompareResult(Verdict):
    """Two videos compared in full."""

    warnings: CompareWarnings
    matrix: Matrix
    sound: Sound | None = Field(description="Null in a library without sound.")


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


class Derivation(Strict):
    """Which of two copies is an edit of the other; null with reasons: one is, and nothing says which."""

    derived: Literal["a", "b"] | None
    reasons: list[str]


class Link(Strict):
    """Two videos that show the same footage; of segments, the query is `a` and the target is `b`."""

    a: str
    b: str
    kind: Literal["identical", "duplicate", "contained", "shared"]
    score: float
    verdict: Literal["copy", "same scene", "no match"]
    probability: float | None
    reason: str = Field(description="The evidence in a sentence.")
    second_look: bool
    coverage: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    speed: float
    segments: list[Segment]
    derivation: Derivation | None = Field(description="Null if the files were not looked at.")
    sound: Sound | None = Field(description="Null if it was not compared.")
    words: str


class SoundPair(Strict):
    """Two videos with the same sound and other pictures; of stretches, the query is `a` and the target is `b`."""

    a: str
    b: str
    stretches: list[SameSound]


class GroupVideo(Video):
    """A video of a group of duplicates."""

    keep: bool
    why: str | None
    copy_kind: Literal["identical", "copy", "edited", "unsure"] | None = Field(
        description="What it is to the copy to keep; null for that one."
    )
    meant: bool = Field(description="Whether the limits of the request allow it.")


class Group(Strict):
    """Copies of one video, the one to keep first."""

    videos: list[GroupVideo]
    reason: str
    links: list[Link]


class DuplicatesResult(Strict):
    """Groups of copies; links between other videos, and those videos by their ids."""

    groups: list[Group]
    links: list[Link]
    sound_pairs: list[SoundPair]
    videos: dict[str, Video]
    scored: int
    pairs: int
    marked: int
    min_probability: float
    prior: float | None
    seconds: float
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")


class LeftFile(Strict):
    """A file that is left alone, and why."""

    name: str
    reason: str


class ActionPreview(Strict):
    """What an action would do."""

    files: int
    bytes: int
    kept: int = Field(description="Copies of these files that are kept.")
    left: list[LeftFile]


class ActionResult(Strict):
    """What an action did, or what was taken back."""

    id: str = Field(description="By which it is taken back: POST /api/actions/{id}/undo.")
    action: Literal["trash", "hardlink", "symlink", "move", "undo"]
    files: int
    bytes: int
    left: list[LeftFile]


class Progress(Strict):
    """How far a job is."""

    done: float
    total: float | None
    message: str | None
    rate: float | None = Field(description="Frames a second.")
    eta_s: float | None


class Job(Strict):
    """Long work: queued, running, then done, failed or cancelled. `result` depends on the kind."""

    model_config = _example(_JOB)
    id: str
    kind: Literal["search", "search_text", "compare", "add", "check", "duplicates", "actions", "undo"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: Progress
    result: (
        SearchResult
        | TextSearchResult
        | CompareResult
        | AddResult
        | CheckResult
        | DuplicatesResult
        | ActionResult
        | None
    )
    error: ErrorDetail | None
    created: str
    started: str | None
    finished: str | None


class Begun(Strict):
    """A job that was begun."""

    job: Job


class SearchBegun(Begun):
    """A search that was begun."""

    query: str = Field(description="What is looked for: the id of an upload or of a video.", examples=[QUERY_ID])


def video_json(record: VideoRecord, roots: Sequence[str]) -> dict[str, Any]:
    """A `Video`."""
    plain = dataclasses.asdict(visible_record(record, roots))
    del plain["mtime_ns"], plain["content_hash"]
    return plain | {
        "name": file_name(record.path),
        "path": visible_path(record.path, roots),
        "added": record.added.isoformat(),
    }


def link_json(link: DuplicateLink) -> dict[str, Any]:
    """A `Link`."""
    return link.to_json() | {"words": _LINK_WORDS[link.kind]}
