"""Starting other processes. None of them runs code that lies in the current folder.

Python looks for modules in the current folder first when it is started with `-c` or `-m`, and multiprocessing starts
its processes so: each would run a stray `select.py` in a folder of videos. A process of this package starts in Python's
isolated mode (`-I`), which looks only in the installation, and is then given the path of this process without the
current folder. Every process is started with what is here; a test looks for others.
"""

from __future__ import annotations

import multiprocessing.process
import multiprocessing.spawn
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import IO, Any

from hapvr.workers.sandbox import Sandbox

_HOME = str(Path(__file__).parents[2])  # where this package lies
_SECRETS = ("HAPVR_TOKEN",)
_SECRET_NAMES = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY", "_AUTH")  # as in AWS_SECRET_ACCESS_KEY
_patching = threading.Lock()


def import_path() -> list[str]:
    """Where a process of this package looks for modules: where this one does, but not in the current folder.

    Relative entries of `sys.path` are left out. So is the current folder, unless PYTHONPATH names it by its absolute
    path or this package lies in it.
    """
    meant = {_normal(entry) for entry in (*_python_path(), _HOME)}
    left_out = _current_folders() - meant
    path = [entry for entry in map(str, sys.path) if os.path.isabs(entry) and _normal(entry) not in left_out]
    return path if _normal(_HOME) in map(_normal, path) else [_HOME, *path]


def leave_current_folder_out() -> None:
    """Look for modules no longer in the current folder, for a program of this package; see `import_path`."""
    sys.path[:] = import_path()


def python_command(module: str, *arguments: str, sandbox: Sandbox | None = None) -> list[str]:
    """The command that runs a module as `python -m` does, isolated from the current folder.

    Start it with `child_environment`. If a sandbox is given, the process enters it before anything else is loaded.
    """
    # Nothing may be imported before the path is set. The code is ASCII, whatever the folders are called.
    code = f"import sys; sys.path[:] = {import_path()!a}; "
    if sandbox is not None:
        code += f"from {Sandbox.__module__} import Sandbox, enter_sandbox; enter_sandbox({sandbox!a}); "
    code += "import runpy; "
    code += f"runpy.run_module({module!a}, run_name='__main__', alter_sys=True)"
    return [sys.executable, *_isolated_flags(), "-c", code, *arguments]


def child_environment(*, sandboxed: bool = False, heaps: int | None = None) -> dict[str, str]:
    """The environment of a process that is started here; without what looks like a secret if it is in a sandbox.

    With `heaps`, its threads share so many where the C library is glibc, unless the user has set another number.

    Of PYTHONPATH the absolute entries are kept; an empty or relative one stands for the current folder. Python
    programs that a library starts in turn leave it out as well (from Python 3.11). The server's token is removed: no
    other process needs it.
    """
    environment = {name: value for name, value in os.environ.items() if name not in (*_SECRETS, "PYTHONPATH")}
    if kept := _python_path():
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    environment["PYTHONSAFEPATH"] = "1"
    if heaps is not None:
        environment.setdefault("MALLOC_ARENA_MAX", str(heaps))
    if sandboxed:
        return {name: value for name, value in environment.items() if not _is_secret(name)}
    return environment


def _is_secret(name: str) -> bool:
    """Whether a variable of the environment looks like one that opens something.

    >>> _is_secret("AWS_SECRET_ACCESS_KEY"), _is_secret("HF_TOKEN"), _is_secret("PATH")
    (True, True, False)
    """
    return any(part in name.upper() for part in _SECRET_NAMES)


def spawn_context() -> SpawnContext:
    """What to start processes of multiprocessing with: isolated from the current folder, and not forked.

    A fork would copy the threads of torch half-way. The processes do not run the main script again: what they do must
    be a function of a module, and the script may load a great deal.
    """
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        with _isolated_spawning():  # another process, started with the first lock or process
            resource_tracker.ensure_running()
    return _CONTEXT


