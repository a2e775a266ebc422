"""One library of drawn films, made once with the shipped model, and a server of it in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hapvr.library import Library
from hapvr.server.app import create_app
from hapvr.server.settings import ServerSettings
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

from .driving import BASE, CheckedClient, Place


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with films, a library of them, and a clip of one."""
    folder = tmp_path_factory.mktemp("served")
    films = folder / "films"
    films.mkdir()
    scenes = [draw_scene(seed, seconds=4, fps=8, size=(96, 128)) for seed in range(3)]
    for seed, scene in enumerate(scenes):
        write_clip(scene, films / f"film {seed}.mp4")
    (films / "broken.mp4").write_bytes(b"this is no video")
    write_clip(Clip(scenes[1].images[8:28], scenes[1].fps), folder / "clip.mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([films], workers=1)
    return folder


@pytest.fixture(scope="session")
def place(made: Path) -> Iterator[Place]:
    """A server of the library; tests leave the library as it is."""
    settings = ServerSettings(roots=(made / "films",), max_upload_bytes=2 * 2**20, max_searches_at_once=1)
    app = create_app(made / "library", settings=settings)
    with CheckedClient(app, base_url=BASE) as client:
        yield Place(client, made)


def copy_made(made: Path, folder: Path) -> None:
    """Copy the films, the clip and the library, whose records then name the copies."""
    for name in ("films", "library", "clip.mp4"):
        copy = shutil.copytree if (made / name).is_dir() else shutil.copy2
        copy(made / name, folder / name)
    with Library.open(folder / "library") as library, library.write_access("tests") as store:
        catalog = store.catalog()
        records = catalog.records(catalog.rows())
        moved = [replace(one, path=str(folder / "films" / Path(one.path).name)) for one in records]
        store.put_records(list(zip(moved, catalog.keys.tolist(), strict=True)), moved=[one.id for one in records])


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Iterator[Place]:
    """A server of a copy, for tests that change it."""
    copy_made(made, tmp_path)
    settings = ServerSettings(
        roots=(tmp_path / "films",),
        max_searches_at_once=1,
        eager=False,
        allow_actions=True,
        move_to=tmp_path / "moved",
    )
    with CheckedClient(create_app(tmp_path / "library", settings=settings), base_url=BASE) as client:
        yield Place(client, tmp_path)
