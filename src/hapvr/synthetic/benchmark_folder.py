"""The folder of a benchmark, and the files it is made from: what is allowed, what can be read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hapvr.errors import ConfigError, DecodeError
from hapvr.video.decode import probe

_KEYS = {"queries", "database", "origins", "shared"}  # of ground_truth.json


@dataclass(frozen=True)
class BenchmarkFailure:
    """A file that could not be used, and why."""

    file: str
    reason: str


def require_apart(out: Path, *, folders: Iterable[Path] = (), files: Iterable[Path] = ()) -> None:
    """Refuse a benchmark folder that would mix with its sources: `ConfigError`.

    It may lie in none of the folders, hold none of them and be none of them, and it may hold none of the files. Links
    count as where they lie and as where they lead.
    """
    own = _find_places(out)
    for folder in folders:
        if any(a.is_relative_to(b) or b.is_relative_to(a) for a in own for b in _find_places(folder)):
            raise ConfigError(
                f"the benchmark folder '{out}' and the folder of videos '{folder}' overlap: copies would lie among the "
                "originals. Give a benchmark folder outside it."
            )
    for file in files:
        if any(a.is_relative_to(b) for a in _find_places(file) for b in own):
            raise ConfigError(
                f"'{file}' lies in the benchmark folder '{out}', which is for what is made. Give another folder."
            )


def _find_places(path: Path) -> set[Path]:
    path = Path(path)
    try:
        return {Path(os.path.abspath(path)), path.resolve()}
    except (OSError, RuntimeError):  # links in a circle, before Python 3.13
        return {Path(os.path.abspath(path))}


def require_benchmark(out: Path) -> None:
    """Refuse a folder that holds something else: its files could not be distinguished from those that are made."""
    if not os.path.lexists(out):
        return
    try:
        filled = any(not path.name.startswith(".") for path in out.iterdir())
    except OSError as error:
        raise ConfigError(f"'{out}' cannot be used as a folder: {error.strerror or error}.") from error
    truth = out / "ground_truth.json"
    if os.path.lexists(truth):
        if not _is_ground_truth(truth):
            raise ConfigError(f"'{truth}' was not written by make-benchmark and would be lost. Give another folder.")
    elif filled and not (out / ".made").is_dir():
        raise ConfigError(f"'{out}' holds files and is no benchmark. Give a new or an empty folder.")


def prepare_folder(out: Path) -> None:
    """Make its folders; it has no ground truth until all is made."""
    for folder in (".made", "queries", "database"):  # the first one marks the folder as a benchmark
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "ground_truth.json").unlink(missing_ok=True)


def _is_ground_truth(truth: Path) -> bool:
    try:
        content = json.loads(truth.read_text(encoding="utf-8"))
        return {"queries", "database"} <= content.keys() <= _KEYS and all(
            {"file", "kind", "positives", "segments"} <= query.keys() for query in content["queries"].values()
        )
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def name_once(paths: Iterable[Path], names: dict[Path, Path]) -> list[Path]:
    """Each file once, by the name it was first given; `names` remembers them from call to call."""
    return list(dict.fromkeys(names.setdefault(Path(path).resolve(), Path(path).absolute()) for path in paths))


def probe_videos(paths: Iterable[Path], failed: list[BenchmarkFailure]) -> Iterator[tuple[Path, float]]:
    """Each video that can be opened, with its length in seconds (0 if it does not say); others join `failed`."""
    for path in paths:
        try:
            yield path, probe(path).duration_s or 0.0
        except DecodeError as error:
            failed.append(BenchmarkFailure(str(path), str(error)))
