"""The shapes of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VIDEO_ID, QUERY_ID, JOB_ID = "3f2a91c07be4", "q1f0c8a94be1d2e3f40516273", "j9d1e0c7b6a5f4e3d"
_ERROR = {"type": "NotFound", "message": "There is no video '3f2a91c07be4'.", "hint": None}
_HEALTH = {
    "status": "ok",
    "cause": None,
    "version": "0.1.0",
    "library": {"videos": 1000, "failed": 2},
    "model": "lite",
    "workers": {"search": {"state": "ready", "cause": None}, "add": {"state": "idle", "cause": None}},
}
_SEGMENT = {"query": [0.0, 12.5], "target": [31.0, 43.5], "score": 0.81, "backwards": False}
_HIT = {
    "id": VIDEO_ID,
    "name": "holiday.mp4",
    "score": 0.83,
    "match": True,
    "probability": 0.985,
    "prior": 0.5,
    "false_per_million": 57.4,
    "words": "very likely the same",
    "duration": 61.2,
    "segments": [_SEGMENT],
    "best": {"query": 4.0, "target": 35.0, "similarity": 0.91},
    "warnings": [],
}
_VIDEO = {
    "id": VIDEO_ID,
    "name": "holiday.mp4",
    "path": "/videos/2026/holiday.mp4",
    "duration": 61.2,
    "frames": 62,
    "width": 1920,
    "height": 1080,
    "bitrate": 4_200_000.0,
    "size": 32_130_000,
    "state": "ready",
    "error": None,
    "added": "2026-03-01T12:00:00+00:00",
    "warnings": ["The file holds 61.20 s of the 90.00 s it declares: 28.80 s (32%) are missing at the end."],
}
_JOB = {
    "id": JOB_ID,
    "kind": "search",
    "state": "done",
    "progress": {"done": 62, "total": 62, "message": "searching", "rate": None, "eta_s": None},
    "result": {
        "query": {"id": QUERY_ID, "name": "clip.mp4", "duration": 12.5},
        "database": 1000,
        "scored": 50,
        "seconds": {"decode": 0.9, "candidates": 0.01, "score": 0.05, "segments": 0.02},
        "note": None,
        "prior": 0.5,
        "warnings": [],
        "hits": [_HIT],
    },
    "error": None,
    "created": "2026-03-01T12:00:00+00:00",
    "started": "2026-03-01T12:00:00+00:00",
    "finished": "2026-03-01T12:00:01+00:00",
}


def _example(value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


def _strict(value: Any) -> ConfigDict:
    return Strict.model_config | _example(value)


class Strict(BaseModel):
    """A request: keys that are not known are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, populate_by_name=True)


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: Literal["NotFound", "BadInput", "TooLarge", "Busy", "Forbidden", "Conflict", "Internal"]
    message: str = Field(description="A sentence.")
    hint: str | None = Field(description="What to do.")


class Error(BaseModel):
    """The body of every answer that is no success."""

    model_config = _example({"error": _ERROR})
    error: ErrorDetail


class LibraryCounts(BaseModel):
    """How many videos there are."""

    videos: int
    failed: int


class WorkerHealth(BaseModel):
    """How a process of the server is."""

    state: Literal["idle", "starting", "ready", "ended", "failed"] = Field(
        description="idle: not needed yet. ended: it died, and is started again. failed: it could not be started."
    )
    cause: str | None = Field(description="Why it ended or could not be started.")


class Health(BaseModel):
    """Whether the server can do what it is for, and what it serves."""

    model_config = _example(_HEALTH)
    status: Literal["ok", "starting", "degraded", "failed"] = Field(
        description="starting: searches wait a moment. degraded: something else than searching does not work. "
        "failed: searching does not work; the status of the answer is 503, and it also has an error."
    )
    cause: str | None = Field(description="Why it is not ok.")
    version: str
    library: LibraryCounts
    model: str
    workers: dict[str, WorkerHealth] = Field(description="By name: search, add, pictures, previews.")


class RootInfo(BaseModel):
    """A folder whose videos may be added."""

    id: str
    name: str


