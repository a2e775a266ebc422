"""Hardening of a backbone: its losses by hand and by loops, and a run that makes a spoilt picture recognised."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.backbones.base import Backbone
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features.whitening import Whitening
from hapvr.training import ClipSet
from hapvr.training.augment import ViewConfig
from hapvr.training.config import ScheduleConfig
from hapvr.training.hardening import (
    STAGES,
    HardeningConfig,
    chamfer_both,
    describing,
    harden,
    hardening_losses,
    turn,
)
from tests.training.toy import noise_clips


def regions(*shape: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


# --- losses ----------------------------------------------------------------------------------------------------------


def slow_losses(
    strong: Tensor, weak: Tensor, taught: Tensor, sought: Tensor, shown: Tensor, least: Tensor, temperature: float
) -> tuple[float, float]:
    """`hardening_losses`, one pair of frames at a time."""

    def forth(a: Tensor, b: Tensor) -> float:
        return sum(max(float(x @ y) for y in b) for x in a) / len(a)

    B = len(taught)
    found = 0.0
    for i in range(B):
        for back in (False, True):
            scores = {}
            for j in range(B):
                likeness = max(forth(sought[i], sought[j]), forth(sought[j], sought[i]))
                if j != i and (shown[i, j] or likeness >= least[i, j]):
                    continue
                scores[j] = (forth(sought[j], strong[i]) if back else forth(strong[i], sought[j])) / temperature
            found += math.log(sum(math.exp(value - scores[i]) for value in scores.values())) / (2 * B)
    cosines = [float(weak[i][r] @ taught[i][r]) for i in range(len(weak)) for r in range(weak.shape[1])]
    return found, 1 - sum(cosines) / len(cosines)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_losses_are_those_of_a_slow_loop(seed: int) -> None:
    strong, weak, taught, sought = (regions(n, 3, 8, seed=10 * seed + k) for k, n in enumerate((5, 2, 5, 5)))
    shown = torch.eye(5).bool()
    shown[1, 3] = True
    least = torch.full((5, 5), 0.6)
    found = hardening_losses(strong, weak, taught, sought, shown=shown, least=least, temperature=0.2)
    slow = slow_losses(strong, weak, taught, sought, shown, least, 0.2)
    assert found["found"].item() == pytest.approx(slow[0], abs=1e-5)
    assert found["stayed"].item() == pytest.approx(slow[1], abs=1e-5)


def test_losses_by_hand() -> None:
    # Two frames of one region each. The first strong view lies between both (cosines .6 and .8), the second is found.
    frames = torch.eye(2)[:, None]
    strong = torch.tensor([[[0.6, 0.8]], [[0.0, 1.0]]])
    weak = torch.tensor([[[0.8, 0.6]]])
    losses = hardening_losses(
        strong, weak, frames, frames, shown=torch.eye(2).bool(), least=torch.full((2, 2), 0.9), temperature=0.1
    )
    expected = (math.log(1 + math.exp(2.0)) + math.log(1 + math.exp(-10.0))) / 2
    assert losses["found"].item() == pytest.approx(expected, abs=1e-6)
    assert losses["stayed"].item() == pytest.approx(0.2, abs=1e-6)


def test_where_a_region_lies_does_not_matter_and_frames_that_are_left_out_do_not_count() -> None:
    strong, taught = regions(4, 3, 8, seed=1), regions(4, 3, 8, seed=2)
    shown, least = torch.eye(4).bool(), torch.full((4, 4), 2.0)

    def found(strong: Tensor, sought: Tensor, shown: Tensor = shown) -> float:
        losses = hardening_losses(strong, taught[:1], taught, sought, shown=shown, least=least, temperature=0.1)
        return losses["found"].item()

    assert found(strong.flip(1), taught) == pytest.approx(found(strong, taught), abs=1e-6)
    hidden = shown.clone()
    hidden[:3, 3] = True
    other = taught.clone()
    other[3] = regions(3, 8, seed=9)
    shift = found(strong, other, hidden) - found(strong, taught, hidden)  # of the fourth row alone
    mine = [
        hardening_losses(
            strong[[3, 0, 1, 2]], taught[:1], taught, sought[[3, 0, 1, 2]], shown=torch.tensor(
                [[True, False, False, False], [True, True, False, False], [True, False, True, False],
                 [True, False, False, True]]),
            least=least, temperature=0.1,
        )["found"].item()
        for sought in (taught, other)
    ]  # fmt: skip
    assert shift == pytest.approx(mine[1] - mine[0], abs=1e-6)
    assert shift != 0


def test_chamfer_of_a_frame_with_itself_is_one() -> None:
    frames = regions(3, 4, 8, seed=5)
    for matrix in chamfer_both(frames, frames):
        assert torch.allclose(matrix.diagonal(), torch.ones(3), atol=1e-6)
        assert matrix.max() <= 1 + 1e-6


def test_losses_refuse_shapes_that_do_not_fit() -> None:
    frames = regions(3, 4, 8, seed=5)
    with pytest.raises(ShapeError, match=r"shown \[B, B\]"):
        hardening_losses(
            frames, frames, frames, frames, shown=torch.eye(2).bool(), least=torch.zeros(3, 3), temperature=1.0
        )


def test_turning() -> None:
    pictures = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4).repeat(20, 1, 1, 1)
    assert torch.equal(turn(pictures, share=0.0, seed=0), pictures)
    turned = turn(pictures, share=1.0, seed=0)
    quarters = [pictures.rot90(count, (2, 3)) for count in (1, 2, 3)]
    which = [[bool(torch.equal(turned[i], quarter[i])) for quarter in quarters] for i in range(len(pictures))]
    assert all(sum(row) == 1 for row in which)
    assert all(any(row[count] for row in which) for count in range(3))
    assert torch.equal(turned, turn(pictures, share=1.0, seed=0))
    assert not torch.equal(turned, turn(pictures, share=1.0, seed=1))


# --- runs ------------------------------------------------------------------------------------------------------------


class Tiny(Backbone):
    """Four convolutions."""

    name = "tiny"
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    stage_channels = (8, 8, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        strides = (4, 2, 2, 2)
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(3 if i == 0 else 8, 8, stride, stride=stride) for i, stride in enumerate(strides)
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in strides)

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            images = F.relu(norm(layer(images)))
            maps.append(images)
        return tuple(maps)


NOISY = ViewConfig(
    frames=1, size=112, weak_scale=(1.0, 1.0), strong_scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, randaugment_ops=0,
    text=0.0, emoji=0.0, blur=0.0, shuffle_dropout=0.0, fast_forward=0.0, slow_motion=0.0, reverse=0.0, pause=0.0,
    mixup=0.0, noise=1.0, noise_strength=(90.0, 90.0),
)  # fmt: skip


def setting(steps: int) -> HardeningConfig:
    return HardeningConfig(
        batch=12, frames=1, rate=3e-3, schedule=ScheduleConfig(steps=steps, warm_up=2, end=0.0), temperature=0.1,
        same=2.0, twin=2.0, turned=0.0, average=0.5, views=NOISY,
    )  # fmt: skip


def tiny() -> tuple[Backbone, Whitening]:
    torch.manual_seed(0)
    return Tiny().eval(), Whitening(torch.full((32,), 0.1), torch.eye(32)[:, :16])


def recognised(backbone: Backbone, whitening: Whitening, clips: ClipSet) -> float:
    """How much more alike a frame is to its noisy self than to the others, on average."""
    pictures = torch.stack([frames[0].permute(2, 0, 1) for frames in clips.frames])
    noise = 90 * torch.randn(pictures.shape, generator=torch.Generator().manual_seed(3))
    describe = describing(backbone, whitening, torch.float32)
    with torch.no_grad():
        matrix = chamfer_both(describe((pictures + noise).clamp(0, 255).to(torch.uint8)), describe(pictures))[0]
    others = (matrix.sum(1) - matrix.diagonal()) / (len(matrix) - 1)
    return float((matrix.diagonal() - others).mean())


def test_a_hardened_backbone_sees_through_noise_and_the_master_stays_as_it_was() -> None:
    backbone, whitening = tiny()
    before = copy.deepcopy(backbone.state_dict())
    clips = noise_clips(12, frames=2)
    seen: list[tuple[int, dict[str, float]]] = []
    hardened = harden(backbone, whitening, clips, setting(60), report=lambda *values: seen.append(values), every=25)
    assert [step for step, _ in seen] == [25, 50, 60]
    assert seen[-1][1]["found"] < seen[0][1]["found"]
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    for name, value in hardened.state_dict().items():
        if "running" in name:
            assert torch.equal(value, before[name])
    assert recognised(hardened, whitening, clips) > 1.3 * recognised(backbone, whitening, clips)


def test_the_same_seed_gives_the_same_backbone() -> None:
    backbone, whitening = tiny()
    clips = noise_clips(12, frames=2)
    one, two = (harden(backbone, whitening, clips, setting(4)).state_dict() for _ in range(2))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    other = harden(backbone, whitening, clips, dataclasses.replace(setting(4), seed=1)).state_dict()
    assert any(not torch.equal(value, other[name]) for name, value in one.items())


def test_a_second_stage_goes_on_from_the_first_with_look_alikes() -> None:
    backbone, whitening = tiny()
    clips = noise_clips(12, frames=3)
    first = harden(backbone, whitening, clips, setting(30))
    config = dataclasses.replace(setting(1), frames=2, alike=1.0, group=3, follow=True, rate=1e-9)
    second = harden(backbone, whitening, clips, config, start=first)
    for name, value in second.state_dict().items():
        assert torch.allclose(value.float(), first.state_dict()[name].float(), atol=1e-5)


def test_settings_and_material_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="frames <= batch"):
        HardeningConfig(batch=2, frames=3)
    with pytest.raises(ConfigError, match="one by one"):
        HardeningConfig(views=ViewConfig())
    with pytest.raises(ConfigError, match="turned is a share"):
        HardeningConfig(turned=1.5)
    backbone, whitening = tiny()
    with pytest.raises(DataError, match="two clips or more, got 1"):
        harden(backbone, whitening, noise_clips(1), setting(1))
    assert [stage.follow for stage in STAGES] == [False, True]
