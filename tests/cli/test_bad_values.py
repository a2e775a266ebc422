"""A value that cannot be is refused in the words of the command line: by the option that was typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hapvr.cli.option_names import name_options
from hapvr.library import Library
from tests.cli.test_commands import ALL
from tests.library.conftest import Run, run  # noqa: F401 - a fixture

COMMANDS = {
    "add": "library films",
    "search": "library films/a.mp4",
    "duplicates": "library",
    "serve": "library",
    "watch": "library films --against",
    "monitor": "library films/a.mp4",
    "status": "library",
    "bench": "",
    "plan": "--videos 1000",
    "map": "library --output map.html",
    "remove": "library some",
    "compact": "library",
    "backup": "library copy",
    "hashes export": "films --output hashes.json",
    "model get": "r50",
}
ANY_SEED = {("bench", "--seed"), ("map", "--seed")}  # every whole number will do
WORDS = [
    ("add", "--min-size", "much", "--min-size must be a number of bytes, or one with a unit such as 500MB"),
    ("search", "--max-size", "-7", "--max-size must be a number of bytes"),
    ("add", "--include", "/", "--include must be patterns such as '*.mp4' or 'folder/*', got '/'."),
    ("add", "--codec", "int6", "--codec: There is no codec 'int6'; did you mean"),
    ("add", "--candidates", "here", "--candidates cannot be 'here'"),
    ("add", "--rate", "0", "--rate must be a number of frames per second"),
    ("search", "--device", "gpu", "--device: There is no device 'gpu'"),
    ("duplicates", "--action", "eat", "--action must be one of move, trash, hardlink, symlink; got 'eat'."),
    ("duplicates", "--kinds", "all", "--kinds must be among identical,"),
    ("serve", "--log-format", "xml", "--log-format is json or text, got 'xml'."),
    ("status", "--state", "good", "--state: There is no state 'good'"),
    ("plan", "--film", "8k", "--film must be one of 360p30, 1080p30,"),
    ("add", "--min-length", "-1", "--min-length must be 0 or more, got -1."),
    ("search", "--from", "-1", "--from must be seconds of at least 0, got -1.0."),
    (
        "monitor",
        "--window",
        "1",
        "--step must be above 0 and at most --window, which must be",
    ),
    ("serve", "--keep-uploads", "-2", "--keep-uploads must be a number of minutes above 0, got -2."),
]


def list_numbers() -> Iterator[tuple[str, str, str]]:
    """Each option of these commands that takes a number, and a value that none of them takes."""
    for name in COMMANDS:
        for parameter in ALL[f"hapvr {name}"].params:
            kind: Any = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            option = next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0])
            value = {"int": "-7", "float": "nan"}.get(getattr(kind, "__name__", ""))
            if value is not None and (name, option) not in ANY_SEED:
                yield name, option, value


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library, which is empty, and a file that nobody gets to read."""
    folder = tmp_path_factory.mktemp("values")
    Library.open(folder / "library", create=True).close()
    (folder / "films").mkdir()
    (folder / "films" / "a.mp4").write_bytes(b"no video")
    return folder


@pytest.fixture
def films(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)


@pytest.mark.usefixtures("films")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_number_that_cannot_be_is_refused_by_the_name_of_its_option(run: Run, name: str) -> None:  # noqa: F811
    options = [(option, value) for command, option, value in list_numbers() if command == name]
    for option, value in options:
        given = f"{option}={value}" if option.startswith("--") else f"{option}{value}"
        code, _, err = run(*name.split(), *COMMANDS[name].split(), given)
        assert code == 2, given
        assert option in err, err
        assert value in err or "Input should be" in err, err  # what was given; typer does not repeat it


def test_numbers_are_found() -> None:
    assert len(list(list_numbers())) > 40
    assert {("search", "-k", "-7"), ("add", "--min-length", "nan"), ("plan", "--videos", "-7")} <= set(list_numbers())


@pytest.mark.usefixtures("films")
@pytest.mark.parametrize(("name", "option", "value", "said"), WORDS)
def test_a_value_that_cannot_be_is_named(run: Run, name: str, option: str, value: str, said: str) -> None:  # noqa: F811
    code, _, err = run(name, *COMMANDS[name].split(), f"{option}={value}")
    assert (code, err.splitlines()[-1].startswith(f"error: {said}")) == (2, True), err


def test_what_is_quoted_and_what_names_no_option_stays() -> None:
    options = {"min_length": "--min-length", "k": "-k", "wait": "--wait"}
    for message in ("'min_seconds' is no file.", "There is no file 'k'.", "Give k a value.", "The wait_list is empty."):
        assert name_options(message, options) == message
    assert name_options("wait_s must be 0 or more.", options) == "--wait must be 0 or more."
    assert name_options("k must be above 0.", options) == "-k must be above 0."
