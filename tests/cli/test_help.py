"""What `hapvr --help` shows: everyday commands first, and every command once."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from hapvr.cli import main
from hapvr.cli.app import PANELS, app
from hapvr.cli.duplicates import duplicates
from hapvr.library import Library
from hapvr.library.duplicates import MIN_PROBABILITY
from hapvr.server.schemas.duplicates import DuplicatesRequest

ROOT = Path(__file__).parents[2]


def test_everyday_commands_come_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    panels = [title for line in lines if (title := line.strip("╭╮─ ")) in PANELS]
    assert panels == list(PANELS) == ["Everyday", "Care of a library", "Models and research"]
    begun = lines.index(next(line for line in lines if "Everyday" in line))
    shown = [found[1] for line in lines[begun:] if (found := re.match(r"│ ([a-z-]+) ", line))]
    assert shown == [name for commands in PANELS.values() for name in commands]
    assert shown[:4] == ["demo", "compare", "add", "search"]
    assert shown.index("ablate") > shown.index("status")


def test_every_command_stands_in_one_panel() -> None:
    named = [name for commands in PANELS.values() for name in commands]
    registered = [command.name for command in app.registered_commands]
    groups = [group.name for group in app.registered_groups]
    assert sorted(named) == sorted([*registered, *groups])  # type: ignore[type-var]
    assert len(named) == len(set(named))


def test_the_page_of_commands_has_the_same_order() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    found = [name.split()[0] for name in re.findall(r"^### hapvr (.+)$", page, re.MULTILINE)]
    assert list(dict.fromkeys(found)) == [name for commands in PANELS.values() for name in commands]
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(PANELS)


def test_the_default_probability_of_duplicates_is_the_one_in_force() -> None:
    """The command holds the number: reading it from the code would make `hapvr --help` load torch."""
    assert inspect.signature(duplicates).parameters["min_probability"].default == MIN_PROBABILITY
    assert inspect.signature(Library.find_duplicates).parameters["min_probability"].default == MIN_PROBABILITY
    assert DuplicatesRequest.model_fields["min_probability"].default == MIN_PROBABILITY


def test_no_help_names_types_of_python(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No `<bool>` for a switch, no `<str>`, `list[Path]` or format of dates: in --help and in the docs."""
    monkeypatch.setenv("COLUMNS", "160")
    for words in ([], ["add"], ["search"], ["serve"], ["hashes", "match"], ["plot", "matrices"]):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--help" in shown
    for text in (shown, (ROOT / "docs" / "cli.md").read_text()):
        assert not re.findall(r"<(?:bool|str|int|float|path)>|list\[|%Y|\.\.\.\]\.\.\.", text)
