"""A library's own calibration: drawn films and a real decoder, with a cheap eye in place of the backbone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.features import Features
from hapvr.library import Library, library_calibration, opening, versions
from hapvr.library.library_calibration import CalibrationProgress, compute_expectation
from hapvr.library.results import VideoRecord
from hapvr.library.store import NewVideo
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode
from hapvr.video.sampling import SamplingConfig
from tests.library.test_duplicates import record
from tests.library.toy import make

DIMS = 48
FILMS = 18


@dataclass(frozen=True)
class Eye:
    """A model that sees the colours of a coarse grid: two regions, the upper and the lower half."""

    name: str
    extractor: Any
    similarity: VideoSimilarity
    segments: SegmentConfig
    calibration: Calibration | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def features(self, path: str | Path) -> Features:
        frames = decode(path, fps=2.0, short_side=64, min_frames=8)
        images = torch.from_numpy(frames.images).float().movedim(3, 1) / 255
        grid = F.adaptive_avg_pool2d(images, (8, 4)).reshape(len(images), 3, 2, 16).transpose(1, 2).flatten(2)
        regions = F.normalize(grid - grid.mean(-1, keepdim=True), dim=-1)  # [T, 2, 48]
        return Features(regions, frames.timestamps, np.zeros(len(images), np.bool_))


def eye() -> Eye:
    config = SimilarityConfig(dims=DIMS, weighting="none", comparator=False, min_frames=1, temporal="chamfer")
    extractor = SimpleNamespace(device=torch.device("cpu"))
    return Eye("eye", extractor, VideoSimilarity(config).eval(), SegmentConfig())


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[VideoRecord, Features]]:
    """Drawn films on disk, and what the eye sees of them."""
    folder = tmp_path_factory.mktemp("films")
    found = []
    for seed in range(FILMS):
        path = folder / f"{seed}.mp4"
        write_clip(draw_scene(seed, seconds=2, fps=4, size=(48, 64)), path)
        features = eye().features(path)
        found.append((record(f"{seed}", f"hash{seed}", len(features), path=str(path), duration=2.0), features))
    return found


@pytest.fixture
def library(films: list[tuple[VideoRecord, Features]], tmp_path: Path) -> Iterator[Library]:
    opened = make(tmp_path / "library")
    opened._model = eye()  # type: ignore[assignment]
    with opened.write_access("a test") as store:
        store.write([NewVideo(one, store.new_key(), features) for one, features in films])
    yield opened
    opened.close()


def test_it_is_fitted_on_copies_and_other_pairs_kept_and_used(library: Library) -> None:
    assert library.model.calibration is None
    told: list[CalibrationProgress] = []
    report = library.calibrate(copies=20, pairs=200, progress=told.append)
    calibration = report.calibration
    linked = len(library_calibration._find_linked(library.store, library.base_model, lambda _: None))
    assert calibration.positives == 20
    drawn = math.ceil((1 + math.sqrt(801)) / 2)  # 15 videos give 210 pairs
    assert drawn * (drawn - 1) - 2 * linked <= calibration.negatives <= drawn * (drawn - 1)
    assert {now.stage for now in told} == {"duplicates", "copies", "pairs"}
    assert sum(of for _, of in report.kinds.values()) == 20
    assert report.failed == ()
    # It is used from now on, here and by whoever opens the library next.
    reopened = Library.open(library.path)
    reopened._model = eye()  # type: ignore[assignment]
    for score in (-0.2, 0.3, 0.9):
        for model in (library.model, reopened.model):
            assert model.calibration is not None
            assert model.calibration.probability(score) == calibration.probability(score)
    hits = library.search(library.videos()[0].id, k=3).hits
    assert all(hit.probability is not None for hit in hits)
    links = library.find_duplicates(min_strength=0.05).links
    assert {bool(link.segments) for link in links} == {link.probability is not None for link in links}
    content = report.to_json()
    assert content["positives"] == 20
    assert content["expected"][0]["threshold"] == report.expected[0].threshold


def test_expectations_are_counted_by_hand() -> None:
    rng = np.random.default_rng(0)
    positive, negative = rng.uniform(0.5, 1, 100), rng.uniform(-0.5, 0.5, 5000)
    calibration = fit_calibration(positive, negative)
    found = compute_expectation(calibration, positive, 0.6, database=1001)
    recall = sum(score >= 0.6 for score in positive.tolist()) / 100
    wrong = calibration.false_per_million(0.6) / 1e6 * 1000
    assert found.recall == pytest.approx(recall)
    assert found.precision == pytest.approx(recall / (recall + wrong))
    # Law: a larger database is no more precise, a higher threshold finds no more.
    before = found
    for database in (10_000, 100_000):
        now = compute_expectation(calibration, positive, 0.6, database=database)
        assert now.precision <= before.precision
        before = now
    recalls = [compute_expectation(calibration, positive, score, database=10).recall for score in np.linspace(0, 1, 11)]
    assert recalls == sorted(recalls, reverse=True)


def test_a_duplicate_is_no_pair_without_a_match(library: Library) -> None:
    keys = sorted(library.store.catalog().keys.tolist())
    plain = library_calibration._score_pairs(library.store, library.model, keys, set(), 10**6, 0, lambda _: None)
    assert len(plain) == FILMS * (FILMS - 1)
    pair = frozenset(keys[:2])
    fewer = library_calibration._score_pairs(library.store, library.model, keys, {pair}, 10**6, 0, lambda _: None)
    one, other = (library.store.features(key).regions for key in keys[:2])
    left_out = [library.model.similarity.score(one, other).item(), library.model.similarity.score(other, one).item()]
    assert len(fewer) == len(plain) - 2
    assert plain.sum() - fewer.sum() == pytest.approx(sum(left_out), abs=0.02)
    # Slowly: every ordered pair once.
    regions = [library.store.features(key).regions for key in keys]
    score = library.model.similarity.score
    slow = [score(a, b).item() for i, a in enumerate(regions) for j, b in enumerate(regions) if i != j]
    assert sorted(plain) == pytest.approx(sorted(slow), abs=6e-3)


def drawn_scores(
    monkeypatch: pytest.MonkeyPatch, library: Library, positive: Any, negative: Any, videos: int | None = None
) -> None:
    """Calibrating with these scores, and without editing videos; as if the library had `videos`."""
    one = library.videos()[0]
    copies = [library_calibration._Copy(one, "none", library.features(one.id).regions, None)] * len(positive)
    monkeypatch.setattr(library_calibration, "_make_copies", lambda *_: copies)
    monkeypatch.setattr(library_calibration, "_find_linked", lambda *_: set())
    monkeypatch.setattr(library_calibration, "_score_copies", lambda *_: np.array(positive))
    monkeypatch.setattr(library_calibration, "_score_pairs", lambda *_: np.array(negative))
    if videos is not None:
        monkeypatch.setattr(library_calibration, "_find_contents", lambda _: dict.fromkeys(range(videos), one))


def test_too_few_pairs_without_a_match_are_refused(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    drawn_scores(monkeypatch, library, rng.uniform(0.6, 1, 40), rng.uniform(0, 0.4, 199))
    with pytest.raises(DataError, match=r"Only 199 pairs of the 18 videos of .* are without a match; 200 are needed"):
        library.calibrate()
    assert not (library.store.folder / versions.CALIBRATION).exists()


def test_a_fit_that_means_nothing_is_refused_and_the_old_one_stays(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    drawn_scores(monkeypatch, library, rng.beta(5, 2, 100), rng.beta(1.2, 8, 10_000))
    assert library.calibrate().warnings == ()
    kept = (library.store.folder / versions.CALIBRATION).read_bytes()
    alike = rng.uniform(0, 0.4, 2000)
    drawn_scores(monkeypatch, library, alike[:40], alike)  # copies score as everything does
    with pytest.raises(DataError, match=r"Scores do not tell copies from other videos .* probability of 0\.\d\d only"):
        library.calibrate()
    assert (library.store.folder / versions.CALIBRATION).read_bytes() == kept


def test_what_pairs_are_too_few_for_is_said(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    drawn_scores(monkeypatch, library, rng.uniform(0.6, 1, 40), rng.uniform(0, 0.4, 300), videos=1000)
    report = library.calibrate()
    # By hand: 300 pairs are of 18 videos, which show odds of 6 to 1 at most.
    assert 0.8 < report.at_best < 6 / 7
    (warning,) = report.warnings
    assert f"even a hit that scores 1 has a probability of {report.at_best:.2f} only" in warning
    assert "300 pairs of 18 videos speak for no more" in warning
    assert report.to_json()["warnings"] == [warning]
    assert report.to_json()["at_best"] == report.at_best
    for count, warned in ((700, True), (1000, False)):  # of 27 and of 33 videos: odds below 9 and 11 to 1
        drawn_scores(monkeypatch, library, rng.beta(5, 2, 500), rng.beta(1.2, 8, count), videos=1000)
        report = library.calibrate()
        assert report.at_best == report.calibration.probability(1.0)
        assert bool(report.warnings) == (report.at_best < 0.9) == warned


def test_without_files_or_videos_it_refuses(library: Library, tmp_path: Path) -> None:
    with make(tmp_path / "empty") as empty:
        empty._model = eye()  # type: ignore[assignment]
        with pytest.raises(DataError, match="at least 16 different videos"):
            empty.calibrate()
    with library.write_access("a test") as store:
        gone = [dataclasses.replace(one, path="/nowhere" + one.path) for one in library.videos()]
        catalog = store.catalog()
        keys = [int(catalog.keys[catalog.row(one.id)]) for one in gone]
        store.put_records(list(zip(gone, keys, strict=True)), moved=[one.id for one in gone])
    with pytest.raises(DataError, match=r"None of the files .* Bring some of them back"):
        library.calibrate()
    assert not (library.store.folder / versions.CALIBRATION).exists()


def test_files_that_cannot_be_read_are_named(library: Library, tmp_path: Path) -> None:
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    with library.write_access("a test") as store:
        features = library.features("3")
        store.write([NewVideo(record("bad", "hashbad", len(features), path=str(bad)), store.new_key(), features)])
    made = list(
        library_calibration._make_copies([library.get("bad"), library.get("3")], library.model, 2, 0, lambda _: None)
    )
    assert sorted((copy.record.id, copy.regions is None, copy.error is None) for copy in made) == [
        ("3", False, True),
        ("bad", True, False),
    ]


def test_options_that_make_no_sense_are_refused(library: Library) -> None:
    for options in ({"copies": 3}, {"pairs": 10}, {"seed": -1}, {"copies": 20.5}, {"pairs": True}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            library.calibrate(**options)


def test_a_damaged_file_is_named_and_so_is_one_that_is_gone(library: Library) -> None:
    rng = np.random.default_rng(0)
    fitted = fit_calibration(rng.uniform(0.2, 1, 50), rng.uniform(-1, 0.6, 500))
    with library.write_access("a test") as store:
        path = opening.save_calibration(store, fitted)
    assert library.model.calibration is not None
    path.write_text(path.read_text()[:100])
    with pytest.raises(StorageError, match=r"calibration\.json' is damaged.*fit it again: hapvr calibrate"):
        _ = library.model
    path.write_text('{"slope": 1}')
    with pytest.raises(StorageError, match="damaged"):
        _ = library.model
    path.unlink()
    with pytest.raises(StorageError, match=r"calibration\.json' is missing.*fit it again: hapvr calibrate"):
        _ = library.model
    library.calibrate(copies=20, pairs=200)  # which does not need the one that is gone
    assert library.model.calibration is not None


def test_it_belongs_to_the_model_that_was_there(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is rebuilt while the copies are made keeps nothing of it."""

    def slow(*_: Any) -> Any:
        for one in library.videos() * 2:
            yield library_calibration._Copy(one, "none", library.features(one.id).regions, None)
        settings = dataclasses.replace(library.settings, fps=2.0)
        versions.write_settings(library.store.folder, settings)
        library._store = type(library.store)(library.store.folder)

    monkeypatch.setattr(library_calibration, "_make_copies", slow)
    with pytest.raises(StorageError, match="rebuilt meanwhile"):
        library.calibrate(copies=20, pairs=200)
    assert not (library.store.folder / versions.CALIBRATION).exists()
