"""Two videos in full, at least one of which a library knows: the answer of `hapvr.compare`, from stored features."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hapvr.comparing import Match, Side, describe_side, match, read_side
from hapvr.errors import DataError
from hapvr.features import Features
from hapvr.library.tables import NO_KEY

if TYPE_CHECKING:
    from hapvr.library.library import Library


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
    return _described(library, store.features(key), record.path, record.duration, record.warnings)


def _described(
    library: Library,
    features: Features,
    path: str,
    duration: float | None = None,
    warnings: tuple[str, ...] = (),
) -> Side:
    rate = library.settings.rate
    features = features.with_timestamps(rate)
    length = float(features.times[-1] + 1 / rate) if duration is None else duration
    return describe_side(library.model, features, path=path, warnings=warnings, duration_s=length)
