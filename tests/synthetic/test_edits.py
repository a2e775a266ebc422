from __future__ import annotations

import numpy as np
import pytest

from hapvr.errors import ConfigError
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.edits import DEFAULT_EDITS, EDITS, Edited, find_edit
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.time_map import TimeMap
from tests.synthetic.barcodes import assert_shows_what_the_map_says, barcodes, grey, read

OF_TIME = ["trim", "speed", "reverse", "insert", "frame-rate"]
ASKED_FOR = {
    "recompress", "downscale", "crop", "flip", "rotate", "rotate-90", "perspective", "camcorder", "caption", "emoji",
    "logo", "colour", "greyscale", "blur", "noise", "frame-rate", "speed", "reverse", "trim", "insert",
    "picture-in-picture", "letterbox", "letterbox-caption", "low-rate-blur-noise", "chain-2", "chain-3",
}  # fmt: skip
LATER = {
    "large-stickers", "vertical-reframe", "slow-zoom", "meme-border", "tiny-coarse", "reaction-large", "reaction-small",
}  # fmt: skip
KEEP_TIME = sorted((ASKED_FOR | LATER) - {*OF_TIME, "low-rate-blur-noise", "chain-3"})


@pytest.fixture(scope="module")
def scene() -> Clip:
    return draw_scene(2, seconds=2.4, fps=5, size=(72, 96))


def test_there_is_every_edit_that_was_asked_for() -> None:
    assert set(EDITS) == ASKED_FOR | LATER
    assert all(edit.name == name and edit.summary for name, edit in EDITS.items())


def test_the_default_edits_keep_their_order_since_draws_depend_on_it() -> None:
    assert DEFAULT_EDITS == (
        "downscale", "blur", "noise", "colour", "greyscale", "crop", "flip", "rotate", "rotate-90", "perspective",
        "camcorder", "letterbox", "caption", "emoji", "logo", "recompress", "picture-in-picture", "frame-rate", "speed",
        "reverse", "trim", "insert", "low-rate-blur-noise", "letterbox-caption", "chain-2", "chain-3",
    )  # fmt: skip


# --- the ground truth, read from the pixels ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", OF_TIME)
def test_each_frame_shows_what_the_time_map_says(name: str, seed: int) -> None:
    clip = barcodes(60, fps=10)
    edited = EDITS[name].apply(clip, np.random.default_rng(seed), host=grey(50, fps=7))
    assert_shows_what_the_map_says(edited, clip)


@pytest.mark.parametrize("seed", range(40))
def test_chains_show_what_the_composed_map_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [OF_TIME[index] for index in rng.integers(0, 4, 3)]
    names.insert(int(rng.integers(0, 4)), "frame-rate")
    clip = barcodes(90, fps=12)
    edited = find_edit("+".join(names)).apply(clip, rng, host=grey(50, fps=7))
    assert_shows_what_the_map_says(edited, clip)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_never_loses_the_original(seed: int) -> None:
    for name, least in (("insert+trim", 1.0), ("insert+trim+insert+trim", 0.25)):
        edited = find_edit(name).apply(barcodes(60, fps=10), np.random.default_rng(seed), host=grey(9, fps=3))
        assert sum(part.q_end - part.q_start for part in edited.segments) >= least - 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_second_change_of_rate_is_off_by_half_a_frame_of_the_first_at_most(seed: int) -> None:
    clip, rng = barcodes(90, fps=12), np.random.default_rng(seed)
    first = EDITS["frame-rate"].apply(clip, rng)
    second = EDITS["frame-rate"].apply(first.clip, rng)
    both = Edited(second.clip, second.time.after(first.time))
    assert_shows_what_the_map_says(both, clip, slack_s=0.5 / first.clip.fps)


@pytest.mark.parametrize("name", ["recompress", "noise", "downscale", "greyscale", "low-rate-blur-noise"])
def test_edits_of_the_picture_keep_every_frame_at_its_time(name: str) -> None:
    clip = barcodes(40, fps=3.5 if name == "low-rate-blur-noise" else 10)
    edited = EDITS[name].apply(clip, np.random.default_rng(1))
    assert_shows_what_the_map_says(edited, clip)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(LATER))
