"""Windows in which videos show others: steps, marks, scores of rectangles, and the window that is found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.records import Box, Frames
from hapvr.video.insets import MarkedLines, find_inset, find_window, mark_steps, measure_steps, score_rectangles

Luma = NDArray[np.int16]
WINDOW = (30, 24, 96, 70)


def draw_smooth(rng: np.random.Generator, count: int, height: int, width: int) -> NDArray[np.float64]:
    """Frames of soft blobs that change from one to the next, [T, H, W] in 0..255."""
    y, x = np.mgrid[:height, :width]
    frames = np.full((count, height, width), 120.0)
    for _ in range(6):
        down, across, drift = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(-4, 4, 2)
        for time in range(count):
            away = (y - down - drift[0] * time) ** 2 + (x - across - drift[1] * time) ** 2
            frames[time] += rng.choice([-70, 70]) * np.exp(-away / (2 * 22.0**2))
    return frames.clip(0, 255)


def draw_video(seed: int = 0, *, window: Box | None = WINDOW, moving: bool = True, count: int = 12) -> Luma:
    """A video of 100 x 160 pixels, in which a window shows another one."""
    rng = np.random.default_rng(seed)
    frames = draw_smooth(rng, count, 100, 160)
    if window is not None:
        left, top, right, bottom = window
        inside = 255 - draw_smooth(rng, count, bottom - top, right - left)
        frames[:, top:bottom, left:right] = inside if moving else inside[:1]
    return frames.astype(np.int16)


def make_frames(luma: Luma, *, source_size: tuple[int, int] | None = None, crop: Box | None = None) -> Frames:
    count, height, width = luma.shape
    images = np.repeat(luma.astype(np.uint8)[..., None], 3, -1)
    low = np.zeros(count, np.bool_)
    return Frames(
        images,
        np.arange(count) / 2,
        low,
        duration_s=count / 2,
        fps=2.0,
        source_size=source_size or (width, height),
        crop=crop,
    )


@pytest.mark.parametrize("seed", range(6))
def test_finds_the_window(seed: int) -> None:
    found = find_window(draw_video(seed))
    assert found is not None
    assert np.abs(np.subtract(found, WINDOW)).max() <= 2


@pytest.mark.parametrize("seed", range(6))
def test_finds_none_in_a_video_without_one(seed: int) -> None:
    assert find_window(draw_video(seed, window=None)) is None


def test_a_poster_is_no_window() -> None:
    assert find_window(draw_video(moving=False)) is None


@pytest.mark.parametrize(
    "window", [(30, 24, 42, 70), (30, 24, 42, 36), (4, 4, 156, 96), (30, 40, 150, 56)],
    ids=["narrow", "small", "nearly all", "a strip"],
)  # fmt: skip
def test_windows_of_odd_sizes_are_not_looked_for(window: Box) -> None:
    assert find_window(draw_video(window=window)) is None


def test_turning_the_picture_turns_the_window() -> None:
    """Upright and level lines are treated alike, and so are both ends of a line."""
    luma = draw_video(1)
    height, width = luma.shape[1:]
    left, top, right, bottom = find_window(luma) or pytest.fail("no window")
    assert find_window(luma.transpose(0, 2, 1)) == (top, left, bottom, right)
    assert find_window(luma[:, :, ::-1]) == (width - right, top, width - left, bottom)
    assert find_window(luma[:, ::-1]) == (left, height - bottom, right, height - top)
    assert find_window(luma + 9) == (left, top, right, bottom)
    assert find_window(luma[::-1]) == (left, top, right, bottom)


def test_the_window_is_in_pixels_of_the_source_within_its_bars() -> None:
    """Frames are a quarter of the part of the source that bars leave; a pixel at each side is left out."""
    luma = draw_video(2)
    whole = find_window(luma)
    assert whole is not None
    found = find_inset(make_frames(luma, source_size=(640, 480), crop=(0, 40, 640, 440)))
    left, top, right, bottom = whole
    assert found == (4 * (left + 1), 40 + 4 * (top + 1), 4 * (right - 1), 40 + 4 * (bottom - 1))


def test_a_few_frames_and_a_tiny_source_say_nothing() -> None:
    luma = draw_video(3)
    assert find_inset(make_frames(luma[:8])) is not None
    assert find_inset(make_frames(luma[:7])) is None
    assert find_inset(make_frames(luma, source_size=(80, 50))) is None  # the window would have 33 x 22 pixels
    assert find_window(luma[:, :20, :20]) is None


def test_of_many_frames_some_are_looked_at() -> None:
    luma = draw_video(4, count=16)
    long = np.repeat(luma, 8, 0)  # 128 frames, of which 32 are taken evenly
    assert find_inset(make_frames(long)) is not None


# --- steps and marks -------------------------------------------------------------------------------------------------


def test_steps_agree_with_a_loop() -> None:
    rng = np.random.default_rng(0)
    luma = rng.integers(0, 256, (3, 7, 9)).astype(np.int16)
    upright, level = measure_steps(luma)
    assert upright.shape == (7, 10)
    assert level.shape == (9, 8)
    for row, line in itertools.product(range(7), range(10)):
        inside = 2 <= line <= 9 - 2
        steps = [abs(int(frame[row, line + 1]) - int(frame[row, line - 2])) for frame in luma] if inside else [0]
        assert upright[row, line] == pytest.approx(np.mean(steps))
    for column, line in itertools.product(range(9), range(8)):
        inside = 2 <= line <= 7 - 2
        steps = [abs(int(frame[line + 1, column]) - int(frame[line - 2, column])) for frame in luma] if inside else [0]
        assert level[column, line] == pytest.approx(np.mean(steps))


def test_marks_agree_with_a_loop() -> None:
    rng = np.random.default_rng(1)
    steps = rng.gamma(1.0, 12.0, (5, 40)).astype(np.float32)
    marked = mark_steps(steps)
    assert marked.any()
    for row, line in itertools.product(range(5), range(40)):
        at = [float(steps[row, min(max(place, 0), 39)]) for place in range(line - 12, line + 13)]  # edges go on
        beside = max(np.mean(at[:9]), np.mean(at[-9:]))  # 12 to 4 lines before, 4 to 12 behind
        assert marked[row, line] == (steps[row, line] > 1.5 * beside + 4)


def test_lines_agree_with_a_loop() -> None:
    rng = np.random.default_rng(2)
    marks = rng.random((30, 12)) < 0.3
    lines = MarkedLines(marks)
    wide = [[any(marks[place, max(line - 1, 0) : line + 2]) for line in range(12)] for place in range(30)]
    for line, start, end in itertools.product(range(12), (0, 7), (7, 8, 30)):
        own = [wide[place][line] for place in range(start, end)]
        share = lines.share(np.array([line]), np.array([start]), np.array([end]))
        assert share[0] == pytest.approx(np.mean(own) if own else 0.0)
    chosen = lines.choose(6).tolist()
    best = [max(np.mean([row[line] for row in wide[start : start + 6]]) for start in range(24)) for line in range(12)]
    assert chosen
    assert all(best[line] >= 0.7 for line in chosen)
    assert all(after - before > 2 for before, after in itertools.pairwise(chosen))


def score_by_loop(upright: NDArray[np.bool_], level: NDArray[np.bool_], box: tuple[int, int, int, int]) -> float:
    """The score of one rectangle, place by place; marks are [places, lines]."""

    def is_step(marks: NDArray[np.bool_], line: int, place: int) -> bool:
        return bool(marks[place, max(line - 1, 0) : line + 2].any())

    def share(marks: NDArray[np.bool_], line: int, places: range) -> float:
        found = [is_step(marks, line, place) for place in places]
        return sum(found) / len(found) if found else 0.0

    left, top, right, bottom = box
    sides, beyond = [], []
    for marks, pair, start, end in ((upright, (left, right), top, bottom), (level, (top, bottom), left, right)):
        corner, reach, places = int(0.12 * (end - start)), int(0.15 * (end - start)) + 4, len(marks)
        before, behind = max(start - 3, 0), min(end + 3, places)
        for line in pair:
            sides.append(share(marks, line, range(start + corner, end - corner)))
            beyond.append(share(marks, line, range(max(before - reach, 0), before)))
            beyond.append(share(marks, line, range(behind, min(behind + reach, places))))
    weak = sorted(sides)[:2]
    return 0.7 * float(np.mean(sides)) + 0.3 * float(np.mean(weak)) - 0.8 * float(np.mean(beyond))


@pytest.mark.parametrize("seed", range(4))
def test_scores_of_rectangles_agree_with_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    upright, level = rng.random((40, 51)) < 0.4, rng.random((50, 41)) < 0.4
    boxes = np.array([(3, 5, 30, 28), (0, 0, 50, 40), (20, 2, 31, 39), (7, 20, 45, 33)])
    scores = score_rectangles(MarkedLines(upright), MarkedLines(level), *boxes.T)
    assert scores.tolist() == pytest.approx([score_by_loop(upright, level, tuple(box)) for box in boxes.tolist()])


def test_a_perfect_window_has_a_score_of_one_and_lines_that_go_on_lower_it() -> None:
    upright, level = np.zeros((60, 81), np.bool_), np.zeros((80, 61), np.bool_)
    upright[10:40, [20, 60]] = True
    level[20:60, [10, 40]] = True
    box = (np.array([side]) for side in (20, 10, 60, 40))
    left, top, right, bottom = box
    perfect = score_rectangles(MarkedLines(upright), MarkedLines(level), left, top, right, bottom)
    assert perfect[0] == pytest.approx(1.0)
    upright[:, [20, 60]] = True  # 4 of the 8 places beyond corners
    going_on = score_rectangles(MarkedLines(upright), MarkedLines(level), left, top, right, bottom)
    assert going_on[0] == pytest.approx(1 - 0.8 * 4 / 8)
