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
from hapvr.judge.evidence import PairFrames
from hapvr.judge.judge import Judge
from hapvr.judge.recalibration import JudgeCalibration
from hapvr.library import CalibrationReport, JudgeCalibrationReport, Library, library_calibration, opening, versions
from hapvr.library.judge_calibration import DescribedCopy, judge_pairs
from hapvr.library.library_calibration import CalibrationProgress, compute_expectation
from hapvr.library.results import VideoRecord
from hapvr.library.store import NewVideo
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.time_map import Segment as TimeSegment
from hapvr.synthetic.time_map import TimeMap
from hapvr.video.decode import decode
from hapvr.video.sampling import SamplingConfig
from tests.judge.test_judge import JUDGE
from tests.library.test_duplicates import record
from tests.library.toy import local, make

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
    judge: Judge | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def features(self, path: str | Path) -> Features:
        frames = decode(path, fps=2.0, short_side=64, min_frames=8)
        images = torch.from_numpy(frames.images).float().movedim(3, 1) / 255
        grid = F.adaptive_avg_pool2d(images, (8, 4)).reshape(len(images), 3, 2, 16).transpose(1, 2).flatten(2)
        regions = F.normalize(grid - grid.mean(-1, keepdim=True), dim=-1)  # [T, 2, 48]
        return Features(regions, frames.timestamps, np.zeros(len(images), np.bool_))

    @property
    def networks(self) -> tuple[VideoSimilarity, ...]:
        return (self.similarity,)


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
    assert isinstance(report, CalibrationReport)
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
    links = library.find_duplicates(min_probability=0.05).links
    assert links
    assert all(link.probability is not None and link.probability >= 0.05 for link in links)
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
    copies = [DescribedCopy(0, "none", "", library.features(one.id))] * len(positive)
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
    assert isinstance(report, CalibrationReport)
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
        assert isinstance(report, CalibrationReport)
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
    records, failed = {7: library.get("bad"), 8: library.get("3")}, dict[str, str]()
    made = library_calibration._make_copies(records, library.model, 2, 0, failed, lambda _: None)
    assert [copy.key for copy in made] == [8]
    assert list(failed) == [str(bad)]
    assert "bad.mp4" in failed[str(bad)]


