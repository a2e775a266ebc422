from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError, WeightsError
from hapvr.features import Whitening, WhiteningConfig, WhiteningFit
from hapvr.weights import Part, load_part, save_parts


def correlated(count: int, inputs: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    return torch.randn(count, inputs, generator=generator, dtype=torch.float64) @ mixing + 3


def fitted(*batches: Tensor) -> WhiteningFit:
    fit = WhiteningFit()
    for batch in batches:
        fit.update(batch)
    return fit


def finished(fit: WhiteningFit, outputs: int, *, floor: float = 1e-7) -> Whitening:
    return fit.finish(outputs=outputs, floor=floor, dtype=torch.float64)


def loop(vectors: list[list[float]], outputs: int, floor: float) -> np.ndarray:
    """Whitened vectors by another road: explicit sums, numpy's SVD of the centred data, explicit normalisation."""
    count, inputs = len(vectors), len(vectors[0])
    mean = [sum(vector[d] for vector in vectors) / count for d in range(inputs)]
    centred = np.array([[vector[d] - mean[d] for d in range(inputs)] for vector in vectors])
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    rows = []
    for vector in centred:
        row = []
        for d in range(outputs):
            direction = directions[d]
            sign = 1 if max(direction, key=abs) > 0 else -1
            row.append(sign * float(direction @ vector) / math.sqrt(singular[d] ** 2 / count + floor))
        length = math.sqrt(sum(value * value for value in row))
        rows.append([value / length for value in row])
    return np.array(rows)


def test_whitens_a_hand_computed_square() -> None:
    # Corners of a rectangle 2 x 4 around (1, 2): variances 1 and 4, so each corner becomes (+-1, +-1) before the end.
    corners = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])
    whitening = fitted(corners).finish(outputs=2, floor=0.0)
    assert whitening.project(corners).tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]  # the larger variance first
    assert whitening(corners)[3].tolist() == pytest.approx([0.5**0.5, 0.5**0.5])


def test_the_floor_is_added_to_the_variance() -> None:
    corners = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])
    assert fitted(corners).finish(outputs=1, floor=5.0).projection.flatten().tolist() == pytest.approx([0, 1 / 3])


