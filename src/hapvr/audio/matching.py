"""Where two sounds are the same: pairs of peaks that both hold, and the shift in time that most of them agree on.

A pair is two peaks that follow each other within two seconds: both frequencies and the frames between them, in one
number. The same sound gives the same pairs at the same distance in time; by chance, pairs agree at distances all over
the place. So distances are counted, and the greatest count says whether a stretch is the same, and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.audio.fingerprints import BINS, FRAME_S, Fingerprint

_FAN_OUT = 5  # peaks that each one is paired with
_MIN_APART, _MAX_APART = 2, 63  # frames of a pair
_MIN_INTERVAL, _MAX_INTERVAL = 2, 64  # bins; a tone that goes on is no event
MAX_SHIFT_ERROR = 1
"""Frames by which a distance may be off, on either side."""
_MAX_COMMON = 24  # times that a pair may occur in a sound: a beep that returns every second says little
_MAX_SHIFTS = 8  # stretches of different shifts that are looked for
_KEYS = (_MAX_APART + 1) * BINS * BINS  # pairs are numbers below this
SPEEDS = (1.0, *(1 + step / 100 for step in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5)))
"""Speeds of a query that are tried, of 1 for the speed of the target; its tones are higher by as much."""


@dataclass(frozen=True)
class MatchConfig:
    """When two sounds are the same.

    Attributes:
        min_events: moments (frames in which a pair begins) that agree on one shift, at least.
        min_share: of the query's moments within the stretch, those that agree at least.
        min_seconds: from the first moment to the last, at least.
        max_gap_s: without a moment that agrees, within a stretch.
        chance: standard deviations by which the count must exceed what chance gives.
    """

    min_events: int = 8
    min_share: float = 0.05
    min_seconds: float = 2.0
    max_gap_s: float = 4.0
    chance: float = 6.0


DEFAULT = MatchConfig()


@dataclass(frozen=True)
class SameSound:
    """A stretch of the query that sounds like one of the target, in seconds, and how many moments agree."""

    query: tuple[float, float]
    target: tuple[float, float]
    events: int
    speed: float = 1.0  # of the query, of 1 for that of the target

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = {"query": [round(one, 2) for one in self.query], "target": [round(one, 2) for one in self.target]}
        return plain | {"events": self.events, "speed": self.speed}


SoundKind = Literal["same", "other", "silent", "not indexed"]


@dataclass(frozen=True)
class SoundEvidence:
    """What the sound of two videos says about them.

    Attributes:
        kind: "same": stretches are the same; "other": both have sound, and none of it is the same; "silent": one of
            them has no sound, or nearly none; "not indexed": the sound of one of them is not known.
        stretches: of the same sound, by their time in the query.
        audible: which of them has sound, where the other is silent; None if both are, and for other kinds.
    """

    kind: SoundKind
    stretches: tuple[SameSound, ...] = ()
    audible: Literal["query", "target"] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        stretches = [one.to_json() for one in self.stretches]
        return {"kind": self.kind, "stretches": stretches, "audible": self.audible}

    def describe(self, query: str = "the query", target: str = "") -> str:
        """In words; `query` and `target` are what the two are called, a target without a name is the one at hand.

        >>> SoundEvidence("same", (SameSound((0.0, 4.26), (10.0, 14.3), 31, 0.99),)).describe("A", "B")
        'same, 0.0-4.3 s of A is 10.0-14.3 s of B at 0.99 of its speed'
        >>> SoundEvidence("silent", audible="query").describe()
        'only the query has any'
        """
        if self.audible is not None:
            return f"only {query if self.audible == 'query' else target or 'this video'} has any"
        return self.kind + "".join(f", {describe_stretch(one, query, target)}" for one in self.stretches)


def describe_stretch(stretch: SameSound, query: str = "the query", target: str = "") -> str:
    """Where a sound is the same, in words; see `SoundEvidence.describe`."""
    (a, b), (c, d) = stretch.query, stretch.target
    speed = f" at {stretch.speed:g} of its speed" if stretch.speed != 1 else ""
    return f"{a:.1f}-{b:.1f} s of {query} is {c:.1f}-{d:.1f} s{f' of {target}' if target else ''}{speed}"


OTHER = SoundEvidence("other")
"""The evidence of two sounds of which nothing is the same."""
NOT_INDEXED = SoundEvidence("not indexed")
"""The evidence where the sound of a video is not known."""


def make_silent_evidence(*, query: bool, target: bool) -> SoundEvidence:
    """The evidence of two videos of which these have sound: at most one."""
    return SoundEvidence("silent", audible="query" if query else "target" if target else None)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a fingerprint, sorted by their numbers: `keys` [H], and `frames` [H] in which each begins."""

    keys: NDArray[np.int64]
    frames: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)


