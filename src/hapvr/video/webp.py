"""WebP, animated or not, through Pillow: FFmpeg does not decode animated WebP."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

from hapvr.errors import DecodeError
from hapvr.records import Size, VideoInfo
from hapvr.video.limits import require_memory
from hapvr.video.sampling import Times
from hapvr.video.sources import LIBRARY_ERRORS, OpenFile, Picture, require_pixels


def is_webp(head: bytes) -> bool:
    """Whether a file that begins so is WebP."""
    return head[:4] == b"RIFF" and head[8:12] == b"WEBP"


class WebPSource:
    """A `Source` that Pillow decodes: WebP, animated or not."""

    declares_video = True

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.warnings: list[str] = []
        self._times: list[float] = []
        # Pillow sets memory aside for the canvas on opening, so its size is read here first.
        require_pixels(file, *_size(file.head()))
        try:
            self._handle = os.fdopen(os.dup(file.descriptor), "rb")
        except OSError as error:
            raise DecodeError(f"'{file.path}' cannot be read: {error.strerror}.") from error
        try:
            self._image = Image.open(self._handle, formats=["WEBP"])
            self._count = int(getattr(self._image, "n_frames", 1))
        except LIBRARY_ERRORS as error:
            self._handle.close()
            require_memory(error, file.path)
            raise DecodeError(
                f"'{file.path}' cannot be decoded: it begins as WebP but is damaged or cut off. Copy it again."
            ) from error
        self.still = self._count == 1
        require_pixels(file, *self._image.size)
        self.info = VideoInfo(None, self._image.size, None, self._count, "webp", "webp", 0)

    def seek_distance(self, time_s: float) -> float | None:
        """See `Source.seek_distance`; it is read from the start."""
        return max(time_s, 0.0)

    def skip_unneeded(self) -> None:
        """See `Source.skip_unneeded`; each frame is needed here."""

    def skip_smoothing(self) -> None:
        """See `Source.skip_smoothing`; there is none."""

    def keep_keyframes(self) -> None:
        """See `Source.keep_keyframes`; there are none."""

    def frames(self, start_s: float) -> Iterator[tuple[float, float, Image.Image]]:  # noqa: ARG002 - it cannot seek
        """See `Source.frames`."""
        time_s = 0.0
        for index in range(self._count):
            self._file.deadline.check()
            try:
                self._image.seek(index)
                picture = self._image.convert("RGBA")
            except LIBRARY_ERRORS as error:
                require_memory(error, self._file.path)
                self.warnings.append(f"{self._count - index} of {self._count} frames could not be decoded.")
                return
            shown_s = max(float(self._image.info.get("duration", 0)) / 1000, 0.01)
            self._times.append(time_s)
            yield time_s, shown_s, ImageOps.exif_transpose(picture) if self.still else picture
            time_s += shown_s

    def coded_times(self) -> Times:
        """See `Source.coded_times`."""
        return np.array(self._times)

    def size(self, frame: Image.Image) -> Size:
        """See `Source.size`."""
        return frame.size

    def render(self, frame: Image.Image, size: Size) -> Picture:
        """See `Source.render`. What is transparent is shown on white."""
        white = Image.new("RGBA", frame.size, "white")
        image = Image.alpha_composite(white, frame).convert("RGB").resize(size, Image.Resampling.BILINEAR)
        return np.array(image, np.uint8)

    def close(self) -> None:
        """See `Source.close`."""
        self._image.close()
        self._handle.close()


def _size(head: bytes) -> Size:
    """Width and height that the first 30 bytes of a WebP file declare; 1x1 if they are of none of its three kinds."""
    kind, head = head[12:16], head.ljust(30, b"\0")
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return 1, 1
