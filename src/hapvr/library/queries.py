"""What is compared within a library: one of its videos, a file, or features; all of it or a part."""

from __future__ import annotations

import bisect
import dataclasses
import os
from dataclasses import dataclass

from hapvr.errors import DataError
from hapvr.features import Features
from hapvr.library.region_cache import RegionCache
from hapvr.library.results import VideoRecord, display_path
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalog
from hapvr.matching import VideoDescription, describe_features, warn_of_flat_frames
from hapvr.model import Model
from hapvr.records import Box
from hapvr.storage import file_signature


@dataclass(frozen=True, eq=False)
class Query:
    """One side of a comparison, as it was read.

    Attributes:
        whole: the frames of the part that was asked for, with their times.
        features: of these, the frames that are compared, see `Features.drop_flat`.
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
    def all_warnings(self) -> tuple[str, ...]:
        """What was wrong with the file, and how many frames are left out."""
        return (*self.warnings, *warn_of_flat_frames(self.whole))

    def side(self, model: Model) -> VideoDescription:
        """Ready to be compared by `hapvr.matching.match`."""
        return describe_features(
            model,
            self.whole,
            path=self.path,
            warnings=self.warnings,
            duration_s=self.duration_s,
            sampling=model.sampling if self.path else None,
            crop=self.crop,
        )


def read_query(
    store: Store,
    model: Model,
    given: str | os.PathLike[str] | Features,
    *,
    start: float | None = None,
    end: float | None = None,
    cache: RegionCache | None = None,
) -> Query:
    """Read what is to be compared; its frames keep the times they have in the whole of it.

    A file that is in the library and has not changed since it was added is not read again: what is stored of it counts,
    so that it gives the same scores by its path as by its id.

    Args:
        store: the tables of the library.
        model: the one it was made with.
        given: the id of an indexed video, the path of a video or picture, or features.
        start: seconds; what lies before is left out.
        end: seconds; what lies from there on is left out.
        cache: stored videos that are in memory.

    Raises:
        DataError: there is no such id or file, it failed when it was added, or there is no frame in that part.
        DecodeError: a file cannot be read.
    """
    if isinstance(given, Features):
        rate = store.settings.rate
        features = given.with_timestamps(rate)
        part = features.between(start, end, name="The query")
        return Query(part, part.drop_flat(), duration_s=float(features.times[-1] + 1 / rate))
    if not isinstance(given, str | os.PathLike):
        raise DataError(f"Give an id, a path or Features, not a value of type {type(given).__name__}.")
    catalog = store.catalog()
    if isinstance(given, str) and given in catalog:
        row = catalog.row(given)
        found = _read_stored(store, row, start, end, cache)
        return dataclasses.replace(found, id=given)
    if (known := _row_of_file(catalog, given)) is not None:
        return _read_stored(store, known, start, end, cache)
    if not os.path.lexists(given):
        if looks_like_path(given):
            raise DataError(f"There is no such file: '{display_path(given)}'.")
        near = catalog.near(str(given))
        raise DataError(f"'{display_path(given)}' is neither a file nor the id of a video in the library{near}")
    return _read_file(given, model, start, end)


# --- files -----------------------------------------------------------------------------------------------------------


def _read_file(path: str | os.PathLike[str], model: Model, start: float | None, end: float | None) -> Query:
    """A file that is not in the library."""
    read = model.extractor.describe_file(path, start_s=start, end_s=end)
    whole = read.features
    return Query(whole, whole.drop_flat(), None, os.fspath(path), read.warnings, read.duration_s, read.crop)


def _row_of_file(catalog: Catalog, path: str | os.PathLike[str]) -> int | None:
    """The row of a file that is as it was when it was added; None for any other."""
    name = os.fsencode(os.path.abspath(path))
    row = bisect.bisect_left(catalog.paths, name)
    if row == len(catalog) or catalog.paths[row] != name or catalog.keys[row] == NO_KEY:
        return None
    return row if is_unchanged(catalog.record(row)) else None


def is_unchanged(record: VideoRecord) -> bool:
    """Whether a file is there and, by its size and time, the one that was added."""
    return (record.size, record.mtime_ns) == file_signature(os.fsencode(record.path))


def looks_like_path(given: str | os.PathLike[str]) -> bool:
    """Whether what was given is meant as a file, and not as an id: ids are short words without a dot or a slash.

    >>> [looks_like_path(text) for text in ("clip.mp4", "films/clip", "3f2a91c07be4", "3f2a91c07be4-2")]
    [True, True, False, False]
    """
    return not isinstance(given, str) or any(mark in given for mark in (".", os.sep, os.altsep or os.sep))


# --- videos of the library -------------------------------------------------------------------------------------------


def _read_stored(store: Store, row: int, start: float | None, end: float | None, cache: RegionCache | None) -> Query:
    catalog = store.catalog()
    record, key = catalog.record(row), int(catalog.keys[row])
    if key == NO_KEY:
        raise DataError(
            f"'{display_path(record.path)}' could not be described, so it cannot be compared: {record.error}"
        )
    found = next((cache or RegionCache(0)).stored(store, [key]), None)
    features = store.features(key) if found is None else found.features(store.codec)
    whole = features.with_timestamps(store.settings.rate).between(start, end, name=f"'{record.id}'")
    return Query(whole, whole.drop_flat(), None, record.path, record.warnings, record.duration)
