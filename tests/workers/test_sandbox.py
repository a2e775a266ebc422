"""A process that decodes is made to do what it has no business to do; it fails, and the rest of the work goes on."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hapvr.errors import DecodeError
from hapvr.video.frame_tasks import VideoTask, file_of_task
from hapvr.video.live import StreamConfig, make_sandbox, read_stream
from hapvr.video.sampling import SamplingConfig
from hapvr.workers import sandbox
from hapvr.workers.pool import Block, TaskResult, WorkerPool
from hapvr.workers.processes import child_environment, python_command
from hapvr.workers.sandbox import SWITCH, Protections, Sandbox, find_protections
from tests.video import media
from tests.workers import sandbox_probe

pytestmark = pytest.mark.skipif(
    find_protections() != Protections(True, True, True), reason="this system has no Landlock or no seccomp"
)
PROBE = "tests.workers.sandbox_probe"


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[str, str]:
    """A folder that the process is not given, and a file in it."""
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("key")
    return str(secret.parent), str(secret)


def run(*arguments: str, sandbox: Sandbox | None) -> str:
    command = python_command(PROBE, *arguments, sandbox=sandbox)
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def results(pool: WorkerPool) -> dict[str, TaskResult]:
    ended = {}
    while pool.busy:
        for event in pool.wait():
            if isinstance(event, Block):
                pool.release(event)
            else:
                ended[str(event.key)] = event
    return ended


def test_a_process_of_a_pool_can_do_nothing_but_its_work(elsewhere: tuple[str, str], tmp_path: Path) -> None:
    folder, secret = elsewhere
    given = tmp_path / "given"
    given.write_text("this is for you")
    tasks = [
        ("try", ("try", folder, secret)),
        ("read", ("read", folder, str(given))),
        ("lie", ("lie", folder, str(given))),
        ("spin", ("spin", folder, str(given))),
        ("thread", ("thread", folder, str(given))),
        ("absent", ("fine", folder, str(tmp_path / "absent"))),
    ]
    options: dict[str, Any] = {"sandbox": Sandbox(max_memory_bytes=2**31), "file_of": sandbox_probe.file_of}
    started = time.monotonic()
    with WorkerPool(sandbox_probe.misbehave, tasks, workers=1, block_bytes=8, timeout_s=6.0, **options) as pool:
        ended = results(pool)
    tried = ended["try"].value
    assert "done" not in tried.values(), tried
    assert (tried["take memory"], tried["become a program"]) == ("MemoryError", "PermissionError")
    assert sorted(os.listdir(folder)) == ["secret"]
    assert (Path(secret).read_text(), os.stat(secret).st_mode & 0o777) == ("key", 0o644)
    assert ended["read"].value == b"this is for you"
    assert ended["lie"].error is not None
    assert ended["spin"].error == "the process that read it was ended by SIGKILL"
    assert (ended["thread"].value, ended["absent"].value) == ([1], "fine")
    assert time.monotonic() - started < 60


def test_the_attempts_work_without_a_sandbox(elsewhere: tuple[str, str]) -> None:
    """Otherwise the test above would show nothing."""
    tried = pickle.loads(bytes.fromhex(run(*elsewhere, sandbox=None)))
    assert tried.pop("become a program") == "FileNotFoundError"
    assert {name for name, came in tried.items() if came != "done"} <= {"take memory", "open many files"}


def test_a_video_is_decoded_from_the_file_that_is_handed_over(tmp_path: Path) -> None:
    path = media.write(tmp_path / "a.mp4", [media.barcode(index) for index in range(30)])
    task = VideoTask(str(path), SamplingConfig(fps=1.0, short_side=32, crop=32))
    options: dict[str, Any] = {"workers": 1, "block_bytes": 2**20, "sandbox": Sandbox(), "file_of": file_of_task}
    with WorkerPool(sandbox_probe.decode_and_try, [("a", task), ("b", task)], **options) as pool:
        ended = results(pool)
    assert {name: end.value for name, end in ended.items()} == dict.fromkeys(
        "ab", ("PermissionError", "PermissionError")
    )


def test_a_program_in_a_sandbox_has_what_it_was_given_alone(elsewhere: tuple[str, str]) -> None:
    folder, secret = elsewhere
    tried = pickle.loads(bytes.fromhex(run(folder, secret, sandbox=Sandbox(readable=(secret,)))))
    assert {name for name, came in tried.items() if came == "done"} == {
        "read a file that it was not given"  # this time it was
    }


def test_a_stream_from_an_address_keeps_the_network_and_nothing_else(elsewhere: tuple[str, str]) -> None:
    tried = pickle.loads(bytes.fromhex(run(*elsewhere, sandbox=make_sandbox("https://example.org/live.m3u8"))))
    assert {name for name, came in tried.items() if came == "done"} == {"open a socket", "send by UDP"}


def test_a_playlist_reaches_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    for place in ("elsewhere", "mine"):
        (tmp_path / place).mkdir()
    codes = [media.barcode(index) for index in range(30)]
    media.write(tmp_path / "elsewhere" / "secret.ts", codes, container="mpegts")
    media.write(tmp_path / "mine" / "own.ts", codes, container="mpegts")

    def read(name: str) -> int:
        playlist = tmp_path / "mine" / "list.m3u8"
        playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\n{name}\n#EXT-X-ENDLIST\n")
        sampling = SamplingConfig(fps=5.0, short_side=32, crop=32)
        return sum(map(len, read_stream(str(playlist), sampling, StreamConfig(idle_s=5.0))))

    assert read("own.ts") > 0
    for named in (f"file://{tmp_path}/elsewhere/secret.ts", "../elsewhere/secret.ts"):
        with pytest.raises(DecodeError):
            read(named)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("landlock", "Protections(limits=True, files=False, calls=True) done PermissionError"),
        ("seccomp", "Protections(limits=True, files=True, calls=False) PermissionError done"),
    ],
)
def test_what_a_system_lacks_is_left_out_and_said(missing: str, expected: str) -> None:
    assert run("without", missing, sandbox=None) == expected


def test_sandboxes_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert find_protections() == Protections(True, False, False)


def test_a_process_enters_while_it_has_one_thread() -> None:
    """Landlock does not cover threads that run already, and numpy starts some."""
    count = "import os; print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules); "
    command = python_command("tests.workers.process_probe", sandbox=Sandbox())
    code = command[-1].replace("enter_sandbox(", count + "enter_sandbox(", 1)
    assert count in code
    done = subprocess.run([*command[:-1], code], env=child_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "1 False"


def test_a_terminal_is_neither_read_nor_written() -> None:
    """What is typed is not for a decoder, and what it writes could steer the terminal."""
    screen, terminal = os.openpty()
    enter = "from hapvr.workers.sandbox import Sandbox, enter_sandbox; enter_sandbox(Sandbox()); "
    found = []
    for begin in ("", f"import sys; sys.path[:] = {sys.path!a}; {enter}"):
        command = [sys.executable, "-I", "-c", f"{begin}import os; print(os.isatty(0), os.isatty(2))"]
        done = subprocess.run(command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True, check=True)
        found.append(done.stdout.strip())
    os.close(screen)
    os.close(terminal)
    assert found == ["True True", "False False"]


ALLOWED, REFUSED, UNKNOWN, ABSENT = 0x7FFF0000, 0x50001, 0x50019, 0x50026
# Numbers on x86-64 and on ARM64, as asm/unistd.h has them.
KILL, PRIORITY, SOCKET, IOCTL, OPENAT, CLONE = (62, 129), (141, 140), (41, 198), (16, 29), (257, 56), (56, 220)


@pytest.mark.parametrize(("machine", "column", "architecture"), [("x86_64", 0, 0xC000003E), ("aarch64", 1, 0xC00000B7)])
def test_the_filter_looks_at_arguments(machine: str, column: int, architecture: int) -> None:
    """By a slow loop that does what the kernel does; also of the machine that this is not."""

    def run_filter(call: tuple[int, int], *arguments: int, **options: bool) -> int:
        words = {0: call[column], 4: options.pop("foreign", False) or architecture}
        for place, value in enumerate(arguments):
            words[16 + 8 * place] = value & 0xFFFFFFFF
        program = sandbox._write_filter(machine, network=options.get("network", False), hardware="hardware" in options)
        taken = at = 0
        while True:
            code, if_true, if_false, value = struct.unpack("HBBI", program[at])
            at += 1
            if code == 0x20:
                taken = words[value]
            elif code == 0x54:
                taken &= value
            elif code == 0x06:
                return int(value)
            else:
                at += if_true if (taken == value if code == 0x15 else taken >= value) else if_false

    own = os.getpid()
    assert run_filter((0, 63), 3) == ALLOWED  # read
    assert run_filter((0, 63), 3, foreign=True) == REFUSED
    assert [run_filter(KILL, pid) for pid in (own, own + 1, 0, -1)] == [ALLOWED, REFUSED, REFUSED, REFUSED]
    assert [run_filter(PRIORITY, *who) for who in ((0, 0), (0, 1), (1, 0), (2, 0))] == [ALLOWED, *[REFUSED] * 3]
    assert [run_filter(SOCKET, family) for family in (1, 2)] == [REFUSED, REFUSED]
    assert [run_filter(SOCKET, family, network=True) for family in (1, 2, 10, 16, 17)] == [
        REFUSED, ALLOWED, ALLOWED, ALLOWED, REFUSED
    ]  # fmt: skip
    get, type_into, verity = 0x5401, 0x5412, 0x40806685
    assert [run_filter(IOCTL, 2, asked) for asked in (get, type_into, verity)] == [ALLOWED, UNKNOWN, UNKNOWN]
    assert run_filter(IOCTL, 2, type_into | 1 << 32) == UNKNOWN  # the kernel looks at the lower half too
    assert [run_filter(IOCTL, 2, asked, hardware=True) for asked in (get, type_into, 0xC0206440)] == [
        ALLOWED, REFUSED, ALLOWED
    ]  # fmt: skip
    read, cut, write_new = os.O_RDONLY | os.O_CLOEXEC, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC | os.O_CREAT
    assert [run_filter(OPENAT, 0, 0, flags) for flags in (read, cut, write_new)] == [ALLOWED, REFUSED, ALLOWED]
    assert [run_filter(CLONE, flags) for flags in (0x3D0F00, 0x1200011)] == [ALLOWED, REFUSED]  # a thread, a fork
    assert [run_filter((number, number)) for number in (435, 437)] == [ABSENT, ABSENT]
