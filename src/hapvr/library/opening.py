"""Opening a library, or creating one: which folder, which model, codec and fps, and whether they agree.

`OpenLibrary` is what every operation works on; `Library` (see `hapvr.library.library`) adds the operations.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import torch

from hapvr.devices import find_devices
from hapvr.errors import ConfigError, StorageError, WeightsError
from hapvr.judge.judge import Judge
from hapvr.judge.recalibration import JudgeCalibration
from hapvr.library.candidate_index import parse_index, require_new_index
from hapvr.library.codecs import DEFAULT as DEFAULT_CODEC
from hapvr.library.codecs import get_codec
from hapvr.library.marks import MARKS
from hapvr.library.results import display_path
from hapvr.library.store import Store
from hapvr.library.text_model import TextModel
from hapvr.library.versions import (
    CALIBRATION,
    EMBEDDED,
    FIRST_VERSION,
    Settings,
    add_checksums,
    current_version,
    is_library,
    read_current_settings,
    remove_versions,
    require_creatable,
    switch_version,
    translate_write_errors,
    unfinished_version,
    version_folder,
    write_settings,
)
from hapvr.library.writer_lock import hold_lock, require_wait
from hapvr.model import DEFAULT as DEFAULT_MODEL
from hapvr.model import Model, find_model_folder, is_shipped, load
from hapvr.places import ObjectPath, Place, file_state, make_folder, parse_place
from hapvr.similarity.calibration import Calibration
from hapvr.storage import StrPath, read_document, remove_unfinished_files, write_document
from hapvr.video.sampling import KEYFRAMES, MAX_FPS
from hapvr.weights import Part

Opened = TypeVar("Opened", bound="OpenLibrary")

_MAX_AGE_S = 1.0  # of a reader's view
_WAIT_S = 10.0  # for another writer
_KIND, _JUDGE = "kind", "judge"  # of a calibration that is stored; one of scores has none


@dataclass(frozen=True)
class WantedSettings:
    """Settings that are asked for, see `OpenLibrary.open`; None: those that a library has, or the defaults."""

    model: str | Path | None = None
    codec: str | None = None
    fps: float | None = None
    keyframes: bool | None = None
    candidates: str | None = None


class OpenLibrary:
    """The tables and the model of a library. Use it in a `with` block, or close it.

    Many processes may read while one writes. A writer that is killed leaves every acknowledged video.
    """

    def __init__(self, path: Place, *, wait_s: float = _WAIT_S, device: str = "cpu") -> None:
        require_wait(wait_s)
        self.path, self.device = path, device
        self.wait_s = wait_s  # how long a writer waits for another
        self._version = current_version(path)
        self._store: Store | None = Store(version_folder(path, self._version))
        self._refreshed = time.monotonic()
        self._model: Model | None = None
        self.loaded_text_model: TextModel | None = None  # kept by `hapvr.library.text` for the next search

    @classmethod
    def open(
        cls: type[Opened],
        path: StrPath | ObjectPath,
        *,
        create: bool = False,
        model: str | Path | None = None,
        codec: str | None = None,
        fps: float | None = None,
        keyframes: bool | None = None,
        candidates: str | None = None,
        wait_s: float = _WAIT_S,
        device: str = "cpu",
    ) -> Opened:
        """Open a library, or make one.

        Args:
            path: its folder, or `s3://bucket/prefix` (also `az://`, `gs://`).
            create: make it if it is not there.
            model: a model's name or folder. What is given here and in the next four must agree with what the
                library was made with; a new one gets the default model and codec, and the model's fps.
            codec: how region vectors are stored, see `hapvr.library.codecs`.
            fps: frames a second.
            keyframes: read key frames alone, `fps` of them a second at most, where a video has enough: many times as
                fast, and coarse in time. Queries are read as ever.
            candidates: where the vectors by which candidates are found lie: "embedded", in its own tables, or
                "milvus://host:port/collection".
            wait_s: how long to wait for another writer, when writing.
            device: where its model computes, see `hapvr.load`: "auto" takes the GPUs that are there.

        Raises:
            StorageError: there is no library, it is damaged, or it was made with other settings.
        """
        find_devices(device)  # refuses what is not here before anything is made
        folder = parse_place(path)
        wanted = WantedSettings(model, codec, fps, keyframes, candidates)
        if is_library(folder):
            loaded = _require_agreement(folder, wanted, device)
        else:
            if not create:
                current_version(folder)  # says what is wrong
            require_creatable(folder)
            settings, loaded = choose_settings(wanted, device=device)
            require_new_index(settings, FIRST_VERSION)
            _create(folder, settings, wait_s=wait_s)
            if read_current_settings(folder) != settings:  # somebody else was quicker
                _require_agreement(folder, wanted, device)
        library = cls(folder, wait_s=wait_s, device=device)
        library._model = loaded
        return library

    @property
    def store(self) -> Store:
        """The tables in use, no older than a second."""
        store = self._require_open()
        if time.monotonic() - self._refreshed > _MAX_AGE_S:
            self.refresh()
            store = self._require_open()
        return store

    @property
    def settings(self) -> Settings:
        """What all its videos share: model, codec, fps, whether key frames alone are read."""
        return self.store.settings

    @property
    def model(self) -> Model:
        """The model it was made with, and the library's calibration if it has one; loaded when first asked for."""
        calibration = read_calibration(self.store)
        if isinstance(calibration, Calibration):
            return dataclasses.replace(self.base_model, calibration=calibration)
        judge = self.base_model.judge if calibration is not None else None
        if calibration is None or judge is None or not is_of_judge(calibration, judge):
            return self.base_model
        return dataclasses.replace(self.base_model, judge=judge.recalibrate(calibration))

    @property
    def base_model(self) -> Model:
        """The model it was made with, without the library's own calibration."""
        settings = self.settings
        if self._model is None:
            self._model = _load_model_of(self.path, settings, self.device)
        return self._model

    def refresh(self) -> None:
        """See what other processes have written since."""
        store = self._require_open()
        version = current_version(self.path)
        if version != self._version:
            self._store = Store(version_folder(self.path, version))
            self._version, self._model = version, None
        else:
            store.refresh()
        self._refreshed = time.monotonic()

    @contextmanager
    def write_access(self, command: str) -> Iterator[Store]:
        """Lock the library for writing and give its tables; `StorageError` if another writer does not end in time."""
        with hold_lock(self.path, command, wait_s=self.wait_s, recovers=True) as lock:
            self.refresh()
            store = self.store
            # What was replaced or left by a writer that was killed goes; a version being built stays.
            remove_versions(self.path, keep=unfinished_version(self.path))
            for folder in (self.path, store.folder):
                if not isinstance(folder, ObjectPath):  # there an object is written whole
                    remove_unfinished_files(folder, sole_writer=True)
            add_checksums(self.path, MARKS)
            store.begin(recover=lock.left_behind, require_lock=lock.require_held)
            yield store
        self._refreshed = time.monotonic()

    def _require_open(self) -> Store:
        if self._store is None:
            raise StorageError(f"The library '{self.path}' has been closed.")
        return self._store

    def close(self) -> None:
        """Release its tables and its models."""
        self._store = self._model = self.loaded_text_model = None

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- creating --------------------------------------------------------------------------------------------------------


