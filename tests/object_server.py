"""An object store on this machine, by moto: what it is asked is counted, and it can refuse to answer."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

BUCKET = "films"


@dataclass
class ObjectServer:
    """A server with one bucket. `requests` and `sent` count since `reset`; methods in `refused` are answered by 403."""

    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    sent: int = 0  # bytes of answers
    refused: set[str] = field(default_factory=set)

    def reset(self) -> None:
        self.requests.clear()
        self.sent = 0

    def environment(self) -> dict[str, str]:
        """What a client needs; the address of roles leads nowhere."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "a key",
            "AWS_SECRET_ACCESS_KEY": "a secret",
            "AWS_REGION": "us-east-1",
            "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def wrap(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """An application whose requests are counted."""

        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            method = str(environ["REQUEST_METHOD"])
            if method == "GET" and "list-type" in environ.get("QUERY_STRING", ""):
                method = "LIST"
            self.requests[method] += 1
            if method in self.refused:
                start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", "0")])
                return [b""]
            parts = list(app(environ, start))
            self.sent += sum(map(len, parts))
            return parts

        return answer


@contextmanager
def serve_objects() -> Iterator[ObjectServer]:
    """A server on a free port of this machine, with an empty bucket `films`."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ObjectServer()
    app = server.wrap(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, app, threaded=True)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        urlopen(Request(f"{server.url}/{BUCKET}", method="PUT")).close()
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
