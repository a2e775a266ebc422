"""Edits of the picture: each draws its settings and changes all frames, uint8 [T, H, W, 3] -> uint8 [T, H', W', 3]."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_sprites as sprites
from hapvr.synthetic.clip import Images
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.film_numbers import between

# --- quality -----------------------------------------------------------------------------------------------------


def downscale(images: Images, rng: Generator) -> Images:
    """Made smaller."""
    scale = between(rng, 0.3, 0.6)
    height, width = (max(2, round(side * scale / 2) * 2) for side in images.shape[1:3])
    return pixels.resize(images, (height, width))


def blur(images: Images, rng: Generator) -> Images:
    """Out of focus or smeared by motion."""
    side = min(images.shape[1:3])
    if rng.random() < 0.3:
        return pixels.smear(images, max(3, round(side * between(rng, 0.03, 0.07))))
    return pixels.blur(images, side * between(rng, 0.01, 0.025))


def noise(images: Images, rng: Generator) -> Images:
    """Noisy."""
    return pixels.noise(images, between(rng, 12, 36), rng)


# --- colour ------------------------------------------------------------------------------------------------------


def colour(images: Images, rng: Generator) -> Images:
    """Brightness, contrast, gamma, saturation and hue changed."""
    toned = pixels.tones(
        images, brightness=between(rng, -45, 45), contrast=between(rng, 0.6, 1.5), gamma=between(rng, 0.65, 1.5)
    )
    return pixels.hues(toned, saturation=between(rng, 0.3, 1.9), turn=between(rng, -0.12, 0.12))


def greyscale(images: Images, _: Generator) -> Images:
    """Without colour."""
    return pixels.hues(images, saturation=0.0)


# --- geometry ----------------------------------------------------------------------------------------------------


def crop(images: Images, rng: Generator) -> Images:
    """A part of the picture."""
    height, width = (max(1, round(side * between(rng, 0.55, 0.85))) for side in images.shape[1:3])
    top, left = (
        round((side - kept) * rng.random()) for side, kept in zip(images.shape[1:3], (height, width), strict=True)
    )
    return np.ascontiguousarray(images[:, top : top + height, left : left + width])


def flip(images: Images, _: Generator) -> Images:
    """Mirrored left to right."""
    return np.ascontiguousarray(images[:, :, ::-1])


def rotate(images: Images, rng: Generator) -> Images:
    """Tilted by a few degrees."""
    return pixels.rotate(images, between(rng, 4, 15) * (1 if rng.random() < 0.5 else -1))


def rotate_90(images: Images, rng: Generator) -> Images:
    """On its side."""
    return np.ascontiguousarray(np.rot90(images, pick(rng, [1, 3]), axes=(1, 2)))


def perspective(images: Images, rng: Generator) -> Images:
    """Seen from aside."""
    return pixels.perspective(images, [_corners(rng, 0.18)])


def camcorder(images: Images, rng: Generator) -> Images:
    """Filmed from a screen: askew, shaking, striped, flickering, soft and noisy."""
    still = _corners(rng, 0.12)
    shake = [(between(rng, -0.006, 0.006), between(rng, -0.006, 0.006)) for _ in images]
    seen = pixels.perspective(images, [[(x + dx, y + dy) for x, y in still] for dx, dy in shake])
    seen = pixels.blur(seen, between(rng, 0.5, 1.2))
    side = min(images.shape[1:3])
    seen = pixels.moire(
        seen, period=side * between(rng, 0.02, 0.06), tilt=between(rng, -0.6, 0.6), strength=between(rng, 0.06, 0.16)
    )
    gains = [between(rng, 0.85, 1.1) for _ in images]
    seen = pixels.tones(seen, contrast=between(rng, 0.7, 0.95), brightness=between(rng, -5, 25), gains=gains)
    return pixels.noise(seen, between(rng, 6, 16), rng)


def _corners(rng: Generator, reach: float) -> list[tuple[float, float]]:
    """Where the four corners of the picture go: inwards by up to `reach`, at times a little outwards."""
    moves = [(between(rng, -0.04, reach), between(rng, -0.04, reach)) for _ in range(4)]
    signs = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    return [(x + sx * dx, y + sy * dy) for (x, y), (sx, sy), (dx, dy) in zip(square, signs, moves, strict=True)]


def letterbox(images: Images, rng: Generator) -> Images:
    """Between bars, black, coloured or blurred, in another format."""
    height, width = images.shape[1:3]
    formats = [shape for shape in (9 / 16, 1.0, 16 / 9, 2.35) if abs(shape * height / width - 1) > 0.15]
    shape = pick(rng, formats)
    inside = (max(height, round(width / shape)), max(width, round(height * shape)))
    # As large as the picture was: what the bars take, the picture loses.
    scale = ((height * width) / (inside[0] * inside[1])) ** 0.5
    size = max(2, round(inside[0] * scale)), max(2, round(inside[1] * scale))
    small = pixels.resize(images, (min(size[0], round(height * scale)), min(size[1], round(width * scale))))
    bars = np.zeros((len(images), *size, 3), np.uint8)
    if rng.random() < 0.4:
        bars = pixels.tones(pixels.blur(pixels.cover(images, size), min(size) * 0.06), contrast=0.7, brightness=-25)
    elif rng.random() < 0.3:
        bars[:] = rng.integers(0, 256, 3)
    return pixels.place_in(small, bars, (size[0] - small.shape[1]) // 2, (size[1] - small.shape[2]) // 2)


# --- things laid over --------------------------------------------------------------------------------------------


def caption(images: Images, rng: Generator) -> Images:
    """With words over it."""
    height, width = images.shape[1:3]
    texts = int(rng.integers(1, 4))
    parts = []
    for part in np.array_split(images, min(texts, len(images))):
        words = sprites.caption(rng, width, height)
        down = pick(rng, [0.04, 0.5, 0.96, 0.96])
        place = round((height - words.shape[0]) * down), round((width - words.shape[1]) / 2)
        parts.append(pixels.lay_over(part, words, [place]))
    return np.concatenate(parts)


def emoji(images: Images, rng: Generator) -> Images:
    """With emoji over it, some of them moving."""
    height, width = images.shape[1:3]
    for _ in range(int(rng.integers(2, 6))):
        sprite = sprites.emoji(rng, max(6, round(min(height, width) * between(rng, 0.12, 0.32))))
        start = between(rng, -0.05, 0.9) * height, between(rng, -0.05, 0.9) * width
        move = (0.0, 0.0) if rng.random() < 0.5 else (between(rng, -0.6, 0.6) * height, between(rng, -0.6, 0.6) * width)
        shares = np.linspace(0, 1, len(images))
        places = [(round(start[0] + move[0] * share), round(start[1] + move[1] * share)) for share in shares]
        images = pixels.lay_over(images, sprite, places)
    return images


def logo(images: Images, rng: Generator) -> Images:
    """With a logo in a corner."""
    height, width = images.shape[1:3]
    mark = sprites.logo(rng, max(8, round(min(height, width) * between(rng, 0.1, 0.2))))
    room, margin = (height - mark.shape[0], width - mark.shape[1]), round(0.03 * height)
    place = pick(rng, [margin, room[0] - margin]), pick(rng, [margin, room[1] - margin])
    return pixels.lay_over(images, mark, [place], opacity=between(rng, 0.6, 1.0))
