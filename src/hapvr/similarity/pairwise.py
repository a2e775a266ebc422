"""Many videos against many: the one place that sorts, packs and chunks.

Videos are laid end to end, so that their frame matrices form one packed matrix [H, W] without padding. Where psi is
used, each video is followed by a gap of zeros up to the next multiple of four: poolings stay aligned with the video and
no convolution sees a neighbour. psi then runs over the packed matrix as over one picture; each video's rows and
columns are read off at the end. Targets are sorted by length, which keeps that last step free of padding too.

A single query on a CPU is compared without packing, which takes as long as the products where videos are short: the
targets of a group are one matrix [Tq, W], and psi sees its parts of similar lengths as a batch. In int8 every query is
compared so (`hapvr.similarity.int8`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.checks import require_finite, shape_of
from hapvr.errors import ConfigError, ShapeError
from hapvr.similarity import kernels
from hapvr.similarity.chamfer import compute_keep_count
from hapvr.similarity.comparator import DOWNSAMPLING, Comparator, compare_in_bands, pool_mask, slot
from hapvr.similarity.int8 import (
    Int8Descriptors,
    Int8Scorer,
    can_use_int8,
    group_similar_lengths,
    has_one_best_region,
)
from hapvr.similarity.network import Descriptors, VideoSimilarity, check_regions, double_length
from hapvr.similarity.spatial import widen
from hapvr.workers.threads import torch_thread_pool

# Cells of the packed matrix worked on at a time: on a CPU psi's activations then stay near its caches (200 bytes a
# cell), on a GPU a block is long enough to hide the launches (30 bytes a cell in the fused kernels).
_CPU_CELLS, _GPU_CELLS = 1 << 18, 1 << 25
_CPU_FRAMES = 512  # frames of a pack on a CPU: some 10 MB, which the allocator hands on from one pack to the next
_INT8_FRAMES = 1024  # of a group in int8: 5 MB
_WINDOW = 4096  # targets taken from an iterator at a time, to be sorted and packed
_FLOAT16_SAFE = 30_000.0  # psi's activations are kept in float16 where they cannot come near its end, 65,504


@torch.no_grad()
def pairwise(
    model: VideoSimilarity,
    queries: Sequence[Tensor | Int8Descriptors],
    targets: Iterable[Tensor | Int8Descriptors],
    *,
    dtype: torch.dtype | None = None,
    max_cells: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Score every query against every target, in memory that does not grow with the number of targets.

    Computes on the model's device; videos may lie elsewhere. Targets may be an iterator: they are read once, in
    windows. In float32 the scores equal `model.score` of each pair within 1e-4, in half precision within 5e-3, in int8
    (unit vectors, the shipped networks) within 2e-3 on a CPU and 5e-3 on a GPU; `fast_score_dtype` says which of them
    suits a device.

    Args:
        model: the similarity network.
        queries: videos [Tq, R, D] of any lengths, region vectors or `Descriptors`; for int8 on a CPU also
            `Int8Descriptors`.
        targets: videos [Tt, R, D], the same.
        dtype: of the region products: float32, bfloat16, float16 or int8; by default bfloat16 on a GPU, float32 on
            a CPU. int8 is for networks with one best region.
        max_cells: frame-to-frame cells worked on at a time; the default suits the device.
        progress: called with the number of targets just finished.

    Returns float32 [len(queries), number of targets] on the CPU.

    >>> from hapvr.similarity import SimilarityConfig
    >>> model = VideoSimilarity(SimilarityConfig(dims=2, weighting="none", comparator=False, min_frames=1))
    >>> video = torch.tensor([[[1., 0.]], [[0., 1.]]])             # two frames of one region
    >>> pairwise(model, [video, video[:1]], [video, video[1:]]).tolist()
    [[1.0, 0.5], [1.0, 0.0]]
    """
    if max_cells is not None and max_cells < 1:
        raise ConfigError(f"max_cells must be at least 1, got {max_cells}.")
    # `dtype` alone decides; and kernels are launched on the current GPU, which need not be the model's.
    with torch.autocast(model.device.type, enabled=False), _use_gpu(model.device):
        if dtype == torch.int8 and model.device.type == "cpu":
            return _pairwise_in_int8(Int8Scorer(model, max_cells=max_cells), list(queries), targets, progress)
        videos, others = cast("list[Tensor]", list(queries)), cast("Iterable[Tensor]", targets)
        return _pairwise(_Scorer(model, dtype, max_cells), videos, others, progress)


