"""Work for processes of a crew, in a module that loads next to nothing."""

from __future__ import annotations

import os
import signal
import sys

from hapvr.video.crew import Desk
from hapvr.video.frame_tasks import VideoEnd, VideoTask, read_video


def loaded(desk: Desk, _: str) -> list[str]:
    """Of these, what the process has loaded by itself."""
    desk.block()
    return [name for name in ("pytest", "torch", "av", "h5py", "typer") if name in sys.modules]


def mortal(desk: Desk, task: VideoTask) -> VideoEnd:
    """Reads videos; one called "deadly" kills it in the middle."""
    if "deadly" in task.path:
        honest = desk.send

        def last(note: object) -> None:
            honest(note)
            os.kill(os.getpid(), signal.SIGKILL)

        desk.send = last  # type: ignore[method-assign]
    return read_video(desk, task)
