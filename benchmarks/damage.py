"""What damage at rest does to a library: bits flipped, files cut short, files deleted; one fault at a time.

    python benchmarks/damage.py [--flips 500] [--seed 0] [--json OUT]
    python benchmarks/damage.py --repair [--flips 500] [--seed 0] [--json OUT]

A small library with every kind of file (drawn features, an index, deleted rows, marks, a calibration) is asked for its
status, all features, searches with and without the index, and duplicates; then again with each fault. "told": a
`StorageError` that names the file or the video, and what to do. "same": all answers are bit-equal to those before.
"unnamed": an error that does not name it. "silent": other answers, without a word. "crash": any other exception.
About a second for each fault.

With `--repair`: what `hapvr check` finds and repairs, in a library of drawn features whose "videos" are there to be
read again. "harmless": the check finds nothing, and all answers are as before. "repaired": it finds the fault, and
after the repair all answers are as before. "with loss": something is gone, and the repair names it. "missed": the check
finds nothing, and answers differ. "wrong": other answers after the repair, and no word of it. "refused": it says that
it cannot be repaired. About two seconds for each fault.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`

from tests.library import toy
from tests.library.damage import (
    Fault,
    answers,
    damaged,
    few_vectors_are_indexed,
    files_of,
    make_library,
    make_toy_library,
    outcome,
    random_flips,
    toy_answers,
)

from hapvr.errors import HapvrError
from hapvr.library import check_library, repair_library
from measure import machine

OUTCOMES = ("told", "same", "unnamed", "silent", "crash")
REPAIRS = ("harmless", "repaired", "with loss", "missed", "wrong", "refused", "crash")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, help="cut and delete only this many files, drawn at random")
    parser.add_argument("--repair", action="store_true", help="measure `hapvr check` and its `--repair`")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="hapvr-damage-") as folder:
        if arguments.repair:
            toy.install(toy.Forever)
        library = make_toy_library(Path(folder)) if arguments.repair else make_library(Path(folder) / "library")
        files = files_of(library)
        if arguments.files is not None:
            files = random.Random(arguments.seed).sample(files, min(arguments.files, len(files)))
        sizes = {name: (library / name).stat().st_size for name in files}
        faults = {
            "flip a bit": list(random_flips(library, arguments.flips, arguments.seed)),
            "cut in half": [Fault(name, "cut", sizes[name] // 2) for name in files if sizes[name]],
            "cut by one byte": [Fault(name, "cut", sizes[name] - 1) for name in files if sizes[name]],
            "delete": [Fault(name, "delete") for name in files],
        }
        run, outcomes = (measure_repair, REPAIRS) if arguments.repair else (measure, OUTCOMES)
        print(f"{'':16}{'faults':>8}" + "".join(f"{name:>11}" for name in outcomes))
        figures = {}
        for name, some in faults.items():
            counted = figures[name] = run(library, some)
            row = "".join(f"{counted[one]:11}" for one in outcomes)
            print(f"{name:16}{sum(counted[one] for one in outcomes):8}{row}", flush=True)
            if arguments.repair:
                print(
                    f"{'':24}--quick finds {counted['quick']}; {counted['exact']} are put back bit by bit", flush=True
                )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")


def measure(library: Path, faults: Iterable[Fault]) -> Counter[str]:
    """How many faults had which outcome; those that should not be are printed."""
    before = answers(library)
    counted: Counter[str] = Counter()
    for fault in faults:
        came = outcome(library, fault, library.parent / "copy", before)
        counted[came.what] += 1
        if came.what not in ("told", "same"):
            print(f"{came.what}: {fault}: {came.detail[:200]}", flush=True)
    return counted


def measure_repair(library: Path, faults: Iterable[Fault]) -> Counter[str]:
    """How many faults the check found, and what the repair made of them."""
    before = toy_answers(library)
    counted: Counter[str] = Counter()
    for fault in faults:
        copy = damaged(library, fault, library.parent / "copy")
        try:
            what = _repair(copy, before, counted)
        except HapvrError as error:
            what, detail = "refused", str(error)
        except Exception as error:
            what, detail = "crash", f"{type(error).__name__}: {error}"
        else:
            detail = ""
        counted[what] += 1
        if what not in ("harmless", "repaired"):
            print(f"{what}: {fault} {detail[:200]}", flush=True)
        shutil.rmtree(copy)
    return counted


def _repair(copy: Path, before: object, counted: Counter[str]) -> str:
    found = check_library(copy)
    if found.intact:
        return "harmless" if toy_answers(copy) == before else "missed"
    counted["quick"] += not check_library(copy, quick=True).intact
    counted["exact"] += all(problem.repair == "exact" for problem in found.problems)
    with few_vectors_are_indexed(20):
        report = repair_library(copy)
    if not report.intact:
        return "wrong"
    if toy_answers(copy) == before and not report.lost:
        return "repaired"
    return "with loss" if report.lost else "wrong"


if __name__ == "__main__":
    main()
