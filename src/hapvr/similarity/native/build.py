"""Compile scores.c for each kind of CPU that it knows: `python build.py [FOLDER]`, with any C compiler of Unix.

The package's build calls this file (hatch_build.py), so it imports nothing but the standard library. Where there is no
compiler, or another kind of processor, nothing is built and torch computes the same.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("scores.c")
_COMMON = ["-std=gnu11", "-O3", "-fno-math-errno", "-shared", "-fPIC", "-mavx2", "-mfma"]
_WIDE = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"]
# Name of the library to the flags of the CPUs that it is for, the widest vectors first.
TARGETS = {"avx512_vnni": ["-DLANES=16", *_WIDE], "avx_vnni": ["-DLANES=8", "-mavxvnni"]}


class BuildError(Exception):
    """There is no library, and why."""


def find_compiler() -> str:
    """The C compiler to call: that of the environment's CC, or cc, gcc or clang."""
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if found := shutil.which(name):
            return found
    raise BuildError("there is no C compiler (cc, gcc or clang)")


def library_path(target: str, folder: Path = SOURCE.parent) -> Path:
    """Where the library for a kind of CPU lies."""
    return folder / f"scores_{target}.so"


def compile_library(flags: list[str], path: Path) -> None:
    """Compile scores.c with these flags; raises `BuildError` with what the compiler says."""
    scratch = path.with_suffix(f".{os.getpid()}")
    command = [find_compiler(), *_COMMON, *flags, str(SOURCE), "-o", str(scratch), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
        scratch.replace(path)  # whole, or not at all
    finally:
        scratch.unlink(missing_ok=True)


def build(folder: Path = SOURCE.parent) -> list[Path]:
    """Compile what this machine's kind of processor may run; raises `BuildError` if that is nothing."""
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.platform == "win32":
        raise BuildError(f"scores.c is for x86-64 on Unix, this is {platform.machine()} on {sys.platform}")
    built, problem = [], None
    for target, flags in TARGETS.items():
        try:
            compile_library(flags, library_path(target, folder))
        except BuildError as error:  # an older compiler may know one of them
            problem = error
        else:
            built.append(library_path(target, folder))
    if problem is not None and not built:
        raise problem
    return built


if __name__ == "__main__":
    for made in build(*map(Path, sys.argv[1:])):
        print(made)