def make_pairs(peaks: Fingerprint) -> Pairs:
    """Each peak with the first 5 that follow it within 2 to 63 frames and 2 to 64 bins; common pairs are left out.

    >>> make_pairs(Fingerprint(np.array([0, 10]), np.array([7, 12]))).keys.tolist() == [(10 * 256 + 7) * 256 + 12]
    True
    """
    keys: list[NDArray[np.int64]] = []
    starts: list[NDArray[np.int64]] = []
    taken = np.zeros(len(peaks), np.int64)
    for step in range(1, len(peaks)):
        apart = peaks.frames[step:] - peaks.frames[:-step]
        if not ((apart <= _MAX_APART) & (taken[:-step] < _FAN_OUT)).any():
            break
        interval = np.abs(peaks.bins[step:] - peaks.bins[:-step])
        wanted = (apart >= _MIN_APART) & (apart <= _MAX_APART) & (taken[:-step] < _FAN_OUT)
        wanted &= (interval >= _MIN_INTERVAL) & (interval <= _MAX_INTERVAL)
        taken[:-step] += wanted
        first, second = peaks.bins[:-step][wanted], peaks.bins[step:][wanted]
        keys.append((apart[wanted] * BINS + first) * BINS + second)
        starts.append(peaks.frames[:-step][wanted])
    if not keys:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
    key, start = np.concatenate(keys), np.concatenate(starts)
    order = np.lexsort((start, key))
    key, start = key[order], start[order]
    _, which, counts = np.unique(key, return_inverse=True, return_counts=True)
    kept = counts[which] <= _MAX_COMMON
    return Pairs(key[kept], start[kept])


