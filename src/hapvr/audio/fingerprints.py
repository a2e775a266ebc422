"""Fingerprints of sound: the strongest peaks of the spectrum, as points in time and frequency.

A peak of a spectrogram outlives what is done to a sound on its way: coding, resampling, another volume, noise that is
not louder than it (Wang, "An industrial-strength audio search algorithm", ISMIR 2003). Only the peaks are stored; pairs
of them, by which two sounds are compared, are made when they are needed (see `hapvr.audio.matching`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.audio.decoding import RATE, SoundPart
from hapvr.errors import DataError

WINDOW = 512
"""Samples of a spectrum: 64 ms, so that a bin is 15.6 Hz wide."""
HOP = 256
"""Samples from one spectrum to the next: 32 ms."""
FRAME_S = HOP / RATE
"""Seconds from one spectrum to the next."""
BINS = WINDOW // 2
"""Of a spectrum; the first, which is the mean, is left out."""
_LOWEST = 4  # bins that are left out at the low end: hum of the mains, and rumble
_NEAR_FRAMES, _NEAR_BINS = 4, 6  # a peak is the greatest within these, on either side
_RIVAL_FRAMES = 16  # on either side; half a second
_MAX_RIVALS = 10  # stronger peaks within them, at most
# Root mean square of a spectrum's samples, of 1 for the loudest: nearly silent below, and no peaks. -60 dB.
_MIN_LEVEL = 1e-3
_MIN_CONTRAST = 2.0  # of a peak, to the mean of its spectrum
_CONTEXT = _NEAR_FRAMES + _RIVAL_FRAMES + _NEAR_FRAMES  # frames on either side that a frame's peaks depend on
_BLOCK = 2_048  # frames that are looked at at once: a minute, and 2 MB of spectra
_WEIGHTS = np.sqrt(np.arange(1, BINS + 1, dtype=np.float32))  # high tones are weaker in nearly all sounds
_SHAPE = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
_FORMAT = b"\x01"


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The peaks of a sound, by time and then by bin.

    Attributes:
        frames: [P] int64, the place of each in time, of `FRAME_S` seconds.
        bins: [P] int64, its frequency: bin 0 is the first above the mean.
    """

    frames: NDArray[np.int64]
    bins: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        return self.frames.nbytes + self.bins.nbytes

    def between(self, start_s: float | None, end_s: float | None) -> Fingerprint:
        """The peaks in [start_s, end_s), with their times in the whole sound."""
        times = self.frames * FRAME_S
        kept = (times >= (start_s or 0.0)) & (times < (np.inf if end_s is None else end_s))
        return Fingerprint(self.frames[kept], self.bins[kept])

    def to_bytes(self) -> bytes:
        """As it is stored: about two bytes a peak.

        >>> two = Fingerprint(np.array([3, 70_000]), np.array([0, 255]))
        >>> again = Fingerprint.from_bytes(two.to_bytes())
        >>> again.frames.tolist(), again.bins.tolist()
        ([3, 70000], [0, 255])
        """
        steps = np.diff(self.frames, prepend=0).astype("<i4").tobytes()
        return _FORMAT + zlib.compress(steps + self.bins.astype(np.uint8).tobytes(), 9)

    @classmethod
    def from_bytes(cls, data: bytes) -> Fingerprint:
        """What `to_bytes` made; `DataError` if it is something else."""
        try:
            raw = zlib.decompress(data[1:])
        except zlib.error as error:
            raise DataError(f"A stored fingerprint is damaged: {error}.") from error
        if data[:1] != _FORMAT or len(raw) % 5:
            raise DataError("A stored fingerprint is of another kind, or damaged.")
        count = len(raw) // 5
        frames = np.frombuffer(raw, "<i4", count).astype(np.int64).cumsum()
        return cls(frames, np.frombuffer(raw, np.uint8, count, 4 * count).astype(np.int64))


NOTHING = Fingerprint(np.zeros(0, np.int64), np.zeros(0, np.int64))
"""The fingerprint of silence."""


def make_fingerprint(parts: Iterable[SoundPart]) -> Fingerprint:
    """The fingerprint of a sound that is read part by part, in memory that does not grow with its length.

    How it is cut into parts makes no difference, as long as there are no gaps between them.
    """
    found = [peaks for block in _make_blocks(parts) if len(peaks := _find_block(*block))]
    if not found:
        return NOTHING
    frames, bins = (np.concatenate([getattr(one, name) for one in found]) for name in ("frames", "bins"))
    order = np.lexsort((bins, frames))
    return Fingerprint(frames[order], bins[order])


