from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from hapvr.backbones import Backbone, ViTSmall16, normalize
from hapvr.errors import ConfigError, DataError, ShapeError, WeightsError
from hapvr.features import Whitening, extract_regions
from hapvr.model import Model, load
from hapvr.training import ClipSource, Encoder, ViewConfig, build_teacher
from hapvr.training.config import DataConfig, TeacherConfig
from hapvr.training.step import NOTHING
from hapvr.weights import Part, save_parts
from tests.training.toy import noise_clips

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Model:
    return load()


def encoder(model: Model, teacher: object = "backbone", micro_batch: int = 512) -> Encoder:
    whitening = model.extractor.whitening
    assert whitening is not None
    return Encoder(
        model.extractor.backbone, whitening, teacher, device=CPU, micro_batch=micro_batch  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    clips = noise_clips(2, frames=3)
    return torch.stack(clips.frames).permute(0, 1, 4, 2, 3).contiguous()  # uint8 [2, 3, 3, 112, 112]


def test_regions_and_frames_are_those_of_the_model(model: Model, pictures: Tensor) -> None:
    encoded = encoder(model)(pictures)
    flat = pictures.flatten(0, 1).float() / 255
    backbone, whitening = model.extractor.backbone, model.extractor.whitening
    with torch.no_grad():
        regions = extract_regions(backbone, flat, whitening)
        last = backbone.stages(normalize(flat, backbone))[-1]
    assert encoded.regions.shape == (2, 3, 9, 512)
    torch.testing.assert_close(encoded.regions.flatten(0, 1), regions, rtol=0, atol=1e-4)
    assert encoded.frames is not None
    torch.testing.assert_close(encoded.frames.flatten(0, 1), last.mean(dim=(2, 3)), rtol=1e-4, atol=1e-4)


def test_micro_batches_and_number_types_change_nothing(model: Model, pictures: Tensor) -> None:
    whole, parts = encoder(model)(pictures), encoder(model, micro_batch=4)(pictures.float() / 255)
    torch.testing.assert_close(parts.regions, whole.regions, rtol=0, atol=1e-4)
    torch.testing.assert_close(parts.frames, whole.frames, rtol=1e-4, atol=1e-4)
    assert encoder(model, teacher=None)(pictures).frames is None


def test_the_backbone_that_was_given_stays_as_it_is(model: Model, pictures: Tensor) -> None:
    before = {name: tensor.clone() for name, tensor in model.extractor.backbone.state_dict().items()}
    whitening = model.extractor.whitening
    assert whitening is not None
    half = Encoder(model.extractor.backbone, whitening, device=CPU, dtype=torch.bfloat16)(pictures)
    after = model.extractor.backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(
        torch.equal(before[name], tensor) and tensor.dtype == before[name].dtype for name, tensor in after.items()
    )
    assert half.regions.dtype == torch.float32
    whole = encoder(model)(pictures).regions
    assert (half.regions * whole).sum(-1).min() > 0.95  # cosines


class Upside(Backbone):
    """A backbone whose first normalisation comes before the convolution it is listed after: it cannot be folded."""

    name, stage_channels = "upside", (3, 3, 3, 3)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)
        torch.nn.init.uniform_(self.norm.running_mean, 1, 2)  # type: ignore[arg-type]

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        x = self.conv(self.norm(images))
        return tuple(torch.nn.functional.avg_pool2d(x, stride) for stride in (4, 8, 16, 32))


def test_a_backbone_that_cannot_be_folded_is_used_as_it_is(pictures: Tensor) -> None:
    torch.manual_seed(0)
    backbone, whitening = Upside().eval(), Whitening(torch.zeros(12), torch.eye(12))
    expected = extract_regions(backbone, pictures.flatten(0, 1).float() / 255, whitening)
    for dtype, error in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        regions = Encoder(backbone, whitening, device=CPU, dtype=dtype)(pictures).regions.flatten(0, 1)
        torch.testing.assert_close(regions, expected, rtol=0, atol=error)
        assert backbone.conv.weight.dtype == torch.float32


def test_regions_that_are_not_finite_are_refused_once_for_all_micro_batches(model: Model, pictures: Tensor) -> None:
    broken = pictures.float() / 255
    broken[1, 2, 0, 5, 5] = torch.nan
    with pytest.raises(DataError, match="pooled regions holds"):
        encoder(model, micro_batch=2)(broken)
    unchecked = encoder(model, micro_batch=2)(broken, check=False).regions
    assert torch.isnan(unchecked[1, 2]).any()
    assert torch.isfinite(unchecked[0]).all()


def test_a_network_as_the_teacher(model: Model, pictures: Tensor) -> None:
    torch.manual_seed(0)
    network = ViTSmall16().eval()
    frames = encoder(model, teacher=network)(pictures[:1, :1]).frames
    with torch.no_grad():
        expected = network(normalize(pictures[0, :1].float() / 255, network))
    assert frames is not None
    torch.testing.assert_close(frames[0], expected, rtol=1e-4, atol=1e-4)


def test_pictures_that_do_not_fit_are_refused(model: Model, pictures: Tensor) -> None:
    with pytest.raises(ShapeError, match="at least 112"):
        encoder(model)(pictures[..., :100])
    with pytest.raises(ConfigError, match="teacher must be"):
        encoder(model, teacher="dino")


def test_dino_is_read_from_its_file_and_from_a_converted_folder(tmp_path: Path) -> None:
    network = ViTSmall16()
    torch.save(network.state_dict(), tmp_path / "dino.pth")
    save_parts(tmp_path / "dino", {"backbone": Part({"name": "vit_small16"}, network.state_dict())})
    for weights in ("dino.pth", "dino"):
        teacher = build_teacher(TeacherConfig(kind="vit_small16", weights=str(tmp_path / weights)))
        assert isinstance(teacher, ViTSmall16)
        assert torch.equal(teacher.cls_token, network.cls_token)
    with pytest.raises(WeightsError, match="not there"):
        build_teacher(TeacherConfig(kind="vit_small16", weights=str(tmp_path / "nowhere.pth")))
    assert build_teacher(TeacherConfig()) == "backbone"


def test_another_network_is_no_dino(model: Model, tmp_path: Path) -> None:
    tensors = model.extractor.backbone.state_dict()
    save_parts(tmp_path / "other", {"backbone": Part({"name": "efficientnet_lite0"}, tensors)})
    with pytest.raises(ConfigError, match="holds a efficientnet_lite0"):
        build_teacher(TeacherConfig(kind="vit_small16", weights=str(tmp_path / "other")))


def test_clips_become_a_batch(model: Model) -> None:
    views = ViewConfig(frames=4, size=112, mixup=1.0)
    clips = noise_clips(5, frames=2)  # shorter than a view: their frames are repeated
    source = ClipSource(clips, encoder(model), DataConfig(batch=3), views=views, seed=0)
    one, two = source.batch(1), source.batch(1)
    assert one.regions.shape == (6, 4, 9, 512)
    assert one.frames is not None
    assert torch.equal(one.regions, two.regions)
    assert one.contents[:3, 0].tolist() == one.contents[:3].amax(1).tolist()
    assert ((one.contents[3:] == one.contents[:3, :1]).any(1)).all()
    assert (one.contents[3:] != NOTHING).sum() > 3  # hosts
    with pytest.raises(DataError, match="5 videos, fewer than a batch of 6"):
        ClipSource(clips, encoder(model), DataConfig(batch=6), views=views, seed=0)