def _create(path: Place, settings: Settings, *, wait_s: float) -> None:
    """Make an empty library, unless somebody else has done it meanwhile."""
    try:
        with translate_write_errors(path):
            make_folder(path)
        with hold_lock(path, "making the library", wait_s=wait_s, recovers=True):
            if not is_library(path):
                remove_versions(path)
                write_settings(version_folder(path, FIRST_VERSION), settings)
                switch_version(path, FIRST_VERSION)
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and not is_library(path):
            raise StorageError(
                f"A new library cannot be made at '{display_path(path)}': {cause.strerror or cause}. Give a folder "
                "that can be written to; the videos may lie where nothing can."
            ) from error
        raise


def choose_settings(wanted: WantedSettings, *, owner: str = "", device: str = "cpu") -> tuple[Settings, Model]:
    """The settings of a new version, and its model; `owner` is that of the library's collections, if it has some."""
    index = EMBEDDED if wanted.candidates is None else parse_index(wanted.candidates)
    codec, fps = get_codec(wanted.codec or DEFAULT_CODEC).name, wanted.fps
    if fps is not None and not 0 < fps <= MAX_FPS:
        raise ConfigError(f"fps must be above 0 and at most {MAX_FPS:,} frames a second, got {fps}.")
    name = model_name(DEFAULT_MODEL if wanted.model is None else wanted.model)
    loaded = load_at_fps(name, fps, device)
    settings = Settings(name, model_digest(loaded), codec, loaded.sampling.fps, bool(wanted.keyframes))
    if index != EMBEDDED:
        settings = dataclasses.replace(settings, candidate_index=index, collection_owner=owner or secrets.token_hex(8))
    return settings, loaded


def model_name(model: str | Path) -> str:
    """How a model is recorded: by its name if it is shipped, else by its absolute folder."""
    find_model_folder(model)  # refuses what is no model
    return str(model) if is_shipped(model) else os.path.abspath(model)


def model_digest(model: Model) -> str:
    """A digest that differs between models whose features cannot be compared."""
    return model.extractor.digest()


def is_model_of(settings: Settings, model: Model) -> bool:
    """Whether a library with these settings was made with this model.

    The digest of an older library is of the weights after loading: equal on processors of the kind that made it.
    """
    return settings.model_digest == model_digest(model) or settings.model_digest == model.extractor.digest_as_loaded()


def load_at_fps(name: str, fps: float | None, device: str = "cpu") -> Model:
    """A model that samples `fps` frames a second; by default as many as it was made for."""
    model = load(name, device=device, int8=True)
    if fps is not None:
        model.extractor.sampling = dataclasses.replace(model.extractor.sampling, fps=fps)
    return model


