"""A library's own calibration: fitted on its videos, stored with it, used by its searches.

Pairs that do not match are different videos of the library, without those that `duplicates` links. Pairs that match are
edited copies, made here of some of its files, and what the library has stored of these. Of a model with a judge, what
its log odds mean is fitted (`judge_calibration`); of any other, what its scores mean (`hapvr.similarity.calibration`).
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, HapvrError, StorageError
from hapvr.judge.judge import Judge
from hapvr.library.duplicates import find_duplicates
from hapvr.library.judge_calibration import (
    DescribedCopy,
    JudgeCalibrationReport,
    JudgedPairs,
    count_by_kind,
    count_kinds,
    count_verdicts,
    find_weaknesses,
    fit_judge_calibration,
    judge_pairs,
)
from hapvr.library.opening import OpenLibrary, save_calibration
from hapvr.library.results import VideoRecord, display_path
from hapvr.library.store import Store
from hapvr.model import Model
from hapvr.similarity import pairwise
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.similarity.int8 import fast_score_dtype

RATES = (10_000, 1000, 100, 10, 1)
"""False matches per million comparisons for which a report has thresholds."""
_MIN_VIDEOS = 16  # different ones: they give 240 pairs
_MIN_COPIES, _MIN_PAIRS = 20, 200
SURE = 0.9
"""The probability that a score of 1 must mean; else a calibration is of no use."""
_MAX_SECONDS, _MAX_FPS, _MAX_SHORT_SIDE = 30.0, 12.5, 256  # of what is edited


@dataclass(frozen=True)
class Expectation:
    """The recall and precision to expect at a threshold of the score."""

    threshold: float
    false_per_million: float  # comparisons with a video that does not match
    recall: float  # share of edited copies that reach it
    precision: float  # of hits, when one video of the library is wanted and all are compared


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """A fitted calibration of scores, and the recall and precision to expect at thresholds."""

    calibration: Calibration
    expected: tuple[Expectation, ...]
    kinds: dict[str, tuple[int, int]]  # of edit: copies that reach one false match in ten thousand, and all
    failed: tuple[tuple[str, str], ...]  # files that no copy could be made of, and why
    videos: int  # in the library
    seconds: float
    warnings: tuple[str, ...] = ()  # what it is too weak for, and what to do about it

    @property
    def at_best(self) -> float:
        """The probability of a hit whose score is 1: no other has a higher one."""
        return self.calibration.probability(1.0)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr calibrate --json` prints."""
        return {
            "positives": self.calibration.positives,
            "negatives": self.calibration.negatives,
            "videos": self.videos,
            "expected": [dataclasses.asdict(one) for one in self.expected],
            "kinds": {kind: {"found": found, "of": of} for kind, (found, of) in self.kinds.items()},
            "failed": [{"path": display_path(path), "error": reason} for path, reason in self.failed],
            "at_best": self.at_best,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class CalibrationProgress:
    """How far a calibration has come."""

    stage: Literal["duplicates", "copies", "pairs"]
    done: int
    total: int


Progress = Callable[[CalibrationProgress], None]


def calibrate_library(
    library: OpenLibrary,
    *,
    copies: int = 100,
    pairs: int = 10_000,
    seed: int = 0,
    second_look: bool = True,
    progress: Progress | None = None,
) -> CalibrationReport | JudgeCalibrationReport:
    """Fit a calibration on the library's own videos; searches use it from then on.

    It takes at least 16 different videos, most of whose files are still there. Of a model with a judge it fits what the
    judge's log odds mean, on copies and on the strangers that are nearest to them and to the library's videos; of
    another model what its scores mean.

    Args:
        library: an open one.
        copies: edited copies to make, at least 20; all kinds of edit in turn.
        pairs: of different videos to compare, at least 200; all, if there are fewer.
        seed: the same seed draws the same videos, pairs and edits.
        second_look: look at the files of undecided pairs, as searches do; for a model with a judge.
        progress: called now and then.

    Raises:
        DataError: there are too few videos, too few of their files can be read, too few pairs are without a match,
            or copies cannot be told from such pairs. Nothing is kept then.
    """
    for name, value, least in (("copies", copies, _MIN_COPIES), ("pairs", pairs, _MIN_PAIRS), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    store = library.store
    report = _fit(store, lambda: library.base_model, copies, pairs, seed, second_look, progress or (lambda _: None))
    with library.write_access("hapvr calibrate") as now:
        if now.settings != store.settings:
            raise StorageError(f"'{library.path}' was rebuilt meanwhile. Calibrate it again.")
        save_calibration(now, report.calibration)
    return report


def _fit(
    store: Store,
    load_model: Callable[[], Model],
    copies: int,
    pairs: int,
    seed: int,
    second_look: bool,
    progress: Progress,
) -> CalibrationReport | JudgeCalibrationReport:
    started = time.monotonic()
    place = display_path(store.library)
    records = _find_contents(store)
    if len(records) < _MIN_VIDEOS:
        raise DataError(
            f"A calibration needs at least {_MIN_VIDEOS} different videos, '{place}' has {len(records)}. The model's "
            "own calibration, if it has one, stays in use."
        )
    here = {key: one for key, one in records.items() if one.state == "ready" and Path(one.path).is_file()}
    if not here:
        raise DataError(
            f"None of the files of '{place}' is there: edited copies of them are what a calibration is fitted on. "
            "Bring some of them back."
        )
    # The model without the library's calibration, which may be damaged.
    model = load_model()
    linked = _find_linked(store, model, progress)
    failed: dict[str, str] = {}
    made = _make_copies(here, model, copies, seed, failed, progress)
    if model.judge is not None:
        found = judge_pairs(
            store, model, made, list(records), linked, pairs=pairs, seed=seed, second_look=second_look,
            progress=lambda done, total: progress(CalibrationProgress("pairs", done, total)),
        )  # fmt: skip
        _require_copies(len(found.copies), failed)
        _require_pairs(len(found.strangers), len(records), place)
        return _fit_judge(model.judge, found, linked, failed, len(records), started)
    good = list(made)
    _require_copies(len(good), failed)
    positive = _score_copies(store, model, good)
    negative = _score_pairs(store, model, list(records), linked, pairs, seed, progress)
    _require_pairs(len(negative), len(records), place)
    calibration = fit_calibration(positive, negative)
    _require_meaning(calibration, positive, negative)
    expected = tuple(
        compute_expectation(calibration, positive, threshold, len(records))
        for rate in RATES
        if math.isfinite(threshold := calibration.threshold(false_per_million=rate))
    )
    kinds = count_by_kind([one.kind for one in good], positive >= calibration.threshold(false_per_million=100))
    return CalibrationReport(
        calibration, expected, kinds, tuple(failed.items()), len(records), time.monotonic() - started,
        tuple(_find_weaknesses(calibration)),
    )  # fmt: skip


def _fit_judge(
    judge: Judge,
    pairs: JudgedPairs,
    linked: Collection[frozenset[int]],
    failed: Mapping[str, str],
    videos: int,
    started: float,
) -> JudgeCalibrationReport:
    calibration = fit_judge_calibration(judge, pairs)
    fitted = judge.recalibrate(calibration)
    before, after = count_verdicts(judge, pairs), count_verdicts(fitted, pairs)
    return JudgeCalibrationReport(
        calibration, before, after, count_kinds(fitted, pairs), len(linked), tuple(failed.items()), videos,
        time.monotonic() - started, tuple(find_weaknesses(fitted, before, after)),
    )  # fmt: skip


def _require_copies(count: int, failed: Mapping[str, str]) -> None:
    if count < _MIN_COPIES:
        why = f": '{display_path(next(iter(failed)))}': {next(iter(failed.values()))}" if failed else "."
        raise DataError(f"Only {count} of the {_MIN_COPIES} copies that are needed could be made{why}")


def _require_pairs(count: int, videos: int, place: str) -> None:
    if count < _MIN_PAIRS:
        raise DataError(
            f"Only {count} pairs of the {videos} videos of '{place}' are without a match; {_MIN_PAIRS} are needed. "
            "Nothing was changed. Add videos that show something else, and calibrate again."
        )


def _require_meaning(calibration: Calibration, positive: NDArray[np.floating], negative: NDArray[np.floating]) -> None:
    """Raise `DataError` if not even the highest score would speak for a match, at equal odds, by the pairs of the fit.

    How many they are is another matter, see `_find_weaknesses`.
    """
    best = 1 / (1 + math.exp(-float(np.clip(calibration.fitted_log_odds([1.0])[0], -500, 500))))
    if best < SURE:
        middle = float(np.median(positive))
        raise DataError(
            f"Scores do not tell copies from other videos here: a score of 1 would mean a match with a probability of "
            f"{best:.2f} only. Half of the {len(positive)} copies score {middle:.2f} or more, and so do "
            f"{(negative >= middle).mean():.0%} of the {len(negative):,} pairs without a match. Nothing was changed. "
            "Make more copies (--copies), or add videos that are unlike each other."
        )


def _find_weaknesses(calibration: Calibration) -> Iterator[str]:
    """What a calibration cannot do, in words."""
    best = calibration.probability(1.0)
    if best >= SURE:
        return
    # Odds stay below n / 3 for n videos, see `hapvr.similarity.calibration`.
    yield (
        f"even a hit that scores 1 has a probability of {best:.2f} only, so that a search with a higher "
        f"--min-probability finds nothing: {calibration.negatives:,} pairs of {calibration.videos:,} videos speak for "
        "no more. Add videos, and calibrate again with more pairs (--pairs)."
    )


def compute_expectation(
    calibration: Calibration, positive: NDArray[np.floating], threshold: float, database: int
) -> Expectation:
    """Recall and precision at a threshold if one of `database` videos is wanted: the others give false matches."""
    false = calibration.false_per_million(threshold)
    recall = float((positive >= threshold).mean())
    wrong = false / 1e6 * max(1, database - 1)
    return Expectation(threshold, false, recall, recall / (recall + wrong) if recall + wrong else 0.0)


def _find_contents(store: Store) -> dict[int, VideoRecord]:
    """One record of each content, by its key; those whose files are there first."""
    catalog = store.catalog()
    found: dict[int, VideoRecord] = {}
    for row in np.flatnonzero(catalog.described).tolist():
        key = int(catalog.keys[row])
        if key not in found or found[key].state != "ready":
            found[key] = catalog.record(row)
    return found


def _find_linked(store: Store, model: Model, progress: Progress) -> set[frozenset[int]]:
    """Pairs of keys that show the same."""
    catalog = store.catalog()
    report = find_duplicates(
        store,
        lambda: model,
        ignore_shared=False,  # videos with the same end card are no strangers: they have footage in common
        progress=lambda now: progress(CalibrationProgress("duplicates", now.done, now.total)),
        sound=False,
    )
    pairs = [(link.a, link.b) for link in report.links]
    pairs += [
        (one.id, other.id) for group in report.groups for one in group.videos for other in group.videos if one != other
    ]
    return {frozenset(int(catalog.keys[catalog.row(id)]) for id in pair) for pair in pairs}


def _make_copies(
    records: Mapping[int, VideoRecord], model: Model, count: int, seed: int, failed: dict[str, str], progress: Progress
) -> Iterator[DescribedCopy]:
    """Edited copies of contents, by key, each with a file that is there until the next is asked for.

    Files that no copy could be made of are added to `failed`, with why.
    """
    from hapvr.synthetic.clip_files import read_clip, write_clip
    from hapvr.synthetic.edits import DEFAULT_EDITS, find_edit

    rng = np.random.default_rng(seed)
    keys = [list(records)[place] for place in rng.permutation(len(records)).tolist()]
    kinds = [DEFAULT_EDITS[place] for place in rng.permutation(len(DEFAULT_EDITS)).tolist()]
    with tempfile.TemporaryDirectory(prefix="hapvr-") as folder:
        for number in range(count):
            key, kind, path = keys[number % len(keys)], kinds[number % len(kinds)], Path(folder) / f"{number}.mp4"
            file = records[key].path
            try:
                clip = read_clip(file, max_fps=_MAX_FPS, max_short_side=_MAX_SHORT_SIDE, max_seconds=_MAX_SECONDS)
                edited = find_edit(kind).apply(clip, np.random.default_rng([seed, number]))
                write_clip(edited.clip, path)
                features = model.features(path)
            except (HapvrError, OSError) as error:
                failed[file] = str(error)
            else:
                yield DescribedCopy(key, kind, str(path), features, edited.time)
            path.unlink(missing_ok=True)
            progress(CalibrationProgress("copies", number + 1, count))


def _score_copies(store: Store, model: Model, copies: Sequence[DescribedCopy]) -> NDArray[np.float64]:
    """The score of each copy against what is stored of its original."""
    scores = []
    for copy in copies:
        copied = copy.features.drop_flat().regions
        original = store.features(copy.key).drop_flat().regions
        scores.append(float(pairwise(model.similarity, [copied], [original], dtype=torch.float32)[0, 0]))
    return np.array(scores).clip(-1, 1)


def _score_pairs(
    store: Store,
    model: Model,
    keys: Sequence[int],
    linked: Collection[frozenset[int]],
    count: int,
    seed: int,
    progress: Progress,
) -> NDArray[np.float64]:
    """The scores, both ways, of pairs of different videos: all pairs of as many drawn ones as give enough."""
    enough = min(len(keys), math.ceil((1 + math.sqrt(1 + 4 * count)) / 2))  # n (n - 1) >= count
    drawn = [keys[place] for place in np.random.default_rng([seed, 1]).permutation(len(keys))[:enough].tolist()]
    videos = {one.key: one.features(store.codec).drop_flat().regions for one in store.read_contents(drawn)}
    scores = []
    for number, (key, regions) in enumerate(videos.items(), 1):
        dtype = fast_score_dtype(model.similarity, regions.shape[1])
        row = pairwise(model.similarity, [regions], list(videos.values()), dtype=dtype)[0].clamp(-1, 1).tolist()
        scores += [
            score
            for other, score in zip(videos, row, strict=True)
            if other != key and frozenset((key, other)) not in linked
        ]
        progress(CalibrationProgress("pairs", number, len(videos)))
    return np.array(scores)
