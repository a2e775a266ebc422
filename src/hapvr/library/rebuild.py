"""Rebuilding a library with another model, codec, rate or candidate index.

It is built beside the old version, which answers until that is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hapvr.errors import ConfigError, StorageError
from hapvr.library.adding import add_files
from hapvr.library.candidate_index import require_new_index
from hapvr.library.found_files import Found, is_gone
from hapvr.library.indexed_folders import read_sound_setting
from hapvr.library.opening import OpenLibrary, WantedSettings, choose_settings, model_name
from hapvr.library.results import AddOptions, AddProgress, AddReport, display_path
from hapvr.library.shared_file import update_shared_footage
from hapvr.library.sound import add_sounds
from hapvr.library.store import NewVideo, Store
from hapvr.library.tables import NO_KEY
from hapvr.library.versions import (
    Settings,
    next_version,
    read_settings,
    remove_versions,
    switch_version,
    unfinished_version,
    version_folder,
    write_settings,
)
from hapvr.model import Model
from hapvr.places import Place

_EXACT = "float16"  # what other codecs can be made from without reading the videos again


def rebuild_library(
    library: OpenLibrary,
    *,
    model: str | Path | None = None,
    codec: str | None = None,
    fps: float | None = None,
    keyframes: bool | None = None,
    candidates: str | None = None,
    prune: bool = False,
    workers: int | None = None,
    progress: Callable[[AddProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> AddReport:
    """Rebuild the library with another model, codec, rate or candidate index, beside the old version; then switch.

    Until that is done the old version answers. Interrupted, it goes on where it was when called again with the same
    settings. Videos that cannot be read again are not lost: it then stops before the change, unless `prune`.

    Args:
        library: an open one.
        model: a model's name or folder; the present one if None.
        codec: the present one if None.
        fps: frames a second; the present one if None, or the model's own if that is another.
        keyframes: whether key frames alone are read; as at present if None.
        candidates: where frame vectors lie, see `Library.open`; where they are at present if None.
        prune: remove videos whose files are gone or cannot be read.
        workers: as in `add`, like the next two.
        progress: ...
        stop: ...
    """
    options = AddOptions(prune=prune, workers=workers, progress=progress, stop=stop)
    with library.write_access("hapvr add --rebuild") as old:
        asked = WantedSettings(model, codec, fps, keyframes, candidates)
        wanted, loaded = _choose_settings(library.path, old.settings, asked, library.device)
        version = _begin_version(library.path, wanted)
        new = Store(version_folder(library.path, version))
        new.begin(recover=True, require_lock=old.table_set.require_lock)
        now = old.settings
        same_features = (now.model_digest, now.rate) == (wanted.model_digest, wanted.rate)
        if same_features and now.codec in (_EXACT, wanted.codec):
            _encode_again(old, new)
        report = _read_again(library.path, old, new, loaded, options)
        common = _find_common_contents(old, new)  # neither sound nor a text model depends on what is rebuilt
        new.sounds.copy_from(old.sounds, common)
        new.embeddings.copy_from(old.embeddings, common)
        if not report.stopped and read_sound_setting(library.path):
            report = add_sounds(new, report, options)
        if not report.stopped:
            old.table_set.require_lock()
            switch_version(library.path, version)
            old.candidates.drop()
    library.refresh()
    return report


def _choose_settings(path: Place, now: Settings, asked: WantedSettings, device: str) -> tuple[Settings, Model]:
    same_model = asked.model is None or model_name(asked.model) == now.model
    complete = WantedSettings(
        model=now.model if asked.model is None else asked.model,
        codec=asked.codec or now.codec,
        fps=now.fps if asked.fps is None and same_model else asked.fps,
        keyframes=now.keyframes if asked.keyframes is None else asked.keyframes,
        candidates=now.candidate_index if asked.candidates is None else asked.candidates,
    )
    wanted, loaded = choose_settings(complete, owner=now.collection_owner, device=device)
    if wanted == now:
        raise ConfigError(
            f"'{display_path(path)}' is made with just this model, codec, rate and candidates: there is nothing to "
            "rebuild. To read single videos again, remove them and add them again."
        )
    return wanted, loaded


def _begin_version(path: Place, wanted: Settings) -> str:
    """The version to go on with, or a new one; one that was begun with other settings is dropped."""
    version = unfinished_version(path)
    if version is not None and read_settings(version_folder(path, version)) == wanted:
        return version
    remove_versions(path)
    version = next_version(path)
    require_new_index(wanted, version)
    write_settings(version_folder(path, version), wanted)
    return version


def _encode_again(old: Store, new: Store) -> None:
    """Take over what need not be read again."""
    catalog, done = old.catalog(), set(new.catalog().paths)
    keys = {int(catalog.keys[row]) for row, path in enumerate(catalog.paths) if path not in done} - {NO_KEY}

    def convert() -> Iterator[NewVideo]:
        for stored in old.read_contents(sorted(keys)):
            key, features = new.new_key(), stored.features(old.codec)
            for number, row in enumerate(catalog.with_key(stored.key)):
                yield NewVideo(catalog.record(row), key, None if number else features)

    new.write_all(convert())
    new.maintain()
    update_shared_footage(new)


def _read_again(path: Place, old: Store, new: Store, model: Model, options: AddOptions) -> AddReport:
    before, done = old.catalog(), set(new.catalog().paths)
    described = {name for name, key in zip(before.paths, before.keys.tolist(), strict=True) if key != NO_KEY}
    gone = [name for name in before.paths if name not in done and is_gone(name)]
    _require_none(path, [name for name in gone if name in described], "are not there to be read again", options.prune)
    built, here, lost = new.catalog(), set(before.paths), set(gone)
    new.remove([id for id, name in zip(built.ids, built.paths, strict=True) if name not in here])
    found = Found([name for name in before.paths if name not in lost], [], [])
    ids = dict(zip(before.paths, before.ids, strict=True))
    report = add_files(new, lambda: model.extractor, found, replace(options, prune=False), ids=ids)
    if not report.stopped:
        failed = {os.fsencode(record.path) for record in new.catalog().records(new.catalog().rows("failed"))}
        _require_none(path, sorted(failed & described), "could not be read again", options.prune)
    return report


def _find_common_contents(old: Store, new: Store) -> dict[int, int]:
    """The keys of contents that both versions have: in the old one, and in the new one."""
    before, after = old.catalog(), new.catalog()
    keys = dict(zip(before.column("content_hash"), before.keys.tolist(), strict=True))
    pairs = zip(after.column("content_hash"), after.keys.tolist(), strict=True)
    return {keys[hash]: key for hash, key in pairs if key != NO_KEY and keys.get(hash, NO_KEY) != NO_KEY}


def _require_none(path: Place, names: list[bytes], what: str, prune: bool) -> None:
    if names and not prune:
        raise StorageError(
            f"{len(names)} videos of '{display_path(path)}' {what}, such as '{display_path(os.fsdecode(names[0]))}': "
            "they would be lost. Bring them back and run the same again, which goes on from here, or remove them "
            "(--prune). The old version stays in use."
        )
