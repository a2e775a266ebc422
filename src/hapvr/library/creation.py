"""Making a version of a library: opening one that is there, creating one, rebuilding with another model, codec or rate.

A rebuild goes on beside the old version, which answers until it is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hapvr.errors import ConfigError, StorageError, WeightsError
from hapvr.library.adding import add_files
from hapvr.library.codecs import DEFAULT as DEFAULT_CODEC
from hapvr.library.codecs import get_codec
from hapvr.library.results import AddOptions, AddReport, display_path
from hapvr.library.scan import Found, is_gone
from hapvr.library.store import NewVideo, Store
from hapvr.library.tables import NO_KEY
from hapvr.library.versions import (
    Settings,
    current_version,
    is_library,
    next_version,
    read_settings,
    remove_versions,
    require_creatable,
    switch,
    unfinished_version,
    version_folder,
    write_settings,
    writing,
)
from hapvr.library.writer_lock import WriterLock
from hapvr.model import DEFAULT as DEFAULT_MODEL
from hapvr.model import Model, is_shipped, load, model_folder
from hapvr.storage import remove_unfinished_documents


@dataclass(frozen=True)
class Opened:
    """A library that is there, and its model if that had to be loaded."""

    path: Path
    model: Model | None


def opened(
    path: Path, *, create: bool, model: str | Path | None, codec: str | None, rate: float | None, wait_s: float
) -> Opened:
    """Check a library, or make it; see `Library.open`."""
    path = Path(os.path.abspath(path))
    if is_library(path):
        settings = read_settings(version_folder(path, current_version(path)))
        return Opened(path, require_agreement(path, settings, model=model, codec=codec, rate=rate))
    if not create:
        current_version(path)  # says what is wrong
    require_creatable(path)
    wanted, loaded = choose_settings(model=model, codec=codec, rate=rate)
    try:
        _make(path, wanted, wait_s=wait_s)
    except StorageError as error:
        if isinstance(error.__cause__, OSError) and not is_library(path):
            raise StorageError(_cannot_make(path, error.__cause__)) from error
        raise
    settings = read_settings(version_folder(path, current_version(path)))
    if settings != wanted:  # somebody else was quicker
        require_agreement(path, settings, model=model, codec=codec, rate=rate)
    return Opened(path, loaded)


def _make(path: Path, settings: Settings, *, wait_s: float) -> None:
    """Make an empty library, unless somebody else has done it meanwhile."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = WriterLock(path)
    lock.acquire("making the library", wait_s=wait_s)
    clean = False
    try:
        if not is_library(path):
            remove_versions(path)
            write_settings(version_folder(path, "0001"), settings)
            switch(path, "0001")
        clean = True
    finally:
        lock.release(clean=clean)


def _cannot_make(path: Path, error: OSError) -> str:
    return (
        f"A new library cannot be made at '{display_path(path)}': {error.strerror or error}. Give a folder that can be "
        "written to; the videos may lie where nothing can."
    )


def choose_settings(*, model: str | Path | None, codec: str | None, rate: float | None) -> tuple[Settings, Model]:
    """The settings of a new version, and its model."""
    chosen = get_codec(codec or DEFAULT_CODEC).name
    if rate is not None and not 0 < rate <= 1000:
        raise ConfigError(f"rate must be above 0 and at most 1,000 frames a second, got {rate}.")
    name = model_name(DEFAULT_MODEL if model is None else model)
    loaded = _loaded(name, rate)
    return Settings(name, model_digest(loaded), chosen, loaded.sampling.fps), loaded


def model_name(model: str | Path) -> str:
    """How a model is recorded: by its name if it is shipped, else by its absolute folder."""
    model_folder(model)  # refuses what is no model
    return str(model) if is_shipped(model) else os.path.abspath(model)


def _loaded(name: str, rate: float | None) -> Model:
    model = load(name)
    if rate is not None:
        model.extractor.sampling = replace(model.extractor.sampling, fps=rate)
    return model


def model_digest(model: Model) -> str:
    """What tells models apart whose features do not mix."""
    return model.extractor.digest()


def require_agreement(
    path: Path, settings: Settings, *, model: str | Path | None, codec: str | None, rate: float | None
) -> Model | None:
    """Raise `StorageError` unless what was asked for is what the library was made with; the model if it was loaded."""
    loaded = None
    if model is not None and (name := model_name(model)) != settings.model:
        loaded = _loaded(name, settings.rate)
        if model_digest(loaded) != settings.model_digest:
            raise StorageError(_disagreement(path, "the model", settings.model, str(model), "--model"))
    if codec is not None and get_codec(codec).name != settings.codec:
        raise StorageError(_disagreement(path, "the codec", settings.codec, codec, "--codec"))
    if rate is not None and rate != settings.rate:
        raise StorageError(_disagreement(path, "the rate", f"{settings.rate:g}", f"{rate:g}", "--rate"))
    return loaded


