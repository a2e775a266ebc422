from __future__ import annotations

from collections.abc import Callable

import pytest

from hapvr.cli import main

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
