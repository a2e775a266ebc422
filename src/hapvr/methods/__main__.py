"""`python -m hapvr.methods`: fit and measure methods with torch, numpy, safetensors and h5py alone.

    python -m hapvr.methods list
    python -m hapvr.methods fit tmk CLIPS FEATURES FOLDER [--seed 0] [--set rate=0.001]
    python -m hapvr.methods evaluate FOLDER BENCHMARK FEATURES REPORT.json
    python -m hapvr.methods study NAMES --clips CLIPS FEATURES --tune TUNE FEATURES --on BENCHMARK FEATURES --out OUT
    python -m hapvr.methods time OUT BENCHMARK FEATURES

CLIPS and BENCHMARK are folders that `hapvr make-benchmark` made, or their ground_truth.json; FEATURES are HDF5 files of
their videos. The first three are also `hapvr method list`, `hapvr method fit` and `hapvr evaluate --method`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from hapvr.errors import HapvrError
from hapvr.methods.clips import read_clips
from hapvr.methods.evaluation import evaluate_method
from hapvr.methods.fitting import fit_method
from hapvr.methods.registry import list_methods, make_method, open_method, parse_settings, parse_words, save_method
from hapvr.methods.trials import StudyData, run_study, time_results


def main(words: Sequence[str]) -> int:
    """Do what the words say; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hapvr.methods", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all methods")
    fit = commands.add_parser("fit", help="fit a method on clips")
    for name in ("name", "clips", "features", "folder"):
        fit.add_argument(name)
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    evaluate = commands.add_parser("evaluate", help="measure a fitted method")
    for name in ("method", "benchmark", "features", "report"):
        evaluate.add_argument(name)
    study = commands.add_parser("study", help="trials, fits of several seeds, results")
    study.add_argument("names", help="such as tmk,dml, or all")
    for name in ("--clips", "--tune"):
        study.add_argument(name, nargs=2, required=True, metavar=("BENCHMARK", "FEATURES"))
    study.add_argument("--on", nargs=2, action="append", default=[], metavar=("BENCHMARK", "FEATURES"))
    study.add_argument("--out", required=True)
    study.add_argument("--seeds", type=int, default=3)
    study.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    study.add_argument("--scores", action="store_true", help="keep the scores of the first seed, for figures")
    timed = commands.add_parser("time", help="time a study's methods again, one after the other")
    for name in ("out", "benchmark", "features"):
        timed.add_argument(name)
    given = parser.parse_args(words)
    try:
        _run(given)
    except HapvrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _run(given: argparse.Namespace) -> None:
    if given.command == "list":
        for name, cls in list_methods().items():
            print(f"{name:<14} {cls.title}")
    elif given.command == "fit":
        clips = read_clips(given.clips, given.features)
        settings = parse_settings(given.name, given.settings)
        method = make_method(given.name, clips.dims, settings, device=given.device, seed=given.seed)
        record = fit_method(method, clips, seed=given.seed, report=_say)
        save_method(method, given.folder, record)
        print(f"{given.name}: {record.steps} steps in {record.seconds:.1f} s")
    elif given.command == "evaluate":
        from hapvr.features import FeatureFile

        with FeatureFile.open(given.features) as file:
            dims = file.dims or (1, 1)
        method, fitted = open_method(given.method, dims, device=given.device)
        result = evaluate_method(method, given.benchmark, given.features, fit=fitted)
        result.write(given.report)
        for one in result.evaluation.results:
            print(f"{one.task.name} {100 * one.overall.value:.2f}")
    elif given.command == "time":
        time_results(given.out, StudyData(given.benchmark, given.features), device=given.device, report=_say)
    else:
        names = list(list_methods()) if given.names == "all" else given.names.split(",")
        extra = parse_words(given.settings)
        run_study(
            names,
            read_clips(*given.clips),
            StudyData(*given.tune),
            [StudyData(*pair) for pair in given.on],
            given.out,
            seeds=given.seeds,
            extra=extra,
            keep_scores=given.scores,
            device=given.device,
            report=_say,
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
