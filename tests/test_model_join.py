"""Three converted parts become one model."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from hapvr.cli import main
from hapvr.conversion import convert
from hapvr.errors import WeightsError
from hapvr.features import Whitening
from hapvr.model import join_model, load, read_base_parts
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.training import load_config
from hapvr.training.run import save_trained
from hapvr.training.run_parts import build_network
from hapvr.video.sampling import SamplingConfig
from hapvr.weights import Part, part_names, save_parts
from tests import published

INPUTS = 24 + 40 + 112 + 1280  # channels of EfficientNet-Lite0's four stages


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A backbone, a whitening and a checkpoint as their projects publish them, converted one by one."""
    folder = tmp_path_factory.mktemp("parts")
    torch.manual_seed(0)
    tensors = published.attention() | published.psi("comparator_module")
    contents = {
        "backbone": {name: 0.05 * value for name, value in published.filled(published.efficientnet_lite0()).items()},
        "whitening": {"mean": torch.zeros(INPUTS), "d": torch.rand(INPUTS) + 0.1, "V": torch.eye(INPUTS)},
        "network": {"model": published.filled(tensors), "args": argparse.Namespace(v_topk_rate=0.06)},
    }
    for name, content in contents.items():
        torch.save(content, folder / f"{name}.pth")
        convert(folder / f"{name}.pth", folder / name)
    return {name: folder / name for name in contents}


def test_converted_parts_become_a_whole_model(parts: dict[str, Path], tmp_path: Path) -> None:
    join_model(parts["backbone"], parts["whitening"], parts["network"], tmp_path / "out")
    assert sorted(part_names(tmp_path / "out")) == ["backbone", "sampling", "segments", "similarity", "whitening"]
    model = load(tmp_path / "out")
    assert model.extractor.backbone.name == "efficientnet_lite0"
    assert (model.sampling.fps, model.sampling.at_least) == (1.0, 28)
    network = VideoSimilarity.from_pretrained(parts["network"])
    assert model.similarity.config == replace(SimilarityConfig(), temporal_keep_rate=0.06) == network.config
    for name, tensor in network.state_dict().items():
        assert torch.equal(model.similarity.state_dict()[name], tensor)
    assert model.calibration is None
    assert model.judge is None


def test_a_model_taken_apart_and_joined_gives_the_same_scores(tmp_path: Path) -> None:
    lite = load("lite")
    join_model("lite", "lite", "lite", tmp_path / "out", sampling=lite.sampling, segments=lite.segments)
    joined = load(tmp_path / "out")
    pictures = torch.randint(0, 256, (3, 224, 224, 3), dtype=torch.uint8).numpy()
    one, other = (model.extractor(pictures) for model in (lite, joined))
    assert torch.equal(one, other)
    assert torch.equal(lite.similarity.score(one, one[1:]), joined.similarity.score(other, other[1:]))
    assert (joined.sampling, joined.segments) == (lite.sampling, lite.segments)


def test_an_untrained_form_can_be_a_part(tmp_path: Path) -> None:
    join_model("lite-untrained", "lite", "lite-untrained", tmp_path / "out")
    assert asdict(load(tmp_path / "out").similarity.config) == asdict(load("lite-untrained").similarity.config)


def test_training_takes_a_joined_model(parts: dict[str, Path], tmp_path: Path) -> None:
    join_model(parts["backbone"], parts["whitening"], parts["network"], tmp_path / "base")
    assert "similarity" not in read_base_parts(tmp_path / "base")
    words = [f"model.base={tmp_path / 'base'}", "similarity.dims=512", "similarity.temporal_keep_rate=0.06"]
    config = load_config("tiny", [*words, "similarity.projection=false", "similarity.residual=false"])
    network = build_network(config, load(tmp_path / "base"))
    save_trained(tmp_path / "trained", network, config)
    assert load(tmp_path / "trained").similarity.config == network.config


def test_parts_that_do_not_fit_are_refused(parts: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_parts(tmp_path / "small", {"whitening": Whitening(torch.zeros(7), torch.eye(7)).to_part()})
    VideoSimilarity(SimilarityConfig(dims=8)).save_pretrained(tmp_path / "eight")
    save_parts(tmp_path / "torn", {"backbone": Part({"name": "efficientnet_lite0"}, {})})
    with pytest.raises(WeightsError, match=f"for region vectors of 7 values; the backbone .* gives {INPUTS}"):
        join_model(parts["backbone"], tmp_path / "small", parts["network"], out)
    with pytest.raises(WeightsError, match=r"takes region vectors of 8 values; the whitening .* gives 512"):
        join_model(parts["backbone"], parts["whitening"], tmp_path / "eight", out)
    with pytest.raises(WeightsError, match="has no part 'whitening'; it has: similarity"):
        join_model(parts["backbone"], parts["network"], parts["network"], out)
    with pytest.raises(WeightsError, match="lacks"):
        join_model(tmp_path / "torn", parts["whitening"], parts["network"], out)
    assert not out.exists()
    join_model(parts["backbone"], parts["whitening"], parts["network"], out)
    with pytest.raises(WeightsError, match="already holds a model"):
        join_model(parts["backbone"], parts["whitening"], parts["network"], out)


def test_the_command_joins_and_says_so(
    parts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(parts[name]) for name in ("backbone", "whitening", "network")]
    with pytest.raises(SystemExit) as left:
        main(["model", "join", *words, str(tmp_path / "out"), "--min-frames", "0", "--json"])
    assert not left.value.code
    assert json.loads(capsys.readouterr().out)["folder"] == str(tmp_path / "out")
    assert load(tmp_path / "out").sampling == SamplingConfig(fps=1.0, at_least=0)
