"""Making a candidate index agree with the records, which are the truth; see `hapvr.library.candidate_index`."""

from __future__ import annotations

from dataclasses import dataclass

from hapvr.library.candidate_index import find_vectors
from hapvr.library.store import Store


@dataclass(frozen=True)
class IndexChanges:
    """What `mend_index` did."""

    added: int  # contents
    removed: int


def mend_index(store: Store, *, batch: int = 64) -> IndexChanges:
    """Make the index agree with the records, with the writer's lock held.

    What no record names is removed; the vectors of what lacks some are made again from its stored regions.
    """
    found, named = store.candidates.list_contents(), set(store.catalog().contents.tolist())
    surplus = (found.whole | found.broken) - named
    store.candidates.remove(surplus | found.broken)
    lacking = sorted(named - found.whole)
    for first in range(0, len(lacking), batch):
        stored = list(store.read_contents(lacking[first : first + batch], batch=batch, pixels=False))
        if stored:
            vectors = [find_vectors(one.features(store.codec)) for one in stored]
            store.candidates.add([one.key for one in stored], vectors)
    return IndexChanges(len(lacking), len(surplus))
