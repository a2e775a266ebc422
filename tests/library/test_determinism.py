"""The same videos give the same library, however they were added."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.library import Library
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("films")
    for seed, seconds in enumerate((3, 5, 4)):
        write_clip(draw_scene(seed, seconds=seconds, fps=8, size=(64, 96)), folder / f"{seed}.mp4")
    return sorted(folder.iterdir())


def read_all(path: Path, added: list[list[Path]], *, workers: int) -> Any:
    """Everything in a library but what is documented to differ: when videos were added, and keys, which are times."""
    with Library.open(path, create=True) as library:
        for some in added:
            library.add(some, workers=workers)
        catalog = library.store.catalog()
        keys, vectors = library.store.vectors()
        said = []
        for row, record in enumerate(library.videos()):
            features = library.features(record.id)
            parts = (features.regions.numpy(), features.timestamps, features.low_information, features.miniatures)
            own = vectors[keys == catalog.keys[row]]
            plain = dataclasses.asdict(record) | {"added": None}
            said.append((plain, [None if part is None else np.asarray(part).tobytes() for part in (*parts, own)]))
        return said


def test_order_parts_and_processes_change_nothing(films: list[Path], tmp_path: Path) -> None:
    once = read_all(tmp_path / "once", [films], workers=1)
    parts = read_all(tmp_path / "parts", [films[2:], films[:1], films[1:]], workers=2)
    assert [record for record, _ in once] == [record for record, _ in parts]
    assert once == parts
