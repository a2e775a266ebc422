"""A model in memory, loaded by its name or from its folder, and what can be said of one without loading it."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from hapvr import weights
from hapvr.backbones import build_empty_backbone
from hapvr.config import from_mapping
from hapvr.devices import AUTO, find_devices
from hapvr.errors import ConfigError, WeightsError
from hapvr.features.extractor import RegionExtractor
from hapvr.features.features import Features
from hapvr.features.int8_convolutions import Int8Rounding
from hapvr.judge.judge import Judge
from hapvr.model.fetching import TIMEOUT_S, Fetched, Origin, fetch, read_cached
from hapvr.model.parts import (
    CALIBRATION,
    INT8,
    JUDGE,
    UNTRAINED,
    digest_region_weights,
    find_folder,
    find_model_folder,
    list_model_names,
    make_network,
    make_whitening,
    read_backbone_tensors,
    read_origin,
    read_parts,
    read_whole_parts,
    take_untrained,
)
from hapvr.similarity import SegmentConfig, VideoSimilarity, pairwise
from hapvr.similarity.calibration import Calibration
from hapvr.storage import StrPath
from hapvr.video.sampling import SamplingConfig

DEFAULT = "lite"
# How a device is compared with the CPU: drawn pictures, and the largest differences of vectors (1 - cosine) and of
# similarities.
_PICTURES, _MAX_DISTANCE, _MAX_DIFFERENCE = 8, 1e-3, 5e-3


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


def is_shipped(name_or_folder: StrPath) -> bool:
    """Whether this is the name of an included model, trained or untrained, and not a folder."""
    return os.fspath(name_or_folder).removesuffix(UNTRAINED) in list_model_names()


def is_calibrated(name_or_folder: StrPath) -> bool:
    """Whether a model's scores come with probabilities, read from its description, without loading it."""
    folder, trained = find_folder(name_or_folder)
    return trained and CALIBRATION in weights.part_names(folder)


def read_judge(name_or_folder: StrPath) -> Judge | None:
    """The judge of a model, if it has one, read from its description, without loading the rest."""
    folder, trained = find_folder(name_or_folder)
    config = weights.read_part_config(folder, JUDGE) if trained else None
    return None if config is None else Judge.from_part(weights.Part(config, {}))


def read_model_info(name_or_folder: StrPath = DEFAULT) -> ModelInfo:
    """Whether a model is complete, and its size; a damaged backbone in the cache counts as missing."""
    folder = find_model_folder(name_or_folder)
    origin = read_origin(read_whole_parts(folder))
    size, complete = (folder / weights.TENSORS).stat().st_size, origin is None
    with contextlib.suppress(WeightsError):
        if origin is not None and read_cached(origin) is not None:
            size, complete = size + origin.cached.stat().st_size, True
    return ModelInfo(folder.name, folder, folder == find_model_folder(DEFAULT), complete, size, origin)


def get_model(
    name_or_folder: StrPath,
    *,
    file: StrPath | None = None,
    timeout_s: float = TIMEOUT_S,
    say: Callable[[str], None] | None = None,
) -> Fetched | None:
    """Download the backbone if the model does not include it; returns None if it does. See `model.fetching.fetch`."""
    origin = read_origin(read_whole_parts(find_model_folder(name_or_folder)))
    if origin is not None:
        return fetch(origin, file=file, timeout_s=timeout_s, say=say or (lambda _: None))
    if file is not None:
        raise WeightsError(f"'{name_or_folder}' carries its backbone: there is nothing to take from a file.")
    return None


def load(
    name_or_folder: StrPath = DEFAULT,
    *,
    device: str | torch.device = "cpu",
    engine: str | None = None,
    int8: bool = False,
) -> Model:
    """A model by name, or from a folder that `save_model` wrote; checksums verified, nothing unpickled.

    `device` is where it computes: "auto", "cpu", "cuda", "cuda:1", "mps" or several that share the work, such as
    "cuda:0,cuda:1"; see `hapvr.devices.find_devices`. On Apple's GPU ("mps") answers are compared with the CPU's first.
    `engine` says what runs its backbone; see `hapvr.features.extractor.RegionExtractor`. `int8` lets it run in int8 on
    CPUs where that is fastest, if the model has a rounding: libraries and `compare` do, what measures and trains does
    not.

    `load("lite-untrained")` is what "lite" was before it was trained. A projection that was learnt becomes part of the
    whitening here: it costs nothing, and what is stored are its outputs.

    >>> load("light")
    Traceback (most recent call last):
    hapvr.errors.WeightsError: There is no model 'light' here; did you mean 'lite'?
    """
    devices = find_devices(device)
    if devices[0].type != "mps":
        return _load_on(name_or_folder, devices, engine, int8)
    reference = _load_on(name_or_folder, (torch.device("cpu"),), "torch")
    try:
        model = _load_on(name_or_folder, devices, engine)
        require_same_answers(model.extractor, model.similarity, reference.extractor, reference.similarity)
    except (RuntimeError, NotImplementedError, ConfigError) as error:  # torch lacks an operation there, or is wrong
        problem = f"The device '{devices[0]}' cannot be used: {' '.join(str(error).split())[:300]}"
        if device != AUTO:
            raise ConfigError(f"{problem} Give cpu as the device.") from error
        warnings.warn(f"{problem} The CPU computes instead.", RuntimeWarning, stacklevel=2)
        return _load_on(name_or_folder, (torch.device("cpu"),), engine, int8)
    return model


