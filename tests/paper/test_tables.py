from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks import Benchmark, Task
from hapvr.evaluation.protocol import evaluate
from hapvr.evaluation.score_files import Scores
from hapvr.paper.table_text import render
from hapvr.paper.tables import (
    Column,
    Line,
    PaperTable,
    Result,
    compute_differences,
    find_paper_table,
    join_results,
    read_paper_tables,
    read_result,
    to_json,
)
from tests.commands import run

ALL = list(read_paper_tables().values())

# Copied by hand from the paper, not from the package's file.
CELLS = [
    (1, ("DML",), "EVVE mAP", 61.10),
    (1, ("TMK",), "SVD mAP", 86.30),
    (1, ("TMK",), "EVVE uAP", None),
    (1, ("TCA",), "SVD uAP", 56.93),
    (1, ("ViSiL",), "FIVR-200K CSVD uAP", 69.00),
    (1, ("DnS (S_a)",), "FIVR-200K ISVR mAP", 74.08),
    (1, ("DnS (S_b)",), "FIVR-200K DSVD uAP", 78.05),
    (1, ("LAMV",), "EVVE uAP", 80.60),
    (1, ("VRL",), "FIVR-200K DSVR mAP", 90.00),
    (1, ("VRL",), "EVVE mAP", None),
    (1, ("ViSiL_f",), "FIVR-200K ISVD uAP", 45.90),
    (1, ("S2VS",), "FIVR-200K CSVD uAP", 77.41),
    (1, ("HAP-VR",), "EVVE mAP", 69.15),
    (1, ("HAP-VR",), "FIVR-200K ISVD uAP", 64.79),
    (2, ("MAE",), "FIVR-5K ISVR mAP", 80.86),
    (2, ("MSE",), "FIVR-5K CSVD uAP", 76.07),
    (2, ("Triplet",), "FIVR-5K DSVD uAP", 72.94),
    (2, ("Circle",), "FIVR-5K ISVD uAP", 59.33),
    (2, ("FastAP",), "FIVR-5K DSVR mAP", 89.30),
    (2, ("BlackBox",), "FIVR-5K DSVD uAP", 80.07),
    (2, ("QuadLinear-AP",), "FIVR-5K DSVR mAP", 90.80),
    (2, ("QuadLinear-AP",), "FIVR-5K ISVD uAP", 71.45),
    (3, ("yes", "no", "no", "no"), "EVVE mAP", 67.64),
    (3, ("yes", "yes", "no", "no"), "FIVR-5K ISVD uAP", 64.81),
    (3, ("yes", "yes", "yes", "no"), "FIVR-5K CSVR mAP", 88.54),
    (3, ("yes", "yes", "yes", "yes"), "FIVR-5K DSVD uAP", 81.56),
    (4, ("0.00",), "EVVE uAP", 78.85),
    (4, ("0.03",), "FIVR-5K DSVR mAP", 89.65),
    (4, ("0.20",), "EVVE uAP", 81.54),
    (4, ("1.00",), "FIVR-5K ISVD uAP", 42.92),
    (7, ("0.01",), "FIVR-5K DSVR mAP", 87.32),
    (7, ("0.15",), "FIVR-5K ISVD uAP", 64.11),
    (8, ("0.01",), "FIVR-5K CSVR mAP", 89.19),
    (8, ("0.10",), "FIVR-5K ISVR mAP", 79.93),
    (9, ("1.0",), "FIVR-5K ISVD uAP", 69.41),
    (9, ("50",), "FIVR-5K DSVR mAP", 89.37),
    (10, ("0.02",), "FIVR-5K CSVD uAP", 78.98),
    (10, ("5.0",), "FIVR-5K ISVD uAP", 70.99),
    (11, ("6",), "FIVR-5K CSVR mAP", 89.18),
    (11, ("8",), "FIVR-5K DSVD uAP", 84.20),
    (12, ("0.45", "0.45"), "FIVR-5K ISVR mAP", 80.89),
    (12, ("0.30", "0.40"), "FIVR-5K DSVD uAP", 82.67),
    (12, ("0.40", "0.30"), "FIVR-5K CSVD uAP", 79.33),
]
# (table, column): the best figure and the second best, as the paper marks them.
MARKED = [
    (1, "SVD mAP", 90.20, 89.82),
    (1, "SVD uAP", 72.24, 67.87),
    (2, "FIVR-5K ISVR mAP", 81.31, 81.21),
    (4, "EVVE mAP", 69.55, 69.03),
    (7, "FIVR-5K ISVR mAP", 80.42, 80.37),
    (8, "FIVR-5K DSVD uAP", 83.62, 82.29),  # twice second
    (9, "FIVR-5K CSVD uAP", 78.64, 77.59),  # twice first
    (10, "FIVR-5K ISVD uAP", 70.99, 70.73),
    (11, "FIVR-5K DSVD uAP", 84.20, 83.15),
    (12, "FIVR-5K DSVR mAP", 90.21, 90.17),  # twice second
]
GAINS = {2: [1.77, 0.18, 0.26, 0.16, 1.54, 0.74, 0.93, 1.31], 4: [1.94, 1.57, 1.43, 0.58, 3.83, 6.07, 4.48, 3.37]}


