"""Time and memory of the metrics on as many pairs as FIVR-200K has: 100 queries x 225,960 targets.

    python benchmarks/metrics.py [--queries 100] [--targets 225960]

Each row runs in a process of its own, so that its peak memory (scores and labels included) is its own. The baseline
is scikit-learn's `average_precision_score` on the pooled pairs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable

import numpy as np

from hapvr.evaluation import mean_average_precision, micro_average_precision


def sklearn_micro(scores: np.ndarray, relevant: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

    return float(average_precision_score(relevant.ravel(), scores.ravel()))


ROWS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], float], str]] = {
    "uAP, float32": (micro_average_precision, "float32"),
    "uAP, float32, many ties": (micro_average_precision, "tied"),
    "uAP, float32, ties as groups": (lambda s, r: micro_average_precision(s, r, ties="group"), "float32"),
    "uAP, float64": (micro_average_precision, "float64"),
    "mAP, float32": (mean_average_precision, "float32"),
    "mAP, float64": (mean_average_precision, "float64"),
    "scikit-learn, float32": (sklearn_micro, "float32"),
}


def measure(name: str, queries: int, targets: int) -> tuple[float, float, float, float]:
    """Figure, best time of two in s, peak memory in GiB, and what of it was there before the call."""
    function, kind = ROWS[name]
    rng = np.random.default_rng(0)
    relevant = rng.random((queries, targets), dtype=np.float32) < 0.001
    scores: np.ndarray = rng.standard_normal((queries, targets), dtype=np.float32)
    scores[relevant] += 2
    if kind == "tied":
        scores = np.round(scores, 1)
    elif kind == "float64":
        scores = scores + 1e-9 * rng.random((queries, targets))
    before = peak_gib()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        figure = function(scores, relevant)
        times.append(time.perf_counter() - start)
    return figure, min(times), peak_gib(), before


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kB on Linux


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--targets", type=int, default=225_960)
    options = parser.parse_args()
    print(f"{options.queries} x {options.targets} = {options.queries * options.targets / 1e6:.1f} million pairs")
    print(f"{'':30} {'figure':>8} {'time':>8} {'peak':>9} {'before the call':>16}")
    for name in ROWS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figure, seconds, peak, before = pool.apply(measure, (name, options.queries, options.targets))
        print(f"{name:30} {figure:8.4f} {seconds:6.2f} s {peak:5.2f} GiB {before:12.2f} GiB")


if __name__ == "__main__":
    main()
