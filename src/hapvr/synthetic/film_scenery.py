"""The worlds that films are shot in: each painter fills a plane with one kind of texture or place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from hapvr.synthetic.film_numbers import Palette, Plane, between, fractal_noise, mix, smooth_noise, step, tilt, wave

# painter(rng, y [h, 1], x [1, w], palette) -> RGB in 0..1 [h, w, 3]; y and x in picture heights from the centre
Painter = Callable[[Generator, Plane, Plane, Palette], Plane]


def _clouds(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    cloud = fractal_noise(rng, y, x, between(rng, 0.3, 0.8), octaves=5)
    return palette.ramp((cloud - np.float32(0.25)) * 2)


def _stripes(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    u, v = tilt(rng, y, x)
    if rng.random() < 0.5:
        u = v
    bend = smooth_noise(rng, y, x, 0.7) * np.float32(between(rng, 0.0, 0.5))
    band = (u + bend) * np.float32(between(rng, 3, 9))
    colour = palette.colours[np.floor(band).astype(np.intp) % 4]
    return colour * (np.float32(0.75) + np.float32(0.25) * wave(band))[..., None]


def _checkers(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    """A checkered floor that runs to a horizon, under a plain sky."""
    horizon = np.float32(between(rng, -0.35, 0.0))
    depth = 1 / np.maximum(y - horizon, np.float32(0.02))  # [h, 1]
    tiles = np.float32(between(rng, 1.2, 3.0))
    odd = (np.floor(x * depth * tiles) + np.floor(depth * tiles * 2)).astype(np.intp) % 2
    floor = palette.colours[np.where(odd == 0, 0, 3)]
    far = step(np.float32(0.12) - (y - horizon), 0.2) + np.zeros_like(x)
    sky = palette.ramp(np.float32(0.4) + (horizon - y) * np.float32(0.6) + np.zeros_like(x))
    return np.where((y < horizon)[..., None], sky, mix(floor, np.broadcast_to(palette.colours[1], floor.shape), far))


def _cells(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    """A coloured pavement: each point takes the colour of the nearest of scattered centres."""
    per_height = between(rng, 3, 7)
    row, column = (y - y.min()) * np.float32(per_height), (x - x.min()) * np.float32(per_height)
    top, left = row.astype(np.intp), column.astype(np.intp)
    shape = int(top.max()) + 3, int(left.max()) + 3
    jitter, tone = rng.random((2, *shape), np.float32), rng.random(shape, np.float32)
    nearest = np.full((y.shape[0], x.shape[1]), np.float32(9))
    second, colour = nearest.copy(), nearest.copy()
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            cell = top + 1 + down, left + 1 + right
            dy, dx = top + down + jitter[0][cell] - row, left + right + jitter[1][cell] - column
            distance = dy * dy + dx * dx
            closer = distance < nearest
            second = np.where(closer, nearest, np.minimum(second, distance))
            colour = np.where(closer, tone[cell], colour)
            nearest = np.where(closer, distance, nearest)
    edge = np.sqrt(second) - np.sqrt(nearest)
    return palette.ramp(colour) * (np.float32(0.35) + np.float32(0.65) * step(edge - np.float32(0.1), 0.1))[..., None]


def _rings(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    waves: Plane = np.zeros((y.shape[0], x.shape[1]), np.float32)
    for _ in range(2):
        dy, dx = (axis - np.float32(between(rng, -0.8, 0.8)) for axis in (y, x))
        waves = waves + wave(np.sqrt(dy * dy + dx * dx) * np.float32(between(rng, 2, 6)))
    return palette.ramp(waves / 2)


def _hills(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    """Sky, a sun, and ridges one behind the other."""
    picture = palette.ramp(np.float32(0.75) + y * np.float32(0.4) + np.zeros_like(x))
    dy, dx = y + np.float32(between(rng, 0.2, 0.6)), x - np.float32(between(rng, -0.6, 0.6))
    sun = step(np.float32(between(rng, 0.06, 0.18)) - np.sqrt(dy * dy + dx * dx), 0.01)
    picture = mix(picture, np.broadcast_to(np.array([1.0, 0.95, 0.8], np.float32), picture.shape), sun)
    for ridge in range(4):
        tops = fractal_noise(rng, np.zeros((1, 1), np.float32), x, 0.7 / (ridge + 1), octaves=5)
        line = np.float32(-0.25 + 0.25 * ridge) + (np.float32(0.5) - tops) * np.float32(0.55)  # [1, w]
        grain = fractal_noise(rng, y, x, 0.12, octaves=3)
        slope = palette.ramp(np.float32(0.62 - 0.2 * ridge) + (grain - np.float32(0.5)) * np.float32(0.35))
        picture = mix(picture, slope, step(y - line, 0.01))
    return picture


def _city(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    """Rows of buildings with lit windows."""
    picture = palette.ramp(np.float32(0.5) - y * np.float32(0.5) + np.zeros_like(x))
    for street in range(2):
        width = between(rng, 0.13, 0.3)
        house = np.floor((x - x.min()) / np.float32(width)).astype(np.intp)  # [1, w]
        count = int(house.max()) + 1
        roofs = (rng.random(count, np.float32) - np.float32(0.75 - 0.5 * street)) * np.float32(0.7)
        walls = palette.ramp(rng.random(count, np.float32) * np.float32(0.5)) * np.float32(0.8 - 0.35 * street)
        pitch = np.float32(between(rng, 0.035, 0.06))
        down, right = y / pitch, x / pitch
        pane = ((down - np.floor(down)) > 0.45) & ((right - np.floor(right)) > 0.4)
        lights = rng.random((int(np.ptp(down)) + 2, int(np.ptp(right)) + 2)) < between(rng, 0.2, 0.7)
        lit = lights[np.floor(down - down.min()).astype(np.intp), np.floor(right - right.min()).astype(np.intp)]
        lamp = np.array([1.0, 0.9, 0.55], np.float32) if rng.random() < 0.6 else palette.colours[3]
        front = np.where((pane & lit)[..., None], lamp, walls[house])
        picture = np.where((y > roofs[house])[..., None], front, picture)
    return picture


def _bricks(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    height = np.float32(between(rng, 0.07, 0.16))
    down = (y - y.min()) / height
    row = np.floor(down).astype(np.intp)
    along = (x - x.min()) / (height * np.float32(between(rng, 1.5, 3.0))) + (row % 2) * np.float32(0.5)
    column = np.floor(along).astype(np.intp)
    tone = rng.random((int(row.max()) + 1, int(column.max()) + 1), np.float32)[row, column]
    edge = np.minimum(np.abs(down - row - np.float32(0.5)), 1) * 2
    joint = np.maximum(edge, np.abs(along - column - np.float32(0.5)) * 2) > 0.88
    wall = palette.ramp(np.float32(0.15) + tone * np.float32(0.5))
    return np.where(joint[..., None], palette.colours[3] * np.float32(0.9), wall)


def _marble(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    u, _ = tilt(rng, y, x)
    swirl = fractal_noise(rng, y, x, 0.6, octaves=5) * np.float32(between(rng, 1.5, 4))
    vein = u * np.float32(between(rng, 1, 3)) + swirl
    return palette.ramp(wave(vein))


def _dots(rng: Generator, y: Plane, x: Plane, palette: Palette) -> Plane:
    u, v = tilt(rng, y, x)
    per_height = np.float32(between(rng, 3, 8))
    u, v = u * per_height, v * per_height
    row, column = np.floor(u).astype(np.intp), np.floor(v).astype(np.intp)
    tone = rng.random((31, 37), np.float32)[row % 31, column % 37]
    du, dv = u - row - np.float32(0.5), v - column - np.float32(0.5)
    inside = step(np.float32(0.15) + tone * np.float32(0.3) - np.sqrt(du * du + dv * dv), 0.05)
    ground = palette.ramp(np.float32(0.2) + np.float32(0.25) * y + np.zeros_like(x))
    return mix(ground, palette.ramp(np.float32(0.5) + tone / 2), inside)


PAINTERS: list[Painter] = [
    _clouds, _hills, _stripes, _checkers, _cells, _city, _rings, _bricks, _marble, _dots,
]  # fmt: skip
