"""Learning with the backbone: which instants frames show, which are ignored, gradients, exact resuming, stages."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.backbones.base import Backbone
from hapvr.cli import main
from hapvr.errors import ConfigError, DataError
from hapvr.features.whitening import Whitening
from hapvr.losses import LossInputs, WeightedLosses
from hapvr.model import load
from hapvr.similarity import VideoSimilarity
from hapvr.training import Batch, Camera, ClipSet, Encoder, TrainConfig, ViewConfig, fit, load_config, load_stages
from hapvr.training.augment import draw_plan
from hapvr.training.config import BackboneConfig, DataConfig
from hapvr.training.low_rank import merge_low_rank_changes
from hapvr.training.run_folder import RunFolder
from hapvr.training.run_parts import make_whole_source
from hapvr.training.sources import derive_seed
from hapvr.training.step import NOTHING, compute_step_losses, find_shared_content
from hapvr.training.whole import (
    WholeSource,
    choose_labels,
    compare_both_ways,
    compute_stay_loss,
    copy_for_training,
    find_hosted_pairs,
    find_ignored_pairs,
    make_region_extractor,
    number_instants,
    update_mean,
)
from tests.training.toy import TinyBackbone, noise_clips, packed

CPU = torch.device("cpu")
STILL = ViewConfig(
    frames=2, size=112, weak_scale=(1.0, 1.0), strong_scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, randaugment_ops=0,
    text=0.0, emoji=0.0, blur=0.0, shuffle_dropout=0.0, fast_forward=0.0, slow_motion=0.0, reverse=0.0, pause=0.0,
    mixup=0.0, noise=1.0, noise_strength=(90.0, 90.0),
)  # fmt: skip


def regions(*shape: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


# --- what frames show --------------------------------------------------------------------------------------------


def test_instants_by_hand() -> None:
    # Two windows: video 3 from frame 10 on, and a photograph. The second strong view is pasted into the first.
    plan = draw_plan([(4, 112, 112), (4, 112, 112)], replace(STILL, frames=2), seed=0)
    plan = replace(plan, index=np.array([[0, 1], [0, 1], [1, -1], [0, 0]]), host=np.array([-1, 0]))
    got = number_instants(plan, torch.tensor([10, 0]), torch.tensor([3, 5]), torch.tensor([False, True]), videos=9)
    first = got[0, 0, 0]
    assert (got[0, :, 0] - first).tolist() == [0, 1]
    assert got[2, :, 0].tolist() == [first + 1, NOTHING]  # the strong view shows the second frame, then nothing
    assert got[3, :, 1].tolist() == [first + 1, NOTHING]  # and so does the one that is pasted into it
    assert got[3, 0, 0] == got[3, 1, 0] == got[1, 0, 0]
    assert len({*got[0, :, 0].tolist(), *got[1, :, 0].tolist()}) == 4
    assert (got[:3, :, 1] == NOTHING).all()


@pytest.mark.parametrize("seed", range(3))
def test_frames_share_an_instant_where_they_show_the_same_frame_of_a_video(seed: int) -> None:
    source, _, clips = learner(noise_clips(6, frames=9), views=replace(STILL, frames=3, mixup=0.4), seed=seed, parts=2)
    batch = source.batch(0)
    assert batch.instants is not None
    got = find_shared_content(batch.instants.flatten(0, 1), batch.instants.flatten(0, 1))
    drawn = clips.calls[0]
    shown: list[set[tuple[int, int]]] = []
    plan = source_plan(source, clips)
    B = len(drawn)
    for view in range(2 * B):
        for t in range(3):
            rows = [view] + ([B + int(plan.host[view - B])] if view >= B and plan.host[view - B] >= 0 else [])
            shown.append({(drawn[row % B][0], drawn[row % B][1] + int(plan.index[row, t])) for row in rows
                          if plan.index[row, t] >= 0})  # fmt: skip
    expected = [[bool(one & other) for other in shown] for one in shown]
    assert got.tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_ignored_pairs_are_those_of_a_loop(seed: int) -> None:
    N, T = 3, 2
    frames = regions(N, T, 3, 4, seed=seed)
    frames[2, 1] = frames[0, 0]  # the same frame in another video
    one_video = torch.eye(N).bool()
    one_video[0, 1] = one_video[1, 0] = True
    loose = torch.tensor([False, False, True])
    ignored_frames, ignored_clips = find_ignored_pairs(frames, one_video, loose, same=0.5, twin=0.7)

    def forth(a: Tensor, b: Tensor) -> float:
        return sum(max(float(x @ y) for y in b) for x in a) / len(a)

    def alike(i: int, t: int, j: int, u: int) -> float:
        return max(forth(frames[i, t], frames[j, u]), forth(frames[j, u], frames[i, t]))

    for i in range(N):
        for j in range(N):
            for t in range(T):
                for u in range(T):
                    least = 0.5 if one_video[i, j] else 0.7
                    free = bool(one_video[i, j] and (loose[i] or loose[j]))
                    assert bool(ignored_frames[i * T + t, j * T + u]) == (alike(i, t, j, u) >= least or free)
            pairs = [sum(max(alike(a, t, b, u) for u in range(T)) for t in range(T)) / T for a, b in ((i, j), (j, i))]
            assert bool(ignored_clips[i, j]) == (max(pairs) >= 0.7)
    assert ignored_frames[0, 5]


def test_hosted_pairs_by_hand() -> None:
    # Video 7 alone, video 4 alone, video 4 in video 7, video 9 in video 7.
    everything = torch.tensor([[7, NOTHING], [4, NOTHING], [4, 7], [9, 7]])
    got = find_hosted_pairs(everything[:, :1], find_shared_content(everything, everything))
    expected = [[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]]  # the pasted video 4 is still found by 4
    assert got.int().tolist() == expected


def test_clean_frames_as_targets_show_no_host() -> None:
    # Two clips of one frame, weak and strong; the second strong view is pasted into the first one.
    instants = torch.tensor([[0, NOTHING], [1, NOTHING], [0, NOTHING], [1, 0]])[:, None]
    frames = regions(4, 1, 2, 16, seed=0)
    batch = Batch(frames, torch.arange(2).repeat(2)[:, None], instants=instants)
    both = [[1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1], [1, 1, 1, 1]]
    assert find_step_labels(batch).instant_relevance.int().tolist() == both
    clean = find_step_labels(replace(batch, targets=frames)).instant_relevance.int().tolist()
    assert clean == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 1]]  # the last target shows clip 1 alone


@pytest.mark.parametrize("other", ["hosts=positive", "targets=master"])
def test_a_share_of_hosts_needs_ignored_hosts_and_targets_of_its_own(other: str) -> None:
    words = ["backbone.hosts=ignored", "backbone.host_share=0.2"]
    assert load_config("tiny", words).backbone.host_share == 0.2
    with pytest.raises(ConfigError, match=r"host_share=0\.2 needs hosts='ignored' and targets='own'"):
        load_config("tiny", [*words, f"backbone.{other}"])


def test_a_share_of_pasted_clips_are_copies_of_their_hosts() -> None:
    host = np.array([-1, 0, 0, -1])
    rng = np.random.default_rng(0)
    assert choose_labels(host, rng, share=0.0).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert choose_labels(host, rng, share=1.0).tolist() == [0, 1, 2, 3, 0, 0, 0, 3]
    many = choose_labels(np.zeros(4000, np.int64), rng, share=0.3)[4001:]
    assert abs(float((many == 0).float().mean()) - 0.3) < 0.03


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_ignored_hosts_are_neither_positive_nor_negative(seed: int, parts: int, share: float) -> None:
    views = replace(STILL, frames=3, mixup=0.4)
    options: dict[str, Any] = {"views": views, "seed": seed, "parts": parts, "same": 2.0, "twin": 2.0}
    frames = 9 if parts == 2 else 6
    source, _, clips = learner(noise_clips(6, frames=frames), hosts="ignored", host_share=share, **options)
    counted = learner(noise_clips(6, frames=frames), **options)[0]
    batch = source.batch(0)
    labels, before = find_step_labels(batch), find_step_labels(counted.batch(0))
    drawn, plan = clips.calls[0], source_plan(source, clips)
    B, T = len(drawn), 3
    assert (plan.host >= 0).any()
    chosen = batch.contents[:, 0].tolist()  # the window that a view is a copy of

    def rows(view: int) -> list[int]:  # of the plan: what a view shows, pasted and host
        return [view] + ([B + int(plan.host[view - B])] if view >= B and plan.host[view - B] >= 0 else [])

    def instant(view: int, t: int) -> tuple[int, int] | None:  # of what it is a copy of
        row = rows(view)[0 if chosen[view] == view % B else 1]
        video, start = drawn[row % B]
        return (video, start + int(plan.index[row, t])) if plan.index[row, t] >= 0 else None

    for i in range(2 * B):
        assert chosen[i] in {row % B for row in rows(i)}
        assert share > 0 or chosen[i] == i % B
        assert share < 1 or chosen[i] == rows(i)[-1] % B
        for j in range(2 * B):
            copies, one_video = chosen[i] == chosen[j], drawn[chosen[i]][0] == drawn[chosen[j]][0]
            videos = [{drawn[row % B][0] for row in rows(view)} for view in (i, j)]
            common = bool(videos[0] & videos[1])
            assert bool(before.relevance[i, j]) == bool({r % B for r in rows(i)} & {r % B for r in rows(j)})
            assert bool(labels.relevance[i, j]) == copies
            assert bool(labels.ignore[i, j]) == (i == j or (common and not copies))
            for t in range(T):
                for u in range(T):
                    row, column = i * T + t, j * T + u
                    positive = instant(i, t) is not None and instant(i, t) == instant(j, u)
                    assert bool(labels.instant_relevance[row, column]) == positive
                    if common and not one_video:
                        assert labels.instant_ignore[row, column]
                    if not common:
                        assert not labels.instant_ignore[row, column]


def test_without_pasted_clips_it_does_not_matter_how_hosts_count() -> None:
    options: dict[str, Any] = {"views": replace(STILL, frames=3), "parts": 2}
    one, other = (learner(noise_clips(6, frames=9), hosts=hosts, **options)[0] for hosts in ("positive", "ignored"))
    for before, after in zip(find_step_labels(one.batch(0)), find_step_labels(other.batch(0)), strict=True):
        assert torch.equal(before, after)


def test_chamfer_of_a_frame_with_itself_is_one() -> None:
    frames = regions(3, 4, 8, seed=5)
    for matrix in compare_both_ways(frames, frames):
        assert torch.allclose(matrix.diagonal(), torch.ones(3), atol=1e-6)
        assert matrix.max() <= 1 + 1e-6


# --- the source --------------------------------------------------------------------------------------------------


class Noted(ClipSet):
    """Clips that note which windows were drawn: the video and the first frame."""

    def __init__(self, clips: ClipSet) -> None:
        super().__init__(clips.frames, clips.ids, times=clips.times, cameras=clips.cameras)
        self.calls: list[list[tuple[int, int]]] = []

    def draw_parts(self, videos: Any, *, parts: int = 1, **rest: Any) -> list[tuple[Tensor, int]]:
        drawn = super().draw_parts(videos, parts=parts, **rest)
        rows = [video for video in videos for _ in range(parts)]
        self.calls.append([(video, start) for video, (_, start) in zip(rows, drawn, strict=True)])
        return drawn


class Labels(NamedTuple):
    """What the losses of a step are given."""

    relevance: Tensor
    ignore: Tensor
    instant_relevance: Tensor
    instant_ignore: Tensor


def find_step_labels(batch: Batch) -> Labels:
    """The labels of a batch, as the losses see them."""
    seen: list[LossInputs] = []

    class Spy(WeightedLosses):
        def forward(self, inputs: LossInputs) -> Any:
            seen.append(inputs)
            return super().forward(inputs)

    config = load_config("tiny", ["losses.instant_ap.weight=1", "losses.frame_ap.weight=0", "similarity.dims=16"])
    losses = Spy(config.losses.build().terms)
    compute_step_losses(VideoSimilarity(config.similarity), losses, batch, teacher=config.teacher)
    inputs = seen[0]
    assert inputs.relevance is not None
    assert inputs.ignore is not None
    assert inputs.instant_relevance is not None
    assert inputs.instant_ignore is not None
    return Labels(inputs.relevance, inputs.ignore, inputs.instant_relevance, inputs.instant_ignore)


def whitening() -> Whitening:
    return Whitening(torch.full((32,), 0.1), torch.eye(32)[:, :16])


def backbone() -> Backbone:
    torch.manual_seed(0)
    return TinyBackbone().eval()


def learner(
    clips: ClipSet, *, views: ViewConfig = STILL, seed: int = 0, **settings: Any
) -> tuple[WholeSource, Backbone, Noted]:
    noted = Noted(clips)
    names = ("targets", "same", "twin", "hosts", "host_share", "layers", "rank")
    own = {name: settings.pop(name) for name in names if name in settings}
    student = copy_for_training(backbone(), CPU, layers=own.get("layers", ()), rank=own.get("rank", 0))
    source = WholeSource(
        noted,
        make_region_extractor(student, whitening(), torch.float32),
        Encoder(backbone(), whitening(), device=CPU, micro_batch=64),
        DataConfig(**{"batch": 4, **settings}),
        views=views,
        settings=BackboneConfig(rate=1.0, **own),
        seed=seed,
    )
    noted.calls.clear()
    return source, student, noted


def source_plan(source: WholeSource, clips: Noted) -> Any:
    """The plan of the first step, drawn again."""
    drawn = clips.calls[0]
    length = 2 * source.views.frames
    half = [int(clips.lengths[video]) // source.data.parts for video, _ in drawn]
    shapes = [(min(length, count), 112, 112) for count in half]
    if source.data.parts == 2:  # the second half of an odd number is the longer one
        shapes = [(min(length, (9 + part) // 2), 112, 112) for part in (0, 1)] * (len(drawn) // 2)
    return draw_plan(shapes, source.views, derive_seed(source.seed, 2, 0))


def test_gradients_reach_the_first_layer_and_the_frozen_copy_is_left_alone() -> None:
    source, student, _ = learner(noise_clips(6))
    batch = source.batch(0)
    assert batch.regions.shape[:2] == (8, 2)
    assert batch.frozen_regions is not None
    assert not batch.frozen_regions.requires_grad
    batch.regions[..., 0].sum().backward()  # type: ignore[no-untyped-call]
    first = next(student.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


def test_windows_of_one_video_are_one_event_and_no_copies() -> None:
    source, _, clips = learner(noise_clips(6, frames=8), parts=2, batch=3)
    batch = source.batch(0)
    assert batch.videos is not None
    drawn = [video for video, _ in clips.calls[0]]
    assert drawn[::2] == drawn[1::2]
    starts = [start for _, start in clips.calls[0]]
    assert all(start < 4 for start in starts[::2])
    assert all(start >= 4 for start in starts[1::2])
    copies, event = (find_shared_content(numbers, numbers) for numbers in (batch.contents, batch.videos))
    for i in range(12):
        for j in range(12):
            assert bool(copies[i, j]) == (i % 6 == j % 6)
            assert bool(event[i, j]) == (drawn[i % 6] == drawn[j % 6])


def test_photographs_of_another_move_are_no_instant_of_this_one() -> None:
    photos = ClipSet([frames[:1] for frames in noise_clips(4).frames], list("abcd"), cameras=[Camera(4, 112)] * 4)
    source, _, _ = learner(photos, parts=2, batch=2)
    batch = source.batch(0)
    assert batch.instants is not None
    assert batch.ignored_frame_pairs is not None
    same = (
        find_shared_content(batch.instants.flatten(0, 1), batch.instants.flatten(0, 1)).view(8, 2, 8, 2).any(3).any(1)
    )
    # Rows 0 and 1 are two moves over one photograph: no common instant, and nothing to tell apart.
    assert not same[0, 1]
    assert not same[:4, :4].fill_diagonal_(False).any()
    assert same.diagonal(4).any()  # a weak and a strong view of one move
    assert batch.ignored_frame_pairs.view(8, 2, 8, 2)[0, :, 1].all()


def test_the_same_step_gives_the_same_batch() -> None:
    one, two = (learner(noise_clips(6), alike=1.0, group=2)[0].batch(3) for _ in range(2))
    assert torch.equal(one.regions, two.regions)
    other = learner(noise_clips(6), alike=1.0, group=2, seed=1)[0].batch(3)
    assert not torch.equal(one.regions, other.regions)


# --- learning ----------------------------------------------------------------------------------------------------


def silent(_: str) -> None:
    pass


def settings(*words: str, steps: int = 60) -> TrainConfig:
    config = load_config(
        "tiny",
        [
            "similarity.dims=16", "similarity.weighting=none", "similarity.residual=true", "similarity.projection=true",
            f"schedule.steps={steps}", "schedule.warm_up=2", "schedule.end=0", "run.device=cpu", "data.batch=4",
            "backbone.rate=3e-3", "backbone.average=0.5", "backbone.same=2", "backbone.twin=2", "run.log_every=1",
            "run.checkpoint_every=2", "losses.frame_ap.weight=0", *words,
        ],
    )  # fmt: skip
    return replace(config, views=STILL)


def run(
    config: TrainConfig, clips: ClipSet, *, folder: RunFolder | None = None, stop: int | None = None
) -> tuple[VideoSimilarity, Backbone]:
    def report(line: str) -> None:
        if stop is not None and line.startswith(f"step {stop}/"):
            raise KeyboardInterrupt

    own = config.backbone
    backbone_words = {name: getattr(own, name) for name in ("targets", "same", "twin", "layers", "rank")}
    source, student, _ = learner(clips, batch=config.data.batch, seed=config.run.seed, **backbone_words)
    torch.manual_seed(1)
    model = VideoSimilarity(config.similarity)
    with contextlib.suppress(KeyboardInterrupt):
        fit(model, source, config, run=folder, report=report, backbone=student)
    return model, student


def recognised(network: Backbone, model: VideoSimilarity | None, clips: ClipSet) -> float:
    """How much more alike a frame is to its noisy self than to the others, on average."""
    pictures = torch.stack([frames[0].permute(2, 0, 1) for frames in clips.frames])
    noise = 90 * torch.randn(pictures.shape, generator=torch.Generator().manual_seed(3))
    describe = make_region_extractor(network, whitening(), torch.float32)
    with torch.no_grad():
        both = [describe(each.clamp(0, 255).to(torch.uint8)) for each in (pictures + noise, pictures)]
        if model is not None:
            both = [model.make_descriptors(each).as_subclass(Tensor) for each in both]
        matrix = compare_both_ways(*both)[0]
    others = (matrix.sum(1) - matrix.diagonal()) / (len(matrix) - 1)
    return float((matrix.diagonal() - others).mean())


@pytest.mark.parametrize("targets", ["own", "master"])
def test_a_backbone_learns_to_see_through_noise(targets: str) -> None:
    clips = noise_clips(12, frames=2)
    words = [f"losses.{name}.weight=0" for name in ("video_ap", "infonce", "sshn", "range")]
    config = settings("losses.instant_infonce.weight=1", f"backbone.targets={targets}", "data.batch=12", *words)
    model, student = run(config, clips)
    assert recognised(student, model, clips) > 1.3 * recognised(backbone(), None, clips)
    before = backbone().state_dict()
    for name, value in student.state_dict().items():
        if "running" in name:  # batch normalisation keeps its statistics
            assert torch.equal(value, before[name])


def test_average_precision_of_videos_and_instants_falls_through_the_backbone() -> None:
    clips = noise_clips(8, frames=4)
    lines: list[str] = []
    config = settings("losses.instant_ap.weight=2", "losses.event_ap.weight=1", "run.log_every=10", steps=40)
    source, student, _ = learner(clips, batch=4, same=2.0, twin=2.0)
    before = copy.deepcopy(student.state_dict())
    fit(VideoSimilarity(config.similarity), source, config, report=lines.append, backbone=student)
    assert "instant_ap" in lines[0]
    assert "event_ap" in lines[0]
    assert "stay" in lines[0]
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines]
    assert losses[-1] < losses[0]
    assert any(not torch.equal(value, before[name]) for name, value in student.state_dict().items())


@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path, stop: int) -> None:
    clips = noise_clips(6)

    def config(name: str) -> TrainConfig:
        return settings("losses.instant_ap.weight=1", f"run.folder={tmp_path / name}", steps=5)

    whole = run(config("whole"), clips, folder=RunFolder(config("whole"), report=silent))
    run(config("parts"), clips, folder=RunFolder(config("parts"), report=silent), stop=stop)
    parts = run(config("parts"), clips, folder=RunFolder(config("parts"), report=silent))
    for one, other in zip(whole, parts, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name
    seeded = run(settings("losses.instant_ap.weight=1", "run.seed=1", steps=5), clips)
    assert any(not torch.equal(v, seeded[1].state_dict()[k]) for k, v in whole[1].state_dict().items())


def test_psi_can_be_left_as_it_is_and_what_comes_out_is_the_running_mean() -> None:
    clips = noise_clips(6)
    config = settings("model.learn_psi=false", "backbone.average=1.0", steps=2)
    model, student = run(config, clips)
    torch.manual_seed(1)
    first = VideoSimilarity(config.similarity)
    assert first.comparator is not None
    assert model.comparator is not None
    for name, value in model.comparator.state_dict().items():
        assert torch.equal(value, first.comparator.state_dict()[name])
    # At first the mean is over few steps: after two it is at 1/10, and then at 2/11 of what it was.
    lively, own = run(settings("model.learn_psi=false", "backbone.average=0.0", steps=2), clips)
    assert any(not torch.equal(v, own.state_dict()[k]) for k, v in student.state_dict().items())
    assert model.projection is not None
    assert lively.projection is not None
    assert not torch.equal(model.projection.change.weight, lively.projection.change.weight)


def test_named_layers_and_batch_norms_learn_and_the_others_stay() -> None:
    student = copy_for_training(backbone(), CPU, layers=["layers.1"])
    learning = {name for name, parameter in student.named_parameters() if parameter.requires_grad}
    norms = {f"norms.{number}.{name}" for number in range(4) for name in ("weight", "bias")}
    assert learning == {"layers.1.weight", "layers.1.bias", *norms}
    with pytest.raises(ConfigError, match="tiny has no layer 'layer1'; did you mean 'layers'"):
        copy_for_training(backbone(), CPU, layers=["layer1"])
    words = ["losses.instant_ap.weight=1", "backbone.rate=0.01"]
    _, whole = run(settings(*words, steps=2), noise_clips(6))
    _, part = run(settings(*words, 'backbone.layers=["layers.1"]', steps=2), noise_clips(6))
    for name, value in backbone().named_parameters():
        assert not torch.equal(whole.state_dict()[name], value), name
        assert torch.equal(part.state_dict()[name], value) == (name not in learning), name
    with pytest.raises(ConfigError, match=r"layers must be a list of texts, got \(1,\)"):
        settings("backbone.layers=[1]")


def test_convolutions_learn_a_change_of_low_rank_and_nothing_else_of_them_does() -> None:
    student = copy_for_training(backbone(), CPU, layers=["layers.1"], rank=2)
    learning = {name for name, parameter in student.named_parameters() if parameter.requires_grad}
    norms = {f"norms.{number}.{name}" for number in range(4) for name in ("weight", "bias")}
    changes = {f"layers.{number}.{name}" for number in (0, 2, 3) for name in ("up", "down")}
    assert learning == {"layers.1.weight", "layers.1.bias", *norms, *changes}
    pictures = torch.rand(2, 3, 64, 64)
    for one, other in zip(student.stages(pictures), backbone().eval().stages(pictures), strict=True):
        torch.testing.assert_close(one, other)  # nothing has changed yet
    _, trained = run(settings("losses.instant_ap.weight=1", "backbone.rate=0.01", "backbone.rank=2"), noise_clips(6))
    before = trained.stages(pictures)
    merge_low_rank_changes(trained)
    for one, other in zip(before, trained.stages(pictures), strict=True):
        torch.testing.assert_close(one, other)
    assert trained.state_dict().keys() == backbone().state_dict().keys()
    for number in range(4):
        name = f"layers.{number}.weight"
        values = torch.linalg.svdvals((trained.state_dict()[name] - backbone().state_dict()[name]).flatten(1))
        assert values[1] > 1e-4
        assert (values[2:] < 1e-5 * values[0]).all()
        assert torch.equal(
            trained.state_dict()[f"layers.{number}.bias"], backbone().state_dict()[f"layers.{number}.bias"]
        )


def test_a_running_mean_by_hand() -> None:
    mean, new = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    for module, value in ((mean, 1.0), (new, 3.0)):
        torch.nn.init.constant_(module.weight, value)
    update_mean(mean, new, keep=0.75)
    assert mean.weight.item() == pytest.approx(1.5)


def test_staying_needs_what_was() -> None:
    model = VideoSimilarity(settings().similarity)
    with pytest.raises(DataError, match="made of its frames before"):
        compute_stay_loss(model, Batch(torch.zeros(2, 1, 1, 16), torch.zeros(2, 1).long()))


# --- stages ------------------------------------------------------------------------------------------------------


def test_stages_follow_on_each_other(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        '[run]\nfolder = "r"\n[schedule]\nsteps = 3\nwarm_up = 1\n[model]\nbase = "x"\n[losses.video_ap]\nweight = 1\n'
        "[stage.a.schedule]\nsteps = 5\n[stage.b.losses.infonce]\nweight = 2\n"
    )
    stages = load_stages(file, ["stage.b.schedule.warm_up=2", "views.frames=9"])
    assert list(stages) == ["a", "b"]
    a, b = stages.values()
    assert (a.schedule.steps, b.schedule.steps, a.schedule.warm_up, b.schedule.warm_up) == (5, 3, 1, 2)
    assert (a.run.folder, b.run.folder, a.model.base, b.model.base) == ("r/a", "r/b", "x", "r/a/model")
    assert (list(a.losses.terms), list(b.losses.terms)) == (["video_ap"], ["infonce"])
    assert a.views.frames == b.views.frames == 9
    a, b = load_stages(file, ["model.base=r50"]).values()  # of the first stage alone
    assert (a.model.base, b.model.base) == ("r50", f"{a.run.folder}/model")
    (alone,) = load_stages(file, ["stages=b", "model.base=r50"]).values()
    assert (alone.model.base, alone.run.folder) == ("r50", b.run.folder)
    with pytest.raises(ConfigError, match="stages=a,c: there is no stage 'c'; known: a, b"):
        load_stages(file, ["stages=a,c"])
    with pytest.raises(ConfigError, match="has the stages a, b"):
        load_config(file)
    file.write_text("stage = 3\n")
    with pytest.raises(ConfigError, match="a table for each stage"):
        load_stages(file)


def test_a_whole_run_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed(str(tmp_path / "packed"), noise_clips(4))
    words = [
        "train", "whole", f"data.frames={tmp_path / 'packed'}", f"run.folder={tmp_path / 'run'}", "run.device=cpu",
        "data.batch=2", "data.group=2", "data.alike=0", "data.size=112", "views.size=112", "views.frames=2",
        "schedule.steps=1", "schedule.warm_up=0", "stage.network.bank.weak=1", "stage.network.bank.strong=1",
        "run.log_every=1",
    ]  # fmt: skip
    for _ in range(2):  # the second time all is done already
        with pytest.raises(SystemExit) as exit:
            main(words)
        assert exit.value.code == 0
    out = capsys.readouterr().out
    assert [f"stage {name}" in out for name in ("harden", "clips", "network")] == [True] * 3
    assert out.count("all 1 steps are done already") == 3
    model, before = (load(f"{tmp_path / 'run' / 'network' / 'model'}{form}") for form in ("", "-untrained"))
    shipped = load("lite-untrained")
    was, now, old = (each.extractor.backbone.state_dict() for each in (before, model, shipped))
    assert all(torch.equal(was[name], value) for name, value in old.items())
    assert any(not torch.equal(now[name], value) for name, value in old.items())
    assert shipped.extractor.whitening is not None
    assert before.extractor.whitening is not None
    assert torch.equal(before.extractor.whitening.projection, shipped.extractor.whitening.projection)


def test_figures_of_an_old_backbone_are_refused() -> None:
    config = settings("validation.features=x.safetensors")
    base = load("lite-untrained")
    with pytest.raises(ConfigError, match="made by the backbone as it was"):
        make_whole_source(config, noise_clips(4), base, copy_for_training(base.extractor.backbone, CPU), CPU)
