"""One training step up to the loss: region vectors and their contents in, the weighted losses out.

With several processes each compares its own clips with those of all; scores and frame matrices are then gathered, and
every process computes the losses of the whole batch. So N grows with the processes, and a step equals that of one
process on the joined batch, whatever the losses average over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from hapvr.checks import shape_of
from hapvr.errors import DataError, ShapeError
from hapvr.losses import LossInputs, WeightedLosses
from hapvr.similarity import VideoSimilarity
from hapvr.training.config import TeacherConfig
from hapvr.training.distributed import gather, rank, world_size
from hapvr.training.pseudo_labels import frame_pseudo_labels

_SHOWN = 4  # frame matrices that a step keeps for the log
NOTHING = -1  # fills the places of `Batch.contents` that hold no video


@dataclass(frozen=True, eq=False)
class Batch:
    """Clips of one step, as the similarity network sees them."""

    regions: Tensor  # [N, T, R, D]
    contents: Tensor  # int64 [N, K], the numbers of the videos that a clip shows; the rest is NOTHING
    frames: Tensor | None = None  # [N, T, D'] frame vectors of the teacher

    def __post_init__(self) -> None:
        if self.regions.ndim != 4:
            raise ShapeError(f"regions must be [N, T, R, D], got {shape_of(self.regions)}.")
        if self.contents.ndim != 2 or len(self.contents) != len(self.regions) or self.contents.dtype != torch.int64:
            raise ShapeError(f"contents must be int64 [{len(self.regions)}, K], got {shape_of(self.contents)}.")
        if self.frames is not None and self.frames.shape[:2] != self.regions.shape[:2]:
            raise ShapeError(
                f"frames must be [N, T, D'] like regions {shape_of(self.regions)}, got {shape_of(self.frames)}."
            )


class StepValues(NamedTuple):
    """What a step gives: the total to backpropagate; for the log its terms, all scores, and a few frame matrices."""

    total: Tensor  # of this process; the mean over processes is the total of the joined batch, and so are gradients
    terms: dict[str, Tensor]  # unweighted, of the joined batch
    scores: Tensor  # [N, N] in [0, 1]
    relevance: Tensor  # bool [N, N]
    matrices: Tensor  # [P, T, T], frame similarities before psi of up to 4 positive pairs


def shared_content(queries: Tensor, targets: Tensor) -> Tensor:
    """Which clips show a common video: int64 [N, K] and [M, K] -> bool [N, M].

    Example: a clip of video 1 pasted into one of video 0 is relevant to the clips of both.
        >>> contents = torch.tensor([[0, NOTHING], [1, NOTHING], [1, 0]])
        >>> shared_content(contents, contents).int().tolist()
        [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    """
    equal = (queries[:, None, :, None] == targets[None, :, None, :]) & (queries != NOTHING)[:, None, :, None]
    return equal.flatten(2).any(2)


def contents_of(content: Tensor, videos: Tensor) -> Tensor:
    """The numbers of the videos that clips show, int64 [N, K], of a content matrix bool [N, B] over the videos [B].

    >>> contents_of(torch.tensor([[1, 0], [0, 1], [1, 1]]), torch.tensor([7, 4])).tolist()
    [[7, -1], [4, -1], [7, 4]]
    """
    shown = content > 0
    most = int(shown.sum(1).max())
    order = shown.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :most]  # the shown ones first
    return videos.to(order.device)[order].masked_fill(~shown.gather(1, order), NOTHING)


def step_losses(
    model: VideoSimilarity,
    losses: WeightedLosses,
    batch: Batch,
    *,
    teacher: TeacherConfig,
    dtype: torch.dtype = torch.float32,
) -> StepValues:
    """Compare all clips of the batch, of all processes, and weigh the losses.

    Args:
        model: the network in training.
        losses: the recipe; only the inputs that its terms read are computed.
        batch: the clips of this process.
        teacher: the rates of the frame labels.
        dtype: of the forward pass; losses are float32 always.
    """
    device = batch.regions.device
    everyone = gather(batch.regions)  # frozen: no gradient passes, and each process describes all of them
    contents = gather(_widened(batch.contents))
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        comparison = model(batch.regions, everyone)
    first = _first_row(len(batch.regions), device)
    rows = torch.arange(first, first + len(batch.regions), device=device)
    relevance = shared_content(contents, contents)
    itself = torch.eye(len(contents), dtype=torch.bool, device=device)
    scores = gather(comparison.scores / 2 + 0.5)
    inputs = LossInputs(
        scores=scores,
        relevance=relevance,
        ignore=itself,
        self_scores=scores.diagonal(),
        raw=comparison.raw,
        raw_mask=comparison.raw_mask,
    )
    query, target = (relevance & ~itself)[rows].nonzero(as_tuple=True)  # the positive pairs of this process
    if "frame" in losses.levels:
        if batch.frames is None:
            raise DataError("the frame loss is in the recipe, and the batch has no frame vectors of a teacher.")
        positive, negative = frame_pseudo_labels(
            batch.frames[query],
            gather(batch.frames)[target],
            top_rate=teacher.top_rate,
            bottom_rate=teacher.bottom_rate,
        )
        inputs = replace(
            inputs,
            frame_matrices=gather(comparison.frame_matrices[query, target]),
            frame_positive=gather(positive),
            frame_negative=gather(negative),
        )
    total, terms = _with_own_range(losses)(inputs)
    if "range" in terms and world_size() > 1:
        terms["range"] = gather(terms["range"][None]).sum()
    shown = comparison.frame_matrices[query[:_SHOWN], target[:_SHOWN]].detach()
    return StepValues(total, terms, scores.detach(), relevance, shown)


def _with_own_range(losses: WeightedLosses) -> WeightedLosses:
    """For a process that sees its own rows of psi's output: a sum that the mean over processes shrinks."""
    if world_size() == 1:
        return losses
    return WeightedLosses(
        {
            name: replace(term, weight=term.weight * world_size()) if term.level == "range" else term
            for name, term in losses.terms.items()
        }
    )


def _widened(contents: Tensor) -> Tensor:
    """Contents of as many places as the widest process has."""
    if world_size() == 1:
        return contents
    most = int(gather(torch.tensor([contents.shape[1]], device=contents.device)).max())
    return torch.nn.functional.pad(contents, (0, most - contents.shape[1]), value=NOTHING)


def _first_row(count: int, device: torch.device) -> int:
    """Where this process's clips begin among all."""
    if world_size() == 1:
        return 0
    return int(gather(torch.tensor([count], device=device))[: rank()].sum())
