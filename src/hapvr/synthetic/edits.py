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
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic import edit_steps as steps
from hapvr.synthetic.clip import Clip, Images
from hapvr.synthetic.clip_files import recompressed
from hapvr.synthetic.edit_sprites import pick
from hapvr.synthetic.film_numbers import between
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.time_map import Segment, TimeMap

_DRAWS = 50
_FEWEST_FRAMES = 8  # a trimmed copy keeps as many, if the clip has them


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


@dataclass(frozen=True)
class Edit:
    """A named way to edit; its settings are drawn anew from the generator at each use."""

    name: str
    summary: str
    step: Step

    def apply(self, clip: Clip, rng: Generator, *, host: Clip | None = None) -> Edited:
        """Edit a clip. The same clip, host and state of the generator give the same copy.

        host: the other video of edits that mix two ("insert", "picture-in-picture"); a drawn one if None.
        """
        return self.step(clip, rng, host)


EDITS: dict[str, Edit] = {}


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
    return Edit(name, ", then ".join(EDITS[part].summary for part in parts), _chained(parts))


def _chained(names: list[str]) -> Step:
    def step(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
        edited = Edited(clip, TimeMap.identity(clip.seconds))
        for name in names:
            edited = _next_of_chain(EDITS[name], edited, rng, host)
        return edited

    return step


def _next_of_chain(edit: Edit, edited: Edited, rng: Generator, host: Clip | None) -> Edited:
    """Edit a copy once more; drawn again until a second, or half of what there was, is left to find.

    A trim may otherwise hit only what an insert has put around the original.
    """
    for _ in range(_DRAWS):
        made = edit.apply(edited.clip, rng, host=host)
        time = made.time.after(edited.time)
        shown, before = (sum(part.q_end - part.q_start for part in each.segments) for each in (time, edited.time))
        if shown >= min(1.0, before / 2):
            return Edited(made.clip, time)
    raise DataError(f"'{edit.name}' left nothing of the original, {_DRAWS} times. Put it earlier in the chain.")


def _edit(name: str, summary: str) -> Callable[[Step], Step]:
    def register(step: Step) -> Step:
        EDITS[name] = Edit(name, summary, step)
        return step

    return register


# name: (what it does to a video, how). These leave the number and the rate of the frames alone.
_OF_THE_PICTURE: dict[str, tuple[str, Callable[[Images, Generator], Images]]] = {
    "downscale": ("made smaller", steps.downscale),
    "blur": ("out of focus or smeared by motion", steps.blur),
    "noise": ("noisy", steps.noise),
    "colour": ("brightness, contrast, gamma, saturation and hue changed", steps.colour),
    "greyscale": ("without colour", steps.greyscale),
    "crop": ("a part of the picture", steps.crop),
    "flip": ("mirrored left to right", steps.flip),
    "rotate": ("tilted by a few degrees", steps.rotate),
    "rotate-90": ("on its side", steps.rotate_90),
    "perspective": ("seen from aside", steps.perspective),
    "camcorder": ("filmed from a screen: askew, shaking, striped, flickering, soft and noisy", steps.camcorder),
    "letterbox": ("between bars, black, coloured or blurred, in another format", steps.letterbox),
    "caption": ("with words over it", steps.caption),
    "emoji": ("with emoji over it, some of them moving", steps.emoji),
    "logo": ("with a logo in a corner", steps.logo),
}


def _of_the_picture(change: Callable[[Images, Generator], Images]) -> Step:
    def step(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
        return Edited(Clip(change(clip.images, rng), clip.fps), TimeMap.identity(clip.seconds))

    return step


for _name, (_summary, _change) in _OF_THE_PICTURE.items():
    EDITS[_name] = Edit(_name, _summary, _of_the_picture(_change))


@_edit("recompress", "encoded again at a low rate")
def _recompress(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    return Edited(recompressed(clip, crf=int(rng.integers(36, 47))), TimeMap.identity(clip.seconds))


@_edit("picture-in-picture", "a window in another video")
def _picture_in_picture(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    height, width = clip.size
    ground = _host_frames(host, clip, len(clip), rng)
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


# --- time --------------------------------------------------------------------------------------------------------


@_edit("frame-rate", "fewer frames a second")
def _frame_rate(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    return _at_rate(clip, _file_rate(clip.fps * between(rng, 0.35, 0.7)))


@_edit("speed", "slower or faster")
def _speed(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    factor = pick(rng, [slow / 20 for slow in range(10, 17)] + [fast / 20 for fast in range(25, 41, 2)])
    played = Clip(clip.images, _file_rate(clip.fps * factor))
    return Edited(played, TimeMap.of(Segment(0.0, played.seconds, 0.0, clip.seconds)))


@_edit("reverse", "played backwards")
def _reverse(clip: Clip, _: Generator, __: Clip | None) -> Edited:
    backwards = Clip(np.ascontiguousarray(clip.images[::-1]), clip.fps)
    return Edited(backwards, TimeMap.of(Segment(0.0, clip.seconds, clip.seconds, 0.0)))


@_edit("trim", "a part of the time")
def _trim(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    kept = max(round(len(clip) * between(rng, 0.3, 0.7)), min(len(clip), _FEWEST_FRAMES))
    first = int(rng.integers(0, len(clip) - kept + 1))
    part = Clip(clip.images[first : first + kept], clip.fps)
    return Edited(part, TimeMap.of(Segment(0.0, part.seconds, first / clip.fps, (first + kept) / clip.fps)))


@_edit("insert", "a part of it inside another video")
def _insert(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
    kept = max(round(len(clip) * between(rng, 0.4, 0.8)), min(len(clip), _FEWEST_FRAMES))
    first = int(rng.integers(0, len(clip) - kept + 1))
    before, after = (max(1, round(len(clip) * between(rng, 0.25, 0.8))) for _ in range(2))
    other = _host_frames(host, clip, before + after, rng)
    whole = Clip(np.concatenate([other[:before], clip.images[first : first + kept], other[before:]]), clip.fps)
    places = np.array([before, before + kept, first, first + kept]) / clip.fps
    return Edited(whole, TimeMap.of(Segment(*places.tolist())))


def _file_rate(fps: float) -> float:
    """A rate in thousandths, which video files hold exactly."""
    return max(1, round(fps * 1000)) / 1000


def _at_rate(clip: Clip, fps: float) -> Edited:
    """The frames shown in the middle of each frame of another rate; the map stays the identity."""
    count = max(1, round(clip.seconds * fps))
    shown = np.minimum(((np.arange(count) + 0.5) * clip.fps / fps).astype(np.intp), len(clip) - 1)
    made = Clip(clip.images[shown], fps)
    return Edited(made, TimeMap.identity(min(made.seconds, clip.seconds)))


def _host_frames(host: Clip | None, clip: Clip, count: int, rng: Generator) -> Images:
    """`count` frames of the host at the rate and size of the clip, from a random place on; it starts over if short."""
    if host is None:
        host = draw_scene(int(rng.integers(2**31)), seconds=count / clip.fps, fps=clip.fps)
    frames = _at_rate(host, clip.fps).clip.images
    first = int(rng.integers(0, max(1, len(frames) - count + 1)))
    return pixels.cover(frames[(first + np.arange(count)) % len(frames)], clip.size)


# --- chains ------------------------------------------------------------------------------------------------------

_OF_TIME = ["speed", "trim", "insert", "reverse", "frame-rate"]
_OF_SHAPE = ["crop", "flip", "rotate", "letterbox", "perspective", "picture-in-picture"]
_OF_LOOKS = ["colour", "greyscale", "blur", "noise", "recompress", "downscale", "caption", "emoji", "logo"]


def _drawn_chain(*pools: list[str]) -> Step:
    """One edit of each pool, in random order."""

    def step(clip: Clip, rng: Generator, host: Clip | None) -> Edited:
        names = [pick(rng, pool) for pool in pools]
        order = sorted(names, key=lambda _: float(rng.random()))
        return _chained(order)(clip, rng, host)

    return step


def _low_rate_blur_noise(clip: Clip, rng: Generator, _: Clip | None) -> Edited:
    made = _at_rate(clip, min(clip.fps, _file_rate(between(rng, 2.0, 4.0))))
    images = pixels.blur(made.clip.images, min(clip.size) * between(rng, 0.015, 0.03))
    return Edited(Clip(pixels.noise(images, between(rng, 20, 40), rng), made.clip.fps), made.time)


for _name, _summary, _step in [
    ("low-rate-blur-noise", "2 to 4 frames a second, blurred and noisy", _low_rate_blur_noise),
    ("letterbox-caption", "between bars, with words over it", _chained(["letterbox", "caption"])),
    ("chain-2", "two edits: one of the shape, one of the looks", _drawn_chain(_OF_SHAPE, _OF_LOOKS)),
    (
        "chain-3",
        "three edits: one of time, one of the shape, one of the looks",
        _drawn_chain(_OF_TIME, _OF_SHAPE, _OF_LOOKS),
    ),
]:
    EDITS[_name] = Edit(_name, _summary, _step)
