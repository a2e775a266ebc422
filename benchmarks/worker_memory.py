"""What the workers of a server keep in memory, round after round: the growth of the soak, without its pauses.

    python benchmarks/worker_memory.py                 # 60 rounds
    python benchmarks/worker_memory.py --rounds 4      # a dry run

A round lets the worker that adds take in two drawn films, lets the one that searches look for both, for an upload that
it has not seen and for videos that stay, and removes the films again. The workers are processes, started as the server
starts them. After each round, when they have nothing to do, the system says how much memory they have.

Printed as JSON, for each worker: resident memory, and what of it was written and is not shared, in MB, as the mean of
each quarter of the rounds; the growth from the second quarter to the last, for the first one loads everything; and
the processor time of a round. Linux alone says all that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import measure
import serve
import soak
from hapvr.library import Library
from hapvr.library.filters import VideoFilter
from hapvr.server.filters import write_filter
from hapvr.server.jobs import Jobs
from hapvr.server.metrics import Metrics
from hapvr.server.schemas.search import SearchOptions
from hapvr.server.settings import ServerSettings
from hapvr.server.worker_group import WorkerGroup

_FIELDS = {"resident": "Rss", "private": "Private_Dirty"}


def read_mb(pid: int) -> dict[str, float]:
    """The memory of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = {name: re.search(rf"(?m)^{field}:\s+(\d+) kB", text) for name, field in _FIELDS.items()}
    return {name: int(match[1]) / 1024 for name, match in found.items() if match is not None}


def read_cpu_s(pid: int) -> float:
    """The processor time of a process so far, without that of its children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def search(worker: WorkerGroup, query: dict[str, Any]) -> set[str]:
    """The ids of the hits."""
    options = SearchOptions.model_validate({}).model_dump(
        include={"start_s", "end_s", "k", "min_probability", "exact", "ignore_shared"}
    )
    limits = {"limits": write_filter(VideoFilter()), "filter": {}}
    found = await worker.run("search", {"query": query, **options, **limits})
    return {hit["id"] for hit in found["hits"]}


async def run_rounds(
    place: Path, ids: list[str], rounds: int, *, raise_priority: bool
) -> list[dict[str, dict[str, float]]]:
    """What each worker has after each round."""
    folders, clips = soak.make_films(place / "films", 8)
    jobs = Jobs(place / "library", ServerSettings(roots=(place / "films",), eager=False), Metrics())
    drawn = random.Random(0)
    measured = []
    library = Library.open(place / "library")

    async def keep_raising() -> None:
        while raise_priority:
            soak.raise_priorities(os.getpid())
            await asyncio.sleep(1.0)

    raising = asyncio.create_task(keep_raising())
    try:
        for number in range(rounds):
            path = list(folders)[number % len(folders)]
            paths = {"paths": [str(place / "films" / path)], "prune": False, "retry": False}
            await jobs.adding.run("add", paths)
            library.refresh()
            new = [record.id for record in library.videos() if record.id not in ids]
            for id in (*new, *drawn.choices(ids, k=4)):
                await search(jobs.searching, {"id": id})
            name = folders[path][0]
            clip = place / "clip.mp4"
            clip.write_bytes(clips[name])
            upload = {"id": f"q{number}", "upload": str(clip), "name": name}
            if not set(new) & await search(jobs.searching, upload):
                raise SystemExit(f"{name} was not found by its clip")
            jobs.searching.tell("forget", {"id": upload["id"]})
            await jobs.adding.run("remove", {"ids": new})
            pids = {"search": next(iter(jobs.searching.pids), None), "add": jobs.adding.pid}  # one search at a time
            measured.append(
                {name: read_mb(pid) | {"cpu_s": read_cpu_s(pid)} for name, pid in pids.items() if pid is not None}
            )
    finally:
        raising.cancel()
        library.close()
        await jobs.close()
    return measured


def summarise(measured: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Of each worker: memory by quarter, its growth from the second to the last, processor time of a round."""
    found = {}
    for name in measured[-1]:
        series = {field: [one[name][field] for one in measured] for field in (*_FIELDS, "cpu_s")}
        quarters = {field: soak.average_by_quarter(series[field]) for field in _FIELDS}
        growth = {f"{field}_growth": round(values[-1] / values[1] - 1, 4) for field, values in quarters.items()}
        cpu_s = (series["cpu_s"][-1] - series["cpu_s"][0]) / (len(measured) - 1)
        found[name] = {f"{field}_mb": values for field, values in quarters.items()} | growth
        found[name] |= {"cpu_s_a_round": round(cpu_s, 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--videos", type=int, default=100, help="of the library, that stay")
    parser.add_argument("--raise-priority", action="store_true", help="let adding go on beside other programs, as root")
    arguments = parser.parse_args()
    if arguments.rounds < 4:
        parser.error("--rounds must be at least 4, one a quarter")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        ids = serve.make_library(place / "library", arguments.videos, None)
        measured = asyncio.run(run_rounds(place, ids, arguments.rounds, raise_priority=arguments.raise_priority))
    print(json.dumps(summarise(measured) | {"machine": f"{os.cpu_count()} cores; {measure.machine()}"}, indent=1))


if __name__ == "__main__":
    main()
