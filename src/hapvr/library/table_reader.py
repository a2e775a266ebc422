"""Reading a table of a library row by row, also where files of it are damaged or gone: for `check` and `--repair`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from hapvr.library import engine
from hapvr.library.engine import EngineError, Fragment, Result, table_folder
from hapvr.places import ObjectPath, Place, link_file, list_files


class TableReader:
    """A table at its newest version. `EngineError` where it cannot be opened.

    An object store that does not answer is an `UnavailableError`: what cannot be asked for is not lost.
    """

    def __init__(self, folder: Place, name: str) -> None:
        self.path = table_folder(folder, name)
        self._table: Any = self._call(lambda: engine.connect(folder).open_table(name))
        self.columns: list[str] = list(self._call(lambda: self._table.schema.names))
        version = int(self._call(lambda: self._table.version))
        manifests = dict(engine.list_manifests(self.path))
        try:
            self.fragments: list[Fragment] = engine.list_fragments(self.path, manifests[version])
        except (OSError, *engine.UNREADABLE) as error:
            raise EngineError(f"the manifest of version {version} cannot be read") from error
        self._older = sorted((one for one in manifests if one < version), reverse=True)
        self.lost = 0  # rows that could not be read, deleted ones included
        self.is_cut = False  # whether some of these lay in a file of which other rows could be read

    def _call(self, action: Callable[[], Result]) -> Result:
        try:
            return engine.call(action)
        except EngineError as error:
            if isinstance(self.path, ObjectPath):
                self.path.require_available(error)
            raise

    def scan(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows; `EngineError` if one cannot be read."""
        return self._call(lambda: self._table.search().select(list(columns)).to_arrow())

    def count_indexed(self) -> int | None:
        """How many rows the index of vectors covers; None if there is none. `EngineError` if it cannot be read."""
        return self._call(lambda: engine.count_indexed(self._table))

    def read(self, *, batch: int, without: Collection[str] = ()) -> Iterator[pa.Table]:
        """All rows that can be read, in batches; what cannot is counted as `lost`.

        Args:
            batch: rows at most.
            without: files, within the table, whose rows are not to be trusted. Where a list of deleted rows is among
                them, the rows are taken as they were before: rows that had been deleted come back.
        """
        for fragment in self.fragments:
            if not any(file in without or not (self.path / file).is_file() for file in fragment.files):
                yield from self._read(fragment.id << 32, fragment.rows, batch)
            elif not self._is_lost(fragment.files[0], without) and (rows := self._read_older(fragment, batch)):
                yield from rows
            else:
                self.lost += fragment.rows

    def _is_lost(self, data: str, without: Collection[str]) -> bool:
        return data in without or not (self.path / data).is_file()

    def _read_older(self, fragment: Fragment, batch: int) -> list[pa.Table]:
        """The rows of a fragment as an older version had them; none if there is no such version any more."""
        try:
            for version in self._older:
                try:
                    self._call(lambda version=version: self._table.checkout(version))  # type: ignore[misc]
                    ids = range(fragment.id << 32, (fragment.id << 32) + fragment.rows)
                    parts = [self._take(ids[start : start + batch]) for start in range(0, len(ids), batch)]
                except EngineError:
                    continue
                if sum(part.num_rows for part in parts):
                    return parts
            return []
        finally:
            self._call(self._table.checkout_latest)

    def _read(self, first: int, count: int, batch: int) -> Iterator[pa.Table]:
        for start in range(first, first + count, batch):
            yield from self._read_halves(range(start, min(start + batch, first + count)))

    def _read_halves(self, ids: range) -> Iterator[pa.Table]:
        """Rows by the engine's numbers; where that fails, halves of them, down to single rows."""
        try:
            rows = self._take(ids)
        except EngineError:
            if len(ids) == 1:
                self.lost, self.is_cut = self.lost + 1, True
                return
            half = len(ids) // 2
            yield from self._read_halves(ids[:half])
            yield from self._read_halves(ids[half:])
        else:
            yield rows

    def _take(self, ids: range) -> pa.Table:
        return self._call(lambda: self._table.take_row_ids(list(ids)).select(self.columns).to_arrow())


def link_table(folder: Place, name: str, target: Place, *, without: Collection[str]) -> None:
    """Put the files of a table into another version's folder, without some manifests: then the one before counts."""
    source, copy = table_folder(folder, name), table_folder(target, name)
    for file in list_files(source):
        if file not in without or not file.startswith(engine.MANIFESTS):
            link_file(source / file, copy / file)
