"""Files that are damaged at random, of every kind that hapvr reads, and what became of reading them.

`make_corpus` makes a few sound files of each kind. `make_input` damages one of them: which, and how, follows from its
number alone. `run_inputs` reads inputs in sandboxed processes and says of each what came: "read", "refused" (an error
of `hapvr.errors`), "untyped" (any other error), "memory" (more than the limit), "died" (the process crashed) or "late"
(it was ended at the deadline). Only the first two are right; a decoder of videos may die, as it is never run anywhere
else.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hapvr.errors import HapvrError
from hapvr.workers.pool import TaskContext, TaskResult, WorkerPool
from hapvr.workers.sandbox import Sandbox
from tests.video import media

What = Literal["read", "refused", "untyped", "memory", "died", "late"]
Files = dict[str, bytes]  # below a folder; or one file
DEADLINE_S, MEMORY = 30.0, 4 * 2**30
VIDEO = "video"
_VIDEOS: list[tuple[str, str, dict[str, Any]]] = [
    ("mp4-h264", "a.mp4", {}),
    ("mp4-hevc", "a.mp4", {"codec": "libx265"}),
    ("mp4-av1", "a.mp4", {"codec": "libsvtav1"}),
    ("mkv-vp9", "a.mkv", {"codec": "libvpx-vp9"}),
    ("mkv-ffv1", "a.mkv", {"codec": "ffv1"}),
    ("webm-vp8", "a.webm", {"codec": "libvpx"}),
    ("mov-prores", "a.mov", {"codec": "prores_ks", "pixels": "yuv422p10le"}),
    ("mov-animation", "a.mov", {"codec": "qtrle", "pixels": "rgb24"}),
    ("avi-mpeg4", "a.avi", {"codec": "mpeg4"}),
    ("avi-mjpeg", "a.avi", {"codec": "mjpeg", "pixels": "yuvj420p"}),
    ("ts-h264", "a.ts", {"container": "mpegts"}),
    ("ts-mpeg2", "a.ts", {"container": "mpegts", "codec": "mpeg2video"}),
    ("flv-sorenson", "a.flv", {"codec": "flv"}),
    ("asf-wmv2", "a.wmv", {"codec": "wmv2", "container": "asf"}),
    ("gif", "a.gif", {"codec": "gif", "pixels": "rgb8"}),
]
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 20, 1 << 28)


@dataclass(frozen=True)
class FuzzInput:
    """A damaged file or folder."""

    number: int
    kind: str
    name: str  # of the sound one
    path: str


@dataclass(frozen=True)
class FuzzResult:
    """What became of an input."""

    given: FuzzInput
    what: What
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it should not be."""
        return self.what not in ("read", "refused") and not (self.what == "died" and self.given.kind == VIDEO)


# --- sound files -----------------------------------------------------------------------------------------------------


def make_corpus(folder: Path, kinds: Iterable[str]) -> dict[str, dict[str, Files]]:
    """The files of each kind, by name."""
    corpus = {}
    for kind in kinds:
        place = folder / kind
        place.mkdir(parents=True)
        corpus[kind] = _MAKERS[kind](place)
    return corpus


@contextmanager
def _keep_scheduling() -> Iterator[None]:
    """SVT-AV1, run by root, gives the thread that encodes a real-time priority: no other process would get a core."""
    if sys.platform != "linux":
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _make_videos(folder: Path) -> dict[str, Files]:
    pictures = [media.barcode(index, (48, 32)) for index in range(12)]
    found: dict[str, Files] = {}
    for name, file, options in _VIDEOS:
        size = (160, 96) if name in ("mp4-av1", "mp4-hevc") else (48, 32)
        drawn = pictures if size == (48, 32) else [media.barcode(index, size) for index in range(8)]
        with _keep_scheduling():
            path = media.write(folder / f"{name}-{file}", drawn, rate=4, **options)
        found[name] = {path.name: path.read_bytes()}
    from PIL import Image

    first, *rest = map(Image.fromarray, pictures)
    first.save(folder / "a.webp", save_all=True, append_images=rest, duration=100)
    found["webp"] = {"a.webp": (folder / "a.webp").read_bytes()}
    sound = media.write_sound(folder / "a.m4a")
    found["m4a-aac"] = {sound.name: sound.read_bytes()}
    return found


