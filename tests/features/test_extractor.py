from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hapvr.backbones import EfficientNetLite0, ResNet50, ViTSmall16
from hapvr.errors import ConfigError, NoVideoError, ShapeError
from hapvr.features import Whitening, extract_regions
from hapvr.features.extractor import RegionExtractor
from hapvr.features.folding import fold_batch_norms
from hapvr.records import Frames
from hapvr.storage import sha256_bytes, sha256_tensors
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.threads import map_threads, one_torch_thread, torch_thread_pool

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def lived_in(network: nn.Module) -> nn.Module:
    """With statistics and scales such as training leaves them, so that normalisation does something."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.bias, 0, 0.2, generator=generator)
    return network


@pytest.fixture(scope="module")
def small() -> RegionExtractor:
    torch.manual_seed(0)
    backbone = EfficientNetLite0()
    lived_in(backbone)
    return RegionExtractor(
        backbone, sampling=SamplingConfig(fps=1, at_least=3, short_side=112, crop=112), precision=torch.float32
    )


def noise(count: int, height: int = 112, width: int = 112) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def test_pictures_are_cropped_to_their_centre_and_described(small: RegionExtractor) -> None:
    images = noise(3, 120, 160)
    centre = torch.from_numpy(images[:, 4:116, 24:136]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = extract_regions(small.backbone, centre)
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)


def test_the_digest_sees_backbone_whitening_and_sampling_but_not_the_rate(small: RegionExtractor) -> None:
    def digest(whitening: Whitening | None = None, **sampling: int) -> str:
        settings = {"fps": 1, "at_least": 3, "short_side": 112, "crop": 112} | sampling
        return RegionExtractor(copy.deepcopy(small.backbone), whitening, sampling=SamplingConfig(**settings)).digest()

    by_hand = "[('at_least', 3), ('crop', 112), ('short_side', 112)]" + sha256_tensors(small.backbone.state_dict())
    assert digest() == digest(fps=2) == sha256_bytes(by_hand.encode())  # as libraries on disk have it
    others = [digest(at_least=4), digest(Whitening(torch.zeros(1456), torch.ones(1456, 8)))]
    assert len({digest(), *others}) == 3


def test_regions_are_whitened(small: RegionExtractor) -> None:
    whitening = Whitening(torch.randn(1456) / 100, torch.randn(1456, 8))
    whitened = RegionExtractor(small.backbone, whitening, sampling=small.sampling, precision=torch.float32)
    torch.testing.assert_close(whitened(noise(2)), whitening(small(noise(2))), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_and_threads_change_nothing(
    small: RegionExtractor, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    images = noise(9)
    whole = torch.cat([small(images[index : index + 1]) for index in range(9)])
    monkeypatch.setattr(small, "batch", 4)
    monkeypatch.setattr(small, "threads", lambda: threads)
    torch.testing.assert_close(small(images), whole, atol=1e-5, rtol=1e-4)


def test_threads_are_single_and_restored() -> None:
    before = torch.get_num_threads()
    with torch_thread_pool(2) as pool:
        assert list(pool.map(lambda _: torch.get_num_threads(), range(4))) == [1] * 4
    assert torch.get_num_threads() == before
    assert map_threads(lambda number: number * number, [1, 2, 3], 2) == [1, 4, 9]


def test_torch_has_one_thread_within_and_its_own_number_again_after() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_torch_thread() as threads:
            assert (threads, torch.get_num_threads()) == (3, 1)
            assert map_threads(lambda _: torch.get_num_threads(), [1, 2, 3], threads) == [1, 1, 1]
            assert torch.get_num_threads() == 1  # a pool restores what it found
        assert torch.get_num_threads() == 3
        with suppress(ConfigError), one_torch_thread():
            raise ConfigError("an error changes nothing about that")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_half_precision_is_close(small: RegionExtractor) -> None:
    images = draw_scene(3, seconds=1, fps=3, size=(112, 112)).images
    half = RegionExtractor(small.backbone, sampling=small.sampling, precision=torch.bfloat16)
    alike = torch.nn.functional.cosine_similarity(half(images), small(images), dim=-1)
    assert alike.min() > 0.99


def test_small_pictures_are_enlarged(small: RegionExtractor) -> None:
    assert small(np.zeros((1, 40, 90, 3), np.uint8)).shape == (1, 9, 1456)


# --- folding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [EfficientNetLite0, ResNet50])
def test_a_folded_backbone_gives_the_same_maps_without_normalisation(build: type[ResNet50 | EfficientNetLite0]) -> None:
    backbone = build().eval()
    lived_in(backbone)
    state = copy.deepcopy(backbone.state_dict())
    plain = fold_batch_norms(backbone)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
    images = torch.randn(1, 3, 113, 127)
    with torch.no_grad():
        for expected, got in zip(backbone.stages(images), plain.stages(images), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-4 * expected.abs().max().item(), rtol=1e-3)
    assert all(torch.equal(state[name], value) for name, value in backbone.state_dict().items())


class Reversed(EfficientNetLite0):
    """Normalises before it convolves: not what the order of its parts says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.then = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def stages(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return super().stages(self.first(self.then(images)))


def test_a_backbone_that_cannot_be_folded_is_left_as_it_is() -> None:
    backbone = Reversed().eval()
    lived_in(backbone)
    assert fold_batch_norms(backbone) is backbone


# --- parts of a video ------------------------------------------------------------------------------------------------


def test_a_part_of_a_file_is_the_same_whether_it_is_read_or_taken(tmp_path: Path) -> None:
    """Of a part that is long enough at the usual rate, the same frames are taken as of the whole file."""
    write_clip(draw_scene(0, seconds=9, size=(112, 160)), tmp_path / "a.mp4")
    torch.manual_seed(0)
    sampling = SamplingConfig(fps=4, at_least=0, short_side=112, crop=112)
    extractor = RegionExtractor(EfficientNetLite0(), sampling=sampling, precision=torch.float32, batch=4)
    whole = extractor.extract_file(tmp_path / "a.mp4")
    assert whole.duration_s == pytest.approx(9, abs=0.2)
    part = extractor.extract_file(tmp_path / "a.mp4", start_s=3.1, end_s=6.4)
    taken = whole.features.between(3.1, 6.4)
    assert len(taken) == 13
    assert np.array_equal(part.features.times, taken.times)
    torch.testing.assert_close(part.features.regions, taken.regions, atol=1e-5, rtol=0)
    with pytest.raises(NoVideoError, match=r"a\.mp4' has no frame between 8\.97 s and its end"):
        extractor.extract_file(tmp_path / "a.mp4", start_s=8.97)


def test_features_keep_times_and_flags(small: RegionExtractor) -> None:
    flags = np.array([False, True])
    frames = Frames(noise(2), np.array([0.0, 0.5]), flags, duration_s=1.0, fps=2.0, source_size=(112, 112))
    features = small.features(frames)
    assert features.timestamps is frames.timestamps
    assert features.low_information is flags


def test_bad_pictures_and_settings_are_refused(small: RegionExtractor) -> None:
    with pytest.raises(ShapeError, match=r"uint8 \[T, H, W, 3\]"):
        small(np.zeros((2, 3, 224, 224), np.uint8))
    with pytest.raises(ShapeError, match="float32"):
        small(torch.zeros(2, 224, 224, 3))
    with pytest.raises(ConfigError, match="precision"):
        RegionExtractor(small.backbone, precision=torch.float64)
    with pytest.raises(ConfigError, match="has no stages"):
        RegionExtractor(ViTSmall16())
    with pytest.raises(ConfigError, match="fps > 0"):
        SamplingConfig(fps=0)
