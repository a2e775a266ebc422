"""The files that others publish, each kind turned into one part of a model folder (see `hapvr.weights`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from hapvr.backbones import build_empty_backbone
from hapvr.config import suggest
from hapvr.conversion import tfjs
from hapvr.conversion.arguments import read_settings
from hapvr.conversion.files import Contents, read_contents, require_tensors
from hapvr.errors import ConfigError, WeightsError
from hapvr.features import Whitening
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.storage import StrPath
from hapvr.weights import CONFIG, Part, load_strict, save_parts

# Checkpoints of these kinds keep their training arguments beside the weights.
NAMESPACE_KINDS = frozenset({"hap-vr", "s2vs", "dns", "dino"})
NETWORK_KINDS = ("hap-vr", "s2vs", "dns")  # of these, the arguments say which network it is
WHITENED_DIMS = 512
EIGENVALUE_FLOOR = 1e-7


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote."""

    kind: str  # of the source
    parts: tuple[str, ...]
    tensors: int
    destination: Path


def convert(
    source: StrPath,
    destination: StrPath,
    *,
    kind: str | None = None,
    ignored_args: Collection[str] = (),
    dims: int | None = None,
) -> Converted:
    """Turn another project's weight file into a model folder, strictly: every tensor is accounted for.

    Args:
        source: The file as its project publishes it; see `hapvr.conversion.KINDS`.
        destination: The folder to write; one that already holds a model is refused.
        kind: What the file is, where its contents should not decide.
        ignored_args: Arguments in a checkpoint of a similarity network that do not change it. Its other arguments are
            read: one that is not known is refused.
        dims: How many of the largest eigenvalues of a whitening are kept; 512 as the published networks take.
    """
    path, folder = Path(source), Path(destination)
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"There is no kind {kind!r} of weight file; {suggest(str(kind), list(KINDS))}")
    if not path.is_file():
        raise WeightsError(f"'{path}' is {'a folder, not a weight file' if path.is_dir() else 'not there'}.")
    if (folder / CONFIG).exists():
        raise WeightsError(f"'{folder}' already holds a model. Give another folder, or remove that one first.")
    contents = read_contents(path, namespace=kind is None or kind in NAMESPACE_KINDS)
    found = kind or recognise(contents)
    if contents.namespace and found not in NAMESPACE_KINDS:
        raise WeightsError(
            f"{contents.source} keeps an argparse.Namespace, which is accepted in checkpoints of the kinds "
            f"{', '.join(sorted(NAMESPACE_KINDS))} only; this is of the kind {found}. Save its bare state dict instead."
        )
    if ignored_args and found not in NETWORK_KINDS:
        raise ConfigError(f"a file of the kind {found} has no training arguments that could be ignored.")
    if dims is not None and (found != "whitening" or dims < 1):
        raise ConfigError(f"dims is a number from 1 for files of the kind whitening; got {dims} for one of {found}.")
    name, part = KINDS[found](replace(contents, ignored_args=frozenset(ignored_args), dims=dims))
    try:
        save_parts(folder, {name: part})
    except OSError as error:
        raise WeightsError(f"'{folder}' cannot be written: {error.strerror or error}.") from error
    return Converted(found, (name,), len(part.tensors), folder)


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
            return "s2vs" if "args" in values else "dns"
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


def _convert_backbone(name: str, contents: Contents) -> tuple[str, Part]:
    return _make_backbone(name, contents.tensors(), contents.source)


def _convert_timm(contents: Contents) -> tuple[str, Part]:
    """timm's resnet50 (torchvision's names) or vit_small_patch16_224.dino (DINO's names)."""
    return _convert_dino(contents) if "cls_token" in contents.values else _convert_backbone("resnet50", contents)


def _convert_tfjs(contents: Contents) -> tuple[str, Part]:
    if contents.container != "tfjs":
        raise WeightsError(f"{contents.source} is no tarball with a TensorFlow.js model.")
    tensors = tfjs.to_resnet50_v1(contents.values["weights"], contents.values["layers"], source=contents.source)
    return _make_backbone("resnet50_v1", tensors, contents.source)


def _convert_dino(contents: Contents) -> tuple[str, Part]:
    """The backbone alone. Of a full checkpoint the teacher is taken, the network that DINO itself evaluates.

    Only there a head is expected, the projection that DINO trains with, and left out; a classifier's head in another
    file says that the file is no DINO backbone.
    """
    values, source = contents.values, contents.source
    role = next((role for role in ("teacher", "student") if role in values), None)
    if role is not None:
        values, source = values[role], f"the {role} in {source}"
    tensors = {
        name.removeprefix("module.").removeprefix("backbone."): tensor
        for name, tensor in require_tensors(values, source=source).items()
    }
    if role is not None:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}
    return _make_backbone("vit_small16", tensors, source)


