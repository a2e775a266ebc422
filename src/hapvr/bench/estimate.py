"""What measured rates mean for a collection: arithmetic alone, nothing is measured here.

`hapvr bench` measures the constants below; these functions turn them into hours, gigabytes and seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hapvr.errors import ConfigError

HITS = 10
"""Videos that a search lists: the default of `hapvr search`."""
_ROUGH = 9  # a rough score takes a ninth of the work: every third frame of both videos


@dataclass(frozen=True)
class FileRate:
    """Videos that were read, and how long it took, the start of the processes not counted."""

    files: int
    frames: int  # that were taken of them
    video_s: float  # their length
    wall_s: float

    @property
    def frames_per_s(self) -> float:
        """Frames taken a second."""
        return self.frames / self.wall_s

    @property
    def video_per_s(self) -> float:
        """Seconds of video a second, or hours an hour."""
        return self.video_s / self.wall_s

    @property
    def frames_per_video_s(self) -> float:
        """Frames taken of a second of video."""
        return self.frames / self.video_s


@dataclass(frozen=True)
class StoreRate:
    """What writing features into a library costs."""

    write_frames_per_s: float
    bytes_per_frame: float


@dataclass(frozen=True)
class SearchRate:
    """A search in a drawn library: the median, its stages, and what was searched."""

    videos: int
    video_frames: int  # of each video
    query_frames: int
    p50_s: float
    p95_s: float
    candidates_s: float  # medians of the stages
    score_s: float
    segments_s: float


@dataclass(frozen=True)
class ScoreRate:
    """Videos of one length: pairs with a query of the same length, and finding where ten hits match."""

    frames: int
    pairs_per_s: float
    segments_s: float


@dataclass(frozen=True)
class PairCost:
    """Seconds to score a pair of videos: fixed + per_cell * (frames of one) * (frames of the other)."""

    fixed_s: float
    per_cell_s: float

    def compute(self, cells: float) -> float:
        """Seconds for a pair whose frame matrix has this number of cells."""
        return self.fixed_s + self.per_cell_s * cells


@dataclass(frozen=True)
class IndexEstimate:
    """What adding a collection takes."""

    seconds: float
    frames: float
    bytes: float


def estimate_index(*, video_s: float, rate: FileRate, store: StoreRate, start_s: float) -> IndexEstimate:
    """The time to add videos of this length in all, and the size of the library.

        frames  = video_s * frames taken of a second of video
        seconds = start_s + video_s / (seconds of video a second) + frames / (frames written a second)
        bytes   = frames * bytes of a frame

    An hour of video read at 20 times its speed, 2 frames a second written at 7,200 a second, 2,000 bytes each:

    >>> rate = FileRate(files=1, frames=120, video_s=60.0, wall_s=3.0)
    >>> estimate_index(video_s=3600.0, rate=rate, store=StoreRate(7200.0, 2000.0), start_s=4.0)
    IndexEstimate(seconds=185.0, frames=7200.0, bytes=14400000.0)
    """
    frames = video_s * rate.frames_per_video_s
    seconds = start_s + video_s / rate.video_per_s + frames / store.write_frames_per_s
    return IndexEstimate(seconds, frames, frames * store.bytes_per_frame)


def fit_pair_cost(pairs_per_s: Mapping[int, float]) -> PairCost:
    """The cost of a pair from rates at two lengths: frames of both videos -> pairs a second.

    The line through both; where it would cost less than nothing at 0 cells, or less for more, the part below 0 is 0.

    >>> fit_pair_cost({10: 500.0, 20: 200.0})  # 2 ms for 100 cells, 5 ms for 400
    PairCost(fixed_s=0.001, per_cell_s=1e-05)
    """
    if len(pairs_per_s) != 2 or min(pairs_per_s.values()) <= 0:
        raise ConfigError(f"Rates above 0 at two lengths are needed, got {dict(pairs_per_s)}.")
    (short, few_s), (long, many_s) = sorted((frames**2, 1 / rate) for frames, rate in pairs_per_s.items())
    per_cell_s = (many_s - few_s) / (long - short)
    if per_cell_s < 0:
        return PairCost((few_s + many_s) / 2, 0.0)
    fixed_s = few_s - per_cell_s * short
    return PairCost(fixed_s, per_cell_s) if fixed_s >= 0 else PairCost(0.0, many_s / long)


def count_exact_pairs(videos: float) -> int:
    """Videos that a search in this many compares exactly.

    >>> count_exact_pairs(1_000), count_exact_pairs(1_000_000)
    (50, 200)
    """
    from hapvr.library.candidates import MAX_COMPARED, max_candidates  # loads torch

    return min(int(videos), max_candidates(int(videos), k=HITS, max_compared=MAX_COMPARED))


def count_rough_pairs(videos: float) -> int:
    """Videos that get a rough score first; 0 if all of them are compared exactly.

    >>> count_rough_pairs(10), count_rough_pairs(1_000_000)
    (0, 400)
    """
    from hapvr.library.candidates import count_rough  # loads torch

    exact, rough = count_exact_pairs(videos), min(int(videos), count_rough(count_exact_pairs(videos)))
    return rough if rough > exact else 0


def compute_scoring(videos: int, *, cells: float, cost: PairCost) -> float:
    """Seconds that a search takes for scores: rough ones of many videos, then exact ones of the best.

    >>> cost = PairCost(fixed_s=0.0, per_cell_s=1e-6)
    >>> round(compute_scoring(100_000, cells=900.0, cost=cost), 6)  # 400 rough and 200 exact ones: .04 + .18
    0.22
    """
    exact, rough = count_exact_pairs(videos), count_rough_pairs(videos)
    return exact * cost.compute(cells) + rough * cost.compute(cells / _ROUGH)


def compute_segments_slope(scores: Sequence[ScoreRate]) -> float:
    """Seconds to find segments per cell of a frame matrix, from the rates of two lengths; at least 0.

    >>> compute_segments_slope([ScoreRate(10, 1.0, 0.5), ScoreRate(20, 1.0, 3.5)])  # 3 s more for 300 cells
    0.01
    """
    short, long = sorted(scores, key=lambda one: one.frames)
    return max(0.0, (long.segments_s - short.segments_s) / (long.frames**2 - short.frames**2))


def estimate_search(*, videos: int, video_frames: float, measured: SearchRate, scores: Sequence[ScoreRate]) -> float:
    """Seconds for one search in a library of this size whose query is described already.

        segments + slope * (cells - cells then) + candidates and score + scoring now - scoring then

    Cells are those of the matrix of the query's frames with a video's. Scores are `compute_scoring`. What is left of
    the stages, such as finding neighbours, is taken to be the same at all sizes. No part is below 0.
    """
    cost = fit_pair_cost({one.frames: one.pairs_per_s for one in scores})
    cells, cells_then = (measured.query_frames * frames for frames in (video_frames, measured.video_frames))
    then = compute_scoring(measured.videos, cells=cells_then, cost=cost)
    now = compute_scoring(videos, cells=cells, cost=cost)
    fixed = max(0.0, measured.candidates_s + measured.score_s - then)
    segments = max(0.0, measured.segments_s + compute_segments_slope(scores) * (cells - cells_then))
    return segments * min(videos, HITS) / min(measured.videos, HITS) + fixed + now


def count_videos(hours: float, *, video_minutes: float) -> int:
    """How many videos of this length these hours are; one at least.

    >>> count_videos(10.0, video_minutes=5.0)
    120
    """
    return max(1, math.ceil(hours * 60 / video_minutes))


def round_figure(value: float, digits: int = 2) -> float:
    """A number rounded to its significant digits: an estimate has no more.

    >>> round_figure(1234.5), round_figure(0.0456), round_figure(0.0)
    (1200.0, 0.046, 0.0)
    """
    return value if value == 0 or not math.isfinite(value) else float(f"{value:.{digits}g}")


def format_duration(seconds: float) -> str:
    """A duration in a suitable unit.

    >>> [format_duration(value) for value in (0.3, 59.0, 200.0, 4_000.0, 86_400.0 * 3, 86_400.0 * 900)]
    ['0.3 s', '59 s', '3.3 minutes', '67 minutes', '3 days', '2.5 years']
    """
    for unit, size, until in (("s", 1, 90), ("minutes", 60, 5400), ("hours", 3600, 36 * 3600), ("days", 86400, 4e7)):
        if seconds < until:
            return f"{round_figure(seconds / size):,g} {unit}"
    return f"{round_figure(seconds / 86400 / 365.25):,g} years"


def format_length(seconds: float) -> str:
    """The length of videos: as `format_duration`, but never in days.

    >>> format_length(40.0), format_length(3600.0 * 1234)
    ('40 s', '1,234 hours')
    """
    return format_duration(seconds) if seconds < 36_000 else f"{seconds / 3600:,.0f} hours"


def format_bytes(size: float) -> str:
    """A number of bytes in decimal units.

    >>> [format_bytes(value) for value in (900.0, 15_600_000.0, 156e9, 2.3e12)]
    ['900 bytes', '16 MB', '160 GB', '2.3 TB']
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{round_figure(size / scale):,g} {unit}"
    return f"{round(size)} bytes"
