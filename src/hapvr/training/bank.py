"""The feature bank: views that are made and described once, then drawn from in every step.

Backbone and teacher are frozen, so what they make of a view never changes. A bank holds, for each video, some weak and
some strong views as region vectors and frame vectors, with the videos that each shows: a clip pasted into another one
shows both. A step then draws one view of each kind for every video of its batch and costs no extraction at all.

On disk a bank is a folder: `bank.json` says what it was made of, each shard holds one batch of views and is written
whole, with its checksum beside it. An interrupted bank is completed by making it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr.checks import require_finite
from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.storage import sha256_bytes, write_bytes, write_json
from hapvr.training.augment import make_views
from hapvr.training.augment.config import RENAMED
from hapvr.training.clips import ClipSet
from hapvr.training.config import DataConfig, TrainConfig
from hapvr.training.distributed import rank, world_size
from hapvr.training.encoder import Encoder
from hapvr.training.recipe_files import add_new_settings, to_table
from hapvr.training.sources import Timed, compute_mean_vectors, derive_seed, draw_videos, find_look_alikes
from hapvr.training.step import NOTHING, Batch, list_contents

ABOUT = "bank.json"
_FORMAT, _VERSION, _PLACES = "hapvr-bank", 1, 2  # a view shows its own video, and its host's
_KINDS = ("weak", "strong")


@dataclass(frozen=True, eq=False)
class Side:
    """The views of one kind, of all videos; V videos, W views of each."""

    regions: Tensor  # float16 [V, W, T, R, D]
    contents: Tensor  # int64 [V, W, K], the numbers of the videos shown; the rest is NOTHING
    frames: Tensor | None  # float16 [V, W, T, D'] of the teacher

    def to(self, device: torch.device | str) -> Side:
        """The same on another device."""
        frames = None if self.frames is None else self.frames.to(device)
        return Side(self.regions.to(device), self.contents.to(device), frames)

    def take(self, videos: Tensor, views: Tensor) -> Side:
        """One view of each of some videos: both int64 [B] -> a `Side` without the axis W."""
        at = (videos.to(self.regions.device), views.to(self.regions.device))
        return Side(self.regions[at], self.contents[at], None if self.frames is None else self.frames[at])


@dataclass(frozen=True, eq=False)
class Bank:
    """Weak and strong views of videos."""

    weak: Side
    strong: Side

    def __post_init__(self) -> None:
        for side in (self.weak, self.strong):
            if side.regions.ndim != 5 or 0 in side.regions.shape:
                raise ShapeError(f"a bank's regions are [V, W, T, R, D], got {list(side.regions.shape)}.")
        if len(self.weak.regions) != len(self.strong.regions):
            raise ShapeError("a bank has weak and strong views of the same videos.")

    def __len__(self) -> int:
        return len(self.weak.regions)

    @property
    def gib(self) -> float:
        """How much memory it takes."""
        sides = (self.weak, self.strong)
        return sum(t.nbytes for side in sides for t in (side.regions, side.frames) if t is not None) / 2**30

    def to(self, device: torch.device | str) -> Bank:
        """The same on another device."""
        return Bank(self.weak.to(device), self.strong.to(device))


class BankSource:
    """Batches that are drawn from a bank, on `device`. Look-alikes are found by the weak views."""

    def __init__(self, bank: Bank, data: DataConfig, *, seed: int, device: torch.device) -> None:
        self.bank, self.data, self.seed, self.device = bank, data, seed, device
        self.alike = find_look_alikes(lambda: compute_mean_vectors(bank.weak.regions), len(bank), data, device=device)

    def batch(self, step: int, timed: Timed = lambda _: nullcontext()) -> Batch:
        """See `Source`."""
        with timed("load"):
            videos = draw_videos(step, videos=len(self.bank), batch=self.data.batch, seed=self.seed, alike=self.alike)
            generator = torch.Generator().manual_seed(derive_seed(self.seed, 3, step, rank()))
            sides = []
            for side in (self.bank.weak, self.bank.strong):
                views = torch.randint(side.regions.shape[1], (len(videos),), generator=generator)
                sides.append(side.take(videos, views).to(self.device))
            frames = [side.frames.float() for side in sides if side.frames is not None]
            return Batch(
                torch.cat([side.regions for side in sides]),
                torch.cat([side.contents for side in sides]),
                torch.cat(frames) if len(frames) == 2 else None,
            )


# --- making one ------------------------------------------------------------------------------------------------------


def make_bank(
    clips: ClipSet, encoder: Encoder, config: TrainConfig, *, report: Callable[[str], None] | None = None
) -> Bank:
    """Make the views of all videos and describe them, `data.batch` videos at a time; with `bank.folder`, resumably.

    The hosts of a video-in-video come from the same batch. On disk the first process makes the bank and the others read
    it. `report` takes a line of progress every `run.log_every` batches.
    """
    settings, seed = config.bank, config.run.seed
    if not settings.used:
        raise ConfigError("bank.weak and bank.strong are 0: say how many views of each kind the bank is to hold.")
    if len(clips) < 2:
        raise DataError(f"a bank needs at least 2 videos, got {len(clips)}.")
    folder = Path(settings.folder) if settings.folder else None
    shared = folder is not None and world_size() > 1
    if shared and rank() != 0:
        dist.barrier()
    if folder is not None:
        _require_same(folder, _collect_settings(clips, config))
    device = encoder.device if settings.device == "auto" else torch.device(settings.device)
    counts = {"weak": settings.weak, "strong": settings.strong}
    plan = list(_plan_batches(len(clips), max(counts.values()), config.data.batch, seed))
    tensors: dict[str, Tensor] = {}  # memory that is allocated once
    for number, (turn, videos) in enumerate(plan):
        shard = _read_shard(folder, number)
        if shard is None:
            shard = _make_shard(clips, encoder, config, turn, videos, derive_seed(seed, 5, number))
            if folder is not None:
                _write_shard(folder, number, shard)
        for name, part in shard.items():
            if name not in tensors:
                shape = (len(clips), counts[name.partition(".")[0]], *part.shape[1:])
                tensors[name] = torch.zeros(shape, dtype=part.dtype, device=device)
            tensors[name][videos.to(device), turn] = part.to(device)
        if report is not None and ((number + 1) % config.run.log_every == 0 or number + 1 == len(plan)):
            report(f"bank: {number + 1}/{len(plan)} batches")
    if folder is None:  # nothing has waited for a GPU so far: views are made while those before are described
        _require_finite(tensors)
    if shared and rank() == 0:
        dist.barrier()
    return Bank(
        *(
            Side(tensors[f"{kind}.regions"], tensors[f"{kind}.contents"], tensors.get(f"{kind}.frames"))
            for kind in _KINDS
        )
    )


def _plan_batches(videos: int, turns: int, batch: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """Batches: the number of the view, and the videos it is made of. A last video alone goes with the batch before."""
    for turn in range(turns):
        order = torch.randperm(videos, generator=torch.Generator().manual_seed(derive_seed(seed, 4, turn)))
        parts = list(torch.split(order, batch))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        for part in parts:
            yield turn, part


def _make_shard(
    clips: ClipSet, encoder: Encoder, config: TrainConfig, turn: int, videos: Tensor, seed: int
) -> dict[str, Tensor]:
    windows = clips.draw(videos.tolist(), length=2 * config.views.frames, seed=derive_seed(seed, 0))
    made = make_views(windows, config=config.views, seed=derive_seed(seed, 1), device=encoder.device)
    contents = list_contents(torch.from_numpy(made.plan.content), videos)
    if contents.shape[1] > _PLACES:
        raise ShapeError(f"a view shows {contents.shape[1]} videos, and a bank keeps at most {_PLACES}.")
    contents = torch.nn.functional.pad(contents, (0, _PLACES - contents.shape[1]), value=NOTHING)
    shard = {}
    halves = (slice(0, len(videos)), slice(len(videos), None))
    for kind, half, wanted in zip(_KINDS, halves, (config.bank.weak, config.bank.strong), strict=True):
        if turn < wanted:
            encoded = encoder(made.pictures[half], check=False)
            shard[f"{kind}.regions"] = encoded.regions.half()
            shard[f"{kind}.contents"] = contents[half]
            if encoded.frames is not None:
                # Only directions count, and half precision ends at 65,504.
                shard[f"{kind}.frames"] = torch.nn.functional.normalize(encoded.frames, dim=-1).half()
    return shard


def _require_finite(tensors: Mapping[str, Tensor]) -> None:
    names = {"regions": "the region vectors", "frames": "the teacher's frame vectors"}
    for name, tensor in tensors.items():
        kind, _, what = name.partition(".")
        if what in names:
            for part in torch.split(tensor, 256):  # the check takes memory too
                require_finite(part, f"{names[what]} of {kind} views")


# --- on disk ---------------------------------------------------------------------------------------------------------


def _collect_settings(clips: ClipSet, config: TrainConfig) -> dict[str, Any]:
    """What a bank on disk must agree with."""
    settings = {
        "videos": len(clips),
        "ids_sha256": sha256_bytes("\n".join(clips.ids).encode()),
        "weak": config.bank.weak,
        "strong": config.bank.strong,
        "views": vars(config.views),
        "batch": config.data.batch,
        "seed": config.run.seed,
        "base": config.model.base,
        "teacher": to_table(config)["teacher"],
    }
    if config.data.whole_frames:  # banks of before do not say it
        settings["whole_frames"] = True
    plain: dict[str, Any] = json.loads(json.dumps({"format": _FORMAT, "version": _VERSION, "settings": settings}))
    return plain


def _require_same(folder: Path, description: Mapping[str, Any]) -> None:
    path = folder / ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_json(path, description)
            return
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"the bank '{folder}' cannot be used: {error}.") from error
    before = found.get("settings", {}) if isinstance(found, dict) else {}
    now = description["settings"]
    if isinstance(views := before.get("views"), dict):
        views = {RENAMED.get(key, key): value for key, value in views.items()}
        before["views"] = add_new_settings("views", views, now["views"])
    if found != description:
        changed = [key for key in {**now, **before} if before.get(key) != now.get(key)] or ["format"]
        raise ConfigError(
            f"the bank '{folder}' was made of something else: {', '.join(changed)} differ. Give another bank.folder."
        )


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"views-{number:06d}.safetensors"


def _write_shard(folder: Path, number: int, shard: Mapping[str, Tensor]) -> None:
    _require_finite(shard)
    path = _shard_path(folder, number)
    data = save({name: tensor.cpu().contiguous() for name, tensor in shard.items()})
    hint = "What is there is safe: make room and start again."
    write_bytes(path, data, hint=hint)
    write_bytes(path.with_suffix(".sha256"), sha256_bytes(data).encode(), hint=hint)


def _read_shard(folder: Path | None, number: int) -> dict[str, Tensor] | None:
    """A shard that is whole; None where it has to be made (again)."""
    if folder is None:
        return None
    path = _shard_path(folder, number)
    try:
        data, checksum = path.read_bytes(), path.with_suffix(".sha256").read_text("utf-8")
        if sha256_bytes(data) != checksum:
            return None
        tensors: dict[str, Tensor] = load(data)
        return tensors
    except (OSError, SafetensorError, UnicodeDecodeError):
        return None
