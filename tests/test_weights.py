from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hapvr.errors import WeightsError
from hapvr.weights import Part, load_part, load_parts, load_strict, save_parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parts = {
        "whitening": Part({"inputs": 3}, {"mean": torch.arange(3.0)}),
        "similarity": Part({}, {"a.b": torch.ones(2, 2)}),
    }
    return save_parts(tmp_path / "model", parts)


def test_parts_come_back_as_they_were(folder: Path) -> None:
    parts = load_parts(folder)
    assert list(parts) == ["whitening", "similarity"]
    assert parts["whitening"].config == {"inputs": 3}
    assert torch.equal(parts["whitening"].tensors["mean"], torch.arange(3.0))
    assert torch.equal(load_part(folder, "similarity").tensors["a.b"], torch.ones(2, 2))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_shared_and_strided_tensors_are_saved_as_they_look(tmp_path: Path) -> None:
    base = torch.arange(6.0).view(2, 3)
    save_parts(tmp_path, {"p": Part({}, {"base": base, "turned": base.T})})
    assert torch.equal(load_part(tmp_path, "p").tensors["turned"], base.T)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: _flip(f / "model.safetensors"), "damaged or was replaced"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-3]), "damaged"),
        (lambda f: (f / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda f: (f / "config.json").unlink(), "not a model folder"),
        (lambda f: (f / "config.json").write_text("{"), "not readable JSON"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "not readable JSON"),
        (lambda f: (f / "config.json").write_text('{"model_type": "bert"}'), "not written by hapvr"),
        (lambda f: (f / "config.json").write_text("[]"), "not written by hapvr"),
        (lambda f: _edit(f, version=99), "of format 99, and this hapvr reads up to 1"),
        (lambda f: _edit(f, parts={"whitening": {}}, parts_crc32=None), "knows no part 'similarity'"),
        (lambda f: _edit(f, parts={"similarity": {"dims": 7}}), "damaged or was edited.*take out the line"),
        (lambda f: _edit(f, parts_crc32=None, parts_crc33=5), "holds 'parts_crc33', which is unknown here"),
    ],
)
def test_a_damaged_or_foreign_folder_is_refused(folder: Path, harm: Callable[[Path], object], words: str) -> None:
    harm(folder)
    with pytest.raises(WeightsError, match=words):
        load_parts(folder)


def _edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_a_file_that_is_no_safetensors_is_refused_even_with_a_right_checksum(folder: Path) -> None:
    import hashlib

    (folder / "model.safetensors").write_bytes(b"not tensors at all")
    _edit(folder, sha256=hashlib.sha256(b"not tensors at all").hexdigest())
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load_parts(folder)


def test_a_missing_part_names_those_that_are_there(folder: Path) -> None:
    with pytest.raises(WeightsError, match="no part 'backbone'; it has: whitening, similarity"):
        load_part(folder, "backbone")


def test_missing_surplus_and_misshapen_tensors_are_all_listed() -> None:
    tensors = {"weight": torch.zeros(2, 2), "extra": torch.zeros(1)}
    with pytest.raises(WeightsError) as caught:
        load_strict(nn.Linear(3, 2), tensors, source="'x'")
    message = str(caught.value)
    for words in ("lacks 1 tensors (bias)", "in surplus 1 tensors (extra)", "weight [2, 2] instead of [2, 3]"):
        assert words in message


def test_saving_over_a_model_replaces_it_but_never_loses_a_part(folder: Path) -> None:
    again = {name: Part({"x": 1}, {"t": torch.zeros(1)}) for name in ("whitening", "similarity", "more")}
    save_parts(folder, again)
    assert list(load_parts(folder)) == ["whitening", "similarity", "more"]
    with pytest.raises(WeightsError, match=r"holds a model with other parts \(similarity, more\)"):
        save_parts(folder, {"whitening": again["whitening"]})
    assert list(load_parts(folder)) == ["whitening", "similarity", "more"]


def test_a_plain_safetensors_file_is_no_model_folder(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="hapvr model convert"):
        load_parts(tmp_path)
