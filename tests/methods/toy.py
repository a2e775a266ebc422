"""Videos of small random vectors with noisy copies, and settings that make every method quick."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from hapvr.evaluation.benchmarks import Benchmark, Task, TrueSegment
from hapvr.features import Features, FeatureWriter
from hapvr.methods import Clips, find_method, list_methods, make_clips, make_method, save_method

DIMS = (4, 16)
SIDE = 32  # of pictures
FRAMES = 12
METHODS = [name for name in list_methods() if name != "lite"]  # whose network takes the dims of lite alone
LEARNING = [name for name in METHODS if find_method(name).learns]


def draw_video(seed: int, *, frames: int = FRAMES, dims: tuple[int, int] = DIMS) -> Features:
    """Unit vectors that change slowly from frame to frame, two frames a second."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(1, *dims, generator=generator)
    changes = torch.randn(frames, *dims, generator=generator)
    return Features(F.normalize(own + 0.8 * changes, dim=-1), np.arange(frames) / 2)


def make_copy(video: Features, seed: int, *, noise: float = 1.0) -> Features:
    generator = torch.Generator().manual_seed(1000 + seed)
    change = torch.randn(video.regions.shape, generator=generator) / video.regions.shape[2] ** 0.5
    noisy = video.regions + noise * change
    return Features(F.normalize(noisy, dim=-1), video.timestamps)


def draw_videos(
    count: int = 6, *, dims: tuple[int, int] = DIMS, noise: float = 1.0
) -> tuple[dict[str, Features], dict[str, list[str]]]:
    originals = {f"v{number}": draw_video(number, dims=dims) for number in range(count)}
    copies = {
        f"{id}--copy": make_copy(video, number, noise=noise) for number, (id, video) in enumerate(originals.items())
    }
    return {**originals, **copies}, {id: [id.removesuffix("--copy")] for id in copies}


def draw_clips(count: int = 6, *, dims: tuple[int, int] = DIMS, noise: float = 1.0) -> Clips:
    videos, copies = draw_videos(count, dims=dims, noise=noise)
    return make_clips(videos, copies, draw_segments(copies))


def draw_segments(copies: dict[str, list[str]]) -> dict[str, tuple[TrueSegment, ...]]:
    end = FRAMES / 2
    return {id: (TrueSegment(0.0, end, own[0], 0.0, end),) for id, own in copies.items()}


def find_dims(name: str) -> tuple[int, int]:
    return (SIDE, SIDE) if find_method(name).reads == "pictures" else DIMS


def quick_settings(name: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Few steps of few clips; a teacher that needs no training, kept in `folder`."""
    known = {one.name for one in dataclasses.fields(find_method(name).settings_type)}
    wanted: dict[str, Any] = {"steps": 30, "student_steps": 2, "batch": 6, "frames": FRAMES, "rate": 1e-2}
    if "teacher" in known:
        teacher = folder / "teacher"
        if not teacher.exists():
            save_method(make_method("visil-f", DIMS), teacher)
        wanted["teacher"] = str(teacher)
    return {key: value for key, value in {**wanted, **more}.items() if key in known}


def write_benchmark_files(folder: Path, *, dims: tuple[int, int] = DIMS, count: int = 6) -> tuple[Benchmark, Path]:
    """A benchmark of the toy videos, and their features in a file."""
    videos, copies = draw_videos(count, dims=dims)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"features-{dims[0]}-{dims[1]}.h5"
    if not path.exists():
        with FeatureWriter(path, attributes={"model": "toy"}) as writer:
            for id, video in videos.items():
                writer.add(id, video)
    tasks = (Task("mAP", ("1",)), Task("uAP", ("1",), "uAP"))
    labels = {id: dict.fromkeys(own, "1") for id, own in copies.items()}
    database = tuple(id for id in videos if id not in copies)
    return Benchmark("toy", tuple(copies), database, labels, tasks, segments=draw_segments(copies)), path
