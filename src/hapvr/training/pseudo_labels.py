"""Which frames of a target belong to a frame of the query, as a frozen teacher sees it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.checks import require_finite, require_mask, require_tensor
from hapvr.errors import ConfigError, DataError, ShapeError


@torch.no_grad()
def make_pseudo_labels(
    query: Tensor,
    target: Tensor,
    *,
    top_rate: float = 0.35,
    bottom_rate: float = 0.35,
    query_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Positive and negative target frames of every query frame, each bool [P, Tq, Tt], for P pairs of videos.

    `query` [P, Tq, D'] and `target` [P, Tt, D'] are frame vectors of any teacher, compared by cosine. Per query frame
    the T' real target frames are ordered by falling similarity, equal ones by rising index. The first
    round(top_rate T') are positive, the last round(bottom_rate T') negative (Python's `round`, half to even), at
    least one each; the rest is neither.

    No frame is both. Where rounding would make the counts exceed T', one frame is left to the negatives and the rest
    go to the positives first; a target of one frame (T' = 1) has that positive and no negative, and the frame loss
    leaves such pairs out. Rates that sum to more than 1 are refused.

    `query_mask` [P, Tq] and `target_mask` [P, Tt] are True where a frame is real; padding is labelled neither and may
    hold anything, NaN included. A zero vector has similarity 0 with every frame, so as a query it labels by index
    alone: mask such frames out if the teacher makes them. No pairs (P = 0) give no labels. Labels carry no gradient.

    Example: similarities 1, .6, 0, -1 to the query frame; round(.35 * 4) = 1 of each.
        >>> query = torch.tensor([[[1.0, 0.0]]])
        >>> target = torch.tensor([[[2.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]])
        >>> positive, negative = make_pseudo_labels(query, target)
        >>> positive.int().tolist(), negative.int().tolist()
        ([[[1, 0, 0, 0]]], [[[0, 0, 0, 1]]])
    """
    if not (0 <= top_rate <= 1 and 0 <= bottom_rate <= 1):
        raise ConfigError(f"top_rate and bottom_rate must lie in [0, 1], got {top_rate} and {bottom_rate}.")
    if top_rate + bottom_rate > 1 + 1e-9:
        raise ConfigError(
            f"top_rate {top_rate} and bottom_rate {bottom_rate} sum to more than 1: a frame would be positive and "
            "negative at once. Lower one of them."
        )
    query, query_mask = _prepare(query, query_mask, "query")
    target, target_mask = _prepare(target, target_mask, "target")
    if query.shape[0] != target.shape[0] or query.shape[2] != target.shape[2]:
        raise ShapeError(
            f"query [P, Tq, D'] and target [P, Tt, D'] must share P and D', got {list(query.shape)} and "
            f"{list(target.shape)}."
        )
    # In float64 and then rounded: copies of a frame are common (short clips are repeated), and a matrix product may
    # give copies different last bits, which would order them by chance and differently under padding.
    similarity = (F.normalize(query, dim=-1) @ F.normalize(target, dim=-1).mT).float()  # [P, Tq, Tt]
    similarity = similarity.masked_fill(~target_mask[:, None], -torch.inf)
    order = similarity.sort(dim=-1, descending=True, stable=True).indices
    place = order.argsort(dim=-1)  # [P, Tq, Tt]: 0 is the most similar, padding comes last
    real = target_mask.sum(dim=1).tolist()
    counts = torch.tensor([_count_labels(frames, top_rate, bottom_rate) for frames in real], device=place.device).view(
        -1, 2
    )
    top, bottom, frames = counts[:, 0], counts[:, 1], target_mask.sum(dim=1)
    rows = query_mask[:, :, None]
    positive = (place < top[:, None, None]) & rows
    negative = (place >= (frames - bottom)[:, None, None]) & (place < frames[:, None, None]) & rows
    return positive, negative


def _count_labels(frames: int, top_rate: float, bottom_rate: float) -> tuple[int, int]:
    if frames == 1:
        return 1, 0
    top = min(max(1, round(top_rate * frames)), frames - 1)
    return top, min(max(1, round(bottom_rate * frames)), frames - top)


def _prepare(frames: Tensor, mask: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """The vectors in float64 with padding set to zero, and the mask, all True where none was given."""
    require_tensor(frames, name, dims=3, axes="[P, T, D']", hint="One row of the first axis per pair of videos.")
    if 0 in frames.shape[1:]:
        raise ShapeError(f"{name} must hold at least one frame and dimension a video, got {list(frames.shape)}.")
    if mask is None:
        mask = torch.ones(frames.shape[:2], dtype=torch.bool, device=frames.device)
    else:
        require_mask(mask, f"{name}_mask", tuple(frames.shape[:2]))
        if not bool(mask.any(dim=1).all()):
            raise DataError(f"{name}_mask leaves a video without a frame. Leave such pairs out of the batch.")
        frames = frames.masked_fill(~mask[:, :, None], 0)
    require_finite(frames, name)
    return frames.double(), mask