def place(table: PaperTable, column: str) -> int:
    return [str(one) for one in table.columns].index(column)


@pytest.mark.parametrize(("number", "keys", "column", "figure"), CELLS)
def test_a_cell_is_as_printed(number: int, keys: tuple[str, ...], column: str, figure: float | None) -> None:
    table = find_paper_table(number)
    assert table.line(*keys).figures[place(table, column)] == figure


def test_all_result_tables_are_there_in_the_papers_order() -> None:
    assert [table.number for table in ALL] == [1, 2, 3, 4, 7, 8, 9, 10, 11, 12]
    assert [len(table.lines) for table in ALL] == [11, 10, 4, 7, 4, 4, 5, 5, 4, 6]
    assert sum(len(table.columns) * len(table.lines) for table in ALL) == 426


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_a_table_is_whole(table: PaperTable) -> None:
    assert table.caption.endswith(".")
    assert len(set(table.columns)) == len(table.columns)
    assert len({line.keys for line in table.lines}) == len(table.lines)
    for line in table.lines:
        assert len(line.keys) == len(table.keys)
        assert len(line.figures) == len(table.columns)
        for figure in line.figures:
            assert figure is None or (0 < figure < 100 and figure == round(figure, 2))
    for column in table.columns:
        assert column.measure == {"R": "mAP", "D": "uAP"}.get(column.task[-1:], column.measure)
    assert table.own is None or 0 <= table.own < len(table.lines)


def test_on_fivr_200k_the_wider_notion_of_relevance_is_the_harder() -> None:
    table = find_paper_table("methods")
    for line in table.lines:
        for tasks in (("DSVR", "CSVR", "ISVR"), ("DSVD", "CSVD", "ISVD")):
            figures = [f for c, f in zip(table.columns, line.figures, strict=True) if c.task in tasks and f]
            assert figures == sorted(figures, reverse=True)


def test_the_papers_own_lines() -> None:
    own = {table.name: table.name_line(table.lines[table.own]) for table in ALL if table.own is not None}
    assert own == {"methods": "HAP-VR", "losses": "QuadLinear-AP", "modules": "line 4", "topk": "0.03",
                   "delta-v": "0.05", "delta-f": "0.05", "rho-f": "5.0", "lambda-f": "6", "rates": "0.35"}  # fmt: skip


@pytest.mark.parametrize(("number", "column", "best", "second"), MARKED)
def test_best_marks_are_the_papers(number: int, column: str, best: float, second: float) -> None:
    table = find_paper_table(number)
    at = place(table, column)
    for line, places in zip(table.lines, table.rank_figures(), strict=True):
        assert places[at] == {best: 1, second: 2}.get(line.figures[at] or 0.0)


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_best_marks_agree_with_a_loop(table: PaperTable) -> None:
    for column in range(len(table.columns)):
        for line, places in zip(table.lines, table.rank_figures(), strict=True):
            value = line.figures[column]
            higher = {other.figures[column] for other in table.lines if (other.figures[column] or 0) > (value or 100)}
            expected = None if value is None or not table.marks or len(higher) > 1 else len(higher) + 1
            assert places[column] == expected


