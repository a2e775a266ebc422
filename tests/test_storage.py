from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hapvr import storage
from hapvr.errors import ConfigError, StorageError
from hapvr.storage import (
    remove_unfinished_files,
    replace_file,
    require_outputs,
    sample_file,
    sha256_bytes,
    sha256_file,
    sha256_names,
    sha256_tensors,
    write_bytes,
    write_json,
    write_text,
)

# --- writing -----------------------------------------------------------------------------------------------------


def test_a_new_file_and_a_replaced_one_hold_what_was_written_and_nothing_is_left_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_bytes(path, b"one")
    write_bytes(path, b"two and more")
    assert path.read_bytes() == b"two and more"
    write_text(tmp_path / "a.txt", "é\n")
    assert (tmp_path / "a.txt").read_bytes() == "é\n".encode()
    write_json(tmp_path / "a.json", {"name": "caf\udce9"})  # a byte that is no text, as file names have them
    assert json.loads((tmp_path / "a.json").read_text()) == {"name": "caf\udce9"}
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.json", "a.txt"]


def test_the_bytes_reach_the_disk_before_the_name_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            steps.append(name)
            return call(*arguments)

        return wrapper

    monkeypatch.setattr(storage, "sync_file", noted("sync file", storage.sync_file))
    monkeypatch.setattr(storage, "sync_folder", noted("sync folder", storage.sync_folder))
    monkeypatch.setattr(os, "replace", noted("replace", os.replace))
    monkeypatch.setattr(os, "fsync", noted("fsync", os.fsync))
    write_bytes(tmp_path / "a", b"1")
    assert steps == ["sync file", "fsync", "replace", "sync folder", "fsync"]
    steps.clear()
    write_bytes(tmp_path / "a", b"2", sync=False)
    assert steps == ["replace"]


@pytest.mark.parametrize("step", ["sync_file", "replace", "write_bytes"])
def test_what_stops_a_writer_at_any_step_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    owner: Any = {"sync_file": storage, "replace": os, "write_bytes": Path}[step]
    monkeypatch.setattr(owner, step, full)
    with pytest.raises(StorageError, match=r"a' cannot be written: No space left on device\. Make room\."):
        write_bytes(path, b"new", hint="Make room.")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_exception_of_the_block_is_passed_on_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as temporary:
        temporary.write_bytes(bytes([1 // (len("half") - 4)]))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_readable_by_those_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_bytes(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_only_new_leaves_a_file_alone_with_and_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "a", b"first", only_new=True)
    write_bytes(tmp_path / "a", b"second", only_new=True)
    assert (tmp_path / "a").read_bytes() == b"first"

    def without_links(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", without_links)
    write_bytes(tmp_path / "a", b"third", only_new=True)
    write_bytes(tmp_path / "b", b"first", only_new=True)
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"first", b"first"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    for name in ("n" * 255, "é" * 127):
        write_bytes(tmp_path / name, b"1")
        assert (tmp_path / name).read_bytes() == b"1"


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(pipe, b"through")
    reader.join(20)
    assert read == [b"through"]
    assert pipe.is_fifo()


@pytest.mark.skipif(os.name == "nt", reason="nothing is removed there")
def test_what_a_killed_writer_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    for name in ("a[1].json", "b.npz"):  # ended as a kill ends it: nothing is cleaned up
        writer = (
            "import os, sys\nfrom hapvr.storage import replace_file\nwith replace_file(sys.argv[1]) as temporary:\n"
            "    temporary.write_bytes(b'a part')\n    os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", writer, tmp_path / name], check=True)
    killed = sorted(path.name for path in tmp_path.iterdir())
    assert len(killed) == 2
    elsewhere = tmp_path / killed[1].replace(storage._name_machine(), "0123abcd")  # of another machine
    elsewhere.write_bytes(b"")
    (tmp_path / ".b.npz.99999999999999-.part").write_bytes(b"")  # nothing of ours
    with replace_file(tmp_path / "b.npz") as own:
        own.write_bytes(b"whole")
        remove_unfinished_files(tmp_path, "a[1].json")
        assert not (tmp_path / killed[0]).exists()
        assert (tmp_path / killed[1]).exists()
        remove_unfinished_files(tmp_path)
        assert own.exists()
    left = {elsewhere.name, ".b.npz.99999999999999-.part", "b.npz"}
    assert {path.name for path in tmp_path.iterdir()} == left
    remove_unfinished_files(tmp_path, sole_writer=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b.npz"]


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written: No such file"):
        write_bytes(tmp_path / "absent" / "a", b"")


# --- digests -----------------------------------------------------------------------------------------------------


def test_digests_of_bytes_files_and_names_are_those_of_hashlib(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000  # more than one piece
    (tmp_path / "a").write_bytes(data)
    assert sha256_bytes(data) == sha256_file(tmp_path / "a") == hashlib.sha256(data).hexdigest()
    assert sha256_names(["a", "b"]) == hashlib.sha256(b"a\0b").hexdigest() != sha256_names(["b", "a"])


def test_the_digest_of_tensors_by_hand() -> None:
    content = b"a\ntorch.int16 [2]\n" + struct.pack("<2h", 3, -1) + b"b\ntorch.float32 []\n" + struct.pack("<f", 0.5)
    tensors = {"b": torch.tensor(0.5), "a": torch.tensor([3, -1], dtype=torch.int16)}
    assert sha256_tensors(tensors) == hashlib.sha256(content).hexdigest()


def test_the_digest_of_tensors_sees_values_not_their_layout() -> None:
    matrix = torch.arange(6.0).reshape(2, 3)
    assert sha256_tensors({"m": matrix.T.contiguous().T}) == sha256_tensors({"m": matrix})
    assert sha256_tensors({"m": matrix.reshape(3, 2)}) != sha256_tensors({"m": matrix})
    assert sha256_tensors({"n": matrix}) != sha256_tensors({"m": matrix})


def test_a_sampled_digest_sees_size_beginning_and_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    found = set()
    for content in (b"x" * 500_000, b"x" * 500_001, b"y" + b"x" * 499_999, b"x" * 499_999 + b"y", b""):
        path.write_bytes(content)
        found.add(sample_file(path))
        assert sample_file(path) in found
    assert len(found) == 5
    with pytest.raises(StorageError, match="cannot be read"):
        sample_file(tmp_path / "absent")


# --- output paths --------------------------------------------------------------------------------------------------


def test_an_output_must_not_be_a_folder_an_input_or_another_output(tmp_path: Path) -> None:
    film, link, hard = (tmp_path / name for name in ("film.mp4", "link.png", "hard.png"))
    film.write_bytes(b"film")
    link.symlink_to(film)
    hard.hardlink_to(film)
    for bad, words in [(tmp_path, "it is a folder"), (tmp_path / "absent" / "a.json", "is no folder")]:
        with pytest.raises(ConfigError, match=words):
            require_outputs([bad])
    for bad in (film, link, hard, tmp_path / ".." / tmp_path.name / "film.mp4"):
        with pytest.raises(ConfigError, match=r"would overwrite '.*film\.mp4', which is read"):
            require_outputs([bad], inputs=[tmp_path / "absent.mp4", film])
    with pytest.raises(ConfigError, match=r"would overwrite '.*new\.png', which is written as well"):
        require_outputs([tmp_path / "new.png", tmp_path / ".." / tmp_path.name / "new.png"])
    require_outputs([tmp_path / "new.png", tmp_path / "new.html"], inputs=[film])
    assert film.read_bytes() == b"film"
