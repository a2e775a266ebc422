from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.losses import FrameQuadLinearAP, QuadLinearAP, quad_linear_ap
from tests.losses import reference


@dataclass(frozen=True)
class Pairs:
    matrices: Tensor
    positive: Tensor
    negative: Tensor
    query_mask: Tensor
    target_mask: Tensor

    def value(self, loss: FrameQuadLinearAP) -> tuple[float, Tensor]:
        matrices = self.matrices.clone().requires_grad_()
        value = loss(matrices, self.positive, self.negative, query_mask=self.query_mask, target_mask=self.target_mask)
        (gradient,) = torch.autograd.grad(value, matrices)
        return value.item(), gradient


def some_pairs(pairs: int, query_frames: int, target_frames: int, seed: int) -> Pairs:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    label = uniform(pairs, query_frames, target_frames)
    return Pairs(
        # On a grid of 1/16, so that there are ties.
        (uniform(pairs, query_frames, target_frames) * 32).round() / 16 - 1,
        label < 0.35,
        label > 0.65,
        uniform(pairs, query_frames) < 0.8,
        uniform(pairs, target_frames) < 0.7,
    )


@given(
    pairs=st.integers(0, 4),
    query_frames=st.integers(1, 4),
    target_frames=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    delta=st.floats(0.02, 1),
    rho=st.floats(0, 5),
)
def test_agrees_with_the_loop(
    pairs: int, query_frames: int, target_frames: int, seed: int, delta: float, rho: float
) -> None:
    batch = some_pairs(pairs, query_frames, target_frames, seed)
    value, gradient = batch.value(FrameQuadLinearAP(delta, rho))
    expected = reference.frame_quad_linear_ap(
        batch.matrices.tolist(),
        batch.positive.tolist(),
        batch.negative.tolist(),
        batch.query_mask.tolist(),
        batch.target_mask.tolist(),
        delta,
        rho,
    )
    assert value == pytest.approx(expected, abs=1e-12)
    assert torch.isfinite(gradient).all()


def test_a_case_worked_by_hand() -> None:
    # delta = .1, rho = 1. Pair 0, frame 0: .5(+) .6(-): R-(.1) = 3 -> 3/4. Frame 1: .5(+) .5(-): R-(0) = 1 -> 1/2.
    # Pair 1, frame 0: .9(+) .1(-) -> 0. Frame 1 has no positive and is not counted.
    # Mean over frames, then over pairs: ((3/4 + 1/2) / 2 + 0) / 2.
    matrices = torch.tensor([[[0.5, 0.6], [0.5, 0.5]], [[0.9, 0.1], [0.2, 0.3]]])
    positive = torch.tensor([[[True, False], [True, False]], [[True, False], [False, False]]])
    negative = torch.tensor([[[False, True], [False, True]], [[False, True], [True, False]]])
    assert FrameQuadLinearAP(0.1, 1.0)(matrices, positive, negative).item() == pytest.approx(0.3125)


def test_one_pair_is_the_video_loss_with_its_frames_as_queries() -> None:
    batch = some_pairs(1, 6, 8, seed=3)
    frames = FrameQuadLinearAP(0.1, 0.7)(batch.matrices, batch.positive, batch.negative)
    neither = ~(batch.positive | batch.negative)
    videos = QuadLinearAP(0.1, 0.7)(batch.matrices[0], batch.positive[0], ignore=neither[0])
    assert frames.item() == pytest.approx(videos.item())


def test_padding_changes_nothing_whatever_it_holds() -> None:
    short = some_pairs(3, 4, 5, seed=1)
    padded = Pairs(
        torch.full((3, 6, 8), math.nan, dtype=torch.float64),
        torch.ones(3, 6, 8, dtype=torch.bool),
        torch.ones(3, 6, 8, dtype=torch.bool),
        torch.zeros(3, 6, dtype=torch.bool),
        torch.zeros(3, 8, dtype=torch.bool),
    )
    for name in ("matrices", "positive", "negative"):
        getattr(padded, name)[:, :4, :5] = getattr(short, name)
    padded.query_mask[:, :4] = short.query_mask
    padded.target_mask[:, :5] = short.target_mask
    value, gradient = padded.value(FrameQuadLinearAP())
    expected, expected_gradient = short.value(FrameQuadLinearAP())
    assert value == pytest.approx(expected)
    torch.testing.assert_close(gradient[:, :4, :5], expected_gradient)
    assert not gradient[:, 4:].any()
    assert not gradient[:, :, 5:].any()


