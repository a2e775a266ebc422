"""Operations on the frames of a clip: uint8 [T, H, W, 3] -> uint8 of the same or another size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from hapvr.synthetic.clip import Images

Picture = Image.Image
Corners = Sequence[tuple[float, float]]  # (right, down) as shares of the picture: upper left, then clockwise

# The luma of BT.601, which Pillow's conversion to grey uses too.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def change_each(images: Images, change: Callable[[Picture], Picture]) -> Images:
    """`change` every frame as a Pillow picture."""
    return np.stack([np.asarray(change(Image.fromarray(image)), np.uint8) for image in images])


def resize(images: Images, size: tuple[int, int]) -> Images:
    """Frames of (height, width), averaged where they shrink."""
    if images.shape[1:3] == size:
        return images
    return change_each(images, lambda picture: picture.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def cover(images: Images, size: tuple[int, int]) -> Images:
    """Frames scaled to fill (height, width), what sticks out cut off evenly."""
    scale = max(size[0] / images.shape[1], size[1] / images.shape[2])
    inner = max(size[0], round(images.shape[1] * scale)), max(size[1], round(images.shape[2] * scale))
    top, left = (inner[0] - size[0]) // 2, (inner[1] - size[1]) // 2
    return resize(images, inner)[:, top : top + size[0], left : left + size[1]]


def fit_whole(images: Images, size: tuple[int, int]) -> Images:
    """Frames scaled to fit into (height, width), between black bars."""
    scale = min(size[0] / images.shape[1], size[1] / images.shape[2])
    height, width = (max(1, round(side * scale)) for side in images.shape[1:3])
    bars = np.zeros((len(images), *size, 3), np.uint8)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return place_in(resize(images, (height, width)), bars, top, left)


def rotate(images: Images, degrees: float) -> Images:
    """Turned counter-clockwise about the middle, black where nothing is left to show."""
    return change_each(images, lambda picture: picture.rotate(degrees, Image.Resampling.BICUBIC))


def perspective(images: Images, corners: Sequence[Corners]) -> Images:
    """Each frame seen from aside: its corners come to lie where `corners` of the frame says; black outside.

    corners: one set a frame, or one for all.
    """
    height, width = images.shape[1:3]
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    frames = []
    for index, image in enumerate(images):
        rows, values = [], []
        # Pillow asks, for every point of the result, which point of the frame is shown there.
        for (x, y), (u, v) in zip(corners[index % len(corners)], square, strict=True):
            x, y, u, v = x * width, y * height, u * width, v * height
            rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
            values += [u, v]
        solution = tuple(float(value) for value in np.linalg.solve(np.array(rows), np.array(values)))
        seen = Image.fromarray(image).transform(
            (width, height), Image.Transform.PERSPECTIVE, solution, Image.Resampling.BILINEAR
        )
        frames.append(np.asarray(seen, np.uint8))
    return np.stack(frames)


def blur(images: Images, radius: float) -> Images:
    """Out of focus by `radius` pixels."""
    return change_each(images, lambda picture: picture.filter(ImageFilter.GaussianBlur(radius)))


def smear(images: Images, pixels: int) -> Images:
    """Moved sideways while the shutter was open: each pixel is the mean of `pixels` neighbours."""
    padded = np.pad(images, ((0, 0), (0, 0), (pixels // 2, pixels - 1 - pixels // 2), (0, 0)), mode="edge")
    width = images.shape[2]
    total = np.zeros(images.shape, np.uint16)
    for shift in range(pixels):
        total += padded[:, :, shift : shift + width]
    return (total // pixels).astype(np.uint8)


def add_noise(images: Images, strength: float, rng: Generator) -> Images:
    """Gaussian noise of standard deviation `strength` (of 255), another in every frame.

    Frames take random parts of one noise plane: to draw noise for each would take longer than all other edits.
    """
    height, width = images.shape[1:3]
    plane = rng.standard_normal((height + 64, width + 64, 3), np.float32) * np.float32(strength)
    noisy = np.empty_like(images)
    for index, image in enumerate(images):
        top, left = (int(shift) for shift in rng.integers(0, 64, 2))
        noisy[index] = np.clip(image + plane[top : top + height, left : left + width], 0, 255)
    return noisy


def change_tones(
    images: Images,
    *,
    brightness: float = 0.0,
    contrast: float = 1.0,
    gamma: float = 1.0,
    gains: Sequence[float] = (1.0,),
) -> Images:
    """Curves on all channels: gamma, then contrast about the middle grey, then brightness (of 255).

    gains: one factor a frame at the end (flicker), or one for all.
    """
    level = np.arange(256) / 255
    curve = ((level**gamma - 0.5) * contrast + 0.5) * 255 + brightness
    changed = np.empty_like(images)
    for index, image in enumerate(images):
        table = np.clip(np.rint(curve * gains[index % len(gains)]), 0, 255).astype(np.uint8)
        changed[index] = table[image]
    return changed


def change_hues(images: Images, *, saturation: float = 1.0, turn: float = 0.0) -> Images:
    """Colours stronger (saturation above 1) or weaker (0 is grey), and turned by a fraction of the colour circle."""
    cos, sin = saturation * math.cos(2 * math.pi * turn), saturation * math.sin(2 * math.pi * turn)
    grey = np.tile(_LUMA, (3, 1))
    around = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], np.float32) / np.float32(
        math.sqrt(3)
    )  # a quarter turn about grey
    mix = grey + np.float32(cos) * (np.eye(3, dtype=np.float32) - grey) + np.float32(sin) * around
    changed = np.empty_like(images)
    for index, image in enumerate(images):
        changed[index] = np.clip(image @ mix.T + np.float32(0.5), 0, 255)
    return changed


def add_moire(images: Images, *, period: float, tilt: float, strength: float) -> Images:
    """Stripes as a camera sees them on a screen: `period` pixels wide, tilted, drifting from frame to frame."""
    rows, columns = np.indices(images.shape[1:3], np.float32)
    phase = (rows + columns * np.float32(tilt)) / np.float32(period)
    striped = np.empty_like(images)
    for index, image in enumerate(images):
        wave = 1 + np.float32(strength) * np.sin(2 * np.pi * (phase + np.float32(0.13 * index)))
        striped[index] = np.clip(image * wave[..., None], 0, 255)
    return striped


def lay_over(
    images: Images, sprite: NDArray[np.uint8], places: Sequence[tuple[int, int]], *, opacity: float = 1.0
) -> Images:
    """An RGBA sprite [h, w, 4] pasted with its upper left corner at (top, left); it may stick out.

    places: one a frame, or one for all.
    """
    laid = images.copy()
    height, width = images.shape[1:3]
    cover = sprite[..., 3:].astype(np.float32) * np.float32(opacity / 255)
    for index, image in enumerate(laid):
        top, left = places[index % len(places)]
        rows = slice(max(0, top), min(height, top + sprite.shape[0]))
        columns = slice(max(0, left), min(width, left + sprite.shape[1]))
        if rows.start >= rows.stop or columns.start >= columns.stop:
            continue
        inside = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        under = image[rows, columns].astype(np.float32)
        image[rows, columns] = under + (sprite[inside][..., :3] - under) * cover[inside] + np.float32(0.5)
    return laid


def place_in(images: Images, ground: Images, top: int, left: int) -> Images:
    """The frames as an opaque window in the frames of `ground` [T, H, W, 3]."""
    placed = ground.copy()
    placed[:, top : top + images.shape[1], left : left + images.shape[2]] = images
    return placed
