"""The plan of a batch and what it makes of clips: laws, frequencies, and a slow way to the same views."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hapvr.config import from_mapping
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.training.augment import Plan, ViewConfig, draw_plan, format_plan, make_views, temporal
from hapvr.training.augment.plan import draw_boxes, draw_crops, draw_hosts
from hapvr.training.augment.randaugment import OPERATIONS
from hapvr.training.augment.sprites import make_sprites
from hapvr.training.augment.views import mix
from hapvr.training.preview import draw_preview, save_preview

SMALL = ViewConfig(frames=6, size=32)
OFF = {
    "flip": 0.0, "randaugment_ops": 0, "text": 0.0, "emoji": 0.0, "blur": 0.0, "shuffle_dropout": 0.0,
    "fast_forward": 0.0, "slow_motion": 0.0, "reverse": 0.0, "pause": 0.0, "mixup": 0.0,
}  # fmt: skip
EXTRAS = dict.fromkeys(
    ("perspective", "letterbox", "low_rate", "noise", "jpeg", "border", "turned", "stickers", "tiny", "screen"), 1.0
)


def changed(config: ViewConfig, **settings: object) -> ViewConfig:
    return dataclasses.replace(config, **settings)  # type: ignore[arg-type]


def clip(frames: int = 12, height: int = 40, width: int = 36, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (frames, height, width, 3), dtype=torch.uint8, generator=generator)


def batch(count: int = 5) -> list[Tensor]:
    return [clip(frames=3 + 4 * i, width=36 + 8 * (i % 2), seed=i) for i in range(count)]


# --- the views -----------------------------------------------------------------------------------------------------


def test_same_seed_same_views_and_another_seed_others() -> None:
    config = changed(SMALL, **EXTRAS)
    a, b, c = (make_views(batch(), config=config, seed=seed) for seed in (7, 7, (7, 1)))
    assert torch.equal(a.pictures, b.pictures)
    assert torch.equal(a.content, b.content)
    assert not torch.equal(a.pictures, c.pictures)


def test_shapes_and_types() -> None:
    views = make_views(batch(), config=SMALL, seed=0)
    assert views.pictures.shape == (10, 6, 3, 32, 32)
    assert views.pictures.dtype == torch.uint8
    assert views.content.shape == (10, 5)
    assert make_views([], config=SMALL, seed=0).pictures.shape == (0, 6, 3, 32, 32)


def test_with_everything_off_both_views_are_the_clip() -> None:
    config = changed(SMALL, weak_scale=(1.0, 1.0), strong_scale=(1.0, 1.0), ratio=(1.0, 1.0), **OFF)
    frames = clip(6, 32, 32)
    views = make_views([frames], config=config, seed=3).pictures
    assert torch.equal(views[0], frames.permute(0, 3, 1, 2))
    assert torch.equal(views[1], frames.permute(0, 3, 1, 2))


def test_the_weak_view_of_one_colour_is_that_colour() -> None:
    colour = torch.tensor([10, 120, 255], dtype=torch.uint8)
    views = make_views([colour.expand(9, 50, 30, 3)], config=SMALL, seed=1).pictures
    assert torch.equal(views[0], colour[None, :, None, None].expand(6, 3, 32, 32))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_global_is_the_same_for_all_frames(seed: int) -> None:
    config = changed(SMALL, text=0.0, emoji=0.0, blur=0.0, drop=0.0, perspective=0.5, letterbox=0.5)
    still = clip(1, seed=seed).expand(12, -1, -1, -1)
    views = make_views([still, still], config=config, seed=seed).pictures
    assert torch.equal(views, views[:, :1].expand_as(views))


def test_a_batch_is_what_its_plan_says_frame_by_frame() -> None:
    """The slow way: every frame of both views cut by Pillow, and pasted by Pillow into its host's."""
    settings = {**OFF, "flip": 0.5, "mixup": 0.5, "shuffle_dropout": 1.0}
    config = changed(SMALL, drop=0.5, window=(2, 3), **settings)
    clips = batch()
    views = make_views(clips, config=config, seed=11)
    plan = views.plan
    cut = np.zeros((10, 6, 32, 32, 3), np.uint8)
    noisy = np.zeros((10, 6), bool)
    for view in range(10):
        top, left, high, wide = plan.crop[view]
        for step, frame in enumerate(plan.index[view]):
            noisy[view, step] = frame == temporal.NOISE
            if frame >= 0:
                image = Image.fromarray(clips[view % 5][frame, top : top + high, left : left + wide].numpy())
                image = image.resize((32, 32), Image.Resampling.BILINEAR)
                cut[view, step] = np.asarray(
                    image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if plan.flip[view] else image
                )
    expected = cut.copy()
    for guest in range(5):
        host = plan.host[guest]
        if host >= 0:
            top, left, high, wide = plan.box[guest]
            expected[5 + guest] = cut[5 + host]
            for step in range(6):
                image = Image.fromarray(cut[5 + guest, step]).resize((wide, high), Image.Resampling.BILINEAR)
                expected[5 + guest, step, top : top + high, left : left + wide] = np.asarray(image)
            noisy[5 + guest] |= noisy[5 + host]
    assert (plan.host >= 0).any()
    assert (plan.index == temporal.BLANK).any()
    difference = np.abs(views.pictures.permute(0, 1, 3, 4, 2).numpy().astype(int) - expected)
    assert difference[~noisy].max() <= 2  # rounded twice where pasted


