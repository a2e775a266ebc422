"""The cast of the drawn films: shapes, and the laws they move by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from hapvr.synthetic.film_numbers import Colour, Plane, between, cos_sin, make_colour


def _length(u: Plane, v: Plane) -> Plane:
    distance: Plane = np.sqrt(u * u + v * v)
    return distance


def _cross(u: Plane, v: Plane) -> Plane:
    across, along = np.abs(u), np.abs(v)
    arms = np.minimum(np.maximum(across - 1, along - np.float32(0.3)), np.maximum(across - np.float32(0.3), along - 1))
    outside: Plane = arms + np.float32(0.05)
    return outside


def _house(u: Plane, v: Plane) -> Plane:
    roof = np.maximum(-u - np.float32(0.95), np.abs(v) * np.float32(0.7) - u * np.float32(0.7) - np.float32(0.62))
    body = np.maximum(np.abs(u - np.float32(0.3)) - np.float32(0.5), np.abs(v) - np.float32(0.6))
    outside: Plane = np.minimum(np.maximum(roof, u), body)
    return outside


# How far a point (down, right) lies outside the shape, in radii; negative inside.
_SHAPES: list[Callable[[Plane, Plane], Plane]] = [
    lambda u, v: _length(u, v) - 1,  # a disc
    lambda u, v: np.maximum(np.abs(u), np.abs(v)) - np.float32(0.8),  # a box
    lambda u, v: np.abs(u) + np.abs(v) * np.float32(0.6) - np.float32(0.6),  # a diamond
    lambda u, v: np.abs(_length(u, v) - np.float32(0.72)) - np.float32(0.24),  # a ring
    lambda u, v: np.maximum(  # a triangle
        u - np.float32(0.5), np.abs(v) * np.float32(0.87) - u * np.float32(0.5) - np.float32(0.5)
    ),
    _cross,
    lambda u, v: np.maximum(_length(u, v) - 1, np.float32(0.85) - _length(u - np.float32(0.45), v)),  # a moon
    _house,
]


@dataclass(frozen=True)
class Actor:
    """A shape that appears in several shots of one film."""

    shape: Callable[[Plane, Plane], Plane]
    radius: float  # in picture heights
    colour: Colour
    stripe: Colour
    stripes: float  # across the radius; 0 for a plain one

    @classmethod
    def draw(cls, rng: Generator) -> Actor:
        """A shape, a size and colours."""
        hue = float(rng.random())
        return cls(
            shape=_SHAPES[int(rng.integers(len(_SHAPES)))],
            radius=between(rng, 0.06, 0.24),
            colour=make_colour(hue, between(rng, 0.4, 1.0), between(rng, 0.6, 1.0)),
            stripe=make_colour(hue + between(rng, 0.2, 0.8), between(rng, 0.3, 1.0), between(rng, 0.2, 1.0)),
            stripes=0.0 if rng.random() < 0.5 else between(rng, 0.8, 2.5),
        )


@dataclass(frozen=True)
class Motion:
    """Where an actor is at a time: one of four laws around a place, in picture heights."""

    law: str
    place: tuple[float, float]
    reach: tuple[float, float]
    period_s: float
    phase: float
    spin: float  # turns a second
    depth: float  # how far the camera's move carries it: above 1 it is nearer than the world behind

    @classmethod
    def draw(cls, rng: Generator, aspect: float) -> Motion:
        """A law and its place in a picture `aspect` times as wide as high."""
        return cls(
            law=["drift", "orbit", "hop", "sway"][int(rng.integers(4))],
            place=(between(rng, -0.3, 0.3), between(rng, -0.45, 0.45) * aspect),
            reach=(between(rng, 0.1, 0.35), between(rng, 0.15, 0.5) * aspect),
            period_s=between(rng, 1.5, 7.0),
            phase=float(rng.random()),
            spin=0.0 if rng.random() < 0.4 else between(rng, -0.4, 0.4),
            depth=between(rng, 0.8, 1.6),
        )

    def at(self, seconds: float) -> tuple[float, float]:
        """Down and right from the middle of the picture, in picture heights."""
        turn = seconds / self.period_s + self.phase
        cos, sin = cos_sin(turn)
        bounce = abs(turn % 2 - 1) * 2 - 1  # -1 to 1 and back, at constant speed
        hop = abs(turn * 2 % 2 - 1)
        down, right = {
            "drift": (bounce * 0.3, bounce),
            "orbit": (sin, cos),
            "hop": (hop * hop * 2 - 1, abs(turn / 2 % 2 - 1) * 2 - 1),
            "sway": (0.2 * cos * cos, sin),
        }[self.law]
        return self.place[0] + self.reach[0] * down, self.place[1] + self.reach[1] * right
