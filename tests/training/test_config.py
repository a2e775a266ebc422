from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from hapvr.config import parse_toml
from hapvr.errors import ConfigError
from hapvr.model import load
from hapvr.training.config import LossesConfig, ScheduleConfig, TrainConfig
from hapvr.training.recipe_files import list_recipes, load_config, load_stages, make_config, to_table, to_toml


def test_the_paper_recipe_is_the_appendix_table() -> None:
    paper = load_config("paper")
    assert (paper.schedule.steps, paper.schedule.warm_up, paper.data.batch) == (30_000, 1_000, 64)
    assert (paper.optimiser.rate, paper.optimiser.weight_decay) == (4e-5, 1e-2)
    assert (paper.views.frames, paper.views.size, paper.similarity.dims) == (28, 224, 512)
    assert (paper.teacher.kind, paper.teacher.top_rate, paper.teacher.bottom_rate) == ("vit_small16", 0.35, 0.35)
    assert (paper.similarity.spatial_keep_rate, paper.similarity.temporal_keep_rate) == (0.10, 0.03)
    terms = paper.losses.build().terms
    assert {name: term.weight for name, term in terms.items()} == {
        "frame_ap": 6, "video_ap": 4, "infonce": 1, "sshn": 3, "range": 1,
    }  # fmt: skip
    assert repr(terms["video_ap"].loss) == "QuadLinearAP(delta=0.05, rho=0.1)"
    assert repr(terms["frame_ap"].loss) == "FrameQuadLinearAP(delta=0.05, rho=5.0)"


def test_the_paper_recipe_begins_from_a_backbone_that_nothing_was_learnt_on() -> None:
    # "r50" carries a learnt projection in its whitening: its vectors are not those that the paper trains on.
    paper = load_config("paper")
    assert (paper.model.base, paper.model.start, paper.backbone.rate) == ("r50-untrained", "random", 0.0)


def test_the_paper_recipe_and_the_defaults_agree_where_both_speak() -> None:
    # The paper's numbers have two homes, the dataclasses and the recipe: they must not drift apart.
    paper, default = load_config("paper"), TrainConfig()
    assert paper.views == dataclasses.replace(default.views, temporal_edits="authors")  # ours are the default
    assert paper.similarity == default.similarity
    assert paper.optimiser == default.optimiser
    assert paper.schedule == default.schedule
    assert repr(paper.losses.build()) == repr(default.losses.build())


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_reads_and_survives_being_written(name: str) -> None:
    for config in load_stages(name).values():
        assert make_config(parse_toml(to_toml(to_table(config)), name)) == config


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_that_goes_on_with_a_network_asks_for_the_network_that_is_there(name: str) -> None:
    before = None
    for config in load_stages(name).values():
        if config.model.start == "base":
            base = before if before is not None else load(config.model.base).similarity.config
            assert config.similarity in (base, dataclasses.replace(base, projection=True))
        before = config.similarity


def test_what_the_recipes_for_the_included_models_give_is_scored_as_these_are() -> None:
    # A model folds its projection into the whitening when it is loaded.
    included = dataclasses.replace(load("lite").similarity.config, projection=True)
    for name in ("clips", "whole"):
        assert [*load_stages(name).values()][-1].similarity == included


def test_settings_are_read_by_their_old_names_too() -> None:
    assert make_config({"views": {"most_stickers": 3}}).views.max_stickers == 3


def test_words_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[schedule]\nsteps = 5\n[losses.video_ap]\nweight = 2\n")
    config = load_config(
        path, ["schedule.steps=7", "run.folder=runs/first", "losses.mae.weight=0.5", "views.flip=0", "data.frames='7'"]
    )
    assert (config.schedule.steps, config.run.folder, config.views.flip, config.data.frames) == (
        7,
        "runs/first",
        0,
        "7",
    )
    assert {name: term.weight for name, term in config.losses.build().terms.items()} == {"video_ap": 2, "mae": 0.5}


def test_a_word_about_a_loss_keeps_the_other_losses(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("")
    config = load_config(path, ["losses.frame_ap.weight=0", "losses.video_ap.delta=0.1"])
    terms = config.losses.build().terms
    assert sorted(terms) == ["infonce", "range", "sshn", "video_ap"]
    assert terms["video_ap"].weight == 4
    assert repr(terms["video_ap"].loss) == "QuadLinearAP(delta=0.1, rho=0.1)"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("schedul.steps=1", "did you mean 'schedule'"),
        ("schedule.step=1", "did you mean 'steps'"),
        ("steps=1", "did you mean 'schedule.steps'"),
        ("schedule.steps", "write section.key=value"),
        ("schedule.steps=many", "steps must be a whole number of at least 1, got 'many'"),
        ("schedule.steps=0", "at least 1"),
        ("schedule.steps=true", "must be a whole number"),
        ("optimiser.rate=-1", "must be a number of at least 0"),
        ("optimiser.rate=nan", "must be a number of at least 0"),
        ("losses.video_app.weight=1", "did you mean 'video_ap'"),
        ("losses.video_ap.detla=1", "did you mean 'delta'"),
        ("losses.video_ap=1", "is a table"),
        ("losses.video_ap.delta=-1", "delta"),
        ("run.precision=half", "cannot be 'half'"),
        ("teacher.kind=vit_small16", "Without DINO's file"),
        ("teacher.kind=none", "frame loss needs a teacher"),
        ("data.batch=1", "at least 2"),
        ("bank.weak=0", "weak and strong"),
        ("views.mixup=2", "must be a number from 0 to 1"),
        ("similarity.weighting=atention", "weighting cannot be 'atention'; did you mean 'attention'"),
        ("validation.truth=x.json", "without validation.features"),
        ("schedule=3", "names no section"),
    ],
)
def test_wrong_words_are_refused_with_a_hint(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("tiny", [word])


def test_files_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a file nor a recipe; recipes: clips, paper, small, tiny"):
        load_config("tinny")
    path = tmp_path / "settings.toml"
    path.write_text("steps =")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(path)
    path.write_text("schedule = 3")
    with pytest.raises(ConfigError, match="is a table of settings"):
        load_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(path)


def test_without_a_teacher_the_frame_loss_must_go() -> None:
    config = load_config("tiny", ["teacher.kind=none", "losses.frame_ap.weight=0"])
    assert "frame" not in config.losses.build().levels


def test_the_schedule_by_hand() -> None:
    # The paper's: 1% of the rate at step 0, half-way up at 500, then 0.1 + 0.45 (1 + cos(pi s / 30,000)).
    schedule = ScheduleConfig()
    assert schedule.share(0) == 0.01
    assert schedule.share(500) == pytest.approx(0.505)
    assert schedule.share(999) == pytest.approx(0.01 + 0.99 * 0.999)
    assert schedule.share(1_000) == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi / 30)))
    assert schedule.share(15_000) == pytest.approx(0.55)
    assert schedule.share(30_000) == pytest.approx(0.1)


def test_the_schedule_rises_then_falls() -> None:
    schedule = ScheduleConfig(steps=200, warm_up=20)
    shares = [schedule.share(step) for step in range(200)]
    assert shares[:20] == sorted(shares[:20])
    assert shares[20:] == sorted(shares[20:], reverse=True)
    assert min(shares) >= 0.01
    assert max(shares) <= 1


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().run = None  # type: ignore[misc, assignment]


def test_no_losses_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one term"):
        LossesConfig({"video_ap": {"weight": 0.0}})
