"""The recipe `paper` against the authors' settings, value by value.

The table is written from the paper (arXiv:2407.15566: the settings and implementation details of its appendix) and, for
what the paper leaves open, from the authors' public code and S2VS's, which it extends; not from the recipe.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hapvr.config import parse_toml
from hapvr.training.config import TrainConfig
from hapvr.training.recipe_files import RECIPES, load_config, to_table

PAPER, CODE = "the paper", "the public code"

SETTINGS: list[tuple[str, Any, str, str]] = [
    # setting, value, where it stands, what it is called there
    ("schedule.steps", 30_000, PAPER, "iterations"),
    ("schedule.warm_up", 1_000, PAPER, "warm-up iterations"),
    ("schedule.warm_up_from", 0.01, CODE, "warmup_lr_init, a factor of the rate"),
    ("schedule.end", 0.1, CODE, "final_lr, a factor of the rate"),
    ("data.batch", 64, PAPER, "batch size"),
    ("data.fps", 1.0, PAPER, "one frame per second"),
    ("data.whole_frames", True, CODE, "random resized crop of the frame with a short side of 256"),
    ("data.alike", 0.0, CODE, "videos in random order"),
    ("data.parts", 1, CODE, "one window of a video"),
    ("data.pictures", "", PAPER, "videos alone"),
    ("optimiser.rate", 4e-5, PAPER, "learning rate"),
    ("optimiser.weight_decay", 1e-2, PAPER, "weight decay"),
    ("optimiser.beta1", 0.9, CODE, "AdamW's default"),
    ("optimiser.beta2", 0.999, CODE, "AdamW's default"),
    ("optimiser.clip", 0.0, CODE, "gradients are not clipped"),
    ("views.frames", 28, PAPER, "T"),
    ("views.size", 224, PAPER, "H, W"),
    ("views.weak_scale", (0.8, 1.0), CODE, "random resized crop of weak views"),
    ("views.strong_scale", (0.5, 1.0), CODE, "random resized crop of strong views"),
    ("views.ratio", (3 / 4, 4 / 3), CODE, "torchvision's default of a random resized crop"),
    ("views.flip", 0.5, CODE, "torchvision's default of a random flip"),
    ("views.randaugment_ops", 2, CODE, "n_raug"),
    ("views.randaugment_magnitude", 9, CODE, "m_raug"),
    ("views.randaugment_bins", 31, CODE, "torchvision's default"),
    ("views.text", 0.3, CODE, "p_overlay"),
    ("views.emoji", 0.3, CODE, "p_overlay"),
    ("views.text_size", (0.2, 0.5), CODE, "size of an overlay"),
    ("views.emoji_size", (0.2, 0.5), CODE, "size of an overlay"),
    ("views.opacity", (0.7, 1.0), CODE, "opacity of an overlay"),
    ("views.blur", 0.5, CODE, "p_blur"),
    ("views.blur_radius", (0.1, 2.0), CODE, "radius of the blur"),
    ("views.shuffle_dropout", 0.5, CODE, "p_tsd"),
    ("views.fast_forward", 0.1, CODE, "p_ff"),
    ("views.slow_motion", 0.1, CODE, "p_sm"),
    ("views.reverse", 0.1, CODE, "p_rev"),
    ("views.pause", 0.1, CODE, "p_pau"),
    ("views.window", (4, 15), CODE, "sub-clips of 4 to 15 frames"),
    ("views.shuffle", 0.5, CODE, "p_shuffle"),
    ("views.drop", 0.3, CODE, "p_dropout"),
    ("views.keep_dropped", 0.5, CODE, "p_content"),
    ("views.temporal_edits", "authors", CODE, "one length of sub-clips; short videos are repeated first"),
    ("views.mixup", 0.3, CODE, "p_viv"),
    ("views.mixup_ratio", (0.3, 0.7), CODE, "lambda_viv"),
    ("views.mixup_edge", "squeeze", CODE, "the clip is resized to the box within the frame"),
    ("model.base", "r50-untrained", PAPER, "ResNet-50 of ImageNet; nothing learnt on top"),
    ("model.start", "random", CODE, "the network is drawn"),
    ("model.learn_psi", True, PAPER, "f is trained"),
    ("backbone.rate", 0.0, CODE, "only the similarity network is trained"),
    ("similarity.dims", 512, PAPER, "D"),
    ("similarity.projection", False, PAPER, "there is none"),
    ("similarity.weighting", "attention", CODE, "attention"),
    ("similarity.bits", None, CODE, "no binarisation"),
    ("similarity.spatial", "topk", PAPER, "TopK-Chamfer"),
    ("similarity.spatial_keep_rate", 0.10, PAPER, "k_s"),
    ("similarity.comparator", True, PAPER, "psi"),
    ("similarity.residual", False, PAPER, "psi's output alone"),
    ("similarity.negative_slope", 1.0, CODE, "hardtanh"),
    ("similarity.temporal", "topk", PAPER, "TopK-Chamfer"),
    ("similarity.temporal_keep_rate", 0.03, PAPER, "k_t"),
    ("similarity.symmetry", "none", CODE, "symmetric=False"),
    ("similarity.min_frames", 8, CODE, "a shorter video is doubled"),
    ("teacher.kind", "vit_small16", PAPER, "DINO's ViT-small, patches of 16"),
    ("teacher.top_rate", 0.35, PAPER, "r_t"),
    ("teacher.bottom_rate", 0.35, PAPER, "r_b"),
    ("losses.video_ap.delta", 0.05, PAPER, "delta_v"),
    ("losses.video_ap.rho", 0.10, PAPER, "rho_v"),
    ("losses.video_ap.weight", 4.0, PAPER, "lambda_v"),
    ("losses.video_ap.include_self", True, CODE, "a clip is its own positive"),
    ("losses.frame_ap.delta", 0.05, PAPER, "delta_f"),
    ("losses.frame_ap.rho", 5.0, PAPER, "rho_f"),
    ("losses.frame_ap.weight", 6.0, PAPER, "lambda_f"),
    ("losses.frame_ap.include_self", True, CODE, "pairs of a clip with itself count"),
    ("losses.infonce.weight", 1.0, PAPER, "the base loss"),
    ("losses.infonce.temperature", 0.03, CODE, "temperature"),
    ("losses.sshn.weight", 3.0, CODE, "lambda_parameter"),
    ("losses.sshn.clamp", 1e-3, CODE, "eps"),
    ("losses.range.weight", 1.0, CODE, "r_parameter"),
    ("bank.weak", 0, CODE, "views are made in every step"),
    ("bank.strong", 0, CODE, "views are made in every step"),
]
# Strong augmentations that neither names: a probability of 0 each.
OFF = (
    "perspective",
    "letterbox",
    "low_rate",
    "noise",
    "jpeg",
    "border",
    "turned",
    "backdrop",
    "stickers",
    "tiny",
    "screen",
)
# Settings that decide nothing here: places of files, devices, and settings of what is switched off.
FREE = {
    "data": {"frames", "device", "size", "max_pictures", "group", "stream", "buffer", "workers"},
    "teacher": {"weights"},
    "backbone": {"layers", "rank", "weight_decay", "stay", "average", "targets", "same", "twin", "hosts", "host_share"},
    "views": {"perspective_part", "letterbox_part", "low_rate_step", "noise_strength", "jpeg_quality", "border_width",
              "max_stickers", "stickers_size", "tiny_scale", "tiny_quality", "screen_strength"},
    "bank": {"folder", "device"},
}  # fmt: skip


def look_up(table: dict[str, Any], path: str) -> Any:
    for word in path.split("."):
        table = table[word]
    return table


@pytest.mark.parametrize(("path", "value", "source", "name"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_the_recipe_has_the_authors_setting(path: str, value: Any, source: str, name: str) -> None:
    found = look_up(to_table(load_config("paper")), path)
    assert type(found) is type(value), f"{path}: {source} has {name} = {value!r}"
    if isinstance(value, float):
        assert math.isclose(found, value, rel_tol=1e-12), f"{path}: {source} has {name} = {value!r}"
    else:
        assert found == value, f"{path}: {source} has {name} = {value!r}"


@pytest.mark.parametrize("name", OFF)
def test_nothing_is_done_to_views_that_the_authors_do_not(name: str) -> None:
    assert getattr(load_config("paper").views, name) == 0


def test_the_table_names_every_setting_that_decides_what_is_learnt() -> None:
    named = {path for path, *_ in SETTINGS} | {f"views.{name}" for name in OFF}
    for section in ("data", "views", "model", "similarity", "backbone", "teacher", "optimiser", "schedule", "bank"):
        settings = {entry.name for entry in dataclasses.fields(getattr(TrainConfig(), section))}
        known = {path.split(".")[1] for path in named if path.startswith(f"{section}.")}
        assert settings - FREE.get(section, set()) == known, section
    losses = to_table(load_config("paper"))["losses"]
    assert {f"losses.{term}.{key}" for term, own in losses.items() for key in own} == {
        path for path in named if path.startswith("losses.")
    }


def test_the_recipe_itself_writes_nothing_that_the_table_does_not_hold() -> None:
    # A value that the file repeats from the defaults stays checked when the default changes.
    written = parse_toml((RECIPES / "paper.toml").read_text(encoding="utf-8"), "paper.toml")
    named = {path for path, *_ in SETTINGS}
    free = {"data.frames", "teacher.weights"}
    for section, settings in written.items():
        if section == "run":  # where and how it computes
            assert settings.keys() == {"folder", "precision", "micro_batch"}
            continue
        for key, value in settings.items():
            paths = {f"{section}.{key}.{inner}" for inner in value} if isinstance(value, dict) else {f"{section}.{key}"}
            assert paths <= named | free