class InheritedFile:
    """A file descriptor among the arguments of a process that is being spawned, where it is a number again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return _take_descriptor, (DupFd(self._descriptor),)


def _take_descriptor(inherited: Any) -> int:
    return int(inherited.detach())


def count_cores() -> int:
    """Cores that this process may use; fewer than the machine has if its CPU affinity is limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_program(name: str) -> str | None:
    """The path of a program, by the absolute entries of PATH alone; None if there is none.

    Windows would look in the current folder first.
    """
    endings = os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(os.pathsep) if os.name == "nt" else [""]
    for folder in filter(os.path.isabs, os.get_exec_path()):
        for ending in endings:
            path = os.path.join(folder, name + ending)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


class ChildProcess(AbstractContextManager["ChildProcess"]):
    """A module of this package that runs in a sandbox as another process and answers on its standard output.

    Use it in a `with` block: when that is left the process is killed, if it has not ended.

    Attributes:
        answer: its standard output.
        late: whether it was killed because time was up.
    """

    def __init__(self, command: list[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(sandboxed=True),
        )
        assert self._process.stdout is not None
        self.answer: IO[bytes] = self._process.stdout
        self.late = False

    @contextmanager
    def limit_time(self, seconds: float) -> Iterator[None]:
        """Kill the process if what is done within takes longer."""

        def kill() -> None:
            self.late = True
            self._process.kill()

        killer = threading.Timer(seconds, kill)
        killer.daemon = True
        killer.start()
        try:
            yield
        finally:
            killer.cancel()

    def wait(self, seconds: float) -> tuple[str, str]:
        """How it ended, in words, and the last line of its standard error; killed if it has not by then."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return format_exit(code), lines[-1] if lines else ""

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self.answer.close()
        self._errors.close()


def format_exit(code: int | None) -> str:
    """How a process with this return code ended, in words.

    >>> format_exit(1), format_exit(-9), format_exit(-50)
    ('ended with code 1', 'was ended by SIGKILL', 'was ended by signal 50')
    """
    if code is None or code >= 0:
        return f"ended with code {code or 0}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no names
        return f"was ended by signal {-code}"


# --- inside ----------------------------------------------------------------------------------------------------------


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]


def _normal(entry: str) -> str:
    return os.path.normcase(os.path.normpath(entry))


def _current_folders() -> set[str]:
    """The current folder, and the one that was current at the start: Python may have put either on the path."""
    folders = {getattr(multiprocessing.process, "ORIGINAL_DIR", None)}
    with suppress(OSError):  # it was removed
        folders.add(os.getcwd())
    return {_normal(folder) for folder in folders if folder}


def _isolated_flags() -> list[str]:
    """Options of the interpreter: those that this process was started with, and isolation."""
    flags: list[str] = _flags_of_this_process()
    return flags if "-I" in flags else ["-I", *flags]


_flags_of_this_process: Any = multiprocessing.util._args_from_interpreter_flags  # type: ignore[attr-defined]
_prepare_plainly: Any = multiprocessing.spawn.get_preparation_data


@contextmanager
def _isolated_spawning() -> Iterator[None]:
    """What this thread starts by multiprocessing within, starts isolated; it offers no other way to say so."""
    this_thread = threading.get_ident()

    def flags() -> list[str]:
        return _isolated_flags() if threading.get_ident() == this_thread else _flags_of_this_process()

    def preparation(name: str) -> dict[str, Any]:
        data: dict[str, Any] = _prepare_plainly(name)
        if threading.get_ident() == this_thread:
            data["sys_path"] = import_path()
            for key in ("init_main_from_name", "init_main_from_path"):
                data.pop(key, None)
        return data

    with _patching:
        try:
            multiprocessing.util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]
            multiprocessing.spawn.get_preparation_data = preparation
            yield
        finally:
            multiprocessing.util._args_from_interpreter_flags = _flags_of_this_process  # type: ignore[attr-defined]
            multiprocessing.spawn.get_preparation_data = _prepare_plainly


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing calls it so
        with _isolated_spawning():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


_CONTEXT = _Context()