def test_edits_that_hide_a_bar_code_show_the_colour_of_each_frame_at_its_time(name: str, seed: int) -> None:
    """Frame i is all of one colour; a part of the copy's frame i must be of that colour and of no other frame's."""
    colours = np.array([(red, green, blue) for red in (30, 220) for green in (60, 160) for blue in (20, 120, 230)])
    clip = Clip(np.broadcast_to(colours[:, None, None], (12, 54, 96, 3)).astype(np.uint8), fps=4)
    edited = EDITS[name].apply(clip, np.random.default_rng(seed), host=grey(50, fps=7))
    for index, image in enumerate(edited.clip.images):
        number = int((edited.time((index + 0.5) / edited.clip.fps) or 0) * clip.fps)
        far = np.abs(image[..., None, :].astype(int) - colours).max(-1)  # [H, W, colours]
        shares = (far <= 12).mean((0, 1))
        assert shares[number] > 0.05, (index, number)
        assert shares.argmax() == number, (index, number)


def test_large_stickers_hide_a_third_to_two_thirds_of_the_picture() -> None:
    clip = Clip(np.full((2, 90, 160, 3), 128, np.uint8), fps=5)
    for seed in range(8):
        shown = EDITS["large-stickers"].apply(clip, np.random.default_rng(seed)).clip.images
        assert 0.25 < (shown[0] != 128).any(-1).mean() < 0.7


def test_a_tiny_copy_is_a_third_of_the_size_or_less() -> None:
    clip = draw_scene(4, seconds=1, fps=4, size=(90, 120))
    sizes = [EDITS["tiny-coarse"].apply(clip, np.random.default_rng(seed)).clip.size for seed in range(6)]
    assert len(set(sizes)) > 1
    assert all(height <= 30 and width <= 40 for height, width in sizes)


@pytest.mark.parametrize("size", [(90, 160), (160, 90), (100, 100)])
def test_a_reframed_copy_is_upright_and_about_as_large(size: tuple[int, int]) -> None:
    clip = draw_scene(4, seconds=0.5, fps=4, size=size)
    height, width = EDITS["vertical-reframe"].apply(clip, np.random.default_rng(0)).clip.size
    assert width / height == pytest.approx(9 / 16, abs=0.02)
    assert height * width == pytest.approx(size[0] * size[1], rel=0.05)


def test_the_copy_is_the_larger_or_the_smaller_picture_of_a_reaction() -> None:
    clip, host = barcodes(10, fps=10), Clip(np.full((30, 50, 50, 3), (200, 0, 0), np.uint8), 10)
    for seed in range(6):
        large, small = (
            (EDITS[f"reaction-{part}"].apply(clip, np.random.default_rng(seed), host=host).clip.images[0])
            for part in ("large", "small")
        )
        assert 0.005 < (large == (200, 0, 0)).all(-1).mean() < 0.3
        assert 0.7 < (small == (200, 0, 0)).all(-1).mean() < 0.95


def test_a_zoom_begins_or_ends_with_the_whole_picture_and_never_jumps() -> None:
    still = Clip(np.repeat(draw_scene(3, seconds=0.2, fps=5, size=(60, 80)).images, 20, axis=0), fps=10)
    ends = []
    for seed in range(6):
        images = EDITS["slow-zoom"].apply(still, np.random.default_rng(seed)).clip.images.astype(int)
        whole = [bool((images[place] == still.images[0]).all()) for place in (0, -1)]
        assert sum(whole) == 1
        ends.append(whole[0])
        steps = np.abs(np.diff(images, axis=0)).mean((1, 2, 3))
        assert steps.max() < np.abs(images[-1] - images[0]).mean()
    assert set(ends) == {True, False}  # in and out


