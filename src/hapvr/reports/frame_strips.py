"""Frames of a library's videos for pages, read from the files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hapvr.errors import HapvrError
from hapvr.library.results import VideoRecord
from hapvr.reports.html_page import make_thumbnail

_HEIGHT = 72  # of a frame on the page; twice as many pixels, for fine screens


def render_strip(video: VideoRecord, times: Sequence[float]) -> str:
    """Frames of a video near some seconds, side by side."""
    images = read_thumbnails(video, times)
    if not images:
        return "<div class='none'>its file cannot be read</div>"
    figures = "".join(f"<figure><img src='{image}' alt='at {time:.1f} s'></figure>" for time, image in images)
    return f"<div class='strip'>{figures}</div>"


def read_thumbnails(video: VideoRecord, times: Sequence[float]) -> list[tuple[float, str]]:
    """Frames near some seconds, as data addresses; fewer if some cannot be read."""
    from hapvr.video.decode import decode
    from hapvr.video.sandboxed import call_sandboxed

    if video.state != "ready":
        return []
    found = []
    for time in times if video.duration else [0.0]:
        start = max(0.0, min(time, video.duration - 0.5)) if video.duration else None
        end = None if start is None else start + 1.0
        try:
            frames = call_sandboxed(
                decode, video.path, fps=2.0, short_side=2 * _HEIGHT, min_frames=1, crop_bars=False, start_s=start,
                end_s=end,
            )  # fmt: skip
        except HapvrError:
            continue
        place = int(np.abs(frames.timestamps - time).argmin())
        found.append((time, make_thumbnail(frames.images[place], _HEIGHT)))
    return found
