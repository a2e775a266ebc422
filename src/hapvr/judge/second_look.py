"""A second look at the files: a few matching instants, registered and compared pixel by pixel.

The frames of two talks before one wall resemble each other more than a copy resembles its original under a sticker.
What tells them apart is whether, once the one picture is laid on the other, what *moves* between neighbouring frames
moves alike in both: a copy repeats the movements of its original, another take does not.

At each instant a few frames of both files are decoded around it (`frame_strips`), the target's picture is registered on
the query's (`registration`), and the best mapping is kept: by the correlation of the pictures and of their changes
(`instants`). Where the first instant shows nothing alike, the others are left out.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from hapvr.errors import DecodeError
from hapvr.judge.frame_strips import SecondLookConfig, Strip, find_costs, read_strip
from hapvr.judge.instants import Comparison, InstantPair, SecondLook, summarise
from hapvr.judge.registration import is_available, limit_threads
from hapvr.storage import StrPath
from hapvr.video.limits import DecodeLimits
from hapvr.workers.sandbox import Sandbox

__all__ = ["QuerySecondLook", "SecondLook", "SecondLookConfig", "is_available", "take_second_look"]

_CHANGE_S = 0.4  # how far apart neighbouring frames are whose difference shows what moves
_MAX_CHANGE_S = 0.8  # and in slow motion
_MAX_REACH_S = 2.0  # and in the target of a copy in slow motion
_START_S = 10.0  # for another process to start, and to end by itself


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
        self._strips: dict[float, Strip] = {}  # of the query, by their instant

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
        comparison = Comparison()
        with limit_threads(config.threads):
            # Both files are read instant by instant, so that there is an answer whenever time is up.
            for query_s, target_s in chosen:
                there = read_strip(target, target_s, reach, end - self._clock(), config)
                here = None if there is None else self._read_query(query_s, step, there.is_slow, end)
                if here is not None and there is not None:
                    comparison.add(InstantPair(here, there, speed, step, config))
                if comparison.is_hopeless() or self._clock() >= end:
                    break
            return summarise(comparison.finish())

    def _read_query(self, time_s: float, step: float, target_is_slow: bool, end: float) -> Strip | None:
        """The query's frames around a time, kept for the next target.

        Far more of them if one of the videos has few frames a second: then neighbours are far apart.
        """
        config = self._config
        for reach in (step, config.refine_s + _MAX_CHANGE_S):
            strip = self._strips.get(time_s)
            if strip is None or strip.reach < reach:
                strip = read_strip(self._query, time_s, reach, end - self._clock(), config)
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
        query_costs = find_costs(self._query, [q - reach for q, _ in valid], self._config)
        target_costs = find_costs(target, [t - reach for _, t in valid], self._config)
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


# --- in another process ----------------------------------------------------------------------------------------------


def _take_isolated(
    query: StrPath, target: StrPath, instants: Sequence[tuple[float, float]], speed: float, config: SecondLookConfig
) -> SecondLook | None:
    """What `take_second_look` gives, from another process; None if that crashes or hangs."""
    from hapvr.video.isolated import iterate_isolated

    paths = os.fspath(query), os.fspath(target)
    call = partial(_list_looks, *paths, list(instants), speed=speed, config=replace(config, isolate=False))
    sandbox = Sandbox(readable=tuple(map(os.path.abspath, paths)), max_memory_bytes=config.memory_bytes)
    limits = DecodeLimits(max_seconds=config.max_seconds + _START_S)
    try:
        found = list(iterate_isolated(call, dict, name=paths[0], limits=limits, sandbox=sandbox))
        return SecondLook(**found[0]) if found else None
    except (DecodeError, TypeError):
        return None


def _list_looks(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """What `take_second_look` gives as plain values; empty if that is nothing."""
    found = take_second_look(*arguments, **options)
    return [] if found is None else [asdict(found)]
