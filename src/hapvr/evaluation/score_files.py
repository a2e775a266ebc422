"""Scores of queries against targets: one matrix with the ids of its rows and columns, and its files.

name.json   {query: {target: score}}, which other tools read and write; a pair may be absent
name.npz    `queries`, `targets` (strings) and `values` (float32): compact, and what large sets need
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.evaluation.benchmarks.annotation_file import find_repeated, require_ids
from hapvr.storage import StrPath, remove_unfinished_files, replace_file


@dataclass(frozen=True, eq=False)
class Scores:
    """How similar each target is to each query; higher is more similar.

    Minus infinity says "not scored": the pair is in no ranking, and if the target is a positive it counts as one
    that was not retrieved. Every query and target that exists is named here even if all its pairs are such: a name that
    is not here is missing. NaN and plus infinity are refused (`DataError`, naming the pair), as are ids that stand
    twice.

    Attributes:
        queries: ids [Q].
        targets: ids [N].
        values: float32 [Q, N], read-only. Other floating-point types are converted.

    Example:
        >>> scores = Scores(("q",), ("a", "b"), np.array([[0.5, -np.inf]], dtype=np.float32))
        >>> scores.values.shape
        (1, 2)
    """

    queries: tuple[str, ...]
    targets: tuple[str, ...]
    values: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "targets", tuple(self.targets))
        require_ids(self.queries, "queries of the scores")
        require_ids(self.targets, "targets of the scores")
        values = np.asarray(self.values)
        if not np.issubdtype(values.dtype, np.floating):
            raise ShapeError(f"values must be floating point, got {values.dtype}.")
        if values.shape != (len(self.queries), len(self.targets)):
            raise ShapeError(
                f"values must be [{len(self.queries)}, {len(self.targets)}], one row per query and one column per "
                f"target, got {list(values.shape)}."
            )
        with np.errstate(over="ignore"):  # beyond float32 is infinite, which is refused below
            values = values.astype(np.float32, copy=False).view()
        for query, row in zip(self.queries, values, strict=True):
            bad = np.isnan(row) | (row == np.inf)
            if bad.any():
                place = int(np.argmax(bad))
                raise DataError(
                    f"the score of query '{query}' and target '{self.targets[place]}' is {row[place]}, which has no "
                    f"rank ({int(bad.sum())} such of this query's {len(row)}). Find what made it; where a pair was not "
                    "scored, write minus infinity."
                )
        values.flags.writeable = False
        object.__setattr__(self, "values", values)


def write_scores(scores: Scores, path: StrPath) -> None:
    """Write a `.json` or `.npz` file; an interrupted call leaves the old one.

    JSON has no word for "not scored": such a pair is left out, and so are queries and targets without any score.
    """
    path = Path(path)
    kind = require_kind(path)
    remove_unfinished_files(path.parent, path.name)
    with replace_file(path) as temporary:
        if kind == ".npz":
            with temporary.open("wb") as file:
                np.savez(file, queries=np.array(scores.queries), targets=np.array(scores.targets), values=scores.values)
        else:
            with temporary.open("w", encoding="utf-8") as text:
                _write_json(scores, text)


def read_scores(path: StrPath) -> Scores:
    """Read a `.json` or `.npz` file of scores.

    The targets of a JSON file are those that some query has a score for: where it holds only the best of each query,
    evaluate it with missing="miss".
    """
    path = Path(path)
    kind = require_kind(path)
    try:
        return _read_npz(path) if kind == ".npz" else _read_json(path)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except (DataError, ShapeError) as error:
        raise DataError(f"'{path}': {error}") from error


NPZ_ERRORS = (
    KeyError, ValueError, EOFError, AttributeError, TypeError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error
)  # fmt: skip
"""What numpy raises on .npz files that are damaged; RuntimeError for kinds of ZIP files that Python cannot read."""


def require_kind(path: StrPath) -> str:
    """The suffix of a score file, .json or .npz; `ConfigError` if it has another."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".json", ".npz"):
        raise ConfigError(
            f"scores are kept as .json or .npz, got '{Path(path).name}'; {suggest(suffix, ['.json', '.npz'])}"
        )
    return suffix


def _read_npz(path: Path) -> Scores:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            parts = {name: stored[name] for name in ("queries", "targets", "values")}
    except NPZ_ERRORS as error:
        raise DataError(f"it holds no scores, or is damaged: {error}. Write it again with write_scores.") from error
    for name in ("queries", "targets"):
        if parts[name].ndim != 1 or (parts[name].size and parts[name].dtype.kind != "U"):
            raise DataError(f"'{name}' must be strings [n], got {parts[name].dtype} {list(parts[name].shape)}.")
    return Scores(tuple(parts["queries"].tolist()), tuple(parts["targets"].tolist()), parts["values"])


def _write_json(scores: Scores, file: TextIO) -> None:
    """Float64 digits of the float32 values: reading gives the same bits."""
    names = [json.dumps(target) for target in scores.targets]
    file.write("{")
    first = True
    for query, row in zip(scores.queries, scores.values, strict=True):
        pairs = [f"{names[place]}: {value!r}" for place, value in enumerate(row.tolist()) if value != -np.inf]
        if pairs:
            file.write(("\n" if first else ",\n") + json.dumps(query) + ": {" + ", ".join(pairs) + "}")
            first = False
    file.write("\n}\n")


# --- reading JSON ------------------------------------------------------------------------------------------------


class _Row:
    """The table of one query, as soon as it has been read: the columns of its targets, and their scores."""

    def __init__(self, pairs: list[tuple[str, Any]], columns: dict[str, int]) -> None:
        self.error: str | None = None
        for target, value in pairs:
            if type(value) not in (float, int):
                self.error = f"target '{target}' is {str(value)[:80]!r}, not a number"
                return
        self.places = np.array([columns.setdefault(target, len(columns)) for target, _ in pairs], dtype=np.int64)
        if (twice := find_repeated(target for target, _ in pairs)) is not None:
            self.error = f"target '{twice}' is given twice"
        try:
            with np.errstate(over="ignore"):
                self.values = np.array([value for _, value in pairs], dtype=np.float64).astype(np.float32)
        except OverflowError as error:
            self.error = f"a target is a number that no float holds: {error}"


def _read_json(path: Path) -> Scores:
    columns: dict[str, int] = {}

    def take(pairs: list[tuple[str, Any]]) -> Any:
        """A table of scores becomes two arrays at once: as objects the scores of a large file would fill the memory."""
        return tuple(pairs) if any(isinstance(value, _Row) for _, value in pairs) else _Row(pairs, columns)

    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=take)
    except UnicodeDecodeError as error:
        raise DataError(f"it is no UTF-8 text: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"it is no JSON, or is cut short: {error}.") from error
    if isinstance(found, _Row) and found.error is None and not len(found.places):
        found = ()
    if not isinstance(found, tuple):
        raise DataError("it must be a JSON table {query: {target: score}}.")
    rows: dict[str, _Row] = {}
    for query, row in found:
        if not isinstance(row, _Row):
            raise DataError(f"query '{query}' must have a table {{target: score}}, got {str(row)[:80]!r}.")
        if row.error is not None:
            raise DataError(f"the score of query '{query}' and {row.error}.")
        if query in rows:
            raise DataError(f"the query '{query}' stands there twice. Give each once.")
        rows[query] = row
    if not columns:
        raise DataError("it holds no score.")
    values = np.full((len(rows), len(columns)), -np.inf, dtype=np.float32)
    for number, row in enumerate(rows.values()):
        values[number, row.places] = row.values
    return Scores(tuple(rows), tuple(columns), values)
