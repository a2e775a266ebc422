"""What is done with files, what is left alone, and that everything can be taken back."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hapvr.actions import ApplyOptions, ApplyReport, Plan, apply_plan, preview_plan, undo_journal
from hapvr.actions.journal import Journal
from hapvr.actions.journal_steps import read_steps
from hapvr.actions.plan import Way
from hapvr.errors import ConfigError, StorageError
from hapvr.storage import sync_folder
from tests.actions.files import make_plan, read_contents, read_tree, row, write

WAYS: list[Way] = ["move", "trash", "hardlink", "symlink"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


class Place:
    """Videos, a folder for duplicates and a journal."""

    def __init__(self, folder: Path) -> None:
        self.videos, self.target, self.journal = folder / "videos", folder / "moved", folder / "journal"

    def apply(self, plan: Plan, way: Way | None = "move") -> ApplyReport:
        return apply_plan(plan, ApplyOptions(way, str(self.target)), self.journal)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def replace_row(plan: Plan, place: int, **changes: Any) -> Plan:
    rows = list(plan.rows)
    rows[place] = dataclasses.replace(rows[place], **changes)
    return Plan(tuple(rows))


# --- what is done ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_what_is_done_is_taken_back(place: Place, way: Way) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    report = place.apply(plan, way)
    assert report.files == {way: 4}
    assert report.bytes == sum(one.size for one in plan.acting)
    assert not report.left
    after = read_tree(place.videos)
    for one in plan.acting:
        path = Path(one.path)
        kept = next(Path(other.path) for other in plan.groups[one.group] if other.action == "keep")
        if way == "hardlink":
            assert path.samefile(kept)
            assert not path.is_symlink()
        elif way == "symlink":
            assert path.is_symlink()
            assert path.samefile(kept)
        else:
            assert not path.exists()
    assert {name: one for name, one in after.items() if name.startswith("kept")} == {
        name: one for name, one in before.items() if name.startswith("kept")
    }
    undone = undo_journal(place.journal)
    assert undone.files == {"undone": 4}
    assert not undone.left
    assert read_tree(place.videos) == before
    assert not place.target.exists()
    assert not list(place.videos.rglob(".hapvr*"))
    assert undo_journal(place.journal).done_before == 4  # and once more


def test_files_are_moved_in_folders_as_they_were_and_no_name_is_taken_twice(place: Place) -> None:
    plan = make_plan(place.videos)
    write(place.target / "copies 1" / "1.mp4", b"somebody's")
    (place.target / "copies 1" / "1 (2).mp4").symlink_to("nowhere")
    place.apply(plan)
    assert sorted(read_tree(place.target)) == [
        "copies 1/1 (2).mp4", "copies 1/1 (3).mp4", "copies 1/1.mp4", "copies 1/2.mp4", "copies 2/1.mp4",
        "copies 2/2.mp4",
    ]  # fmt: skip
    assert (place.target / "copies 1" / "1.mp4").read_bytes() == b"somebody's"
    assert not undo_journal(place.journal).left
    assert sorted(read_tree(place.target)) == ["copies 1/1 (2).mp4", "copies 1/1.mp4"]


def test_each_row_has_its_own_action_as_planned(place: Place) -> None:
    plan = make_plan(place.videos, groups=1, copies=4)
    for number, way in enumerate(WAYS, 1):
        plan = replace_row(plan, number, action=way)
    report = place.apply(plan, None)
    assert report.files == dict.fromkeys(WAYS, 1)
    with pytest.raises(ConfigError, match="--to FOLDER"):
        apply_plan(plan, ApplyOptions(None), place.journal)


def test_rows_without_an_action_are_not_touched(place: Place) -> None:
    plan = replace_row(replace_row(make_plan(place.videos), 1, action="none"), 2, action="distinct")
    assert place.apply(plan).files == {"move": 2}
    assert Path(plan.rows[1].path).exists()
    assert Path(plan.rows[2].path).exists()


def test_the_trash_has_notes_that_file_managers_read(place: Place, tmp_path: Path) -> None:
    plan = make_plan(place.videos, groups=1, copies=1)
    special = write(place.videos / "caf\u00e9 %.mp4", Path(plan.rows[0].path).read_bytes())
    plan = Plan((*plan.rows, row(1, "trash", special)))
    place.apply(plan, "trash")
    trash = tmp_path / "home" / "Trash"
    assert sorted(path.name for path in (trash / "files").iterdir()) == ["1.mp4", "caf\u00e9 %.mp4"]
    lines = (trash / "info" / "caf\u00e9 %.mp4.trashinfo").read_text().splitlines()
    assert lines[0] == "[Trash Info]"
    assert lines[1] == f"Path={place.videos}/caf%C3%A9%20%25.mp4".replace("+", "%2B")
    assert lines[2].startswith("DeletionDate=20")
    assert trash.stat().st_mode & 0o777 == 0o700
    undo_journal(place.journal)
    assert not list((trash / "files").iterdir())
    assert not list((trash / "info").iterdir())


def test_a_file_of_another_file_system_goes_to_the_trash_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hapvr.actions import trash

    plan = make_plan(place.videos, groups=1, copies=1)
    monkeypatch.setattr(trash, "find_device", lambda _: -1)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path))
    place.apply(plan, "trash")
    folder = tmp_path / f".Trash-{os.getuid()}"
    assert (folder / "files" / "1.mp4").exists()
    assert "Path=videos/copies%201/1.mp4\n" in (folder / "info" / "1.mp4.trashinfo").read_text()
    undo_journal(place.journal)
    shared = tmp_path / ".Trash"
    shared.mkdir()
    place.apply(plan, "trash")
    assert (folder / "files" / "1.mp4").exists()  # the shared one is not sticky
    undo_journal(place.journal)
    shared.chmod(0o1777)
    place.apply(plan, "trash")
    assert (shared / str(os.getuid()) / "files" / "1.mp4").exists()


# --- what is left alone ----------------------------------------------------------------------------------------------


def test_the_last_copy_of_a_group_is_never_touched(place: Place) -> None:
    """Whatever an edited plan says."""
    plan = make_plan(place.videos, groups=3)
    before = read_tree(place.videos)
    none_kept = replace_row(plan, 0, action="move")
    report = place.apply(none_kept, "trash")
    assert report.files == {"trash": 4}
    assert [(Path(one.path).name, one.kind) for one in report.left] == [("1.mp4", "refused")] * 3
    assert "keeps no other copy" in report.left[0].reason
    assert len(report.problems) == 3
    undo_journal(place.journal)
    assert read_tree(place.videos) == before


def test_a_copy_that_is_not_there_or_has_changed_keeps_nothing(place: Place) -> None:
    plan = make_plan(place.videos, groups=3, copies=1)
    Path(plan.rows[0].path).unlink()
    write(Path(plan.rows[2].path), b"shorter")
    changed = Path(plan.rows[4].path)
    changed.write_bytes(changed.read_bytes()[::-1])  # of the same size
    report = place.apply(plan)
    assert not report.files
    assert [one.kind for one in report.left] == ["refused", "refused", "changed"]
    assert "is to be kept, but it is gone" in report.left[0].reason
    assert "cannot stand for it" in report.left[2].reason
    assert all(Path(one.path).exists() for one in plan.acting)


def test_another_copy_that_is_kept_stands_in_for_one_that_is_gone(place: Place) -> None:
    plan = replace_row(make_plan(place.videos, groups=1), 1, action="keep")
    Path(plan.rows[0].path).unlink()
    assert place.apply(plan).files == {"move": 1}
    assert Path(plan.rows[1].path).exists()


def test_files_that_are_no_longer_the_ones_compared_are_left_alone(place: Place) -> None:
    plan = make_plan(place.videos, groups=1, copies=7)
    gone, shorter, other, link, folder, touched, pipe = (Path(one.path) for one in plan.acting)
    gone.unlink()
    shorter.write_bytes(b"new")
    other.write_bytes(other.read_bytes()[::-1])
    link.unlink()
    link.symlink_to(plan.rows[0].path)
    folder.unlink()
    folder.mkdir()
    os.utime(touched, ns=(5, 5))
    pipe.unlink()
    os.mkfifo(pipe)
    before = read_tree(place.videos / "copies 1") | read_tree(place.videos / "copies 3")
    report = place.apply(plan)
    assert report.files == {"move": 1}  # the one that was only touched
    assert report.paths == [str(touched)]
    kinds = {Path(one.path): one.kind for one in report.left}
    assert kinds == {
        gone: "gone", shorter: "changed", other: "changed", link: "refused", folder: "refused", pipe: "refused",
    }  # fmt: skip
    assert read_tree(place.videos / "copies 1") | read_tree(place.videos / "copies 3") == before
    assert link.is_symlink()
    assert folder.is_dir()


def test_names_of_one_file_are_skipped(place: Place) -> None:
    plan = make_plan(place.videos, groups=1, copies=2)
    Path(plan.rows[1].path).unlink()
    os.link(plan.rows[0].path, plan.rows[1].path)
    for way in WAYS:
        (left,) = preview_plan(plan, ApplyOptions(way, str(place.target))).left
        assert left.kind == "skipped"
        assert "the same file" in left.reason
    report = place.apply(plan, "trash")
    assert report.files == {"trash": 1}
    assert not report.problems


def test_a_kept_file_by_another_name_is_not_touched(place: Place) -> None:
    """A folder that is a link leads to the kept copy itself."""
    plan = make_plan(place.videos, groups=1, copies=1)
    (place.videos / "also").symlink_to(place.videos / "kept")
    plan = Plan((plan.rows[0], row(1, "move", place.videos / "also" / "1.mp4")))
    report = place.apply(plan)
    assert [one.kind for one in report.left] == ["skipped"]
    assert Path(plan.rows[0].path).exists()


def test_files_that_a_plan_keeps_and_moves_are_left_alone(place: Place) -> None:
    plan = make_plan(place.videos, groups=2, copies=1)
    first, second = plan.groups["1"], plan.groups["2"]
    other = dataclasses.replace(second[0], path=first[1].path, content_hash=first[1].content_hash)
    crossed = Plan((*first, other, second[1]))
    report = place.apply(crossed)
    assert not report.files
    assert [one.kind for one in report.left] == ["refused", "refused"]
    assert "group 2 keeps it" in report.left[0].reason
    twice = Plan((*first, *(dataclasses.replace(one, group="3") for one in first)))
    report = place.apply(twice)
    assert report.files == {"move": 1}
    assert ["twice" in one.reason for one in report.left] == [True]


def test_links_are_made_of_the_same_bytes_only(place: Place) -> None:
    plan = make_plan(place.videos, same=False)
    before = read_tree(place.videos)
    for way in ("hardlink", "symlink"):
        report = place.apply(plan, way)
        assert [one.kind for one in report.left] == ["skipped"] * 4
        assert "other bytes" in report.left[0].reason
    assert read_tree(place.videos) == before


def test_the_folder_must_be_one_that_can_hold_the_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(place.videos)
    file = write(place.videos.parent / "file", b"")

    def refuse(folder: Path, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            apply_plan(plan, ApplyOptions("move", str(folder)), place.journal)

    refuse(file, "is no folder")
    refuse(place.videos, "the folder that the files are in")
    monkeypatch.setattr(os, "access", lambda *_: False)
    refuse(place.videos / "kept", "no permission")
    monkeypatch.undo()
    from hapvr.actions import preview

    monkeypatch.setattr(preview, "find_device", lambda path: 1 if "copies" in path else 2)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100}))
    refuse(place.target, "100 bytes free")


# --- what goes wrong -------------------------------------------------------------------------------------------------


def across(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all folders were file systems of their own."""
    link = os.link

    def refuse(source: str, target: str, **options: Any) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "supports_follow_symlinks", {refuse})


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on file systems without hard links."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("change", [across, without_links])
@pytest.mark.parametrize("way", ["move", "trash"])
def test_files_move_to_other_file_systems_and_to_ones_without_links(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], way: Way
) -> None:
    plan = make_plan(place.videos, same=False)
    before = read_tree(place.videos)
    Path(plan.rows[1].path).chmod(0o640)
    change(monkeypatch)
    report = place.apply(plan, way)
    assert report.files == {way: 4}
    moved = place.target if way == "move" else place.videos.parent / "home" / "Trash" / "files"
    assert sorted(one[0] for one in read_tree(moved).values()) == sorted(one.content_hash for one in plan.acting)
    times = {one[1] for one in read_tree(moved).values()}
    assert times == {one.mtime_ns for one in plan.acting}
    assert undo_journal(place.journal).files == {"undone": 4}
    assert read_tree(place.videos) == before
    assert Path(plan.rows[1].path).stat().st_mode & 0o777 == 0o640


