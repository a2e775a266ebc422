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
from hapvr.similarity import Comparison, VideoSimilarity
from hapvr.training.config import TeacherConfig
from hapvr.training.distributed import gather, rank, world_size
from hapvr.training.pseudo_labels import make_pseudo_labels

_SHOWN = 4  # frame matrices that a step keeps for the log
NOTHING = -1  # fills the places of `Batch.contents` that hold no video


@dataclass(frozen=True, eq=False)
class Batch:
    """Clips of one step, as the similarity network sees them."""

    regions: Tensor  # [N, T, R, D]
    contents: Tensor  # int64 [N, K], the numbers of the videos that a clip shows; the rest is NOTHING
    frames: Tensor | None = None  # [N, T, D'] frame vectors of the teacher
    videos: Tensor | None = None  # int64 [N, K'], where `contents` are windows: the videos that these were cut from
    instants: Tensor | None = None  # int64 [N, T, K''], the instants that a frame shows, first its own, then that of
    # its host; the rest is NOTHING
    ignored_frame_pairs: Tensor | None = None  # bool [N T, N T], pairs of frames that need not be told apart
    ignored_clip_pairs: Tensor | None = None  # bool [N, N], pairs of clips that need not be told apart
    frozen_regions: Tensor | None = None  # [N, T, R, D] of the frozen backbone: weak views as they are, others clean
    targets: Tensor | None = None  # [N, T, R, D], described, what the losses of instants compare with; None: each other

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


def find_shared_content(queries: Tensor, targets: Tensor) -> Tensor:
    """Which clips show a common video: int64 [N, K] and [M, K] -> bool [N, M].

    Example: a clip of video 1 pasted into one of video 0 is relevant to the clips of both.
        >>> contents = torch.tensor([[0, NOTHING], [1, NOTHING], [1, 0]])
        >>> find_shared_content(contents, contents).int().tolist()
        [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    """
    equal = (queries[:, None, :, None] == targets[None, :, None, :]) & (queries != NOTHING)[:, None, :, None]
    return equal.flatten(2).any(2)


def list_contents(content: Tensor, videos: Tensor) -> Tensor:
    """The numbers of the videos that clips show, int64 [N, K], of a content matrix bool [N, B] over the videos [B].

    >>> list_contents(torch.tensor([[1, 0], [0, 1], [1, 1]]), torch.tensor([7, 4])).tolist()
    [[7, -1], [4, -1], [7, 4]]
    """
    shown = content > 0
    widest = int(shown.sum(1).max())
    order = shown.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :widest]  # the shown ones first
    return videos.to(order.device)[order].masked_fill(~shown.gather(1, order), NOTHING)


