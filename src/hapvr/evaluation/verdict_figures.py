"""The figures of verdicts on pairs of videos, which `hapvr.evaluation.verdict_metrics` computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hapvr.evaluation.intervals import bound_count
from hapvr.evaluation.metrics import Figures
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.segment_metrics import SegmentMetrics

Truth: TypeAlias = Literal["copy", "shared footage", "same video", "same source", "unrelated"]
NEGATIVES: tuple[Truth, ...] = ("same video", "same source", "unrelated")
COPY: Truth = "copy"
_MILLION = 1_000_000


@dataclass(frozen=True)
class PairVerdict:
    """A pair that was compared: what is true of it, and what was said."""

    query: str
    target: str
    truth: Truth
    verdict: str  # "copy", "same scene" or "no match"
    probability: float | None = None  # of a copy; None where a model gives none
    false_per_million: float | None = None  # that the verdict promises
    second_look: bool = False
    segments: tuple[Box, ...] = ()  # where they match, by the verdict
    near: bool = True  # a copy, or one of the nearest negatives of its query
    drawn: bool = False  # at random from all negatives of its query
    score: float | None = None  # of the network

    @property
    def called_copy(self) -> bool:
        """Whether the verdict is copy."""
        return self.verdict == COPY

    @property
    def false(self) -> bool:
        """Whether it is called a copy and shares no footage."""
        return self.called_copy and self.truth in NEGATIVES


@dataclass(frozen=True)
class CopyFigures(Figures):
    """How right the verdict copy is."""

    copies: int
    found: int  # of them, called copies
    false: int  # negatives called copies
    derived = ("precision", "recall")

    @property
    def precision(self) -> float:
        """Copies among what is called a copy; NaN if nothing is."""
        return self.found / (self.found + self.false) if self.found + self.false else math.nan

    @property
    def recall(self) -> float:
        """What is called a copy among copies; NaN if there are none."""
        return self.found / self.copies if self.copies else math.nan


@dataclass(frozen=True)
class Rate(Figures):
    """A count of pairs.

    >>> rate = Rate(0, 150_000)
    >>> rate.per_million, round(rate.upper_per_million)
    (0.0, 20)
    """

    count: int
    pairs: int  # of which
    derived = ("per_million", "upper_per_million")

    @property
    def per_million(self) -> float:
        """NaN if there are no pairs."""
        return _MILLION * self.count / self.pairs if self.pairs else math.nan

    @property
    def upper_per_million(self) -> float:
        """The upper bound of 95%. If none was counted it is 3 / pairs (the rule of three)."""
        return _MILLION * min(1.0, bound_count(self.count) / self.pairs) if self.pairs else math.nan


@dataclass(frozen=True)
class FalseRate:
    """How often negatives of one kind are called copies."""

    rate: Rate  # of all pairs
    compared: int  # of those; the others are less alike, and taken for no matches
    videos: int  # pairs of a video and a database video behind the false ones; several queries may be of one video
    drawn: Rate  # of those drawn at random, compared or not by their likeness

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        return self.rate.to_json() | {
            "compared": self.compared, "false_pairs_of_videos": self.videos, "drawn": self.drawn.to_json()
        }  # fmt: skip


@dataclass(frozen=True)
class Promise:
    """A rate of false verdicts that is promised, and what is measured at it."""

    promised: float  # of a million: pairs whose verdict promises at most this many
    copies: Rate  # copies among them
    measured: Mapping[Truth, Rate]  # negatives among them, of all pairs

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        rates = {truth: rate.to_json() for truth, rate in self.measured.items()}
        return {"promised_per_million": self.promised, "copies": self.copies.count, "of_copies": self.copies.pairs,
                "measured": rates}  # fmt: skip


@dataclass(frozen=True)
class Ranking(Figures):
    """How well copies are separated from negatives: one average precision over all pairs that were compared (uAP).

    Unlike precision and recall it does not depend on where the verdict draws its line.
    """

    by_score: float  # of the network
    by_probability: float  # of the verdict, all evidence together; equal ones by score


@dataclass(frozen=True)
class ReliabilityBin(Figures):
    """Pairs whose probability is at least `low` and below `high`; in the last bin also `high`."""

    low: float
    high: float
    copies: int
    strangers: int  # negatives; the name is that in reports
    predicted: float  # mean probability; NaN if there are no pairs, as the next three
    observed: float  # share of copies
    observed_low: float  # of an interval of 95%
    observed_high: float


@dataclass(frozen=True)
class VerdictFigures:
    """All that `measure_verdicts` measures."""

    overall: CopyFigures
    by_kind: Mapping[str, CopyFigures]  # kind of query
    false: Mapping[Truth, FalseRate]
    segments: Mapping[str, SegmentMetrics]  # over all queries ("") and by kind
    verdicts: Mapping[str, Mapping[str, int]]  # by the truth of a pair, how many pairs have each verdict
    reliability: tuple[ReliabilityBin, ...]  # empty for a model without probabilities
    promises: tuple[Promise, ...]  # the same
    ranking: Ranking | None  # None for a model without probabilities, or where nothing is a copy
    prior: float | None  # share of copies that probabilities and `reliability` are for
    compared: int
    second_looks: int

    def to_json(self) -> dict[str, Any]:
        """What the report says."""
        return {
            "compared": self.compared,
            "second_looks": self.second_looks,
            "copy": self.overall.to_json(),
            "by_kind": {kind: figures.to_json() for kind, figures in self.by_kind.items()},
            "false": {truth: rate.to_json() for truth, rate in self.false.items()},
            "segments": {kind: figures.to_json() for kind, figures in self.segments.items()},
            "verdicts": {truth: dict(counts) for truth, counts in self.verdicts.items()},
            "prior": self.prior,
            "ranking": None if self.ranking is None else self.ranking.to_json(),
            "reliability": [one.to_json() for one in self.reliability],
            "promises": [promise.to_json() for promise in self.promises],
        }