def _disagreement(path: Path, what: str, has: str, asked: str, option: str) -> str:
    return (
        f"'{display_path(path)}' was made with {what} '{display_path(has)}', not '{display_path(asked)}': they do "
        f"not mix. Leave {option} out to go on with it, or build the library anew: hapvr add {display_path(path)} "
        f"{option} {display_path(asked)} --rebuild"
    )


def load_model(settings: Settings, path: Path) -> Model:
    """The model that a library was made with, if it is still that."""
    try:
        model = _loaded(settings.model, settings.rate)
    except WeightsError as error:
        raise WeightsError(
            f"The library '{display_path(path)}' was made with a model that is not to be had: {error}"
        ) from error
    if model_digest(model) != settings.model_digest:
        raise StorageError(
            f"The model '{display_path(settings.model)}' is not the one that the library '{display_path(path)}' was "
            "made with: it has changed since. Bring back the old one, or build the library anew: hapvr add "
            f"{display_path(path)} --model {display_path(settings.model)} --rebuild"
        )
    return model


def clean_up(path: Path) -> None:
    """Remove versions that were replaced, and what a writer that was killed has left; a version being built stays."""
    remove_versions(path, keep=unfinished_version(path))
    for folder in (path, version_folder(path, current_version(path))):
        remove_unfinished_documents(folder)


_EXACT = "float16"  # what other codecs can be made from without reading the videos again


def rebuild(
    path: Path,
    old: Store,
    how: AddOptions,
    *,
    model: str | Path | None = None,
    codec: str | None = None,
    rate: float | None = None,
) -> AddReport:
    """Build another version and put it to use, with the lock held; see `Library.rebuild`."""
    wanted, loaded = _choose_new_settings(path, old.settings, model=model, codec=codec, rate=rate)
    version = _begun(path, wanted)
    new = Store(version_folder(path, version))
    new.begin(recover=True)
    if _same_features(old.settings, wanted):
        _encode_anew(old, new)
    report = _read_anew(path, old, new, loaded, how)
    if not report.stopped:
        switch(path, version)
    return report


def _choose_new_settings(
    path: Path, now: Settings, *, model: str | Path | None, codec: str | None, rate: float | None
) -> tuple[Settings, Model]:
    same = model_name(model) == now.model if model is not None else True
    wanted, loaded = choose_settings(
        model=now.model if model is None else model,
        codec=codec or now.codec,
        rate=rate if rate is not None else now.rate if same else None,
    )
    if wanted == now:
        raise ConfigError(
            f"'{display_path(path)}' is made with just this model, codec and rate: there is nothing to build anew. "
            "To read single videos again, remove them and add them again."
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
    catalog, done = old.catalog(), set(new.catalog().paths)
    keys = {int(catalog.keys[row]) for row, path in enumerate(catalog.paths) if path not in done} - {NO_KEY}

    def taken() -> Iterator[NewVideo]:
        for stored in old.stored(sorted(keys)):
            key, features = new.new_key(), stored.features(old.codec)
            for number, row in enumerate(catalog.with_key(stored.key)):
                yield NewVideo(catalog.record(row), key, None if number else features)

    new.write_all(taken())
    new.maintain()


def _read_anew(path: Path, old: Store, new: Store, model: Model, how: AddOptions) -> AddReport:
    before, done = old.catalog(), set(new.catalog().paths)
    described = {name for name, key in zip(before.paths, before.keys.tolist(), strict=True) if key != NO_KEY}
    gone = [name for name in before.paths if name not in done and is_gone(name)]
    _require_none(path, [name for name in gone if name in described], "are not there to be read again", how.prune)
    built, here, lost = new.catalog(), set(before.paths), set(gone)
    new.remove([id for id, name in zip(built.ids, built.paths, strict=True) if name not in here])
    files = [name for name in before.paths if name not in lost]
    ids = dict(zip(before.paths, before.ids, strict=True))
    report = add_files(new, lambda: model.extractor, Found(files, [], []), replace(how, prune=False), ids=ids)
    if not report.stopped:
        failed = {os.fsencode(record.path) for record in new.catalog().records(new.catalog().rows("failed"))}
        _require_none(path, sorted(failed & described), "could not be read again", how.prune)
    return report


def _require_none(path: Path, names: list[bytes], what: str, prune: bool) -> None:
    if names and not prune:
        raise StorageError(
            f"{len(names)} videos of '{display_path(path)}' {what}, such as '{display_path(os.fsdecode(names[0]))}': "
            "they would be lost. Bring them back and run the same again, which goes on from here, or forget them "
            "(--prune). The old version stays in use."
        )
