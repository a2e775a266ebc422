"""Files on disk: written whole or not at all, identified by digests, and checked for being writable before any work.

Every package writes through `replace_file` or a function built on it, so that after a crash or a power failure a path
holds the old content or the new one, never a part. (HDF5 feature files grow in place; they have a journal of their own,
`hapvr.features.journal`.)
"""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hapvr.errors import ConfigError, StorageError
from hapvr.places import ObjectPath

if TYPE_CHECKING:
    from torch import Tensor

StrPath = str | os.PathLike[str]

HASH_BYTES = 20  # of a content hash
_BLOCK = 1 << 20  # bytes read at a time
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # pieces of a large file that `sample_file` reads
_CHECKSUM = "crc32"  # of a document, in it


# --- writing -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replace_file(path: StrPath, *, sync: bool = True, only_new: bool = False, hint: str = "") -> Iterator[Path]:
    """Write a file by way of a temporary one in the same folder, which takes its place when the block ends well.

    The temporary file is flushed to disk before it is moved and the folder after it. Where the block raises, `path` is
    left as it was. Several processes may write the same path: the last one wins. A link is followed; a device or a pipe
    is written to, not replaced.

    Args:
        path: the file to make or replace.
        sync: False leaves it to the system when the bytes reach the disk: for what can be made again.
        only_new: keep a file that another process has put there in the meantime.
        hint: a sentence added to the error: what to do.

    Raises:
        StorageError: the file cannot be written. `path` is as it was.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with replace_file(Path(folder.name, "a.txt")) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [(file.name, file.read_text()) for file in Path(folder.name).iterdir()]
    [('a.txt', 'whole')]
    >>> folder.cleanup()
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with tempfile.TemporaryDirectory(prefix="hapvr-") as folder:
                yield (temporary := Path(folder, path.name))
                with open(path, "wb") as device, open(temporary, "rb") as file:
                    shutil.copyfileobj(file, device)
            return
        target = Path(os.path.realpath(path))  # a link stays a link
        temporary = target.with_name(
            f".{_shorten(target.name)}.{os.getpid()}-{_name_machine()}{secrets.token_hex(4)}.part"
        )
        try:
            yield temporary
            if sync:
                sync_file(temporary)
            if not (only_new and _link_new(temporary, target)):
                os.replace(temporary, target)
            if sync:
                sync_folder(target.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        advice = f" {hint}" if hint else ""
        raise StorageError(f"'{path}' cannot be written: {error.strerror or error}.{advice}") from error


def _link_new(temporary: Path, path: Path) -> bool:
    """Give a file the name `path` unless there is such a file; False on file systems without links if there is none."""
    try:
        os.link(temporary, path)
    except OSError:
        return path.exists()
    return True


def write_bytes(
    path: StrPath | ObjectPath, data: bytes, *, sync: bool = True, only_new: bool = False, hint: str = ""
) -> None:
    """Write a whole file or object; see `replace_file`."""
    if isinstance(path, ObjectPath):
        path.write_bytes(data)
        return
    with replace_file(path, sync=sync, only_new=only_new, hint=hint) as temporary:
        temporary.write_bytes(data)


def write_text(path: StrPath, text: str, *, hint: str = "") -> None:
    """Write a whole UTF-8 file; see `replace_file`."""
    write_bytes(path, text.encode(), hint=hint)


def write_json(
    path: StrPath | ObjectPath, content: Any, *, indent: int | None = 1, only_new: bool = False, hint: str = ""
) -> None:
    """Write plain values as a JSON file that ends in a line break; see `replace_file`."""
    text = json.dumps(content, indent=indent) + "\n"  # ASCII: file names may hold bytes that are no text
    write_bytes(path, text.encode(), only_new=only_new, hint=hint)


def sync_file(path: StrPath) -> None:
    """Flush the bytes of a file to disk (fsync)."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: StrPath) -> None:
    """Flush the names in a folder to disk (fsync), on systems where a folder can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_unfinished_files(folder: StrPath, name: str | None = None, *, sole_writer: bool = False) -> None:
    """Remove what killed processes left of the files that they were writing into a folder: of all, or of this name.

    Files of processes that run are left alone, and those of other machines that share the folder, unless this process
    is the `sole_writer`: nobody else may write there now. On Windows only that one removes anything: there a process
    cannot be asked whether it runs.
    """
    start = "*" if name is None else glob.escape(_shorten(name))
    for path in Path(folder).glob(f".{start}.*.part"):
        number, _, rest = path.name.rsplit(".", 2)[1].partition("-")
        own = rest.startswith(_name_machine()) and number.isdecimal()
        if sole_writer or (own and not _is_running(int(number))):
            with contextlib.suppress(OSError):
                path.unlink()


def _shorten(name: str) -> str:
    return name.encode(errors="replace")[:100].decode(errors="ignore")  # names end at 255 bytes


def _name_machine() -> str:
    """Eight letters for this machine, or the container in it, that gives processes their numbers."""
    numbers = ""
    with contextlib.suppress(OSError):  # Linux alone has containers that number processes on their own
        numbers = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32((socket.gethostname() + numbers).encode()):08x}"


def _is_running(number: int) -> bool:
    if os.name == "nt":  # there the call below would end the process
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's; no number of a process
        return True
    return True


# --- documents ---------------------------------------------------------------------------------------------------


def write_document(
    path: StrPath | ObjectPath, content: Mapping[str, Any], *, indent: int | None = 2, hint: str = ""
) -> None:
    """Write named values as a JSON file that carries a checksum of its content, `crc32`; see `replace_file`."""
    write_json(path, {**content, _CHECKSUM: crc32_json(content)}, indent=indent, hint=hint)


def read_document(path: StrPath | ObjectPath, known: Collection[str]) -> dict[str, Any]:
    """The content of a file that `write_document` wrote; `ValueError` if it is not as it was written.

    Files that an older release wrote have no checksum. They are taken as they are if they hold nothing but what is
    `known`: else it may be the name of the checksum that is damaged.
    """
    return parse_document(_read_bytes(path), known)


def parse_document(data: bytes, known: Collection[str], *, require_checksum: bool = False) -> dict[str, Any]:
    """`read_document`, of bytes that were read before; `require_checksum` refuses those of an older release."""
    try:
        content = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} instead of named values.")
    written = content.pop(_CHECKSUM, None)
    if written is None and require_checksum:
        raise ValueError("it has no checksum.")
    if written is None and (surplus := sorted(set(content).difference(known))):
        raise ValueError(f"it holds '{surplus[0]}', which is unknown here, and no checksum.")
    if written is not None and written != crc32_json(content):
        raise ValueError("its checksum is not that of its content.")
    return content


def lacks_checksum(path: StrPath | ObjectPath) -> bool:
    """Whether it is a document of an older release: whole, but without a checksum."""
    try:
        content = json.loads(_read_bytes(path).decode("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and _CHECKSUM not in content


def _read_bytes(path: StrPath | ObjectPath) -> bytes:
    return path.read_bytes() if isinstance(path, ObjectPath) else Path(path).read_bytes()


# --- tables ------------------------------------------------------------------------------------------------------


def format_csv_rows(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV below a line of names. No text of it is taken for a formula by a spreadsheet.

    >>> format_csv_rows(["name", "score"], [{"name": "=a.mp4", "score": -1}])
    "name,score\\n'=a.mp4,-1\\n"
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _quote_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


_FORMULA = (*"=+-@\t\r\n", *"＝＋－＠")  # how a formula begins; Japanese spreadsheets take the wide signs, too


def _quote_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


# --- digests -----------------------------------------------------------------------------------------------------


def crc32_json(content: Any) -> int:
    """The CRC-32 of plain values as JSON, whatever the order of their names.

    >>> crc32_json({"a": 1, "b": [0.5]}) == crc32_json({"b": [0.5], "a": 1}) != crc32_json({"a": 1, "b": [0.25]})
    True
    """
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def sha256_bytes(data: bytes) -> str:
    """The sha256 of bytes, in hexadecimal digits.

    >>> sha256_bytes(b"")[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: StrPath) -> str:
    """The sha256 of a file's bytes, read in pieces."""
    return _hash_file(path, hashlib.sha256())


