"""A second look at the files: a few matching instants, registered and compared pixel by pixel.

The frames of two talks before one wall resemble each other more than a copy resembles its original under a sticker.
What tells them apart is whether, once the one picture is laid on the other, what *moves* between neighbouring frames
moves alike in both: a copy repeats the movements of its original, another take does not.

At each instant a few frames of both files are decoded around it, the target's picture is registered on the query's
(`hapvr.judge.registration`), and the best mapping is kept: by the correlation of the pictures and of their changes.
Where the first instant shows nothing alike, the others are left out.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
from hapvr.video.limits import DecodeLimits, limit_memory
from hapvr.video.quality import BarFinder, luma_of
from hapvr.workers.processes import ChildProcess, python_command

__all__ = ["QuerySecondLook", "SecondLook", "SecondLookConfig", "is_available", "take_second_look"]

_CHANGE_S = 0.4  # how far apart neighbouring frames are whose difference shows what moves
_MAX_CHANGE_S = 0.8  # and in slow motion
_MAX_REACH_S = 2.0  # and in the target of a copy in slow motion
_MARGIN_S = 0.1
_SLOW_S = 0.3  # between frames of a video that has few
_MIN_PIXELS = 64
_START_S = 10.0  # for another process to start, and to end by itself
_MAX_ANSWER_BYTES = 1 << 16
_GOOD_RANK = 1.5  # a mapping of one instant under which another gives this needs no search there
_SMALL = 0.5  # size at which registered pictures are compared, relative to the decoded ones
_FEW_INLIERS = 20  # with fewer, the pictures are looked for in each other at several sizes as well
_MIN_INLIERS = 12  # features that confirm a mapping of one instant alone
# A first instant that shows less than this ends the look. Among edited copies of real videos, no look at a copy of 143
# ended so, and 16 of 18 looks at strangers did.
_NO_STRUCTURE, _NO_MOTION, _NO_INLIERS = 0.75, 0.25, 6
_AREA_POWER = 0.1  # by which a mapping that covers little counts less: chance is kinder to small pictures


@dataclass(frozen=True)
class SecondLookConfig:
    """How closely to look.

    Attributes:
        max_instants: of those given, spread over the match.
        max_seconds: of a pair: the instants not reached by then are left out.
        short_side: pixels of the shorter side of the decoded frames.
        fps: frames decoded for each second around an instant.
        refine_s: how far from its given time the target's frame may lie, in seconds.
        max_features: local features of a picture.
        min_area: share of the query's picture that the target's must cover.
        min_moves: RMS grey levels below which nothing moves.
        threads: of the decoder and of OpenCV.
        isolate: do all of it in another process, which is killed if it hangs: for files from strangers. It takes about
            half a second to start.
        max_pixels: of a frame of a file, as in `DecodeLimits`.
        memory_bytes: that the other process may take; None for no limit.
    """

    max_instants: int = 4
    max_seconds: float = 8.0
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
    motion: float  # median correlation of what changes between neighbouring frames after registration, in [-1, 1], of
    # the instants at which something moves; 0 if there are none
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
        instants: aligned times along a match: seconds in the query, seconds in the target. The more there are to choose
            from, the cheaper are those that are decoded.
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
        self._strips: dict[float, _Strip] = {}  # of the query, by their instant

    def compare(self, target: StrPath, instants: Sequence[tuple[float, float]], *, speed: float) -> SecondLook | None:
        """What `take_second_look` gives."""
        config = self._config
        if not is_available() or not math.isfinite(speed) or speed == 0:
            return None
        if config.isolate:
            return _take_isolated(self._query, target, instants, speed, config)
        end = self._clock() + config.max_seconds
        # Frames of slow motion hardly differ: they are compared at a greater distance.
        step = min(_CHANGE_S / min(abs(speed), 1.0), _MAX_CHANGE_S)
        reach = config.refine_s + min(abs(speed) * step, _MAX_REACH_S)
        chosen = self._choose(target, instants)
        comparison = _Comparison()
        with limit_threads(config.threads):
            # Both files are read instant by instant, so that there is an answer whenever time is up.
            for query_s, target_s in chosen:
                there = _read_strip(target, target_s, reach, end - self._clock(), config)
                here = None if there is None else self._read_query(query_s, step, there.is_slow, end)
                if here is not None and there is not None:
                    comparison.add(_Pair(here, there, speed, step, config))
                if comparison.is_hopeless() or self._clock() >= end:
                    break
            return summarise(comparison.finish())

    def _read_query(self, time_s: float, step: float, target_is_slow: bool, end: float) -> _Strip | None:
        """The query's frames around a time, kept for the next target.

        Far more of them if one of the videos has few frames a second: then neighbours are far apart.
        """
        config = self._config
        for reach in (step, config.refine_s + _MAX_CHANGE_S):
            strip = self._strips.get(time_s)
            if strip is None or strip.reach < reach:
                strip = _read_strip(self._query, time_s, reach, end - self._clock(), config)
                if strip is None:
                    return None
                self._strips[time_s] = strip
            if not (target_is_slow or strip.is_slow):
                break
        return strip

    def _choose(self, target: StrPath, instants: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Instants to look at, spread over the match: of neighbours, those that cost least to reach in both files."""
        valid = [(q, t) for q, t in instants if math.isfinite(q) and math.isfinite(t) and q >= 0 and t >= 0]
        if len(valid) >= self._config.max_instants + 2:
            valid = valid[1:-1]  # where a match begins and ends is less certain than its middle
        reach = self._config.refine_s + _CHANGE_S
        query_costs = _find_costs(self._query, [q - reach for q, _ in valid], self._config)
        target_costs = _find_costs(target, [t - reach for _, t in valid], self._config)
        costs = [
            target_cost + (0.0 if q in self._strips else query_cost + reach)
            for (q, _), query_cost, target_cost in zip(valid, query_costs, target_costs, strict=True)
        ]
        chosen = choose_instants(costs, self._config.max_instants)
        # If time runs out, those that were reached are to be spread too.
        return [valid[place] for place in chosen[1::2] + chosen[::2]]


