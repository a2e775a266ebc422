"""The second look at the files: a copy moves as its original does, another take before the same wall does not."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.judge import second_look
from hapvr.judge.frame_strips import Strip
from hapvr.judge.instants import InstantLook, InstantPair, compare_changes, summarise
from hapvr.judge.registration import (
    LocalFeatures,
    Matches,
    correlate,
    find_by_size,
    find_features,
    find_mappings,
    flip_matrix,
    is_available,
    is_plausible,
    lay_over,
    limit_threads,
    match_features,
    mirror_descriptors,
    rms,
    scale_matrix,
    transform,
    warp,
)
from hapvr.judge.second_look import QuerySecondLook, SecondLook, SecondLookConfig, choose_instants, take_second_look
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.film_numbers import fractal_noise
from hapvr.video import sandboxed
from hapvr.video.decode import decode

pytestmark = pytest.mark.skipif(not is_available(), reason="OpenCV is not installed (the extra 'second-look')")

Images = NDArray[np.uint8]
HEIGHT, WIDTH, FPS, SECONDS = 180, 240, 10.0, 6.0
INSTANTS = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (5.0, 5.0)]
PATIENT = SecondLookConfig(max_seconds=60.0)  # the machine may be busy


def draw_take(seed: int) -> Images:
    """A mover of the seed's own texture on the seed's own path, always before the same wall."""
    wall = _texture(7, HEIGHT, WIDTH)
    rng = np.random.default_rng(seed)
    mover = _texture(100 + seed, 70, 60)
    phase, pace = rng.uniform(0, 6, 4), rng.uniform(0.8, 1.8, 4)
    images = []
    for frame in range(round(SECONDS * FPS)):
        time_s = frame / FPS
        swing = np.sin(pace * time_s * 2 + phase)
        y, x = round(55 + 25 * swing[0] + 20 * swing[1]), round(90 + 45 * swing[2] + 35 * swing[3])
        image = wall.copy()
        image[y : y + 70, x : x + 60] = mover
        images.append(image)
    return np.stack(images)


def _texture(seed: int, height: int, width: int) -> Images:
    y, x = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None]
    noise = fractal_noise(np.random.default_rng(seed), y, x, 24.0)
    noise = (noise - noise.min()) / (noise.max() - noise.min())
    return np.repeat((30 + 190 * noise)[..., None], 3, axis=2).astype(np.uint8)


def _resize(images: Images, height: int, width: int) -> Images:
    import cv2

    return np.stack([np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)) for image in images])


def _put_into(images: Images, host: Images) -> Images:
    """A small picture in a picture."""
    result = host.copy()
    result[:, 80:170, 20:140] = _resize(images, 90, 120)
    return result


def _host() -> Images:
    """Another scene, which moves too."""
    wide = _texture(55, HEIGHT, 2 * WIDTH)
    return np.stack([wide[:, 2 * step : 2 * step + WIDTH] for step in range(round(SECONDS * FPS))])


EDITS: dict[str, Callable[[Images], Images]] = {
    "same": lambda images: images,
    "crop": lambda images: images[:, 15:165, 30:210],
    "mirror": lambda images: images[:, :, ::-1],
    "picture in picture": lambda images: _put_into(images, _host()),
    "brighter": lambda images: np.clip(images * 0.6 + 70, 0, 255).astype(np.uint8),
    "letterbox": lambda images: np.pad(images, ((0, 0), (50, 50), (0, 0), (0, 0))),
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The original, another take, and an edited copy of each, as files."""
    folder = tmp_path_factory.mktemp("films")
    for name, seed in (("original", 1), ("take", 2)):
        images = draw_take(seed)
        for edit, change in EDITS.items():
            write_clip(Clip(np.ascontiguousarray(change(images)), FPS), folder / f"{name} {edit}.mp4")
    return folder


def look_at(query: Path, target: Path, **options: Any) -> SecondLook:
    found = take_second_look(query, target, INSTANTS, **{"speed": 1.0, "config": PATIENT, **options})
    assert found is not None
    assert all(math.isfinite(float(value)) for value in vars(found).values())
    return found


