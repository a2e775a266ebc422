"""Export and import of libraries: HDF5 files of features, as `hapvr.features` reads them, with records of videos."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.config import from_mapping
from hapvr.errors import HapvrError, StorageError
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.library.adding import ID_DIGITS, choose_id
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import AddReport, VideoRecord, display_path
from hapvr.library.shared_file import update_shared_footage
from hapvr.library.store import NewVideo, Store
from hapvr.library.tables import NO_KEY
from hapvr.library.versions import Settings, translate_write_errors
from hapvr.places import Place
from hapvr.storage import HASH_BYTES, StrPath, file_signature, replace_file

_RECORD = "record"  # attribute of a dataset: the video's record as JSON


def export_features(library: OpenLibrary, file: StrPath, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Write the features and records of all videos into a new HDF5 file; returns how many there were."""
    import h5py

    path = Path(file)
    if os.path.lexists(path):
        raise StorageError(f"'{display_path(path)}' is there already. Give another name.")
    if not path.parent.is_dir():
        raise StorageError(
            f"'{display_path(path)}' cannot be written: '{display_path(path.parent)}' is no folder. Make it first."
        )
    store = library.store
    catalog = store.catalog()
    written: list[int] = []  # rows
    with replace_file(path) as temporary:
        # float16 holds all that the codecs keep.
        with FeatureWriter(temporary, dtype="float16", attributes=_attributes(store.settings), sync=False) as writer:
            for stored in store.read_contents(catalog.contents.tolist()):
                features = stored.features(store.codec)
                for row in catalog.with_key(stored.key):
                    writer.add(catalog.ids[row], features)
                    written.append(row)
                    if progress is not None:
                        progress(len(written), int(catalog.described.sum()))
        with translate_write_errors(temporary), h5py.File(temporary, "r+") as h5:
            for record in catalog.records(written):
                # Escaped bytes of a path are JSON escapes here, and come back as they were.
                text = json.dumps(asdict(record) | {"added": record.added.isoformat()}).encode()
                # Of fixed length: HDF5 keeps other texts in a heap without checksums.
                h5[record.id].attrs[_RECORD] = np.array(text, h5py.string_dtype("utf-8", len(text)))
    return len(written)


def import_features(
    library: OpenLibrary, file: StrPath, *, progress: Callable[[int, int], None] | None = None
) -> AddReport:
    """Add the videos of an HDF5 file that `export` or `hapvr extract` wrote with the same model and fps.

    Videos whose paths are there already are left as they are.
    """
    started, path = time.monotonic(), Path(file)
    with library.write_access("hapvr import") as store, FeatureFile.open(path) as features:
        _require_same_settings(library.path, store.settings, path, features)
        if None not in (dims := features.dims, here := store.dims()) and dims != here:
            raise StorageError(
                f"'{display_path(path)}' holds features of {dims} regions and dimensions, the library of {here}."
            )
        counts: Counter[str] = Counter()
        failed: list[tuple[str, str]] = []
        store.write_all(_read_videos(store, path, features, counts, failed, progress or (lambda *_: None)))
        store.maintain()
        update_shared_footage(store)
    return AddReport(
        added=counts["added"],
        unchanged=counts["unchanged"],
        failed=tuple(failed),
        seconds=time.monotonic() - started,
        frames=counts["frames"],
    )


def require_importable(place: Place, settings: Settings, file: StrPath) -> None:
    """Raise `StorageError` unless the features of a file could be taken into a library made with these settings."""
    with FeatureFile.open(Path(file)) as features:
        _require_same_settings(place, settings, Path(file), features)


def _attributes(settings: Settings) -> dict[str, str | float]:
    return {
        "model": os.path.basename(settings.model),
        "fps": settings.fps,
        "model_digest": settings.model_digest,
        "codec": settings.codec,
    }


def _require_same_settings(place: Place, settings: Settings, path: Path, features: FeatureFile) -> None:
    has, wanted = features.attributes, _attributes(settings)
    for name, what in (("model", "model"), ("fps", "fps"), ("model_digest", "model's weights")):
        if name not in has and name == "model_digest":
            continue  # written by `hapvr extract`
        if name not in has:
            raise StorageError(
                f"'{display_path(path)}' does not say with which {what} its features were made (attribute "
                f"'{name}'), so they cannot be mixed with those of '{display_path(place)}'."
            )
        if has[name] != wanted[name]:
            raise StorageError(
                f"'{display_path(path)}' holds features of another {what} ({has[name]}) than '{display_path(place)}' "
                f"({wanted[name]}): they do not mix. Import it into another library, made with that {what}."
            )


def _read_videos(
    store: Store,
    path: Path,
    features: FeatureFile,
    counts: Counter[str],
    failed: list[tuple[str, str]],
    progress: Callable[[int, int], None],
) -> Iterator[NewVideo]:
    """The videos of a file that are to be written; `counts` and `failed` say what became of all."""
    catalog, records = store.catalog(), _read_records(path, features)
    paths, ids = set(catalog.paths), set(catalog.ids)
    hashes = zip(catalog.column("content_hash"), catalog.keys.tolist(), strict=True)
    keys = {hash: key for hash, key in hashes if key != NO_KEY}
    for number, id in enumerate(features.ids):
        progress(number, len(features))
        known = records.get(id)
        # A video of a file without records may be beside the file, by its id.
        name = os.fsencode(os.path.abspath(path.parent / id) if known is None else known.path)
        if name in paths:
            counts.update(unchanged=1)
            continue
        try:
            found = features[id]
        except StorageError as error:
            failed.append((id, str(error)))
            continue
        paths.add(name)
        counts.update(added=1, frames=len(found))
        record = known or _make_record(name, found, store.settings.fps)
        is_new = record.content_hash not in keys
        if is_new:
            keys[record.content_hash] = store.new_key()
        record = replace(record, id=choose_id(record.id, ids))
        yield NewVideo(record, keys[record.content_hash], found if is_new else None)


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
                records[id] = _parse_record(path, id, text)
    return records


def _parse_record(path: Path, id: str, text: Any) -> VideoRecord:
    try:
        plain = json.loads(text)
        added = datetime.fromisoformat(plain["added"])
        record = from_mapping(VideoRecord, plain | {"added": added, "warnings": tuple(plain["warnings"])})
    except (HapvrError, ValueError, TypeError, KeyError) as error:
        raise StorageError(f"'{display_path(path)}': the record of '{id}' cannot be read: {error}") from error
    here = file_signature(record.path) == (record.size, record.mtime_ns)
    return replace(record, state="ready" if here else "missing", error=None)


def _make_record(name: bytes, features: Features, fps: float) -> VideoRecord:
    """The record of a video of which only the features are known; its file is read again if it is ever added."""
    hash = hashlib.blake2b(features.regions.numpy().tobytes(), digest_size=HASH_BYTES).hexdigest()
    times = features.timestamps
    return VideoRecord(
        id=hash[:ID_DIGITS],
        path=os.fsdecode(name),
        size=0,
        mtime_ns=-1,
        content_hash=hash,
        duration=len(features) / fps if times is None else float(times[-1]) + 1 / fps,
        frames=len(features),
        state="missing",
    )
