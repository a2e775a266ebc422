"""The similarity network f: region vectors of two videos in, one score in [-1, 1] out. This is what is trained."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hapvr import weights
from hapvr.checks import require_finite, require_mask, shape_of
from hapvr.config import CheckedConfig, Share, Within, from_mapping
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.similarity import kernels
from hapvr.similarity.chamfer import Aggregation, aggregate
from hapvr.similarity.comparator import DOWNSAMPLING, Comparator, compare_in_bands, pool_mask, slot
from hapvr.similarity.spatial import (
    compute_both_ways,
    compute_frame_similarities,
    compute_mean_of_both_ways,
    widen,
)
from hapvr.similarity.weighting import Binarization, Projection, RegionAttention

Weighting = Literal["attention", "binary", "none"]
Symmetry = Literal["none", "average", "levels", "lengths"]
KeepRate = Annotated[float, Within(0, 1, "It is a share of the targets, not a count.")]

PART = "similarity"  # the name of this part in a model folder
_CPU_CELLS, _GPU_CELLS = 1 << 18, 1 << 21  # cells of frame matrices whose psi activations are held at once


@dataclass(frozen=True)
class SimilarityConfig(CheckedConfig):
    """The shape of the similarity network; the defaults are HAP-VR's.

    `spatial="chamfer", temporal="chamfer"` is S2VS; with `weighting="none", comparator=False` it is ViSiL_f, where
    nothing is trained; `weighting="binary"` is DnS's binarised student.
    """

    dims: Annotated[int, Within(1)] = 512  # of a region vector
    projection: bool = False  # a learnt linear map of region vectors, before all else; not in the paper
    weighting: Weighting = "attention"  # what is done to region vectors before they are compared
    bits: int | None = None  # of a binarised region vector, for weighting="binary"
    spatial: Aggregation = "topk"  # regions -> frames
    spatial_keep_rate: KeepRate = 0.10  # k_s; at 9 regions K = 1
    comparator: bool = True  # psi between the two aggregations
    residual: bool = False  # psi's output is added to the matrix it sees; not in the paper
    negative_slope: Share = 1.0  # of what is below 0 behind psi: how much a frame without a match counts against
    temporal: Aggregation = "topk"  # frames -> video
    temporal_keep_rate: KeepRate = 0.03  # k_t; K > 1 from 200 target frames on
    symmetry: Symmetry = "none"  # "average": (f(q,t) + f(t,q)) / 2; "levels": both directions at each aggregation;
    # "lengths": the same for scores, but in time t -> q counts the less, the longer t is: see `aggregate_time`
    min_frames: Annotated[int, Within(1)] = 8  # a shorter video is doubled until it has as many

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weighting == "binary") != (isinstance(self.bits, int) and self.bits > 0):
            raise ConfigError(f"bits is the code length of weighting='binary' and of no other; got {self.bits!r}.")
        for name, unused in (("residual", False), ("negative_slope", 1.0)):
            if not self.comparator and getattr(self, name) != unused:
                raise ConfigError(f"{name} is a setting of psi, and comparator is false. Leave one of them.")
        if self.comparator and self.min_frames < DOWNSAMPLING:
            raise ConfigError(
                f"min_frames must be a whole number of at least {DOWNSAMPLING} (psi pools four frames into one), got "
                f"{self.min_frames!r}."
            )

    @property
    def compares_regions_both_ways(self) -> bool:
        """Whether a score is computed from the mean of both directions of the frame matrix."""
        return self.symmetry in ("levels", "lengths")


class Descriptors(Tensor):
    """Region vectors after `VideoSimilarity.make_descriptors`, ready to be compared: [..., T, R, D].

    The type marks that this has been done, so that it is never done twice; slices, stacks and moves keep the mark. Mark
    descriptors read back from a store with `Descriptors.of(tensor)`.
    """

    @staticmethod
    def of(tensor: Tensor) -> Descriptors:
        """Mark a tensor as described."""
        return tensor.as_subclass(Descriptors)


@dataclass(frozen=True)
class Comparison:
    """What comparing N queries with M targets gives; in float32 (float64 for a model in float64)."""

    scores: Tensor  # [N, M] in [-1, 1]
    frame_matrices: Tensor  # [N, M, Tq, Tt] before psi
    raw: Tensor | None  # [N, M, Tq', Tt'] psi's output before the hardtanh; None without psi
    raw_mask: Tensor | None  # bool [N, M, Tq', Tt'], None where all is real


class VideoSimilarity(nn.Module):
    """Attention or binarisation, spatial TopK-Chamfer, psi, temporal TopK-Chamfer (HAP-VR, arXiv:2407.15566).

    Three calls compute the same score:

    - `score` compares two videos and gives a number. It is for your own code; the package does not call it.
    - `forward` compares a batch and also gives the frame matrices and psi's output. The training step calls it. So does
      `hapvr.matching.match_videos`, for `compare` and for the hits of a search: it finds segments in the matrix.
    - `hapvr.similarity.pairwise` compares many videos with many, without gradients: candidates of a search, evaluation,
      validation and calibration.

    Scores lie in [-1, 1] behind psi's hardtanh, or where region vectors are of unit length, as whitened ones are. A
    score does not depend on what a video was padded or batched with. f is not symmetric: query rows are averaged.

    >>> model = VideoSimilarity(SimilarityConfig(dims=2, weighting="none", comparator=False, min_frames=1))
    >>> video = torch.tensor([[[1., 0.]], [[0., 1.]]])             # two frames of one region
    >>> model.score(video, video[:1]).item()                       # (1 + 0) / 2
    0.5
    """

    def __init__(self, config: SimilarityConfig | None = None) -> None:
        super().__init__()
        self.config = config = SimilarityConfig() if config is None else config
        if not isinstance(config, SimilarityConfig):
            raise ConfigError(f"VideoSimilarity takes a SimilarityConfig, got a {type(config).__name__}.")
        self.register_buffer("_here", torch.empty(0), persistent=False)  # knows the device, also without weights
        self.projection = Projection(config.dims) if config.projection else None
        self.attention = RegionAttention(config.dims) if config.weighting == "attention" else None
        self.binarization = Binarization(config.dims, config.bits) if config.bits else None
        self.comparator = Comparator(residual=config.residual) if config.comparator else None

    def bound(self, raw: Tensor) -> Tensor:
        """psi's output cut to [-1, 1], the paper's hardtanh, and what is below 0 brought nearer to it."""
        values = F.hardtanh(raw)
        slope = self.config.negative_slope
        return values if slope == 1.0 else F.leaky_relu(values, slope)

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return cast(Tensor, self._here).device

    def without_projection(self) -> VideoSimilarity:
        """The same network for region vectors that its projection has been applied to already."""
        plain = VideoSimilarity(dataclasses.replace(self.config, projection=False))
        own = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("projection.")}
        plain.load_state_dict(own)
        return plain.to(self.device).train(self.training)

    def without_comparator(self) -> VideoSimilarity:
        """The same network as far as single frames go, sharing its weights: for rough scores of a few of the frames."""
        if self.comparator is None:
            return self
        plain = SimilarityConfig(comparator=False, min_frames=1)
        of_psi = {name: getattr(plain, name) for name in ("comparator", "residual", "negative_slope", "min_frames")}
        rough = VideoSimilarity(dataclasses.replace(self.config, **of_psi)).to(self.device).eval()
        rough.projection, rough.attention, rough.binarization = self.projection, self.attention, self.binarization
        return rough

    @property
    def changes_regions(self) -> bool:
        """Whether `make_descriptors` does anything: else region vectors are compared as they are."""
        return any(part is not None for part in (self.projection, self.attention, self.binarization))

    # --- one video -------------------------------------------------------------------------------------------------

    def make_descriptors(self, regions: Tensor) -> Descriptors:
        """Map, weigh or binarise the regions of a video: [..., T, R, D] -> the same shape (binary: [..., bits])."""
        described = isinstance(regions, Descriptors)
        check_regions(regions, "descriptors" if described else "regions", self.config)
        require_finite(regions.detach().as_subclass(Tensor), "regions")
        return cast(Descriptors, regions) if described else self.make_descriptors_unchecked(regions)

    def make_descriptors_unchecked(self, regions: Tensor) -> Descriptors:
        """`make_descriptors` without looking at the values, for inner loops that must not wait for a GPU."""
        parameter = next(self.parameters(), None)
        regions = regions.to(widen(regions.dtype) if parameter is None else parameter.dtype)
        for part in (self.projection, self.attention, self.binarization):
            if part is not None:
                regions = part(regions)
        return Descriptors.of(regions)

    # --- two videos ------------------------------------------------------------------------------------------------

    def frame_matrix(self, query: Tensor, target: Tensor) -> Tensor:
        """Similarity of each query frame to each target frame, before psi; short videos are not doubled here.

        Region vectors, or their `Descriptors`, [Tq, R, D] and [Tt, R, D] -> [Tq, Tt].
        """
        for video, name in ((query, "query"), (target, "target")):
            _check_video(video, name)
        return self.frame_matrix_unchecked(self.make_descriptors(query), self.make_descriptors(target))

    def frame_matrix_unchecked(self, query: Tensor, target: Tensor) -> Tensor:
        """`frame_matrix` of described frames, of one video or of many laid end to end: [H, R, D] x [W, R, D]."""
        if self.config.symmetry == "levels":
            return self.scored_matrix_unchecked(query, target)
        query, target = query.as_subclass(Tensor), target.as_subclass(Tensor)
        config = self.config
        matrix = compute_frame_similarities(query, target, kind=config.spatial, keep_rate=config.spatial_keep_rate)
        return matrix if config.bits is None else matrix / config.bits

    def scored_matrix(self, query: Tensor, target: Tensor) -> Tensor:
        """The matrix that is scored and that segments are found in, [Tq, Tt]; arguments as in `frame_matrix`.

        The mean of both directions for the symmetries "levels" and "lengths", else `frame_matrix`.
        """
        for video, name in ((query, "query"), (target, "target")):
            _check_video(video, name)
        return self.scored_matrix_unchecked(self.make_descriptors(query), self.make_descriptors(target))

    def scored_matrix_unchecked(self, query: Tensor, target: Tensor) -> Tensor:
        """`scored_matrix` of described frames, of one video or of many laid end to end: [H, R, D] x [W, R, D]."""
        config = self.config
        if not config.compares_regions_both_ways:
            return self.frame_matrix_unchecked(query, target)
        query, target = query.as_subclass(Tensor), target.as_subclass(Tensor)
        matrix = compute_mean_of_both_ways(query, target, kind=config.spatial, keep_rate=config.spatial_keep_rate)
        return matrix if config.bits is None else matrix / config.bits

    def frame_matrices_both_ways(self, query: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """`frame_matrix_unchecked` of two videos, and of the same two the other way round: [H, W] and [W, H]."""
        query, target = query.as_subclass(Tensor), target.as_subclass(Tensor)
        config = self.config
        forth, back = compute_both_ways(query, target, kind=config.spatial, keep_rate=config.spatial_keep_rate)
        if config.symmetry == "levels":
            forth = (forth + back.T) / 2
            back = forth.T
        return (forth, back) if config.bits is None else (forth / config.bits, back / config.bits)

    def join_matrices(self, forth: Tensor, back: Tensor) -> Tensor:
        """`scored_matrix` from the two of `frame_matrices_both_ways`."""
        return (forth + back.T) / 2 if self.config.symmetry == "lengths" else forth

    def compare_matrices(self, forth: Tensor, back: Tensor) -> Comparison:
        """What `forward` gives for a query and a target with these frame matrices, [Tq, Tt] and [Tt, Tq]."""
        here = cast(Tensor, self._here)
        forth, back = (matrix.to(here.device, widen(here.dtype)) for matrix in (forth, back))
        comparison = self._compare(self.join_matrices(forth, back)[None, None], None, None)
        if self.config.symmetry != "average":
            return comparison
        other = self._compare(back[None, None], None, None)
        return dataclasses.replace(comparison, scores=(comparison.scores + other.scores.T) / 2)

    def score(self, query: Tensor, target: Tensor) -> Tensor:
        """How much of `query` is found in `target`, a scalar in [-1, 1]; arguments as in `frame_matrix`.

        The symmetric forms count how much of `target` is found in `query` too.
        """
        for video, name in ((query, "query"), (target, "target")):
            _check_video(video, name)
        described, others = self.make_descriptors(query), self.make_descriptors(target)
        score = self._compare(self.scored_matrix_unchecked(described, others)[None, None], None, None).scores[0, 0]
        if self.config.symmetry == "average":
            matrix = self.scored_matrix_unchecked(others, described)
            score = (score + self._compare(matrix[None, None], None, None).scores[0, 0]) / 2
        return score

    def aggregate_time(
        self,
        matrix: Tensor,
        *,
        query_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        lengths: tuple[Tensor | int, Tensor | int] | None = None,
    ) -> Tensor:
        """The temporal aggregation alone: [..., Tq', Tt'] -> [...].

        With symmetry "lengths" the direction from target to query counts min(1/2, Tq / Tt): a half for a target up to
        twice as long as the query, and next to nothing for a film of which the query is a short clip. `lengths` are Tq
        and Tt, frames before psi and before short videos are doubled; those of the matrix if None.
        """
        kind, rate = self.config.temporal, self.config.temporal_keep_rate
        score = aggregate(matrix, kind=kind, keep_rate=rate, query_mask=query_mask, target_mask=target_mask)
        if not self.config.compares_regions_both_ways:
            return score
        other = aggregate(matrix.mT, kind=kind, keep_rate=rate, query_mask=target_mask, target_mask=query_mask)
        rows, columns = lengths or (_count_real(matrix, -2, query_mask), _count_real(matrix, -1, target_mask))
        return self.join_directions(score, other, rows, columns)

    def join_directions(self, score: Tensor, other: Tensor, rows: Tensor | int, columns: Tensor | int) -> Tensor:
        """A score and that from target to query as one, for videos of so many frames: see `aggregate_time`."""
        if self.config.symmetry == "levels":
            return (score + other) / 2
        share = (torch.as_tensor(rows, device=score.device) / torch.as_tensor(columns, device=score.device)).clamp(
            max=0.5
        )
        return score + share.to(score.dtype) * (other - score)

    # --- a batch, while training -----------------------------------------------------------------------------------

    def forward(
        self,
        query: Tensor,
        target: Tensor,
        *,
        query_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Comparison:
        """Compare each of N queries with each of M targets, with gradients.

        query [N, Tq, R, D], target [M, Tt, R, D]: region vectors, or their `Descriptors`.
        query_mask [N, Tq], target_mask [M, Tt]: bool, True = real; the real frames come first.
        """
        _check_batch(query, query_mask, "query")
        _check_batch(target, target_mask, "target")
        described = self.make_descriptors(query)
        others = described if target is query else self.make_descriptors(target)
        comparison = self._compare(self.frame_matrices(described, others), query_mask, target_mask)
        if self.config.symmetry != "average":
            return comparison
        back = self._compare(self.frame_matrices(others, described), target_mask, query_mask)
        return dataclasses.replace(comparison, scores=(comparison.scores + back.scores.T) / 2)

    def frame_matrices(self, query: Tensor, target: Tensor) -> Tensor:
        """The matrix that is scored, of each of N described queries with each of M targets: [N, M, Tq, Tt]."""
        plane = self.scored_matrix_unchecked(query.flatten(0, 1), target.flatten(0, 1))  # [N Tq, M Tt]
        return plane.view(*query.shape[:2], *target.shape[:2]).transpose(1, 2).contiguous()

    def _compare(self, matrices: Tensor, query_mask: Tensor | None, target_mask: Tensor | None) -> Comparison:
        """From frame matrices [N, M, Tq, Tt] to scores: doubling, psi, the temporal aggregation."""
        values, rows = _double(matrices, query_mask, 2, self.config.min_frames)
        values, columns = _double(values, target_mask, 3, self.config.min_frames)
        raw = None
        if self.comparator is not None:
            raw = _psi(self.comparator, values, rows, columns)
            rows = None if rows is None else pool_mask(pool_mask(rows))
            columns = None if columns is None else pool_mask(pool_mask(columns))
            values = self.bound(raw)
        row_mask = None if rows is None else rows[:, None].expand(values.shape[:3])  # [N, M, Tq']
        column_mask = None if columns is None else columns[None].expand(*values.shape[:2], -1)  # [N, M, Tt']
        asked, there = _count_real(matrices, 2, query_mask), _count_real(matrices, 3, target_mask)  # [N] and [M], or 1
        lengths = (asked if isinstance(asked, int) else asked[:, None], there)
        scores = self.aggregate_time(values, query_mask=row_mask, target_mask=column_mask, lengths=lengths)
        return Comparison(scores, matrices, raw, None if raw is None else _cells(row_mask, column_mask))

    # --- at rest ---------------------------------------------------------------------------------------------------

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write `config.json` and `model.safetensors` into `folder`."""
        part = weights.Part(dataclasses.asdict(self.config), self.state_dict())
        return weights.save_parts(folder, {PART: part})

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> VideoSimilarity:
        """Read a folder written by `save_pretrained` or `hapvr model convert`: strictly, in evaluation mode."""
        part = weights.load_part(folder, PART)
        model = cls(from_mapping(SimilarityConfig, part.config))
        weights.load_strict(model, part.tensors, source=f"'{folder}'")
        return model.to(device).eval()


