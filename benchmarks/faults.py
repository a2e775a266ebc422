"""Writers that are killed at random moments: nothing that was acknowledged is lost, and the next one ends the work.

    python benchmarks/faults.py [--count 300] [--do add,compact,...] [--seed 0] [--json OUT]

Each time, a small library (or run, or plan) is copied, a process begins to change it and is killed by SIGKILL after a
time drawn between nothing and a little more than the whole takes; then everything is read and compared. Every fifth
time the same is done again to its end, and the result compared with what an undisturbed process makes. Videos are
small texts whose features are drawn (`tests/library/toy.py`): the decoder and the backbone have no part in this.
`apply` and `undo` move, trash and link twelve small files, also where there are no hard links; each is done again, or
taken back, to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`

import numpy as np
import torch
from tests.actions.test_kills import CASES, Case, Killer
from tests.library import toy
from tests.library.test_crashes import Nursery, acknowledged

from hapvr.library import Library
from hapvr.library.opening import read_calibration
from measure import machine

torch.set_num_threads(1)  # processes are forked
LIBRARY = ("add", "compact", "remove", "rebuild", "calibrate", "import")
FORKED = ("train", "evaluate")  # before the others: these run in copies of this process
ACTIONS = ("apply", "undo")
_OLD, _ALL = 40, 60  # videos that are there, and those that are there when all is done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--do", default=",".join((*FORKED, *LIBRARY, *ACTIONS)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="lancedb fork support")  # nothing of it runs before the forks
    print(machine())
    chosen, figures = arguments.do.split(","), {}
    print(f"{'':12}{'runs':>7}{'killed':>8}{'finished':>10}{'whole takes':>13}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hapvr-faults-") as folder:
        for name in [name for name in (*FORKED, *LIBRARY, *ACTIONS) if name in chosen]:
            place, draw = Path(folder, name), random.Random(f"{arguments.seed} {name}")
            place.mkdir()
            kill = kill_forked if name in FORKED else kill_action if name in ACTIONS else kill_writer
            found = kill(name, arguments.count, place, draw)
            figures[name] = found
            print(
                f"{name:12}{found['runs']:7}{found['killed']:8}{found['finished']:10}{found['whole_s']:11.2f} s",
                flush=True,
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")


# --- libraries -------------------------------------------------------------------------------------------------------


def kill_writer(do: str, count: int, place: Path, draw: random.Random) -> dict[str, Any]:
    """Kill a writer of a library so often; `AssertionError` if anything is lost or wrong."""
    toy.install(toy.Forever)
    ids = _make_library(place, do)
    nursery = Nursery()
    copy, out = place / "copy", place / "out"
    request: dict[str, Any] = {"library": str(copy), "folder": str(place / "videos"), "out": str(out), "fragments": 8}
    request |= {"import": {"folder": str(place / "features.h5")}, "rebuild": {"model": "other"}}.get(do, {})
    request |= {"do": do, "ids": ids[::2] if do == "remove" else None, "compact": do == "compact"}

    def run(batch: int, seconds: float) -> bool:
        return nursery.run(**request, batch=batch, seconds=seconds)

    whole_s, killed, finished = 0.0, 0, 0
    for number in range(-1, count + 1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place / "library", copy)
        out.unlink(missing_ok=True)
        batch = draw.choice((1, 2, 5))
        if number <= 0:  # undisturbed; what comes first has to load more
            started = time.monotonic()
            assert not run(2, 120.0), "it takes longer than two minutes"
            whole_s = time.monotonic() - started
            _check(do, copy, ids, acknowledged(out), ended=True)
            continue
        killed += run(batch, draw.uniform(0.005, whole_s * 1.1))
        _check(do, copy, ids, acknowledged(out), ended=False)
        if number % 5 == 0:
            if "done" not in acknowledged(out):
                if do == "remove":  # those that are left
                    with Library.open(copy) as library:
                        request["ids"] = sorted({record.id for record in library.videos()}.intersection(ids[::2]))
                assert not run(batch, 300.0)
                request["ids"] = ids[::2] if do == "remove" else None
            _check(do, copy, ids, acknowledged(out), ended=True)
            finished += 1
    nursery.close()
    return {"runs": count, "killed": killed, "finished": finished, "whole_s": whole_s}


def _make_library(place: Path, do: str) -> list[str]:
    """A library and its videos; the ids of those that are in it."""
    videos = place / "videos"
    for seed in range(_ALL):
        toy.write(videos, f"{seed}.mp4", seed, 1 + seed % 4)
    library = toy.make(place / "library")
    if do == "import":
        with toy.make(place / "other") as other:
            other.add([videos])
            other.export(place / "features.h5")
        return []
    library.add([videos / f"{seed}.mp4" for seed in range(_OLD if do == "add" else _ALL)])
    if do == "calibrate":
        from hapvr.library import opening

        with library.write_access("a benchmark") as store:
            opening.save_calibration(store, toy.calibration(0))
    ids = [record.id for record in library.videos()]
    library.close()
    return ids


def _check(do: str, path: Path, ids: list[str], said: list[Any], *, ended: bool) -> None:
    """Whether a library is whole, and holds what it must."""
    assert not any(isinstance(line, dict) for line in said), said
    with Library.open(path) as library:
        toy.check(library)  # every record has its content, which is that of its file
        held = {record.id for record in library.videos()}
        names = {os.path.basename(record.path) for record in library.videos()}
        if do == "remove":
            assert set(ids[1::2]) <= held <= set(ids)
            assert not ended or held == set(ids[1::2])
        else:
            assert set(ids) <= held, "a video is lost"
            assert {name for line in said if isinstance(line, list) for name in line} <= names, "it was acknowledged"
            assert not ended or len(held) == _ALL
        if do == "calibrate":
            kept: Any = read_calibration(library.store)
            slopes = [toy.calibration(seed).slope for seed in (0, 1, 2, 5)]
            assert kept.slope in slopes, "a calibration that nobody wrote"
            assert not ended or kept.slope != slopes[0]
        if do == "rebuild":
            assert library.info().model in ("toy", "other")
            assert not ended or library.info().model == "other"


# --- files -----------------------------------------------------------------------------------------------------------


def kill_action(do: str, count: int, place: Path, draw: random.Random) -> dict[str, Any]:
    """Kill `apply` or `undo` so often, of each way in turn; `AssertionError` if a file is lost or is nowhere named."""
    home = place / "home"
    home.mkdir()
    killer = Killer(home)
    whole_s: dict[tuple[str, str], float] = {}
    killed = 0
    for number in range(-len(CASES), count):
        way, system = kind = CASES[number % len(CASES)]
        case = Case(place / "case", killer, home, way, system, groups=12)
        assert do == "apply" or not case.run("apply")
        started = time.monotonic()
        if number < 0:  # undisturbed
            assert not case.run(do)
            whole_s[kind] = time.monotonic() - started
        else:
            killed += case.run(do, seconds=draw.uniform(0.0, whole_s[kind] * 1.1))
        case.check()
        then = draw.choice(ACTIONS)
        assert not case.run(then)
        case.check_done() if then == "apply" else case.check_undone()
    killer.close()
    return {"runs": count, "killed": killed, "finished": count, "whole_s": max(whole_s.values())}


# --- training and evaluation -----------------------------------------------------------------------------------------


def kill_forked(do: str, count: int, place: Path, draw: random.Random) -> dict[str, Any]:
    """Kill copies of this process in their work; each is done again to its end, and gives what it gives undisturbed."""
    work = {"train": _train, "evaluate": _prepare_evaluation(place) if do == "evaluate" else None}[do]
    assert work is not None
    expected = work(place / "first")  # which loads what it needs
    started = time.monotonic()
    assert work(place / "whole") == expected
    whole_s, killed = time.monotonic() - started, 0
    for number in range(count):
        folder = place / str(number)
        killed += _kill_after(draw.uniform(0.001, whole_s * 1.1), lambda: work(folder))  # noqa: B023 - called now
        assert work(folder) == expected, "another result"
        left = [path.name for path in folder.rglob("*") if path.name.startswith((".", "~")) or ".tmp" in path.name]
        assert not left, f"left behind: {left}"
        shutil.rmtree(folder)
    return {"runs": count, "killed": killed, "finished": count, "whole_s": whole_s}


def _kill_after(seconds: float, work: Callable[[], Any]) -> bool:
    """Whether the work was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _train(folder: Path) -> bytes:
    """The weights after a run of six steps with three checkpoints, which goes on where it was."""
    from tests.training.test_trainer import run, settings, weights

    model, _ = run(settings(folder))
    return bytes(weights(model).numpy().tobytes())


