from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError
from hapvr.similarity import VideoSimilarity, pairwise
from tests.similarity.models import VARIANTS, model, video

module = sys.modules[pairwise.__module__]
variants = pytest.mark.parametrize("settings_", VARIANTS.values(), ids=VARIANTS)


@torch.no_grad()
def one_by_one(built: VideoSimilarity, queries: list[Tensor], targets: list[Tensor]) -> Tensor:
    return torch.stack([torch.stack([built.score(query, target) for target in targets]) for query in queries])


@variants
@settings(max_examples=8)
@given(
    query_lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    target_lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    cells=st.sampled_from([1, 300, 2000, None]),
)
def test_agrees_with_one_pair_at_a_time(
    settings_: dict[str, Any], query_lengths: list[int], target_lengths: list[int], cells: int | None
) -> None:
    """Whatever the lengths, the order and the budget of cells."""
    built = model(**settings_)
    queries = [video(length, 10 + place) for place, length in enumerate(query_lengths)]
    targets = [video(length, 50 + place) for place, length in enumerate(target_lengths)]
    scores = pairwise(built, queries, targets, max_cells=cells)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, one_by_one(built, queries, targets), atol=1e-5, rtol=1e-4)


def test_strips_of_a_long_pair_agree_with_the_whole() -> None:
    """Rows are cut into strips that overlap by what psi sees: 7 frames. One frame less would show here."""
    built = model()
    query, target = video(150, 1), video(90, 2)
    whole = one_by_one(built, [query], [target])
    for cells in (1, 92 * 8, 92 * 20):
        torch.testing.assert_close(pairwise(built, [query], [target], max_cells=cells), whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("symmetry", ["none", "levels", "lengths"])
@pytest.mark.parametrize("temporal", ["topk", "chamfer", "max", "average"])
@pytest.mark.parametrize("comparator", [False, True])
def test_one_query_is_scored_off_its_frame_matrix(temporal: Any, symmetry: Any, comparator: bool) -> None:
    built = model(
        comparator=comparator, temporal=temporal, temporal_keep_rate=0.4, symmetry=symmetry,
        min_frames=4 if comparator else 1,
    )  # fmt: skip
    query, targets = video(10, 6), [video(frames, frames) for frames in (7, 4, 12, 7, 9)]
    scorer = module._Scorer(built, None, None)
    assert scorer.can_score_alone(10, [len(target) for target in targets])
    with torch.no_grad():
        found = scorer.score_alone(scorer.make_all_descriptors([query]), targets)
    torch.testing.assert_close(found[None], one_by_one(built, [query], targets), atol=1e-6, rtol=1e-5)


def test_what_cannot_be_read_off_a_frame_matrix_is_packed() -> None:
    plain = {"comparator": False, "min_frames": 4}
    assert module._Scorer(model(**plain), None, None).can_score_alone(9, [4, 9])
    assert not module._Scorer(model(**plain), None, None).can_score_alone(3, [4, 9])  # a short query is doubled
    assert not module._Scorer(model(**plain), None, None).can_score_alone(9, [4, 9, 3])
    assert not module._Scorer(model(**plain, symmetry="average"), None, None).can_score_alone(9, [4, 9])
    long = module._CPU_CELLS // 9 + 1  # psi would see too much at a time
    assert module._Scorer(model(**plain), None, None).can_score_alone(9, [long])
    assert not module._Scorer(model(), None, None).can_score_alone(9, [long])


def test_an_iterator_is_read_once_and_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW", 3)
    built, targets, held = model(), [video(4 + n, n) for n in range(8)], []

    def stream() -> Iterator[Tensor]:
        for place, target in enumerate(targets):
            held.append(place)
            yield target

    done: list[int] = []
    scores = pairwise(built, targets[:2], stream(), progress=done.append)
    torch.testing.assert_close(scores, pairwise(built, targets[:2], targets))
    assert held == list(range(8))
    assert sum(done) == 8


def test_described_raw_and_mixed_videos_score_alike() -> None:
    built = model()
    videos = [video(length, length) for length in (5, 9, 20)]
    described = [built.make_descriptors(one) for one in videos]
    expected = pairwise(built, videos, videos)
    torch.testing.assert_close(pairwise(built, described, described), expected)
    torch.testing.assert_close(pairwise(built, videos, [described[0], videos[1], described[2]]), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 5e-3), (torch.float16, 5e-3), (torch.float32, 1e-5)])
