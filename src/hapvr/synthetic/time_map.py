"""Which moment of an original each moment of an edited copy shows: a piecewise linear map, composed exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hapvr.errors import DataError

_TINY_S = 1e-6  # pieces shorter than this come from rounding


@dataclass(frozen=True)
class Segment:
    """The copy from `q_start` to `q_end` shows the original from `t_start` to `t_end` (seconds).

    Time runs forward in the copy: q_start < q_end. Where the copy plays backwards t_start > t_end; a frozen picture
    has t_start = t_end.
    """

    q_start: float
    q_end: float
    t_start: float
    t_end: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.q_start, self.q_end, self.t_start, self.t_end))):
            raise DataError(f"a segment needs finite times, got {self}.")
        if not self.q_start < self.q_end:
            raise DataError(f"a segment runs forward in the copy: q_start < q_end, got {self}.")

    @property
    def speed(self) -> float:
        """Seconds of the original shown in a second of the copy; negative where it plays backwards."""
        return (self.t_end - self.t_start) / (self.q_end - self.q_start)

    def at(self, q: float) -> float:
        """The moment of the original that the copy shows at `q`."""
        share = (q - self.q_start) / (self.q_end - self.q_start)
        return self.t_start + (self.t_end - self.t_start) * share

    def interval(self) -> tuple[float, float, float, float]:
        """(q_start, q_end, t_start, t_end) with t_start <= t_end: the two stretches, without the direction."""
        return self.q_start, self.q_end, min(self.t_start, self.t_end), max(self.t_start, self.t_end)


@dataclass(frozen=True)
class TimeMap:
    """Segments in the order of the copy, not overlapping there; what lies between them shows something else.

    >>> slowed = TimeMap.of(Segment(0, 20, 0, 10))            # twice as slow
    >>> trimmed = TimeMap.of(Segment(0, 5, 8, 13))            # 5 s of that, from second 8
    >>> trimmed.after(slowed).segments
    (Segment(q_start=0.0, q_end=5.0, t_start=4.0, t_end=6.5),)
    """

    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        for left, right in zip(self.segments, self.segments[1:], strict=False):
            if left.q_end > right.q_start + _TINY_S:
                raise DataError(f"segments of a time map overlap in the copy: {left} and {right}.")

    @classmethod
    def of(cls, *segments: Segment) -> TimeMap:
        """A map of these segments, sorted."""
        return cls(tuple(sorted(segments, key=lambda segment: segment.q_start)))

    @classmethod
    def identity(cls, seconds: float) -> TimeMap:
        """The copy shows the original, moment for moment."""
        return cls((Segment(0.0, seconds, 0.0, seconds),))

    @property
    def shown_s(self) -> float:
        """Seconds of the copy that show the original."""
        return sum(segment.q_end - segment.q_start for segment in self.segments)

    def __call__(self, q: float) -> float | None:
        """The moment of the original shown at `q`; None where the copy shows something else.

        A moment where two segments meet belongs to the later one.

        >>> TimeMap.of(Segment(2, 4, 0, 2))(3.0), TimeMap.of(Segment(2, 4, 0, 2))(5.0)
        (1.0, None)
        """
        for segment in reversed(self.segments):
            if segment.q_start <= q <= segment.q_end:
                return segment.at(q)
        return None

    def after(self, earlier: TimeMap) -> TimeMap:
        """The map of an edit made on a copy that already has the map `earlier`: q -> earlier(self(q))."""
        pieces: list[Segment] = []
        for outer in self.segments:
            for inner in earlier.segments:
                low = max(min(outer.t_start, outer.t_end), inner.q_start)
                high = min(max(outer.t_start, outer.t_end), inner.q_end)
                if outer.speed == 0:
                    if inner.q_start <= outer.t_start < inner.q_end:
                        moment = inner.at(outer.t_start)
                        pieces.append(Segment(outer.q_start, outer.q_end, moment, moment))
                elif high - low > _TINY_S:
                    first, last = (low, high) if outer.speed > 0 else (high, low)
                    start, end = (outer.q_start + (moment - outer.t_start) / outer.speed for moment in (first, last))
                    pieces.append(Segment(start, end, inner.at(first), inner.at(last)))
        return TimeMap(tuple(_join_pieces(sorted(pieces, key=lambda piece: piece.q_start))))


def _join_pieces(pieces: Iterable[Segment]) -> list[Segment]:
    """The pieces, where neighbours that continue each other at the same speed have become one."""
    joined: list[Segment] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and abs(last.q_end - piece.q_start) < _TINY_S
            and abs(last.t_end - piece.t_start) < _TINY_S
            and abs(last.speed - piece.speed) < _TINY_S
        ):
            joined[-1] = Segment(last.q_start, piece.q_end, last.t_start, piece.t_end)
        else:
            joined.append(piece)
    return joined
