"""Scores of codes in int8 by a library written in C (`scores.c`), where it was compiled and this CPU can run it.

It computes what `hapvr.similarity.int8` computes with torch, twice as fast: region products are reduced to maxima in
registers, and psi runs on one pair after the other, in bytes where its work is. `build.py` compiles it when the package
is built. HAPVR_KERNELS=plain leaves it out.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ShapeError
from hapvr.similarity.comparator import Comparator
from hapvr.similarity.native.build import TARGETS, library_path

REGIONS = 9  # of a frame, in both videos
DIMS_STEP = 64  # dims are a multiple of it
_LARGEST_WEIGHT = 127

_Pointer, _Size = ctypes.c_void_p, ctypes.c_int64
Codes = tuple[Tensor, Tensor]  # of a video: codes int8 [T, 9, D] and scales float32 [T, 1 or 9]


class _Psi(ctypes.Structure):
    """`Psi` of scores.c."""

    _fields_ = (
        *[
            (name, _Pointer)
            for name in ("weight1", "bias1", "weight2", "scale2", "bias2", "weight3", "scale3", "bias3")
        ],
        ("last", _Pointer),
        *[(name, ctypes.c_float) for name in ("bias", "slope")],
        ("residual", ctypes.c_int32),
    )


class _Video(ctypes.Structure):
    """`Video` of scores.c."""

    _fields_ = (("codes", _Pointer), ("scales", _Pointer), ("scales_a_frame", _Size), ("frames", _Size))


class _Work(ctypes.Structure):
    """`Work` of scores.c."""

    _fields_ = (
        ("query", ctypes.POINTER(_Video)),
        ("videos", ctypes.POINTER(_Video)),
        ("psi", ctypes.POINTER(_Psi)),
        *[(name, _Size) for name in ("count", "dims", "both_ways", "doubled_query", "keep_query")],
        *[(name, ctypes.POINTER(_Size)) for name in ("doubled", "keeps")],
    )


class NativePsi:
    """psi's weights as the library reads them, and how its output is bounded; not to be changed."""

    def __init__(self, comparator: Comparator, *, negative_slope: float, lanes: int) -> None:
        with torch.no_grad():
            first = comparator.conv1.weight.float().permute(3, 2, 1, 0)  # [dx, dy, 1, 32]: target frames are rows there
            tensors = [first.reshape(9, -1), cast(Tensor, comparator.conv1.bias)]
            for conv in (comparator.conv2, comparator.conv3):
                tensors += [*round_weights(conv.weight.float(), group=2 * lanes), cast(Tensor, conv.bias)]
            tensors.append(comparator.final.weight.flatten())
            self._held = [tensor.detach().clone().contiguous() for tensor in tensors]  # what the pointers point to
            bias = float(cast(Tensor, comparator.final.bias))
        self._held = [tensor if tensor.dtype == torch.int8 else tensor.float() for tensor in self._held]
        pointers = [tensor.data_ptr() for tensor in self._held]
        self.pointers = _Psi(*pointers, bias, negative_slope, comparator.residual)


def prepare_psi(comparator: Comparator, *, negative_slope: float, lanes: int) -> NativePsi:
    """`NativePsi`, made once for the same weights: rounding them takes as long as ten scores."""
    weights = tuple((weight.data_ptr(), weight._version) for weight in comparator.parameters())
    key = (weights, negative_slope, lanes)
    made = _prepared.get(comparator)
    if made is None or made[0] != key:
        made = key, NativePsi(comparator, negative_slope=negative_slope, lanes=lanes)
        _prepared[comparator] = made
    return made[1]


_prepared: WeakKeyDictionary[Comparator, tuple[object, NativePsi]] = WeakKeyDictionary()


