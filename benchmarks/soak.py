"""A server that is used for long by many at once, some of them slow: does it stay right, and does it stay small?

    python benchmarks/soak.py                                  # an hour
    python benchmarks/soak.py --seconds 20 --warm-up 10        # a dry run
    python benchmarks/soak.py --nofile 128                     # with few file descriptors for each process
    mount -t tmpfs -o size=8m tmpfs /mnt/small && python benchmarks/soak.py --small-folder /mnt/small

Clients search by id and by upload, watch jobs as events or wait for them, load pictures and parts of files; one of them
adds a folder of films and removes them again, over and over. Beside them slow clients send heads and bodies byte by
byte, do not read what they asked for, and leave in the middle. With `--small-folder` the folder of uploads and pictures
is filled up for half of the time: uploads may then be refused with 507, and nothing else may fail.

Every answer is compared with an oracle: the matches of a video of the library are those that the library itself gives
in this process, and an upload matches the film that it was cut from if and only if that film is in the library.

Memory, file descriptors, processes and files in the folder are counted when the server is quiet, after a warm-up and at
the end, and their peaks in between. Printed as JSON. Exit code 1 if an answer was wrong or missing, more files or
processes are open at the end than after the warm-up, an upload is left, or memory grew by more than 10%.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import serve
from hapvr.library import Library
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

_MAX_GROWTH = 0.10
_SAMPLE_S = 2.0
_PATIENCE_S = 600.0
_BOUNDARY = "soak"
Matches = list[tuple[str, str, float]]  # of a search: id, verdict, score


# --- what is asked ---------------------------------------------------------------------------------------------------


class Client:
    """HTTP/1.1 over one connection, which is opened again when it was closed between two requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, kind: str = "application/json", range: str = ""
    ) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        lines = {"Host": "127.0.0.1", "Content-Length": str(len(body))} | ({"Content-Type": kind} if body else {})
        lines |= {"Range": range} if range else {}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await writer.drain()
        said = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(said.split()[1])
        if found := re.search(r"(?im)^content-length: (\d+)", said):
            content = await reader.readexactly(int(found[1]))
        else:
            content = b""
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                content += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        if re.search(r"(?im)^connection: close", said):
            self.close()
        return status, content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def make_form(name: str, data: bytes) -> tuple[bytes, str]:
    """An upload as a body, and its type."""
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + data + f"\r\n--{_BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={_BOUNDARY}"