def test_a_hard_link_to_another_file_system_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    across(monkeypatch)
    report = place.apply(plan, "hardlink")
    assert [one.kind for one in report.left] == ["refused"] * 4
    assert "another file system" in report.left[0].reason
    assert read_tree(place.videos) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("name", ["link", "replace", "symlink", "unlink", "open", "write", "fsync", "mkdir", "utime"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_the_system_leaves_nothing_half_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, number: int, way: Way
) -> None:
    """A full disk, a folder without permission, a file system that is read-only; the journal can be written."""
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    across(monkeypatch)
    write(place.journal, b"")
    real = getattr(os, name)

    def fail(*arguments: Any, **options: Any) -> Any:
        path = arguments[0]
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        writing = name != "open" or arguments[1] & os.O_CREAT
        if str(path).startswith(str(place.journal)) or not writing:
            return real(*arguments, **options)
        if name == "unlink" and not str(path).startswith(str(place.videos)):
            return real(*arguments, **options)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, fail)
    if name == "link":
        monkeypatch.setattr(os, "supports_follow_symlinks", {fail})
    report = place.apply(plan, way)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(place.videos.parent / "home"))
    assert len(report.problems) in (0, 4)
    if report.problems:
        assert read_tree(place.videos) == before
        assert not read_tree(place.target)
        assert not read_tree(place.videos.parent / "home")
        expected = {errno.ENOSPC: "no space", errno.EACCES: "no permission", errno.EROFS: "read-only"}[number]
        assert all(expected in one.reason for one in report.problems if one.kind == "failed")
    assert {state for _, state in read_steps(place.journal)} <= {"done", "failed"}
    undo_journal(place.journal)
    assert read_tree(place.videos) == before