def round_weights(weight: Tensor, *, group: int) -> tuple[Tensor, Tensor]:
    """Weights [O, C, 3, 3] of a convolution as bytes [O / group, 9, C / 4, group, 4], and their scales [O].

    Taps of target frames come first. What a tap loses by rounding is added to the next one of its input: activations
    are alike at neighbouring places and never negative, so that most of the error cancels.
    """
    outputs, inputs = weight.shape[:2]
    most = weight.abs().amax((1, 2, 3))
    scales = torch.where(most > 0, most / _LARGEST_WEIGHT, 1.0)  # [O]
    exact = (weight / scales[:, None, None, None]).permute(3, 2, 1, 0).reshape(9, inputs, outputs)
    whole, lost = torch.empty_like(exact), torch.zeros_like(exact[0])
    for tap, values in enumerate(exact):
        whole[tap] = (values + lost).round().clamp(-_LARGEST_WEIGHT, _LARGEST_WEIGHT)
        lost = values + lost - whole[tap]
    grouped = whole.to(torch.int8).view(9, inputs // 4, 4, outputs // group, group)
    return grouped.permute(3, 0, 1, 4, 2).contiguous(), scales


class NativeScores:
    """The library for one kind of CPU; safe to share between threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._library = ctypes.CDLL(os.fspath(path))
        video = ctypes.POINTER(_Video)
        self._library.compare_frames.argtypes = [video, video, _Size, ctypes.c_int, _Pointer]
        self._library.score_videos.argtypes = [ctypes.POINTER(_Work), _Pointer, _Pointer]
        self._library.look_up_words.argtypes = [_Pointer, _Size, _Pointer, _Pointer]
        self._library.look_up_words.restype = None

    @property
    def lanes(self) -> int:
        """Numbers of 32 bits in a vector."""
        return int(self._library.lanes())

    def runs_here(self) -> bool:
        """Whether this CPU has the instructions."""
        return bool(self._library.runs_here())

    def look_up_words(self, packed: NDArray[np.uint8], table: NDArray[np.int8]) -> NDArray[np.int8]:
        """Entries of a table [4096, 4] for words of 12 bits, two in three bytes: [N, bytes] to [N, 8 bytes / 3]."""
        packed, table = np.ascontiguousarray(packed), np.ascontiguousarray(table)
        count, size = packed.shape
        if size % 3 or table.shape != (1 << 12, 4):
            raise ShapeError(f"Words of 12 bits need 3 bytes for two and a table [4096, 4], got {size}, {table.shape}.")
        entries = np.empty((count, size // 3 * 8), np.int8)
        self._library.look_up_words(packed.ctypes.data, packed.size // 3, table.ctypes.data, entries.ctypes.data)
        return entries

    def compare_frames(self, query: Codes, target: Codes, *, both_ways: bool) -> Tensor:
        """`compute_int8_matrix` of two videos, target frames first: [W, H]."""
        held, (one, other) = _point_at([query, target])
        matrix = torch.empty(len(target[0]), len(query[0]))
        _check(self._library.compare_frames(one, other, held[0].shape[2], both_ways, matrix.data_ptr()))
        return matrix

    def score_videos(
        self,
        psi: NativePsi | None,
        query: Codes,
        videos: Sequence[Codes],
        *,
        both_ways: bool,
        doubled_query: int,
        doubled: Sequence[int],
        keep_query: int,
        keeps: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """How much of a query is in each of M videos, and with `both_ways` how much of each is in the query: [M] each.

        Args:
            psi: between matrix and aggregation; None leaves it out.
            query: codes and scales.
            videos: the same of each.
            both_ways: also compare regions and frames in the other direction; without it the second tensor is zeros.
            doubled_query: frames of the query after it was doubled for being short.
            doubled: the same of each video.
            keep_query: how many of its best query cells count for a target cell.
            keeps: how many of its best target cells count for a query cell, for each video.
        """
        held, pointers = _point_at([query, *videos])
        forth, back = torch.zeros(2, len(videos))
        numbers = _Size * len(videos)
        work = _Work(
            query=ctypes.pointer(pointers[0]),
            videos=(_Video * len(videos))(*pointers[1:]),
            psi=None if psi is None else ctypes.pointer(psi.pointers),
            count=len(videos),
            dims=held[0].shape[2],
            both_ways=both_ways,
            doubled_query=doubled_query,
            keep_query=keep_query,
            doubled=numbers(*doubled),
            keeps=numbers(*keeps),
        )
        _check(self._library.score_videos(work, forth.data_ptr(), back.data_ptr()))
        return forth, back


def _point_at(videos: Sequence[Codes]) -> tuple[list[Tensor], list[_Video]]:
    """Where videos lie in memory, and the tensors that keep it."""
    held, found = [], []
    for video in videos:
        codes, scales = (tensor.contiguous() for tensor in video)
        held += [codes, scales]
        found.append(_Video(codes.data_ptr(), scales.data_ptr(), scales.shape[1], len(codes)))
    return held, found


def _check(problem: int) -> None:
    if problem:
        raise MemoryError("There is not enough memory to compare these videos.")


@cache
def load_native(folder: Path | None = None) -> NativeScores | None:
    """The library that this CPU runs fastest; None if there is none, or HAPVR_KERNELS is "plain"."""
    if os.environ.get("HAPVR_KERNELS") == "plain":
        return None
    for target in TARGETS:
        path = library_path(target) if folder is None else library_path(target, folder)
        if path.is_file():
            try:
                native = NativeScores(path)
            except OSError:  # of another system: a folder that two machines share
                continue
            if native.runs_here():
                return native
    return None