@dataclass
class Load:
    """A mixed workload on a server, the oracle of its answers, and what came of it.

    Attributes:
        expected: the matches of each fixed video of the library.
        clips: uploads by the name of the film that each was cut from.
        folders: folders of the root by their path, with the names of the films in each; added and removed in turn.
        present: films that are in the library now.
        full: whether the folder of the server may be full now.
        pause_s: how long a client waits on average between two requests.
        keep_rate: the share of uploads that are left to expire; others are removed by who sent them.
    """

    port: int
    expected: dict[str, Matches]
    clips: dict[str, bytes]
    folders: dict[str, list[str]] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    full: bool = False
    searchers: int = 3
    uploaders: int = 2
    slow: int = 8
    keep_rate: float = 0.5
    pause_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changes: Counter[str] = Counter()  # of each film, begun and ended: odd while it is written
        self._filled = 0  # how often `full` has changed
        self._drawn = random.Random(0)
        self._end = 0.0

    async def run(self, seconds: float) -> None:
        """Use the server for so long."""
        self._end = time.monotonic() + seconds
        tasks: list[Awaitable[None]] = [self._repeat(self._search) for _ in range(self.searchers)]
        tasks += [self._repeat(self._upload) for _ in range(self.uploaders)]
        tasks += [self._repeat(self._look), *([self._repeat(self._write)] if self.folders else [])]
        tasks += [self._be_slow(number) for number in range(self.slow)]
        await asyncio.gather(*tasks)

    async def _repeat(self, work: Callable[[Client], Awaitable[None]]) -> None:
        client = Client(self.port)
        while time.monotonic() < self._end:
            try:
                await asyncio.wait_for(work(client), _PATIENCE_S)
                await asyncio.sleep(self._drawn.uniform(0.0, 2.0 * self.pause_s))
            except (OSError, EOFError, ValueError, KeyError, asyncio.TimeoutError) as error:
                self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}")
                client.close()
                await asyncio.sleep(1.0)
        client.close()

    def _require(self, true: bool, what: str) -> None:
        if not true:
            self.errors.append(what[:500])

    # --- clients whose answers are checked ---------------------------------------------------------------------------

    async def _search(self, client: Client) -> None:
        id = self._drawn.choice(list(self.expected))
        status, body = await client.ask("POST", "/api/searches", json.dumps({"id": id}).encode())
        self._require(status == 202, f"search: {status} {body!r}")
        if status == 202:
            found = await self._finish(client, json.loads(body)["job"])
            matches = None if found is None else find_matches(found["hits"], among=set(self.expected))
            self._require(matches == self.expected[id], f"search {id}: {matches}, not {self.expected[id]}")
            self.counts["searches"] += 1

    async def _upload(self, client: Client) -> None:
        name = self._drawn.choice(list(self.clips))
        body, kind = make_form(f"clip of {name}", self.clips[name])
        changes, there, filled, full = self._changes[name], name in self.present, self._filled, self.full
        status, said = await client.ask("POST", "/api/searches", body, kind=kind)
        if status == 507 and (full or self._filled != filled):
            self.counts["uploads without room"] += 1
            await asyncio.sleep(0.2)
            return
        self._require(status == 202, f"upload: {status} {said!r}")
        if status != 202:
            return
        begun = json.loads(said)
        found = await self._finish(client, begun["job"])
        if found is not None and self._changes[name] == changes and changes % 2 == 0:  # it was not written meanwhile
            named = {hit["name"] for hit in found["hits"] if hit["match"]}
            self._require((name in named) == there, f"upload of {name}, {there=}: {named}")
            self.counts["uploads checked"] += 1
        if self._drawn.random() >= self.keep_rate:
            status, said = await client.ask("DELETE", f"/api/queries/{begun['query']}")
            self._require(status == 200, f"removal of an upload: {status} {said!r}")
        self.counts["uploads"] += 1

    async def _finish(self, client: Client, job: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a job, waited for or watched."""
        if self._drawn.random() < 0.5:
            status, body = await client.ask("GET", f"/api/jobs/{job['id']}/events")
            self._require(status == 200, f"events: {status} {body!r}")
            job = json.loads(body.strip().rpartition(b"data: ")[2])
            self.counts["event streams"] += 1
        while job["state"] in ("queued", "running"):
            status, body = await client.ask("GET", f"/api/jobs/{job['id']}?wait=30")
            self._require(status == 200, f"job: {status} {body!r}")
            job = json.loads(body)
        self._require(job["state"] == "done", f"job {job['kind']}: {job['state']} {job['error']}")
        result: dict[str, Any] | None = job["result"]
        return result

    async def _look(self, client: Client) -> None:
        """Look at a film of the library: a picture, and a part of its file."""
        before, filled, full = self._changes.copy(), self._filled, self.full
        _, body = await client.ask("GET", "/api/videos?q=film&limit=500")
        ready = [video for video in json.loads(body)["videos"] if video["state"] == "ready"]
        if not ready:
            await asyncio.sleep(0.2)
            return
        video = self._drawn.choice(ready)
        id, name = video["id"], video["name"]
        time_s = self._drawn.randrange(4)
        picture = f"thumbnail?t={time_s}&width={self._drawn.randrange(32, 320)}"
        for path, part, fine in ((picture, "", 200), ("file", "bytes=5-99", 206)):
            status, body = await client.ask("GET", f"/api/videos/{id}/{path}", range=part)
            gone = status == 404 and (self._changes[name] != before[name] or before[name] % 2 == 1)
            no_room = status == 507 and (full or self._filled != filled)
            self._require(status == fine or gone or no_room, f"{path}: {status} {body[:300]!r}")
            self._require(status != 206 or len(body) == 95, f"a part of {len(body)} bytes")
            self.counts["pictures and parts"] += 1
        await asyncio.sleep(0.1)

    async def _write(self, client: Client) -> None:
        """Add a folder, see that its films are there, remove them."""
        _, body = await client.ask("GET", "/api/library")
        root = json.loads(body)["roots"][0]["id"]
        path = self._drawn.choice(list(self.folders))
        names = set(self.folders[path])
        self._changes.update(names)
        request = json.dumps({"root": root, "path": path}).encode()
        status, body = await client.ask("POST", "/api/jobs/add", request)
        self._require(status == 202, f"add: {status} {body!r}")
        if status == 202:
            await self._finish(client, json.loads(body)["job"])
        _, body = await client.ask("GET", "/api/videos?q=film&limit=500")
        listed = {one["name"]: one["id"] for one in json.loads(body)["videos"] if one["state"] == "ready"}
        self.present |= names
        self._changes.update(names)
        self._require(set(listed) == self.present, f"after adding: {sorted(listed)}, not {sorted(self.present)}")
        self.counts["adds"] += 1
        await asyncio.sleep(self._drawn.uniform(0.5, 4.0))
        self._changes.update(names)
        for name in names & set(listed):
            status, body = await client.ask("DELETE", f"/api/videos/{listed[name]}")
            self._require(status == 200, f"removal: {status} {body!r}")
            self.counts["removals"] += 1
        self.present -= names
        self._changes.update(names)
        await asyncio.sleep(self._drawn.uniform(0.5, 4.0))

    # --- clients that are in nobody's way ----------------------------------------------------------------------------

    async def _be_slow(self, number: int) -> None:
        upload = b"POST /api/searches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n"
        upload += f"Content-Type: multipart/form-data; boundary={_BOUNDARY}\r\n\r\n--{_BOUNDARY}\r\n".encode()
        first, then = (
            (b"GET / HTTP/1.1\r\nHost: ", b"h"),
            (upload, b"x"),
            (b"GET /static/js/strings.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20, b""),  # and does not read
            (b"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b""),  # and stays
        )[number % 4]
        while time.monotonic() < self._end:
            writer = None
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
                writer.write(first)
                stays = time.monotonic() + self._drawn.uniform(1.0, 20.0)
                while time.monotonic() < min(stays, self._end) and not reader.at_eof():
                    writer.write(then)
                    await writer.drain()
                    await asyncio.sleep(0.3)
            if writer is not None:
                writer.transport.abort()
            self.counts["slow connections"] += 1

    async def keep_filling(self, folder: Path) -> None:
        """Leave no room in a small file system for half of the time; cancel it to end."""
        filler = folder / "filler"
        try:
            while True:
                self._filled += 1
                self.full = True
                until = time.monotonic() + 10.0
                while time.monotonic() < until:
                    fill(filler)
                    await asyncio.sleep(0.05)
                filler.unlink()
                self.full = False
                self._filled += 1
                await asyncio.sleep(10.0)
        finally:
            filler.unlink(missing_ok=True)
            self.full = False


def fill(path: Path) -> None:
    """Add to a file until there is no room."""
    try:
        with path.open("ab", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def find_matches(hits: list[dict[str, Any]], *, among: set[str]) -> Matches:
    """The hits of a search that match, without videos that come and go."""
    return [(hit["id"], hit["verdict"], round(hit["score"], 3)) for hit in hits if hit["match"] and hit["id"] in among]


def expect_matches(library: Path, ids: list[str]) -> dict[str, Matches]:
    """What searches by the id of a video must find, by the library itself."""
    with Library.open(library) as opened:
        answers = {id: [hit.to_json() for hit in opened.search(id).hits] for id in ids}
    return {id: find_matches(hits, among=set(ids)) for id, hits in answers.items()}


# --- what the server takes -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """What a server and all processes below it take."""

    mb: float
    descriptors: int
    processes: int
    uploads: int
    files: int  # in its folder


def find_processes(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def count_taken(pid: int, folder: Path) -> Taken:
    """What is taken now, on Linux."""
    found = find_processes(pid)
    pages = descriptors = 0
    for one in found:
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
            descriptors += len(os.listdir(f"/proc/{one}/fd"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    uploads = sum(path.parent.name == "uploads" for path in files)
    return Taken(round(pages * 4096 / 2**20, 1), descriptors, len(found), uploads, len(files))


def raise_priorities(pid: int) -> None:
    """Give the threads of a server's workers the priority of this process, where the system lets us."""
    for one in find_processes(pid)[1:]:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, 0))
            Path(f"/proc/{one}/autogroup").write_text("0")


