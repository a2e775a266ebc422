"""Keras' ImageNet ResNet-50 (v1) as TensorFlow.js packs it: `model.json` and binary shards in an npm tarball.

The mapping onto `ResNet50(stride_on="1x1")` is exact but for rounding:

- a convolution's bias b moves into its batch norm: running_mean = moving_mean - b;
- the batch norms' epsilon e moves into the variance: running_var = moving_variance + e - 1e-5. The published file
  declares e = 0.001, an old default of Keras; the weights were trained with about 1e-5 and are used with Keras' later
  1.001e-5: with it the variances measured on photographs stay by the stored ones through all layers (0.98 of them
  behind the last blocks), with 0.001 they fall away (0.88);
- Keras is fed BGR in 0..255 less Caffe's mean pixel, our v1 network RGB (x - mean) / std with that same mean pixel:
  the first kernel's input channels are reversed and scaled by 255 std. Both pad with zeros after normalising;
- Keras pads the max-pooling with zeros, torch with minus infinity: the same, since a ReLU comes before it.
"""

from __future__ import annotations

import gzip
import json
import math
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import torch
from torch import Tensor

from hapvr.backbones.base import IMAGENET_STD
from hapvr.errors import WeightsError

TARBALL_LIMIT = 512 << 20  # bytes unpacked; the published one takes 103 MB
JSON_LIMIT = 8 << 20  # bytes of model.json; the published one takes 0.1 MB
_KERAS_EPS, _TORCH_EPS = 1.001e-5, 1e-5
_BATCH_NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


class _Limited:
    """Reads a stream up to a limit: a few kilobytes can unpack to terabytes."""

    def __init__(self, stream: gzip.GzipFile, source: str) -> None:
        self.stream, self.source, self.left = stream, source, TARBALL_LIMIT

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise WeightsError(f"{self.source} unpacks to more than {TARBALL_LIMIT >> 20} MB. Refused.")
        return data


def read_tarball(file: BinaryIO, *, source: str) -> dict[str, Any]:
    """Read "weights" (name -> tensor) and "layers" (name -> Keras settings) from a gzipped tarball, in memory."""
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            members = dict(_read_members(_Limited(stream, source), source))
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise WeightsError(f"{source} is a damaged tarball: {error}. Download it again.") from error
    models = [name for name in members if PurePosixPath(name).name == "model.json"]
    if len(models) != 1:
        raise WeightsError(
            f"{source} holds {len(models)} files named model.json; a tarball with one TensorFlow.js model was expected."
        )
    folder = PurePosixPath(models[0]).parent
    shards = {
        str(PurePosixPath(name).relative_to(folder)): data for name, data in members.items() if _lies_in(name, folder)
    }
    try:
        model = json.loads(members[models[0]])
        pairs = list(_cut_weights(model["weightsManifest"], shards, source))
        layers = [layer["config"] for layer in model["modelTopology"]["model_config"]["config"]["layers"]]
        if len(dict(pairs)) < len(pairs):
            raise WeightsError(f"model.json in {source} names a tensor twice.")
        return {"weights": dict(pairs), "layers": {layer["name"]: layer for layer in layers}}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"model.json in {source} is not a Keras layers model of TensorFlow.js ({type(error).__name__}: {error})."
        ) from error


def to_resnet50_v1(weights: Mapping[str, Tensor], layers: Mapping[str, Any], *, source: str) -> dict[str, Tensor]:
    """Tensors under torchvision's names from those under Keras' names (`res2a_branch2a/kernel`, ...)."""
    _require_v1(layers, source)
    left = dict(weights)
    out: dict[str, Tensor] = {}
    for conv, norm, keras_conv, keras_norm in _layer_names():
        _convert_conv(left, out, (conv, norm), (keras_conv, keras_norm))
    if (dense := left.pop("fc1000/kernel", None)) is not None:
        out["fc.weight"] = dense.T  # [2048, 1000] -> [1000, 2048]
    if (bias := left.pop("fc1000/bias", None)) is not None:
        out["fc.bias"] = bias
    first = out.get("conv1.weight")
    if first is not None and first.shape[1] == 3:
        out["conv1.weight"] = first.flip(1) * (255 * torch.tensor(IMAGENET_STD, dtype=first.dtype))[:, None, None]
    return {name: tensor.contiguous() for name, tensor in out.items()} | left


