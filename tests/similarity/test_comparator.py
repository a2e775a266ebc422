from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hapvr.similarity import Comparator
from hapvr.similarity.comparator import coarse, compare_in_bands, pool_mask, slot
from tests.similarity import reference
from tests.similarity.models import comparator


def layers(module: Comparator) -> list[tuple[list[list[list[list[float]]]], list[float]]]:
    convolutions = (module.conv1, module.conv2, module.conv3, module.final)
    return [(conv.weight.tolist(), conv.bias.tolist()) for conv in convolutions if conv.bias is not None]


@pytest.mark.parametrize(("height", "width"), [(4, 4), (5, 7), (9, 6)])
def test_agrees_with_the_loop(height: int, width: int) -> None:
    module = comparator()
    matrix = torch.randn(height, width)
    expected = reference.psi(matrix.tolist(), layers(module))
    torch.testing.assert_close(module(matrix[None])[0], torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_one_convolution_by_hand() -> None:
    """Only the middle taps are 1: every cell passes through, so each 4x4 block gives its maximum, here cut at 0."""
    module = Comparator()
    with torch.no_grad():
        for conv in (module.conv1, module.conv2, module.conv3, module.final):
            conv.weight.zero_()
            conv.weight[0, 0, conv.weight.shape[2] // 2, conv.weight.shape[3] // 2] = 1.0
    matrix = torch.full((4, 8), -1.0)
    matrix[2, 1] = 0.75
    assert module(matrix[None]).tolist() == [[[0.75, 0.0]]]


def test_starts_from_xavier_weights_and_zero_biases() -> None:
    module = Comparator()
    for conv in (module.conv1, module.conv2, module.conv3, module.final):
        fan = (conv.weight.shape[0] + conv.weight.shape[1]) * conv.weight[0, 0].numel()
        bound = (6 / fan) ** 0.5
        assert bound * 0.8 < conv.weight.abs().max() <= bound
        assert conv.bias is not None
        assert not conv.bias.any()


@settings(max_examples=15)
@given(st.integers(4, 19), st.integers(4, 19), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))
def test_padding_never_changes_an_output(height: int, width: int, below: int, beside: int, seed: int) -> None:
    module = comparator()
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(height, width, generator=generator)
    padded = 5 * torch.randn(height + below, width + beside, generator=generator)
    padded[:height, :width] = matrix
    rows, columns = torch.arange(height + below) < height, torch.arange(width + beside) < width
    output = module(padded[None], rows[None], columns[None])[0]
    torch.testing.assert_close(output[: height // 4, : width // 4], module(matrix[None])[0], rtol=1e-4, atol=1e-5)
    assert not output[height // 4 :].any()
    assert not output[:, width // 4 :].any()


def test_neighbours_in_a_packed_matrix_do_not_see_each_other() -> None:
    module = comparator()
    sizes = (5, 8, 11)
    videos = [torch.randn(a, b) for a in sizes for b in sizes]
    plane = torch.zeros(sum(map(slot, sizes)), sum(map(slot, sizes)))
    mask = torch.cat([torch.arange(slot(size)) < size for size in sizes])
    starts = [sum(map(slot, sizes[:i])) for i in range(len(sizes))]
    for place, matrix in enumerate(videos):
        y, x = starts[place // 3], starts[place % 3]
        plane[y : y + matrix.shape[0], x : x + matrix.shape[1]] = matrix
    output = module(plane[None], mask[None], mask[None])[0]
    for place, matrix in enumerate(videos):
        y, x = starts[place // 3] // 4, starts[place % 3] // 4
        alone = module(matrix[None])[0]
        part = output[y : y + alone.shape[0], x : x + alone.shape[1]]
        torch.testing.assert_close(part, alone, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 40))
def test_pooled_masks_floor_the_length(length: int) -> None:
    mask = torch.arange(44) < length
    assert int(pool_mask(mask).sum()) == length // 2
    assert int(pool_mask(pool_mask(mask)).sum()) == length // 4


def test_the_bound_on_activations_holds() -> None:
    module = comparator()
    seen = []
    handles = [
        conv.register_forward_hook(lambda *a: seen.append(a[2].abs().max().item()))
        for conv in (module.conv1, module.conv2)
    ]
    module(torch.ones(1, 16, 16) - 2 * (torch.rand(1, 16, 16) > 0.5).float())
    for handle in handles:
        handle.remove()
    assert 0 < max(seen) <= module.largest_activation()


def test_the_gradient_of_a_masked_matrix_stays_inside_the_mask() -> None:
    module = comparator()
    matrix = torch.randn(1, 12, 12, requires_grad=True)
    mask = torch.arange(12)[None] < 9
    module(matrix, mask, mask).sum().backward()
    gradient: Tensor | None = matrix.grad
    assert gradient is not None
    assert gradient[0, :9, :9].any()
    assert not gradient[0, 9:].any()
    assert isinstance(module.conv1, nn.Conv2d)


def test_with_residual_training_starts_from_the_matrix_itself() -> None:
    module = Comparator(residual=True)
    matrix = torch.rand(2, 13, 18)
    torch.testing.assert_close(module(matrix), coarse(matrix))
    padded = torch.nn.functional.pad(matrix, (0, 6, 0, 7), value=9.0)
    rows, columns = torch.arange(20) < 13, torch.arange(24) < 18
    output = module(padded, rows.expand(2, -1), columns.expand(2, -1))
    torch.testing.assert_close(output[:, :3, :4], coarse(matrix))
    assert not output[:, 3:].any()
    assert not output[:, :, 4:].any()


@settings(max_examples=25)
@given(st.integers(4, 90), st.integers(4, 90), st.integers(1, 900), st.booleans(), st.integers(0, 99))
def test_bands_of_a_large_matrix_join_to_the_whole(
    height: int, width: int, cells: int, residual: bool, seed: int
) -> None:
    module = comparator()
    module.residual = residual
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(2, height, width, generator=generator)
    rows = torch.arange(height) < torch.tensor([[height], [max(4, height - 5)]])
    columns = torch.arange(width) < torch.tensor([[max(4, width - 3)], [width]])
    for masks in ((None, None), (rows, columns)):
        expected = module(matrix, *masks)
        found = compare_in_bands(module, matrix, *masks, cells=cells)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_no_band_is_much_larger_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module, seen = comparator(), list[int]()
    honest = Comparator.forward

    def counted(self: Comparator, matrix: Tensor, *masks: Tensor | None) -> Tensor:
        seen.append(matrix.numel())
        return honest(self, matrix, *masks)

    monkeypatch.setattr(Comparator, "forward", counted)
    compare_in_bands(module, torch.randn(1, 20, 900), None, None, cells=2000)
    assert len(seen) > 9
    assert max(seen) <= 2000
    seen.clear()
    compare_in_bands(module, torch.randn(3, 20, 30), None, None, cells=2000)
    assert seen == [3 * 20 * 30]
