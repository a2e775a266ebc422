from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.training import make_pseudo_labels

Labels = list[list[int]]


def loop(
    query: list[list[float]], target: list[list[float]], top_rate: float, bottom_rate: float
) -> tuple[Labels, Labels]:
    """Labels of one pair without padding, written from the definition."""
    frames = len(target)
    tops = max(1, round(top_rate * frames))
    bottoms = max(1, round(bottom_rate * frames))
    if frames > 1:
        tops = min(tops, frames - 1)
    bottoms = min(bottoms, frames - tops)
    positive, negative = [], []
    for x in query:
        cosines = []
        for y in target:
            lengths = math.hypot(*x) * math.hypot(*y)
            cosines.append(sum(a * b for a, b in zip(x, y, strict=True)) / lengths if lengths else 0.0)
        order = sorted(range(frames), key=lambda t, c=cosines: (-c[t], t))  # type: ignore[misc]
        positive.append([int(t in order[:tops]) for t in range(frames)])
        negative.append([int(t in order[frames - bottoms :]) for t in range(frames)])
    return positive, negative


def on_a_circle(*degrees: float) -> Tensor:
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=-1)[None]  # [1, T, 2]


def test_labels_a_hand_computed_pair() -> None:
    # Query frames at 0 and 90 degrees; round(.35 * 5) = 2 of each kind.
    positive, negative = make_pseudo_labels(on_a_circle(0, 90), on_a_circle(10, 170, 60, 95, 130))
    assert positive.int().tolist() == [[[1, 0, 1, 0, 0], [0, 0, 1, 1, 0]]]
    assert negative.int().tolist() == [[[0, 1, 0, 0, 1], [1, 1, 0, 0, 0]]]


@pytest.mark.parametrize(("frames", "count"), [(2, 1), (3, 1), (4, 1), (5, 2), (10, 4), (28, 10), (30, 10)])
def test_counts_are_rounded_half_to_even(frames: int, count: int) -> None:
    positive, negative = make_pseudo_labels(torch.randn(1, 3, 6), torch.randn(1, frames, 6))
    assert positive.sum(-1).tolist() == negative.sum(-1).tolist() == [[count] * 3]


@given(
    queries=st.integers(1, 4),
    targets=st.integers(1, 12),
    rates=st.sampled_from([(0.35, 0.35), (0.5, 0.5), (0.0, 0.0), (0.7, 0.3), (1.0, 0.0), (0.0, 1.0), (0.1, 0.2)]),
    seed=st.integers(0, 2**31),
)
def test_agrees_with_the_loop(queries: int, targets: int, rates: tuple[float, float], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, queries, 3, generator=generator)
    target = torch.randn(2, targets, 3, generator=generator)
    positive, negative = make_pseudo_labels(query, target, top_rate=rates[0], bottom_rate=rates[1])
    for pair in range(2):
        expected = loop(query[pair].tolist(), target[pair].tolist(), *rates)
        assert (positive[pair].int().tolist(), negative[pair].int().tolist()) == expected
    assert not (positive & negative).any()
    assert targets == 1 or (positive.any(-1) & negative.any(-1)).all()


@given(real=st.integers(1, 9), padding=st.integers(0, 9), seed=st.integers(0, 2**31))
def test_padding_never_changes_labels(real: int, padding: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, 5, 384, generator=generator)
    # Few distinct frames, as in clips that were repeated to their length: most similarities are ties.
    target = torch.randn(1, 3, 384, generator=generator)[:, torch.randint(3, (real,), generator=generator)]
    expected = make_pseudo_labels(query, target)
    place = torch.randperm(real + padding, generator=generator)[:real].sort().values
    padded = torch.full((1, real + padding, 384), torch.nan)
    padded[:, place] = target
    mask = torch.zeros(1, real + padding, dtype=torch.bool)
    mask[:, place] = True
    padded_query = torch.cat([query, torch.full((1, 2, 384), torch.inf)], dim=1)
    query_mask = torch.arange(7)[None] < 5
    for labels, wanted in zip(
        make_pseudo_labels(padded_query, padded, query_mask=query_mask, target_mask=mask), expected, strict=True
    ):
        assert torch.equal(labels[:, :5, place], wanted)
        assert labels.sum() == wanted.sum()


