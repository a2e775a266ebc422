"""`hapvr evaluate`: the figures of a benchmark, from features, from videos, or from saved scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.evaluation_tables import print_method, print_report
from hapvr.cli.options import Annotations, AsJson, Cluster, Missing, Model, Reports, SecondLook
from hapvr.cli.terminal import describe_problem, progress_bars, show, warn

if TYPE_CHECKING:
    from hapvr.evaluation import Benchmark
    from hapvr.methods import MethodResult
    from hapvr.verdict_evaluation import VerdictReport

Name = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK",
        help="A published benchmark (such as fivr-200k), a folder of `make-benchmark`, a CSV or JSON file.",
    ),
]
Features = Annotated[Path | None, typer.Option(help="An HDF5 file of features to measure, see `hapvr extract`.")]
QueryFeatures = Annotated[Path | None, typer.Option(help="The features of the queries, if they are in another file.")]
Videos = Annotated[Path | None, typer.Option(help="A folder of the benchmark's videos, named by their ids.")]
FeatureCache = Annotated[
    Path | None,
    typer.Option(
        help="The HDF5 file that keeps features of --videos; if not given, one in --work-folder or in the benchmark."
    ),
]
SavedScores = Annotated[Path | None, typer.Option(help="Saved scores to measure again, .json or .npz; needs no model.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU if there is one.")]
Precision = Annotated[
    str | None,
    typer.Option(help="float32, bfloat16, float16 or, on a CPU, int8; by default bfloat16 on a GPU, else float32."),
]
Insets = Annotated[
    bool,
    typer.Option("--insets/--no-insets", help="Whether to look for what queries show in windows too; of videos alone."),
]
WorkFolder = Annotated[
    Path | None, typer.Option(help="A folder that keeps finished parts of the work: run the command again to continue.")
]
Shard = Annotated[str | None, typer.Option(help="Such as 0/4: score only the first of four parts, into --work-folder.")]
ReaderProcesses = Annotated[int | None, typer.Option(help="Number of processes that read features; 0 uses threads.")]
SaveScores = Annotated[Path | None, typer.Option(help="Save the scores into this .json or .npz file.")]
Candidates = Annotated[Path | None, typer.Option(help="Predicted pairs to measure, .csv as of VSC2022; needs no model")]
Matches = Annotated[
    Path | None,
    typer.Option(help="Predicted segments to measure, .csv as of VSC2022, .json as of VCSL; no model."),
]
Descriptors = Annotated[Path | None, typer.Option(help="VSC2022: .npz of the references' descriptors, to search.")]
QueryDescriptors = Annotated[Path | None, typer.Option(help="VSC2022: .npz of the queries' descriptors.")]
SaveCandidates = Annotated[Path | None, typer.Option(help="Save the best pairs into this .csv file, as of VSC2022.")]
SaveMatches = Annotated[
    Path | None, typer.Option(help="Save where videos match: .csv as VSC2022 takes it, .json as VCSL does.")
]
QueryList = Annotated[Path | None, typer.Option(help="VSC2022: its query metadata, or ids, one a line.")]
DatabaseList = Annotated[Path | None, typer.Option(help="VSC2022: its reference metadata, or ids, one a line.")]
Split = Annotated[str | None, typer.Option(help="VCSL: train, val, test or all (the labelled pairs).")]
EasyDuplicates = Annotated[Path | None, typer.Option(help="FIVR: its list of easy duplicates.")]
Unlabelled = Annotated[Path | None, typer.Option(help="SVD: its list of unlabelled videos.")]
Distractors = Annotated[bool | None, typer.Option(help="VCDB: whether the database holds the distractors.")]
Positives = Annotated[
    list[str] | None, typer.Option(metavar="LABEL", help="CSV: a label that counts as a match. Repeatable.")
]
MethodName = Annotated[
    str | None,
    typer.Option(help="A method of `hapvr method list` or the folder of a fitted one, instead of a network."),
]
Verdicts = Annotated[
    bool, typer.Option("--verdicts", help="Also measure the verdicts, of a folder of `make-benchmark`. Takes minutes.")
]
Neighbours = Annotated[
    int | None,
    typer.Option(help="--verdicts: nearest negatives of each query to compare; 20 if not given."),
]
SharedGroups = Annotated[
    Path | None, typer.Option(help="--verdicts: JSON, a list of groups of database ids that may share footage.")
]


def evaluate(
    benchmark: Name,
    annotations: Annotations = None,
    features: Features = None,
    query_features: QueryFeatures = None,
    videos: Videos = None,
    feature_cache: FeatureCache = None,
    scores: SavedScores = None,
    model: Model = None,
    method: MethodName = None,
    device: Device = None,
    precision: Precision = None,
    insets: Insets = True,
    work_folder: WorkFolder = None,
    shard: Shard = None,
    reader_processes: ReaderProcesses = None,
    ray: Cluster = None,
    missing: Missing = "drop",
    save_scores: SaveScores = None,
    candidates: Candidates = None,
    matches: Matches = None,
    descriptors: Descriptors = None,
    query_descriptors: QueryDescriptors = None,
    save_candidates: SaveCandidates = None,
    save_matches: SaveMatches = None,
    output: Reports = None,
    as_json: AsJson = False,
    easy_duplicates: EasyDuplicates = None,
    unlabelled: Unlabelled = None,
    distractors: Distractors = None,
    positives: Positives = None,
    query_list: QueryList = None,
    database_list: DatabaseList = None,
    split: Split = None,
    verdicts: Verdicts = False,
    neighbours: Neighbours = None,
    shared_groups: SharedGroups = None,
    second_look: SecondLook = True,
) -> None:
    """Measure a model by a benchmark's protocol: hapvr evaluate fivr-5k --annotations fivr.pickle --features f.h5."""
    from hapvr.evaluation import open_benchmark
    from hapvr.model_evaluation import evaluate as run

    if method is not None:
        own = {"query_features": query_features, "scores": scores, "work_folder": work_folder, "shard": shard,
               "precision": precision, "reader_processes": reader_processes, "ray": ray, "verdicts": verdicts or None,
               "candidates": candidates, "matches": matches, "descriptors": descriptors,
               "save_candidates": save_candidates, "save_matches": save_matches}  # fmt: skip
        _require_unused(own)
    special = {"easy_duplicates": easy_duplicates, "unlabelled": unlabelled, "distractors": distractors,
               "query_list": query_list, "database_list": database_list, "split": split}  # fmt: skip
    truth = open_benchmark(benchmark, annotations=annotations, positives=positives, **special)  # type: ignore[arg-type]
    if method is not None:
        with progress_bars(quiet=as_json) as progress:
            sources = (model, features, videos, feature_cache)
            measured = _evaluate_method(truth, method, *sources, device, missing, save_scores, output or (), progress)
        show(as_json, measured.to_json(), lambda: print_method(measured))
        return
    _check_verdict_options(truth, verdicts, neighbours=neighbours, groups=shared_groups)
    predictions = {"candidates": candidates, "matches": matches, "descriptors": descriptors,
                   "query_descriptors": query_descriptors}  # fmt: skip
    if any(path is not None for path in predictions.values()):
        others = {"--features": features, "--query-features": query_features, "--videos": videos, "--scores": scores,
                  "--model": model, "--work-folder": work_folder, "--shard": shard, "--verdicts": verdicts or None,
                  "--save-scores": save_scores, "--save-matches": save_matches, "--ray": ray}  # fmt: skip
        lists = {"query_list": query_list, "database_list": database_list}
        _evaluate_predictions(truth, predictions, others, save_candidates, output or [], as_json, lists)
        return
    found: VerdictReport | None = None
    with progress_bars(quiet=as_json) as progress:
        report = run(
            truth,
            model=None if verdicts and scores is not None else model,  # the verdicts' then
            features=features,
            query_features=query_features,
            videos=videos,
            feature_cache=feature_cache,
            scores=scores,
            missing=missing,  # type: ignore[arg-type]
            device=device,
            precision=precision,
            insets=insets,
            work_folder=work_folder,
            shard=_parse_shard(shard),
            reader_processes=reader_processes,
            cluster=ray,
            save_scores=save_scores,
            save_candidates=save_candidates,
            save_matches=save_matches,
            output=output or (),
            progress=progress,
        )
        if verdicts:
            found = _evaluate_verdicts(truth, model, device, shared_groups, neighbours, second_look, progress)
            report = replace(report, verdicts=found.to_json())
            for path in output or ():
                report.write(path)
    warn(describe_problem(failure.path, failure.error) for failure in report.failed)
    for id, warnings in report.warnings.items():
        warn(warnings, before=f"  {id}: ")
    show(as_json, report.to_json(), lambda: print_report(report, found))


