"""Find videos by content: copies, edited copies, clips inside longer videos, other footage of the same incident.

`hapvr.compare(a, b)` compares two files, `hapvr.load()` gives the model behind it, `hapvr.Library.open(path)` a
collection of videos that can be searched; the rest is in the packages below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hapvr.comparing import compare
    from hapvr.library import Library
    from hapvr.model import load

__all__ = ["Library", "__version__", "compare", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Brought when asked for, so that `import hapvr` stays quick and needs no decoder.
    if name == "Library":
        from hapvr.library import Library

        return Library
    if name == "compare":
        from hapvr.comparing import compare

        return compare
    if name == "load":
        from hapvr.model import load

        return load
    raise AttributeError(f"module 'hapvr' has no attribute {name!r}")
