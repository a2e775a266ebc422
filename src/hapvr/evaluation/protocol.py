"""Measuring scores against a benchmark: each task's figure, by query and by group, and how much of it was covered.

`missing` says what becomes of the queries and targets of the benchmark that the scores do not name:

    "drop"   they leave the ground truth. Published figures rest on it, since videos vanish. It may raise a figure.
    "miss"   a missing target counts as one that was not retrieved, and a missing query as one with AP 0.
    "error"  `DataError`, naming the first few.

A pair that is not scored (minus infinity) although both its videos have scores is no missing video: it is in no
ranking, and a positive counts as not retrieved. With "error" it is an error as well. Coverage is part of the result.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task
from hapvr.evaluation.metrics import average_precision, evve_average_precision, micro_average_precision, replace_nan
from hapvr.evaluation.score_files import Scores

Missing: TypeAlias = Literal["drop", "miss", "error"]
_Bools: TypeAlias = npt.NDArray[np.bool_]
_Floats: TypeAlias = npt.NDArray[np.float32]

_NAMED = 5  # examples in an error
_COLUMNS = ("benchmark", "task", "figure", "group", "value", "queries", "queries_expected", "targets",
            "targets_expected", "positives", "positives_expected", "missing")  # fmt: skip


@dataclass(frozen=True)
class Coverage:
    """How much of a benchmark the scores cover."""

    queries_found: int
    queries_expected: int
    targets_found: int
    targets_expected: int
    further_targets: int  # that joined the rankings because the database is open
    ignored_targets: int  # scored, but not of the benchmark
    missing_queries: tuple[str, ...]
    missing_targets: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing_queries and not self.missing_targets

    def __str__(self) -> str:
        text = (
            f"{self.queries_found:,} of {self.queries_expected:,} queries and "
            f"{self.targets_found:,} of {self.targets_expected:,} targets have scores"
        )
        return f"{text}, {self.further_targets:,} further targets" if self.further_targets else text


@dataclass(frozen=True)
class Measured:
    """A figure over some queries.

    `value` is a fraction of 1; NaN, for a group only, where none of its queries has a positive.
    """

    value: float
    queries: int  # that it is a mean over, or whose pairs are pooled
    queries_expected: int  # in the benchmark, with a positive or without
    positives_found: int  # with a score
    positives_expected: int  # in the benchmark


@dataclass(frozen=True)
class TaskResult:
    """One task: its figure overall and by group, and the value of each query.

    `by_query` holds average precisions (recall@1: 1 or 0); NaN for a query without a positive. For uAP, which has no
    value of a single query, it holds the average precision too. Queries that were dropped are not in it.
    """

    task: Task
    overall: Measured
    by_group: Mapping[str, Measured]
    by_query: Mapping[str, float]
    unscored_pairs: int  # of the rankings, both of whose videos are there

    @property
    def value(self) -> float:
        """The figure over all queries."""
        return self.overall.value


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found."""

    benchmark: str
    missing: Missing
    coverage: Coverage
    results: tuple[TaskResult, ...]
    notes: tuple[str, ...] = ()  # of the benchmark

    def __getitem__(self, task: str) -> TaskResult:
        """The result of a task, by its name."""
        for result in self.results:
            if result.task.name == task:
                return result
        raise KeyError(f"no task '{task}'; {suggest(task, [result.task.name for result in self.results])}")

    def figures(self) -> dict[str, float]:
        """Each task's figure over all queries."""
        return {result.task.name: result.value for result in self.results}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each figure, overall ("") and by group; the same columns in all."""
        rows = []
        for result in self.results:
            for group, measured in [("", result.overall), *result.by_group.items()]:
                values = (self.benchmark, result.task.name, result.task.figure, group, measured.value, measured.queries,
                          measured.queries_expected, self.coverage.targets_found, self.coverage.targets_expected,
                          measured.positives_found, measured.positives_expected, self.missing)  # fmt: skip
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it: an undefined figure is None."""
        results = [
            {
                "task": asdict(result.task),
                "overall": replace_nan(asdict(result.overall)),
                "by_group": {name: replace_nan(asdict(measured)) for name, measured in result.by_group.items()},
                "by_query": replace_nan(result.by_query),
                "unscored_pairs": result.unscored_pairs,
            }
            for result in self.results
        ]
        coverage = asdict(self.coverage)
        notes = {"notes": list(self.notes)} if self.notes else {}
        record = {"benchmark": self.benchmark, "missing": self.missing, "coverage": coverage, "results": results}
        return record | notes