async def settle(port: int, pid: int, folder: Path, *, max_s: float = 120.0) -> Taken:
    """What is taken when uploads have expired, jobs are over and connections are closed; or after `max_s`."""
    client, end = Client(port), time.monotonic() + max_s
    while True:
        _, text = await client.ask("GET", "/metrics")
        now = {name: float(value) for name, value in re.findall(rb"(?m)^(hapvr_\w+) ([\d.]+)$", text)}
        busy = now[b"hapvr_jobs_waiting"] + now[b"hapvr_uploads"] + now[b"hapvr_connections"] - 1
        taken = count_taken(pid, folder)
        if (not busy and not taken.uploads) or time.monotonic() > end:
            client.close()
            await asyncio.sleep(1.0)
            return count_taken(pid, folder)
        await asyncio.sleep(1.0)


async def soak(
    load: Load,
    pid: int,
    folder: Path,
    *,
    warm_up_s: float,
    seconds: float,
    small: bool = False,
    raise_priority: bool = False,
) -> dict[str, Any]:
    """Use a server, and see what it takes before, meanwhile and after."""
    samples: list[Taken] = []
    by_process: list[dict[str, float]] = []

    async def keep_sampling() -> None:
        while True:
            samples.append(count_taken(pid, folder))
            by_process.append(serve.resident_mb(pid))
            if raise_priority:
                raise_priorities(pid)
            await asyncio.sleep(_SAMPLE_S)

    beside = [asyncio.create_task(keep_sampling())]
    await load.run(warm_up_s)
    before = await settle(load.port, pid, folder)
    mb_before = serve.resident_mb(pid)
    load.counts.clear()
    samples.clear()
    by_process.clear()
    if small:
        beside.append(asyncio.create_task(load.keep_filling(folder)))
    await load.run(seconds)
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    after = await settle(load.port, pid, folder)
    mb_after = serve.resident_mb(pid)
    return {
        "seconds": seconds,
        "counts": dict(sorted(load.counts.items())),
        "errors": len(load.errors),
        "first_errors": load.errors[:5],
        "quiet_before": vars(before),
        "quiet_after": vars(after),
        "peaks": {name: max(getattr(one, name) for one in samples) for name in vars(before)},
        "mb_by_process": {name: [round(mb_before.get(name, 0.0)), round(mb)] for name, mb in mb_after.items()},
        "mb_by_quarter": average_by_quarter([one.mb for one in samples]),
        "mb_by_quarter_and_process": {
            name: average_by_quarter([one.get(name, 0.0) for one in by_process]) for name in mb_after
        },
        "memory_growth": round(after.mb / before.mb - 1, 4),
    }


