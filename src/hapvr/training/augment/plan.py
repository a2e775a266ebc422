"""Everything random about the views of a batch, drawn before any pixel is touched.

Draws are made on the CPU, so the same seed gives the same plan whatever device carries it out, and each kind of draw
has a separate random stream: switching one augmentation off leaves the others as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hapvr.config import Range
from hapvr.errors import ConfigError
from hapvr.training.augment import temporal
from hapvr.training.augment.config import ViewConfig
from hapvr.training.augment.randaugment import OPERATIONS, SIGNED, strength
from hapvr.training.augment.sprites import SpriteBank, make_sprites

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Seed = int | Sequence[int]


@dataclass(frozen=True)
class Overlays:
    """Sprites laid over frames: n of them, at most one a frame."""

    frame: Integers  # [n], of the B x T strong frames
    sprite: Integers  # [n], of the bank
    box: Floats  # [n, 4]: top, left, height, width in pixels
    opacity: Floats  # [n]


@dataclass(frozen=True)
class Plan:
    """What is done to B clips: arrays of 2B rows are of the weak, then the strong views; of B rows, the strong."""

    index: Integers  # [2B, T]: frames of the clip, or temporal.BLANK, temporal.NOISE
    kinds: tuple[str, ...]  # B names out of temporal.KINDS
    held: Integers  # [B]: frames for which each is held, 1 for none
    crop: Integers  # [2B, 4]: top, left, height, width in pixels of the clip
    flip: Bools  # [2B]
    operations: tuple[tuple[str, ...], ...]  # of RandAugment, B names for each of its rounds
    strengths: Floats  # [rounds, B]
    text: Overlays
    emoji: Overlays
    blur: Floats  # [B, T]: radius in pixels, 0 for none
    host: Integers  # [B]: the strong clip into which this one is pasted, -1 for none
    box: Integers  # [B, 4]: where, as top, left, height, width in pixels; it may reach over the frame's border
    border: Integers  # [B]: pixels, 0 for none
    border_colour: Integers  # [B, 3]
    corners: Floats  # [B, 4, 2]: how far each corner moves in (right, down), share of the side; 0 for none
    bars: Integers  # [B, 2]: pixels of a bar above and below, and of one left and right
    noise: Floats  # [B]: standard deviation, 0 for none
    jpeg: Integers  # [B]: quality, 0 for none
    noise_seed: int  # of the pixels of noise, which the device draws
    quarters: Integers  # [B]: quarter turns, 0 to 3
    backdrop: Bools  # [B]: bars show the picture
    stickers: tuple[Overlays, ...]  # one after the other; each the same in all frames of a clip
    tiny: Integers  # [B, 2]: pixels of the side it is made small to, and the quality of JPEG; 0 for not at all
    screen: Floats  # [B, 4]: strength of the stripes, their width in pixels, their tilt, strength of the flicker

    @property
    def content(self) -> Bools:
        """[2B, B]: which of the B videos each view shows something of."""
        B = len(self.host)
        content = np.tile(np.eye(B, dtype=np.bool_), (2, 1))
        mixed = np.flatnonzero(self.host >= 0)
        content[B + mixed, self.host[mixed]] = True
        return content


def draw_plan(shapes: Sequence[tuple[int, int, int]], config: ViewConfig, seed: Seed) -> Plan:
    """Draw what happens to clips of these shapes (frames, height, width); `seed` is one number or several."""
    streams = iter(make_generator(seed).spawn(16))
    B, T, S = len(shapes), config.frames, config.size
    index, kinds, held = _draw_times(next(streams), [shape[0] for shape in shapes], config)
    rng = next(streams)
    scales = (config.weak_scale, config.strong_scale)
    sizes = np.array([shape[1:] for shape in shapes], np.int64).reshape(B, 2)
    crop = np.concatenate([draw_crops(rng, sizes, scale, config.ratio) for scale in scales])
    flip = rng.random(2 * B) < config.flip
    operations, strengths = _draw_operations(next(streams), B, config)
    text = _draw_overlays(next(streams), B * T, config.text, config.text_size, make_sprites("text"), config)
    emoji = _draw_overlays(next(streams), B * T, config.emoji, config.emoji_size, make_sprites("emoji"), config)
    rng = next(streams)
    blur = rng.uniform(*config.blur_radius, (B, T)) * _choose(rng, config.blur, (B, T))
    rng = next(streams)
    host = draw_hosts(rng, B, config.mixup)
    box = draw_boxes(rng, B, config)
    rng = next(streams)
    border = np.maximum(1, _round(rng.uniform(*config.border_width, B) * S))
    border = border * (_choose(rng, config.border, (B,)) & (host >= 0))
    border_colour = rng.integers(0, 256, (B, 3))
    rng = next(streams)
    corners = rng.uniform(0, 1, (B, 4, 2)) * rng.uniform(*config.perspective_part, (B, 1, 1))
    corners = corners * _choose(rng, config.perspective, (B, 1, 1))
    rng = next(streams)
    bars = _round(rng.uniform(*config.letterbox_part, (B, 1)) * S) * np.eye(2, dtype=np.int64)[rng.integers(0, 2, B)]
    bars = bars * _choose(rng, config.letterbox, (B, 1))
    rng = next(streams)
    noise = rng.uniform(*config.noise_strength, B) * _choose(rng, config.noise, (B,))
    noise_seed = int(rng.integers(2**62))
    rng = next(streams)
    jpeg = _round(rng.uniform(*config.jpeg_quality, B)) * _choose(rng, config.jpeg, (B,))
    rng = next(streams)
    quarters = rng.integers(1, 4, B) * _choose(rng, config.turned, (B,))
    backdrop = _choose(rng, config.backdrop, (B,)) & bars.any(1)
    stickers = _draw_stickers(next(streams), B, config)
    rng = next(streams)
    tiny = np.stack([_round(rng.uniform(*config.tiny_scale, B) * S), _round(rng.uniform(*config.tiny_quality, B))], 1)
    tiny = np.maximum(1, tiny) * _choose(rng, config.tiny, (B, 1))
    rng = next(streams)
    looks = [rng.uniform(*config.screen_strength, B), rng.uniform(0.02, 0.06, B) * S, rng.uniform(-0.6, 0.6, B)]
    screen = np.stack([*looks, rng.uniform(*config.screen_strength, B)], 1) * _choose(rng, config.screen, (B, 1))
    return Plan(
        index=index, kinds=kinds, held=held, crop=crop, flip=flip, operations=operations, strengths=strengths,
        text=text, emoji=emoji, blur=blur, host=host, box=box, border=border,
        border_colour=border_colour, corners=corners, bars=bars, noise=noise, jpeg=jpeg, noise_seed=noise_seed,
        quarters=quarters, backdrop=backdrop, stickers=stickers, tiny=tiny, screen=screen,
    )  # fmt: skip


def format_plan(plan: Plan) -> list[str]:
    """What is done to each of the 2B views, in a few words each."""
    B = len(plan.host)
    T = plan.index.shape[1]
    texts = np.bincount(plan.text.frame // T, minlength=B)
    emoji = np.bincount(plan.emoji.frame // T, minlength=B)
    lines = []
    for view in range(2 * B):
        top, left, height, width = plan.crop[view]
        words = [f"crop {width} x {height} at ({left}, {top})"] + ["flipped"] * bool(plan.flip[view])
        if view < B:
            lines.append(", ".join([f"frames from {plan.index[view, 0]}", *words]))
            continue
        clip = view - B
        gone = int((plan.index[view] < 0).sum())
        words.insert(0, plan.kinds[clip].replace("_", " ") + (f" ({gone} blank or noise)" if gone else ""))
        if plan.held[clip] > 1:
            words.insert(1, f"held x{plan.held[clip]}")
        for names, values in zip(plan.operations, plan.strengths, strict=True):
            words.append(names[clip] + (f" {values[clip]:.4g}" if values[clip] else ""))
        look = " of the picture" if plan.backdrop[clip] else ""
        host, edge = plan.host[clip], f" with a border of {plan.border[clip]}" if plan.border[clip] else ""
        count = sum(int((laid.frame // T == clip).any()) for laid in plan.stickers)
        notes = (
            (plan.corners[clip].any(), f"seen from aside {plan.corners[clip].max():.2f}"),
            (plan.bars[clip].any(), f"bars{look} {plan.bars[clip].max()} px"),
            (True, f"text on {texts[clip]}, emoji on {emoji[clip]}, blur on {(plan.blur[clip] > 0).sum()} of {T}"),
            (host >= 0, f"in clip {host}, box {plan.box[clip, 3]} x {plan.box[clip, 2]}{edge}"),
            (count, f"{count} stickers"),
            (plan.quarters[clip], f"turned by {90 * plan.quarters[clip]} degrees"),
            (plan.tiny[clip].any(), f"from {plan.tiny[clip, 0]} px, JPEG {plan.tiny[clip, 1]}"),
            (plan.screen[clip].any(), f"from a screen {plan.screen[clip, 0]:.2f}"),
            (plan.noise[clip], f"noise {plan.noise[clip]:.1f}"),
            (plan.jpeg[clip], f"JPEG {plan.jpeg[clip]}"),
        )
        words += [text for applies, text in notes if applies]
        lines.append(", ".join(words))
    return lines


def draw_crops(rng: Generator, sizes: Integers, scale: Range, ratio: Range) -> Integers:
    """Boxes [N, 4] (top, left, height, width) of a random share of the area of pictures of `sizes` [N, 2].

    The share is drawn evenly from `scale`, the proportions (width by height) evenly on the logarithm of `ratio`, up to
    ten times until a box fits. If none does, it is the largest box in the middle whose proportions are in the range.
    """
    tries, count = 10, len(sizes)
    heights, widths = sizes[:, :1], sizes[:, 1:]
    area = heights * widths * rng.uniform(*scale, (count, tries))
    proportions = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), (count, tries)))
    wide = np.rint(np.sqrt(area * proportions)).astype(np.int64)
    high = np.rint(np.sqrt(area / proportions)).astype(np.int64)
    fits = (wide >= 1) & (wide <= widths) & (high >= 1) & (high <= heights)
    first = fits.argmax(1)
    rows = np.arange(count)
    wide, high = wide[rows, first], high[rows, first]
    place = rng.random((2, count))
    top = np.floor(place[0] * (sizes[:, 0] - high + 1)).astype(np.int64)
    left = np.floor(place[1] * (sizes[:, 1] - wide + 1)).astype(np.int64)
    boxes = np.stack([top, left, high, wide], 1)
    for row in np.flatnonzero(~fits.any(1)):
        height, width = (int(side) for side in sizes[row])
        if width / height > ratio[1]:
            size = height, max(1, min(width, round(height * ratio[1])))
        elif width / height < ratio[0]:
            size = max(1, min(height, round(width / ratio[0]))), width
        else:
            size = height, width
        boxes[row] = (height - size[0]) // 2, (width - size[1]) // 2, *size
    return boxes


def draw_hosts(rng: Generator, clips: int, chance: float) -> Integers:
    """For each clip the one it is pasted into, or -1. A host is not itself pasted into another one.

    Where by chance every clip would be pasted, one is kept as it is.
    """
    mixed = rng.random(clips) < chance
    if clips and mixed.all():
        mixed[int(rng.integers(clips))] = False
    free = np.flatnonzero(~mixed)
    hosts = np.full(clips, -1)
    if mixed.any():
        hosts[mixed] = free[rng.integers(0, len(free), int(mixed.sum()))]
    return hosts


def draw_boxes(rng: Generator, clips: int, config: ViewConfig) -> Integers:
    """Boxes [B, 4] whose sides are sqrt(1 - lambda) of the frame, about any pixel.

    They are cut at the frame's border, or with mixup_edge="crop" reach over it.
    """
    S = config.size
    half = np.sqrt(1 - rng.uniform(*config.mixup_ratio, (clips, 1))) * S / 2
    middle = rng.random((clips, 2)) * S
    start, stop = np.rint(middle - half).astype(np.int64), np.rint(middle + half).astype(np.int64)
    if config.mixup_edge == "squeeze":
        start = np.clip(start, 0, S - 1)
        stop = np.minimum(stop, S)
    return np.concatenate([start, np.maximum(stop, start + 1) - start], 1)


def _draw_times(rng: Generator, lengths: list[int], config: ViewConfig) -> tuple[Integers, tuple[str, ...], Integers]:
    crop, clips = temporal.crop, [np.arange(length) for length in lengths]
    if config.temporal_edits == "authors":
        crop, clips = (
            temporal.crop_as_authors,
            [temporal.repeat_as_authors(rng, length, 2 * config.frames) for length in lengths],
        )
    weak = [crop(rng, clip, config.frames) for clip in clips]
    strong, kinds, held = [], [], []
    for clip in clips:
        kind = temporal.draw_kind(rng, config)
        index = temporal.edit(rng, len(clip), kind, config)
        index = np.where(index >= 0, clip[index], index)  # of a video that was repeated, its own frames
        step = int(rng.integers(config.low_rate_step[0], config.low_rate_step[1] + 1))
        step = step if rng.random() < config.low_rate else 1
        strong.append(crop(rng, temporal.hold(index, step), config.frames))
        kinds.append(kind)
        held.append(step)
    index = np.array(weak + strong, np.int64).reshape(2 * len(lengths), config.frames)
    return index, tuple(kinds), np.array(held, np.int64)


def _draw_operations(rng: Generator, clips: int, config: ViewConfig) -> tuple[tuple[tuple[str, ...], ...], Floats]:
    shape = config.randaugment_ops, clips
    drawn = rng.integers(0, len(OPERATIONS), shape)
    sign = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    base = np.array([
        strength(name, magnitude=config.randaugment_magnitude, bins=config.randaugment_bins, size=config.size)
        for name in OPERATIONS
    ])  # fmt: skip
    signed = np.array([name in SIGNED for name in OPERATIONS])
    names = tuple(tuple(OPERATIONS[number] for number in row) for row in drawn)
    return names, np.where(signed[drawn], sign, 1.0) * base[drawn]


def _draw_overlays(
    rng: Generator, frames: int, chance: float, size: Range, bank: SpriteBank, config: ViewConfig
) -> Overlays:
    frame = np.flatnonzero(rng.random(frames) < chance)
    count, S = len(frame), config.size
    sprite = rng.integers(0, len(bank), count)
    sides = rng.uniform(*size, count) * S
    root = np.sqrt(bank.aspects[sprite])
    shape = np.stack([sides / root, sides * root], 1)  # the area is that of a square of this side
    shape *= np.minimum(1, S / shape.max(1, initial=1, keepdims=True))
    place = rng.random((count, 2)) * (S - shape)
    return Overlays(frame, sprite, np.concatenate([place, shape], 1), rng.uniform(*config.opacity, count))


def _draw_stickers(rng: Generator, clips: int, config: ViewConfig) -> tuple[Overlays, ...]:
    """Up to `max_stickers` overlays a clip, in as many rounds: a round lays at most one over a frame."""
    T, S = config.frames, config.size
    bank = make_sprites("emoji")
    counts = rng.integers(1, config.max_stickers + 1, clips) * _choose(rng, config.stickers, (clips,))
    rounds = []
    for number in range(config.max_stickers):
        sprite = rng.integers(0, len(bank), clips)
        sides = rng.uniform(*config.stickers_size, (clips, 1)) * S
        place = rng.random((clips, 2)) * S - sides / 2  # some reach over the edge
        opacity = rng.uniform(*config.opacity, clips)
        chosen = np.flatnonzero(counts > number)
        if len(chosen):
            box = np.concatenate([place, sides, sides], 1)[chosen].repeat(T, 0)
            frame = (chosen[:, None] * T + np.arange(T)).reshape(-1)
            rounds.append(Overlays(frame, sprite[chosen].repeat(T), box, opacity[chosen].repeat(T)))
    return tuple(rounds)


def _choose(rng: Generator, chance: float, shape: tuple[int, ...]) -> Bools:
    return rng.random(shape) < chance


def _round(values: Floats) -> Integers:
    return np.rint(values).astype(np.int64)


def make_generator(seed: Seed) -> Generator:
    """Random numbers from one whole number, or from several."""
    parts = [seed] if isinstance(seed, int) else list(seed)
    if not parts or not all(isinstance(part, int) and part >= 0 for part in parts):
        raise ConfigError(f"a seed is a whole number from 0 on, or several, such as (seed, step, rank); got {seed!r}.")
    return np.random.default_rng(parts)
