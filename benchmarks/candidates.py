"""What a search loses by comparing with candidates only: mAP and recall@1 against `--exact`, and how much was compared.

    python benchmarks/candidates.py BENCHMARK --out WORK [--photos FOLDER] [--model MODEL]

BENCHMARK is a folder of `hapvr make-benchmark`. Its database goes into a library below WORK; with --photos, so does a
clip of each photograph, a camera move over it. Then each query is searched for twice. Both searches give at most as
many hits as the first compares exactly, so that what is beyond counts for neither. WORK is kept, and gone on with.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.library import Library
from hapvr.library.candidates import max_candidates
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.training import Camera, ClipSet
from hapvr.video.video_files import find_videos
from measure import machine

FRAMES, FPS = 48, 8.0  # of a photograph's clip: six seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="keep clips and library here")
    parser.add_argument("--photos", type=Path, help="a folder of photographs: more distractors")
    parser.add_argument("--model", help="a model's name or folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    print(machine())
    truth = json.loads((arguments.benchmark / "ground_truth.json").read_text())
    folders = [arguments.benchmark / "database"]
    if arguments.photos is not None:
        folders.append(film_all(arguments.photos, arguments.out / "clips"))
    with Library.open(arguments.out / "library", create=True, model=arguments.model) as library:
        added = library.add(folders, workers=arguments.workers)
        print(f"{added.added} videos added, {added.unchanged} were there, {len(added.failed)} failed", flush=True)
        figures = measure(library, arguments.benchmark / "queries", truth["queries"])
    for name, values in figures.items():
        print(
            f"{name:10} mAP {values['mAP']:.2f}, recall@1 {values['recall@1']:.2f}, compared {values['most']} of "
            f"{values['database']} at most, {values['seconds']:.2f} s a search"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")


def film_all(photos: Path, out: Path) -> Path:
    """A clip of each photograph as an mp4 file; those that are there are kept."""
    out.mkdir(parents=True, exist_ok=True)
    stills = ClipSet.from_pictures(photos, camera=Camera(frames=FRAMES, size=256))
    for number, id in enumerate(stills.ids):
        path = out / f"{Path(id).stem}.mp4"
        if not path.exists():
            write_clip(Clip(stills.window(number, 0, FRAMES).numpy(), FPS), path)
    print(f"{len(stills)} photographs filmed, {len(stills.skipped)} could not be read", flush=True)
    return out


def measure(library: Library, folder: Path, queries: dict[str, Any]) -> dict[str, dict[str, float]]:
    files = find_videos([folder])
    database = len(set(library.store.catalog().keys.tolist()))
    k = max_candidates(database, k=1, max_compared=200)
    by_name = {path.stem: path for path in files.values()}
    found: dict[str, dict[str, float]] = {}
    features = {name: library.model.features(by_name[name]) for name in queries}
    for exact in (False, True):
        precisions, firsts, compared, begun = [], [], [], time.perf_counter()
        for name, query in queries.items():
            result = library.search(features[name], k=k, exact=exact)
            names = [Path(hit.path).stem for hit in result.hits]
            precisions.append(average_precision(names, set(query["positives"])))
            firsts.append(bool(names) and names[0] in query["positives"])
            compared.append(result.scored)
        found["exact" if exact else "candidates"] = {
            "mAP": 100 * float(np.mean(precisions)),
            "recall@1": 100 * float(np.mean(firsts)),
            "most": max(compared),
            "database": database,
            "seconds": (time.perf_counter() - begun) / len(queries),
        }
    return found


def average_precision(names: Sequence[str], positives: set[str]) -> float:
    """Of a ranking that may end before all positives have come: those have precision 0.

    >>> average_precision(["a", "x", "b"], {"a", "b", "c"})  # (1 + 2 / 3 + 0) / 3
    0.5555555555555555
    """
    ranks = [rank for rank, name in enumerate(names, 1) if name in positives]
    return sum(number / rank for number, rank in enumerate(ranks, 1)) / len(positives)


if __name__ == "__main__":
    main()