def join_pairs(query: Pairs, target: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The frames [M] of the query and of the target at which both hold the same pair, each with each."""
    low = np.searchsorted(target.keys, query.keys, "left")
    counts = np.searchsorted(target.keys, query.keys, "right") - low
    return expand_pairs(query.frames, target.frames, low, counts)


def expand_pairs(
    here: NDArray[np.int64], there: NDArray[np.integer[Any]], low: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Each of some frames `here` [N] with `counts` [N] frames of `there`, those from `low` [N] on."""
    ends = counts.cumsum()
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(here, counts), there[np.repeat(low, counts) + within]


def find_same_sound(query: Pairs, target: Pairs, *, config: MatchConfig = DEFAULT) -> tuple[SameSound, ...]:
    """The stretches of two sounds that are the same, by their time in the query; none if there is nothing.

    Swapping the two swaps the stretches' sides. A query that begins later has its stretches earlier by as much.
    """
    here, there = join_pairs(query, target)
    moments = np.unique(query.frames)
    found: list[SameSound] = []
    for _ in range(_MAX_SHIFTS):
        stretches = list(_find_stretches(here, there, moments, config))
        if not stretches:
            break
        for first, last, shift, events in stretches:
            query_s = (first * FRAME_S, last * FRAME_S)
            target_s = ((first + shift) * FRAME_S, (last + shift) * FRAME_S)
            found.append(SameSound(query_s, target_s, events))
            # What is explained may not be found again at the shift next to it, or at the next beat.
            left = (here < first) | (here > last)
            here, there = here[left], there[left]
    return tuple(sorted(found, key=lambda one: (one.query, one.target)))


def _find_stretches(
    here: NDArray[np.int64], there: NDArray[np.int64], moments: NDArray[np.int64], config: MatchConfig
) -> Iterator[tuple[int, int, int, int]]:
    """First and last frame in the query, shift and moments of the stretches at the shift with the greatest count."""
    if len(here) < config.min_events:
        return
    shifts = there - here
    lowest = int(shifts.min()) - MAX_SHIFT_ERROR
    counts = np.bincount(shifts - lowest, minlength=int(shifts.max()) + MAX_SHIFT_ERROR + 1 - lowest)
    wide = np.convolve(counts, np.ones(2 * MAX_SHIFT_ERROR + 1, np.int64), "same")
    shift = int((wide * (len(here) + 1) + counts).argmax()) + lowest  # of equal ones, that with most in its middle
    chosen = np.abs(shifts - shift) <= MAX_SHIFT_ERROR
    # What chance would give at any one shift: the others, spread over all shifts at which the two overlap.
    others, possible = len(here) - int(chosen.sum()), int(np.ptp(here) + np.ptp(there)) + 1
    expected = others * (2 * MAX_SHIFT_ERROR + 1) / possible
    agreed = np.unique(here[chosen])
    if len(agreed) < max(config.min_events, expected + config.chance * np.sqrt(expected)):
        return
    breaks = np.flatnonzero(np.diff(agreed) > config.max_gap_s / FRAME_S) + 1
    for part in np.split(agreed, breaks):
        first, last = int(part[0]), int(part[-1])
        all_here = int(np.searchsorted(moments, last, "right") - np.searchsorted(moments, first, "left"))
        if len(part) < config.min_events or (last - first) * FRAME_S < config.min_seconds:
            continue
        if len(part) >= config.min_share * all_here:
            yield first, last, shift, len(part)


# --- one query, many targets -----------------------------------------------------------------------------------------


class SoundQuery:
    """The sound that is looked for, at all speeds that are tried.

    Args:
        peaks: its fingerprint.
        speeds: that are tried, 16 at most; what is found at the first one is not looked for at the others.
        config: when two sounds are the same.
    """

    def __init__(self, peaks: Fingerprint, *, speeds: Sequence[float] = SPEEDS, config: MatchConfig = DEFAULT) -> None:
        self.config = config
        self.variants = [(speed, make_pairs(change_speed(peaks, speed))) for speed in speeds]
        self.is_silent = is_silent(peaks, config)
        # A bit for each speed at which a pair occurs: most targets share too few with the query to be looked at.
        self._marks = np.zeros(_KEYS if not self.is_silent else 0, np.uint16)
        for number, (_, pairs) in enumerate(self.variants if not self.is_silent else ()):
            self._marks[pairs.keys] |= np.uint16(1 << number)

    def find(self, peaks: Fingerprint) -> tuple[SameSound, ...]:
        """The stretches that are the same as stretches of a target, at the speed at which most moments agree."""
        if self.is_silent or is_silent(peaks, self.config):
            return ()
        target = make_pairs(peaks)
        marks = self._marks[target.keys]
        best: tuple[SameSound, ...] = ()
        for number, (speed, pairs) in enumerate(self.variants):
            if np.count_nonzero(marks & np.uint16(1 << number)) < self.config.min_events:
                continue
            found = find_same_sound(pairs, target, config=self.config)
            if sum(one.events for one in found) > sum(one.events for one in best):
                best = tuple(
                    replace(one, query=(one.query[0] / speed, one.query[1] / speed), speed=round(speed, 2))
                    for one in found
                )
            if number == 0 and best:
                break
        return best

    def compare(self, peaks: Fingerprint) -> SoundEvidence:
        """What the sounds of the query and of a target say about them."""
        query, target = not self.is_silent, not is_silent(peaks, self.config)
        if not query or not target:
            return make_silent_evidence(query=query, target=target)
        found = self.find(peaks)
        return SoundEvidence("same" if found else "other", found)


def change_speed(peaks: Fingerprint, speed: float) -> Fingerprint:
    """The fingerprint, about, of a sound that is slowed down by `speed`: later peaks, and lower tones.

    >>> slow = change_speed(Fingerprint(np.array([0, 100]), np.array([104, 209])), 1.05)
    >>> slow.frames.tolist(), slow.bins.tolist()
    ([0, 105], [99, 199])
    """
    if speed == 1.0:
        return peaks
    frames = np.rint(peaks.frames * speed).astype(np.int64)
    bins = np.rint((peaks.bins + 1) / speed).astype(np.int64) - 1
    kept = (bins >= 0) & (bins < BINS)
    frames, bins = frames[kept], bins[kept]
    order = np.lexsort((bins, frames))
    return Fingerprint(frames[order], bins[order])


def is_silent(peaks: Fingerprint, config: MatchConfig = DEFAULT) -> bool:
    """Whether there is too little sound to be the same as any."""
    return len(peaks) < config.min_events
