"""Features of many videos by a Ray cluster: each node decodes and describes whole videos, as this machine would.

The weights travel with the task; the files must be at the same paths on every node.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from hapvr.backbones.base import Backbone
from hapvr.features.extractor import RegionExtractor
from hapvr.features.video_extraction import ExtractedVideo, extract_stream
from hapvr.features.video_packing import EncodedVideo, pack_stream
from hapvr.features.whitening import Whitening
from hapvr.video.frame_tasks import VideoTask
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.cluster import connect, run_on_cluster
from hapvr.workers.pool import Task, TaskContext


def extract_on_cluster(
    address: str,
    extractor: RegionExtractor,
    tasks: Iterable[tuple[str, Any]],
    *,
    workers: int | None = None,
    work: Callable[[TaskContext, Any], Any],
    stop: Callable[[], bool] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Iterator[ExtractedVideo]:
    """`extract_stream`, by the nodes of a Ray cluster; the same features, if they are machines of the same kind.

    Args:
        address: "local", "auto" or HOST:PORT, see `hapvr.workers.cluster`.
        extractor: its copy on each node describes the pictures: on a GPU there if it is on one here.
        tasks: ids and what `work` takes, with absolute paths.
        workers: decoding processes of a node; by default one per usable core, sixteen at most.
        work, stop, dtype: see `extract_stream`.
    """
    with connect(address) as ray:
        yield from run_on_cluster(
            ray,
            partial(_make_service, _take_apart(extractor), workers, work, dtype),
            tasks,
            give_up=_give_up,
            gpus=extractor.device.type == "cuda",
            stop=stop,
        )


@dataclass(frozen=True)
class _ExtractorParts:
    """What an extractor is made of, on the host."""

    backbone: Backbone
    whitening: Whitening | None
    sampling: SamplingConfig
    device: str
    precision: torch.dtype
    batch: int
    engine: str

    def join(self) -> RegionExtractor:
        settings = {"precision": self.precision, "batch": self.batch, "engine": self.engine}
        return RegionExtractor(
            self.backbone,
            self.whitening,
            sampling=self.sampling,
            device=self.device,
            **settings,  # type: ignore[arg-type]
        )


def _take_apart(extractor: RegionExtractor) -> _ExtractorParts:
    backbone, whitening = copy.deepcopy(extractor.backbone).cpu(), copy.deepcopy(extractor.whitening)
    return _ExtractorParts(
        backbone,
        None if whitening is None else whitening.to(torch.device("cpu")),
        extractor.sampling,
        extractor.device.type,
        extractor.precision,
        extractor.batch,
        extractor.engine,
    )


def _make_service(
    parts: _ExtractorParts, workers: int | None, work: Callable[[TaskContext, Any], Any], dtype: torch.dtype
) -> Callable[[Iterator[Task]], Iterator[tuple[Hashable, ExtractedVideo]]]:
    """What a node does: `extract_stream`, of the tasks that it is given."""
    extractor = parts.join()

    def serve(tasks: Iterator[Task]) -> Iterator[tuple[Hashable, ExtractedVideo]]:
        given = cast("Iterator[tuple[str, Any]]", tasks)
        for video in extract_stream(extractor, given, workers=workers, work=work, dtype=dtype):
            yield video.id, video

    return serve


def pack_on_cluster(
    address: str, tasks: Iterable[tuple[str, VideoTask]], *, short_side: int, workers: int | None = None
) -> Iterator[EncodedVideo]:
    """`pack_stream`, by the nodes of a Ray cluster."""
    with connect(address) as ray:
        yield from run_on_cluster(
            ray,
            partial(_make_packer, short_side, workers),
            tasks,
            give_up=lambda id, why: EncodedVideo(str(id), (), None, why),
        )


def _make_packer(
    short_side: int, workers: int | None
) -> Callable[[Iterator[Task]], Iterator[tuple[Hashable, EncodedVideo]]]:
    def serve(tasks: Iterator[Task]) -> Iterator[tuple[Hashable, EncodedVideo]]:
        given = cast("Iterator[tuple[str, VideoTask]]", tasks)
        return ((video.id, video) for video in pack_stream(given, short_side=short_side, workers=workers))

    return serve


def _give_up(id: Hashable, why: str) -> ExtractedVideo:
    return ExtractedVideo(str(id), None, None, why)
