"""Names of files as a terminal can show them: whatever is in a name, it stays on its line."""

from __future__ import annotations

import os
import re

# Control characters, line and paragraph separators, marks that turn the direction of writing, and lone surrogates: they
# stand for bytes that are no text.
_UNPRINTED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printed(text: str | os.PathLike[str]) -> str:
    r"""A path or a message in one line, with escapes in place of what would break the line or steer the terminal.

    >>> print(printed("a\nb\x1b[2J.mp4"), printed("caf\udce9"))
    a\nb\x1b[2J.mp4 caf\xe9
    """
    return _UNPRINTED.sub(_escape, os.fspath(text))


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte, as `os.fsdecode` keeps it
        return f"\\x{number - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode("ascii")
