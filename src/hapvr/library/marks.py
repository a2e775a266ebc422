"""Marks of users: which videos are no duplicates, however alike they look.

They are kept by content, beside the versions of the library: they outlive a rebuild, a file that is moved, and one that
is removed and added again.
"""

from __future__ import annotations

from collections.abc import Iterable

from hapvr.errors import DataError, StorageError
from hapvr.library.results import display_path
from hapvr.library.store import Store
from hapvr.library.versions import read_kept_document, require_from_now_on, translate_write_errors
from hapvr.places import Place
from hapvr.storage import write_document

MARKS = "marks.json"
_FORMAT = 1
_REMEDY = f'Restore it from a copy, or write {{"format": {_FORMAT}, "distinct": []}} into it to go on without marks.'

Pair = tuple[str, str]
"""Two content hashes, the smaller one first."""


def make_pair(one: str, other: str) -> Pair:
    """Two hashes in order.

    >>> make_pair("b1", "a2")
    ('a2', 'b1')
    """
    return (one, other) if one <= other else (other, one)


def read_marks(folder: Place) -> frozenset[Pair]:
    """The pairs of contents that were marked as distinct in the library of a folder."""
    missing = f", though pairs were marked. {_REMEDY}"
    content = read_kept_document(folder, MARKS, ("format", "distinct"), format=_FORMAT, missing=missing, remedy=_REMEDY)
    pairs = [] if content is None else content.get("distinct")
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise StorageError(f"'{display_path(folder / MARKS)}' was not written by this hapvr. {_REMEDY}")
    return frozenset(make_pair(*pair) for pair in pairs)


def set_mark(store: Store, a: str, b: str, *, distinct: bool) -> bool:
    """Remember that two videos, by their ids, are no duplicates, or take that back; False if nothing changes.

    With the lock held. `DataError` if there is no such video, if both are one, or if their files are identical.
    """
    catalog = store.catalog()
    one, other = (catalog.record(catalog.row(id)) for id in (a, b))
    if one.id == other.id:
        raise DataError(f"'{one.id}' is one video: give two.")
    if one.content_hash == other.content_hash:
        raise DataError(f"'{one.id}' and '{other.id}' are the same file byte for byte: they cannot be marked distinct.")
    return set_marks(store, [make_pair(one.content_hash, other.content_hash)], distinct=distinct) > 0


def set_marks(store: Store, pairs: Iterable[Pair], *, distinct: bool) -> int:
    """Mark pairs of contents as no duplicates, or remove their marks; how many were not so before.

    With the lock held. Marks may be about contents that the library does not know.
    """
    folder = store.library
    wanted, known = frozenset(pairs), read_marks(folder)
    changed = wanted - known if distinct else wanted & known
    if not changed:
        return 0
    marked = known | changed if distinct else known - changed
    with translate_write_errors(folder):
        write_document(folder / MARKS, {"format": _FORMAT, "distinct": sorted(list(one) for one in marked)})
    require_from_now_on(folder, MARKS)
    return len(changed)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
