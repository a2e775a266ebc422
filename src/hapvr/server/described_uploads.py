"""Uploads as queries: their files are from strangers, so other processes decode them, within the server's limits."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from hapvr.audio.description import SoundDescription
from hapvr.audio.isolated import describe_sound_isolated
from hapvr.features.extractor import ExtractedFile
from hapvr.judge.second_look import SecondLookConfig
from hapvr.library import Library
from hapvr.library.queries import Query, join_views
from hapvr.records import Box, Frames
from hapvr.server.access import hide_path
from hapvr.server.worker_process import Call
from hapvr.video.isolated import decode_isolated
from hapvr.video.limits import DecodeLimits

_CACHE_BYTES = 256 * 2**20  # of uploads that are remembered


@dataclass(frozen=True, eq=False)
class DescribedUpload:
    """An upload, or a part of it, described."""

    views: tuple[ExtractedFile, ...]  # the whole of it and, if it shows another video in a window, that one
    warnings: tuple[str, ...]  # what was wrong with its file
    sound: SoundDescription | None = None  # None if it was not needed: the library had no sound

    @property
    def duration(self) -> float:
        """Seconds; 0 for a picture."""
        return self.views[0].duration_s or 0.0


class DescribedUploads:
    """Describes uploads for the searches in one library, and remembers the last ones.

    Args:
        library: open; its model describes them.
        settings: of the server, see `ServerSettings`: what decoding may cost.
    """

    def __init__(self, library: Library, settings: dict[str, Any]) -> None:
        self._library, self._settings = library, settings
        self._known: OrderedDict[tuple[str, float | None, float | None], DescribedUpload] = OrderedDict()
        self._lock = threading.Lock()

    def describe(self, side: dict[str, Any], start_s: float | None, end_s: float | None, call: Call) -> DescribedUpload:
        """An upload, or a part of it; its sound too if the library has sound. `side` is that of `LibraryTasks`."""
        key = (side["id"], start_s, end_s)
        with self._lock:
            known = self._known.get(key)
        upload = known or self._describe_pictures(side, start_s, end_s, call)
        if upload.sound is None and self._library.store.sounds.exists:
            call.check()
            call.progress(message="reading the sound")
            upload = dataclasses.replace(upload, sound=self._describe_sound(side, start_s, end_s))
        if upload is not known:
            call.progress(message="searching")  # without numbers: how far a search is cannot be said
        with self._lock:
            self._known[key] = upload
            self._known.move_to_end(key)
            while len(self._known) > 1 and self._count_bytes() > _CACHE_BYTES:
                self._known.popitem(last=False)
        return upload

    def make_query(self, side: dict[str, Any], upload: DescribedUpload) -> Query:
        """An upload as a query: its file is looked at again in another process alone."""
        settings = self._settings
        look = SecondLookConfig(
            isolate=True, max_pixels=settings["max_decode_pixels"], memory_bytes=settings["max_decode_bytes"]
        )
        return join_views(
            [
                Query(
                    view.features,
                    side["upload"],
                    at_hand=True,
                    duration_s=upload.duration,
                    look=look,
                    sound=upload.sound,
                    inset=view.inset,
                )
                for view in upload.views
            ]
        )

    def forget(self, id: str) -> None:
        """Forget an upload."""
        with self._lock:
            for key in [key for key in self._known if key[0] == id]:
                del self._known[key]

    def _describe_pictures(
        self, side: dict[str, Any], start_s: float | None, end_s: float | None, call: Call
    ) -> DescribedUpload:
        model, settings = self._library.model, self._settings
        decode = partial(
            decode_isolated,
            side["upload"],
            model.sampling,
            start_s=start_s,
            end_s=end_s,
            limits=DecodeLimits(settings["max_decode_pixels"], settings["max_decode_frames"], settings["max_decode_s"]),
            memory_bytes=settings["max_decode_bytes"],
            check=call.check,
        )

        def parts(crop: Box | None) -> Iterator[Frames]:
            count = 0
            for frames in decode(crop=crop):
                yield frames
                duration, count = frames.duration_s or 0.0, count + len(frames)
                expected = (
                    max(float(count), min(duration, end_s or duration) * model.sampling.fps) if duration else None
                )
                call.progress(count, expected, "reading the video")
                del frames  # it would stay in memory while the next part is decoded

        call.progress(message="reading the video")
        name = side["name"] or "the upload"
        views = model.extractor.extract_decoded_views(parts, start_s=start_s, end_s=end_s, name=f"'{name}'")
        return DescribedUpload(views, views[0].warnings)

    def _describe_sound(self, side: dict[str, Any], start_s: float | None, end_s: float | None) -> SoundDescription:
        sound = describe_sound_isolated(
            side["upload"],
            start_s=start_s,
            end_s=end_s,
            limits=DecodeLimits(max_seconds=self._settings["max_decode_s"]),
            memory_bytes=self._settings["max_decode_bytes"],
        )
        if sound.warning is None:
            return sound
        return dataclasses.replace(sound, warning=hide_path(sound.warning, side["upload"], side["name"]))

    def _count_bytes(self) -> int:
        return sum(view.features.regions.nbytes for one in self._known.values() for view in one.views)
