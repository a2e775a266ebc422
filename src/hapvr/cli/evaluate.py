"""`hapvr evaluate`: the figures of a benchmark, from features, from videos, or from scores that were saved."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hapvr.cli.printing import printed
from hapvr.errors import ConfigError
from hapvr.storage import require_outputs, write_text

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from hapvr.evaluation.benchmarks import Benchmark
    from hapvr.evaluation.protocol import Evaluation, Missing
    from hapvr.evaluation.scoring import Scoring
    from hapvr.features.folders import Failure
    from hapvr.similarity import VideoSimilarity

_SCORES = (".json", ".npz")
_FEATURES = ".features"  # in a made folder

Name = Annotated[
    str, typer.Argument(metavar="BENCHMARK", help="A published name (fivr-200k), a made folder, a CSV or JSON file.")
]
Annotations = Annotated[Path | None, typer.Option(help="A published benchmark's annotation file, or its folder.")]
FeatureFiles = Annotated[Path | None, typer.Option(help="The HDF5 file of features; of --videos, where to keep them.")]
QueryFeatures = Annotated[Path | None, typer.Option(help="The queries' features, if they are in another file.")]
Videos = Annotated[Path | None, typer.Option(help="A folder of the benchmark's videos, named by their ids.")]
SavedScores = Annotated[Path | None, typer.Option(help="Saved scores to measure again, .json or .npz; needs no model.")]
ModelName = Annotated[str | None, typer.Option(help="A model's name or folder; the shipped one if not given.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU if there is one.")]
Precision = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; bfloat16 on a GPU, else float32.")]
Work = Annotated[Path | None, typer.Option(help="A folder that keeps finished work: run it again to go on.")]
Shard = Annotated[str | None, typer.Option(help="0/4: score only the first of four parts, into --work.")]
Readers = Annotated[int | None, typer.Option(help="Processes that read features, 0 for threads.")]
MissingPolicy = Annotated[str, typer.Option(help="What has no score: drop it, count it as a miss, or error.")]
SaveScores = Annotated[Path | None, typer.Option(help="Keep the scores in this .json or .npz file.")]
JsonOut = Annotated[str | None, typer.Option("--json", help="Write everything as JSON into this file; - prints it.")]
CsvOut = Annotated[Path | None, typer.Option("--csv", help="Write the figures as CSV into this file.")]
EasyDuplicates = Annotated[Path | None, typer.Option(help="FIVR: its list of easy duplicates.")]
Unlabelled = Annotated[Path | None, typer.Option(help="SVD: its list of unlabelled videos.")]
Distractors = Annotated[bool | None, typer.Option(help="VCDB: whether the database holds them.")]
Positives = Annotated[list[str] | None, typer.Option(help="CSV: the labels that are positives.")]


def evaluate(
    benchmark: Name,
    annotations: Annotations = None,
    features: FeatureFiles = None,
    query_features: QueryFeatures = None,
    videos: Videos = None,
    scores: SavedScores = None,
    model: ModelName = None,
    device: Device = None,
    precision: Precision = None,
    work: Work = None,
    shard: Shard = None,
    readers: Readers = None,
    missing: MissingPolicy = "drop",
    save_scores: SaveScores = None,
    json_out: JsonOut = None,
    csv_out: CsvOut = None,
    easy_duplicates: EasyDuplicates = None,
    unlabelled: Unlabelled = None,
    distractors: Distractors = None,
    positives: Positives = None,
) -> None:
    """Measure a model by a benchmark's protocol: hapvr evaluate fivr-5k --annotations fivr.pickle --features f.h5."""
    from hapvr.evaluation.benchmarks import open_benchmark
    from hapvr.evaluation.protocol import evaluate as measure
    from hapvr.evaluation.score_files import read_scores, write_scores

    if str(csv_out) == "-":
        raise ConfigError("--csv writes a file; what is printed is the table, or with --json - everything as JSON.")
    _check_places(json_out, csv_out, save_scores)
    policy = _policy(missing)
    truth = open_benchmark(
        benchmark,
        annotations=annotations,
        easy_duplicates=easy_duplicates,
        unlabelled=unlabelled,
        distractors=distractors,
        positives=positives,
    )
    quiet = json_out == "-"
    record: dict[str, Any] = {}
    if scores is not None:
        scored = {"--features": features, "--query-features": query_features, "--videos": videos}
        _refuse_together("--scores", scored | {"--model": model, "--work": work, "--shard": shard})
        found = read_scores(scores)
        record["scores"] = str(scores)
    else:
        files, place = _videos(truth, benchmark, features, videos, work)
        if files is not None:
            cure = "First `hapvr extract` the videos into a file, then give that as --features."
            _refuse_together("videos", {"--query-features": query_features, "--shard": shard}, cure)
        settings = _Settings(model, _device(device), _dtype(precision), work, _shard(shard), readers, quiet)
        scoring = _score(truth, files, place, query_features, settings, record)
        if scoring.scores is None:
            words = f"{scoring.finished} of {scoring.chunks} chunks are finished"
            typer.echo(f"shard {shard}: {words}. When all are, run it without --shard for the figures.", err=quiet)
            return
        found = scoring.scores
        if truth.segments is not None and files is not None:
            record["segments"] = _segments(truth, Path(record["features"]), settings)
    if save_scores is not None:
        write_scores(found, save_scores)
    evaluation = measure(truth, found, missing=policy)
    record = {**evaluation.to_json(), **record}
    if csv_out is not None:
        write_text(csv_out, evaluation.to_csv())
    if quiet:
        typer.echo(json.dumps(record))
        return
    if json_out is not None:
        write_text(Path(json_out), json.dumps(record, indent=1) + "\n")
    _print(evaluation, record)


