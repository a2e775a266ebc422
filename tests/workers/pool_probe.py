"""Work for the processes of a pool, in a module that loads next to nothing."""

from __future__ import annotations

import os
import signal
import sys

from hapvr.video.frame_tasks import VideoEnd, VideoTask, read_video
from hapvr.workers.pool import TaskContext


def loaded(context: TaskContext, _: str) -> list[str]:
    """Of these, what the process has loaded by itself."""
    context.block()
    return [name for name in ("pytest", "torch", "av", "h5py", "typer") if name in sys.modules]


def mortal(context: TaskContext, task: VideoTask) -> VideoEnd:
    """Reads videos; one called "deadly" kills it in the middle."""
    if "deadly" in task.path:
        honest = context.send

        def last(note: object) -> None:
            honest(note)
            os.kill(os.getpid(), signal.SIGKILL)

        context.send = last  # type: ignore[method-assign]
    return read_video(context, task)
