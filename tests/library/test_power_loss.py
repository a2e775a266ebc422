"""The power fails: of all that was written, what was synced is on the disk. Nothing acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hapvr.library import Library, check_library, repair_library
from tests.library import toy
from tests.library.toy import toys  # noqa: F401

pytestmark = [
    pytest.mark.usefixtures("toys"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="files are looked at by their descriptors"),
]
_EVERY = int(os.environ.get("HAPVR_TEST_SYNCS", "60"))  # of so many syncs one is looked at more closely


class Disk:
    """What is on the disk below a folder, for certain: files as they were when they were last synced, and names that
    lay in a folder when it was last synced.

    All that is synced is synced through `os.fsync`: LanceDB syncs nothing itself, as strace shows.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._held: list[int] = []  # descriptors, so that no number of a file is given to another
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self.before_sync: Callable[[], None] | None = None
        plain = os.fsync

        def sync(descriptor: int) -> None:
            plain(descriptor)
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(root)):
                if self.before_sync is not None:
                    self.before_sync()
                self._note(descriptor)

        monkeypatch.setattr(os, "fsync", sync)

    def _note(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        place = f"/proc/self/fd/{descriptor}"
        if stat.S_ISDIR(found.st_mode):
            names = {}
            for entry in os.scandir(place):
                self._held.append(os.open(entry.path, os.O_RDONLY))
                names[entry.name] = entry.inode()
            self._folders[found.st_ino] = names
        else:
            self._files[found.st_ino] = Path(place).read_bytes()

    def restore(self, target: Path, *, empty: bool) -> None:
        """What is found after the power is back; with `empty`, names have reached the disk and contents have not."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self._restore(self._root, target, os.stat(self._root).st_ino, empty)

    def _restore(self, here: Path, target: Path, folder: int, empty: bool) -> None:
        names = dict(self._folders.get(folder, {}))
        if empty and here.is_dir():
            names |= {entry.name: entry.inode() for entry in os.scandir(here)}
        for name, number in names.items():
            if number in self._folders or (here / name).is_dir():
                (target / name).mkdir()
                self._restore(here / name, target / name, number, empty)
            else:
                (target / name).write_bytes(self._files.get(number, b""))


def find_videos(path: Path) -> dict[str, str]:
    """The videos of a library that can be read, with what they hold; it is repaired first if it must be."""
    if not check_library(path).intact:
        assert repair_library(path).intact
    with Library.open(path) as library:
        toy.check_whole(library)
        catalog, contents = library.store.catalog(), toy.contents(library)
        return {
            os.path.basename(os.fsdecode(catalog.paths[row])): str(one.regions.sum()) for row, one in contents.items()
        }


@pytest.mark.parametrize("empty", [False, True])
def test_nothing_acknowledged_is_lost_when_the_power_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    root, after, videos = tmp_path / "disk", tmp_path / "after", tmp_path / "videos"
    root.mkdir()
    disk = Disk(root, monkeypatch)
    library = toy.make(root / "library")
    acknowledged: dict[str, str] = {}
    going: set[str] = set()  # that may be there or not
    count = 0

    def restore() -> dict[str, str]:
        disk.restore(after, empty=empty)
        return find_videos(after / "library")

    def fail_now() -> None:
        """The power fails while something is written."""
        nonlocal count
        count += 1
        if count % _EVERY == 0:
            found = restore()
            assert {name: found.get(name) for name in acknowledged} | going_of(found) == acknowledged | going_of(found)

    def going_of(found: dict[str, str]) -> dict[str, str]:
        return {name: found.get(name, "") for name in going}

    for number in range(3):
        for seed in range(3):
            toy.write(videos, f"{number}-{seed}.mp4", 10 * number + seed)
        library.add([videos])
        found = restore()
        assert len(found) == 3 * (number + 1)
        assert acknowledged.items() <= found.items()
        acknowledged, disk.before_sync = found, fail_now
    going = {"0-1.mp4"}
    library.remove([record.id for record in library.videos() if record.path.endswith("0-1.mp4")])
    del acknowledged["0-1.mp4"]
    assert restore() == acknowledged
    library.compact()
    assert restore() == acknowledged
    assert count > 50, count
