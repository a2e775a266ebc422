"""A writer that is killed at any moment: the library opens and holds what was acknowledged; the next ends the job."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from hapvr.library import Library, versions
from hapvr.library.store import Store
from tests.library import toy
from tests.library.toy import toys  # noqa: F401

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")

KILLS = int(os.environ.get("HAPVR_TEST_KILLS", "30"))


class Nursery:
    """Writers that can be killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.library.toy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, **request: Any) -> bool:
        """Run a writer, `seconds` long at most; whether it was killed."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return self._line() == "killed"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


def acknowledged(out: Path) -> list[Any]:
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines]


@pytest.mark.usefixtures("toys")
def test_nothing_acknowledged_is_lost_however_often_the_writer_is_killed(nursery: Nursery, tmp_path: Path) -> None:
    draw = random.Random(5)
    folder, path = tmp_path / "videos", tmp_path / "library"
    library = toy.make(path)
    seed = 0
    for seed in range(40):
        toy.write(folder, f"{seed}.mp4", seed, 1 + seed % 4)
    held: dict[str, str] = {}  # what was acknowledged, and what it said
    interrupted = 0
    for kill in range(KILLS):
        for _ in range(10):  # new, changed, moved and removed ones
            seed += 1
            toy.write(folder, f"{seed}.mp4", seed, 1 + seed % 4)
        for name in draw.sample(sorted(os.listdir(folder)), 6):
            held.pop(name, None)
            chosen = draw.randrange(3)
            if chosen == 0:
                seed += 1
                toy.write(folder, name, seed, 2)
            elif chosen == 1:
                (folder / name).rename(folder / f"moved-{kill}-{name[-30:]}")
            else:
                (folder / name).unlink()
        out = tmp_path / f"{kill}.out"
        request = {"library": str(path), "folder": str(folder), "out": str(out)}
        batch, compact, seconds = draw.choice((1, 2, 5)), draw.random() < 0.3, draw.uniform(0.02, 0.7)
        interrupted += nursery.run(**request, batch=batch, fragments=8, compact=compact, seconds=seconds)
        said = acknowledged(out)
        assert not any(isinstance(line, dict) for line in said), said
        for name in (name for line in said if isinstance(line, list) for name in line):
            held[name] = (folder / name).read_text()
        with Library.open(path) as reader:
            toy.check_whole(reader)
            paths = reader.store.catalog().paths
            found = {os.path.basename(os.fsdecode(paths[row])): one for row, one in toy.contents(reader).items()}
            for name, text in held.items():
                torch.testing.assert_close(found[name].regions, toy.features_of(text).regions)
    assert interrupted > KILLS / 2
    library.add([folder], prune=True)
    files = [folder / name for name in os.listdir(folder)]
    toy.check(library, files)
    store = library.store
    named = set(store.catalog().keys.tolist())
    for name in ("regions", "frames"):  # nothing is left over
        assert set(store.table_set.list_keys(name).tolist()) == named
    report = library.add([folder])
    assert report.unchanged == len(files)


@pytest.mark.usefixtures("toys")
def test_a_rebuild_that_is_killed_goes_on_and_the_old_version_answers(nursery: Nursery, tmp_path: Path) -> None:
    draw = random.Random(6)
    folder, path = tmp_path / "videos", tmp_path / "library"
    files = [toy.write(folder, f"{seed}.mp4", seed, 1 + seed % 4) for seed in range(60)]
    library = toy.make(path)
    library.add([folder])
    ids = [record.id for record in library.videos()]
    request = {"library": str(path), "folder": str(folder), "out": str(tmp_path / "out")}
    done = 0
    for kill in range(40):
        if not nursery.run(**request, model="other", batch=2, seconds=draw.uniform(0.1, 0.5) if kill < 8 else 30):
            break
        library.refresh()
        if library.info().model == "other":  # it was killed between the change and its own end
            nursery.run(**request, model="other", batch=2, seconds=30)
            break
        assert library.info().model == "toy"
        toy.check(library, files)
        with Library.open(path) as reader:
            building = versions.unfinished_version(path)
            if building is not None:
                count = len(Store(versions.version_folder(path, building)).catalog())
                assert count >= done  # it goes on from where it was
                done = count
            assert reader.info().videos == 60
    library.refresh()
    assert library.info().model == "other"
    assert [record.id for record in library.videos()] == ids
    toy.check(library, files)
