"""Colours, waves and noise of the drawn films, from operations that every platform rounds alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Plane = NDArray[np.floating[Any]]
Colour = NDArray[np.floating[Any]]  # [3], RGB in 0..1


def between(rng: Generator, low: float, high: float) -> float:
    """A uniform draw."""
    return low + (high - low) * float(rng.random())


def between_each(rng: Generator, *ranges: tuple[float, float]) -> tuple[float, ...]:
    """Uniform draws from several ranges, one after the other."""
    return tuple(between(rng, low, high) for low, high in ranges)


def cos_sin(angle: float) -> tuple[float, float]:
    """Cosine and sine of a fraction of a turn; rounded, because libraries differ in the last bit."""
    return round(math.cos(2 * math.pi * angle), 7), round(math.sin(2 * math.pi * angle), 7)


def wave(phase: Plane) -> Plane:
    """A smooth wave in 0..1 with period 1, from parabolas."""
    ramp = np.abs(phase - np.floor(phase) - np.float32(0.5)) * 2
    smooth: Plane = ramp * ramp * (3 - 2 * ramp)
    return smooth


def step(value: Plane, width: float) -> Plane:
    """0 below -width/2, 1 above width/2, a ramp between: an edge without stairs."""
    edge: Plane = np.clip(value / np.float32(width) + np.float32(0.5), 0, 1)
    return edge


def mix(low: Plane, high: Plane, share: Plane) -> Plane:
    """From `low` (share 0) to `high` (share 1): [..., 3], [..., 3], [...] -> [..., 3]."""
    return low + (high - low) * share[..., None]


def make_colour(hue: float, saturation: float, value: float) -> Colour:
    """A colour by hue (a fraction of a turn; 0 is red), saturation and value.

    >>> make_colour(1 / 3, 1.0, 0.5).tolist()
    [0.0, 0.5, 0.0]
    """
    channels = [min(max(abs((hue + shift) % 1 * 6 - 3) - 1, 0.0), 1.0) for shift in (0.0, 2 / 3, 1 / 3)]
    return np.array([value * (1 - saturation * (1 - channel)) for channel in channels], np.float32)


@dataclass(frozen=True)
class Palette:
    """Four colours that go together, dark to light."""

    colours: Plane  # [4, 3]

    @classmethod
    def draw(cls, rng: Generator) -> Palette:
        """Hues a fixed step apart from a random start; one palette in three is nearly grey, one is bold."""
        hue, step = float(rng.random()), [0.06, 0.14, 0.33, 0.5][int(rng.integers(4))]
        saturation = [0.2, 0.5, 0.85][int(rng.integers(3))]
        low, high = between(rng, 0.08, 0.4), between(rng, 0.7, 1.0)
        values = [low + (high - low) * share for share in (0.0, 0.35, 0.7, 1.0)]
        rows = [make_colour(hue + step * k, saturation * (1 - 0.15 * k), value) for k, value in enumerate(values)]
        return cls(np.stack(rows))

    def ramp(self, share: Plane) -> Plane:
        """Colours along the palette: [...] in 0..1 -> [..., 3]."""
        place = np.clip(share, 0, 1) * np.float32(2.999)
        low = place.astype(np.intp)
        return mix(self.colours[low], self.colours[low + 1], place - low)


def smooth_noise(rng: Generator, y: Plane, x: Plane, scale: float) -> Plane:
    """Smooth noise in 0..1 whose bumps are `scale` apart; y [h, 1] and x [1, w] in picture heights."""
    row, column = (y - y.min()) / np.float32(scale), (x - x.min()) / np.float32(scale)
    knots = rng.random((int(row.max()) + 2, int(column.max()) + 2), np.float32)
    top, left = row.astype(np.intp)[:, 0], column.astype(np.intp)[0]
    down, right = row[:, 0] - top, column[0] - left
    down, right = (share * share * (3 - 2 * share) for share in (down, right))
    lines = knots[top] + (knots[top + 1] - knots[top]) * down[:, None]  # [h, knots]
    noise: Plane = lines[:, left] + (lines[:, left + 1] - lines[:, left]) * right
    return noise


def fractal_noise(rng: Generator, y: Plane, x: Plane, scale: float, octaves: int = 4) -> Plane:
    """Noise at several scales, each half as large and half as strong as the last; in 0..1."""
    total = np.zeros((y.shape[0], x.shape[1]), np.float32)
    for octave in range(octaves):
        total += smooth_noise(rng, y, x, scale / 2**octave) * np.float32(0.5**octave)
    return total / np.float32(2 - 0.5 ** (octaves - 1))


def tilt(rng: Generator, y: Plane, x: Plane) -> tuple[Plane, Plane]:
    """The plane's coordinates turned by up to an eighth of a turn either way."""
    cos, sin = cos_sin(between(rng, -0.12, 0.12))
    return np.float32(cos) * y + np.float32(sin) * x, np.float32(cos) * x - np.float32(sin) * y
