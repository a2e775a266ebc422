"""Where to compute: names, messages, and equal answers of one device, of two, and of a GPU where there is one.

On a GPU machine without PyAV, typer, a storage engine or pytest: `python -m tests.test_devices` runs CHECKS (or the one
that is named) on packed frames, and prints the largest differences of vectors, scores, segments and evidence.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.devices import describe_devices, find_device, find_devices
from hapvr.errors import ConfigError
from hapvr.features import Features, PackedFrames, PackedWriter
from hapvr.features.video_extraction import extract_packed
from hapvr.matching import describe_features, match_videos
from hapvr.model import Model, load
from hapvr.model.loading import require_same_answers
from hapvr.similarity import pairwise
from hapvr.synthetic.films import draw_scene

if TYPE_CHECKING:
    import pytest
else:
    try:
        import pytest
    except ImportError:  # on a GPU machine, where the checks below run by themselves
        from unittest import mock

        pytest = mock.MagicMock()

_VIDEOS, _FRAMES = 7, (5, 12)
_LONG, _COPY = 16, slice(3, 14)  # frames of a video, and those that a copy of it shows
_LIMITS = {"score": 0.02, "probability": 0.1, "end_s": 1.0, "evidence": 0.05}  # a second is a frame here


def _draw_videos() -> dict[str, NDArray[np.uint8]]:
    """Soft noise that moves, uint8 [T, S, S, 3] each."""
    generator = torch.Generator().manual_seed(3)
    videos = {}
    for number in range(_VIDEOS):
        count = int(torch.randint(*_FRAMES, (1,), generator=generator))
        coarse = torch.rand((1, 3, 7, 7), generator=generator) + 0.3 * torch.rand((count, 3, 7, 7), generator=generator)
        soft = torch.nn.functional.interpolate(coarse / 1.3, (240, 240), mode="bicubic").clamp(0, 1)
        videos[f"video {number}"] = (255 * soft).byte().permute(0, 2, 3, 1).numpy()
    return videos


def _draw_copies() -> dict[str, NDArray[np.uint8]]:
    """Two drawn films, and of each a part: brighter, and cut at its edges."""
    videos: dict[str, NDArray[np.uint8]] = {}
    for seed, name in ((10, "one"), (11, "two")):
        film = draw_scene(seed, seconds=_LONG, fps=1, size=(240, 240)).images
        cut = torch.from_numpy(film[_COPY, 12:-12, 12:-12] / 255).permute(0, 3, 1, 2) ** 0.8
        larger = torch.nn.functional.interpolate(cut, (240, 240), mode="bilinear")
        videos |= {name: film, f"copy of {name}": (255 * larger).byte().permute(0, 2, 3, 1).contiguous().numpy()}
    return videos


def _extract(model: Model, videos: dict[str, NDArray[np.uint8]]) -> dict[str, Features]:
    found: dict[str, Features] = {}
    with tempfile.TemporaryDirectory() as folder:
        with PackedWriter(Path(folder) / "packed", workers=1) as writer:
            for id, images in videos.items():
                writer.add(id, images, np.arange(len(images), dtype=np.float64))
        packed = PackedFrames.open(Path(folder) / "packed")
        report = extract_packed(model.extractor, packed, found.__setitem__, workers=1, dtype=torch.float32)
    assert not report.failed
    assert len(report.done) == len(videos)
    return found


def _compare_devices(one: Model, other: Model, *, vectors: float, scores: float) -> None:
    """Region vectors, and scores of all pairs, within tolerances; the nearest other video is the same."""
    drawn = _draw_videos()
    found = [_extract(model, drawn) for model in (one, other)]
    for id, features in found[0].items():
        cosine = torch.nn.functional.cosine_similarity(features.regions, found[1][id].regions, dim=-1)
        assert 1 - float(cosine.min()) <= vectors, (id, 1 - float(cosine.min()))
    tables = []
    for model, videos in zip((one, other), found, strict=True):
        regions = [videos[id].regions for id in sorted(videos)]
        tables.append(torch.stack([pairwise(network, regions, regions) for network in model.networks]))
    difference = float((tables[0][:1] - tables[1]).abs().max())
    print(f"largest difference of a score {difference:.2g}")
    assert difference <= scores
    without_itself = [table[0] - 2 * torch.eye(_VIDEOS) for table in tables]
    margin = without_itself[0].topk(2).values.diff().abs().squeeze(1) > 2 * scores
    assert torch.equal(*(table.argmax(1)[margin] for table in without_itself))


def _compare_verdicts(one: Model, other: Model) -> None:
    """Verdicts are the same, scores and probabilities close; of copies the segments and the evidence too.

    The evidence of two videos that share nothing is that of any stretch: a rounding error may choose another.
    """
    drawn = _draw_copies()
    described = []
    for model in (one, other):
        found = _extract(model, drawn)
        described.append({id: describe_features(model, features, path=id) for id, features in found.items()})
    largest = dict.fromkeys(_LIMITS, 0.0)
    for a, b in itertools.combinations(sorted(drawn), 2):
        matches = [
            match_videos(videos[a], videos[b], model=model)
            for model, videos in zip((one, other), described, strict=True)
        ]
        here, there = (match.verdict for match in matches)
        print(f"{a}, {b}: {here.kind}, {here.probability:.4f} and {there.probability:.4f}")
        assert here.kind == there.kind == ("copy" if a == f"copy of {b}" else "no match")
        segments, others = (match.segments for match in matches)
        assert len(segments) == len(others)
        ends = [abs(x - y) for s, o in zip(segments, others, strict=True)
                for x, y in zip((*s.query, *s.target), (*o.query, *o.target), strict=True)]  # fmt: skip
        assert here.evidence.keys() == there.evidence.keys()
        differences = {
            "score": abs(matches[0].score - matches[1].score),
            "probability": abs((here.probability or 0) - (there.probability or 0)),
            "end_s": max(ends, default=0.0),
            "evidence": max(abs(here.evidence[name] - there.evidence[name]) for name in here.evidence)
            if here.match
            else 0.0,
        }
        largest = {name: max(value, differences[name]) for name, value in largest.items()}
    print("largest differences", {name: round(value, 5) for name, value in largest.items()})
    assert all(largest[name] <= limit for name, limit in _LIMITS.items()), largest


def two_devices_agree() -> None:
    """Two stand-ins on the CPU, or two on the GPU: each takes some of the batches."""
    place = "cuda:0" if torch.cuda.is_available() else "cpu"
    both = load(device=f"{place},{place}", engine="torch")
    assert len(both.networks) == 2
    used: list[int] = []
    met = threading.Barrier(2, timeout=60)  # the first batch of each waits for that of the other
    for number, extractor in enumerate((both.extractor, *both.extractor.copies)):
        extractor.batch = 4  # several batches of a few pictures
        plain = extractor.regions

        def regions(pictures: torch.Tensor, number: int = number, plain: object = plain) -> torch.Tensor:
            first = number not in used
            used.append(number)
            if first:
                met.wait()
            return plain(pictures)  # type: ignore[operator, no-any-return]

        extractor.regions = regions  # type: ignore[method-assign]
    _compare_devices(load(device=place, engine="torch"), both, vectors=1e-3, scores=5e-3)
    assert set(used) == {0, 1}


def the_gpu_agrees_with_the_cpu() -> None:
    """All GPUs of the machine, in bfloat16, and the CPU in what is fast there."""
    cpu, gpu = load(device="cpu", engine="torch"), load(device="cuda")
    _compare_devices(cpu, gpu, vectors=0.02, scores=0.02)
    _compare_verdicts(cpu, gpu)


CHECKS = {check.__name__: check for check in (two_devices_agree, the_gpu_agrees_with_the_cpu)}


def test_two_devices_agree() -> None:
    two_devices_agree()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_gpu_agrees_with_the_cpu() -> None:
    the_gpu_agrees_with_the_cpu()


def test_work_goes_to_whoever_is_free() -> None:
    """One worker waits for the other to have done all the rest: in turn, that would never end."""
    from hapvr.workers.threads import share_work

    rest_done, done = threading.Event(), []

    def wait(item: int) -> tuple[str, int]:
        if item == 0:
            assert rest_done.wait(60)
        return work(item)

    def work(item: int) -> tuple[str, int]:
        done.append(item)
        if len(done) == 5:
            rest_done.set()
        return "done", item

    assert share_work([wait, wait], range(6)) == [("done", item) for item in range(6)]
    assert done[-1] == 0


def _pretend(monkeypatch: pytest.MonkeyPatch, gpus: int, *, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    monkeypatch.setattr(torch.version, "cuda", "12.8" if gpus else None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("name", "gpus", "mps", "expected"),
    [
        ("auto", 0, False, "cpu"),
        ("auto", 0, True, "mps"),
        ("auto", 2, False, "cuda:0 cuda:1"),
        ("cpu", 2, False, "cpu"),
        ("cuda", 3, False, "cuda:0 cuda:1 cuda:2"),
        ("cuda:1", 2, False, "cuda:1"),
        ("cuda:0, cuda:2", 3, False, "cuda:0 cuda:2"),
        ("mps", 0, True, "mps"),
    ],
)
def test_names_of_devices(name: str, gpus: int, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, gpus, mps=mps)
    assert " ".join(map(str, find_devices(name))) == expected


def test_the_first_gpu_is_the_device_of_what_uses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, 0, mps=True)
    assert str(find_device(None)) == "cpu"
    _pretend(monkeypatch, 2)
    assert [str(find_device(name)) for name in (None, "auto", "cuda", "cuda:1")] == ["cuda:0"] * 3 + ["cuda:1"]


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("cuda", 0, "There is no device 'cuda' here: torch .* is built without CUDA; .*Give cpu or auto, or install"),
        ("cuda:2", 2, r"'cuda:2' here: torch .* finds 2 GPUs: GPU 0, GPU 1; .* Give cpu or auto\."),
        ("mps", 1, "'mps' here: .* is not there"),
        ("gpu", 1, "There is no device 'gpu': give auto, cpu, cuda"),
        ("cpu,cuda:0", 1, "mixes kinds of devices"),
        ("cpu,", 0, "There is no device 'cpu,'"),
    ],
)
def test_a_device_that_is_not_here(name: str, gpus: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, gpus)
    with pytest.raises(ConfigError, match=message):
        find_devices(name)


def test_answers_of_another_network_are_refused() -> None:
    model = load(engine="torch")
    other = load()
    reference = (model.extractor, model.similarity)
    require_same_answers(other.extractor, other.similarity, *reference)  # another engine, in another precision, passes
    wrong = load(engine="torch")
    next(wrong.extractor.backbone.parameters()).mul_(-0.5)
    wrong.extractor._torch = wrong.extractor._make_torch_engine()
    with pytest.raises(ConfigError, match="differ from those of the CPU"):
        require_same_answers(wrong.extractor, wrong.similarity, *reference)


def test_apples_gpu_is_left_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where torch lacks an operation on `mps`."""
    _pretend(monkeypatch, 0, mps=True)
    from hapvr.model import loading

    plain = loading._load_on

    def refuse(name: str, devices: tuple[torch.device, ...], engine: str | None, int8: bool = False) -> Model:
        if devices[0].type == "mps":
            raise NotImplementedError("no such operation")
        return plain(name, devices, engine, int8)

    monkeypatch.setattr(loading, "_load_on", refuse)
    with pytest.warns(RuntimeWarning, match="'mps' cannot be used: no such operation The CPU computes instead"):
        assert load(device="auto").extractor.device.type == "cpu"
    with pytest.raises(ConfigError, match="Give cpu as the device"):
        load(device="mps")


