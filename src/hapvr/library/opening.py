"""Opening and making libraries, and whether what was asked for agrees with what they were made with."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hapvr.errors import ConfigError, StorageError, WeightsError
from hapvr.library.codecs import DEFAULT as DEFAULT_CODEC
from hapvr.library.codecs import get_codec
from hapvr.library.locking import WriterLock
from hapvr.library.records import shown
from hapvr.library.versions import (
    Settings,
    current_version,
    is_library,
    read_settings,
    remove_versions,
    require_creatable,
    switch,
    unfinished_version,
    version_folder,
    write_settings,
    writing,
)
from hapvr.model import DEFAULT as DEFAULT_MODEL
from hapvr.model import Model, is_shipped, load, model_folder
from hapvr.storage import remove_unfinished_documents, sha256_tensors


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
    wanted, loaded = wanted_settings(model=model, codec=codec, rate=rate)
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
        f"A new library cannot be made at '{shown(path)}': {error.strerror or error}. Give a folder that can be "
        "written to; the videos may lie where nothing can."
    )


def wanted_settings(*, model: str | Path | None, codec: str | None, rate: float | None) -> tuple[Settings, Model]:
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
    """The sha256 of all that a model's features depend on but the rate: backbone, whitening, sampling."""
    extractor = model.extractor
    sampling = {name: value for name, value in asdict(extractor.sampling).items() if name != "fps"}
    total = hashlib.sha256(repr(sorted(sampling.items())).encode())
    total.update(sha256_tensors(extractor.backbone.state_dict()).encode())
    if extractor.whitening is not None:
        total.update(sha256_tensors(extractor.whitening.to_part().tensors).encode())
    return total.hexdigest()


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
        f"'{shown(path)}' was made with {what} '{shown(has)}', not '{shown(asked)}': they do not mix. Leave {option} "
        f"out to go on with it, or build the library anew: hapvr add {shown(path)} {option} {shown(asked)} --rebuild"
    )


def load_model(settings: Settings, path: Path) -> Model:
    """The model that a library was made with, if it is still that."""
    try:
        model = _loaded(settings.model, settings.rate)
    except WeightsError as error:
        raise WeightsError(
            f"The library '{shown(path)}' was made with a model that is not to be had: {error}"
        ) from error
    if model_digest(model) != settings.model_digest:
        raise StorageError(
            f"The model '{shown(settings.model)}' is not the one that the library '{shown(path)}' was made with: it "
            "has changed since. Bring back the old one, or build the library anew: hapvr add "
            f"{shown(path)} --model {shown(settings.model)} --rebuild"
        )
    return model


def clean_up(path: Path) -> None:
    """Remove versions that were replaced, and what a writer that was killed has left; a version being built stays."""
    remove_versions(path, keep=unfinished_version(path))
    for folder in (path, version_folder(path, current_version(path))):
        remove_unfinished_documents(folder)
