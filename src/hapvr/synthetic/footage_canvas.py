"""The canvas of a drawn scene: its size, its colours, and the plain shapes that everything on it is made of.

A scene is painted once; what moves over it is drawn again for each frame by a `Mover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from hapvr.synthetic.film_numbers import between

Rgb = tuple[int, int, int]
Draw = ImageDraw.ImageDraw
Mover = Callable[[Draw, float], None]
"""Draws one thing that moves, at a time in seconds."""
Painter = Callable[[Image.Image, Draw, Generator], list[Mover]]
"""Paints the background of a scene, and gives what moves over it."""

WIDTH, HEIGHT = 960, 640  # of a scene, in pixels
SKINS: list[Rgb] = [(240, 205, 175), (214, 170, 130), (160, 110, 75), (105, 70, 50)]
HAIR: list[Rgb] = [(40, 30, 25), (90, 60, 30), (190, 150, 80), (120, 120, 120), (25, 25, 35)]


def vary_colour(rng: Generator, colour: Rgb, spread: int = 28) -> Rgb:
    """A colour near another: each channel differs by up to `spread`."""
    red, green, blue = (int(min(max(one + between(rng, -spread, spread), 0), 255)) for one in colour)
    return red, green, blue


def pick_colour(rng: Generator, low: int = 40, high: int = 235) -> Rgb:
    """Any colour with channels between two values."""
    red, green, blue = (int(between(rng, low, high)) for _ in range(3))
    return red, green, blue


def choose_colour(rng: Generator, colours: Sequence[Rgb]) -> Rgb:
    """One of some colours."""
    return colours[int(rng.integers(len(colours)))]


def shade_colour(colour: Rgb, factor: float) -> Rgb:
    """A colour made darker or, with a factor above 1, lighter."""
    red, green, blue = (int(min(max(one * factor, 0), 255)) for one in colour)
    return red, green, blue


def fill_band(picture: Image.Image, top: float, bottom: float, above: Rgb, below: Rgb) -> None:
    """A band between two heights, from one colour to another."""
    first, last = round(top), max(round(top) + 1, round(bottom))
    shares = np.linspace(0, 1, last - first, dtype=np.float32)[:, None, None]
    band = np.array(above, np.float32) * (1 - shares) + np.array(below, np.float32) * shares
    picture.paste(Image.fromarray(np.broadcast_to(band, (last - first, WIDTH, 3)).astype(np.uint8)), (0, first))


def draw_disc(draw: Draw, x: float, y: float, radius: float, colour: Rgb, squash: float = 1.0) -> None:
    """A disc, or with `squash` a flatter or taller ellipse."""
    draw.ellipse((x - radius, y - radius * squash, x + radius, y + radius * squash), fill=colour)


def wrap_around(place: float, margin: float) -> float:
    """A place that leaves at one side and comes back at the other."""
    return (place + margin) % (WIDTH + 2 * margin) - margin
