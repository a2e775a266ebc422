"""Stretches of two videos and their evidence: by hand, by loops, and laws."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.judge.alignment import align, make_pixel_views, measure_spread
from hapvr.judge.evidence import Evidence, PairFrames, Stretch, find_stretches, fit_line, measure_vector_changes
from hapvr.similarity import SegmentConfig

CONFIG = SegmentConfig()
Matrix = NDArray[np.float32]


def make_pair(
    times: list[float] | NDArray[np.float64], targets: NDArray[np.float64], *, seed: int = 0, noise: float = 0.05
) -> PairFrames:
    """Frame i of A, at times[i], shows what B shows at targets[i] (NaN: something else); B is 40 s long, 1 a second."""
    rng = np.random.default_rng(seed)
    b_times = np.arange(40.0)
    matrix = rng.normal(0.1, noise, (len(targets), 40)).astype(np.float32)
    for row, target in enumerate(targets):
        if not math.isnan(target):
            matrix[row] += 0.7 * np.maximum(0, 1 - np.abs(b_times - target) / 1.01).astype(np.float32)
    return PairFrames(matrix, matrix.T.copy(), np.asarray(times, np.float64), b_times)


def best(pair: PairFrames) -> Stretch:
    return max(find_stretches(pair, CONFIG), key=lambda one: one.evidence.frames)


def test_a_copied_stretch_is_found_with_its_place_and_speed() -> None:
    found = best(make_pair(np.arange(12.0), np.arange(12.0) + 7))
    assert found.segment.query == (0.0, 11.5)
    assert found.segment.target == (7.0, 18.5)  # A begins at 0, which is 7 in B
    assert (found.speed, found.shift) == (1.0, 7.0)
    assert not found.segment.backwards
    assert found.instants[0] == (0.0, 7.0)
    evidence = found.evidence
    assert evidence.similarity == pytest.approx(0.8, abs=0.1)
    assert evidence.in_step == pytest.approx((12 - 4) / 12, abs=0.06)  # all twelve, less four by chance
    assert evidence.frames == pytest.approx(math.log1p(12 - 4), abs=0.15)
    assert evidence.coverage == 1.0
    assert evidence.evenness == 0.0
    assert evidence.contrast > 1
    assert math.isnan(evidence.pixels)


@pytest.mark.parametrize(("speed", "shift"), [(2.0, 3.0), (0.5, 10.0), (-1.0, 30.0)])
def test_other_speeds_are_measured_and_speak_against_a_copy(speed: float, shift: float) -> None:
    found = best(make_pair(np.arange(16.0), speed * np.arange(16.0) + shift))
    assert found.speed == pytest.approx(speed, rel=0.06)
    assert found.speed * 8 + found.shift == pytest.approx(speed * 8 + shift, abs=0.6)
    assert found.segment.backwards is (speed < 0)
    assert found.evidence.evenness == pytest.approx(-abs(math.log(abs(speed))) - 0.5 * (speed < 0), abs=0.07)


def test_a_compilation_has_a_stretch_for_each_of_its_clips() -> None:
    targets = np.concatenate([np.arange(2.0, 10), np.arange(25.0, 33), np.arange(12.0, 20)])
    found = find_stretches(make_pair(np.arange(24.0), targets), CONFIG)
    for start, place in ((0, 2), (8, 25), (16, 12)):
        assert any(
            abs(one.segment.query[0] - start) <= 1
            and abs(one.segment.query[1] - start - 8) <= 1
            and abs(one.segment.target[0] - place) <= 1
            for one in found
        ), (start, [one.segment for one in found])


def test_every_stretch_is_straight_and_one_to_one() -> None:
    """A path that bends, as two clips at other speeds side by side make it, comes in straight pieces."""
    targets = np.concatenate([np.arange(2.0, 12), 12 + 2.0 * np.arange(8)])
    for one in find_stretches(make_pair(np.arange(18.0), targets), CONFIG):
        for query, target in one.instants:
            assert abs(one.speed * query + one.shift - target) <= 1.6 * max(1, abs(one.speed))
        lengths = [one.segment.query[1] - one.segment.query[0], one.segment.target[1] - one.segment.target[0]]
        assert max(lengths) / min(lengths) <= CONFIG.max_speed


def test_strangers_have_hardly_any_frames_in_step() -> None:
    pair = make_pair(np.arange(20.0), np.full(20, math.nan))
    assert all(one.evidence.in_step < 0.2 for one in find_stretches(pair, CONFIG))


def test_frames_in_step_are_counted_as_a_loop_counts_them() -> None:
    targets = np.arange(16.0) + 5
    targets[[3, 9, 10]] = [31, 2, 37]  # out of step
    pair = make_pair(np.arange(16.0), targets, noise=0.01)
    found = best(pair)

    def count(matrix: Matrix, own: NDArray[np.float64], other: NDArray[np.float64], shift: float) -> tuple[int, int]:
        standing_out = (matrix - matrix.mean(0)) / (matrix.std(0) + 0.03)
        inside = [t for t in range(len(own)) if own[t] in own_times]
        good = [t for t in inside if abs(other[standing_out[t].argmax()] - own[t] - shift) <= 1.25]
        return len(good), len(inside)

    own_times = {query for query, _ in found.instants}
    forth = count(pair.forth, pair.a_times, pair.b_times, found.shift)
    own_times = {target for _, target in found.instants}
    back = count(pair.back, pair.b_times, pair.a_times, -found.shift)
    shares = sorted(max(0, good - 4) / max(of, 8) for good, of in (forth, back))
    assert found.evidence.in_step == pytest.approx((2 * shares[1] + shares[0]) / 3, abs=0.05)


def test_the_evidence_of_b_and_a_is_that_of_a_and_b() -> None:
    pair = make_pair(np.arange(14.0), np.arange(14.0) + 9)
    swapped = PairFrames(pair.back, pair.forth, pair.b_times, pair.a_times)
    forth, back = best(pair), best(swapped)
    assert forth.segment.query == back.segment.target
    for field in dataclasses.fields(Evidence):
        one, other = getattr(forth.evidence, field.name), getattr(back.evidence, field.name)
        assert one == pytest.approx(other, abs=1e-5, nan_ok=True), field.name


def test_footage_around_it_does_not_change_the_times_of_a_stretch() -> None:
    alone = best(make_pair(np.arange(12.0), np.arange(12.0) + 7))
    around = np.concatenate([np.full(6, math.nan), np.arange(12.0) + 7, np.full(5, math.nan)])
    within = best(make_pair(np.arange(23.0), around))
    assert within.segment.target == (6.5, 18.5)  # halfway between frames
    assert alone.segment.target == (7.0, 18.5)  # where A begins
    assert within.segment.query == (5.5, 17.5)
    assert within.evidence.coverage < alone.evidence.coverage


def test_a_picture_has_its_instant() -> None:
    pair = make_pair([0.0], np.array([17.0]))
    (found,) = find_stretches(pair, CONFIG)
    assert found.instants == ((0.0, 17.0),)
    assert found.evidence.similarity > 0.6
    assert found.evidence.vector_changes == 0


def test_pixels_are_evidence_where_they_are_known() -> None:
    rng = np.random.default_rng(3)
    b_small = rng.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    pair = make_pair(np.arange(12.0), np.arange(12.0) + 7)
    same = dataclasses.replace(pair, a_small=b_small[7:19], b_small=b_small)
    other = dataclasses.replace(pair, a_small=rng.integers(0, 256, (12, 16, 16), dtype=np.uint8), b_small=b_small)
    assert best(same).evidence.changes > 0.95
    assert best(other).evidence.changes < 0.4


def test_vectors_that_change_alike_are_evidence() -> None:
    rng = np.random.default_rng(4)
    b_vectors = rng.normal(0, 1, (40, 8)).astype(np.float32)
    pair = make_pair(np.arange(12.0), np.arange(12.0) + 7)
    moved = b_vectors[7:19] + 5  # a constant part, as a host around a small picture adds, does not change
    same = dataclasses.replace(pair, a_vectors=moved, b_vectors=b_vectors)
    assert best(same).evidence.vector_changes == pytest.approx(1, abs=1e-4)
    slow = [
        float(np.dot(p, q) / (np.linalg.norm(p) * np.linalg.norm(q)))
        for p, q in zip(np.diff(moved[:5], axis=0), np.diff(b_vectors[:5], axis=0), strict=True)
    ]
    assert measure_vector_changes(moved[:5], b_vectors[:5]) == pytest.approx(np.median(slow), abs=1e-4)


def test_a_line_is_fitted_by_least_squares() -> None:
    assert fit_line(np.array([0.0, 1.0, 2.0]), np.array([4.0, 3.0, 2.0])) == (-1.0, 4.0)
    assert fit_line(np.array([0.0, 10.0]), np.array([0.0, 10.2]))[0] == 1.0  # within 4%: the same speed
    assert fit_line(np.array([2.0]), np.array([5.0])) == (1.0, 3.0)


def test_frames_that_are_taken_give_what_they_gave_alone() -> None:
    rng = np.random.default_rng(4)
    pair = make_pair(np.arange(16.0), np.arange(16.0) + 5)
    small = rng.integers(0, 255, (40, 16, 16)).astype(np.uint8)
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    whole = dataclasses.replace(
        pair,
        a_small=small[5:21],
        b_small=small,
        a_vectors=vectors[5:21],
        b_vectors=vectors,
        a_views=lambda: make_pixel_views(small[5:21]),
        b_views=lambda: make_pixel_views(small),
    )
    rows, columns = np.arange(3, 16), np.r_[0:10, 12:40]
    alone = PairFrames(
        pair.forth[3:][:, columns],
        pair.back[columns][:, 3:],
        np.arange(3.0, 16.0),
        np.r_[0.0:10, 12.0:40],
        small[8:21],
        small[columns],
        vectors[8:21],
        vectors[columns],
    )
    taken = find_stretches(whole.take(rows, columns), CONFIG)
    assert taken
    for one, other in zip(taken, find_stretches(alone, CONFIG), strict=True):
        assert (one.segment, one.instants) == (other.segment, other.instants)
        assert dataclasses.astuple(one.evidence) == pytest.approx(dataclasses.astuple(other.evidence), abs=1e-6)
    everything = find_stretches(whole.take(np.arange(16), np.arange(40)), CONFIG)
    assert [one.segment for one in everything] == [one.segment for one in find_stretches(whole, CONFIG)]


@pytest.mark.parametrize("axis", [0, 1])
def test_the_spread_is_the_mean_and_deviation_of_numpy_to_the_last_bit(axis: int) -> None:
    values = np.random.default_rng(axis).normal(size=(33, 21)).astype(np.float32)
    centred, deviation = measure_spread(values, axis)
    assert (centred == values - values.mean(axis, keepdims=True)).all()
    assert (deviation == values.std(axis, keepdims=True)).all()
    lines = values if axis else values.T
    slow = [math.sqrt(sum((x - sum(line) / len(line)) ** 2 for x in line) / len(line)) for line in lines.tolist()]
    assert deviation.ravel() == pytest.approx(slow, rel=1e-5)
    again = measure_spread(values + np.float32(4), axis)[1]  # what is added to all of them changes nothing
    assert again == pytest.approx(deviation, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_line_has_as_many_frames_as_by_a_slow_loop(seed: int) -> None:
    """For each speed and each frame's shift: how many frames have a shift from that up to two tolerances above it."""
    random = np.random.default_rng(seed)
    times, others = np.cumsum(random.uniform(0.4, 0.6, 24)), np.cumsum(random.uniform(0.4, 0.6, 30))
    matrix = random.normal(size=(24, 30)) * 0.1
    matrix[np.arange(4, 24), np.arange(4, 24) + seed] += 1.0  # in step from the fifth frame on, at about the same speed
    found = align(matrix, matrix.T, times, others)
    step = max(np.median(np.diff(times)), np.median(np.diff(others)))
    outstanding = (matrix - matrix.mean(0)) / (matrix.std(0) + 0.03)
    shown = others[outstanding.argmax(1)]
    shifts = sorted((shown - times).tolist())
    most = max(sum(low <= other <= low + 2.5 * step for other in shifts) for low in shifts)
    assert found.line is not None
    assert found.line.speed == 1.0
    assert found.shares[0] == pytest.approx((most - 4) / 24)
