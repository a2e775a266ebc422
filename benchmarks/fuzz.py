"""Damaged files of every kind that hapvr reads, and what becomes of reading them; see `tests/fuzzing.py`.

    python benchmarks/fuzz.py [--count 20000] [--kinds video,weights,...] [--state FILE] [--workers 2]

Two of three inputs are videos (17 kinds of container and codec). Which file is damaged and how follows from the input's
kind and number, which are printed for each that went wrong: `--only KIND:NUMBER` reads that one alone. With `--state` a
run that was ended goes on where it was. It ends with the memory of the largest process, and with what was left behind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # of the processes that read

from tests.fuzzing import KINDS, VIDEO, FuzzResult, make_corpus, run_inputs

from measure import machine

OUTCOMES = ("read", "refused", "untyped", "memory", "died", "late")
_STEP = 500  # inputs of a kind at a time
_RARE = {"library": 20, "weights": 2}  # slow ones are this many times as rare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--state", type=Path, help="go on from here, and write how far it came")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="KIND:NUMBER of one input")
    arguments = parser.parse_args()
    print(machine())
    kinds = [arguments.only.partition(":")[0]] if arguments.only else arguments.kinds.split(",")
    counts = read_counts(arguments.state)
    with tempfile.TemporaryDirectory(prefix="hapvr-fuzz-") as folder:
        place = Path(folder)
        os.environ["TMPDIR"] = str(place / "tmp")  # of the processes that read
        (place / "tmp").mkdir()
        corpus = make_corpus(place / "corpus", kinds)
        (place / "inputs").mkdir()
        if arguments.only:
            number = int(arguments.only.partition(":")[2])
            for result in run_inputs(corpus, [number], kinds[0], place / "inputs", workers=1):
                print(result.what, result.detail)
            return
        goals = share(arguments.count, kinds)
        while todo := [kind for kind in kinds if sum(counts[kind].values()) < goals[kind]]:
            for kind in todo:
                done = sum(counts[kind].values())
                numbers = range(done, min(done + max(1, _STEP // _RARE.get(kind, 1)), goals[kind]))
                for result in run_inputs(corpus, numbers, kind, place / "inputs", workers=arguments.workers):
                    counts[kind][result.what] += 1
                    tell(result)
                if arguments.state is not None:
                    arguments.state.write_text(json.dumps(counts))
        left = [str(path) for part in ("inputs", "tmp") for path in (place / part).rglob("*")]
    print_table(counts)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    print(f"largest process {peak:,.0f} MB; files left: {left or 'none'}; ", end="")
    print(f"processes left: {multiprocessing.active_children() or 'none'}")


def share(count: int, kinds: list[str]) -> dict[str, int]:
    """How many inputs of each kind: two thirds are videos, if there are other kinds."""
    weights = {kind: 1 / _RARE.get(kind, 1) for kind in kinds if kind != VIDEO}
    videos = count * 2 // 3 if weights and VIDEO in kinds else count if VIDEO in kinds else 0
    rest = {kind: round((count - videos) * weight / sum(weights.values())) for kind, weight in weights.items()}
    return rest | ({VIDEO: count - sum(rest.values())} if VIDEO in kinds else {})


def read_counts(state: Path | None) -> dict[str, Counter[str]]:
    saved = json.loads(state.read_text()) if state is not None and state.exists() else {}
    return {kind: Counter(saved.get(kind, {})) for kind in KINDS}


def tell(result: FuzzResult) -> None:
    if result.is_wrong or result.what == "died":
        given = result.given
        print(f"{result.what}: {given.kind}:{given.number} ({given.name}): {result.detail.strip()[-1500:]}", flush=True)


def print_table(counts: dict[str, Counter[str]]) -> None:
    print(time.strftime("%Y-%m-%d"), f"\n{'':14}{'inputs':>8}" + "".join(f"{name:>9}" for name in OUTCOMES))
    for kind, counted in counts.items():
        print(f"{kind:14}{sum(counted.values()):8}" + "".join(f"{counted[one]:9}" for one in OUTCOMES))
    print(f"{'all':14}{sum(sum(counted.values()) for counted in counts.values()):8}")


if __name__ == "__main__":
    main()