def choose_instants(costs: Sequence[float], count: int) -> list[int]:
    """Places of at most `count` instants: they are cut into as many runs, and of each the cheapest is taken.

    Of equally cheap ones, the one next to the middle of its run.

    >>> choose_instants([0.0] * 8, 2)
    [2, 6]
    >>> choose_instants([0.0, 0.0, 0.0, 0.0, 5.0, 4.0, 5.0, 5.0], 2)
    [2, 5]
    """
    borders = np.linspace(0, len(costs), min(count, len(costs)) + 1).round().astype(int).tolist()
    return [
        min(range(begin, end), key=lambda place: (costs[place], abs(place - (begin + end) // 2)))
        for begin, end in itertools.pairwise(borders)
    ]


# --- reading ---------------------------------------------------------------------------------------------------------


class _Strip:
    """Neighbouring frames of one video around an instant."""

    def __init__(
        self, images: NDArray[np.uint8], times: NDArray[np.float64], time_s: float, reach: float, max_features: int
    ) -> None:
        import cv2

        self.reach = reach  # seconds before and after
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

    @property
    def is_slow(self) -> bool:
        """Whether there are so few frames that a neighbour about a step away may be missing."""
        return self.interval_s > _SLOW_S

    def near(self, seconds: float) -> list[int]:
        """The frames at most so far from the instant."""
        return [int(place) for place in np.flatnonzero(np.abs(self.times - self.times[self.place]) <= seconds + 1e-6)]


def _find_costs(path: StrPath, times: Sequence[float], config: SecondLookConfig) -> list[float]:
    """Seconds of video to decode before each time; 0 where that is not known."""
    from hapvr.video.decode import find_seek_distances

    if len(times) <= config.max_instants:
        return [0.0] * len(times)
    limits = DecodeLimits(max_pixels=config.max_pixels, max_seconds=config.max_seconds)
    try:
        return [cost or 0.0 for cost in find_seek_distances(path, times, limits=limits)]
    except (HapvrError, OSError):
        return [0.0] * len(times)


def _read_strip(
    path: StrPath, time_s: float, reach: float, max_seconds: float, config: SecondLookConfig
) -> _Strip | None:
    """The frames up to `reach` seconds before and after a time; None if they cannot be read, or not so soon."""
    from hapvr.video.decode import decode

    if max_seconds <= 0:
        return None
    try:
        frames = decode(
            path,
            fps=config.fps,
            short_side=config.short_side,
            min_frames=0,
            crop_bars=False,
            start_s=max(0.0, time_s - reach - _MARGIN_S),
            end_s=time_s + reach + _MARGIN_S,
            threads=config.threads,
            limits=DecodeLimits(max_pixels=config.max_pixels, max_seconds=max_seconds),
        )
    except (HapvrError, OSError):
        return None
    return _Strip(frames.images, frames.timestamps, time_s, reach, config.max_features)


# --- in another process ----------------------------------------------------------------------------------------------


def _take_isolated(
    query: StrPath, target: StrPath, instants: Sequence[tuple[float, float]], speed: float, config: SecondLookConfig
) -> SecondLook | None:
    """What `take_second_look` gives, from another process; None if that crashes or hangs."""
    paths = {"query": os.fspath(query), "target": os.fspath(target)}
    request = {**paths, "instants": list(instants), "speed": speed, "config": asdict(replace(config, isolate=False))}
    command = python_command(__name__, json.dumps(request))
    with ChildProcess(command) as child, child.limit_time(config.max_seconds + _START_S):
        answer = child.answer.readline(_MAX_ANSWER_BYTES)
    try:
        found = json.loads(answer)
        return None if found is None else SecondLook(**found)
    except (ValueError, TypeError):
        return None


def _answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """What the other process answers."""
    config = SecondLookConfig(**request.pop("config"))
    if config.memory_bytes is not None:
        limit_memory(config.memory_bytes)
    instants = [(float(query_s), float(target_s)) for query_s, target_s in request.pop("instants")]
    found = take_second_look(**request, instants=instants, config=config)
    return None if found is None else asdict(found)


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InstantLook:
    """What one instant showed under the best mapping."""

    mapping: Mapping
    structure: float
    motion: float | None  # None where nothing moves
    moves: float
    area: float
    inliers: int | None = None  # None where features were not needed

    @property
    def rank(self) -> float:
        """By which mappings are chosen."""
        return float((self.structure + (self.motion or 0.0)) * self.area**_AREA_POWER)


class _Pair:
    """An instant of the query and one of the target."""

    def __init__(self, query: _Strip, target: _Strip, speed: float, step: float, config: SecondLookConfig) -> None:
        self._query, self._target, self._speed, self._step, self._config = query, target, speed, step, config

    @cached_property
    def matches(self) -> list[Matches]:
        """Of the pictures as they are, and mirrored."""
        features = self._query.features, self._target.features
        return [match_features(*features, mirrored=mirrored) for mirrored in (False, True)]

    @property
    def has_matches(self) -> bool:
        """Whether features were matched: they are not, where a known mapping was good."""
        return "matches" in vars(self)

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
        changes: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        for sign in (1, -1):
            if neighbours := self._find_neighbours(here, there, sign):
                change = query.planes[neighbours[0]] - query.planes[here]
                changes.append((change[mask], (registered(neighbours[1]) - registered(there))[mask]))
        motion, moves = compare_changes(changes, min_moves=config.min_moves)
        return InstantLook(mapping, structure(best), motion, moves, area)

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
    """Pairs of instants, and under which mapping each is seen best.

    A copy lies in the picture in one way, at all instants. So one mapping is looked for that is good for all of them;
    an instant may have another only if local features confirm it, as of a film of a screen by a moving camera.
    """

    def __init__(self) -> None:
        self._pairs: list[_Pair] = []
        self._best: list[InstantLook] = []  # of each pair, on its own

    def add(self, pair: _Pair) -> None:
        """Look at one more pair of instants: with a mapping that is known to be good, or else with all there are."""
        known = max(self._best, key=lambda look: look.rank, default=None)
        look = None if known is None else pair.look(known.mapping)
        looks = [] if look is None else [look]
        if look is None or look.rank < _GOOD_RANK:
            looks += [look for mapping in pair.find_mappings() if (look := pair.look(mapping)) is not None]
        if looks:
            self._pairs.append(pair)
            self._best.append(max(looks, key=lambda look: look.rank))

    def is_hopeless(self) -> bool:
        """Whether there is one pair so far, and nothing in it is alike: in others it would hardly be."""
        if len(self._pairs) != 1:
            return False
        pair, look = self._pairs[0], self._best[0]
        return (
            look.structure < _NO_STRUCTURE
            and (look.motion or 0.0) < _NO_MOTION
            and pair.count_inliers(look.mapping) < _NO_INLIERS
        )

    def finish(self) -> list[InstantLook]:
        """The best look of each pair."""
        mappings = list({id(look.mapping): look.mapping for look in self._best}.values())
        shared: list[InstantLook | None] = [None] * len(self._pairs)
        most = -math.inf
        for mapping in mappings:
            looks = [
                best if best.mapping is mapping else pair.look(mapping)
                for pair, best in zip(self._pairs, self._best, strict=True)
            ]
            rank = float(np.median([0.0 if look is None else look.rank for look in looks]))
            if rank > most:
                most, shared = rank, looks
        result = []
        for pair, best, look in zip(self._pairs, self._best, shared, strict=True):
            confirmed = pair.has_matches and pair.count_inliers(best.mapping) >= _MIN_INLIERS
            chosen = best if look is None or (confirmed and best.rank > look.rank) else look
            inliers = pair.count_inliers(chosen.mapping) if pair.has_matches else None
            result.append(replace(chosen, inliers=inliers))
        return result


def compare_changes(
    changes: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]], *, min_moves: float
) -> tuple[float | None, float]:
    """How what changes in the query correlates with what changes in the target, and how much changes.

    None where nothing moves: both change by less than `min_moves` grey levels. Where only one of them moves clearly,
    the correlation is 0.

    Args:
        changes: differences to one frame or more, of the query and of the target at the same places.
        min_moves: RMS grey levels.
    """
    if not changes:
        return None, 0.0
    strengths = [(rms(here), rms(there)) for here, there in changes]
    moves = max(min(pair) for pair in strengths)
    if moves >= min_moves:
        return correlate(*(np.concatenate(side) for side in zip(*changes, strict=True))), moves
    return (0.0 if max(max(pair) for pair in strengths) >= 4 * min_moves else None), moves


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


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.argv[1]))), flush=True)
