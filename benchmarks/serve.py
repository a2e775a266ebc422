"""A server under load: many clients that search at once on loopback, without and with an add job beside them.

    python benchmarks/serve.py                          # 32 clients, 1,000 videos, 30 s; again beside an add job
    python benchmarks/serve.py --videos 50 --seconds 3  # a dry run

The library is made of drawn region vectors (30 s a video, one frame a second; every fifth is a noisy copy of the one
before it), written through the library's own tables. A client asks for a video of the library, chosen at random, waits
for its hits, and asks again: the time is from the request to the result, both requests of it. Files that are added
meanwhile are drawn films of 10 s, so many that the job outlasts the searches.

Printed as JSON: searches a second, the median and the 99th percentile in seconds, errors, and how much memory the
server and its workers took at the end over what they took after the warm-up, and the processor time of a search in the
searching workers, which says more than the clock on a machine that others use. Exit code 1 if there was an error,
memory grew by more than 5%, or the 99th percentile is above 3 s, without or beside the add job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import measure
from hapvr.features import Features
from hapvr.library import Library, VideoRecord
from hapvr.library.shared_file import update_shared_footage
from hapvr.library.store import NewVideo
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

_BATCH = 50
_FRAMES = 30  # of a video, one a second
_MOST_GROWTH, _MOST_P99_S = 0.05, 3.0


def make_library(path: Path, count: int, model: str | None) -> list[str]:
    """A library of drawn videos; returns their ids."""
    torch.manual_seed(0)
    ids = []
    with Library.open(path, create=True, fps=1.0, model=model) as library, library.write_access("benchmark") as store:
        last: torch.Tensor | None = None
        fps = library.settings.fps
        for first in range(0, count, _BATCH):
            batch = []
            for number in range(first, min(count, first + _BATCH)):
                if last is not None and number % 5 == 4:
                    regions = F.normalize(last + 0.02 * torch.randn_like(last), dim=-1)
                else:
                    regions = measure.video(_FRAMES, "cpu")
                last = regions
                frames = len(regions)
                hash = f"{number:012x}" + "0" * 28
                record = VideoRecord(
                    id=hash[:12],
                    path=str(path.parent / "drawn" / f"{number}.mp4"),
                    size=1,
                    mtime_ns=1,
                    content_hash=hash,
                    duration=frames / fps,
                    frames=frames,
                    width=320,
                    height=240,
                    bitrate=1.0,
                    state="ready",
                    error=None,
                    added=datetime.now(timezone.utc),
                )
                times = np.arange(frames) / fps
                batch.append(NewVideo(record, store.new_key(), Features(regions, times, np.zeros(frames, np.bool_))))
                ids.append(record.id)
            store.write(batch)
        store.maintain()
        update_shared_footage(store)  # as `add` does at its end
    return ids


def make_films(folder: Path, count: int) -> None:
    folder.mkdir()
    first = draw_scene(0, seconds=10, size=(240, 320))
    write_clip(first, folder / "0.mp4")
    data = (folder / "0.mp4").read_bytes()
    for number in range(1, count):
        # Another content to the library, the same to a decoder: bytes behind the end of the file are passed over.
        (folder / f"{number}.mp4").write_bytes(data + number.to_bytes(8, "big"))


class Client:
    """HTTP/1.1 over one connection: as little as it takes, so that the processor is the server's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if data else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}Content-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"(?i)content-length: (\d+)", answer)
        assert found is not None
        return int(answer.split()[1]), json.loads(await reader.readexactly(int(found[1])))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def search(client: Client, id: str) -> str | None:
    """One search; what went wrong, if anything."""
    status, begun = await client.ask("POST", "/api/searches", {"id": id})
    if status != 202:
        return f"{status}: {begun}"
    job = begun["job"]
    while job["state"] in ("queued", "running"):
        status, job = await client.ask("GET", f"/api/jobs/{job['id']}?wait=30")
        if status != 200:
            return f"{status}: {job}"
    return None if job["state"] == "done" else f"{job['state']}: {job['error']}"