def _make_weights(folder: Path) -> dict[str, Files]:
    from hapvr import weights
    from hapvr.model import DEFAULT
    from hapvr.model.parts import SHIPPED
    from hapvr.similarity import SimilarityConfig, VideoSimilarity

    VideoSimilarity(SimilarityConfig(dims=4)).save_pretrained(folder / "network")
    parts = weights.load_parts(folder / "network")
    shipped = {name: weights.Part(config, {}) for name in ("judge", "segments", "sampling")
               if (config := weights.read_part_config(SHIPPED / DEFAULT, name)) is not None}  # fmt: skip
    weights.save_parts(folder / "whole", parts | shipped)
    return {"model": read_folder(folder / "whole")}


def _make_features(folder: Path) -> dict[str, Files]:
    import torch

    from hapvr.features import Features, FeatureWriter
    from hapvr.features.journal import journal_of

    values = np.random.default_rng(0).standard_normal((9, 3, 8)).astype(np.float32)
    found = {}
    for name, compression in (("gzip", "gzip"), ("plain", None)):
        path = folder / f"{name}.h5"
        with FeatureWriter(path, compression=compression, sync=False, attributes={"model": "lite"}) as writer:  # type: ignore[arg-type]
            for id in ("one", "a/two"):
                writer.add(id, Features(torch.from_numpy(values), np.arange(9.0)))
        found[name] = {"a.h5": path.read_bytes()}
    # What a killed writer leaves: a journal.
    path = folder / "killed.h5"
    with FeatureWriter(path, sync=True) as writer:
        writer.add("one", Features(torch.from_numpy(values), np.arange(9.0)))
        journal = journal_of(path).read_bytes()
        found["journal"] = {"a.h5": path.read_bytes(), journal_of(Path("a.h5")).name: journal}
    return found


def _make_configs(folder: Path) -> dict[str, Files]:
    from hapvr.training.recipe_files import RECIPES

    del folder
    return {path.stem: {"a.toml": path.read_bytes()} for path in sorted(RECIPES.glob("*.toml"))}


def _make_pickles(folder: Path) -> dict[str, Files]:
    del folder
    content: dict[str, Any] = {"queries": [f"q{number}" for number in range(9)], "q1": {"ND": ["a"], "DS": set("abc")}}
    content |= {"numbers": [1, 2.5, -7, 2**40], "text": "ü" * 40, "bytes": b"abc" * 9, "none": (None, True)}
    return {f"protocol {number}": {"a.pickle": pickle.dumps(content, number)} for number in range(5)}


def _make_annotations(folder: Path) -> dict[str, Files]:
    from hapvr.evaluation import Scores, write_scores
    from hapvr.evaluation.benchmarks.benchmark import write_benchmark
    from hapvr.evaluation.benchmarks.ground_truth import read_csv

    table = "query,target,label\nq1,a,copy\nq1,b,none\nq2,a,none\nq2,b,copy\n"
    (folder / "a.csv").write_text(table)
    write_benchmark(read_csv(folder / "a.csv", positives=["copy"]), folder / "benchmark.json")
    scores = Scores(("q1", "q2"), ("a", "b", "c"), np.random.default_rng(0).random((2, 3)).astype(np.float32))
    for name in ("scores.npz", "scores.json"):
        write_scores(scores, folder / name)
    return {path.name: {path.name: path.read_bytes()} for path in sorted(folder.iterdir())}


def _make_packed(folder: Path) -> dict[str, Files]:
    from hapvr.video.packed_writer import PackedWriter

    with PackedWriter(folder, workers=1) as writer:
        for number in range(2):
            writer.add(f"v{number}", np.stack([media.barcode(index, (48, 32)) for index in range(4)]), np.arange(4.0))
    return {"packed": read_folder(folder)}


def _make_plans(folder: Path) -> dict[str, Files]:
    from hapvr.actions import write_plan
    from tests.actions.files import make_plan

    write_plan(make_plan(folder / "videos"), folder / "plan.csv")
    return {"plan": {"plan.csv": (folder / "plan.csv").read_bytes()}}


