"""A plan as a file: what a spreadsheet may do to it, and what is refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from hapvr.actions import Plan, PlanRow, read_plan, write_plan
from hapvr.actions.plan import make_pairs
from hapvr.errors import DataError

HASH = "ab" * 20
MOMENT_NS = 1731792306123456789
ROWS = (
    PlanRow("1", "keep", "/films/a.mp4", 12, HASH, why="the longest", seconds=3.25, width=64, height=48, mtime_ns=1),
    PlanRow("1", "trash", '/films/b, "c"; d.mp4', 10, "cd" * 20, "copy", 0.987654, "=1+1", mtime_ns=MOMENT_NS),
    PlanRow("2", "none", "/films/caf\udce9\n \u202e.mp4", 10**14, HASH, "clip", None, "-x\ny"),
)  # fmt: skip


def save(path: Path, plan: Plan) -> str:
    write_plan(plan, path)
    return path.read_bytes().decode("utf-8-sig")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    save(tmp_path / "plan.csv", Plan(ROWS))
    for row, read in zip(ROWS, read_plan(tmp_path / "plan.csv").rows, strict=True):
        for name in ("group", "action", "path", "size", "content_hash", "kind", "mtime_ns", "width", "height"):
            assert getattr(read, name) == getattr(row, name)


def test_no_cell_is_a_formula_or_a_number_that_a_spreadsheet_rounds(tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(save(tmp_path / "plan.csv", Plan(ROWS)), newline="")))
    for cells in table:
        for name, cell in cells.items():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert "\n" not in cell
            if cell.replace(".", "").isdigit():
                assert len(cell.replace(".", "")) <= 15, f"{name} is rounded to 15 digits"
    assert table[1]["why"] == "'=1+1"
    assert table[2]["path"].startswith("file:///films/caf%E9%0A")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_what_a_spreadsheet_saves_is_read(tmp_path: Path, separator: str) -> None:
    """With another separator, other ends of lines, other columns in another order, empty lines, capitals."""
    table = list(csv.DictReader(io.StringIO(save(tmp_path / "plan.csv", Plan(ROWS)), newline="")))
    text = io.StringIO()
    names = ["note", *reversed(table[0])]
    writer = csv.DictWriter(text, names, delimiter=separator, lineterminator="\r\n", extrasaction="ignore")
    writer.writeheader()
    for cells in table:
        action, group = cells["action"].upper(), f"{cells['group']}.0"
        writer.writerow({**cells, "note": "seen", "action": action, "group": group, "modified": "16.11.26"})
        text.write(separator * (len(names) - 1) + "\r\n")
    (tmp_path / "saved.csv").write_bytes(text.getvalue().encode("utf-8-sig"))
    read = read_plan(tmp_path / "saved.csv").rows
    assert [(row.group, row.action, row.path, row.size) for row in read] == [
        (row.group, row.action, row.path, row.size) for row in ROWS
    ]
    assert {row.mtime_ns for row in read} == {-1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trash", "delete", "line 3: the action is 'delete'; it must be one of keep, move"),
        ("/films/b", "films/b", "no absolute path"),
        ("/films/b", "/films/../b", "no absolute path"),
        (",10,0.0,", ",ten,0.0,", "the size is 'ten'"),
        (",10,0.0,", ",10.5,0.0,", "the size is '10.5'"),
        ("cdcd", "cd", "the content_hash is not as it was written"),
        ("\n1,trash", "\n,trash", "the group is empty"),
        ("content_hash", "hash", "lacks content_hash"),
        ('d.mp4",', 'd.mp4"x,', "line 3, is no CSV"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = save(tmp_path / "plan.csv", Plan(ROWS))
    assert old in text
    (tmp_path / "plan.csv").write_text(text.replace(old, new, 1))
    with pytest.raises(DataError) as error:
        read_plan(tmp_path / "plan.csv")
    assert message in str(error.value)


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"group,action,path,size,content_hash\n1,keep,/caf\xe9,1,x\n")
    (tmp_path / "empty.csv").write_bytes(b"")
    for name, message in (("latin.csv", "UTF-8"), ("empty.csv", "is no plan"), ("none.csv", "cannot be read")):
        with pytest.raises(DataError, match=message):
            read_plan(tmp_path / name)


def test_rows_that_are_distinct_are_so_from_all_others_of_their_group() -> None:
    def rows(*actions: str) -> list[PlanRow]:
        return [PlanRow("1", action, f"/{place}", 1, "abcd"[place]) for place, action in enumerate(actions)]  # type: ignore[arg-type]

    assert make_pairs(rows("keep", "distinct", "none")) == {("a", "b"), ("b", "c")}
    assert make_pairs(rows("keep", "move", "none"), ["1"]) == {("a", "b"), ("a", "c"), ("b", "c")}
    same = [PlanRow("1", "distinct", f"/{place}", 1, "a") for place in range(2)]
    assert make_pairs(same) == set()  # of the same bytes
