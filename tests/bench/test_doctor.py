"""`hapvr doctor` says what a bug report needs, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hapvr
from hapvr.bench.doctor import shorten_home
from hapvr.cli import main
from hapvr.library.versions import FORMAT


def call(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    assert not end.value.code


def test_it_describes_the_installation_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "ann-example"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HAPVR_CACHE", str(home / "cache"))
    monkeypatch.setenv("HAPVR_TOKEN", "hush-hush")
    monkeypatch.setenv("HAPVR_WEBHOOK_SECRET", "whisper")
    call(str(home / "library"), "--json")
    out = capsys.readouterr().out
    found = json.loads(out)
    assert not [word for word in ("ann-example", "hush-hush", "whisper") if word in out]
    assert found["hapvr"] == hapvr.__version__
    assert found["formats"]["library"] == FORMAT
    assert "h264" in found["codecs"]["decodable"]
    assert found["paths"]["cache"]["path"] == "~/cache"
    assert found["paths"]["cache"]["free_gib"] >= 0
    assert found["set"] == ["HAPVR_TOKEN", "HAPVR_WEBHOOK_SECRET"]
    assert len(found["models"]["lite"]["sha256"]["model.safetensors"]) == 64
    assert found["library"]["is_library"] is False
    assert "~/library" in found["library"]["error"]
    call()
    text = capsys.readouterr().out
    assert f"hapvr: {hapvr.__version__}" in text.splitlines()
    assert "hush-hush" not in text


def test_a_home_folder_that_is_a_link_is_shortened_by_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    assert shorten_home(f"{tmp_path}/real/a {tmp_path}/link/b") == "~/a ~/b"
