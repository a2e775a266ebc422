"""The same videos give the same library, however they were added."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.features.engine import find_openvino
from hapvr.library import Library
from hapvr.matching import Match, compare
from hapvr.model import load
from hapvr.synthetic.clip import Clip
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
        keys, vectors = library.store.candidates.read_all()
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


def test_a_comparison_is_the_same_by_any_engine_and_number_of_threads(films: list[Path], tmp_path: Path) -> None:
    """Bit by bit in the next run; by another engine or number of threads, within what docs/reliability.md states."""
    scene = draw_scene(1, seconds=5, fps=8, size=(64, 96))
    write_clip(Clip(scene.images[8:32, :, ::-1].copy(), scene.fps), tmp_path / "part.mp4")
    by_torch, other = load("lite", engine="torch"), load("lite", engine="openvino" if find_openvino() else "torch")
    threads = torch.get_num_threads()
    found: list[Match] = []
    try:
        for model, count in ((other, 1), (by_torch, 1), (by_torch, 2), (by_torch, 2)):
            torch.set_num_threads(count)
            found.append(compare(tmp_path / "part.mp4", films[1], model=model, second_look=False))
    finally:
        torch.set_num_threads(threads)
    first, *_, last, again = found
    assert first.verdict.match
    assert again.to_json() == last.to_json()
    assert np.array_equal(again.matrix, last.matrix)
    for one in found:
        assert one.score == pytest.approx(first.score, abs=0.005)
        assert one.probability == pytest.approx(first.probability, abs=0.005)
        assert np.abs(one.matrix - first.matrix).max() < 0.02
        assert [(part.query, part.target) for part in one.segments] == [
            (part.query, part.target) for part in first.segments
        ]
