"""What a library is made of, and what it takes on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hapvr.library.locking import holder_of
from hapvr.library.records import LibraryInfo
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalogue
from hapvr.library.versions import read_settings, unfinished_version, version_folder


def info(path: Path, version: str, store: Store) -> LibraryInfo:
    """What there is in the library at this path, of which this version is in use; see `Library.info`."""
    settings, catalogue = store.settings, store.catalogue()
    states, totals = catalogue.states, _summed(catalogue)
    building = unfinished_version(path)
    return LibraryInfo(
        path=str(path),
        version=version,
        model=settings.model,
        model_digest=settings.model_digest,
        codec=settings.codec,
        rate=settings.rate,
        videos=int((catalogue.keys != NO_KEY).sum()),
        failed=int((states == "failed").sum()),
        missing=int((states == "missing").sum()),
        warned=int(catalogue.warned.sum()),
        contents=int(totals["contents"]),
        frames=int(totals["frames"]),
        duration=totals["duration"],
        bytes=_bytes_below(store.folder),
        indexed=store.indexed_vectors(),
        vectors=store.count_vectors(),
        building=None if building is None else read_settings(version_folder(path, building)).model,
        writer=holder_of(path),
        unchecked=store.count_unchecked(),
    )


def _bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:  # removed meanwhile
                continue
    return total


def _summed(catalogue: Catalogue) -> Mapping[str, float]:
    """Totals over what a search looks through."""
    keys = catalogue.keys
    here = keys != NO_KEY
    first = np.unique(keys[here], return_index=True)[1]
    duration = np.array(catalogue.column("duration"), float)
    return {
        "duration": float(duration[here].sum()),
        "frames": int(catalogue.frames[here].sum()),
        "contents": len(first),
    }
