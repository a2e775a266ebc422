"""The parts of a training run, built from its settings: network, clips, encoder and source of batches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import torch

from hapvr.backbones import Backbone
from hapvr.errors import ConfigError
from hapvr.features.whitening import Whitening
from hapvr.model import Model
from hapvr.similarity import VideoSimilarity
from hapvr.training.augment import Views
from hapvr.training.bank import BankSource, make_bank
from hapvr.training.camera import Camera
from hapvr.training.clips import ClipSet
from hapvr.training.config import TrainConfig
from hapvr.training.distributed import world_size
from hapvr.training.encoder import Encoder, build_teacher
from hapvr.training.preview import save_preview
from hapvr.training.run_folder import Report
from hapvr.training.sources import ClipSource, Source, derive_seed
from hapvr.training.stream_loader import StreamConfig
from hapvr.training.streaming import StreamedClips
from hapvr.training.whole import WholeSource, make_region_extractor
from hapvr.video.packed_frames import PackedFrames
from hapvr.video.sampling import SamplingConfig
from hapvr.video.shard_frames import is_packed, open_shards


def build_network(config: TrainConfig, base: Model | None) -> VideoSimilarity:
    """The network before its first step: drawn from the run's seed, or the base model's."""
    if base is not None:
        dims = base.similarity.config.dims
        if config.similarity.dims != dims:
            raise ConfigError(
                f"similarity.dims is {config.similarity.dims}; region vectors of '{base.name}' have {dims}."
            )
        if config.model.start == "base":
            if base.similarity.config == config.similarity:
                return base.similarity
            if base.similarity.config == dataclasses.replace(config.similarity, projection=False):
                network = VideoSimilarity(config.similarity)  # its projection starts as none
                network.load_state_dict(base.similarity.state_dict(), strict=False)
                return network
            raise ConfigError(
                f"model.start='base' takes the network of '{base.name}' as it is ({base.similarity.config}), or with a "
                f"projection; [similarity] asks for another ({config.similarity})."
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, 6))
        return VideoSimilarity(config.similarity)


def load_clips(config: TrainConfig, device: torch.device) -> ClipSet:
    """The videos and photographs of the settings, as one set of clips."""
    data = config.data
    if data.stream and (not data.frames or data.pictures):
        raise ConfigError(
            "data.stream reads the shards of data.frames: give that folder, and photographs in it as single pictures, "
            "not by data.pictures."
        )
    if data.stream and config.bank.used:
        raise ConfigError("a bank is made of videos in memory: set data.stream=0, or bank.weak=0 and bank.strong=0.")
    if not data.frames and not data.pictures:
        raise ConfigError(
            "there is nothing to train on: give data.frames, a folder of packed frames (`hapvr frames`), or "
            "data.pictures, a folder of photographs."
        )
    device = device if data.device == "auto" else torch.device(data.device)
    camera = Camera(frames=2 * config.views.frames, size=data.size)
    sets = []
    if data.frames:
        size = None if data.whole_frames else data.size
        # At a rate that is the same for all, a single frame is a short video and no photograph.
        stills = None if data.fps else camera
        if data.stream or not is_packed(data.frames):
            clips = _open_stream(config, device, size=size, stills=stills)
            sets.append(clips if data.stream else clips.load())
        else:
            if data.fps:
                _require_rate(PackedFrames.open(data.frames).attributes, data.frames, data.fps)
            sets.append(ClipSet.from_packed(data.frames, device=device, size=size, stills=stills))
    if data.pictures:
        limit = data.max_pictures or None
        sets.append(ClipSet.from_pictures(data.pictures, device=device, camera=camera, max_pictures=limit))
    return sets[0] if len(sets) == 1 else sets[0] + sets[1]


def _open_stream(
    config: TrainConfig, device: torch.device, *, size: int | None, stills: Camera | None
) -> StreamedClips:
    data = config.data
    shards = open_shards(data.frames)
    if data.fps:
        _require_rate(shards.attributes, data.frames, data.fps)
    cores = (os.cpu_count() or 1) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # torchrun's
    settings = StreamConfig(
        memory_bytes=int(data.stream * 2**30), workers=data.workers or max(1, cores), buffer=data.buffer
    )
    return StreamedClips(shards, size=size, stills=stills, device=device, config=settings)


def _require_rate(attributes: Mapping[str, Any], folder: str, fps: float) -> None:
    """Raise `ConfigError` unless all videos of a folder were packed at this rate, whatever their length."""
    rate, least = attributes.get("fps"), attributes.get("min_frames", SamplingConfig().at_least)
    if (rate, least) != (fps, 0):
        faster = "" if least == 0 else f", and short videos faster, to at least {least} frames"
        raise ConfigError(
            f"data.fps is {fps:g}: '{folder}' was packed at {rate} frames a second{faster}. Pack it by `hapvr frames "
            f"VIDEOS --fps {fps:g} --min-frames 0`, or set data.fps=0 to take it as it is."
        )


def preview_views(config: TrainConfig, path: str | os.PathLike[str], *, clips: int = 4) -> int:
    """Write a sheet of the views that a run of these settings would learn from first, as a picture.

    Returns of how many videos: `clips`, or all where there are fewer.
    """
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, device="cpu"))
    material = load_clips(config, torch.device("cpu"))
    count = min(clips, len(material))
    draw_sheet(material, config, path, count)
    material.close()
    return count


def draw_sheet(clips: ClipSet, config: TrainConfig, path: str | os.PathLike[str], count: int) -> Views:
    """Draw the first views of `count` videos into a picture; see `save_preview`."""
    seed = config.run.seed
    videos = torch.randperm(len(clips), generator=torch.Generator().manual_seed(derive_seed(seed, 0, 0)))[:count]
    windows = clips.draw(videos.tolist(), length=2 * config.views.frames, seed=derive_seed(seed, 1))
    return save_preview(path, windows, config.views, derive_seed(seed, 2))


def build_encoder(config: TrainConfig, base: Model, device: torch.device, *, teacher: bool = True) -> Encoder:
    """Backbone, whitening and, if wanted, teacher of the settings, ready to compute."""
    return Encoder(
        base.extractor.backbone,
        _require_whitening(base),
        build_teacher(config.teacher) if teacher and "frame" in config.losses.build().levels else None,
        device=device,
        dtype=config.run.dtype(device),
        micro_batch=config.run.micro_batch,
        compiled=_is_compiled(config, device),
    )


def make_whole_source(
    config: TrainConfig, clips: ClipSet, base: Model, backbone: Backbone, device: torch.device
) -> WholeSource:
    """The batches of a run in which the backbone learns too."""
    whitening = _require_whitening(base).to(device)
    if world_size() > 1:
        raise ConfigError("a backbone is trained by one process; start it without torchrun, or set backbone.rate=0.")
    if config.validation.features:
        raise ConfigError("validation.features were made by the backbone as it was: they say nothing while it learns.")
    extract = make_region_extractor(
        backbone, whitening, config.run.dtype(device), compiled=_is_compiled(config, device)
    )
    frozen = build_encoder(config, base, device, teacher=False)
    return WholeSource(
        clips, extract, frozen, config.data, views=config.views, settings=config.backbone, seed=config.run.seed
    )


def make_source(config: TrainConfig, clips: ClipSet, encoder: Encoder, report: Report) -> Source:
    """The batches of a run with a frozen backbone: from a bank of views, or from the clips themselves."""
    seed = config.run.seed
    if not config.bank.used:
        return ClipSource(clips, encoder, config.data, views=config.views, seed=seed)
    bank = make_bank(clips, encoder, config, report=report)
    report(f"the bank holds {config.bank.weak} weak and {config.bank.strong} strong views: {bank.gib:.2f} GiB")
    return BankSource(bank, config.data, seed=seed, device=encoder.device)


def _require_whitening(base: Model) -> Whitening:
    if base.extractor.whitening is None:
        raise ConfigError(f"the model '{base.name}' has no whitening.")
    return base.extractor.whitening


def _is_compiled(config: TrainConfig, device: torch.device) -> bool:
    return config.run.compiled == "yes" or (config.run.compiled == "auto" and device.type == "cuda")
