from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hapvr.config import from_mapping
from hapvr.errors import ConfigError, DataError, HapvrError, ShapeError, WeightsError
from hapvr.similarity import Descriptors, SimilarityConfig, VideoSimilarity, network
from tests.similarity import reference
from tests.similarity.models import VARIANTS, model, video
from tests.similarity.test_comparator import layers

variants = pytest.mark.parametrize("settings_", VARIANTS.values(), ids=VARIANTS)


def loop(model: VideoSimilarity, query: Tensor, target: Tensor) -> float:
    """f by the definitions alone."""
    config = model.config

    def describe(regions: Tensor) -> list[list[list[float]]]:
        one: Any = list
        if model.attention is not None:
            transform, context = model.attention.transform, model.attention.context

            def one(x: list[float]) -> list[float]:
                return reference.attend(
                    x, transform.weight.tolist(), transform.bias.tolist(), context.weight[0].tolist()
                )

        if model.binarization is not None:
            projection = model.binarization.projection.tolist()

            def one(x: list[float]) -> list[float]:
                return reference.binarize(x, projection, soft=False)

        first: Any = list
        if model.projection is not None:
            change = model.projection.change.weight.tolist()

            def first(x: list[float]) -> list[float]:
                return reference.projected(x, change)

        return [[one(first(x)) for x in frame] for frame in regions.tolist()]

    def matrix(a: Any, b: Any) -> list[list[float]]:
        cells = reference.frame_matrix(a, b, config.spatial, config.spatial_keep_rate)
        if config.symmetry in ("levels", "lengths"):
            other = reference.frame_matrix(b, a, config.spatial, config.spatial_keep_rate)
            cells = [[(cells[x][y] + other[y][x]) / 2 for y in range(len(b))] for x in range(len(a))]
        return [[cell / (config.bits or 1) for cell in row] for row in cells]

    def one_way(a: Any, b: Any) -> float:
        cells = matrix(reference.doubled(a, config.min_frames), reference.doubled(b, config.min_frames))
        if model.comparator is not None:
            raw = reference.psi(cells, layers(model.comparator))
            if config.residual:
                raw = reference.added(raw, reference.coarse(cells))
            cells = reference.hardtanh(raw, config.negative_slope)
        score = reference.aggregate(cells, config.temporal, config.temporal_keep_rate)
        if config.symmetry in ("levels", "lengths"):
            turned = [list(column) for column in zip(*cells, strict=True)]
            other = reference.aggregate(turned, config.temporal, config.temporal_keep_rate)
            share = 0.5 if config.symmetry == "levels" else min(0.5, len(a) / len(b))
            score = (1 - share) * score + share * other
        return score

    q, t = describe(query), describe(target)
    return (one_way(q, t) + one_way(t, q)) / 2 if config.symmetry == "average" else one_way(q, t)


@variants
def test_score_agrees_with_the_loop(settings_: dict[str, Any]) -> None:
    network_ = model(**settings_)
    query, target = video(9, 1), video(6, 2)
    assert network_.score(query, target).item() == pytest.approx(loop(network_, query, target), abs=2e-5)


def test_a_score_by_hand() -> None:
    """Two frames of one region each; min_frames 1, no psi: rows (1, .6) and (0, .8), so (1 + .8) / 2."""
    plain = VideoSimilarity(SimilarityConfig(dims=2, weighting="none", comparator=False, min_frames=1))
    query, target = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]])
    assert plain.frame_matrix(query, target).tolist() == [[1.0, pytest.approx(0.6)], [0.0, pytest.approx(0.8)]]
    assert plain.score(query, target).item() == pytest.approx(0.9)


def test_attention_by_hand() -> None:
    """W = 0 and b = 0 give tanh 0 = 0, so every weight is sigmoid(0) = 1/2."""
    built = VideoSimilarity(SimilarityConfig(dims=2))
    assert built.attention is not None
    torch.nn.init.zeros_(built.attention.transform.weight)
    torch.nn.init.zeros_(built.attention.transform.bias)
    assert built.make_descriptors(torch.tensor([[[3.0, -1.0]]])).tolist() == [[[1.5, -0.5]]]


