"""Measures of retrieval: functions on arrays of scores and labels that know nothing of models or videos."""

from hapvr.evaluation.metrics import (
    average_precision,
    evve_average_precision,
    evve_mean_average_precision,
    mean_average_precision,
    micro_average_precision,
)

__all__ = [
    "average_precision",
    "evve_average_precision",
    "evve_mean_average_precision",
    "mean_average_precision",
    "micro_average_precision",
]
