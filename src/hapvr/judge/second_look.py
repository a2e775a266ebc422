"""A second look at the files: a few matching instants, registered and compared pixel by pixel.

The frames of two talks before one wall resemble each other more than a copy resembles its original under a sticker.
What tells them apart is whether, once the one picture is laid on the other, what *moves* between neighbouring frames
moves alike in both: a copy repeats the movements of its original, another take does not.

At each instant a few frames of both files are decoded around it, the target's picture is registered on the query's
(`hapvr.judge.registration`), and the best mapping is kept: by the correlation of the pictures and of their changes.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, HapvrError
from hapvr.judge.registration import (
    Grey,
    LocalFeatures,
    Mapping,
    Matches,
    Plane,
    blur,
    correlate,
    find_by_size,
    find_features,
    find_mappings,
    is_available,
    lay_over,
    limit_threads,
    match_features,
    rms,
    scale_matrix,
    warp,
)
from hapvr.records import Box
from hapvr.storage import StrPath
from hapvr.video.limits import DecodeLimits
from hapvr.video.quality import BarFinder, luma_of

__all__ = ["QuerySecondLook", "SecondLook", "SecondLookConfig", "is_available", "take_second_look"]

_CHANGE_S = 0.4  # how far apart neighbouring frames are whose difference shows what moves
_MAX_CHANGE_S = 0.8  # and in slow motion
_MAX_REACH_S = 2.0  # and in the target of a copy in slow motion
_MARGIN_S = 0.1
_MIN_PIXELS = 64
_GOOD_RANK = 1.5  # a mapping of one instant under which another gives this needs no search there
_SMALL = 0.5  # size at which registered pictures are compared, relative to the decoded ones
_FEW_INLIERS = 20  # with fewer, the pictures are looked for in each other at several sizes as well
_SHARED_MAPPINGS = 4  # best mappings of all instants that every instant tries


@dataclass(frozen=True)
class SecondLookConfig:
    """How closely to look.

    Attributes:
        max_instants: of those given, spread over the match.
        max_seconds: of a pair: the instants not reached by then are left out. Half of it is the most that decoding
            either file may take.
        short_side: pixels of the shorter side of the decoded frames.
        fps: frames decoded for each second around an instant.
        refine_s: how far from its given time the target's frame may lie, in seconds.
        max_features: local features of a picture.
        min_area: share of the query's picture that the target's must cover.
        min_moves: RMS grey levels below which nothing moves.
        threads: of the decoder and of OpenCV.
        isolate: decode in another process, for files from strangers: costs a quarter of a second for each file.
        max_pixels: of a frame of a file, as in `DecodeLimits`.
        memory_bytes: that a decoding process may take; None for no limit.
    """

    max_instants: int = 4
    max_seconds: float = 2.0
    short_side: int = 240
    fps: float = 10.0
    refine_s: float = 0.8
    max_features: int = 800
    min_area: float = 0.02
    min_moves: float = 0.5
    threads: int = 1
    isolate: bool = False
    max_pixels: int = DecodeLimits.max_pixels
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_instants", "max_seconds", "short_side", "fps", "max_features", "min_area", "threads"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"SecondLookConfig: {name} must be positive, got {getattr(self, name)}.")
        for name in ("refine_s", "min_moves"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"SecondLookConfig: {name} must not be negative, got {getattr(self, name)}.")


@dataclass(frozen=True)
class SecondLook:
    """What a second look found: named evidence, all of it finite."""

    instants: int  # pairs of instants that could be compared
    inliers: float  # median number of local features that agree with one mapping
    structure: float  # median correlation of the registered pictures, in [-1, 1]
    motion: float  # median correlation of what changes between neighbouring frames after registration, in [-1, 1];
    # 0 where nothing moves
    moves: float  # how much moves: RMS grey levels, the smaller of the two videos, the largest over instants
    area: float  # median share of the query's picture that the target's covers after registration
    mirrored: bool  # whether most instants match mirrored, left to right


def take_second_look(
    query: StrPath,
    target: StrPath,
    instants: Sequence[tuple[float, float]],
    *,
    speed: float,
    config: SecondLookConfig = SecondLookConfig(),  # noqa: B008 - frozen
) -> SecondLook | None:
    """Decode a few matching instants of two files, register their pictures and compare what they show and what moves.

    None if a file is gone or cannot be decoded, OpenCV is not installed, or nothing could be compared within
    `config.max_seconds`. To compare one query with several targets, `QuerySecondLook` reads the query once.

    Args:
        query, target: files.
        instants: aligned times along a match: seconds in the query, seconds in the target.
        speed: target seconds for each query second; negative if the target runs backwards.
        config: how closely to look.
    """
    return QuerySecondLook(query, config=config).compare(target, instants, speed=speed)


class QuerySecondLook:
    """Second looks at one query and several targets: what was read of the query is kept.

    Args:
        query: its file.
        config: how closely to look.
        clock: gives the time in seconds.
    """

    def __init__(
        self,
        query: StrPath,
        *,
        config: SecondLookConfig = SecondLookConfig(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query, self._config, self._clock = query, config, clock
        self._strips: dict[float, _Strip | None] = {}  # of the query, by their instant; None: cannot be read

    def compare(self, target: StrPath, instants: Sequence[tuple[float, float]], *, speed: float) -> SecondLook | None:
        """What `take_second_look` gives."""
        config = self._config
        if not is_available() or not math.isfinite(speed) or speed == 0:
            return None
        end = self._clock() + config.max_seconds
        chosen = choose_instants(instants, config.max_instants, known=self._strips)
        # Frames of slow motion hardly differ: they are compared at a greater distance.
        step = min(_CHANGE_S / min(abs(speed), 1.0), _MAX_CHANGE_S)
        unread = list(dict.fromkeys(q for q, _ in chosen if q not in self._strips))
        reach = config.refine_s + min(abs(speed) * step, _MAX_REACH_S)
        with (
            limit_threads(config.threads),
            closing(_read_strips(self._query, unread, config.refine_s + _MAX_CHANGE_S, config)) as query_strips,
            closing(_read_strips(target, [t for _, t in chosen], reach, config)) as target_strips,
        ):
            comparison = _Comparison()
            # Both files are read in step, instant by instant, so that there is an answer whenever time is up.
            for (query_s, _), target_strip in zip(chosen, target_strips, strict=False):
                if query_s not in self._strips:
                    self._strips[query_s] = next(query_strips, None)
                query_strip = self._strips[query_s]
                if query_strip is not None and target_strip is not None:
                    comparison.add(_Pair(query_strip, target_strip, speed, step, config))
                if self._clock() >= end:
                    break
            return summarise(comparison.finish(late=lambda: self._clock() >= end))


def choose_instants(
    instants: Sequence[tuple[float, float]], count: int, *, known: Iterable[float] = ()
) -> list[tuple[float, float]]:
    """At most `count` of the instants, spread evenly; where there is a choice, those whose query time is known.

    >>> choose_instants([(float(t), t + 10.0) for t in range(8)], 2)
    [(2.0, 12.0), (6.0, 16.0)]
    >>> choose_instants([(float(t), t + 10.0) for t in range(8)], 2, known=[1.0])
    [(1.0, 11.0), (6.0, 16.0)]
    """
    there = set(known)
    valid = [(q, t) for q, t in instants if math.isfinite(q) and math.isfinite(t) and q >= 0 and t >= 0]
    borders = np.linspace(0, len(valid), min(count, len(valid)) + 1).round().astype(int)
    chosen = []
    for begin, end in itertools.pairwise(borders):
        part = valid[begin:end]
        chosen.append(next((pair for pair in part if pair[0] in there), part[len(part) // 2]))
    return chosen


# --- reading ---------------------------------------------------------------------------------------------------------


class _Strip:
    """Neighbouring frames of one video around an instant."""

    def __init__(self, images: NDArray[np.uint8], times: NDArray[np.float64], time_s: float, max_features: int) -> None:
        import cv2

        greys = [luma_of(image) for image in images]
        self.times, self.place = times, int(np.abs(times - time_s).argmin())
        self.grey: Grey = greys[self.place]
        height, width = self.grey.shape
        size = max(round(width * _SMALL), 1), max(round(height * _SMALL), 1)
        self.planes = [blur(cv2.resize(grey, size, interpolation=cv2.INTER_AREA)) for grey in greys]
        bars = BarFinder()
        for grey in greys:
            bars.add(grey)
        self.box: Box = bars.box((width, height)) or (0, 0, width, height)
        self._max_features = max_features

    @cached_property
    def features(self) -> LocalFeatures:
        return find_features(self.grey, self._max_features)

    @property
    def interval_s(self) -> float:
        """Between neighbouring frames; infinite if there is one only."""
        return float(np.diff(self.times).mean()) if len(self.times) > 1 else math.inf

    def near(self, seconds: float) -> list[int]:
        """The frames at most so far from the instant."""
        return [int(place) for place in np.flatnonzero(np.abs(self.times - self.times[self.place]) <= seconds + 1e-6)]


def _read_strips(
    path: StrPath, times: Sequence[float], reach: float, config: SecondLookConfig
) -> Generator[_Strip | None]:
    """The frames up to `reach` seconds before and after each time; None for each that cannot be read."""
    from hapvr.video.decode import decode_spans
    from hapvr.video.isolated import decode_spans_isolated

    spans = [(max(0.0, time_s - reach - _MARGIN_S), time_s + reach + _MARGIN_S) for time_s in times]
    limits = DecodeLimits(
        max_pixels=config.max_pixels, max_seconds=config.max_seconds / 2
    )  # the other half: the other file
    options: dict[str, Any] = {"fps": config.fps, "short_side": config.short_side, "threads": config.threads}
    if config.isolate:
        parts = decode_spans_isolated(path, spans, memory_bytes=config.memory_bytes, limits=limits, **options)
    else:
        parts = decode_spans(path, spans, limits=limits, **options)
    given = 0
    with suppress(HapvrError, OSError):
        for number, frames in parts:
            while given < number:
                yield None
                given += 1
            yield _Strip(frames.images, frames.timestamps, times[number], config.max_features)
            given += 1
    while given < len(times):
        yield None
        given += 1


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InstantLook:
    """What one instant showed under the best mapping."""

    mapping: Mapping
    structure: float
    motion: float
    moves: float
    area: float
    inliers: int | None = None  # None where features were not needed

    @property
    def rank(self) -> float:
        """By which mappings are chosen."""
        return self.structure + self.motion


class _Pair:
    """An instant of the query and one of the target."""

    def __init__(self, query: _Strip, target: _Strip, speed: float, step: float, config: SecondLookConfig) -> None:
        self._query, self._target, self._speed, self._step, self._config = query, target, speed, step, config

    @cached_property
    def matches(self) -> list[Matches]:
        """Of the pictures as they are, and mirrored."""
        features = self._query.features, self._target.features
        return [match_features(*features, mirrored=mirrored) for mirrored in (False, True)]

    def find_mappings(self) -> list[Mapping]:
        """All mappings that are worth a look."""
        query, target = self._query, self._target
        found = [lay_over(query.box, target.box, mirrored=mirrored) for mirrored in (False, True)]
        for matches in self.matches:
            found += find_mappings(matches, query.grey, target.grey)
        if max(self.count_inliers(mapping) for mapping in found) < _FEW_INLIERS:
            larger, smaller = scale_matrix(1 / _SMALL), scale_matrix(_SMALL)
            for mirrored in (False, True):
                places = find_by_size(query.planes[query.place], target.planes[target.place], mirrored=mirrored)
                found += [replace(one, matrix=larger @ one.matrix @ smaller) for one in places]
        return found

    def count_inliers(self, mapping: Mapping) -> int:
        """How many matched features agree with a mapping."""
        return self.matches[mapping.mirrored].count_inliers(mapping.matrix)

    def look(self, mapping: Mapping) -> InstantLook | None:
        """What is seen under a mapping; None if too little of the query is covered."""
        query, target, config = self._query, self._target, self._config
        shape = query.planes[query.place].shape
        matrix = scale_matrix(_SMALL) @ mapping.matrix @ scale_matrix(1 / _SMALL)

        @cache
        def registered(place: int) -> Plane:
            return warp(target.planes[place], matrix, shape)

        mask = registered(target.place) >= 0  # the same for all frames: it depends on the mapping alone
        area = float(mask.mean())
        if area < config.min_area or mask.sum() < _MIN_PIXELS:
            return None

        @cache
        def structure(frames: tuple[int, int]) -> float:
            return correlate(query.planes[frames[0]], registered(frames[1]), mask)

        here, there = best = self._bring_into_step(structure)
        motion, moves = -1.0, 0.0
        for sign in (1, -1):
            neighbours = self._find_neighbours(*best, sign)
            if neighbours is None:
                continue
            change = query.planes[neighbours[0]] - query.planes[here]
            change_there = registered(neighbours[1]) - registered(there)
            strength = min(rms(change[mask]), rms(change_there[mask]))
            if strength >= config.min_moves:
                motion = max(motion, correlate(change, change_there, mask))
                moves = max(moves, strength)
        return InstantLook(mapping, structure(best), motion if moves else 0.0, moves, area)

    def _bring_into_step(self, structure: Callable[[tuple[int, int]], float]) -> tuple[int, int]:
        """The frames of query and target that show the same instant: most alike, near the given times.

        The frame of the slower video stays, for the faster one is more likely to have its counterpart.
        """
        query, target = self._query, self._target
        if target.interval_s > 1.5 * query.interval_s:
            pairs = [(place, target.place) for place in query.near(self._config.refine_s)]
        else:
            pairs = [(query.place, place) for place in target.near(self._config.refine_s)]
        best = pairs.index(max(pairs[::2], key=structure))
        return max(pairs[max(best - 1, 0) : best + 2], key=structure)

    def _find_neighbours(self, here: int, there: int, sign: int) -> tuple[int, int] | None:
        """Frames of query and target about one step away, before or after, as far apart in time as the speed says."""
        query, target, speed = self._query, self._target, self._speed
        best, least = None, math.inf
        for other, time_s in enumerate(query.times.tolist()):
            away = time_s - query.times[here]
            if away * sign < 0.6 * self._step:
                continue
            wanted = target.times[there] + speed * away
            counterpart = int(np.abs(target.times - wanted).argmin())
            missed = abs(target.times[counterpart] - wanted)
            cost = abs(away * sign - self._step) + 3 * missed
            if counterpart != there and missed <= 0.3 * abs(speed * away) and cost < least:
                best, least = (other, counterpart), cost
        return best


class _Comparison:
    """Pairs of instants and the best look of each; the best mappings of each are tried on the others."""

    def __init__(self) -> None:
        self._found: list[tuple[_Pair, InstantLook]] = []

    def add(self, pair: _Pair) -> None:
        """Look at one more pair of instants: with a mapping that is known to be good, or else with all there are."""
        known = [best.mapping for _, best in self._best_first()]
        looks = [look for mapping in known[:1] if (look := pair.look(mapping)) is not None]
        if not looks or looks[0].rank < _GOOD_RANK:
            looks += [look for mapping in pair.find_mappings() if (look := pair.look(mapping)) is not None]
        if looks:
            self._found.append((pair, max(looks, key=lambda look: look.rank)))

    def _best_first(self) -> list[tuple[_Pair, InstantLook]]:
        return sorted(self._found, key=lambda one: -one[1].rank)

    def finish(self, *, late: Callable[[], bool]) -> list[InstantLook]:
        """The best look of each pair."""
        shared = [best.mapping for _, best in self._best_first()[:_SHARED_MAPPINGS]]
        result = []
        for pair, best in self._found:
            for mapping in shared:
                if not late() and best.rank < _GOOD_RANK and mapping is not best.mapping:
                    look = pair.look(mapping)
                    best = best if look is None or look.rank <= best.rank else look
            inliers = pair.count_inliers(best.mapping) if "matches" in vars(pair) else None
            result.append(replace(best, inliers=inliers))
        return result


def summarise(looks: Sequence[InstantLook]) -> SecondLook | None:
    """The evidence of several instants: medians, so that one bad instant does not decide."""
    if not looks:
        return None

    def median(name: str) -> float:
        return float(np.median([value for look in looks if (value := getattr(look, name)) is not None] or [0.0]))

    return SecondLook(
        instants=len(looks),
        inliers=median("inliers"),
        structure=median("structure"),
        motion=median("motion"),
        moves=max(look.moves for look in looks),
        area=median("area"),
        mirrored=2 * sum(look.mapping.mirrored for look in looks) > len(looks),
    )
