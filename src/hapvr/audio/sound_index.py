"""An inverted index of sounds: from a pair of peaks to all sounds that hold it, and where.

A search compares its query with those sounds only that may be the same, and finds what a comparison with each would.
All sounds lie one after the other on one time line, so that an entry of the index is one number: a frame of that line.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hapvr.audio.fingerprints import FRAME_S, Fingerprint
from hapvr.audio.matching import MAX_SHIFT_ERROR, MatchConfig, Pairs, SoundQuery, expand_pairs, make_pairs
from hapvr.errors import DataError
from hapvr.places import Place
from hapvr.storage import write_bytes

_FORMAT = 1  # of the file; another way to make pairs needs another number
_PLACE_BITS = np.uint64(40)  # of an entry while the index is made; a pair takes 22
_WINDOW = 4  # of a query that is looked up at once, in lengths of the longest run of events that make a match


@dataclass(frozen=True, eq=False)
class SoundIndex:
    """The pairs of C sounds.

    Attributes:
        names: [C] int64, what the sounds are called.
        checks: [C] int64, a checksum of each fingerprint: another one means that the sound has changed.
        starts: [C + 1] int64, the frame of the time line where each sound begins, and where the last ends.
        keys: [K] uint32, the different pairs, sorted.
        ends: [K] int64, where the places of each pair end; those of the next begin there.
        places: [P] unsigned, the frames of the time line in which a pair begins.
    """

    names: NDArray[np.int64]
    checks: NDArray[np.int64]
    starts: NDArray[np.int64]
    keys: NDArray[np.uint32]
    ends: NDArray[np.int64]
    places: NDArray[np.unsignedinteger]

    def find_candidates(self, query: SoundQuery) -> NDArray[np.int64]:
        """The positions of all sounds in which `query.find` may find anything; of others, few."""
        found: list[NDArray[np.int64]] = []
        if not query.is_silent:
            for _, pairs in query.variants:
                for window in _split(pairs, query.config):
                    found.append(self._find(window, query.config.min_events))
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def _find(self, query: Pairs, min_events: int) -> NDArray[np.int64]:
        """The sounds with enough pairs at nearly the same distance from those of a query."""
        wanted = query.keys.astype(np.uint32)
        at = np.searchsorted(self.keys, wanted)
        at[at == len(self.keys)] = 0
        known = self.keys[at] == wanted if len(self.keys) else np.zeros(len(at), bool)
        at = at[known]
        low = np.where(at > 0, self.ends[at - 1], 0)
        here, there = expand_pairs(query.frames[known], self.places, low, self.ends[at] - low)
        if len(here) < min_events:
            return np.zeros(0, np.int64)
        # Sorted by distance and by moment of the query; of several pairs of one moment at one distance, one counts.
        bits = int(here.max()).bit_length()
        events = np.unique(((there.astype(np.int64) - here) << bits) | here)
        shifts = events >> bits
        # Where as many events as are needed follow each other closely enough: the first of them names the sound.
        close = shifts[min_events - 1 :] - shifts[: max(0, len(shifts) - min_events + 1)] <= 2 * MAX_SHIFT_ERROR
        first = np.flatnonzero(close)
        place = shifts[first] + (events[first] & ((1 << bits) - 1))
        return np.unique(np.searchsorted(self.starts, place, "right") - 1)


def _split(pairs: Pairs, config: MatchConfig) -> Iterator[Pairs]:
    """The pairs of a query in windows of time that overlap so far that any run of events that counts is within one."""
    run = int((config.min_events - 1) * config.max_gap_s / FRAME_S) + 1  # frames
    last = int(pairs.frames.max(initial=0))
    for start in range(0, max(1, last - run + 1), (_WINDOW - 1) * run):
        inside = (pairs.frames >= start) & (pairs.frames < start + _WINDOW * run)
        yield Pairs(pairs.keys[inside], pairs.frames[inside])


def build_index(sounds: Mapping[int, tuple[int, Fingerprint]]) -> SoundIndex:
    """Index sounds: by name, a checksum and the fingerprint of each.

    >>> two = build_index({7: (0, Fingerprint(np.array([0, 10]), np.array([7, 12])))})
    >>> two.names.tolist(), two.starts.tolist(), two.keys.tolist() == [(10 * 256 + 7) * 256 + 12], two.places.tolist()
    ([7], [0, 11], True, [0])
    """
    lengths = [int(peaks.frames.max(initial=-1)) + 1 for _, peaks in sounds.values()]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    entries = [np.zeros(0, np.uint64)]
    for start, (_, peaks) in zip(starts, sounds.values(), strict=False):
        pairs = make_pairs(peaks)
        entries.append((pairs.keys.astype(np.uint64) << _PLACE_BITS) | (pairs.frames + start).astype(np.uint64))
    joined = np.concatenate(entries)
    entries.clear()
    joined.sort()
    keys = (joined >> _PLACE_BITS).astype(np.uint32)
    is_last = np.append(keys[1:] != keys[:-1], len(keys) > 0)[: len(keys)]
    places = (joined << (np.uint64(64) - _PLACE_BITS)) >> (np.uint64(64) - _PLACE_BITS)
    checks = np.array([check for check, _ in sounds.values()], np.int64)
    ends = np.flatnonzero(is_last).astype(np.int64) + 1
    small = places.astype(np.min_scalar_type(int(starts[-1])))
    return SoundIndex(np.array(list(sounds), np.int64), checks, starts, keys[is_last], ends, small)


_ARRAYS = ("names", "checks", "starts", "keys", "ends", "places")


def write_index(index: SoundIndex, path: Place) -> None:
    """Write an index in one step."""
    file = io.BytesIO()
    np.savez(file, format=np.array(_FORMAT), **{name: getattr(index, name) for name in _ARRAYS})
    write_bytes(path, file.getvalue())


def read_index(path: Place) -> SoundIndex:
    """What `write_index` wrote; `DataError` if it is damaged, or of another kind."""
    try:
        # It is a zip archive, with a checksum of each array.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            if int(file["format"]) != _FORMAT:
                raise ValueError(f"its format is {int(file['format'])}, and not {_FORMAT}")
            return SoundIndex(**{name: file[name] for name in _ARRAYS})
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"The index of sounds '{path}' cannot be read: {error}.") from error