# --- whole looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", EDITS)
def test_a_copy_moves_as_its_original_and_another_take_does_not(films: Path, edit: str) -> None:
    copy = look_at(films / f"original {edit}.mp4", films / "original same.mp4")
    take = look_at(films / f"take {edit}.mp4", films / "original same.mp4")
    assert copy.motion > 0.85
    assert take.motion < copy.motion - 0.4
    assert copy.structure > 0.9
    assert copy.instants == take.instants == 4
    assert copy.moves > 5
    assert copy.mirrored == (edit == "mirror")


def test_one_instant_is_enough_where_nothing_is_alike(films: Path, tmp_path: Path) -> None:
    write_clip(Clip(_host(), FPS), tmp_path / "host.mp4")
    strange = look_at(tmp_path / "host.mp4", films / "original same.mp4")
    assert strange.instants == 1
    assert strange.motion < 0.25
    assert strange.inliers < 6


def test_the_wall_alone_would_not_tell_them_apart(films: Path) -> None:
    take = look_at(films / "take crop.mp4", films / "original same.mp4")
    assert take.structure > 0.4
    assert take.inliers > 10


@pytest.mark.parametrize("edit", EDITS)
def test_the_two_files_may_change_places(films: Path, edit: str) -> None:
    copy = look_at(films / "original same.mp4", films / f"original {edit}.mp4")
    assert copy.motion > 0.85
    assert copy.mirrored == (edit == "mirror")


def test_how_much_is_covered(films: Path) -> None:
    small = look_at(films / "original picture in picture.mp4", films / "original same.mp4")
    assert small.area == pytest.approx(90 * 120 / (HEIGHT * WIDTH), rel=0.1)
    whole = look_at(films / "original crop.mp4", films / "original same.mp4")
    assert whole.area > 0.95


def test_instants_that_are_half_a_second_off_are_brought_into_step(films: Path) -> None:
    path = films / "original same.mp4"
    found = take_second_look(path, path, [(q, t + 0.6) for q, t in INSTANTS[:4]], speed=1.0, config=PATIENT)
    assert found is not None
    assert found.motion > 0.95


@pytest.mark.parametrize("slow", ["query", "target", "both"])
def test_files_of_one_frame_a_second_are_compared_too(films: Path, tmp_path: Path, slow: str) -> None:
    def pick(name: str, side: str) -> Path:
        if slow not in (side, "both"):
            return films / f"{name} crop.mp4"
        path = tmp_path / f"{name} {side}.mp4"
        write_clip(Clip(np.ascontiguousarray(EDITS["crop"](draw_take(1 + (name == "take")))[:: round(FPS)]), 1.0), path)
        return path

    target = pick("original", "target")
    copy, take = look_at(pick("original", "query"), target), look_at(pick("take", "query"), target)
    assert copy.motion > 0.9
    assert take.motion < 0.6


def test_a_reversed_copy_is_followed_backwards(films: Path, tmp_path: Path) -> None:
    images = draw_take(1)[::-1]
    write_clip(Clip(np.ascontiguousarray(images), FPS), tmp_path / "reversed.mp4")
    last = (len(images) - 1) / FPS
    instants = [(last - q, q) for q, _ in INSTANTS]
    paths = tmp_path / "reversed.mp4", films / "original same.mp4"
    backwards = take_second_look(*paths, instants, speed=-1.0, config=PATIENT)
    forwards = take_second_look(*paths, instants, speed=1.0, config=PATIENT)
    assert backwards is not None
    assert forwards is not None
    assert backwards.motion > 0.95
    assert forwards.motion < 0.6


def test_where_nothing_moves_motion_is_zero(tmp_path: Path) -> None:
    still = np.repeat(draw_take(1)[:1], 40, axis=0)
    write_clip(Clip(still, FPS), tmp_path / "a.mp4")
    found = take_second_look(tmp_path / "a.mp4", tmp_path / "a.mp4", [(1.0, 2.0)], speed=1.0, config=PATIENT)
    assert found is not None
    assert found.motion == 0.0
    assert found.moves < 0.5
    assert found.structure > 0.99
    assert found.inliers > 100


def test_decoding_in_another_process_gives_the_same(films: Path) -> None:
    paths = films / "original crop.mp4", films / "original same.mp4"
    config = SecondLookConfig(max_seconds=60.0, isolate=True, memory_bytes=2**32)
    assert look_at(*paths, config=config) == look_at(*paths)


