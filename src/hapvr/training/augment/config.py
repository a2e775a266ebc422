"""Every probability and range of the augmentations, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hapvr.config import CheckedConfig, Range, Share, Within
from hapvr.errors import ConfigError

RENAMED = {"most_stickers": "max_stickers"}  # settings that older runs and banks name otherwise
EDIT_KINDS = ("shuffle_dropout", "fast_forward", "slow_motion", "reverse", "pause")  # of temporal edits

Scale = Annotated[Range, Within(1e-3, 1)]  # share of the picture's area
Size = Annotated[Range, Within(0.01, 1)]  # share of the frame's side: the root of the area covered
Quality = Annotated[Range, Within(1, 100)]  # as JPEG files name it


@dataclass(frozen=True)
class ViewConfig(CheckedConfig):
    """How the weak and the strong view of a clip are made. The defaults are the paper's.

    A `Share` is a probability; a range is drawn from evenly, both ends included. Shares of the frame are shares of its
    side.

    >>> ViewConfig().mixup, ViewConfig(mixup=0.0).mixup
    (0.3, 0.0)
    """

    frames: Annotated[int, Within(1)] = 28  # T, of each view
    size: Annotated[int, Within(8)] = 224  # S, pixels of a side of each view

    # Both views, the same for all frames of a clip.
    weak_scale: Scale = (0.8, 1.0)  # share of the picture's area that the crop keeps
    strong_scale: Scale = (0.5, 1.0)
    ratio: Annotated[Range, Within(0.05, 20)] = (3 / 4, 4 / 3)  # width by height of the crop, before it is made square
    flip: Share = 0.5  # left to right

    # Strong, global: RandAugment, the same for all frames of a clip.
    randaugment_ops: Annotated[int, Within(0)] = 2
    randaugment_magnitude: Annotated[int, Within(0)] = 9  # one of the bins, counted from 0
    randaugment_bins: Annotated[int, Within(2)] = 31

    # Strong, frame: drawn for every frame.
    text: Share = 0.3
    emoji: Share = 0.3
    text_size: Size = (0.2, 0.5)
    emoji_size: Size = (0.2, 0.5)
    opacity: Annotated[Range, Within(0, 1)] = (0.7, 1.0)
    blur: Share = 0.5
    blur_radius: Annotated[Range, Within(1e-3, 100)] = (0.1, 2.0)  # standard deviation in pixels

    # Strong, temporal: at most one of five kinds a clip; none with the probability that they leave.
    shuffle_dropout: Share = 0.5
    fast_forward: Share = 0.1  # every second or third frame
    slow_motion: Share = 0.1  # every frame twice
    reverse: Share = 0.1
    pause: Share = 0.1  # a frame stands still for up to a quarter of the view
    window: Annotated[tuple[int, int], Within(1)] = (4, 15)  # frames of a sub-clip
    shuffle: Share = 0.5  # sub-clips change places
    drop: Share = 0.3  # of each sub-clip
    keep_dropped: Share = 0.5  # a dropped sub-clip stays as blank frames or noise, instead of being cut out
    temporal_edits: Literal["hapvr", "authors"] = "hapvr"  # "authors": as their public code does it, see `temporal`

    # Strong, video-in-video: this clip squeezed into a box of another one's frames.
    mixup: Share = 0.3
    mixup_ratio: Annotated[Range, Within(0, 0.95)] = (0.3, 0.7)  # lambda: the box covers 1 - lambda of the host

    # Strong, beyond the paper; all off.
    perspective: Share = 0.0  # filmed from aside
    perspective_part: Annotated[Range, Within(0, 0.4)] = (0.03, 0.15)  # how far a corner moves in, share of the side
    letterbox: Share = 0.0  # black bars above and below, or left and right
    letterbox_part: Annotated[Range, Within(0, 0.45)] = (0.05, 0.2)  # height of one bar, share of the side
    low_rate: Share = 0.0  # each frame is repeated, as at a lower frame rate
    low_rate_step: Annotated[tuple[int, int], Within(1)] = (2, 4)  # how often
    noise: Share = 0.0  # Gaussian, another in each frame
    noise_strength: Annotated[Range, Within(0, 255)] = (2.0, 15.0)  # standard deviation, of 255
    jpeg: Share = 0.0  # quantised in blocks of 8 x 8, as JPEG does
    jpeg_quality: Quality = (15.0, 75.0)
    mixup_edge: Literal["squeeze", "crop"] = "squeeze"  # a box that reaches over the frame's border: the clip is
    # squeezed into what is left of it, as in the paper, or keeps its size and loses what is beyond
    border: Share = 0.0  # of a clip pasted into another one: it gets a frame of one colour
    border_width: Annotated[Range, Within(0, 0.2)] = (0.01, 0.04)  # share of the side
    turned: Share = 0.0  # by 90, 180 or 270 degrees
    backdrop: Share = 0.0  # of the views with bars: the bars show the picture itself, enlarged, blurred and darker
    stickers: Share = 0.0  # emoji that stay where they are, up to `max_stickers` of them
    max_stickers: Annotated[int, Within(1)] = 6
    stickers_size: Size = (0.15, 0.45)
    tiny: Share = 0.0  # made small, kept as a JPEG, and enlarged again
    tiny_scale: Annotated[Range, Within(0.05, 1)] = (0.25, 0.5)  # of the side
    tiny_quality: Quality = (5.0, 50.0)
    screen: Share = 0.0  # filmed from a screen: stripes that drift, and flicker
    screen_strength: Annotated[Range, Within(0, 1)] = (0.05, 0.18)  # of stripes and flicker, share of the brightness

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(getattr(self, name) for name in EDIT_KINDS) > 1 + 1e-9:
            names = ", ".join(EDIT_KINDS)
            raise ConfigError(f"the probabilities of {names} sum to more than 1: at most one is applied.")
        if self.randaugment_magnitude >= self.randaugment_bins:
            raise ConfigError(
                f"randaugment_magnitude is one of the {self.randaugment_bins} bins, 0 to {self.randaugment_bins - 1}; "
                f"got {self.randaugment_magnitude!r}."
            )
