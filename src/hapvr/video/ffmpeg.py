"""Video, animated GIF and pictures through FFmpeg (PyAV).

A playlist cannot make FFmpeg open other files: it may read nothing but the descriptor it is given.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.codec.hwaccel import HWAccel, HWDeviceType
from av.stream import Disposition
from av.video.reformatter import VideoReformatter

from hapvr.config import suggest
from hapvr.errors import ConfigError, DecodeError, DecodeLimitError, NoVideoError
from hapvr.records import Size, VideoInfo
from hapvr.video.limits import require_memory
from hapvr.video.sampling import Clock, Times
from hapvr.video.sources import LIBRARY_ERRORS, Input, Picture, open_container, require_pixels

HARDWARE = "HAPVR_HWACCEL"  # the environment variable that names a kind of hardware decoder, such as vaapi
_DEFAULT_INTERVAL_S = 0.04  # FFmpeg's own guess for streams that say nothing about time: 25 frames a second
_END_MARKS = {"gif": b"\x3b", "jpeg_pipe": b"\xff\xd9"}  # files that do not declare how long they are
_SEEK_FROM_S = 2.0  # what begins earlier is read from the start
_SEEK_BACK_S = 1.0  # how much earlier than asked for reading begins at least
_MAX_FPS = 1000.0  # a declared rate beyond this is a mistake
_FAR_S = 1e9  # and so is a duration beyond thirty years


class FFmpegSource:
    """A `Source` that FFmpeg decodes."""

    def __init__(self, file: Input, threads: int) -> None:
        self._file, self._deadline = file, file.deadline
        self.warnings: list[str] = []
        self._packets: array[float] = array("d")
        self._scaler = VideoReformatter()  # one for all frames: setting it up costs more than scaling a small frame
        self._keyframes = False  # whether other packets are dropped
        self._turn: tuple[bool, bool, bool] | None = None
        self._zero_s: float | None = None  # the time in the file that is called 0
        self._most_pixels = {"max_pixels": str(file.deadline.limits.max_pixels)}
        place, options = file.address()
        decoder = _choose_hardware()
        try:
            self._container = open_container(
                place, options=options | self._most_pixels, timeout=self._deadline.left(), hwaccel=decoder
            )
        except LIBRARY_ERRORS as error:
            self._deadline.check()
            require_memory(error, file.path)
            reason = getattr(error, "strerror", None) or str(error)
            cause = "It is damaged, cut off before its index, or no video."
            if isinstance(error, OSError) and "://" in file.path:
                cause = "Check the address, and whether the stream is on."
            if decoder is not None:
                cause += f" Or {HARDWARE} names a device that cannot be used here: try without it."
            raise DecodeError(f"'{file.path}' cannot be decoded: {reason}. {cause}") from error
        try:
            self._setup(threads)
        except BaseException:
            self.close()
            raise

    def _setup(self, threads: int) -> None:
        self._stream = stream = _video_stream(self._container, self._file.path)
        context = stream.codec_context
        require_pixels(self._file, context.width, context.height)
        context.options = self._most_pixels
        context.thread_type = "AUTO"
        context.thread_count = threads
        self.still = self._container.format.name.endswith("_pipe") or bool(
            stream.frames == 1 and stream.duration is None
        )
        self._unit: Fraction = stream.time_base or Fraction(1, 1_000_000)
        fps = _plausible(stream.average_rate) or _plausible(stream.guessed_rate)
        duration = _seconds(stream.duration, self._unit)
        self.declares_video = duration is not None or len(self._container.streams) == 1
        duration = duration or _seconds(self._container.duration, Fraction(1, av.time_base))
        self.info = VideoInfo(
            duration_s=None if self.still else duration,
            size=(max(context.width, 1), max(context.height, 1)),
            fps=None if self.still else fps,
            frame_count=stream.frames or None,
            container=self._container.format.name,
            codec=context.name,
            rotation=0,
        )
        interval_fps = _plausible(stream.guessed_rate) or fps  # streams without times have no average to speak of
        self._interval_s = 1 / interval_fps if interval_fps else _DEFAULT_INTERVAL_S

    def seek_distance(self, time_s: float) -> float | None:
        """See `Source.seek_distance`."""
        if time_s <= _SEEK_FROM_S:
            return max(time_s, 0.0)
        entries, start = self._stream.index_entries, self._stream.start_time or 0
        place = entries.search_timestamp(start + int((time_s - _SEEK_BACK_S) / self._unit))
        return None if place < 0 else max(time_s - float((entries[place].timestamp - start) * self._unit), 0.0)

    def skip_unneeded(self) -> None:
        """See `Source.skip_unneeded`."""
        self._stream.codec_context.skip_frame = "NONREF"

    def skip_smoothing(self) -> None:
        """See `Source.skip_smoothing`; before the first frame is decoded."""
        # Frames that others are predicted from keep it, all but those between two: what is left out adds up nowhere.
        self._stream.codec_context.options = {**self._most_pixels, "skip_loop_filter": "bidir"}

    def keep_keyframes(self) -> None:
        """See `Source.keep_keyframes`."""
        self._stream.codec_context.skip_frame = "NONKEY"
        # `Stream.discard` would spare reading the rest, but then FFmpeg gives key frames of MP4 files wrong times.
        self._keyframes = True

    def frames(self, start_s: float) -> Iterator[tuple[float, float, av.VideoFrame]]:
        """See `Source.frames`."""
        clock = Clock(self._interval_s, self.info.duration_s)
        broken, damaged, torn, refused, any_frame = 0, 0, 0, False, False
        for packet in self._demux(start_s):
            self._deadline.check()
            torn += packet.is_corrupt
            if packet.pts is not None and not (self._file.endless and self._packets):
                self._packets.append(_to_seconds(packet.pts, self._unit))
            if self._keyframes and packet.size and not packet.is_keyframe:
                continue
            try:
                decoded = packet.decode()
            except LIBRARY_ERRORS as error:
                require_memory(error, self._file.path)
                broken += 1
                refused = refused or getattr(error, "errno", None) == errno.EINVAL
                continue
            for frame in decoded:
                require_pixels(self._file, frame.width, frame.height)
                any_frame = True
                damaged += frame.is_corrupt
                time_s = clock.read(self._since_zero(frame))
                if time_s is not None:
                    shown_s = _to_seconds(frame.duration, self._unit) if frame.duration else self._interval_s
                    yield time_s, shown_s if shown_s < _FAR_S else self._interval_s, frame
        if refused and not any_frame:
            raise DecodeLimitError(
                f"'{self._file.path}' was refused by the decoder: its frames have more than "
                f"{self._deadline.limits.max_pixels:,} pixels, or an impossible size."
            )
        self._note(broken, torn, damaged, clock)

    def _since_zero(self, frame: av.VideoFrame) -> float | None:
        """Seconds since the first coded frame, which may be one that could not be decoded."""
        if frame.pts is None:
            return None
        time_s = _to_seconds(frame.pts, frame.time_base or self._unit)
        if self._zero_s is None:
            self._zero_s = min(time_s, self._packets[0]) if self._packets else time_s
        return time_s - self._zero_s

    def coded_times(self) -> Times:
        """See `Source.coded_times`."""
        return np.sort(np.array(self._packets)) - (self._zero_s or 0.0)

    def _demux(self, start_s: float) -> Iterator[Any]:
        """The packets of the video; from the key frame before `start_s`, after the first of all, which sets zero."""
        packets = self._container.demux(self._stream)
        first = True
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except LIBRARY_ERRORS as error:
                self._deadline.check()
                require_memory(error, self._file.path)
                reason = getattr(error, "strerror", None) or str(error)
                self.warnings.append(f"Reading stopped at a damaged place: {reason}.")
                return
            if first and start_s > _SEEK_FROM_S and packet.pts is not None and self._seek(packet.pts, start_s):
                self._packets.append(_to_seconds(packet.pts, self._unit))
                packets = self._container.demux(self._stream)
            else:
                yield packet
            first = False

    def _seek(self, zero: int, start_s: float) -> bool:
        """Go to a key frame a second or more before `start_s`; False if the file cannot."""
        with suppress(*LIBRARY_ERRORS):
            self._container.seek(zero + int((start_s - _SEEK_BACK_S) / self._unit), stream=self._stream)
            return True
        return False

    def _note(self, broken: int, torn: int, damaged: int, clock: Clock) -> None:
        name, coded = self._container.format.name, max(len(self._packets), broken)
        cut_off = name in _END_MARKS and _END_MARKS[name] not in self._file.tail()
        lost = "the frames in it are" if broken == 1 else "the frames in them are"
        notes = [
            (broken, f"{_count(broken, 'packet')} of {coded} could not be decoded; {lost} missing."),
            (torn, f"{_count(torn, 'packet')} with holes; what was in them is missing or damaged."),
            (cut_off, "The file has no end mark: it is cut off, and how much is missing cannot be told."),
            (damaged, f"{_count(damaged, 'frame')} decoded with damage."),
            (clock.refused, f"{_count(clock.refused, 'frame')} with impossible times left out."),
            (clock.set_back, "The times in the file go backwards; they were counted on from there."),
        ]
        self.warnings += [text for holds, text in notes if holds]

    def size(self, frame: av.VideoFrame) -> Size:
        """See `Source.size`."""
        aspect = self._stream.sample_aspect_ratio
        width, height = frame.width, frame.height
        if aspect and 0.1 <= aspect <= 10:
            width = max(round(width * aspect), 1)
        return (height, width) if self._orientation(frame)[0] else (width, height)

    def render(self, frame: av.VideoFrame, size: Size) -> Picture:
        """See `Source.render`."""
        turned, mirrored, upside_down = self._orientation(frame)
        width, height = size[::-1] if turned else size
        try:
            # By default swscale divides every frame among threads, which takes more of a processor than it saves time.
            scaled = self._scaler.reformat(frame, width, height, "rgb24", interpolation="BILINEAR", threads=1)
            image = scaled.to_ndarray()
        except LIBRARY_ERRORS as error:
            require_memory(error, self._file.path)
            raise DecodeError(
                f"'{self._file.path}': a frame of {frame.width}x{frame.height} in format {frame.format.name} cannot "
                f"be converted to RGB: {error}."
            ) from error
        if turned:
            image = image.transpose(1, 0, 2)
        if mirrored:
            image = image[:, ::-1]
        if upside_down:
            image = image[::-1]
        return np.ascontiguousarray(image, np.uint8)

    def _orientation(self, frame: av.VideoFrame) -> tuple[bool, bool, bool]:
        # Asked of one frame only: side data and frame hold each other, and a frame asked stays in memory for long.
        if self._turn is None:
            self._turn = _orientation(frame)
        return self._turn

    def close(self) -> None:
        """See `Source.close`."""
        self._container.close()


def _choose_hardware() -> HWAccel | None:
    """The hardware decoder that the environment asks for; what it cannot decode, FFmpeg decodes."""
    name = os.environ.get(HARDWARE, "")
    if name in ("", "none"):
        return None
    if name not in (names := [kind.name for kind in HWDeviceType]):
        raise ConfigError(f"{HARDWARE} cannot be {name!r}; {suggest(name, names)}")
    return HWAccel(name, allow_software_fallback=True)


def _to_seconds(ticks: int, unit: Fraction) -> float:
    """`float(ticks * unit)`, which takes several times as long: a frame of a small video decodes in little more."""
    return ticks * unit.numerator / unit.denominator


def _video_stream(container: Any, path: str) -> Any:
    """The stream to decode: FFmpeg's choice, but never the cover picture of a sound file."""
    streams = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not streams:
        held = sorted({stream.type for stream in container.streams})
        cover = " beside a cover picture" if container.streams.video else ""
        raise NoVideoError(
            f"'{path}' has no video stream; it holds {', '.join(held) if held else 'no stream at all'}{cover}."
        )
    best = container.streams.best("video")
    stream = best if best in streams else streams[0]
    if stream.codec_context is None:
        raise NoVideoError(f"'{path}' holds video of a kind that this build of FFmpeg has no decoder for.")
    return stream


