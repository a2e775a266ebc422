"""Training of the backbone: clips go through it with gradients, and each frame knows which instant it shows.

A frozen backbone bounds what any network on top of it can tell apart. Here the losses reach the backbone too. A frozen
copy of the backbone as it was before serves three purposes: frames and clips that it could hardly tell apart are left
out of the losses; weak views stay near the region vectors that it gave; and it finds the look-alikes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hapvr.backbones import Backbone
from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.features.regions import input_scale, regions_of_maps
from hapvr.features.whitening import Whitening
from hapvr.similarity import VideoSimilarity
from hapvr.training.augment import Plan, ViewConfig, make_views
from hapvr.training.augment.plan import make_generator
from hapvr.training.augment.views import cut
from hapvr.training.clips import ClipRequest, ClipSet
from hapvr.training.config import BackboneConfig, DataConfig
from hapvr.training.encoder import Encoder
from hapvr.training.low_rank import add_low_rank_changes
from hapvr.training.sources import Timed, compute_clip_vectors, derive_seed, draw_batch, find_look_alikes
from hapvr.training.step import NOTHING, Batch, find_shared_content, list_contents

_FRAMES = 2**20  # more than any video has: the instants of two videos have different numbers


def make_region_extractor(
    backbone: Backbone, whitening: Whitening, dtype: torch.dtype, *, compiled: bool = False
) -> Callable[[Tensor], Tensor]:
    """A function of pictures uint8 [N, 3, S, S] that gives region vectors [N, R, D], with gradients to the backbone.

    Batch normalisation uses the statistics that it has (the backbone is in evaluation mode).
    """
    device = next(backbone.parameters()).device
    prepare = input_scale(backbone, device)
    stages: Callable[[Tensor], tuple[Tensor, ...]] = backbone.stages
    if compiled:
        stages = torch.compile(stages, dynamic=False)

    def extract(pictures: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            maps = stages(prepare(pictures).contiguous(memory_format=torch.channels_last))
        return regions_of_maps(maps, whitening, check=False)

    return extract


def copy_for_training(
    backbone: Backbone, device: torch.device, *, layers: Sequence[str] = (), rank: int = 0
) -> Backbone:
    """A copy of a backbone that can be trained: in evaluation mode, its parameters asking for gradients.

    With `layers` only those do whose names begin so, and all batch norms: they are small, and adapt the other layers.
    With `rank` all other convolutions learn a change of that rank; `merge_low_rank_changes` ends that.
    """
    student: Backbone = copy.deepcopy(backbone).eval().requires_grad_(not layers and not rank)
    parameters = dict(student.named_parameters())
    for layer in layers:
        named = [parameter for name, parameter in parameters.items() if name.startswith(layer)]
        if not named:
            known = sorted({name.partition(".")[0] for name in parameters})
            raise ConfigError(f"backbone.layers: {backbone.name} has no layer '{layer}'; {suggest(layer, known)}")
        for parameter in named:
            parameter.requires_grad_()
    for module in student.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_()
    if rank:
        add_low_rank_changes(student, rank)
    return student.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class WholeSource:
    """Views of windows of videos, described by a backbone in training.

    Args:
        clips: the videos and photographs.
        extract: see `make_region_extractor`.
        frozen: a frozen copy of the backbone as it was, with everything that was learnt on top of it.
        data: videos a step, windows of each, look-alikes.
        views: how views are made.
        settings: which frames are left out.
        seed: of all that is drawn.
    """

    def __init__(
        self,
        clips: ClipSet,
        extract: Callable[[Tensor], Tensor],
        frozen: Encoder,
        data: DataConfig,
        *,
        views: ViewConfig,
        settings: BackboneConfig,
        seed: int,
    ) -> None:
        self.clips, self.extract, self.frozen, self.data = clips, extract, frozen, data
        self.views, self.settings, self.seed = views, settings, seed
        self.alike = find_look_alikes(self._compute_vectors, len(clips), data, device=frozen.device)

    def batch(self, step: int, timed: Timed = lambda _: nullcontext()) -> Batch:
        """See `Source`."""
        device = self.frozen.device
        with timed("load"):
            numbers, drawn = self.clips.fetch(step, self._make_request)
            windows = [window for window, _ in drawn]
            shown = torch.tensor(numbers).repeat_interleave(self.data.parts)
        with timed("augment"):
            views = make_views(windows, config=self.views, seed=derive_seed(self.seed, 2, step), device=device)
            B = len(windows)
            clean = cut(_plan_clean(views.plan, windows), windows, self.views, device)[B:]
        with timed("frozen"):
            references = self.frozen(torch.cat([views.pictures[:B], clean]), check=False).regions  # [2B, T, R, D]
        with timed("extract"):
            regions = self.extract(views.pictures.flatten(0, 1))
            regions = regions.view(*views.pictures.shape[:2], *regions.shape[1:])
        content = torch.from_numpy(views.plan.content)
        contents = list_contents(content, torch.arange(B)).to(device)
        kinds = list_contents(content, shown).to(device)
        one_video = find_shared_content(kinds, kinds)
        still = torch.tensor([self.clips.cameras[video] is not None for video in shown.tolist()])
        starts = torch.tensor([start for _, start in drawn])
        instants = number_instants(views.plan, starts, shown, still, videos=len(self.clips)).to(device)
        loose = torch.cat([still, still | torch.from_numpy(views.plan.host >= 0)]).to(device)
        ignored_frames, ignored_clips = find_ignored_pairs(
            references, one_video, loose, same=self.settings.same, twin=self.settings.twin
        )
        if self.settings.hosts == "ignored":
            rng = make_generator(derive_seed(self.seed, 3, step))
            chosen = choose_labels(views.plan.host, rng, share=self.settings.host_share)
            contents, kinds = chosen[:, None].to(device), shown[chosen][:, None].to(device)
            by_host = (chosen != torch.arange(B).repeat(2)).to(device)
            instants = torch.where(by_host[:, None], instants[..., 1], instants[..., 0])[..., None]
            ignored_clips |= find_hosted_pairs(kinds, one_video)  # frames are ignored already: these clips are loose
        return Batch(
            regions,
            contents,
            frames=references.mean(2),
            videos=kinds,
            instants=instants,
            ignored_frame_pairs=ignored_frames,
            ignored_clip_pairs=ignored_clips,
            frozen_regions=references,
            targets=references if self.settings.targets == "master" else None,
        )

    def _make_request(self, step: int) -> ClipRequest:
        videos = draw_batch(self.clips, step, self.data, seed=self.seed, alike=self.alike)
        return ClipRequest(videos, 2 * self.views.frames, derive_seed(self.seed, 1, step), self.data.parts)

    def _compute_vectors(self) -> Tensor:
        """The mean vectors [V, D] of the first frames of weak views of each video."""
        views = replace(self.views, frames=1)
        return compute_clip_vectors(self.clips, self.frozen, views, length=1, batch=self.data.batch, seed=self.seed)


def number_instants(plan: Plan, starts: Tensor, shown: Tensor, still: Tensor, *, videos: int) -> Tensor:
    """Which instants each frame of the 2B views shows: int64 [2B, T, 2], its own and that of its host, or NOTHING.

    Frames of one video share an instant if they are the same frame; of a photograph, if the camera's move is the same
    too. Of each window, `starts` [B] is the first frame, `shown` [B] the number of its video (of `videos`), and `still`
    (bool [B]) whether that is a photograph.
    """
    index = torch.from_numpy(plan.index)  # [2B, T], negative for no frame
    B, T = len(starts), index.shape[1]
    whose = torch.where(still, videos + torch.arange(B), shown)
    own = (whose * _FRAMES + starts).repeat(2)[:, None] + index
    own = own.masked_fill(index < 0, NOTHING)
    instants = torch.stack([own, torch.full_like(own, NOTHING)], 2)
    mixed = torch.from_numpy(np.flatnonzero(plan.host >= 0))
    instants[B + mixed, :, 1] = own[B + torch.from_numpy(plan.host)[mixed]]
    return instants.view(2 * B, T, 2)


@torch.no_grad()
def find_ignored_pairs(
    references: Tensor, one_video: Tensor, loose: Tensor, *, same: float, twin: float
) -> tuple[Tensor, Tensor]:
    """Pairs of frames (bool [N T, N T]) and of clips (bool [N, N]) that the frozen copy hardly tells apart.

    Args:
        references: [N, T, R, D] unit vectors of clean frames of N clips.
        one_video: bool [N, N], clips that show a common video.
        loose: bool [N], clips whose frames may share a part of the picture with any other frame of their video.
        same: the similarity from which two frames of one video are left out.
        twin: the same for two frames of different videos, and for two clips.
    """
    N, T = references.shape[:2]
    forth, back = compare_both_ways(references.flatten(0, 1), references.flatten(0, 1))
    alike = torch.maximum(forth, back).view(N, T, N, T)
    together = one_video[:, None, :, None]
    ignored = alike >= torch.where(together, same, twin)
    ignored |= together & (loose[:, None, None, None] | loose[None, None, :, None])
    videos = alike.amax(3).mean(1)  # [N, N]
    return ignored.view(N * T, N * T), torch.maximum(videos, videos.T) >= twin


def choose_labels(host: NDArray[np.int64], rng: np.random.Generator, *, share: float) -> Tensor:
    """Which of the B windows each of the 2B views counts as a copy of: int64 [2B].

    It is its own, but for a share of the strong views that are pasted into another one: for these it is their host.
    `host` [B] holds the number of the host, or -1.

    >>> choose_labels(np.array([-1, 0]), np.random.default_rng(0), share=1.0).tolist()
    [0, 1, 0, 0]
    """
    own = np.arange(len(host))
    strong = np.where((host >= 0) & (rng.random(len(host)) < share), host, own)
    return torch.from_numpy(np.concatenate([own, strong]))


def find_hosted_pairs(labels: Tensor, one_video: Tensor) -> Tensor:
    """Clips (bool [N, N]) that show a common video, but are not labelled as copies of one.

    `labels` is int64 [N, K], the videos that clips count as copies of; `one_video` (bool [N, N]) says which clips show
    a common video, hosts included.

    Example: a clip of video 1 pasted into one of video 0, beside clips of both.
        >>> one_video = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
        >>> find_hosted_pairs(torch.tensor([[0], [1], [1]]), one_video).int().tolist()
        [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    return one_video & ~find_shared_content(labels, labels)


def compare_both_ways(queries: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Frame similarities [N, M] of regions [N, R, D] and [M, R, D]: each query region's best, and each target region's.

    >>> one, other = torch.eye(2)[None], torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    >>> [matrix.item() for matrix in compare_both_ways(one, other)]  # half of one is in the other, all the other way
    [0.5, 1.0]
    """
    N, R, D = queries.shape
    products = (queries.reshape(N * R, D) @ targets.reshape(-1, D).T).view(N, R, len(targets), -1)
    return products.amax(3).mean(1), products.amax(1).mean(2)


def compute_stay_loss(model: VideoSimilarity, batch: Batch) -> Tensor:
    """How far the weak views' region vectors, the first half, went from the frozen copy's: the mean of 1 - cosine.

    Example: of two clips of one frame and one region, the weak one has turned by a right angle.
        >>> from hapvr.similarity import SimilarityConfig
        >>> model = VideoSimilarity(SimilarityConfig(dims=2, weighting="none", comparator=False, min_frames=1))
        >>> regions, frozen = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> batch = Batch(regions.view(2, 1, 1, 2), torch.zeros(2, 1).long(), frozen_regions=frozen.view(2, 1, 1, 2))
        >>> compute_stay_loss(model, batch).item()
        1.0
    """
    if batch.frozen_regions is None:
        raise DataError("the batch does not know what the backbone made of its frames before.")
    weak = len(batch.regions) // 2
    described = model.make_descriptors_unchecked(batch.regions[:weak]).as_subclass(Tensor)
    return 1 - (described * batch.frozen_regions[:weak]).sum(-1).mean()


@torch.no_grad()
def update_mean(mean: nn.Module, model: nn.Module, *, keep: float) -> None:
    """Move the parameters of `mean` towards those of `model`: keep * mean + (1 - keep) * model."""
    for own, new in zip(mean.parameters(), model.parameters(), strict=True):
        own.lerp_(new, 1 - keep)


def _plan_clean(plan: Plan, windows: list[Tensor]) -> Plan:
    """A plan that shows the same frames whole and unflipped."""
    whole = np.array([(0, 0, window.shape[1], window.shape[2]) for window in windows], np.int64)
    return replace(plan, crop=np.tile(whole, (2, 1)), flip=np.zeros_like(plan.flip))