def _make_journals(folder: Path) -> dict[str, Files]:
    from hapvr.actions import ApplyOptions, apply_plan
    from tests.actions.files import make_plan

    found = {}
    for way in ("move", "hardlink"):
        plan = make_plan(folder / way / "videos")
        apply_plan(plan, ApplyOptions(way, str(folder / way / "moved")), folder / way / "journal")
        found[way] = {"journal": (folder / way / "journal").read_bytes()}
    return found


def _make_libraries(folder: Path) -> dict[str, Files]:
    from tests.library.damage import make_library

    return {"library": read_folder(make_library(folder / "library"))}


def read_folder(folder: Path) -> Files:
    """The files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


_MAKERS: dict[str, Callable[[Path], dict[str, Files]]] = {
    VIDEO: _make_videos, "weights": _make_weights, "features": _make_features, "config": _make_configs,
    "pickle": _make_pickles, "annotations": _make_annotations, "packed": _make_packed, "plan": _make_plans,
    "journal": _make_journals, "library": _make_libraries,
}  # fmt: skip
KINDS = tuple(_MAKERS)


# --- damage ----------------------------------------------------------------------------------------------------------


def make_input(corpus: dict[str, dict[str, Files]], number: int, kind: str, folder: Path) -> FuzzInput:
    """Write the damaged files of a number into a folder of its own."""
    draw = random.Random(f"{kind} {number}")
    names = sorted(corpus[kind])
    name = names[number % len(names)]
    files = dict(corpus[kind][name])
    damaged = draw.choice(sorted(file for file in files if files[file]))
    other = corpus[kind][draw.choice(names)]
    files[damaged] = damage(files[damaged], draw, next(iter(other.values())))
    if kind == "weights" and draw.random() < 0.7:
        files = _renew_checksums(files)
    place = folder / f"{kind}-{number}"
    for file, data in files.items():
        path = place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    whole = kind in ("weights", "packed", "library")
    return FuzzInput(number, kind, name, str(place if whole else place / sorted(files)[0]))


def damage(data: bytes, draw: random.Random, other: bytes) -> bytes:
    """The bytes with one to four faults; half of them in the first 200 bytes, where headers are."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        reach = min(len(out), 200) if draw.random() < 0.5 else len(out)
        at = draw.randrange(max(reach, 1))
        length = min(draw.choice((1, 2, 8, 40, 300)), max(len(out) - at, 1))
        match draw.randrange(9):
            case 0:
                for _ in range(draw.choice((1, 3, 20))):
                    place = draw.randrange(max(reach, 1))
                    if place < len(out):
                        out[place] ^= 1 << draw.randrange(8)
            case 1:
                size = draw.choice((1, 2, 4, 8))
                order: Literal["big", "little"] = draw.choice(("big", "little"))
                value = draw.choice(_INTERESTING) & ((1 << 8 * size) - 1)
                out[at : at + size] = value.to_bytes(size, order)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + length]
            case 4:
                out[at:at] = out[at : at + length] * draw.choice((1, 1, 50))
            case 5:
                out[at:at] = draw.randbytes(length)
            case 6:
                out[at : at + length] = bytes(length)
            case 7:
                begin = draw.randrange(max(len(other), 1))
                out[at : at + length] = other[begin : begin + length]
            case _:
                _change_number(out, draw)
    return bytes(out)


