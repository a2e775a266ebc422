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
from hapvr.evaluation.pair_records import Candidate, SegmentMatch
from hapvr.evaluation.protocol import Coverage, Evaluation, Measured, TaskResult, evaluate
from hapvr.evaluation.safe_pickle import load_plain
from hapvr.evaluation.score_files import Scores, read_scores, write_scores
from hapvr.evaluation.scoring import Scoring, score_benchmark
from hapvr.evaluation.segment_metrics import SegmentMetrics, measure_localisation, measure_segments
from hapvr.evaluation.track_metrics import VCSLFigures, measure_vcsl, pair_average_precision, segment_average_precision
from hapvr.evaluation.tracks import TrackResult

__all__ = [
    "BENCHMARKS", "Benchmark", "Candidate", "Coverage", "Evaluation", "LeftOut", "Measured", "Origin", "Scores",
    "Scoring", "SegmentMatch", "SegmentMetrics", "Task", "TaskResult", "TrackResult", "TrueSegment", "VCSLFigures",
    "average_precision", "evaluate", "evve_average_precision", "evve_mean_average_precision", "load_plain",
    "mean_average_precision", "measure_localisation", "measure_segments", "measure_vcsl", "micro_average_precision",
    "open_benchmark", "pair_average_precision", "read_benchmark", "read_scores", "score_benchmark",
    "segment_average_precision", "write_benchmark", "write_scores",
]  # fmt: skip
