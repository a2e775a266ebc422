"""The parts of a model on disk: where its folder is, what it holds, and its form before it was trained."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hapvr import weights
from hapvr.config import from_mapping, suggest
from hapvr.errors import WeightsError
from hapvr.features.whitening import Whitening
from hapvr.model.backbone_changes import apply_changes
from hapvr.model.fetching import Origin, read_cached
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.storage import StrPath, sha256_bytes, sha256_tensors

SHIPPED = Path(__file__).parents[1] / "models"  # package data
PARTS = ("backbone", "whitening", "similarity", "sampling", "segments")
CALIBRATION = "calibration"  # a part that a model may lack
JUDGE = "judge"  # another
INT8 = "int8"  # another: how the backbone's 1 x 1 convolutions are rounded
BEFORE = "untrained"  # another: network, segments and changed tensors of the backbone before anything was learnt
HARDENED = "hardened"  # another: how a backbone was hardened, in models of an earlier version
UNTRAINED = f"-{BEFORE}"  # behind a name: that model, with the same whitening and the backbone as it was
_OLD_SEGMENT_KEYS = {
    "rival": "max_rival_gap", "price": "skip_cost", "drop": "max_drop", "least_gain": "min_gain",
    "least_frames": "min_frames", "most_speed": "max_speed", "most": "max_segments",
}  # fmt: skip


def list_model_names() -> list[str]:
    """The names that `load` knows."""
    return sorted(path.name for path in SHIPPED.iterdir() if (path / weights.CONFIG).is_file())


def read_parts(name_or_folder: StrPath) -> tuple[Path, bool, dict[str, weights.Part]]:
    """The folder of a model, whether it is meant as it was trained, and its parts as they are meant."""
    folder, trained = find_folder(name_or_folder)
    parts = read_whole_parts(folder)
    return folder, trained, parts if trained else take_untrained(parts, folder)


def make_network(part: weights.Part, folder: Path) -> VideoSimilarity:
    """The similarity network of its part; `folder` is named if the tensors do not fit."""
    network = VideoSimilarity(from_mapping(SimilarityConfig, part.config))
    weights.load_strict(network, to_float32(part).tensors, source=f"'{folder}'")
    return network


def make_whitening(part: weights.Part, network: VideoSimilarity) -> Whitening:
    """The whitening of its part, with the projection that the network has learnt within it."""
    whitening = Whitening.from_part(to_float32(part))
    if network.projection is None:
        return whitening
    return whitening.followed_by(network.projection.matrix().detach())


def digest_region_weights(parts: Mapping[str, weights.Part]) -> str:
    """The sha256 of the stored tensors that region vectors depend on: backbone, whitening, learnt projection.

    A backbone that is fetched counts by the checksum of its origin.
    """
    origin = read_origin(parts)
    fetched = "" if origin is None else repr(sorted(dataclasses.asdict(origin).items()))
    network = parts["similarity"].tensors
    projection = {name: tensor for name, tensor in network.items() if name.startswith("projection.")}
    stored = (parts["backbone"].tensors, parts["whitening"].tensors, projection)
    return sha256_bytes((fetched + "".join(sha256_tensors(tensors) for tensors in stored)).encode())


def take_untrained(parts: Mapping[str, weights.Part], folder: Path) -> dict[str, weights.Part]:
    """The parts of the model before anything was learnt."""
    if BEFORE not in parts:
        raise WeightsError(f"'{folder}' holds no untrained form of its model. Take it without '{UNTRAINED}'.")
    before, backbone = parts[BEFORE], parts["backbone"]
    kept = {name: part for name, part in parts.items() if name not in (BEFORE, CALIBRATION, JUDGE, INT8, HARDENED)}
    own = backbone.tensors if read_origin(parts) is None else {}  # else they are what training changed
    kept["backbone"] = weights.Part(backbone.config, {**own, **before.tensors})
    return kept | {name: weights.Part(dict(before.config[name]), {}) for name in ("similarity", "segments")}


def find_model_folder(name_or_folder: StrPath) -> Path:
    """The folder of a model, which is given by the name of an included model or by the folder itself."""
    return find_folder(name_or_folder)[0]


def find_folder(name_or_folder: StrPath) -> tuple[Path, bool]:
    """The folder of a model, and whether it is meant as it was trained."""
    name = os.fspath(name_or_folder)
    for known, trained in ((name, True), (name.removesuffix(UNTRAINED), False)):
        folder = SHIPPED / known if known in list_model_names() else Path(known)
        if folder.is_dir():
            return folder, trained
    names = list_model_names()
    raise WeightsError(
        f"There is no model '{name}' here; {suggest(name, [*names, *(name + UNTRAINED for name in names)])}"
    )


def load_whole_parts(folder: Path) -> dict[str, weights.Part]:
    """All parts of a model, with the names of settings that its file has."""
    parts = weights.load_parts(folder)
    if missing := [part for part in PARTS if part not in parts]:
        raise WeightsError(f"'{folder}' is no whole model: it lacks {', '.join(missing)}.")
    return parts


def read_whole_parts(folder: Path) -> dict[str, weights.Part]:
    """All parts of a model; settings of segments that have names of an earlier version get their present ones."""
    parts = load_whole_parts(folder)
    parts["segments"] = weights.Part(_rename_segment_keys(parts["segments"].config), parts["segments"].tensors)
    if BEFORE in parts:
        before = parts[BEFORE]
        config = {**before.config, "segments": _rename_segment_keys(before.config["segments"])}
        parts[BEFORE] = weights.Part(config, before.tensors)
    return parts


def _rename_segment_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return {_OLD_SEGMENT_KEYS.get(name, name): value for name, value in config.items()}


def read_origin(parts: Mapping[str, weights.Part]) -> Origin | None:
    """Where the backbone is fetched from; None where the folder holds it."""
    named = parts["backbone"].config.get("origin")
    if named is None:
        return None
    blank = {field.name: "" for field in dataclasses.fields(Origin)}  # what is left out is refused, not a crash
    return from_mapping(Origin, blank | named if isinstance(named, dict) else named)


def read_backbone_tensors(parts: Mapping[str, weights.Part], name: StrPath) -> tuple[Mapping[str, Tensor], str | None]:
    """The backbone's tensors, and where they came from if not from the model's folder.

    Of a backbone that was fetched, the folder holds what was trained since.
    """
    origin = read_origin(parts)
    if origin is None:
        return parts["backbone"].tensors, None
    remedy = f"run `hapvr model get {os.fspath(name)}`"
    try:
        tensors = read_cached(origin)
    except WeightsError as error:
        raise WeightsError(f"{error} To do so, {remedy}.") from error
    if tensors is None:
        raise WeightsError(
            f"The model '{os.fspath(name)}' does not carry its backbone ({origin.package} {origin.version}) and it has "
            f"not been fetched yet: {remedy}."
        )
    return apply_changes(tensors, parts["backbone"].tensors), f"'{origin.cached}'"


def to_float32(part: weights.Part) -> weights.Part:
    """The part with floating-point tensors in float32."""
    tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in part.tensors.items()}
    return weights.Part(part.config, tensors)
