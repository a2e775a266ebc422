"""The files that others publish, each kind turned into one part of a model folder (see `hapvr.weights`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from hapvr.backbones import empty_backbone
from hapvr.conversion import tfjs
from hapvr.conversion.files import Contents, tensors_of
from hapvr.errors import WeightsError
from hapvr.features import Whitening
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.weights import Part, load_strict

Converter = Callable[[Contents], tuple[str, Part]]

# Checkpoints of these kinds keep their training arguments beside the weights; they are read and left out.
NAMESPACE_KINDS = frozenset({"hap-vr", "s2vs", "dns", "dino"})
WHITENED_DIMS = 512
EIGENVALUE_FLOOR = 1e-7


def recognise(contents: Contents) -> str:
    """The kind of a file by what it holds."""
    values = contents.values
    if contents.container == "tfjs":
        return "tfjs-resnet50"
    if isinstance(model := values.get("model"), Mapping):
        heads = {str(name).removeprefix("module.").split(".")[0] for name in model}
        if "comparator_module" in heads:
            return "hap-vr"
        if "visil_head" in heads:
            return "s2vs" if "args" in values and "binarization" not in heads else "dns"
    for marks, kind in (
        (("mean", "d", "V"), "whitening"),
        (("proj",), "itq"),
        (("teacher",), "dino"),
        (("student",), "dino"),
        (("_conv_stem.weight",), "efficientnet-lite0"),
        (("cls_token",), "timm" if contents.container == "safetensors" else "dino"),
        (("layer1.0.conv1.weight",), "timm" if contents.container == "safetensors" else "torchvision-resnet50"),
    ):
        if all(mark in values for mark in marks):
            return kind
    few = ", ".join(str(name) for name in list(values)[:5])
    raise WeightsError(
        f"{contents.source} is of no kind that hapvr converts (it begins: {few or 'nothing'}). "
        f"If it is one of {', '.join(KINDS)}, say which by --kind to see what does not fit."
    )


# --- backbones --------------------------------------------------------------------------------------------------------


def _torchvision(contents: Contents) -> tuple[str, Part]:
    return _backbone("resnet50", tensors_of(contents.values, source=contents.source), contents.source)


def _timm(contents: Contents) -> tuple[str, Part]:
    """timm's resnet50 (torchvision's names) or vit_small_patch16_224.dino (DINO's names)."""
    return _dino(contents) if "cls_token" in contents.values else _torchvision(contents)


def _efficientnet(contents: Contents) -> tuple[str, Part]:
    return _backbone("efficientnet_lite0", tensors_of(contents.values, source=contents.source), contents.source)


def _tfjs(contents: Contents) -> tuple[str, Part]:
    if contents.container != "tfjs":
        raise WeightsError(f"{contents.source} is no tarball with a TensorFlow.js model.")
    tensors = tfjs.to_resnet50_v1(contents.values["weights"], contents.values["layers"], source=contents.source)
    return _backbone("resnet50_v1", tensors, contents.source)


def _dino(contents: Contents) -> tuple[str, Part]:
    """The backbone alone. Of a full checkpoint the teacher is taken, the network that DINO itself evaluates.

    Only there a head is expected, the projection that DINO trains with, and left out; a classifier's head in another
    file says that the file is no DINO backbone.
    """
    values, source = contents.values, contents.source
    role = next((role for role in ("teacher", "student") if role in values), None)
    if role is not None:
        values, source = values[role], f"the {role} in {source}"
    tensors = _without_prefix(_without_prefix(tensors_of(values, source=source), "module."), "backbone.")
    if role is not None:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}
    return _backbone("vit_small16", tensors, source)


def _backbone(name: str, tensors: dict[str, Tensor], source: str) -> tuple[str, Part]:
    backbone = empty_backbone(name)
    for key in backbone.state_dict():
        if key.endswith("num_batches_tracked"):  # a counter for training that older files do not have
            tensors.setdefault(key, torch.tensor(0))
    return "backbone", Part({"name": name}, _fit(backbone, tensors, source))


# --- the similarity network -------------------------------------------------------------------------------------------


def _hap_vr(contents: Contents) -> tuple[str, Part]:
    return _similarity(contents, SimilarityConfig(), head="comparator_module.")


def _s2vs(contents: Contents) -> tuple[str, Part]:
    return _similarity(contents, _chamfer_config(), head="visil_head.")


def _dns(contents: Contents) -> tuple[str, Part]:
    """The fine-grained students: S_a weighs regions by attention, S_b binarises them."""
    model = contents.values.get("model")
    binary = isinstance(model, Mapping) and any("binarization." in str(name) for name in model)
    config = _chamfer_config(weighting="binary", bits=512) if binary else _chamfer_config()
    return _similarity(contents, config, head="visil_head.")


