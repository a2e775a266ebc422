"""Five hundred files that were damaged at random: each is read, or refused in words; `benchmarks/fuzz.py` tries more.

No process but one that decodes a video may die of it, none takes longer than the deadline or more memory than it may,
and nothing is left behind.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from pathlib import Path

import pytest

from hapvr.video.sandboxed import end_decoders
from tests.fuzzing import KINDS, VIDEO, FuzzInput, make_corpus, make_input, read_input, run_inputs

COUNTS = {VIDEO: 340, "weights": 10, "features": 30, "config": 30, "pickle": 30, "annotations": 30, "packed": 30}


def count(kind: str, number: int, folder: Path, *, apart: bool) -> Counter[str]:
    """What became of so many inputs; read in other processes, or in this one."""
    end_decoders()  # of tests before
    corpus = make_corpus(folder / "corpus", [kind])
    inputs = folder / "inputs"
    inputs.mkdir()
    if not apart:
        given = [make_input(corpus, one, kind, inputs) for one in range(number)]
        results = [(one, read_input(None, one)) for one in given]  # type: ignore[arg-type]
        wrong = [(one.number, said) for one, said in results if said[0] not in ("read", "refused")]
        assert not wrong
        return Counter(said[0] for _, said in results)
    came = list(run_inputs(corpus, range(number), kind, inputs))
    assert not [one for one in came if one.is_wrong]
    assert os.listdir(inputs) == []
    assert not multiprocessing.active_children()
    return Counter(one.what for one in came)


def test_damaged_videos_are_read_in_part_or_refused(tmp_path: Path) -> None:
    """Of 17 kinds of container and codec; some always give pictures, whatever is wrong with them."""
    came = count(VIDEO, COUNTS[VIDEO], tmp_path, apart=True)
    assert came.total() == COUNTS[VIDEO]
    assert min(came["read"], came["refused"]) > 50


@pytest.mark.parametrize("kind", [kind for kind in COUNTS if kind != VIDEO])
def test_other_damaged_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    """Where a library in C could crash, in a process of its own."""
    came = count(kind, COUNTS[kind], tmp_path, apart=kind == "features")
    assert came["refused"] > 0


def test_damaged_plans_and_journals_are_refused_and_no_file_is_touched(tmp_path: Path) -> None:
    kept = tmp_path / "corpus" / "journal" / "move" / "videos" / "kept" / "1.mp4"
    assert count("journal", 30, tmp_path, apart=False)["refused"] > 0
    assert kept.is_file()
    assert count("plan", 20, tmp_path / "other", apart=False)["refused"] > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (VIDEO, "library")])
def test_what_is_not_damaged_is_read(kind: str, tmp_path: Path) -> None:
    """Otherwise nothing would be reached by the damage."""
    for name, files in make_corpus(tmp_path / "corpus", [kind])[kind].items():
        place = tmp_path / name
        for file, data in files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(data)
        path = place if kind in ("weights", "packed") else place / sorted(files)[0]
        assert read_input(None, FuzzInput(0, kind, name, str(path))) == ("read", "")  # type: ignore[arg-type]