async def load(port: int, ids: list[str], *, clients: int, seconds: float) -> dict[str, Any]:
    """Searches by so many clients for so long."""
    times: list[float] = []
    errors: list[str] = []
    end = time.perf_counter() + seconds
    drawn = random.Random(0)

    async def one() -> None:
        client = Client(port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            error = await search(client, drawn.choice(ids))
            times.append(time.perf_counter() - began)
            if error is not None:
                errors.append(error)
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    took = time.perf_counter() - began
    return {
        "searches": len(times),
        "per_second": round(len(times) / took, 1),
        "p50_s": round(float(np.percentile(times, 50)), 3),
        "p99_s": round(float(np.percentile(times, 99)), 3),
        "most_s": round(max(times), 3),
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
    }


def resident_mb(pid: int) -> dict[str, float]:
    """The memory of the server and of its workers, by what they are called."""
    found: dict[str, float] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if int(path.name) != pid and parent != pid:
                continue
            words = (path / "cmdline").read_bytes().split(b"\0")
            name = "server" if int(path.name) == pid else words[-2].decode()
            found[name] = found.get(name, 0.0) + int((path / "statm").read_text().split()[1]) * 4096 / 2**20
        except (OSError, IndexError, ValueError):
            continue
    return found


def cpu_s(pid: int) -> float:
    """Processor time of the workers that search, so far."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rpartition(")")[2].split()
            if int(words[1]) == pid and (path / "cmdline").read_bytes().endswith(b"\0search\0"):
                total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            continue
    return total


def start(library: Path, root: Path, log: Path, slots: int) -> tuple[subprocess.Popen[bytes], int]:
    command = [sys.executable, "-c", "from hapvr.cli import main; main()", "serve", str(library)]
    command += ["--port", "0", "--root", str(root), "--max-searches-at-once", str(slots)]
    with log.open("wb") as file:
        server = subprocess.Popen(command, stderr=file)
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        found = re.search(r"serving at http://[^:]+:(\d+)/", log.read_text())
        if found is not None:
            return server, int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


async def measured(port: int, pid: int, ids: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    client = Client(port)
    while (await client.ask("GET", "/api/health"))[0] != 200:
        await asyncio.sleep(0.1)
    _, about = await client.ask("GET", "/api/library")
    warm = await load(port, ids, clients=arguments.clients, seconds=arguments.warm_up)
    before, began = resident_mb(pid), cpu_s(pid)
    alone = await load(port, ids, clients=arguments.clients, seconds=arguments.seconds)
    alone["cpu_s_a_search"] = round((cpu_s(pid) - began) / alone["searches"], 4)
    after = resident_mb(pid)
    growth = sum(after.values()) / sum(before.values()) - 1
    client.close()
    client = Client(port)
    _, begun = await client.ask("POST", "/api/jobs/add", {"root": about["roots"][0]["id"]})
    job = begun["job"]
    while job["state"] in ("queued", "running") and not job["progress"]["done"]:
        await asyncio.sleep(0.2)
        _, job = await client.ask("GET", f"/api/jobs/{job['id']}")
    beside = await load(port, ids, clients=arguments.clients, seconds=arguments.seconds)
    _, job = await client.ask("GET", f"/api/jobs/{job['id']}")
    beside["add_job"] = {"state_at_the_end": job["state"]} | job["progress"]
    await client.ask("DELETE", f"/api/jobs/{job['id']}")
    client.close()
    return {
        "warm_up": warm,
        "alone": alone | {"mb_before": before, "mb_after": after, "growth": round(growth, 4)},
        "while_adding": beside | {"mb_after": resident_mb(pid)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--model", help="of the library; the shipped one by default")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--films", type=int, default=2000, help="files that are added meanwhile")
    parser.add_argument("--slots", type=int, default=2, help="searches that are worked on at a time")
    parser.add_argument("--folder", type=Path, help="where the library is made, or lies from an earlier run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        library, films = folder / "library", Path(temporary) / "films"
        if library.exists():
            with Library.open(library) as opened:
                ids = [record.id for record in opened.videos() if "/drawn/" in record.path]
        else:
            folder.mkdir(parents=True, exist_ok=True)
            ids = make_library(library, arguments.videos, arguments.model)
        make_films(films, arguments.films)
        server, port = start(library, films, Path(temporary) / "log", arguments.slots)
        try:
            result = asyncio.run(measured(port, server.pid, ids, arguments))
        finally:
            began = time.perf_counter()
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        result["stop_s"] = round(time.perf_counter() - began, 2)
        result["machine"] = f"{os.cpu_count()} cores; {measure.machine()}"
    print(json.dumps(result, indent=1))
    alone, beside = result["alone"], result["while_adding"]
    fine = not alone["errors"] and not beside["errors"] and alone["growth"] <= _MOST_GROWTH
    raise SystemExit(0 if fine and max(alone["p99_s"], beside["p99_s"]) <= _MOST_P99_S else 1)


if __name__ == "__main__":
    main()