def _pairwise_in_int8(
    scorer: Int8Scorer,
    queries: list[Tensor | Int8Descriptors],
    targets: Iterable[Tensor | Int8Descriptors],
    progress: Callable[[int], None] | None,
) -> Tensor:
    _check_videos(queries, "queries", scorer.model, codes=True)
    asked = [scorer.prepare(query, f"queries[{index}]") for index, query in enumerate(queries)]
    blocks = []
    for window in _windows(targets):
        _check_videos(window, "targets", scorer.model, codes=True)
        if window and not can_use_int8(scorer.model, _tensor_of(window[0]).shape[1]):
            raise ConfigError(
                "int8 scores are for networks on a CPU with one best region (spatial 'chamfer', or 'topk' with K = 1) "
                "and without symmetry or bits. Use torch.float32 or torch.bfloat16."
            )
        block = torch.empty(len(queries), len(window))

        def fill(group: list[int], window: list[Tensor | Int8Descriptors] = window, block: Tensor = block) -> int:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):  # which a thread does not inherit
                videos = [scorer.prepare(window[index], f"targets[{index}]") for index in group]
                for row, query in enumerate(asked):
                    block[row, group] = scorer.score(query, videos)
            return len(group)

        lengths = [len(video) for video in window]
        # Of few videos, a group for each thread.
        groups = list(_group_by_length(lengths, min(_INT8_FRAMES, -(-sum(lengths) // torch.get_num_threads()))))
        for count in _work_through(fill, groups, threads=None):
            if progress is not None:
                progress(count)
        blocks.append(block)
    return torch.cat(blocks, 1) if blocks else torch.empty(len(queries), 0)


def _pairwise(
    scorer: _Scorer, queries: list[Tensor], targets: Iterable[Tensor], progress: Callable[[int], None] | None
) -> Tensor:
    query_packs = [scorer.pack(queries, group) for group in scorer.groups(queries, "queries", math.isqrt(scorer.cells))]
    alone = scorer.make_all_descriptors(queries) if len(queries) == 1 and scorer.device.type == "cpu" else None
    widest = max((pack.mask.numel() for pack in query_packs), default=1)
    max_frames = max(1, scorer.cells // widest)
    if scorer.device.type == "cpu":
        max_frames = min(max_frames, _CPU_FRAMES)
    blocks = []
    for window in _windows(targets):
        block = torch.empty(len(queries), len(window), device=scorer.device)

        def fill(group: list[int], window: list[Tensor] = window, block: Tensor = block) -> int:
            # Nothing in here waits for the GPU, so that packing one group hides behind scoring the last.
            with torch.no_grad(), torch.autocast(scorer.device.type, enabled=False):  # which a thread does not inherit
                if alone is not None and scorer.can_score_alone(len(alone), [len(window[index]) for index in group]):
                    block[0, group] = scorer.score_alone(alone, [window[index] for index in group])
                    return len(group)
                target = scorer.pack(window, group)
                for query in query_packs:
                    block[query.order[:, None], target.order] = scorer.score(query, target)
            return len(group)

        groups = list(scorer.groups(window, "targets", max_frames))
        fused = kernels.usable(block, scorer.dtype)
        for count in _work_through(fill, groups, threads=1 if scorer.device.type != "cpu" or fused else None):
            if progress is not None:
                progress(count)
        blocks.append(block.cpu())
        scorer.check_finite(queries, window)
    return torch.cat(blocks, 1) if blocks else torch.empty(len(queries), 0)


def _work_through(fill: Callable[[list[int]], int], groups: list[list[int]], *, threads: int | None) -> Iterator[int]:
    """Work through groups, on a CPU side by side: so no core waits for another at every step, which costs much on a
    busy machine.
    """
    threads = min(threads or torch.get_num_threads(), len(groups))
    if threads <= 1:
        yield from map(fill, groups)
        return
    with torch_thread_pool(threads) as pool:
        yield from pool.map(fill, groups)


@dataclass(frozen=True)
class _Pack:
    """Videos laid end to end."""

    order: Tensor  # [N] which videos, as positions in the list they came from
    frames: Tensor  # [H, R, D] described, zero in the gaps
    scales: Tensor | None  # [H] of codes, see `pack_frames`; None where frames are no codes
    mask: Tensor  # bool [H], False in the gaps
    spans: tuple[Tensor, Tensor]  # [N, T'] rows of each video behind psi; and bool [N, T'], which are real
    lengths: Tensor  # [N] frames of each video, none doubled
    parts: _Parts | None  # the same spans for the fused kernel; None where it cannot be used


class _Parts(NamedTuple):
    """Where each video lies behind psi, int32 [N] each, and the most cells of one."""

    starts: Tensor
    counts: Tensor
    keeps: Tensor  # how many of the best cells count for a row over this video
    longest: int


class _Scorer:
    """One model, one precision, one budget of cells."""

    def __init__(self, model: VideoSimilarity, dtype: torch.dtype | None, max_cells: int | None) -> None:
        self.device = model.device
        gpu = self.device.type == "cuda"
        self.dtype = dtype or (torch.bfloat16 if gpu else torch.float32)
        if self.dtype not in (torch.float32, *kernels.HALF, torch.int8):
            raise ConfigError(f"dtype must be torch.float32, torch.bfloat16, torch.float16 or torch.int8, got {dtype}.")
        if self.dtype == torch.int8 and not kernels.usable(torch.empty(0, device=self.device), self.dtype):
            raise ConfigError(
                "Products in int8 on a GPU need compute capability 8.0 or newer and Triton; the model is on "
                f"{self.device}. Use torch.bfloat16 or torch.float32."
            )
        self.model = model
        self.cells = max_cells or (_GPU_CELLS if gpu else _CPU_CELLS)
        self.step = 1 if model.comparator is None else DOWNSAMPLING
        # Rounding psi's weights and activations to bfloat16 would cost more than rounding the region vectors does.
        safe = model.comparator is not None and model.comparator.largest_activation() < _FLOAT16_SAFE
        self.psi_dtype = torch.float16 if safe else torch.bfloat16
        self.fused = kernels.usable(torch.empty(0, device=self.device), self.dtype)
        self.prepared = self._prepare_psi()
        self.finite: list[Tensor] = []  # one flag a pack, read once a window

    # --- packing ---------------------------------------------------------------------------------------------------

    def groups(self, videos: Sequence[Tensor], name: str, max_frames: int) -> Iterator[list[int]]:
        """Groups of up to `max_frames` frames, or of one video, by ascending length, none over twice the shortest."""
        _check_videos(videos, name, self.model)
        yield from _group_by_length([len(video) for video in videos], max_frames, size=self._slot)

    def _slot(self, length: int) -> int:
        length = double_length(length, self.model.config.min_frames)
        return length if self.model.comparator is None else slot(length)

    def pack(self, videos: Sequence[Tensor], group: list[int]) -> _Pack:
        """The videos of a group laid end to end."""
        chosen = [videos[index] for index in group]
        source, mask, starts, lengths = [], [], [], []
        first = row = 0
        for video in chosen:
            length, size = double_length(len(video), self.model.config.min_frames), self._slot(len(video))
            source.append(first + np.arange(size) % len(video))
            mask.append(np.arange(size) < length)
            starts.append(row // self.step)
            lengths.append(length // self.step)
            first, row = first + len(video), row + size
        real = self._upload(np.concatenate(mask))
        # Where no video is doubled or followed by a gap, frames stay where they are.
        places = None if row == first else np.where(np.concatenate(mask), np.concatenate(source), -1)
        frames, scales = self._place(chosen, places, real)
        place = np.arange(max(lengths))
        inside = place < np.array(lengths)[:, None]  # [N, T']
        rows = np.where(inside, np.array(starts)[:, None] + place, 0)
        spans = self._upload(rows), self._upload(inside)
        own = self._upload(np.array([len(video) for video in chosen]))
        parts = self._find_parts(starts, lengths)
        return _Pack(self._upload(np.array(group)), frames, scales, real, spans, own, parts)

    def _place(
        self, videos: list[Tensor], places: np.ndarray[Any, Any] | None, real: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The frames of a pack and, for int8, their scales; a place is the number of a frame, or -1 for a gap."""
        if self.fused:
            from hapvr.similarity.kernels.frames import attend, pack_frames

            frames, described = self._join(videos)
            weights = None
            attention = self.model.attention
            if attention is not None and self._can_attend(frames) and not described:
                weights = attend(attention, frames)
            elif not described:
                frames = self.model.make_descriptors_unchecked(frames).as_subclass(Tensor)
            if self.dtype == torch.int8:
                self._check_int8(frames)
            at = None if places is None else self._upload(places.astype(np.int32))
            return pack_frames(frames, dtype=self.dtype, weights=weights, places=at)
        frames = self.make_all_descriptors(videos)
        if places is not None:
            frames = frames[self._upload(places.clip(0))].masked_fill_(~real[:, None, None], 0)
        return frames, None

    def _can_attend(self, frames: Tensor) -> bool:
        """Whether attention is all that is done to region vectors, and a kernel can do it."""
        return self.model.projection is None and self.model.binarization is None and frames.shape[2] % 16 == 0

    def _find_parts(self, starts: list[int], lengths: list[int]) -> _Parts | None:
        kind, rate = self.model.config.temporal, self.model.config.temporal_keep_rate
        if not self.fused or kind not in ("topk", "chamfer"):
            return None
        from hapvr.similarity.kernels.temporal import MAX_COLUMNS, MAX_KEPT

        keeps = [compute_keep_count(length, rate if kind == "topk" else 0.0) for length in lengths]
        if max(keeps) > MAX_KEPT or max(lengths) > MAX_COLUMNS:
            return None
        at, counts, kept = (self._upload(np.array(side, dtype=np.int32)) for side in (starts, lengths, keeps))
        return _Parts(at, counts, kept, max(lengths))

    def make_all_descriptors(self, videos: list[Tensor]) -> Tensor:
        """The descriptors of videos laid end to end: [sum of T, R, D]."""
        frames, described = self._join(videos)
        if not described:
            frames = self.model.make_descriptors_unchecked(frames)
        frames = frames.as_subclass(Tensor)
        return frames if self.dtype == torch.int8 else frames.to(self.dtype)

    def _join(self, videos: list[Tensor]) -> tuple[Tensor, bool]:
        """Videos laid end to end, [sum of T, R, D], and whether they are described already."""
        described = {isinstance(video, Descriptors) for video in videos}
        if len(described) == 2:
            videos = [self.model.make_descriptors(video.to(self.device)) for video in videos]
        frames = torch.cat(videos).to(self.device)
        # A sum is finite if its terms are (or it overflows, and then the terms are checked): one pass, no copy.
        self.finite.append(torch.isfinite(frames.as_subclass(Tensor).sum(dtype=widen(frames.dtype))))
        return frames.as_subclass(Tensor), described != {False}

    def _check_int8(self, frames: Tensor) -> None:
        _, regions, dims = frames.shape
        if not has_one_best_region(self.model, regions) or self.model.config.bits is not None or dims % 32:
            raise ConfigError(
                "Products in int8 are for networks with one best region (spatial 'chamfer', or 'topk' with "
                "K = 1), without bits, and dims that are a multiple of 32. Use torch.bfloat16 or torch.float32."
            )

    def check_finite(self, queries: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        """Raise `DataError` if a video packed since the last call holds a NaN; only then look for it."""
        if self.finite and not bool(torch.stack(self.finite).all()):
            for name, videos in (("queries", queries), ("targets", targets)):
                for index, video in enumerate(videos):
                    require_finite(video.as_subclass(Tensor), f"{name}[{index}]")
        self.finite.clear()

    def _upload(self, values: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    # --- scoring ---------------------------------------------------------------------------------------------------

    def score(self, query: _Pack, target: _Pack) -> Tensor:
        """Scores [N, M] of the videos of two packs."""
        with _disable_tf32(self.dtype):
            scores = self._one_way(query, target)
            if self.model.config.symmetry == "average":
                scores = (scores + self._one_way(target, query).T) / 2
        return scores

    def can_score_alone(self, frames: int, lengths: Sequence[int]) -> bool:
        """Whether scores of one query can be read off its frame matrix: one way, nothing doubled, psi sees it whole."""
        config = self.model.config
        small = self.model.comparator is None or frames * max(lengths) <= self.cells
        return config.symmetry != "average" and min(frames, *lengths) >= config.min_frames and small

    def score_alone(self, query: Tensor, targets: Sequence[Tensor]) -> Tensor:
        """Scores [M] of one query, described [Tq, R, D], with targets, from their frame matrices side by side."""
        model, lengths = self.model, [len(target) for target in targets]
        matrix = model.scored_matrix_unchecked(query, self.make_all_descriptors(list(targets)))  # [Tq, sum of lengths]
        matrix = matrix.float()
        parts = torch.split_with_sizes(matrix, lengths, 1)
        if model.comparator is None:
            return torch.stack([model.aggregate_time(part) for part in parts])
        scores = matrix.new_empty(len(parts))
        for group in group_similar_lengths(lengths, self.cells // len(matrix)):
            longest = lengths[group[-1]]
            padded = [F.pad(parts[place], (0, longest - lengths[place])) for place in group]  # [Tq, longest] each
            own = torch.tensor([lengths[place] for place in group])
            real = torch.arange(longest) < own[:, None]  # [n, longest]
            values = model.bound(model.comparator(torch.stack(padded), None, real))
            pooled = pool_mask(pool_mask(real))
            scores[group] = model.aggregate_time(values, target_mask=pooled, lengths=(len(matrix), own))
        return scores

    def _one_way(self, query: _Pack, target: _Pack) -> Tensor:
        matrix = self._frame_matrix(query, target)  # [H, W]
        if self.model.comparator is not None:
            matrix = self._psi(self.model.comparator, matrix, query.mask, target.mask)
        if query.parts is not None and target.parts is not None:
            return self._aggregate_parts(matrix, query, target)
        if self.model.comparator is not None:
            matrix = self.model.bound(matrix)
        (rows, real_rows), (columns, real_columns) = query.spans, target.spans
        values = matrix[rows[:, None, :, None], columns[None, :, None, :]]  # [N, M, Tq', Tt']
        return self.model.aggregate_time(
            values,
            query_mask=real_rows[:, None].expand(values.shape[:3]),
            target_mask=real_columns[None].expand(*values.shape[:2], -1),
            lengths=(query.lengths[:, None], target.lengths),
        )

    def _aggregate_parts(self, matrix: Tensor, query: _Pack, target: _Pack) -> Tensor:
        """`bound` and `aggregate_time` of each pair's part of a packed matrix, by one kernel a direction: [N, M]."""
        from hapvr.similarity.kernels.temporal import average_best

        rows, columns = query.parts, target.parts
        assert rows is not None
        assert columns is not None
        config = self.model.config
        slope = config.negative_slope if config.comparator else None
        score = average_best(matrix, rows[:2], columns[:2], columns.keeps, longest=columns.longest, slope=slope)
        if not config.compares_regions_both_ways:
            return score
        other = average_best(matrix.T, columns[:2], rows[:2], rows.keeps, longest=rows.longest, slope=slope).T
        return self.model.join_directions(score, other, query.lengths[:, None], target.lengths)

    def _frame_matrix(self, query: _Pack, target: _Pack) -> Tensor:
        if query.scales is None or target.scales is None:
            return self.model.scored_matrix_unchecked(query.frames, target.frames)
        from hapvr.similarity.kernels.chamfer import chamfer_of_codes

        both_ways = self.model.config.compares_regions_both_ways
        return chamfer_of_codes(query.frames, query.scales, target.frames, target.scales, both_ways=both_ways)

    def _prepare_psi(self) -> list[Tensor] | None:
        if not self.fused or self.model.comparator is None:
            return None
        from hapvr.similarity.kernels.psi import prepare

        return prepare(self.model.comparator, self.psi_dtype)

    def _psi(self, comparator: Comparator, matrix: Tensor, row_mask: Tensor, column_mask: Tensor) -> Tensor:
        """psi over a packed matrix: [H, W] -> [H / 4, W / 4]."""
        if kernels.usable(matrix, self.dtype):
            from hapvr.similarity.kernels.psi import compare

            return compare(comparator, matrix, row_mask, column_mask, dtype=self.psi_dtype, prepared=self.prepared)
        matrix = matrix.to(comparator.final.weight.dtype)[None]
        return compare_in_bands(comparator, matrix, row_mask[None], column_mask[None], cells=self.cells)[0].float()


def _check_videos(
    videos: Sequence[Tensor | Int8Descriptors], name: str, model: VideoSimilarity, *, codes: bool = False
) -> None:
    """Raise unless these are videos that the network takes, all of as many regions; with `codes`, in int8 too."""
    for index, video in enumerate(videos):
        if isinstance(video, Int8Descriptors) and not codes:
            raise ShapeError(f"{name}[{index}] must be a tensor: int8 codes are scored with dtype=torch.int8.")
        regions = _tensor_of(video)
        if not isinstance(regions, Tensor) or regions.ndim != 3:
            raise ShapeError(f"{name}[{index}] must be one video [T, R, D], got {shape_of(video)}.")
        if isinstance(video, Int8Descriptors):
            video.check(f"{name}[{index}]", model.config.dims)
        else:
            check_regions(video, f"{name}[{index}]", model.config)
        if regions.shape[1] != (first := _tensor_of(videos[0]).shape[1]):
            raise ShapeError(f"{name}[{index}] has {regions.shape[1]} regions a frame, {name}[0] has {first}.")


def _tensor_of(video: Tensor | Int8Descriptors) -> Tensor:
    return video.codes if isinstance(video, Int8Descriptors) else video


def _group_by_length(
    lengths: Sequence[int], max_frames: int, *, size: Callable[[int], int] = int
) -> Iterator[list[int]]:
    """Groups of up to `max_frames` frames, or of one video, by ascending length, none over twice the shortest.

    `size` says how many frames a video of a length takes.

    >>> list(_group_by_length([5, 3, 9, 4], 12))
    [[1, 3, 0], [2]]
    """
    group: list[int] = []
    frames = 0
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if group and (frames + size(lengths[index]) > max_frames or lengths[index] > 2 * lengths[group[0]]):
            yield group
            group, frames = [], 0
        group.append(index)
        frames += size(lengths[index])
    if group:
        yield group


_Video = TypeVar("_Video")


def _windows(videos: Iterable[_Video]) -> Iterator[list[_Video]]:
    if isinstance(videos, Sequence):
        yield list(videos)
        return
    iterator = iter(videos)
    while window := list(islice(iterator, _WINDOW)):
        yield window


def _use_gpu(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _disable_tf32(dtype: torch.dtype) -> AbstractContextManager[None]:
    """float32 means float32: convolutions on a GPU would otherwise round to TF32."""
    if dtype != torch.float32 or not torch.cuda.is_available():
        return nullcontext()
    exact: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return exact
