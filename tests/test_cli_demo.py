from __future__ import annotations

import json

import pytest

from hapvr.cli import main


def test_the_demo_finds_the_originals(capsys: pytest.CaptureFixture[str]) -> None:
    """Chance would find 6 of 48."""
    with pytest.raises(SystemExit) as left:
        main(["demo", "--json"])
    assert left.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["copies"]) == 48
    assert result["right"] >= 40
    assert 0.9 < result["mAP"] <= 1
    assert all(row["score"] >= row["next"] for row in result["copies"])
