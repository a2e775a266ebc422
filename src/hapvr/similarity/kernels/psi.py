"""psi on one packed frame matrix: launching the kernels of `psi_kernels.py`, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from hapvr.similarity.comparator import coarse, pool_mask
from hapvr.similarity.kernels import psi_kernels as kernels

if TYPE_CHECKING:
    from hapvr.similarity.comparator import Comparator

# Tiles (rows, columns) and warps of each kernel: the fastest of those measured on an H200.
_FIRST = {"BLOCK_Y": 1, "BLOCK_X": 64, "num_warps": 4}
_MIDDLE = {"BLOCK_Y": 4, "BLOCK_X": 16, "num_warps": 4}
_LAST = {"BLOCK_Y": 8, "BLOCK_X": 16, "num_warps": 4}
_PROGRAMS = 2048  # of `first_backward`, each with sums of its own


def compare(
    comparator: Comparator, matrix: Tensor, row_mask: Tensor, column_mask: Tensor, dtype: torch.dtype
) -> Tensor:
    """See `kernels.compare`."""
    parameters = [
        cast(Tensor, value)
        for conv in (comparator.conv1, comparator.conv2, comparator.conv3, comparator.final)
        for value in (conv.weight, conv.bias)
    ]
    result: Tensor = _Psi.apply(matrix, row_mask, column_mask, dtype, *parameters)  # type: ignore[no-untyped-call]
    if not comparator.residual:
        return result
    rows, columns = (pool_mask(pool_mask(mask)) for mask in (row_mask, column_mask))
    return result + coarse(matrix[None].float())[0].masked_fill(~(rows[:, None] & columns), 0.0)


class _Psi(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, row_mask: Tensor, column_mask: Tensor, dtype: torch.dtype, *parameters: Tensor
    ) -> Tensor:
        w1, b1, w2, b2, w3, b3, w4, b4 = parameters
        matrix = matrix.contiguous()
        half_masks = [pool_mask(mask) for mask in (row_mask, column_mask)]
        masks = [mask.to(torch.uint8) for mask in half_masks]
        quarter_masks = [pool_mask(mask).to(torch.uint8) for mask in half_masks]
        height, width = matrix.shape
        prepared = [_expanded(w1), b1.float(), _by_tap(w2, dtype), b2.float(), _by_tap(w3, dtype), b3.float()]
        prepared += [w4.float().flatten(), b4.float()]

        h, w = height // 2, width // 2
        first = matrix.new_empty(h, w, len(w1), dtype=dtype)
        kernels.first[_grid(h, w, _FIRST)](
            matrix, *prepared[:2], *masks, first, h, w, _across(w, _FIRST), F=len(w1), **_FIRST
        )
        h, w = height // 4, width // 4
        middle = matrix.new_empty(h, w, len(w2), dtype=dtype)
        kernels.middle[_grid(h, w, _MIDDLE)](
            first, *prepared[2:4], *quarter_masks, middle, h, w, _across(w, _MIDDLE),
            C=len(w1), F=len(w2), **_MIDDLE,
        )  # fmt: skip
        out = matrix.new_empty(h, w, dtype=torch.float32)
        kernels.last[_grid(h, w, _LAST)](
            middle, *prepared[4:], *quarter_masks, out, h, w, _across(w, _LAST), C=len(w2), F=len(w3), **_LAST
        )
        ctx.save_for_backward(matrix, first, middle, *masks, *quarter_masks, *prepared, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, first, middle, row_mask, column_mask, quarter_rows, quarter_columns, *rest = ctx.saved_tensors
        f1, c1, f2, c2, f3, c3, f4, _ = rest[:8]
        w1, b1, w2, b2, w3, b3, w4, b4 = rest[8:]
        dtype = first.dtype
        gradient = gradient.contiguous()
        masks, quarter_masks = (row_mask, column_mask), (quarter_rows, quarter_columns)

        h, w = gradient.shape
        grid = _grid(h, w, _LAST)
        outputs = middle.new_empty(h, w, len(w3))
        sums = gradient.new_empty(grid[0], 2, len(w3))
        kernels.last_backward[grid](
            gradient, middle, f3, c3, f4, *quarter_masks, outputs, sums, h, w, _across(w, _LAST),
            C=len(w2), F=len(w3), **_LAST,
        )  # fmt: skip
        w4_gradient, b3_gradient = sums.sum(0)
        b4_gradient = (gradient * (quarter_rows[:, None] & quarter_columns)).sum()
        middle_gradient, w3_gradient = _convolution_backward(outputs, middle, w3, dtype)

        grid = _grid(h, w, _MIDDLE)
        outputs = first.new_empty(2 * h, 2 * w, len(w2))
        sums = gradient.new_empty(grid[0], len(w2))
        kernels.middle_backward[grid](
            middle_gradient, first, f2, c2, *quarter_masks, outputs, sums, h, w, _across(w, _MIDDLE),
            C=len(w1), F=len(w2), **_MIDDLE,
        )  # fmt: skip
        b2_gradient = sums.sum(0)
        first_gradient, w2_gradient = _convolution_backward(outputs, first, w2, dtype)

        h, w = 2 * h, 2 * w
        tiles = _grid(h, w, _FIRST)[0]
        programs = min(tiles, _PROGRAMS)
        patches = gradient.new_empty(h, w, 16)
        sums = gradient.new_empty(programs, 65, len(w1))
        kernels.first_backward[(programs,)](
            first_gradient, matrix, f1, c1, *masks, patches, sums, h, w, _across(w, _FIRST), tiles,
            F=len(w1), **_FIRST,
        )  # fmt: skip
        total = sums.sum(0)  # [65, F]
        matrix_gradient = torch.empty_like(matrix)
        kernels.fold[(2 * h, triton.cdiv(2 * w, 1024))](patches, matrix_gradient, h, w, BLOCK=1024)
        gradients = [
            _collapsed(total[:64]), total[64], w2_gradient, b2_gradient, w3_gradient, b3_gradient,
            w4_gradient.view_as(w4), b4_gradient.view_as(b4),
        ]  # fmt: skip
        parameters = (w1, b1, w2, b2, w3, b3, w4, b4)
        return (
            matrix_gradient, None, None, None,
            *(value.to(parameter.dtype) for value, parameter in zip(gradients, parameters, strict=True)),
        )  # fmt: skip


def _convolution_backward(outputs: Tensor, inputs: Tensor, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Gradients of a 3x3 convolution's input [h, w, C] and weight, from that of its output [h, w, F]."""
    # The new first axis must come before the permutation: only then is the layout seen as channels-last.
    as_picture = [plane[None].permute(0, 3, 1, 2) for plane in (outputs, inputs)]
    weight = weight.to(dtype).contiguous(memory_format=torch.channels_last)
    passed, weight_gradient, _ = torch.ops.aten.convolution_backward(
        *as_picture, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    return passed[0].permute(1, 2, 0).contiguous(), weight_gradient


def _by_tap(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """[F, C, 3, 3] -> [9, C, F]."""
    return weight.detach().permute(2, 3, 1, 0).flatten(0, 1).to(dtype).contiguous()


def _expanded(weight: Tensor) -> Tensor:
    """The weights [F, 1, 3, 3] as they lie in the 4x4 patch at each of the four positions: [4, 16, F]."""
    patch = weight.new_zeros(4, 4, 4, len(weight), dtype=torch.float32)
    for position in range(4):
        top, left = divmod(position, 2)
        patch[position, top : top + 3, left : left + 3] = weight.detach()[:, 0].permute(1, 2, 0).float()
    return patch.flatten(1, 2)


def _collapsed(gradient: Tensor) -> Tensor:
    """The inverse of `_expanded` for gradients: [64, F] -> [F, 1, 3, 3]."""
    patch = gradient.view(4, 4, 4, -1)
    total = sum(patch[p, p // 2 : p // 2 + 3, p % 2 : p % 2 + 3] for p in range(4))
    return cast(Tensor, total).permute(2, 0, 1)[:, None]


def _across(width: int, tile: dict[str, int]) -> int:
    return int(triton.cdiv(width, tile["BLOCK_X"]))


def _grid(height: int, width: int, tile: dict[str, int]) -> tuple[int]:
    return (_across(width, tile) * int(triton.cdiv(height, tile["BLOCK_Y"])),)