def test_a_meme_border_leaves_the_picture_as_it_was() -> None:
    clip = draw_scene(5, seconds=0.5, fps=4, size=(60, 80))
    for seed in range(5):
        framed = EDITS["meme-border"].apply(clip, np.random.default_rng(seed)).clip.images
        assert framed.shape[1] >= 68
        places = [
            (top, left)
            for top in range(framed.shape[1] - 59)
            for left in range(framed.shape[2] - 79)
            if (framed[:, top : top + 60, left : left + 80] == clip.images).all()
        ]
        assert len(places) == 1


def test_the_copy_covers_the_time_the_map_speaks_of() -> None:
    clip = barcodes(60, fps=10)
    rng = np.random.default_rng
    assert find_edit("speed").apply(clip, rng(0)).segments[0].t_end == pytest.approx(clip.seconds)
    trimmed = find_edit("trim").apply(clip, rng(0))
    assert trimmed.time.segments[0].speed == pytest.approx(1)
    assert trimmed.segments[0].q_end == pytest.approx(trimmed.clip.seconds)
    assert 0.25 < trimmed.clip.seconds / clip.seconds < 0.75
    inserted = find_edit("insert").apply(clip, rng(0), host=grey(50, fps=7))
    assert 0 < inserted.segments[0].q_start < inserted.segments[0].q_end < inserted.clip.seconds
    assert find_edit("reverse").apply(clip, rng(0)).segments[0].speed == pytest.approx(-1)


def test_speed_goes_both_ways() -> None:
    clip = barcodes(20, fps=10)
    speeds = [EDITS["speed"].apply(clip, np.random.default_rng(seed)).segments[0].speed for seed in range(20)]
    assert min(speeds) < 0.85
    assert max(speeds) > 1.2
    assert all(0.5 <= speed <= 2 and not 0.85 < speed < 1.2 for speed in speeds)


# --- every edit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EDITS)
def test_the_same_seed_gives_the_same_copy_and_leaves_the_original_alone(name: str, scene: Clip) -> None:
    before = scene.images.tobytes()
    first, again = (EDITS[name].apply(scene, np.random.default_rng(5)) for _ in range(2))
    assert first.clip.images.tobytes() == again.clip.images.tobytes()
    assert (first.clip.fps, first.time) == (again.clip.fps, again.time)
    assert scene.images.tobytes() == before


@pytest.mark.parametrize("name", [name for name in EDITS if name not in {"flip", "greyscale", "reverse"}])
def test_each_use_draws_its_own_settings(name: str, scene: Clip) -> None:
    copies = {EDITS[name].apply(scene, np.random.default_rng(seed)).clip.images.tobytes() for seed in range(4)}
    rates = {EDITS[name].apply(scene, np.random.default_rng(seed)).clip.fps for seed in range(4)}
    assert len(copies) > 1 or len(rates) > 1


@pytest.mark.parametrize("name", KEEP_TIME)
def test_edits_of_the_picture_change_it_and_leave_time_alone(name: str, scene: Clip) -> None:
    edited = EDITS[name].apply(scene, np.random.default_rng(3))
    assert (len(edited.clip), edited.clip.fps, edited.time) == (len(scene), scene.fps, TimeMap.identity(scene.seconds))
    same_size = edited.clip.size == scene.size
    assert not same_size or np.abs(edited.clip.images.astype(int) - scene.images).mean() > 0.5


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("shape", [(1, 17, 23), (3, 40, 16), (9, 31, 90)])
def test_edits_take_still_tiny_and_odd_clips(name: str, shape: tuple[int, int, int]) -> None:
    clip = draw_scene(1, seconds=shape[0] / 5, fps=5, size=(shape[1], max(16, shape[2])))
    edited = EDITS[name].apply(clip, np.random.default_rng(0))
    assert len(edited.clip) >= 1
    assert edited.segments


def test_edits_that_mix_two_videos_show_the_host() -> None:
    clip, host = barcodes(30, fps=10), Clip(np.full((30, 50, 50, 3), (200, 0, 0), np.uint8), 10)
    window = EDITS["picture-in-picture"].apply(clip, np.random.default_rng(0), host=host).clip.images[0]
    red = (window == (200, 0, 0)).all(-1).mean()
    assert 0.4 < red < 0.9
    inserted = EDITS["insert"].apply(clip, np.random.default_rng(0), host=host).clip.images
    assert (inserted[0] == (200, 0, 0)).all()
    assert (inserted[-1] == (200, 0, 0)).all()