# --- scoring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """How to score."""

    model: str | None
    device: torch.device
    dtype: torch.dtype | None
    work: Path | None
    shard: tuple[int, int]
    readers: int | None
    quiet: bool


def _videos(
    truth: Benchmark, name: str, features: Path | None, videos: Path | None, work: Path | None
) -> tuple[dict[str, Path] | None, Path]:
    """The videos to extract, if it is videos that are measured, and the file of their features."""
    from hapvr.evaluation.extraction import match_videos

    if videos is not None:
        if features is None and work is None:
            raise ConfigError("Videos are extracted once: say where to keep their features, by --features or --work.")
        return match_videos(truth, videos), features or cast(Path, work) / "features.h5"
    if features is not None:
        return None, features
    if truth.files is None:
        raise ConfigError(f"{truth.name} needs something to measure: give --features, --videos or --scores.")
    files = {id: Path(path) for id, path in truth.files.items()}
    folder = Path(name) if Path(name).is_dir() else Path(name).parent
    return files, folder / _FEATURES if work is None else work / "features.h5"


def _score(
    truth: Benchmark,
    files: dict[str, Path] | None,
    features: Path,
    query_features: Path | None,
    settings: _Settings,
    record: dict[str, Any],
) -> Scoring:
    """All scores; what is to be told besides goes into `record`."""
    from hapvr.evaluation.scoring import score_benchmark

    start = time.perf_counter()
    if files is None:
        similarity = _similarity(settings.model, settings.device)
    else:
        similarity, features, failed = _extracted(files, features, settings)
        record["failed"] = [{"id": one.id, "path": one.path, "error": one.error} for one in failed]
        for failure in failed:
            typer.echo(printed(f"  {failure.path}: {failure.error}"), err=True)
    with _progress("scoring", quiet=settings.quiet, pairs=len(truth.queries)) as advance:
        scoring = score_benchmark(
            similarity,
            truth,
            features,
            query_features=query_features,
            work=settings.work,
            shard=settings.shard,
            dtype=settings.dtype,
            readers=settings.readers,
            progress=advance,
        )
    wall = time.perf_counter() - start
    times = {"wall_s": wall, "waited_s": scoring.waited_s, "scored_s": scoring.scored_s}
    record["features"] = str(features)
    record["scoring"] = {"pairs": scoring.pairs, "chunks": scoring.chunks, **times}
    return scoring


def _segments(truth: Benchmark, features: Path, settings: _Settings) -> dict[str, dict[str, float | int | None]]:
    """How well matching stretches are found, overall ("") and by group."""
    from hapvr.evaluation.localisation import localise
    from hapvr.model import DEFAULT, load_segments

    # Features are there by now: network and settings are enough, and the backbone is not read again.
    config = load_segments(settings.model or DEFAULT)
    network = _similarity(settings.model, settings.device)
    with _progress("segments", quiet=settings.quiet) as advance:
        figures = localise(network, truth, features, config=config, progress=advance)
    return {name: one.to_json() for name, one in figures.items()}


def _extracted(files: dict[str, Path], out: Path, settings: _Settings) -> tuple[VideoSimilarity, Path, list[Failure]]:
    """The model's network, the file into which it has put the features of the videos, and which have none."""
    from hapvr.evaluation.extraction import extract_videos
    from hapvr.model import DEFAULT, load

    whole = load(settings.model or DEFAULT, device=settings.device)
    if out.name == _FEATURES:
        out = out / f"{whole.name}.h5"
    done = 0
    with _progress("extracting", quiet=settings.quiet) as advance:

        def finished(count: int) -> None:
            nonlocal done
            done += count
            advance(done, len(files))

        report = extract_videos(whole.extractor, files, out, model=whole.name, progress=finished)
    return whole.similarity, out, report.failed


def _similarity(model: str | None, device: torch.device) -> VideoSimilarity:
    """The similarity network alone: features are there already, and published ones come without a backbone."""
    from hapvr.model import DEFAULT, load_network

    return load_network(model or DEFAULT, device=device)


# --- options ---------------------------------------------------------------------------------------------------------


def _device(name: str | None) -> torch.device:
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}': give cpu, cuda or cuda:1.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"There is no '{name}' here: this machine shows {torch.cuda.device_count()} GPUs.")
    return device


