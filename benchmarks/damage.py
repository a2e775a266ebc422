"""What damage at rest does to a library: bits flipped, files cut short, files deleted; one fault at a time.

    python benchmarks/damage.py [--flips 500] [--seed 0] [--json OUT]

A small library with every kind of file (drawn features, an index, deleted rows, marks, a calibration) is asked for its
status, all features, searches with and without the index, and duplicates; then again with each fault. "told": a
`StorageError` that names the file or the video, and what to do. "same": all answers are bit-equal to those before.
"unnamed": an error that does not name it. "silent": other answers, without a word. "crash": any other exception.
About a second for each fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`

from tests.library.damage import Fault, answers, files_of, make_library, outcome, random_flips

from measure import machine

OUTCOMES = ("told", "same", "unnamed", "silent", "crash")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="hapvr-damage-") as folder:
        library = make_library(Path(folder) / "library")
        files = files_of(library)
        sizes = {name: (library / name).stat().st_size for name in files}
        faults = {
            "flip a bit": list(random_flips(library, arguments.flips, arguments.seed)),
            "cut in half": [Fault(name, "cut", sizes[name] // 2) for name in files if sizes[name]],
            "cut by one byte": [Fault(name, "cut", sizes[name] - 1) for name in files if sizes[name]],
            "delete": [Fault(name, "delete") for name in files],
        }
        figures = {name: measure(library, some) for name, some in faults.items()}
    print(f"{'':16}{'faults':>8}" + "".join(f"{name:>9}" for name in OUTCOMES))
    for name, counted in figures.items():
        print(f"{name:16}{sum(counted.values()):8}" + "".join(f"{counted[one]:9}" for one in OUTCOMES))
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


if __name__ == "__main__":
    main()
