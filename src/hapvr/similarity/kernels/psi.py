"""psi on one packed frame matrix in three fused kernels, with its gradient.

Forward: `_first` (one channel to 32, pooled), `_middle` (32 to 64, pooled), `_last` (64 to 128, then 1x1 to one). A
convolution's full-size output stays on the chip: only pooled activations are written. Backward: the same outputs
are computed again to see which cell of each 2x2 window won; the two large convolutions pass their gradient on through
the library's routines. Scores without gradients have faster kernels on Hopper and newer (`prepare`). Pixels of a tile
are numbered row by row; `cell` numbers the 4x4 patch under a pooled pixel, `position` the four convolution outputs it
is the maximum of, `tap` the 3x3 weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hapvr.similarity import kernels
from hapvr.similarity.comparator import Comparator, coarse, pool_mask

_Tile = dict[str, int]  # rows, columns and warps of a program


def _choose_tiles() -> tuple[_Tile, _Tile, _Tile]:
    """The tiles of `_first`, `_middle` and `_last`, and of their backward passes."""
    if kernels.use_tma():  # Hopper and newer: the fastest of those measured on an H200, forward and backward
        return _tile(1, 64, 4), _tile(4, 16, 4), _tile(8, 16, 4)
    # Of those compiled for compute capability 8.0 and 8.6 the ones that keep sums in registers (the backward pass of
    # `_first` all but 144 bytes a thread). Not measured on such a GPU.
    return _tile(1, 32, 4), _tile(2, 16, 4), _tile(8, 16, 8)


def _tile(rows: int, columns: int, warps: int) -> _Tile:
    return {"BLOCK_Y": rows, "BLOCK_X": columns, "num_warps": warps}


# Of `_first`, `_middle_by_rows` and `_last` for scores on Hopper and newer: the fastest of those measured on an H200.
_SCORING_TILES = _tile(1, 128, 4), _tile(8, 16, 8), {**_tile(8, 16, 4), "LOOP": True, "num_stages": 3}
_PROGRAMS = 2048  # of `_first_backward`, each with its own sums
# One build of a kernel serves packs of all sizes: no address is better aligned where one of these divides by 16.
_SIZES = ["height", "width", "tiles_x"]

# --- shared by the kernels -------------------------------------------------------------------------------------------


@triton.jit
def _pixels(tile, tiles_x, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr):
    """Row and column of each pixel of a tile."""
    pixel = tl.arange(0, BLOCK_Y * BLOCK_X)
    return tile // tiles_x * BLOCK_Y + pixel // BLOCK_X, tile % tiles_x * BLOCK_X + pixel % BLOCK_X


@triton.jit
def _kept(row_mask, column_mask, y, x, height, width):
    """1.0 for the real pixels, 0.0 for gaps and for pixels past the end."""
    rows = tl.load(row_mask + y, mask=y < height, other=0)
    columns = tl.load(column_mask + x, mask=x < width, other=0)
    return (rows & columns).to(tl.float32)


@triton.jit
def _patches(matrix, y, x, height, width):
    """The 4x4 cells under each pooled pixel: [P, 16]; `height` and `width` are those of the pooled plane."""
    cell = tl.arange(0, 16)
    row = 2 * y[:, None] + cell[None, :] // 4 - 1
    column = 2 * x[:, None] + cell[None, :] % 4 - 1
    inside = (row >= 0) & (row < 2 * height) & (column >= 0) & (column < 2 * width)
    return tl.load(matrix + row.to(tl.int64) * (2 * width) + column, mask=inside, other=0.0)


@triton.jit
def _cells(planes, row, column, height, width, C: tl.constexpr):
    """The channels of one cell for each pixel: [P, C], zero outside the plane."""
    channel = tl.arange(0, C)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    at = (row.to(tl.int64) * width + column)[:, None] * C + channel[None, :]
    return tl.load(planes + at, mask=inside[:, None], other=0.0)


@triton.jit
def _taps(weight, tap, C: tl.constexpr, F: tl.constexpr):
    """The weights [C, F] of one tap, from [9, C, F]."""
    return tl.load(weight + tap * C * F + tl.arange(0, C)[:, None] * F + tl.arange(0, F)[None, :])


@triton.jit
def _four_sums(planes, weight, y, x, height, width, P: tl.constexpr, C: tl.constexpr, F: tl.constexpr):
    """The convolution at the four positions under each pooled pixel, [P, F] each; `height`, `width` are pooled.

    Each of the 16 cells under a pixel is loaded once and serves every position it belongs to.
    """
    sum0 = tl.zeros((P, F), tl.float32)
    sum1 = tl.zeros((P, F), tl.float32)
    sum2 = tl.zeros((P, F), tl.float32)
    sum3 = tl.zeros((P, F), tl.float32)
    for cell in tl.static_range(16):
        values = _cells(planes, 2 * y + cell // 4 - 1, 2 * x + cell % 4 - 1, 2 * height, 2 * width, C)
        for position in tl.static_range(4):
            tap_y = cell // 4 - position // 2
            tap_x = cell % 4 - position % 2
            if tap_y >= 0 and tap_y < 3 and tap_x >= 0 and tap_x < 3:
                taps = _taps(weight, tap_y * 3 + tap_x, C, F)
                if position == 0:
                    sum0 = tl.dot(values, taps, sum0)
                elif position == 1:
                    sum1 = tl.dot(values, taps, sum1)
                elif position == 2:
                    sum2 = tl.dot(values, taps, sum2)
                else:
                    sum3 = tl.dot(values, taps, sum3)
    return sum0, sum1, sum2, sum3


@triton.jit
def _convolution(
    planes, weight, y, x, height, width, P: tl.constexpr, C: tl.constexpr, F: tl.constexpr, LOOP: tl.constexpr
):
    """The 3x3 convolution at each pixel: [P, F]. LOOP: not unrolled, so that loads run ahead through shared memory."""
    total = tl.zeros((P, F), tl.float32)
    if LOOP:
        for tap in range(9):
            values = _cells(planes, y + tap // 3 - 1, x + tap % 3 - 1, height, width, C)
            total = tl.dot(values, _taps(weight, tap, C, F), total)
    else:
        for tap in tl.static_range(9):
            values = _cells(planes, y + tap // 3 - 1, x + tap % 3 - 1, height, width, C)
            total = tl.dot(values, _taps(weight, tap, C, F), total)
    return total


@triton.jit
def _store(planes, y, x, height, width, values, C: tl.constexpr):
    """Write [P, C] into a plane [height, width, C]."""
    at = (y.to(tl.int64) * width + x)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(planes + at, values.to(planes.dtype.element_ty), mask=((y < height) & (x < width))[:, None])


@triton.jit
def _won(position: tl.constexpr, sum0, sum1, sum2, sum3, best):  # noqa: ARG001
    """Whether a position holds the best of the four outputs; of equal ones the first wins, as in torch's pooling."""
    if position == 0:
        won = sum0 == best
    elif position == 1:
        won = (sum1 == best) & (sum0 < best)
    elif position == 2:
        won = (sum2 == best) & (sum0 < best) & (sum1 < best)
    else:
        won = (sum0 < best) & (sum1 < best) & (sum2 < best)
    return won