def blake2b_file(path: StrPath | int) -> str:
    """The blake2b hash of a file's bytes, in `HASH_BYTES` bytes: what a library knows contents by.

    A descriptor, in place of a path, is read from where it stands, and closed.
    """
    return _hash_file(path, hashlib.blake2b(digest_size=HASH_BYTES))


def _hash_file(path: StrPath | int, total: Any) -> str:
    with open(path, "rb", buffering=0) as file:  # hashlib.file_digest needs Python 3.11
        while block := file.read(_BLOCK):
            total.update(block)
    return str(total.hexdigest())


def sha256_names(names: Iterable[str]) -> str:
    """The sha256 of names in their order."""
    return sha256_bytes("\0".join(names).encode())


def sha256_tensors(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of tensors: of their names, types, shapes and values, in the order of their names.

    Unlike a file's it does not depend on who wrote the file.

    >>> import torch
    >>> a, b = torch.zeros(2), torch.ones(1)
    >>> sha256_tensors({"a": a, "b": b}) == sha256_tensors({"b": b, "a": a})
    True
    >>> sha256_tensors({"a": a}) == sha256_tensors({"a": a.half()})
    False
    """
    import torch

    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name}\n{tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def sample_file(path: StrPath) -> str:
    """The sha256 of a large file's size and of pieces spread over it: quick, and shows most changes.

    `StorageError` if the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            total = hashlib.sha256(str(size).encode())
            for number in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                total.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise StorageError(f"'{path}' cannot be read: {error.strerror}.") from error
    return total.hexdigest()


# --- files as they are ---------------------------------------------------------------------------------------------


def file_signature(path: StrPath | bytes | int) -> tuple[int, int]:
    """Size in bytes and time of the last change in nanoseconds; zeros where the file cannot be looked at."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_size, found.st_mtime_ns


def is_regular_file(path: StrPath) -> bool:
    """Whether this is a file, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


# --- locks and interrupts ----------------------------------------------------------------------------------------


def lock_file(descriptor: int, path: Path) -> None:
    """Take the lock of an open file or folder, which HDF5 looks at too; `StorageError` if it is in use elsewhere.

    The system gives it back when the process ends, however it ends.
    """
    if sys.platform == "win32":  # no such lock there: HDF5 goes on without one, and so do we
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(f"'{path}' is in use by another reader or writer. Wait until it has closed it.") from error
    except OSError:
        return  # a file system without locks


def lock_folder(folder: Path) -> contextlib.ExitStack:
    """Take the lock of a folder, on systems where one can be opened; closing the result gives it back."""
    held = contextlib.ExitStack()
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        held.callback(os.close, descriptor)
        try:
            lock_file(descriptor, folder)
        except BaseException:
            held.close()
            raise
    return held


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block is over; their handlers run then.

    A library stays whole without it, but hours may have gone into what is being written; an exception that is raised
    where HDF5 calls back is dropped, and with it what was to be written. In other threads than the main one there is
    nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Left alone: signals that are ignored, and handlers that Python did not set and could not set again.
    held = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in held:
        signal.signal(number, lambda which, _: came.append(which))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for which in dict.fromkeys(came):
            signal.raise_signal(which)


# --- output paths --------------------------------------------------------------------------------------------------


def require_outputs(paths: Iterable[StrPath], *, inputs: Iterable[StrPath] = ()) -> None:
    """Raise `ConfigError` unless files can be written at the paths without harm, so that it is known before any work.

    The folder of each must exist, the path itself be no folder, and no two of the paths be the same file, nor one of
    them an input, under any name or link.
    """
    taken = [(Path(path), "which is read") for path in inputs]
    for file in map(Path, paths):
        if not os.path.isdir(file.parent):
            raise ConfigError(f"'{file}' cannot be written: '{file.parent}' is no folder. Make it first.")
        if os.path.isdir(file):
            raise ConfigError(f"'{file}' cannot be written: it is a folder. Name a file in it.")
        for other, why in taken:
            if _same_file(file, other):
                raise ConfigError(f"'{file}' would overwrite '{other}', {why}. Name another file.")
        taken.append((file, "which is written as well"))


def _same_file(first: Path, second: Path) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:  # at least one does not exist yet
        return os.path.realpath(first) == os.path.realpath(second)
