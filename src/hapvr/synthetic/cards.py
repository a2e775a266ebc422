"""Title and end cards: drawn footage that many videos of a channel share, and that makes no two of them the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFont

from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_sprites as sprites
from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.film_numbers import between

_FADE_S = 0.4
_LINES = ["thanks for watching", "like and subscribe", "more every week", "follow us", "original series", "presents"]


@dataclass(frozen=True)
class Card:
    """A card that is put before or after videos. The seed decides how it looks, at every size and rate."""

    id: str
    seed: int
    seconds: float
    at_start: bool

    def count_frames(self, fps: float) -> int:
        """How many frames of a clip at `fps` show the card."""
        return max(1, round(self.seconds * fps))

    def find_shift_s(self, fps: float) -> float:
        """By how much the card moves the clip that it is put to."""
        return self.count_frames(fps) / fps if self.at_start else 0.0


def draw_cards(seed: int, count: int) -> tuple[Card, ...]:
    """Cards of 2 to 4 s; every second one is a title, the others come at the end."""
    rng = np.random.default_rng([seed, 4])
    return tuple(
        Card(f"card-{number + 1}", int(rng.integers(2**31)), round(between(rng, 2, 4), 1), at_start=number % 2 == 1)
        for number in range(count)
    )


def add_card(clip: Clip, card: Card) -> tuple[Clip, tuple[float, float]]:
    """The clip with the card before or after it, and from when to when the card is shown, in seconds."""
    shown = draw_card(card, clip.size, clip.fps)
    parts = [shown, clip.images] if card.at_start else [clip.images, shown]
    start = 0.0 if card.at_start else clip.seconds
    return Clip(np.concatenate(parts), clip.fps), (start, start + len(shown) / clip.fps)


def draw_card(card: Card, size: tuple[int, int], fps: float) -> Images:
    """A logo and two lines on a plain ground, which fade in: [T, H, W, 3] for `size` (height, width)."""
    rng = np.random.default_rng(card.seed)
    dark = pick(rng, [(0, 0, 0), (0, 0, 0), (12, 18, 60), (90, 10, 30), (10, 70, 60), (235, 235, 235)])
    picture = _draw_picture(rng, size, dark).astype(np.float32)
    ground = np.array(dark, np.float32)
    frames = np.empty((card.count_frames(fps), *size, 3), np.uint8)
    for index, frame in enumerate(frames):
        share = min(1.0, (index + 1) / max(1.0, _FADE_S * fps))
        frame[:] = ground + (picture - ground) * np.float32(share) + np.float32(0.5)
    return frames


def _draw_picture(rng: Generator, size: tuple[int, int], ground: tuple[int, int, int]) -> Images:
    height, width = size
    unit = min(height, width)
    picture = np.empty((1, height, width, 3), np.uint8)
    picture[:] = ground
    logo = sprites.draw_logo(rng, max(8, round(unit * 0.22)))
    if logo.shape[1] > 0.9 * width:
        scale = 0.9 * width / logo.shape[1]
        small = Image.fromarray(logo).resize(
            (max(1, round(logo.shape[1] * scale)), max(1, round(logo.shape[0] * scale)))
        )
        logo = np.asarray(small)
    picture = pixels.lay_over(picture, logo, [(round(height / 2 - unit * 0.3), (width - logo.shape[1]) // 2)])
    ink = (20, 20, 20) if sum(ground) > 380 else (240, 240, 240)
    words = Image.new("RGBA", (width, height))
    draw = ImageDraw.Draw(words)
    order = rng.permutation(len(_LINES)).tolist()
    for place, (down, share) in zip(order, ((0.12, 0.1), (0.27, 0.075)), strict=False):
        text = _LINES[place]
        font = ImageFont.load_default(size=max(6.0, min(unit * share, 1.7 * width / len(text))))
        draw.text((width / 2, height / 2 + unit * down), text, (*ink, 255), font, anchor="mm")
    whole: Images = pixels.lay_over(picture, np.asarray(words), [(0, 0)])[0]
    return whole
