"""Two videos in full, at least one of which a library knows: the answer of `hapvr.compare`, from stored features."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch

from hapvr.comparing import Match, Side, match, read_side
from hapvr.errors import DataError
from hapvr.features.files import Features
from hapvr.library.search import timed, times_of
from hapvr.library.tables import NO_KEY
from hapvr.records import Frames

if TYPE_CHECKING:
    from hapvr.library.library import Library

_FLAT = "Every frame is flat or repeats another: they were compared all the same, but the score says little."


def compare(library: Library, a: str | os.PathLike[str] | Features, b: str | os.PathLike[str] | Features) -> Match:
    """Compare two videos as `hapvr.compare` does: how much of `a` is found in `b`, and where.

    Args:
        library: an open one; its model compares.
        a: the id of an indexed video, the path of a video or picture, or features.
        b: likewise.

    A library keeps no pictures: in the answer, the frames of what was not read from a file are of one black pixel.

    Raises:
        DataError: there is no such id, or it failed when it was added; or features have no frames.
        DecodeError: a file cannot be read.
    """
    return match(_side(library, a), _side(library, b), model=library.model)


def _side(library: Library, given: str | os.PathLike[str] | Features) -> Side:
    if isinstance(given, Features):
        return _described(library, given, path="")
    if not isinstance(given, str | os.PathLike):
        raise DataError(f"Compared are ids, paths or Features, got a {type(given).__name__}.")
    store = library.store
    catalogue = store.catalogue()
    if not isinstance(given, str) or given not in catalogue:
        if os.path.lexists(given):
            return read_side(given, library.model)
        catalogue.row(os.fspath(given))  # says which ids are near
    row = catalogue.row(str(given))
    record, key = catalogue.record(row), int(catalogue.keys[row])
    if key == NO_KEY:
        raise DataError(f"'{given}' could not be described, so it cannot be compared: {record.error}")
    size = max(1, record.width), max(1, record.height)
    return _described(library, store.features(key), record.path, record.duration, size, record.warnings)


def _described(
    library: Library,
    features: Features,
    path: str,
    duration: float | None = None,
    size: tuple[int, int] = (1, 1),
    warnings: tuple[str, ...] = (),
) -> Side:
    model, rate = library.model, library.settings.rate
    features = timed(features, rate)
    times, count = times_of(features), len(features)
    low = np.zeros(count, np.bool_) if features.low_information is None else features.low_information
    used = np.flatnonzero(~low)
    if len(used) == 0:
        used, warnings = np.arange(count), (*warnings, _FLAT)
    elif len(used) < count:
        warnings = (*warnings, f"{count - len(used)} of {count} frames are flat or repeats: left out.")
    with torch.no_grad():
        regions = features.regions[torch.from_numpy(used)].to(model.extractor.device)
        descriptors = model.similarity.describe(regions)
    images = np.zeros((count, 1, 1, 3), np.uint8)
    length = float(times[-1] + 1 / rate) if duration is None else duration
    frames = Frames(images, times, low, duration_s=length, fps=rate, source_size=size, warnings=warnings)
    return Side(path, frames, features, used, descriptors, warnings)
