"""Where stretches begin and end: by hand, by loops, and laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.judge.stretch_ends import find_borders, find_ends, find_parts, walk_line

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]


def make_matrix(rows: int, columns: int, shift: int, copied: range, *, likeness: float = 0.8) -> NDArray[np.float32]:
    """Frames `copied` of A are frames of B, `shift` farther; all others are a little alike."""
    matrix = np.random.default_rng(rows + columns).uniform(0.05, 0.2, (rows, columns)).astype(np.float32)
    for row in copied:
        matrix[row, row + shift] = likeness
    return matrix


def find(
    matrix: NDArray[np.float32], cells: Cells, line: tuple[float, float], *, pixels: NDArray[np.float32] | None = None
) -> list[Cells]:
    a_times, b_times = (np.arange(float(length)) for length in matrix.shape)
    return find_ends(matrix, a_times, b_times, line, cells, min_frames=3, pixels=pixels)


def on_line(rows: range, shift: int) -> Cells:
    return np.array([[row, row + shift] for row in rows])


def test_a_frame_counts_from_two_fifths_of_the_usual_similarity_on() -> None:
    """The usual one is 0.8. A frame with 0.34 is worth (0.425 - 0.4) / 0.6 > 0, one with 0.3 less than 0."""
    matrix = make_matrix(12, 12, 0, range(3, 9))
    matrix[2, 2], matrix[9, 9] = 0.34, 0.3
    (part,) = find(matrix, on_line(range(4, 8), 0), (1.0, 0.0))
    assert part.tolist() == on_line(range(2, 9), 0).tolist()


@pytest.mark.parametrize("found", [range(5, 14), range(2, 9), range(6, 9), range(1, 19)])
def test_the_host_of_a_clip_is_no_part_of_it_however_much_was_found(found: range) -> None:
    matrix = make_matrix(20, 24, 3, range(5, 14))
    (part,) = find(matrix, on_line(found, 3), (1.0, 3.0))
    assert part.tolist() == on_line(range(5, 14), 3).tolist()


def test_a_copy_of_full_length_keeps_it_when_some_frames_are_covered() -> None:
    matrix = make_matrix(20, 20, 0, range(20))
    for row in (4, 5, 6, 12, 13):
        matrix[row, row] = 0.1
    (part,) = find(matrix, on_line(range(7, 12), 0), (1.0, 0.0))
    assert len(part) == 20


def test_what_was_put_in_between_cuts_a_stretch_in_two() -> None:
    matrix = make_matrix(40, 40, 0, range(40))
    for row in range(15, 26):
        matrix[row, row] = 0.0
    parts = find(matrix, on_line(range(40), 0), (1.0, 0.0))
    assert [(part[0, 0], part[-1, 0]) for part in parts] == [(0, 14), (26, 39)]


def test_miniatures_find_the_ends_where_the_host_is_a_look_alike() -> None:
    matrix = make_matrix(20, 20, 0, range(20), likeness=0.6)
    pixels = np.zeros((20, 20), np.float32)
    for row in range(20):
        matrix[row, row] = 0.6 if 6 <= row < 15 else 0.4
        pixels[row, row] = 0.95 if 6 <= row < 15 else 0.2
    (alone,) = find(matrix, on_line(range(20), 0), (1.0, 0.0))
    assert len(alone) == 20
    (part,) = find(matrix, on_line(range(20), 0), (1.0, 0.0), pixels=pixels)
    assert part.tolist() == on_line(range(6, 15), 0).tolist()
    matrix[4:6] = matrix[15] = 0.1
    for row in (4, 5, 15):
        matrix[row, row] = 0.49  # more than 0.8 times the usual similarity: they belong to it whatever pixels say
    (wider,) = find(matrix, on_line(range(20), 0), (1.0, 0.0), pixels=pixels)
    assert wider.tolist() == on_line(range(4, 16), 0).tolist()
    weak = pixels * np.float32(0.5)  # they do not correlate enough to count
    (unknown,) = find(matrix, on_line(range(20), 0), (1.0, 0.0), pixels=weak)
    assert len(unknown) == 20


@pytest.mark.parametrize("line", [(1.0, 3.0), (-1.0, 18.0), (2.0, -3.0), (0.5, 1.0)])
def test_the_parts_of_b_and_a_are_those_of_a_and_b(line: tuple[float, float]) -> None:
    rng = np.random.default_rng(5)
    speed, shift = line
    a_times, b_times = np.arange(20.0), np.arange(22.0) + 0.1
    matrix = rng.uniform(0.0, 0.3, (20, 22)).astype(np.float32)
    walked = walk_line(speed, shift, a_times, b_times)
    core = walked[2:-2]
    matrix[core[:, 0], core[:, 1]] = 0.8
    forth = find_ends(matrix, a_times, b_times, line, core[1:4], min_frames=3)
    swapped = (1 / speed, -shift / speed)
    back = find_ends(matrix.T, b_times, a_times, swapped, core[1:4, ::-1], min_frames=3)
    cells = {tuple(cell) for part in forth for cell in part.tolist()}
    assert cells == {tuple(cell[::-1]) for part in back for cell in part.tolist()}
    assert {tuple(cell) for cell in core.tolist()} <= cells
    for one, other in zip(forth, back, strict=True):
        query, target = find_borders(one, line, a_times, b_times)
        other_query, other_target = find_borders(other, swapped, b_times, a_times)
        assert other_query == pytest.approx(target)
        assert other_target == pytest.approx(query)


def test_a_line_is_walked_as_a_loop_walks_it() -> None:
    rng = np.random.default_rng(6)
    for _ in range(50):
        a_times, b_times = np.sort(rng.uniform(0, 20, 30)), np.cumsum(rng.uniform(0.4, 0.6, 25))
        speed, shift = float(rng.choice([1.0, -1.0, 0.7, -1.6])), float(rng.uniform(-5, 25))
        expected = max(
            walk_by_loop(speed, shift, a_times, b_times),
            [cell[::-1] for cell in walk_by_loop(1 / speed, -shift / speed, b_times, a_times)],
            key=len,
        )
        walked = walk_line(speed, shift, a_times, b_times)
        assert sorted(walked.tolist()) == sorted(expected)
        assert (np.diff(walked[:, 0]) >= 0).all()
        assert (np.diff(walked[:, 1]) * speed >= 0).all()


def walk_by_loop(speed: float, shift: float, times: Floats, others: Floats) -> list[list[int]]:
    step = max(float(np.median(np.diff(others))), abs(speed) * float(np.median(np.diff(times))))
    cells = []
    for frame, time in enumerate(times):
        wanted = speed * time + shift
        place = min(range(len(others)), key=lambda other: abs(others[other] - wanted))
        lasts = others[0] - 0.51 * step <= wanted <= others[-1] + 0.51 * step
        if lasts and abs(others[place] - wanted) <= 1.01 * step:
            cells.append([frame, place])
    return cells


def test_the_first_part_is_the_one_that_a_loop_over_all_finds() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        gains = rng.normal(0, 1, 14)
        parts = find_parts(gains, min_gain=0.5, max_drop=math.inf)
        sums = {(start, end): gains[start:end].sum() for end in range(1, 15) for start in range(end)}
        best = max(sums, key=lambda part: sums[part])
        if sums[best] < 0.5:
            assert parts == []
            continue
        assert best in parts
        assert all(sums[part] >= 0.5 for part in parts)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(parts))


def test_no_part_falls_by_more_than_is_allowed_and_the_rest_is_worth_little() -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        gains = rng.choice([-1.0, -0.5, 1.0], 60)
        parts = find_parts(gains, min_gain=2.0, max_drop=2.0)
        outside = np.ones(60, bool)
        for start, end in parts:
            sums = np.concatenate([[0.0], np.cumsum(gains[start:end])])
            assert (np.maximum.accumulate(sums) - sums).max() <= 2.0
            assert sums[-1] >= 2.0
            outside[start:end] = False
        runs = np.split(np.where(outside, gains, -99.0), np.flatnonzero(np.diff(outside)) + 1)
        for run in runs:
            assert max((run[i:j].sum() for j in range(1, len(run) + 1) for i in range(j)), default=0) < 2.0


def test_a_border_is_where_the_other_video_ends() -> None:
    """A, 10 s at 2 frames a second, is B from 3.2 s on; backwards the same, from 13.2 s down."""
    a_times, b_times = np.arange(20) / 2, np.arange(40) / 2
    walked = walk_line(1.0, 3.2, a_times, b_times)
    assert find_borders(walked, (1.0, 3.2), a_times, b_times) == ((0.0, 9.75), (3.2, 12.95))
    walked = walk_line(-1.0, 13.2, a_times, b_times)
    query, target = find_borders(walked, (-1.0, 13.2), a_times, b_times)
    assert query == (0.0, 9.75)
    assert target == pytest.approx((3.45, 13.2))
    within = walked[4:10]  # no video ends there: halfway to the next frames
    assert find_borders(within, (-1.0, 13.2), a_times, b_times) == ((1.75, 4.75), (8.25, 11.25))


def test_a_line_without_a_frame_has_no_parts() -> None:
    times, none = np.arange(6.0), np.zeros((0, 2), np.int64)
    assert find_ends(np.ones((6, 6), np.float32), times, times, (1.0, 0.0), none, min_frames=3) == []


def test_a_video_of_one_frame_is_walked() -> None:
    assert walk_line(1.0, 2.0, np.array([0.0]), np.arange(5.0)).tolist() == [[0, 2]]
    assert walk_line(1.0, -2.0, np.arange(5.0), np.array([0.0])).tolist() == [[2, 0]]
    assert walk_line(1.0, 9.0, np.array([0.0]), np.array([0.0])).tolist() == []


def test_a_match_elsewhere_on_the_line_is_none_of_the_stretch() -> None:
    matrix = make_matrix(40, 40, 0, range(40))
    for row in range(12, 26):
        matrix[row, row] = 0.0
    (part,) = find(matrix, on_line(range(2, 9), 0), (1.0, 0.0))
    assert part.tolist() == on_line(range(12), 0).tolist()
