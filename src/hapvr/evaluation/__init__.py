"""Measuring retrieval: metrics on arrays of scores and labels, benchmarks, and the protocol that joins them."""

from hapvr.evaluation.benchmarks import (
    BENCHMARKS,
    Benchmark,
    LeftOut,
    Origin,
    Task,
    TrueSegment,
    open_benchmark,
    read_benchmark,
    write_benchmark,
)
from hapvr.evaluation.metrics import (
    average_precision,
    evve_average_precision,
    evve_mean_average_precision,
    mean_average_precision,
    micro_average_precision,
)
from hapvr.evaluation.protocol import Coverage, Evaluation, Measured, TaskResult, evaluate
from hapvr.evaluation.safe_pickle import load_plain
from hapvr.evaluation.score_files import Scores, read_scores, write_scores
from hapvr.evaluation.scoring import Scoring, score_benchmark
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_localisation, measure_segments

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Coverage",
    "Evaluation",
    "LeftOut",
    "Measured",
    "Origin",
    "Scores",
    "Scoring",
    "SegmentMetrics",
    "Task",
    "TaskResult",
    "TrueSegment",
    "average_precision",
    "evaluate",
    "evve_average_precision",
    "evve_mean_average_precision",
    "load_plain",
    "mean_average_precision",
    "measure_localisation",
    "measure_segments",
    "micro_average_precision",
    "open_benchmark",
    "read_benchmark",
    "read_scores",
    "score_benchmark",
    "write_benchmark",
    "write_scores",
]