def _evaluate_predictions(
    truth: Benchmark,
    predictions: Mapping[str, Path | None],
    others: Mapping[str, object],
    save_candidates: Path | None,
    output: Sequence[Path],
    as_json: bool,
    lists: Mapping[str, Path | None],
) -> None:
    """Measure files of predictions; `others` are options that need a model or scores."""
    from hapvr.errors import ConfigError
    from hapvr.model_evaluation import evaluate_predictions

    for name, value in others.items():
        if value is not None:
            raise ConfigError(f"{name} does not go with files of predictions, which need no model. Leave one out.")
    report = evaluate_predictions(truth, **predictions, **lists, save_candidates=save_candidates, output=output)
    for path, warnings in report.warnings.items():
        warn(warnings, before=f"  {path}: ")
    show(as_json, report.to_json(), lambda: print_report(report))


def _require_unused(options: Mapping[str, object]) -> None:
    from hapvr.errors import ConfigError

    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"--{name.replace('_', '-')} and --method do not go together. Leave one of them out.")


def _evaluate_method(
    truth: Benchmark,
    method: str,
    model: str | None,
    features: Path | None,
    videos: Path | None,
    feature_cache: Path | None,
    device: str | None,
    missing: str,
    save_scores: Path | None,
    output: Sequence[Path],
    progress: Callable[[str, int, int], None],
) -> MethodResult:
    from hapvr.devices import find_device
    from hapvr.evaluation.score_files import require_kind, write_scores
    from hapvr.features import FeatureFile
    from hapvr.methods import evaluate_method, open_method
    from hapvr.methods.extraction import extract_for_method
    from hapvr.storage import require_outputs

    if save_scores is not None:
        require_kind(save_scores)
    place = find_device(device)
    require_outputs([*output, *([] if save_scores is None else [save_scores])], inputs=[features] if features else [])
    if features is None:
        features = extract_for_method(
            method, truth, model=model, videos=videos, feature_cache=feature_cache, device=place, progress=progress
        )
    with FeatureFile.open(features) as file:
        dims = file.dims or (1, 1)
    opened, fit = open_method(method, dims, device=place)
    result = evaluate_method(opened, truth, features, fit=fit, missing=missing, progress=progress)  # type: ignore[arg-type]
    if save_scores is not None:
        write_scores(result.scores, save_scores)
    for path in output:
        result.write(path)
    return result