def _require_agreement(path: Place, wanted: WantedSettings, device: str) -> Model | None:
    """Raise `StorageError` unless what was asked for is what the library was made with; the model if it was loaded."""
    settings, loaded = read_current_settings(path), None
    index = None if wanted.candidates is None else parse_index(wanted.candidates)
    if index not in (None, settings.candidate_index):
        raise StorageError(_explain_disagreement(path, "candidates", settings.candidate_index, str(index)))
    if wanted.model is not None and (name := model_name(wanted.model)) != settings.model:
        loaded = load_at_fps(name, settings.fps, device)
        if not is_model_of(settings, loaded):
            raise StorageError(_explain_disagreement(path, "model", settings.model, str(wanted.model)))
    if wanted.codec is not None and get_codec(wanted.codec).name != settings.codec:
        raise StorageError(_explain_disagreement(path, "codec", settings.codec, wanted.codec))
    if wanted.fps not in (None, settings.fps) or wanted.keyframes not in (None, settings.keyframes):
        asked = KEYFRAMES if wanted.keyframes else f"{wanted.fps or settings.fps:g}"
        raise StorageError(_explain_disagreement(path, "rate", settings.rate, asked))
    return loaded


def _explain_disagreement(path: Place, what: str, has: str, asked: str) -> str:
    place, asked = display_path(path), display_path(asked)
    return (
        f"'{place}' was made with the {what} '{display_path(has)}', not '{asked}': they do not mix. Leave --{what} out "
        f"to go on with it, or rebuild the library: hapvr add {place} --{what} {asked} --rebuild"
    )


def _load_model_of(path: Place, settings: Settings, device: str) -> Model:
    """The model that a library was made with, if it is still that."""
    place, name = display_path(path), display_path(settings.model)
    try:
        model = load_at_fps(settings.model, settings.fps, device)
    except WeightsError as error:
        raise WeightsError(f"The library '{place}' was made with a model that cannot be loaded: {error}") from error
    if not is_model_of(settings, model):
        raise StorageError(
            f"The model '{name}' is not the one that the library '{place}' was made with: it has changed since. Bring "
            f"back the old one, or rebuild the library: hapvr add {place} --model {name} --rebuild"
        )
    return model


# --- the library's own calibration -----------------------------------------------------------------------------------


def read_calibration(store: Store) -> Calibration | JudgeCalibration | None:
    """What was fitted on a version of a library: what scores mean, or the log odds of a judge; None if nothing was."""
    path = store.folder / CALIBRATION
    try:
        return parse_calibration(path, file_state(path))
    except FileNotFoundError:
        if store.table_set.must_have(CALIBRATION):
            raise StorageError(f"'{display_path(path)}' is missing. {_calibration_remedy(path)}") from None
        return None
    except OSError as error:
        raise StorageError(f"'{display_path(path)}' cannot be read: {error.strerror}.") from error


@lru_cache(maxsize=8)
def parse_calibration(path: Place, _state: Hashable) -> Calibration | JudgeCalibration:
    """What a file of a calibration holds; `StorageError` if it is damaged. Parsed once for each state of the file."""
    try:
        content = read_document(path, [field.name for field in dataclasses.fields(Calibration)])
        if content.get(_KIND) == _JUDGE:
            return JudgeCalibration.from_json({name: value for name, value in content.items() if name != _KIND})
        tensors = {
            name: torch.tensor(value, dtype=torch.float64) for name, value in content.items() if isinstance(value, list)
        }
        return Calibration.from_part(Part({k: v for k, v in content.items() if k not in tensors}, tensors))
    except (ValueError, TypeError, ConfigError, WeightsError) as error:
        raise StorageError(f"'{display_path(path)}' is damaged: {error} {_calibration_remedy(path)}") from error


def _calibration_remedy(path: Place) -> str:
    library = display_path(path.parents[2])
    return (
        f"Restore it from a copy; or fit it again: hapvr calibrate {library}; or go on without it: "
        f"hapvr check {library} --repair"
    )


def is_of_judge(calibration: Calibration | JudgeCalibration | None, judge: Judge) -> bool:
    """Whether a calibration is of the log odds of this very judge; it does not count for another."""
    return isinstance(calibration, JudgeCalibration) and calibration.judge == judge.digest()


def save_calibration(store: Store, calibration: Calibration | JudgeCalibration) -> Place:
    """Keep a calibration with a version, with the writer's lock held; in one step."""
    if isinstance(calibration, JudgeCalibration):
        content = {_KIND: _JUDGE, **calibration.to_json()}
    else:
        part = calibration.to_part()
        content = dict(part.config) | {name: tensor.tolist() for name, tensor in part.tensors.items()}
    with translate_write_errors(store.folder):
        write_document(store.folder / CALIBRATION, content)
    store.table_set.seal()
    return store.folder / CALIBRATION