def test_sprites_touch_only_their_boxes_and_only_their_frames() -> None:
    off = changed(SMALL, **OFF)
    on = changed(off, text=0.5, emoji=0.5)
    plain, laid = (make_views(batch(), config=config, seed=2) for config in (off, on))
    touched = (plain.pictures != laid.pictures).any(2)  # [2B, T, S, S]
    assert not touched[:5].any()
    allowed = torch.zeros(5 * 6, 32, 32, dtype=torch.bool)
    for overlays in (laid.plan.text, laid.plan.emoji):
        assert len(overlays.frame)
        for frame, (top, left, high, wide) in zip(overlays.frame, overlays.box, strict=True):
            allowed[frame, int(top) : int(top + high) + 1, int(left) : int(left + wide) + 1] = True
            assert top >= 0
            assert left >= 0
            assert top + high <= 32 + 1e-9
            assert left + wide <= 32 + 1e-9
    assert touched[5:].any()
    assert not (touched[5:].flatten(0, 1) & ~allowed).any()


def test_an_emoji_covers_what_is_below_by_its_opacity() -> None:
    config = changed(SMALL, emoji_size=(1.0, 1.0), opacity=(0.8, 0.8), **{**OFF, "emoji": 1.0})
    views = make_views([torch.full((6, 32, 32, 3), 100, dtype=torch.uint8)], config=config, seed=0)
    for frame, sprite in enumerate(views.plan.emoji.sprite):
        picture = make_sprites("emoji").pictures[sprite].astype(float)
        laid = 100 + (picture[..., :3] - 100) * picture[..., 3:] / 255 * 0.8
        shrunk = Image.fromarray((laid + 0.5).astype(np.uint8)).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.abs(views.pictures[1, frame].permute(1, 2, 0).numpy() - np.asarray(shrunk).astype(int)).max() <= 2


def test_a_border_surrounds_the_pasted_clip() -> None:
    config = changed(SMALL, border=1.0, border_width=(0.1, 0.1), **{**OFF, "mixup": 0.5})
    views = make_views(batch(), config=config, seed=1)
    guest = int(np.flatnonzero(views.plan.host >= 0)[0])
    top, left, high, wide = views.plan.box[guest]
    picture, colour = views.pictures[5 + guest, 0], torch.from_numpy(views.plan.border_colour[guest])
    assert views.plan.border[guest] == 3
    for row in (top, top + 2, top + high - 1):
        assert torch.equal(picture[:, row, left : left + wide].long(), colour[:, None].expand(3, wide))


