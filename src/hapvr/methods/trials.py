"""Trials of a method's settings on a tune set, logged; and a whole study: trials, fits of several seeds, results.

Each method has as many trials as every other (`TRIALS`), the first with its defaults; those that have no settings have
one. The best by the mean of mAP and uAP on the tune set is fitted with several seeds. A study that was interrupted goes
on: what has a line in the log, or a result, is not done again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hapvr.evaluation.score_files import write_scores
from hapvr.methods.base import Report
from hapvr.methods.clips import Clips
from hapvr.methods.evaluation import MethodResult, evaluate_method, time_method
from hapvr.methods.fitting import fit_method
from hapvr.methods.registry import find_method, load_method, make_method, save_method
from hapvr.storage import StrPath, write_json


@dataclass(frozen=True)
class Trial:
    """One line of a log of trials."""

    method: str
    settings: Mapping[str, Any]
    seed: int
    benchmark: str
    features: str
    mean_average_precision: float
    micro_average_precision: float
    fit_s: float

    @property
    def quality(self) -> float:
        """What settings are chosen by."""
        return (self.mean_average_precision + self.micro_average_precision) / 2


@dataclass(frozen=True)
class StudyData:
    """A benchmark and the file of its features."""

    benchmark: StrPath
    features: StrPath

    @property
    def name(self) -> str:
        """The benchmark's, for files."""
        path = Path(self.benchmark)
        return path.stem if path.is_file() and path.name != "ground_truth.json" else path.resolve().name


def run_trials(
    name: str,
    clips: Clips,
    tune: StudyData,
    log: StrPath,
    *,
    extra: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    report: Report | None = None,
) -> Trial:
    """Try each of a method's settings on the tune set, and log each in a file of JSON lines; the best.

    `extra` are settings that all trials share, such as a teacher; those that the method does not have are left out.
    """
    cls = find_method(name)
    known = {one.name for one in dataclasses.fields(cls.settings_type)}
    shared = {key: value for key, value in (extra or {}).items() if key in known}
    done = [trial for trial in read_trials(log) if trial.method == name and trial.benchmark == tune.name]
    for own in cls.trials:
        settings = {**shared, **own}
        if any(trial.settings == settings and trial.seed == seed for trial in done):
            continue
        method = make_method(name, clips.dims, settings, device=device, seed=seed)
        record = fit_method(method, clips, seed=seed, segments=False, report=report)
        result = evaluate_method(method, tune.benchmark, tune.features, segments=False, speed=False)
        trial = Trial(
            name, settings, seed, tune.name, result.features, *_read_figures(result), fit_s=round(record.seconds, 3)
        )
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(trial)) + "\n")
        done.append(trial)
        if report is not None:
            report(f"{name} {json.dumps(settings)}: mAP {trial.mean_average_precision:.4f}, "
                   f"uAP {trial.micro_average_precision:.4f}")  # fmt: skip
    return max(done, key=lambda trial: trial.quality)


def read_trials(log: StrPath) -> list[Trial]:
    """The trials of a log; none if there is no such file."""
    path = Path(log)
    return [Trial(**json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def run_study(
    names: Sequence[str],
    clips: Clips,
    tune: StudyData,
    measured: Sequence[StudyData],
    out: StrPath,
    *,
    seeds: int = 3,
    extra: Mapping[str, Any] | None = None,
    keep_scores: bool = False,
    device: str | torch.device = "cpu",
    report: Report | None = None,
) -> list[Path]:
    """Trials of each method, then fits of its best settings with several seeds, and their results as JSON files.

    Into `out`: trials-NAME.jsonl, NAME-SEED/ (the fitted method) and NAME-SEED-BENCHMARK.json (the result). Methods
    that learn nothing have one seed.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        best = run_trials(name, clips, tune, folder / f"trials-{name}.jsonl", extra=extra, device=device, report=report)
        for seed in range(seeds if find_method(name).learns else 1):
            fitted = folder / f"{name}-{seed}"
            if not (fitted / "config.json").exists():
                method = make_method(name, clips.dims, best.settings, device=device, seed=seed)
                save_method(method, fitted, fit_method(method, clips, seed=seed, report=report))
            written += list(_measure(fitted, measured, folder, keep_scores and seed == 0, device, report))
    return written


def time_results(
    folder: StrPath, data: StudyData, *, device: str | torch.device = "cpu", report: Report | None = None
) -> None:
    """Time each method of a study again, one after the other, and put the speeds into its results.

    A study may fit and measure several methods side by side; what it timed then is of a busy machine.
    """
    for path in sorted(Path(folder).glob(f"*-{data.name}.json")):
        method, _ = load_method(Path(folder) / path.stem.removesuffix(f"-{data.name}"), device=device)
        describe_s, speeds = time_method(method, data.benchmark, data.features)
        record = json.loads(path.read_text("utf-8"))
        record["method"] |= {"describe_s": describe_s, "speeds": [dataclasses.asdict(one) for one in speeds]}
        write_json(path, record)
        if report is not None:
            report(f"{path.stem}: " + ", ".join(f"{one.kind} {one.pairs_per_s:,.0f} pairs/s" for one in speeds))


def _measure(
    fitted: Path,
    measured: Sequence[StudyData],
    folder: Path,
    keep_scores: bool,
    device: str | torch.device,
    report: Report | None,
) -> Iterator[Path]:
    for data in measured:
        path = folder / f"{fitted.name}-{data.name}.json"
        if not path.exists():
            method, record = load_method(fitted, device=device)
            result = evaluate_method(method, data.benchmark, data.features, fit=record)
            if keep_scores:
                write_scores(result.scores, path.with_suffix(".npz"))
            result.write(path)
            if report is not None:
                report(f"{path.stem}: mAP {_read_figures(result)[0]:.4f}, uAP {_read_figures(result)[1]:.4f}")
        yield path


def _read_figures(result: MethodResult) -> tuple[float, float]:
    values = {one.task.figure: one.overall.value for one in result.evaluation.results}
    return float(values.get("mAP", float("nan"))), float(values.get("uAP", float("nan")))
