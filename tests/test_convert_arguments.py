"""The training arguments in published checkpoints: which network comes out, and what is refused by name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hapvr.conversion import convert
from hapvr.errors import ConfigError, WeightsError
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from tests import published
from tests.similarity import reference

DIMS = 6
# What the authors' script passes for the published model (its options and their values).
PUBLISHED = {
    "similarity_network": "ViSiL", "backbone": "resnet", "dims": 512, "attention": True, "binarization": False,
    "binary_bits": 512, "f2f_sim_module": "TopKChamfer", "v2v_sim_module": "TopKChamfer", "f_topk_rate": 0.1,
    "v_topk_rate": 0.03, "iter_epochs": 30000, "window_sz": 28, "batch_sz": 64, "loss_selected": "QuadLinearAP",
    "lambda_viv": (0.3, 0.7), "gpu": 0, "rank": 0, "world_size": 2, "epochs": 20, "dist_url": "env://",
}  # fmt: skip


def attention(dims: int = DIMS) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(dims)
    return {
        "attention.transform.weight": torch.randn(dims, dims, generator=generator),
        "attention.transform.bias": torch.randn(dims, generator=generator),
        "attention.context_vector.weight": torch.randn(1, dims, generator=generator),
    }


def psi(head: str = "comparator_module") -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = published.psi(head)
    return {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def converted(folder: Path, model: Mapping[str, Tensor], args: Any, **options: Any) -> VideoSimilarity:
    content: dict[str, Any] = {"model": dict(model)} | ({} if args is None else {"args": args})
    torch.save(content, folder / "model.pth")
    convert(folder / "model.pth", folder / "out", **options)
    return VideoSimilarity.from_pretrained(folder / "out")


def small(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**(PUBLISHED | {"dims": DIMS} | changes))


def test_the_published_arguments_are_the_published_network(tmp_path: Path) -> None:
    model = converted(tmp_path, attention(512) | psi(), argparse.Namespace(**PUBLISHED))
    assert model.config == SimilarityConfig()
    (tmp_path / "bare").mkdir()
    assert converted(tmp_path / "bare", attention(512) | psi(), None).config == SimilarityConfig()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"v_topk_rate": 0.06}, {"temporal_keep_rate": 0.06}),
        ({"f_topk_rate": 0.3, "v_topk_rate": 0.1}, {"spatial_keep_rate": 0.3, "temporal_keep_rate": 0.1}),
        ({"f2f_sim_module": "Chamfer"}, {"spatial": "chamfer"}),
        ({"v2v_sim_module": "Average"}, {"temporal": "average"}),
        ({"f2f_sim_module": "Max", "v2v_sim_module": "Max"}, {"spatial": "max", "temporal": "max"}),
        (
            {"symmetric": True},  # their symmetric TopK does not pass its rate on: .3 whatever is asked for
            {"symmetry": "levels", "spatial_keep_rate": 0.3, "temporal_keep_rate": 0.3},
        ),
        (
            {"symmetric": True, "v2v_sim_module": "Chamfer"},
            {"symmetry": "levels", "spatial_keep_rate": 0.3, "temporal": "chamfer"},
        ),
    ],
)
def test_arguments_change_the_network(tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    model = converted(tmp_path, attention() | psi(), small(**changes))
    assert model.config == SimilarityConfig(**({"dims": DIMS} | expected))


def test_networks_without_attention_and_with_codes_are_told_by_arguments_and_by_tensors(tmp_path: Path) -> None:
    rotation = {"binarization.W": torch.randn(DIMS, 16)}
    cases: list[tuple[dict[str, Tensor], Any, dict[str, Any]]] = [
        ({}, small(attention=False), {"weighting": "none"}),
        (rotation, small(attention=False, binarization=True), {"weighting": "binary", "bits": 16}),
        (rotation, None, {"weighting": "binary", "bits": 16}),
        (attention(), None, {"weighting": "attention"}),
    ]
    for number, (tensors, args, expected) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        model = converted(tmp_path / str(number), tensors | psi(), args)
        assert model.config == SimilarityConfig(**({"dims": DIMS} | expected))
    (tmp_path / "s2vs").mkdir()
    model = converted(
        tmp_path / "s2vs", rotation | psi("visil_head"), argparse.Namespace(binarization=True, attention=False)
    )
    chamfer = {"spatial": "chamfer", "temporal": "chamfer", "min_frames": 4}
    assert model.config == SimilarityConfig(dims=DIMS, weighting="binary", bits=16, **chamfer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{}, {"f_topk_rate": 0.5, "v_topk_rate": 0.5}, {"f2f_sim_module": "Average", "v2v_sim_module": "Max"}]
)
def test_scores_of_a_converted_checkpoint_agree_with_a_loop(tmp_path: Path, changes: dict[str, Any]) -> None:
    weights = attention() | psi()
    args = small(**changes)
    model = converted(tmp_path, weights, args)
    generator = torch.Generator().manual_seed(2)
    query, target = (
        torch.nn.functional.normalize(torch.randn(t, 4, DIMS, generator=generator), dim=-1) for t in (9, 17)
    )
    W, b, u = (
        weights[f"attention.{name}"].tolist()
        for name in ("transform.weight", "transform.bias", "context_vector.weight")
    )
    described = [
        [[reference.attend(x, W, b, u[0]) for x in frame] for frame in video.tolist()] for video in (query, target)
    ]
    kinds = {"TopKChamfer": "topk", "Average": "average", "Max": "max"}
    matrix = reference.frame_matrix(described[0], described[1], kinds[args.f2f_sim_module], args.f_topk_rate)
    head = "comparator_module"
    layers = [
        (weights[f"{head}.{name}.weight"].tolist(), weights[f"{head}.{name}.bias"].tolist())
        for name in ("conv1", "conv2", "conv3", "fconv")
    ]
    cut = reference.hardtanh(reference.psi(matrix, layers))
    expected = reference.aggregate(cut, kinds[args.v2v_sim_module], args.v_topk_rate)
    assert model.score(query, target).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (small(temporal_heads=4, zoom=2), r"does not know: temporal_heads, zoom\. .*--ignore-arg"),
        (small(mlp=True), "mlp=True, and hapvr has mlp=False alone"),
        (small(batch_norm=True), "batch_norm=True"),
        (small(attention_norm=True), "attention_norm=True"),
        (small(similarity_network="ViSiL2"), "similarity_network='ViSiL2'"),
        (small(backbone="dino"), "backbone='dino'"),
        (small(f2f_sim_module="TopKChamfr"), "f2f_sim_module='TopKChamfr', .* did you mean 'TopKChamfer'"),
        (small(v_topk_rate=3), "v_topk_rate=3; a number from 0 to 1"),
        (small(v_topk_rate=True), "v_topk_rate=True"),
        (small(dims=0), "dims=0; a whole number from 1"),
        (small(attention="yes"), "attention='yes'; true or false"),
        (small(binarization=True), "attention and binarisation at once"),
        (small(attention=False), "has in surplus 3 tensors"),
        (small(dims=7), r"attention\.transform\.weight \[6, 6\] instead of \[7, 7\]"),
        ([1, 2], "holds a list as 'args'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, args: Any, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        converted(tmp_path, attention() | psi(), args)
    assert not (tmp_path / "out").exists()


def test_an_argument_can_be_ignored_by_name_unless_it_is_the_networks(tmp_path: Path) -> None:
    args = small(comment="first try")
    assert converted(tmp_path, attention() | psi(), args, ignored_args=["comment"]).config.dims == DIMS
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="'v_topk_rate' says which network this is"):
        converted(tmp_path / "other", attention() | psi(), args, ignored_args=["v_topk_rate"])
    torch.save({"proj": torch.eye(512)}, tmp_path / "itq.pth")
    with pytest.raises(ConfigError, match="of the kind itq has no training arguments"):
        convert(tmp_path / "itq.pth", tmp_path / "itq", ignored_args=["comment"])


def test_arguments_may_be_a_plain_table(tmp_path: Path) -> None:
    assert converted(tmp_path, attention() | psi(), {"v_topk_rate": 0.5}).config.temporal_keep_rate == 0.5
