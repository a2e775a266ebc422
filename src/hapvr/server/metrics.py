"""Counters in Prometheus' text format. There are few, so they are written here instead of by a package."""

from __future__ import annotations

import bisect
import sys
import threading
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Histogram:
    """How many values lie below each of some bounds.

    >>> times = Histogram()
    >>> times.add(0.2); times.add(1000.0)
    >>> times.lines("t", "")[4:6], times.lines("t", "")[-3:]
    (['t_bucket{le="1"} 1', 't_bucket{le="3"} 1'], ['t_bucket{le="+Inf"} 2', 't_sum 1000.2', 't_count 2'])
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(_BUCKETS, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> list[str]:
        """The lines of the text format; `labels` as `kind="search"`, or nothing."""
        found, total = [], 0
        before = f"{labels}," if labels else ""
        for bound, count in zip((*map("{:g}".format, _BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            found.append(f'{name}_bucket{{{before}le="{bound}"}} {total}')
        inside = f"{{{labels}}}" if labels else ""
        return [*found, f"{name}_sum{inside} {self._sum:g}", f"{name}_count{inside} {total}"]


class Metrics:
    """What the server counts."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, Histogram] = {}
        self._jobs: dict[tuple[str, str], int] = {}
        self._job_times: dict[str, Histogram] = {}
        self.uploaded = 0  # bytes
        self._lock = threading.Lock()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. `route` is the pattern, not the address: there are few of them."""
        with self._lock:
            key = (method, route, status)
            self._requests[key] = self._requests.get(key, 0) + 1
            self._times.setdefault(route, Histogram()).add(seconds)

    def job(self, kind: str, state: str, seconds: float) -> None:
        """Count a job that is over; its time is from when it was asked for."""
        with self._lock:
            self._jobs[kind, state] = self._jobs.get((kind, state), 0) + 1
            if state == "done":
                self._job_times.setdefault(kind, Histogram()).add(seconds)

    def text(self, gauges: Iterable[tuple[str, str, float]], closed: Mapping[str, int]) -> str:
        """The page; `gauges` are name, help and value, `closed` counts connections by the reason for closing them."""
        lines: list[str] = []
        with self._lock:
            lines += _head("hapvr_requests_total", "counter", "Answers.")
            lines += [
                f'hapvr_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
                for (method, route, status), count in sorted(self._requests.items())
            ]
            lines += _head("hapvr_request_seconds", "histogram", "Time to the end of an answer.")
            for route, times in sorted(self._times.items()):
                lines += times.lines("hapvr_request_seconds", f'route="{route}"')
            lines += _head("hapvr_jobs_total", "counter", "Jobs that are over.")
            lines += [
                f'hapvr_jobs_total{{kind="{kind}",state="{state}"}} {count}'
                for (kind, state), count in sorted(self._jobs.items())
            ]
            lines += _head(
                "hapvr_job_seconds", "histogram", "Time from the request of a job to its end, if it was done."
            )
            for kind, times in sorted(self._job_times.items()):
                lines += times.lines("hapvr_job_seconds", f'kind="{kind}"')
            lines += _head("hapvr_upload_bytes_total", "counter", "Bytes received in uploads.")
            lines.append(f"hapvr_upload_bytes_total {self.uploaded}")
        lines += _head("hapvr_connections_closed_total", "counter", "Connections that were closed for a reason.")
        lines += [
            f'hapvr_connections_closed_total{{reason="{reason}"}} {count}' for reason, count in sorted(closed.items())
        ]
        for name, text, value in gauges:
            lines += [*_head(name, "gauge", text), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def resident_bytes(pid: int | None) -> float | None:
    """The memory of a process, where the system tells."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096.0
    except (OSError, ValueError, IndexError):
        return None
