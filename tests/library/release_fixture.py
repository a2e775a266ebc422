"""Makes the fixture of a release: a library and a model as it writes them, and what it answers.

    python -m tests.library.release_fixture

writes `tests/library/fixtures/release-VERSION.zip`. It is made once, when a release is, and kept: `test_upgrade.py`
lets every later release open it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hapvr import __version__
from hapvr.library import Library
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

FIXTURES = Path(__file__).parent / "fixtures"


def make_fixture(folder: Path) -> None:
    """Write `library`, `model`, `features.safetensors` and `answers.json` into a folder."""
    films = folder / "films"
    films.mkdir()
    scenes = [draw_scene(seed, seconds=6, fps=8, size=(96, 128)) for seed in range(3)]
    for seed, scene in enumerate(scenes):
        write_clip(scene, films / f"film{seed}.mp4")
    write_clip(Clip(scenes[1].images[8:40], scenes[1].fps), films / "clip.mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([films], workers=1)
        ids = {Path(record.path).stem: record.id for record in library.videos()}
        library.mark_distinct(ids["film0"], ids["film2"])
    torch.manual_seed(0)
    network = VideoSimilarity(SimilarityConfig(dims=16)).eval()
    with torch.no_grad():
        for value in network.parameters():
            value.copy_((value * 32).round() / 32)  # few different numbers take little room in the archive
    network.save_pretrained(folder / "model")
    save_file({name: torch.randn(9, 4, 16).round(decimals=1) for name in ("a", "b")}, folder / "features.safetensors")
    shutil.rmtree(films)
    (folder / "answers.json").write_text(json.dumps(read_answers(folder), indent=1) + "\n")


def read_answers(folder: Path) -> dict[str, Any]:
    """What the library and the model of a fixture say: hits of each video, and the score of two drawn ones."""
    said: dict[str, Any] = {}
    with Library.open(folder / "library") as library:
        for record in library.videos():
            found = library.search(record.id, k=3, exact=True)
            said[record.id] = [[hit.id, hit.verdict.kind, round(hit.score, 4)] for hit in found.hits]
    features = load_file(folder / "features.safetensors")
    with torch.no_grad():
        network = VideoSimilarity.from_pretrained(folder / "model")
        score = network.score(*(torch.nn.functional.normalize(features[name], dim=-1) for name in ("a", "b")))
    return {"version": __version__, "hits": said, "score": round(float(score), 4)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hapvr-release-") as place:
        make_fixture(Path(place))
        shutil.make_archive(str(FIXTURES / f"release-{__version__}"), "zip", place)
