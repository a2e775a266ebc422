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
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hapvr.checks import require_finite
from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.storage import sha256_bytes, write_bytes, write_json
from hapvr.training.alike import LookAlikes, mean_vectors
from hapvr.training.augment import ViewConfig, make_views
from hapvr.training.clips import ClipSet
from hapvr.training.config import BankConfig
from hapvr.training.distributed import rank
from hapvr.training.encoder import Encoder
from hapvr.training.sources import Timed, drawn_videos, seed_of
from hapvr.training.step import NOTHING, Batch, contents_of

ABOUT = "bank.json"
_FORMAT, _VERSION, _PLACES = "hapvr-bank", 1, 2  # a view shows its own video, and its host's

Progress = Callable[[int, int], None]


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
        tensors = [t for side in (self.weak, self.strong) for t in (side.regions, side.frames) if t is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**30

    def to(self, device: torch.device | str) -> Bank:
        """The same on another device."""
        return Bank(self.weak.to(device), self.strong.to(device))


class BankSource:
    """Batches that are drawn from a bank.

    Args:
        bank: of views.
        batch: videos a step and process.
        seed: of all that is drawn.
        device: where the batches are needed.
        alike: the share of a batch that is drawn as groups of look-alikes; they are found by the weak views.
        group: videos of such a group.
    """

    def __init__(
        self, bank: Bank, *, batch: int, seed: int, device: torch.device, alike: float = 0.0, group: int = 8
    ) -> None:
        drawn_videos(0, videos=len(bank), batch=batch, seed=seed)  # refuses too few
        self.bank, self.size, self.seed, self.device = bank, batch, seed, device
        self.alike = LookAlikes.of(
            lambda: mean_vectors(bank.weak.regions),
            videos=len(bank),
            share=alike,
            group=group,
            batch=batch,
            device=device,
        )

    def batch(self, step: int, timed: Timed = lambda _: nullcontext()) -> Batch:
        """See `Source`."""
        with timed("load"):
            videos = drawn_videos(step, videos=len(self.bank), batch=self.size, seed=self.seed, alike=self.alike)
            generator = torch.Generator().manual_seed(seed_of(self.seed, 3, step, rank()))
            sides = [
                side.take(videos, torch.randint(side.regions.shape[1], (len(videos),), generator=generator)).to(
                    self.device
                )
                for side in (self.bank.weak, self.bank.strong)
            ]
            frames = [side.frames.float() for side in sides if side.frames is not None]
            return Batch(
                torch.cat([side.regions for side in sides]),
                torch.cat([side.contents for side in sides]),
                torch.cat(frames) if len(frames) == 2 else None,
            )


# --- making one ------------------------------------------------------------------------------------------------------


def make_bank(
    clips: ClipSet,
    encoder: Encoder,
    *,
    config: BankConfig,
    views: ViewConfig,
    batch: int,
    seed: int,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Bank:
    """Make the views of all videos and describe them; with `config.folder`, resumably.

    Args:
        clips: the videos.
        encoder: backbone and teacher.
        config: how many views of each kind, where they are kept, where they are used.
        views: how they are made.
        batch: videos at a time; the hosts of a video-in-video come from the same batch.
        seed: of all that is drawn.
        about: what else a bank on disk must agree with: model, teacher.
        progress: called with the batches that are done, and of all.
    """
    if not config.used:
        raise ConfigError("bank.weak and bank.strong are 0: say how many views of each kind the bank is to hold.")
    if len(clips) < 2:
        raise DataError(f"a bank needs at least 2 videos, got {len(clips)}.")
    folder = Path(config.folder) if config.folder else None
    if folder is not None:
        _require_same(folder, _description(clips, config, views, batch, seed, about or {}))
    device = encoder.device if config.device == "auto" else torch.device(config.device)
    plan = list(_plan(len(clips), max(config.weak, config.strong), batch, seed))
    filler = _Filler(len(clips), config, device)
    for number, (turn, videos) in enumerate(plan):
        shard = _read_shard(folder, number)
        if shard is None:
            shard = _make_shard(clips, encoder, views, config, turn, videos, seed_of(seed, 5, number))
            if folder is not None:
                _write_shard(folder, number, shard)
        filler.add(turn, videos, shard)
        if progress is not None:
            progress(number + 1, len(plan))
    bank = filler.bank()
    if folder is None:  # nothing has waited for a GPU so far: views are made while those before are described
        _require_finite(filler.tensors)
    return bank


def _plan(videos: int, turns: int, batch: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """Batches: the number of the view, and the videos it is made of. A last video alone goes with the batch before."""
    for turn in range(turns):
        order = torch.randperm(videos, generator=torch.Generator().manual_seed(seed_of(seed, 4, turn)))
        parts = list(torch.split(order, batch))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        for part in parts:
            yield turn, part


def _make_shard(
    clips: ClipSet, encoder: Encoder, views: ViewConfig, config: BankConfig, turn: int, videos: Tensor, seed: int
) -> dict[str, Tensor]:
    windows = clips.draw(videos.tolist(), length=2 * views.frames, seed=seed_of(seed, 0))
    made = make_views(windows, config=views, seed=seed_of(seed, 1), device=encoder.device)
    contents = contents_of(torch.from_numpy(made.plan.content), videos)
    if contents.shape[1] > _PLACES:
        raise ShapeError(f"a view shows {contents.shape[1]} videos, and a bank keeps at most {_PLACES}.")
    contents = torch.nn.functional.pad(contents, (0, _PLACES - contents.shape[1]), value=NOTHING)
    shard = {}
    halves = {"weak": slice(0, len(videos)), "strong": slice(len(videos), None)}
    for kind, wanted in (("weak", config.weak), ("strong", config.strong)):
        if turn >= wanted:
            continue
        encoded = encoder(made.pictures[halves[kind]], check=False)
        shard[f"{kind}.regions"] = encoded.regions.half()
        shard[f"{kind}.contents"] = contents[halves[kind]]
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


class _Filler:
    """Puts shards together, in memory that is taken once."""

    def __init__(self, videos: int, config: BankConfig, device: torch.device) -> None:
        self.counts = {"weak": config.weak, "strong": config.strong}
        self.videos, self.device = videos, device
        self.tensors: dict[str, Tensor] = {}

    def add(self, turn: int, videos: Tensor, shard: Mapping[str, Tensor]) -> None:
        for name, part in shard.items():
            if name not in self.tensors:
                shape = (self.videos, self.counts[name.partition(".")[0]], *part.shape[1:])
                self.tensors[name] = torch.zeros(shape, dtype=part.dtype, device=self.device)
            self.tensors[name][videos.to(self.device), turn] = part.to(self.device)

    def bank(self) -> Bank:
        def side(kind: str) -> Side:
            t = self.tensors
            return Side(t[f"{kind}.regions"], t[f"{kind}.contents"], t.get(f"{kind}.frames"))

        return Bank(side("weak"), side("strong"))


# --- on disk ---------------------------------------------------------------------------------------------------------


def _description(
    clips: ClipSet, config: BankConfig, views: ViewConfig, batch: int, seed: int, about: Mapping[str, Any]
) -> dict[str, Any]:
    ids = sha256_bytes("\n".join(clips.ids).encode())
    settings = {
        "videos": len(clips),
        "ids_sha256": ids,
        "weak": config.weak,
        "strong": config.strong,
        "views": vars(views),
        "batch": batch,
        "seed": seed,
        **about,
    }
    described = {"format": _FORMAT, "version": _VERSION, "settings": settings}
    plain: dict[str, Any] = json.loads(json.dumps(described))
    return plain


def _require_same(folder: Path, description: Mapping[str, Any]) -> None:
    path = folder / ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_json(path, description)
            return
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"the bank '{folder}' cannot be used: {error}.") from error
    if found != description:
        before = found.get("settings", {}) if isinstance(found, dict) else {}
        now = description["settings"]
        changed = [key for key in now if before.get(key) != now[key]] or ["format"]
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
        data, checksum = path.read_bytes(), path.with_suffix(".sha256").read_text()
        if sha256_bytes(data) != checksum:
            return None
        tensors: dict[str, Tensor] = load(data)
        return tensors
    except (OSError, SafetensorError, UnicodeDecodeError):
        return None
