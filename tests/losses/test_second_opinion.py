"""pytorch-metric-learning as a second opinion, where its definitions are ours.

It takes embeddings and labels; a clip is never its own positive there, except in its Smooth-AP.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import distances, losses  # type: ignore[import-untyped]
from torch import Tensor

from hapvr.losses import Circle, FastAP, InfoNCE, SmoothAP, Triplet

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
EQUAL = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
SQUARE = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


def embeddings(count: int) -> Tensor:
    return F.normalize(torch.randn(count, 5, dtype=torch.float64), dim=1).requires_grad_()


def agree(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], x: Tensor) -> None:
    mine, other = ours(x), theirs(x)
    assert mine.item() > 0
    assert mine.item() == pytest.approx(other.item())
    torch.testing.assert_close(torch.autograd.grad(mine, x)[0], torch.autograd.grad(other, x)[0])


def same(labels: Tensor) -> Tensor:
    return labels[:, None] == labels


def own(labels: Tensor) -> Tensor:
    return torch.eye(len(labels), dtype=torch.bool)


def cosine(x: Tensor) -> Tensor:
    unit = F.normalize(x, dim=1)
    return unit @ unit.T


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_fast_ap(bins: int) -> None:
    # Their squared distances in [0, 4] are 2 - 2 cos: s = 1 - d^2 / 4 = (1 + cos) / 2.
    agree(
        lambda x: FastAP(bins)(cosine(x) / 2 + 0.5, same(LABELS), ignore=own(LABELS)),
        lambda x: losses.FastAPLoss(num_bins=bins)(x, LABELS),
        embeddings(len(LABELS)),
    )


@pytest.mark.parametrize("margin", [0.05, 0.4])
def test_triplet(margin: float) -> None:
    agree(
        lambda x: Triplet(margin)(cosine(x), same(LABELS), ignore=own(LABELS)),
        lambda x: losses.TripletMarginLoss(margin, distance=distances.CosineSimilarity())(x, LABELS),
        embeddings(len(LABELS)),
    )


@pytest.mark.parametrize(("margin", "scale"), [(0.25, 8.0), (0.4, 80.0)])
def test_circle(margin: float, scale: float) -> None:
    agree(
        lambda x: Circle(margin, scale)(cosine(x), same(LABELS), ignore=own(LABELS)),
        lambda x: losses.CircleLoss(m=margin, gamma=scale)(x, LABELS),
        embeddings(len(LABELS)),
    )


@pytest.mark.parametrize("temperature", [0.03, 0.5])
def test_infonce(temperature: float) -> None:
    # Theirs is the mean over all positive pairs: ours too when each query has as many.
    agree(
        lambda x: InfoNCE(temperature)(cosine(x), same(EQUAL), ignore=own(EQUAL)),
        lambda x: losses.NTXentLoss(temperature)(x, EQUAL),
        embeddings(len(EQUAL)),
    )


@pytest.mark.parametrize("temperature", [0.01, 0.1])
def test_smooth_ap(temperature: float) -> None:
    # Theirs counts each clip as its own positive, and is right only with as many classes as clips a class. It computes
    # AP in float32.
    x = embeddings(len(SQUARE))
    ours = SmoothAP(temperature)(cosine(x), same(SQUARE))
    theirs = losses.SmoothAPLoss(temperature)(x, SQUARE)
    assert ours.item() > 0.1
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    torch.testing.assert_close(torch.autograd.grad(ours, x)[0], torch.autograd.grad(theirs, x)[0], rtol=1e-4, atol=1e-6)
