"""A video that another one shows in a window is found on every surface that reads the files of queries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hapvr
from hapvr.errors import StorageError
from hapvr.evaluation.benchmarks import open_benchmark
from hapvr.evaluation.extraction import extract_insets, extract_videos
from hapvr.evaluation.segment_metrics import measure_localisation
from hapvr.features import FeatureFile, FeatureWriter
from hapvr.features.video_extraction import find_insets
from hapvr.library import Library
from hapvr.matching import Match, choose_best, describe_video, describe_views, match_videos
from hapvr.model import Model, load
from hapvr.server.app import create_app
from hapvr.server.settings import ServerSettings
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.verdict_evaluation import describe_insets
from tests.commands import run
from tests.server.driving import BASE, CheckedClient, Place

WINDOW = (
    202,
    16,
    306,
    88,
)  # of the reaction's 320 x 224 pixels, for the most part outside of the square that models see


@pytest.fixture(scope="module")
def lite() -> Model:
    return load()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films, a reaction (one film in a window over a film that is not among them), and a library of the films."""
    folder = tmp_path_factory.mktemp("insets")
    (folder / "films").mkdir()
    size = (224, 320)
    scenes = [draw_scene(seed, seconds=9, fps=6, size=size) for seed in range(4)]
    for seed, scene in enumerate(scenes[:3]):
        write_clip(scene, folder / "films" / f"{seed}.mp4")
    left, top, right, bottom = WINDOW
    small = pixels.resize(scenes[1].images, (bottom - top, right - left))
    write_clip(Clip(pixels.place_in(small, scenes[3].images, top, left), 6), folder / "reaction.mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([folder / "films"], workers=1)
    return folder


@pytest.fixture(scope="module")
def reaction(folder: Path) -> Path:
    return folder / "reaction.mp4"


def is_about(box: object) -> bool:
    return bool(np.abs(np.subtract(box, WINDOW)).max() <= 6)  # type: ignore[call-overload]


def test_a_video_is_described_by_its_window_too(folder: Path, reaction: Path, lite: Model) -> None:
    whole, inner = describe_views(reaction, lite)
    plain = describe_video(reaction, lite)
    assert whole.inset is None
    assert bool((whole.features.regions == plain.features.regions).all())  # as if there was no window
    assert is_about(inner.inset)
    assert inner.crop == inner.inset
    assert inner.times.tolist() == whole.times.tolist()
    height, width = inner.pictures([3])[0].shape[:2]
    assert width / height == pytest.approx(104 / 72, rel=0.1)
    assert [view.inset for view in describe_views(folder / "films" / "0.mp4", lite)] == [None]


def test_a_part_of_a_video_has_the_window_of_that_part(reaction: Path, lite: Model) -> None:
    _, inner = lite.extractor.extract_views(reaction, start_s=3.0, end_s=7.0)
    assert is_about(inner.inset)
    assert inner.features.times.min() >= 3
    assert inner.features.times.max() < 7


@pytest.fixture(scope="module")
def match(folder: Path, reaction: Path, lite: Model) -> Match:
    return hapvr.compare(reaction, folder / "films" / "1.mp4", model=lite)


def test_compare_finds_the_film_in_the_window(match: Match) -> None:
    assert match.verdict.match
    assert is_about(match.query.inset)
    assert match.verdict.reason.startswith("In a window of the query: along")
    assert match.segments[0].query == pytest.approx((0, 9), abs=0.6)
    assert match.segments[0].target == pytest.approx((0, 9), abs=0.6)
    said = match.to_json()["insets"]
    assert is_about(said["query"])
    assert said["target"] is None


def test_compare_finds_it_the_other_way_round_too(folder: Path, reaction: Path, lite: Model) -> None:
    turned = hapvr.compare(folder / "films" / "1.mp4", reaction, model=lite)
    assert turned.verdict.match
    assert is_about(turned.target.inset)
    assert turned.query.inset is None
    assert turned.verdict.reason.startswith("In a window of the target: ")


def test_a_window_makes_no_match_worse(folder: Path, reaction: Path, lite: Model) -> None:
    """The host is still what matches the host; and without a window nothing changes, the reason included."""
    itself = hapvr.compare(reaction, reaction, model=lite)
    assert itself.verdict.match
    assert itself.score == pytest.approx(1, abs=0.01)
    films = [describe_video(folder / "films" / f"{seed}.mp4", lite) for seed in range(2)]
    plain = match_videos(*films, model=lite)
    best = choose_best([plain])
    assert best is plain
    assert best.to_json()["insets"] is None


def test_search_finds_the_film_in_the_window(folder: Path, reaction: Path, match: Match) -> None:
    with Library.open(folder / "library") as library:
        found = library.search(reaction, k=3)
        (hit,) = found.matches
        assert Path(hit.path).name == "1.mp4"
        assert is_about(hit.inset)
        assert hit.verdict.reason.startswith("In a window of the query: ")
        assert hit.probability == pytest.approx(match.probability, abs=0.02)  # regions are stored coarsely
        assert hit.to_json()["insets"] == {"query": list(hit.inset or ()), "target": None}
        assert found.scored == 3
        part = library.search(reaction, start_s=2.0, end_s=6.0, k=1).hits[0]
        assert part.verdict.match
        assert all(1.5 <= time_s <= 6.5 for time_s in part.segments[0].query)
        shown, missing = library.explain_hits(reaction, found)
        assert missing == []
        assert shown[0].query.inset == hit.inset
        compared = library.compare(reaction, hit.id)
        assert compared.verdict.match
        assert compared.query.inset == hit.inset
        turned = library.compare(hit.id, reaction)
        assert turned.target.inset == hit.inset
        ordinary = library.search(folder / "films" / "0.mp4", k=3).hits
        assert all(one.inset is None for one in ordinary)


def test_an_upload_is_looked_into_as_well(folder: Path, reaction: Path) -> None:
    app = create_app(folder / "library", settings=ServerSettings(max_searches_at_once=1))
    with CheckedClient(app, base_url=BASE) as client:
        place = Place(client, folder)
        begun = place.upload(reaction.read_bytes())
        hits = place.ended(begun)["result"]["hits"]
        assert hits[0]["name"] == "1.mp4"
        assert hits[0]["match"]
        assert is_about(hits[0]["insets"]["query"])
        pair = {"a": begun["query"], "b": hits[0]["id"]}
        compared = place.ended(place.begin("/api/compare", pair))["result"]
        assert compared["match"]
        assert compared["insets"] == hits[0]["insets"]


# --- evaluation ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benchmark(folder: Path) -> Path:
    """The films as database, the reaction and a film as queries."""
    kinds = {"reaction": ("reaction.mp4", "window", "1"), "plain": ("films/0.mp4", "copy", "0")}
    queries = {
        id: {"file": file, "kind": kind, "positives": [film], "segments": [[0.0, 9.0, film, 0.0, 9.0]]}
        for id, (file, kind, film) in kinds.items()
    }
    truth = {"queries": queries, "database": {str(seed): f"films/{seed}.mp4" for seed in range(3)}}
    (folder / "ground_truth.json").write_text(json.dumps(truth))
    return folder


def test_evaluate_takes_the_better_of_two_views(benchmark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_windows = hapvr.evaluate(benchmark, device="cpu")
    without = hapvr.evaluate(benchmark, device="cpu", insets=False)
    assert with_windows.scores is not None
    assert without.scores is not None
    assert (with_windows.insets, without.insets) == (1, 0)
    better, plain = with_windows.scores.values, without.scores.values
    assert with_windows.scores.queries == ("reaction", "plain")
    column = with_windows.scores.targets.index("1")
    assert better[0, column] > plain[0, column] + 0.2
    assert (better[0] >= plain[0]).all()
    assert (better[1] == plain[1]).all()
    assert with_windows.segments is not None
    assert without.segments is not None
    assert with_windows.segments["window"].f1 > 0.9
    assert with_windows.segments["copy"] == without.segments["copy"]
    code, text, _ = run(capsys, "evaluate", benchmark, "--device", "cpu")
    assert code == 0
    assert "1 query shows another video in a window, which was looked for too." in text
    code, text, _ = run(capsys, "evaluate", benchmark, "--device", "cpu", "--no-insets", "--json")
    assert json.loads(text)["insets"] == 0


@pytest.mark.parametrize("inner", ["1", "2"])
def test_segments_are_those_of_the_view_with_the_higher_score(
    benchmark: Path, tmp_path: Path, lite: Model, inner: str
) -> None:
    """One view is the film that is looked for, the other one is another film."""
    films = {str(seed): lite.features(benchmark / "films" / f"{seed}.mp4") for seed in range(3)}
    whole = {"1": "2", "2": "1"}[inner]
    for name, videos in (("f.h5", {**films, "reaction": films[whole]}), ("i.h5", {"reaction": films[inner]})):
        with FeatureWriter(tmp_path / name, attributes={"model": "lite"}) as writer:
            for id, features in videos.items():
                writer.add(id, features)
    options = {"config": lite.segments, "negatives": 0}
    truth = open_benchmark(benchmark)
    found = measure_localisation(lite.similarity, truth, tmp_path / "f.h5", query_insets=tmp_path / "i.h5", **options)  # type: ignore[arg-type]
    assert found["window"].f1 > 0.95


def test_windows_are_looked_for_once(
    folder: Path, tmp_path: Path, lite: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"reaction": folder / "reaction.mp4", "plain": folder / "films" / "0.mp4"}
    out = tmp_path / "f.h5"
    extract_videos(lite.extractor, files, out, model="lite")
    inner = extract_insets(lite.extractor, files, out, model="lite")
    assert inner == tmp_path / "f-insets.h5"
    with FeatureFile.open(inner) as file:
        assert list(file.ids) == ["reaction"]
    found = json.loads((tmp_path / "f-insets.json").read_text())
    assert is_about(found["reaction"])
    assert found["plain"] is None
    monkeypatch.setattr("hapvr.evaluation.extraction.find_insets", lambda *_, **__: pytest.fail("looked again"))
    assert extract_insets(lite.extractor, files, out, model="lite") == inner
    assert extract_insets(lite.extractor, {"plain": files["plain"]}, out, model="lite") is None
    (tmp_path / "f-insets.json").write_text("[")
    with pytest.raises(StorageError, match=r"f-insets\.json' cannot be read"):
        extract_insets(lite.extractor, files, out, model="lite")


def test_files_that_cannot_be_read_have_no_window(folder: Path, tmp_path: Path, lite: Model) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    files = {"reaction": folder / "reaction.mp4", "bad": tmp_path / "bad.mp4", "gone": tmp_path / "gone.mp4"}
    found = find_insets(files, lite.sampling, workers=1)
    assert list(found) == ["reaction"]
    assert is_about(found["reaction"])
    assert list(describe_insets(files, lite)) == ["reaction"]
