"""A sandbox for processes that decode files from strangers: what they may take, open and do.

`enter_sandbox` limits the process that calls it, for good:

- everywhere but on Windows: memory, the number of open files and the size of files it writes (setrlimit);
- on Linux with Landlock (5.13 or newer): it opens only the files that it was given and what Python itself needs, writes
  nowhere, and runs no program; a terminal is neither read nor written;
- on Linux with seccomp (x86-64 and ARM64): it has no network and no other way to talk to a process than what it was
  given, starts no process, looks into no other, signals none, types nothing into a terminal, and changes no owner,
  permission or time of a file. With the network it has that of addresses alone, not the sockets of local services.

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
from collections.abc import Iterator, Sequence
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
_NETWORK_CALLS = {"connect": (42, 203), "bind": (49, 200), "listen": (50, 201)}
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
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "truncate": (76, 45),  # which Landlock does not know before its version 3
    # A socket of a pair can send to any local service that takes datagrams.
    "socketpair": (53, 199), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "ioprio_set": (251, 30),
    # Memory and messages that other programs of the same user share.
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
# Calls that may be made if the arguments of these numbers have one of these values; None for the own process.
_OWN_PROCESS_CALLS: dict[str, tuple[tuple[int, int], dict[int, tuple[int | None, ...]]]] = {
    "kill": ((62, 129), {0: (None,)}), "tgkill": ((234, 131), {0: (None,)}), "prlimit64": ((302, 261), {0: (0, None)}),
    "sched_setaffinity": ((203, 122), {0: (0,)}), "sched_setscheduler": ((144, 119), {0: (0,)}),
    "sched_setparam": ((142, 118), {0: (0,)}), "sched_setattr": ((314, 274), {0: (0,)}),
    "setpriority": ((141, 140), {0: (0,), 1: (0,)}),
}  # fmt: skip
_SOCKET, _IOCTL, _OPEN, _OPENAT, _OPENAT2 = (41, 198), (16, 29), (2, 0), (257, 56), 437
_FAMILIES = (2, 10, 16)  # IPv4, IPv6, and the kernel's tables of addresses, which finding a host needs
# Of terminals and pipes: what kind it is, how large, how much there is to read, whether to wait, whether to inherit it.
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_TYPING = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put characters into a terminal, as if its user had typed them
_TRUNCATE, _ACCESS = 0x200, 3  # flags of open
_CLONE, _CLONE3, _CLONE_THREAD = (56, 220), 435, 0x10000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # numbers from here on are another set of calls on x86-64
_EPERM, _ENOTTY, _ENOSYS = 1, 25, 38


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
    _leave_terminal()
    if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return Protections(offered.limits, False, False)
    files = offered.files and _restrict_files(sandbox, hardware=hardware)
    calls = offered.calls and _filter_calls(network=sandbox.network, hardware=hardware)
    return Protections(offered.limits, files, calls)


_entered = False


def _leave_terminal() -> None:
    """Neither read what is typed nor write to the screen: both go on when the program that decodes is over."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):  # it is closed
            if os.isatty(descriptor):
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, descriptor)
                os.close(nothing)


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


def _filter_calls(*, network: bool, hardware: bool) -> bool:
    """Refuse some system calls with an error; whether it worked."""
    data = b"".join(_write_filter(_machine(), network=network, hardware=hardware))
    return int(_libc().prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(data) // 8, data)), 0, 0)) == 0


def _write_filter(machine: str, *, network: bool, hardware: bool) -> list[bytes]:
    """The program that the kernel runs at each call, which begins with the number of the call at hand."""
    column, architecture = _ARCHITECTURES[machine]
    refused = _OTHER_CALLS if network else _OTHER_CALLS | _NETWORK_CALLS
    program = [_load(4), *_when(0x15, architecture, skip=True), _REFUSE, _load(0)]
    if column == 0:
        program += [*_when(0x35, _X32), _REFUSE]
    for number in (numbers[column] for numbers in refused.values() if numbers[column]):
        program += [*_when(0x15, number), _REFUSE]
    for numbers, arguments in _OWN_PROCESS_CALLS.values():
        own = {at: [os.getpid() if one is None else one for one in values] for at, values in arguments.items()}
        program += _decide(numbers[column], *(_require(at, values) for at, values in own.items()))
    program += _decide(_SOCKET[column], _require(0, _FAMILIES if network else ()))
    unknown = _return(0x50000 | _ENOTTY)
    program += _decide(_IOCTL[column], _refuse(1, _TYPING) if hardware else _require(1, _IOCTLS, otherwise=unknown))
    for numbers, argument in ((_OPEN, 1), (_OPENAT, 2)):  # to read and cut: Landlock before version 3 calls it reading
        if numbers[column]:
            program += _decide(numbers[column], _refuse(argument, (_TRUNCATE,), mask=_TRUNCATE | _ACCESS))
    for number in (_OPENAT2, _CLONE3):  # what they are to do lies in memory; the C library calls openat and clone then
        program += [*_when(0x15, number), _return(0x50000 | _ENOSYS)]
    program += _decide(_CLONE[column], _require(0, (_CLONE_THREAD,), mask=_CLONE_THREAD))
    return [*program, _ALLOW]


def _decide(number: int, *conditions: list[bytes]) -> list[bytes]:
    """What becomes of a call: it is allowed if no condition refuses it. Other calls go on behind this."""
    inside = [*(one for condition in conditions for one in condition), _ALLOW]
    return [_instruction(0x15, 0, len(inside), number), *inside]


def _require(argument: int, values: Sequence[int], *, mask: int = 0xFFFFFFFF, otherwise: bytes = b"") -> list[bytes]:
    """Refuse the call unless an argument, or what a mask leaves of it, is one of some values."""
    matches = [_instruction(0x15, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [*_load_argument(argument, mask), *matches, otherwise or _REFUSE]


def _refuse(argument: int, values: Sequence[int], *, mask: int = 0xFFFFFFFF) -> list[bytes]:
    """Refuse the call if an argument, or what a mask leaves of it, is one of some values."""
    return [*_load_argument(argument, mask), *(one for value in values for one in (*_when(0x15, value), _REFUSE))]


def _load_argument(argument: int, mask: int) -> list[bytes]:
    """Take the lower half of an argument, which is all that the kernel looks at in those above."""
    return [_load(16 + 8 * argument), _instruction(0x54, 0, 0, mask)]


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    """Take 32 bits of what describes the call: its number at 0, the architecture at 4, its arguments from 16 on."""
    return _instruction(0x20, 0, 0, offset)


def _return(value: int) -> bytes:
    return _instruction(0x06, 0, 0, value)


def _when(code: int, value: int, *, skip: bool = False) -> list[bytes]:
    """Do the next instruction only if what was taken is equal to (0x15) or at least (0x35) `value`; or only if not."""
    return [_instruction(code, 1, 0, value) if skip else _instruction(code, 0, 1, value)]


_ALLOW, _REFUSE = _return(0x7FFF0000), _return(0x50000 | _EPERM)