def _make_backbone(name: str, tensors: dict[str, Tensor], source: str) -> tuple[str, Part]:
    backbone = build_empty_backbone(name)
    for key in backbone.state_dict():
        if key.endswith("num_batches_tracked"):  # a counter for training that older files do not have
            tensors.setdefault(key, torch.tensor(0))
    return "backbone", Part({"name": name}, _fit(backbone, tensors, source))


# --- the similarity network -------------------------------------------------------------------------------------------

_CHAMFER = SimilarityConfig(weighting="attention", spatial="chamfer", temporal="chamfer", min_frames=4)
_BINARY = replace(_CHAMFER, weighting="binary", bits=512)


def _convert_itq(contents: Contents) -> tuple[str, Part]:
    """Codes of the public ITQ rotation without psi: nothing in it was trained by similarity."""
    names = {"proj": "binarization.projection"}
    tensors = {names.get(name, name): tensor for name, tensor in contents.tensors().items()}
    config = replace(_BINARY, comparator=False)
    return "similarity", Part(asdict(config), _fit(VideoSimilarity(config), tensors, contents.source))


def _convert_network(usual: SimilarityConfig, head: str, contents: Contents) -> tuple[str, Part]:
    """A training checkpoint whose comparator's tensors begin with `head`; `usual` are the published settings.

    Of DnS's students, S_a weighs regions by attention and S_b binarises them: the tensors tell.
    """
    if not isinstance(model := contents.values.get("model"), Mapping):
        raise WeightsError(f"{contents.source} has no table 'model'; a training checkpoint was expected.")
    tensors = {
        _rename(name.removeprefix("module."), head): tensor
        for name, tensor in require_tensors(model, source=contents.source).items()
    }
    config = read_settings(
        contents.values.get("args"), tensors, usual, source=contents.source, ignored=contents.ignored_args
    )
    return "similarity", Part(asdict(config), _fit(VideoSimilarity(config), tensors, contents.source))


def _rename(name: str, head: str) -> str:
    if name == "attention.context_vector.weight":
        return "attention.context.weight"
    if name == "binarization.W":
        return "binarization.projection"  # both [D, bits]: the public code multiplies x W
    if name.startswith(head):
        return "comparator." + name.removeprefix(head).replace("fconv.", "final.")
    return name


# --- whitening --------------------------------------------------------------------------------------------------------


def _convert_whitening(contents: Contents) -> tuple[str, Part]:
    """The public PCA: the largest eigenvalues, which it does not keep in order, and their eigenvectors."""
    tensors, source, dims = contents.tensors(), contents.source, contents.dims or WHITENED_DIMS
    if sorted(tensors) != ["V", "d", "mean"]:
        raise WeightsError(f"{source} should hold 'mean', 'd' and 'V'; it holds {', '.join(tensors) or 'nothing'}.")
    mean, values, vectors = tensors["mean"].flatten(), tensors["d"].flatten(), tensors["V"]
    inputs = len(mean)
    if inputs < dims or values.shape != (inputs,) or vectors.shape != (inputs, inputs):
        raise WeightsError(
            f"{source} should hold mean [D], d [D] and V [D, D] with D of at least {dims}; it holds "
            f"{list(tensors['mean'].shape)}, {list(tensors['d'].shape)} and {list(vectors.shape)}."
        )
    _require_floats(tensors, source)
    _require_finite(tensors, source)
    top = values.double().argsort(descending=True)[:dims]
    scale = values.double()[top] + EIGENVALUE_FLOOR
    if scale.min() <= 0:
        raise WeightsError(f"{source} has negative eigenvalues among its {dims} largest: it is no covariance.")
    projection = vectors[:, top].double() / scale.sqrt()  # [D_in, dims]
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


KINDS: dict[str, Callable[[Contents], tuple[str, Part]]] = {
    "torchvision-resnet50": partial(_convert_backbone, "resnet50"),
    "timm": _convert_timm,
    "tfjs-resnet50": _convert_tfjs,
    "efficientnet-lite0": partial(_convert_backbone, "efficientnet_lite0"),
    "dino": _convert_dino,
    "hap-vr": partial(_convert_network, SimilarityConfig(), "comparator_module."),
    "s2vs": partial(_convert_network, _CHAMFER, "visil_head."),
    "dns": partial(_convert_network, _CHAMFER, "visil_head."),
    "whitening": _convert_whitening,
    "itq": _convert_itq,
}
"""What a file may be -> the name of the part of a model that it becomes, and the part."""