# --- forward --------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=_SIZES)
def _first(
    matrix, weight, bias, row_mask, column_mask, out, height, width, tiles_x,
    F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """Convolution of one channel, 2x2 max-pooling, ReLU, mask: [2h, 2w] -> [h, w, F]; weight [4 positions, 16, F]."""
    y, x = _pixels(tl.program_id(0), tiles_x, BLOCK_Y, BLOCK_X)
    cells = _patches(matrix, y, x, height, width).to(weight.dtype.element_ty)
    best = tl.dot(cells, _taps(weight, 0, 16, F))
    for position in tl.static_range(1, 4):
        best = tl.maximum(best, tl.dot(cells, _taps(weight, position, 16, F)))
    best = tl.maximum(best + tl.load(bias + tl.arange(0, F))[None, :], 0.0)
    kept = _kept(row_mask, column_mask, y, x, height, width)
    _store(out, y, x, height, width, best * kept[:, None], F)


@triton.jit(do_not_specialize=_SIZES)
def _middle(
    planes, weight, bias, row_mask, column_mask, out, height, width, tiles_x,
    C: tl.constexpr, F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """Convolution, 2x2 max-pooling, ReLU, mask: [2h, 2w, C] -> [h, w, F]."""
    y, x = _pixels(tl.program_id(0), tiles_x, BLOCK_Y, BLOCK_X)
    sum0, sum1, sum2, sum3 = _four_sums(planes, weight, y, x, height, width, BLOCK_Y * BLOCK_X, C, F)
    best = tl.maximum(tl.maximum(sum0, sum1), tl.maximum(sum2, sum3))
    best = tl.maximum(best + tl.load(bias + tl.arange(0, F))[None, :], 0.0)
    kept = _kept(row_mask, column_mask, y, x, height, width)
    _store(out, y, x, height, width, best * kept[:, None], F)


@triton.jit(do_not_specialize=_SIZES)
def _middle_by_rows(
    planes, weight, bias, row_mask, column_mask, out, height, width, tiles_x,
    C: tl.constexpr, F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """`_middle`, with the four cells of a row of the patch as one vector: six larger products instead of 36.

    They lie side by side in memory. weight [3 rows of taps, 4C, 2F]: filters at the left and at the right position take
    turns, and a quarter of the weights are zeros.
    """
    y, x = _pixels(tl.program_id(0), tiles_x, BLOCK_Y, BLOCK_X)
    channel = tl.arange(0, 4 * C)
    column = 2 * x[:, None] - 1 + channel[None, :] // C
    beside = (column >= 0) & (column < 2 * width)
    upper = tl.zeros((BLOCK_Y * BLOCK_X, 2 * F), tl.float32)
    lower = tl.zeros((BLOCK_Y * BLOCK_X, 2 * F), tl.float32)
    for line in tl.static_range(4):
        row = 2 * y + line - 1
        at = (row.to(tl.int64) * (2 * width) + 2 * x - 1)[:, None] * C + channel[None, :]
        values = tl.load(planes + at, mask=beside & ((row >= 0) & (row < 2 * height))[:, None], other=0.0)
        if line < 3:
            upper = tl.dot(values, _taps(weight, line, 4 * C, 2 * F), upper)
        if line > 0:
            lower = tl.dot(values, _taps(weight, line - 1, 4 * C, 2 * F), lower)
    left, right = tl.split(tl.reshape(tl.maximum(upper, lower), (BLOCK_Y * BLOCK_X, F, 2)))
    best = tl.maximum(tl.maximum(left, right) + tl.load(bias + tl.arange(0, F))[None, :], 0.0)
    kept = _kept(row_mask, column_mask, y, x, height, width)
    _store(out, y, x, height, width, best * kept[:, None], F)


@triton.jit(do_not_specialize=_SIZES)
def _last(
    planes, weight, bias, final_weight, final_bias, row_mask, column_mask, out, height, width, tiles_x,
    C: tl.constexpr, F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr, LOOP: tl.constexpr = False,
):  # fmt: skip
    """Convolution, ReLU, 1x1 convolution into one channel, mask: [h, w, C] -> [h, w]."""
    y, x = _pixels(tl.program_id(0), tiles_x, BLOCK_Y, BLOCK_X)
    filters = tl.arange(0, F)
    total = _convolution(planes, weight, y, x, height, width, BLOCK_Y * BLOCK_X, C, F, LOOP)
    total = tl.maximum(total + tl.load(bias + filters)[None, :], 0.0)
    value = tl.sum(total * tl.load(final_weight + filters)[None, :], 1) + tl.load(final_bias)
    value *= _kept(row_mask, column_mask, y, x, height, width)
    tl.store(out + y.to(tl.int64) * width + x, value, mask=(y < height) & (x < width))


# --- backward -------------------------------------------------------------------------------------------------------


@triton.jit
def _last_backward(
    gradient, planes, weight, bias, final_weight, row_mask, column_mask, out, sums, height, width, tiles_x,
    C: tl.constexpr, F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """Gradient [h, w] -> that of the convolution's output [h, w, F]; sums [tiles, 2, F]: of final weights and bias."""
    tile = tl.program_id(0)
    y, x = _pixels(tile, tiles_x, BLOCK_Y, BLOCK_X)
    filters = tl.arange(0, F)
    total = _convolution(planes, weight, y, x, height, width, BLOCK_Y * BLOCK_X, C, F, False)
    total = tl.maximum(total + tl.load(bias + filters)[None, :], 0.0)
    inside = (y < height) & (x < width)
    received = tl.load(gradient + y.to(tl.int64) * width + x, mask=inside, other=0.0)
    received *= _kept(row_mask, column_mask, y, x, height, width)
    passed = tl.where(total > 0, received[:, None] * tl.load(final_weight + filters)[None, :], 0.0)
    _store(out, y, x, height, width, passed, F)
    tl.store(sums + tile * 2 * F + filters, tl.sum(total * received[:, None], 0))
    tl.store(sums + (tile * 2 + 1) * F + filters, tl.sum(passed, 0))


@triton.jit
def _middle_backward(
    gradient, planes, weight, bias, row_mask, column_mask, out, sums, height, width, tiles_x,
    C: tl.constexpr, F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """Gradient [h, w, F] of the pooled -> that of the convolution's output [2h, 2w, F]; sums [tiles, F]: the bias."""
    tile = tl.program_id(0)
    y, x = _pixels(tile, tiles_x, BLOCK_Y, BLOCK_X)
    filters = tl.arange(0, F)
    sum0, sum1, sum2, sum3 = _four_sums(planes, weight, y, x, height, width, BLOCK_Y * BLOCK_X, C, F)
    best = tl.maximum(tl.maximum(sum0, sum1), tl.maximum(sum2, sum3))
    passed = _cells(gradient, y, x, height, width, F).to(tl.float32)
    passed *= _kept(row_mask, column_mask, y, x, height, width)[:, None]
    passed = tl.where(best + tl.load(bias + filters)[None, :] > 0, passed, 0.0)
    tl.store(sums + tile * F + filters, tl.sum(passed, 0))
    for position in tl.static_range(4):
        won = _won(position, sum0, sum1, sum2, sum3, best)
        row, column = 2 * y + position // 2, 2 * x + position % 2
        _store(out, row, column, 2 * height, 2 * width, tl.where(won, passed, 0.0), F)


@triton.jit
def _first_backward(
    gradient, matrix, weight, bias, row_mask, column_mask, out, sums, height, width, tiles_x, tiles,
    F: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """Gradient [h, w, F] -> that of each patch [h, w, 16]; sums [programs, 65, F]: of the weights [4, 16], the bias."""
    filters = tl.arange(0, F)
    sum0 = tl.zeros((16, F), tl.float32)
    sum1 = tl.zeros((16, F), tl.float32)
    sum2 = tl.zeros((16, F), tl.float32)
    sum3 = tl.zeros((16, F), tl.float32)
    bias_sum = tl.zeros((F,), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        y, x = _pixels(tile, tiles_x, BLOCK_Y, BLOCK_X)
        cells = _patches(matrix, y, x, height, width)
        value0 = tl.dot(cells, _taps(weight, 0, 16, F))
        value1 = tl.dot(cells, _taps(weight, 1, 16, F))
        value2 = tl.dot(cells, _taps(weight, 2, 16, F))
        value3 = tl.dot(cells, _taps(weight, 3, 16, F))
        best = tl.maximum(tl.maximum(value0, value1), tl.maximum(value2, value3))
        passed = _cells(gradient, y, x, height, width, F).to(tl.float32)
        passed *= _kept(row_mask, column_mask, y, x, height, width)[:, None]
        passed = tl.where(best + tl.load(bias + filters)[None, :] > 0, passed, 0.0)
        bias_sum += tl.sum(passed, 0)
        patch = tl.zeros((BLOCK_Y * BLOCK_X, 16), tl.float32)
        for position in tl.static_range(4):
            share = tl.where(_won(position, value0, value1, value2, value3, best), passed, 0.0)
            if position == 0:
                sum0 = tl.dot(cells.T, share, sum0)
            elif position == 1:
                sum1 = tl.dot(cells.T, share, sum1)
            elif position == 2:
                sum2 = tl.dot(cells.T, share, sum2)
            else:
                sum3 = tl.dot(cells.T, share, sum3)
            patch = tl.dot(share, _taps(weight, position, 16, F).T, patch)
        _store(out, y, x, height, width, patch, 16)
    at = sums + tl.program_id(0) * 65 * F + tl.arange(0, 16)[:, None] * F + filters[None, :]
    tl.store(at, sum0)
    tl.store(at + 16 * F, sum1)
    tl.store(at + 32 * F, sum2)
    tl.store(at + 48 * F, sum3)
    tl.store(sums + (tl.program_id(0) * 65 + 64) * F + filters, bias_sum)


@triton.jit
def _fold(patches, out, height, width, BLOCK: tl.constexpr):
    """Each cell's gradient from the up to four patches it lies in: [h, w, 16] -> [2h, 2w]."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0) + tl.zeros_like(column)
    total = tl.zeros((BLOCK,), tl.float32)
    for corner in tl.static_range(4):
        y = (row + 1) // 2 - corner // 2
        x = (column + 1) // 2 - corner % 2
        cell = (row + 1 - 2 * y) * 4 + column + 1 - 2 * x
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        total += tl.load(patches + (y.to(tl.int64) * width + x) * 16 + cell, mask=inside, other=0.0)
    tl.store(out + row.to(tl.int64) * (2 * width) + column, total, mask=column < 2 * width)


# --- launching --------------------------------------------------------------------------------------------------------


def compare(
    comparator: Comparator,
    matrix: Tensor,
    row_mask: Tensor,
    column_mask: Tensor,
    *,
    dtype: torch.dtype,
    prepared: list[Tensor] | None = None,
) -> Tensor:
    """psi on one packed matrix: [H, W] -> [H / 4, W / 4] float32, activations in `dtype`; differentiable once.

    H and W are multiples of 4, every run of real rows [H] and columns [W] begins at one and is followed by a gap,
    and the matrix is already zero outside them. Weights that were `prepared` once are not prepared again; there is no
    gradient then.
    """
    result: Tensor
    if prepared is not None:
        result = _forward(matrix.contiguous(), _pool_masks(row_mask, column_mask), prepared, dtype)[0]
    else:
        result = _Psi.apply(matrix, row_mask, column_mask, dtype, *_parameters(comparator))  # type: ignore[no-untyped-call]
    if not comparator.residual:
        return result
    rows, columns = (pool_mask(pool_mask(mask)) for mask in (row_mask, column_mask))
    return result + coarse(matrix[None].float())[0].masked_fill(~(rows[:, None] & columns), 0.0)


def prepare(comparator: Comparator, dtype: torch.dtype) -> list[Tensor]:
    """psi's weights for `compare` to be called many times, without gradients.

    On Hopper and newer they are those of the fastest kernels: `_middle_by_rows`, and where `dtype` is float16 the first
    convolution in it too. It keeps as many bits of a similarity as TF32, in which float32 is multiplied.
    """
    prepared = _prepare(_parameters(comparator), dtype)
    if kernels.use_tma():
        prepared[0] = prepared[0].half() if dtype == torch.float16 else prepared[0]
        prepared[2] = _by_row(comparator.conv2.weight, dtype)
    return prepared


def _parameters(comparator: Comparator) -> list[Tensor]:
    convolutions = (comparator.conv1, comparator.conv2, comparator.conv3, comparator.final)
    return [cast(Tensor, value) for conv in convolutions for value in (conv.weight, conv.bias)]


def _prepare(parameters: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    w1, b1, w2, b2, w3, b3, w4, b4 = (parameter.detach() for parameter in parameters)
    prepared = [_expand(w1), b1.float(), _by_tap(w2, dtype), b2.float(), _by_tap(w3, dtype), b3.float()]
    return [*prepared, w4.float().flatten(), b4.float()]


def _pool_masks(row_mask: Tensor, column_mask: Tensor) -> list[Tensor]:
    """The masks of rows and columns behind the first pooling, then behind the second, as bytes."""
    half = [pool_mask(mask) for mask in (row_mask, column_mask)]
    return [mask.view(torch.uint8) for mask in (*half, *(pool_mask(mask) for mask in half))]


def _forward(
    matrix: Tensor, masks: list[Tensor], prepared: list[Tensor], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """psi's output [H / 4, W / 4] and its activations behind either pooling."""
    f1, c1, f2, c2, f3, *rest = prepared
    by_rows = len(f2) == 3  # see `prepare`
    tile1, tile2, tile3 = _SCORING_TILES if by_rows else _choose_tiles()
    height, width = matrix.shape
    h, w = height // 2, width // 2
    first = matrix.new_empty(h, w, f1.shape[-1], dtype=dtype)
    _first[_grid(h, w, tile1)](matrix, f1, c1, *masks[:2], first, h, w, _across(w, tile1), F=f1.shape[-1], **tile1)
    h, w = height // 4, width // 4
    middle = matrix.new_empty(h, w, len(c2), dtype=dtype)
    kernel = _middle_by_rows if by_rows else _middle
    kernel[_grid(h, w, tile2)](
        first, f2, c2, *masks[2:], middle, h, w, _across(w, tile2), C=len(c1), F=len(c2), **tile2
    )
    out = matrix.new_empty(h, w, dtype=torch.float32)
    _last[_grid(h, w, tile3)](
        middle, f3, *rest, *masks[2:], out, h, w, _across(w, tile3), C=len(c2), F=f3.shape[-1], **tile3
    )
    return out, first, middle


class _Psi(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, row_mask: Tensor, column_mask: Tensor, dtype: torch.dtype, *parameters: Tensor
    ) -> Tensor:
        matrix = matrix.contiguous()
        prepared, masks = _prepare(parameters, dtype), _pool_masks(row_mask, column_mask)
        out, first, middle = _forward(matrix, masks, prepared, dtype)
        ctx.save_for_backward(matrix, first, middle, *masks, *prepared, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, first, middle, row_mask, column_mask, quarter_rows, quarter_columns, *rest = ctx.saved_tensors
        f1, c1, f2, c2, f3, c3, f4, _ = rest[:8]
        w1, b1, w2, b2, w3, b3, w4, b4 = rest[8:]
        dtype = first.dtype
        tile1, tile2, tile3 = _choose_tiles()
        gradient = gradient.contiguous()
        masks, quarter_masks = (row_mask, column_mask), (quarter_rows, quarter_columns)

        h, w = gradient.shape
        grid = _grid(h, w, tile3)
        outputs = middle.new_empty(h, w, len(w3))
        sums = gradient.new_empty(grid[0], 2, len(w3))
        _last_backward[grid](
            gradient, middle, f3, c3, f4, *quarter_masks, outputs, sums, h, w, _across(w, tile3),
            C=len(w2), F=len(w3), **tile3,
        )  # fmt: skip
        w4_gradient, b3_gradient = sums.sum(0)
        b4_gradient = (gradient * (quarter_rows[:, None] & quarter_columns)).sum()
        middle_gradient, w3_gradient = _convolution_backward(outputs, middle, w3, dtype)

        grid = _grid(h, w, tile2)
        outputs = first.new_empty(2 * h, 2 * w, len(w2))
        sums = gradient.new_empty(grid[0], len(w2))
        _middle_backward[grid](
            middle_gradient, first, f2, c2, *quarter_masks, outputs, sums, h, w, _across(w, tile2),
            C=len(w1), F=len(w2), **tile2,
        )  # fmt: skip
        b2_gradient = sums.sum(0)
        first_gradient, w2_gradient = _convolution_backward(outputs, first, w2, dtype)

        h, w = 2 * h, 2 * w
        tiles = _grid(h, w, tile1)[0]
        programs = min(tiles, _PROGRAMS)
        patches = gradient.new_empty(h, w, 16)
        sums = gradient.new_empty(programs, 65, len(w1))
        _first_backward[(programs,)](
            first_gradient, matrix, f1, c1, *masks, patches, sums, h, w, _across(w, tile1), tiles,
            F=len(w1), **tile1,
        )  # fmt: skip
        total = sums.sum(0)  # [65, F]
        matrix_gradient = torch.empty_like(matrix)
        _fold[(2 * h, triton.cdiv(2 * w, 1024))](patches, matrix_gradient, h, w, BLOCK=1024)
        gradients = [
            _collapse(total[:64]), total[64], w2_gradient, b2_gradient, w3_gradient, b3_gradient,
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


def _by_row(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """[F, C, 3, 3] -> [3, 4C, 2F]: each row of taps as it lies among four cells, at the left and right position."""
    filters, channels = weight.shape[:2]
    rows = weight.new_zeros(3, 4, channels, filters, 2, dtype=dtype)
    for position in range(2):
        rows[:, position : position + 3, :, :, position] = weight.detach().permute(2, 3, 1, 0).to(dtype)
    return rows.view(3, 4 * channels, 2 * filters)


def _expand(weight: Tensor) -> Tensor:
    """The weights [F, 1, 3, 3] as they lie in the 4x4 patch at each of the four positions: [4, 16, F]."""
    patch = weight.new_zeros(4, 4, 4, len(weight), dtype=torch.float32)
    for position in range(4):
        top, left = divmod(position, 2)
        patch[position, top : top + 3, left : left + 3] = weight.detach()[:, 0].permute(1, 2, 0).float()
    return patch.flatten(1, 2)


def _collapse(gradient: Tensor) -> Tensor:
    """The inverse of `_expand` for gradients: [64, F] -> [F, 1, 3, 3]."""
    patch = gradient.view(4, 4, 4, -1)
    total = sum(patch[p, p // 2 : p // 2 + 3, p % 2 : p % 2 + 3] for p in range(4))
    return cast(Tensor, total).permute(2, 0, 1)[:, None]


def _across(width: int, tile: _Tile) -> int:
    return int(triton.cdiv(width, tile["BLOCK_X"]))


def _grid(height: int, width: int, tile: _Tile) -> tuple[int]:
    return (_across(width, tile) * int(triton.cdiv(height, tile["BLOCK_Y"])),)
