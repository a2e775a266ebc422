"""Building a library anew with another model, codec or rate: beside the old version, which answers until it is done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hapvr.errors import ConfigError, StorageError
from hapvr.library import adding, opening
from hapvr.library.adding import How
from hapvr.library.finding import Found, is_gone
from hapvr.library.records import AddReport, shown
from hapvr.library.store import NewVideo, Store
from hapvr.library.tables import NO_KEY
from hapvr.library.versions import (
    Settings,
    next_version,
    read_settings,
    remove_versions,
    switch,
    unfinished_version,
    version_folder,
    write_settings,
)
from hapvr.model import Model

_EXACT = "float16"  # what other codecs can be made from without reading the videos again


def rebuild(
    path: Path,
    old: Store,
    how: How,
    *,
    model: str | Path | None = None,
    codec: str | None = None,
    rate: float | None = None,
) -> AddReport:
    """Build another version and put it to use, with the lock held; see `Library.rebuild`."""
    wanted, loaded = _wanted(path, old.settings, model=model, codec=codec, rate=rate)
    version = _begun(path, wanted)
    new = Store(version_folder(path, version))
    new.begin(recover=True)
    if _same_features(old.settings, wanted):
        _encode_anew(old, new)
    report = _read_anew(path, old, new, loaded, how)
    if not report.stopped:
        switch(path, version)
    return report


def _wanted(
    path: Path, now: Settings, *, model: str | Path | None, codec: str | None, rate: float | None
) -> tuple[Settings, Model]:
    same = opening.model_name(model) == now.model if model is not None else True
    wanted, loaded = opening.wanted_settings(
        model=now.model if model is None else model,
        codec=codec or now.codec,
        rate=rate if rate is not None else now.rate if same else None,
    )
    if wanted == now:
        raise ConfigError(
            f"'{shown(path)}' is made with just this model, codec and rate: there is nothing to build anew. To read "
            "single videos again, remove them and add them again."
        )
    return wanted, loaded


def _begun(path: Path, wanted: Settings) -> str:
    """The version to go on with, or a new one; one that was begun with other settings is dropped."""
    version = unfinished_version(path)
    if version is not None and read_settings(version_folder(path, version)) == wanted:
        return version
    remove_versions(path)
    version = next_version(path)
    write_settings(version_folder(path, version), wanted)
    return version


def _same_features(now: Settings, wanted: Settings) -> bool:
    alike = (now.model_digest, now.rate) == (wanted.model_digest, wanted.rate)
    return alike and now.codec in (_EXACT, wanted.codec)


def _encode_anew(old: Store, new: Store) -> None:
    """Take over what need not be read again."""
    catalogue, done = old.catalogue(), set(new.catalogue().paths)
    keys = {int(catalogue.keys[row]) for row, path in enumerate(catalogue.paths) if path not in done} - {NO_KEY}

    def taken() -> Iterator[NewVideo]:
        for stored in old.stored(sorted(keys)):
            key, features = new.new_key(), stored.features(old.codec)
            for number, row in enumerate(catalogue.with_key(stored.key)):
                yield NewVideo(catalogue.record(row), key, None if number else features)

    new.write_all(taken())
    new.maintain()


def _read_anew(path: Path, old: Store, new: Store, model: Model, how: How) -> AddReport:
    before, done = old.catalogue(), set(new.catalogue().paths)
    described = {name for name, key in zip(before.paths, before.keys.tolist(), strict=True) if key != NO_KEY}
    gone = [name for name in before.paths if name not in done and is_gone(name)]
    _require_none(path, [name for name in gone if name in described], "are not there to be read again", how.prune)
    built, here, lost = new.catalogue(), set(before.paths), set(gone)
    new.remove([id for id, name in zip(built.ids, built.paths, strict=True) if name not in here])
    files = [name for name in before.paths if name not in lost]
    ids = dict(zip(before.paths, before.ids, strict=True))
    report = adding.add_files(new, lambda: model.extractor, Found(files, [], []), replace(how, prune=False), ids=ids)
    if not report.stopped:
        failed = {os.fsencode(record.path) for record in new.catalogue().records(new.catalogue().rows("failed"))}
        _require_none(path, sorted(failed & described), "could not be read again", how.prune)
    return report


def _require_none(path: Path, names: list[bytes], what: str, prune: bool) -> None:
    if names and not prune:
        raise StorageError(
            f"{len(names)} videos of '{shown(path)}' {what}, such as '{shown(os.fsdecode(names[0]))}': they would be "
            "lost. Bring them back and run the same again, which goes on from here, or forget them (--prune). The old "
            "version stays in use."
        )