@pytest.mark.parametrize("line", GAINS)
def test_gains_over_the_baseline_are_those_printed(line: int) -> None:
    table = find_paper_table("modules")
    assert table.baseline == 0
    assert list(compute_differences(table.lines[line - 1], table.lines[0])) == GAINS[line]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("topk", "0.06"), ("modules", "line 3")),
        (("delta-f", "0.05"), ("rho-f", "1.0")),
        (("lambda-f", "4"), ("rates", "0.35")),
        (("rho-f", "5.0"), ("rates", "line 3")),
    ],
)
def test_lines_that_stand_in_two_tables_agree(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert find_paper_table(one[0]).line(one[1]).figures == find_paper_table(other[0]).line(other[1]).figures


def test_a_table_is_found_by_name_and_by_number() -> None:
    assert find_paper_table("losses") is find_paper_table(2) is find_paper_table("2")
    with pytest.raises(ConfigError, match="did you mean 'losses'"):
        find_paper_table("loses")
    with pytest.raises(ConfigError, match="no result table '5'"):
        find_paper_table(5)


def test_a_line_is_found_by_keys_or_number_and_never_guessed() -> None:
    assert find_paper_table("rates").line("0.40", "0.30") is find_paper_table("rates").line("line 6")
    with pytest.raises(ConfigError, match=r"2 lines that begin with '0\.40'"):
        find_paper_table("rates").line("0.40")
    with pytest.raises(ConfigError, match="did you mean 'HAP-VR no VCDB"):
        find_paper_table("methods").line("HAP-VR no VCDB")


def test_differences_are_antisymmetric_and_none_where_a_figure_is_missing() -> None:
    one, other = Line(("a",), (70.0, None, 1.5)), Line(("b",), (69.15, 2.0, 3.0))
    assert compute_differences(one, other) == (0.85, None, -1.5)
    assert compute_differences(other, one) == (-0.85, None, 1.5)


# --- results ---------------------------------------------------------------------------------------------------------


def evaluation_file(folder: Path, name: str = "FIVR-5K", tasks: tuple[Task, ...] | None = None) -> Path:
    """Two queries: the first finds its positive first, the second finds it second."""
    tasks = tasks or (Task("DSVR", ("ND",), "mAP"), Task("DSVD", ("ND",), "uAP"), Task("top", ("ND",), "recall@1"))
    benchmark = Benchmark(name, ("p", "q"), ("a", "b", "c"), {"p": {"a": "ND"}, "q": {"b": "ND"}}, tasks)
    scores = Scores(("p", "q"), ("a", "b"), np.array([[0.9, 0.1], [0.8, 0.7]]))
    path = folder / f"{name}.json"
    path.write_text(json.dumps(evaluate(benchmark, scores).to_json()))
    return path


def test_an_evaluation_becomes_percentages_of_the_papers_columns(tmp_path: Path) -> None:
    result = read_result(evaluation_file(tmp_path), label="mine")
    # mAP (1 + 1/2) / 2; pooled .9(+) .8 .7(+) .1: uAP (1 + 2/3) / 2. The paper has no recall@1.
    assert {str(column): round(figure, 4) for column, figure in result.figures.items()} == {
        "FIVR-5K DSVR mAP": 75.0,
        "FIVR-5K DSVD uAP": 83.3333,
    }
    assert result.coverage == ("FIVR-5K: 2 of 2 queries and 2 of 3 targets have scores, missing=drop",)


def test_a_benchmark_with_one_task_a_measure_meets_the_columns_without_a_task(tmp_path: Path) -> None:
    tasks = (Task("mAP", ("ND",), "EVVE mAP"), Task("uAP", ("ND",), "uAP"), Task("mAP labelled", ("ND",), "mAP"))
    result = read_result(evaluation_file(tmp_path, "EVVE", tasks))
    assert result.label == "EVVE"
    line = result.to_line(find_paper_table("methods"))
    assert [figure is not None for figure in line.figures] == [True, *[False] * 4, True, *[False] * 4]
    assert line.figures[0] == pytest.approx(100 * (1 + (0 + 1 / 2) / 2) / 2)  # the trapezoids of EVVE


def test_results_of_one_label_are_one_line_and_never_overwrite(tmp_path: Path) -> None:
    tasks = (Task("mAP", ("ND",), "EVVE mAP"),)
    one = read_result(evaluation_file(tmp_path), label="x")
    other = read_result(evaluation_file(tmp_path, "EVVE", tasks), label="x")
    (both,) = join_results([one, other])
    assert both.figures == {**one.figures, **other.figures}
    assert len(both.coverage) == 2
    with pytest.raises(DataError, match="two figures for FIVR-5K DSVD uAP"):
        join_results([one, one])


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"benchmark": 1}', "nonsense", '{"benchmark": "a", "coverage": {}, "results": []}']
)
def test_what_is_no_evaluation_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"bad\.json"):
        read_result(path)


