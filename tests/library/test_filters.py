"""Which videos are meant: limits by folder, size, length and date."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hapvr.errors import ConfigError
from hapvr.library import VideoRecord
from hapvr.library.filters import VideoFilter, parse_size

NOON = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)
VIDEO = VideoRecord("1", "/films/a/b.mp4", 1000, int(NOON.timestamp()) * 10**9, "", duration=60.0)


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({}, True),
        ({"folders": ("/films",)}, True),
        ({"folders": ("/films/",)}, True),
        ({"folders": ("/",)}, True),
        ({"folders": ("/film",)}, False),
        ({"folders": ("/music", "/films/a")}, True),
        ({"min_size": 1000, "max_size": 1000}, True),
        ({"min_size": 1001}, False),
        ({"max_size": 999}, False),
        ({"min_seconds": 60, "max_seconds": 60}, True),
        ({"min_seconds": 60.1}, False),
        ({"max_seconds": 59.9}, False),
        ({"after": NOON}, True),
        ({"before": NOON}, False),
        ({"after": NOON.replace(hour=13)}, False),
        ({"before": NOON.replace(hour=13)}, True),
        ({"folders": ("/films",), "min_size": 1, "max_seconds": 5}, False),
    ],
)
def test_a_video_must_keep_all_limits(limits: dict[str, object], allowed: bool) -> None:
    assert VideoFilter(**limits).allows(VIDEO) is allowed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limits",
    [
        {"min_size": 2, "max_size": 1},
        {"min_seconds": 2, "max_seconds": 1},
        {"min_size": -1},
        {"after": NOON, "before": NOON},
    ],
)
def test_limits_that_allow_nothing_are_refused(limits: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        VideoFilter(**limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1kB", 1000), ("1 KiB", 1024), ("2.5mb", 2_500_000), ("3G", 3 * 10**9), ("1TiB", 2**40), ("7b", 7)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 PB", "1e3", "ib", "1ib"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="500MB"):
        parse_size(text)
