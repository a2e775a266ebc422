from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hapvr.cli import main
from hapvr.places import ObjectPath, Place
from tests.object_server import BUCKET, ObjectServer, serve_objects

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line, called as a function: its exit code, and what it wrote to stdout and stderr."""

    def called(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return called


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectServer]:
    """An S3 server on this machine."""
    with serve_objects() as server:
        yield server


@pytest.fixture
def bucket(objects: ObjectServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ObjectPath:
    """A prefix of its own in a bucket for each test, with the keys in the environment."""
    for name, value in objects.environment().items():
        monkeypatch.setenv(name, value)
    return ObjectPath(BUCKET, request.node.name.translate(str.maketrans("[]", "--")))


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a library can be made: what holds in a folder holds in a bucket too."""
    if request.param == "folder":
        return tmp_path / "library"
    found: Place = request.getfixturevalue("bucket")
    return found
