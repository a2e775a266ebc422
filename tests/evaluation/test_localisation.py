from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hapvr.errors import DataError
from hapvr.evaluation import Benchmark, Task, TrueSegment, measure_localisation, score_benchmark
from hapvr.evaluation.pair_records import Box
from hapvr.evaluation.scoring import match_names
from hapvr.evaluation.segment_metrics import find_boxes
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.similarity import SegmentConfig, VideoSimilarity
from hapvr.similarity.network import Symmetry
from tests.similarity import models

CONFIG = SegmentConfig(threshold=0.6)


def film(seed: int, frames: int = 30) -> torch.Tensor:
    return torch.nn.functional.normalize(
        torch.randn(frames, 9, 16, generator=torch.Generator().manual_seed(seed)), dim=-1
    )


def times(frames: int) -> np.ndarray:
    return np.arange(frames) * 0.5 + 0.25


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """Targets a and b; query q is the middle of a, query r is nothing's, query s is b with a flat frame."""
    a, b = film(1), film(2)
    s = b.clone()
    s[10] = a[10]  # it would match a frame of the other film, were it not flat
    with FeatureWriter(tmp_path / "features.h5") as writer:
        for id, regions in {"a": a, "b": b, "q": a[8:20], "r": film(3, 12)}.items():
            writer.add(id, Features(regions, times(len(regions))))
        flat = np.zeros(len(s), bool)
        flat[10] = True
        writer.add("s", Features(s, times(len(s)), flat))
    return tmp_path / "features.h5"


def benchmark(**changes: object) -> Benchmark:
    labels = {"q": {"a": "positive"}, "s": {"b": "positive"}, "r": {}}
    segments = {"q": (TrueSegment(0.0, 6.0, "a", 4.0, 10.0),), "s": (TrueSegment(0.0, 15.0, "b", 0.0, 15.0),)}
    settings = {"groups": {"q": "trim", "r": "trim", "s": "copy"}, "segments": segments, **changes}
    return Benchmark("mine", ("q", "r", "s"), ("a", "b"), labels, (Task("mAP", ("positive",)),), **settings)  # type: ignore[arg-type]


def plain(symmetry: Symmetry = "none") -> VideoSimilarity:
    return models.model(dims=16, weighting="none", comparator=False, min_frames=1, symmetry=symmetry)


def timed(regions: torch.Tensor) -> Features:
    return Features(regions, times(len(regions)))


def test_scored_both_ways_segments_are_found_in_the_mean_of_both_directions_by_hand() -> None:
    """Six pictures, and the same six in half of another video: 1 one way, a half the other, 3/4 in the mean."""
    own = torch.eye(16)
    narrow, wide = timed(torch.stack([own[:6], own[:6]], 1)), timed(torch.stack([own[:6], own[6:12]], 1))
    whole: list[Box] = [((0.0, 3.0), (0.0, 3.0))]
    cases: list[tuple[Symmetry, float, list[Box], list[Box]]] = [
        ("none", 0.6, whole, []), ("average", 0.6, whole, []), ("levels", 0.6, whole, whole),
        ("lengths", 0.6, whole, whole), ("lengths", 0.8, [], []), ("none", 0.8, whole, []),
    ]  # fmt: skip
    for symmetry, threshold, forth, back in cases:
        network, config = plain(symmetry), SegmentConfig(threshold=threshold, min_gain=0.5)
        assert find_boxes(network, narrow, wide, config) == forth
        assert find_boxes(network, wide, narrow, config) == back


@pytest.mark.parametrize("seed", range(8))
def test_scored_both_ways_the_segments_of_two_videos_are_the_same_the_other_way_round(seed: int) -> None:
    """The copy is a part of the film, half of whose regions show something else."""
    whole = film(seed)
    copy = torch.cat([whole[8:20, :4], film(seed + 100, 12)[:, 4:]], 1)
    a, b, config = timed(copy), timed(whole), SegmentConfig(threshold=0.6, min_gain=0.3)
    found = find_boxes(plain("lengths"), a, b, config)
    assert ((0.0, 6.0), (4.0, 10.0)) in found
    assert find_boxes(plain("lengths"), b, a, config) == [(target, query) for query, target in found]


def test_true_segments_are_found_and_strangers_have_none(features: Path) -> None:
    done = []
    figures = measure_localisation(plain(), benchmark(), features, config=CONFIG, progress=lambda *n: done.append(n))
    assert set(figures) == {"", "trim", "copy"}
    assert figures["trim"].f1 == pytest.approx(1)
    assert figures["trim"].boundary_error_s == pytest.approx(0)
    assert figures["copy"].precision == pytest.approx(1)
    # q has one stranger (b), r two, s one.
    assert (figures[""].true, figures[""].negative_pairs, figures[""].false_pairs) == (2, 4, 0)
    assert done[-1] == (3, 3)


def test_what_is_found_where_nothing_matches_is_counted(features: Path) -> None:
    wrong = benchmark(segments={})
    figures = measure_localisation(plain(), wrong, features, config=CONFIG)
    assert figures[""].true == 0
    assert figures[""].false_pairs == 0  # positives without a segment are no strangers
    loose = measure_localisation(plain(), wrong, features, config=SegmentConfig(threshold=-0.5))
    assert loose[""].false_pairs == loose[""].negative_pairs == 4


def test_a_benchmark_without_segments_is_refused(features: Path) -> None:
    with pytest.raises(DataError, match="does not say where"):
        measure_localisation(plain(), benchmark(segments=None), features)


def test_features_without_times_are_refused(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "f.h5") as writer:
        for id in ("q", "a"):
            writer.add(id, Features(film(1)))
    with pytest.raises(DataError, match="without timestamps"):
        measure_localisation(plain(), benchmark(), tmp_path / "f.h5")


def test_videos_are_known_by_their_files_names_too(features: Path, tmp_path: Path) -> None:
    with FeatureFile.open(features) as file, FeatureWriter(tmp_path / "extracted.h5") as writer:
        for id in file.ids:
            writer.add(f"clips/{id}.mp4", file[id])
    expected = score_benchmark(plain(), benchmark(), features).scores
    renamed = score_benchmark(plain(), benchmark(), tmp_path / "extracted.h5").scores
    assert expected is not None
    assert renamed is not None
    assert (renamed.queries, renamed.targets) == (expected.queries, expected.targets)
    assert np.array_equal(renamed.values, expected.values)
    figures = measure_localisation(plain(), benchmark(), tmp_path / "extracted.h5", config=CONFIG)
    assert figures["trim"].f1 == pytest.approx(1)


def test_a_name_that_two_files_could_have_is_nobodys(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "f.h5") as writer:
        for id in ("x/a.mp4", "y/a.mp4", "b.mov", "q"):
            writer.add(id, Features(film(1)))
    with FeatureFile.open(tmp_path / "f.h5") as file:
        names = match_names(["a", "b", "q", "z"], file)
    assert names == {"x/a.mp4": "x/a.mp4", "y/a.mp4": "y/a.mp4", "q": "q", "b": "b.mov"}


def test_flat_frames_are_left_out_of_scores(features: Path) -> None:
    scores = score_benchmark(plain(), benchmark(), features).scores
    assert scores is not None
    with FeatureFile.open(features) as file:
        shown, target = file["s"].drop_flat(), file["b"]
    assert len(shown) == 29
    expected = plain().score(shown.regions, target.regions).item()
    assert scores.values[scores.queries.index("s"), scores.targets.index("b")] == pytest.approx(expected, abs=1e-6)
    assert expected == pytest.approx(1, abs=1e-5)  # with the flat frame it would be less
