"""The material of training, decoded and in memory: frames of videos, and photographs that a camera moves over."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from hapvr.checks import shape_of
from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.training.augment.plan import Seed, make_generator
from hapvr.training.camera import Camera, draw_camera_boxes, film
from hapvr.video.packed_frames import PackedFrames

Skipped = tuple[str, str]  # id and reason

_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, MemoryError, Image.DecompressionBombError, Warning)
_MIN_FREE = 2**30  # bytes of GPU memory that frames leave free


class ClipWindow(NamedTuple):
    """Some consecutive frames of a clip."""

    video: int  # its number in the set
    start: int  # number of the first frame
    length: int
    move: int  # of a photograph: which way the camera goes


@dataclass(frozen=True)
class ClipRequest:
    """The windows that a step asks for: see `ClipSet.draw_parts`."""

    videos: tuple[int, ...]
    length: int
    seed: Seed
    parts: int = 1


class ClipSet:
    """Videos and photographs as clips, with all their pixels in the memory of one device.

    A photograph is stored once; the frames of its clip are drawn when they are asked for.

    Args:
        frames: a tensor uint8 [t, H, W, 3] for each video, [1, H, W, 3] for each photograph, all on one device.
        ids: a name for each.
        times: float64 [t] for each, seconds; by default one frame a second.
        cameras: for each, how a photograph is turned into a clip, or None for a video; by default all are videos.
        skipped: what could not be read, as (id, reason).

    >>> clips = ClipSet([torch.zeros(9, 4, 6, 3, dtype=torch.uint8)], ["a"])
    >>> len(clips), clips.lengths.tolist(), clips.window(0, 5, 8).shape
    (1, [9], torch.Size([4, 4, 6, 3]))
    """

    def __init__(
        self,
        frames: Sequence[Tensor],
        ids: Sequence[str],
        *,
        times: Sequence[NDArray[np.float64]] | None = None,
        cameras: Sequence[Camera | None] | None = None,
        skipped: Iterable[Skipped] = (),
    ) -> None:
        self.frames = list(frames)
        self.ids = tuple(ids)
        self.cameras = tuple(cameras) if cameras is not None else (None,) * len(self.frames)
        self.skipped = list(skipped)
        for id, pixels in zip(self.ids, self.frames, strict=False):
            fits = isinstance(pixels, Tensor) and pixels.dtype == torch.uint8 and pixels.ndim == 4
            if not fits or pixels.shape[3] != 3 or 0 in pixels.shape:
                raise ShapeError(f"the frames of '{id}' must be uint8 [t, H, W, 3], got {shape_of(pixels)}.")
        if not len(self.frames) == len(self.ids) == len(self.cameras) or len(set(self.ids)) != len(self.ids):
            raise DataError(
                f"each of {len(self.frames)} clips needs its own id, got {len(self.ids)} ids, "
                f"{len(set(self.ids))} of them different, and {len(self.cameras)} cameras."
            )
        counts = [
            len(pixels) if camera is None else camera.frames
            for pixels, camera in zip(self.frames, self.cameras, strict=True)
        ]
        self.lengths = torch.tensor(counts, dtype=torch.int64)  # [V], on the CPU
        self.times = list(times) if times is not None else [np.arange(count, dtype=np.float64) for count in counts]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def device(self) -> torch.device:
        """Where the frames lie."""
        return self.frames[0].device if self.frames else torch.device("cpu")

    def __add__(self, other: ClipSet) -> ClipSet:
        return ClipSet(
            self.frames + other.frames,
            self.ids + other.ids,
            times=self.times + other.times,
            cameras=self.cameras + other.cameras,
            skipped=self.skipped + other.skipped,
        )

    def window(self, video: int, start: int, length: int, *, move: int = 0) -> Tensor:
        """Up to `length` consecutive frames of a clip, from `start` on: uint8 [t, H, W, 3]; fewer at its end.

        A video's frames are a view of what is stored: do not write into them. Of a photograph, `move` is the number
        of the camera's way over it: the same number, the same frames.
        """
        count = int(self.lengths[video])
        if length < 1 or not 0 <= start < count:
            raise DataError(f"'{self.ids[video]}' has frames 0 to {count - 1}; cannot take {length} from {start} on.")
        return self._show([ClipWindow(video, start, length, move)])[0]

    def draw(self, videos: Sequence[int], *, length: int, seed: Seed) -> list[Tensor]:
        """A window of up to `length` frames of each of these videos at a random place, or of a random move."""
        return [window for window, _ in self.draw_parts(videos, length=length, seed=seed)]

    def draw_parts(self, videos: Sequence[int], *, length: int, seed: Seed, parts: int = 1) -> list[tuple[Tensor, int]]:
        """`parts` windows of up to `length` frames of each of these videos, each with the number of its first frame.

        A video is cut into as many stretches of equal length, where it has a frame for each, and a window lies in each
        stretch. Of a photograph every window is of another move.
        """
        windows = self.plan_windows(ClipRequest(tuple(videos), length, seed, parts))
        return [(shown, window.start) for window, shown in zip(windows, self._show(windows), strict=True)]

    def plan_windows(self, request: ClipRequest) -> list[ClipWindow]:
        """Where the windows of a request lie; they depend on nothing else."""
        rng, parts, length = make_generator(request.seed), request.parts, request.length
        rows = [(video, part) for video in request.videos for part in range(parts)]
        places, moves = rng.random(len(rows)), rng.integers(2**31, size=len(rows))
        return [
            self._place_window(video, part, parts, length, float(place), int(move))
            for (video, part), place, move in zip(rows, places, moves, strict=True)
        ]

    def _place_window(self, video: int, part: int, parts: int, length: int, place: float, move: int) -> ClipWindow:
        count = int(self.lengths[video])
        first, end = 0, count
        if self.cameras[video] is None and count >= parts:
            first, end = part * count // parts, (part + 1) * count // parts
        start = first + int(place * (max(0, end - first - length) + 1))
        return ClipWindow(video, start, min(length, end - start), move)

    def _show(self, windows: Sequence[ClipWindow]) -> list[Tensor]:
        """The frames of each window. Photographs are filmed together: one by one, calls would take longer than work."""
        shown = [self.frames[video][start : start + length] for video, start, length, _ in windows]
        filmed: dict[int, list[int]] = {}  # places in `windows` by the side of the camera's frames
        for place, window in enumerate(windows):
            if (camera := self.cameras[window.video]) is not None:
                shown[place] = self.frames[window.video][0]
                filmed.setdefault(camera.size, []).append(place)
        for size, places in filmed.items():
            photographs = [shown[place] for place in places]
            boxes = [self._place_camera(windows[place]) for place in places]
            for place, frames in zip(places, film(photographs, boxes, size), strict=True):
                shown[place] = frames
        return shown

    def _place_camera(self, window: ClipWindow) -> NDArray[np.float64]:
        """What the camera sees of a photograph in each frame of a window: see `draw_camera_boxes`."""
        camera, photograph = self.cameras[window.video], self.frames[window.video]
        if camera is None:
            raise DataError(f"'{self.ids[window.video]}' is a video, not a photograph.")
        size = (photograph.shape[1], photograph.shape[2])
        boxes = draw_camera_boxes(camera, size, (window.move, window.video % 2**32))
        return boxes[window.start : window.start + window.length]

    def fetch(
        self, step: int, make_request: Callable[[int], ClipRequest]
    ) -> tuple[tuple[int, ...], list[tuple[Tensor, int]]]:
        """The videos of a step, and their windows as `draw_parts` gives them; `make_request` is asked what it needs.

        Here everything is in memory. Where it is not, the requests of later steps are asked for too, and a video that
        cannot be read is another one.
        """
        request = make_request(step)
        windows = self.draw_parts(request.videos, length=request.length, seed=request.seed, parts=request.parts)
        return request.videos, windows

    def close(self) -> None:
        """Give back what is held beside memory: here nothing."""

    def shuffle(self, seed: int) -> Tensor:
        """The numbers of all videos in an order drawn by a seed."""
        return torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))

    @classmethod
    def from_packed(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        size: int | None = 256,
        skip: Collection[str] = (),
        stills: Camera | None = None,
    ) -> ClipSet:
        """All videos of a folder that `hapvr frames` wrote, decoded on a device.

        A video that cannot be read is left out and named in `skipped`, with the reason; those in `skip` are left out
        without being named. `DataError` if nothing is left, or if the device has too little memory.

        Args:
            size: side of the square that is cut out of the middle of frames brought to this short side: all frames
                of one size are augmented fastest. None keeps them as they were packed, with what is left and right.
            stills: packed "videos" of a single frame are photographs, filmed by this camera; None: they are videos.
        """
        packed = PackedFrames.open(folder)
        wanted = [id for id in packed if id not in skip]
        lengths = packed.lengths
        areas = {id: math.prod(packed[id].size) if size is None else size * size for id in wanted}
        _require_memory(sum(3 * lengths[id] * areas[id] for id in wanted), torch.device(device))
        skipped = [(id, "only its beginning was packed") for id in packed.incomplete if id not in skip]
        frames: list[Tensor] = []
        ids: list[str] = []
        times: list[NDArray[np.float64]] = []
        position = 0
        while position < len(wanted):
            try:
                for id, images, stamps in packed.load_all(wanted[position:], size=size):
                    frames.append(make_planar(torch.from_numpy(images).to(device)))
                    ids.append(id)
                    times.append(stamps)
                    position += 1
            except StorageError as error:  # of the current video: continue with the next
                skipped.append((wanted[position], str(error)))
                position += 1
        if not frames:
            raise DataError(f"'{folder}' holds no video that can be used: {len(skipped)} of {len(skipped)} failed.")
        cameras = [stills if len(pixels) == 1 else None for pixels in frames]
        for number, camera in enumerate(cameras):
            if camera is not None:
                times[number] = np.arange(camera.frames, dtype=np.float64)
        return cls(frames, ids, times=times, cameras=cameras, skipped=skipped)

    @classmethod
    def from_pictures(
        cls,
        pictures: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        device: torch.device | str = "cpu",
        short_side: int = 320,
        camera: Camera = Camera(),  # noqa: B008 - frozen
        skip: Collection[str] = (),
        max_pictures: int | None = None,
    ) -> ClipSet:
        """Photographs as clips: files, or all picture files of a folder and the folders within it.

        Ids are paths, relative to the folder if one was given. Files that cannot be read are left out and named in
        `skipped`; those in `skip` are left out. Of the others, `max_pictures` takes the first by name. Pictures larger
        than `short_side` are reduced to it: the camera's zoom needs some pixels to spare.
        """
        if short_side < 1:
            raise ConfigError(f"short_side must be at least 1 pixel, got {short_side}.")
        paths = {id: path for id, path in _picture_files(pictures).items() if id not in skip}
        paths = dict(islice(paths.items(), max_pictures))
        frames: list[Tensor] = []
        ids: list[str] = []
        skipped: list[Skipped] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            contents = pool.map(partial(_read_picture, short_side=short_side), paths.values())
            for id, read in zip(paths, contents, strict=True):
                if isinstance(read, str):
                    skipped.append((id, read))
                else:
                    frames.append(make_planar(torch.from_numpy(read)[None].to(device)))
                    ids.append(id)
        if not frames:
            raise DataError(f"no picture could be read: {len(skipped)} of {len(paths)} files failed.")
        return cls(frames, ids, cameras=[camera] * len(frames), skipped=skipped)


def make_planar(frames: Tensor) -> Tensor:
    """The same frames [t, H, W, 3], one colour after another in memory, which is fastest to augment."""
    return frames.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)


def _picture_files(pictures: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    if not isinstance(pictures, (str, os.PathLike)):
        return {os.fspath(path): Path(path) for path in pictures}
    folder = Path(pictures)
    if not folder.is_dir():
        raise DataError(f"'{folder}' is not a folder. Give one with pictures, or a list of files.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not found:
        raise DataError(f"'{folder}' holds no picture files ({', '.join(sorted(_SUFFIXES))}).")
    return {path.relative_to(folder).as_posix(): path for path in found}


def _read_picture(path: Path, short_side: int) -> NDArray[np.uint8] | str:
    """A picture, upright and at most this large, or why it cannot be read."""
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (short_side, short_side))  # JPEG: decoded at a part of its size where that is enough
            picture = ImageOps.exif_transpose(opened).convert("RGB")
        scale = short_side / min(picture.size)
        if scale < 1:
            width, height = (max(1, round(side * scale)) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        return np.array(picture, np.uint8)
    except _UNREADABLE as error:
        return f"{type(error).__name__}: {error}"


def _require_memory(needed: int, device: torch.device) -> None:
    if device.type != "cuda":
        return
    free = torch.cuda.mem_get_info(device)[0]
    if needed + _MIN_FREE > free:
        raise DataError(
            f"the frames take {needed / 2**30:.1f} GiB and {device} has {free / 2**30:.1f} GiB free. Give a smaller "
            "size, leave videos out, or keep the frames on the CPU."
        )