def _check_verdict_options(truth: Benchmark, verdicts: bool, *, neighbours: int | None, groups: Path | None) -> None:
    """Say what cannot be done before hours of work."""
    from hapvr.errors import ConfigError
    from hapvr.library.benchmark_videos import read_groups, require_benchmark_files

    if verdicts:
        require_benchmark_files(truth)
        read_groups(groups)
    for name, value in (("--neighbours", neighbours), ("--shared-groups", groups)):
        if value is not None and not verdicts:
            raise ConfigError(f"{name} is for verdicts: give --verdicts too, or leave it out.")


def _evaluate_verdicts(
    truth: Benchmark,
    model: str | None,
    device: str | None,
    groups: Path | None,
    neighbours: int | None,
    second_look: bool,
    progress: Callable[[str, int, int], None],
) -> VerdictReport:
    from hapvr.verdict_evaluation import VerdictEvaluationConfig, evaluate_verdicts

    config = VerdictEvaluationConfig(second_look=second_look)
    config = config if neighbours is None else replace(config, neighbours=neighbours)
    return evaluate_verdicts(
        truth, model=model, groups=groups, config=config, device=device or "cpu", progress=progress
    )


def _parse_shard(text: str | None) -> tuple[int, int]:
    from hapvr.errors import ConfigError

    numbers = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text or "0/1")
    if numbers is None:
        raise ConfigError(f"--shard must be like 0/4, the first of four; got '{text}'.")
    return int(numbers[1]), int(numbers[2])
