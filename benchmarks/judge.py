"""What the judge costs: a search, a comparison and `hapvr duplicates`, against scores and stretches alone.

    python benchmarks/judge.py                                        # drawn films and edited copies of them
    python benchmarks/judge.py --library LIBRARY --queries FOLDER --count 20

The baseline is the same model without a judge: it scores, and finds stretches in the frame matrix, as hapvr did before
there was a judge. Then the judge goes by what the library stores, and then it may also look at the files a second time.
All three take turns on the same videos, in one process. Seconds are those of a processor, so that other work on the
machine counts less; ratios are medians over videos. The files of LIBRARY must be in their places; it is not changed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from hapvr.judge import second_look
from hapvr.library import Library
from hapvr.library.duplicates import find_duplicates
from hapvr.library.opening import OpenLibrary
from hapvr.library.queries import read_query
from hapvr.library.search import compare_videos, search_library
from hapvr.model import Model
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.edits import DEFAULT_EDITS, find_edit
from hapvr.synthetic.footage import draw_footage
from hapvr.video.video_files import find_videos
from measure import machine

Ways = dict[str, Callable[[], Any]]
BASELINE, STORED, FILES = "scores and stretches", "judge", "judge, second look"


@dataclass(frozen=True)
class Cost:
    """Processor seconds of one call, and the second looks it took."""

    seconds: float
    looks: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, help="one that exists; of drawn films if not given")
    parser.add_argument("--queries", type=Path, help="a folder of query files; needed with --library")
    parser.add_argument("--count", type=int, default=8, help="queries, spread over the folder")
    parser.add_argument("--films", type=int, default=24, help="films to draw")
    parser.add_argument("--no-duplicates", action="store_true", help="searches and comparisons alone")
    arguments = parser.parse_args()
    if (arguments.library is None) != (arguments.queries is None):
        parser.error("--library and --queries go together")
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        place, queries = arguments.library, arguments.queries
        if place is None:
            place, queries = draw(Path(folder), arguments.films, arguments.count)
        files = list(find_videos([queries]).values())
        chosen = [Path(files[len(files) * place // arguments.count]) for place in range(arguments.count)]
        with Library.open(place) as library:
            run(library, chosen, duplicates=not arguments.no_duplicates)


def draw(folder: Path, films: int, copies: int) -> tuple[Path, Path]:
    """A library of drawn films, and a folder of edited copies of some."""
    import numpy as np

    for name in ("films", "queries"):
        (folder / name).mkdir()
    for number in range(1, films + 1):
        clip = draw_footage(number, seconds=12.0, fps=10.0)
        write_clip(clip, folder / "films" / f"{number:03}.mp4", key_s=2.0)
        if number <= copies:
            edited = find_edit(DEFAULT_EDITS[number % len(DEFAULT_EDITS)]).apply(clip, np.random.default_rng(number))
            write_clip(edited.clip, folder / "queries" / f"{number:03}.mp4", crf=26, key_s=2.0)
    with Library.open(folder / "library", create=True) as library:
        library.add([folder / "films"])
    return folder / "library", folder / "queries"


def run(library: Library, queries: Sequence[Path], *, duplicates: bool) -> None:
    model, store = library.model, library.store
    plain = cast(OpenLibrary, SimpleNamespace(store=store, model=replace(model, judge=None)))
    print(f"{library.info().videos} videos, {len(queries)} queries; processor seconds, ratios to '{BASELINE}'")

    def search_ways(query: Any) -> Ways:
        return {
            BASELINE: lambda: search_library(plain, query, second_look=False),
            STORED: lambda: search_library(library, query, second_look=False),
            FILES: lambda: search_library(library, query),
        }

    show("search by a file", [search_ways(path) for path in queries])
    described = [read_query(store, model, path) for path in queries]
    show("search, query described", [search_ways(query) for query in described])
    hits = [search_library(library, query, k=2, second_look=False).hits for query in described]
    pairs = [(query, hit.id) for query, found in zip(described, hits, strict=True) for hit in found]
    show(
        "comparison, both described",
        [
            {
                BASELINE: partial(compare_videos, plain, query, id, second_look=False),
                STORED: partial(compare_videos, library, query, id, second_look=False),
                FILES: partial(compare_videos, library, query, id),
            }
            for query, id in pairs
        ],
    )
    if duplicates:

        def find(model: Model, second_look: bool) -> object:
            return find_duplicates(store, lambda: model, second_look=second_look)

        show(
            "duplicates",
            [
                {
                    BASELINE: lambda: find(plain.model, False),
                    STORED: lambda: find(model, False),
                    FILES: lambda: find(model, True),
                }
            ],
        )


def show(name: str, calls: Sequence[Ways]) -> None:
    """Run all calls, the ways of each in turn, and print what they cost."""
    for warm_up in calls[0].values():
        warm_up()
    costs: dict[str, list[Cost]] = {way: [] for way in calls[0]}
    for ways in calls:
        for way, call in ways.items():
            costs[way].append(measure(call))
    print(name)
    for way, found in costs.items():
        ratio = statistics.median(one.seconds / base.seconds for one, base in zip(found, costs[BASELINE], strict=True))
        mean = statistics.fmean(one.seconds for one in found)
        looks = statistics.fmean(one.looks for one in found)
        print(f"  {way:22} {mean:8.3f} s  x {ratio:5.2f}  {looks:.1f} second looks", flush=True)


def measure(call: Callable[[], Any]) -> Cost:
    with count_looks() as looks:
        start = time.process_time()
        call()
        return Cost(time.process_time() - start, len(looks))


@contextmanager
def count_looks() -> Iterator[list[int]]:
    """A list that grows by one with each second look."""
    looks: list[int] = []
    before = second_look.QuerySecondLook.compare

    def compare(self: second_look.QuerySecondLook, *given: Any, **options: Any) -> second_look.SecondLook | None:
        looks.append(1)
        return before(self, *given, **options)

    with patch.object(second_look.QuerySecondLook, "compare", compare):
        yield looks


if __name__ == "__main__":
    main()
