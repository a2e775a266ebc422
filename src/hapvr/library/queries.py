"""What is searched for or compared: a video of the library, a file, or features; all of it or a part."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hapvr.audio.description import SoundDescription
from hapvr.errors import DataError
from hapvr.features import Features
from hapvr.judge.second_look import SecondLookConfig
from hapvr.library.results import display_path
from hapvr.library.store import Store
from hapvr.library.stored_scores import NO_CACHE, RegionCache, find_row, is_unchanged
from hapvr.library.tables import NO_KEY
from hapvr.matching import VideoDescription, describe_features, warn_of_flat_frames
from hapvr.model import Model
from hapvr.records import Box
from hapvr.storage import StrPath
from hapvr.workers.threads import one_torch_thread


@dataclass(frozen=True, eq=False)
class Query:
    """One side of a comparison: a video of the library, a file, or features; all of it or a part."""

    whole: Features  # the frames of the part that was asked for, with their times
    path: str = ""  # of the file; empty for features
    at_hand: bool = False  # whether that file is there, and the one that was described
    warnings: tuple[str, ...] = ()  # what was wrong with the file, in sentences
    duration_s: float | None = None  # of the whole video; None for a still picture
    crop: Box | None = None  # what is left of a frame without its bars, where it is known
    id: str | None = None  # of the library's video that was asked for by its id; None for everything else
    look: SecondLookConfig | None = None  # how its file is looked at again, if it is from a stranger
    sound: SoundDescription | None = None  # of the same part, if it was read already
    inset: Box | None = None  # the same as `crop`, if it is a window in which the file shows another video
    inner: Query | None = None  # that other video, where a file shows one in a window

    @cached_property
    def features(self) -> Features:
        """The frames that are compared."""
        return self.whole.drop_flat()

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What was wrong with the file, and how many frames are left out."""
        return (*self.warnings, *warn_of_flat_frames(self.whole))

    @property
    def views(self) -> tuple[Query, ...]:
        """The video as a whole and, if it shows another one in a window, that one."""
        return (self,) if self.inner is None else (self, self.inner)

    def describe(self, model: Model) -> VideoDescription:
        """Ready to be compared by `match_videos`; without the video in a window."""
        return describe_features(
            model,
            self.whole,
            path=self.path,
            warnings=self.warnings,
            duration_s=self.duration_s,
            sampling=model.sampling if self.at_hand else None,
            crop=self.crop,
            look=self.look,
            inset=self.inset,
        )


def read_query(
    store: Store,
    model: Model,
    given: StrPath | Features | Query,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    cache: RegionCache = NO_CACHE,
) -> Query:
    """Read what is to be compared; its frames keep the times they have in the whole of it.

    A file that is in the library and has not changed since it was added is not read again: what is stored of it counts,
    so that it gives the same scores by its path as by its id.

    Raises:
        DataError: there is no such id or file, it failed when it was added, or there is no frame in that part.
        DecodeError: a file cannot be read.
    """
    if isinstance(given, Query):
        cut = [
            dataclasses.replace(view, whole=view.whole.between(start_s, end_s, name="The query"))
            for view in given.views
        ]
        return join_views(cut)
    if isinstance(given, Features):
        fps = store.settings.fps
        features = given.with_timestamps(fps)
        part = features.between(start_s, end_s, name="The query")
        return Query(part, duration_s=float(features.times[-1] + 1 / fps))
    if not isinstance(given, str | os.PathLike):
        raise DataError(f"Give an id, a path or Features, not a value of type {type(given).__name__}.")
    catalog = store.catalog()
    if isinstance(given, str) and given in catalog:
        return dataclasses.replace(_read_stored(store, catalog.row(given), given, start_s, end_s, cache), id=given)
    if (row := find_row(catalog, given)) is not None:
        return _read_stored(store, row, given, start_s, end_s, cache)
    if os.path.lexists(given):
        found = model.extractor.extract_views(given, start_s=start_s, end_s=end_s)
        path = os.fspath(given)
        return join_views(
            [Query(one.features, path, True, one.warnings, one.duration_s, one.crop, inset=one.inset) for one in found]
        )
    if _looks_like_path(given):
        raise DataError(f"There is no such file: '{display_path(given)}'.")
    near = catalog.suggest_ids(str(given))
    raise DataError(f"'{display_path(given)}' is neither a file nor the id of a video in the library{near}")


def join_views(views: Sequence[Query]) -> Query:
    """The first of one or two queries, with the second as what its file shows in a window."""
    whole, *rest = views
    return dataclasses.replace(whole, inner=rest[0] if rest else None)


def _looks_like_path(given: StrPath) -> bool:
    """Whether what was given is meant as a file, and not as an id: ids are short words without a dot or a slash.

    >>> [_looks_like_path(text) for text in ("clip.mp4", "films/clip", "3f2a91c07be4", "3f2a91c07be4-2")]
    [True, True, False, False]
    """
    return not isinstance(given, str) or any(mark in given for mark in (".", os.sep, os.altsep or os.sep))


def _read_stored(
    store: Store, row: int, given: StrPath, start_s: float | None, end_s: float | None, cache: RegionCache
) -> Query:
    catalog = store.catalog()
    record, key = catalog.record(row), int(catalog.keys[row])
    if key == NO_KEY:
        raise DataError(
            f"'{display_path(record.path)}' could not be described, so it cannot be compared: {record.error}"
        )
    with one_torch_thread():
        features = cache.read_features(store, key).with_timestamps(store.settings.fps)
    whole = features.between(start_s, end_s, name=f"'{display_path(given)}'")
    return Query(whole, record.path, is_unchanged(record), record.warnings, record.duration)
