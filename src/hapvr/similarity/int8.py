"""Scores from vectors of one byte a number, for CPUs that multiply bytes: four times as many products as in float32.

A video is held as codes and scales: code times scale is the number. A scale belongs to a frame or to a region vector,
so that the largest of a frame's products can be found among whole numbers (which are exact), or after one
multiplication. psi runs in bfloat16 where the CPU has it; what is added to its output, and all sums, are float32.
Where `hapvr.similarity.native` can be used, it does this work.

Nothing here depends on which videos are scored together: scales are of single frames or vectors, and psi sees masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.checks import require_finite, shape_of
from hapvr.errors import DataError, ShapeError
from hapvr.features.extractor import fast_dtype
from hapvr.processor import multiplies_bytes
from hapvr.similarity.chamfer import compute_keep_count
from hapvr.similarity.comparator import DOWNSAMPLING, Comparator, coarse, compare_in_bands, pool_mask
from hapvr.similarity.native import DIMS_STEP, REGIONS, NativeScores, load_native, prepare_psi
from hapvr.similarity.network import Descriptors, VideoSimilarity, double_length

LARGEST = 127  # of a code: -128 is not used, so that codes are symmetric
_CACHED_BYTES = 1 << 20  # of products that are reduced before the next are made: they stay in a core's cache
_CACHED_ROWS = 1536  # query regions in one product, at most
_NATIVE_FRAMES = 16  # of shorter videos psi is not computed in bytes: with so few cells to average it loses too much
_PSI_CELLS = 1 << 17  # cells of frame matrices that psi sees at a time: its activations stay near the core


@dataclass(frozen=True)
class Int8Descriptors:
    """Descriptors of a video, or of videos laid end to end, as whole numbers from -127 to 127 and their scales."""

    codes: Tensor  # int8 [T, R, D]
    scales: Tensor  # float32 [T, R], or [T, 1] for a scale a frame

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, frames: slice) -> Int8Descriptors:
        return Int8Descriptors(self.codes[frames], self.scales[frames])

    def split(self, lengths: Sequence[int]) -> list[Int8Descriptors]:
        """The videos of these lengths that were laid end to end."""
        parts = zip(torch.split(self.codes, list(lengths)), torch.split(self.scales, list(lengths)), strict=True)
        return [Int8Descriptors(*part) for part in parts]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.codes.nbytes + self.scales.nbytes

    def check(self, name: str, dims: int) -> None:
        """Raise unless these are the codes of a video of `dims` numbers a region."""
        frames, regions, given = self.codes.shape
        if (
            self.codes.dtype != torch.int8
            or given != dims
            or tuple(self.scales.shape)
            not in {
                (frames, 1),
                (frames, regions),
            }
        ):
            raise ShapeError(
                f"{name} must be int8 codes [T, R, {dims}] with scales [T, 1] or [T, R], got {shape_of(self.codes)} "
                f"with {shape_of(self.scales)}."
            )
        if frames * regions == 0:
            raise DataError(f"{name} has no frames ({shape_of(self.codes)}): a video needs at least one.")

    def decode(self) -> Tensor:
        """The vectors that the codes stand for: float32 [T, R, D]."""
        return self.codes.float() * self.scales[..., None]


def quantize(descriptors: Tensor, name: str = "descriptors") -> Int8Descriptors:
    """The nearest codes of described frames [T, R, D], with one scale a frame: 1/127 of its largest magnitude.

    `DataError` for a value that is not finite.

    >>> quantized = quantize(torch.tensor([[[1.27, -0.64]], [[0.0, 0.0]]]))
    >>> quantized.codes.tolist(), [round(scale, 4) for scale in quantized.scales.flatten().tolist()]
    ([[[127, -64]], [[0, 0]]], [0.01, 0.0])
    """
    values = descriptors.as_subclass(Tensor).float()
    largest = values.abs().amax((1, 2))  # [T]; NaN where a value is
    if not bool(torch.isfinite(largest).all()):
        require_finite(values, name)
    scales = (largest / LARGEST)[:, None]
    steps = values * torch.where(scales > 0, 1 / scales, 0.0)[..., None]
    return Int8Descriptors(steps.round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scales)


def join(videos: Sequence[Int8Descriptors]) -> Int8Descriptors:
    """Videos laid end to end."""
    if len(videos) == 1:
        return videos[0]
    scales = [video.scales for video in videos]
    if len({scale.shape[1] for scale in scales}) > 1:
        scales = [scale.expand(-1, video.codes.shape[1]) for scale, video in zip(scales, videos, strict=True)]
    return Int8Descriptors(torch.cat([video.codes for video in videos]), torch.cat(scales))


def can_use_int8(model: VideoSimilarity, regions: int) -> bool:
    """Whether a network's scores can be computed here: on a CPU, one best region each, one pass of psi."""
    config = model.config
    alone = config.symmetry != "average" and config.bits is None
    return model.device.type == "cpu" and has_one_best_region(model, regions) and alone