def _change_number(out: bytearray, draw: random.Random) -> None:
    """Put another value in place of a number in a text."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(out[:20_000])))
    if found:
        start, end = draw.choice(found).span()
        out[start:end] = draw.choice((b"0", b"-1", b"1e400", b"NaN", b"9" * 30, b"null", b'""', b"[]", b"{}", b"true"))


def _renew_checksums(files: Files) -> Files:
    """As whoever made the file on purpose would: otherwise nothing behind the checksums is reached."""
    from hapvr import weights
    from hapvr.storage import crc32_json, sha256_bytes

    try:
        config = json.loads(files[weights.CONFIG])
        config["sha256"] = sha256_bytes(files[weights.TENSORS])
        config["parts_crc32"] = crc32_json(config["parts"])
        return files | {weights.CONFIG: json.dumps(config).encode()}
    except (ValueError, TypeError, KeyError):
        return files


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_video(path: str) -> None:
    from hapvr.audio.decoding import SoundReading, read_sound
    from hapvr.video.decode import decode
    from hapvr.video.limits import DecodeLimits

    limits = DecodeLimits(max_seconds=DEADLINE_S / 3, max_frames=500)
    try:
        decode(path, short_side=32, threads=1, limits=limits)
    finally:
        for part in read_sound(path, SoundReading(), limits=limits):
            if part.start_s > 300:
                break


def _read_weights(path: str) -> None:
    from hapvr.model import load_network, read_judge

    load_network(path)
    read_judge(path)


def _read_features(path: str) -> None:
    from hapvr.features import FeatureFile

    with FeatureFile.open(path) as file:
        file.attributes  # noqa: B018
        for id in file.ids:
            file[id]


def _read_config(path: str) -> None:
    from hapvr.training.recipe_files import load_stages

    load_stages(path)


def _read_pickle(path: str) -> None:
    from hapvr.evaluation import load_plain

    load_plain(path)


def _read_annotations(path: str) -> None:
    from hapvr.evaluation import read_scores
    from hapvr.evaluation.benchmarks.benchmark import read_benchmark
    from hapvr.evaluation.benchmarks.ground_truth import read_csv

    name = os.path.basename(path)
    if name == "a.csv":
        read_csv(path, positives=["copy"])
    elif name == "benchmark.json":
        read_benchmark(path)
    else:
        read_scores(path)


def _read_packed(path: str) -> None:
    from hapvr.video.packed_frames import PackedFrames

    for _ in PackedFrames.open(path, workers=1).load_all():
        pass


def _read_plan(path: str) -> None:
    from hapvr.actions import ApplyOptions, preview_plan, read_plan

    preview_plan(read_plan(path), ApplyOptions("hardlink"))


def _read_journal(path: str) -> None:
    from hapvr.actions import undo_journal

    undo_journal(path)


def _read_library(path: str) -> None:
    from tests.library.damage import answers

    for said in answers(Path(path)).values():
        if isinstance(said, HapvrError):
            raise said


_READERS: dict[str, Callable[[str], None]] = {
    VIDEO: _read_video, "weights": _read_weights, "features": _read_features, "config": _read_config,
    "pickle": _read_pickle, "annotations": _read_annotations, "packed": _read_packed, "plan": _read_plan,
    "journal": _read_journal, "library": _read_library,
}  # fmt: skip


def read_input(_: TaskContext, given: FuzzInput) -> tuple[What, str]:
    """The task of a process: read an input."""
    try:
        _READERS[given.kind](given.path)
    except HapvrError as error:
        return "refused", type(error).__name__
    except MemoryError:
        return "memory", traceback.format_exc()
    except Exception:
        return "untyped", traceback.format_exc()
    return "read", ""


def file_of_input(given: FuzzInput) -> str:
    return given.path


def run_inputs(
    corpus: dict[str, dict[str, Files]], numbers: Iterable[int], kind: str, folder: Path, *, workers: int = 2
) -> Iterator[FuzzResult]:
    """Make and read the inputs of these numbers; each is removed afterwards."""
    made: dict[str, FuzzInput] = {}

    def tasks() -> Iterator[tuple[str, FuzzInput]]:
        for number in numbers:
            one = make_input(corpus, number, kind, folder)
            made[one.path] = one
            yield one.path, one

    # A video is handed over open, as everywhere; what reads other files is no sandboxed process, but is not to hurt.
    own: dict[str, Any] = {"sandbox": Sandbox(max_memory_bytes=MEMORY), "file_of": file_of_input}
    if kind != VIDEO:
        place = (str(folder),)
        own = {"sandbox": Sandbox(place, place, max_memory_bytes=2 * MEMORY, max_file_bytes=2**28)}
    with WorkerPool(read_input, tasks(), workers=workers, block_bytes=8, timeout_s=DEADLINE_S, **own) as pool:
        while pool.busy:
            for event in pool.wait():
                if isinstance(event, TaskResult):
                    one = made.pop(str(event.key))
                    yield _judge(one, event)
                    shutil.rmtree(folder / f"{kind}-{one.number}")


def _judge(given: FuzzInput, event: TaskResult) -> FuzzResult:
    if event.error is None:
        return FuzzResult(given, *event.value)
    return FuzzResult(given, "late" if "SIGKILL" in event.error else "died", event.error)