def test_nothing_is_done_that_the_journal_cannot_say(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    Journal(place.journal, create=True).close()
    size = place.journal.stat().st_size
    real = os.write

    def fill(file: int, data: bytes) -> int:
        """The disk is full after ten bytes."""
        if b'"begin"' in data:
            return real(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fill)
    place.target.mkdir()
    for folder in ("copies 1", "copies 2"):
        (place.target / folder).mkdir()
    with pytest.raises(StorageError, match="no space is left there"):
        place.apply(plan)
    monkeypatch.undo()
    assert read_tree(place.videos) == before
    assert place.journal.stat().st_size == size
    assert place.apply(plan).files == {"move": 4}


def test_a_copy_that_is_not_what_was_read_is_not_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(place.videos, groups=1, copies=1)
    before = read_tree(place.videos)
    across(monkeypatch)
    real = os.write

    def damage(file: int, data: bytes) -> int:
        return real(file, data.replace(b"film", b"flim"))

    monkeypatch.setattr(os, "write", damage)
    report = place.apply(plan)
    assert [one.kind for one in report.left] == ["changed"]
    assert read_tree(place.videos) == before
    assert not read_tree(place.target)


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_leaves_every_file_where_the_journal_says(
    place: Place, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    count = 0
    real = sync_folder

    def interrupt(folder: Any) -> None:
        nonlocal count
        count += 1
        real(folder)
        if count == 3:
            raise KeyboardInterrupt

    for name in ("steps", "files", "trash"):
        monkeypatch.setattr(f"hapvr.actions.{name}.sync_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        place.apply(plan, way)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(place.videos.parent / "home"))
    assert {state for _, state in read_steps(place.journal)} <= {"done", "failed"}
    report = place.apply(plan, way)
    assert report.done_before + report.files[way] == 4
    undo_journal(place.journal)
    assert read_tree(place.videos) == before


# --- going on and taking back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_same_plan_again_does_what_is_left(place: Place, way: Way) -> None:
    plan = make_plan(place.videos)
    absent = Path(plan.rows[1].path)
    data = absent.read_bytes()
    absent.unlink()
    assert place.apply(plan, way).files == {way: 3}
    write(absent, data)
    report = place.apply(plan, way)
    assert report.files == {way: 1}
    assert report.done_before == 3
    assert not report.left
    assert undo_journal(place.journal).files == {"undone": 4}
    assert place.apply(plan, way).files == {way: 4}  # and it can be done again
    assert undo_journal(place.journal).files == {"undone": 4}


def test_undo_overwrites_nothing(place: Place) -> None:
    plan = make_plan(place.videos)
    place.apply(plan)
    moved = [step.place() for step, _ in read_steps(place.journal)]
    write(Path(plan.acting[0].path), b"a new film")
    Path(moved[1]).write_bytes(b"edited in the other folder")
    Path(moved[2]).unlink()
    report = undo_journal(place.journal)
    assert report.files == {"undone": 1}
    assert {one.path: one.kind for one in report.left} == {moved[0]: "occupied", moved[1]: "changed", moved[2]: "gone"}
    assert Path(plan.acting[0].path).read_bytes() == b"a new film"
    assert Path(moved[1]).read_bytes() == b"edited in the other folder"
    Path(plan.acting[0].path).unlink()
    assert undo_journal(place.journal).files == {"undone": 1}  # when the place is free again


@pytest.mark.parametrize("way", ["hardlink", "symlink"])
def test_undo_of_links_leaves_what_is_no_longer_the_link(place: Place, way: Way) -> None:
    plan = make_plan(place.videos, groups=1, copies=2)
    place.apply(plan, way)
    replaced, removed = (Path(one.path) for one in plan.acting)
    replaced.unlink()
    replaced.write_bytes(b"a new film")
    removed.unlink()
    report = undo_journal(place.journal)
    assert [(one.path, one.kind) for one in report.left] == [(str(replaced), "occupied")]
    assert replaced.read_bytes() == b"a new film"
    assert removed.read_bytes() == Path(plan.rows[0].path).read_bytes()  # a link that was removed is a file again


def test_undo_of_a_link_whose_content_has_changed_says_so(place: Place) -> None:
    plan = make_plan(place.videos, groups=1, copies=1)
    place.apply(plan, "symlink")
    Path(plan.rows[0].path).write_bytes(b"cut again")
    (left,) = undo_journal(place.journal).left
    assert left.kind == "changed"
    assert "cannot be restored" in left.reason
    assert Path(plan.rows[1].path).is_symlink()


def test_a_folder_that_was_removed_is_made_again(place: Place) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    place.apply(plan)
    (place.videos / "copies 1").rmdir()
    undo_journal(place.journal)
    assert read_tree(place.videos) == before


def test_what_is_no_journal_is_refused(place: Place) -> None:
    plan = make_plan(place.videos)
    for data in (b"group,action\n", b"half", b'{"event": "done", "step": 1}\n', b'{"event": "journal", "format": 9}\n'):
        write(place.journal, data)
        with pytest.raises(StorageError, match="no journal"):
            undo_journal(place.journal)
        with pytest.raises(StorageError, match="no journal"):
            place.apply(plan)
        assert place.journal.read_bytes() == data
    with pytest.raises(StorageError, match="is not there"):
        undo_journal(place.journal.with_name("other"))


def test_half_a_line_counts_as_not_written(place: Place) -> None:
    plan = make_plan(place.videos)
    before = read_tree(place.videos)
    place.apply(plan)
    with place.journal.open("ab") as file:
        file.write(b'{"event": "undo", "st')
    assert undo_journal(place.journal).files == {"undone": 4}
    assert read_tree(place.videos) == before
    for line in place.journal.read_text().splitlines():
        json.loads(line)


def test_one_process_has_the_journal(place: Place) -> None:
    plan = make_plan(place.videos)
    with Journal(place.journal, create=True), pytest.raises(StorageError, match="in use"):
        place.apply(plan)


def test_a_preview_says_what_is_done_and_does_nothing(place: Place) -> None:
    plan = make_plan(place.videos)
    Path(plan.rows[1].path).unlink()
    before = read_tree(place.videos.parent)
    preview = preview_plan(plan, ApplyOptions("move", str(place.target)), place.journal)
    assert read_tree(place.videos.parent) == before
    report = place.apply(plan)
    assert [one.row.path for one in preview.chosen] == report.paths
    assert preview.size == report.bytes
    assert list(preview.left) == report.left
    assert preview.count() == {"move": (3, preview.size)}
    assert read_contents(place.videos) | read_contents(place.target) == {b"film 1" * 50, b"film 2" * 50}
