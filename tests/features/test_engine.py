"""The engines that run a backbone: the same region vectors from each."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.backbones import EfficientNetLite0, ResNet50
from hapvr.errors import ConfigError
from hapvr.features import engine as engine_module
from hapvr.features import extract_regions
from hapvr.features.engine import (
    EngineError,
    OpenVinoEngine,
    TorchEngine,
    choose_engine,
    describe_engine,
    find_openvino,
    pad_batch,
)
from hapvr.features.extractor import RegionExtractor
from hapvr.features.regions import join_pooled
from hapvr.model import Model, load
from hapvr.synthetic.films import draw_scene
from hapvr.video.sampling import SamplingConfig

CPU = torch.device("cpu")
SMALL = SamplingConfig(fps=1, at_least=3, short_side=112, crop=112)
# Where pyproject.toml asks for OpenVINO, it is there.
needs_openvino = pytest.mark.skipif(
    find_openvino() is None and platform.machine() not in ("x86_64", "AMD64"),
    reason="OpenVINO is not installed on this platform",
)


def draw_pictures(count: int, side: int) -> Tensor:
    """Frames of `count` drawn scenes, uint8 [count, side, side, 3]."""
    scenes = [draw_scene(seed, seconds=1, fps=1, size=(side, side)).images[:1] for seed in range(count)]
    return torch.from_numpy(np.concatenate(scenes))


@pytest.fixture(scope="module")
def lite() -> Model:
    return load("lite", engine="torch")


@pytest.fixture(scope="module")
def engine(lite: Model) -> OpenVinoEngine:
    return OpenVinoEngine(lite.extractor.backbone, side=112, precision=torch.float32)


def remove_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)


# --- the same vectors ------------------------------------------------------------------------------------------------


@needs_openvino
@pytest.mark.parametrize("side", [112, 224])
def test_openvino_gives_the_regions_of_torch(lite: Model, side: int) -> None:
    backbone, pictures = lite.extractor.backbone, draw_pictures(5, side)
    with torch.no_grad():
        right = extract_regions(backbone, pictures.permute(0, 3, 1, 2) / 255)
    exact = OpenVinoEngine(backbone, side=side, precision=torch.float32)
    torch.testing.assert_close(join_pooled(exact(pictures)), right, atol=1e-5, rtol=0)


@needs_openvino
def test_half_precision_is_as_close_as_that_of_torch(lite: Model) -> None:
    backbone, pictures = lite.extractor.backbone, draw_pictures(8, 224)
    engines = [TorchEngine(backbone, precision=dtype) for dtype in (torch.float32, torch.bfloat16)]
    with torch.no_grad():
        right, usual = (join_pooled(engine(pictures)) for engine in engines)
    found = join_pooled(OpenVinoEngine(backbone, side=224, precision=torch.bfloat16)(pictures))
    loss, usual_loss = (1 - F.cosine_similarity(regions, right, dim=-1).mean() for regions in (found, usual))
    assert loss < 0.01
    assert loss < 1.5 * usual_loss + 1e-4


@needs_openvino
def test_openvino_gives_the_regions_of_torch_with_a_resnet() -> None:
    backbone, pictures = ResNet50(stride_on="1x1").eval(), draw_pictures(2, 112)
    found = OpenVinoEngine(backbone, side=112, precision=torch.float32)
    right = TorchEngine(backbone, precision=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(join_pooled(found(pictures)), join_pooled(right(pictures)), atol=1e-5, rtol=0)


@needs_openvino
def test_a_picture_has_the_same_regions_in_every_batch(engine: OpenVinoEngine) -> None:
    pictures = draw_pictures(11, 112)
    alone = torch.cat([join_pooled(engine(picture[None])) for picture in pictures])
    order = torch.tensor([7, 2, 9, 0, 10, 5, 1, 8, 3, 6, 4])
    for count in (2, 4, 5, 11):
        some = order[:count]
        torch.testing.assert_close(join_pooled(engine(pictures[some])), alone[some], atol=1e-6, rtol=0)


@needs_openvino
def test_threads_that_share_an_engine_do_not_disturb_each_other(engine: OpenVinoEngine) -> None:
    batches = torch.split(draw_pictures(24, 112), 3)
    one_by_one = [join_pooled(engine(batch)) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: join_pooled(engine(batch)), batches))
    torch.testing.assert_close(together, one_by_one, atol=1e-6, rtol=0)


@needs_openvino
def test_pictures_of_an_engine_need_not_lie_in_order(engine: OpenVinoEngine) -> None:
    pictures = draw_pictures(3, 112)
    turned = pictures.transpose(1, 2)  # a view
    torch.testing.assert_close(join_pooled(engine(turned)), join_pooled(engine(turned.contiguous())))


@needs_openvino
def test_scores_and_digest_are_the_same_by_either_engine(lite: Model) -> None:
    """Libraries that one engine made are searched by the other."""
    other = load("lite", engine="openvino")
    assert (lite.extractor.engine, other.extractor.engine) == ("torch", "openvino")
    assert other.extractor.digest() == lite.extractor.digest()
    films = [draw_scene(seed, seconds=4, fps=2, size=(224, 224)).images for seed in (1, 2)]
    films.append(films[0][::-1, :, ::-1].copy())
    by_torch, by_openvino = ([model.extractor(film) for film in films] for model in (lite, other))
    network = lite.similarity
    with torch.no_grad():
        for a in range(len(films)):
            for b in range(len(films)):
                right = float(network.score(by_torch[a], by_torch[b]))
                for first, second in ((by_openvino, by_openvino), (by_openvino, by_torch)):
                    assert abs(float(network.score(first[a], second[b])) - right) < 0.005


# --- which engine runs -----------------------------------------------------------------------------------------------


@needs_openvino
def test_other_sizes_are_described_by_torch(lite: Model) -> None:
    extractor = RegionExtractor(lite.extractor.backbone, sampling=SMALL, precision=torch.float32, engine="openvino")
    pictures = draw_pictures(2, 128)
    with torch.no_grad():
        right = extract_regions(extractor.backbone, pictures.permute(0, 3, 1, 2) / 255)
    torch.testing.assert_close(extractor.regions(pictures), right, atol=1e-5, rtol=0)
    assert extractor.regions(draw_pictures(1, 112)).shape == (1, 9, 1456)
    assert extractor.engine == "openvino"


def test_torch_runs_where_openvino_is_not_installed(lite: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_openvino(monkeypatch)
    extractor = RegionExtractor(lite.extractor.backbone, sampling=SMALL, engine="auto")
    assert extractor.engine == "torch"
    assert extractor(draw_pictures(1, 112).numpy()).shape == (1, 9, 1456)
    assert "OpenVINO is not installed" in describe_engine("auto")
    with pytest.raises(ConfigError, match="pip install openvino"):
        load("lite", engine="openvino")


@needs_openvino
def test_torch_takes_over_from_an_openvino_that_cannot_be_imported(
    lite: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("a library is missing")

    monkeypatch.setattr(engine_module, "_import_openvino", fail)
    extractor = RegionExtractor(lite.extractor.backbone, sampling=SMALL, precision=torch.float32, engine="auto")
    assert extractor.engine == "openvino"
    with pytest.warns(RuntimeWarning, match=r"cannot run efficientnet_lite0 here: a library is missing\. torch runs"):
        found = extractor.regions(pictures := draw_pictures(2, 112))
    assert extractor.engine == "torch"
    plain = RegionExtractor(extractor.backbone, sampling=SMALL, precision=torch.float32, engine="torch")
    assert torch.equal(found, plain.regions(pictures))
    strict = RegionExtractor(extractor.backbone, sampling=SMALL, engine="openvino")
    with pytest.raises(ConfigError, match="a library is missing"):
        strict.regions(pictures)


@needs_openvino
def test_an_engine_with_wrong_maps_is_refused(lite: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = engine_module._PooledStages(EfficientNetLite0().eval()).requires_grad_(False)  # other weights
    make = engine_module._make_graph
    monkeypatch.setattr(engine_module, "_make_graph", lambda openvino, _, side: make(openvino, wrong, side))
    with pytest.raises(EngineError, match="differ from those of torch"):
        OpenVinoEngine(lite.extractor.backbone, side=112, precision=torch.bfloat16)


def test_the_engine_is_chosen_by_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    best = "openvino" if find_openvino() else "torch"
    monkeypatch.delenv("HAPVR_ENGINE", raising=False)
    assert choose_engine(None, CPU) == choose_engine("auto", CPU) == best
    monkeypatch.setenv("HAPVR_ENGINE", "torch")
    assert choose_engine(None, CPU) == "torch"
    assert choose_engine("auto", CPU) == best
    monkeypatch.setenv("HAPVR_ENGINE", "openvno")
    with pytest.raises(ConfigError, match="HAPVR_ENGINE cannot be 'openvno'; did you mean 'openvino'"):
        choose_engine(None, CPU)


@needs_openvino
def test_openvino_is_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="runs on a CPU, not on cuda"):
        choose_engine("openvino", torch.device("cuda"))
    monkeypatch.setenv("HAPVR_ENGINE", "openvino")
    assert choose_engine(None, torch.device("cuda")) == "torch"


@needs_openvino
def test_nothing_is_reported_over_the_network() -> None:
    """Importing OpenVINO alone starts a process that sends a message; here nothing looks up or calls a host."""
    program = (
        "import socket, subprocess, multiprocessing.process as process, sys\n"
        "def refuse(*arguments, **settings): print('CALLED', arguments, flush=True); raise OSError\n"
        "socket.getaddrinfo = socket.socket.connect = subprocess.Popen.__init__ = process.BaseProcess.start = refuse\n"
        "import torch\n"
        "from hapvr.backbones import EfficientNetLite0\n"
        "from hapvr.features.engine import OpenVinoEngine\n"
        "OpenVinoEngine(EfficientNetLite0().eval(), side=112, precision=torch.float32)\n"
        "import openvino.tools.ovc.telemetry_utils as utils\n"
        "print(utils.tm.__name__, 'openvino_telemetry' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == ["openvino.tools.ovc.telemetry_stub", "False"], run.stderr


def test_batches_that_are_filled_up_give_the_same_maps_in_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    backbone = EfficientNetLite0().eval()
    plain = TorchEngine(backbone, precision=torch.float32)
    padded = TorchEngine(backbone, precision=torch.float32, full_batch=16)
    sizes, stages = [], padded._stages

    def run(pictures: Tensor) -> Sequence[Tensor]:
        sizes.append(len(pictures))
        return stages(pictures)

    monkeypatch.setattr(padded, "_stages", run)
    pictures = torch.randint(0, 256, (18, 112, 112, 3), dtype=torch.uint8)
    for count in (1, 7, 9, 15, 16, 18):
        for expected, found in zip(plain(pictures[:count]), padded(pictures[:count]), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert sizes == [8, 8, 16, 16, 16, 48]


def test_batches_are_filled_up_to_few_sizes_and_never_cut() -> None:
    for compiled, most in ((False, 8), (True, 2)):
        lengths = [pad_batch(count, 512, compiled=compiled) for count in range(1, 512 + 32)]
        assert all(length >= count for count, length in enumerate(lengths, 1))
        assert len(set(lengths)) == most
