"""What holds for every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from hapvr.cli import main
from hapvr.cli.app import app


def commands(group: Any, path: str = "hapvr") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_json_is_a_flag_and_output_is_called_output(name: str) -> None:
    options = {word: parameter for parameter in ALL[name].params for word in parameter.opts if word.startswith("-")}
    assert options["--json"].is_flag
    assert ("-o" in options) == ("--output" in options)
    assert not options.keys() & {"--out", "--csv"}


def test_commands_are_found() -> None:
    assert len(ALL) > 25
    assert {"hapvr compare", "hapvr model get", "hapvr plot queries", "hapvr train run"} <= ALL.keys()


@pytest.mark.parametrize(
    ("options", "out", "err"),
    [(["--json"], '{"address": "http://here/"}\n', ""), ([], "", "serving at http://here/ (Ctrl-C ends it)\n")],
)
def test_serve_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], out: str, err: str
) -> None:
    monkeypatch.setattr("hapvr.server.app.run", lambda *_, announce, **__: announce("http://here/"))
    with pytest.raises(SystemExit):
        main(["serve", "library", *options])
    assert tuple(capsys.readouterr()) == (out, err)
