"""Scores from int8 codes: by hand, by slow loops, and what they must not depend on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.model import load
from hapvr.similarity import Descriptors, int8, pairwise
from hapvr.similarity.int8 import FastComparator, Int8Descriptors, compute_int8_matrix, fast_score_dtype, quantize
from tests.similarity.models import model, video

PLAIN: dict[str, Any] = {"weighting": "none"}


def codes(frames: int, seed: int, *, regions: int = 3, dims: int = 16, by_vector: bool = False) -> Int8Descriptors:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-127, 128, (frames, regions, dims), dtype=torch.int8, generator=generator)
    return Int8Descriptors(drawn, torch.rand(frames, regions if by_vector else 1, generator=generator) / 100)


def loop_matrix(query: Int8Descriptors, target: Int8Descriptors) -> Tensor:
    """For each query region the largest product with a target region, in float64, averaged over the query's regions."""
    one, other = (video.codes.double() * video.scales.double()[..., None] for video in (query, target))
    matrix = torch.empty(len(one), len(other), dtype=torch.float64)
    for row, frame in enumerate(one):
        for column, against in enumerate(other):
            matrix[row, column] = sum(max(float(a @ b) for b in against) for a in frame) / len(frame)
    return matrix.float()


# --- codes -----------------------------------------------------------------------------------------------------------


def test_codes_are_within_half_a_step_of_the_numbers() -> None:
    described = video(9, 1)
    quantized = quantize(described)
    assert quantized.scales.shape == (9, 1)
    torch.testing.assert_close(quantized.scales[:, 0], described.abs().amax((1, 2)) / 127)
    assert bool(((quantized.decode() - described).abs() <= 0.5001 * quantized.scales[..., None]).all())
    assert int(quantized.codes.abs().amax()) == 127


def test_codes_do_not_depend_on_the_other_frames() -> None:
    described = torch.cat([video(5, 1), 40 * video(5, 2)])
    assert torch.equal(quantize(described).codes[:5], quantize(described[:5]).codes)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    bad = video(9, 1)
    bad[3, 0, 2] = value
    with pytest.raises(DataError, match=r"targets\[1\]"):
        pairwise(model(), [video(9, 2)], [video(9, 3), bad], dtype=torch.int8)
    with pytest.raises(DataError, match=r"queries\[0\]"):
        pairwise(model(), [bad], [video(9, 3)], dtype=torch.int8)


# --- frame matrices --------------------------------------------------------------------------------------------------


def test_a_matrix_by_hand() -> None:
    query = Int8Descriptors(torch.tensor([[[10, 0], [0, 10]]], dtype=torch.int8), torch.tensor([[0.1]]))
    target = Int8Descriptors(torch.tensor([[[5, -5], [2, 1]]], dtype=torch.int8), torch.tensor([[0.2, 0.1]]))
    # (1, 0) with (1, -1) and (.2, .1): 1; (0, 1): .1; their mean
    assert compute_int8_matrix(query, target).item() == pytest.approx(0.55)
    # (1, -1) with (1, 0) and (0, 1): 1; (.2, .1): .2; their mean is .6
    assert compute_int8_matrix(query, target, both_ways=True).item() == pytest.approx((0.55 + 0.6) / 2)


