"""A library in an object store against the same in a folder: what a search costs in requests, bytes and work.

    python benchmarks/scale.py s3 --videos 2000

Drawn videos of 30 frames are written to a folder and to an S3 server on this machine (moto, from the extra dev), with
the default codec. Counted are the requests that the server answers and the bytes that it sends. Times are processor
seconds of this process, which the server's thread takes a part of: its speed says nothing about any other object store.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from hapvr.bench.drawn_videos import draw_query, draw_regions, fill_store, make_id, make_videos
from hapvr.features import Features
from hapvr.library import Library, table_set
from hapvr.library.shared_file import update_shared_footage
from hapvr.library.stored_scores import RegionCache
from hapvr.places import ObjectPath, Place

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `tests`

from tests.object_server import BUCKET, ObjectServer, serve_objects

from measure import machine

FRAMES, NEEDLES = 30, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--videos", type=int, default=2000)
    parser.add_argument("--index", action="store_true", help="index the vectors however few they are")


def measure(options: argparse.Namespace) -> None:
    if options.index:
        table_set.INDEX_FROM = 1_000
    print(machine(), f"{options.videos:,} videos of {FRAMES} frames", sep="\n")
    generator = torch.Generator().manual_seed(0)
    needles = [draw_regions(FRAMES, generator) for _ in range(NEEDLES)]
    pool = [draw_regions(FRAMES, generator) for _ in range(20)]
    queries = [draw_query(one, generator, frames=10, mirror=False) for one in needles]
    with serve_objects() as server, tempfile.TemporaryDirectory() as folder:
        os.environ |= server.environment()
        places: list[Place] = [Path(folder) / "library", ObjectPath(BUCKET, "library")]
        for place in places:

            def write(place: Place = place) -> None:
                with Library.open(place, create=True) as library, library.write_access("benchmark") as tables:
                    fill_store(tables, make_videos(pool, needles, range(options.videos)))
                    tables.maintain()
                    update_shared_footage(tables)

            count(server, f"write {place}", write)
        for place in places:
            with Library.open(place) as library:
                info = library.info()
                print(f"{place}: {info.bytes / 1e6:,.1f} MB, {info.vectors:,} vectors, {info.indexed:,} indexed")
        answers = [search(server, place, queries) for place in places]
        # Two indexes of the same vectors differ: their clusters begin with vectors chosen at random.
        compared = [[hits[: 1 if options.index else None] for hits in one] for one in answers]
        assert compared[0] == compared[1], "the hits differ"
        print("the best hits are the same" if options.index else "the hits are the same")


def search(server: ObjectServer, place: Place, queries: list[Features]) -> list[list[tuple[str, float]]]:
    """Searches as `hapvr search` does them, and as a server does, with what they cost; the hits."""
    found: list[list[tuple[str, float]]] = []
    with Library.open(place) as library:
        _ = library.model
        cache = RegionCache(2**29)

        def ask(number: int, kept: RegionCache | None = None) -> None:
            hits = library.search(queries[number], cache=kept).hits
            assert hits[0].id == make_id(number)
            found.append([(hit.id, hit.score) for hit in hits])

        count(server, f"open {place}", lambda: Library.open(place).close())
        count(server, "first search", lambda: ask(0))
        count(server, "another query", lambda: ask(1))
        count(server, "another query, a cache of regions", lambda: ask(2, cache))
        count(server, "the same again, from the cache", lambda: ask(2, cache))
        time.sleep(1.1)
        count(server, "look for new videos", lambda: library.store)
    return found


def count(server: ObjectServer, what: str, action: Callable[[], object]) -> None:
    server.reset()
    start = time.process_time()
    action()
    spent = time.process_time() - start
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(server.requests.items())) or "none"
    print(f"  {what}: {kinds}; {server.sent / 1e6:,.2f} MB; {spent:.2f} s", flush=True)