def _dtype(precision: str | None) -> torch.dtype | None:
    import torch

    from hapvr.config import suggest

    if precision is None:
        return None
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if precision not in known:
        raise ConfigError(f"There is no precision '{precision}'; {suggest(precision, list(known))}")
    return known[precision]


def _policy(missing: str) -> Missing:
    from hapvr.config import suggest

    if missing not in _POLICY:
        raise ConfigError(f"--missing has no value '{missing}'; {suggest(missing, list(_POLICY))}")
    return missing


def _shard(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if numbers is None:
        raise ConfigError(f"--shard must be like 0/4, the first of four; got '{text}'.")
    return int(numbers[1]), int(numbers[2])


def _refuse_together(one: str, others: dict[str, object], cure: str = "Leave one of them out.") -> None:
    for name, value in others.items():
        if value is not None:
            raise ConfigError(f"{one} and {name} do not go together. {cure}")


def _check_places(json_out: str | None, csv_out: Path | None, save_scores: Path | None) -> None:
    """Scoring may take hours: what cannot be written at the end is said now."""
    if save_scores is not None and save_scores.suffix.lower() not in _SCORES:
        raise ConfigError(f"Scores are saved as {' or '.join(_SCORES)}, got '{save_scores.name}'.")
    written = (None if json_out is None or json_out == "-" else Path(json_out), csv_out, save_scores)
    require_outputs(path for path in written if path is not None)


# --- printing --------------------------------------------------------------------------------------------------------


@contextmanager
def _progress(what: str, *, quiet: bool, pairs: int = 0) -> Iterator[Callable[[int, int], None]]:
    from rich import progress as rich
    from rich.console import Console

    counted = (
        rich.TextColumn(what),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[rate]}"),
    )
    timed = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    console = Console(stderr=True)
    off = quiet or not console.is_terminal
    with rich.Progress(*counted, *timed, console=console, disable=off, transient=True) as progress:
        task = progress.add_task(what, total=None, rate="")
        begun: list[tuple[float, int]] = []

        def advance(done: int, total: int) -> None:
            begun.append((time.perf_counter(), done))
            del begun[1:-1]
            (start, first), (now, _) = begun[0], begun[-1]
            rate = (done - first) / (now - start) if now > start else 0.0
            words = f"{rate * pairs:,.0f} pairs/s" if pairs else f"{rate:.1f} videos/s"
            progress.update(task, completed=done, total=total, rate=words if rate else "")

        yield advance


def _print(evaluation: Evaluation, record: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    coverage, results = evaluation.coverage, evaluation.results
    console = Console()
    table = Table("task", title=f"{evaluation.benchmark}, %")
    for name in ("figure", "queries", "positives"):
        table.add_column(name, justify="right")
    for result in results:
        over = result.overall
        table.add_row(
            result.task.name,
            _percent(over.value),
            f"{over.queries:,}",
            f"{over.positives_found:,} / {over.positives_expected:,}",
        )
    console.print(table)
    groups = list(dict.fromkeys(group for result in results for group in result.by_group))
    if groups:
        table = Table("group", title="by group, %")
        for name in (*(result.task.name for result in results), "queries"):
            table.add_column(name, justify="right")
        for group in groups:
            measured = [result.by_group.get(group) for result in results]
            counts = {one.queries for one in measured if one is not None}
            cells = ("" if one is None else _percent(one.value) for one in measured)
            table.add_row(group, *cells, str(max(counts, default=0)))
        console.print(table)
    if segments := record.get("segments"):
        console.print(_segment_table(segments))
    console.print(f"{coverage}; what has none is {_POLICY[evaluation.missing]}.", highlight=False, soft_wrap=True)
    if coverage.ignored_targets:
        console.print(
            f"{coverage.ignored_targets:,} scored videos are not of this benchmark.", highlight=False, soft_wrap=True
        )
    if scoring := record.get("scoring"):
        rate = scoring["pairs"] / scoring["wall_s"] if scoring["wall_s"] else 0.0
        console.print(
            f"{scoring['pairs']:,} pairs in {scoring['wall_s']:.1f} s ({rate:,.0f} a second).",
            highlight=False,
            soft_wrap=True,
        )


def _segment_table(segments: dict[str, dict[str, float | int | None]]) -> Table:
    from rich.table import Table

    table = Table("segments", title="where videos match, %")
    for name in ("precision", "recall", "F1", "borders off by", "found in strangers"):
        table.add_column(name, justify="right")
    for group, figures in segments.items():
        error, rates = figures["boundary_error_s"], (figures[name] for name in ("precision", "recall", "f1"))
        cells = ["-" if rate is None or not figures["true"] else _percent(rate) for rate in rates]
        cells.append("-" if error is None else f"{error:.2f} s")
        table.add_row(group or "all", *cells, f"{figures['false_pairs']} of {figures['negative_pairs']} pairs")
    return table


_POLICY: dict[Missing, str] = {
    "drop": "left out of the figures",
    "miss": "counted as a miss",
    "error": "refused",
}


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f}"
