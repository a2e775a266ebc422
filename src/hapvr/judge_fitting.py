"""Fit the judge of a model on benchmarks of edited copies that `hapvr make-benchmark` made.

Each benchmark is added to a library, so that the judge learns from what searches compare. Each query is compared with
its originals, with the strangers that are nearest to it (look-alikes are sought on purpose), and with some strangers at
random. Stretches of originals at the true place are copies; stretches of strangers are not; stretches of originals at
another place are left out. Single frames of the queries stand for pictures. Queries of the kind `same-event` and their
positives, which share no frame, stand for the same scene.

The second look is fitted on pairs that are undecided by models of the other half of the videos, as new pairs are.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.config import CheckedConfig, Within
from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.benchmarks.benchmark import TrueSegment
from hapvr.judge.additive_model import AdditiveModel, fit_additive_model
from hapvr.judge.evidence import Evidence, PairFrames, Stretch, find_stretches
from hapvr.judge.judge import PIXELS, SCENE, SECOND_LOOK, Judge, make_table, measure_scene
from hapvr.judge.recalibration import measure_tail
from hapvr.judge.second_look import SecondLook
from hapvr.library.benchmark_videos import Groups, LikenessOrder, read_benchmark_videos, read_groups
from hapvr.matching import VideoDescription, look_again, pair_frames
from hapvr.model import Model, load
from hapvr.storage import StrPath
from hapvr.workers.threads import map_threads

Progress = Callable[[str, int, int], None]
Array = NDArray[np.float64]
_EVIDENCE = tuple(field.name for field in dataclasses.fields(Evidence))
_REGIONS = tuple(name for name in _EVIDENCE if name not in PIXELS)
_INSTANT = ("similarity", "contrast", "pixels")
_INSTANT_REGIONS = ("similarity", "contrast")
_MAX_ERROR_S = 1.5  # between where a stretch of a copy says it is and where it is
_RAREST = 0.01  # of a million pairs: what the last place of the tail stands for
_EVENT = "same-event"  # the kind of edit whose queries share no frame with their positives


@dataclass(frozen=True)
class JudgeFitConfig(CheckedConfig):
    """How a judge is fitted."""

    neighbours: Annotated[int, Within(1)] = 8  # strangers nearest to each query
    others: Annotated[int, Within(0)] = 2  # and at random
    ridge: Annotated[float, Within(0)] = 1e-3
    prior: float = Judge.prior
    undecided: tuple[float, float] = Judge.undecided  # log odds between which a second look is taken
    seed: int = 0


@dataclass(frozen=True, eq=False)
class JudgedPair:
    """A query and a database video, with the evidence of their stretches."""

    query: str
    target: str
    source: str  # the video that the query was made of: pairs of one source are in one half
    relation: str  # "copy", "scene" or "stranger"
    stretches: list[Stretch]
    right: list[bool]  # of each stretch: whether it is at the true place
    scene: dict[str, float]
    look: Callable[[Stretch], SecondLook | None]
    instants: list[tuple[Stretch, bool]]  # of single frames of the query


def fit_judge(
    name_or_folder: StrPath,
    benchmarks: Sequence[StrPath],
    *,
    groups: StrPath | None = None,
    config: JudgeFitConfig | None = None,
    progress: Progress = lambda *_: None,
) -> tuple[Judge, dict[str, float]]:
    """Fit the judge of a model; also gives figures of the fit, each half of the videos measured by the other's models.

    Args:
        name_or_folder: the model whose evidence it is.
        benchmarks: folders that `hapvr make-benchmark` made; each gets a library in its folder `.library`.
        groups: a JSON file, a list of groups of database ids that may share footage: pairs within are left out.
        config: how.
        progress: called with the step, how much of it is done, and how much there is.
    """
    config = config or JudgeFitConfig()
    pairs, population = collect_all_pairs(name_or_folder, benchmarks, groups=groups, config=config, progress=progress)
    return fit_pairs(pairs, population, config=config, progress=progress)


def collect_all_pairs(
    name_or_folder: StrPath,
    benchmarks: Sequence[StrPath],
    *,
    groups: StrPath | None,
    config: JudgeFitConfig,
    progress: Progress,
) -> tuple[list[JudgedPair], int]:
    """The pairs of several benchmarks, and how many pairs of strangers there are in all."""
    model = load(name_or_folder)
    together = read_groups(groups)
    pairs: list[JudgedPair] = []
    population = 0
    for folder in benchmarks:
        found, count = collect_pairs(name_or_folder, model, folder, together=together, config=config, progress=progress)
        pairs += found
        population += count
    return pairs, population


def fit_pairs(
    pairs: Sequence[JudgedPair], population: int, *, config: JudgeFitConfig, progress: Progress
) -> tuple[Judge, dict[str, float]]:
    """Fit a judge on pairs; see `fit_judge`."""
    copies = [pair for pair in pairs if pair.relation == "copy"]
    strangers = [pair for pair in pairs if pair.relation == "stranger"]
    if len(copies) < 20 or len(strangers) < 100:
        raise DataError(f"{len(copies)} copies and {len(strangers)} strangers are too few: 20 and 100 are needed.")
    fit = partial(_fit_stretches, ridge=config.ridge)
    halves = {half: fit([pair for pair in pairs if _half(pair) != half], _EVIDENCE) for half in (0, 1)}
    looked = list(_look_at_undecided(copies + strangers, halves, config, progress))
    second = _fit_second_look(looked, config.ridge)
    judge = Judge(
        stretch=fit(pairs, _EVIDENCE),
        stretch_without_pixels=fit(pairs, _REGIONS),
        instant=_fit_instants(pairs, _INSTANT, config.ridge),
        instant_without_pixels=_fit_instants(pairs, _INSTANT_REGIONS, config.ridge),
        second_look=second,
        scene=_fit_scene(pairs, config.ridge),
        tail=((0.0, 1.0),),
        videos=len({pair.source for pair in pairs}),
        prior=config.prior,
        undecided=config.undecided,
    )
    odds = _final_odds(copies + strangers, halves, looked, config)
    unrelated = np.array([odds[id(pair)] for pair in strangers])
    judge = dataclasses.replace(judge, tail=measure_tail(unrelated, population, rarest=_RAREST))
    right = np.array([judge.probability(odds[id(pair)]) >= 0.5 for pair in copies])
    false = np.array([judge.probability(value) >= 0.5 for value in unrelated])
    figures = {
        "copies": len(copies), "recall": float(right.mean()), "nearest_strangers": len(strangers),
        "false": int(false.sum()), "second_looks": len(looked),
    }  # fmt: skip
    return judge, figures


# --- pairs -----------------------------------------------------------------------------------------------------------


def collect_pairs(
    name_or_folder: StrPath,
    model: Model,
    folder: StrPath,
    *,
    together: Groups,
    config: JudgeFitConfig,
    progress: Progress,
) -> tuple[list[JudgedPair], int]:
    """The pairs of a benchmark that a judge learns from, and how many pairs of strangers there are in all."""
    truth = open_benchmark(folder)
    read = read_benchmark_videos(truth, model, name_or_folder, progress=lambda *now: progress("adding", *now))
    videos = read.videos
    pairs = list(_compare_queries(model, truth, videos, together, config, progress))
    known = sum(name in videos for name in truth.database)
    queries = {pair.query for pair in pairs}
    return pairs, sum(known - len(truth.labels[query]) for query in queries)


def _compare_queries(
    model: Model,
    truth: Benchmark,
    videos: Mapping[str, VideoDescription],
    together: Groups,
    config: JudgeFitConfig,
    progress: Progress,
) -> Iterator[JudgedPair]:
    rng = np.random.default_rng(config.seed)
    database = [name for name in truth.database if name in videos]
    queries = [name for name in truth.queries if name in videos]
    likeness = LikenessOrder([videos[name] for name in database])
    drawn = {query: rng.choice(len(database), min(config.others, len(database)), replace=False) for query in queries}

    def compare(query: str) -> list[JudgedPair]:
        positives = {target for target in truth.labels[query] if target in videos}
        source = next(iter(truth.labels[query]), query)
        relation = "scene" if (truth.groups or {}).get(query) == _EVENT else "copy"
        own = frozenset().union(*(together.get(name, frozenset()) for name in positives))  # groups of the positives
        strangers = [
            name for name in database if name not in positives and own.isdisjoint(together.get(name, frozenset()))
        ]
        allowed = set(strangers)
        ordered = [database[place] for place in likeness.find_order(videos[query]) if database[place] in allowed]
        chosen = dict.fromkeys(ordered[: config.neighbours])
        chosen |= dict.fromkeys(database[place] for place in drawn[query] if database[place] in allowed)
        parts = (truth.segments or {}).get(query, ())
        pairs = [_judge(model, query, name, source, relation, videos, parts) for name in sorted(positives)]
        return pairs + [_judge(model, query, name, source, "stranger", videos, ()) for name in chosen]

    for number, pairs in enumerate(map_threads(compare, queries, torch.get_num_threads()), 1):
        yield from pairs
        progress("comparing", number, len(queries))


def _judge(
    model: Model,
    query: str,
    target: str,
    source: str,
    relation: str,
    videos: Mapping[str, VideoDescription],
    truth: Sequence[TrueSegment],
) -> JudgedPair:
    a, b = videos[query], videos[target]
    with torch.no_grad():
        matrix = model.similarity.frame_matrix_unchecked(a.descriptors, b.descriptors).float().numpy()
    pair = pair_frames(a, b, matrix, model)
    stretches = find_stretches(pair, model.segments)
    parts = [part for part in truth if part.target == target]
    right = [_is_right(one, parts) for one in stretches]
    instants = list(_make_instants(pair, model, parts, relation))
    look = partial(look_again, a.path, b.path)
    return JudgedPair(query, target, source, relation, stretches, right, measure_scene(pair), look, instants)


def _is_right(stretch: Stretch, truth: Sequence[TrueSegment]) -> bool:
    """Whether the middle of a stretch is where the truth says."""
    middle = sum(stretch.segment.query) / 2
    said = stretch.speed * middle + stretch.shift
    for part in truth:
        if part.start_s - 0.3 <= middle <= part.end_s + 0.3:
            share = (middle - part.start_s) / max(part.end_s - part.start_s, 1e-9)
            true = part.target_start_s + share * (part.target_end_s - part.target_start_s)
            if abs(said - true) <= _MAX_ERROR_S:
                return True
    return False


def _make_instants(
    pair: PairFrames, model: Model, truth: Sequence[TrueSegment], relation: str
) -> Iterator[tuple[Stretch, bool]]:
    """The middle frame of the query, as a picture."""
    place = len(pair.a_times) // 2
    one = slice(place, place + 1)
    small = None if pair.a_small is None else pair.a_small[one]
    vectors = None if pair.a_vectors is None else pair.a_vectors[one]
    part = PairFrames(
        pair.forth[one],
        pair.back[:, one],
        pair.a_times[one],
        pair.b_times,
        small,
        pair.b_small,
        vectors,
        pair.b_vectors,
    )
    for stretch in find_stretches(part, model.segments):
        right = _is_right(stretch, truth)
        if right or relation == "stranger":
            yield stretch, right


def _half(pair: JudgedPair) -> int:
    return zlib.crc32(pair.source.encode()) % 2


# --- fits ------------------------------------------------------------------------------------------------------------


def _fit_stretches(pairs: Sequence[JudgedPair], names: Sequence[str], *, ridge: float) -> AdditiveModel:
    evidence, labels, weights = [], [], []
    for pair in pairs:
        if pair.relation == "scene":
            continue
        kept = [
            (one, right) for one, right in zip(pair.stretches, pair.right, strict=True)
            if right or pair.relation == "stranger"
        ]  # fmt: skip
        for one, right in kept:
            evidence.append(one.evidence)
            labels.append(right)
            weights.append(1 / len(kept))
    return fit_additive_model(names, make_table(evidence, names), labels, weights=weights, ridge=ridge)


def _fit_instants(pairs: Sequence[JudgedPair], names: Sequence[str], ridge: float) -> AdditiveModel:
    kept = [one for pair in pairs if pair.relation != "scene" for one in pair.instants]
    table = make_table([stretch.evidence for stretch, _ in kept], names)
    return fit_additive_model(names, table, [right for _, right in kept], ridge=ridge)


def _fit_scene(pairs: Sequence[JudgedPair], ridge: float) -> AdditiveModel:
    """Same-event queries against strangers."""
    kept = [pair for pair in pairs if pair.relation != "copy"]
    table = [[pair.scene[name] for name in SCENE] for pair in kept]
    return fit_additive_model(SCENE, table, [pair.relation == "scene" for pair in kept], ridge=ridge)


@dataclass(frozen=True, eq=False)
class _Looked:
    pair: JudgedPair
    first: float
    look: SecondLook
    copy: bool


def _look_at_undecided(
    pairs: Sequence[JudgedPair], halves: Mapping[int, AdditiveModel], config: JudgeFitConfig, progress: Progress
) -> Iterator[_Looked]:
    todo = []
    for pair in pairs:
        best = _find_best(pair, halves)
        if best is not None and config.undecided[0] < best[1] < config.undecided[1]:
            todo.append((pair, *best))

    def look(one: tuple[JudgedPair, int, float]) -> _Looked | None:
        pair, place, first = one
        found = pair.look(pair.stretches[place])
        return None if found is None else _Looked(pair, first, found, pair.relation == "copy" and pair.right[place])

    for number, found in enumerate(map_threads(look, todo, torch.get_num_threads()), 1):
        progress("second looks", number, len(todo))
        if found is not None:
            yield found


def _find_best(pair: JudgedPair, halves: Mapping[int, AdditiveModel]) -> tuple[int, float] | None:
    """The best stretch of a pair, and its log odds by the model that has not seen it."""
    if not pair.stretches:
        return None
    model = halves[_half(pair)]
    odds = model.log_odds(make_table([one.evidence for one in pair.stretches], model.names))
    return int(odds.argmax()), float(odds.max())


def _fit_second_look(looked: Sequence[_Looked], ridge: float) -> AdditiveModel:
    return fit_additive_model(
        SECOND_LOOK, [_look_row(one) for one in looked], [one.copy for one in looked], ridge=ridge
    )


def _look_row(one: _Looked) -> list[float]:
    return [float(getattr(one.look, name)) for name in SECOND_LOOK]


def _final_odds(
    pairs: Sequence[JudgedPair], halves: Mapping[int, AdditiveModel], looked: Sequence[_Looked], config: JudgeFitConfig
) -> dict[int, float]:
    """The log odds of each pair by models that have not seen it, after the second look if one was taken."""
    odds = {id(pair): -math.inf if (best := _find_best(pair, halves)) is None else best[1] for pair in pairs}
    for half in (0, 1):
        known = [one for one in looked if _half(one.pair) != half]
        if not any(one.copy for one in known) or all(one.copy for one in known):
            continue
        model = _fit_second_look(known, config.ridge)
        for one in looked:
            if _half(one.pair) == half:
                odds[id(one.pair)] = float(model.log_odds([_look_row(one)])[0])
    return odds
