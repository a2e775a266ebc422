"""What the server counts, for Prometheus; and its log, as lines of JSON or of text."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hapvr.server.settings import LogFormat

__all__ = ["CONTENT_TYPE", "Metrics", "log_to_stderr", "resident_bytes"]

_NOT_FIELDS = frozenset({"message", "asctime", "taskName", "color_message"})  # that formatters and asyncio set
_WORDS = re.compile(r"[A-Za-z0-9_./:{}-][A-Za-z0-9_./:{} -]*")
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # seconds
disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge beside each counter that says when it began


class Metrics:
    """Counters of one server; several in one process do not mix."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("hapvr_requests", "Answers.", ["method", "route", "status"], registry=registry)
        self._request_times = Histogram(
            "hapvr_request_seconds", "Time to the end of an answer.", ["route"], buckets=_BUCKETS, registry=registry
        )
        self._jobs = Counter("hapvr_jobs", "Jobs that are over.", ["kind", "state"], registry=registry)
        self._job_times = Histogram(
            "hapvr_job_seconds",
            "Time from the request of a job to its end, if it was done.",
            ["kind"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._uploaded = Counter("hapvr_upload_bytes", "Bytes received in uploads.", registry=registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. `route` is the pattern, not the address: there are few of them."""
        self._requests.labels(method, route, status).inc()
        self._request_times.labels(route).observe(seconds)

    def job(self, kind: str, state: str, seconds: float) -> None:
        """Count a job that is over; its time is from when it was asked for."""
        self._jobs.labels(kind, state).inc()
        if state == "done":
            self._job_times.labels(kind).observe(seconds)

    def upload(self, received: int) -> None:
        """Count the bytes of an upload."""
        self._uploaded.inc(received)

    def text(self, gauges: Iterable[tuple[str, str, float]], closed: Mapping[str, int]) -> str:
        """The page; `gauges` are name, help and value, `closed` counts connections by the reason for closing them."""
        now = CollectorRegistry()
        now.register(_Now(list(gauges), closed))
        return (generate_latest(self._registry) + generate_latest(now)).decode()


class _Now(Collector):
    """Values that are known without counting."""

    def __init__(self, gauges: list[tuple[str, str, float]], closed: Mapping[str, int]) -> None:
        self._gauges, self._closed = gauges, closed

    def collect(self) -> Iterator[Metric]:
        connections = CounterMetricFamily(
            "hapvr_connections_closed", "Connections that were closed for a reason.", labels=["reason"]
        )
        for reason, count in sorted(self._closed.items()):
            connections.add_metric([reason], count)
        yield connections
        for name, text, value in self._gauges:
            yield GaugeMetricFamily(name, text, value)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        # Libraries may give every record fields of their own (Ray does when it is imported): they are not the event's.
        common = vars(logging.makeLogRecord({})).keys() | _NOT_FIELDS
        line |= {name: value for name, value in vars(record).items() if name not in common}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _TextLines(_JsonLines):
    """For people: time, level, event, and the rest as name=value. Whatever is no plain word is quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = json.loads(super().format(record))
        head = [line.pop("time"), line.pop("level"), _quote(line.pop("event"))]
        return " ".join([*head, *(f"{name}={_quote(value)}" for name, value in line.items())])


def _quote(value: Any) -> str:
    return value if isinstance(value, str) and _WORDS.fullmatch(value) else json.dumps(value)


def log_to_stderr(form: LogFormat) -> None:
    """Write what the server logs to stderr, one line for each event, whatever clients put into names."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    for name, level in (("hapvr.server", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def resident_bytes(pid: int | None) -> float | None:
    """The memory of a process, on Linux."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096.0
    except (OSError, ValueError, IndexError):
        return None
