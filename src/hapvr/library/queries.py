"""What is compared within a library: one of its videos, a file, or features; all of it or a part."""

from __future__ import annotations

import bisect
import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hapvr.comparing import Side, describe_side, left_out
from hapvr.errors import DataError
from hapvr.features.extractor import SamplingConfig, decode_parts
from hapvr.features.files import Features, joined
from hapvr.library.candidates import ALIKE
from hapvr.library.holding import Held
from hapvr.library.records import VideoRecord, shown
from hapvr.library.tables import NO_KEY, Catalogue
from hapvr.records import Box, Frames
from hapvr.video.crew_files import signature

if TYPE_CHECKING:
    from hapvr.library.library import Library
    from hapvr.model import Model


@dataclass(frozen=True, eq=False)
class Query:
    """One side of a comparison, as it was read.

    Attributes:
        whole: the frames of the part that was asked for, with their times.
        features: of these, the frames that are compared: those that say something, or all if none does.
        id: of the library's video that was asked for by its id; None for everything else.
        path: of the file; empty for features.
        warnings: what was wrong with the file, in sentences.
        duration_s: of the whole video; None for a still picture.
        crop: what is left of a frame without its bars, where it is known.
    """

    whole: Features
    features: Features
    id: str | None = None
    path: str = ""
    warnings: tuple[str, ...] = ()
    duration_s: float | None = None
    crop: Box | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether all its frames are of low information."""
        low = self.features.low_information
        return low is not None and bool(low.all())

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What was wrong with the file, and how many frames are left out."""
        return (*self.warnings, *left_out(self.whole))

    def side(self, model: Model) -> Side:
        """Ready to be compared by `hapvr.comparing.match`."""
        return describe_side(
            model,
            self.whole,
            path=self.path,
            warnings=self.warnings,
            duration_s=self.duration_s,
            sampling=model.sampling if self.path else None,
            crop=self.crop,
        )


def read_query(
    library: Library,
    given: str | os.PathLike[str] | Features,
    *,
    start: float | None = None,
    end: float | None = None,
    held: Held | None = None,
) -> Query:
    """Read what is to be compared; its frames keep the times they have in the whole of it.

    A file that is in the library and has not changed since it was added is not read again: what is stored of it counts,
    so that it gives the same scores by its path as by its id.

    Args:
        library: an open one.
        given: the id of an indexed video, the path of a video or picture, or features.
        start: seconds; what lies before is left out.
        end: seconds; what lies from there on is left out.
        held: what is kept in memory.

    Raises:
        DataError: there is no such id or file, it failed when it was added, or there is no frame in that part.
        DecodeError: a file cannot be read.
    """
    if isinstance(given, Features):
        rate = library.settings.rate
        features = timed(given, rate)
        part = _part(features, start, end, name="The query")
        return Query(part, part.informative(), duration_s=float(times_of(features)[-1] + 1 / rate))
    if not isinstance(given, str | os.PathLike):
        raise DataError(f"Give an id, a path or Features, not a value of type {type(given).__name__}.")
    catalogue = library.store.catalogue()
    if isinstance(given, str) and given in catalogue:
        row = catalogue.row(given)
        found = _stored(library, catalogue, row, start, end, held=held)
        return dataclasses.replace(found, id=given)
    if (known := _row_of_file(catalogue, given)) is not None:
        return _stored(library, catalogue, known, start, end, held=held)
    if not os.path.lexists(given):
        if looks_like_path(given):
            raise DataError(f"There is no such file: '{shown(given)}'.")
        near = catalogue.near(str(given))
        raise DataError(f"'{shown(given)}' is neither a file nor the id of a video in the library{near}")
    return _read(given, library.model, start, end)


# --- files -----------------------------------------------------------------------------------------------------------


def _read(path: str | os.PathLike[str], model: Model, start: float | None, end: float | None) -> Query:
    """A file that is not in the library."""
    if start is None and end is None:
        parts = decode_parts(path, model.sampling)
    else:
        parts = _decode_part(path, model.sampling, start, end)
    described: list[Features] = []
    for part in parts:
        described.append(model.extractor.features(part))
        # What is known of the whole video comes with its last part.
        warnings, duration_s, crop = part.warnings, part.duration_s, part.crop
        del part  # it would stay while the next part is decoded
    whole = _part(joined(described), start, end, name=f"'{shown(path)}'")
    name = os.fspath(path)
    return Query(whole, whole.informative(), None, name, warnings, duration_s, crop)


