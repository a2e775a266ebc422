"""Fingerprints: a tone by hand, a slow loop, and laws of volume, silence, parts and shifts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.audio import fingerprints
from hapvr.audio.decoding import RATE, SoundPart
from hapvr.audio.fingerprints import BINS, HOP, WINDOW, Fingerprint, find_peaks, make_fingerprint
from hapvr.errors import DataError


def draw_noise(seed: int, seconds: float) -> NDArray[np.float32]:
    return (0.2 * np.random.default_rng(seed).normal(size=round(seconds * RATE))).astype(np.float32)


def list_points(peaks: Fingerprint) -> list[tuple[int, int]]:
    return list(zip(peaks.frames.tolist(), peaks.bins.tolist(), strict=True))


def find_peaks_slowly(samples: NDArray[np.float32]) -> list[tuple[int, int]]:
    """What `find_peaks` promises, point by point."""
    values: list[list[float]] = []
    loud: list[bool] = []
    for start in range(0, len(samples) - WINDOW + 1, HOP):
        window = samples[start : start + WINDOW]
        shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
        spectrum = np.abs(np.fft.rfft(window * shape.astype(np.float32)))[1:]
        values.append([float(np.float32(one)) * float(np.sqrt(np.float32(n + 1))) for n, one in enumerate(spectrum)])
        loud.append(float(np.sqrt(np.mean(np.square(window.astype(np.float64))))) >= 1e-3)
    found: list[tuple[int, int, float]] = []
    for t, row in enumerate(values):
        for b, value in enumerate(row):
            near = (values[u][c] for u in range(max(0, t - 4), min(len(values), t + 5))
                    for c in range(max(0, b - 6), min(BINS, b + 7)) if (u, c) != (t, b))  # fmt: skip
            if loud[t] and b >= 4 and value > 2 * sum(row) / BINS and all(value > other for other in near):
                found.append((t, b, value))
    return [
        (t, b)
        for t, b, value in found
        if sum(other > value for u, _, other in found if abs(u - t) <= 16) < 10
    ]  # fmt: skip


def test_a_tone_that_is_struck_once_is_one_peak_at_its_time_and_bin() -> None:
    samples = np.zeros(2 * RATE, np.float32)
    # 1000 Hz is 64 bins of 15.625 Hz, of which the first is left out. The window of frame 20 is centred on it.
    times = np.arange(WINDOW) / RATE
    samples[20 * HOP : 20 * HOP + WINDOW] = 0.5 * np.sin(2 * np.pi * 1000 * times) * np.hanning(WINDOW)
    peaks = find_peaks(samples)
    assert (20, 63) in list_points(peaks)
    assert set(peaks.frames.tolist()) <= {19, 20, 21}
    assert set(np.abs(peaks.bins - 63).tolist()) <= {0}


def test_agrees_with_the_loop() -> None:
    samples = draw_noise(3, 1.6)
    samples[RATE // 2 : RATE] *= 0.001  # nearly silent
    assert list_points(find_peaks(samples)) == find_peaks_slowly(samples)
    assert len(find_peaks(samples)) > 10


@pytest.mark.parametrize("factor", [0.25, 2.0])
def test_another_volume_changes_nothing(factor: float) -> None:
    samples = draw_noise(1, 3)
    assert list_points(find_peaks(samples * np.float32(factor))) == list_points(find_peaks(samples))


@pytest.mark.parametrize("level", [0.0, 2e-4])
def test_silence_and_near_silence_give_nothing(level: float) -> None:
    assert len(find_peaks(draw_noise(1, 3) * np.float32(level / 0.2))) == 0
    assert len(make_fingerprint([])) == 0
    assert len(find_peaks(np.zeros(WINDOW - 1, np.float32))) == 0


def test_a_sound_that_begins_some_frames_later_has_its_peaks_later() -> None:
    samples = draw_noise(2, 4)
    whole, later = find_peaks(samples), find_peaks(samples[10 * HOP :])
    inner = [(t - 10, b) for t, b in list_points(whole) if t >= 40]
    assert inner == [(t, b) for t, b in list_points(later) if t >= 30]
    assert inner


def test_how_a_sound_is_cut_into_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = draw_noise(4, 12)
    whole = list_points(find_peaks(samples))
    monkeypatch.setattr(fingerprints, "_BLOCK", 64)  # several blocks
    for size in (700, 40_000):
        starts = range(0, len(samples), size)
        parts = [SoundPart(start / RATE, samples[start : start + size], start > 0) for start in starts]
        assert list_points(make_fingerprint(parts)) == whole


def test_a_gap_moves_what_comes_after_it() -> None:
    samples = draw_noise(5, 2)
    parts = [SoundPart(0.0, samples, False), SoundPart(3.2, samples, False)]
    first = list_points(find_peaks(samples))
    assert list_points(make_fingerprint(parts)) == first + [(t + 100, b) for t, b in first]


def test_what_is_stored_is_what_was_made_and_damage_is_said() -> None:
    peaks = find_peaks(draw_noise(6, 5))
    stored = peaks.to_bytes()
    assert list_points(Fingerprint.from_bytes(stored)) == list_points(peaks)
    assert len(stored) < 3 * len(peaks) + 20
    for damaged in (b"", stored[:-3], b"\x07" + stored[1:]):
        with pytest.raises(DataError, match="fingerprint"):
            Fingerprint.from_bytes(damaged)
