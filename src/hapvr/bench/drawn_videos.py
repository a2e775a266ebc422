"""Region vectors of drawn videos that follow the statistics of real ones: libraries of any size, nothing decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.features import Features
from hapvr.library import VideoRecord
from hapvr.library.store import NewVideo, Store

REGIONS, DIMS = 9, 512
_RELATIVES = 10  # videos at a time that are made of one
_TURNED = 0.15  # of the signs, between relatives


@dataclass(frozen=True)
class Statistics:
    """Mean cosines of region vectors, measured on 301 videos of a made benchmark, a second between frames."""

    other_video: float = 0.02
    same_region: float = 0.40  # of one video, far apart in time
    other_region: float = 0.21  # the same
    same_frame: float = 0.41  # other regions of it
    next_second: float = 0.59  # same region
    cuts: float = 0.18  # seconds after which another scene begins


def draw_regions(frames: int, generator: torch.Generator, *, regions: int = REGIONS, dims: int = DIMS) -> Tensor:
    """Region vectors [T, R, D] of a video: sums of parts that are shared by all videos, by its frames, or by none."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dims, generator=generator)

    s = Statistics()
    # Some videos stand still, others never do: the part that lasts is drawn for each, with the measured mean.
    lasting = float(torch.rand((), generator=generator)) ** (1 / s.same_region - 1)
    far = [
        lasting * share / s.same_region for share in (s.same_region - s.other_region, s.other_region - s.other_video)
    ]
    here = (s.same_frame - s.other_region) * (1 - lasting) / (1 - s.same_region)
    rest = max(0.0, 1 - sum(far) - s.other_video - here)
    keep = min(0.99, (s.next_second - s.same_region) / ((1 - s.same_region) * (1 - s.cuts)))  # from second to second
    cut = torch.rand(frames, generator=generator) < s.cuts
    common = torch.randn(dims, generator=torch.Generator().manual_seed(1))  # to all videos
    scene, detail = normal(frames, 1), normal(frames, regions)
    for now in range(1, frames):
        if not cut[now]:
            for part in (scene, detail):
                part[now] = keep * part[now - 1] + (1 - keep**2) ** 0.5 * part[now]
    place, video = normal(1, regions), normal(1, 1)
    shares = (*far, s.other_video, here, rest)
    parts = (place, video, common, scene, detail)
    total = sum((share**0.5 * part for share, part in zip(shares, parts, strict=True)), torch.zeros(()))
    return F.normalize(total, dim=-1)


def draw_query(needle: Tensor, generator: torch.Generator, *, frames: int, mirror: bool) -> Features:
    """An edited part of a video: a stretch of it mixed with another video, so that frames are 0.3 to 0.9 alike.

    `mirror` needs nine regions.
    """
    alike = float(0.3 + 0.6 * torch.rand((), generator=generator))
    start = int(torch.randint(0, len(needle) - frames + 1, (), generator=generator))
    part = needle[start : start + frames]
    if mirror:
        part = part.view(-1, 3, 3, part.shape[-1]).flip(2).flatten(1, 2)
    other = draw_regions(len(needle), generator, regions=needle.shape[1], dims=needle.shape[2])[:frames]
    mixed = F.normalize(alike * part + (1 - alike**2) ** 0.5 * other, dim=-1)
    return Features(mixed, np.arange(float(frames)))


def make_videos(
    pool: Sequence[Tensor], needles: Sequence[Tensor], numbers: range, *, miniatures: bool = False
) -> Iterator[tuple[int, Features]]:
    """Videos by their numbers: needles first, then relatives of relatives.

    To make many of few, the signs of dimensions are turned at random, which changes nothing within a video: neither how
    alike its frames and regions are nor what any codec loses. Ten videos at a time are relatives: made of one of the
    pool, with 15% of the signs turned against each other, so that the similarity of what is no copy is 0.5.
    """
    for number in numbers:
        if number < len(needles):
            regions = needles[number]
        else:
            origin = pool[find_origin(number, len(pool))]
            regions = origin * torch.from_numpy(draw_signs(number, origin.shape[-1]))
        frames = len(regions)
        times, low = np.arange(float(frames)), np.zeros(frames, np.bool_)
        small = np.random.default_rng((3, number)).integers(0, 256, (frames, 16, 16), np.uint8) if miniatures else None
        yield number, Features(regions, times, low, small)


def find_origin(number: int, pool: int) -> int:
    """Which video of a pool of this size the video of this number is made of."""
    return number // _RELATIVES % pool


def draw_signs(number: int, dims: int) -> NDArray[np.float32]:
    """The signs [D], 1 or -1, by which the video of this number differs from the one that it is made of."""
    own = np.where(np.random.default_rng((2, number)).random(dims) < _TURNED, -1.0, 1.0)
    return (_draw_family_signs(number // _RELATIVES, dims) * own).astype(np.float32)


@lru_cache(maxsize=2)
def _draw_family_signs(family: int, dims: int) -> NDArray[np.float64]:
    return np.random.default_rng((1, family)).choice([-1.0, 1.0], dims)


def fill_store(store: Store, videos: Iterable[tuple[int, Features]]) -> None:
    """Write videos by their numbers, as the library's own commands do."""
    store.write_all(NewVideo(make_record(number, video), store.new_key(), video) for number, video in videos)


def make_id(number: int) -> str:
    """The id of a drawn video."""
    return f"{number:09d}"


def make_record(number: int, features: Features) -> VideoRecord:
    """The record of a drawn video, whose file is not there."""
    return VideoRecord(
        id=make_id(number),
        path=f"/videos/{number:09d}.mp4",
        size=1_000_000 + number,
        mtime_ns=number,
        content_hash=f"{number:040x}",
        duration=float(len(features)),
        frames=len(features),
        width=640,
        height=360,
        bitrate=1e6,
        state="ready",
        error=None,
        added=datetime.now(timezone.utc),
    )
