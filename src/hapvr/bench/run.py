"""One run of `hapvr bench`: what is measured, in which order, and what it results in."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hapvr.bench.config import BenchConfig, FilmKind
from hapvr.bench.drawn_films import write_films
from hapvr.bench.estimate import FileRate, ScoreRate, SearchRate, StoreRate
from hapvr.bench.machine import Machine, read_machine
from hapvr.bench.measure import (
    SCORE_FRAMES,
    Clock,
    build_library,
    find_shape,
    measure_backbone,
    measure_decode,
    measure_files,
    measure_score,
    measure_search,
    measure_start,
    name_score_precision,
)
from hapvr.bench.sample import (
    KEYFRAME_PART_S,
    PART_S,
    PARTS,
    Folder,
    SampleRate,
    choose_parts,
    measure_parts,
    probe_folder,
)
from hapvr.features.extractor import RegionExtractor
from hapvr.model import DEFAULT, load

Progress = Callable[[str, int, int], None]

_FILM_GROUPS, _KEYFRAME_GROUPS = 3, 12  # stretches between key frames: 15 s and, for key frames alone, a minute
# Seconds of each measurement in a run of a minute.
_FILE_S, _BACKBONE_S, _SCORE_S, _SEARCH_S, _PROBE_S, _SAMPLE_S = 2.5, 2.0, 1.5, 4.0, 20.0, 10.0


@dataclass(frozen=True)
class FilmRate:
    """A kind of drawn film at a rate: reading it alone, and reading and describing it."""

    kind: FilmKind
    keyframes: bool
    decode: FileRate
    index: FileRate


@dataclass(frozen=True)
class SampleResult:
    """What was found in the user's folder; a rate is None where no part could be read."""

    path: Path
    folder: Folder
    usual: SampleRate | None
    keyframes: SampleRate | None


@dataclass(frozen=True)
class BenchResult:
    """All that a run measured."""

    config: BenchConfig
    machine: Machine
    model: str
    fps: float  # frames a second that the model takes
    engine: str  # that ran
    engine_precision: str
    engine_start_s: float  # until the first picture is described
    worker_start_s: float  # until worker processes run
    backbone_per_s: float  # pictures
    films: tuple[FilmRate, ...]
    score_precision: str
    scores: tuple[ScoreRate, ...]
    store: StoreRate
    search: SearchRate
    sample: SampleResult | None
    wall_s: float

    @property
    def start_s(self) -> float:
        """Seconds that `hapvr add` takes before it is at full speed."""
        return self.engine_start_s + self.worker_start_s

    def find_film(self, kind: FilmKind, *, keyframes: bool) -> FilmRate:
        """The rates of a kind of film."""
        return next(film for film in self.films if film.kind == kind and film.keyframes == keyframes)


def run_bench(
    config: BenchConfig, *, progress: Progress = lambda *_: None, clock: Clock = time.perf_counter
) -> BenchResult:
    """Measure this machine. `progress` is called with a step, how much of it is done, and how much there is.

    Films and libraries are drawn in a temporary folder, which is removed. `ConfigError` for a `sample` without videos.
    """
    begun, scale = clock(), config.seconds / BenchConfig.seconds

    def report(step: str) -> Callable[[int, int], None]:
        progress(step, 0, 1)
        return lambda done, total: progress(step, done, total)

    machine = read_machine()  # now: the load that is not its own
    folder = None
    if config.sample is not None:
        seconds = scale * _PROBE_S
        step = report("reading headers")
        folder = probe_folder(config.sample, seconds=seconds, seed=config.seed, clock=clock, progress=step)
    model = load(config.model or DEFAULT, int8=True)
    extractor = model.extractor
    step = report("backbone")
    engine_start = clock()
    shape = find_shape(extractor)
    engine_start_s = clock() - engine_start
    backbone = measure_backbone(extractor, seconds=scale * _BACKBONE_S, clock=clock)
    start_s = measure_start(extractor, clock=clock)
    step(1, 1)
    with tempfile.TemporaryDirectory(prefix="hapvr-bench-") as name:
        work = Path(name)
        films = _measure_films(extractor, config.films, work, start_s, scale, report, clock)
        step = report("scores")
        scores = []
        for number, frames in enumerate(SCORE_FRAMES):
            step(number, len(SCORE_FRAMES))
            seconds, place = scale * _SCORE_S, work / f"scores-{frames}"
            scores.append(
                measure_score(place, model=config.model, shape=shape, frames=frames, seconds=seconds, clock=clock)
            )
        step(1, 1)
        step = report(f"a library of {config.videos:,} videos")
        store, queries = build_library(
            work / "library", model=config.model, shape=shape, videos=config.videos, clock=clock
        )
        step(1, 1)
        step = report("searches")
        search = measure_search(work / "library", queries, seconds=scale * _SEARCH_S, clock=clock)
        step(1, 1)
    sample = None
    if folder is not None and config.sample is not None:
        sample = _measure_sample(extractor, config, folder, start_s, scale, report, clock)
    return BenchResult(
        config=config,
        machine=machine,
        model=model.name,
        fps=extractor.sampling.fps,
        engine=extractor.engine,
        engine_precision=str(extractor.computes_in).removeprefix("torch."),
        engine_start_s=engine_start_s,
        worker_start_s=start_s,
        backbone_per_s=backbone,
        films=films,
        score_precision=name_score_precision(model, shape[0]),
        scores=tuple(scores),
        store=store,
        search=search,
        sample=sample,
        wall_s=clock() - begun,
    )


def _measure_films(
    extractor: RegionExtractor,
    kinds: Sequence[FilmKind],
    work: Path,
    start_s: float,
    scale: float,
    report: Callable[[str], Callable[[int, int], None]],
    clock: Clock,
) -> tuple[FilmRate, ...]:
    rates = []
    for kind in kinds:
        step = report(f"{kind.name} films")
        short, long = write_films(work, kind, (_FILM_GROUPS, _KEYFRAME_GROUPS))
        for keyframes, path in ((False, short), (True, long)):
            step(1 + 2 * keyframes, 5)
            seconds = scale * _FILE_S
            decode = measure_decode(
                [path], extractor.sampling, keyframes=keyframes, seconds=seconds, start_s=start_s, clock=clock
            )
            step(2 + 2 * keyframes, 5)
            index = measure_files(extractor, [path], keyframes=keyframes, seconds=seconds, start_s=start_s, clock=clock)
            rates.append(FilmRate(kind, keyframes, decode, index))
        step(5, 5)
    return tuple(rates)


def _measure_sample(
    extractor: RegionExtractor,
    config: BenchConfig,
    folder: Folder,
    start_s: float,
    scale: float,
    report: Callable[[str], Callable[[int, int], None]],
    clock: Clock,
) -> SampleResult:
    assert config.sample is not None
    step = report("parts of your videos")
    rates: list[SampleRate | None] = []
    for number, (keyframes, part_s) in enumerate(((False, PART_S), (True, KEYFRAME_PART_S))):
        step(number, 2)
        parts = choose_parts(folder.videos, parts=PARTS, part_s=part_s, seed=config.seed)
        seconds = scale * _SAMPLE_S
        rates.append(
            measure_parts(extractor, parts, keyframes=keyframes, seconds=seconds, start_s=start_s, clock=clock)
        )
    step(2, 2)
    return SampleResult(config.sample, folder, *rates)
