"""The shared footage that a version of a library keeps (`shared.json`), and when it is found again.

The file holds the clips with their exemplars, and says which contents they were found in. A reader that finds no file,
or a damaged one, looks for the footage in memory; a writer makes the file again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import StorageError
from hapvr.library.shared_detection import MIN_VIDEOS, find_shared_footage
from hapvr.library.shared_footage import Occurrence, SharedClip, SharedFootage
from hapvr.library.store import Store
from hapvr.library.versions import translate_write_errors
from hapvr.places import Place, file_state
from hapvr.storage import read_document, write_document

Ints = NDArray[np.int64]

SHARED = "shared.json"
_FORMAT = 1
_RECOMPUTE_SHARE = 0.05  # of the contents of a large library that must have changed
_LARGE = 2_000  # contents


def read_shared_footage(store: Store) -> SharedFootage:
    """The shared footage of a version: as it was kept, or found now where nothing was kept that can be read."""
    try:
        return parse_shared_footage(store.folder / SHARED)
    except (OSError, StorageError):
        return _find_once(store)


def parse_shared_footage(path: Place) -> SharedFootage:
    """The shared footage that a file holds; `StorageError` if it is damaged, or of another format."""
    return _read(path, file_state(path)).footage


def update_shared_footage(store: Store) -> None:
    """Find the shared footage of a version again if its contents have changed enough; with the writer's lock held."""
    keys = store.catalog().contents
    path = store.folder / SHARED
    with suppress(OSError, StorageError):
        if not _read(path, file_state(path)).is_outdated(keys):
            return
    if len(keys) < MIN_VIDEOS and not path.exists():
        return
    content = _to_document(find_shared_footage(store), keys)
    with translate_write_errors(store.folder):
        write_document(path, content, indent=None)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What `shared.json` holds: shared footage, and the contents that it was found in."""

    footage: SharedFootage
    contents: int
    newest: int  # the greatest key of them
    digest: str

    def is_outdated(self, keys: Ints) -> bool:
        if _digest(keys) == self.digest:
            return False
        added = int((keys > self.newest).sum())
        changed = added + abs(self.contents + added - len(keys))
        return len(keys) < _LARGE or changed >= _RECOMPUTE_SHARE * self.contents


def _digest(keys: Ints) -> str:
    return hashlib.sha256(np.sort(keys).astype("<i8").tobytes()).hexdigest()[:16]


def _to_document(footage: SharedFootage, keys: Ints) -> dict[str, Any]:
    clips = [
        clip.to_json()
        | {
            "dims": clip.exemplars.shape[1],
            "exemplars": base64.b64encode(clip.exemplars.astype("<f2").tobytes()).decode(),
        }
        for clip in footage.clips
    ]
    return {
        "format": _FORMAT,
        "contents": len(keys),
        "newest": int(keys.max(initial=0)),
        "digest": _digest(keys),
        "complete": footage.complete,
        "clips": clips,
    }


@lru_cache(maxsize=8)
def _read(path: Place, _state: Hashable) -> _Kept:
    """What a file holds; `StorageError` if it is damaged, or of another format."""
    try:
        content = read_document(path, ())
        if content["format"] != _FORMAT:
            raise ValueError(f"it is of format {content['format']}, this hapvr reads {_FORMAT}.")
        clips = []
        for one in content["clips"]:
            packed = np.frombuffer(base64.b64decode(one["exemplars"]), "<f2").reshape(-1, one["dims"])
            places = tuple(Occurrence(**place) for place in one["occurrences"])
            clips.append(SharedClip(one["id"], one["seconds"], one["videos"], places, packed.astype(np.float32)))
        footage = SharedFootage(tuple(clips), content["complete"])
        return _Kept(footage, content["contents"], content["newest"], content["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"'{path}' cannot be read: {error} The next `hapvr add` makes it again.") from error


_found: dict[Place, tuple[str, SharedFootage]] = {}


def _find_once(store: Store) -> SharedFootage:
    """`find_shared_footage`, once for the same contents: for libraries where nothing is kept."""
    digest = _digest(store.catalog().contents)
    known = _found.get(store.folder)
    if known is None or known[0] != digest:
        _found.clear()
        known = _found[store.folder] = (digest, find_shared_footage(store))
    return known[1]
