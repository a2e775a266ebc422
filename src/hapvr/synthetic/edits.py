"""Edited copies of a video whose ground truth is known: what people do to videos before they share them again.

An edit takes a clip and a random generator and gives the edited clip with its time map: which moment of the original
each moment of the copy shows. Edits of time move whole frames, so their maps are exact; a chain composes the maps.

    >>> import numpy as np
    >>> from hapvr.synthetic.films import draw_scene
    >>> edited = find_edit("trim+speed+caption").apply(draw_scene(1, seconds=10), np.random.default_rng(0))
    >>> [tuple(round(second, 2) for second in part.interval()) for part in edited.segments]
    [(0.0, 7.89, 2.32, 7.84)]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.synthetic import edit_layouts as layouts
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_sprites as sprites
from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.clip_files import recompress
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.film_numbers import between
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.time_map import Segment, TimeMap

_DRAWS = 50
_MIN_FRAMES = 8  # a trimmed copy keeps as many, if the clip has them


@dataclass(frozen=True)
class Edited:
    """An edited copy and which moments of the original it shows."""

    clip: Clip
    time: TimeMap  # seconds of the copy -> seconds of the original

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The stretches of the copy that show the original, in order."""
        return self.time.segments


# (clip, rng, host) -> Edited. The host is another video, for edits that mix two; None: one is drawn.
Step = Callable[[Clip, Generator, Clip | None], Edited]
PictureStep = Callable[[Images, Generator], Images]  # uint8 [T, H, W, 3] -> [T, H', W', 3]


@dataclass(frozen=True)
class Edit:
    """A named way to edit; its settings are drawn from the generator at each use."""

    name: str
    summary: str
    step: Step

    def apply(self, clip: Clip, rng: Generator, *, host: Clip | None = None) -> Edited:
        """Edit a clip. The same clip, host and state of the generator give the same copy.

        host: the other video of edits that mix two ("insert", "picture-in-picture", "reaction-large",
        "reaction-small"); a drawn one if None.
        """
        return self.step(clip, rng, host)


def find_edit(name: str) -> Edit:
    """The edit of a name; names joined by "+" are made one after the other.

    `ConfigError` names the nearest known edit.

    >>> find_edit("flip").summary
    'mirrored left to right'
    >>> find_edit("cropp")
    Traceback (most recent call last):
        ...
    hapvr.errors.ConfigError: there is no edit 'cropp'; did you mean 'crop'?
    """
    if name in EDITS:
        return EDITS[name]
    parts = name.split("+")
    for part in parts:
        if part not in EDITS:
            raise ConfigError(f"there is no edit '{part}'; {suggest(part, list(EDITS))}")
    return Edit(name, ", then ".join(EDITS[part].summary for part in parts), _chain(parts))


def change_rate(clip: Clip, fps: float) -> Edited:
    """The frames shown in the middle of each frame of another rate; the map stays the identity."""
    count = max(1, round(clip.seconds * fps))
    shown = np.minimum(((np.arange(count) + 0.5) * clip.fps / fps).astype(np.intp), len(clip) - 1)
    made = Clip(clip.images[shown], fps)
    return Edited(made, TimeMap.identity(min(made.seconds, clip.seconds)))


