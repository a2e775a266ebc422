"""What a second look measures: two instants laid on each other, under the mapping that is good for all of them.

The target's picture is registered on the query's (`hapvr.judge.registration`), frames are brought into step, and the
pictures are correlated; so is what changes between neighbouring frames. The best mapping is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from hapvr.judge.frame_strips import SMALL, SecondLookConfig, Strip
from hapvr.judge.registration import (
    Mapping,
    Matches,
    Plane,
    correlate,
    find_by_size,
    find_mappings,
    lay_over,
    match_features,
    rms,
    scale_matrix,
    warp,
)

_MIN_PIXELS = 64
_GOOD_RANK = 1.5  # a mapping of one instant under which another gives this needs no search there
_FEW_INLIERS = 20  # with fewer, the pictures are looked for in each other at several sizes as well
_MIN_INLIERS = 12  # features that confirm a mapping of one instant alone
# A first instant that shows less than this ends the look. Among edited copies of real videos, no look at a copy of 143
# ended so, and 16 of 18 looks at strangers did.
_NO_STRUCTURE, _NO_MOTION, _NO_INLIERS = 0.75, 0.25, 6
_AREA_POWER = 0.1  # by which a mapping that covers little counts less: chance is kinder to small pictures


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


class InstantPair:
    """An instant of the query and one of the target."""

    def __init__(self, query: Strip, target: Strip, speed: float, step: float, config: SecondLookConfig) -> None:
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
            larger, smaller = scale_matrix(1 / SMALL), scale_matrix(SMALL)
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
        matrix = scale_matrix(SMALL) @ mapping.matrix @ scale_matrix(1 / SMALL)

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


class Comparison:
    """Pairs of instants, and under which mapping each is seen best.

    A copy lies in the picture in one way, at all instants. So one mapping is looked for that is good for all of them;
    an instant may have another only if local features confirm it, as of a film of a screen by a moving camera.
    """

    def __init__(self) -> None:
        self._pairs: list[InstantPair] = []
        self._best: list[InstantLook] = []  # of each pair, on its own

    def add(self, pair: InstantPair) -> None:
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