def test_half_precision_stays_close(dtype: torch.dtype, tolerance: float) -> None:
    built = model(dims=64)
    videos = [video(length, length, dims=64) for length in (8, 17, 33, 60)]
    error = (pairwise(built, videos, videos, dtype=dtype) - one_by_one(built, videos, videos)).abs().max()
    assert error < tolerance


def test_features_stored_in_half_precision_are_accepted() -> None:
    built = model()
    stored = [video(9, 1).half(), video(12, 2).half()]
    expected = one_by_one(built, [one.float() for one in stored], [one.float() for one in stored])
    torch.testing.assert_close(pairwise(built, stored, stored), expected, atol=1e-5, rtol=1e-4)


def test_no_targets_and_no_queries_give_empty_matrices() -> None:
    assert pairwise(model(), [video(5)], []).shape == (1, 0)
    assert pairwise(model(), [video(5)], iter(())).shape == (1, 0)
    assert pairwise(model(), [], [video(5), video(6)]).shape == (0, 2)


def test_no_videos_at_all_give_an_empty_matrix() -> None:
    assert pairwise(model(), [], []).shape == (0, 0)


@pytest.mark.parametrize("temporal", ["topk", "max"])
def test_autocast_around_it_changes_nothing(temporal: str) -> None:
    built = model(temporal=temporal)
    videos = [video(9, 1), video(12, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        scores = pairwise(built, videos, videos)
    assert torch.equal(scores, pairwise(built, videos, videos))


def test_nothing_is_learned() -> None:
    assert not pairwise(model(), [video(5)], [video(6)]).requires_grad


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (torch.rand(4, 4, 8), ShapeError, r"targets\[1\] has 8 dims, the model takes 16"),
        (torch.rand(4, 16), ShapeError, r"targets\[1\] must be one video \[T, R, D\], got \[4, 16\]"),
        (torch.rand(4, 5, 16), ShapeError, r"targets\[1\] has 5 regions a frame, targets\[0\] has 4"),
        (torch.ones(4, 4, 16, dtype=torch.int64), ShapeError, r"targets\[1\] must be floating point"),
        (torch.rand(0, 4, 16), DataError, r"targets\[1\] has no frames"),
        (torch.full((6, 4, 16), torch.nan), DataError, r"targets\[1\] holds 384 NaN"),
        ("clip.mp4", ShapeError, "got a str"),
    ],
)
def test_a_bad_video_is_named(bad: Any, error: type[HapvrError], words: str) -> None:
    with pytest.raises(error, match=words):
        pairwise(model(), [video(5)], [video(5), bad])


def test_a_bad_query_is_named_and_bad_settings_are_refused() -> None:
    with pytest.raises(DataError, match=r"queries\[0\] holds"):
        pairwise(model(), [torch.full((6, 4, 16), torch.nan)], [video(5)])
    with pytest.raises(ConfigError, match="dtype must be"):
        pairwise(model(), [video(5)], [video(5)], dtype=torch.float64)
    with pytest.raises(ConfigError, match="max_cells must be at least 1"):
        pairwise(model(), [video(5)], [video(5)], max_cells=0)


@pytest.mark.parametrize("threads", [1, 3])
def test_packs_side_by_side_score_as_one_does(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    built = model()
    query, *targets = (video(length, place) for place, length in enumerate((5, 9, 4, 12, 30, 7, 8)))
    together = one_by_one(built, [query], targets)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    monkeypatch.setattr(sys.modules["hapvr.similarity.pairwise"], "_CPU_FRAMES", 12)
    told: list[int] = []
    try:
        scores = pairwise(built, [query], targets, progress=told.append)
        torch.testing.assert_close(scores, together, atol=1e-5, rtol=1e-4)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert sum(told) == len(targets)
    assert len(told) > 1
