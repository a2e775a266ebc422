from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hapvr.cli import main
from hapvr.library.milvus_server import TOKEN_VARIABLE
from hapvr.places import ObjectPath
from tests.library import toy
from tests.milvus_server import ROOT_TOKEN, RunningServer, serve_milvus
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four toy videos, of two to five frames."""
    for number in range(4):
        toy.write(tmp_path / "videos", f"{number}.mp4", number, 2 + number)
    return tmp_path / "videos"


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


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A Milvus server on this machine, with its credentials in the environment."""
    for name in ("milvus", "pymilvus"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"the package {name} is not installed: there is no Milvus server to test with")
    with (
        pytest.MonkeyPatch.context() as patch,
        serve_milvus(tmp_path_factory.mktemp("milvus"), authorization=True, hurry=True) as running,
    ):
        patch.setenv(TOKEN_VARIABLE, ROOT_TOKEN)
        yield running
