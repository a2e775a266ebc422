"""The fused kernels against their plain twins: on a GPU where there is one, else in Triton's interpreter.

Triton chooses between the two when it is imported, so this file runs itself in a separate process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from unittest import mock

import pytest
import torch

from hapvr.similarity import VideoSimilarity, pairwise


def chamfer_agrees() -> None:
    """On tiles read through TMA and by pointers."""
    from hapvr.similarity import kernels as choice
    from hapvr.similarity import spatial
    from hapvr.similarity.kernels import chamfer as kernels

    device, dtype = _where()
    one, other = torch.zeros(2, 1, 2, 16, dtype=dtype, device=device)  # by hand: (max(1, .5) + max(0, .75)) / 2
    one[0, 0, 0], one[0, 1, 1], other[0, 0, 0], other[0, 1, :2] = 1, 1, 1, torch.tensor([0.5, 0.75])
    for height, width, regions, dims in ((37, 150, 9, 32), (130, 5, 4, 64), (1, 1, 1, 16)):
        query = torch.randn(height, regions, dims, device=device).to(dtype)
        target = torch.randn(width, regions, dims, device=device).to(dtype)
        expected, chosen, _ = spatial._forward(query.float(), target.float(), 1, False, True)
        for tma in (True, False):
            with mock.patch.object(choice, "use_tma", return_value=tma):
                assert kernels.chamfer(one, other, remember=False)[0].item() == 0.875
                matrix, winners = kernels.chamfer(query, target, remember=True)
                again, nothing = kernels.chamfer(query, target, remember=False)
                alone, _ = kernels.chamfer(query[-1:], target[-1:], remember=False)
                tile = kernels.choose_tile(dtype, tma=tma)._replace(branch=True)
                with mock.patch.object(kernels, "choose_tile", return_value=tile):
                    branched, _ = kernels.chamfer(query, target, remember=False)
            torch.testing.assert_close(matrix, expected, atol=1e-4, rtol=1e-4)
            assert chosen is not None
            assert winners is not None
            assert (winners != chosen).float().mean() < 1e-3  # sums in another order may break a tie another way
            assert torch.equal(again, matrix)
            assert torch.equal(branched, matrix)
            assert nothing is None
            assert torch.equal(alone, matrix[-1:, -1:])  # whatever else is compared
            with mock.patch.object(choice, "use_tma", return_value=tma):
                # By hand: (1 + 0) / 2 one way, (1 + 1) / 2 the other.
                assert kernels.chamfer_both_ways(one, one[:, [0, 0]]).item() == 0.75
                both, swapped = kernels.chamfer_both_ways(query, target), kernels.chamfer_both_ways(target, query)
                back, _ = kernels.chamfer(target, query, remember=False)
            torch.testing.assert_close(both, (matrix + back.T) / 2)
            torch.testing.assert_close(swapped, both.T)
        assert winners is not None
        gradient = torch.randn(height, width, device=device)
        marks = kernels.mark_winners(gradient, winners[0], torch.float32)
        torch.testing.assert_close(marks, spatial._mark_winners(gradient, winners, None, regions, torch.float32))


def codes_agree() -> None:
    """Codes of one byte: what they stand for, and their frame matrix, with either way of reading."""
    from hapvr.similarity import int8, spatial
    from hapvr.similarity import kernels as choice
    from hapvr.similarity.kernels import chamfer as kernels
    from hapvr.similarity.kernels.frames import pack_frames

    device, _ = _where()
    by_hand = torch.zeros(3, 2, 32, device=device)
    by_hand[0, 0, :2] = torch.tensor([1.27, -0.64])
    by_hand[1] = 0.5
    codes, scales = pack_frames(by_hand, dtype=torch.int8)
    assert scales is not None
    assert codes[0, 0, :2].tolist() == [127, -64]
    torch.testing.assert_close(scales.cpu(), torch.tensor([0.01, 0.5 / 127, 0]))
    assert not codes[2].any()
    for tma in (True, False):
        with mock.patch.object(choice, "use_tma", return_value=tma):
            matrix = kernels.chamfer_of_codes(codes, scales, codes, scales)
        # Region 0 with itself, 1.27^2 + .64^2; region 1, of zeros, gives 0; the mean of both. Frame 1: 32 / 4. Both:
        # .5 (1.27 - .64).
        across = 0.5 * (1.27 - 0.64) / 2
        expected = torch.tensor([[(1.27**2 + 0.64**2) / 2, across, 0], [2 * across, 8, 0], [0, 0, 0]])
        torch.testing.assert_close(matrix.cpu(), expected, atol=1e-5, rtol=1e-5)
    for height, width, regions, dims in ((37, 140, 9, 32), (130, 5, 4, 64), (2, 1, 1, 256)):
        values = [torch.randn(count, regions, dims, device=device) for count in (height, width)]
        (query, query_scales), (target, target_scales) = (pack_frames(video, dtype=torch.int8) for video in values)
        assert query_scales is not None
        assert target_scales is not None
        # The same codes as on a CPU, but for steps that end in a half.
        quantized = int8.quantize(values[0])
        torch.testing.assert_close(query_scales, quantized.scales[:, 0], rtol=1e-6, atol=0)
        assert (query != quantized.codes).float().mean() < 1e-3
        decoded = [
            codes.float() * scales[:, None, None] for codes, scales in ((query, query_scales), (target, target_scales))
        ]
        expected, _, _ = spatial._forward(decoded[0], decoded[1], 1, False, False)
        for tma in (True, False):
            with mock.patch.object(choice, "use_tma", return_value=tma):
                matrix = kernels.chamfer_of_codes(query, query_scales, target, target_scales)
                back = kernels.chamfer_of_codes(target, target_scales, query, query_scales)
                both = kernels.chamfer_of_codes(query, query_scales, target, target_scales, both_ways=True)
                longer = kernels.chamfer_of_codes(query, 3 * query_scales, target[:1], target_scales[:1])
            torch.testing.assert_close(matrix, expected, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(longer, 3 * matrix[:, :1])
            torch.testing.assert_close(both, (matrix + back.T) / 2)


def frames_are_packed() -> None:
    """Weighed, placed and rounded in one pass, as step by step."""
    from hapvr.similarity.kernels.frames import attend, pack_frames
    from hapvr.similarity.weighting import RegionAttention

    device, half = _where()
    for frames, regions, dims in ((5, 3, 32), (50, 9, 48), (1, 1, 128)):
        values = torch.randn(frames, regions, dims, device=device)
        attention = RegionAttention(dims).to(device)
        with torch.no_grad():
            attention.transform.bias.normal_()
            expected = attention.weights(values)[..., 0]
        weights = attend(attention, values)
        # TF32 on a GPU.
        torch.testing.assert_close(weights, expected, atol=1e-5 if device == "cpu" else 2e-3, rtol=0)
        torch.testing.assert_close(attend(attention, values.to(half)), weights, atol=5e-3, rtol=0)
        places = torch.tensor([frames - 1, -1, 0, 0, -1], device=device, dtype=torch.int32)
        by_step = (values * weights[..., None])[places.clip(0).long()] * (places >= 0)[:, None, None]
        packed, nothing = pack_frames(values, dtype=half, weights=weights, places=places)
        assert nothing is None
        assert torch.equal(packed, by_step.to(half))
        codes, scales = pack_frames(values, dtype=torch.int8, weights=weights, places=places)
        alone, alone_scales = pack_frames(by_step, dtype=torch.int8)
        assert scales is not None
        assert torch.equal(codes, alone)
        torch.testing.assert_close(scales, alone_scales)
        assert not codes[places < 0].any()


def the_best_cells_are_averaged() -> None:
    """One kernel for many pairs, as `topk_chamfer` of each."""
    from hapvr.similarity.chamfer import topk_chamfer
    from hapvr.similarity.kernels.temporal import average_best

    device, _ = _where()
    start, two, three = (torch.tensor([value], dtype=torch.int32, device=device) for value in (0, 2, 3))
    by_hand = torch.tensor([[0.9, 0.1, 0.5, 7.0], [0.2, 0.8, 0.0, 7.0]], device=device)  # the 7 are of another video
    best = average_best(by_hand, (start, two), (start, three), two, longest=3, slope=None)
    assert best.item() == pytest.approx(((0.9 + 0.5) / 2 + (0.8 + 0.2) / 2) / 2)
    generator = torch.Generator().manual_seed(0)
    matrix = (2 * torch.randn(60, 90, generator=generator)).round(decimals=1).to(device)  # so that cells are equal
    sides = [(0, 1), (2, 7), (9, 40)], [(0, 20), (21, 1), (23, 67)]
    rows, columns = (
        [torch.tensor(part, dtype=torch.int32, device=device) for part in zip(*side, strict=True)] for side in sides
    )
    keeps = [1, 1, 5]
    kept = torch.tensor(keeps, dtype=torch.int32, device=device)
    for slope in (None, 1.0, 0.25):
        found = average_best(matrix, (rows[0], rows[1]), (columns[0], columns[1]), kept, longest=67, slope=slope)
        wanted = average_best(
            matrix.T, (columns[0], columns[1]), (rows[0], rows[1]), kept[:1].repeat(3), longest=40, slope=slope
        )
        cells = matrix if slope is None else torch.nn.functional.leaky_relu(matrix.clamp(-1, 1), slope)
        for n, (top, height) in enumerate(sides[0]):
            for m, (left, width) in enumerate(sides[1]):
                part = cells[top : top + height, left : left + width]
                assert found[n, m].item() == pytest.approx(
                    topk_chamfer(part, keep_rate=keeps[m] / width).item(), abs=1e-5
                )
                assert wanted[m, n].item() == pytest.approx(topk_chamfer(part.T, keep_rate=0.0).item(), abs=1e-5)


def psi_agrees_with_its_gradients() -> None:
    """With the tiles for Hopper and for older GPUs."""
    from hapvr.similarity import kernels

    for newer in (True, False):
        with mock.patch.object(kernels, "use_tma", return_value=newer):
            _compare_psi()


def _compare_psi() -> None:
    from hapvr.similarity import kernels as choice
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
    # For scores alone. Rows of float32 fit into no GPU's shared memory; the interpreter multiplies no bfloat16.
    for dtype in (torch.float16, torch.float32 if device == "cpu" else torch.bfloat16):
        prepared = kernels.prepare(module, dtype)
        assert (len(prepared[2]) == 3) == choice.use_tma()  # the second convolution by rows
        scored = kernels.compare(module, matrix, rows, columns, dtype=dtype, prepared=prepared)
        near = value if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(scored, plain, atol=near, rtol=near)
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
    from hapvr.similarity import kernels
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

    with mock.patch.object(kernels, "use_tma", return_value=False):
        by_pointers = learn(True)
    _alike(by_pointers, learn(False), 0.1 if dtype == torch.float16 else 0.3)
    _alike(learn(True), learn(False), 0.1 if dtype == torch.float16 else 0.3)  # two roundings to 7 bits
    videos = [video(length, length, regions=3, dims=32).to(device) for length in (3, 4, 9, 30, 41)]
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = torch.stack([torch.stack([built.score(q, t) for t in videos]) for q in videos]).cpu()
    with mock.patch.object(kernels, "usable", return_value=True):
        assert (pairwise(built, videos, videos, dtype=dtype) - exact).abs().max() < 5e-3
    assert (pairwise(built, videos, videos, dtype=torch.float32) - exact).abs().max() < 1e-4
    built = model(dims=32, symmetry="levels").to(device)  # both ways
    videos = videos[1:4]
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = torch.stack([torch.stack([built.score(q, t) for t in videos]) for q in videos]).cpu()
    with mock.patch.object(kernels, "usable", return_value=True):
        assert (pairwise(built, videos, videos, dtype=dtype) - exact).abs().max() < 5e-3
    # Vectors of 32 numbers, rounded to few bits, stray further than those of 512.
    with mock.patch.object(kernels, "usable", return_value=True):
        scores = _by_codes(built, videos, videos)
        alone = _by_codes(built, videos[:1], videos[2:])
    print("int8", (scores - exact).abs().max().item())
    assert (scores - exact).abs().max() < 5e-3
    torch.testing.assert_close(alone[0, 0], scores[0, 2])  # whatever is packed with it


def _by_codes(built: VideoSimilarity, queries: list[torch.Tensor], targets: list[torch.Tensor]) -> torch.Tensor:
    """`pairwise` in int8 as a GPU computes it, here on the CPU too."""
    module = sys.modules[pairwise.__module__]
    with torch.no_grad():
        scores: torch.Tensor = module._pairwise(module._Scorer(built, torch.int8, None), queries, targets, None)
    return scores


def _alike(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], tolerance: float) -> None:
    distances = [((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True)]
    print(" ".join(f"{distance:.3g}" for distance in distances))
    assert max(distances) < tolerance, distances


def _where() -> tuple[str, torch.dtype]:
    # The interpreter does not multiply bfloat16.
    return ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float16)


CHECKS = {
    check.__name__: check
    for check in (
        chamfer_agrees,
        codes_agree,
        frames_are_packed,
        the_best_cells_are_averaged,
        psi_agrees_with_its_gradients,
        the_network_agrees,
    )
}


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
