"""Small videos written for the tests, whose pixels say which frame they are."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
BITS = 10
SIZE = (160, 90)
CROSS_FADE = {"bf": "0", "g": "30", "preset": "ultrafast"}


def barcode(index: int, size: tuple[int, int] = SIZE) -> Picture:
    """A picture whose upper half shows `index` as stripes, most significant bit first; the lower half is a ramp."""
    width, height = size
    image = np.empty((height, width, 3), np.uint8)
    image[:] = np.linspace(60, 200, width).astype(np.uint8)[None, :, None]
    for bit in range(BITS):
        stripe = slice(bit * width // BITS, (bit + 1) * width // BITS)
        image[: height // 2, stripe] = 210 if index >> (BITS - 1 - bit) & 1 else 50
    return image


def read_barcode(image: Picture) -> int:
    height, width = image.shape[:2]
    centres = [int((bit + 0.5) * width / BITS) for bit in range(BITS)]
    row = image[height // 5 : height // 3].mean((0, 2))
    return sum(int(row[centre - 1 : centre + 2].mean() > 130) << (BITS - 1 - bit) for bit, centre in enumerate(centres))


def moving(count: int, size: tuple[int, int] = (160, 120)) -> list[Picture]:
    """A smooth bright pattern that drifts: a scene, where a barcode would be too artificial."""
    y, x = np.mgrid[: size[1], : size[0]].astype(float)
    pictures = []
    for step in range(count):
        drifts = ((1, 0.3, 0.5), (0.2, 0.9, 0.7), (0.7, 0.6, -0.4))
        waves = [np.sin((x * a + y * b) / 9 + step * c) for a, b, c in drifts]
        pictures.append(np.stack([145 + 80 * wave for wave in waves], -1).astype(np.uint8))
    return pictures


class Unseekable(io.RawIOBase):
    """A file that can only be written on: a muxer cannot come back to fill in the duration."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def write(
    path: Path,
    pictures: Iterable[Picture],
    *,
    rate: int | Fraction = 30,
    times_ms: Sequence[int] | None = None,
    offset: int = 0,
    codec: str = "libx264",
    container: str | None = None,
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
    mux: dict[str, str] | None = None,
    seekable: bool = True,
) -> Path:
    """Encode pictures; `times_ms` gives irregular times, `offset` shifts all by so many frames."""
    target: Any = str(path) if seekable else Unseekable(path)
    with av.open(target, "w", format=container, container_options=mux or {}) as output:
        stream: Any = output.add_stream(codec, rate=rate, options=options or CROSS_FADE if codec == "libx264" else {})
        unit = Fraction(1, 1000) if times_ms is not None else 1 / Fraction(rate)
        stream.codec_context.time_base = unit
        stream.pix_fmt = pixels
        for index, picture in enumerate(pictures):
            if index == 0:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
            frame.pts = offset + (index if times_ms is None else times_ms[index])
            frame.time_base = unit
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    if not seekable:
        target.close()
    return path


def write_sound(path: Path, codec: str = "aac", container: str | None = None) -> Path:
    with av.open(str(path), "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=8000)
        stream.layout = "mono"
        for index in range(8):
            layout = stream.codec_context.format.name
            frame = av.AudioFrame(format=layout, layout="mono", samples=1024)
            frame.sample_rate, frame.pts = 8000, 1024 * index
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def write_wave(path: Path) -> Path:
    with wave.open(str(path), "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(8000)
        output.writeframes(bytes(8000))
    return path


def with_cover(sound: bytes, picture: bytes) -> bytes:
    """A FLAC file with a PICTURE block after its first block."""
    size = int.from_bytes(sound[5:8], "big")
    mime = b"image/png"
    block = struct.pack(">II", 3, len(mime)) + mime + struct.pack(">IIIIII", 0, 8, 8, 24, 0, len(picture)) + picture
    head = bytes([6]) + len(block).to_bytes(3, "big")
    return sound[: 8 + size] + head + block + sound[8 + size :]


def turn(path: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Write (a, b, c, d) into the track header of an MP4 file: it is shown at x' = a x + c y, y' = b x + d y."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44
    a, b, c, d = (value << 16 for value in matrix)
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path
