"""The plan of a report: what gets an action, what is listed without one, and in which order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hapvr.actions.plan import Plan, PlanRow
from hapvr.errors import ConfigError
from hapvr.judge.judge import Verdict
from hapvr.library import DuplicateReport, Link, VideoRecord
from hapvr.library.copy_groups import group_links
from hapvr.library.derivation import Derivation
from hapvr.library.duplicate_plan import PlanOptions, filter_report, make_plan
from hapvr.library.duplicate_report import Kind
from hapvr.library.filters import VideoFilter

WHOLE = ((0.0, 10.0), (0.0, 10.0))
SAME = Derivation(None)


def record(name: str, size: int, *, content: str | None = None, **changes: object) -> VideoRecord:
    made = VideoRecord(name, f"/films/{name}.mp4", size, 1, content or name, 10.0, 10, 64, 48, float(size))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def link(
    a: str, b: str, *, kind: Kind = "duplicate", probability: float = 0.99, found: Derivation | None = SAME
) -> Link:
    verdict = Verdict("copy", probability, probability, 0.3, 1.0, "They are alike.")
    return Link(a, b, kind, 0.9, verdict, (1.0, 1.0), WHOLE, derivation=found)


def same(a: str, b: str) -> Link:
    return Link(a, b, "identical", 1.0, None, (1.0, 1.0), WHOLE)


def report(records: list[VideoRecord], links: list[Link]) -> DuplicateReport:
    named = {one.id: one for one in records}
    return DuplicateReport(group_links(links, named), tuple(links), named, len(named), 1, 1, 0, 0.5, 0.1)


def actions(plan: Plan) -> dict[str, tuple[str, str]]:
    """The action and kind of each file."""
    return {Path(row.path).stem: (row.action, row.kind) for row in plan.rows}


def test_whole_copies_get_an_action_and_others_are_listed_without() -> None:
    others = ("plain", "softer", "cropped", "mirrored", "unseen", "doubtful", "indirect")
    records = [record("best", 900), record("same", 900, content="best"), *(record(name, 500) for name in others)]
    links = [
        same("best", "same"),
        link("plain", "best"),
        link("softer", "best", found=Derivation("a", ("softer: less detail",))),
        link("best", "cropped", found=Derivation("b", ("cropped: it shows a part of the other's picture",))),
        link("mirrored", "best", found=Derivation(None, ("one is mirrored",))),
        link("unseen", "best", found=None),
        link("doubtful", "best", probability=0.8),
        link("indirect", "plain"),
    ]
    found = report(records, links)
    plan = make_plan(found)
    assert actions(plan) == {
        "best": ("keep", ""), "same": ("move", "identical"), "plain": ("move", "copy"), "softer": ("move", "copy"),
        "cropped": ("none", "edited"), "mirrored": ("none", "unsure"), "unseen": ("none", "unsure"),
        "doubtful": ("none", "unsure"), "indirect": ("none", "unsure"),
    }  # fmt: skip
    why = {Path(row.path).stem: row.why for row in plan.rows}
    assert why["same"] == "the same bytes"
    assert "cropped" in why["cropped"]
    assert "not compared" in why["unseen"]
    assert "by others" in why["indirect"]
    assert "90" in why["doubtful"]
    asked = make_plan(found, PlanOptions("trash", ("edited", "copy")))
    assert actions(asked) == {
        "best": ("keep", ""), "plain": ("trash", "copy"), "softer": ("trash", "copy"), "cropped": ("trash", "edited"),
    }  # fmt: skip


def test_a_copy_is_known_by_its_content_whichever_file_stands_for_it() -> None:
    """Links name the first file of a content, which is not always the one that is kept."""
    records = [record("first", 900, mtime_ns=5), record("kept", 900, content="first", mtime_ns=1), record("copy", 100)]
    plan = make_plan(report(records, [same("first", "kept"), link("copy", "first")]))
    assert actions(plan) == {"kept": ("keep", ""), "first": ("move", "identical"), "copy": ("move", "copy")}


def test_what_saves_most_comes_first() -> None:
    records = [
        record(name, size) for name, size in (("a", 9), ("a2", 5), ("b", 90), ("b2", 50), ("c", 900), ("c2", 800))
    ]
    links = [link("a2", "a"), link("b2", "b"), link("c2", "c", probability=0.7)]
    plan = make_plan(report(records, links))
    assert [(row.group, Path(row.path).stem, row.saves) for row in plan.rows] == [
        ("1", "b", 0), ("1", "b2", 50), ("2", "a", 0), ("2", "a2", 5), ("3", "c", 0), ("3", "c2", 0),
    ]  # fmt: skip
    assert plan.saves == 55


def test_clips_are_listed_and_get_an_action_if_they_are_asked_for() -> None:
    records = [record(name, size) for name, size in (("film", 900), ("copy", 800), ("clip", 100), ("part", 50))]
    links = [
        link("copy", "film"),
        link("clip", "copy", kind="contained", found=None),
        link("clip", "film", kind="contained", found=None),
        link("part", "clip", kind="contained", found=None),
        link("part", "film", kind="shared", found=None),
    ]
    found = report(records, links)
    plan = make_plan(found)
    assert {(Path(row.path).stem, row.action) for row in plan.rows} == {
        ("film", "keep"), ("copy", "move"), ("clip", "none"), ("clip", "keep"), ("part", "none"),
    }  # fmt: skip
    wholes = [plan.groups[row.group][0].path for row in plan.rows if row.path == "/films/clip.mp4"]
    assert wholes == ["/films/film.mp4", "/films/clip.mp4"]  # once, as a part of the whole that is kept
    asked = make_plan(found, PlanOptions(kinds=("copy", "clip")))
    acting = [(Path(row.path).stem, Path(asked.groups[row.group][0].path).stem) for row in asked.acting]
    # The clip is itself the whole of a part: it stays. The part goes, since the clip is kept.
    assert acting == [("copy", "film"), ("part", "clip")]
    only = make_plan(found, PlanOptions(kinds=("clip",), filter=VideoFilter(max_size=60)))
    assert [(Path(row.path).stem, row.action) for row in only.rows] == [("clip", "keep"), ("part", "move")]


def test_no_file_is_kept_by_one_group_and_moved_by_another() -> None:
    records = [record(name, size) for name, size in (("film", 900), ("copy", 800), ("clip", 100))]
    links = [link("copy", "film"), link("clip", "copy", kind="contained", found=None)]
    plan = make_plan(report(records, links), PlanOptions(kinds=("copy", "clip")))
    assert [Path(row.path).stem for row in plan.acting] == ["copy"]
    assert "itself to be acted on" in next(row.why for row in plan.rows if row.kind == "clip")


def test_missing_files_and_links_get_no_action(tmp_path: Path) -> None:
    (tmp_path / "link.mp4").symlink_to("film.mp4")
    records = [
        record("film", 900), record("gone", 500, state="missing"), record("link", 400, path=str(tmp_path / "link.mp4")),
    ]  # fmt: skip
    plan = make_plan(report(records, [link("gone", "film"), link("link", "film")]))
    assert {action for action, _ in actions(plan).values()} == {"keep", "none"}
    assert next(row.why for row in plan.rows if "gone" in row.path).startswith("missing; ")


def test_only_allowed_files_get_an_action() -> None:
    records = [record("film", 900), record("copy", 500), record("other", 400, path="/other/copy.mp4")]
    found = report(records, [link("copy", "film"), link("other", "film")])
    plan = make_plan(found, PlanOptions(filter=VideoFilter(("/other",))))
    assert [(row.path, row.action) for row in plan.rows] == [("/films/film.mp4", "keep"), ("/other/copy.mp4", "move")]
    assert not make_plan(found, PlanOptions(filter=VideoFilter(("/nowhere",)))).rows


def test_a_report_is_filtered_by_folder_and_kind() -> None:
    records = [record(name, size) for name, size in (("film", 900), ("copy", 800), ("clip", 100), ("part", 50))]
    links = [
        link("copy", "film"), link("clip", "film", kind="contained", found=None),
        link("part", "copy", kind="shared", found=None),
    ]  # fmt: skip
    found = report(records, links)

    def kinds(filtered: DuplicateReport) -> tuple[int, list[str]]:
        return len(filtered.groups), [one.kind for one in filtered.beside]

    assert kinds(filter_report(found, VideoFilter())) == (1, ["contained", "shared"])
    assert kinds(filter_report(found, VideoFilter(), ["clip"])) == (0, ["contained"])
    assert kinds(filter_report(found, VideoFilter(), ["copy", "shared"])) == (1, ["shared"])
    assert kinds(filter_report(found, VideoFilter(max_size=70))) == (0, ["shared"])
    assert kinds(filter_report(found, VideoFilter(min_size=850))) == (1, ["contained"])


def test_what_is_no_kind_and_no_action_is_refused() -> None:
    with pytest.raises(ConfigError, match="identical, copy, edited"):
        PlanOptions(kinds=("all",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="move, trash, hardlink, symlink"):
        PlanOptions("delete")  # type: ignore[arg-type]


def test_a_row_is_what_the_record_says() -> None:
    plan = make_plan(report([record("film", 900), record("copy", 500)], [link("copy", "film")]))
    assert plan.rows[1] == PlanRow(
        "1", "move", "/films/copy.mp4", 500, "copy", "copy", 0.99, "probability 99.0%, score 0.90", 10.0, 64, 48, 1
    )