def _itq(contents: Contents) -> tuple[str, Part]:
    """Codes of the public ITQ rotation without psi: nothing in it was trained by similarity."""
    names = {"proj": "binarization.projection"}
    tensors = {names.get(name, name): tensor for name, tensor in _tensors(contents).items()}
    config = _chamfer_config(weighting="binary", bits=512, comparator=False)
    return "similarity", Part(asdict(config), _fit(VideoSimilarity(config), tensors, contents.source))


def _similarity(contents: Contents, config: SimilarityConfig, *, head: str) -> tuple[str, Part]:
    if not isinstance(model := contents.values.get("model"), Mapping):
        raise WeightsError(f"{contents.source} has no table 'model'; a training checkpoint was expected.")
    tensors = _without_prefix(tensors_of(model, source=contents.source), "module.")
    renamed = {_our_name(name, head): tensor for name, tensor in tensors.items()}
    return "similarity", Part(asdict(config), _fit(VideoSimilarity(config), renamed, contents.source))


def _our_name(name: str, head: str) -> str:
    if name == "attention.context_vector.weight":
        return "attention.context.weight"
    if name == "binarization.W":
        return "binarization.projection"  # both [D, bits]: the public code multiplies x W
    if name.startswith(head):
        return "comparator." + name.removeprefix(head).replace("fconv.", "final.")
    return name


def _chamfer_config(
    *, weighting: Any = "attention", bits: int | None = None, comparator: bool = True
) -> SimilarityConfig:
    return SimilarityConfig(
        weighting=weighting, bits=bits, comparator=comparator, spatial="chamfer", temporal="chamfer", min_frames=4
    )


# --- whitening --------------------------------------------------------------------------------------------------------


def _whitening(contents: Contents) -> tuple[str, Part]:
    """The public PCA: the 512 largest eigenvalues, which it does not keep in order, and their eigenvectors."""
    tensors, source = _tensors(contents), contents.source
    if sorted(tensors) != ["V", "d", "mean"]:
        raise WeightsError(f"{source} should hold 'mean', 'd' and 'V'; it holds {', '.join(tensors) or 'nothing'}.")
    mean, values, vectors = tensors["mean"].flatten(), tensors["d"].flatten(), tensors["V"]
    inputs = len(mean)
    if inputs < WHITENED_DIMS or values.shape != (inputs,) or vectors.shape != (inputs, inputs):
        raise WeightsError(
            f"{source} should hold mean [D], d [D] and V [D, D] with D of at least {WHITENED_DIMS}; it holds "
            f"{list(tensors['mean'].shape)}, {list(tensors['d'].shape)} and {list(vectors.shape)}."
        )
    _require_floats(tensors, source)
    _require_finite(tensors, source)
    top = values.double().argsort(descending=True)[:WHITENED_DIMS]
    scale = values.double()[top] + EIGENVALUE_FLOOR
    if scale.min() <= 0:
        raise WeightsError(f"{source} has negative eigenvalues among its {WHITENED_DIMS} largest: it is no covariance.")
    projection = vectors[:, top].double() / scale.sqrt()  # [D_in, 512]
    return "whitening", Whitening(mean.float(), projection.float()).to_part()


# --- shared -----------------------------------------------------------------------------------------------------------


def _fit(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The tensors in the module's own types, once they fit it strictly and are finite numbers."""
    load_strict(module, tensors, source=source)  # first: after it no shape is a surprise
    floats = {name for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    _require_floats({name: tensors[name] for name in floats}, source)
    loaded = module.state_dict()
    _require_finite(loaded, source)
    return loaded


def _require_floats(tensors: Mapping[str, Tensor], source: str) -> None:
    if wrong := sorted(name for name, tensor in tensors.items() if not tensor.is_floating_point()):
        raise WeightsError(f"{source} holds whole numbers where weights were expected ({', '.join(wrong[:5])}).")


def _require_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    if wrong := sorted(name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())):
        raise WeightsError(
            f"{source} has NaN or infinite values in {len(wrong)} tensors ({', '.join(wrong[:5])}). The file is "
            "damaged, or its training diverged."
        )


def _tensors(contents: Contents) -> dict[str, Tensor]:
    return tensors_of(contents.values, source=contents.source)


def _without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Names without a wrapper's prefix; names that never had it (a projection head's) stay as they are."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


KINDS: dict[str, Converter] = {
    "torchvision-resnet50": _torchvision,
    "timm": _timm,
    "tfjs-resnet50": _tfjs,
    "efficientnet-lite0": _efficientnet,
    "dino": _dino,
    "hap-vr": _hap_vr,
    "s2vs": _s2vs,
    "dns": _dns,
    "whitening": _whitening,
    "itq": _itq,
}
