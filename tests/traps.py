"""A folder whose files must not be run: each leaves a mark when it is imported."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

MODULES = ("select", "torch", "json", "av", "typing", "random", "numpy", "threading", "signal", "socket", "tempfile",
           "tokenize", "linecache", "pickle", "runpy", "pkgutil", "sitecustomize", "usercustomize", "h5py", "lancedb",
           "safetensors", "PIL", "typer", "rich", "triton", "matplotlib", "fastapi", "uvicorn")  # fmt: skip
PACKAGES = ("hapvr", "multiprocessing")
_MARK = "open(__file__ + '.ran', 'w').close()\n"


def set_traps(folder: Path, *, but: Collection[str] = ()) -> Path:
    """Fill a folder with all of them `but` some."""
    for name in MODULES:
        if name not in but:
            (folder / f"{name}.py").write_text(_MARK)
    for name in PACKAGES:
        if name not in but:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(_MARK)
    return folder


def sprung(folder: Path) -> list[str]:
    """The traps that were run."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.ran"))
