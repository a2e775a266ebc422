"""Write model folders: a whole model, one joined from parts, one that was trained further, its calibration or judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hapvr import weights
from hapvr.backbones import Backbone, build_empty_backbone
from hapvr.errors import WeightsError
from hapvr.features.int8_convolutions import Int8Rounding
from hapvr.features.whitening import Whitening
from hapvr.judge.judge import Judge
from hapvr.model.backbone_changes import list_changes
from hapvr.model.fetching import Origin, halve, read_cached
from hapvr.model.parts import (
    BEFORE,
    CALIBRATION,
    INT8,
    JUDGE,
    find_folder,
    load_whole_parts,
    make_network,
    make_whitening,
    read_origin,
    read_whole_parts,
    take_untrained,
    to_float32,
)
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import Calibration
from hapvr.similarity.network import Symmetry
from hapvr.storage import StrPath
from hapvr.video.sampling import SamplingConfig

HALVED = ("backbone", "whitening")  # what `half` stores in float16


def read_base_parts(name_or_folder: StrPath) -> dict[str, weights.Part]:
    """The parts that a model trained on this one takes from it: all but the network and what was fitted afterwards.

    A projection that the base has learnt is within its whitening then, and there is no untrained form any more.
    """
    folder, trained = find_folder(name_or_folder)
    parts = read_whole_parts(folder)
    own = parts["similarity"]
    if not trained:
        parts = take_untrained(parts, folder) | {BEFORE: weights.Part(parts[BEFORE].config, {})}
    elif not own.tensors:
        parts[BEFORE] = _make_untrained_form(parts)
    elif (network := make_network(own, folder)).projection is not None:
        parts["whitening"] = make_whitening(parts["whitening"], network).to_part()
        parts.pop(BEFORE, None)
    return {name: part for name, part in parts.items() if name not in ("similarity", CALIBRATION, JUDGE, INT8)}


def make_trained_parts(
    name_or_folder: StrPath, similarity: VideoSimilarity, *, backbone: Backbone | None = None
) -> dict[str, weights.Part]:
    """The parts of a model after further training: its own, with a new network and, if one is given, a new backbone.

    The whitening stays as it was fitted: a projection that the model had learnt before and the one of `similarity`
    become one. The untrained form keeps the backbone that it had. There is no calibration, no judge and no rounding to
    int8: fit others.
    """
    source, trained = find_folder(name_or_folder)
    parts = read_whole_parts(source)
    if not trained:
        parts = take_untrained(parts, source) | {BEFORE: weights.Part(parts[BEFORE].config, {})}
    own = parts["similarity"]
    if BEFORE not in parts and not own.tensors:
        parts[BEFORE] = _make_untrained_form(parts)
    if backbone is not None:
        origin = read_origin(parts)
        if origin is None:
            _exchange_backbone(parts, backbone)
        else:
            parts["backbone"] = _list_changes(parts["backbone"].config, backbone, origin)
    earlier = make_network(own, source).projection
    config, tensors = similarity.config, {key: value.detach().cpu() for key, value in similarity.state_dict().items()}
    if earlier is not None:
        matrix = earlier.matrix().detach()
        if similarity.projection is not None:
            matrix = similarity.projection.matrix().detach().cpu() @ matrix
        config = dataclasses.replace(config, projection=True)
        tensors["projection.change.weight"] = matrix - torch.eye(len(matrix))
    parts["similarity"] = weights.Part(dataclasses.asdict(config), tensors)
    return {name: part for name, part in parts.items() if name not in (CALIBRATION, JUDGE, INT8)}


def _make_untrained_form(parts: Mapping[str, weights.Part]) -> weights.Part:
    """What is kept of a model whose network has learnt nothing, for the models that are trained on it."""
    return weights.Part({name: dict(parts[name].config) for name in ("similarity", "segments")}, {})


def _exchange_backbone(parts: dict[str, weights.Part], backbone: Backbone) -> None:
    """Put another backbone into the parts; what the untrained form needs of the old one goes with that."""
    old = parts["backbone"]
    tensors = backbone.state_dict()
    weights.load_strict(build_empty_backbone(str(old.config["name"])), tensors, source="the trained backbone")
    new = {name: tensor.detach().cpu().to(old.tensors[name].dtype) for name, tensor in tensors.items()}
    parts["backbone"] = weights.Part(old.config, new)
    if BEFORE in parts:
        changed = {name: tensor for name, tensor in old.tensors.items() if not torch.equal(tensor, new[name])}
        parts[BEFORE] = weights.Part(parts[BEFORE].config, changed | dict(parts[BEFORE].tensors))


def _list_changes(config: Mapping[str, Any], backbone: Backbone, origin: Origin) -> weights.Part:
    """The part "backbone" of a model that takes its backbone from elsewhere: what was changed there."""
    fetched = read_cached(origin)
    if fetched is None:
        raise WeightsError(f"{origin.package} {origin.version}, which this backbone was trained from, is not here.")
    new = backbone.state_dict()
    weights.load_strict(build_empty_backbone(str(config["name"])), new, source="the trained backbone")
    return weights.Part(config, list_changes(new, fetched))


def save_calibration(folder: StrPath, calibration: Calibration) -> Path:
    """Put a calibration into a model folder, in place of the one it may have; the other parts stay as they are."""
    return weights.save_parts(folder, load_whole_parts(Path(folder)) | {CALIBRATION: calibration.to_part()})


def save_symmetry(folder: StrPath, symmetry: Symmetry) -> Path:
    """Let a model's scores be symmetric in this way (`SimilarityConfig.symmetry`); all weights stay as they are.

    Its calibration is of the scores before: fit it again.
    """
    parts = load_whole_parts(Path(folder))
    part = parts["similarity"]
    config = {**part.config, "symmetry": symmetry}
    SimilarityConfig(**config)  # refuses what is no symmetry
    return weights.save_parts(folder, parts | {"similarity": dataclasses.replace(part, config=config)})


def save_judge(folder: StrPath, judge: Judge) -> Path:
    """Put a judge into a model folder, in place of the one it may have; the other parts stay as they are."""
    return weights.save_parts(folder, load_whole_parts(Path(folder)) | {JUDGE: judge.to_part()})


def save_rounding(folder: StrPath, rounding: Int8Rounding) -> Path:
    """Put how its backbone is rounded to int8 into a model folder; the other parts stay as they are.

    Region vectors belong to the same model as before: its digest does not change.
    """
    return weights.save_parts(folder, load_whole_parts(Path(folder)) | {INT8: rounding.to_part()})


def save_model(
    folder: StrPath,
    *,
    backbone: Backbone,
    whitening: Whitening,
    similarity: VideoSimilarity,
    sampling: SamplingConfig,
    segments: SegmentConfig,
    calibration: Calibration | None = None,
    half: bool = False,
    origin: Origin | None = None,
) -> Path:
    """Write a whole model into `folder`; `half` keeps kernels and matrices of backbone and whitening in float16.

    `origin` leaves the backbone out and names where it comes from instead; `load` then takes it from the cache. It must
    be that very backbone, or `WeightsError`. A calibration belongs to the model whose scores it was fitted on, to the
    sampling and weights as they were: leave it out when anything has changed.
    """
    if origin is not None:
        problem = f"This backbone is not {origin.package} {origin.version}"
        origin.require(halve(backbone.state_dict()), problem, "Save it with the model (origin=None).")
    config = {"name": backbone.name} | ({} if origin is None else {"origin": dataclasses.asdict(origin)})
    parts: dict[str, weights.Part] = {
        "backbone": weights.Part(config, backbone.state_dict() if origin is None else {}),
        "whitening": whitening.to_part(),
        "similarity": weights.Part(dataclasses.asdict(similarity.config), similarity.state_dict()),
        "sampling": weights.Part(dataclasses.asdict(sampling), {}),
        "segments": weights.Part(dataclasses.asdict(segments), {}),
    }
    if calibration is not None:
        parts[CALIBRATION] = calibration.to_part()
    if half:
        parts |= {name: weights.Part(parts[name].config, halve(parts[name].tensors)) for name in HALVED}
    return weights.save_parts(folder, parts)


def join_model(
    backbone: StrPath,
    whitening: StrPath,
    network: StrPath,
    folder: StrPath,
    *,
    sampling: SamplingConfig | None = None,
    segments: SegmentConfig | None = None,
) -> Path:
    """Write a whole model of three parts, each taken from a folder of `hapvr.conversion.convert` or from any model.

    Calibration and judge belong to the scores of one whole model: the new one has none.

    Args:
        backbone: where the part "backbone" is taken from.
        whitening: the same of "whitening"; it takes what the backbone gives.
        network: the same of "similarity"; it takes what the whitening gives.
        folder: the model to write; one that already holds a model is refused.
        sampling: how videos become pictures; at 1 frame a second by default, as the published networks were trained.
        segments: how matching stretches are found.
    """
    if (Path(folder) / weights.CONFIG).exists():
        raise WeightsError(f"'{folder}' already holds a model. Give another folder, or remove that one first.")
    sources = {"backbone": backbone, "whitening": whitening, "similarity": network}
    parts = {name: _read_named_part(source, name) for name, source in sources.items()}
    empty = build_empty_backbone(str(parts["backbone"].config["name"]))
    if read_origin(parts) is None:
        weights.load_strict(empty, parts["backbone"].tensors, source=f"'{backbone}'")
    given = sum(empty.stage_channels)
    fitted = Whitening.from_part(to_float32(parts["whitening"])).config
    if fitted.inputs != given:
        raise WeightsError(
            f"the whitening of '{whitening}' is for region vectors of {fitted.inputs} values; the backbone "
            f"{empty.name} of '{backbone}' gives {given or 'none'}."
        )
    dims = make_network(parts["similarity"], find_folder(network)[0]).config.dims
    if dims != fitted.outputs:
        raise WeightsError(
            f"the network of '{network}' takes region vectors of {dims} values; the whitening of '{whitening}' gives "
            f"{fitted.outputs}."
        )
    parts["sampling"] = weights.Part(dataclasses.asdict(sampling or SamplingConfig(fps=1.0)), {})
    parts["segments"] = weights.Part(dataclasses.asdict(segments or SegmentConfig()), {})
    return weights.save_parts(folder, parts)


def _read_named_part(name_or_folder: StrPath, name: str) -> weights.Part:
    """One part of a model, or of a folder that holds no more than that."""
    folder, trained = find_folder(name_or_folder)
    if trained:
        return weights.load_part(folder, name)
    return take_untrained(read_whole_parts(folder), folder)[name]
