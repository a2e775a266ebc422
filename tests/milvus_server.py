"""A real Milvus server on this machine, from the package `milvus`, for tests and benchmarks."""

from __future__ import annotations

import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT_TOKEN = "root:Milvus"  # of every new server
_MAX_START_S = 300.0  # a busy machine may take minutes


@dataclass(frozen=True)
class RunningServer:
    """Where a server listens, and its process."""

    port: int
    process: int

    def address(self, collection: str) -> str:
        """What `--candidates` takes."""
        return f"milvus://127.0.0.1:{self.port}/{collection}"


@contextmanager
def serve_milvus(folder: Path, *, authorization: bool = False, hurry: bool = False) -> Iterator[RunningServer]:
    """Start a server that keeps its data in a folder; it is stopped at the end. `ImportError` without the package.

    With `hurry` it looks for work every tenth of a second: collections are ready sooner, and it is busier.
    """
    from milvus import MilvusServer

    server = MilvusServer(wait_for_started=False)
    names = [name for name in server.config_keys if name.endswith("_port")]
    peers, health, *free = _find_free_ports(2 + len(names))
    ports = dict(zip(names, free, strict=True))
    server.set_base_dir(str(folder))
    server.config.set("authorization_enabled", authorization)
    server.config.update(**ports)
    for name in ("queryCoord.checkInterval", "queryCoord.distPullInterval", "proxy.timeTickInterval") if hurry else ():
        server.config.set(name, 100)
    server.webservice_port = health
    # Its own etcd has fixed ports unless a file says otherwise: two servers could not run beside each other.
    urls = {"client": f"http://127.0.0.1:{ports['etcd_port']}", "peer": f"http://127.0.0.1:{peers}"}
    lines = [f"{what}-{kind}-urls: {url}" for kind, url in urls.items() for what in ("listen", "advertise")]
    lines = [line.replace("advertise-peer", "initial-advertise-peer") for line in lines]
    settings = folder / "etcd.yaml"
    settings.write_text("\n".join([*lines, f"initial-cluster: default={urls['peer']}"]) + "\n")
    os.environ["ETCD_CONFIG_PATH"] = str(settings)
    try:
        server.start()
    finally:
        del os.environ["ETCD_CONFIG_PATH"]
    try:
        _wait(server, health, folder)
        yield RunningServer(server.listen_port, server.server_proc.pid)
    finally:
        _stop(server)


def _find_free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _stop(server: Any) -> None:
    """Kill it: nobody needs its data any more, and it takes more than five seconds to end by itself."""
    server.server_proc.kill()
    server.server_proc.wait(timeout=60)
    server.stop()  # closes its files


def _wait(server: Any, port: int, folder: Path) -> None:
    process, end = server.server_proc, time.monotonic() + _MAX_START_S
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                if b"OK" in answer.read():
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.1)
    raise RuntimeError(f"Milvus did not start; see {folder}/logs.")
