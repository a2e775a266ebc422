"""Runs `hapvr` within the test process."""

from __future__ import annotations

import pytest

from hapvr.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `hapvr` with these arguments."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err
