"""Which sounds of a library may be the same as a query's: by index files beside its tables (`sound-index-*.npz`).

The files can be made again from the table of sounds at any time. A sound that is in none of them, or has changed since,
is always compared; so is everything in a file that cannot be read. So the answers are the same with and without them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator
from contextlib import suppress
from functools import lru_cache

from hapvr.audio.fingerprints import Fingerprint
from hapvr.audio.matching import SoundQuery
from hapvr.audio.sound_index import SoundIndex, build_index, read_index, write_index
from hapvr.errors import DataError
from hapvr.library.store import Store
from hapvr.library.versions import translate_write_errors
from hapvr.places import Place, file_state, list_names, remove_file

_NAME = re.compile(r"sound-index-([0-9]+)\.npz")
_MIN_SECONDS = 1_800.0  # of sound that is in no file: a search compares less than this in a tenth of a second
_MAX_PEAKS = 4_000_000  # in one file: to make it takes half a gigabyte of memory
_MIN_VALID = 0.5  # of the sounds of a file that are in the library as they were; below this it is made again


class SoundLookup:
    """Finds the sounds to compare with a query, in a library as it is now.

    Args:
        store: of the library.
        complete: index what is in no file now, in memory: for many queries.
    """

    def __init__(self, store: Store, *, complete: bool = False) -> None:
        self.sounds = store.sounds.summarize()
        """State and more of each sound, by the key of its content."""
        self.indexes: dict[Place | int, SoundIndex] = {}  # by file; those in memory by number
        self.outdated: list[Place] = []  # files that cannot be read, or hold too little that others do not
        self.missing = {key for key, sound in self.sounds.items() if sound.state == "ready"}
        """The keys of sounds that are in no index: they are always compared."""
        for path in reversed(list_index_files(store.folder)):  # what was killed left the older files over
            index = _read(path)
            pairs = () if index is None else zip(index.names.tolist(), index.checks.tolist(), strict=True)
            valid = {key for key, check in pairs if key in self.missing and self.sounds[key].check == check}
            if index is None or len(valid) < _MIN_VALID * len(index.names):
                self.outdated.append(path)
            else:
                self.indexes[path] = index
                self.missing -= valid
        if complete:
            self.indexes |= dict(enumerate(self.make_indexes(store, self.missing)))
            self.missing = set()

    def make_indexes(self, store: Store, keys: Collection[int]) -> Iterator[SoundIndex]:
        """Index sounds, by the keys of their contents; no more at once than memory is for."""
        block: dict[int, tuple[int, Fingerprint]] = {}
        left, peaks = len(keys), 0
        for key, sound in store.sounds.read(keys):
            block[key] = self.sounds[key].check, sound.peaks
            left, peaks = left - 1, peaks + len(sound.peaks)
            if peaks >= _MAX_PEAKS or not left:
                yield build_index(block)
                block, peaks = {}, 0

    def find_candidates(self, query: SoundQuery) -> set[int]:
        """The keys of all sounds that may be the same as a query, or parts of it."""
        if query.is_silent:
            return set()
        found = {key for index in self.indexes.values() for key in index.names[index.find_candidates(query)].tolist()}
        return {key for key in found if key in self.sounds} | self.missing


def update_sound_index(store: Store) -> None:
    """Index the sounds that are in no file yet, once they are enough; with the lock held.

    Files with less sound than is new are made again together with it, so that there are never many files.
    """
    lookup = SoundLookup(store)

    def measure(keys: set[int]) -> float:
        return sum(lookup.sounds[key].seconds for key in keys)

    todo, replaced = set(lookup.missing), list(lookup.outdated)
    if measure(todo) < _MIN_SECONDS:
        return
    known = {
        path: set(index.names.tolist()) & lookup.sounds.keys()
        for path, index in lookup.indexes.items()
        if not isinstance(path, int)
    }
    for path, keys in sorted(known.items(), key=lambda one: measure(one[1])):
        if measure(keys) <= measure(todo):
            todo |= keys
            replaced.append(path)
    numbers = [int(_NAME.sub(r"\1", path.name)) for path in (*known, *lookup.outdated)]
    with translate_write_errors(store.folder):
        for number, index in enumerate(lookup.make_indexes(store, todo), max(numbers, default=0) + 1):
            write_index(index, store.folder / f"sound-index-{number:06}.npz")
        for path in replaced:
            with suppress(OSError):  # another process may have it open; the next update removes it
                remove_file(path)


def list_index_files(folder: Place) -> list[Place]:
    """The index files of a version, in the order of their numbers. Other files with such names are left alone."""
    return [folder / name for name in list_names(folder) if _NAME.fullmatch(name)]


def count_unreadable(folder: Place) -> int:
    """How many index files of a version cannot be read; searches go on without them."""
    return sum(_read(path) is None for path in list_index_files(folder))


def _read(path: Place) -> SoundIndex | None:
    """The index of a file; None if it cannot be read."""
    try:
        return _read_once(path, file_state(path))
    except (OSError, DataError):
        return None


@lru_cache(maxsize=32)
def _read_once(path: Place, _state: Hashable) -> SoundIndex:
    return read_index(path)
