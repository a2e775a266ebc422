"""A sandbox for processes that decode files from strangers: what they may take, open and do.

`enter_sandbox` limits the process that calls it, for good:

- everywhere but on Windows: memory, the number of open files and the size of files it writes (setrlimit);
- on Linux with Landlock (5.13 or newer): it opens only the files that it was given and what Python itself needs, writes
  nowhere, and runs no program;
- on Linux with seccomp (x86-64 and ARM64): it has no network, starts no process, looks into no other, and changes no
  owner, permission or time of a file.

What a system lacks is left out, and everything works as without it: `find_protections` says what there is. Threads that
run already are not covered: a process enters while it has one. So this module imports little, and `run_in_sandbox`
and `python_command` enter before numpy or a decoder is loaded.

The system calls are made through ctypes: of the bindings on PyPI, `landlock` is a development version and `pyseccomp`
has had no release since 2021 and needs another library.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

SWITCH = "HAPVR_SANDBOX"
"""The environment variable that switches sandboxes off, if it is "off": limits of memory and files stay."""

_READ = 1 << 2 | 1 << 3  # Landlock's rights: read a file, list a folder
_WRITE = 1 << 1 | 1 << 14  # write into a file, cut it
_CHANGE = sum(1 << bit for bit in range(4, 14))  # make, rename and remove what lies in a folder
_OF_FILES = 1 | _WRITE | 1 << 2 | 1 << 15
_RIGHTS_SINCE = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many rights a version of Landlock knows
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all architectures
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _GET_SECCOMP, _FILTER = 38, 22, 21, 2

# What Python, FFmpeg and the C library read, beside modules.
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system", "/dev/urandom", "/dev/zero",
)  # fmt: skip
# What finding a host by its name and checking its certificate needs.
_NAMES = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services",
    "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
)  # fmt: skip
_HARDWARE = ("/dev", "/sys", "/proc", "/etc", "/usr/share")  # of a hardware decoder, where one is asked for

# Numbers of system calls that are refused, on x86-64 and on ARM64; 0 where there is none.
_NETWORK_CALLS = {"socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)}
_OTHER_CALLS = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, 0), "vfork": (58, 0), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, 0), "fchown": (93, 55), "lchown": (94, 0), "fchownat": (260, 54),
    "utime": (132, 0), "utimes": (235, 0), "futimesat": (261, 0), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_by_handle_at": (304, 265), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "sethostname": (170, 161), "setdomainname": (171, 162),
}  # fmt: skip
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), 435, 0x10000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # numbers from here on are another set of calls on x86-64
_EPERM, _ENOSYS = 1, 38


@dataclass(frozen=True)
class Sandbox:
    """What a process may do.

    Attributes:
        readable: files and folders that it may open, beside those that Python and the decoder need.
        writable: folders in which it may write.
        network: whether it may use the network.
        max_memory_bytes: of address space; None for no limit.
        max_open_files: at a time.
        max_file_bytes: size of a file that it writes, such as what it says on its standard error.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False
    max_memory_bytes: int | None = 8 * 2**30
    max_open_files: int = 256
    max_file_bytes: int = 2**20


@dataclass(frozen=True)
class Protections:
    """Which parts of a sandbox a system offers, or a process has.

    Attributes:
        limits: of memory, open files and sizes of files.
        files: it opens only what it was given.
        calls: it has no network and starts no process.
    """

    limits: bool
    files: bool
    calls: bool


def find_protections() -> Protections:
    """What sandboxes protect on this system."""
    on = os.environ.get(SWITCH) != "off"
    return Protections(sys.platform != "win32", on and _landlock_version() > 0, on and _has_seccomp())


def enter_sandbox(sandbox: Sandbox) -> Protections:
    """Limit this process, and those that it starts, for good; gives what could be had."""
    global _entered
    _entered = True
    offered = find_protections()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # decoding needs none, and each reserves memory
    hardware = os.environ.get("HAPVR_HWACCEL", "none") not in ("", "none")
    if offered.limits:
        _set_limits(sandbox, memory=not hardware)  # drivers map far more memory than there is
    if not offered.files and not offered.calls:
        return offered
    if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return Protections(offered.limits, False, False)
    files = offered.files and _restrict_files(sandbox, hardware=hardware)
    return Protections(offered.limits, files, offered.calls and _filter_calls(network=sandbox.network))


_entered = False


def is_in_sandbox() -> bool:
    """Whether this process has entered a sandbox."""
    return _entered


def run_in_sandbox(sandbox: Sandbox | None, pickled: bytes, *arguments: Any) -> None:
    """What a process that is spawned does: enter a sandbox, then call a function, whose module is loaded only now."""
    from multiprocessing.reduction import ForkingPickler

    if sandbox is not None:
        enter_sandbox(sandbox)
    ForkingPickler.loads(pickled)(*arguments)


def limit_processor_time(seconds: float) -> None:
    """End this process if it computes for so much longer: when nobody is left who would end it."""
    if sys.platform != "win32":
        import resource

        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        with suppress(ValueError, OSError):  # already lower
            resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds * (os.cpu_count() or 1)) + 1, hard))


