"""TMK and LAMV against the double sum over frames that their descriptions stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hapvr.features import Features
from hapvr.methods import fit_method, make_method
from hapvr.methods.tmk import KernelMethod, TMKSettings, compute_von_mises
from tests.methods.toy import DIMS, draw_clips, draw_video, make_copy


def kernel(method: KernelMethod[TMKSettings], period: int, u: float) -> float:
    """k(u) = sum over f of a_f cos(2 pi f u / period)."""
    weights = method.coefficients()[period].double().tolist()
    seconds = method.settings.periods_s[period]
    return sum(float(weight) * math.cos(2 * math.pi * number * u / seconds) for number, weight in enumerate(weights))


def sum_pairs(method: KernelMethod[TMKSettings], period: int, one: Features, other: Features, offset: float) -> float:
    total = 0.0
    frames = [method.pool_frames(video.regions).double() for video in (one, other)]
    for x, t in zip(frames[0], one.times, strict=True):
        for y, u in zip(frames[1], other.times, strict=True):
            total += float(x @ y) * kernel(method, period, u - t - offset)
    return total


@pytest.mark.parametrize("name", ["tmk", "lamv"])
def test_the_score_is_the_kernel_at_each_offset(name: str) -> None:
    settings = {"shortest_s": 9.0, "periods": 2, "frequencies": 5, "step_s": 1.0, "sharpness": 3.0}
    method = make_method(name, DIMS, settings, seed=2)
    assert isinstance(method, KernelMethod)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
        one, other = draw_video(1, frames=7), draw_video(2, frames=5)
        described = [method.describe(video) for video in (one, other)]
        offsets = method.list_offsets(3.0)
        found = method.evaluate_kernels(
            described[0].values[None].double(), described[1].values[None].double(), offsets.double()
        )[0, 0]
        expected = []
        for offset in offsets.tolist():
            values = []
            for period in range(2):
                norms = [sum_pairs(method, period, video, video, 0.0) for video in (one, other)]
                values.append(sum_pairs(method, period, one, other, offset) / math.sqrt(norms[0] * norms[1]))
            expected.append(sum(values) / 2)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    best = method.find_offsets([described[0]], [described[1]])
    overlapping = {offset: value for offset, value in zip(offsets.tolist(), expected, strict=True) if -3 <= offset <= 2}
    assert len(overlapping) < len(expected)  # the query ends at 3 s, the target at 2
    assert best.score.item() == pytest.approx(max(overlapping.values()), abs=1e-5)
    assert best.offset_s.item() == max(overlapping, key=lambda offset: overlapping[offset])


def test_von_mises_coefficients_give_the_kernel() -> None:
    for sharpness in (0.5, 8.0):
        weights = compute_von_mises(sharpness, 60).double()
        for x in (0.0, 0.3, 2.0, math.pi):
            low = math.exp(-sharpness)
            expected = (math.exp(sharpness * math.cos(x)) - low) / (2 * math.sinh(sharpness))
            found = sum(weight * math.cos(number * x) for number, weight in enumerate(weights.tolist()))
            assert found == pytest.approx(expected, abs=1e-5)


def test_a_cut_copy_is_found_where_it_was_cut() -> None:
    method = make_method("tmk", DIMS)
    whole = draw_video(1, frames=40)
    cut = Features(whole.regions[10:26], whole.times[10:26] - whole.times[10])  # from 5.0 s on
    query, target = method.describe(cut), method.describe(whole)
    assert isinstance(method, KernelMethod)
    assert method.find_offsets([query], [target]).offset_s.item() == 5.0
    assert method.find_offsets([target], [query]).offset_s.item() == -5.0
    assert method.locate(query, target) == [((0.0, 8.0), (5.0, 13.0))]


def test_thresholds_of_segments_lie_between_unlike_and_alike() -> None:
    for name in ("tmk", "visil-f"):
        method = make_method(name, DIMS)
        fit_method(method, draw_clips())
        low, high = method.state_dict()["evidence_scale"].tolist()
        assert low < high
        same = [method.describe(video) for video in (draw_video(1), make_copy(draw_video(1), 1))]
        ((start, end), (target_start, target_end)) = method.locate(same[0], same[1])[0]
        assert max(start, target_start) <= 0.5
        assert min(end, target_end) >= 5.0
        assert method.locate(same[0], method.describe(draw_video(4))) == []
