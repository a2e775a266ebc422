"""Every probability and range of the augmentations, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from hapvr.errors import ConfigError

Range = tuple[float, float]

# Where a range may lie: the lowest and the highest value that make sense.
_BOUNDS = {
    "weak_scale": (1e-3, 1.0),
    "strong_scale": (1e-3, 1.0),
    "ratio": (0.05, 20.0),
    "text_size": (0.01, 1.0),
    "emoji_size": (0.01, 1.0),
    "opacity": (0.0, 1.0),
    "blur_radius": (1e-3, 100.0),
    "window": (1, math.inf),
    "mixup_ratio": (0.0, 0.95),
    "jpeg_quality": (1, 100),
    "letterbox_part": (0.0, 0.45),
    "perspective_part": (0.0, 0.4),
    "noise_strength": (0.0, 255.0),
    "low_rate_step": (1, math.inf),
    "border_width": (0.0, 0.2),
    "stickers_size": (0.01, 1.0),
    "tiny_scale": (0.05, 1.0),
    "tiny_quality": (1, 100),
    "screen_strength": (0.0, 1.0),
}
_PROBABILITIES = (
    "flip", "text", "emoji", "blur", "shuffle_dropout", "fast_forward", "slow_motion", "reverse", "pause", "shuffle",
    "drop", "keep_dropped", "mixup", "jpeg", "letterbox", "perspective", "noise", "low_rate", "border", "turned",
    "backdrop", "stickers", "tiny", "screen",
)  # fmt: skip
_KINDS = ("shuffle_dropout", "fast_forward", "slow_motion", "reverse", "pause")
_WHOLE = ("window", "low_rate_step")


@dataclass(frozen=True)
class ViewConfig:
    """How the weak and the strong view of a clip are made. The defaults are the paper's.

    A name alone is a probability; a pair is a range from which a value is drawn evenly, both ends included. Shares of
    the frame are shares of its side.

    >>> ViewConfig().mixup, ViewConfig(mixup=0.0).mixup
    (0.3, 0.0)
    """

    frames: int = 28  # T, of each view
    size: int = 224  # S, pixels of a side of each view

    # Both views, the same for all frames of a clip.
    weak_scale: Range = (0.8, 1.0)  # share of the picture's area that the crop keeps
    strong_scale: Range = (0.5, 1.0)
    ratio: Range = (3 / 4, 4 / 3)  # width by height of the crop, before it is brought to a square
    flip: float = 0.5  # left to right

    # Strong, global: RandAugment, the same for all frames of a clip.
    randaugment_ops: int = 2
    randaugment_magnitude: int = 9
    randaugment_bins: int = 31

    # Strong, frame: drawn anew for every frame.
    text: float = 0.3
    emoji: float = 0.3
    text_size: Range = (0.2, 0.5)  # root of the area it covers
    emoji_size: Range = (0.2, 0.5)
    opacity: Range = (0.7, 1.0)
    blur: float = 0.5
    blur_radius: Range = (0.1, 2.0)  # standard deviation in pixels

    # Strong, temporal: at most one kind a clip, and none with what these five leave of 1.
    shuffle_dropout: float = 0.5
    fast_forward: float = 0.1  # every second or third frame
    slow_motion: float = 0.1  # every frame twice
    reverse: float = 0.1
    pause: float = 0.1  # a frame stands still for up to a quarter of the view
    window: tuple[int, int] = (4, 15)  # frames of a sub-clip
    shuffle: float = 0.5  # sub-clips change places
    drop: float = 0.3  # of each sub-clip
    keep_dropped: float = 0.5  # a dropped sub-clip stays as blank frames or noise, instead of being cut out

    # Strong, video-in-video: this clip squeezed into a box of another one's frames.
    mixup: float = 0.3
    mixup_ratio: Range = (0.3, 0.7)  # lambda: the box covers 1 - lambda of the host before it is cut at the border

    # Strong, beyond the paper; all off.
    perspective: float = 0.0  # filmed from aside
    perspective_part: Range = (0.03, 0.15)  # how far a corner moves in, share of the side
    letterbox: float = 0.0  # black bars above and below, or left and right
    letterbox_part: Range = (0.05, 0.2)  # height of one bar, share of the side
    low_rate: float = 0.0  # frames are held for a while, as at a lower frame rate
    low_rate_step: tuple[int, int] = (2, 4)  # frames for which one is held
    noise: float = 0.0  # Gaussian, another in each frame
    noise_strength: Range = (2.0, 15.0)  # standard deviation, of 255
    jpeg: float = 0.0  # quantised in blocks of 8 x 8, as JPEG does
    jpeg_quality: Range = (15.0, 75.0)  # as JPEG files name it, 1 to 100
    border: float = 0.0  # of a clip pasted into another one: it gets a frame of one colour
    border_width: Range = (0.01, 0.04)  # share of the side
    turned: float = 0.0  # by 90, 180 or 270 degrees
    backdrop: float = 0.0  # of the views with bars: the bars show the picture itself, enlarged, blurred and darker
    stickers: float = 0.0  # emoji that stay where they are, up to `most_stickers` of them
    most_stickers: int = 6
    stickers_size: Range = (0.15, 0.45)  # root of the area one covers
    tiny: float = 0.0  # made small, kept as a JPEG, and enlarged again
    tiny_scale: Range = (0.25, 0.5)  # of the side
    tiny_quality: Range = (5.0, 50.0)  # as JPEG files name it
    screen: float = 0.0  # filmed from a screen: stripes that drift, and flicker
    screen_strength: Range = (0.05, 0.18)  # of the stripes and of the flicker, share of the brightness

    def __post_init__(self) -> None:
        for field in fields(self):  # JSON and TOML know lists only
            if isinstance(getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(getattr(self, field.name)))
        for name in _PROBABILITIES:
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value <= 1:
                raise ConfigError(f"{name} is a probability, from 0 to 1; got {value!r}.")
        if sum(getattr(self, name) for name in _KINDS) > 1 + 1e-9:
            raise ConfigError(f"the probabilities of {', '.join(_KINDS)} sum to more than 1: at most one is applied.")
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            right = isinstance(value, tuple) and len(value) == 2 and all(_is_number(end) for end in value)
            if not right or not low <= value[0] <= value[1] <= high:
                raise ConfigError(
                    f"{name} is a range (lowest, highest) within {low:g} to {high:g}; got {getattr(self, name)!r}."
                )
            if name in _WHOLE and not all(isinstance(end, int) for end in value):
                raise ConfigError(f"{name} is a range of whole numbers, got {value!r}.")
        least_of = {"frames": 1, "size": 8, "randaugment_ops": 0, "randaugment_bins": 2, "most_stickers": 1}
        for name, least in least_of.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} is a whole number of at least {least}, got {value!r}.")
        magnitude = self.randaugment_magnitude
        if not isinstance(magnitude, int) or not 0 <= magnitude < self.randaugment_bins:
            raise ConfigError(
                f"randaugment_magnitude is one of the {self.randaugment_bins} bins, 0 to {self.randaugment_bins - 1}; "
                f"got {magnitude!r}."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