class LibraryDescription(BaseModel):
    """What the library is made of."""

    path: str = Field(description="The name of its folder.")
    videos: int = Field(description="Those that a search looks through.")
    failed: int
    missing: int
    warned: int = Field(description="Those that were added though something was wrong with their files.")
    duration_s: float
    bytes: int
    model: str
    codec: str
    rate: float
    calibration: Literal["library", "model"] | None = Field(
        description="What probabilities of hits rest on: this library's own videos, or the model's calibration."
    )
    roots: list[RootInfo]
    max_upload: int = Field(description="Bytes of an upload at most.")


class Video(BaseModel):
    """A video of the library."""

    model_config = _example(_VIDEO)
    id: str
    name: str = Field(description="The name of its file.")
    path: str | None = Field(description="Where its file lies, if that is in one of the server's roots.")
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


class VideoPage(BaseModel):
    """Some of the videos."""

    total: int
    videos: list[Video]


class Removed(BaseModel):
    """How many were removed."""

    removed: int


class Progress(BaseModel):
    """How far a job is."""

    done: float
    total: float | None
    message: str | None
    rate: float | None = Field(description="Frames a second.")
    eta_s: float | None


class Job(BaseModel):
    """Long work: queued, running, then done, failed or cancelled. What `result` holds depends on the kind."""

    model_config = _example(_JOB)
    id: str
    kind: Literal["search", "compare", "add", "duplicates", "matrix"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: Progress
    result: Any
    error: ErrorDetail | None
    created: str
    started: str | None
    finished: str | None


class Begun(BaseModel):
    """A job that was begun."""

    job: Job


class SearchBegun(Begun):
    """A search that was begun."""

    query: str = Field(description="What is looked for: an upload's id or a video's.", examples=[QUERY_ID])


class SearchRequest(Strict):
    """Search by a video of the library, or by an upload that is still kept."""

    model_config = _strict({"id": VIDEO_ID, "k": 10})
    id: str = Field(min_length=1, max_length=64)
    start: float | None = Field(None, alias="from", ge=0, le=1e7, description="Seconds; what lies before is left out.")
    end: float | None = Field(None, alias="to", gt=0, le=1e7, description="Seconds; likewise from there on.")
    k: int = Field(10, ge=1, le=200, description="Hits at most.")
    min_probability: float | None = Field(None, ge=0, le=1, description="Hits that match less likely are left out.")
    exact: bool = Field(False, description="Compare with every video.")


class UploadForm(Strict):
    """The fields of an upload beside its file."""

    start: float | None = Field(None, alias="from", ge=0, le=1e7)
    end: float | None = Field(None, alias="to", gt=0, le=1e7)
    k: int = Field(10, ge=1, le=200)
    min_probability: float | None = Field(None, ge=0, le=1)
    exact: bool = False


class CompareRequest(Strict):
    """Compare two videos: `a` is what is looked for, a video or an upload."""

    model_config = _strict({"a": QUERY_ID, "b": VIDEO_ID})
    a: str = Field(min_length=1, max_length=64)
    b: str = Field(min_length=1, max_length=64)


class AddRequest(Strict):
    """Add the videos of a root, or of a folder in it."""

    model_config = _strict({"root": "9f86d081884c", "path": "2026/march"})
    root: str = Field(min_length=1, max_length=64, description="The id of a root, see /api/library.")
    path: str = Field("", max_length=1000, description="A folder in it; nothing for all of it.")
    prune: bool = Field(False, description="Forget videos whose files are gone.")
    retry: bool = Field(False, description="Try those again that failed before.")


class DuplicatesRequest(Strict):
    """Look for duplicates in the whole library."""

    model_config = _strict({"threshold": None, "since": None})
    threshold: float | None = Field(None, ge=-1, le=1, description="Strength of a link, above 0 and at most 1.")
    since: str | None = Field(None, max_length=40, description="Only pairs with a video added since: ISO 8601.")


class Pair(Strict):
    """Two videos."""

    model_config = _strict({"a": VIDEO_ID, "b": "77aa0c1d2e3f"})
    a: str = Field(min_length=1, max_length=64)
    b: str = Field(min_length=1, max_length=64)


class Marked(BaseModel):
    """Whether two videos are marked as no duplicates."""

    distinct: bool


class Failure(BaseModel):
    """A video that could not be described."""

    id: str
    name: str
    error: str
