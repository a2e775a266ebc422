"""Frame vectors, runs and votes, against loops; and that the candidates of a noisy copy hold its original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ShapeError
from hapvr.library.candidates import ALIKE, count_votes, find_nearest_vectors, find_runs, max_candidates


def walk(frames: int, *, step: float, seed: int = 0, dims: int = 64) -> Tensor:
    """Regions [T, 2, D] of a video that changes by `step` a frame."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(frames, 2, dims, generator=generator)
    steps[1:] *= step
    return F.normalize(steps.cumsum(0), dim=-1)


def slow_runs(regions: Tensor, dims: int) -> tuple[list[list[float]], list[int]]:
    """`runs` one frame at a time."""
    groups: list[list[list[float]]] = []
    for frame in regions.tolist():
        mean = [sum(region[place] for region in frame) / len(frame) for place in range(min(dims, len(frame[0])))]
        unit = _unit(mean)
        if groups and sum(a * b for a, b in zip(groups[-1][0], unit, strict=True)) >= ALIKE:
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return [_unit([sum(column) for column in zip(*group, strict=True)]) for group in groups], [
        len(group) for group in groups
    ]


def _unit(vector: list[float]) -> list[float]:
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector]


@pytest.mark.parametrize("step", [0.01, 0.3, 0.6, 3.0])
def test_runs_agree_with_the_loop(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = walk(40, step=step)
    expected, sizes = slow_runs(regions, 16)
    for block in (512, 3):
        monkeypatch.setattr("hapvr.library.candidates._BLOCK", block)
        vectors, weights = find_runs(regions, dims=16)
        torch.testing.assert_close(vectors, torch.tensor(expected), rtol=1e-4, atol=1e-5)
        assert weights.tolist() == sizes


def test_a_still_scene_is_one_run_and_a_cut_begins_another() -> None:
    one, other = walk(2, step=9.0)
    vectors, weights = find_runs(torch.stack([one] * 5 + [other] * 3 + [one]))
    assert weights.tolist() == [5, 3, 1]
    torch.testing.assert_close(vectors[0], vectors[2])


def test_frames_of_low_information_do_not_vote_unless_there_are_no_others() -> None:
    regions = walk(4, step=9.0)
    low = np.array([True, False, True, False])
    assert torch.equal(find_runs(regions, low)[0], find_runs(regions[[1, 3]])[0])
    assert torch.equal(find_runs(regions, np.ones(4, np.bool_))[0], find_runs(regions)[0])


def test_a_frame_without_direction_does_not_vote() -> None:
    regions = walk(3, step=9.0)
    regions[1] = 0.0
    assert torch.equal(find_runs(regions)[0], find_runs(regions[[0, 2]])[0])
    assert find_runs(torch.zeros(2, 2, 8))[0].shape == (0, 8)
    with pytest.raises(ShapeError, match=r"\[T, R, D\]"):
        find_runs(torch.zeros(4, 8))[0]


def slow_votes(
    which: NDArray[np.int64], keys: NDArray[np.int64], similarities: NDArray[np.float32], weights: NDArray[np.float32]
) -> dict[int, float]:
    total = dict.fromkeys(keys.tolist(), 0.0)
    for run, weight in enumerate(weights.tolist()):
        found = [(key, value) for one, key, value in zip(which, keys, similarities, strict=True) if one == run]
        last = min((value for _, value in found), default=0.0)
        for key in {int(key) for key, _ in found}:
            total[key] += weight * (max(value for one, value in found if one == key) - last)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_votes_agree_with_the_loop(seed: int) -> None:
    draw = np.random.default_rng(seed)
    which, keys = draw.integers(0, 6, 80), draw.integers(100, 112, 80)
    similarities = draw.normal(size=80).astype(np.float32)
    weights = draw.integers(1, 5, 6).astype(np.float32)
    found, counted = count_votes(which, keys, similarities, weights)
    expected = slow_votes(which, keys, similarities, weights)
    assert dict(zip(found.tolist(), counted.tolist(), strict=True)) == pytest.approx(expected, abs=1e-5)
    assert (np.diff(counted) <= 0).all()


def test_the_order_of_finds_and_a_common_shift_change_no_vote() -> None:
    draw = np.random.default_rng(0)
    which, keys = draw.integers(0, 6, 80), draw.integers(0, 12, 80)
    similarities, weights = draw.normal(size=80).astype(np.float32), np.ones(6, np.float32)
    found, counted = count_votes(which, keys, similarities, weights)
    order = draw.permutation(80)
    for others in (
        count_votes(which[order], keys[order], similarities[order], weights),
        count_votes(which, keys, similarities + np.float32(2), weights),
    ):
        assert others[0].tolist() == found.tolist()
        np.testing.assert_allclose(others[1], counted, atol=1e-5)


def test_nothing_found_is_no_vote() -> None:
    none = np.zeros(0, np.int64)
    found, counted = count_votes(none, none, np.zeros(0, np.float32), np.ones(3, np.float32))
    assert len(found) == len(counted) == 0


@pytest.mark.parametrize("database", [0, 1, 199, 200, 1000, 3999, 10**6])
def test_no_more_than_a_twentieth_is_compared_exactly_nor_more_than_the_limit(database: int) -> None:
    most = max_candidates(database, k=10, max_compared=200)
    assert 10 <= most <= 200
    assert most <= max(10, database / 20)


def test_the_original_of_a_noisy_part_is_the_first_candidate() -> None:
    videos = [walk(20, step=0.5, seed=seed) for seed in range(60)]
    runs = [find_runs(video)[0].numpy() for video in videos]
    keys = np.repeat(np.arange(len(runs)), [len(one) for one in runs])
    for seed in range(0, 60, 7):
        part = videos[seed][5:15]
        vectors, weights = find_runs(F.normalize(part + 0.1 * torch.randn(part.shape), dim=-1))
        found, _ = count_votes(*find_nearest_vectors(keys, np.concatenate(runs), vectors, k=300), weights.numpy())
        assert found[0] == seed
        assert len(found) >= 3


@pytest.mark.parametrize("k", [1, 3, 100])
def test_the_nearest_are_those_of_a_slow_loop(k: int) -> None:
    draw = np.random.default_rng(k)
    keys, vectors = draw.integers(0, 9, 20), draw.normal(size=(20, 4)).astype(np.float32)
    queries = draw.normal(size=(5, 4)).astype(np.float32)
    which, found, similarities = find_nearest_vectors(keys, vectors, torch.from_numpy(queries), k=k)
    for number, query in enumerate(queries):
        expected = sorted(((float(query @ vector), int(key)) for vector, key in zip(vectors, keys, strict=True)))[::-1]
        mine = which == number
        assert similarities[mine].tolist() == pytest.approx([value for value, _ in expected[:k]], abs=1e-5)
        assert found[mine].tolist() == [key for _, key in expected[:k]]
