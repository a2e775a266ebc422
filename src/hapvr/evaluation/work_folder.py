"""A work folder: the finished chunks of one evaluation, so that it can be stopped, gone on with, and shared.

    WORK/work.json        what is being evaluated: benchmark, model, features, precision, chunks
    WORK/chunk-00007.npz  the scores [Q, videos of the chunk] of a finished chunk

Every file is put in place whole. Several processes, on several machines, may fill one folder at the same time.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import StorageError
from hapvr.evaluation.chunks import Chunk
from hapvr.similarity import VideoSimilarity
from hapvr.storage import replace_file, sha256_names, sha256_tensors, write_json

if TYPE_CHECKING:
    pass

RECORD = "work.json"
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of a feature file: reading all of it would take as long as scoring it


class WorkFolder:
    """Scores of finished chunks. `StorageError` if the folder belongs to another evaluation.

    Args:
        folder: made if need be.
        identity: everything the scores depend on, as text and numbers by name.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, str | int]) -> None:
        self.folder = Path(folder)
        self._identity = dict(identity)
        self._checksum = sha256_names(f"{name} {value}" for name, value in sorted(identity.items()))
        path = self.folder / RECORD
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_json(path, self._identity, only_new=True)
            found = json.loads(path.read_text())
        except OSError as error:
            raise StorageError(f"'{self.folder}' cannot be used as a work folder: {error.strerror}.") from error
        except ValueError as error:
            raise StorageError(f"'{path}' is damaged: {error}. Give another work folder, or empty this one.") from error
        self._require_same(path, found)

    def _require_same(self, path: Path, found: object) -> None:
        theirs = found if isinstance(found, dict) else {}
        for name in dict.fromkeys([*self._identity, *theirs]):
            if theirs.get(name) != self._identity.get(name):
                raise StorageError(
                    f"'{path.parent}' holds another evaluation: its {name.replace('_', ' ')} is {theirs.get(name)!r}, "
                    f"here it is {self._identity.get(name)!r}. Scores of the two do not mix: give another work folder, "
                    f"or delete {RECORD} and chunk-*.npz in this one."
                )

    def load_finished(self, chunks: Iterable[Chunk], queries: int) -> dict[int, NDArray[np.float32]]:
        """The scores of those chunks that are finished, by number."""
        loaded = ((chunk.number, self.load(chunk, queries)) for chunk in chunks)
        return {number: values for number, values in loaded if values is not None}

    def load(self, chunk: Chunk, queries: int) -> NDArray[np.float32] | None:
        """The scores [Q, videos] of a chunk; None if it is not finished, or no longer readable."""
        try:
            content = io.BytesIO(self._path(chunk).read_bytes())  # numpy leaves a damaged file open
            with np.load(content, allow_pickle=False) as file:
                values, of = file["values"], str(file["evaluation"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        if of != self._checksum or values.dtype != np.float32 or values.shape != (queries, len(chunk.ids)):
            return None
        return values if np.isfinite(values).all() else None

    def store(self, chunk: Chunk, values: NDArray[np.float32]) -> None:
        """Keep the scores of a finished chunk."""
        hint = "Make room, then run it again."
        with replace_file(self._path(chunk), hint=hint) as temporary, temporary.open("wb") as file:
            np.savez(file, values=values, evaluation=np.array(self._checksum))

    def _path(self, chunk: Chunk) -> Path:
        return self.folder / f"chunk-{chunk.number:05d}.npz"


def digest_model(model: VideoSimilarity) -> str:
    """The sha256 of a network's settings and weights, wherever it was loaded from."""
    return sha256_names([repr(model.config), sha256_tensors(model.state_dict())])
