"""Drawn films that look like footage, for the demo: streets, seas, stages, games, each with people or things that move.

A film has three shots: a scene, a nearer view of it, and a scene of another kind. Each scene paints a background larger
than the picture and lists what moves over it; a camera pans or zooms over both. All of it follows from one seed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from hapvr.errors import ConfigError
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.film_numbers import between
from hapvr.synthetic.footage_canvas import HEIGHT, WIDTH, Painter
from hapvr.synthetic.footage_country import paint_farm, paint_park, paint_snow
from hapvr.synthetic.footage_people import paint_concert, paint_game, paint_kitchen, paint_talk
from hapvr.synthetic.footage_town import paint_night, paint_street, paint_train
from hapvr.synthetic.footage_water import paint_aquarium, paint_sea

_SCENES: tuple[Painter, ...] = (
    paint_street, paint_sea, paint_park, paint_night, paint_kitchen, paint_game,
    paint_snow, paint_train, paint_concert, paint_aquarium, paint_farm, paint_talk,
)  # fmt: skip
_GRAIN = 5  # grey levels


def draw_footage(seed: int, *, seconds: float = 12.0, fps: float = 10.0, size: tuple[int, int] = (240, 320)) -> Clip:
    """Draw the film of a seed: [T, H, W, 3] at `fps`; size is (height, width). `ConfigError` for a seed below 1.

    Films of neighbouring seeds begin with scenes of different kinds; after twelve the kinds come again, in new forms.

    >>> draw_footage(3, seconds=0.5, size=(48, 64)).images.shape
    (5, 48, 64, 3)
    """
    if seed < 1:
        raise ConfigError(f"seed must be 1 or above, got {seed}.")
    rng = np.random.default_rng([seed, 7])
    kind = (seed - 1) % len(_SCENES)
    first, other = (_SCENES[number % len(_SCENES)] for number in (kind, kind + 5))
    scene = _Scene(first, np.random.default_rng([seed, 1]))
    shots = [
        (scene, _Camera(rng, zoom=between(rng, 0.8, 0.95))),
        (scene, _Camera(rng, zoom=between(rng, 0.45, 0.6))),
        (_Scene(other, np.random.default_rng([seed, 2])), _Camera(rng, zoom=between(rng, 0.65, 0.9))),
    ]
    cuts = np.cumsum([between(rng, 0.8, 1.3) for _ in shots])
    cuts *= seconds / cuts[-1]
    height, width = size
    grain = rng.integers(-_GRAIN, _GRAIN + 1, (4, height, width, 1)).astype(np.int16)
    images = np.empty((max(1, round(seconds * fps)), height, width, 3), np.uint8)
    for frame in range(len(images)):
        time_s = frame / fps
        shot = int(np.searchsorted(cuts[:-1], time_s, side="right"))
        begin = 0.0 if shot == 0 else cuts[shot - 1]
        scene, camera = shots[shot]
        box = camera.find_box((time_s - begin) / (cuts[shot] - begin), time_s, width / height)
        picture = scene.draw(time_s).resize((width, height), Image.Resampling.BILINEAR, box=box)
        images[frame] = np.clip(np.asarray(picture, np.int16) + grain[frame % len(grain)], 0, 255)
    return Clip(images, fps)


class _Camera:
    """A slow move from one part of a scene to another, with a little shake."""

    def __init__(self, rng: Generator, *, zoom: float) -> None:
        self.zoom = zoom, zoom * between(rng, 0.85, 1.05)
        self.start, self.end = ((float(rng.random()), between(rng, 0.3, 0.8)) for _ in range(2))
        self.shake = between(rng, 0.0, 4.0)

    def find_box(self, share: float, time_s: float, aspect: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what is seen."""
        zoom = min(1.0, self.zoom[0] + (self.zoom[1] - self.zoom[0]) * share)
        width = min(WIDTH, HEIGHT * aspect) * zoom
        height = width / aspect
        x, y = (start + (end - start) * share for start, end in zip(self.start, self.end, strict=True))
        left = (WIDTH - width) * x + self.shake * math.sin(5.1 * time_s)
        top = (HEIGHT - height) * y + self.shake * math.sin(3.7 * time_s + 1)
        left, top = min(max(left, 0.0), WIDTH - width), min(max(top, 0.0), HEIGHT - height)
        return left, top, left + width, top + height


class _Scene:
    """A painted background and what moves over it."""

    def __init__(self, paint: Painter, rng: Generator) -> None:
        picture = Image.new("RGB", (WIDTH, HEIGHT))
        self.movers = paint(picture, ImageDraw.Draw(picture), rng)
        self.background = _roughen(picture, rng)

    def draw(self, time_s: float) -> Image.Image:
        """The scene at a time."""
        picture = self.background.copy()
        draw = ImageDraw.Draw(picture)
        for mover in self.movers:
            mover(draw, time_s)
        return picture


def _roughen(picture: Image.Image, rng: Generator) -> Image.Image:
    """A picture with patches of light and fine texture, as surfaces have."""
    light = np.zeros((HEIGHT, WIDTH), np.float32)
    for cells, strength in ((6, 0.10), (24, 0.07), (120, 0.07), (480, 0.05)):
        noise = rng.random((cells * HEIGHT // WIDTH + 1, cells)).astype(np.float32) - 0.5
        light += strength * np.asarray(Image.fromarray(noise).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
    lit = np.asarray(picture, np.float32) * (1 + 2 * light[..., None])
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))
