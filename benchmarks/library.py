"""A library at sizes: latency, needles found, memory, bytes, time to build; its codecs; and what else people use.

    python benchmarks/library.py                                    # 1,000 and 10,000 drawn videos of 30 s
    python benchmarks/library.py --sizes 1000 10000 100000          # takes 6 GB of disk below --work
    python benchmarks/library.py --benchmark DIR                    # real videos, and their real edited copies
    python benchmarks/library.py --codecs DIR                       # size against mAP and uAP, by codec
    python benchmarks/library.py --against DIR                      # beside vPDQ-style hashing and videohash

DIR is a folder that `hapvr make-benchmark` wrote and `hapvr evaluate` has described (DIR/.features).

Sizes. Stored videos have 30 frames, one a second. They come from a pool: drawn ones (`hapvr.bench.drawn_videos`),
or the videos of DIR. To make many of few, the signs of dimensions are turned at random, which changes nothing within a
video: neither how alike its frames and regions are nor what any codec loses. Ten videos at a time are relatives: made
of one of the pool, with 15% of the signs turned against each other, so that the similarity of what is no copy is 0.5.
Needles are stored as they are. Their queries are, of drawn ones, 20 s of a needle mixed with another video and partly
mirrored, so that frames are 0.3 to 0.9 alike; of real ones, the edited copies in DIR that score 0.3 or more with their
original. Each size is built by one process and asked by another, whose peak memory is that of asking. A query is asked
for 10 hits with their segments, without decoding; the first three are not counted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.bench.drawn_videos import DIMS, REGIONS, draw_query, draw_regions, fill_store, make_id, make_videos
from hapvr.evaluation import mean_average_precision, micro_average_precision
from hapvr.features import FeatureFile, Features
from hapvr.library import Library
from hapvr.library.codecs import CODECS, DEFAULT, get_codec
from hapvr.similarity import pairwise
from measure import machine

FRAMES, POOL = 30, 400
WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--queries", type=int, default=100, help="needles, at most")
    parser.add_argument("--codec", default=DEFAULT)
    parser.add_argument("--benchmark", type=Path, help="a made folder, for real videos")
    parser.add_argument("--codecs", type=Path, help="a made folder: measure the codecs instead")
    parser.add_argument("--against", type=Path, help="a made folder: compare with hashing instead")
    parser.add_argument("--work", type=Path, help="where libraries are built; a temporary folder if not given")
    parser.add_argument("--keep", action="store_true", help="keep the libraries, and use those that are there")
    parser.add_argument("--json", help="write the figures here too")
    parser.add_argument("--step", choices=["build", "ask"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "build":
        print(json.dumps(build(arguments, arguments.sizes[0])))
        return
    if arguments.step == "ask":
        print(json.dumps(ask(arguments, arguments.sizes[0])))
        return
    print(machine(), flush=True)
    if arguments.codecs is not None:
        figures: Any = measure_codecs(arguments.codecs)
    elif arguments.against is not None:
        figures = against(arguments.against)
    else:
        figures = measure_sizes(arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


# --- sizes -----------------------------------------------------------------------------------------------------------


def measure_sizes(arguments: argparse.Namespace) -> list[dict[str, float]]:
    own = tempfile.TemporaryDirectory() if arguments.work is None else None
    work = Path(own.name) if own is not None else arguments.work
    rows: list[dict[str, float]] = []
    for size in arguments.sizes:
        row: dict[str, float] = {"videos": size}
        for step in ("build", "ask"):
            options = ["--step", step, "--sizes", str(size), "--work", str(work), "--codec", arguments.codec]
            options += ["--queries", str(arguments.queries)] + (["--keep"] if arguments.keep else [])
            options += [] if arguments.benchmark is None else ["--benchmark", str(arguments.benchmark)]
            done = subprocess.run([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True, check=True)
            row |= json.loads(done.stdout.splitlines()[-1])
        if not arguments.keep:
            shutil.rmtree(work / f"library-{size}", ignore_errors=True)
        rows.append(row)
        print("  ".join(f"{name} {value:,.4g}" for name, value in row.items()), flush=True)
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        growth = last["p50 ms"] / first["p50 ms"]
        print(f"{last['videos'] / first['videos']:,.0f} times as many videos take {growth:.2f} times as long (p50)")
    return rows


def build(arguments: argparse.Namespace, size: int) -> dict[str, float]:
    """Build a library through the store's own writing, and index it."""
    folder = arguments.work / f"library-{size}"
    if arguments.keep and folder.is_dir():
        return {}
    shutil.rmtree(folder, ignore_errors=True)
    pool, needles, _ = material(arguments)
    torch.set_num_threads(1)  # the videos that are drawn are too small to be divided
    start = time.perf_counter()
    with Library.open(folder, create=True, codec=arguments.codec, fps=1.0) as library:
        with library.write_access("benchmark") as store:
            fill_store(store, make_videos(pool, needles, range(size)))
            written = time.perf_counter() - start
            store.maintain()
            took = time.perf_counter() - start
            store.maintain(thoroughly=True)
        info = library.info()
        return {
            "build s": took,
            "index s": took - written,
            "vectors": info.vectors,
            "MB a minute": info.bytes / info.frames * 60 / 1e6,  # at a frame a second
        }