def _convert_conv(
    left: dict[str, Tensor], out: dict[str, Tensor], ours: tuple[str, str], keras: tuple[str, str]
) -> None:
    """Move one convolution and its batch norm from `left` to `out`; what is not there is left for the strict check."""
    (conv, norm), (keras_conv, keras_norm) = ours, keras
    kernel = left.pop(f"{keras_conv}/kernel", None)
    if kernel is not None and kernel.ndim == 4:
        out[f"{conv}.weight"] = kernel.permute(3, 2, 0, 1)  # [h, w, in, out] -> [out, in, h, w]
    for theirs, name in _BATCH_NORM.items():
        if (value := left.pop(f"{keras_norm}/{theirs}", None)) is not None:
            out[f"{norm}.{name}"] = value
    bias = left.get(f"{keras_conv}/bias")
    mean = out.get(f"{norm}.running_mean")
    if bias is not None and mean is not None and bias.shape == mean.shape:
        out[f"{norm}.running_mean"] = mean - left.pop(f"{keras_conv}/bias")
    if (variance := out.get(f"{norm}.running_var")) is not None:
        out[f"{norm}.running_var"] = (variance.double() + (_KERAS_EPS - _TORCH_EPS)).to(variance.dtype)


def _layer_names() -> Iterator[tuple[str, str, str, str]]:
    """(our conv, our norm, Keras' conv, Keras' norm) of every convolution: layer2.0.conv1 is res3a_branch2a."""
    yield "conv1", "bn1", "conv1", "bn_conv1"
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for i in range(blocks):
            block, keras = f"layer{stage}.{i}", f"{stage + 1}{'abcdef'[i]}_branch"
            if i == 0:
                yield f"{block}.downsample.0", f"{block}.downsample.1", f"res{keras}1", f"bn{keras}1"
            for j, letter in enumerate("abc", start=1):
                yield f"{block}.conv{j}", f"{block}.bn{j}", f"res{keras}2{letter}", f"bn{keras}2{letter}"


def _require_v1(layers: Mapping[str, Any], source: str) -> None:
    for stage in "345":
        layer = layers.get(f"res{stage}a_branch2a")
        strides = layer.get("strides") if isinstance(layer, Mapping) else None
        if strides != [2, 2]:
            raise WeightsError(
                f"{source} is not Keras' ResNet-50 v1: res{stage}a_branch2a should have strides [2, 2], not {strides}."
            )


def _read_members(stream: _Limited, source: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of the model's files; everything else in the tarball is skipped."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]  # it needs only read()
        for member in tar:
            name = PurePosixPath(member.name).name
            if not member.isreg() or not (name == "model.json" or name.endswith(".bin")):
                continue
            if member.size > (JSON_LIMIT if name == "model.json" else TARBALL_LIMIT):
                raise WeightsError(f"{member.name} in {source} claims {member.size} bytes. Refused.")
            data = tar.extractfile(member)
            content = b"" if data is None else data.read()
            if len(content) != member.size:
                raise WeightsError(f"{source} ends within {member.name}. Download it again.")
            yield member.name, content


def _lies_in(name: str, folder: PurePosixPath) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".bin" and folder in path.parents and ".." not in path.parts


def _cut_weights(manifest: Any, shards: Mapping[str, bytes], source: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of every group: its shards laid end to end, cut in the order of its list."""
    for group in manifest:
        if missing := [path for path in group["paths"] if path not in shards]:
            raise WeightsError(f"{source} lacks {len(missing)} of its shards ({', '.join(map(str, missing[:5]))}).")
        data = b"".join(shards[path] for path in group["paths"])
        sizes = [_count_values(entry, source) for entry in group["weights"]]
        if 4 * sum(sizes) != len(data):
            raise WeightsError(
                f"the shards of {source} hold {len(data)} bytes, model.json describes {4 * sum(sizes)}. "
                "Download it again."
            )
        values = torch.frombuffer(bytearray(data), dtype=torch.float32) if data else torch.empty(0)
        for entry, chunk in zip(group["weights"], torch.split(values, sizes), strict=True):
            yield entry["name"], chunk.view(entry["shape"]).clone()


def _count_values(entry: Mapping[str, Any], source: str) -> int:
    shape, dtype = entry["shape"], entry["dtype"]
    if dtype != "float32" or "quantization" in entry:
        raise WeightsError(f"{entry['name']} in {source} is {dtype} or quantised; only plain float32 is read.")
    if not all(isinstance(size, int) and size >= 1 for size in shape):
        raise WeightsError(f"{entry['name']} in {source} has the impossible shape {shape}.")
    return math.prod(shape)
