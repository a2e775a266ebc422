"""The arithmetic of `hapvr bench`: cases computed by hand, a slow loop, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.bench.estimate import (
    FileRate,
    PairCost,
    ScoreRate,
    SearchRate,
    StoreRate,
    compute_scoring,
    count_videos,
    estimate_index,
    estimate_search,
    fit_pair_cost,
    format_bytes,
    format_duration,
)
from hapvr.errors import ConfigError
from hapvr.library.candidates import MAX_COMPARED

STORE = StoreRate(write_frames_per_s=1000.0, bytes_per_frame=2000.0)
SEARCH = SearchRate(
    videos=1000,
    video_frames=30,
    query_frames=20,
    p50_s=0.2,
    p95_s=0.3,
    candidates_s=0.08,
    score_s=0.05,
    segments_s=0.07,
)
COST = PairCost(fixed_s=1e-4, per_cell_s=1e-6)
SCORES = [  # the same cost, and 1 ms of segments for 300 cells
    ScoreRate(10, pairs_per_s=5000.0, segments_s=0.06),
    ScoreRate(20, pairs_per_s=2000.0, segments_s=0.061),
]


def test_rates_of_files_by_hand() -> None:
    rate = FileRate(files=3, frames=90, video_s=45.0, wall_s=1.5)
    assert (rate.frames_per_s, rate.video_per_s, rate.frames_per_video_s) == (60.0, 30.0, 2.0)


def test_ten_thousand_hours_by_hand() -> None:
    """36,000,000 s at 72 times real time: 500,000 s; 72,000,000 frames: 72,000 s to write, 144 GB."""
    rate = FileRate(files=1, frames=144, video_s=72.0, wall_s=1.0)
    found = estimate_index(video_s=3600.0 * 10_000, rate=rate, store=STORE, start_s=3.0)
    assert found.seconds == pytest.approx(572_003.0)
    assert found.frames == pytest.approx(72e6)
    assert found.bytes == pytest.approx(144e9)
    assert format_duration(found.seconds) == "6.6 days"
    assert format_bytes(found.bytes) == "140 GB"


@given(st.floats(1.0, 1e7), st.floats(1.0, 1e7))
def test_two_collections_take_as_long_as_both_together(first: float, second: float) -> None:
    rate = FileRate(files=2, frames=50, video_s=31.0, wall_s=0.7)
    lengths = (first, second, first + second)
    one, other, both = (estimate_index(video_s=one, rate=rate, store=STORE, start_s=0.0) for one in lengths)
    assert one.seconds + other.seconds == pytest.approx(both.seconds)
    assert one.bytes + other.bytes == pytest.approx(both.bytes)


def test_the_cost_of_a_pair_goes_through_both_rates() -> None:
    cost = fit_pair_cost({28: 2000.0, 105: 200.0})
    assert 1 / cost.compute(28 * 28) == pytest.approx(2000.0)
    assert 1 / cost.compute(105 * 105) == pytest.approx(200.0)


def test_the_cost_of_a_pair_is_never_negative() -> None:
    steep = fit_pair_cost({10: 1e6, 20: 100.0})  # the line would cost less than nothing at 0 cells
    assert steep.fixed_s == 0
    assert steep.per_cell_s == pytest.approx(0.01 / 400)
    falling = fit_pair_cost({10: 100.0, 20: 200.0})  # noise: longer videos cannot be faster
    assert falling.fixed_s == pytest.approx(0.0075)
    assert falling.per_cell_s == 0


@pytest.mark.parametrize("rates", [{28: 10.0}, {28: 10.0, 105: 0.0}, {}])
def test_a_cost_needs_two_rates(rates: dict[int, float]) -> None:
    with pytest.raises(ConfigError, match="two lengths"):
        fit_pair_cost(rates)


@pytest.mark.parametrize("videos", [1, 5, 10, 11, 150, 300, 1000, 4000, 10_000_000])
def test_scoring_agrees_with_a_loop(videos: int) -> None:
    """Pair by pair: 5% of the videos but at least 10 and at most 200; before that rough ones where there are more."""
    exact = min(videos, max(10, videos // 20), MAX_COMPARED)
    rough = min(videos, 4 * exact, exact + 200)
    total = sum(1e-4 + 1e-6 * 900.0 for _ in range(exact))
    if rough > exact:
        total += sum(1e-4 + 1e-6 * 100.0 for _ in range(rough))
    assert compute_scoring(videos, cells=900.0, cost=COST) == pytest.approx(total)


def test_the_library_that_was_measured_takes_what_was_measured() -> None:
    found = estimate_search(videos=1000, video_frames=30.0, measured=SEARCH, scores=SCORES)
    assert found == pytest.approx(0.08 + 0.05 + 0.07)


def test_a_larger_library_by_hand() -> None:
    """1,000 videos: 50 exact of 600 cells (.035 s) and 200 rough of 66.7 (.03333 s).

    10,000 videos of 60 frames: 200 exact of 1,200 cells (.26 s) and 400 rough of 133.3 (.09333 s); segments 2 ms more.
    """
    found = estimate_search(videos=10_000, video_frames=60.0, measured=SEARCH, scores=SCORES)
    assert found == pytest.approx(0.072 + (0.13 - 0.035 - 1 / 30) + 0.26 + 0.28 / 3)


def test_scores_that_took_longer_than_the_whole_search_leave_nothing_negative() -> None:
    slow = [ScoreRate(28, pairs_per_s=1.0, segments_s=0.05), ScoreRate(105, pairs_per_s=1.0, segments_s=0.04)]
    found = estimate_search(videos=10, video_frames=90.0, measured=SEARCH, scores=slow)
    assert found == pytest.approx(0.07 + 10.0)  # ten pairs of a second; segments never take less for longer videos


def test_videos_shorter_than_any_measured_have_segments_in_no_less_than_no_time() -> None:
    steep = [ScoreRate(28, pairs_per_s=1e9, segments_s=0.0), ScoreRate(30, pairs_per_s=1e9, segments_s=1.0)]
    assert estimate_search(videos=1, video_frames=1.0, measured=SEARCH, scores=steep) == pytest.approx(0.13, rel=1e-4)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(1.0, 1e4))
def test_more_videos_never_take_less(one: int, other: int, frames: float) -> None:
    few, many = sorted((one, other))
    times = [
        estimate_search(videos=count, video_frames=frames, measured=SEARCH, scores=SCORES) for count in (few, many)
    ]
    assert 0 < times[0] <= times[1] + 1e-12


def test_videos_of_hours() -> None:
    assert count_videos(10_000.0, video_minutes=5.0) == 120_000
    assert count_videos(0.2, video_minutes=5.0) == 3  # 2.4
    assert count_videos(0.001, video_minutes=90.0) == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (89.0, "89 s"), (91.0, "1.5 minutes"), (5400.0, "1.5 hours"), (129_600.0, "1.5 days")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_sizes_in_words() -> None:
    assert [format_bytes(size) for size in (0.0, 1e3, 1.25e9)] == ["0 bytes", "1 kB", "1.2 GB"]
