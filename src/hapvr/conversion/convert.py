"""One call from a published weight file to a model folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hapvr.config import suggest
from hapvr.conversion.files import read_contents
from hapvr.conversion.kinds import KINDS, NAMESPACE_KINDS, recognise
from hapvr.errors import ConfigError, WeightsError
from hapvr.weights import CONFIG, save_parts


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote."""

    kind: str  # of the source
    parts: tuple[str, ...]
    tensors: int
    destination: Path


def convert(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], *, kind: str | None = None
) -> Converted:
    """Turn another project's weight file into a model folder, strictly: every tensor is accounted for.

    Args:
        source: The file as its project publishes it; see `hapvr.conversion.KINDS`.
        destination: The folder to write; one that already holds a model is refused.
        kind: What the file is, where its contents should not decide.
    """
    path, folder = Path(source), Path(destination)
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"There is no kind {kind!r} of weight file; {suggest(str(kind), list(KINDS))}")
    if not path.is_file():
        raise WeightsError(f"'{path}' is {'a folder, not a weight file' if path.is_dir() else 'not there'}.")
    if (folder / CONFIG).exists():
        raise WeightsError(f"'{folder}' already holds a model. Give another folder, or remove that one first.")
    contents = read_contents(path, namespace=kind is None or kind in NAMESPACE_KINDS)
    found = kind or recognise(contents)
    if contents.namespace and found not in NAMESPACE_KINDS:
        raise WeightsError(
            f"{contents.source} keeps an argparse.Namespace, which is accepted in checkpoints of the kinds "
            f"{', '.join(sorted(NAMESPACE_KINDS))} only; this is of the kind {found}. Save its bare state dict instead."
        )
    name, part = KINDS[found](contents)
    try:
        save_parts(folder, {name: part})
    except OSError as error:
        raise WeightsError(f"'{folder}' cannot be written: {error.strerror or error}.") from error
    return Converted(found, (name,), len(part.tensors), folder)