def _prepare_evaluation(place: Path) -> Callable[[Path], bytes]:
    """What evaluates a toy network on drawn features, by chunks that are kept, and saves the scores."""
    from hapvr import evaluate
    from hapvr.evaluation import read_scores
    from hapvr.features import Features, FeatureWriter
    from hapvr.similarity import SimilarityConfig, VideoSimilarity

    torch.manual_seed(0)
    network = VideoSimilarity(SimilarityConfig(dims=16)).save_pretrained(place / "network")
    draw = np.random.default_rng(0)
    names = [f"v{number}" for number in range(60)]
    with FeatureWriter(place / "features.h5", sync=False) as writer:
        for name in names:
            values = torch.nn.functional.normalize(torch.from_numpy(draw.standard_normal((9, 3, 16))).float(), dim=-1)
            writer.add(name, Features(values, np.arange(9.0)))
    rows = [
        f"{query},{name},{'copy' if query[1:] == name[2:] else 'none'}" for query in names[:6] for name in names[6:]
    ]
    (place / "truth.csv").write_text("query,target,label\n" + "\n".join(rows) + "\n")

    def work(folder: Path) -> bytes:
        folder.mkdir(exist_ok=True)
        scores = folder / "scores.npz"
        if scores.exists():
            read_scores(scores)  # whole, if it is there
        evaluate(place / "truth.csv", model=network, features=place / "features.h5", work_folder=folder / "chunks",
                 save_scores=scores, device="cpu")  # fmt: skip
        return bytes(read_scores(scores).values.tobytes())

    return work


if __name__ == "__main__":
    main()