def test_options_that_make_no_sense_are_refused(library: Library) -> None:
    for options in ({"copies": 3}, {"pairs": 10}, {"seed": -1}, {"copies": 20.5}, {"pairs": True}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            library.calibrate(**options)


def test_a_damaged_file_is_named_and_so_is_one_that_is_gone(library: Library) -> None:
    rng = np.random.default_rng(0)
    fitted = fit_calibration(rng.uniform(0.2, 1, 50), rng.uniform(-1, 0.6, 500))
    with library.write_access("a test") as store:
        path = local(opening.save_calibration(store, fitted))
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
        for key in library.store.catalog().contents.tolist() * 2:
            yield DescribedCopy(key, "none", "", library.store.features(key))
        settings = dataclasses.replace(library.settings, fps=2.0)
        versions.write_settings(library.store.folder, settings)
        library._store = type(library.store)(library.store.folder)

    monkeypatch.setattr(library_calibration, "_make_copies", slow)
    with pytest.raises(StorageError, match="rebuilt meanwhile"):
        library.calibrate(copies=20, pairs=200)
    assert not (library.store.folder / versions.CALIBRATION).exists()


# --- a model with a judge --------------------------------------------------------------------------------------------


@pytest.fixture
def judged(library: Library) -> Library:
    """The library with a model that has a judge."""
    judge = dataclasses.replace(JUDGE, prior=0.02, undecided=(-9.0, -8.5))  # no file is looked at a second time
    library._model = dataclasses.replace(eye(), judge=judge)  # type: ignore[assignment]
    return library


def test_of_a_judge_its_log_odds_are_fitted_kept_and_used(judged: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    base = judged.base_model.judge
    assert base is not None
    monkeypatch.setattr(library_calibration, "_find_linked", lambda *_: set())  # drawn films look much alike
    told: list[CalibrationProgress] = []
    report = judged.calibrate(copies=20, pairs=300, progress=told.append)
    assert isinstance(report, JudgeCalibrationReport)
    fitted = report.calibration
    assert (fitted.copies, report.videos) == (20, FILMS)
    assert 300 <= fitted.strangers < 310
    assert {now.stage for now in told} == {"copies", "pairs"}
    assert sum(of for _, of in report.kinds.values()) == 20
    assert sum(found for found, _ in report.kinds.values()) == report.after.found
    # Used from now on, here and by whoever opens the library next; the order of probabilities stays.
    reopened = Library.open(judged.path)
    reopened._model = judged.base_model
    expected = base.recalibrate(fitted)
    assert judged.model.judge == reopened.model.judge == expected
    assert judged.compare("0", "0").probability == pytest.approx(expected.probability(one_log_odds(judged)))
    content = report.to_json()
    assert content["after"]["false"] == report.after.false
    assert content["copies"] == 20
    # Fitted again it is the same: the judge as it was fitted counts, not the calibrated one.
    assert judged.calibrate(copies=20, pairs=300).calibration == fitted


def one_log_odds(library: Library) -> float:
    """The log odds of the first video with itself, by the judge as it was fitted."""
    judge, model = library.base_model.judge, library.base_model
    assert judge is not None
    features = library.features("0").with_timestamps(library.settings.fps).drop_flat()
    descriptors = model.similarity.make_descriptors(features.regions)
    matrix = model.similarity.frame_matrix_unchecked(descriptors, descriptors).detach().float().numpy()
    vectors = features.regions.float().mean(1).numpy()
    pair = PairFrames(matrix, matrix, features.times, features.times, None, None, vectors, vectors)
    return judge.decide(pair, model.segments).log_odds


def test_it_does_not_count_for_another_judge_or_for_scores(judged: Library) -> None:
    fitted = JudgeCalibration("another judge's digest", -5.0, 0.5, ((0.0, 10.0),), 20, 200, 18)
    with judged.write_access("a test") as store:
        opening.save_calibration(store, fitted)
    assert opening.read_calibration(judged.store) == fitted
    assert judged.model.judge == judged.base_model.judge
    # A model without a judge takes no notice of it either; one with a judge takes none of a calibration of scores.
    judged._model = eye()  # type: ignore[assignment]
    assert judged.model.calibration is None
    rng = np.random.default_rng(0)
    with judged.write_access("a test") as store:
        opening.save_calibration(store, fit_calibration(rng.uniform(0.2, 1, 50), rng.uniform(-1, 0.6, 500)))
    judged._model = dataclasses.replace(eye(), judge=JUDGE)  # type: ignore[assignment]
    assert judged.model.judge == JUDGE


def test_damage_of_a_judges_calibration_is_named(judged: Library) -> None:
    assert judged.base_model.judge is not None
    fitted = JudgeCalibration(judged.base_model.judge.digest(), -1.0, 0.5, ((0.0, 10.0),), 20, 200, 18)
    with judged.write_access("a test") as store:
        path = local(opening.save_calibration(store, fitted))
    assert judged.model.judge == judged.base_model.judge.recalibrate(fitted)
    whole = path.read_text()
    for damaged in (
        whole.replace("0.5", "0.7"),
        whole.replace('"judge"', '"julge"', 1),
        whole[:50],
        '{"kind": "judge"}',
    ):
        assert damaged != whole
        path.write_text(damaged)
        with pytest.raises(StorageError, match=r"calibration\.json' is damaged.*fit it again: hapvr calibrate"):
            _ = judged.model
    path.unlink()
    with pytest.raises(StorageError, match=r"calibration\.json' is missing.*fit it again: hapvr calibrate"):
        _ = judged.model


def test_a_duplicate_is_no_stranger_and_the_place_of_a_copy_is_checked(judged: Library) -> None:
    keys = sorted(judged.store.catalog().keys.tolist())
    features = judged.features("0").with_timestamps(judged.settings.fps)
    own = int(judged.store.catalog().keys[judged.store.catalog().row("0")])
    options: dict[str, Any] = {"pairs": 200, "seed": 0, "second_look": False, "progress": lambda *_: None}
    copies = [
        DescribedCopy(own, "none", "", features, TimeMap.of(TimeSegment(0, 99, start, start + 99))) for start in (0, 9)
    ]
    plain = judge_pairs(judged.store, judged.base_model, copies, keys, set(), **options)
    assert plain.right.tolist() == [True, False]
    assert plain.copies[0] == plain.copies[1] == pytest.approx(one_log_odds(judged))
    # By hand: each asks for 10 strangers, of 17; both copies, and all 18 videos.
    assert (plain.videos, len(plain.strangers), plain.population) == (FILMS, 200, 20 * 17)
    linked = {frozenset((own, key)) for key in keys if key != own and key not in keys[-3:]}
    fewer = judge_pairs(judged.store, judged.base_model, copies, keys, linked, **options)
    left = FILMS - 1 - len(linked)  # strangers of the first
    assert len(fewer.strangers) == 3 * left + (FILMS - 1) * 10
    assert fewer.population == 3 * left + len(linked) * (FILMS - 2) + left * (FILMS - 1)