@pytest.mark.parametrize("name", list(EXTRAS))
def test_what_is_beyond_the_paper_changes_strong_views_only(name: str) -> None:
    settings = {**OFF, "mixup": 0.9} if name == "border" else OFF
    clips = [clip(12, 40, 40, seed=i) for i in range(3)]
    plain, more = (
        make_views(clips, config=changed(SMALL, **settings, **{name: chance}), seed=5) for chance in (0.0, 1.0)
    )
    assert torch.equal(plain.pictures[:3], more.pictures[:3])
    assert not torch.equal(plain.pictures[3:], more.pictures[3:])


def test_stickers_stay_where_they_are_and_there_are_up_to_as_many_as_asked_for() -> None:
    config = changed(SMALL, **OFF, stickers=0.5, max_stickers=3)
    plan = draw_plan([(12, 40, 40)] * 200, config, 3)
    rounds = np.zeros(200, int)
    for overlays in plan.stickers:
        clips, frames = np.divmod(overlays.frame, config.frames)
        assert np.array_equal(frames, np.tile(np.arange(config.frames), len(clips) // config.frames))
        boxes = overlays.box.reshape(-1, config.frames, 4)
        assert (boxes == boxes[:, :1]).all()
        rounds[np.unique(clips)] += 1
    assert set(rounds) == {0, 1, 2, 3}
    assert 0.35 < (rounds > 0).mean() < 0.65


def test_switching_one_thing_off_leaves_the_other_draws() -> None:
    shapes = [(20, 40, 50)] * 8
    full = draw_plan(shapes, SMALL, 4)
    less = draw_plan(shapes, changed(SMALL, text=0.0, randaugment_ops=0, mixup=0.0), 4)
    for name in ("index", "crop", "flip", "blur"):
        assert np.array_equal(getattr(full, name), getattr(less, name))
    assert np.array_equal(full.emoji.frame, less.emoji.frame)


# --- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_labels_follow_the_hosts(seed: int) -> None:
    views = make_views([clip(seed=i) for i in range(8)], config=SMALL, seed=seed)
    labels, host = views.labels, views.plan.host
    assert torch.equal(labels, labels.T)
    assert labels.diagonal().all()
    assert all(labels[i, 8 + i] for i in range(8))
    for i in range(8):
        for j in range(8):
            assert labels[i, j] == (i == j)  # weak views are never mixed
            assert labels[i, 8 + j] == (i == j or i == host[j])
            mine, other = {i, host[i]} - {-1}, {j, host[j]} - {-1}
            assert labels[8 + i, 8 + j] == bool(mine & other)


@pytest.mark.parametrize("clips", [1, 2, 5, 64])
def test_a_host_is_another_clip_that_is_not_mixed(clips: int) -> None:
    for seed in range(20):
        hosts = draw_hosts(np.random.default_rng(seed), clips, 0.9)
        for guest in np.flatnonzero(hosts >= 0):
            assert hosts[guest] != guest
            assert hosts[hosts[guest]] == -1
        assert (hosts < 0).any()


def test_boxes_lie_within_the_frame_and_cover_what_lambda_leaves() -> None:
    boxes = draw_boxes(np.random.default_rng(0), 4000, ViewConfig())
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= 224).all()
    whole = (boxes[:, :2] > 0).all(1) & (boxes[:, :2] + boxes[:, 2:] < 224).all(1)
    share = boxes[whole, 2] * boxes[whole, 3] / 224**2
    assert share.min() > 0.29
    assert share.max() < 0.71


def test_boxes_that_are_cropped_keep_their_sides_and_are_cut_to_the_squeezed_ones() -> None:
    config = dataclasses.replace(ViewConfig(), mixup_edge="crop", mixup_ratio=(0.75, 0.75))  # sides of 224 sqrt(.25)
    boxes = draw_boxes(np.random.default_rng(0), 4000, config)
    assert set(boxes[:, 2:].flatten().tolist()) <= {111, 112, 113}  # both edges are rounded
    assert boxes[:, :2].min() < -50
    start, stop = np.clip(boxes[:, :2], 0, 223), np.clip(boxes[:, :2] + boxes[:, 2:], 1, 224)
    squeezed = draw_boxes(np.random.default_rng(0), 4000, dataclasses.replace(config, mixup_edge="squeeze"))
    assert np.array_equal(squeezed, np.concatenate([start, stop - start], 1))


def test_a_cropped_clip_keeps_its_size_in_its_host() -> None:
    # By hand: the guest, whose columns are 0 to 31, is shown from its middle on at the left edge of a white host.
    S = 32
    guest = torch.arange(S, dtype=torch.uint8).expand(1, 3, S, S)
    strong = torch.stack([guest, torch.full_like(guest, 255)])  # [B, T, 3, S, S]
    plan = draw_plan([(1, S, S)] * 2, changed(SMALL, **OFF), 0)
    box = np.array([[0, -S // 2, S, S], [0, 0, S, S]])
    mix(strong, dataclasses.replace(plan, host=np.array([1, -1]), box=box, border=np.zeros(2, np.int64)))
    assert strong[0, 0, 0, 0].tolist() == [*range(S // 2, S), *[255] * (S // 2)]
    assert (strong[1] == 255).all()


# --- frequencies ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [draw_plan([(56, 256, 320)] * 64, ViewConfig(), seed) for seed in range(40)]


def test_frequencies_are_those_of_the_paper(plans: list[Plan]) -> None:
    def mean(values: list[NDArray[np.bool_]]) -> float:
        return float(np.mean([np.mean(value) for value in values]))

    assert mean([plan.flip for plan in plans]) == pytest.approx(0.5, abs=0.03)
    assert mean([plan.blur > 0 for plan in plans]) == pytest.approx(0.5, abs=0.01)
    assert mean([plan.host >= 0 for plan in plans]) == pytest.approx(0.3, abs=0.03)
    assert np.mean([len(plan.text.frame) for plan in plans]) == pytest.approx(0.3 * 64 * 28, rel=0.02)
    assert np.mean([len(plan.emoji.frame) for plan in plans]) == pytest.approx(0.3 * 64 * 28, rel=0.02)
    kinds = [kind for plan in plans for kind in plan.kinds]
    for kind, chance in zip(temporal.KINDS, (0.5, 0.1, 0.1, 0.1, 0.1, 0.1), strict=True):
        assert kinds.count(kind) / len(kinds) == pytest.approx(chance, abs=0.03), kind
    drawn = [name for plan in plans for row in plan.operations for name in row]
    for name in OPERATIONS:
        assert drawn.count(name) / len(drawn) == pytest.approx(1 / 14, abs=0.015), name
    signs = np.concatenate([plan.strengths.ravel() for plan in plans])
    assert (signs < 0).mean() == pytest.approx(9 / 14 / 2, abs=0.02)
    assert not any(plan.noise.any() or plan.jpeg.any() or plan.bars.any() or plan.corners.any() for plan in plans)


def test_radius_and_opacity_span_their_ranges(plans: list[Plan]) -> None:
    radius = np.concatenate([plan.blur[plan.blur > 0] for plan in plans])
    assert (radius.min(), radius.max()) == pytest.approx((0.1, 2.0), abs=0.01)
    opacity = np.concatenate([plan.text.opacity for plan in plans])
    assert (opacity.min(), opacity.max()) == pytest.approx((0.7, 1.0), abs=0.01)
    sides = np.concatenate([np.sqrt(plan.emoji.box[:, 2] * plan.emoji.box[:, 3]) for plan in plans]) / 224
    assert (sides.min(), sides.max()) == pytest.approx((0.2, 0.5), abs=0.01)


# --- crops ---------------------------------------------------------------------------------------------------------


def test_crops_keep_the_share_and_the_proportions() -> None:
    sizes = np.tile([[300, 300]], (3000, 1))
    boxes = draw_crops(np.random.default_rng(0), sizes, (0.5, 1.0), (3 / 4, 4 / 3))
    share = boxes[:, 2] * boxes[:, 3] / 300**2
    ratio = boxes[:, 3] / boxes[:, 2]
    assert 0.49 < share.min() < 0.55
    assert share.max() <= 1.0
    assert ratio.min() > 0.74
    assert ratio.max() < 1.35
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= 300).all()


def test_a_crop_that_never_fits_is_the_middle() -> None:
    sizes = np.array([[100, 900], [900, 100]])
    boxes = draw_crops(np.random.default_rng(0), sizes, (0.8, 1.0), (3 / 4, 4 / 3))
    assert boxes.tolist() == [[0, 383, 100, 133], [383, 0, 133, 100]]


def test_clips_of_one_pixel_pass() -> None:
    views = make_views([torch.full((1, 1, 1, 3), 9, dtype=torch.uint8)], config=SMALL, seed=0)
    assert (views.pictures[0] == 9).all()


# --- time ----------------------------------------------------------------------------------------------------------


def test_edits_in_time_by_hand() -> None:
    config = ViewConfig()
    rng = np.random.default_rng(0)
    assert temporal.edit(rng, 4, "none", config).tolist() == [0, 1, 2, 3]
    assert temporal.edit(rng, 4, "reverse", config).tolist() == [3, 2, 1, 0]
    assert temporal.edit(rng, 3, "slow_motion", config).tolist() == [0, 0, 1, 1, 2, 2]
    assert {tuple(temporal.edit(rng, 7, "fast_forward", config)) for _ in range(40)} == {(0, 2, 4, 6), (0, 3, 6)}
    repeats = set()
    for _ in range(300):
        index = temporal.edit(rng, 5, "pause", config)
        assert np.array_equal(np.unique(index), np.arange(5))
        assert (np.diff(index) >= 0).all()
        assert (np.bincount(index) > 1).sum() <= 1
        repeats.add(len(index) - 5)
    assert repeats == set(range(7))  # 0 to 28 / 4 - 1


def test_shuffling_moves_whole_windows_of_4_to_15_frames() -> None:
    config = ViewConfig(shuffle=1.0, drop=0.0)
    for seed in range(50):
        index = temporal.shuffle_dropout(np.random.default_rng(seed), 56, config)
        assert np.array_equal(np.sort(index), np.arange(56))
        runs = np.diff(np.concatenate([[0], np.flatnonzero(np.diff(index) != 1) + 1, [56]]))
        last = index[np.cumsum(runs) - 1]
        assert all(run >= 4 or end == 55 for run, end in zip(runs, last, strict=True))


def test_dropping_leaves_the_rest_in_order_and_never_nothing() -> None:
    config = ViewConfig(shuffle=0.0, drop=0.3)
    gone, blank, noise, windows = 0, 0, 0, 0
    for seed in range(400):
        index = temporal.shuffle_dropout(np.random.default_rng(seed), 56, config)
        real = index[index >= 0]
        assert len(real)
        assert (np.diff(real) > 0).all()
        blank += int((index == temporal.BLANK).sum())
        noise += int((index == temporal.NOISE).sum())
        gone += 56 - len(index)
        windows += 56
    assert (gone + blank + noise) / windows == pytest.approx(0.3, abs=0.03)
    assert gone / (gone + blank + noise) == pytest.approx(0.5, abs=0.06)
    assert blank / (blank + noise) == pytest.approx(0.5, abs=0.08)
    all_dropped = ViewConfig(shuffle=0.0, drop=1.0, keep_dropped=0.0)
    assert len(temporal.shuffle_dropout(np.random.default_rng(0), 56, all_dropped)) >= 1


def test_cropping_in_time_repeats_the_short_and_finds_what_is_shown() -> None:
    rng = np.random.default_rng(0)
    assert {int(temporal.crop(rng, np.arange(10), 4)[0]) for _ in range(200)} == set(range(7))
    assert {tuple(temporal.crop(rng, np.arange(3), 4)) for _ in range(100)} == {
        (0, 1, 2, 0),
        (1, 2, 0, 1),
        (2, 0, 1, 2),
    }
    hidden = np.array([-1] * 20 + [5] + [-2] * 20)
    for _ in range(50):
        assert 5 in temporal.crop(rng, hidden, 4)
    assert temporal.crop(rng, np.array([-1, -1]), 2).tolist() == [-1, -1]


def test_every_strong_view_shows_something_of_its_clip() -> None:
    config = ViewConfig(shuffle_dropout=1.0, fast_forward=0, slow_motion=0, reverse=0, pause=0, drop=0.9, low_rate=0.5)
    for seed in range(30):
        plan = draw_plan([(length, 9, 9) for length in (1, 3, 20, 56)], config, seed)
        assert (plan.index >= 0).any(1).all()


# --- settings and bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"text": 1.5}, {"text": "often"}, {"blur_radius": (2.0, 0.1)}, {"blur_radius": 2.0}, {"opacity": (0.5, 1.5)},
        {"frames": 0}, {"size": 4.5}, {"window": (4.5, 15)}, {"window": (0, 3)}, {"randaugment_magnitude": 31},
        {"reverse": 0.9}, {"noise_strength": (float("nan"), 1.0)}, {"emoji_size": (0.2, 0.5, 0.7)}, {"flip": True},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        from_mapping(ViewConfig, settings)


def test_settings_are_read_from_lists_and_unknown_ones_are_refused() -> None:
    assert from_mapping(ViewConfig, {"opacity": [0.5, 0.6]}).opacity == (0.5, 0.6)
    with pytest.raises(ConfigError, match="did you mean 'emoji_size'"):
        from_mapping(ViewConfig, {"emoji_sizes": (0.1, 0.2)})


def test_bad_clips_and_seeds_are_refused() -> None:
    with pytest.raises(ShapeError, match="clip 1"):
        make_views([clip(), clip().float()], config=SMALL, seed=0)
    with pytest.raises(ShapeError, match="clip 0"):
        make_views([clip()[0]], config=SMALL, seed=0)
    with pytest.raises(DataError, match="empty"):
        make_views([clip()[:0]], config=SMALL, seed=0)
    with pytest.raises(ConfigError, match="seed"):
        make_views([clip()], config=SMALL, seed=-1)


def test_captions_and_emoji_are_drawn_on_nothing() -> None:
    for bank in (make_sprites("text"), make_sprites("emoji")):
        assert len(bank) >= 50
        assert (bank.pictures[..., 3] == 0).any((1, 2)).mean() > 0.5
        assert (bank.pictures[..., 3] == 255).any((1, 2)).mean() > 0.8
    assert make_sprites("text").aspects.min() > 1
    assert (make_sprites("emoji").aspects == 1).all()


# --- the sheet -----------------------------------------------------------------------------------------------------


def test_the_sheet_has_a_row_for_every_view(tmp_path: Path) -> None:
    config = changed(SMALL, **EXTRAS)
    views = save_preview(tmp_path / "sheet.png", batch(), config, 3)
    with Image.open(tmp_path / "sheet.png") as written:
        assert written.size == draw_preview(views).size
    sheet = draw_preview(views, columns=4, side=20)
    assert sheet.width == 4 * 24 + 4
    assert sheet.height >= 10 * (20 + 4)
    assert len(format_plan(views.plan)) == 10
    words = " ".join(format_plan(views.plan)[5:])
    for word in ("JPEG", "noise", "bars", "seen from aside", "held"):
        assert word in words
    first = draw_preview(views, columns=1, side=32)
    shown = np.asarray(first.crop((4, 0, 36, first.height)))
    assert any(
        np.array_equal(shown[row : row + 32], views.pictures[0, 0].permute(1, 2, 0).numpy())
        for row in range(first.height - 32)
    )


def test_a_sheet_of_nothing_or_with_no_picture_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no clip"):
        save_preview(tmp_path / "sheet.png", [], SMALL, 0)
    with pytest.raises(ConfigError, match=r"sheet\.png"):
        save_preview(tmp_path / "sheet.text", batch(2), SMALL, 0)
