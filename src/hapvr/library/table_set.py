"""The tables of one version of a library: opened when they are needed, brought to the latest, checked, changed.

What is read is checked by the checksums of its files (see `hapvr.library.checksums`). What fails is explained: damage,
a full disk, or another version that is in use by now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hapvr.errors import StorageError
from hapvr.library import engine, tables
from hapvr.library.checksums import REMEDY, Guard
from hapvr.library.engine import EngineError, table_folder
from hapvr.library.results import display_path
from hapvr.library.tables import EMBEDDINGS, FRAMES, REGIONS, ROW_CHECKSUM, SOUNDS, VIDEOS
from hapvr.library.versions import CALIBRATION, current_version, is_disk_error, translate_write_errors
from hapvr.places import ObjectPath, Place

Result = TypeVar("Result")

INDEX_FROM = 50_000
"""Vectors of a table from which on there is an index; fewer are searched one by one."""
_IN_ONE_FILTER = 2_000  # keys


class TableSet:
    """All tables of a version. Reading is safe from several threads; writing needs the lock of the library.

    Args:
        folder: of the version.
        listed: whether the version has a list of checksums, as all but those of older releases have.
    """

    def __init__(self, folder: Place, *, listed: bool) -> None:
        self.folder = folder
        try:
            self._database: Any = engine.call(lambda: engine.connect(folder))
        except EngineError as error:
            raise StorageError(f"'{display_path(folder)}' cannot be opened: {str(error)[:300]}") from error
        self.lock = threading.RLock()
        self.guard = Guard(folder, listed=listed)
        self.require_lock: Callable[[], None] = lambda: None  # called before each change
        self._whole: set[str] = set()  # tables whose large files are checked, as they were when they were last opened
        self._followed: Hashable = None  # the state of the list at the last `refresh`
        self._changes = 0  # that are being made, one within another
        self._opened: dict[str, Any] = {}
        # Of the tables that are open, where they are known: the engine takes a millisecond to say it.
        self._versions: dict[str, int] = {}
        self._columns: dict[str, list[str]] = {}
        self._counts: dict[str, tuple[int, int]] = {}  # of rows, with the version of their table

    # --- opening -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all tables to the latest.

        Records come last: a content they name may then be newer than the other tables' view, which
        `Store.read_contents` sees to, but never older. In an object store, where every look costs a request, tables are
        left as they are while the list of their files is the same: a writer writes it last.
        """
        with self.lock:
            if isinstance(self.folder, ObjectPath):
                self._refresh_list()
                if self.guard.state is not None and self.guard.state == self._followed:
                    return
                self._followed = self.guard.state
            for name in (REGIONS, FRAMES, SOUNDS, EMBEDDINGS, VIDEOS):
                if name in self._opened:
                    self.follow(name)
                else:
                    self.open(name)

    def forget_list(self) -> None:
        """Let the next `refresh` look at every table: another writer may have left what is not in the list."""
        self._followed = None

    def open(self, name: str) -> Any:
        """A table; None if it has not been made, or was left half-made."""
        with self.lock:
            if name not in self._opened:
                self._refresh_list()
                try:
                    if not (table_folder(self.folder, name) / engine.MANIFESTS).is_dir():
                        raise EngineError("not found")
                    table = engine.call(lambda: self._database.open_table(name))
                    self._check(name, version=engine.call(lambda: table.version))
                except EngineError as error:
                    if "not found" not in str(error):
                        raise self.explain_failure(name, error) from error
                    self._check(name, version=None)
                    return None
                # Without checksums, this is how damage may be noticed.
                if lacking := [one for one in tables.COLUMNS[name] if one not in table.schema.names]:
                    where = f"The table '{name}' of '{display_path(self.folder)}'"
                    raise StorageError(f"{where} has no column '{lacking[0]}': it is damaged. {REMEDY}")
                self._opened[name] = table
            return self._opened[name]

    def follow(self, name: str) -> None:
        """Bring a table that is open to its latest version, and check the files that are new."""
        with self.lock:
            self._refresh_list()
            self._forget(name)
            table = self._opened[name]
            try:
                engine.call(table.checkout_latest)
                version = engine.call(lambda: table.version)
            except EngineError as error:
                raise self.explain_failure(name, error) from error
            self._whole.discard(name)
            self._check(name, version=version)
            self._versions[name] = version

    def version_of(self, name: str) -> int:
        """The version of a table that is open."""
        with self.lock:
            if name not in self._versions:
                self._versions[name] = int(engine.call(lambda: self._opened[name].version))
            return self._versions[name]

    def list_columns(self, name: str) -> list[str]:
        """The columns of a table that is open."""
        with self.lock:
            if name not in self._columns:
                self._columns[name] = list(engine.call(lambda: self._opened[name].schema.names))
            return self._columns[name]

    def _forget(self, name: str) -> None:
        """Forget what is known of a table that may have changed."""
        with self.lock:
            self._versions.pop(name, None)
            self._columns.pop(name, None)

    def _refresh_list(self) -> None:
        with self._notice_replacement():
            self.guard.refresh()

    def _check(self, name: str, *, version: int | None, whole: bool = False) -> None:
        with self._notice_replacement():
            self.guard.check(name, version=version, whole=whole)

    @contextmanager
    def _notice_replacement(self) -> Iterator[None]:
        """Within, files that are gone are no damage if another version is in use by now."""
        try:
            yield
        except StorageError as error:
            raise self.explain_replacement() or error from None

    def _check_whole(self, name: str) -> None:
        """Check the large files of a table too, unless each of its rows has a checksum."""
        with self.lock:
            if name in self._whole or (name == REGIONS and ROW_CHECKSUM in self.list_columns(REGIONS)):
                return
            self._check(name, version=None, whole=True)
            self._whole.add(name)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, name: str, read: Callable[[], Result], *, whole: bool = True) -> Result:
        """Read a table; a writer may have moved its content to other files since it was opened: then read again.

        Its large files are checked before, if their content counts: `whole`.
        """
        for again in (True, False):
            if whole:
                self._check_whole(name)
            try:
                return engine.call(read)
            except EngineError as error:
                if not again:
                    raise self.explain_failure(name, error) from error
            self.follow(name)
        raise AssertionError("it is read twice at most")

    def list_keys(self, name: str) -> NDArray[np.int64]:
        """The keys of all rows of a table; none if it has not been made."""
        table = self.open(name)
        if table is None:
            return np.zeros(0, np.int64)
        keys: NDArray[np.int64] = self.read(name, lambda: table.search().select(["key"]).to_arrow()["key"].to_numpy())
        return keys

    def count_rows(self, name: str) -> int:
        """How many rows a table has."""
        table = self.open(name)
        if table is None:
            return 0
        with self.lock:
            version = self.version_of(name)
            if name not in self._counts or self._counts[name][0] != version:
                self._counts[name] = version, int(self.read(name, table.count_rows, whole=False))
            return self._counts[name][1]

    def count_indexed(self, name: str) -> int:
        """How many vectors of a table are in its index."""
        table = self.open(name)
        return 0 if table is None else self.read(name, lambda: engine.count_indexed(table), whole=False) or 0

    def count_unlisted(self) -> int:
        """How many files have no checksum yet: of an older release, or of a writer that was killed."""
        with self.lock:
            return self.guard.count_unlisted()

    def must_have(self, name: str) -> bool:
        """Whether a file of this name was written beside the tables, so that it must be there."""
        with self.lock:
            return name in self.guard.listing.kept

    # --- changing ----------------------------------------------------------------------------------------------------

    def write(self, name: str, action: Callable[[], object]) -> None:
        """Change a table; `StorageError` if it cannot be written, or if what it consists of is damaged."""
        with self.change(), translate_write_errors(self.folder):
            self.require_lock()
            try:
                engine.call(action)
            except EngineError as error:
                if not is_disk_error(error) and (damage := self.explain_damage(name)) is not None:
                    raise damage from error
                raise
            finally:
                self._forget(name)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Within, tables change; at the end they are sealed, once for all changes within one another."""
        self._changes += 1
        try:
            yield
            if self._changes == 1:
                self.seal()
        finally:
            self._changes -= 1

    def add(self, name: str, rows: pa.Table) -> None:
        """Add rows to a table, which is made if it has not been."""
        table = self.open(name)
        if table is not None:
            # One that is older may have fewer columns.
            self.write(name, lambda: table.add(rows.select(table.schema.names)))
            return
        mode = "overwrite" if table_folder(self.folder, name).exists() else "create"
        self.write(name, partial(self._create, name, rows, mode))

    def replace(self, name: str, rows: pa.Table) -> None:
        """Make a table again, of rows with other columns than it had."""
        self.write(name, partial(self._create, name, rows, "overwrite"))

    def _create(self, name: str, rows: pa.Table, mode: str) -> None:
        self._opened[name] = self._database.create_table(name, data=rows, mode=mode)

    def remove_rows(self, name: str, keys: Collection[int]) -> None:
        """Remove the rows of contents, whether there are any or not."""
        if (table := self.open(name)) is not None:
            for part in split_filter(sorted(keys)):
                self.write(name, partial(table.delete, f"key IN ({join_keys(part)})"))

    def seal(self) -> None:
        """List what there is by now, with its checksums: from then on it must be there. With the lock held."""
        kept = [CALIBRATION] if (self.folder / CALIBRATION).is_file() else []
        with self.lock, translate_write_errors(self.folder):
            self.guard.seal(kept=kept)

    def maintain(self, name: str, *, thoroughly: bool) -> None:
        """Keep the number of a table's files in order; cheap if there is nothing to do."""
        if (table := self.open(name)) is not None:
            check, place = partial(self._check_whole, name), table_folder(self.folder, name)
            self.write(name, partial(engine.compact_table, table, place, check, thoroughly=thoroughly))

    def update_index(self, name: str, *, thoroughly: bool) -> None:
        """Index the vectors of a table, if they are many."""
        if (table := self.open(name)) is not None and self.count_rows(name) >= INDEX_FROM:
            check, indexed = partial(self._check_whole, name), self.count_indexed(name)
            place = table_folder(self.folder, name)
            update = partial(engine.update_index, table, place, check, indexed=indexed, thoroughly=thoroughly)
            self.write(name, update)

    # --- what failed -------------------------------------------------------------------------------------------------

    def explain_failure(self, name: str, error: Exception) -> StorageError:
        """What to say when a table cannot be read: which of its files is damaged, if one is."""
        if (why := self.explain_replacement() or self.explain_damage(name)) is not None:
            return why
        text = str(error).splitlines()[0][:300].rstrip(".") if str(error) else type(error).__name__
        return StorageError(f"The table '{name}' of '{display_path(self.folder)}' cannot be read: {text}. {REMEDY}")

    def explain_replacement(self) -> StorageError | None:
        """What to say if another version is in use by now, and this one is going or gone."""
        with suppress(StorageError):
            if self.folder.is_dir() and current_version(self.folder.parents[1]) <= self.folder.name:
                return None
            return StorageError(f"'{display_path(self.folder)}' was replaced by another version meanwhile. Ask again.")
        return None

    def explain_damage(self, name: str) -> StorageError | None:
        """The damage in the files of a table, however large they are; None if they are what was written."""
        try:
            with self.lock:
                self.guard.check(name, version=None, whole=True)
        except StorageError as error:
            return error
        return None


def list_rows(query: Any) -> list[dict[str, Any]]:
    """The rows that a query of the engine finds, by the names of their columns."""
    rows: list[dict[str, Any]] = query.to_arrow().to_pylist()
    return rows


def join_keys(keys: Iterable[int]) -> str:
    """Keys as they stand in a filter: `key IN (...)`."""
    return ", ".join(str(int(key)) for key in keys)


def split_filter(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Keys or ids, as many at a time as one filter takes."""
    for first in range(0, len(values), _IN_ONE_FILTER):
        yield values[first : first + _IN_ONE_FILTER]
