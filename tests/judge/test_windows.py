"""Pictures found within pictures: by hand, by a slow loop over all windows, and laws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.judge import windows
from hapvr.judge.windows import Window, correlate_in, find_window

Bytes = NDArray[np.uint8]


def film(seed: int, frames: int = 10) -> Bytes:
    """Soft blobs that change from frame to frame."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(128, 45, (frames, 5, 5))
    grid = np.linspace(0, 4, 16)
    weights = np.maximum(0, 1 - np.abs(grid[:, None] - np.arange(5)))  # linear interpolation
    return np.asarray(np.clip(weights @ coarse @ weights.T, 0, 255), np.uint8)


def paste(small: Bytes, large: Bytes, window: Window) -> Bytes:
    """`large` with `small`, shrunk, in a window of it."""
    shown = np.rot90(small[:, :, ::-1] if window.mirrored else small, window.turns, (1, 2)).astype(np.float32)
    part = windows._shrink(window.height) @ shown @ windows._shrink(window.width).T
    pasted = large.copy()
    pasted[:, window.top : window.top + window.height, window.left : window.left + window.width] = part.round()
    return pasted


def find_slowly(a: Bytes, b: Bytes) -> tuple[float, Window]:
    """Every window, one after the other."""
    x, y = (np.clip(np.diff(one.astype(np.float64), axis=0), -48, 48) for one in (a, b))
    best, where = -2.0, Window(0, 0, 16, 16)
    tried = [
        Window(one.top, one.left, one.height, one.width, b_in_a, mirrored)
        for one in windows._windows().windows
        for b_in_a in (False, True)
        for mirrored in (False, True)
    ]
    for window in [*tried, *(Window(0, 0, 16, 16, turns=turns) for turns in (1, 2, 3))]:
        large, small = (x, y) if window.b_in_a else (y, x)
        small = np.rot90(small[:, :, ::-1] if window.mirrored else small, window.turns, (1, 2))
        rows, columns = windows._shrink(window.height), windows._shrink(window.width)
        product = one = other = 0.0
        for picture, whole in zip(small, large, strict=True):
            part = rows @ picture @ columns.T
            cut = whole[window.top : window.top + window.height, window.left : window.left + window.width]
            part, cut = part - part.mean(), cut - cut.mean()
            product, one, other = product + (part * cut).sum(), one + (part**2).sum(), other + (cut**2).sum()
        floor = 1.5**2 * len(x) * window.height * window.width
        value = product / np.sqrt((one + floor) * (other + floor))
        if value > best:
            best, where = value, window
    return best, where


@pytest.mark.parametrize(
    "window",
    [
        Window(0, 0, 16, 16),
        Window(3, 4, 7, 7, mirrored=True),
        Window(9, 2, 6, 6, b_in_a=True),
        Window(0, 5, 16, 7),
        Window(1, 1, 14, 14, b_in_a=True, mirrored=True),
    ],
)
def test_a_pasted_film_is_found_where_it_is_and_nothing_else_moves_alike(window: Window) -> None:
    small, large = film(1), film(2)
    whole = paste(small, large, window)
    a, b = (whole, small) if window.b_in_a else (small, whole)
    found = find_window(a, b)
    assert found.changes > 0.97
    assert found.pixels > 0.95
    assert found.moves > 10
    if window.height < 16 or window.width < 16:  # the whole lies in the whole either way round
        assert found.window == window
    assert find_window(film(3), b).changes < 0.6


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_turned_film_is_found_by_its_quarters(turns: int) -> None:
    small = film(1)
    found = find_window(small, np.ascontiguousarray(np.rot90(small, turns, (1, 2))))
    assert found.changes > 0.99
    assert found.window.turns == turns or (turns == 2 and found.window.turns == 2)


@pytest.mark.parametrize("seed", range(4))
def test_find_window_agrees_with_a_loop_over_all_windows(seed: int) -> None:
    a, b = film(seed), film(seed + 50)
    if seed % 2:
        b = paste(a, b, Window(4, 3, 8, 8))
    found = find_window(a, b)
    best, where = find_slowly(a, b)
    assert found.pooled == pytest.approx(best, abs=1e-4)
    assert correlate_in(
        np.clip(np.diff(a.astype(np.float32), axis=0), -48, 48),
        np.clip(np.diff(b.astype(np.float32), axis=0), -48, 48),
        found.window,
        noise=1.5,
    ) == pytest.approx(best, abs=1e-4)
    assert (found.window == where) or abs(found.pooled - best) < 1e-4