def has_one_best_region(model: VideoSimilarity, regions: int) -> bool:
    """Whether a query region is compared with its best region of a target frame alone: TopK-Chamfer with K = 1."""
    config = model.config
    return config.spatial == "chamfer" or (
        config.spatial == "topk" and compute_keep_count(regions, config.spatial_keep_rate) == 1
    )


def multiplies_int8() -> bool:
    """Whether this CPU has instructions that multiply bytes, and there is a library that uses them."""
    return load_native() is not None or (hasattr(torch, "_int_mm") and multiplies_bytes())


def fast_score_dtype(model: VideoSimilarity, regions: int) -> torch.dtype:
    """What `pairwise` scores many videos in fastest, at an error of 2e-3 at most on a CPU and 5e-3 on a GPU.

    int8 on CPUs that multiply it, where the network allows it; else `fast_dtype`.
    """
    return torch.int8 if can_use_int8(model, regions) and multiplies_int8() else fast_dtype(model.device)


def can_use_native(query: Int8Descriptors, target: Int8Descriptors) -> bool:
    """Whether codes have a shape that `hapvr.similarity.native` knows."""
    return query.codes.shape[1] == target.codes.shape[1] == REGIONS and query.codes.shape[2] % DIMS_STEP == 0


def compute_int8_matrix(query: Int8Descriptors, target: Int8Descriptors, *, both_ways: bool = False) -> Tensor:
    """The mean over query regions of the largest product with a region of the target frame: float32 [H, W].

    `compute_frame_similarities` of kind "chamfer" for codes. With `both_ways` the mean of that and of the other
    direction, over target regions; one product of all regions gives both.
    """
    (frames, regions, dims), (width, others, _) = query.codes.shape, target.codes.shape
    native = load_native()
    if native is not None and can_use_native(query, target):
        sides = (query.codes, query.scales), (target.codes, target.scales)
        return native.compare_frames(*sides, both_ways=both_ways).T
    matrix = torch.empty(width, frames)  # [W, H]
    tall = max(1, min(frames, _CACHED_ROWS // regions))
    for top in range(0, frames, tall):
        part = query[top : top + tall]
        height = len(part)
        rows = part.codes.transpose(0, 1).reshape(-1, dims).T  # [D, R h]: a mean over regions adds up whole rows
        weights = (part.scales / regions).T  # [R or 1, h]
        wide = max(1, min(width, _CACHED_BYTES // (height * regions * others * 4)))
        # One piece of memory for all products: fresh memory of this size costs as much as finding the maxima.
        products = torch.empty(wide, others, regions * height, dtype=torch.int32)
        scaled = torch.empty(products.shape) if target.scales.shape[1] > 1 else None
        for left in range(0, width, wide):
            columns = target[left : left + wide]
            count = len(columns)
            torch._int_mm(columns.codes.view(-1, dims), rows, out=products[:count].view(-1, regions * height))
            if scaled is None:
                best = products[:count].amax(1).float().mul_(columns.scales)  # [w, R h]
            else:
                best = scaled[:count].copy_(products[:count]).mul_(columns.scales[..., None]).amax(1)
            cells, out = best.view(-1, regions, height), matrix[left : left + wide, top : top + tall]
            if len(weights) == 1:
                torch.mul(cells.sum(1), weights, out=out)
            else:
                torch.sum(cells.mul_(weights), 1, out=out)
            if both_ways:
                out.add_(_find_best_query_regions(products[:count], part, columns)).mul_(0.5)
    return matrix.T


def _find_best_query_regions(products: Tensor, query: Int8Descriptors, target: Int8Descriptors) -> Tensor:
    """The mean over target regions of the largest product with a query region, [w, h], of products [w, R', R h]."""
    (width, others, _), (height, regions, _) = products.shape, query.codes.shape
    cells = products.view(width, others, regions, height)
    shared = query.scales.shape[1] == 1  # by the regions of a frame, so that maxima are found before scales are applied
    best = cells.amax(2).float() if shared else (cells * query.scales.T).amax(2)  # [w, R', h]
    mean = best.mul_(target.scales[..., None]).mean(1)
    return mean.mul_(query.scales.T) if shared else mean


class FastComparator:
    """`Comparator` without gradients, its second and third convolution, where the work is, in `dtype`.

    The first one stays float32: rounding the similarities and its few weights would cost three times as much of a score
    as all the rest. So do the last sum and the residual.
    """

    def __init__(self, comparator: Comparator, dtype: torch.dtype) -> None:
        convs = (comparator.conv1, comparator.conv2, comparator.conv3)
        self._weights = [
            (conv.weight.detach().to(type_), cast(Tensor, conv.bias).detach().to(type_))
            for conv, type_ in zip(convs, (torch.float32, dtype, dtype), strict=True)
        ]
        self._final = comparator.final.weight.detach().float().flatten()  # [128]
        self._bias = cast(Tensor, comparator.final.bias).detach().float()
        self._residual = comparator.residual

    def __call__(self, matrix: Tensor, row_mask: Tensor | None = None, column_mask: Tensor | None = None) -> Tensor:
        """float32 [B, H, W] -> [B, floor(H / 4), floor(W / 4)]; the arguments are those of `Comparator.forward`."""
        x = matrix[:, None].clone(memory_format=torch.contiguous_format)
        _zero_outside_(x, row_mask, column_mask)
        for weight, bias in self._weights[:2]:
            x = F.relu_(_pool(F.conv2d(x.to(weight.dtype), weight, bias, padding=1)))  # [B, C, H / 2, W / 2]
            row_mask = None if row_mask is None else pool_mask(row_mask)
            column_mask = None if column_mask is None else pool_mask(column_mask)
            _zero_outside_(x, row_mask, column_mask)
        weight, bias = self._weights[2]
        x = F.relu_(F.conv2d(x.to(weight.dtype), weight, bias, padding=1))
        values = x.permute(0, 2, 3, 1).float() @ self._final  # [B, H / 4, W / 4]
        values += self._bias
        if self._residual:
            values += coarse(matrix)  # real cells of it are blocks of real cells alone
        _zero_outside_(values[:, None], row_mask, column_mask)
        return values


def _pool(x: Tensor) -> Tensor:
    """2x2 max-pooling of [B, C, H, W], an odd last row or column left out: twice as fast as torch's own here."""
    height, width = (side // 2 * 2 for side in x.shape[2:])
    rows = torch.maximum(x[:, :, 0:height:2], x[:, :, 1:height:2])
    return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


def _zero_outside_(x: Tensor, row_mask: Tensor | None, column_mask: Tensor | None) -> None:
    """Zero the cells of [B, C, H, W] outside the rows [B, H] or columns [B, W], in place."""
    if row_mask is not None:
        x.mul_(row_mask[:, None, :, None])
    if column_mask is not None:
        x.mul_(column_mask[:, None, None, :])


class Int8Scorer:
    """Scores of one network for codes; safe to share between threads."""

    def __init__(self, model: VideoSimilarity, *, max_cells: int | None = None) -> None:
        self.model, config = model, model.config
        self.cells = max_cells or _PSI_CELLS
        self._psi = None if model.comparator is None else FastComparator(model.comparator, fast_dtype(model.device))
        self._native = load_native() if config.temporal in ("topk", "chamfer") else None
        self._native_psi = None
        if self._native is not None and model.comparator is not None:
            slope, lanes = config.negative_slope, self._native.lanes
            self._native_psi = prepare_psi(model.comparator, negative_slope=slope, lanes=lanes)

    def prepare(self, video: Tensor | Int8Descriptors, name: str = "regions") -> Int8Descriptors:
        """The codes of a video: region vectors, `Descriptors`, or codes already."""
        if isinstance(video, Int8Descriptors):
            return video
        if not isinstance(video, Descriptors):
            video = self.model.make_descriptors_unchecked(video)
        return quantize(video, name)

    def score(self, query: Int8Descriptors, targets: Sequence[Int8Descriptors]) -> Tensor:
        """Scores [M] of a query with targets."""
        shortest = self.model.config.min_frames
        height, *widths = (double_length(len(video), shortest) for video in (query, *targets))
        native = [
            self._suits_native(query, target, height * width) for target, width in zip(targets, widths, strict=True)
        ]
        scores = torch.empty(len(targets))
        for chosen, score in ((True, self._score_natively), (False, self._score_in_groups)):
            places = [place for place, suited in enumerate(native) if suited is chosen]
            if places:
                some, their_widths = [targets[place] for place in places], [widths[place] for place in places]
                scores[places] = score(query, some, height, their_widths)
        return scores

    def _suits_native(self, query: Int8Descriptors, target: Int8Descriptors, cells: int) -> bool:
        if self._native is None or not can_use_native(query, target):
            return False
        long_enough = min(len(query), len(target)) >= _NATIVE_FRAMES
        return self._psi is None or (long_enough and cells <= self.cells)

    def _score_natively(
        self, query: Int8Descriptors, targets: Sequence[Int8Descriptors], height: int, widths: Sequence[int]
    ) -> Tensor:
        """Scores [M]; `height` and `widths` are the lengths of query and targets after doubling."""
        config, pooled = self.model.config, 1 if self._native_psi is None else DOWNSAMPLING
        rate = config.temporal_keep_rate if config.temporal == "topk" else 0.0
        keep_query, *keeps = (compute_keep_count(side // pooled, rate) for side in (height, *widths))
        score, other = cast(NativeScores, self._native).score_videos(
            self._native_psi,
            (query.codes, query.scales),
            [(target.codes, target.scales) for target in targets],
            both_ways=config.compares_regions_both_ways,
            doubled_query=height,
            doubled=widths,
            keep_query=keep_query,
            keeps=keeps,
        )
        if not config.compares_regions_both_ways:
            return score
        return self.model.join_directions(score, other, len(query), torch.tensor([len(target) for target in targets]))

    def _score_in_groups(
        self, query: Int8Descriptors, targets: Sequence[Int8Descriptors], height: int, widths: Sequence[int]
    ) -> Tensor:
        """The same by torch: videos of similar lengths are compared at once."""
        model, frames, lengths = self.model, len(query), [len(target) for target in targets]
        matrix = compute_int8_matrix(query, join(targets), both_ways=model.config.compares_regions_both_ways)
        matrix = matrix.repeat(height // frames, 1)  # twice the frames, twice the rows
        parts = list(torch.split(matrix, lengths, 1))
        if list(widths) != lengths:
            parts = [part.repeat(1, wide // part.shape[1]) for part, wide in zip(parts, widths, strict=True)]
        scores = torch.empty(len(parts))
        for group in group_similar_lengths(widths, self.cells // height):
            widest = widths[group[-1]]
            real = None
            if widths[group[0]] == widest:
                values = torch.stack([parts[place] for place in group])
            else:
                values = torch.stack([F.pad(parts[place], (0, widest - widths[place])) for place in group])
                real = torch.arange(widest) < torch.tensor([widths[place] for place in group])[:, None]  # [n, W]
            if self._psi is not None:
                values = model.bound(compare_in_bands(self._psi, values, None, real, cells=self.cells))
                real = None if real is None else pool_mask(pool_mask(real))
            own = torch.tensor([lengths[place] for place in group])
            scores[group] = model.aggregate_time(values, target_mask=real, lengths=(frames, own))
        return scores


def group_similar_lengths(lengths: Sequence[int], max_frames: int) -> Iterator[list[int]]:
    """Places by ascending length: in a group none is over a half longer than the first, nor are all, padded, too many.

    >>> list(group_similar_lengths([9, 4, 12, 4, 10], 24))
    [[1, 3], [0, 4], [2]]
    """
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        length = lengths[place]
        if group and (2 * length > 3 * lengths[group[0]] or (len(group) + 1) * length > max_frames):
            yield group
            group = []
        group.append(place)
    if group:
        yield group