def test_a_pair_with_one_real_target_frame_is_not_counted() -> None:
    matrices = torch.tensor([[[0.5, 0.6]], [[0.5, 0.6]]])
    positive = torch.tensor([[[True, False]], [[True, False]]])
    negative = torch.tensor([[[False, True]], [[False, True]]])
    target_mask = torch.tensor([[True, True], [True, False]])
    loss = FrameQuadLinearAP(0.1, 1.0)
    assert loss(matrices, positive, negative, target_mask=target_mask).item() == pytest.approx(0.75)


def test_the_order_of_pairs_and_frames_changes_nothing() -> None:
    batch = some_pairs(3, 4, 6, seed=5)
    pair, query, target = torch.randperm(3), torch.randperm(4), torch.randperm(6)
    matrices, positive, negative = (
        x[pair][:, query][:, :, target] for x in (batch.matrices, batch.positive, batch.negative)
    )
    moved = Pairs(matrices, positive, negative, batch.query_mask[pair][:, query], batch.target_mask[pair][:, target])
    assert moved.value(FrameQuadLinearAP())[0] == pytest.approx(batch.value(FrameQuadLinearAP())[0])


def test_the_gradient_is_the_derivative() -> None:
    batch = some_pairs(2, 3, 4, seed=2)
    matrices = torch.rand(2, 3, 4, dtype=torch.float64, requires_grad=True)
    loss = FrameQuadLinearAP(delta=0.3)
    assert torch.autograd.gradcheck(lambda m: loss(m, batch.positive, batch.negative), matrices)


def test_computing_in_parts_changes_neither_value_nor_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = some_pairs(4, 5, 6, seed=4)
    whole, whole_gradient = batch.value(FrameQuadLinearAP())
    monkeypatch.setattr(quad_linear_ap, "_CELLS", 30)
    parts, parts_gradient = batch.value(FrameQuadLinearAP())
    assert parts == pytest.approx(whole)
    torch.testing.assert_close(parts_gradient, whole_gradient)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 3, 1)])
def test_without_anything_to_rank_the_loss_is_zero_and_pulls_nothing(shape: tuple[int, int, int]) -> None:
    matrices = torch.rand(shape, requires_grad=True)
    positive = torch.ones(shape, dtype=torch.bool)
    value = FrameQuadLinearAP()(matrices, positive, ~positive)
    (gradient,) = torch.autograd.grad(value, matrices)
    assert value.item() == 0
    assert not gradient.any()


def test_half_precision_is_raised_to_float32() -> None:
    batch = some_pairs(2, 3, 4, seed=6)
    half = batch.matrices.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = FrameQuadLinearAP()(half, batch.positive, batch.negative)
    assert value.dtype == torch.float32
    assert value.item() == FrameQuadLinearAP()(half.float(), batch.positive, batch.negative).item()


def test_settings_of_the_paper_are_the_defaults() -> None:
    assert repr(FrameQuadLinearAP()) == "FrameQuadLinearAP(delta=0.05, rho=5.0)"


def test_refuses_what_it_cannot_use() -> None:
    loss, batch = FrameQuadLinearAP(), some_pairs(2, 3, 4, seed=7)
    m, pos, neg = batch.matrices, batch.positive, batch.negative
    with pytest.raises(ShapeError, match=r"frame_matrices must be a tensor \[P, Tq, Tt\], got \[3, 4\]. Stack"):
        loss(m[0], pos[0], neg[0])
    with pytest.raises(ShapeError, match="positive must be a bool tensor"):
        loss(m, pos.float(), neg)
    with pytest.raises(ShapeError, match="negative must have the shape"):
        loss(m, pos, neg[:1])
    with pytest.raises(ShapeError, match=r"query_mask must have shape \[2, 3\], got \[2, 4\]"):
        loss(m, pos, neg, query_mask=batch.target_mask)
    with pytest.raises(ShapeError, match="target_mask must be a bool tensor"):
        loss(m, pos, neg, target_mask=batch.target_mask.float())
    with pytest.raises(DataError, match="24 cells are both positive and negative"):
        loss(m, pos | True, neg | True)
    with pytest.raises(DataError, match="frame_matrices holds 24 NaN"):
        loss(m * math.nan, pos, neg)
    with pytest.raises(ConfigError, match="FrameQuadLinearAP: delta"):
        FrameQuadLinearAP(delta=0)
    with pytest.raises(ConfigError, match="FrameQuadLinearAP: rho"):
        FrameQuadLinearAP(rho=-1)