def _decode_part(
    path: str | os.PathLike[str], sampling: SamplingConfig, start: float | None, end: float | None
) -> Iterator[Frames]:
    from hapvr.video.decode import decode

    yield decode(
        path,
        fps=sampling.fps,
        short_side=sampling.short_side,
        at_least=sampling.at_least,
        start_s=start,
        end_s=end,
    )


def _row_of_file(catalogue: Catalogue, path: str | os.PathLike[str]) -> int | None:
    """The row of a file that is as it was when it was added; None for any other."""
    name = os.fsencode(os.path.abspath(path))
    row = bisect.bisect_left(catalogue.paths, name)
    if row == len(catalogue) or catalogue.paths[row] != name or catalogue.keys[row] == NO_KEY:
        return None
    return row if is_unchanged(catalogue.record(row)) else None


def is_unchanged(record: VideoRecord) -> bool:
    """Whether a file is there and, by its size and time, the one that was added."""
    return (record.size, record.mtime_ns) == signature(os.fsencode(record.path))


def looks_like_path(given: str | os.PathLike[str]) -> bool:
    """Whether what was given is meant as a file, and not as an id: ids are short words without a dot or a slash.

    >>> [looks_like_path(text) for text in ("clip.mp4", "films/clip", "3f2a91c07be4", "3f2a91c07be4-2")]
    [True, True, False, False]
    """
    return not isinstance(given, str) or any(mark in given for mark in (".", os.sep, os.altsep or os.sep))


# --- videos of the library -------------------------------------------------------------------------------------------


def _stored(
    library: Library,
    catalogue: Catalogue,
    row: int,
    start: float | None,
    end: float | None,
    *,
    held: Held | None,
) -> Query:
    store, record, key = library.store, catalogue.record(row), int(catalogue.keys[row])
    if key == NO_KEY:
        raise DataError(f"'{shown(record.path)}' could not be described, so it cannot be compared: {record.error}")
    found = next((held or Held(0)).stored(store, [key]), None)
    features = timed(store.features(key) if found is None else found.features(store.codec), store.settings.rate)
    whole = _part(features, start, end, name=f"'{record.id}'")
    return Query(whole, whole.informative(), None, record.path, record.warnings, record.duration)


# --- times and parts -------------------------------------------------------------------------------------------------


def timed(features: Features, rate: float) -> Features:
    """The same features with times, of a rate if they have none."""
    if features.timestamps is not None:
        return features
    return dataclasses.replace(features, timestamps=np.arange(len(features)) / rate)


def times_of(features: Features) -> NDArray[np.float64]:
    """The times of features that have them."""
    assert features.timestamps is not None, "timed before"
    return features.timestamps


def _part(features: Features, start: float | None, end: float | None, *, name: str) -> Features:
    """The frames in [start, end)."""
    if start is None and end is None:
        return features
    times = times_of(features)
    kept = (times >= (start or 0.0)) & (times < (math.inf if end is None else end))
    if not kept.any():
        until = "its end" if end is None else f"{end:g} s"
        raise DataError(f"{name} has no frame from {start or 0.0:g} s to {until}: its frames are of {times[0]:g} to "
                        f"{times[-1]:g} s.")  # fmt: skip
    regions, low = features.regions[torch.from_numpy(kept)], None
    if features.low_information is not None:
        low = features.low_information[kept]
        before = np.flatnonzero(~features.low_information[: int(kept.argmax())])
        if low.all() and len(before):
            # Frames that repeat one before the part are the first to show it here; flat ones show nothing anywhere.
            alike = F.cosine_similarity(regions, features.regions[before[-1]], dim=-1).mean(1).cpu().numpy() >= ALIKE
            low[int(alike.argmax())] = not alike.any()
    return Features(regions, times[kept], low)