def format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of figures as CSV with a header; what is undefined or not given is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(replace_nan(row, "") for row in rows)
    return text.getvalue()


def evaluate(benchmark: Benchmark, scores: Scores, *, missing: Missing = "drop") -> Evaluation:
    """Measure every task of a benchmark.

    Equal scores are ordered by target id, and in uAP by query id first. `DataError` if a figure is not defined because
    no query is left with a positive.

    Example: "c" ranks above the second positive, so AP is (1 + 2/3) / 2.
        >>> tasks = (Task("mAP", ("1",)),)
        >>> benchmark = Benchmark("mine", ("q",), ("a", "b", "c"), {"q": {"a": "1", "b": "1"}}, tasks)
        >>> scores = Scores(("q",), ("a", "b", "c"), np.array([[0.9, 0.1, 0.5]]))
        >>> evaluate(benchmark, scores)["mAP"].value
        0.8333333333333333
    """
    rankings = _Rankings(benchmark, scores, missing)
    known: dict[Task, Mapping[str, float]] = {}
    results = tuple(_measure_task(task, rankings, known) for task in benchmark.tasks)
    return Evaluation(benchmark.name, missing, rankings.coverage, results, benchmark.notes)


def require_policy(missing: str) -> None:
    """Raise `ConfigError` unless this is a value of `missing`: better before scoring than after it."""
    if missing not in get_args(Missing):
        raise ConfigError(f"missing has no value '{missing}'; {suggest(str(missing), list(get_args(Missing)))}")


# --- rankings ----------------------------------------------------------------------------------------------------


def rank_queries(benchmark: Benchmark, scores: Scores, task: Task, *, missing: Missing = "drop") -> list[Ranking]:
    """What each query of a task is measured on, by ascending query id."""
    return _Rankings(benchmark, scores, missing).rank_all(task)


@dataclass(frozen=True)
class Ranking:
    """One query under one task. A dropped one has no scores, and no positives but those expected."""

    query: str
    scores: _Floats  # [n], of the scored targets of its ranking, by ascending target id
    relevant: _Bools  # [n]
    positives: int  # in the ground truth, as `missing` has it
    expected: int  # positives in the benchmark
    unscored: int = 0
    dropped: bool = False


class _Rankings:
    """Scores matched with a benchmark: columns by ascending id, and which of them a ranking may hold."""

    def __init__(self, benchmark: Benchmark, scores: Scores, missing: Missing) -> None:
        require_policy(missing)
        self.benchmark, self.scores, self.missing = benchmark, scores, missing
        database, queries = set(benchmark.database), set(benchmark.queries)
        usable = benchmark.targets_among(scores.targets)
        self.ids = sorted(usable)
        self.column = {id: place for place, id in enumerate(self.ids)}
        source = {id: place for place, id in enumerate(scores.targets)}
        self.source = np.array([source[id] for id in self.ids], dtype=np.int64)
        self.row = {id: place for place, id in enumerate(scores.queries)}
        candidates = benchmark.candidates or {}
        self.apart = self.mask(target for ids in candidates.values() for target in ids)
        named = database & self.column.keys()
        self.coverage = Coverage(
            queries_found=len(queries & self.row.keys()),
            queries_expected=len(queries),
            targets_found=len(named),
            targets_expected=len(database),
            further_targets=len(usable) - len(named),
            # The queries themselves are not counted: a matrix of all against all holds them by its nature.
            ignored_targets=len([id for id in scores.targets if id not in self.column and id not in queries]),
            missing_queries=tuple(sorted(queries - self.row.keys())),
            missing_targets=tuple(sorted(database - self.column.keys())),
        )
        if missing == "error" and not self.coverage.complete:
            absent = (("queries", self.coverage.missing_queries), ("targets", self.coverage.missing_targets))
            words = " and ".join(
                f"{len(ids)} {kind} ({', '.join(ids[:_NAMED])}{', ...' if len(ids) > _NAMED else ''})"
                for kind, ids in absent
                if ids
            )
            raise DataError(f"no scores for {words}. Score them, or use missing='drop' or 'miss'.")

    def mask(self, ids: Iterable[str]) -> _Bools:
        """Which columns these ids are [N]; ids that have none are skipped."""
        mask = np.zeros(len(self.ids), dtype=np.bool_)
        mask[[self.column[id] for id in ids if id in self.column]] = True
        return mask

    def rank_all(self, task: Task) -> list[Ranking]:
        """The rankings of all queries, by ascending query id."""
        out = {target for name in task.without for target in self.benchmark.left_out[name].targets}
        kept = ~self.mask(out)
        return [self.rank(query, task, out, kept) for query in sorted(self.benchmark.queries)]

    def rank(self, query: str, task: Task, out: set[str], kept: _Bools) -> Ranking:
        """The ranking of a query. `out`: the targets that the task takes out for all; `kept`: the other columns."""
        benchmark = self.benchmark
        labels = benchmark.labels.get(query, {})
        own_out = {target for name in task.without for target in benchmark.left_out[name].of_query.get(query, ())}
        if not task.query_itself:
            own_out.add(query)
        removed = out | own_out
        positives = [target for target, label in labels.items() if label in task.labels and target not in removed]
        if query not in self.row:
            none = (np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.bool_))
            dropped = self.missing == "drop"
            return Ranking(query, *none, 0 if dropped else len(positives), len(positives), dropped=dropped)
        own = (benchmark.candidates or {}).get(query, ())
        held = self.mask(labels) if task.labelled_only else ~self.apart | self.mask(own)
        held &= kept & ~self.mask(own_out)
        values = self.scores.values[self.row[query]][self.source]
        relevant = self.mask(positives)
        scored = held & (values != -np.inf)
        unscored = int(held.sum() - scored.sum())
        if unscored and self.missing == "error":
            place = int(np.argmax(held & ~scored))
            raise DataError(
                f"query '{query}' has no score for {unscored} targets of its ranking (the first is "
                f"'{self.ids[place]}'). Score all pairs, or use missing='drop' or 'miss'."
            )
        total = len(positives) if self.missing == "miss" else sum(target in self.column for target in positives)
        return Ranking(query, values[scored], relevant[scored], total, len(positives), unscored)


