from __future__ import annotations

import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError
from hapvr.evaluation import Scores, read_scores, score_files, write_scores

# One small file is written again and again: each example replaces it.
FILES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
IDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from('{}":, \\'),
    min_size=1,
    max_size=6,
)


@st.composite
def drawn(draw: st.DrawFn) -> Scores:
    queries = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    targets = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    number = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(-math.inf)
    rows = draw(st.lists(st.lists(number, min_size=len(targets), max_size=len(targets)),
                         min_size=len(queries), max_size=len(queries)))  # fmt: skip
    return Scores(tuple(queries), tuple(targets), np.array(rows, dtype=np.float32))


def pairs(given: Scores) -> dict[tuple[str, str], float]:
    """The scored pairs."""
    return {
        (query, target): float(value)
        for query, row in zip(given.queries, given.values, strict=True)
        for target, value in zip(given.targets, row, strict=True)
        if value != -np.inf
    }


def test_values_are_float32_and_cannot_be_written() -> None:
    given = Scores(["q"], ["a", "b"], np.array([[0.1, 0.2]]))  # type: ignore[arg-type]
    assert given.queries == ("q",)
    assert given.values.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        given.values[0, 0] = 1


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e39])
def test_a_score_without_a_rank_is_refused_with_its_pair(value: float) -> None:
    with pytest.raises(DataError, match=r"query 'r' and target 'b' is (nan|inf)"):
        Scores(("q", "r"), ("a", "b"), np.array([[0.0, 0.0], [0.0, value]]))


@pytest.mark.parametrize(
    ("queries", "targets", "message"),
    [
        (("q", "q"), ("a",), "queries of the scores: 'q' stands there more than once"),
        (("q", "r"), ("a", "b", "a"), "targets of the scores: 'a' stands there more than once"),
        (("q", ""), ("a",), "queries of the scores: entry 1 is ''"),
        (("q", 3), ("a",), "queries of the scores: entry 1 is 3"),
    ],
)
def test_ids_are_strings_and_stand_once(queries: Any, targets: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Scores(queries, targets, np.zeros((len(queries), len(targets)), dtype=np.float32))


def test_the_matrix_fits_its_ids() -> None:
    with pytest.raises(ShapeError, match=r"must be \[1, 2\].*got \[2, 1\]"):
        Scores(("q",), ("a", "b"), np.zeros((2, 1), dtype=np.float32))
    with pytest.raises(ShapeError, match="floating point, got int64"):
        Scores(("q",), ("a",), np.zeros((1, 1), dtype=np.int64))


@FILES
@given(given=drawn())
def test_npz_gives_back_the_same(tmp_path: Path, given: Scores) -> None:
    write_scores(given, tmp_path / "scores.npz")
    read = read_scores(tmp_path / "scores.npz")
    assert (read.queries, read.targets) == (given.queries, given.targets)
    assert np.array_equal(read.values, given.values)


@FILES
@given(given=drawn())
def test_json_gives_back_every_scored_pair(tmp_path: Path, given: Scores) -> None:
    path = tmp_path / "scores.json"
    write_scores(given, path)
    table = {query: dict[str, float]() for query, _ in pairs(given)}
    for (query, target), value in pairs(given).items():
        table[query][target] = value
    assert json.loads(path.read_text()) == table
    if table:
        assert pairs(read_scores(path)) == pairs(given)
    else:
        with pytest.raises(DataError, match="holds no score"):
            read_scores(path)


def test_json_of_other_tools_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text('\n {"q" :{"b":1, "a" : -2.5e-1}\n,\t"r": {}, "s": {"a": -Infinity}} \n')
    read = read_scores(path)
    assert read.queries == ("q", "r", "s")
    assert read.targets == ("b", "a")
    assert read.values.tolist() == [[1, -0.25], [-math.inf, -math.inf], [-math.inf, -math.inf]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON, or is cut short"),
        ("[]", "must be a JSON table"),
        ("{}", "holds no score"),
        ('{"q": {}}', "holds no score"),
        ('{"q": {"a": 1}', "no JSON, or is cut short"),
        ('{"q": {"a": 1}}}', "no JSON, or is cut short"),
        ('{"q": {"a": 1}} {', "no JSON, or is cut short"),
        ('{"q": {"a": 1}, }', "no JSON, or is cut short"),
        ('{"q": {"a": 1} "r": {}}', "no JSON, or is cut short"),
        ('{"q": [1, 2]}', "must be a JSON table"),
        ('{"q": {"a": 1}, "r": [1, 2]}', "query 'r' must have a table"),
        ('{"q": 3}', "must be a JSON table"),
        ('{"q" {"a": 1}}', "no JSON, or is cut short"),
        ('{3: {"a": 1}}', "no JSON, or is cut short"),
        ('{"q": {"a": NaN}}', "query 'q' and target 'a' is nan"),
        ('{"q": {"a": 1e999}}', "query 'q' and target 'a' is inf"),
        ('{"q": {"a": Infinity}}', "query 'q' and target 'a' is inf"),
        ('{"q": {"a": null}}', "target 'a' is 'None', not a number"),
        ('{"q": {"a": true}}', "target 'a' is 'True', not a number"),
        ('{"q": {"a": "1"}}', "target 'a' is '1', not a number"),
        ('{"q": {"a": {"b": 1}}}', "must be a JSON table"),
        ('[["q", {"a": 1}]]', "must be a JSON table"),
        ('{"q": {"a": 1, "a": 1}}', "query 'q' and target 'a' is given twice"),
        ('{"q": {"a": 1}, "q": {"b": 1}}', "the query 'q' stands there twice"),
        ('{"": {"a": 1}}', "entry 0 is ''"),
        ('{"q": {"a": 1' + "0" * 400 + "}}", "that no float holds"),
        ('{"q": ' + "[" * 100_000, "no JSON"),
    ],
)
def test_bad_json_is_refused_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_scores(path)
    assert str(path) in str(caught.value)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = Scores(("q", "r"), ("a", "b"), np.array([[0.5, 1.5], [-2.5, 3.0]]))
    for kind in ("json", "npz"):
        path = tmp_path / f"scores.{kind}"
        write_scores(whole, path)
        data = path.read_bytes().rstrip()
        for length in range(0, len(data), 1 if kind == "json" else 7):
            path.write_bytes(data[:length])
            with pytest.raises(DataError, match="scores"):
                read_scores(path)