def compute_step_losses(
    model: VideoSimilarity,
    losses: WeightedLosses,
    batch: Batch,
    *,
    teacher: TeacherConfig,
    dtype: torch.dtype = torch.float32,
) -> StepValues:
    """Compare all clips of the batch, of all processes, and weigh the losses.

    Only the inputs that the terms of `losses` read are computed. `batch` holds the clips of this process, `teacher` the
    rates of the frame labels; `dtype` is that of the forward pass, while losses are always float32.
    """
    device = batch.regions.device
    everyone = gather(batch.regions)  # frozen: no gradient passes, and each process describes all of them
    contents = gather(_widen(batch.contents))
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        scored = bool(losses.levels - {"frame", "instant"})  # by psi, which costs the more the shorter clips are
        comparison = model(batch.regions, everyone) if scored else _compare_frames(model, batch.regions, everyone)
        instants = _instant_matrix(model, comparison.frame_matrices, batch) if "instant" in losses.levels else None
    relevance = find_shared_content(contents, contents)
    itself = torch.eye(len(contents), dtype=torch.bool, device=device)
    event = relevance if batch.videos is None else find_shared_content(batch.videos, batch.videos)
    left_out = itself if batch.ignored_clip_pairs is None else itself | (batch.ignored_clip_pairs & ~event)
    scores = gather(comparison.scores / 2 + 0.5)
    inputs = LossInputs(
        scores=scores,
        relevance=relevance,
        ignore=left_out | (event & ~relevance),
        self_scores=scores.diagonal(),
        self_mask=itself,
        raw=comparison.raw,
        raw_mask=comparison.raw_mask,
        event_relevance=event,
        event_ignore=left_out,
    )
    if instants is not None:
        inputs = replace(inputs, **_instant_inputs(instants, batch))
    counts = gather(torch.tensor([len(batch.regions)], device=device))
    paired = relevance & ~itself
    query, target = torch.split(paired, counts.tolist())[rank()].nonzero(as_tuple=True)  # of this process
    shown = comparison.frame_matrices[query[:_SHOWN], target[:_SHOWN]].detach()
    if losses.pairs_with_self:
        query, target = torch.split(relevance, counts.tolist())[rank()].nonzero(as_tuple=True)
    if "frame" in losses.levels:
        if batch.frames is None:
            raise DataError("the frame loss is in the recipe, and the batch has no frame vectors of a teacher.")
        positive, negative = make_pseudo_labels(
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
    total, terms = _weigh_own_range(losses)(inputs)
    if "range" in terms and world_size() > 1:
        terms["range"] = gather(terms["range"][None]).sum()
    return StepValues(total, terms, scores.detach(), relevance, shown)


def _compare_frames(model: VideoSimilarity, query: Tensor, target: Tensor) -> Comparison:
    """The frame matrices of all clips, and for the log what they give as scores without psi."""
    matrices = model.frame_matrices(model.make_descriptors(query), model.make_descriptors(target))
    return Comparison(model.aggregate_time(matrices.detach()), matrices, None, None)


def _instant_matrix(model: VideoSimilarity, matrices: Tensor, batch: Batch) -> Tensor:
    """Similarities [N T, N T] of all frames with each other, `matrices` being [N, N, T, T], or with the targets."""
    if batch.targets is None:
        return matrices.transpose(1, 2).flatten(2).flatten(0, 1)
    own = model.make_descriptors_unchecked(batch.regions.flatten(0, 1))
    return model.frame_matrix_unchecked(own, batch.targets.flatten(0, 1).to(own.dtype))


def _instant_inputs(matrix: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Scores, relevance and what is left out, [N T, N T], of single frames.

    Frames of the same instant are positive. Views of one clip are not compared with each other; with the targets they
    are, and other frames of one clip are told apart there.
    """
    if batch.instants is None:
        raise DataError("a loss of instants is in the recipe, and the batch does not know which instants frames show.")
    N, T = batch.regions.shape[:2]
    instants = batch.instants.flatten(0, 1)
    targets = instants if batch.targets is None else instants[:, :1]  # a target shows the clip without its host
    relevance = find_shared_content(instants, targets)
    clip = torch.arange(N, device=matrix.device).repeat_interleave(T)
    ignore = (clip[:, None] == clip) & (batch.targets is None)
    if batch.ignored_frame_pairs is not None:
        ignore = ignore | (batch.ignored_frame_pairs & ~relevance)
    return {"instant_scores": matrix / 2 + 0.5, "instant_relevance": relevance, "instant_ignore": ignore}


def _weigh_own_range(losses: WeightedLosses) -> WeightedLosses:
    """Each process sees its own rows of psi's output: a sum over them, which the mean over processes would shrink."""
    if world_size() == 1:
        return losses
    terms = dict(losses.terms)
    for name, term in terms.items():
        if term.level == "range":
            terms[name] = replace(term, weight=term.weight * world_size())
    return WeightedLosses(terms)


def _widen(contents: Tensor) -> Tensor:
    """Contents of as many places as the widest process has."""
    if world_size() == 1:
        return contents
    widest = int(gather(torch.tensor([contents.shape[1]], device=contents.device)).max())
    return torch.nn.functional.pad(contents, (0, widest - contents.shape[1]), value=NOTHING)
