"""What the log odds of a judge mean among the videos of a library: pairs, and the fit on them.

Each edited copy is compared with its original and with the strangers that are nearest to it; the library's own videos
with the strangers nearest to them, until there are enough pairs. See `hapvr.judge.recalibration` for the fit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.features import Features
from hapvr.judge.evidence import Stretch
from hapvr.judge.judge import Decision, Judge
from hapvr.judge.recalibration import JudgeCalibration, fit_odds_line, measure_own_tail
from hapvr.library.candidates import count_votes, find_runs
from hapvr.library.results import display_path
from hapvr.library.store import Store
from hapvr.library.stored_scores import describe_stored
from hapvr.matching import VideoDescription, choose_look, describe_features, pair_frames
from hapvr.model import Model
from hapvr.workers.threads import map_threads

if TYPE_CHECKING:
    from hapvr.synthetic.time_map import TimeMap

_NEIGHBOURS = 10  # strangers that are nearest to a query, as in the fit of a judge
_MAX_ERROR_S = 1.5  # between where a stretch of a copy says it is and where it is
_EVEN = 0.5  # from this probability on it is a copy


@dataclass(frozen=True)
class VerdictCounts:
    """How often a judge says "copy", of the pairs of a library."""

    found: int  # of the edited copies
    false: int  # of the nearest strangers
    promised: float  # of a million pairs of strangers, how many it estimates to be called copies
    measured: float  # and how many were


@dataclass(frozen=True, eq=False)
class JudgeCalibrationReport:
    """What was fitted on the pairs of a library, and the verdicts on them before and after."""

    calibration: JudgeCalibration
    before: VerdictCounts
    after: VerdictCounts
    kinds: dict[str, tuple[int, int]]  # of edit: copies found after it, and all
    linked: int  # pairs that are left out because `duplicates` links them
    failed: tuple[tuple[str, str], ...]  # files that no copy could be made of, and why
    videos: int  # in the library
    seconds: float
    warnings: tuple[str, ...] = ()  # what it is too weak for, and what to do about it

    def to_json(self) -> dict[str, Any]:
        """What `hapvr calibrate --json` prints."""
        return {
            "copies": self.calibration.copies,
            "strangers": self.calibration.strangers,
            "videos": self.videos,
            "linked": self.linked,
            "offset": self.calibration.offset,
            "slope": self.calibration.slope,
            "before": dataclasses.asdict(self.before),
            "after": dataclasses.asdict(self.after),
            "kinds": {kind: {"found": found, "of": of} for kind, (found, of) in self.kinds.items()},
            "failed": [{"path": display_path(path), "error": reason} for path, reason in self.failed],
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False)
class DescribedCopy:
    """An edited copy of a content of the library."""

    key: int  # of the original
    kind: str  # of edit
    path: str  # of its file, which is there while it is compared
    features: Features
    time: TimeMap | None = None  # its seconds -> seconds of the original; None if any place is right


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """The log odds of a library's pairs, by the judge as it was fitted."""

    kinds: tuple[str, ...]  # of edit, of each copy
    copies: NDArray[np.float64]  # of each with its original; minus infinity where nothing was found
    right: NDArray[np.bool_]  # whether the best stretch of the copy is at its true place
    strangers: NDArray[np.float64]  # of the nearest strangers
    population: int  # pairs of strangers, of which these are the nearest
    videos: int  # whose strangers these are


def judge_pairs(
    store: Store,
    model: Model,
    copies: Iterable[DescribedCopy],
    keys: Sequence[int],
    linked: Collection[frozenset[int]],
    *,
    pairs: int,
    seed: int,
    second_look: bool,
    progress: Callable[[int, int], None],
) -> JudgedPairs:
    """Compare copies with their originals and with strangers, then videos with strangers.

    Args:
        store: the tables.
        model: one with a judge.
        copies: made one after the other.
        keys: of all contents.
        linked: pairs of keys that show the same, which are no strangers.
        pairs: of strangers; no more are compared than there are, and the copies' own in any case.
        seed: draws the videos that are compared.
        second_look: look at the files where log odds are undecided.
        progress: called with how many pairs of strangers there are, and how many there will be.
    """
    partners = {key: len(keys) - 1 - sum(key in pair for pair in linked) for key in keys}
    kinds: list[str] = []
    odds: list[float] = []
    right: list[bool] = []
    strangers: list[float] = []
    asked: list[int] = []  # keys whose strangers were compared

    def compare(query: VideoDescription, others: Sequence[int]) -> list[Decision]:
        threads = torch.get_num_threads() if model.extractor.device.type == "cpu" else 1
        targets = list(_describe(store, model, others))
        return map_threads(partial(_judge, model, query, second_look), targets, threads) if targets else []

    def compare_strangers(key: int, features: Features, query: VideoDescription) -> None:
        near = _find_strangers(store, features, key, partners, linked)
        strangers.extend(decision.log_odds for decision in compare(query, near))
        asked.append(key)

    for copy in copies:
        query = describe_features(model, copy.features, path=copy.path, sampling=model.sampling)
        for decision in compare(query, [copy.key]):
            kinds.append(copy.kind)
            odds.append(decision.log_odds)
            right.append(decision.best is not None and _is_right(decision.best, copy.time))
        compare_strangers(copy.key, copy.features, query)
    total = min(pairs, len(strangers) + sum(min(_NEIGHBOURS, count) for count in partners.values()))
    for place in np.random.default_rng([seed, 1]).permutation(len(keys)).tolist():
        if len(strangers) >= pairs:
            break
        for query in _describe(store, model, [keys[place]]):
            compare_strangers(keys[place], query.features, query)
        progress(min(len(strangers), total), total)
    return JudgedPairs(
        tuple(kinds), np.array(odds, np.float64), np.array(right, bool), np.array(strangers, np.float64),
        sum(partners[key] for key in asked), len(set(asked)),
    )  # fmt: skip