def test_an_npz_never_runs_what_it_holds(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    values = np.zeros((1, 1), dtype=np.float32)
    np.savez(tmp_path / "evil.npz", queries=np.array([Evil()], dtype=object), targets=np.array(["a"]), values=values)
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Evil()))
    for name in ("evil", "plain"):
        with pytest.raises(DataError, match="holds no scores, or is damaged"):
            read_scores(tmp_path / f"{name}.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "parts",
    [
        {"queries": np.array(["q"]), "targets": np.array(["a"])},
        {"queries": np.array([1]), "targets": np.array(["a"]), "values": np.zeros((1, 1))},
        {"queries": np.array([["q"]]), "targets": np.array(["a"]), "values": np.zeros((1, 1))},
        {"queries": np.array(["q"]), "targets": np.array(["a"]), "values": np.zeros((1, 2))},
        {"queries": np.array(["q"]), "targets": np.array(["a"]), "values": np.array([["x"]])},
        {"queries": np.array(["q"]), "targets": np.array(["a"]), "values": np.full((1, 1), np.nan)},
    ],
)
def test_a_bad_npz_is_refused_with_its_file(tmp_path: Path, parts: dict[str, Any]) -> None:
    np.savez(tmp_path / "scores.npz", **parts)
    with pytest.raises(DataError, match=r"scores\.npz"):
        read_scores(tmp_path / "scores.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    whole = Scores(("q",), ("a",), np.zeros((1, 1), dtype=np.float32))
    with pytest.raises(ConfigError, match=r"\.json or \.npz, got 'scores\.csv'"):
        write_scores(whole, tmp_path / "scores.csv")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_scores(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes('{"é": {"a": 1}}'.encode("latin-1"))
    with pytest.raises(DataError, match="no UTF-8"):
        read_scores(tmp_path / "latin.json")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(HapvrError, match="cannot be read"):
        read_scores(tmp_path / "folder.npz")


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "scores.json"
    write_scores(Scores(("q",), ("a",), np.ones((1, 1), dtype=np.float32)), path)

    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(score_files, "_write_json", fails)
    with pytest.raises(KeyboardInterrupt):
        write_scores(Scores(("q",), ("a",), np.zeros((1, 1), dtype=np.float32)), path)
    assert read_scores(path).values.tolist() == [[1]]
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]