def average_by_quarter(values: list[float]) -> list[float]:
    """The mean of each quarter of a series; what does not fill a quarter at the end is left out."""
    size = max(1, len(values) // 4)
    parts = [values[at : at + size] for at in range(0, 4 * size, size)]
    return [round(sum(part) / len(part), 1) for part in parts if part]


def is_flat(result: dict[str, Any], *, max_growth: float = _MAX_GROWTH) -> bool:
    """Whether nothing was wrong, and nothing is left that was not there before; memory grows with what is cached."""
    before, after = result["quiet_before"], result["quiet_after"]
    kept = after["processes"] <= before["processes"] and after["descriptors"] <= before["descriptors"] + 4
    return not result["errors"] and kept and not after["uploads"] and result["memory_growth"] <= max_growth


# --- a server of its own ---------------------------------------------------------------------------------------------


def make_films(root: Path, count: int) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """Folders of two films each, and a clip of each film."""
    folders: dict[str, list[str]] = {}
    clips = {}
    for number in range(count):
        scene, path = draw_scene(number, seconds=4, fps=8, size=(96, 128)), f"folder {number // 2}"
        name = f"film {number:02}.mp4"
        (root / path).mkdir(parents=True, exist_ok=True)
        write_clip(scene, root / path / name)
        clip = root.parent / "clip.mp4"
        write_clip(Clip(scene.images[8:28], scene.fps), clip)
        clips[name] = clip.read_bytes()
        folders.setdefault(path, []).append(name)
    return folders, clips


def start(
    library: Path, root: Path, folder: Path, log: Path, *, nofile: int | None
) -> tuple[subprocess.Popen[bytes], int]:
    command = ["from hapvr.cli import main; main()", "serve", str(library), "--port", "0", "--root", str(root)]
    command += ["--folder", str(folder), "--keep-uploads", "0.5"]
    if nofile is not None:
        command[0] = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({nofile}, {nofile})); {command[0]}"
    with log.open("wb") as file:
        server = subprocess.Popen([sys.executable, "-c", *command], stderr=file)
    end = time.monotonic() + 300
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"serving at http://[^:]+:(\d+)/", log.read_text()):
            return server, int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--warm-up", type=float, default=120.0)
    parser.add_argument("--videos", type=int, default=200, help="of the library, that stay")
    parser.add_argument("--films", type=int, default=8, help="that are added and removed")
    parser.add_argument("--searchers", type=int, default=3)
    parser.add_argument("--uploaders", type=int, default=2)
    parser.add_argument("--slow", type=int, default=24, help="clients that are slow")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two requests of a client")
    parser.add_argument(
        "--raise-priority",
        action="store_true",
        help="let adding go on where other programs take all processor time; needs the rights for it",
    )
    parser.add_argument("--nofile", type=int, help="file descriptors that a process may have")
    parser.add_argument("--small-folder", type=Path, help="a small file system, which is filled up again and again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        library, root = place / "library", place / "films"
        folder = arguments.small_folder or place / "folder"
        folder.mkdir(exist_ok=True)
        ids = serve.make_library(library, arguments.videos, None)
        folders, clips = make_films(root, arguments.films)
        expected = expect_matches(library, ids[:20])
        server, port = start(library, root, folder, place / "log", nofile=arguments.nofile)
        sizes = {name: getattr(arguments, name) for name in ("searchers", "uploaders", "slow")}
        load = Load(port, expected, clips, folders, pause_s=arguments.pause, **sizes)
        try:
            result = asyncio.run(
                soak(
                    load,
                    server.pid,
                    folder,
                    warm_up_s=arguments.warm_up,
                    seconds=arguments.seconds,
                    small=arguments.small_folder is not None,
                    raise_priority=arguments.raise_priority,
                )
            )
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(120)
        lines = [json.loads(line) for line in (place / "log").read_text().splitlines() if line.startswith("{")]
        result["left_in_folder"] = len(list(folder.iterdir()))
        result["log"] = dict(Counter(f"{line['level']}: {line['event']}" for line in lines if line["level"] != "info"))
        result["machine"] = f"{os.cpu_count()} cores; {measure.machine()}"
        result |= {"nofile": arguments.nofile, "small_folder": arguments.small_folder is not None}
    print(json.dumps(result, indent=1))
    raise SystemExit(0 if is_flat(result) and not result["left_in_folder"] else 1)


if __name__ == "__main__":
    main()