def fit_judge_calibration(judge: Judge, pairs: JudgedPairs) -> JudgeCalibration:
    """What the judge's log odds mean among these pairs; `DataError` if they do not tell copies from strangers."""
    placed = np.where(pairs.right, pairs.copies, -math.inf)
    even = dataclasses.replace(judge, videos=judge.videos + pairs.videos).find_even()
    offset, slope = fit_odds_line(placed, pairs.strangers, even=even)
    tail = measure_own_tail(pairs.strangers, pairs.population, judge.tail)
    counts = len(pairs.copies), len(pairs.strangers)
    return JudgeCalibration(judge.digest(), offset, slope, tail, *counts, pairs.videos)


def count_verdicts(judge: Judge, pairs: JudgedPairs) -> VerdictCounts:
    """How many of the pairs a judge calls copies."""
    false = int((_find_probabilities(judge, pairs.strangers) >= _EVEN).sum())
    return VerdictCounts(
        int((_find_probabilities(judge, pairs.copies) >= _EVEN).sum()),
        false,
        judge.false_per_million(judge.find_even()),
        false / max(1, pairs.population) * 1e6,
    )


def count_kinds(judge: Judge, pairs: JudgedPairs) -> dict[str, tuple[int, int]]:
    """Of each kind of edit: the copies that a judge calls copies, and all."""
    return count_by_kind(pairs.kinds, _find_probabilities(judge, pairs.copies) >= _EVEN)


def count_by_kind(kinds: Sequence[str], found: NDArray[np.bool_]) -> dict[str, tuple[int, int]]:
    """Of each kind of edit: the copies that were found, and all.

    >>> count_by_kind(["crop", "blur", "crop"], np.array([True, False, False]))
    {'blur': (0, 1), 'crop': (1, 2)}
    """
    all_kinds = np.array(kinds)
    return {kind: (int(found[all_kinds == kind].sum()), kinds.count(kind)) for kind in sorted(set(kinds))}


def find_weaknesses(judge: Judge, before: VerdictCounts, after: VerdictCounts) -> Iterator[str]:
    """What a judge that was calibrated cannot do, in words."""
    if judge.find_even() == math.inf:
        yield (
            f"no pair can be called a copy: {judge.videos:,} videos are too few for that at a prior of "
            f"{judge.prior:g}. Add videos, and calibrate again."
        )
    elif after.found < before.found:
        yield (
            f"{before.found - after.found} of the edited copies are no longer called copies: other videos of the "
            "library look as much like them. If some of those are copies, `hapvr duplicates` should link them."
        )


def _find_probabilities(judge: Judge, odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([judge.probability(float(one)) for one in odds])


def _find_strangers(
    store: Store, features: Features, key: int, known: Mapping[int, int], linked: Collection[frozenset[int]]
) -> list[int]:
    """The contents whose frame vectors are nearest, as in a search, without those that show the same."""
    vectors, weights = find_runs(features.regions, features.low_information)
    if not len(vectors):
        return []
    found, _ = count_votes(*store.find_nearest(vectors, exact=True), weights.numpy())
    strangers = [
        int(other) for other in found if other in known and other != key and frozenset((key, int(other))) not in linked
    ]
    return strangers[:_NEIGHBOURS]


def _describe(store: Store, model: Model, keys: Sequence[int]) -> Iterator[VideoDescription]:
    catalog = store.catalog()
    for stored in store.read_contents(keys):
        yield describe_stored(stored, store, model, catalog.records(catalog.with_key(stored.key)))


def _judge(model: Model, query: VideoDescription, second_look: bool, target: VideoDescription) -> Decision:
    """The decision on two videos, without psi: no log odds depend on it."""
    assert model.judge is not None
    look = choose_look(query, target) if second_look else None
    return model.judge.decide(pair_frames(query, target, model), model.segments, look=look)


def _is_right(stretch: Stretch, time: TimeMap | None) -> bool:
    """Whether the middle of a stretch is where the edit has put it."""
    if time is None:
        return True
    middle = sum(stretch.segment.query) / 2
    true = time(middle)
    return true is not None and abs(stretch.speed * middle + stretch.shift - true) <= _MAX_ERROR_S