def test_binary_codes_are_soft_in_training_and_signs_at_inference() -> None:
    built = model(weighting="binary", bits=8)
    with torch.no_grad():
        built.binarization.projection.mul_(1e-3)  # type: ignore[union-attr]  # so that erf is not at its ends
    regions = 3 * video(3)
    assert set(built.make_descriptors(regions).flatten().tolist()) == {-1.0, 1.0}
    built.train()
    assert built.binarization is not None
    expected = [
        [reference.binarize(x, built.binarization.projection.tolist(), soft=True) for x in f] for f in regions.tolist()
    ]
    torch.testing.assert_close(
        built.make_descriptors(regions).as_subclass(Tensor), torch.tensor(expected), atol=1e-3, rtol=1e-3
    )
    built.make_descriptors(regions).sum().backward()  # type: ignore[no-untyped-call]
    assert built.binarization.projection.grad is not None


@variants
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 21), min_size=2, max_size=4), longer=st.integers(0, 6), seed=st.integers(0, 99))
def test_a_score_does_not_depend_on_what_it_was_padded_or_batched_with(
    settings_: dict[str, Any], lengths: list[int], longer: int, seed: int
) -> None:
    built = model(**settings_)
    videos = [video(length, seed + place) for place, length in enumerate(lengths)]
    padded = torch.randn(len(lengths), max(lengths) + longer, 4, 16, generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(padded.shape[1]) < torch.tensor(lengths)[:, None]
    for row, one in enumerate(videos):
        padded[row, : len(one)] = one
    with torch.no_grad():
        together = built(padded, padded, query_mask=mask, target_mask=mask)
        alone = torch.stack([torch.stack([built.score(q, t) for t in videos]) for q in videos])
    torch.testing.assert_close(together.scores, alone, atol=1e-5, rtol=1e-4)
    if together.raw is not None and together.raw_mask is not None:
        assert not together.raw.masked_select(~together.raw_mask).any()


def test_a_batch_gives_the_frame_matrices_and_the_raw_output_too() -> None:
    built = model()
    queries, targets = torch.stack([video(8, 1), video(8, 2)]), torch.stack([video(12, 3), video(12, 4), video(12, 5)])
    comparison = built(queries, targets)
    assert comparison.frame_matrices.shape == (2, 3, 8, 12)
    torch.testing.assert_close(comparison.frame_matrices[1, 2], built.frame_matrix(queries[1], targets[2]))
    assert built.comparator is not None
    assert comparison.raw is not None
    torch.testing.assert_close(
        comparison.raw[1, 2], built.comparator(built.frame_matrix(queries[1], targets[2])[None])[0]
    )
    assert comparison.raw_mask is None
    torch.testing.assert_close(comparison.scores[1, 2], built.score(queries[1], targets[2]))


@pytest.mark.parametrize("masked", [False, True])
def test_pairs_in_parts_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
    built = model()
    clips = torch.stack([video(9, seed) for seed in range(4)])
    mask = torch.arange(9) < torch.tensor([9, 4, 7, 9])[:, None] if masked else None

    def gradients() -> tuple[Tensor, ...]:
        comparison = built(clips, clips, query_mask=mask, target_mask=mask)
        return torch.autograd.grad(comparison.scores.square().sum() + comparison.raw.sum(), list(built.parameters()))

    whole = gradients()
    monkeypatch.setattr(network, "_CPU_CELLS", 3 * 81)
    torch.testing.assert_close(gradients(), whole)
    assert all(gradient.any() for gradient in whole)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_two_videos_compared_both_ways_at_once_score_as_one_by_one(name: str) -> None:
    built = model(**VARIANTS[name])
    query, target = (built.make_descriptors(video(frames, frames, dims=built.config.dims)) for frames in (13, 9))
    forth, back = built.frame_matrices_both_ways(query, target)
    torch.testing.assert_close(forth, built.frame_matrix(query, target))
    torch.testing.assert_close(back, built.frame_matrix(target, query))
    torch.testing.assert_close(built.join_matrices(forth, back), built.scored_matrix(query, target))
    found, expected = built.compare_matrices(forth, back), built(query[None], target[None])
    torch.testing.assert_close(found.scores, expected.scores)
    assert (found.raw is None) is (expected.raw is None)
    if found.raw is not None:
        torch.testing.assert_close(found.raw, expected.raw)


@given(st.integers(4, 12), st.integers(4, 12), st.integers(0, 99))
@settings(max_examples=10)
def test_the_symmetric_forms_are_symmetric(a: int, b: int, seed: int) -> None:
    query, target = video(a, seed), video(b, seed + 1)
    for symmetry in ("average", "levels"):
        built = model(symmetry=symmetry, comparator=symmetry == "average")
        assert built.score(query, target).item() == pytest.approx(built.score(target, query).item(), abs=1e-6)
    forward, back = (model().score(x, y).item() for x, y in ((query, target), (target, query)))
    assert model(symmetry="average").score(query, target).item() == pytest.approx((forward + back) / 2, abs=1e-6)


def test_by_lengths_the_other_direction_counts_by_how_long_the_target_is_by_hand() -> None:
    built = model(dims=2, weighting="none", comparator=False, min_frames=1, symmetry="lengths", spatial="chamfer")
    here, there = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])  # a frame of one region each
    assert built.score(here, here).item() == 1.0
    assert built.score(here, torch.cat([here, there])).item() == 0.75  # a half: 1 and (1 + 0) / 2
    film = torch.cat([here, there, there, there])
    assert built.score(here, film).item() == pytest.approx(0.75 + 0.25 / 4)  # a quarter: 1 and (1 + 3 * 0) / 4
    assert built.score(film, here).item() == pytest.approx((0.25 + 1) / 2)
    torch.testing.assert_close(built.frame_matrix(here, film), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))


