"""The fused kernels against their plain twins: on a GPU where there is one, else in Triton's interpreter.

Triton chooses between the two when it is imported, so this file runs itself in a separate process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch


def chamfer_agrees() -> None:
    from hapvr.similarity import spatial
    from hapvr.similarity.kernels import chamfer as kernels

    device, dtype = _where()
    for height, width, regions, dims in ((37, 150, 9, 32), (130, 5, 4, 64), (1, 1, 1, 16)):
        query = torch.randn(height, regions, dims, device=device).to(dtype)
        target = torch.randn(width, regions, dims, device=device).to(dtype)
        matrix, winners = kernels.chamfer(query, target, remember=True)
        expected, chosen, _ = spatial._forward(query.float(), target.float(), 1, False, True)
        torch.testing.assert_close(matrix, expected, atol=1e-4, rtol=1e-4)
        assert winners is not None
        assert chosen is not None
        assert (winners != chosen).float().mean() < 1e-3  # sums in another order may break a tie another way
        again, nothing = kernels.chamfer(query, target, remember=False)
        assert torch.equal(again, matrix)
        assert nothing is None
        gradient = torch.randn(height, width, device=device)
        marks = kernels.mark_winners(gradient, winners[0], torch.float32)
        torch.testing.assert_close(marks, spatial._mark_winners(gradient, winners, None, regions, torch.float32))


def psi_agrees_with_its_gradients() -> None:
    from hapvr.similarity.comparator import slot
    from hapvr.similarity.kernels import psi as kernels
    from tests.similarity.models import comparator

    device, _ = _where()
    module = comparator().to(device)
    lengths = ((5, 12, 7), (9, 4, 22))
    rows, columns = (torch.cat([torch.arange(slot(length)) < length for length in side]).to(device) for side in lengths)
    matrix = torch.randn(len(rows), len(columns), device=device) * rows[:, None] * columns
    matrix.requires_grad_()
    inputs = [matrix, *module.parameters()]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        plain = module(matrix[None], rows[None], columns[None])[0]
    fused = kernels.compare(module, matrix, rows, columns, dtype=torch.float32)
    # On a GPU the kernels multiply float32 as TF32, rounded to 10 bits, which also decides some poolings otherwise.
    value, slope = (2e-5, 1e-4) if device == "cpu" else (1e-2, 0.25)
    torch.testing.assert_close(fused, plain, atol=value, rtol=value)
    weight = torch.randn_like(plain)
    expected, gradients = (torch.autograd.grad(output, inputs, weight) for output in (plain, fused))
    real = rows[:, None] & columns
    _alike((gradients[0] * real, *gradients[1:]), (expected[0] * real, *expected[1:]), slope)
    module.residual = True
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        plain = module(matrix[None], rows[None], columns[None])[0]
        fused = kernels.compare(module, matrix, rows, columns, dtype=torch.float32)
    torch.testing.assert_close(fused, plain, atol=value, rtol=value)


def the_network_agrees() -> None:
    """Training by the kernels and without them, scores and gradients; then pairwise against one pair at a time."""
    from unittest import mock

    from hapvr.similarity import kernels, pairwise
    from tests.similarity.models import model, video

    device, dtype = _where()
    built = model(dims=32).to(device)
    lengths = [12, 4, 9, 7]
    clips = torch.stack([video(12, seed, regions=3, dims=32) for seed in range(len(lengths))]).to(device)
    mask = (torch.arange(12) < torch.tensor(lengths)[:, None]).to(device)

    def learn(fused: bool) -> list[torch.Tensor]:
        with mock.patch.object(kernels, "usable", return_value=fused), torch.autocast(device, dtype):
            scores = built(clips, clips, query_mask=mask, target_mask=mask).scores
            return [scores, *torch.autograd.grad(scores.square().sum(), list(built.parameters()))]

    _alike(learn(True), learn(False), 0.1 if dtype == torch.float16 else 0.3)  # two roundings to 7 bits
    videos = [video(length, length, regions=3, dims=32).to(device) for length in (3, 4, 9, 30, 41)]
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = torch.stack([torch.stack([built.score(q, t) for t in videos]) for q in videos]).cpu()
    with mock.patch.object(kernels, "usable", return_value=True):
        assert (pairwise(built, videos, videos, dtype=dtype) - exact).abs().max() < 5e-3
    assert (pairwise(built, videos, videos, dtype=torch.float32) - exact).abs().max() < 1e-4


def _alike(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], tolerance: float) -> None:
    distances = [((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True)]
    print(" ".join(f"{distance:.3g}" for distance in distances))
    assert max(distances) < tolerance, distances


def _where() -> tuple[str, torch.dtype]:
    # The interpreter does not multiply bfloat16.
    return ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float16)


CHECKS = {check.__name__: check for check in (chamfer_agrees, psi_agrees_with_its_gradients, the_network_agrees)}


@pytest.mark.parametrize("name", CHECKS)
def test_kernels(name: str) -> None:
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    environment = {**os.environ, "TRITON_INTERPRET": "0" if torch.cuda.is_available() else "1"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.similarity.test_kernels", name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr


if __name__ == "__main__":
    torch.manual_seed(0)
    CHECKS[sys.argv[1]]()