# --- files that cannot be compared, and time -------------------------------------------------------------------------


@pytest.mark.parametrize("isolate", [False, True])
def test_a_file_that_is_gone_or_damaged_gives_none(films: Path, tmp_path: Path, isolate: bool) -> None:
    whole = films / "original same.mp4"
    (tmp_path / "damaged.mp4").write_bytes(whole.read_bytes()[:2000])
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty.mp4").touch()
    config = SecondLookConfig(max_seconds=60.0, isolate=isolate)
    for name in ("gone.mp4", "damaged.mp4", "text.mp4", "empty.mp4", "."):
        for pair in ((tmp_path / name, whole), (whole, tmp_path / name)):
            assert take_second_look(*pair, INSTANTS[:1], speed=1.0, config=config) is None


def test_without_time_there_is_no_look(films: Path) -> None:
    path = films / "original same.mp4"
    ticks = itertools.count(0.0, 11.0)
    query = QuerySecondLook(path, config=SecondLookConfig(max_seconds=10.0), clock=ticks.__next__)
    assert query.compare(path, INSTANTS, speed=1.0) is None


@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(60)", "import os; os.abort()", "print('no JSON')", "print('{\"sizes\": [0]}')", ""],
)
def test_a_process_that_hangs_or_crashes_gives_none(films: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr("hapvr.video.isolated.python_command", lambda *_, **__: [sys.executable, "-c", program])
    monkeypatch.setattr(second_look, "_START_S", 0.5)
    path = films / "original same.mp4"
    config = SecondLookConfig(max_seconds=0.5, isolate=True)
    assert take_second_look(path, path, INSTANTS, speed=1.0, config=config) is None


def test_instants_past_the_end_are_left_out(films: Path) -> None:
    path = films / "original same.mp4"
    found = take_second_look(
        path, path, [(1.0, 1.0), (2.0, 900.0), (900.0, 2.0), (3.0, 3.0)], speed=1.0, config=PATIENT
    )
    assert found is not None
    assert found.instants == 2
    assert take_second_look(path, path, [(900.0, 900.0)], speed=1.0, config=PATIENT) is None


@pytest.mark.parametrize("instants", [[], [(math.nan, 1.0)], [(-1.0, 1.0)], [(1.0, math.inf)]])
def test_without_an_instant_there_is_nothing_to_compare(films: Path, instants: list[tuple[float, float]]) -> None:
    path = films / "original same.mp4"
    assert take_second_look(path, path, instants, speed=1.0) is None


@pytest.mark.parametrize("speed", [0.0, math.nan, math.inf])
def test_without_a_speed_there_is_nothing_to_compare(films: Path, speed: float) -> None:
    path = films / "original same.mp4"
    assert take_second_look(path, path, INSTANTS, speed=speed) is None


def test_without_opencv_there_is_no_second_look(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_look, "is_available", lambda: False)
    path = films / "original same.mp4"
    assert take_second_look(path, path, INSTANTS, speed=1.0, config=PATIENT) is None


def test_instants_not_reached_in_time_are_left_out(films: Path) -> None:
    path = films / "original same.mp4"
    config = SecondLookConfig(max_seconds=10.0)
    # The clock is read at the start, then three times for each instant: before each of its files and after them.
    for seconds, expected in ((0.8, 4), (1.0, 3), (1.7, 2), (3.0, 1)):
        ticks = itertools.count(0.0, seconds)
        found = QuerySecondLook(path, config=config, clock=ticks.__next__).compare(path, INSTANTS, speed=1.0)
        assert found is not None
        assert found.instants == expected


def test_a_query_is_read_once_for_several_targets(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = sandboxed.call_sandboxed

    def note(function: Callable[..., Any], path: Path, *arguments: Any, **options: Any) -> Any:
        read.append(path.name if function is decode else "")
        return plain(function, path, *arguments, **options)

    monkeypatch.setattr(sandboxed, "call_sandboxed", note)
    query = QuerySecondLook(films / "original crop.mp4", config=PATIENT)
    targets = films / "original same.mp4", films / "take same.mp4"
    found = [query.compare(target, INSTANTS, speed=1.0) for target in targets]
    assert read.count("original crop.mp4") == 4
    assert found == [look_at(films / "original crop.mp4", target) for target in targets]


def test_instants_are_spread_and_cheap() -> None:
    assert choose_instants([0.0] * 12, 3) == [2, 6, 10]
    assert choose_instants([9.0, 9, 9, 1, 9, 1, 9, 9, 9, 9, 9, 9], 3) == [3, 5, 10]
    assert choose_instants([1.0, 2.0], 4) == [0, 1]
    assert choose_instants([], 4) == []


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_seconds must be positive, got 0"):
        SecondLookConfig(max_seconds=0)
    with pytest.raises(ConfigError, match="refine_s must not be negative"):
        SecondLookConfig(refine_s=-1)


def test_the_threads_of_opencv_are_limited_and_given_back() -> None:
    import cv2

    before = cv2.getNumThreads()
    with limit_threads(1):
        assert cv2.getNumThreads() == 1
        with limit_threads(1):
            pass
        assert cv2.getNumThreads() == 1
    assert cv2.getNumThreads() == before


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_the_correlation_of_pictures_by_hand() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 99.0]]), np.array([[2.0, 4.0], [9.0, -5.0]])
    mask = np.array([[True, True], [True, False]])
    # Around their means (2 and 5): -1 0 1 and -3 -1 4; 7 / sqrt(2 * 26).
    assert correlate(a, b, mask) == pytest.approx(7 / math.sqrt(52))
    assert correlate(a, 3 * a + 10, mask) == pytest.approx(1)
    assert correlate(a, -a, mask) == pytest.approx(-1)
    assert correlate(a, np.full_like(a, 4.0), mask) == 0
    assert correlate(a, b, np.zeros_like(mask)) == 0


