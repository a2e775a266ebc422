"""Fit what a model's scores mean, on benchmarks made of videos that nothing is measured on, and keep it with the model.

    hapvr make-benchmark VIDEOS made --distractors OTHERS
    python scripts/calibrate_model.py MODEL --benchmark made [--benchmark made2] [--origins FILE] [--check held] [--dry]

Pairs are scored as `hapvr compare` and `hapvr evaluate` do. A pair that the benchmark names as a positive matches,
every other does not. Videos of one origin may share footage that nobody has named: with --origins, a CSV file with the
columns `file` and `origin`, such pairs are left out. With --check the calibration is held against pairs of other
benchmarks; with --dry nothing is written. With --symmetry the model's scores are symmetric from now on, in that way
(`SimilarityConfig.symmetry`). MODEL is a name or a folder. Features are kept in each benchmark's `.features`.
--scores is a file that `hapvr evaluate --save-scores` wrote with this model, given once for each --benchmark and then
for each --check: these scores are taken, and nothing is computed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from hapvr.errors import DataError
from hapvr.evaluation.benchmarks import open_benchmark
from hapvr.evaluation.extraction import extract_videos
from hapvr.evaluation.score_files import Scores, read_scores
from hapvr.evaluation.scoring import score_benchmark
from hapvr.model import Model, load, save_calibration, save_symmetry
from hapvr.model.parts import SHIPPED, list_model_names
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.similarity.network import Symmetry

RATES = (10_000, 1000, 100, 10, 1)  # false matches per million comparisons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model's name or folder")
    parser.add_argument("--benchmark", type=Path, action="append", required=True, help="a made folder to fit on")
    parser.add_argument("--origins", type=Path, help="CSV: file, origin; pairs of one origin do not count")
    parser.add_argument("--check", type=Path, action="append", default=[], help="a made folder to hold it against")
    parser.add_argument("--scores", type=Path, action="append", default=[], help="saved scores of each made folder")
    parser.add_argument("--prior", type=float, default=0.5, help="how likely a match is where nobody says otherwise")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--symmetry", choices=get_args(Symmetry), help="of the model's scores from now on")
    parser.add_argument("--dry", action="store_true", help="print, but do not write into the model")
    arguments = parser.parse_args()
    model = load(arguments.model, device=arguments.device)
    if arguments.symmetry:
        model.similarity.config = replace(model.similarity.config, symmetry=arguments.symmetry)
    origins: dict[str, str] = {}
    if arguments.origins:
        with arguments.origins.open(newline="", encoding="utf-8") as file:
            origins = {Path(row["file"]).stem: row["origin"] for row in csv.DictReader(file)}
    folders, saved = [*arguments.benchmark, *arguments.check], arguments.scores
    if saved and len(saved) != len(folders):
        parser.error(f"--scores was given {len(saved)} times for {len(folders)} made folders: give one for each.")
    scores = {folder: read_scores(file) for folder, file in zip(folders, saved, strict=False)}
    calibration = fit_calibration(*pairs(model, arguments.benchmark, origins, scores), prior=arguments.prior)
    print_calibration(calibration)
    if arguments.check:
        check(calibration, *pairs(model, arguments.check, origins, scores))
    if not arguments.dry:
        folder = SHIPPED / arguments.model if arguments.model in list_model_names() else Path(arguments.model)
        if arguments.symmetry:
            save_symmetry(folder, arguments.symmetry)
        print(f"written to {save_calibration(folder, calibration)}")


def pairs(
    model: Model, folders: list[Path], origins: Mapping[str, str], scores: Mapping[Path, Scores]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scores of all pairs that match, and of all that do not; those that are not in `scores` are computed."""
    split = [_split(folder, scores.get(folder) or _score(model, folder), origins) for folder in folders]
    return np.concatenate([one for one, _ in split]), np.concatenate([other for _, other in split])


def _score(model: Model, folder: Path) -> Scores:
    truth = open_benchmark(str(folder))
    if truth.files is None:
        raise DataError(f"'{folder}' comes without videos: give a folder that `hapvr make-benchmark` made.")
    out = folder / ".features" / f"{model.name}.h5"
    out.parent.mkdir(exist_ok=True)
    with Progress(transient=True) as progress:
        task = progress.add_task("videos", total=len(truth.files))
        files = {id: Path(path) for id, path in truth.files.items()}
        report = extract_videos(
            model.extractor,
            files,
            out,
            model=model.name,
            progress=lambda done, _: progress.update(task, completed=done),
        )
    for failure in report.failed:
        print(f"  {failure.path}: {failure.error}")
    scores = score_benchmark(model.similarity, truth, out, dtype=torch.float32).scores
    if scores is None:
        raise DataError(f"'{folder}' was not scored.")
    return scores


def _split(folder: Path, scores: Scores, origins: Mapping[str, str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scores of pairs that match, and of pairs of two origins that do not."""
    labels = open_benchmark(str(folder)).labels
    relevant = np.array([[target in labels.get(query, {}) for target in scores.targets] for query in scores.queries])
    # A query is called after the video it was made of.
    asked = np.array([origins.get(query.partition("--")[0], query) for query in scores.queries])
    there = np.array([origins.get(target, target) for target in scores.targets])
    strange = ~relevant & (asked[:, None] != there)
    return scores.values[relevant], scores.values[strange]


def print_calibration(calibration: Calibration) -> None:
    print(f"fitted on {calibration.positives:,} pairs that match and {calibration.negatives:,} that do not")
    print(f"{calibration.tail}")
    print(f"of at least {calibration.videos} videos: no probability above {calibration.probability(1.0):.4f}")
    for rate in RATES:
        print(f"  {rate:>6,} false matches per million: threshold {calibration.threshold(false_per_million=rate):.3f}")


def check(calibration: Calibration, positive: NDArray[np.float32], negative: NDArray[np.float32]) -> None:
    """Print what was promised and what other pairs show."""
    print(f"held against {len(positive):,} pairs that match and {len(negative):,} that do not")
    for rate in RATES:
        threshold = calibration.threshold(false_per_million=rate)
        found, expected = int((negative >= threshold).sum()), rate * len(negative) / 1e6
        print(
            f"  threshold {threshold:.3f}: {expected:8.1f} false matches expected, {found:5} found; "
            f"{(positive >= threshold).mean():.1%} of the matches are above"
        )
    scores = np.concatenate([positive, negative])
    matching = np.arange(len(scores)) < len(positive)
    for prior in (0.5, len(positive) / len(scores)):
        odds = calibration.log_odds(scores) + np.log(prior / (1 - prior))
        probability = 1 / (1 + np.exp(-odds))
        weights = np.where(matching, prior / len(positive), (1 - prior) / len(negative))
        loss = float(weights @ np.logaddexp(0, np.where(matching, -odds, odds)))
        print(f"  prior {prior:.4f}: log loss {loss:.4f}; predicted and observed share of matches:")
        error, bins = 0.0, np.minimum((probability * 10).astype(int), 9)
        for number in np.unique(bins):
            here = bins == number
            mass = weights[here].sum()
            predicted, observed = weights[here] @ probability[here] / mass, weights[here & matching].sum() / mass
            error += mass * abs(predicted - observed)
            counts = f"{int(matching[here].sum()):5} match, {int((~matching)[here].sum()):7,} do not"
            print(f"    {number / 10:.1f} to {number / 10 + 0.1:.1f}: {predicted:.3f} {observed:.3f} ({counts})")
        print(f"    expected calibration error {error:.4f}")


if __name__ == "__main__":
    main()
