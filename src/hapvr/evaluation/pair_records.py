"""Records of predictions: pairs of videos, and segments of pairs."""

from __future__ import annotations

from typing import NamedTuple

Interval = tuple[float, float]
Box = tuple[Interval, Interval]  # (query, target), seconds
PairOfVideos = tuple[str, str]  # (query, target)


class Candidate(NamedTuple):
    """A predicted pair: this target may hold a copy of what the query shows."""

    query: str
    target: str
    score: float

    @property
    def pair(self) -> PairOfVideos:
        """(query, target)."""
        return self.query, self.target


class SegmentMatch(NamedTuple):
    """A predicted segment: which seconds of a query are which seconds of a target."""

    query: str
    target: str
    box: Box
    score: float

    @property
    def pair(self) -> PairOfVideos:
        """(query, target)."""
        return self.query, self.target
