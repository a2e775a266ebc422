"""The steps that a journal consists of: a file is moved, or replaced by a link to a file of the same bytes.

Each can be made, be taken back, and be looked at after a kill (`settle`): what is half made is removed, since the
content is then still where it was, and the answer is whether the step is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from hapvr.actions.files import (
    ActionError,
    Identity,
    check_content,
    copy_content,
    has_content,
    identify,
    link_file,
    move_anywhere,
    move_new,
    remove,
)
from hapvr.actions.trash import remove_info, write_info
from hapvr.storage import sync_folder

LinkKind = Literal["hardlink", "symlink"]


def make_temporary_name(folder: str) -> str:
    """A free name in a folder, which nobody else uses."""
    return os.path.join(folder, f".hapvr-{secrets.token_hex(8)}.part")


@dataclass(frozen=True)
class MoveStep:
    """A file is moved to a new name."""

    source: str
    target: str
    size: int
    content_hash: str
    temporary: str  # in the target's folder, for a copy from another file system
    kind: str = "move"  # or "trash"
    info: str = ""  # the trash's note about the file; "" outside the trash
    top: str = ""  # the folder that the note's path begins at; "" if the path is absolute

    def make(self, before: Identity) -> None:
        """Move the file, whose content was checked and which is still `before`."""
        if identify(self.source) != before:
            raise ActionError("changed", "it was changed a moment ago")
        if self.info:
            write_info(self.info, self.source, top=self.top)
        try:
            self._move()
        except FileExistsError:
            remove_info(self.info)
            raise ActionError("occupied", f"'{self.target}' was made meanwhile: run the command again") from None
        except (OSError, ActionError):
            remove_info(self.info)
            raise

    def _move(self) -> None:
        move_anywhere(self.source, self.target, self.temporary, size=self.size, content_hash=self.content_hash)

    def settle(self) -> bool:
        """Whether the move is done; one that is half done is taken back."""
        remove(self.temporary)
        at_source, at_target = (
            has_content(path, size=self.size, content_hash=self.content_hash) for path in (self.source, self.target)
        )
        if at_target and not at_source:
            return True
        if not at_source:
            raise ActionError(
                "gone", f"neither '{self.source}' nor '{self.target}' holds it: something else moved or changed it"
            )
        if at_target or _is_empty(self.target):  # a second name, a copy, or a name that was taken for it
            remove(self.target)
            sync_folder(os.path.dirname(self.target))
        remove_info(self.info)
        return False

    def take_back(self, temporary: str) -> None:
        """Move the file to where it was, unless it has changed or something has its old name."""
        check_content(self.target, size=self.size, content_hash=self.content_hash)
        os.makedirs(os.path.dirname(self.source), exist_ok=True)
        try:
            self._swap(temporary)._move()
        except FileExistsError:
            raise ActionError(
                "occupied", f"another file is now at '{self.source}'; it stays at '{self.target}'"
            ) from None
        remove_info(self.info)

    def settle_back(self, temporary: str) -> bool:
        """Whether the move was taken back."""
        back = self._swap(temporary).settle()
        if back:
            remove_info(self.info)
        return back

    def _swap(self, temporary: str) -> MoveStep:
        return dataclasses.replace(self, source=self.target, target=self.source, temporary=temporary, info="", top="")

    def is_made(self) -> bool:
        """Whether the file is no longer where it was."""
        return not os.path.lexists(self.source)

    def place(self) -> str:
        """Where the content is when the step is done."""
        return self.target


def _is_empty(path: str) -> bool:
    try:
        return identify(path).size == 0
    except ActionError:
        return False


@dataclass(frozen=True)
class LinkStep:
    """A file is replaced by a link to a file of the same bytes."""

    source: str  # the file that is replaced
    kept: str  # the file that the link leads to
    size: int
    content_hash: str
    temporary: str
    kind: LinkKind
    mtime_ns: int  # of the file that is replaced, to be restored, as is the next
    mode: int
    device: int  # of the kept file, as is the next
    inode: int
    text: str = ""  # what a symbolic link says

    def make(self, before: Identity) -> None:
        """Replace the file, whose content was checked and which is still `before`."""
        try:
            if self.kind == "hardlink":
                link_file(self.kept, self.temporary)
                linked = identify(self.temporary)
                if (linked.device, linked.inode) != (self.device, self.inode):
                    raise ActionError("changed", f"the copy to keep, '{self.kept}', was replaced a moment ago")
            else:
                os.symlink(self.text, self.temporary)
            if identify(self.source) != before:
                raise ActionError("changed", "it was changed while it was being replaced")
            os.replace(self.temporary, self.source)
        except OSError as error:
            remove(self.temporary)
            if self.kind == "hardlink" and error.errno in (errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP):
                raise ActionError(
                    "refused", "the copy to keep is on another file system, or this one has no hard links"
                ) from error
            raise
        except ActionError:
            remove(self.temporary)
            raise
        sync_folder(os.path.dirname(self.source))

    def settle(self) -> bool:
        """Whether the file is replaced."""
        remove(self.temporary)
        return self.is_made()

    def is_made(self) -> bool:
        """Whether the link is there."""
        if self.kind == "symlink":
            with contextlib.suppress(OSError):
                return os.readlink(self.source) == self.text
            return False
        try:
            found = identify(self.source)
        except ActionError:
            return False
        return (found.device, found.inode) == (self.device, self.inode)

    def take_back(self, temporary: str) -> None:
        """Make it a file of its own again, with its time and permissions."""
        like = Identity(0, 0, self.size, self.mtime_ns, self.mode)
        is_there = os.path.lexists(self.source)
        if is_there and not self.is_made():
            raise ActionError("occupied", "it is no longer the link that was made, and is left as it is")
        content = self.source if is_there and self.kind == "hardlink" else self.kept
        try:
            check_content(content, size=self.size, content_hash=self.content_hash)
        except ActionError as problem:
            raise ActionError(problem.kind, f"its content cannot be restored from '{content}': {problem}") from problem
        os.makedirs(os.path.dirname(self.source), exist_ok=True)
        copy_content(content, temporary, size=self.size, content_hash=self.content_hash, like=like)
        try:
            if is_there:
                os.replace(temporary, self.source)
            else:
                move_new(temporary, self.source)
        except OSError:
            remove(temporary)
            raise
        sync_folder(os.path.dirname(self.source))

    def settle_back(self, temporary: str) -> bool:
        """Whether it is a file of its own again."""
        remove(temporary)
        return not self.is_made() and has_content(self.source, size=self.size, content_hash=self.content_hash)

    def place(self) -> str:
        """Where the content is when the step is done."""
        return self.source


Step = MoveStep | LinkStep


def to_record(step: Step) -> dict[str, Any]:
    """A step as a journal holds it."""
    return dataclasses.asdict(step)


def from_record(record: dict[str, Any]) -> Step:
    """A step of a journal; `KeyError` if it lacks something, `TypeError` if a value is of another kind."""
    kind = LinkStep if record["kind"] in ("hardlink", "symlink") else MoveStep
    values = {field.name: record[field.name] for field in dataclasses.fields(kind)}
    for field in dataclasses.fields(kind):
        if type(values[field.name]) is not (int if field.type == "int" else str):
            raise TypeError(f"{field.name} is {values[field.name]!r}")
    return kind(**values)
