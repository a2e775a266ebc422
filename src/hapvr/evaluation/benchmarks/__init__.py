"""Benchmarks: what they are, and readers of the published ones, of CSV files and of made folders."""

from hapvr.evaluation.benchmarks.benchmark import (
    Benchmark,
    LeftOut,
    Origin,
    Task,
    TrueSegment,
    read_benchmark,
    write_benchmark,
)
from hapvr.evaluation.benchmarks.registry import BENCHMARKS, open_benchmark

__all__ = [
    "BENCHMARKS", "Benchmark", "LeftOut", "Origin", "Task", "TrueSegment", "open_benchmark", "read_benchmark",
    "write_benchmark",
]  # fmt: skip
