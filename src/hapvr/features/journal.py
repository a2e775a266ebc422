"""A file that only ever passes from one complete state to the next, at whatever moment its writer is killed.

HDF5 updates its tables in place: a writer that dies between two of those writes leaves a file that nobody can open.
`JournaledFile` is the file object that h5py writes through instead.

- Bytes beyond the committed end go straight into the file: nothing refers to them yet, and features are written once.
- Bytes below it (HDF5's tables) are kept in memory, by pages, until `commit`.
- `commit` writes those pages, as they were and as they become, into a journal beside the file, ended by a checksum;
  then into the file.

Killed before the journal is whole, the file is as it was, but for unused bytes at its end; killed later, `recover`
writes the journal's pages again. With `sync` each step reaches the disk before the next begins, so that the same
holds when the power fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from pathlib import Path
from typing import BinaryIO

from hapvr.errors import StorageError
from hapvr.storage import lock_file

_PAGE, _SECTOR = 4096, 512  # the smallest pieces that are written whole: by the system, by a disk
_MAGIC = b"HAPVRJ01"
_HEADER = struct.Struct("<8sQQ")  # magic, size of the file afterwards, number of pages
_RECORD = struct.Struct(f"<Q{_PAGE}s{_PAGE}s")  # number of the page, its bytes before and after


def journal_of(path: Path) -> Path:
    """Where the journal of a file lies."""
    return path.with_name(path.name + ".journal")


class JournaledFile:
    """The file object of one writer, who holds the file's lock. `StorageError` if the file is in use elsewhere."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.sync = sync
        self.live = True
        try:
            self._file: BinaryIO = path.open("r+b", buffering=0)
        except OSError as error:
            raise StorageError(f"'{path}' cannot be written: {error.strerror}.") from error
        try:
            lock_file(self._file.fileno(), path)
            if journal_of(path).exists():
                _recover(self._file, path)
            self._journal: BinaryIO = journal_of(path).open("wb", buffering=0)
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError):
                raise StorageError(f"'{journal_of(path)}' cannot be written: {error.strerror}.") from error
            raise
        self._position = 0
        self._committed = self._size = self._file.seek(0, os.SEEK_END)
        self._pages: dict[int, bytearray] = {}
        self._failure: BaseException | None = None
        self._journal_counts = False  # while its pages are being written into the file

    # --- what h5py calls -------------------------------------------------------------------------------------------

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset`, from the beginning or (with os.SEEK_END) from the end."""
        self._position = offset + (self._size if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """The present position."""
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` from the present position: the file as the writer has left it, committed or not."""
        start, end = self._position, min(self._position + len(buffer), self._size)
        if end <= start:
            return 0
        buffer[: end - start] = _read_at(self._file, start, end - start)
        for number in _pages_between(start, end):
            if number in self._pages:
                inside, at = _overlap(number, start, end)
                buffer[at] = self._pages[number][inside]
        self._position = end
        return end - start

    def read(self, count: int) -> bytes:
        """The next bytes. h5py reads by `readinto`, but takes nothing for a file that lacks this."""
        buffer = bytearray(count)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def write(self, data: bytes | memoryview) -> int:
        """Write at the present position: into memory below the committed end, into the file beyond it.

        HDF5 cannot be left in the middle of a call: an error is kept for `commit` to raise, what follows it is ignored.
        """
        data = memoryview(data).cast("B")
        try:
            if self.live:
                self._write(self._position, data)
        except BaseException as error:
            self._failure = error
            self.live = False
        self._position += len(data)
        return len(data)

    def _write(self, start: int, data: memoryview) -> None:
        end = start + len(data)
        border = -(-self._committed // _PAGE) * _PAGE
        for number in _pages_between(start, min(end, border)):
            if number not in self._pages:
                self._pages[number] = bytearray(_read_at(self._file, number * _PAGE, _PAGE))
            inside, at = _overlap(number, start, end)
            self._pages[number][inside] = data[at]
        if end > border:
            _write_at(self._file, max(start, border), data[max(start, border) - start :])
        self._size = max(self._size, end)

    def truncate(self, size: int | None = None) -> int:
        """Set the file's size, as of the next commit."""
        self._size = self._position if size is None else size
        return self._size

    def flush(self) -> None:
        """Nothing: only `commit` changes what is in the file."""

    # --- what the writer calls -------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make what was written so far the file's state. Call it when h5py has flushed, so that the state is whole."""
        if self._failure is not None:
            raise self._failure
        if self.sync:
            os.fsync(self._file.fileno())  # the new bytes, and the pages of the commit before
        pages = sorted(self._pages.items())
        record = _HEADER.pack(_MAGIC, self._size, len(pages)) + b"".join(
            _RECORD.pack(number, _read_at(self._file, number * _PAGE, _PAGE), bytes(page)) for number, page in pages
        )
        self._journal.truncate(0)
        _write_at(self._journal, 0, memoryview(record + hashlib.sha256(record).digest()))
        if self.sync:
            os.fsync(self._journal.fileno())
        self._journal_counts = True
        for number, page in pages:
            _write_at(self._file, number * _PAGE, memoryview(page))
        self._file.truncate(self._size)
        self._journal_counts = False
        self._committed = self._size
        self._pages.clear()

    def abandon(self) -> None:
        """Forget what was written since the last commit, and accept no more; h5py may still close in peace."""
        self.live = False

    def close(self) -> None:
        """Release the file in its last committed state. The journal is removed if it has done its work."""
        try:
            if not self._file.closed and not self._journal_counts:
                self._file.truncate(self._committed)
                if self.sync:
                    os.fsync(self._file.fileno())
                self._journal.close()
                journal_of(self.path).unlink(missing_ok=True)
        finally:
            self._journal.close()
            self._file.close()


