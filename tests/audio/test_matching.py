"""Matching of sounds: pairs and votes by hand, a slow loop, and laws of shifts, swaps and speeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hapvr.audio.fingerprints import FRAME_S, NOTHING, Fingerprint
from hapvr.audio.matching import MatchConfig, Pairs, SoundQuery, change_speed, find_same_sound, join_pairs, make_pairs


def draw_peaks(seed: int, frames: int, *, a_frame: float = 0.3) -> Fingerprint:
    """Peaks at random places, sorted."""
    rng = np.random.default_rng(seed)
    count = round(frames * a_frame)
    points = sorted({(int(t), int(b)) for t, b in rng.integers((frames, 256), size=(count, 2))})
    return Fingerprint(np.array([t for t, _ in points]), np.array([b for _, b in points]))


def shift(peaks: Fingerprint, frames: int) -> Fingerprint:
    return Fingerprint(peaks.frames + frames, peaks.bins)


def make_pairs_slowly(peaks: Fingerprint) -> list[tuple[int, int]]:
    points = list(zip(peaks.frames.tolist(), peaks.bins.tolist(), strict=True))
    made = []
    for place, (t, b) in enumerate(points):
        taken = 0
        for u, c in points[place + 1 :]:
            if taken < 5 and 2 <= u - t <= 63 and 2 <= abs(b - c) <= 64:
                made.append((((u - t) * 256 + b) * 256 + c, t))
                taken += 1
    counts = Counter(key for key, _ in made)
    return sorted((key, t) for key, t in made if counts[key] <= 24)


def test_pairs_of_four_peaks() -> None:
    # The second is too near to the first in time, the third too near in tone, the fourth too high.
    peaks = Fingerprint(np.array([0, 1, 10, 20]), np.array([50, 60, 51, 200]))
    assert make_pairs(peaks).keys.tolist() == [(9 * 256 + 60) * 256 + 51]
    assert make_pairs(peaks).frames.tolist() == [1]


@pytest.mark.parametrize("seed", [0, 1])
def test_pairs_agree_with_the_loop(seed: int) -> None:
    peaks = draw_peaks(seed, 400)
    pairs = make_pairs(peaks)
    assert list(zip(pairs.keys.tolist(), pairs.frames.tolist(), strict=True)) == make_pairs_slowly(peaks)


def test_joins_each_with_each() -> None:
    query = Pairs(np.array([3, 5, 5]), np.array([0, 1, 2]))
    target = Pairs(np.array([4, 5, 5, 6]), np.array([7, 8, 9, 10]))
    here, there = join_pairs(query, target)
    assert list(zip(here.tolist(), there.tolist(), strict=True)) == [(1, 8), (1, 9), (2, 8), (2, 9)]


def test_ten_moments_at_one_distance_are_the_same_sound_and_seven_are_not() -> None:
    keys, frames = np.arange(10), np.arange(10) * 10
    query, target = Pairs(keys, frames), Pairs(keys, frames + 50)
    (found,) = find_same_sound(query, target)
    assert found.query == pytest.approx((0, 90 * FRAME_S))
    assert found.events == 10
    assert found.target == pytest.approx((50 * FRAME_S, 140 * FRAME_S))
    assert find_same_sound(Pairs(keys[:7], frames[:7]), target) == ()


def test_a_query_that_begins_later_is_found_later_by_as_much() -> None:
    film = draw_peaks(7, 2_000)
    clip = Fingerprint(film.frames[300:450] - film.frames[300], film.bins[300:450])
    (plain,) = SoundQuery(clip).find(film)
    (later,) = SoundQuery(clip).find(shift(film, 40))
    assert plain.target[0] - plain.query[0] == pytest.approx(film.frames[300] * FRAME_S)
    assert later.query == plain.query
    assert later.events == plain.events > 50
    assert later.target == pytest.approx([one + 40 * FRAME_S for one in plain.target])


def test_swapping_the_two_swaps_the_stretches() -> None:
    film = draw_peaks(8, 2_000)
    clip = Fingerprint(film.frames[200:400] - 30, film.bins[200:400])
    (forth,), (back,) = (find_same_sound(make_pairs(a), make_pairs(b)) for a, b in ((clip, film), (film, clip)))
    assert forth.query == pytest.approx(back.target)
    assert forth.target == pytest.approx(back.query)


def test_two_stretches_in_another_order_are_both_found() -> None:
    a, b = draw_peaks(9, 400), draw_peaks(10, 400)
    both = [shift(a, 600), b]
    swapped = Fingerprint(*(np.concatenate([getattr(b, n), getattr(both[0], n)]) for n in ("frames", "bins")))
    query = Fingerprint(np.concatenate([a.frames, b.frames + 600]), np.concatenate([a.bins, b.bins]))
    found = SoundQuery(query).find(swapped)
    assert [round((one.target[0] - one.query[0]) / FRAME_S) for one in found] == [600, -600]


def test_other_sounds_and_silence_are_told_apart() -> None:
    one, other = draw_peaks(11, 1_500), draw_peaks(12, 1_500)
    query = SoundQuery(one)
    assert query.compare(one).kind == "same"
    assert query.compare(other).kind == "other"
    assert query.compare(NOTHING).kind == "silent"
    assert SoundQuery(NOTHING).compare(one).kind == "silent"


@pytest.mark.parametrize("speed", [0.96, 1.03])
def test_a_query_at_another_speed_is_found_with_its_own_times(speed: float) -> None:
    film = draw_peaks(13, 1_500)
    fast = change_speed(film, 1 / speed)
    (found,) = SoundQuery(fast).find(film)
    assert found.speed == pytest.approx(speed)
    for query, target in zip(found.query, found.target, strict=True):
        assert query * speed == pytest.approx(target, abs=0.1)
    assert SoundQuery(fast, speeds=(1.0,)).find(film) == ()


def test_fewer_moments_than_the_limit_are_no_match() -> None:
    film = draw_peaks(14, 1_000)
    (found,) = SoundQuery(film).find(film)
    assert SoundQuery(film, config=MatchConfig(min_events=found.events + 1)).find(film) == ()
