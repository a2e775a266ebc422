"""What methods share that keep unit vectors: one a video, compared by cosine, or several, by Chamfer similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.features import Features
from hapvr.methods.base import Description, Method, Settings, count_bytes, require_descriptions, take_times
from hapvr.similarity import SimilarityConfig, VideoSimilarity, pairwise
from hapvr.similarity.chamfer import aggregate
from hapvr.similarity.network import Symmetry

V = TypeVar("V", bound=Settings, covariant=True)


def score_vectors(queries: Sequence[Description], targets: Sequence[Description], device: torch.device) -> Tensor:
    """Cosines of unit vectors [D], one a video: float32 [Q, N] on the CPU."""
    require_descriptions(queries, targets)
    one, other = (torch.stack([each.values.to(device) for each in side]) for side in (queries, targets))
    return (one @ other.T).float().cpu()


class VideoVectorMethod(Method[V]):
    """A method that keeps one unit vector [D] a video, which `embed` makes, and compares videos by cosine."""

    def embed(self, regions: Tensor) -> Tensor:
        """Unit vectors of clips: [N, T, R, D] -> [N, D]."""
        raise NotImplementedError

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """One unit vector [D]."""
        values = self.embed(self.take_regions(features)[None])[0]
        return Description(values, take_times(features), count_bytes(values))

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """Cosines."""
        return score_vectors(queries, targets, self.device)


class VectorsMethod(Method[V]):
    """A method that keeps unit vectors [T, D] of frames, or of stretches, and compares them by Chamfer similarity."""

    localises: bool = True
    symmetry: ClassVar[Symmetry] = "levels"  # of the Chamfer similarity

    def __init__(self, dims: tuple[int, int], settings: V | None = None) -> None:
        super().__init__(dims, settings)
        self._plain: VideoSimilarity | None = None

    def _compare_by(self, dims: int) -> VideoSimilarity:
        """The untrained network of one region a frame; it has no weights."""
        if self._plain is None or self._plain.config.dims != dims or self._plain.device != self.device:
            config = SimilarityConfig(
                dims=dims, weighting="none", spatial="chamfer", comparator=False, temporal="chamfer", min_frames=1,
                symmetry=self.symmetry,
            )  # fmt: skip
            self.__dict__["_plain"] = VideoSimilarity(config).to(self.device).eval()  # no part of what is saved
        plain = self._plain
        assert plain is not None
        return plain

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """See `Method`."""
        require_descriptions(queries, targets)
        videos = ([one.values[:, None].to(self.device) for one in side] for side in (queries, targets))
        return pairwise(self._compare_by(queries[0].values.shape[1]), *videos)

    @torch.no_grad()
    def frame_matrix(self, query: Description, target: Description) -> Tensor:
        """See `Method`."""
        return query.values.to(self.device) @ target.values.to(self.device).T


def score_batch(vectors: Tensor, others: Tensor) -> Tensor:
    """Symmetric Chamfer similarity of each pair of clips, while training: [N, T, D] x [M, T, D] -> [N, M]."""
    matrices = torch.einsum("ntd,mud->nmtu", vectors, others)
    return (aggregate(matrices, kind="chamfer") + aggregate(matrices.mT, kind="chamfer")) / 2


class FrameEncoder(nn.Module):
    """Transformer layers over vectors [N, T, D] -> unit vectors [N, T, D'], with sines and cosines of places.

    The last layer's output is added to a linear map of the input that starts as the identity where D = D', so that
    training starts near the frames' own vectors.
    """

    def __init__(self, dims: int, width: int, *, layers: int, heads: int, places: bool) -> None:
        super().__init__()
        self.enter = nn.Linear(dims, width, bias=False)
        nn.init.orthogonal_(self.enter.weight)
        if dims == width:
            nn.init.eye_(self.enter.weight)
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.leave = nn.Linear(width, width)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)
        self.places = places

    def forward(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """Vectors in the context of their clip; `mask` is bool [N, T], True = real, and padding comes out as zeros."""
        entered = self.enter(vectors)
        inside = entered * entered.shape[-1] ** 0.5  # unit vectors as large as what the layers expect
        if self.places:
            inside = inside + encode_places(vectors.shape[1], entered.shape[-1], vectors.device)
        seen = self.layers(inside, src_key_padding_mask=None if mask is None else ~mask)
        found = F.normalize(entered + self.leave(seen), dim=-1)
        return found if mask is None else found.masked_fill(~mask[..., None], 0.0)


def encode_places(count: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines of places 0 to count - 1, at wavelengths up to 10,000: [count, width].

    >>> encode_places(2, 4, torch.device("cpu"))[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    half = -(-width // 2)
    rates = 10_000.0 ** (-torch.arange(half, device=device) / half)
    turns = torch.arange(count, device=device)[:, None] * rates
    return torch.cat([turns.sin(), turns.cos()], 1)[:, :width]