def _orientation(frame: av.VideoFrame) -> tuple[bool, bool, bool]:
    """How to show a frame upright: swap its axes, then mirror it left to right, then turn it upside down."""
    with suppress(ValueError):  # PyAV cannot list side data of a kind it does not know
        data: Any = frame.side_data.get("DISPLAYMATRIX")
        if data is None:
            return False, False, False
        matrix = np.frombuffer(bytes(data), np.int32)
        if abs(int(matrix[0])) >= abs(int(matrix[1])):
            return False, bool(matrix[0] < 0), bool(matrix[4] < 0)
        return True, bool(matrix[3] < 0), bool(matrix[1] < 0)
    quarters = round(frame.rotation / 90) % 4  # counter-clockwise
    return [(False, False, False), (True, False, True), (False, True, True), (True, True, False)][quarters]


def rotation_of(frame: Any) -> int:
    """Degrees counter-clockwise that a player turns this frame: 0, 90, 180 or 270."""
    return round(frame.rotation / 90) % 4 * 90 if isinstance(frame, av.VideoFrame) else 0


def _plausible(rate: Fraction | None) -> float | None:
    return float(rate) if rate and 0 < rate <= _MAX_FPS else None


def _seconds(duration: int | None, unit: Fraction) -> float | None:
    return float(duration * unit) if duration and 0 < duration * unit < _FAR_S else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