def _chain(names: list[str]) -> Step:
    """Edits one after the other. Each is drawn again until a second, or half of what there was, is left to find.

    A trim may otherwise hit only what an insert has put around the original.
    """

    def step(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
        time = TimeMap.identity(clip.seconds)
        for name in names:
            for _ in range(_DRAWS):
                made = EDITS[name].apply(clip, rng, host=host)
                after = made.time.after(time)
                if after.shown_s >= min(1.0, time.shown_s / 2):
                    break
            else:
                raise DataError(f"'{name}' left nothing of the original, {_DRAWS} times. Put it earlier in the chain.")
            clip, time = made.clip, after
        return Edited(clip, time)

    return step


# --- the picture -----------------------------------------------------------------------------------------------------


def _downscale(images: Images, rng: Generator) -> Images:
    scale = between(rng, 0.3, 0.6)
    height, width = (max(2, round(side * scale / 2) * 2) for side in images.shape[1:3])
    return pixels.resize(images, (height, width))


def _blur(images: Images, rng: Generator) -> Images:
    side = min(images.shape[1:3])
    if rng.random() < 0.3:
        return pixels.smear(images, max(3, round(side * between(rng, 0.03, 0.07))))
    return pixels.blur(images, side * between(rng, 0.01, 0.025))


def _colour(images: Images, rng: Generator) -> Images:
    toned = pixels.change_tones(
        images, brightness=between(rng, -45, 45), contrast=between(rng, 0.6, 1.5), gamma=between(rng, 0.65, 1.5)
    )
    return pixels.change_hues(toned, saturation=between(rng, 0.3, 1.9), turn=between(rng, -0.12, 0.12))


def _crop(images: Images, rng: Generator) -> Images:
    height, width = (max(1, round(side * between(rng, 0.55, 0.85))) for side in images.shape[1:3])
    top, left = (
        round((side - kept) * rng.random()) for side, kept in zip(images.shape[1:3], (height, width), strict=True)
    )
    return np.ascontiguousarray(images[:, top : top + height, left : left + width])


def _rotate(images: Images, rng: Generator) -> Images:
    return pixels.rotate(images, between(rng, 4, 15) * (1 if rng.random() < 0.5 else -1))


def _camcorder(images: Images, rng: Generator) -> Images:
    still = _draw_corners(rng, 0.12)
    shake = [(between(rng, -0.006, 0.006), between(rng, -0.006, 0.006)) for _ in images]
    seen = pixels.perspective(images, [[(x + dx, y + dy) for x, y in still] for dx, dy in shake])
    seen = pixels.blur(seen, between(rng, 0.5, 1.2))
    side = min(images.shape[1:3])
    seen = pixels.add_moire(
        seen, period=side * between(rng, 0.02, 0.06), tilt=between(rng, -0.6, 0.6), strength=between(rng, 0.06, 0.16)
    )
    gains = [between(rng, 0.85, 1.1) for _ in images]
    seen = pixels.change_tones(seen, contrast=between(rng, 0.7, 0.95), brightness=between(rng, -5, 25), gains=gains)
    return pixels.add_noise(seen, between(rng, 6, 16), rng)


def _draw_corners(rng: Generator, reach: float) -> list[tuple[float, float]]:
    """Where the four corners of the picture go: inwards by up to `reach`, at times a little outwards."""
    moves = [(between(rng, -0.04, reach), between(rng, -0.04, reach)) for _ in range(4)]
    signs = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    return [(x + sx * dx, y + sy * dy) for (x, y), (sx, sy), (dx, dy) in zip(square, signs, moves, strict=True)]


def _letterbox(images: Images, rng: Generator) -> Images:
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
        bars = pixels.change_tones(
            pixels.blur(pixels.cover(images, size), min(size) * 0.06), contrast=0.7, brightness=-25
        )
    elif rng.random() < 0.3:
        bars[:] = rng.integers(0, 256, 3)
    return pixels.place_in(small, bars, (size[0] - small.shape[1]) // 2, (size[1] - small.shape[2]) // 2)


def _caption(images: Images, rng: Generator) -> Images:
    height, width = images.shape[1:3]
    texts = int(rng.integers(1, 4))
    parts = []
    for part in np.array_split(images, min(texts, len(images))):
        words = sprites.draw_caption(rng, width, height)
        down = pick(rng, [0.04, 0.5, 0.96, 0.96])
        place = round((height - words.shape[0]) * down), round((width - words.shape[1]) / 2)
        parts.append(pixels.lay_over(part, words, [place]))
    return np.concatenate(parts)


def _emoji(images: Images, rng: Generator) -> Images:
    height, width = images.shape[1:3]
    for _ in range(int(rng.integers(2, 6))):
        sprite = sprites.draw_emoji(rng, max(6, round(min(height, width) * between(rng, 0.12, 0.32))))
        start = between(rng, -0.05, 0.9) * height, between(rng, -0.05, 0.9) * width
        move = (0.0, 0.0) if rng.random() < 0.5 else (between(rng, -0.6, 0.6) * height, between(rng, -0.6, 0.6) * width)
        shares = np.linspace(0, 1, len(images))
        places = [(round(start[0] + move[0] * share), round(start[1] + move[1] * share)) for share in shares]
        images = pixels.lay_over(images, sprite, places)
    return images


def _logo(images: Images, rng: Generator) -> Images:
    height, width = images.shape[1:3]
    mark = sprites.draw_logo(rng, max(8, round(min(height, width) * between(rng, 0.1, 0.2))))
    room, margin = (height - mark.shape[0], width - mark.shape[1]), round(0.03 * height)
    place = pick(rng, [margin, room[0] - margin]), pick(rng, [margin, room[1] - margin])
    return pixels.lay_over(images, mark, [place], opacity=between(rng, 0.6, 1.0))


def _recompress(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    return Edited(recompress(clip, crf=int(rng.integers(36, 47))), TimeMap.identity(clip.seconds))


def _picture_in_picture(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    height, width = clip.size
    ground = _take_host_frames(host, clip, len(clip), rng)
    scale = between(rng, 0.35, 0.6)
    window = pixels.resize(clip.images, (max(2, round(height * scale)), max(2, round(width * scale))))
    frame = max(1, round(0.012 * height)) if rng.random() < 0.5 else 0
    if frame:
        window = np.pad(window, ((0, 0), (frame, frame), (frame, frame), (0, 0)), constant_values=255)
        window = window[:, :height, :width]
    top, left = (
        round((whole - part) * pick(rng, [0.04, 0.5, 0.96]))
        for whole, part in zip((height, width), window.shape[1:3], strict=True)
    )
    return Edited(Clip(pixels.place_in(window, ground, top, left), clip.fps), TimeMap.identity(clip.seconds))


def _tiny_coarse(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    tiny = Clip(layouts.shrink_to_tiny(clip.images, rng), clip.fps)
    return Edited(recompress(tiny, crf=int(rng.integers(46, 52))), TimeMap.identity(clip.seconds))


def _reaction_large(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    other = _take_host_frames(host, clip, len(clip), rng, own_shape=True)
    images = layouts.add_window(clip.images, other, rng, scale=between(rng, 0.22, 0.42))
    return Edited(Clip(images, clip.fps), TimeMap.identity(clip.seconds))


def _reaction_small(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    other = _take_host_frames(host, clip, len(clip), rng)
    images = layouts.add_window(other, clip.images, rng, scale=between(rng, 0.28, 0.5))
    return Edited(Clip(images, clip.fps), TimeMap.identity(clip.seconds))


# --- time --------------------------------------------------------------------------------------------------------


def _speed(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    factor = pick(rng, [slow / 20 for slow in range(10, 17)] + [fast / 20 for fast in range(25, 41, 2)])
    played = Clip(clip.images, _round_rate(clip.fps * factor))
    return Edited(played, TimeMap.of(Segment(0.0, played.seconds, 0.0, clip.seconds)))


def _reverse(clip: Clip, _: Generator, __: Clip | None) -> Edited:
    backwards = Clip(np.ascontiguousarray(clip.images[::-1]), clip.fps)
    return Edited(backwards, TimeMap.of(Segment(0.0, clip.seconds, clip.seconds, 0.0)))


def _trim(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    kept = max(round(len(clip) * between(rng, 0.3, 0.7)), min(len(clip), _MIN_FRAMES))
    first = int(rng.integers(0, len(clip) - kept + 1))
    part = Clip(clip.images[first : first + kept], clip.fps)
    return Edited(part, TimeMap.of(Segment(0.0, part.seconds, first / clip.fps, (first + kept) / clip.fps)))


def _insert(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    kept = max(round(len(clip) * between(rng, 0.4, 0.8)), min(len(clip), _MIN_FRAMES))
    first = int(rng.integers(0, len(clip) - kept + 1))
    before, after = (max(1, round(len(clip) * between(rng, 0.25, 0.8))) for _ in range(2))
    other = _take_host_frames(host, clip, before + after, rng)
    whole = Clip(np.concatenate([other[:before], clip.images[first : first + kept], other[before:]]), clip.fps)
    places = np.array([before, before + kept, first, first + kept]) / clip.fps
    return Edited(whole, TimeMap.of(Segment(*places.tolist())))


def _round_rate(fps: float) -> float:
    """A rate in thousandths, which video files hold exactly."""
    return max(1, round(fps * 1000)) / 1000


def _take_host_frames(host: Clip | None, clip: Clip, count: int, rng: Generator, *, own_shape: bool = False) -> Images:
    """`count` frames of the host at the rate of the clip, from a random place on; it starts over if short.

    They are of the clip's size, what sticks out cut off; with `own_shape` as they are.
    """
    if host is None:
        host = draw_scene(int(rng.integers(2**31)), seconds=count / clip.fps, fps=clip.fps)
    frames = change_rate(host, clip.fps).clip.images
    first = int(rng.integers(0, max(1, len(frames) - count + 1)))
    taken = frames[(first + np.arange(count)) % len(frames)]
    return taken if own_shape else pixels.cover(taken, clip.size)


# --- chains ------------------------------------------------------------------------------------------------------

_OF_TIME = ["speed", "trim", "insert", "reverse", "frame-rate"]
_OF_SHAPE = ["crop", "flip", "rotate", "letterbox", "perspective", "picture-in-picture"]
_OF_LOOKS = ["colour", "greyscale", "blur", "noise", "recompress", "downscale", "caption", "emoji", "logo"]


def _draw_chain(*pools: list[str]) -> Step:
    """One edit of each pool, in random order."""

    def step(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
        names = [pick(rng, pool) for pool in pools]
        order = sorted(names, key=lambda _: float(rng.random()))
        return _chain(order)(clip, rng, host)

    return step


def _low_rate_blur_noise(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    made = change_rate(clip, min(clip.fps, _round_rate(between(rng, 2.0, 4.0))))
    images = pixels.blur(made.clip.images, min(clip.size) * between(rng, 0.015, 0.03))
    return Edited(Clip(pixels.add_noise(images, between(rng, 20, 40), rng), made.clip.fps), made.time)


# --- all of them -----------------------------------------------------------------------------------------------------

# These leave the number and the rate of the frames alone.
_PICTURE: dict[str, tuple[str, PictureStep]] = {
    "downscale": ("made smaller", _downscale),
    "blur": ("out of focus or smeared by motion", _blur),
    "noise": ("noisy", lambda images, rng: pixels.add_noise(images, between(rng, 12, 36), rng)),
    "colour": ("brightness, contrast, gamma, saturation and hue changed", _colour),
    "greyscale": ("without colour", lambda images, _: pixels.change_hues(images, saturation=0.0)),
    "crop": ("a part of the picture", _crop),
    "flip": ("mirrored left to right", lambda images, _: np.ascontiguousarray(images[:, :, ::-1])),
    "rotate": ("tilted by a few degrees", _rotate),
    "rotate-90": (
        "on its side",
        lambda images, rng: np.ascontiguousarray(np.rot90(images, pick(rng, [1, 3]), axes=(1, 2))),
    ),
    "perspective": ("seen from aside", lambda images, rng: pixels.perspective(images, [_draw_corners(rng, 0.18)])),
    "camcorder": ("filmed from a screen: askew, shaking, striped, flickering, soft and noisy", _camcorder),
    "letterbox": ("between bars, black, coloured or blurred, in another format", _letterbox),
    "caption": ("with words over it", _caption),
    "emoji": ("with emoji over it, some of them moving", _emoji),
    "logo": ("with a logo in a corner", _logo),
    "large-stickers": ("with large stickers that hide a third to two thirds of it", layouts.add_large_stickers),
    "vertical-reframe": ("upright over its own blur, with a caption", layouts.reframe_upright),
    "slow-zoom": ("enlarged more and more, or less and less", layouts.zoom_slowly),
    "meme-border": ("in a border with words above, at times also below", layouts.add_meme_border),
}
_WHOLE: dict[str, tuple[str, Step]] = {
    "recompress": ("encoded again at a low rate", _recompress),
    "picture-in-picture": ("a window in another video", _picture_in_picture),
    "frame-rate": (
        "fewer frames a second",
        lambda clip, rng, _: change_rate(clip, _round_rate(clip.fps * between(rng, 0.35, 0.7))),
    ),
    "speed": ("slower or faster", _speed),
    "reverse": ("played backwards", _reverse),
    "trim": ("a part of the time", _trim),
    "insert": ("a part of it inside another video", _insert),
    "low-rate-blur-noise": ("2 to 4 frames a second, blurred and noisy", _low_rate_blur_noise),
    "letterbox-caption": ("between bars, with words over it", _chain(["letterbox", "caption"])),
    "chain-2": ("two edits: one of the shape, one of the looks", _draw_chain(_OF_SHAPE, _OF_LOOKS)),
    "chain-3": (
        "three edits: one of time, one of the shape, one of the looks",
        _draw_chain(_OF_TIME, _OF_SHAPE, _OF_LOOKS),
    ),
    "tiny-coarse": ("a third of the size or less, encoded at the lowest rate", _tiny_coarse),
    "reaction-large": ("with another video in a window over it", _reaction_large),
    "reaction-small": ("in a small window over another video", _reaction_small),
}
# Not in a benchmark unless asked for: those made with the edits of the first list stay comparable.
_BY_NAME_ONLY = {
    "large-stickers", "vertical-reframe", "slow-zoom", "meme-border", "tiny-coarse", "reaction-large", "reaction-small"
}  # fmt: skip


def _keep_time(change: PictureStep) -> Step:
    def step(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
        return Edited(Clip(change(clip.images, rng), clip.fps), TimeMap.identity(clip.seconds))

    return step


EDITS: dict[str, Edit] = {
    **{name: Edit(name, summary, _keep_time(change)) for name, (summary, change) in _PICTURE.items()},
    **{name: Edit(name, summary, step) for name, (summary, step) in _WHOLE.items()},
}
"""The edits by name, as `hapvr make-benchmark --kind` takes them."""
DEFAULT_EDITS = tuple(name for name in EDITS if name not in _BY_NAME_ONLY)
"""Those that are used where none is named."""