def test_a_search_on_two_devices_gives_the_same_hits(tmp_path: Path) -> None:
    from hapvr.features import FeatureWriter
    from hapvr.library import Library
    from hapvr.library.stored_scores import score_contents

    model = load()
    dims = model.similarity.config.dims
    generator = torch.Generator().manual_seed(0)
    videos = {}
    for number in range(40):
        regions = torch.nn.functional.normalize(torch.randn((6 + number % 9, 9, dims), generator=generator), dim=-1)
        count = len(regions)
        videos[f"{number}.mp4"] = Features(regions, np.arange(count, dtype=np.float64), np.zeros(count, np.bool_))
    attributes: dict[str, str | float] = {"model": model.name, "fps": model.sampling.fps, "keyframes": False}
    with FeatureWriter(tmp_path / "features.h5", attributes=attributes) as writer:
        for id, features in videos.items():
            writer.add(id, features)
    with Library.open(tmp_path / "library", create=True) as library:
        library.import_features(tmp_path / "features.h5")
    hits, scores = [], []
    for device in ("cpu", "cpu,cpu"):
        with Library.open(tmp_path / "library", device=device) as library:
            assert len(library.model.networks) == len(device.split(","))
            found = library.search(videos["7.mp4"], exact=True, k=40).hits
            assert len(found) == 40
            hits.append([(hit.path, hit.score) for hit in found])
            keys = library.store.catalog().contents.tolist()
            scores.append(score_contents(library.store, library.model, videos["7.mp4"], keys))
    assert hits[0] == hits[1]
    assert len(scores[0]) == 40
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_device_that_is_not_here_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """As a user types it; `cuda:99` is nowhere."""
    (tmp_path / "film.mp4").write_bytes(b"of a folder with videos")
    command = [sys.executable, "-m", "hapvr", "add", str(tmp_path / "library"), str(tmp_path), "--device", "cuda:99"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 2
    assert run.stderr.startswith("error: --device: There is no device 'cuda:99' here: torch ")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "library").exists()
    assert describe_devices()[:-1] in run.stderr


def test_verdicts_agree_between_engines() -> None:
    """The check of a GPU, on the CPU: in full precision, and in what is fast there."""
    exact = load(engine="torch")
    exact.extractor.precision = torch.float32
    exact.extractor._torch = exact.extractor._make_torch_engine()
    _compare_verdicts(exact, load())


if __name__ == "__main__":
    for name in sys.argv[1:] or CHECKS:
        torch.manual_seed(0)
        CHECKS[name]()
        print(name, "on", describe_devices())