@pytest.mark.parametrize("query_by_vector", [False, True])
@pytest.mark.parametrize("target_by_vector", [False, True])
@pytest.mark.parametrize(("rows", "cached"), [(1536, 1 << 20), (4, 700)])
def test_a_matrix_equals_the_loop(
    query_by_vector: bool, target_by_vector: bool, rows: int, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and in pieces of one query frame and a few target frames."""
    monkeypatch.setattr(int8, "_CACHED_ROWS", rows)
    monkeypatch.setattr(int8, "_CACHED_BYTES", cached)
    query, target = codes(7, 1, by_vector=query_by_vector), codes(23, 2, by_vector=target_by_vector)
    forth, back = loop_matrix(query, target), loop_matrix(target, query)
    torch.testing.assert_close(compute_int8_matrix(query, target), forth, atol=1e-5, rtol=1e-5)
    both = compute_int8_matrix(query, target, both_ways=True)
    torch.testing.assert_close(both, (forth + back.T) / 2, atol=1e-5, rtol=1e-5)


def test_scales_of_frames_and_of_vectors_can_be_joined() -> None:
    one, other = codes(4, 1), codes(5, 2, by_vector=True)
    joined = int8.join([one, other])
    torch.testing.assert_close(joined.decode(), torch.cat([one.decode(), other.decode()]))


# --- psi -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("sides", [(28, 28), (9, 14), (31, 17)])
def test_psi_is_the_comparators(residual: bool, sides: tuple[int, int]) -> None:
    """In float32 the same numbers, with and without masks; in bfloat16 close to them."""
    comparator = model(residual=residual).comparator
    assert comparator is not None
    matrix = torch.rand(3, *sides, generator=torch.Generator().manual_seed(0))
    rows, columns = (torch.arange(side) < torch.tensor([[side], [side - 3], [8]]) for side in sides)
    for masks in ((None, None), (None, columns), (rows, columns)):
        with torch.no_grad():
            expected = comparator(matrix, *masks)
            exact, fast = (
                FastComparator(comparator, dtype)(matrix, *masks) for dtype in (torch.float32, torch.bfloat16)
            )
        torch.testing.assert_close(exact, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(fast, expected, atol=5e-2, rtol=0.0)  # weights are large here


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """psi as on a CPU without bfloat16: then codes are all that is rounded."""
    monkeypatch.setattr(int8, "fast_dtype", lambda _: torch.float32)


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize("cells", [1, 300, None])
@pytest.mark.parametrize("temporal", ["topk", "chamfer", "max", "average"])
@pytest.mark.parametrize(
    "settings",
    [
        {"comparator": False, "min_frames": 1},
        {"residual": True},
        {"min_frames": 12},
        {},
        {"symmetry": "levels"},
        {"symmetry": "lengths"},
    ],
    ids=str,
)
def test_scores_equal_those_of_the_decoded_vectors(settings: dict[str, Any], temporal: str, cells: int | None) -> None:
    """Short videos that are doubled, long ones that are cut into bands, and all between."""
    built = model(**PLAIN, temporal=temporal, temporal_keep_rate=0.2, **settings)
    queries = [codes(length, length, by_vector=length > 5) for length in (1, 5, 9, 40)]
    targets = [codes(length, 90 + length, by_vector=length % 2 == 0) for length in (30, 3, 8, 8, 11, 62)]
    got = pairwise(built, queries, targets, dtype=torch.int8, max_cells=cells)
    with torch.no_grad():
        expected = [[built.score(one.decode(), other.decode()) for other in targets] for one in queries]
    torch.testing.assert_close(got, torch.tensor(expected), atol=1e-5, rtol=1e-4)


def test_neither_order_nor_company_changes_a_score() -> None:
    built = model(residual=True)
    query, targets = video(21, 1), [video(length, length) for length in (30, 9, 12, 28, 28, 13)]
    together = pairwise(built, [query], targets, dtype=torch.int8)[0]
    backwards = pairwise(built, [video(9, 7), query], targets[::-1], dtype=torch.int8)[1].flip(0)
    alone = torch.cat([pairwise(built, [query], [target], dtype=torch.int8)[0] for target in targets])
    torch.testing.assert_close(backwards, together, atol=1e-4, rtol=0.0)
    torch.testing.assert_close(alone, together, atol=1e-4, rtol=0.0)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    built = model()
    targets = [video(60, seed) for seed in range(30)]
    done: list[int] = []
    got = pairwise(built, [video(20, 50)], iter(targets), dtype=torch.int8, progress=done.append)
    assert sum(done) == 30
    monkeypatch.undo()
    torch.testing.assert_close(got, pairwise(built, [video(20, 50)], targets, dtype=torch.int8), atol=1e-4, rtol=0.0)


@torch.no_grad()
@pytest.mark.parametrize("by_torch", [False, True])
def test_trained_weights_lose_little(by_torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Videos as they are: frames that change slowly, cuts, noisy copies; the shipped network."""
    if by_torch:
        monkeypatch.setattr(int8, "load_native", lambda: None)
    built = load().similarity
    generator = torch.Generator().manual_seed(0)

    def draw(frames: int) -> Tensor:
        scenes = torch.randn(3, 9, 512, generator=generator)
        common = torch.randn(3, 1, 512, generator=generator)
        place = torch.arange(frames) * 3 // frames
        noise = torch.randn(frames, 9, 512, generator=generator)
        return F.normalize(0.6 * scenes[place] + 0.6 * common[place] + 0.5 * noise, dim=-1)

    films = [draw(length) for length in (28, 40, 12, 105)]
    copies = [
        F.normalize(film[3:] + spread / 22.6 * torch.randn(film[3:].shape, generator=generator), dim=-1)
        for film in films
        for spread in (0.2, 0.7, 1.2)
    ]
    videos: list[Tensor] = [Descriptors.of(one) for one in films + copies]
    exact = pairwise(built, videos, videos, dtype=torch.float32)
    fast = pairwise(built, videos, videos, dtype=torch.int8)
    assert float(exact.std()) > 0.1
    assert float((fast - exact).abs().max()) <= 2e-3


# --- which precision -------------------------------------------------------------------------------------------------


def test_int8_is_chosen_where_cpu_and_network_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "multiplies_int8", lambda: True)
    monkeypatch.setattr(int8, "fast_dtype", lambda _: torch.float32)
    assert fast_score_dtype(model(), 9) == torch.int8
    assert fast_score_dtype(model(spatial="chamfer"), 9) == torch.int8
    others: list[dict[str, Any]] = [{"symmetry": "average"}, {"spatial": "average"}]
    for settings in [*others, {"spatial_keep_rate": 0.3}, {"weighting": "binary", "bits": 16}]:
        built = model(**settings)
        assert fast_score_dtype(built, 9) == torch.float32
        with pytest.raises(ConfigError, match="int8 scores"):
            pairwise(built, [video(9, 1, regions=9)], [video(9, 2, regions=9)], dtype=torch.int8)
    monkeypatch.setattr(int8, "multiplies_int8", lambda: False)
    assert fast_score_dtype(model(), 9) == torch.float32


def test_a_cpu_without_the_instructions_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "load_native", lambda: None)
    for has in (True, False):
        monkeypatch.setattr(int8, "multiplies_bytes", lambda has=has: has)
        assert int8.multiplies_int8() is has
    monkeypatch.setattr(int8, "multiplies_bytes", lambda: True)
    monkeypatch.delattr(torch, "_int_mm")
    assert not int8.multiplies_int8()
    monkeypatch.setattr(int8, "load_native", lambda: "a library")
    assert int8.multiplies_int8()


def test_codes_of_another_shape_are_refused() -> None:
    good = codes(9, 1)
    with pytest.raises(ShapeError, match=r"targets\[0\] must be int8 codes"):
        pairwise(model(), [good], [codes(9, 1, dims=8)], dtype=torch.int8)
    with pytest.raises(ShapeError, match=r"queries\[0\] must be int8 codes"):
        pairwise(model(), [Int8Descriptors(good.codes, good.scales[:3])], [good], dtype=torch.int8)
    with pytest.raises(DataError, match="no frames"):
        pairwise(model(), [good], [good[:0]], dtype=torch.int8)
    with pytest.raises(ShapeError, match=r"queries\[0\] must be"):
        pairwise(model(), [good], [good], dtype=torch.float32)