def test_the_correlation_agrees_with_a_loop() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(100, 20, (9, 13)).astype(np.float32), rng.normal(90, 10, (9, 13)).astype(np.float32)
    b += a / 2
    mask = rng.random((9, 13)) < 0.7
    places = [(y, x) for y in range(9) for x in range(13) if mask[y, x]]
    mean_a = sum(float(a[place]) for place in places) / len(places)
    mean_b = sum(float(b[place]) for place in places) / len(places)
    products = squares_a = squares_b = 0.0
    for place in places:
        x, y = float(a[place]) - mean_a, float(b[place]) - mean_b
        products, squares_a, squares_b = products + x * y, squares_a + x * x, squares_b + y * y
    assert correlate(a, b, mask) == pytest.approx(products / math.sqrt(squares_a * squares_b), rel=1e-9)
    assert rms(a[mask]) == pytest.approx(math.sqrt(sum(float(a[place]) ** 2 for place in places) / len(places)))


def _strip(values: list[float], times: list[float], time_s: float, seed: int = 3) -> Strip:
    """Frames of one texture, to which each frame adds its value times a bump."""
    picture = _texture(seed, 64, 96)[..., 0].astype(np.float64) / 2
    bump = np.zeros((64, 96))
    bump[20:40, 30:60] = 1.0
    images = np.stack([np.repeat((picture + value * bump)[..., None], 3, 2) for value in values]).astype(np.uint8)
    return Strip(images, np.array(times), time_s, 0.5, 100)


def test_the_correlation_of_changes_by_hand() -> None:
    times = [0.6, 1.0, 1.4]
    identity = lay_over((0, 0, 96, 64), (0, 0, 96, 64), mirrored=False)
    query = _strip([0, 20, 60], times, 1.0)

    def look(values: list[float], speed: float = 1.0) -> InstantLook:
        target = _strip(values, times, 1.0)
        found = InstantPair(query, target, speed, 0.4, SecondLookConfig(refine_s=0.0)).look(identity)
        assert found is not None
        return found

    # The query changes by 40 and -20 times a bump that covers the share p of the picture.
    p = 600 / 6144
    assert look([0, 20, 60]).motion == pytest.approx(1, abs=0.01)
    assert look([60, 20, 0], speed=-1.0).motion == pytest.approx(1, abs=0.01)
    # By 10 and -10: covariance 300 p; variances 1000 p - 100 p^2 and 100 p.
    assert look([10, 20, 30]).motion == pytest.approx(3 / math.sqrt(10 - p), abs=0.01)
    # By -20 and 40: covariance -800 p - 100 p^2; variances as that of the query.
    assert look([60, 20, 0]).motion == pytest.approx(-(8 + p) / (10 - p), abs=0.01)
    # Where only one of them moves, nothing moves alike.
    assert (look([20, 20, 20]).motion, look([20, 20, 20]).moves) == (0, 0)
    # The smaller change of the two, 10 grey levels over 600 of 6,144 pixels; blurred a little at its edge.
    assert look([10, 20, 30]).moves == pytest.approx(10 * math.sqrt(600 / 6144), rel=0.1)


