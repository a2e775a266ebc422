"""Libraries that are damaged on purpose: one flipped bit, one file cut short, one file gone. What do they answer?

`make_library` makes a small library in which every kind of file that a library can have is there. `answers` asks it
everything, `damaged` makes a copy with one fault, `outcome` compares the two.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from hapvr.audio.description import SoundDescription
from hapvr.audio.fingerprints import Fingerprint
from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.library import Library, opening, table_set
from hapvr.library.candidates import count_votes, find_runs
from hapvr.library.marks import read_marks
from hapvr.library.results import VideoRecord
from hapvr.library.store import NewVideo
from hapvr.model import Model
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import fit_calibration
from hapvr.video.sampling import SamplingConfig
from tests.library.test_duplicates import NOW, drawn, noisy
from tests.library.toy import DIMS, make, write

Kind = Literal["flip", "cut", "delete"]
_FRAMES, _INDEX_FROM = 14, 60
_REMEDY = re.compile(r"Restore|Remove|again|Make it|write it", re.IGNORECASE)


# --- a library -------------------------------------------------------------------------------------------------------


def make_library(path: Path) -> Path:
    """A library of 11 videos: copies and others, flags and pixels, an index, deleted rows, marks and a calibration."""
    with few_vectors_are_indexed(), make(path) as library:
        films = [drawn(seed, _FRAMES) for seed in range(6)]
        with library.write_access("a test") as tables:
            for first in (0, 3):
                tables.write([_video(tables.new_key(), seed, films[seed]) for seed in range(first, first + 3)])
            tables.maintain()  # makes the index
            copies = [_video(tables.new_key(), 20 + seed, noisy(films[seed], 0.4, seed)) for seed in range(4)]
            same = dataclasses.replace(copies[0].record, id="copied", path="/films/copied.mp4")
            failed = _record(40, "failed", "it has no frames.")
            tables.write([*copies, NewVideo(same, copies[0].key), NewVideo(failed)])
            tables.write([_video(tables.new_key(), 30, films[3].flip(0)), _video(tables.new_key(), 31, drawn(31, 2))])
            tables.put_records(
                [(dataclasses.replace(copies[1].record, warnings=("Its sound is missing.",)), copies[1].key)]
            )
        library.remove(["video5", "video31"])
        library.mark_distinct("video2", "video22")
        generator = np.random.default_rng(0)
        fitted = fit_calibration(generator.normal(0.7, 0.1, 60).clip(-1, 1), generator.normal(0.1, 0.1, 400))
        with library.write_access("a test") as tables:
            opening.save_calibration(tables, fitted)
    return path


def make_toy_library(folder: Path) -> Path:
    """A library of 12 toy videos whose files are there, one of them a copy, and one that failed.

    It has an index, deleted rows, sounds, marks, a calibration and a folder. The toys must be installed.
    """
    videos, path = folder / "videos", folder / "library"
    with few_vectors_are_indexed(20), make(path) as library:
        for first in (0, 5, 10):
            for seed in range(first, first + 5):
                write(videos, f"{seed:02}.mp4", seed, 4 + seed % 3)
            library.add([videos])
        write(videos, "copy.mp4", 3, 4 + 3 % 3)
        (videos / "broken.mp4").write_text("no video")
        library.add([videos])
        ids = {Path(record.path).stem: record.id for record in library.videos()}
        removed = ("01", "06", "07", "12")
        library.remove([ids[name] for name in removed])
        for name in removed:
            (videos / f"{name}.mp4").unlink()
        library.mark_distinct(ids["02"], ids["04"])
        rng = np.random.default_rng(0)
        fitted = fit_calibration(rng.normal(0.7, 0.1, 60).clip(-1, 1), rng.normal(0.1, 0.1, 400))
        with library.write_access("a test") as tables:
            opening.save_calibration(tables, fitted)
            for keys in np.array_split(tables.catalog().contents, 2):
                peaks = Fingerprint(np.sort(rng.integers(0, 900, 40)), rng.integers(0, 256, 40))
                tables.sounds.put({int(key): SoundDescription("ready", peaks, 30.0) for key in keys})
    return path


def toy_answers(path: Path) -> Any:
    """What a library of toys says, whatever its keys are: records, features, nearest vectors and marks."""
    with few_vectors_are_indexed(20), Library.open(path) as library:
        catalog = library.store.catalog()
        records = [(one.id, one.path, one.state, one.content_hash, one.frames, one.error) for one in library.videos()]
        features = [library.features(one[0]).regions for one in records if one[2] == "ready"]
        found = [library.store.find_nearest(find_runs(one)[0], k=1, exact=True)[1] for one in features]
        nearest = [[catalog.ids[catalog.with_key(key)[0]] for key in keys.tolist()] for keys in found]
        marks, vectors = sorted(read_marks(path)), library.store.candidates.count()
        return records, [one.numpy().tobytes() for one in features], nearest, marks, vectors


@contextmanager
def few_vectors_are_indexed(count: int = _INDEX_FROM) -> Iterator[None]:
    """Within, `count` frame vectors are enough for an index."""
    before, table_set.INDEX_FROM = table_set.INDEX_FROM, count
    try:
        yield
    finally:
        table_set.INDEX_FROM = before


def _video(key: int, seed: int, regions: torch.Tensor) -> NewVideo:
    rng = np.random.default_rng(seed % 20)
    frames = len(regions)
    low = np.zeros(frames, np.bool_)
    low[seed % 5 :: 7] = True
    small = rng.integers(0, 256, (frames, 16, 16), dtype=np.uint8)
    return NewVideo(_record(seed, "ready", None), key, Features(regions, np.arange(frames) / 2 + 0.25, low, small))


def _record(seed: int, state: Any, error: str | None) -> VideoRecord:
    frames = _FRAMES if error is None else 0
    content_hash = f"{seed:040x}"
    return VideoRecord(
        f"video{seed}", f"/films/{seed}.mp4", 1000 + seed, 5, content_hash, frames / 2, frames, 64, 48, 800.0, state,
        error, NOW,
    )  # fmt: skip


def model() -> Model:
    torch.manual_seed(0)
    config = SimilarityConfig(dims=DIMS, weighting="none", comparator=False, min_frames=1, temporal="chamfer")
    extractor: Any = SimpleNamespace(device=torch.device("cpu"), sampling=SamplingConfig())
    return Model("drawn", extractor, VideoSimilarity(config).eval(), SegmentConfig())


# --- questions -------------------------------------------------------------------------------------------------------


def answers(path: Path) -> dict[str, Any]:
    """What a library says to everything that it can be asked, in plain values; a `StorageError` where it raised one.

    Any other exception is the caller's to see.
    """
    try:
        library = Library.open(path)
    except StorageError as error:
        return dict.fromkeys(_QUESTIONS, error)
    library._model = model()
    said: dict[str, Any] = {}
    with library:
        for name, question in _QUESTIONS.items():
            try:
                said[name] = question(library)
            except StorageError as error:
                said[name] = error
    return said


def _status(library: Library) -> Any:
    info = library.info().to_json()
    for name in ("path", "bytes", "bytes_per_minute", "writer"):
        del info[name]
    return info, [record.to_json() for record in library.videos()]


def _features(library: Library) -> Any:
    found = [(record.id, library.features(record.id)) for record in library.videos() if record.state != "failed"]
    return [
        (id, one.regions.numpy().tobytes(), _bytes(one.timestamps), _bytes(one.low_information), _bytes(one.miniatures))
        for id, one in found
    ]


def _bytes(values: Any) -> bytes | None:
    return None if values is None else values.tobytes()


def _search(library: Library, **options: Any) -> Any:
    query = Features(noisy(drawn(2, _FRAMES), 0.3, 7), np.arange(_FRAMES) / 2)
    return [
        (one.hits, one.database, one.scored)
        for one in (library.search(asked, **options) for asked in (query, "video1"))
    ]


def _by_vectors(library: Library) -> Any:
    vectors, weights = find_runs(drawn(3, _FRAMES))
    found, votes = count_votes(*library.store.find_nearest(vectors), weights.numpy())
    return found.tolist(), votes.tolist(), _search(library, k=3, max_compared=3)


def _by_index(library: Library) -> Any:
    with few_vectors_are_indexed():
        vectors, _ = find_runs(drawn(3, _FRAMES))
        near = [
            [part.tobytes() for part in library.store.find_nearest(vectors, k=40, exact=exact)]
            for exact in (False, True)
        ]
        return near, _by_vectors(library)


def _duplicates(library: Library) -> Any:
    report = library.find_duplicates().to_json()
    del report["seconds"]
    return report


_QUESTIONS: dict[str, Callable[[Library], Any]] = {
    "status": _status,
    "features": _features,
    "search": lambda library: _search(library, k=20, exact=True),
    "vectors": _by_vectors,
    "index": _by_index,
    "duplicates": _duplicates,
}


# --- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What happens to a file of a library."""

    file: str  # below the library
    kind: Kind
    at: int = 0  # the bit that is flipped, or how many bytes are left

    def __str__(self) -> str:
        return f"{self.kind} {self.file} {self.at}".rstrip()