def double_length(length: int, min_frames: int) -> int:
    """The length of a video after doubling it (x, x) until it has `min_frames`.

    >>> [double_length(length, 8) for length in (3, 8, 9)]
    [12, 8, 9]
    """
    while length < min_frames:
        length *= 2
    return length


def _double(matrices: Tensor, mask: Tensor | None, dim: int, min_frames: int) -> tuple[Tensor, Tensor | None]:
    """Double short videos along one dimension of [N, M, Tq, Tt]: twice the frames is twice the rows.

    `mask` is bool [N, Tq] for dim 2 and [M, Tt] for dim 3, and is returned for the new length.
    """
    if mask is None:
        while matrices.shape[dim] < min_frames:
            matrices = torch.cat([matrices, matrices], dim)
        return matrices, None
    lengths = mask.sum(1)
    longer = lengths.new_tensor([double_length(length, min_frames) for length in lengths.tolist()])
    span = torch.arange(int(longer.max()), device=mask.device)
    source = span % lengths[:, None]  # [N or M, T]
    shape = list(matrices.shape)
    shape[dim] = len(span)
    index = source[:, None, :, None] if dim == 2 else source[None, :, None, :]
    return matrices.gather(dim, index.expand(shape)), span < longer[:, None]


def _psi(comparator: Comparator, matrices: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """psi on [N, M, Tq, Tt] with real rows [N, Tq] and columns [M, Tt], by the fused kernels where they can be used."""
    device = matrices.device.type
    half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if half is not None and kernels.usable(matrices, half):
        return _psi_packed(comparator, matrices, rows, columns, half)
    return _psi_chunked(comparator, matrices, rows, columns)


def _psi_packed(
    comparator: Comparator, matrices: Tensor, rows: Tensor | None, columns: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """All pairs as one packed matrix, as `pairwise` does."""
    from hapvr.similarity.kernels.psi import compare

    n, m, height, width = matrices.shape
    rows = matrices.new_ones(n, height, dtype=torch.bool) if rows is None else rows
    columns = matrices.new_ones(m, width, dtype=torch.bool) if columns is None else columns
    below, beside = slot(height) - height, slot(width) - width
    real = rows[:, None, :, None] & columns[None, :, None, :]
    plane = F.pad(matrices.masked_fill(~real, 0.0), (0, beside, 0, below)).transpose(1, 2)  # [N, Tq, M, Tt]
    row_mask, column_mask = F.pad(rows, (0, below)).flatten(), F.pad(columns, (0, beside)).flatten()
    raw = compare(comparator, plane.flatten(0, 1).flatten(1), row_mask, column_mask, dtype=dtype)
    raw = raw.view(n, slot(height) // DOWNSAMPLING, m, slot(width) // DOWNSAMPLING).transpose(1, 2)
    return raw[:, :, : height // DOWNSAMPLING, : width // DOWNSAMPLING]


def _psi_chunked(comparator: Comparator, matrices: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """A bounded number of pairs at a time; the backward pass computes their activations again."""
    n, m = matrices.shape[:2]
    row_masks = None if rows is None else rows[:, None].expand(n, m, -1).flatten(0, 1)
    column_masks = None if columns is None else columns[None].expand(n, m, -1).flatten(0, 1)
    flat = matrices.flatten(0, 1).to(comparator.final.weight.dtype)
    cells = _GPU_CELLS if matrices.is_cuda else _CPU_CELLS
    step = max(1, cells // flat[0].numel())
    parts = []
    for start in range(0, n * m, step):
        chunk = slice(start, start + step)
        masks = [None if mask is None else mask[chunk] for mask in (row_masks, column_masks)]
        if torch.is_grad_enabled() and n * m > step:
            parts.append(checkpoint(comparator, flat[chunk], *masks, use_reentrant=False))
        elif torch.is_grad_enabled():
            parts.append(comparator(flat[chunk], *masks))
        else:
            parts.append(compare_in_bands(comparator, flat[chunk], *masks, cells=cells))
    raw = torch.cat(parts)
    return raw.to(widen(raw.dtype)).view(n, m, *raw.shape[1:])


def _cells(row_mask: Tensor | None, column_mask: Tensor | None) -> Tensor | None:
    """The real cells [N, M, Tq, Tt] of matrices with these real rows [N, M, Tq] and columns [N, M, Tt]."""
    if row_mask is None:
        return None if column_mask is None else column_mask[..., None, :]
    return row_mask[..., None] if column_mask is None else row_mask[..., None] & column_mask[..., None, :]


def check_regions(regions: Tensor, name: str, config: SimilarityConfig) -> None:
    """Raise unless these are region vectors, or descriptors, that the network takes: [T, R, D] or [N, T, R, D]."""
    if not isinstance(regions, Tensor) or regions.ndim not in (3, 4) or not regions.is_floating_point():
        raise ShapeError(
            f"{name} must be floating point, [T, R, D] or [N, T, R, D]; got {shape_of(regions)}.{_hint(regions)}"
        )
    dims = config.bits if isinstance(regions, Descriptors) and config.bits is not None else config.dims
    if regions.shape[-1] != dims:
        raise ShapeError(f"{name} has {regions.shape[-1]} dims, the model takes {dims}: {shape_of(regions)}.")
    if regions.numel() == 0:
        raise DataError(f"{name} has no frames ({shape_of(regions)}): a video needs at least one.")


def _count_real(matrix: Tensor, dim: int, mask: Tensor | None) -> Tensor | int:
    """How many rows or columns are real."""
    return matrix.shape[dim] if mask is None else mask.sum(-1)


def _check_video(video: object, name: str) -> None:
    if not isinstance(video, Tensor) or video.ndim != 3:
        raise ShapeError(f"{name} must be one video [T, R, D], got {shape_of(video)}.{_hint(video)}")


def _hint(value: object) -> str:
    flat = isinstance(value, Tensor) and value.ndim < 3
    return " Did you pass pooled vectors? Regions are kept by hapvr.features.extract_regions." if flat else ""


def _check_batch(regions: Tensor, mask: Tensor | None, name: str) -> None:
    if not isinstance(regions, Tensor) or regions.ndim != 4:
        raise ShapeError(f"{name} must be a batch [N, T, R, D], got {shape_of(regions)}. One video? Use score().")
    if mask is None:
        return
    require_mask(mask, f"{name}_mask", tuple(regions.shape[:2]))
    if not bool(mask[:, 0].all()):
        raise DataError(f"{name}_mask leaves a video without a first frame: real frames come first, at least one.")
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise DataError(f"{name}_mask has a gap: real frames come first. Take the frames out instead.")
