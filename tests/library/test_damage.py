"""One bit flipped, one file cut short, one file gone: a library tells it, or answers as before."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hapvr.library.checksums import read_listing
from tests.library.damage import Fault, Kind, answers, files_of, make_library, outcome, random_flips

FLIPS = int(os.environ.get("HAPVR_TEST_FLIPS", "12"))
FILES = int(os.environ.get("HAPVR_TEST_FILES", "4"))  # that are cut short, and that are deleted


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_library(tmp_path_factory.mktemp("damage") / "library")


@pytest.fixture(scope="module")
def before(library: Path) -> dict[str, Any]:
    said = answers(library)
    assert not [name for name, answer in said.items() if isinstance(answer, Exception)]
    return said


def files_in_use(library: Path) -> list[str]:
    """Those that are listed, and the documents."""
    folder = Path("versions/0001")
    listing = read_listing(library / folder)
    assert listing is not None
    listed = [str(folder / f"{name}.lance" / file) for name, table in listing.tables.items() for file in table.files]
    return listed + [name for name in files_of(library) if name.endswith(".json") and "hint" not in name]


def test_a_flipped_bit_is_told_or_changes_nothing(library: Path, before: dict[str, Any], tmp_path: Path) -> None:
    in_use = files_in_use(library)
    flips = list(random_flips(library, FLIPS * 2 // 3, seed=1, files=in_use))
    flips += random_flips(library, FLIPS - len(flips), seed=2)
    counted: Counter[str] = Counter()
    for flip in flips:
        came = outcome(library, flip, tmp_path / "copy", before)
        assert came.what in ("told", "same"), came
        counted[came.what] += 1
        if flip.file in in_use and flip.file.endswith((".lance", ".manifest", ".arrow", ".idx")):
            assert came.what == "told" or "/regions.lance/data" in flip.file, came  # there rows are checked, not files
    assert counted["told"] >= FLIPS // 2


@pytest.mark.parametrize("kind", ["cut", "delete"])
def test_a_file_that_is_cut_short_or_gone_is_told_or_changes_nothing(
    kind: Kind, library: Path, before: dict[str, Any], tmp_path: Path
) -> None:
    draw = random.Random(3)
    in_use, files = files_in_use(library), files_of(library)
    chosen = draw.sample(in_use, min(FILES, len(in_use))) + draw.sample(files, min(FILES // 4, len(files)))
    for name in chosen:
        fault = Fault(name, kind, (library / name).stat().st_size // 2 if kind == "cut" else 0)
        came = outcome(library, fault, tmp_path / "copy", before)
        assert came.what == "told" if name in in_use else came.what in ("told", "same"), came
