from __future__ import annotations

from hapvr.server.metrics import Metrics


def test_what_is_counted_is_on_the_page() -> None:
    metrics = Metrics()
    for seconds in (0.02, 0.2, 1000.0):
        metrics.request("GET", "/api/health", 200, seconds)
    metrics.job("search", "done", 2.0)
    metrics.job("search", "failed", 9.0)
    metrics.upload(100)
    metrics.upload(23)
    lines = metrics.text([("hapvr_videos", "Videos.", 3.0)], {'a "slow" one': 2}).splitlines()
    for line in (
        "# TYPE hapvr_requests_total counter",
        'hapvr_requests_total{method="GET",route="/api/health",status="200"} 3.0',
        'hapvr_request_seconds_bucket{le="0.01",route="/api/health"} 0.0',
        'hapvr_request_seconds_bucket{le="0.3",route="/api/health"} 2.0',
        'hapvr_request_seconds_bucket{le="300.0",route="/api/health"} 2.0',
        'hapvr_request_seconds_bucket{le="+Inf",route="/api/health"} 3.0',
        'hapvr_request_seconds_sum{route="/api/health"} 1000.22',
        'hapvr_jobs_total{kind="search",state="failed"} 1.0',
        'hapvr_job_seconds_sum{kind="search"} 2.0',  # of those that were done
        "hapvr_upload_bytes_total 123.0",
        'hapvr_connections_closed_total{reason="a \\"slow\\" one"} 2.0',
        "# TYPE hapvr_videos gauge",
        "hapvr_videos 3.0",
    ):
        assert line in lines
    assert not [line for line in lines if "_created" in line]


def test_servers_in_one_process_do_not_mix() -> None:
    first, second = Metrics(), Metrics()
    first.upload(5)
    assert "hapvr_upload_bytes_total 0.0" in second.text([], {})