@dataclass(frozen=True)
class Outcome:
    """What came of a fault: a clear error, the same answers, an error that names nothing, other answers, or a crash."""

    fault: Fault
    what: Literal["told", "same", "unnamed", "silent", "crash"]
    detail: str = ""


def files_of(path: Path) -> list[str]:
    """The files of a library, below it."""
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def random_flips(path: Path, count: int, seed: int, *, files: Sequence[str] | None = None) -> Iterator[Fault]:
    """Flipped bits: each file in turn, so that small ones are hit as often as large ones, at places drawn at random."""
    draw = random.Random(seed)
    files = [name for name in files or files_of(path) if (path / name).stat().st_size]
    draw.shuffle(files)
    for number in range(count):
        name = files[number % len(files)]
        yield Fault(name, "flip", draw.randrange(8 * (path / name).stat().st_size))


def damaged(path: Path, fault: Fault, copy: Path) -> Path:
    """A copy of a library with a fault."""
    shutil.copytree(path, copy, copy_function=os.link)
    file = copy / fault.file
    data = bytearray(file.read_bytes())
    file.unlink()  # the other is a link to it
    if fault.kind == "flip":
        data[fault.at // 8] ^= 1 << fault.at % 8
    elif fault.kind == "cut":
        data = data[: fault.at]
    if fault.kind != "delete":
        file.write_bytes(data)
    return copy


def outcome(path: Path, fault: Fault, copy: Path, before: dict[str, Any]) -> Outcome:
    """What came of a fault in a copy of a library, which is removed afterwards."""
    try:
        after = answers(damaged(path, fault, copy))
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return Outcome(fault, "crash", f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    errors = {name: said for name, said in after.items() if isinstance(said, StorageError)}
    if silent := [name for name in after if name not in errors and not _same(after[name], before[name])]:
        return Outcome(fault, "silent", ", ".join(silent))
    for name, raised in errors.items():
        if not _is_clear(str(raised), fault):
            return Outcome(fault, "unnamed", f"{name}: {raised}")
    return Outcome(fault, "told", str(next(iter(errors.values())))) if errors else Outcome(fault, "same")


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # bit by bit: repr tells every float64 from every other


def _is_clear(message: str, fault: Fault) -> bool:
    """Whether a message names the file, or the content, and says what to do."""
    named = Path(fault.file).name in message or re.search(r"'/films/\w+\.mp4'", message)
    return bool(named and _REMEDY.search(message))