def test_a_flipped_barcode_reads_when_flipped_back() -> None:
    clip = barcodes(10, fps=5)
    flipped = EDITS["flip"].apply(clip, np.random.default_rng(0)).clip.images
    assert [read(image[:, ::-1]) for image in flipped] == list(range(10))


# --- names ---------------------------------------------------------------------------------------------------------


def test_a_chain_by_name_equals_the_edits_one_after_the_other(scene: Clip) -> None:
    chained = find_edit("trim+flip").apply(scene, np.random.default_rng(8))
    rng = np.random.default_rng(8)
    trimmed = EDITS["trim"].apply(scene, rng)
    flipped = EDITS["flip"].apply(trimmed.clip, rng)
    assert (chained.clip.images == flipped.clip.images).all()
    assert [part.interval() for part in chained.segments] == [
        pytest.approx(part.interval()) for part in trimmed.segments
    ]


@pytest.mark.parametrize(
    ("name", "hint"), [("captoin", "did you mean 'caption'"), ("trim+flop", "did you mean 'flip'")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        find_edit(name)


# --- operations on pixels ------------------------------------------------------------------------------------------


def test_no_saturation_is_luma_and_half_a_turn_of_hue_swaps_warm_and_cold() -> None:
    image = np.full((1, 2, 2, 3), (200, 100, 40), np.uint8)
    assert pixels.change_hues(image, saturation=0.0)[0, 0, 0].tolist() == [
        123,
        123,
        123,
    ]  # .299*200 + .587*100 + .114*40
    assert (pixels.change_hues(image) == image).all()
    red, _, blue = pixels.change_hues(image, turn=0.5)[0, 0, 0].tolist()
    assert red < blue


def test_corners_go_where_they_are_sent() -> None:
    white = np.full((2, 40, 60, 3), 255, np.uint8)
    corners = [[(0.25, 0.0), (0.75, 0.0), (1.0, 0.5), (0.0, 0.5)], [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]]
    narrow_above, whole = pixels.perspective(white, corners)
    assert [int((row > 0).all(-1).sum()) for row in narrow_above[[1, 10, 18, 22]]] == pytest.approx(
        [32, 46, 58, 0], abs=2
    )
    assert whole[1:-1, 1:-1].min() == 255


def test_what_sticks_out_of_the_picture_is_cut_off() -> None:
    black, dot = np.zeros((3, 4, 4, 3), np.uint8), np.full((2, 2, 4), 255, np.uint8)
    laid = pixels.lay_over(black, dot, [(-1, -1), (3, 1), (9, 9)])
    assert [int((image > 0).all(-1).sum()) for image in laid] == [1, 2, 0]
    assert pixels.lay_over(black, dot, [(0, 0)], opacity=0.5)[0, 0, 0].tolist() == [128, 128, 128]


def test_smearing_averages_neighbours() -> None:
    line = np.zeros((1, 1, 9, 3), np.uint8)
    line[0, 0, 4] = 90
    assert pixels.smear(line, 3)[0, 0, :, 0].tolist() == [0, 0, 0, 30, 30, 30, 0, 0, 0]


def test_flicker_multiplies_each_frame_by_its_gain() -> None:
    flat = np.full((2, 1, 1, 3), 100, np.uint8)
    assert pixels.change_tones(flat, gains=[1.0, 0.5])[:, 0, 0, 0].tolist() == [100, 50]


def test_covering_keeps_the_middle_and_the_proportions() -> None:
    tall = np.zeros((1, 40, 10, 3), np.uint8)
    tall[0, 15:25] = 255
    assert pixels.cover(tall, (20, 20)).shape == (1, 20, 20, 3)
    assert pixels.cover(tall, (20, 20))[0, 2:-2].min() == 255
