"""Move and link files so that their content has a name at every moment.

Nothing here overwrites a file that it does not know: a name is taken by a hard link, which fails where the name exists,
or by a new empty file that is then replaced. A killed process leaves the content under its old name, its new one, or
both.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hapvr.storage import HASH_BYTES, sync_folder

Problem = Literal["gone", "changed", "refused", "occupied", "failed"]
_BLOCK = 1 << 20  # bytes read at a time
# What file systems without hard links answer, and systems that forbid a link to the file of another user.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


class ActionError(Exception):
    """Why a file is left alone: the kind of reason, and the reason in a sentence without its path."""

    def __init__(self, kind: Problem, reason: str) -> None:
        super().__init__(reason)
        self.kind: Problem = kind
        self.reason = reason


@dataclass(frozen=True)
class Identity:
    """Which file a path named, and when it was last changed."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    mode: int  # permissions

    def is_same_file(self, other: Identity) -> bool:
        """Whether both are names of one file."""
        return (self.device, self.inode) == (other.device, other.inode)


def identify(path: str) -> Identity:
    """Which file a path names; `ActionError` if it is no regular file. A link is not followed."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ActionError("gone", "it is gone") from None
    except (OSError, ValueError) as error:
        raise ActionError("failed", f"it cannot be looked at: {describe_error(error)}") from error
    return _identify(found)


def _identify(found: os.stat_result) -> Identity:
    if stat.S_ISLNK(found.st_mode):
        raise ActionError("refused", "it is a symbolic link, not a file")
    if stat.S_ISDIR(found.st_mode):
        raise ActionError("refused", "it is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise ActionError("refused", "it is no regular file")
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode))


def check_content(path: str, *, size: int, content_hash: str) -> Identity:
    """Read a file, and say which it is; `ActionError` unless it has this content. A link is not followed."""
    before = identify(path)
    if before.size != size:
        raise ActionError("changed", f"it has changed: {before.size:,} bytes instead of {size:,}")
    try:
        with _open_file(path) as descriptor:
            found = _identify(os.fstat(descriptor))
            total = hashlib.blake2b(digest_size=HASH_BYTES)
            while block := os.read(descriptor, _BLOCK):
                total.update(block)
            after = _identify(os.fstat(descriptor))
    except OSError as error:
        raise ActionError("failed", f"it cannot be read: {describe_error(error)}") from error
    if total.hexdigest() != content_hash or not before == found == after:
        raise ActionError("changed", "it has changed: its content is not the one that was compared")
    return after


def has_content(path: str, *, size: int, content_hash: str) -> bool:
    """Whether a path is a regular file of this content."""
    try:
        check_content(path, size=size, content_hash=content_hash)
    except ActionError:
        return False
    return True


@contextlib.contextmanager
def _open_file(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def move_new(source: str, target: str) -> None:
    """Give a file another name on its file system; `FileExistsError` if something has that name.

    `OSError` with EXDEV if the name is on another file system. After any error the file has its old name alone.
    """
    if sys.platform == "win32":
        os.rename(source, target)  # refuses a name that exists there
        return
    try:
        link_file(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _move_to_reserved(source, target)
        return
    sync_folder(os.path.dirname(target))
    try:
        os.unlink(source)
    except OSError:
        remove(target)
        raise
    sync_folder(os.path.dirname(source))


def link_file(source: str, target: str) -> None:
    """Give a file a second name; `FileExistsError` if something has that name. A symbolic link is not followed."""
    if os.link in os.supports_follow_symlinks:
        os.link(source, target, follow_symlinks=False)
    else:
        os.link(source, target)


def _move_to_reserved(source: str, target: str) -> None:
    """The same where there are no hard links: an empty file takes the name first."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        os.replace(source, target)
    except OSError:
        remove(target)
        raise
    sync_folder(os.path.dirname(target))
    sync_folder(os.path.dirname(source))


def move_anywhere(source: str, target: str, temporary: str, *, size: int, content_hash: str) -> None:
    """Move a file, to another file system too: then it is copied, checked, named, and only then removed.

    `temporary` is a free name in the folder of the target. `FileExistsError` if something has the name `target`.
    """
    before = identify(source)
    try:
        move_new(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    copy_content(source, temporary, size=size, content_hash=content_hash, like=before)
    try:
        move_new(temporary, target)
    except OSError:
        remove(temporary)
        raise
    try:
        if identify(source) != before:
            raise ActionError("changed", "it was changed while it was copied")
        os.unlink(source)
    except (OSError, ActionError):
        remove(target)
        raise
    sync_folder(os.path.dirname(source))


def copy_content(source: str, temporary: str, *, size: int, content_hash: str, like: Identity) -> None:
    """Write a copy that has reached the disk and was read again; its times and permissions are those of `like`.

    `ActionError` if it has not the content that it should have. After any error there is no copy.
    """
    try:
        with _open_file(source) as reader:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
            writer = os.open(temporary, flags, 0o600)
            try:
                while block := os.read(reader, _BLOCK):
                    while block:
                        block = block[os.write(writer, block) :]
                os.fsync(writer)
            finally:
                os.close(writer)
        check_content(temporary, size=size, content_hash=content_hash)
        restore_attributes(temporary, mtime_ns=like.mtime_ns, mode=like.mode)
    except (OSError, ActionError) as error:
        remove(temporary)
        if isinstance(error, ActionError):
            raise ActionError("changed", "its copy has another content than the one that was compared") from error
        raise


def restore_attributes(path: str, *, mtime_ns: int, mode: int) -> None:
    """Set the time of the last change, and the permissions where the file system has them."""
    with contextlib.suppress(PermissionError, NotImplementedError):
        os.chmod(path, mode)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def remove(path: str) -> None:
    """Remove a name, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def describe_error(error: BaseException) -> str:
    """What a system's error means to a user."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space is left there"
    if number == errno.EROFS:
        return "the file system is read-only"
    if number in (errno.EACCES, errno.EPERM):
        return "there is no permission to write in its folder or in that of the target"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
