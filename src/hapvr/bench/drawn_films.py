"""Films to measure decoding with: one drawn scene under a moving camera, coded as H.264 as people's videos are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np

from hapvr.bench.config import FilmKind
from hapvr.synthetic.films import draw_scene

GROUP_S = 5
"""Seconds between key frames: most files have one in 2 to 10 s."""

_PICTURES = 16  # that are rendered: the camera moves over them and back
_SHRINK = 3  # the scene is drawn this much smaller than the film: there is little detail of single pixels in real films
_SPEED = 2  # pixels of the scene that the camera moves from frame to frame
_CODER = {"preset": "superfast", "bf": "3", "sc_threshold": "0", "x264-params": "ref=2"}


def write_films(folder: Path, kind: FilmKind, groups: tuple[int, ...]) -> list[Path]:
    """Films of a kind, each of a number of `groups` of `GROUP_S` seconds; what is between two key frames is coded once.

    The films repeat one stretch of `GROUP_S` seconds, which decoders do not notice.
    """
    once = folder / f"{kind.name}-group.mp4"
    _encode(once, kind)
    paths = [folder / f"{kind.name}-{count * GROUP_S}s.mp4" for count in groups]
    for path, count in zip(paths, groups, strict=True):
        _repeat(once, path, count)
    once.unlink()
    return paths


def _encode(path: Path, kind: FilmKind) -> None:
    """Write one stretch from a key frame to the next."""
    height, width = kind.height // _SHRINK, kind.width // _SHRINK
    room = _SPEED * _PICTURES
    scene = draw_scene(5, seconds=1, fps=1, size=(height + room, width + room)).images[0]
    views = [np.ascontiguousarray(scene[at : at + height, at : at + width]) for at in range(0, room, _SPEED)]
    pictures = [
        av.VideoFrame.from_ndarray(view, "rgb24").reformat(kind.width, kind.height, "yuv420p") for view in views
    ]
    count = GROUP_S * kind.fps
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=kind.fps, options={**_CODER, "g": str(count)})
        stream.width, stream.height, stream.pix_fmt = kind.width, kind.height, "yuv420p"
        stream.bit_rate = round(kind.megabits_per_s * 1e6)
        for number in range(count):
            turn = number % (2 * _PICTURES - 2)
            picture = pictures[min(turn, 2 * _PICTURES - 2 - turn)]
            picture.pts = number
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def _repeat(source: Path, path: Path, times: int) -> None:
    """Write a film that shows another several times, without coding it again."""
    with av.open(str(path), "w") as joined:
        stream = None
        for part in range(times):
            with av.open(str(source)) as container:
                video = container.streams.video[0]
                assert video.time_base is not None
                stream = stream or joined.add_stream_from_template(video)
                shift = round(part * GROUP_S / video.time_base)
                for packet in container.demux(video):
                    if packet.pts is None or packet.dts is None:
                        continue
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                    joined.mux(packet)