def recover(path: Path) -> None:
    """Finish the commit that a killed writer of `path` had begun, if there is one. `StorageError` if it cannot be."""
    journal = journal_of(path)
    if not journal.exists():
        return
    try:
        with path.open("r+b", buffering=0) as file:
            lock_file(file.fileno(), path)
            _recover(file, path)
        with contextlib.suppress(OSError):
            journal.unlink()
    except OSError as error:
        with path.open("rb", buffering=0) as file:
            if not _read_unfinished(file, path)[1]:
                return  # nothing to be written, so that it does not matter that nothing can be
        raise StorageError(
            f"'{path}' was left by a writer that was interrupted, and what it had begun ('{journal.name}') cannot be "
            f"finished: {error.strerror}. Open it once where it can be written."
        ) from error


def _recover(file: BinaryIO, path: Path) -> None:
    """Write what a journal has more than the file. Bytes beyond the committed end are cut off."""
    size, pages = _read_unfinished(file, path)
    if size is None:
        return
    for number, page in pages.items():
        _write_at(file, number * _PAGE, memoryview(page))
    file.truncate(size)
    os.fsync(file.fileno())


def _read_unfinished(file: BinaryIO, path: Path) -> tuple[int | None, dict[int, bytes]]:
    """The file's size after the journal's commit, and the pages that are not in the file yet.

    A journal without its end means nothing: its writer was killed before it touched the file. (None, {}) then.
    """
    journal = journal_of(path).read_bytes()
    if len(journal) < _HEADER.size + 32 or hashlib.sha256(journal[:-32]).digest() != journal[-32:]:
        return None, {}
    _, size, count = _HEADER.unpack_from(journal)
    end = file.seek(0, os.SEEK_END)
    pages = {}
    for at in range(_HEADER.size, _HEADER.size + count * _RECORD.size, _RECORD.size):
        number, old, new = _RECORD.unpack_from(journal, at)
        page = _read_at(file, number * _PAGE, _PAGE)
        end = max(end, (number + 1) * _PAGE)
        sectors = (slice(at, at + _SECTOR) for at in range(0, _PAGE, _SECTOR))
        if any(page[sector] not in (old[sector], new[sector]) for sector in sectors):
            end = 0  # neither as before the commit nor as after it, nor a mixture of both
            break
        if page != new:
            pages[number] = new
    if end < size:
        raise StorageError(
            f"'{journal_of(path)}' belongs to another state of '{path.name}'. If the file was replaced since its "
            "writer was interrupted, delete the journal; else copy both again from where they were."
        )
    return size, pages


def _pages_between(start: int, end: int) -> range:
    return range(start // _PAGE, -(-end // _PAGE)) if end > start else range(0)


def _overlap(number: int, start: int, end: int) -> tuple[slice, slice]:
    """Where the bytes from `start` to `end` lie in a page that has some of them, and where these lie among them."""
    page = number * _PAGE
    first, last = max(start, page), min(end, page + _PAGE)
    return slice(first - page, last - page), slice(first - start, last - start)


def _read_at(file: BinaryIO, offset: int, count: int) -> bytes:
    """Bytes of the file, zeros beyond its end."""
    file.seek(offset)
    data = b""
    while len(data) < count and (part := file.read(count - len(data))):
        data += part
    return data.ljust(count, b"\0")


def _write_at(file: BinaryIO, offset: int, data: memoryview) -> None:
    file.seek(offset)
    while data:
        data = data[file.write(data) :]
