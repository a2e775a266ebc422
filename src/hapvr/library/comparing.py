"""Two videos in full, at least one of which a library knows: the answer of `hapvr.compare`, from stored features."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hapvr.comparing import Match, match, require_prior
from hapvr.features import Features
from hapvr.library.queries import read_query

if TYPE_CHECKING:
    from hapvr.library.library import Library


def compare(
    library: Library,
    a: str | os.PathLike[str] | Features,
    b: str | os.PathLike[str] | Features,
    *,
    prior: float | None = None,
) -> Match:
    """Compare two videos as a search of this library does: how much of `a` is found in `b`, and where.

    The answer is that of `hapvr.compare` but for two things: of a video that is in the library, what is stored counts,
    and a calibration of the library's own (`hapvr calibrate`) takes the place of the model's.

    Args:
        library: an open one; its model compares.
        a: the id of an indexed video, the path of a video or picture, or features.
        b: the same.
        prior: how likely a match is before looking, for the probability; the calibration's own if None.

    Pictures of the answer (`Side.pictures`) are read from the files; features have none, and give black pixels.

    Raises:
        DataError: there is no such id or file, or it failed when it was added; or features have no frames.
        DecodeError: a file cannot be read.
    """
    model = library.model
    require_prior(prior, model)
    sides = [read_query(library, one).side(model) for one in (a, b)]
    return match(*sides, model=model, prior=prior)