@given(st.integers(4, 12), st.integers(4, 12), st.integers(0, 99))
@settings(max_examples=10)
def test_by_lengths_videos_of_similar_lengths_are_compared_alike_both_ways(a: int, b: int, seed: int) -> None:
    query, target = video(a, seed), video(b, seed + 1)
    built = model(symmetry="lengths", comparator=False)
    if a <= 2 * b and b <= 2 * a:
        assert built.score(query, target).item() == pytest.approx(built.score(target, query).item(), abs=1e-6)
        levels = model(symmetry="levels", comparator=False)
        assert built.score(query, target).item() == pytest.approx(levels.score(query, target).item(), abs=1e-6)


def test_by_lengths_a_clip_is_found_in_a_film_however_long_the_film_is() -> None:
    built = model(symmetry="lengths", weighting="none", comparator=False, spatial="chamfer", temporal="chamfer")
    clip = video(8, 1)
    scores = [built.score(clip, torch.cat([clip, video(length, 2)])).item() for length in (8, 80, 800)]
    assert scores == sorted(scores)
    assert scores[-1] == pytest.approx(1, abs=0.01)


def test_a_short_video_is_doubled() -> None:
    built = model(min_frames=8)
    short = video(3)
    repeated = torch.cat([short] * 4)
    other = video(10, 5)
    torch.testing.assert_close(built.score(short, other), built.score(repeated, other))
    torch.testing.assert_close(built.score(other, short), built.score(other, repeated))
    assert built.frame_matrix(short, other).shape == (3, 10)


def test_described_videos_are_not_described_again() -> None:
    built = model()
    query, target = video(8, 1), video(9, 2)
    described = built.make_descriptors(query)
    assert isinstance(described, Descriptors)
    assert described.shape == query.shape
    assert isinstance(described[2:].to(torch.float64), Descriptors)
    assert isinstance(torch.stack([described, described]), Descriptors)
    torch.testing.assert_close(built.score(described, target), built.score(query, target))
    stored = Descriptors.of(torch.from_numpy(described.detach().numpy()))
    torch.testing.assert_close(built.score(stored, built.make_descriptors(target)), built.score(query, target))
    assert built.score(described.as_subclass(Tensor), target).item() != pytest.approx(
        built.score(query, target).item(), abs=1e-4
    )


def test_a_copy_scores_above_another_video_without_training() -> None:
    plain = model(weighting="none", comparator=False)
    one, other = video(12, 1), video(12, 2)
    assert plain.score(one, one).item() == pytest.approx(1.0, abs=1e-5)
    assert plain.score(one, other).item() < 0.8


# --- at rest ---------------------------------------------------------------------------------------------------------


@variants
def test_saved_and_loaded_scores_are_equal_to_the_bit(tmp_path: Path, settings_: dict[str, Any]) -> None:
    built = model(**settings_)
    again = VideoSimilarity.from_pretrained(built.save_pretrained(tmp_path / "model"))
    assert again.config == built.config
    assert not again.training
    query, target = video(9, 1), video(13, 2)
    assert torch.equal(again.score(query, target), built.score(query, target))