@pytest.mark.parametrize("value", [75.0, -0.1, None, "0.5", float("nan"), True])
def test_a_figure_that_is_no_fraction_is_refused(tmp_path: Path, value: object) -> None:
    path = evaluation_file(tmp_path)
    record = json.loads(path.read_text())
    record["results"][0]["overall"]["value"] = value
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match="not a fraction"):
        read_result(path)


def test_a_result_without_a_column_of_the_table_is_refused() -> None:
    result = Result("mine", {Column("made", "", "mAP"): 50.0})
    with pytest.raises(DataError, match=r"'mine' has no figure of Table 2 .*Its figures: made mAP"):
        render(find_paper_table(2), [result])


# --- as words --------------------------------------------------------------------------------------------------------

OURS = Result("mine", {Column("FIVR-5K", "DSVR", "mAP"): 91.0, Column("FIVR-5K", "ISVD", "uAP"): 70.0}, ("covered",))


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_every_figure_is_in_the_words_in_order(table: PaperTable, format: str) -> None:
    words = render(table, format=format)  # type: ignore[arg-type]
    body = words.split({"text": "----\n", "markdown": "---: |\n", "latex": "\\midrule\n"}[format])[-1]
    printed = re.findall(r"(?<![\d+.])\d\d\.\d\d", body)
    assert printed == [f"{figure:.2f}" for line in table.lines for figure in line.figures if figure is not None]


def test_our_line_stands_below_with_its_differences() -> None:
    words = render(find_paper_table("losses"), [OURS])
    ours, below = words.split("-\n")[-1].splitlines()[:2]
    assert ours.split() == ["mine", "91.00", "/", "/", "/", "/", "70.00"]
    assert below.split() == ["against", "QuadLinear-AP", "+0.20", "/", "/", "/", "/", "-1.45"]
    assert "mine: covered" in words
    other = render(find_paper_table("losses"), [OURS], against="DIR", format="markdown")
    assert "| against DIR | +1.35 | / | / | / | / | +4.58 |" in other


def test_a_table_without_an_own_line_has_no_differences_unless_asked() -> None:
    assert "against" not in render(find_paper_table("rho-v"), [OURS])
    assert "against 0.2 " in render(find_paper_table("rho-v"), [OURS], against="0.2")


def test_latex_escapes_and_balances() -> None:
    words = render(find_paper_table("methods"), [Result("50%_&", {Column("EVVE", "", "mAP"): 1.0})], format="latex")
    assert r"50\%\_\& & " in words
    assert r"VCDB (C\&D)" in words
    for line in words.splitlines():
        if line.endswith(r"\\"):
            spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            assert len(re.findall(r"(?<!\\)&", line)) + sum(spans) == 13
    assert words.count("{") == words.count("}")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'latex'"):
        render(find_paper_table(1), format="latx")  # type: ignore[arg-type]


def test_json_has_the_table_the_results_and_the_differences() -> None:
    record = json.loads(json.dumps(to_json(find_paper_table("losses"), [OURS])))
    assert record["unit"] == "percent"
    assert record["lines"][9] == {"keys": ["QuadLinear-AP"], "figures": [90.8, 89.68, 81.31, 82.92, 80.03, 71.45],
                                  "own": True}  # fmt: skip
    assert record["against"] == ["QuadLinear-AP"]
    assert record["results"][0]["differences"] == [0.2, None, None, None, None, -1.45]


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_lists_and_prints_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert len(run(capsys, "table")[1].splitlines()) == len(ALL)
    file = evaluation_file(tmp_path)
    code, words, _ = run(capsys, "table", "2", "--results", f"mine={file}")
    assert code == 0
    assert re.search(r"^mine +75\.00 +/ +/ +83\.33 +/ +/$", words, re.MULTILINE)
    assert "-15.80" in words
    code, words, _ = run(capsys, "table", "losses", "--results", file, "--json")
    assert json.loads(words)["results"][0]["label"] == "FIVR-5K"
    assert len(json.loads(run(capsys, "table", "--json")[1])) == len(ALL)


def test_the_command_refuses_with_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, words in (
        (["table", "nine"], "no result table 'nine'"),
        (["table", "--results", "x.json"], "Say which table"),
        (["table", "1", "--results", tmp_path / "absent.json"], "cannot be read"),
        (["table", "1", "--format", "html"], "format has no value"),
    ):
        code, _, error = run(capsys, *arguments)
        assert code == 2
        assert words in error
