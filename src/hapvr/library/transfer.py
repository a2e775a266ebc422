"""Libraries out and in: HDF5 files of features, as `hapvr.features` reads them, with each video's record beside it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.config import from_mapping
from hapvr.errors import HapvrError, StorageError
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.library.adding import ID_DIGITS
from hapvr.library.results import AddReport, VideoRecord, display_path
from hapvr.library.store import NewVideo, Store
from hapvr.library.tables import NO_KEY
from hapvr.library.versions import Settings, writing
from hapvr.storage import HASH_BYTES, file_signature, replace_file

_RECORD = "record"  # attribute of a dataset: the video's record as JSON


def export(store: Store, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> int:
    """Write the features and records of all videos into a new HDF5 file; returns how many. See `Library.export`."""
    path = Path(file)
    if os.path.lexists(path):
        raise StorageError(f"'{display_path(path)}' is there already. Give another name.")
    if not path.parent.is_dir():
        raise StorageError(
            f"'{display_path(path)}' cannot be written: '{display_path(path.parent)}' is no folder. Make it first."
        )
    settings, catalog = store.settings, store.catalog()
    rows = [row for row, key in enumerate(catalog.keys.tolist()) if key != NO_KEY]
    with replace_file(path) as temporary:
        # float16 holds all that the codecs keep.
        with FeatureWriter(temporary, dtype="float16", attributes=_attributes(settings), sync=False) as writer:
            count = 0
            for stored in store.stored(sorted({int(catalog.keys[row]) for row in rows})):
                features = stored.features(store.codec)
                for row in catalog.with_key(stored.key):
                    writer.add(catalog.ids[row], features)
                    count += 1
                    if progress is not None:
                        progress(count, len(rows))
        _write_records(temporary, {catalog.ids[row]: catalog.record(row) for row in rows})
    return count


def _attributes(settings: Settings) -> dict[str, str | float]:
    return {
        "model": os.path.basename(settings.model),
        "fps": settings.rate,
        "model_digest": settings.model_digest,
        "codec": settings.codec,
    }


def _write_records(path: Path, records: Mapping[str, VideoRecord]) -> None:
    import h5py

    with writing(path), h5py.File(path, "r+") as h5:
        for id, record in records.items():
            if id in h5:
                # Escaped bytes of a path are JSON escapes here, and come back as they were.
                text = json.dumps(asdict(record) | {"added": record.added.isoformat()}).encode()
                # Of fixed length: HDF5 keeps other texts in a heap without checksums.
                h5[id].attrs[_RECORD] = np.array(text, h5py.string_dtype("utf-8", len(text)))


def import_features(
    store: Store,
    file: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> AddReport:
    """Take the videos of an HDF5 file into a store, with the lock held; see `Library.import_features`."""
    start = time.monotonic()
    path = Path(file)
    with FeatureFile.open(path) as features:
        _require_mixing(store.library, store.settings, path, features)
        _require_dims(store, path, features)
        taking = _Taking(store, path, features)
        store.write_all(taking.videos(progress or (lambda *_: None)))
    store.maintain()
    return replace(taking.report, seconds=time.monotonic() - start)


def require_importable(place: Path, settings: Settings, file: str | os.PathLike[str]) -> None:
    """Raise `StorageError` unless the features of a file could be taken into a library made with these settings."""
    with FeatureFile.open(Path(file)) as features:
        _require_mixing(place, settings, Path(file), features)


class _Taking:
    """The videos of a file one by one, and what has become of them."""

    def __init__(self, store: Store, path: Path, features: FeatureFile) -> None:
        self._store, self._path, self._features = store, path, features
        catalog = store.catalog()
        self._paths, self._taken = set(catalog.paths), set(catalog.ids)
        pairs = zip(catalog.column("content_hash"), catalog.keys.tolist(), strict=True)
        self._keys = {hash: key for hash, key in pairs if key != NO_KEY}
        self.report = AddReport()

    def videos(self, progress: Callable[[int, int], None]) -> Iterator[NewVideo]:
        """Those that are to be written."""
        records = _read_records(self._path, self._features)
        for number, id in enumerate(self._features.ids):
            progress(number, len(self._features))
            known, now = records.get(id), self.report
            name = os.fsencode(known.path if known is not None else _path_of(self._path, id))
            if name in self._paths:
                self.report = replace(now, unchanged=now.unchanged + 1)
                continue
            try:
                found = self._features[id]
            except StorageError as error:
                self.report = replace(now, failed=(*now.failed, (id, str(error))))
                continue
            self._paths.add(name)
            self.report = replace(now, added=now.added + 1, frames=now.frames + len(found))
            record = _renamed(known or _made(name, found, self._store.settings.rate), self._taken)
            new = record.content_hash not in self._keys
            if new:
                self._keys[record.content_hash] = self._store.new_key()
            yield NewVideo(record, self._keys[record.content_hash], found if new else None)


def _require_mixing(place: Path, settings: Settings, path: Path, features: FeatureFile) -> None:
    has, wanted = features.attributes, _attributes(settings)
    for name, where in (("model", "model"), ("fps", "rate"), ("model_digest", "model's weights")):
        if name not in has and name == "model_digest":
            continue  # written by `hapvr extract`
        if name not in has:
            raise StorageError(
                f"'{display_path(path)}' does not say with which {where} its features were made (attribute "
                f"'{name}'), so they cannot be mixed with those of '{display_path(place)}'."
            )
        if has[name] != wanted[name]:
            raise StorageError(
                f"'{display_path(path)}' holds features of another {where} ({has[name]}) than '{display_path(place)}' "
                f"({wanted[name]}): they do not mix. Import it into a library of its own, made with that {where}."
            )


def _require_dims(store: Store, path: Path, features: FeatureFile) -> None:
    if None not in (dims := features.dims, here := store.dims()) and dims != here:
        raise StorageError(
            f"'{display_path(path)}' holds features of {dims} regions and dimensions, the library of {here}."
        )


def _read_records(path: Path, features: FeatureFile) -> dict[str, VideoRecord]:
    """The records beside the features; of files that others wrote there are none."""
    import h5py

    records: dict[str, VideoRecord] = {}
    with h5py.File(path, "r") as h5:
        for id in features.ids:
            try:
                text = h5[id].attrs.get(_RECORD)
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                raise StorageError(f"'{display_path(path)}': the record of '{id}' cannot be read: {error}.") from error
            if text is not None:
                records[id] = _record(path, id, text)
    return records


def _record(path: Path, id: str, text: Any) -> VideoRecord:
    try:
        plain = json.loads(text)
        added = datetime.fromisoformat(plain["added"])
        record = from_mapping(VideoRecord, plain | {"added": added, "warnings": tuple(plain["warnings"])})
    except (HapvrError, ValueError, TypeError, KeyError) as error:
        raise StorageError(f"'{display_path(path)}': the record of '{id}' cannot be read: {error}") from error
    here = file_signature(record.path) == (record.size, record.mtime_ns)
    return replace(record, state="ready" if here else "missing", error=None)


def _path_of(path: Path, id: str) -> str:
    """Where a video of a file without records may be: beside the file, by its id."""
    return os.path.abspath(path.parent / id)


def _made(name: bytes, features: Features, rate: float) -> VideoRecord:
    """The record of a video of which only the features are known; read anew if its file is ever added."""
    hash = hashlib.blake2b(features.regions.numpy().tobytes(), digest_size=HASH_BYTES).hexdigest()
    times = features.timestamps
    return VideoRecord(
        id=hash[:ID_DIGITS],
        path=os.fsdecode(name),
        size=0,
        mtime_ns=-1,
        content_hash=hash,
        duration=len(features) / rate if times is None else float(times[-1]) + 1 / rate,
        frames=len(features),
        width=0,
        height=0,
        bitrate=0.0,
        state="missing",
        error=None,
        added=datetime.now(timezone.utc),
    )


def _renamed(record: VideoRecord, taken: set[str]) -> VideoRecord:
    """With an id that nobody has."""
    beginning, id, number = record.id.partition("-")[0], record.id, 1
    while id in taken:
        number += 1
        id = f"{beginning}-{number}"
    taken.add(id)
    return replace(record, id=id)
