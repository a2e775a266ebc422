"""The program of the picture and preview workers: thumbnails, strips of frames, previews that every browser plays.

They read files of strangers, so they run in a sandbox (`hapvr.workers.sandbox`), and import no more than a decoder.
What they make is written into a file, whole or not at all.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

from hapvr.errors import NoVideoError
from hapvr.server.worker_process import Call, Task, lower_priority, serve
from hapvr.storage import replace_file
from hapvr.video.decode import decode, decode_chunks, probe
from hapvr.video.limits import DecodeLimits

_GRID = 4.0  # instants a second at which thumbnails are taken
_PREVIEW_FPS, _PREVIEW_SIDE = 10.0, 270
_TIME_BASE = Fraction(1, 12_800)
_FAST_START = {"movflags": "+faststart"}
_QUICK = {"preset": "veryfast", "crf": "28", "g": "20", "threads": "1"}


class PictureTasks:
    """What these workers can do; each task is given the `path` and `name` of a file."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        lower_priority(5)

    def prepare(self) -> None:
        """There is nothing to load."""

    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""
        return {"thumbnail": self.thumbnail, "strip": self.strip, "preview": self.preview, "probe": self.probe}

    def hide_paths(self, text: str, arguments: dict[str, Any]) -> str:
        """A message with the name of the file in place of its path."""
        path: str = arguments["path"]
        return text.replace(path, arguments["name"])

    def _limits(self, seconds: float) -> DecodeLimits:
        return DecodeLimits(self._settings["max_decode_pixels"], 1_000_000, seconds)

    def probe(self, arguments: dict[str, Any], _: Call) -> float:
        """The duration in seconds of a file that can be decoded; 0 if it is not known."""
        return probe(arguments["path"], limits=self._limits(self._settings["max_picture_s"])).duration_s or 0.0

    def thumbnail(self, arguments: dict[str, Any], _: Call) -> None:
        """One frame as JPEG, `width` pixels wide."""
        width = arguments["width"]
        picture = self._frame(arguments["path"], arguments["t"], width)
        _save(_resize(picture, width / picture.width), arguments["out"])

    def strip(self, arguments: dict[str, Any], call: Call) -> None:
        """Frames spread over the video, side by side as one JPEG, `height` pixels high."""
        count, height, duration = arguments["count"], arguments["height"], arguments["duration"]
        times = [(place + 0.5) * duration / count for place in range(count)] if duration > 0 else [0.0]
        pictures: list[Image.Image] = []
        for time_s in times:
            call.check()
            picture = self._frame(arguments["path"], time_s, height)
            pictures.append(_resize(picture, height / picture.height))
        whole = Image.new("RGB", (sum(one.width for one in pictures), height))
        left = 0
        for picture in pictures:
            whole.paste(picture, (left, 0))
            left += picture.width
        _save(whole, arguments["out"])

    def _frame(self, path: str, time_s: float, side: int) -> Image.Image:
        """The frame at a time, or the last before it, upright."""
        limits = self._limits(self._settings["max_picture_s"])
        first = np.floor(max(0.0, time_s) * _GRID) / _GRID
        for back in (0.0, 0.5, 2.0, 10.0, np.inf):
            start = max(0.0, float(first) - back)
            try:
                frames = decode(
                    path,
                    start_s=start,
                    end_s=start + 1 / _GRID + min(back, 10.0),
                    fps=_GRID,
                    short_side=max(16, side),
                    min_frames=0,
                    crop_bars=False,
                    threads=1,
                    limits=limits,
                )
            except NoVideoError:
                if start == 0:
                    raise
                continue
            return Image.fromarray(frames.images[-1 if back else 0])
        raise AssertionError  # the last start is 0

    def preview(self, arguments: dict[str, Any], call: Call) -> None:
        """A small H.264 file without sound, of as much of the video as time allows."""
        import av

        end = time.monotonic() + self._settings["max_preview_s"] * 0.9
        max_length_s = self._settings["max_preview_length_s"]
        with (
            replace_file(arguments["out"], sync=False) as temporary,
            av.open(str(temporary), "w", format="mp4", options=_FAST_START) as container,
        ):
            stream: Any = None
            last = -1
            for frames in decode_chunks(
                arguments["path"],
                chunk=64,
                fps=_PREVIEW_FPS,
                short_side=_PREVIEW_SIDE,
                min_frames=0,
                crop_bars=False,
                threads=1,
                limits=self._limits(self._settings["max_preview_s"]),
            ):
                call.check()
                height, width = (side - side % 2 for side in frames.images.shape[1:3])
                if stream is None:
                    stream = container.add_stream("libx264", rate=Fraction(_PREVIEW_FPS), options=_QUICK)
                    stream.width, stream.height, stream.pix_fmt = max(2, width), max(2, height), "yuv420p"
                    stream.codec_context.time_base = _TIME_BASE
                for image, time_s in zip(frames.images, frames.timestamps.tolist(), strict=True):
                    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image[:height, :width]), format="rgb24")
                    frame.pts = last = max(last + 1, round(time_s / _TIME_BASE))
                    frame.time_base = _TIME_BASE
                    container.mux(stream.encode(frame))
                if frames.timestamps[-1] >= max_length_s or time.monotonic() > end:
                    break
            container.mux(stream.encode(None))


def _resize(picture: Image.Image, scale: float) -> Image.Image:
    size = tuple(max(1, round(side * scale)) for side in picture.size)
    return picture.resize((size[0], size[1]), Image.Resampling.BILINEAR)


def _save(picture: Image.Image, out: str) -> None:
    with replace_file(out, sync=False) as temporary:
        picture.save(temporary, "JPEG", quality=80)


if __name__ == "__main__":
    serve(PictureTasks)