def _load_on(name_or_folder: StrPath, devices: Sequence[torch.device], engine: str | None, int8: bool = False) -> Model:
    folder, trained, parts = read_parts(name_or_folder)
    device, others = devices[0], devices[1:]
    backbone = build_empty_backbone(str(parts["backbone"].config["name"]))
    tensors, source = read_backbone_tensors(parts, name_or_folder)
    weights.load_strict(backbone, tensors, source=source or f"'{folder}'")
    similarity = make_network(parts["similarity"], folder)
    whitening = make_whitening(parts["whitening"], similarity)
    if similarity.projection is not None:
        similarity = similarity.without_projection()
    extractor = RegionExtractor(
        backbone,
        whitening,
        sampling=from_mapping(SamplingConfig, parts["sampling"].config),
        device=device,
        engine=engine,
        stored_digest=digest_region_weights(parts),
        rounding=Int8Rounding.from_part(parts[INT8]) if int8 and INT8 in parts else None,
    )
    extractor.copy_to(others)
    segments = from_mapping(SegmentConfig, parts["segments"].config)
    calibration = Calibration.from_part(parts[CALIBRATION]) if CALIBRATION in parts else None
    judge = Judge.from_part(parts[JUDGE]) if JUDGE in parts else None
    name = folder.name if trained else folder.name + UNTRAINED
    copies = tuple(copy.deepcopy(similarity).to(other).eval() for other in others)
    return Model(name, extractor, similarity.to(device).eval(), segments, calibration, judge, copies)


def require_same_answers(
    extractor: RegionExtractor,
    similarity: VideoSimilarity,
    reference_extractor: RegionExtractor,
    reference_similarity: VideoSimilarity,
) -> None:
    """Raise `ConfigError` unless networks give, for drawn pictures, the vectors and scores of reference networks."""
    side = reference_extractor.sampling.crop
    drawn = torch.rand((_PICTURES, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    pictures = (255 * F.interpolate(drawn, (side, side), mode="bilinear")).byte().permute(0, 2, 3, 1).contiguous()
    here, there = extractor(pictures), reference_extractor(pictures)
    distance = 1 - float(F.cosine_similarity(here, there, dim=-1).min())
    videos = ((similarity, here.to(similarity.device)), (reference_similarity, there))
    scores = [pairwise(network, [video], [video.flip(0)]) for network, video in videos]
    with torch.no_grad():
        described = [(network, network.make_descriptors(video)) for network, video in videos]
        matrices = [network.frame_matrix_unchecked(video, video).float().cpu() for network, video in described]
    difference = max(float((one - other).abs().max()) for one, other in (scores, matrices))
    if not (distance <= _MAX_DISTANCE and difference <= _MAX_DIFFERENCE):  # a NaN is no agreement
        raise ConfigError(
            f"Its answers differ from those of the CPU: vectors by {distance:.2g} (1 - cosine), similarities by "
            f"{difference:.2g}."
        )


def load_network(name_or_folder: StrPath = DEFAULT, *, device: str | torch.device = "cpu") -> VideoSimilarity:
    """The similarity network alone, for features of this model; the folder need not hold its other parts."""
    folder, trained = find_folder(name_or_folder)
    if trained:
        network = make_network(weights.load_part(folder, "similarity"), folder)
    else:
        network = make_network(take_untrained(weights.load_parts(folder), folder)["similarity"], folder)
    if network.projection is not None:
        network = network.without_projection()
    return network.to(device).eval()


def load_segments(name_or_folder: StrPath = DEFAULT) -> SegmentConfig:
    """How a model finds matching stretches."""
    return from_mapping(SegmentConfig, read_parts(name_or_folder)[2]["segments"].config)
