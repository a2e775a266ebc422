"""Jobs: long work, and how far it is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hapvr.server.schemas.base import JOB_ID, QUERY_ID, VIDEO_ID, ErrorDetail, Strict, example
from hapvr.server.schemas.duplicates import ActionResult, DuplicatesResult
from hapvr.server.schemas.library import AddResult, CheckResult
from hapvr.server.schemas.search import CompareResult, SearchResult, TextSearchResult

_SEGMENT = {"query": [0.0, 12.5], "target": [31.0, 43.5], "score": 0.81, "backwards": False}
_HIT = {
    "id": VIDEO_ID, "name": "holiday.mp4", "path": "/videos/2026/holiday.mp4", "score": 0.83,
    "verdict": "copy", "match": True, "probability": 0.985, "scene_probability": 0.985, "prior": 0.3,
    "false_per_million": 7.4, "reason": "Along 12 frames they are closely alike and in step; what moves agrees.",
    "second_look": False, "evidence": {"similarity": 0.81, "in_step": 0.7}, "duration": 61.2,
    "segments": [_SEGMENT], "best": {"query": 4.0, "target": 35.0, "similarity": 0.91}, "warnings": [],
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


class Progress(Strict):
    """How far a job is."""

    done: float
    total: float | None
    message: str | None
    rate: float | None = Field(description="Frames a second.")
    eta_s: float | None


class Job(Strict):
    """Long work: queued, running, then done, failed or cancelled. `result` depends on the kind."""

    model_config = example(_JOB)
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
