"""Region vectors as bytes: how a library keeps what it compares, from 16 bits a number down to one.

A query is compared in full precision with what was stored in few bits: only one side is coarse, which costs far less
than coarse vectors on both. Whitened region vectors have numbers that are close to normally distributed, so that few
bits go furthest with the levels that suit that law (Lloyd, 1957; Max, 1960); each vector keeps its length besides, in
float16. All decoded vectors have the length they had, so that scores stay within -1 and 1.

Layout: float16 holds the numbers and nothing else. The others hold one float16 factor a vector, [T, R], and then the
codes [T, R, D], least significant bits first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.checks import require_finite, require_tensor
from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.similarity.int8 import Int8Descriptors, join, quantize
from hapvr.similarity.native import load_native

_LARGEST = 65_504.0  # of float16
_BLOCK = 1 << 17  # numbers encoded or decoded at a time: they stay in a core's cache
_IN_ONE_LOOK = 4096  # vectors looked up in a table at a time
Chosen: TypeAlias = "tuple[bytes | memoryview, int, NDArray[np.intp] | None]"
"""An encoded video: its bytes, its frames, and which of them are meant; None for all."""
Number = TypeVar("Number", np.float32, np.int8)

# The upper half of the levels that lose least of a normal variable of variance 1, by bits a number.
_LEVELS: dict[int, tuple[float, ...]] = {
    1: (0.797885,),
    2: (0.452780, 1.510418),
    3: (0.245094, 0.756005, 1.343909, 2.151946),
    4: (0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069016, 2.732590),
}


@dataclass(frozen=True)
class Codec:
    """A way to keep region vectors. Get one with `get_codec`.

    >>> codec = get_codec("int4")
    >>> regions = torch.nn.functional.normalize(torch.arange(48.0).reshape(2, 3, 8) % 7 - 3, dim=-1)
    >>> data = codec.encode(regions)
    >>> len(data), codec.size(2, 3, 8)                              # 6 factors of 2 bytes, 48 numbers of half a byte
    (36, 36)
    >>> bool((codec.decode(data, 2, 3, 8) - regions).abs().max() < 0.1)
    True
    """

    name: str
    bits: int  # a number

    def size(self, frames: int, regions: int, dims: int) -> int:
        """Bytes of an encoded video."""
        factors = 0 if self.bits == 16 else 2 * frames * regions
        return factors + frames * regions * math.ceil(dims * self.bits / 8)

    def encode(self, regions: Tensor) -> bytes:
        """The bytes of region vectors [T, R, D]; `DataError` for what is not finite or too large for float16."""
        require_tensor(regions, "regions", dims=3, axes="[T, R, D]")
        require_finite(regions, "regions")
        vectors = regions.detach().cpu().flatten(0, 1)  # [T R, D]
        factors: list[bytes] = []
        codes: list[bytes] = []
        step = max(1, _BLOCK // max(1, vectors.shape[1]))
        for first in range(0, len(vectors), step):
            values = vectors[first : first + step].float().numpy()
            largest = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
            if largest > _LARGEST:
                raise DataError(f"regions hold {largest:g}; a library keeps numbers up to {_LARGEST:g}, in float16.")
            if self.bits == 16:
                codes.append(values.astype("<f2").tobytes())
                continue
            factor, code = _round(values) if self.bits == 8 else _quantise(values, self.bits)
            factors.append(factor.tobytes())
            codes.append(_pack(code, self.bits).tobytes())
        return b"".join(factors + codes)

    def take(self, data: bytes | memoryview, frames: int, regions: int, dims: int, chosen: NDArray[np.intp]) -> bytes:
        """The bytes of some frames of an encoded video, as `encode` would give them; see `decode`."""
        self._check_size(data, frames, regions, dims)
        sizes = [] if self.bits == 16 else [2 * regions]
        sizes.append(regions * math.ceil(dims * self.bits / 8))  # bytes a frame: of factors, of codes
        parts, offset = [], 0
        for size in sizes:
            rows = np.frombuffer(data, np.uint8, frames * size, offset).reshape(frames, size)
            parts.append(rows[chosen].tobytes())
            offset += frames * size
        return b"".join(parts)

    def decode(
        self, data: bytes | memoryview, frames: int, regions: int, dims: int, *, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Region vectors [T, R, D] of `encode`'s bytes; `StorageError` where they are not of that size.

        `dtype` may be torch.bfloat16 where half the memory counts more than the last digits.
        """
        self._check_size(data, frames, regions, dims)
        if dtype not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"dtype must be torch.float32 or torch.bfloat16, got {dtype}.")
        count = frames * regions
        result = torch.empty(count, dims, dtype=dtype)
        step = max(1, _BLOCK // dims)
        blocks = [slice(first, first + step) for first in range(0, count, step)]
        if self.bits == 16:
            values = np.frombuffer(data, "<f2").reshape(count, dims)
            for rows in blocks:
                result[rows] = torch.from_numpy(values[rows].astype(np.float32))
        else:
            factors = torch.from_numpy(np.frombuffer(data, "<f2", count).astype(np.float32))[:, None]
            codes = np.frombuffer(data, np.uint8, offset=2 * count).reshape(count, -1)
            for rows in blocks:
                torch.mul(self._read_codes(codes[rows], dims), factors[rows], out=result[rows])
        return result.view(frames, regions, dims)

    def decode_to_int8(self, data: bytes | memoryview, frames: int, regions: int, dims: int) -> Int8Descriptors:
        """What `decode` gives as int8 codes with a scale a vector, in a fraction of its time; float16: a scale a frame.

        The levels of few bits are rounded to whole numbers, which moves them by half a percent of the largest at most.
        """
        return self.decode_all_to_int8([(data, frames, None)], regions, dims)

    def decode_all_to_int8(self, videos: Sequence[Chosen], regions: int, dims: int) -> Int8Descriptors:
        """`decode_to_int8` of some frames of several videos, laid end to end: what `take`, it and `join` would give."""
        for data, frames, _ in videos:
            self._check_size(data, frames, regions, dims)
        if self.bits == 16:
            return join([self._quantize_float16(*video, regions, dims) for video in videos])
        factors = np.concatenate(
            [_choose(np.frombuffer(data, "<f2", n * regions), n, chosen) for data, n, chosen in videos]
        )
        codes = np.concatenate(
            [_choose(np.frombuffer(data, np.uint8, offset=2 * n * regions), n, chosen) for data, n, chosen in videos]
        )
        scales = torch.from_numpy(factors.astype(np.float32))  # [T, R]
        codes = codes.reshape(len(factors) * regions, -1)
        if self.bits == 8:
            return Int8Descriptors(torch.from_numpy(codes.view(np.int8)).view(-1, regions, dims), scales)
        table, unit = _int8_table(self.bits)
        values = _look_up(codes, self.bits, table)[:, :dims]
        return Int8Descriptors(torch.from_numpy(np.ascontiguousarray(values)).view(-1, regions, dims), scales * unit)

    def _quantize_float16(
        self, data: bytes | memoryview, frames: int, chosen: NDArray[np.intp] | None, regions: int, dims: int
    ) -> Int8Descriptors:
        if chosen is not None:
            data, frames = self.take(data, frames, regions, dims, chosen), len(chosen)
        return quantize(self.decode(data, frames, regions, dims))

    def _check_size(self, data: bytes | memoryview, frames: int, regions: int, dims: int) -> None:
        if len(data) != (expected := self.size(frames, regions, dims)):
            raise StorageError(
                f"{frames} frames of {regions} x {dims} numbers take {expected:,} bytes as {self.name}, not "
                f"{len(data):,}: the stored video is damaged. Remove it and add it again."
            )

    def _read_codes(self, codes: NDArray[np.uint8], dims: int) -> Tensor:
        """What packed codes [N, bytes] stand for, before the factor: float32 [N, D]."""
        if self.bits == 8:
            return torch.from_numpy(codes.view(np.int8).astype(np.float32))
        return torch.from_numpy(_look_up(codes, self.bits, _table(self.bits))[:, :dims])


def get_codec(name: str) -> Codec:
    """A codec by its name.

    >>> get_codec("int6")
    Traceback (most recent call last):
    hapvr.errors.ConfigError: There is no codec 'int6'; did you mean 'int8'?
    """
    if name not in CODECS:
        raise ConfigError(f"There is no codec '{name}'; {suggest(str(name), list(CODECS))}")
    return Codec(name, CODECS[name])


# Made benchmark of 175 queries and 301 videos, queries in full precision; regions alone, at a frame a second:
#     codec      MB a minute     mAP     uAP   largest change of a score
#     float16          0.553   92.71   65.40       0
#     int8             0.278   92.71   65.39   0.001
#     int4             0.139   92.71   65.38   0.010
#     int3             0.105   93.02   65.40   0.021
#     int2             0.070   92.56   65.25   0.060
#     binary           0.036   92.75   65.09   0.202
# int3 is the smallest that loses nothing and leaves scores what they mean, to thresholds and calibrations.
DEFAULT = "int3"
CODECS = {"float16": 16, "int8": 8, "int4": 4, "int3": 3, "int2": 2, "binary": 1}
"""Bits a number of each codec, from the largest to the smallest."""


# --- rounding --------------------------------------------------------------------------------------------------------


def _round(values: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """255 even steps between the largest magnitude of a vector and its opposite: factors and codes [N, D]."""
    factors = (np.abs(values).max(1, keepdims=True, initial=0.0) / 127).astype("<f2")
    steps = values / np.where(factors > 0, factors.astype(np.float32), np.float32(1.0))
    return factors, np.clip(np.rint(steps), -127, 127).astype(np.int8).view(np.uint8)


def _quantise(values: NDArray[np.float32], bits: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The nearest level of each number, in units of its vector's spread: factors and codes [N, D]."""
    levels = _all_levels(bits)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    unit = values * (math.sqrt(values.shape[1]) / np.where(lengths > 0, lengths, 1.0))
    edges = (levels[1:] + levels[:-1]) / 2
    codes = np.zeros(values.shape, np.uint8)
    for edge in edges:
        codes += (unit > edge).view(np.uint8)
    decoded = levels[codes]
    factors = (lengths / np.linalg.norm(decoded, axis=1, keepdims=True)).astype("<f2")
    return factors, codes


def _all_levels(bits: int) -> NDArray[np.float32]:
    upper = np.array(_LEVELS[bits], np.float32)
    return np.concatenate([-upper[::-1], upper])


# --- packing ---------------------------------------------------------------------------------------------------------


def _pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes [N, D] of `bits` each as bytes [N, ceil(D bits / 8)], the first in the lowest bits."""
    if bits == 8:
        return codes
    count, dims = codes.shape
    if dims % 8 == 0 and bits > 1:  # the same with a dozen passes over bytes
        shifts = range(0, 12 if bits == 3 else 8, bits)
        words = np.zeros((count, dims // len(shifts)), np.uint16)
        for place, shift in enumerate(shifts):
            words |= codes[:, place :: len(shifts)].astype(np.uint16) << np.uint16(shift)
        if bits != 3:
            return words.astype(np.uint8)
        low, high = words[:, ::2], words[:, 1::2]  # 12 bits each: three bytes of two
        return np.stack([low, low >> 8 | high << 4, high >> 4], axis=-1).astype(np.uint8).reshape(count, -1)
    spread = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")  # [N, D, bits]
    return np.packbits(spread.reshape(count, -1), axis=1, bitorder="little")


def _choose(values: NDArray[Any], frames: int, chosen: NDArray[np.intp] | None) -> NDArray[Any]:
    """The rows of some frames of a video: [T, numbers a frame]."""
    rows = values.reshape(frames, -1)
    return rows if chosen is None else rows[chosen]


def _look_up(codes: NDArray[np.uint8], bits: int, table: NDArray[Number]) -> NDArray[Number]:
    """The entries of a table [words, numbers] for all packed codes [N, bytes]: [N, numbers], rounded up to words."""
    native = load_native()
    if native is not None and bits == 3 and table.dtype == np.int8 and codes.shape[1] % 3 == 0:
        found: NDArray[Any] = native.look_up_words(codes, table.view(np.int8))
        return found
    count = len(codes)
    width = -(-codes.shape[1] // 3) * 2 if bits == 3 else codes.shape[1]  # words a vector
    result = np.empty((count, width, table.shape[1]), table.dtype)
    for first in range(0, count, _IN_ONE_LOOK):
        rows = slice(first, first + _IN_ONE_LOOK)
        # Every word is within the table; "wrap" spares the copy that "raise" makes to be able to give up.
        np.take(table, _split_words(codes[rows], bits), axis=0, out=result[rows], mode="wrap")
    return result.reshape(count, -1)


def _split_words(codes: NDArray[np.uint8], bits: int) -> NDArray[np.intp]:
    """Packed codes [N, bytes] as words that hold several, [N, words]: bytes, of three bits 12 bits each.

    >>> [hex(word) for word in _split_words(np.array([[0x21, 0x43, 0x65]], np.uint8), 3)[0]]
    ['0x321', '0x654']
    """
    if bits != 3:
        return codes.astype(np.intp)
    whole = -(-codes.shape[1] // 3) * 3
    if whole != codes.shape[1]:
        codes = np.pad(codes, ((0, 0), (0, whole - codes.shape[1])))
    shape, strides = (len(codes), whole // 3), (whole, 3)
    words = np.empty((*shape, 2), np.intp)
    if codes.size:
        codes = np.ascontiguousarray(codes)
        low, high = (np.ndarray(shape, "<u2", codes, offset, strides) for offset in (0, 1))  # bytes 0 and 1, 1 and 2
        np.bitwise_and(low, 0xFFF, out=words[..., 0])
        np.right_shift(high, 4, out=words[..., 1])
    return words.reshape(len(codes), -1)


@cache
def _table(bits: int) -> NDArray[np.float32]:
    """The numbers in every word: [2^width, width / bits]; a word has 8 bits, or 12 if codes have three."""
    width = 12 if bits == 3 else 8
    words = np.arange(1 << width)[:, None] >> np.arange(0, width, bits)
    table: NDArray[np.float32] = _all_levels(bits)[words & ((1 << bits) - 1)]
    return table


@cache
def _int8_table(bits: int) -> tuple[NDArray[np.int8], float]:
    """The numbers in every word as int8, [words, numbers]; and what a step of one means.

    The largest level gets the number up to 127 at which all levels come closest to whole ones.
    """
    levels = _all_levels(bits)
    units = levels.max() / np.arange(64, 128)
    errors = [np.abs(np.rint(levels / unit) * unit - levels).max() for unit in units]
    unit = float(units[int(np.argmin(errors))])
    return np.rint(_table(bits) / unit).astype(np.int8), unit
