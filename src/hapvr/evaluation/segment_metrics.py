"""How well matching stretches are found: precision, recall and F1 by overlap in time, and how far borders are off.

The protocol follows VCSL (He et al., CVPR 2022, arXiv:2203.02654). A segment is a box in the plane of query time and
target time. Where a found box and a true box share an area, the found one is right on the stretch of query time and on
the stretch of target time that they share:

    precision = (found query seconds that are right / found query seconds) x (the same of target seconds)
    recall    = (true query seconds that are found / true query seconds) x (the same of target seconds)

What two boxes both cover is counted once. Seconds are pooled over the pairs of videos that are measured, so a long
match weighs more than a short one, and a pair with nothing found needs no rule of its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from hapvr.errors import DataError

Interval = tuple[float, float]
Box = tuple[Interval, Interval]  # (query, target), seconds
Pair = TypeVar("Pair", bound=Hashable)  # what names a pair of videos


@dataclass(frozen=True)
class SegmentMetrics:
    """What `measure_segments` measures, over all pairs."""

    precision: float  # NaN if nothing was found
    recall: float  # NaN if there is nothing to find
    f1: float
    boundary_error_s: float  # mean over the four borders of each true segment that was found; NaN if none was
    true: int  # segments
    found: int
    pairs: int  # pairs of videos with a true segment
    false_pairs: int  # pairs of videos without one, for which one was found
    negative_pairs: int  # pairs of videos without one

    def to_json(self) -> dict[str, float | int | None]:
        """The same as a mapping; what is not defined is None."""
        return {name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in asdict(self).items()}  # fmt: skip


def measure_segments(found: Mapping[Pair, Sequence[Box]], true: Mapping[Pair, Sequence[Box]]) -> SegmentMetrics:
    """Compare found segments with true ones, pair of videos by pair of videos.

    Precision, recall and border error are over the pairs that match in truth; found segments of the others are counted
    in `false_pairs`.

    Args:
        found: pair of videos -> its found segments; every pair that was looked at is there, if only with ().
        true: pair of videos -> its true segments; a pair that is missing or has none does not match.

    Example: of 10 true seconds the last 8 were found, and 2 more; so on both axes.
        >>> figures = measure_segments({"pair": [((2, 12), (102, 112))]}, {"pair": [((0, 10), (100, 110))]})
        >>> round(figures.precision, 3), round(figures.recall, 3), figures.boundary_error_s
        (0.64, 0.64, 2.0)
    """
    positive = {pair: [_check_box(box, pair) for box in boxes] for pair, boxes in true.items() if boxes}
    looked = {pair: [_check_box(box, pair) for box in boxes] for pair, boxes in found.items()}
    if missing := [pair for pair in positive if pair not in looked]:
        raise DataError(f"{len(missing)} pairs with true segments were not looked at, such as {missing[0]!r}.")
    right, said = _Seconds(), _Seconds()
    hit, wanted = _Seconds(), _Seconds()
    errors: list[float] = []
    for pair, boxes in positive.items():
        right.add(_intersect(box, boxes) for box in looked[pair])
        said.add(([box[0]], [box[1]]) for box in looked[pair])
        hit.add(_intersect(box, looked[pair]) for box in boxes)
        wanted.add(([box[0]], [box[1]]) for box in boxes)
        errors += [error for box in boxes if (error := _border_error(box, looked[pair])) is not None]
    precision, recall = right.over(said), hit.over(wanted)
    negative = [pair for pair in looked if pair not in positive]
    return SegmentMetrics(
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0,
        boundary_error_s=sum(errors) / len(errors) if errors else math.nan,
        true=sum(map(len, positive.values())),
        found=sum(len(looked[pair]) for pair in positive),
        pairs=len(positive),
        false_pairs=sum(bool(looked[pair]) for pair in negative),
        negative_pairs=len(negative),
    )


class _Seconds:
    """Seconds of query and of target time, each box's own union of intervals added up."""

    def __init__(self) -> None:
        self.query = self.target = 0.0

    def add(self, boxes: Iterable[tuple[list[Interval], list[Interval]]]) -> None:
        for query, target in boxes:
            self.query += union_length(query)
            self.target += union_length(target)

    def over(self, whole: _Seconds) -> float:
        return (self.query / whole.query) * (self.target / whole.target) if whole.query else math.nan


def _intersect(box: Box, others: Sequence[Box]) -> tuple[list[Interval], list[Interval]]:
    """The stretches of `box` on either axis that lie in the areas it shares with the others."""
    areas = []
    for other in others:
        query, target = _common(box[0], other[0]), _common(box[1], other[1])
        if query is not None and target is not None:
            areas.append((query, target))
    return [area[0] for area in areas], [area[1] for area in areas]


def _common(a: Interval, b: Interval) -> Interval | None:
    start, end = max(a[0], b[0]), min(a[1], b[1])
    return (start, end) if start < end else None


def union_length(intervals: Iterable[Interval]) -> float:
    """The length of the union of intervals: overlaps count once.

    >>> union_length([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _border_error(box: Box, found: Sequence[Box]) -> float | None:
    """Mean distance of the four borders to those of the found box that overlaps it best; None if none does."""
    best = max(found, key=lambda other: _overlap(box, other), default=None)
    if best is None or _overlap(box, best) == 0:
        return None
    return sum(abs(box[axis][end] - best[axis][end]) for axis in (0, 1) for end in (0, 1)) / 4


def _overlap(a: Box, b: Box) -> float:
    """The area that two boxes share over the area they cover together."""
    query, target = _common(a[0], b[0]), _common(a[1], b[1])
    if query is None or target is None:
        return 0.0
    shared = _area((query, target))
    return shared / (_area(a) + _area(b) - shared)


def _area(box: Box) -> float:
    return (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])


def _check_box(box: Box, pair: Hashable) -> Box:
    (a, b), (c, d) = box
    if not (a < b and c < d and all(map(math.isfinite, (a, b, c, d)))):
        raise DataError(f"A segment of {pair!r} is {box}: an interval must be (start, end) with start < end.")
    return (a, b), (c, d)