def test_a_folder_of_another_shape_is_refused(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["parts_crc32"]  # it is edited on purpose
    config["parts"]["similarity"]["weighting"] = "none"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"surplus 3 tensors \(attention.context.weight"):
        VideoSimilarity.from_pretrained(tmp_path)
    config["parts"]["similarity"] |= {"weighting": "attention", "keep_rate": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="no field 'keep_rate'"):
        VideoSimilarity.from_pretrained(tmp_path)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"weighting": "atention"}, "weighting cannot be 'atention'; did you mean 'attention'"),
        ({"spatial": "mean"}, "spatial cannot be 'mean'; known: topk"),
        ({"temporal_keep_rate": 3}, "a share of the targets, not a count"),
        ({"dims": 0}, "dims must be a whole number of at least 1"),
        ({"bits": 64}, "weighting='binary'"),
        ({"weighting": "binary"}, "weighting='binary'"),
        ({"min_frames": 3}, "min_frames must be a whole number of at least 4 .psi pools"),
        ({"min_frames": 9.0}, "min_frames must be a whole number"),
        ({"comparator": False, "min_frames": 0}, "min_frames must be a whole number of at least 1, got 0"),
        ({"negative_slope": 1.1}, "negative_slope must be a number from 0 to 1, got 1.1"),
        ({"comparator": False, "negative_slope": 0.0}, "negative_slope is a setting of psi"),
        ({"projection": 1}, "projection must be true or false"),
        ({"comparator": "no"}, "comparator must be true or false"),
        ({"symmetry": True}, "symmetry cannot be True"),
    ],
)
def test_contradicting_settings_are_refused(settings_: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SimilarityConfig(**settings_)


def test_an_unknown_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="no field 'temporal_keep'; did you mean 'temporal_keep_rate'"):
        from_mapping(SimilarityConfig, {"temporal_keep": 0.1})


@pytest.mark.parametrize(
    ("regions", "error", "words"),
    [
        (torch.rand(16), ShapeError, "Did you pass pooled vectors"),
        (torch.rand(4, 4, 8), ShapeError, "has 8 dims, the model takes 16"),
        (torch.ones(4, 4, 16, dtype=torch.int32), ShapeError, "floating point"),
        (torch.rand(0, 4, 16), DataError, "has no frames"),
        (torch.full((4, 4, 16), torch.inf), DataError, "NaN or infinite"),
        (None, ShapeError, "got a NoneType"),
    ],
)
def test_bad_regions_are_refused(regions: Any, error: type[HapvrError], words: str) -> None:
    built = model()
    with pytest.raises(error, match=words):
        built.make_descriptors(regions)
    with pytest.raises(HapvrError):
        built.score(regions, video(4))
    with pytest.raises(HapvrError):
        built.score(video(4), regions)


@pytest.mark.parametrize(
    ("descriptors", "error"),
    [
        (torch.rand(0, 4, 16), DataError),
        (torch.full((4, 4, 16), torch.nan), DataError),
        (torch.rand(4, 4, 24), ShapeError),
    ],
)
def test_bad_descriptors_are_refused_like_bad_regions(descriptors: Tensor, error: type[HapvrError]) -> None:
    with pytest.raises(error):
        model().score(Descriptors.of(descriptors), video(4))
    with pytest.raises(error):
        model()(Descriptors.of(descriptors[None]), video(4)[None])


def test_a_config_is_asked_for_by_name() -> None:
    with pytest.raises(ConfigError, match="takes a SimilarityConfig, got a dict"):
        VideoSimilarity({"dims": 8})  # type: ignore[arg-type]


def test_a_model_without_weights_takes_features_in_half_precision_and_knows_its_device() -> None:
    plain = model(weighting="none", comparator=False)
    assert plain.device == torch.device("cpu")
    assert plain.score(video(5).half(), video(6)).item() == pytest.approx(
        plain.score(video(5), video(6)).item(), abs=1e-3
    )


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (torch.zeros(2, 5, dtype=torch.bool), DataError, "without a first frame"),
        (torch.tensor([[True, False, True, True, False]] * 2), DataError, "gap"),
        (torch.ones(2, 4, dtype=torch.bool), ShapeError, r"shape \[2, 5\], got \[2, 4\]"),
        (torch.ones(2, 5), ShapeError, "bool tensor"),
    ],
)
def test_bad_masks_are_refused(mask: Tensor, error: type[HapvrError], words: str) -> None:
    clips = torch.rand(2, 5, 4, 16)
    with pytest.raises(error, match=words):
        model()(clips, clips, query_mask=mask)


def test_one_video_where_a_batch_is_due_is_refused() -> None:
    with pytest.raises(ShapeError, match="One video\\? Use score"):
        model()(video(5), video(5))
    with pytest.raises(ShapeError, match="must be one video"):
        model().score(video(5)[None], video(5))


@variants
def test_the_scores_of_these_tests_are_spread_and_not_cut_off(settings_: dict[str, Any]) -> None:
    """The laws above would mean little if every score were near zero, or cut to one by the hardtanh."""
    built = model(**settings_)
    scores = torch.stack([built.score(video(9, a), video(14, b)) for a in range(4) for b in range(5)])
    assert scores.std() > 0.005
    assert scores.abs().max() < 0.99
