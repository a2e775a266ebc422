from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hapvr.similarity import compute_frame_similarities, compute_keep_count, spatial
from hapvr.similarity.chamfer import Aggregation
from tests.similarity import reference

kinds = st.sampled_from(["topk", "chamfer", "max", "average"])


def videos(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def dense(query: Tensor, target: Tensor, kind: str, rate: float) -> Tensor:
    """All region similarities at once, differentiated by torch."""
    similarities = torch.einsum("hrd,wsd->hwrs", query, target)
    if kind == "max":
        return similarities.amax((-1, -2))
    k = {"topk": compute_keep_count(target.shape[1], rate), "chamfer": 1, "average": target.shape[1]}[kind]
    return similarities.topk(k, dim=-1).values.mean((-1, -2))


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), kinds, st.floats(0, 1), st.integers(0, 99))
def test_agrees_with_the_loop(height: int, width: int, regions: int, kind: Aggregation, rate: float, seed: int) -> None:
    query, target = videos(seed, (height, regions, 3), (width, regions, 3))
    expected = torch.tensor(reference.frame_matrix(query.tolist(), target.tolist(), kind, rate), dtype=torch.float64)
    torch.testing.assert_close(compute_frame_similarities(query, target, kind=kind, keep_rate=rate), expected)


@given(kinds, st.floats(0, 1), st.integers(1, 300), st.integers(0, 99))
def test_value_and_gradient_do_not_depend_on_the_blocks(kind: Aggregation, rate: float, cells: int, seed: int) -> None:
    query, target, weight = videos(seed, (7, 4, 5), (6, 4, 5), (7, 6))
    query, target = query.requires_grad_(), target.requires_grad_()
    expected = dense(query, target, kind, rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spatial, "_CPU_CELLS", cells)
        matrix = compute_frame_similarities(query, target, kind=kind, keep_rate=rate)
        gradients = torch.autograd.grad((matrix * weight).sum(), (query, target))
    torch.testing.assert_close(matrix, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad((expected * weight).sum(), (query, target)))


@given(st.sampled_from(["chamfer", "max"]), st.integers(1, 4000), st.integers(1, 40), st.integers(0, 99))
def test_pieces_that_fit_a_cache_change_no_value(kind: Aggregation, size: int, rows: int, seed: int) -> None:
    query, target = videos(seed, (7, 4, 5), (6, 3, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spatial, "_CACHED_BYTES", size)
        patch.setattr(spatial, "_CACHED_ROWS", rows)
        matrix = compute_frame_similarities(query, target, kind=kind)
    torch.testing.assert_close(matrix, dense(query, target, kind, 0.0))


@given(kinds, st.floats(0, 1), st.integers(1, 4000), st.integers(1, 40), st.integers(0, 99))
def test_both_ways_are_one_way_and_the_other(kind: Aggregation, rate: float, size: int, rows: int, seed: int) -> None:
    query, target = videos(seed, (7, 4, 5), (6, 3, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spatial, "_CACHED_BYTES", size)
        patch.setattr(spatial, "_CACHED_ROWS", rows)
        forth, back = spatial.compute_both_ways(query, target, kind=kind, keep_rate=rate)
    for found, (one, other) in ((forth, (query, target)), (back, (target, query))):
        expected = reference.frame_matrix(one.tolist(), other.tolist(), kind, rate)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_both_ways_can_be_learnt_from() -> None:
    query, target = videos(3, (4, 2, 3), (5, 2, 3))
    query.requires_grad_()
    forth, back = spatial.compute_both_ways(query, target, kind="chamfer")
    (gradient,) = torch.autograd.grad(forth.sum() + back.sum(), query)
    expected = dense(query, target, "chamfer", 0.0).sum() + dense(target, query, "chamfer", 0.0).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, query)[0])


def test_gradcheck() -> None:
    query, target = (video.requires_grad_() for video in videos(3, (3, 3, 4), (2, 3, 4)))
    for kind, rate in (("chamfer", 0.0), ("topk", 0.6), ("max", 0.0), ("average", 0.0)):
        assert torch.autograd.gradcheck(
            lambda q, t, kind=kind, rate=rate: compute_frame_similarities(q, t, kind=kind, keep_rate=rate),
            (query, target),
        )


@pytest.mark.parametrize(("here", "there"), [(2, 6), (6, 2), (300, 290)])
@pytest.mark.parametrize(("kind", "rate"), [("chamfer", 0.0), ("topk", 0.5), ("max", 0.0), ("average", 0.0)])
def test_query_and_target_may_have_different_numbers_of_regions(
    kind: Aggregation, rate: float, here: int, there: int
) -> None:
    """More than 256 regions, too: then a byte is not enough to remember which one was chosen."""
    query, target = (video.requires_grad_() for video in videos(1, (3, here, 4), (5, there, 4)))
    matrix, expected = (
        compute_frame_similarities(query, target, kind=kind, keep_rate=rate),
        dense(query, target, kind, rate),
    )
    torch.testing.assert_close(matrix, expected)
    weight = torch.randn(3, 5, dtype=torch.float64)
    gradients, theirs = (torch.autograd.grad((m * weight).sum(), (query, target)) for m in (matrix, expected))
    torch.testing.assert_close(gradients, theirs)


def test_only_one_of_the_videos_may_be_learning() -> None:
    query, target = videos(1, (3, 2, 4), (5, 2, 4))
    query.requires_grad_()
    compute_frame_similarities(query, target, kind="chamfer").sum().backward()  # type: ignore[no-untyped-call]
    assert query.grad is not None
    assert target.grad is None


def test_half_precision_is_accumulated_in_float32() -> None:
    query, target = videos(2, (4, 9, 64), (5, 9, 64), dtype=torch.float32)
    exact = compute_frame_similarities(query, target, kind="chamfer")
    with torch.autocast("cpu", torch.bfloat16):
        rounded = compute_frame_similarities(query, target, kind="chamfer")
    assert exact.dtype == rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.1)


def test_region_similarities_of_all_frames_are_never_held_at_once() -> None:
    """The largest tensor made is a block; the full [H, R, W, R] would be 21 million values."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
        ) -> object:
            nonlocal largest
            result = func(*args, **(kwargs or {}))  # type: ignore[operator,arg-type]
            if isinstance(result, Tensor):
                largest = max(largest, result.numel())
            return result

    query, target = (video.requires_grad_() for video in videos(0, (512, 9, 8), (512, 9, 8), dtype=torch.float32))
    with Watch():  # type: ignore[no-untyped-call]
        compute_frame_similarities(query, target, kind="chamfer").sum().backward()  # type: ignore[no-untyped-call]
    assert 0 < largest <= max(spatial._CPU_CELLS, 512 * 9 * 512)
