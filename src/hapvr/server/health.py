"""Whether a server can do what it is for, told from its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hapvr.server.wording import without_place
from hapvr.server.workers import Worker


@dataclass(frozen=True)
class HealthReport:
    """What a health check says.

    Attributes:
        status: ok; starting (searches wait a moment); degraded (something else than searching does not work, or a
            process has just died); failed (searching does not work).
        cause: why it is not ok, in a sentence.
        workers: state and cause of each worker, by name.
    """

    status: Literal["ok", "starting", "degraded", "failed"]
    cause: str | None
    workers: dict[str, dict[str, Any]]


def check_health(workers: Sequence[Worker], *, library: Path) -> HealthReport:
    """Tell how a server is from its workers, the one that searches first; no cause says where the library lies."""
    told: dict[str, dict[str, Any]] = {}
    sentences: list[str] = []
    for worker in workers:
        state = worker.state
        cause = None if worker.trouble is None or state == "ready" else without_place(worker.trouble, str(library))
        told[worker.kind] = {"state": state, "cause": cause}
        if cause is not None:
            how = "could not be started" if state == "failed" else "has ended and is started again"
            sentences.append(f"The {worker.kind} worker {how}: {cause.rstrip('.')}.")
    searching = workers[0]
    status: Literal["ok", "starting", "degraded", "failed"] = "degraded" if sentences else "ok"
    if searching.state == "failed":
        status = "failed"
    elif searching.state == "starting" or (searching.state == "idle" and searching.keep):
        status = "starting"
        if not sentences:
            sentences.append(f"The {searching.kind} worker is being started.")
    return HealthReport(status, " ".join(sentences) or None, told)