@given(inputs=st.integers(1, 6), extra=st.integers(1, 20), kept=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_agrees_with_the_loop(inputs: int, extra: int, kept: float, seed: int) -> None:
    vectors = correlated(inputs + extra, inputs, seed=seed)
    outputs = 1 + round(kept * (inputs - 1))
    whitened = finished(fitted(vectors), outputs, floor=1e-3)(vectors)
    np.testing.assert_allclose(whitened.numpy(), loop(vectors.tolist(), outputs, 1e-3), atol=1e-8)


@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_any_chunking_equals_one_shot(cuts: list[int]) -> None:
    vectors = correlated(200, 5)
    whole = finished(fitted(vectors), 5)
    chunked = finished(fitted(*vectors.tensor_split(sorted(cuts))), 5)
    torch.testing.assert_close(chunked.mean, whole.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(chunked.projection, whole.projection, rtol=1e-10, atol=1e-10)


def test_long_updates_are_split_without_a_trace() -> None:
    vectors = correlated(10_000, 3)  # more than are taken at a time
    torch.testing.assert_close(
        finished(fitted(vectors), 3).projection,
        finished(fitted(*vectors.split(1000)), 3).projection,  # type: ignore[no-untyped-call]
        rtol=1e-10,
        atol=1e-10,
    )


@given(order=st.permutations(range(4)))
def test_workers_merge_in_any_order(order: list[int]) -> None:
    batches = [correlated(count, 4, seed=count) for count in (7, 1, 50, 12)]
    merged = WhiteningFit()
    for number in order:
        merged.merge(fitted(batches[number]))
    merged.merge(WhiteningFit())
    whole = finished(fitted(*batches), 4)
    assert merged.count == 70
    torch.testing.assert_close(finished(merged, 4).mean, whole.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(finished(merged, 4).projection, whole.projection, rtol=1e-10, atol=1e-10)


def test_merging_leaves_the_other_as_it_is() -> None:
    one, other = WhiteningFit(), fitted(correlated(20, 3))
    before = finished(other, 3).projection
    one.merge(other)
    one.update(correlated(20, 3, seed=1))
    assert torch.equal(finished(other, 3).projection, before)


def test_vectors_of_any_leading_shape_count_alike() -> None:
    vectors = correlated(60, 4)
    assert torch.equal(
        finished(fitted(vectors.view(3, 4, 5, 4)), 4).projection, finished(fitted(vectors), 4).projection
    )
    fit = fitted(*vectors)  # one by one
    assert fit.count == 60


@pytest.mark.parametrize("inputs", [2, 8])
def test_whitened_vectors_of_the_fit_have_identity_covariance(inputs: int) -> None:
    vectors = correlated(500, inputs)
    projected = finished(fitted(vectors), inputs, floor=0.0).project(vectors)
    covariance = projected.mT @ projected / len(vectors)
    torch.testing.assert_close(covariance, torch.eye(inputs, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(projected.mean(0), torch.zeros(inputs, dtype=torch.float64), rtol=0, atol=1e-9)


def test_a_large_common_offset_costs_no_precision() -> None:
    vectors = torch.randint(-8, 8, (300, 3)).double()
    shifted = [chunk + 2.0**30 for chunk in vectors.chunk(7)]  # exact; its squares drown the differences
    torch.testing.assert_close(finished(fitted(*shifted), 3).projection, finished(fitted(vectors), 3).projection)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_entry_of_each_direction_is_positive(seed: int) -> None:
    projection = finished(fitted(correlated(50, 6, seed=seed)), 6).projection
    assert (projection.gather(0, projection.abs().argmax(0, keepdim=True)) > 0).all()


def test_outputs_are_the_first_of_the_full_whitening() -> None:
    fit = fitted(correlated(50, 6))
    assert torch.equal(finished(fit, 2).projection, finished(fit, 6).projection[:, :2])


def test_zero_and_constant_directions_make_no_nan() -> None:
    vectors = correlated(50, 3)
    vectors[:, 1] = 7
    whitening = fitted(vectors).finish(outputs=3)
    assert whitening(whitening.mean).tolist() == [0, 0, 0]
    assert whitening(vectors).isfinite().all()


def test_half_precision_is_whitened_in_float32() -> None:
    whitening = fitted(correlated(50, 3)).finish(outputs=2)
    vectors = torch.randn(4, 3).half()
    assert torch.equal(whitening(vectors), whitening(vectors.float()))


def test_saving_and_loading_gives_equal_vectors(tmp_path: Path) -> None:
    whitening = fitted(correlated(50, 5)).finish(outputs=2)
    save_parts(tmp_path, {"whitening": whitening.to_part()})
    part = load_part(tmp_path, "whitening")
    assert part.config == {"inputs": 5, "outputs": 2}
    vectors = torch.randn(3, 9, 5)
    assert torch.equal(Whitening.from_part(part)(vectors), whitening(vectors))


@pytest.mark.parametrize(
    ("config", "tensors", "error"),
    [
        ({"inputs": 4, "outputs": 2}, {"mean": torch.zeros(3), "projection": torch.zeros(3, 2)}, WeightsError),
        ({"inputs": 3, "outputs": 2}, {"mean": torch.zeros(3)}, WeightsError),
        ({"inputs": 3, "outputs": 2}, {"projection": torch.zeros(3, 2)}, WeightsError),
        ({"inputs": 3, "outputs": 2}, {"mean": torch.zeros(3), "projection": torch.full((3, 2), torch.nan)}, DataError),
        ({"inputs": 3, "output": 2}, {}, ConfigError),
        ({"inputs": "3", "outputs": 2}, {}, ConfigError),
    ],
)
def test_damaged_parts_are_refused(config: dict[str, int], tensors: dict[str, Tensor], error: type[Exception]) -> None:
    with pytest.raises(error):
        Whitening.from_part(Part(config, tensors))


def test_too_few_vectors_are_refused_with_the_number_needed() -> None:
    with pytest.raises(DataError, match="seen 4 vectors; 4 outputs need at least 5"):
        fitted(correlated(4, 6)).finish(outputs=4)
    with pytest.raises(DataError, match="seen 0 vectors; 512 outputs need at least 513"):
        WhiteningFit().finish()


def test_more_outputs_than_inputs_are_refused() -> None:
    with pytest.raises(ConfigError, match="7 outputs of 6 inputs"):
        fitted(correlated(4, 6)).finish(outputs=7)
    with pytest.raises(ConfigError, match="at least 1"):
        WhiteningConfig(inputs=3, outputs=0)


def test_a_negative_floor_is_refused() -> None:
    with pytest.raises(ConfigError, match="floor"):
        fitted(correlated(9, 2)).finish(outputs=2, floor=-1e-7)


def test_nan_is_refused_before_anything_counts() -> None:
    fit, vectors = WhiteningFit(), correlated(10, 3)
    vectors[9, 2] = torch.nan
    with pytest.raises(DataError, match="1 NaN"):
        fit.update(vectors)
    assert fit.count == 0


def test_other_dimensions_are_refused() -> None:
    fit = fitted(correlated(10, 3))
    with pytest.raises(ShapeError, match=r"vectors must be \[..., 3\], got \[10, 4\]"):
        fit.update(correlated(10, 4))
    with pytest.raises(ShapeError, match="cannot merge a fit of 4-dimensional"):
        fit.merge(fitted(correlated(10, 4)))
    with pytest.raises(ShapeError, match="whitened already"):
        fit.finish(outputs=2)(torch.randn(5, 2))
    with pytest.raises(ShapeError, match="floating-point"):
        fit.update(torch.ones(2, 3).int())
    with pytest.raises(ShapeError, match="D_out"):
        Whitening(torch.zeros(3), torch.zeros(2, 2))
