"""Fit the judge of a model on benchmarks of edited copies that `hapvr make-benchmark` made.

Each benchmark is added to a library, so that the judge learns from what searches compare. Each query is compared with
its originals, with the strangers that are nearest to it (look-alikes are sought on purpose), and with some strangers at
random. Stretches of originals at the true place are copies; stretches of strangers are not; stretches of originals at
another place are left out. A part of a query is also compared with another part of its original, with which it shares
no frame: no stranger is more alike, before a still camera above all. Single frames of the queries stand for pictures.
Queries of the kind `same-event` and their positives, which share no frame, stand for the same scene.

Stretches are found as by the judge that the model has, or with the model's settings of segments if it has none. The
judge keeps these settings: its evidence means nothing of stretches that are found in another way.

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
from hapvr.decision import choose_stretch_config
from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import Benchmark, open_benchmark
from hapvr.evaluation.benchmarks.benchmark import TrueSegment
from hapvr.judge.additive_model import AdditiveModel, fit_additive_model
from hapvr.judge.evidence import Evidence, PairFrames, Stretch, find_stretches
from hapvr.judge.judge import PIXELS, SCENE, SECOND_LOOK, Judge, make_look_row, make_table, measure_scene
from hapvr.judge.recalibration import measure_tail
from hapvr.judge.second_look import SecondLook
from hapvr.library.benchmark_videos import Groups, LikenessOrder, read_benchmark_videos, read_groups
from hapvr.matching import VideoDescription, look_again, pair_frames
from hapvr.model import Model, load
from hapvr.similarity import SegmentConfig
from hapvr.storage import StrPath
from hapvr.synthetic.lookalikes import share_small
from hapvr.workers.threads import map_threads

Progress = Callable[[str, int, int], None]
Array = NDArray[np.float64]
_EVIDENCE = tuple(field.name for field in dataclasses.fields(Evidence))
_REGIONS = tuple(name for name in _EVIDENCE if name not in PIXELS)
_INSTANT = ("similarity", "contrast", "pixels")
_INSTANT_REGIONS = ("similarity", "contrast")
_MAX_ERROR_S = 1.5  # between where a stretch of a copy says it is and where it is
_RAREST = 0.01  # of a million pairs: what the last place of the tail stands for
_PART = 0.42  # of a copy, each of the two parts of it that are compared with other parts of its original
_MIN_GAP_S = 1.0  # between a part and the other
_MIN_COPY_S = 8.0  # that is cut into parts
_MIN_PART_FRAMES = 4
_STRANGERS = ("stranger", "other part")  # relations without common footage, "scene" aside
_EVENT = "same-event"  # the kind of edit whose queries share no frame with their positives


@dataclass(frozen=True)
class JudgeFitConfig(CheckedConfig):
    """How a judge is fitted."""

    neighbours: Annotated[int, Within(1)] = 8  # strangers nearest to each query
    others: Annotated[int, Within(0)] = 2  # and at random
    other_parts: Annotated[float, Within(0)] = 0.3  # share of the strangers' weight that other parts have
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
    relation: str  # "copy", "scene", "other part" or "stranger"
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
    model, together = load(name_or_folder), read_groups(groups)
    pairs: list[JudgedPair] = []
    population = 0
    for folder in benchmarks:
        found, count = collect_pairs(name_or_folder, model, folder, together=together, config=config, progress=progress)
        pairs += found
        population += count
    candidates = choose_stretch_config(model)
    return fit_pairs(pairs, population, config=config, candidates=candidates, progress=progress)


def fit_pairs(
    pairs: Sequence[JudgedPair],
    population: int,
    *,
    config: JudgeFitConfig,
    candidates: SegmentConfig,
    progress: Progress,
) -> tuple[Judge, dict[str, float]]:
    """Fit a judge on pairs whose stretches were found with the settings `candidates`; see `fit_judge`."""
    copies = [pair for pair in pairs if pair.relation == "copy"]
    strangers = [pair for pair in pairs if pair.relation == "stranger"]
    apart = [pair for pair in pairs if pair.relation == "other part"]
    if len(copies) < 20 or len(strangers) < 100:
        raise DataError(f"{len(copies)} copies and {len(strangers)} strangers are too few: 20 and 100 are needed.")
    fit = partial(_fit_stretches, config=config)
    halves = {half: fit([pair for pair in pairs if _half(pair) != half], _EVIDENCE) for half in (0, 1)}
    compared = copies + strangers + apart
    looked = list(_look_at_undecided(compared, halves, config, progress))
    second = _fit_second_look(looked, config)
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
        candidates=candidates,
    )
    odds = _final_odds(compared, halves, looked, config)
    unrelated = np.array([odds[id(pair)] for pair in strangers])
    judge = dataclasses.replace(judge, tail=measure_tail(unrelated, population, rarest=_RAREST))
    called = {kind: sum(judge.probability(odds[id(pair)]) >= 0.5 for pair in some) for kind, some in (
        ("copies", copies), ("strangers", strangers), ("other parts", apart)
    )}  # fmt: skip
    figures = {
        "copies": len(copies), "recall": called["copies"] / len(copies), "nearest_strangers": len(strangers),
        "false": called["strangers"], "other_parts": len(apart), "false_other_parts": called["other parts"],
        "second_looks": len(looked),
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
        apart = [other for pair in pairs if relation == "copy" for other in _judge_other_parts(model, pair, videos)]
        return pairs + apart + [_judge(model, query, name, source, "stranger", videos, ()) for name in chosen]

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
    pair = pair_frames(a, b, model)
    stretches = find_stretches(pair, choose_stretch_config(model))
    parts = [part for part in truth if part.target == target]
    right = [_is_right(one, parts) for one in stretches]
    instants = list(_make_instants(pair, model, parts, relation))
    look = partial(look_again, a.path, b.path)
    return JudgedPair(query, target, source, relation, stretches, right, measure_scene(pair), look, instants)


def _judge_other_parts(model: Model, pair: JudgedPair, videos: Mapping[str, VideoDescription]) -> Iterator[JudgedPair]:
    """The beginning of a copy and what comes later in its original; the end of it and what comes before.

    Nothing is given of a short copy, of one that runs backwards, and of an original whose parts are the same, as of a
    loop or of a picture that stands still.
    """
    right = [one for one, is_right in zip(pair.stretches, pair.right, strict=True) if is_right and one.speed > 0]
    if not right:
        return
    a, b = videos[pair.query], videos[pair.target]
    line = max(right, key=lambda one: one.segment.query[1] - one.segment.query[0])
    start, end = line.segment.query
    length = _PART * (end - start)
    gap = max(_MIN_GAP_S, (1 - 2 * _PART) * (end - start) * line.speed)
    if end - start < _MIN_COPY_S:
        return
    for first, last in ((start, start + length), (end - length, end)):
        shown = [line.speed * time_s + line.shift for time_s in (first, last)]  # in the original
        other = (shown[1] + gap, math.inf) if first == start else (0.0, shown[0] - gap)
        part, counterpart, rest = _cut(a, first, last), _cut(b, *shown), _cut(b, *other)
        if part and counterpart and rest and not _share_footage(counterpart, rest):
            cut = {pair.query: part, pair.target: rest}
            yield _judge(model, pair.query, pair.target, pair.source, "other part", cut, ())


def _cut(video: VideoDescription, start_s: float, end_s: float) -> VideoDescription | None:
    """The part of a video from one time to another; None of a few frames."""
    inside = (video.times >= start_s) & (video.times < end_s)
    return video.take(inside) if inside.sum() >= _MIN_PART_FRAMES else None


def _share_footage(one: VideoDescription, other: VideoDescription) -> bool:
    """Whether two parts of one video show the same; False where their pixels are not known."""
    a, b = one.features.miniatures, other.features.miniatures
    if a is None or b is None:
        return False
    return share_small(a.reshape(len(a), -1), b.reshape(len(b), -1), fps=float(1 / np.median(np.diff(other.times))))


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
    part = pair.take(np.array([len(pair.a_times) // 2]), np.arange(len(pair.b_times)))
    for stretch in find_stretches(part, choose_stretch_config(model)):
        right = _is_right(stretch, truth)
        if right or relation == "stranger":
            yield stretch, right


def _half(pair: JudgedPair) -> int:
    return zlib.crc32(pair.source.encode()) % 2


# --- fits ------------------------------------------------------------------------------------------------------------


def _fit_stretches(pairs: Sequence[JudgedPair], names: Sequence[str], *, config: JudgeFitConfig) -> AdditiveModel:
    """Stretches that are copies against those that are not; the stretches of a pair weigh as much as one."""
    rows = []  # evidence, pair, whether it is a copy, weight
    for pair in pairs:
        if pair.relation == "scene":
            continue
        kept = [
            (one.evidence, right) for one, right in zip(pair.stretches, pair.right, strict=True)
            if right or pair.relation in _STRANGERS
        ]  # fmt: skip
        rows += [(evidence, pair, right, 1 / len(kept)) for evidence, right in kept]
    weights = np.array([weight for *_, weight in rows])
    weights *= _weigh_relations([pair for _, pair, *_ in rows], weights, config)
    table = make_table([evidence for evidence, *_ in rows], names)
    return fit_additive_model(names, table, [right for *_, right, _ in rows], weights=weights, ridge=config.ridge)


def _weigh_relations(pairs: Sequence[JudgedPair], weights: Array, config: JudgeFitConfig) -> Array:
    """Factors [N] that give other parts their share of the weight of all that is not a copy."""
    stranger, apart = (np.array([pair.relation == kind for pair in pairs]) for kind in _STRANGERS)
    totals = [float(weights[which].sum()) for which in (stranger, apart)]
    factors = np.ones(len(pairs))
    if min(totals) > 0:
        factors[stranger] = (1 - config.other_parts) / totals[0]
        factors[apart] = config.other_parts / totals[1]
    return factors


def _fit_instants(pairs: Sequence[JudgedPair], names: Sequence[str], ridge: float) -> AdditiveModel:
    kept = [one for pair in pairs if pair.relation in ("copy", "stranger") for one in pair.instants]
    table = make_table([stretch.evidence for stretch, _ in kept], names)
    return fit_additive_model(names, table, [right for _, right in kept], ridge=ridge)


def _fit_scene(pairs: Sequence[JudgedPair], ridge: float) -> AdditiveModel:
    """Same-event queries and other parts of one video, against strangers."""
    kept = [pair for pair in pairs if pair.relation != "copy"]
    table = [[pair.scene[name] for name in SCENE] for pair in kept]
    return fit_additive_model(SCENE, table, [pair.relation != "stranger" for pair in kept], ridge=ridge)


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


def _fit_second_look(looked: Sequence[_Looked], config: JudgeFitConfig) -> AdditiveModel:
    weights = _weigh_relations([one.pair for one in looked], np.ones(len(looked)), config)
    rows, labels = [make_look_row(one.look, one.first) for one in looked], [one.copy for one in looked]
    return fit_additive_model(SECOND_LOOK, rows, labels, weights=weights, ridge=config.ridge)


def _final_odds(
    pairs: Sequence[JudgedPair], halves: Mapping[int, AdditiveModel], looked: Sequence[_Looked], config: JudgeFitConfig
) -> dict[int, float]:
    """The log odds of each pair by models that have not seen it, after the second look if one was taken."""
    odds = {id(pair): -math.inf if (best := _find_best(pair, halves)) is None else best[1] for pair in pairs}
    for half in (0, 1):
        known = [one for one in looked if _half(one.pair) != half]
        if not any(one.copy for one in known) or all(one.copy for one in known):
            continue
        model = _fit_second_look(known, config)
        for one in looked:
            if _half(one.pair) == half:
                odds[id(one.pair)] = float(model.log_odds([make_look_row(one.look, one.first)])[0])
    return odds