def test_pairs_of_unequal_length_in_one_batch_keep_their_own_counts() -> None:
    query, target = torch.randn(2, 1, 4), torch.randn(2, 20, 4)
    mask = torch.arange(20)[None] < torch.tensor([[20], [4]])
    positive, negative = make_pseudo_labels(query, target, target_mask=mask)
    assert positive.sum(-1).flatten().tolist() == negative.sum(-1).flatten().tolist() == [7, 1]
    assert not negative[1, 0, 4:].any()


def test_equal_frames_are_ordered_by_index() -> None:
    positive, negative = make_pseudo_labels(torch.ones(1, 1, 3), torch.ones(1, 6, 3))
    assert positive.int().tolist() == [[[1, 1, 0, 0, 0, 0]]]
    assert negative.int().tolist() == [[[0, 0, 0, 0, 1, 1]]]
    zero_query = make_pseudo_labels(torch.zeros(1, 1, 3), torch.randn(1, 6, 3))
    assert torch.equal(zero_query[0], positive)
    assert torch.equal(zero_query[1], negative)


def test_a_target_of_one_frame_has_no_negative() -> None:
    positive, negative = make_pseudo_labels(torch.randn(1, 2, 3), torch.randn(1, 1, 3))
    assert positive.all()
    assert not negative.any()


@given(scale=st.floats(1e-2, 1e2))
def test_lengths_of_vectors_do_not_matter(scale: float) -> None:
    query, target = torch.randn(2, 3, 8), torch.randn(2, 9, 8)
    target_scaled = target * torch.linspace(1, scale, 9)[:, None]
    for labels, scaled in zip(make_pseudo_labels(query, target), make_pseudo_labels(query, target_scaled), strict=True):
        assert torch.equal(labels, scaled)


def test_exchanging_the_sign_of_the_query_exchanges_the_labels() -> None:
    query, target = torch.randn(2, 3, 8), torch.randn(2, 9, 8)
    positive, negative = make_pseudo_labels(query, target)
    assert torch.equal(make_pseudo_labels(-query, target)[0], negative)
    assert torch.equal(make_pseudo_labels(-query, target)[1], positive)


def test_half_precision_and_gradients_are_taken() -> None:
    query, target = torch.randn(1, 3, 8).bfloat16().requires_grad_(), torch.randn(1, 9, 8).bfloat16()
    positive, _ = make_pseudo_labels(query, target)
    assert positive.dtype == torch.bool
    assert torch.equal(positive, make_pseudo_labels(query.double(), target.double())[0])


@pytest.mark.parametrize("rates", [(0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (math.nan, 0.1)])
def test_rates_that_contradict_each_other_are_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="rate"):
        make_pseudo_labels(torch.randn(1, 2, 3), torch.randn(1, 4, 3), top_rate=rates[0], bottom_rate=rates[1])


def test_bad_input_is_refused() -> None:
    query, target = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    with pytest.raises(ShapeError, match="must share P and D'"):
        make_pseudo_labels(query, target[..., :3])
    with pytest.raises(ShapeError, match="must share P and D'"):
        make_pseudo_labels(query, target[:1])
    with pytest.raises(ShapeError, match="query must be a tensor"):
        make_pseudo_labels(query[0], target)
    with pytest.raises(ShapeError, match="at least one frame"):
        make_pseudo_labels(query, target[:, :0])
    with pytest.raises(ShapeError, match="target_mask must have shape"):
        make_pseudo_labels(query, target, target_mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(DataError, match="target_mask leaves a video without a frame"):
        make_pseudo_labels(query, target, target_mask=torch.tensor([[True] * 5, [False] * 5]))
    with pytest.raises(DataError, match="query holds 24 NaN"):
        make_pseudo_labels(query * torch.nan, target)


def test_no_pairs_give_no_labels() -> None:
    positive, negative = make_pseudo_labels(torch.ones(0, 3, 4), torch.ones(0, 5, 4))
    assert positive.shape == negative.shape == (0, 3, 5)
