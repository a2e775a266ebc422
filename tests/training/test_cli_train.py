"""From packed frames to a model that `load` reads, by the command line and on a machine that has none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from hapvr.cli import main
from hapvr.model import load
from hapvr.training import load_clips, load_config
from hapvr.weights import load_part
from tests.training.toy import noise_clips, packed

QUICK = ["views.frames=4", "data.size=112", "data.batch=2", "bank.strong=1", "schedule.steps=2", "run.device=cpu"]

BARE = """
import runpy, sys
refused = {'av', 'typer', 'rich', 'click', 'pydantic', 'h5py', 'matplotlib', 'tensorboard'}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in refused:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
runpy.run_module('hapvr.training', run_name='__main__', alter_sys=True)
"""


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "packed"
    packed(str(folder), noise_clips(4))
    return folder


def words(frames: Path, run: Path, *more: str) -> list[str]:
    return ["tiny", f"data.frames={frames}", f"run.folder={run}", *QUICK, *more]


def test_a_run_from_the_command_line(
    frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["train", *words(frames, tmp_path / "run")])
    assert exit.value.code == 0
    out = capsys.readouterr().out
    assert "4 videos, 0 skipped" in out
    assert "step 2/2 loss" in out
    model = load(tmp_path / "run" / "model")
    assert model.similarity.config.comparator
    assert model.sampling == load().sampling
    trained = load_part(tmp_path / "run" / "model", "trained").config
    assert (trained["base"], trained["teacher"], trained["steps"]) == ("lite-untrained", "backbone", 2)
    assert "[schedule]" in trained["recipe"]
    assert json.loads((tmp_path / "run" / "skipped.json").read_text()) == []
    assert (tmp_path / "run" / "views.png").stat().st_size > 1000
    again = load(tmp_path / "run" / "model").similarity
    for one, two in zip(again.parameters(), model.similarity.parameters(), strict=True):
        assert torch.equal(one, two)

    # All is done: neither the data nor the bank is needed to say so.
    with monkeypatch.context() as patch:
        patch.setattr("hapvr.training.run.load_clips", lambda *_: pytest.fail("the data was read"))
        with pytest.raises(SystemExit) as exit:
            main(["train", *words(frames, tmp_path / "run"), "--json"])
    assert exit.value.code == 0
    said = capsys.readouterr()
    assert "all 2 steps are done already" in said.err
    assert "bank" not in said.err
    record = json.loads(said.out)
    assert record["model"] == str(tmp_path / "run" / "model")
    again = load(tmp_path / "run" / "model").similarity
    for one, two in zip(again.parameters(), model.similarity.parameters(), strict=True):
        assert torch.equal(one, two)
    with pytest.raises(SystemExit) as exit:
        main(["train", *words(frames, tmp_path / "run", "optimiser.rate=0.5")])
    assert exit.value.code == 2
    assert "holds a run of other settings" in capsys.readouterr().err


def test_on_a_bare_node_without_a_bank(frames: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BARE, *words(frames, tmp_path / "run", "bank.weak=0", "bank.strong=0")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "tensorboard is not installed" in done.stdout
    assert "augment" in done.stdout.splitlines()[-2]
    assert (tmp_path / "run" / "model" / "config.json").exists()
    wrong = subprocess.run([*command[:3], "tiny", "run.sed=1"], capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2
    assert wrong.stderr == "error: [run] has no setting 'sed'; did you mean 'seed'?\n"


def test_a_preview_of_the_views(frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["train", "preview", *words(frames, tmp_path / "run"), "--output", str(tmp_path / "views.png"), "--json"])
    assert exit.value.code == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(tmp_path / "views.png"), "videos": 4}
    assert (tmp_path / "views.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        main(["train", "preview", *words(frames, tmp_path / "run"), "-o", str(tmp_path / "views.png"), "--clips", "9"])
    assert "views of 4 videos; there are no more\n" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.batch=5", "there are 4 videos, fewer than a batch of 5"),
        ("data.frames=''", "there is nothing to train on"),
        ("data.frames=nowhere", "is not a folder"),
        ("similarity.dims=64", "similarity.dims is 64; region vectors of 'lite-untrained' have 512"),
        ("model.base=light", "did you mean 'lite'"),
        ("views.size=64", "at least 112"),
        ("model.start=base", "[similarity] asks for another"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["train", *words(frames, tmp_path / "run", change)])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert change == "views.size=64" or not (tmp_path / "run").exists()  # the size is known to the backbone alone


def test_photographs_are_clips_beside_videos(frames: Path, tmp_path: Path) -> None:
    for number in range(2):
        Image.new("RGB", (160, 120), (90 * number, 20, 60)).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    clips = load_clips(load_config("tiny", [f"data.frames={frames}", f"data.pictures={tmp_path}"]), torch.device("cpu"))
    assert clips.ids == ("video 0", "video 1", "video 2", "video 3", "0.png", "1.png")
    assert [id for id, _ in clips.skipped] == ["broken.jpg"]
    assert clips.lengths.tolist() == [6, 6, 6, 6, 16, 16]
