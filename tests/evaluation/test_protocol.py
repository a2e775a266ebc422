"""Figures agree with the published protocols, restated here as plain loops over the annotation files' own layout."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError
from hapvr.evaluation import Benchmark, LeftOut, Scores, Task, evaluate, open_benchmark
from hapvr.evaluation.protocol import format_rows

Figures = dict[Any, float]
Rng = np.random.Generator
Policy = Literal["drop", "miss"]
POLICIES: list[Policy] = ["drop", "miss"]


@dataclass
class Given:
    """Scores as plain tables. `queries` and `targets` are those that exist, scored or not."""

    queries: list[str]
    targets: list[str]
    rows: dict[str, dict[str, float]]
    missing: Policy

    def scores(self) -> Scores:
        values = np.full((len(self.queries), len(self.targets)), -np.inf, dtype=np.float32)
        for number, query in enumerate(self.queries):
            for place, target in enumerate(self.targets):
                values[number, place] = self.rows[query].get(target, -np.inf)
        return Scores(tuple(self.queries), tuple(self.targets), values)


# --- the protocols, restated ---------------------------------------------------------------------------------------


def falling(pairs: Iterable[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """(score, query, target) by falling score, then query, then target."""
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))


def ap(ranking: list[tuple[float, str, str]], positives: set[tuple[str, str]], total: int) -> float:
    found, area = 0, 0.0
    for place, (_, query, target) in enumerate(ranking, start=1):
        if (query, target) in positives:
            found += 1
            area += found / place
    return area / total


def grouped_ap(ranking: list[tuple[float, str, str]], positives: set[tuple[str, str]], total: int) -> float:
    """Each threshold adds its precision times the recall that it gains."""
    area, before = 0.0, 0
    for threshold in sorted({score for score, _, _ in ranking}, reverse=True):
        above = [(query, target) for score, query, target in ranking if score >= threshold]
        found = sum(pair in positives for pair in above)
        area += (found - before) / total * (found / len(above))
        before = found
    return area


def trapezoids(ranking: list[tuple[float, str, str]], positives: set[tuple[str, str]], total: int) -> float:
    area, found = 0.0, 0
    for rank, (_, query, target) in enumerate(ranking):
        if (query, target) in positives:
            left = 1.0 if rank == 0 else found / rank
            found += 1
            area += (left + found / (rank + 1)) / 2 / total
    return area


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def restated(
    given: Given,
    queries: Iterable[str],
    ranked: Callable[[str, str], bool],
    positives_of: Callable[[str], set[str]],
    *,
    one: Callable[..., float] = ap,
    empty_counts: bool = False,
) -> tuple[float, float, float]:
    """mAP (or the mean of `one`), uAP and recall@1; `ranked(query, target)`: whether that ranking may hold it."""
    values: list[float] = []
    best: list[float] = []
    pool: list[tuple[float, str, str]] = []
    pooled_positives: set[tuple[str, str]] = set()
    total = 0
    for query in queries:
        positives = {target for target in positives_of(query) if ranked(query, target)}
        if query not in given.queries:
            if given.missing == "drop":
                continue
            ranking = []
        else:
            ranking = falling((s, query, t) for t, s in given.rows[query].items() if ranked(query, t))
            if given.missing == "drop":
                positives &= set(given.targets)
        pairs = {(query, target) for target in positives}
        pool, pooled_positives, total = pool + ranking, pooled_positives | pairs, total + len(pairs)
        if positives:
            values.append(one(ranking, pairs, len(pairs)))
            best.append(float(bool(ranking) and ranking[0][1:] in pairs))
        elif empty_counts:
            values.append(0.0)
    return mean(values), ap(falling(pool), pooled_positives, total) if total else math.nan, mean(best)


def fivr(content: dict[str, Any], version: str, easy: set[str], given: Given) -> Figures:
    database, annotation = content[version]["database"], content["annotation"]
    figures: Figures = {}
    nested = {"DSV": ["ND", "DS"], "CSV": ["ND", "DS", "CS"], "ISV": ["ND", "DS", "CS", "IS"]}
    for name, labels in nested.items():
        for suffix, out in (("", set()), (" hard", easy)):

            def positives_of(query: str, labels: list[str] = labels) -> set[str]:
                return {target for label in labels for target in annotation[query].get(label, [])}

            def ranked(query: str, target: str, out: set[str] = out) -> bool:
                return target in database and target != query and target not in out

            mean_ap, pooled, _ = restated(given, content[version]["queries"], ranked, positives_of)
            figures |= {f"{name}R{suffix}": mean_ap, f"{name}D{suffix}": pooled}
    return figures


def evve(content: dict[str, Any], given: Given) -> Figures:
    event_of = {query: event for event, (queries, _, _) in content["annotation"].items() for query in queries}
    figures: Figures = {}
    for group in [None, *content["annotation"]]:
        queries = [query for query in content["queries"] if group in (None, event_of[query])]
        mean_ap, pooled, _ = restated(
            given,
            queries,
            lambda query, target: target in content["database"] and target != query,
            lambda query: content["annotation"][event_of[query]][1],
            one=trapezoids,
            empty_counts=True,
        )
        figures |= {("mAP", group): mean_ap, ("uAP", group): pooled}
    return figures


def svd(lines: list[tuple[str, str, str]], unlabelled: set[str] | None, given: Given) -> Figures:
    queries = list(dict.fromkeys(query for query, _, _ in lines))
    own = {query: {target for other, target, _ in lines if other == query} for query in queries}
    positives = {query: {target for other, target, label in lines if (other, label) == (query, "1")} for query in own}
    named = set().union(*own.values()) | set(queries)
    others = set(given.targets) - named if unlabelled is None else unlabelled

    def ranked(query: str, target: str) -> bool:
        return target != query and (target in own[query] or target in others)

    def labelled(query: str, target: str) -> bool:
        return target != query and target in own[query]

    figures: Figures = {}
    for suffix, rule in (("", ranked), (" labelled", labelled)):
        mean_ap, _, _ = restated(given, queries, rule, positives.__getitem__, one=grouped_ap)
        figures |= {f"mAP{suffix}": mean_ap}
        figures |= {f"uAP{suffix}": restated(given, queries, rule, positives.__getitem__)[1]}
    return figures


def vcdb(content: dict[str, Any], distractors: bool, given: Given) -> Figures:
    core = {video for pair in content["video_pairs"] for video in pair["videos"]}
    database = core | set(content["index"]) if distractors else core

    def copies(query: str) -> set[str]:
        pairs = [set(pair["videos"]) for pair in content["video_pairs"]]
        return {video for pair in pairs if query in pair for video in pair if video != query}

    mean_ap, pooled, _ = restated(given, sorted(core), lambda q, t: t in database and t != q, copies)
    return {"mAP": mean_ap, "uAP": pooled}


def cc_web_video(content: dict[str, Any], query_itself: bool, given: Given) -> Figures:
    number_of, figures = content["index"], {}
    name_of = {number: name for name, number in number_of.items()}
    place = {query: number for number, query in enumerate(content["queries"])}
    for clean in (False, True):
        for every in (False, True):

            def ranked(query: str, target: str, clean: bool = clean, every: bool = every) -> bool:
                number = number_of.get(target) or (int(target[1:]) if target.startswith("#") else None)
                truth, excluded = content["ground_truth"][place[query]], content["excluded"][place[query]]
                if number is None or (target == query and not query_itself):
                    return False
                return (every or number in truth) and not (clean and number in excluded)

            def positives_of(query: str) -> set[str]:
                truth = content["ground_truth"][place[query]]
                return {name_of.get(number, f"#{number}") for number, label in truth.items() if label in "ESLMV"}

            mean_ap, _, _ = restated(given, content["queries"], ranked, positives_of)
            figures["CC_WEB" + "*" * every + "c" * clean] = mean_ap
    return figures


def made(content: dict[str, Any], given: Given) -> Figures:
    kinds = sorted({entry["kind"] for entry in content["queries"].values()})
    figures: Figures = {}
    for group in [None, *kinds]:
        queries = [query for query, entry in content["queries"].items() if group in (None, entry["kind"])]
        mean_ap, pooled, best = restated(
            given,
            queries,
            lambda _, target: target in content["database"],
            lambda query: set(content["queries"][query]["positives"]),
        )
        figures |= {("mAP", group): mean_ap, ("uAP", group): pooled, ("recall@1", group): best}
    return figures


# --- drawn annotations -------------------------------------------------------------------------------------------


def names(rng: Rng, prefix: str, count: int) -> list[str]:
    """Ids whose order says nothing, some that differ in case or accents only."""
    found = {f"{prefix}{int(number):05d}" for number in rng.choice(90_000, count - 2, replace=False)}
    return [str(name) for name in rng.permutation([*sorted(found), f"{prefix}é", f"{prefix.upper()}Z"])]


def some(rng: Rng, ids: Iterable[str], max_count: int) -> list[str]:
    ids = sorted(ids)
    return [str(id) for id in rng.permutation(ids)[: int(rng.integers(0, max_count + 1))]]


def draw_fivr(rng: Rng) -> tuple[dict[str, Any], set[str]]:
    large = names(rng, "v", 40)
    queries = large[:6]
    annotation: dict[str, dict[str, list[str]]] = {}
    for query in queries:
        table = {label: some(rng, large, 6) for label in ("ND", "DS", "CS", "IS", "DA")}  # also itself, and twice
        table["IS"] = [*dict.fromkeys([*table["IS"], "nowhere", query])]
        table["DS"] = [*dict.fromkeys([*table["DS"], large[10]])]
        annotation[query] = {label: ids for label, ids in table.items() if ids}
    content = {
        "5k": {"queries": queries[:4], "database": {*large[3:20]}},
        "200k": {"queries": queries, "database": set(large)},
        "annotation": annotation,
    }
    return content, {large[7], large[12], large[15], "nowhere else"}


def draw_evve(rng: Rng) -> dict[str, Any]:
    queries, database = names(rng, "q", 9), names(rng, "d", 25)
    events = {
        "first": (set(queries[:3]), set(database[:6]), set()),
        "second+event": (set(queries[3:8]), set(database[6:9]), {database[10]}),
        "lonely": ({queries[8]}, {database[9]}, set()),
    }
    return {"annotation": events, "database": database, "queries": queries}


def draw_svd(rng: Rng) -> tuple[list[tuple[str, str, str]], set[str]]:
    queries, candidates, others = names(rng, "q", 5), names(rng, "c", 20), names(rng, "u", 9)
    lines = [
        (query, target, str(int(place == 0 or rng.integers(0, 2))))
        for query in queries
        for place, target in enumerate(dict.fromkeys([candidates[0], *some(rng, candidates, 8)]))
    ]
    return lines, set(others)


def draw_vcdb(rng: Rng) -> dict[str, Any]:
    core, others = names(rng, "c", 12), names(rng, "x", 15)
    pairs = {tuple(sorted((core[a], core[(a + 1 + int(rng.integers(0, 3))) % 12]))) for a in range(12)}
    return {
        "video_pairs": [{"videos": list(pair), "overlap": [0.5, 1.5]} for pair in sorted(pairs)],
        "index": [*core, *others, others[0]],
        "negs": [*others[:-2], others[0]],
    }


def draw_cc_web_video(rng: Rng) -> dict[str, Any]:
    videos = [f"{1 + number % 3}/{number}_Y" for number in range(30)]
    index = {video: number for number, video in enumerate(videos, start=1) if number not in (9, 17, 22)}
    truth: list[dict[int, str]] = []
    excluded: list[set[int]] = []
    for start in (1, 2, 3):
        own = [start, *range(start + 3, 31, 3)]
        truth.append({number: "E" if number == start else str(rng.choice(list("ESLMVXx"))) for number in own})
        excluded.append({int(number) for number in rng.choice(np.arange(4, 31), 4, replace=False)})
    return {"index": index, "queries": videos[:3], "ground_truth": truth, "excluded": excluded}


def draw_made(rng: Rng) -> dict[str, Any]:
    database = names(rng, "d", 10)
    queries = {}
    for number, kind in enumerate(["crop", "crop+blur", "crop", "same-event", "crop+blur", "crop"]):
        positives = sorted({database[number], *some(rng, database, 1)})
        segments = [] if kind == "same-event" else [[0.0, 2.5, database[number], 1.0, 3.5]]
        entry = {"file": f"queries/q{number}.mp4", "kind": kind, "positives": positives, "segments": segments}
        queries[f"q{number}"] = entry
    return {"queries": queries, "database": {id: f"database/{id}.mp4" for id in database}}


def draw_given(
    rng: Rng, queries: Iterable[str], targets: Iterable[str], missing: Policy, *, kind: str, complete: bool = False
) -> Given:
    """Scores of most queries and targets in any order; ties of several kinds, and pairs without a score."""
    share = 1.0 if complete else 0.8
    kept_queries = [query for query in sorted(set(queries)) if rng.random() < share]
    kept_targets = [target for target in sorted({*targets, *queries, "stranger"}) if rng.random() < share]
    # One target may exist without any score.
    silent = kept_targets[0] if kept_targets and not complete else None
    rows: dict[str, dict[str, float]] = {}
    for query in kept_queries:
        rows[query] = {}
        for target in kept_targets:
            if target == silent or (not complete and rng.random() < 0.1):
                continue
            value = {"random": rng.normal(), "ties": rng.integers(-2, 3) / 2, "equal": 0.25}[kind]
            rows[query][target] = float(np.float32(value))
    order = [str(query) for query in rng.permutation(kept_queries)]
    return Given(order, [str(target) for target in rng.permutation(kept_targets)], rows, missing)


def compare(benchmark: Benchmark, given: Given, expected: Figures) -> None:
    """Figures by task, or by (task, group) with None for all queries."""
    keys = {key if isinstance(key, tuple) else (key, None): value for key, value in expected.items()}
    if any(math.isnan(value) for (_, group), value in keys.items() if group is None):
        with pytest.raises(DataError, match="not defined"):
            evaluate(benchmark, given.scores(), missing=given.missing)
        return
    result = evaluate(benchmark, given.scores(), missing=given.missing)
    assert {key[0] for key in keys} == set(result.figures())
    for (task, group), value in keys.items():
        measured = result[task].overall if group is None else result[task].by_group.get(group)
        if measured is None:  # all queries of the group were dropped
            assert math.isnan(value)
        else:
            assert measured.value == pytest.approx(value, abs=1e-9, nan_ok=True), (task, group)


CASES = pytest.mark.parametrize("seed", range(12))
KINDS = ["random", "ties", "equal"]


@CASES
@pytest.mark.parametrize("missing", POLICIES)
@pytest.mark.parametrize("version", ["5k", "200k"])
def test_fivr(tmp_path: Path, seed: int, missing: Policy, version: str) -> None:
    rng = np.random.default_rng(seed)
    content, easy = draw_fivr(rng)
    (tmp_path / "fivr.pickle").write_bytes(pickle.dumps(content, protocol=2 + seed % 3))
    (tmp_path / "easy.txt").write_text("\n".join(sorted(easy - {"nowhere else"})) + "\nelsewhere\n")
    benchmark = open_benchmark(
        f"FIVR-{version}", annotations=tmp_path / "fivr.pickle", easy_duplicates=tmp_path / "easy.txt"
    )
    given = draw_given(
        rng, content["annotation"], content["200k"]["database"], missing, kind=KINDS[seed % 3], complete=seed % 4 == 0
    )
    compare(benchmark, given, fivr(content, version, easy, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
def test_evve_overall_and_by_event(tmp_path: Path, seed: int, missing: Policy) -> None:
    rng = np.random.default_rng(seed)
    content = draw_evve(rng)
    (tmp_path / "evve.pickle").write_bytes(pickle.dumps(content, protocol=seed % 6))
    given = draw_given(
        rng, content["queries"], content["database"], missing, kind=KINDS[seed % 3], complete=seed % 4 == 0
    )
    compare(open_benchmark("evve", annotations=tmp_path), given, evve(content, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
@pytest.mark.parametrize("listed", [True, False])
def test_svd(tmp_path: Path, seed: int, missing: Policy, listed: bool) -> None:
    rng = np.random.default_rng(seed)
    lines, others = draw_svd(rng)
    (tmp_path / "svd_test_groundtruth").write_text("".join(" ".join(line) + "\n" for line in lines))
    (tmp_path / "unlabelled").write_text("\n".join(sorted(others)))
    benchmark = open_benchmark("svd", annotations=tmp_path, unlabelled=tmp_path / "unlabelled" if listed else None)
    targets = {target for _, target, _ in lines} | others
    given = draw_given(
        rng, {query for query, _, _ in lines}, targets, missing, kind=KINDS[seed % 3], complete=seed % 4 == 0
    )
    compare(benchmark, given, svd(lines, others if listed else None, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
@pytest.mark.parametrize("distractors", [True, False])
def test_vcdb(tmp_path: Path, seed: int, missing: Policy, distractors: bool) -> None:
    rng = np.random.default_rng(seed)
    content = draw_vcdb(rng)
    (tmp_path / "vcdb.pickle").write_bytes(pickle.dumps(content, protocol=seed % 6))
    benchmark = open_benchmark("vcdb", annotations=tmp_path, distractors=distractors)
    given = draw_given(rng, benchmark.queries, content["index"], missing, kind=KINDS[seed % 3], complete=seed % 4 == 0)
    compare(benchmark, given, vcdb(content, distractors, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
@pytest.mark.parametrize("query_itself", [True, False])
def test_cc_web_video(tmp_path: Path, seed: int, missing: Policy, query_itself: bool) -> None:
    rng = np.random.default_rng(seed)
    content = draw_cc_web_video(rng)
    (tmp_path / "cc_web_video.pickle").write_bytes(pickle.dumps(content, protocol=seed % 6))
    benchmark = open_benchmark("cc-web-video", annotations=tmp_path, query_itself=query_itself)
    given = draw_given(rng, content["queries"], content["index"], missing, kind=KINDS[seed % 3], complete=seed % 4 == 0)
    compare(benchmark, given, cc_web_video(content, query_itself, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
def test_made_folders_overall_and_by_kind(tmp_path: Path, seed: int, missing: Policy) -> None:
    rng = np.random.default_rng(seed)
    content = draw_made(rng)
    (tmp_path / "ground_truth.json").write_text(json.dumps(content))
    given = draw_given(
        rng, content["queries"], content["database"], missing, kind=KINDS[seed % 3], complete=seed % 4 == 0
    )
    compare(open_benchmark(tmp_path), given, made(content, given))


@CASES
@pytest.mark.parametrize("missing", POLICIES)
def test_csv(tmp_path: Path, seed: int, missing: Policy) -> None:
    rng = np.random.default_rng(seed)
    queries, targets = names(rng, "q", 5), names(rng, "d", 14)
    queries[1] = targets[1]  # a query inside the database
    pairs = {
        (query, target): str(rng.choice(["1", "0", "near"]))
        for query in queries
        for target in {targets[0], targets[1], *some(rng, targets, 6)}
    }
    table = io.StringIO()
    csv.writer(table).writerows([("query", "target", "label"), *((*pair, label) for pair, label in pairs.items())])
    (tmp_path / "mine.csv").write_text(table.getvalue())
    given = draw_given(rng, queries, targets, missing, kind=KINDS[seed % 3], complete=seed % 4 == 0)
    listed = {target for _, target in pairs}
    mean_ap, pooled, _ = restated(
        given,
        queries,
        lambda query, target: target != query and (target in listed or target not in queries),
        lambda query: {target for (other, target), label in pairs.items() if other == query and label != "0"},
    )
    compare(open_benchmark(tmp_path / "mine.csv"), given, {"mAP": mean_ap, "uAP": pooled})


# --- by hand, and laws ---------------------------------------------------------------------------------------------


def small(**changes: Any) -> Benchmark:
    tasks = tuple(Task(name, ("1",), name) for name in ("mAP", "uAP", "recall@1", "EVVE mAP"))
    labels = {"q": {"a": "1", "b": "1", "c": "0"}, "r": {"c": "1"}}
    benchmark = Benchmark("small", ("q", "r"), ("a", "b", "c", "d"), labels, tasks, groups={"q": "one", "r": "two"})
    return replace(benchmark, **changes)


def scores_of(rows: dict[str, dict[str, float]]) -> Scores:
    targets = sorted({target for row in rows.values() for target in row})
    values = np.array([[row.get(target, -np.inf) for target in targets] for row in rows.values()], dtype=np.float32)
    return Scores(tuple(rows), tuple(targets), values.reshape(len(rows), len(targets)))


WHOLE = {"q": {"a": 0.9, "b": 0.5, "c": 0.7, "d": 0.1}, "r": {"a": 0.3, "b": 0.2, "c": 0.6, "d": 0.8}}


def test_a_hand_computed_evaluation() -> None:
    result = evaluate(small(), scores_of(WHOLE))
    # q: a+ c- b+ d-, so (1 + 2/3) / 2. r: d- c+, so 1/2. Pool: qa+ rd- qc- rc+ qb+ and the rest.
    assert result.figures() == pytest.approx(
        {
            "mAP": (5 / 6 + 1 / 2) / 2,
            "uAP": (1 + 2 / 4 + 3 / 5) / 3,
            "recall@1": 0.5,
            "EVVE mAP": (((1 + 1) / 2 + (1 / 2 + 2 / 3) / 2) / 2 + (0 + 1 / 2) / 2) / 2,
        }
    )
    assert result["mAP"].by_query == pytest.approx({"q": 5 / 6, "r": 1 / 2})
    assert result["uAP"].by_group["two"].value == pytest.approx(1 / 2)
    assert result.coverage.complete
    assert str(result.coverage) == "2 of 2 queries and 4 of 4 targets have scores"


def test_what_is_missing_is_counted_and_treated_as_asked() -> None:
    rows = {"q": {target: WHOLE["q"][target] for target in "acd"}}
    dropped, missed = evaluate(small(), scores_of(rows)), evaluate(small(), scores_of(rows), missing="miss")
    assert dropped["mAP"].value == 1  # a alone is left, at rank 1
    assert missed["mAP"].value == pytest.approx((1 / 2 + 0) / 2)
    assert missed["uAP"].value == pytest.approx(1 / 3)
    for result in (dropped, missed):
        coverage, overall = result.coverage, result["mAP"].overall
        assert (coverage.queries_found, coverage.queries_expected) == (1, 2)
        assert (coverage.targets_found, coverage.targets_expected) == (3, 4)
        assert (coverage.missing_queries, coverage.missing_targets) == (("r",), ("b",))
        assert (overall.positives_found, overall.positives_expected) == (1, 3)
        assert overall.queries_expected == 2
    assert (dropped["mAP"].overall.queries, missed["mAP"].overall.queries) == (1, 2)
    with pytest.raises(DataError, match=r"no scores for 1 queries \(r\) and 1 targets \(b\)"):
        evaluate(small(), scores_of(rows), missing="error")


def test_a_pair_without_a_score_is_a_positive_that_was_not_retrieved() -> None:
    rows = WHOLE | {"q": {target: WHOLE["q"][target] for target in "acd"}}  # b exists: r has a score for it
    result = evaluate(small(), scores_of(rows))
    assert result["mAP"].by_query["q"] == pytest.approx(1 / 2)
    assert result["mAP"].unscored_pairs == 1
    assert result["mAP"].overall.positives_found == 2
    with pytest.raises(DataError, match=r"query 'q' has no score for 1 targets of its ranking .the first is 'b'"):
        evaluate(small(), scores_of(rows), missing="error")


def test_equal_scores_are_ordered_by_query_and_then_target() -> None:
    tasks = (Task("uAP", ("1",), "uAP"), Task("mAP", ("1",)))
    benchmark = Benchmark("b", ("z", "B"), ("é", "e", "E"), {"z": {"E": "1"}, "B": {"e": "1"}}, tasks)
    scores = Scores(("z", "B"), ("é", "e", "E"), np.zeros((2, 3), dtype=np.float32))
    # The pool is B: E, e+, é, then z: E+, e, é.
    assert evaluate(benchmark, scores)["uAP"].value == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert evaluate(benchmark, scores)["mAP"].value == pytest.approx((1 / 2 + 1) / 2)


def test_left_out_targets_leave_ranking_and_ground_truth() -> None:
    task = Task("mAP", ("1",), without=("some",))
    benchmark = small(tasks=(task,), left_out={"some": LeftOut(("c",), {"q": ("b",)})})
    result = evaluate(replace(benchmark, labels={"q": {"a": "1", "b": "1"}, "r": {"d": "1"}}), scores_of(WHOLE))
    assert result["mAP"].by_query == {"q": 1.0, "r": 1.0}
    assert result["mAP"].overall.positives_expected == 2


def test_strangers_join_only_an_open_database() -> None:
    rows = {query: row | {"new": 1.0, "r": 0.95} for query, row in WHOLE.items()}
    closed, opened = evaluate(small(), scores_of(rows)), evaluate(small(open_database=True), scores_of(rows))
    assert closed.figures() == evaluate(small(), scores_of(WHOLE)).figures()
    assert (closed.coverage.further_targets, closed.coverage.ignored_targets) == (0, 1)
    assert (opened.coverage.further_targets, opened.coverage.ignored_targets) == (1, 0)
    assert opened["mAP"].by_query == pytest.approx({"q": (1 / 2 + 2 / 4) / 2, "r": 1 / 3})


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_and_columns_and_the_scale_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = draw_given(rng, "qr", "abcd", "drop", kind="ties", complete=True)
    scores = given.scores()
    rows, columns = rng.permutation(len(scores.queries)), rng.permutation(len(scores.targets))
    mixed = Scores(
        tuple(scores.queries[place] for place in rows),
        tuple(scores.targets[place] for place in columns),
        4 * scores.values[np.ix_(rows, columns)] - 1,
    )
    assert evaluate(small(), mixed).figures() == evaluate(small(), scores).figures()


@pytest.mark.parametrize("seed", range(10))
def test_to_count_the_missing_as_misses_never_raises_a_figure(seed: int) -> None:
    given = draw_given(np.random.default_rng(seed), "qr", "abcd", "drop", kind="random")
    try:
        dropped = evaluate(small(), given.scores())
    except DataError:
        return
    missed = evaluate(small(), given.scores(), missing="miss")
    for task, value in missed.figures().items():
        assert value <= dropped[task].value + 1e-12


def test_all_policies_agree_where_nothing_is_missing() -> None:
    figures = [evaluate(small(), scores_of(WHOLE), missing=missing).figures() for missing in POLICIES]
    assert figures[0] == figures[1] == evaluate(small(), scores_of(WHOLE), missing="error").figures()


def test_a_figure_that_is_not_defined_is_an_error() -> None:
    with pytest.raises(DataError, match=r"small, task 'mAP'.*0 of 2 queries and 0 of 4 targets.*ids"):
        evaluate(small(), scores_of({"Q.mp4": {"A.mp4": 0.5}}))
    with pytest.raises(ConfigError, match="did you mean 'drop'"):
        evaluate(small(), scores_of(WHOLE), missing="dropp")  # type: ignore[arg-type]


def test_a_group_without_a_positive_is_undefined_and_the_rest_is_not() -> None:
    labels = {"q": {"a": "1"}, "r": {}}
    result = evaluate(small(labels=labels), scores_of(WHOLE))
    assert math.isnan(result["mAP"].by_group["two"].value)
    assert math.isnan(result["mAP"].by_query["r"])
    stored = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert stored["results"][0]["by_group"]["two"]["value"] is None
    assert stored["results"][0]["by_query"] == {"q": 1.0, "r": None}
    assert stored["coverage"]["queries_expected"] == 2
    rows = list(csv.DictReader(io.StringIO(format_rows(result.rows()))))
    assert [row["value"] for row in rows if row["task"] == "mAP"] == ["1.0", "1.0", ""]
    assert len(rows) == len(result.rows()) == 4 * 3


def test_results_are_found_by_name() -> None:
    with pytest.raises(KeyError, match="no task 'map'; known: mAP, uAP"):
        evaluate(small(), scores_of(WHOLE))["map"]