# --- figures -----------------------------------------------------------------------------------------------------


def _measure_task(task: Task, source: _Rankings, known: dict[Task, Mapping[str, float]]) -> TaskResult:
    benchmark, rankings = source.benchmark, source.rank_all(task)
    # mAP and uAP of the same rankings have the same values of queries, and to sort them is most of the work.
    alike = replace(task, name="", figure="mAP" if task.figure == "uAP" else task.figure)
    if alike not in known:
        known[alike] = {ranking.query: _measure_query(task, ranking) for ranking in rankings if not ranking.dropped}
    by_query = known[alike]
    overall = _measure(task, rankings, by_query)
    if not any(ranking.positives for ranking in rankings):
        raise DataError(
            f"{benchmark.name}, task '{task.name}': no query is left with a positive, so the figure is not defined. "
            f"{source.coverage}. Check that the ids of the scores are those of the benchmark."
        )
    groups: dict[str, list[Ranking]] = {}
    for ranking in rankings:
        if benchmark.groups and ranking.query in benchmark.groups:
            groups.setdefault(benchmark.groups[ranking.query], []).append(ranking)
    by_group = {name: _measure(task, members, by_query) for name, members in sorted(groups.items())}
    return TaskResult(task, overall, by_group, by_query, sum(ranking.unscored for ranking in rankings))


def _measure_query(task: Task, ranking: Ranking) -> float:
    if task.figure != "EVVE mAP" and ranking.positives == 0:
        return math.nan
    if len(ranking.scores) == 0:
        return 0.0
    if task.figure == "recall@1":
        return float(ranking.relevant[int(np.argmax(ranking.scores))])  # the first of the best: the smallest id
    if task.figure == "EVVE mAP":
        return evve_average_precision(ranking.scores, ranking.relevant, positives=ranking.positives)
    return average_precision(ranking.scores, ranking.relevant, positives=ranking.positives, ties=task.ties)


def _measure(task: Task, rankings: list[Ranking], by_query: Mapping[str, float]) -> Measured:
    """The figure over these queries; NaN if it is not defined."""
    found = sum(int(ranking.relevant.sum()) for ranking in rankings)
    expected = sum(ranking.expected for ranking in rankings)
    positives = sum(ranking.positives for ranking in rankings)
    every = task.figure in ("EVVE mAP", "uAP")
    counted = [ranking for ranking in rankings if not ranking.dropped and (ranking.positives or every)]
    if not counted or (positives == 0 and task.figure != "EVVE mAP"):
        value = math.nan
    elif task.figure != "uAP":
        value = math.fsum(by_query[ranking.query] for ranking in counted) / len(counted)
    elif not any(len(ranking.scores) for ranking in counted):
        value = 0.0
    else:
        pooled = np.concatenate([ranking.scores for ranking in counted])
        relevant = np.concatenate([ranking.relevant for ranking in counted])
        value = micro_average_precision(pooled, relevant, positives=positives, ties=task.ties)
    return Measured(value, len(counted), len(rankings), found, expected)
