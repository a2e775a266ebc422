"""The program that a worker process runs: python -m hapvr.server.worker_process KIND."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from hapvr.server.worker import TaskSet, serve


def make_tasks(kind: str, settings: dict[str, Any]) -> TaskSet:
    """What a worker of a kind can do. Only what it needs is imported: one that makes pictures needs no model."""
    if kind in ("search", "add"):
        from hapvr.server.tasks import LibraryTasks

        return LibraryTasks(kind, settings)
    from hapvr.server.picturing import PictureTasks

    return PictureTasks(settings)


if __name__ == "__main__":
    serve(partial(make_tasks, sys.argv[1]))
