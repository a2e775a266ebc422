"""What a person has said: these two videos are no duplicates, however alike they look.

Marks are kept by content, beside the versions of the library: they outlive a rebuild, a file that is moved, and one
that is removed and added again. The file is replaced in one step, by whoever holds the writer's lock.
"""

from __future__ import annotations

from pathlib import Path

from hapvr.errors import DataError, StorageError
from hapvr.library.results import VideoRecord, display_path
from hapvr.library.store import Store
from hapvr.library.versions import keep, read_manifest, writing
from hapvr.storage import read_document, write_document

MARKS = "marks.json"
_FORMAT = 1
_REMEDY = f'Restore it from a copy, or write {{"format": {_FORMAT}, "distinct": []}} into it to go on without marks.'

Pair = tuple[str, str]
"""Two content hashes, the smaller one first."""


def read_marks(folder: Path) -> frozenset[Pair]:
    """The pairs of contents that were marked as distinct; none where nothing was marked yet."""
    path = folder / MARKS
    try:
        content = read_document(path, ("format", "distinct"))
    except FileNotFoundError:
        if MARKS in read_manifest(folder).kept:
            raise StorageError(f"'{display_path(path)}' is missing, though pairs were marked. {_REMEDY}") from None
        return frozenset()
    except (OSError, ValueError) as error:
        raise StorageError(f"'{display_path(path)}' cannot be read: {error} {_REMEDY}") from error
    pairs = content.get("distinct") if content.get("format") == _FORMAT else None
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise StorageError(f"'{display_path(path)}' was not written by this hapvr. {_REMEDY}")
    return frozenset(make_pair(*pair) for pair in pairs)


def make_pair(one: str, other: str) -> Pair:
    """Two hashes in order.

    >>> make_pair("b1", "a2")
    ('a2', 'b1')
    """
    return (one, other) if one <= other else (other, one)


def set_mark(store: Store, a: str, b: str, *, distinct: bool) -> bool:
    """Remember that two videos, by their ids, are no duplicates, or take that back; False if nothing changes.

    With the lock held. `DataError` if there is no such video, if both are one, or if their files are identical.
    """
    folder, catalog = store.library, store.catalog()
    one, other = (catalog.record(catalog.row(id)) for id in (a, b))
    _require_two(one, other)
    pair, known = make_pair(one.content_hash, other.content_hash), read_marks(folder)
    if (pair in known) == distinct:
        return False
    pairs = known | {pair} if distinct else known - {pair}
    with writing(folder):
        write_document(folder / MARKS, {"format": _FORMAT, "distinct": sorted(list(one) for one in pairs)})
    keep(folder, MARKS)
    return True


def _require_two(one: VideoRecord, other: VideoRecord) -> None:
    if one.id == other.id:
        raise DataError(f"'{one.id}' is one video: give two.")
    if one.content_hash == other.content_hash:
        raise DataError(f"'{one.id}' and '{other.id}' are the same file byte for byte: they cannot be marked distinct.")


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