# --- files that are handed over --------------------------------------------------------------------------------------

_given: dict[str, int] = {}


@contextmanager
def hold_file(path: str, descriptor: int) -> Iterator[None]:
    """Within, `open_given` opens this path by a descriptor that another process has opened."""
    _given[path] = descriptor
    try:
        yield
    finally:
        del _given[path]
        os.close(descriptor)


def find_given(path: str) -> int | None:
    """The descriptor of a file that was handed to this process; None if it was not."""
    return _given.get(path)


def open_given(path: str) -> int:
    """A descriptor to read a file from its start: of the one that was handed over, else the file is opened."""
    if (given := _given.get(path)) is not None:
        if stat.S_ISREG(os.fstat(given).st_mode):  # what is none is refused by those who read it
            os.lseek(given, 0, os.SEEK_SET)
        return os.dup(given)
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags)


# --- limits ----------------------------------------------------------------------------------------------------------


def _set_limits(sandbox: Sandbox, *, memory: bool) -> None:
    if sys.platform == "win32":
        return
    import resource

    chosen = {
        resource.RLIMIT_AS: sandbox.max_memory_bytes if memory else None,
        resource.RLIMIT_NOFILE: sandbox.max_open_files,
        resource.RLIMIT_FSIZE: sandbox.max_file_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in chosen.items():
        if value is not None:
            with suppress(ValueError, OSError):  # already lower
                resource.setrlimit(kind, (value, value))


# --- Landlock --------------------------------------------------------------------------------------------------------


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _landlock_version() -> int:
    """0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def _restrict_files(sandbox: Sandbox, *, hardware: bool) -> bool:
    """Let this process open only what it may; whether it worked."""
    libc, version = _libc(), _landlock_version()
    handled = (1 << _RIGHTS_SINCE.get(version, 16)) - 1
    network = 0 if version < 4 or sandbox.network else 3  # TCP: listen and connect; where there is no seccomp
    scoped = 3 if version >= 6 else 0  # signals, and sockets without a file, to other processes
    attributes = struct.pack("QQQ", handled, network, scoped)
    rules = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        own = [path for path in (*sys.path, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)) if path]
        readable = (*own, *_SYSTEM, *sandbox.readable, *(_NAMES if sandbox.network else ()))
        for path in readable:
            _allow(libc, rules, path, _READ & handled)
        for path in (*sandbox.writable, "/dev/null"):
            _allow(libc, rules, path, (_READ | _WRITE | _CHANGE) & handled)
        for path in _HARDWARE if hardware else ():
            _allow(libc, rules, path, (_READ | _WRITE | 1 << 15) & handled)
        return int(libc.syscall(_RESTRICT_SELF, rules, 0)) == 0
    finally:
        os.close(rules)


def _allow(libc: Any, rules: int, path: str, rights: int) -> None:
    """Add a rule; what is not there is left out."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


# --- seccomp ---------------------------------------------------------------------------------------------------------


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _machine() -> str:
    return os.uname().machine if sys.platform != "win32" else ""


def _has_seccomp() -> bool:
    known = sys.platform == "linux" and _machine() in _ARCHITECTURES and struct.calcsize("P") == 8
    return known and int(_libc().prctl(_GET_SECCOMP, 0, 0, 0, 0)) >= 0


def _filter_calls(*, network: bool) -> bool:
    """Refuse some system calls with an error; whether it worked."""
    column, architecture = _ARCHITECTURES[_machine()]
    refused = _OTHER_CALLS if network else _OTHER_CALLS | _NETWORK_CALLS
    refuse, allow = _return(0x50000 | _EPERM), _return(0x7FFF0000)
    program = [_load(4), *_when(0x15, architecture, skip=True), refuse, _load(0)]
    if column == 0:
        program += [*_when(0x35, _X32), refuse]
    for number in (numbers[column] for numbers in refused.values() if numbers[column]):
        program += [*_when(0x15, number), refuse]
    program += [*_when(0x15, _CLONE3), _return(0x50000 | _ENOSYS)]  # the C library then calls clone, as below
    program += [_instruction(0x15, 0, 3, _CLONE[column]), _load(16)]  # the flags: is it a thread?
    program += [_instruction(0x45, 1, 0, _CLONE_THREAD), refuse, allow]
    data = b"".join(program)
    return int(_libc().prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(data) // 8, data)), 0, 0)) == 0


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    """Take 32 bits of what describes the call: its number at 0, the architecture at 4, its first argument at 16."""
    return _instruction(0x20, 0, 0, offset)


def _return(value: int) -> bytes:
    return _instruction(0x06, 0, 0, value)


def _when(code: int, value: int, *, skip: bool = False) -> list[bytes]:
    """Do the next instruction only if what was taken is equal to (0x15) or at least (0x35) `value`; or only if not."""
    return [_instruction(code, 1, 0, value) if skip else _instruction(code, 0, 1, value)]