def test_correlation_in_the_whole_picture_is_the_one_computed_by_hand() -> None:
    one, other = np.zeros((1, 16, 16), np.float32), np.zeros((1, 16, 16), np.float32)
    one[0, :8], other[0, :, :8] = 100, 100  # upper half, left half: a quarter in common, as chance would have it
    assert correlate_in(one, other, Window(0, 0, 16, 16)) == pytest.approx(0, abs=1e-6)
    # 50 * 50 / (50 * 50 + 16): deviation 50, noise 4.
    assert correlate_in(one, one, Window(0, 0, 16, 16)) == pytest.approx(2500 / 2516)
    assert correlate_in(one, 200 - one, Window(0, 0, 16, 16)) == pytest.approx(-2500 / 2516)


def test_swapping_the_videos_swaps_the_window_and_keeps_the_evidence() -> None:
    a, b = film(1), paste(film(1), film(2), Window(2, 6, 8, 8))
    forth, back = find_window(a, b), find_window(b, a)
    assert (forth.changes, forth.pixels, forth.moves) == pytest.approx(
        (back.changes, back.pixels, back.moves), abs=1e-5
    )
    assert back.window.b_in_a is not forth.window.b_in_a


def test_brightness_and_contrast_do_not_count() -> None:
    a = film(1)
    dim = (a * 0.6 + 40).astype(np.uint8)
    assert find_window(a, dim).changes > 0.97


def test_two_takes_before_one_background_agree_in_pictures_and_not_in_changes() -> None:
    background = film(7, 1)[0].astype(np.float32)

    def take(seed: int) -> Bytes:
        rng = np.random.default_rng(seed)
        frames = np.repeat(background[None], 12, 0)
        for frame in frames:
            y, x = rng.integers(0, 12, 2)
            frame[y : y + 4, x : x + 4] += 60
        return np.asarray(np.clip(frames, 0, 255), np.uint8)

    same, other = find_window(take(1), take(1)), find_window(take(1), take(2))
    assert same.changes > 0.95
    assert other.changes < 0.5
    assert correlate_in(take(1).astype(np.float32), take(2).astype(np.float32), Window(0, 0, 16, 16)) > 0.5


def test_a_cut_does_not_make_two_takes_agree() -> None:
    """Everything changes at a cut between the same two places; before and after, nothing is alike."""
    places = [film(8, 1)[0].astype(np.float32), film(9, 1)[0].astype(np.float32)]

    def take(seed: int) -> Bytes:
        rng = np.random.default_rng(seed)
        return np.stack([np.clip(places[t >= 6] + rng.normal(0, 7, (16, 16)), 0, 255) for t in range(12)]).astype(
            np.uint8
        )

    found = find_window(take(1), take(2))
    assert found.pooled > 0.4
    assert abs(found.changes) < 0.2
    assert find_window(take(1), take(1)).changes > 0.9


def test_changes_are_the_median_over_steps_by_a_loop() -> None:
    a, b = film(4), paste(film(4), film(5), Window(2, 2, 12, 12))
    b[4:6] = film(6)[4:6]  # three of the nine steps agree no more
    found = find_window(a, b)
    x, y = (np.clip(np.diff(one.astype(np.float32), axis=0), -48, 48) for one in (a, b))
    steps = [correlate_in(x[t : t + 1], y[t : t + 1], found.window, noise=1.5) for t in range(9)]
    assert found.changes == pytest.approx(sorted(steps)[4], abs=1e-5)
    assert min(steps) < 0.6 < 0.9 < found.changes


def test_a_still_film_has_no_changes_to_agree_in() -> None:
    still = np.repeat(film(1, 1), 6, 0)
    found = find_window(still, still)
    assert found.changes == pytest.approx(0, abs=1e-6)
    assert found.moves == pytest.approx(0, abs=1e-6)


def test_a_single_picture_is_found_by_its_pixels() -> None:
    picture = film(1, 1)
    found = find_window(picture, paste(picture, film(2, 1), Window(3, 3, 10, 10)))
    assert found.window == Window(3, 3, 10, 10)
    assert found.pixels > 0.95
    assert found.changes == 0
