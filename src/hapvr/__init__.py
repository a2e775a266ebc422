"""Find videos by content: copies, edited copies, clips inside longer videos.

`hapvr.compare(a, b)` compares two files, `hapvr.load()` gives the model behind it, `hapvr.Library.open(path)` a
collection of videos that can be searched, `hapvr.evaluate(benchmark)` measures a model; the rest is in the packages
below.
"""

from __future__ import annotations

import os
import sys


def _leave_current_folder_out() -> None:
    """Undo what `python -m hapvr` does to the path: a torch.py in the current folder would be run.

    It has not yet set sys.argv[0] when it imports this, and the module's name comes before the arguments.
    """
    name = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        if (name == "hapvr" or name.startswith("hapvr.")) and sys.path[0] == os.getcwd() != home:
            del sys.path[0]
    except OSError:  # the current folder was removed, and nothing can lie in it
        return


_leave_current_folder_out()  # before anything else is imported

import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from hapvr.processor import avoid_unusable_amx  # noqa: E402

avoid_unusable_amx()  # before torch or OpenVINO compute anything

if TYPE_CHECKING:
    from hapvr.client import Client
    from hapvr.library import Library
    from hapvr.matching import compare
    from hapvr.model import load
    from hapvr.model_evaluation import evaluate

__all__ = ["Client", "Library", "__version__", "compare", "evaluate", "load"]
__version__ = "0.1.0"

_HOMES = {
    "Client": "hapvr.client",
    "Library": "hapvr.library",
    "compare": "hapvr.matching",
    "evaluate": "hapvr.model_evaluation",
    "load": "hapvr.model",
}


def __getattr__(name: str) -> Any:
    # Brought when asked for, so that `import hapvr` stays quick and needs no decoder.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hapvr' has no attribute {name!r}")
