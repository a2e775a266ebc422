"""Two views of every clip of a batch: a weak one, and a strong one that is made hard to recognise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.checks import shape_of
from hapvr.errors import DataError, ShapeError
from hapvr.training.augment import temporal
from hapvr.training.augment.config import ViewConfig
from hapvr.training.augment.extras import add_noise, compress_jpeg, film_screen, letterbox, shrink, tilt, turn
from hapvr.training.augment.plan import Overlays, Plan, Seed, draw_plan
from hapvr.training.augment.randaugment import randaugment
from hapvr.training.augment.resample import (
    blur_matrices,
    change_some,
    choose_dtype,
    put,
    resample,
    resize_matrices,
    take,
    to_pixels,
    upload,
)
from hapvr.training.augment.sprites import upload_sprites

_CHUNK_BYTES = 2**31  # of frames that are resampled at a time


@dataclass(frozen=True)
class Views:
    """The views of B clips: first the B weak ones, then the B strong ones."""

    pictures: Tensor  # uint8 [2B, T, 3, S, S], RGB
    content: Tensor  # bool [2B, B]: which of the B videos a view shows something of
    plan: Plan  # what was done; `format_plan` says it in words

    @property
    def labels(self) -> Tensor:
        """Bool [2B, 2B]: which views share content. Symmetric; each view shares its own."""
        content = self.content.float()
        return content @ content.T > 0


@torch.no_grad()
def make_views(
    clips: Sequence[Tensor], *, config: ViewConfig, seed: Seed, device: torch.device | str | None = None
) -> Views:
    """A weak and a strong view of each clip, with labels that say which views share content.

    Strong views are made in this order: the temporal edit, T frames, crop and flip, RandAugment, (perspective, bars),
    text, emoji, (stickers), blur, video-in-video, (quarter turns, screen, tiny, noise, JPEG); what is in brackets is
    off by default.

    Args:
        clips: uint8 [t, H, W, 3] each, RGB; as a rule 2T consecutive frames, or fewer of a short video. They may
            differ in all sizes; those of the same height and width are worked on together.
        config: every probability and range.
        seed: a number from 0 on, or several, such as (seed, step, rank). The same seed draws the same parameters on
            every device, and gives the same pixels on the same device.
        device: where the work is done and the views lie; by default where the first clip lies.

    >>> clips = [torch.zeros(40, 32, 48, 3, dtype=torch.uint8), torch.zeros(5, 36, 36, 3, dtype=torch.uint8)]
    >>> views = make_views(clips, config=ViewConfig(frames=4, size=32), seed=0)
    >>> views.pictures.shape, views.content.shape, views.labels.diagonal().all().item()
    (torch.Size([4, 4, 3, 32, 32]), torch.Size([4, 2]), True)
    """
    _check(clips)
    device = torch.device(device) if device is not None else clips[0].device if len(clips) else torch.device("cpu")
    plan = draw_plan([(clip.shape[0], clip.shape[1], clip.shape[2]) for clip in clips], config, seed)
    pictures = carry_out(plan, clips, config, device)
    return Views(pictures, upload(plan.content, device), plan)


def carry_out(plan: Plan, clips: Sequence[Tensor], config: ViewConfig, device: torch.device) -> Tensor:
    """The views uint8 [2B, T, 3, S, S] that a plan describes."""
    load = partial(upload, device=device)
    generator = torch.Generator(device).manual_seed(plan.noise_seed)
    views = cut(plan, clips, config, device)
    fill_gaps(views, plan.index, generator)
    strong = views[len(clips) :]
    for names, strengths in zip(plan.operations, plan.strengths, strict=True):
        randaugment(strong, names, strengths)
    change_some(strong, plan.corners, lambda part, rows: tilt(part.flatten(1, 2), plan.corners[rows]))
    bars, backdrop = plan.bars, plan.backdrop
    change_some(strong, bars, lambda part, rows: letterbox(part.flatten(1, 2), load(bars[rows]), load(backdrop[rows])))
    frames = strong.view(-1, *strong.shape[2:])  # [B T, 3, S, S]
    lay_over(frames, plan.text, "text")
    lay_over(frames, plan.emoji, "emoji")
    for stickers in plan.stickers:
        lay_over(frames, stickers, "emoji")
    blur(frames, plan.blur.reshape(-1))
    mix(strong, plan)
    change_some(strong, plan.quarters, lambda part, rows: turn(part, plan.quarters[rows].tolist()))
    change_some(strong, plan.screen, lambda part, rows: film_screen(part, load(plan.screen[rows])))
    change_some(strong, plan.tiny, lambda part, rows: shrink(part, *load(plan.tiny[rows]).unbind(1)))
    change_some(strong, plan.noise, lambda part, rows: add_noise(part, load(plan.noise[rows]), generator))
    quality = np.tile(plan.jpeg[:, None], config.frames)  # [B, T]
    change_some(strong, quality, lambda part, rows: compress_jpeg(part.flatten(0, 1), load(quality[rows]).flatten()))
    return views


def cut(plan: Plan, clips: Sequence[Tensor], config: ViewConfig, device: torch.device) -> Tensor:
    """Frames chosen, cropped, flipped and resized: uint8 [2B, T, 3, S, S]. Where the plan has no frame, any frame."""
    B, T, S = len(clips), config.frames, config.size
    views = torch.empty(2 * B, T, 3, S, S, dtype=torch.uint8, device=device)
    sizes: dict[tuple[int, int], list[int]] = {}
    for number, clip in enumerate(clips):
        sizes.setdefault((clip.shape[1], clip.shape[2]), []).append(number)
    for (height, width), group in sizes.items():
        at_once = max(1, _CHUNK_BYTES // (2 * T * 3 * height * (width + S) * 4))
        for first in range(0, len(group), at_once):
            numbers = group[first : first + at_once]
            rows = np.array(numbers + [B + number for number in numbers])
            put(views, upload(rows, device), _cut_alike([clips[i] for i in numbers], plan, rows, S, device))
    return views


def _cut_alike(clips: list[Tensor], plan: Plan, rows: NDArray[np.int64], size: int, device: torch.device) -> Tensor:
    """`cut` for clips of one height and width; `rows` are those of the plan: of their weak, then their strong views."""
    frames = torch.cat([clip.to(device).permute(0, 3, 1, 2) for clip in clips]).contiguous()  # [sum t, 3, H, W]
    starts = np.cumsum([0] + [len(clip) for clip in clips[:-1]])
    index = np.maximum(plan.index[rows], 0) + np.concatenate([starts, starts])[:, None]  # [n, T]
    height, width = frames.shape[2:]
    n, T = index.shape
    pictures = take(frames, upload(index.reshape(-1), device)).to(choose_dtype(device))
    top, left, high, wide = upload(plan.crop[rows], device).unbind(1)
    flip = upload(plan.flip[rows], device)
    zero, whole = torch.zeros(n, device=device), torch.full((n,), float(size), device=device)
    columns = resize_matrices(width, size, left, wide, zero, whole, flip=flip)
    out = resample(
        pictures.view(n, T * 3, height, width), resize_matrices(height, size, top, high, zero, whole), columns
    )
    return to_pixels(out, clamp=False).view(n, T, 3, size, size)


def fill_gaps(views: Tensor, index: NDArray[np.int64], generator: torch.Generator) -> None:
    """Black and noise where a temporal edit left no frame, in place."""
    frames = views.view(-1, *views.shape[2:])
    index = index.reshape(-1)

    def draw_noise(part: Tensor, _: NDArray[np.int64]) -> Tensor:
        return torch.randint(0, 256, part.shape, dtype=torch.uint8, device=part.device, generator=generator)

    change_some(frames, index == temporal.BLANK, lambda part, _: torch.zeros_like(part))
    change_some(frames, index == temporal.NOISE, draw_noise)


def lay_over(frames: Tensor, overlays: Overlays, kind: str) -> None:
    """Sprites of the bank `kind` over frames uint8 [F, 3, S, S], in place."""
    if not len(overlays.frame):
        return
    device, S = frames.device, frames.shape[-1]
    dtype = choose_dtype(device)
    sprites = upload_sprites(kind, device, dtype)[upload(overlays.sprite, device)]  # [n, 4, h, w]
    top, left, high, wide = upload(overlays.box, device).unbind(1)
    zero = torch.zeros_like(top)
    rows = resize_matrices(sprites.shape[2], S, zero, zero + sprites.shape[2], top, high)
    columns = resize_matrices(sprites.shape[3], S, zero, zero + sprites.shape[3], left, wide)
    opacity = upload(overlays.opacity, device).to(dtype)[:, None, None, None]
    laid = resample(sprites, rows, columns) * opacity  # [n, 4, S, S]
    numbers = upload(overlays.frame, device)
    put(frames, numbers, to_pixels(take(frames, numbers) * (1 - laid[:, 3:]) + laid[:, :3], clamp=False))


def blur(frames: Tensor, radius: NDArray[np.float64]) -> None:
    """Gaussian blur of `radius` [F] pixels of frames uint8 [F, 3, S, S], in place; 0 leaves a frame as it is."""
    dtype = choose_dtype(frames.device)

    def blur_some(part: Tensor, rows: NDArray[np.int64]) -> Tensor:
        matrices = blur_matrices(part.shape[-1], upload(radius[rows], part.device))
        return to_pixels(resample(part.to(dtype), matrices, matrices), clamp=False)

    change_some(frames, radius, blur_some)


def mix(strong: Tensor, plan: Plan) -> None:
    """Video-in-video on strong views uint8 [B, T, 3, S, S], in place: clips squeezed into boxes of their hosts."""
    guests = np.flatnonzero(plan.host >= 0)
    if not len(guests):
        return
    device, S = strong.device, strong.shape[-1]
    chosen = upload(guests, device)
    box, border = upload(plan.box[guests], device), upload(plan.border[guests], device)
    top, left, high, wide = box.unbind(1)
    zero = torch.zeros_like(top)
    rows, columns = (
        resize_matrices(S, S, zero, zero + S, top, high),
        resize_matrices(S, S, zero, zero + S, left, wide),
    )
    small = resample(take(strong, chosen).flatten(1, 2).to(choose_dtype(device)), rows, columns)  # [n, T 3, S, S]
    hosts = take(strong, upload(plan.host[guests], device))
    colour = upload(plan.border_colour[guests].astype(np.uint8), device)[:, None, :, None, None]
    place = torch.arange(S, device=device) + 0.5

    def within(margin: Tensor) -> Tensor:  # bool [n, 1, 1, S, S]
        inside = [
            (place > (start + margin)[:, None]) & (place < (start + side - margin)[:, None])
            for start, side in ((top, high), (left, wide))
        ]
        return (inside[0][:, :, None] & inside[1][:, None, :])[:, None, None]

    shown = torch.where(within(border), to_pixels(small, clamp=False).view_as(hosts), colour)
    put(strong, chosen, torch.where(within(zero), shown, hosts))


def _check(clips: Sequence[Tensor]) -> None:
    for number, clip in enumerate(clips):
        if not isinstance(clip, Tensor) or clip.dtype != torch.uint8 or clip.ndim != 4 or clip.shape[3] != 3:
            kind = f"{clip.dtype} {shape_of(clip)}" if isinstance(clip, Tensor) else shape_of(clip)
            raise ShapeError(f"clip {number} must be uint8 [t, H, W, 3], got {kind}.")
        if 0 in clip.shape:
            raise DataError(f"clip {number} is empty: {list(clip.shape)}. Leave videos without frames out.")
