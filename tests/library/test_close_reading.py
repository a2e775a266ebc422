"""Which parts of a video of key frames are read again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hapvr.library.close_reading import find_parts


def find_slowly(matrix: np.ndarray, query: np.ndarray, target: np.ndarray) -> list[tuple[float, float]]:
    """Second by second: which are read."""
    length = min(query[-1] - query[0], 45.0)
    spans: list[tuple[float, float]] = []
    order = sorted(range(len(target)), key=lambda place: (-max(row[place] for row in matrix), place))
    for place in order:
        if len(spans) < 3 and not any(low <= target[place] <= high for low, high in spans):
            after = [time for time in target if time > target[place]]
            end = max(after[0] if after else 0.0, target[place] + length)
            spans.append((max(target[place] - length - 3, 0.0), min(end, target[place] + 45) + 3))
    return spans


@pytest.mark.parametrize("seed", range(20))
def test_parts_cover_what_the_slow_way_reads_and_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query = np.cumsum(rng.uniform(0.3, 1.0, rng.integers(2, 90)))
    target = np.cumsum(rng.uniform(1.0, 20.0, rng.integers(2, 60)))
    matrix = rng.random((len(query), len(target))).astype(np.float32)
    parts, spans = find_parts(matrix, query, target), find_slowly(matrix, query, target)
    assert all(one[1] + 1 < two[0] for one, two in pairwise(parts))
    for second in np.arange(0.0, target[-1] + 60, 0.25):
        read = any(low <= second <= high for low, high in parts)
        wanted = any(low <= second <= high for low, high in spans)
        assert read or not wanted
        if read and not wanted:  # between two spans that were joined
            assert any(0 <= second - high <= 1 for _, high in spans)


def test_parts_move_with_the_target_and_hold_the_best_frame() -> None:
    rng = np.random.default_rng(1)
    query, target = np.arange(20) / 2, 100 + np.cumsum(rng.uniform(2.0, 9.0, 30))
    matrix = rng.random((20, 30)).astype(np.float32)
    parts = find_parts(matrix, query, target)
    best = float(target[matrix.max(0).argmax()])
    assert any(low <= best - 9.5 and best + 9.5 <= high for low, high in parts)
    moved = find_parts(matrix, query + 7, target + 50)
    assert np.allclose(np.array(moved), np.array(parts) + 50)


def test_a_long_query_does_not_read_a_whole_film() -> None:
    matrix = np.zeros((7200, 2), np.float32)
    matrix[5, 0] = 1
    ((start_s, end_s),) = find_parts(matrix[:, :1], np.arange(7200) / 2, np.array([600.0]))
    assert (start_s, end_s) == (552.0, 648.0)
