"""Metrics of predicted pairs and segments: the two tracks of VSC2022, and the figures of VCSL.

VSC2022, the Meta Video Similarity Challenge (Pizzi et al., arXiv:2306.09489):
    descriptor track    one average precision over all predicted pairs of videos; equal scores are one threshold
    matching track      the same over predicted segments: precision and recall in seconds, see below
VCSL (He et al., CVPR 2022, arXiv:2203.02654):
    precision and recall in seconds of each pair, averaged over pairs; rates of pairs that are missed or falsely found

A segment is a box: (query interval, target interval), in seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hapvr.errors import DataError
from hapvr.evaluation.metrics import Figures, micro_average_precision
from hapvr.evaluation.pair_records import Box, Candidate, PairOfVideos, SegmentMatch
from hapvr.evaluation.segment_metrics import measure_pair, union_length

# --- VSC2022 ---------------------------------------------------------------------------------------------------------


def pair_average_precision(true: Collection[PairOfVideos], candidates: Sequence[Candidate]) -> float:
    """Average precision over all predicted pairs, by descending score: VSC2022's descriptor track.

    Pairs of queries that match nothing count as false, as all that are not true do. True pairs that were not predicted
    lower the figure: it is divided by all true pairs. Equal scores are one threshold.

    Example: the second of two true pairs comes third, so (1 + 2/3) / 2.
        >>> found = [Candidate("Q1", "R1", 8.0), Candidate("Q9", "R9", 5.0), Candidate("Q2", "R2", 4.0)]
        >>> pair_average_precision({("Q1", "R1"), ("Q2", "R2")}, found)
        0.8333333333333333
    """
    wanted = set(true)
    if not wanted:
        raise DataError("no pair is true, so average precision is not defined. Give the ground truth's pairs.")
    seen: set[PairOfVideos] = set()
    for candidate in candidates:
        if candidate.pair in seen:
            raise DataError(
                f"query '{candidate.query}' and target '{candidate.target}' are predicted twice. Give each pair once, "
                "with its best score."
            )
        seen.add(candidate.pair)
        if not math.isfinite(candidate.score):
            raise DataError(
                f"the score of query '{candidate.query}' and target '{candidate.target}' is {candidate.score}: a "
                "finite number was expected. Leave out pairs that have none."
            )
    relevant = np.array([candidate.pair in wanted for candidate in candidates], dtype=np.bool_)
    if not relevant.any():
        return 0.0
    scores = np.array([candidate.score for candidate in candidates], dtype=np.float64)
    return micro_average_precision(scores, relevant, positives=len(wanted), ties="group")


def keep_best_scores(matches: Iterable[SegmentMatch]) -> list[Candidate]:
    """The pairs of predicted segments, each with its best score.

    >>> box = ((0.0, 1.0), (0.0, 1.0))
    >>> keep_best_scores([SegmentMatch("q", "r", box, 0.5), SegmentMatch("q", "r", box, 0.7)])
    [Candidate(query='q', target='r', score=0.7)]
    """
    best: dict[PairOfVideos, float] = {}
    for match in matches:
        best[match.pair] = max(match.score, best.get(match.pair, -math.inf))
    return [Candidate(*pair, score) for pair, score in best.items()]


def segment_average_precision(true: Mapping[PairOfVideos, Sequence[Box]], matches: Sequence[SegmentMatch]) -> float:
    """Average precision over predicted segments, by descending score: VSC2022's matching track.

    After each distinct score, over all pairs and on each axis of time (query, target):
        right      seconds that predictions cover and true segments cover too. A true segment counts from when a
                   prediction shares an area with it; what several predictions cover counts once
        precision  = right seconds / predicted seconds;   recall = right seconds / true seconds
    and the two axes are joined by their geometric mean. The figure is the sum of precision times the rise of recall.

    Example: 8 of 10 true seconds are found on both axes, 2 more are false.
        >>> true = {("q", "r"): [((0.0, 10.0), (100.0, 110.0))]}
        >>> round(segment_average_precision(true, [SegmentMatch("q", "r", ((2.0, 12.0), (102.0, 112.0)), 0.9)]), 9)
        0.64
    """
    pairs = {pair: _PairSeconds(boxes) for pair, boxes in true.items() if boxes}
    whole = [sum(union_length([box[axis] for box in pair.true]) for pair in pairs.values()) for axis in (0, 1)]
    if not all(whole):
        raise DataError("no segment is true, so average precision is not defined. Give the ground truth's segments.")
    for match in matches:
        _check_match(match)
    right, said = [0.0, 0.0], [0.0, 0.0]
    figure = recall = 0.0
    ordered = sorted(matches, key=lambda match: -match.score)
    for _, group in itertools.groupby(ordered, key=lambda match: match.score):
        for match in group:
            gained, covered = pairs.setdefault(match.pair, _PairSeconds(())).add(match.box)
            for axis in (0, 1):
                right[axis] += gained[axis]
                said[axis] += covered[axis]
        reached = math.sqrt(max(0.0, right[0] / whole[0]) * max(0.0, right[1] / whole[1]))
        precision = math.sqrt(max(0.0, right[0] / said[0]) * max(0.0, right[1] / said[1])) if all(said) else 0.0
        figure += precision * (reached - recall)
        recall = reached
    return figure


class _PairSeconds:
    """The true and predicted segments of one pair of videos, and the seconds on each axis that they share."""

    def __init__(self, true: Sequence[Box]) -> None:
        self.true = list(true)
        self.predicted: list[Box] = []
        self.right = self.said = (0.0, 0.0)

    def add(self, box: Box) -> tuple[tuple[float, float], tuple[float, float]]:
        """Add a prediction: how many right seconds and how many predicted seconds it adds, on each axis."""
        self.predicted.append(box)
        touched = [one for one in self.true if any(_share_area(one, other) for other in self.predicted)]
        right, said = [], []
        for axis in (0, 1):
            predicted, true = [one[axis] for one in self.predicted], [one[axis] for one in touched]
            said.append(union_length(predicted))
            right.append(said[axis] + union_length(true) - union_length([*predicted, *true]))
        before = self.right, self.said
        self.right, self.said = (right[0], right[1]), (said[0], said[1])
        gained = (right[0] - before[0][0], right[1] - before[0][1])
        return gained, (said[0] - before[1][0], said[1] - before[1][1])


def _share_area(one: Box, other: Box) -> bool:
    return all(min(one[axis][1], other[axis][1]) > max(one[axis][0], other[axis][0]) for axis in (0, 1))


def _check_match(match: SegmentMatch) -> None:
    if not math.isfinite(match.score):
        raise DataError(
            f"a segment of query '{match.query}' and target '{match.target}' has the score {match.score}: a finite "
            "number was expected."
        )
    for start, end in match.box:
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise DataError(
                f"a segment of query '{match.query}' and target '{match.target}' runs from {start} to {end} s: a start "
                "and an end that is not before it were expected."
            )


# --- VCSL ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VCSLFigures(Figures):
    """What VCSL measures. NaN where nothing defines a figure."""

    precision: float  # mean over the pairs for which segments were found
    recall: float  # mean over the pairs that have true segments
    f1: float
    false_rejection_rate: float  # of the pairs that match, those with nothing found
    false_alarm_rate: float  # of the pairs that do not match, those with something found
    set_precision: float  # mean over sets of pairs (those of one query film), then over sets
    set_recall: float
    set_f1: float
    pairs: int
    matching_pairs: int
    sets: int


def measure_vcsl(
    found: Mapping[PairOfVideos, Sequence[Box]],
    true: Mapping[PairOfVideos, Sequence[Box]],
    pairs: Iterable[PairOfVideos],
    *,
    sets: Mapping[str, Sequence[PairOfVideos]] | None = None,
) -> VCSLFigures:
    """Precision and recall of found segments by VCSL's protocol.

    Within a pair they are those of `measure_pair`. Overall, precision is a mean over the pairs with something found and
    recall one over the pairs that match, so a pair that does not match lowers precision only if something is found. In
    sets of pairs, precision is 1 where nothing is found, and recall is 1 where nothing is to be found.

    The public script adds a millionth of a second to each denominator, and takes the share of matching pairs as an
    option; here nothing is added, and pairs are counted.

    Example: one pair is found exactly; the other does not match, and something is found.
        >>> box = ((0.0, 5.0), (0.0, 5.0))
        >>> pairs = [("q", "a"), ("q", "b")]
        >>> figures = measure_vcsl({pairs[0]: [box], pairs[1]: [box]}, {pairs[0]: [box]}, pairs)
        >>> figures.precision, figures.recall, figures.false_alarm_rate
        (0.5, 1.0, 1.0)
    """
    values = {pair: _measure_vcsl_pair(found.get(pair, ()), true.get(pair, ()), pair) for pair in pairs}
    if not values:
        raise DataError("there is no pair to measure: give the pairs of the ground truth.")
    matching = {pair for pair in values if true.get(pair)}
    others = values.keys() - matching
    precisions = [precision for pair, (precision, _) in values.items() if found.get(pair)]
    recalls = [values[pair][1] for pair in matching]
    of_sets = [[values[pair] for pair in own if pair in values] for own in (sets or {}).values()]
    of_sets = [own for own in of_sets if own]
    set_precision = _mean([_mean([precision for precision, _ in own]) for own in of_sets])
    set_recall = _mean([_mean([recall for _, recall in own]) for own in of_sets])
    precision, recall = _mean(precisions), _mean(recalls)
    return VCSLFigures(
        precision=precision,
        recall=recall,
        f1=_harmonic_mean(precision, recall),
        false_rejection_rate=_mean([float(not found.get(pair)) for pair in matching]),
        false_alarm_rate=_mean([float(bool(found.get(pair))) for pair in others]),
        set_precision=set_precision,
        set_recall=set_recall,
        set_f1=_harmonic_mean(set_precision, set_recall),
        pairs=len(values),
        matching_pairs=len(matching),
        sets=len(of_sets),
    )


def _measure_vcsl_pair(found: Sequence[Box], true: Sequence[Box], pair: PairOfVideos) -> tuple[float, float]:
    for box in (*found, *true):
        _check_match(SegmentMatch(*pair, box, 0.0))
    if not found or not true:
        return float(not found), float(not true)
    precision, recall = measure_pair(found, true)
    # Boxes without a duration: nothing of them can be right.
    return (0.0 if math.isnan(precision) else precision), (0.0 if math.isnan(recall) else recall)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _harmonic_mean(precision: float, recall: float) -> float:
    if math.isnan(precision) or math.isnan(recall):
        return math.nan
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
