"""Edits that compose a new picture around or over the old one: uint8 [T, H, W, 3] -> [T, H', W', 3].

Stickers, an upright picture over its own blur, a second video in a window, a slow zoom, a border with words.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_sprites as sprites
from hapvr.synthetic.clip import Images
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.film_numbers import between

_UPRIGHT = 9 / 16  # width / height of a telephone
_MAX_STICKERS = 12
_MAX_COVERED = 0.65  # of the picture, by stickers


def shrink_to_tiny(images: Images, rng: Generator) -> Images:
    """Between a fifth and a third of the width and height, 16 pixels at least."""
    scale = between(rng, 0.2, 1 / 3)
    height, width = (min(side, max(16, int(side * scale / 2) * 2)) for side in images.shape[1:3])
    return pixels.resize(images, (height, width))


def add_large_stickers(images: Images, rng: Generator) -> Images:
    """Stickers of a third to two thirds of the short side, until they hide 30 to 55% of the picture."""
    height, width = images.shape[1:3]
    hidden: NDArray[np.bool_] = np.zeros((height, width), bool)
    wanted = between(rng, 0.3, 0.55)
    for _ in range(_MAX_STICKERS):
        sprite = sprites.draw_sticker(rng, max(8, round(min(height, width) * between(rng, 0.35, 0.65))))
        top, left = (
            round(between(rng, -0.15, 1.15) * side - part / 2)
            for side, part in zip((height, width), sprite.shape[:2], strict=True)
        )
        still = pixels.lay_over(np.zeros((1, height, width, 3), np.uint8), _make_white(sprite), [(top, left)])
        after = hidden | (still[0, ..., 0] > 127)
        if after.mean() > _MAX_COVERED:
            continue
        hidden = after
        # Some sway: in whole pixels, by a few percent of the picture.
        sway, turns, phase = between(rng, 0.01, 0.04) * height * (rng.random() < 0.4), between(rng, 1, 4), rng.random()
        angles = 2 * np.pi * (turns * np.linspace(0, 1, len(images)) + phase)
        places = [(top + round(float(sway * np.sin(angle))), left) for angle in angles]
        images = pixels.lay_over(images, sprite, places)
        if hidden.mean() >= wanted:
            break
    return images


def _make_white(sprite: sprites.Sprite) -> sprites.Sprite:
    white = sprite.copy()
    white[..., :3] = 255
    return white


def reframe_upright(images: Images, rng: Generator) -> Images:
    """A picture of 9:16 with about as many pixels: the old one across it, over its own blur, with a caption.

    Wide pictures may lose up to 40% of their width, so that what is left is larger; upright ones are made smaller.
    """
    height, width = images.shape[1:3]
    tall = max(32, round((height * width / _UPRIGHT) ** 0.5 / 2) * 2)
    size = tall, max(18, round(tall * _UPRIGHT / 2) * 2)
    kept = between(rng, 0.6, 1.0) if width > height and rng.random() < 0.6 else 1.0
    cut = round(width * (1 - kept) / 2)
    front = images[:, :, cut : width - cut]
    scale = min(size[1] / front.shape[2], size[0] * 0.8 / front.shape[1])
    front = pixels.resize(front, (max(2, round(front.shape[1] * scale)), max(2, round(front.shape[2] * scale))))
    ground = pixels.blur(pixels.cover(images, size), min(size) * between(rng, 0.04, 0.1))
    ground = pixels.change_tones(ground, contrast=between(rng, 0.6, 0.9), brightness=between(rng, -50, 0))
    room = size[0] - front.shape[1]
    top = round(room * pick(rng, [0.35, 0.5, 0.5, 0.6]))
    framed = pixels.place_in(front, ground, top, (size[1] - front.shape[2]) // 2)
    words = sprites.draw_caption(rng, round(size[1] * 0.8), round(size[1] * 0.8))  # capitals need some room
    # Over or under the picture where there is room, else over its lower edge.
    middle = pick(rng, [top / 2, (top + front.shape[1] + size[0]) / 2]) if room > 0.25 * size[0] else size[0] * 0.85
    place = round(middle - words.shape[0] / 2), round((size[1] - words.shape[1]) / 2)
    return pixels.lay_over(framed, words, [place])


def add_window(images: Images, small: Images, rng: Generator, *, scale: float) -> Images:
    """`small` as a window in a corner or in the middle of an edge of `images`: plain, with a white edge, or round.

    scale: the width or the height of the window as a share of the picture's, whichever is the greater share.
    """
    height, width = images.shape[1:3]
    factor = scale * min(height / small.shape[1], width / small.shape[2])
    window = pixels.resize(small, (max(2, round(small.shape[1] * factor)), max(2, round(small.shape[2] * factor))))
    down, right = pick(rng, [0.03, 0.97, 0.97]), pick(rng, [0.03, 0.03, 0.5, 0.97, 0.97])
    top, left = round((height - window.shape[1]) * down), round((width - window.shape[2]) * right)
    style, edge = pick(rng, ["plain", "edge", "round"]), max(1, round(0.012 * height))
    if style == "edge":
        rows = slice(max(0, top - edge), top + window.shape[1] + edge)
        columns = slice(max(0, left - edge), left + window.shape[2] + edge)
        images = images.copy()
        images[:, rows, columns] = 255
    if style != "round":
        return pixels.place_in(window, images, top, left)
    y, x = (np.abs(np.linspace(-1, 1, side)) for side in window.shape[1:3])
    inside = (y[:, None] ** 4 + x[None] ** 4 <= 1)[..., None]  # a square with round corners
    behind = images[:, top : top + window.shape[1], left : left + window.shape[2]]
    return pixels.place_in(np.where(inside, window, behind), images, top, left)


def zoom_slowly(images: Images, rng: Generator) -> Images:
    """From the whole picture to a part of it, 1.25 to 1.8 times as large, at a constant rate; or back."""
    height, width = images.shape[1:3]
    last, focus = between(rng, 1.25, 1.8), (between(rng, 0.25, 0.75), between(rng, 0.25, 0.75))
    factors = np.linspace(1.0, last, len(images))
    if rng.random() < 0.4:
        factors = factors[::-1]
    frames = []
    for image, factor in zip(images, factors.tolist(), strict=True):
        tall, wide = height / factor, width / factor
        top, left = (height - tall) * focus[0], (width - wide) * focus[1]
        seen = Image.fromarray(image).resize(
            (width, height), Image.Resampling.BILINEAR, box=(left, top, left + wide, top + tall)
        )
        frames.append(np.asarray(seen, np.uint8))
    return np.stack(frames)


def add_meme_border(images: Images, rng: Generator) -> Images:
    """A band with words above the picture, at times one below, and a border around: white, black or coloured."""
    height, width = images.shape[1:3]
    colour = pick(rng, [(255, 255, 255), (255, 255, 255), (0, 0, 0), (16, 16, 20), None])
    paper = np.array(rng.integers(0, 256, 3) if colour is None else colour, np.uint8)
    ink = (0, 0, 0) if paper.mean() > 110 else (255, 255, 255)
    edge = round(min(height, width) * pick(rng, [0.0, between(rng, 0.02, 0.08)]))
    above = max(8, round(height * between(rng, 0.14, 0.32)))
    below = max(8, round(height * between(rng, 0.12, 0.28))) if rng.random() < 0.4 else 0
    framed = np.empty((len(images), above + height + max(below, edge), width + 2 * edge, 3), np.uint8)
    framed[:] = paper
    framed = pixels.place_in(images, framed, above, edge)
    bands = [(0, above), (above + height, below)]
    for top, tall in bands:
        if tall:
            words = sprites.draw_headline(rng, framed.shape[2], tall, ink)
            framed = pixels.lay_over(framed, words, [(top, 0)])
    return framed