def test_changes_of_which_none_moves_say_nothing() -> None:
    still, faint, strong = np.zeros(100, np.float32), np.full(100, 0.3, np.float32), np.full(100, 9.0, np.float32)
    strong[::2] = -9.0
    assert compare_changes([], min_moves=0.5) == (None, 0.0)
    assert compare_changes([(still, faint)], min_moves=0.5) == (None, 0.0)
    assert compare_changes([(strong, still)], min_moves=0.5) == (0.0, 0.0)
    motion, moves = compare_changes([(strong, -strong)], min_moves=0.5)
    assert motion == pytest.approx(-1)
    assert moves == 9.0


def _look(**values: Any) -> InstantLook:
    mapping = lay_over((0, 0, 9, 9), (0, 0, 9, 9), mirrored=values.pop("mirrored", False))
    return InstantLook(mapping, **{"structure": 0.5, "motion": 0.5, "moves": 1.0, "area": 1.0, **values})


def test_evidence_is_the_median_of_what_is_known() -> None:
    looks = [
        _look(motion=None, inliers=9),
        _look(motion=0.2, structure=0.9),
        _look(motion=0.8, moves=7.0, mirrored=True),
    ]
    assert summarise(looks) == SecondLook(3, 9.0, 0.5, 0.5, 7.0, 1.0, mirrored=False)
    assert summarise([]) is None
    still = summarise([_look(motion=None, moves=0.0)])
    assert still is not None
    assert (still.motion, still.inliers) == (0.0, 0.0)


def test_warping_moves_pixels_and_marks_what_is_not_covered() -> None:
    plane = np.arange(20, dtype=np.float32).reshape(4, 5)
    moved = warp(plane, np.array([[1.0, 0, 2], [0, 1, 1], [0, 0, 1]]), (4, 5))
    assert (moved[1:, 2:] == plane[:3, :3]).all()
    assert (moved[0] == -1).all()
    assert (moved[:, :2] == -1).all()
    assert (warp(np.zeros((4, 5), np.float32), np.eye(3), (4, 5)) == 0).all()  # black is not outside


def test_scaling_keeps_the_middle_of_pixels() -> None:
    assert np.allclose(transform(scale_matrix(0.5), np.array([[0.5, 0.5], [2.5, 4.5]])), [[0, 0], [1, 2]])
    assert np.allclose(scale_matrix(0.5) @ scale_matrix(2.0), np.eye(3))


def test_one_box_is_laid_over_another() -> None:
    mapping = lay_over((10, 20, 30, 60), (0, 0, 10, 10), mirrored=False)
    corners = np.array([[-0.5, -0.5], [9.5, 9.5]])
    assert np.allclose(transform(mapping.matrix, corners), [[9.5, 19.5], [29.5, 59.5]])
    mirrored = lay_over((10, 20, 30, 60), (0, 0, 10, 10), mirrored=True)
    assert np.allclose(transform(mirrored.matrix, corners), [[29.5, 19.5], [9.5, 59.5]])


# --- registration ----------------------------------------------------------------------------------------------------


def _features(picture: Images) -> LocalFeatures:
    return find_features(np.ascontiguousarray(picture), 500)