def find_peaks(samples: NDArray[np.float32]) -> Fingerprint:
    """The peaks of samples [S] at `RATE`, all at once; fewer samples than a window have none.

    A peak is greater than all within 4 frames and 6 bins, twice the mean of its spectrum, and among the 10 strongest
    within half a second. Spectra of samples below -60 dB have none.
    """
    return _select(compute_spectra(samples), _is_loud(samples))


def compute_spectra(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The magnitudes [T, BINS] of windows of samples [S], the higher tones raised."""
    count = max(0, (len(samples) - WINDOW) // HOP + 1)
    if count == 0:
        return np.zeros((0, BINS), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP][:count]  # [T, WINDOW]
    spectra = np.abs(np.fft.rfft(windows * _SHAPE, axis=1))[:, 1:]
    return spectra.astype(np.float32) * _WEIGHTS  # [T, BINS]


def _is_loud(samples: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which windows [T] are more than nearly silent."""
    count = max(0, (len(samples) - WINDOW) // HOP + 1)
    power = np.square(samples[: (count + 1) * HOP].astype(np.float64)).reshape(-1, HOP).sum(axis=1) if count else []
    halves = np.asarray(power, np.float64)  # [T + 1], of HOP samples each: a window is two of them
    return np.asarray((halves[:-1] + halves[1:]) / WINDOW >= _MIN_LEVEL**2, np.bool_)[:count]


def _select(spectra: NDArray[np.float32], loud: NDArray[np.bool_]) -> Fingerprint:
    """The peaks of spectra [T, BINS], of frames that are `loud` [T]."""
    if not len(spectra):
        return NOTHING
    near = _max_filter(_max_filter(spectra, _NEAR_FRAMES, axis=0), _NEAR_BINS, axis=1)
    high = spectra > _MIN_CONTRAST * spectra.mean(axis=1, keepdims=True)
    high[:, :_LOWEST] = False
    high[~loud] = False
    frames, bins = np.nonzero((spectra == near) & high)  # by time
    strengths = spectra[frames, bins]
    stronger = np.zeros(len(frames), np.int64)
    for apart in range(1, len(frames)):
        close = frames[apart:] - frames[:-apart] <= _RIVAL_FRAMES
        if not close.any():
            break
        before, after = strengths[:-apart], strengths[apart:]
        stronger[:-apart] += close & (after > before)
        stronger[apart:] += close & (before > after)
    kept = stronger < _MAX_RIVALS
    return Fingerprint(frames[kept].astype(np.int64), bins[kept].astype(np.int64))


def _max_filter(values: NDArray[np.float32], reach: int, *, axis: int) -> NDArray[np.float32]:
    """The greatest value within `reach` places on either side, along an axis; of the same shape."""
    best = values.copy()
    for step in range(1, reach + 1):
        ahead, behind = [slice(None)] * 2, [slice(None)] * 2
        ahead[axis], behind[axis] = slice(step, None), slice(None, -step)
        if values.shape[axis] <= step:
            break
        np.maximum(best[tuple(behind)], values[tuple(ahead)], out=best[tuple(behind)])
        np.maximum(best[tuple(ahead)], values[tuple(behind)], out=best[tuple(ahead)])
    return best


# --- long sounds, block by block -------------------------------------------------------------------------------------


def _make_blocks(parts: Iterable[SoundPart]) -> Iterator[tuple[float, NDArray[np.float32], int, int]]:
    """Where a block begins, its samples, and the frames of it that count: the others are there for these."""
    waiting: list[NDArray[np.float32]] = []
    size = 0
    start_s, lead = 0.0, 0  # where what is waiting begins, and frames at its beginning that were counted already
    for part in parts:
        if not part.joined and size:
            yield start_s, np.concatenate(waiting), lead, -1
            waiting, size = [], 0
        if not size:
            start_s, lead = part.start_s, 0
        waiting.append(part.samples)
        size += len(part.samples)
        while size >= (_BLOCK + 2 * _CONTEXT) * HOP + WINDOW:
            samples = np.concatenate(waiting)
            yield start_s, samples[: (_BLOCK + 2 * _CONTEXT) * HOP + WINDOW], lead, _BLOCK + _CONTEXT
            left = samples[_BLOCK * HOP :]
            start_s, lead = start_s + _BLOCK * FRAME_S, _CONTEXT
            waiting, size = [left], len(left)
    if size:
        yield start_s, np.concatenate(waiting), lead, -1


def _find_block(start_s: float, samples: NDArray[np.float32], first: int, last: int) -> Fingerprint:
    """The peaks of the frames that count of a block, with their places in the whole sound; -1 is its end."""
    peaks = find_peaks(samples)
    counts = (peaks.frames >= first) & ((peaks.frames < last) | (last < 0))
    counts &= peaks.frames + round(start_s / FRAME_S) >= 0  # what is heard before the first picture is left out
    return Fingerprint(peaks.frames[counts] + round(start_s / FRAME_S), peaks.bins[counts])
