"""The record of a video's features: which frames count, and parts of a video."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hapvr.errors import DataError
from hapvr.features import Features, join_features, select_frames


def features(flags: list[bool] | None, *, times: bool = True, seed: int = 0) -> Features:
    count = 6 if flags is None else len(flags)
    regions = F.normalize(torch.randn(count, 2, 8, generator=torch.Generator().manual_seed(seed)), dim=-1)
    small = np.arange(count, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    stamps = np.arange(count) / 2 if times else None
    return Features(regions, stamps, None if flags is None else np.array(flags, np.bool_), small)


def slow_select(flags: list[bool] | None, count: int) -> list[int]:
    kept = [place for place in range(count) if flags is None or not flags[place]]
    return kept or list(range(count))


@given(st.one_of(st.none(), st.lists(st.booleans(), min_size=1, max_size=9)))
def test_the_frames_that_count_are_those_of_the_loop(flags: list[bool] | None) -> None:
    count = 6 if flags is None else len(flags)
    array: NDArray[np.bool_] | None = None if flags is None else np.array(flags, np.bool_)
    assert select_frames(array, count).tolist() == slow_select(flags, count)
    video = features(flags)
    kept = video.drop_flat()
    assert kept.times.tolist() == [place / 2 for place in slow_select(flags, count)]
    assert torch.equal(kept.regions, video.regions[slow_select(flags, count)])
    assert kept.miniatures is not None
    assert kept.miniatures[:, 0, 0].tolist() == slow_select(flags, count)
    assert kept.all_flat is (flags is not None and all(flags))


def test_a_video_without_flat_frames_is_not_copied() -> None:
    for flags in (None, [False, False], [True, True]):
        video = features(flags)
        assert video.drop_flat() is video
        assert video.between(None, None) is video


def test_a_part_is_open_at_its_end() -> None:
    video = features([False] * 6)  # at 0, 0.5, ... 2.5 s
    assert video.between(0.5, 1.5).times.tolist() == [0.5, 1.0]
    assert video.between(None, 0.6).times.tolist() == [0.0, 0.5]
    assert video.between(2.0, None).times.tolist() == [2.0, 2.5]
    with pytest.raises(
        DataError, match=r"^'clip' has no frame from 2\.6 s to its end: its frames are of 0 to 2\.5 s\.$"
    ):
        video.between(2.6, None, name="'clip'")
    with pytest.raises(DataError, match=r"from 1\.1 s to 1\.4 s"):
        video.between(1.1, 1.4)


@given(st.floats(0, 2.4), st.floats(0.1, 3), st.floats(0.1, 3))
def test_parts_join_to_the_whole(start: float, middle: float, end: float) -> None:
    video = features([False, True, False, False, True, False])
    first, last = start + middle, start + middle + end
    whole = video.times[(video.times >= start) & (video.times < last)]
    parts = []
    for one in ((start, first), (first, last)):
        try:
            parts.append(video.between(*one))
        except DataError:
            continue
    found = join_features(parts).times.tolist() if parts else []
    assert found == whole.tolist()


@pytest.mark.parametrize("lengths", [[1], [5], [2, 3], [1, 1, 1, 1, 1, 1, 1], [4, 1, 9, 2], [1, 40]])
def test_parts_of_any_lengths_join_to_the_same_numbers(lengths: list[int]) -> None:
    regions, times = torch.rand(sum(lengths), 9, 4), np.arange(sum(lengths), dtype=np.float64)
    ends = np.cumsum(lengths)
    parts = [Features(regions[e - n : e].clone(), times[e - n : e]) for n, e in zip(lengths, ends, strict=True)]
    joined = join_features(part for part in parts)
    assert torch.equal(joined.regions, regions)
    assert joined.regions.is_contiguous()
    assert joined.times.tolist() == times.tolist()


def test_no_part_is_an_error_that_names_the_video() -> None:
    with pytest.raises(DataError, match=r"'a\.mp4' has no frame in that part"):
        join_features([], name="'a.mp4'")


def test_frames_that_repeat_one_before_the_part_count_once() -> None:
    """A still that lasts: only its first frame counts, and the part begins after that."""
    video = features([False, False, True, True, True, False])
    regions = video.regions.clone()
    regions[2:5] = regions[1]
    still = Features(regions, video.timestamps, video.low_information)
    part = still.between(1.0, 2.5)  # the three repeats
    assert part.low_information is not None
    assert part.low_information.tolist() == [False, True, True]
    assert len(part.drop_flat()) == 1
    # Flat frames are unlike what was before: they stay flat, and all are compared for lack of others.
    black = video.between(1.0, 2.5)
    assert black.all_flat
    assert len(black.drop_flat()) == 3


def test_times_are_given_where_they_are_not_known() -> None:
    video = features(None, times=False)
    with pytest.raises(DataError, match="no timestamps"):
        _ = video.times
    assert video.with_timestamps(4.0).times.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    known = features(None)
    assert known.with_timestamps(4.0) is known