def test_mirrored_descriptors_are_those_of_the_mirrored_picture() -> None:
    picture = _texture(5, 200, 260)[..., 0]
    here, there = _features(picture), _features(picture[:, ::-1])
    mirrored = mirror_descriptors(here.descriptors)
    place = transform(flip_matrix(260), here.points.astype(np.float64))
    distance = np.linalg.norm(place[:, None] - there.points[None], axis=2)
    close = distance.min(1) < 1.5
    assert close.mean() > 0.8
    # A place may have features of several directions: the nearest descriptor there counts.
    apart = np.linalg.norm(mirrored[:, None] - there.descriptors[None], axis=2)
    best = np.where(distance < 1.5, apart, np.inf).min(1)[close]
    plain = np.linalg.norm(here.descriptors[:, None] - there.descriptors[None], axis=2)
    assert np.median(best) < 60
    assert np.median(np.where(distance < 1.5, plain, np.inf).min(1)[close]) > 200
    assert (mirror_descriptors(mirrored) == here.descriptors).all()


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_known_mapping_is_found_again(mirrored: bool) -> None:
    target = _texture(6, 200, 260)[..., 0]
    truth = np.array([[0.8, 0.1, 20], [-0.08, 0.75, 30], [1e-4, -2e-4, 1]]) @ (
        flip_matrix(260) if mirrored else np.eye(3)
    )
    query = np.maximum(warp(target.astype(np.float32), truth, (200, 260)), 0).astype(np.uint8)
    matches = match_features(_features(query), _features(target), mirrored=mirrored)
    found = find_mappings(matches, query, target)
    corners = np.array([[0.0, 0.0], [259, 0], [259, 199], [0, 199]])
    errors = [np.abs(transform(one.matrix, corners) - transform(truth, corners)).max() for one in found]
    assert min(errors) < 1.5
    assert max(matches.count_inliers(one.matrix) for one in found) > 50
    assert all(one.mirrored == mirrored for one in found)
    other = match_features(_features(query), _features(target), mirrored=not mirrored)
    assert len(other.source) < len(matches.source) / 5


def test_inliers_are_places_that_agree_each_counted_once() -> None:
    source = np.array([[0, 0], [10, 0], [10, 0], [0, 10], [50, 50]], np.float32)
    destination = np.array([[5, 0], [15, 0], [15, 0], [5, 13], [0, 0]], np.float32)
    shift = np.array([[1.0, 0, 5], [0, 1, 0], [0, 0, 1]])
    assert Matches(source, destination, mirrored=False).count_inliers(shift) == 3
    assert Matches(source[:0], destination[:0], mirrored=False).count_inliers(shift) == 0


@pytest.mark.parametrize(
    ("matrix", "plausible"),
    [
        (np.eye(3), True),
        (np.diag([2.0, 2.0, 1.0]), True),
        (np.diag([0.05, 0.05, 1.0]), False),  # tiny
        (np.diag([20.0, 20.0, 1.0]), False),  # huge
        (np.diag([3.0, 1.0, 1.0]), False),  # stretched
        (flip_matrix(100), False),  # mirrored, and not said to be
        (np.array([[1.0, 0, 0], [0, 1, 0], [0.012, 0, 1]]), True),
        (np.array([[1.0, 0, 0], [0, 1, 0], [0.05, 0, 1]]), False),  # tapered
        (np.array([[1.0, 0, 0], [0, 1, 0], [-0.02, 0, 1]]), False),  # part of it lies behind the camera
        (np.array([[1.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 1]]), False),  # flat
        (np.full((3, 3), math.nan), False),
    ],
)
def test_only_mappings_that_a_camera_could_give_are_plausible(matrix: NDArray[np.float64], plausible: bool) -> None:
    assert is_plausible(matrix, (80, 100), (80, 100), mirrored=False) == plausible
    flipped = matrix @ np.array([[-1.0, 0, 100], [0, 1, 0], [0, 0, 1]])
    assert is_plausible(flipped, (80, 100), (80, 100), mirrored=True) == plausible


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_picture_in_a_picture_and_a_crop_are_found_by_size(mirrored: bool) -> None:
    whole, host = _texture(8, 120, 160)[..., 0].astype(np.float32), _texture(9, 120, 160)[..., 0].astype(np.float32)
    seen = whole[:, ::-1] if mirrored else whole
    inner = host.copy()
    inner[40:100, 50:130] = _resize(np.ascontiguousarray(seen[None]), 60, 80)[0]
    crop = _resize(np.ascontiguousarray(seen[None, 20:110, 10:130]), 120, 160)[0]
    middle = np.array([[79.5, 59.5]])
    for query, expected in ((inner, [[89.5, 69.5]]), (crop, [[92.8, 52.8]])):
        found = [transform(one.matrix, middle) for one in find_by_size(query, whole, mirrored=mirrored)]
        wanted = np.array(expected)
        assert min(np.abs(point - wanted).max() for point in found) < 6