def ask(arguments: argparse.Namespace, size: int) -> dict[str, float]:
    """Ask a library for its needles."""
    _, needles, queries = material(arguments)
    kept = min(len(needles), size // 2)
    chosen = [(query, needle) for query, needle in queries if needle < kept][: arguments.queries + WARM_UP]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    times, work, first, among, scored = [], [], [], [], []
    parts: dict[str, list[float]] = {}
    with Library.open(arguments.work / f"library-{size}") as library:
        for query, needle in chosen:
            start, used = time.perf_counter(), time.process_time()
            result = library.search(query)
            times.append(1e3 * (time.perf_counter() - start))
            work.append(1e3 * (time.process_time() - used))
            found = [hit.id for hit in result.hits]
            first.append(found[:1] == [make_id(needle)])
            among.append(make_id(needle) in found)
            scored.append(result.scored)
            for part, took in result.seconds.items():
                parts.setdefault(part, []).append(1e3 * took)
    return {
        "needles": len(first),
        "found first": float(np.mean(first)),
        "found in 10": float(np.mean(among)),
        "p50 ms": float(np.percentile(times[WARM_UP:], 50)),
        "p95 ms": float(np.percentile(times[WARM_UP:], 95)),
        "processor ms": float(np.median(work[WARM_UP:])),  # of all threads: says more where others use the cores
        **{f"{part} ms": float(np.median(took[WARM_UP:])) for part, took in parts.items() if part != "decode"},
        "scored": max(scored),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "before MB": before,
    }


def material(arguments: argparse.Namespace) -> tuple[list[Tensor], list[Tensor], list[tuple[Features, int]]]:
    """The pool, the needles, and queries with the numbers of their needles; the same on every call."""
    if arguments.benchmark is not None:
        return real_material(arguments.benchmark)
    draw = torch.Generator().manual_seed(0)
    pool = [draw_regions(FRAMES, draw) for _ in range(POOL)]
    needles = [draw_regions(FRAMES, draw) for _ in range(arguments.queries + WARM_UP)]
    queries = []
    for number, needle in enumerate(needles):
        queries.append((draw_query(needle, draw, frames=20, mirror=bool(number % 2)), number))
    return pool, needles, queries


def real_material(folder: Path) -> tuple[list[Tensor], list[Tensor], list[tuple[Features, int]]]:
    """The videos of a made benchmark at a frame a second, looped to 30; and its copies that can be told at all."""
    made = Made(folder)
    videos = [slower(video).drop_flat().regions for video in made.database]
    videos = [video[torch.arange(FRAMES) % len(video)] for video in videos]
    model = made.similarity()
    queries = []
    for query, relevant in zip(made.queries, made.relevant, strict=True):
        asked = slower(query)
        for needle in np.flatnonzero(relevant)[:1]:
            score = pairwise(model, [asked.drop_flat().regions], [videos[needle]])
            if score.item() >= 0.3:
                queries.append((asked, int(needle)))
    order = np.random.default_rng(0).permutation(len(queries))
    return videos, videos, [queries[place] for place in order]


def slower(features: Features) -> Features:
    """A frame a second, 30 at most."""
    assert features.timestamps is not None
    wanted = np.arange(0.0, min(features.timestamps[-1] + 0.01, FRAMES))
    nearest = np.unique(np.abs(features.timestamps[None] - wanted[:, None]).argmin(1))
    low = None if features.low_information is None else features.low_information[nearest]
    return Features(features.regions[torch.from_numpy(nearest)].float(), features.timestamps[nearest], low)


# --- a made benchmark ------------------------------------------------------------------------------------------------


class Made:
    """The features and the truth of a folder that `hapvr make-benchmark` and `hapvr evaluate` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        truth = json.loads((folder / "ground_truth.json").read_text())
        self.query_ids, self.database_ids = list(truth["queries"]), list(truth["database"])
        (file, *_) = sorted((folder / ".features").glob("*.h5"))
        self.model = file.stem
        with FeatureFile.open(file) as features:
            self.queries = [features[one] for one in self.query_ids]
            self.database = [features[one] for one in self.database_ids]
        places = {one: place for place, one in enumerate(self.database_ids)}
        self.relevant: NDArray[np.bool_] = np.zeros((len(self.query_ids), len(self.database_ids)), np.bool_)
        for row, query in enumerate(self.query_ids):
            self.relevant[row, [places[one] for one in truth["queries"][query]["positives"]]] = True
        self.files = {one: folder / truth["queries"][one]["file"] for one in self.query_ids}
        self.files |= {path.stem: path for path in sorted((folder / "database").iterdir())}

    def similarity(self) -> Any:
        from hapvr.model import load

        return load(self.model).similarity


def figures_of(scores: NDArray[Any], relevant: NDArray[np.bool_]) -> dict[str, float]:
    best = relevant[np.arange(len(scores)), scores.argmax(1)]
    return {
        "mAP": 100 * mean_average_precision(scores, relevant),
        "uAP": 100 * micro_average_precision(scores, relevant),
        "first": 100 * float(best.mean()),
    }


def measure_codecs(folder: Path) -> list[dict[str, Any]]:
    """Every codec on a made benchmark: queries in full precision, stored videos decoded."""
    made = Made(folder)
    model = made.similarity()
    queries = [query.drop_flat().regions for query in made.queries]
    exact = None
    rows: list[dict[str, Any]] = []
    for named in CODECS:
        codec = get_codec(named)
        videos = (video.drop_flat().regions for video in made.database)
        decoded = [codec.decode(codec.encode(video), *video.shape) for video in videos]
        scores = pairwise(model, queries, decoded).numpy()
        exact = scores if exact is None else exact
        row = {"codec": named, "MB a minute": codec.size(60, REGIONS, DIMS) / 1e6, **figures_of(scores, made.relevant)}
        row["largest change"] = float(np.abs(scores - exact).max())
        rows.append(row)
        print(f"{named:8} " + "  ".join(f"{key} {value:.3f}" for key, value in list(row.items())[1:]), flush=True)
    return rows


# --- what else people use --------------------------------------------------------------------------------------------


def against(folder: Path) -> list[dict[str, Any]]:
    """The same videos by this library and by hashes: quality, and milliseconds a video to describe and to look up."""
    made = Made(folder)
    rows = [by_library(made)]
    for method in (by_pdq, by_videohash):
        try:
            rows += method(made)
        except ImportError as error:
            print(f"{method.__name__[3:]}: cannot be used here ({error}), and is left out")
    for row in rows:
        print("  ".join(f"{key} {value:,.2f}" if key != "method" else str(value) for key, value in row.items()))
    return rows


def by_library(made: Made) -> dict[str, Any]:
    """Through candidates; what is not a hit counts as not found."""
    scores = np.full(made.relevant.shape, -2.0, np.float32)
    sample = [made.files[one] for one in made.query_ids[:10]]
    with (
        tempfile.TemporaryDirectory() as work,
        Library.open(Path(work) / "library", create=True, model=made.model, codec=DEFAULT) as library,
    ):
        start = time.perf_counter()
        for path in sample:
            library.model.features(path)
        described = 1e3 * (time.perf_counter() - start) / len(sample)
        with library.write_access("benchmark") as store:
            fill_store(store, enumerate(made.database))
        start = time.perf_counter()
        for row, query in enumerate(made.queries):
            for hit in library.search(query).hits:
                scores[row, int(hit.id)] = hit.score
        looked = 1e3 * (time.perf_counter() - start) / len(made.queries)
    return {"method": "hapvr", **figures_of(scores, made.relevant), "describe ms": described, "look up ms": looked}


def by_pdq(made: Made) -> list[dict[str, Any]]:
    """vPDQ's way: PDQ hashes of frames a second apart, 256 bits, of quality 50 and more; alike within 31 bits.

    The first score is the share of the query's hashes that have one alike; the second, finer, ranks the rest too: the
    mean over the query's hashes of their distance to the nearest.
    """
    pdqhash: Any = importlib.import_module("pdqhash")

    def hashes(path: Path) -> Tensor:
        rows = []
        for image in frames_of(path):
            bits, quality = pdqhash.compute(image)
            if quality >= 50:
                rows.append(torch.from_numpy(np.asarray(bits, np.float32)))
        return torch.stack(rows) if rows else torch.zeros(0, 256)

    described, known = timed(hashes, made)
    start = time.perf_counter()
    shares, nearest = (np.zeros(made.relevant.shape, np.float32) for _ in range(2))
    for row, one in enumerate(made.query_ids):
        for column, other in enumerate(made.database_ids):
            a, b = known[one], known[other]
            if len(a) and len(b):
                distance = (a[:, None] - b).abs().sum(-1).amin(1)
                shares[row, column], nearest[row, column] = (distance <= 31).float().mean(), 1 - distance.mean() / 256
    looked = 1e3 * (time.perf_counter() - start) / len(made.query_ids)
    took = {"describe ms": described, "look up ms": looked}
    return [
        {"method": "vPDQ, share alike", **figures_of(shares, made.relevant), **took},
        {"method": "vPDQ, mean distance", **figures_of(nearest, made.relevant), **took},
    ]


def by_videohash(made: Made) -> list[dict[str, Any]]:
    """videohash: 64 bits of a whole video."""
    from PIL import Image

    if not hasattr(Image, "ANTIALIAS"):  # videohash 3.0.1 asks for it; Pillow 10 has the filter under this name alone
        Image.ANTIALIAS = Image.Resampling.LANCZOS  # type: ignore[attr-defined]
    videohash: Any = importlib.import_module("videohash")

    def code(path: Path) -> Tensor:
        try:
            found = videohash.VideoHash(path=str(path)).hash
        except Exception as error:  # whatever it raises: such a video has no hash, and is unlike everything
            failed.append(f"{path.name}: {type(error).__name__}")
            return torch.full((64,), torch.nan)
        return torch.tensor([float(bit) for bit in found.removeprefix("0b").zfill(64)])

    failed: list[str] = []
    code(made.files[made.query_ids[0]])
    if failed:
        raise ImportError(f"it fails on the first video, {failed[0]}; it needs ffmpeg on the PATH")
    described, known = timed(code, made)
    start = time.perf_counter()
    table = torch.stack([known[one] for one in made.database_ids])
    distances = [(table - known[one]).abs().sum(-1).nan_to_num(64.0) for one in made.query_ids]
    looked = 1e3 * (time.perf_counter() - start) / len(made.query_ids)
    scores = (1 - torch.stack(distances) / 64).numpy()
    found = figures_of(scores, made.relevant)
    if failed:
        print(f"videohash has no hash of {len(failed)} of {len(known)} videos, such as {failed[0]}")
    return [{"method": "videohash", **found, "describe ms": described, "look up ms": looked}]


def frames_of(path: Path) -> NDArray[np.uint8]:
    from hapvr.video.decode import decode

    return decode(path, fps=1.0, min_frames=0, crop_bars=False).images


def timed(describe: Callable[[Path], Tensor], made: Made) -> tuple[float, dict[str, Tensor]]:
    start = time.perf_counter()
    known = {one: describe(made.files[one]) for one in (*made.query_ids, *made.database_ids)}
    return 1e3 * (time.perf_counter() - start) / len(known), known


if __name__ == "__main__":
    main()
