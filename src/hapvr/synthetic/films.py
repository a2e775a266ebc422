"""Procedural films: the videos of the demo and of the tests.

A film has a cast of shapes and 2 to 5 shots. Each shot has a painted world larger than the picture, a camera that moves
over it, and some of the cast, each moving by one law. Everything is drawn from one seed.

Only operations that IEEE 754 rounds exactly (+ - * / sqrt floor) touch pixels, and only uniform draws are taken from
the generator, so that a seed gives the same bytes on every platform; sines of scalars are rounded before use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.film_numbers import Colour, Palette, Plane, between, cos_sin, fractal_noise, make_colour, wave
from hapvr.synthetic.film_scenery import PAINTERS, Painter

_MARGIN = 1.6  # the painted world is this much wider and higher than the picture
_SHORTEST_SHOT_S = 0.5


def draw_scene(
    seed: int, *, seconds: float | None = None, fps: float = 12.5, size: tuple[int, int] = (240, 320)
) -> Clip:
    """Draw the film of a seed: [T, H, W, 3] at `fps`, 5 to 30 s long unless `seconds` says how long.

    The film is a function of time: another `fps` samples the same film. size is (height, width). `ConfigError` if a
    setting is not positive, the seed is below 0, or the picture is under 16 pixels.

    >>> clip = draw_scene(7, seconds=2)
    >>> clip.images.shape, clip.seconds
    ((25, 240, 320, 3), 2.0)
    """
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise ConfigError(f"seconds must be above 0, got {seconds}.")
    if not (math.isfinite(fps) and fps > 0):
        raise ConfigError(f"fps must be above 0, got {fps}.")
    if seed < 0:
        raise ConfigError(f"seed must be 0 or above, got {seed}.")
    if min(size) < 16:
        raise ConfigError(f"size is (height, width) of at least 16 pixels, got {tuple(size)}.")
    rng = np.random.default_rng(seed)
    length = between(rng, 5.0, 30.0)
    length = length if seconds is None else seconds
    shots = min(int(rng.integers(2, 6)), max(1, int(length / _SHORTEST_SHOT_S)))
    weights = [between(rng, 0.6, 1.4) for _ in range(shots)]
    cuts = [length * sum(weights[: shot + 1]) / sum(weights) for shot in range(shots)]
    cast = [_Actor.draw(rng) for _ in range(int(rng.integers(4, 8)))]
    first_kind = int(rng.integers(len(PAINTERS)))
    images = np.empty((max(1, round(length * fps)), *size, 3), np.uint8)
    frame = 0
    for shot, end in enumerate(cuts):
        # A stride coprime to the number of painters: no painter comes twice in one film.
        painter = PAINTERS[(first_kind + 3 * shot) % len(PAINTERS)]
        stage = _Stage(np.random.default_rng([seed, shot]), painter, cast, size)
        start = 0.0 if shot == 0 else cuts[shot - 1]
        while frame < len(images) and (frame / fps < end or shot == shots - 1):
            stage.draw(images[frame], frame / fps - start, end - start)
            frame += 1
    return Clip(images, fps)


@dataclass(frozen=True)
class _Camera:
    """A straight move from one view to another, with a little shake."""

    start: tuple[float, float, float]  # down, right, zoom: world seen, in pictures
    end: tuple[float, float, float]
    shake: float

    @classmethod
    def draw(cls, rng: Generator) -> _Camera:
        def view() -> tuple[float, float, float]:
            zoom = between(rng, 0.75, _MARGIN - 0.1)
            room = (_MARGIN - zoom) / 2 - 0.02
            return between(rng, -room, room), between(rng, -room, room), zoom

        start = view()
        end = start if rng.random() < 0.2 else view()
        return cls(start, end, shake=0.0 if rng.random() < 0.5 else 0.008)

    def at(self, seconds: float, share: float) -> tuple[float, float, float]:
        down, right, zoom = (low + (high - low) * share for low, high in zip(self.start, self.end, strict=True))
        jolt = cos_sin(seconds * 1.7)[0] + cos_sin(seconds * 2.9)[1]
        return down + self.shake * jolt, right + self.shake * cos_sin(seconds * 2.3)[0], zoom


class _Stage:
    """One shot: a world, a camera, and the actors that play in it."""

    def __init__(self, rng: Generator, painter: Painter, cast: list[_Actor], size: tuple[int, int]) -> None:
        height, width = size
        self.size, self.aspect = size, width / height
        tall, wide = round(height * _MARGIN), round(width * _MARGIN)
        y, x = (((np.arange(n) + 0.5 - n / 2) / height).astype(np.float32) for n in (tall, wide))
        y, x = y[:, None], x[None]  # in picture heights from the middle
        picture = painter(rng, y, x, Palette.draw(rng))
        light = fractal_noise(rng, y, x, 0.5, octaves=6) * np.float32(0.7) + np.float32(0.65)
        self.world = np.zeros((tall, wide, 4), np.uint8)  # four bytes a pixel: it is read as one number
        self.world[..., :3] = np.clip(picture * light[..., None] * 255 + np.float32(0.5), 0, 255)
        self.camera = _Camera.draw(rng)
        order = sorted(range(len(cast)), key=lambda _: float(rng.random()))
        playing = order[: int(rng.integers(2, len(cast) + 1))]
        self.actors = [(cast[index], _Motion.draw(rng, self.aspect)) for index in playing]

    def draw(self, image: Images, seconds: float, length: float) -> None:
        """Draw the shot at a time since its start into `image` [H, W, 3]."""
        down, right, zoom = self.camera.at(seconds, seconds / length)
        height, width = self.size
        rows = _find_seen(height, down, zoom, self.world.shape[0])
        columns = _find_seen(width, right, zoom, self.world.shape[1])
        pixels = self.world.view(np.uint32)[..., 0]
        image[:] = pixels[rows].take(columns, axis=1).view(np.uint8).reshape(height, width, 4)[..., :3]
        for actor, motion in self.actors:
            y, x = motion.at(seconds)
            y, x = (y - down * motion.depth) / zoom, (x - right * self.aspect * motion.depth) / zoom
            self._paste(image, actor, (y, x), actor.radius / zoom, cos_sin(seconds * motion.spin))

    def _paste(
        self, image: Images, actor: _Actor, place: tuple[float, float], radius: float, turn: tuple[float, float]
    ) -> None:
        height, width = self.size
        pixels = radius * height
        centre = (place[0] + 0.5) * height, place[1] * height + width / 2
        top, left = (max(0, math.floor(middle - 1.3 * pixels)) for middle in centre)
        bottom, right = (min(n, math.ceil(middle + 1.3 * pixels)) for middle, n in zip(centre, self.size, strict=True))
        if top >= bottom or left >= right:
            return
        y = ((np.arange(top, bottom) + 0.5 - centre[0]) / pixels).astype(np.float32)[:, None]
        x = ((np.arange(left, right) + 0.5 - centre[1]) / pixels).astype(np.float32)[None]
        cos, sin = np.float32(turn[0]), np.float32(turn[1])
        u, v = cos * y + sin * x, cos * x - sin * y
        cover = np.clip(np.float32(0.5) - actor.shape(u, v) * np.float32(pixels), 0, 1)[..., None]
        shade = (np.float32(0.95) - np.float32(0.22) * (y + x))[..., None]  # lit from the upper left
        colour = np.broadcast_to(actor.colour, (*u.shape, 3))
        if actor.stripes:
            colour = np.where((wave(v * np.float32(actor.stripes)) > 0.5)[..., None], actor.stripe, colour)
        patch = image[top:bottom, left:right]
        paint = np.clip(colour * shade, 0, 1) * 255
        patch[:] = patch + (paint - patch) * cover + np.float32(0.5)


def _find_seen(pixels: int, shift: float, zoom: float, limit: int) -> NDArray[np.intp]:
    """Which of the world's `limit` rows (or columns) the picture's rows show: [pixels]."""
    place = (np.arange(pixels) + 0.5 - pixels / 2) * zoom + pixels * shift + limit / 2
    rows: NDArray[np.intp] = np.clip(place, 0, limit - 1).astype(np.intp)
    return rows


# --- the cast: shapes, and the laws they move by ---------------------------------------------------------------------


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
class _Actor:
    """A shape that appears in several shots of one film."""

    shape: Callable[[Plane, Plane], Plane]
    radius: float  # in picture heights
    colour: Colour
    stripe: Colour
    stripes: float  # across the radius; 0 for a plain one

    @classmethod
    def draw(cls, rng: Generator) -> _Actor:
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
class _Motion:
    """Where an actor is at a time: one of four laws around a place, in picture heights."""

    law: str
    place: tuple[float, float]
    reach: tuple[float, float]
    period_s: float
    phase: float
    spin: float  # turns a second
    depth: float  # how far the camera's move carries it: above 1 it is nearer than the world behind

    @classmethod
    def draw(cls, rng: Generator, aspect: float) -> _Motion:
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
