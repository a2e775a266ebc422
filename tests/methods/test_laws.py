"""What holds of every method, by the registry: one that is added is tested here without a line."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features import Features
from hapvr.methods import (
    TRIALS,
    Description,
    Method,
    Settings,
    evaluate_method,
    find_method,
    fit_method,
    list_methods,
    load_method,
    make_method,
    open_method,
    read_card,
    register,
    save_method,
)
from tests.methods.toy import (
    DIMS,
    LEARNING,
    METHODS,
    draw_clips,
    draw_video,
    find_dims,
    quick_settings,
    write_benchmark_files,
)

SYMMETRIC = ["dml", "dns-coarse", "lamv", "tca", "tmk", "vrl"]
MOVED = 0.3  # how far weights are moved from where they start: starts of zeros would hide mistakes


def draw_method(name: str, folder: Path) -> Method[Settings]:
    """A method whose weights are neither zero nor fitted."""
    more = {"budget": 1.0} if name == "dns" else {}  # which pairs a smaller one chooses depends on the others
    method: Method[Settings] = make_method(name, find_dims(name), quick_settings(name, folder, **more), seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(MOVED * torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return method


def describe_all(method: Method[Settings], lengths: tuple[int, ...] = (9, 30, 13)) -> list[Description]:
    videos = [draw_video(place, frames=length, dims=method.dims) for place, length in enumerate(lengths)]
    return [method.describe(video) for video in videos]


@pytest.mark.parametrize("name", METHODS)
def test_a_score_does_not_depend_on_what_it_is_computed_with(name: str, tmp_path: Path) -> None:
    method = draw_method(name, tmp_path)
    described = describe_all(method)
    together = method.score(described, described)
    assert together.shape == (3, 3)
    assert together.dtype == torch.float32
    alone = torch.stack([torch.cat([method.score([one], [other])[0] for other in described]) for one in described])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_swapping_the_videos_swaps_nothing_in_symmetric_methods(name: str, tmp_path: Path) -> None:
    method = draw_method(name, tmp_path)
    described = describe_all(method)
    scores = method.score(described, described)
    torch.testing.assert_close(scores, scores.T, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_method_gives_equal_scores(name: str, tmp_path: Path) -> None:
    method = draw_method(name, tmp_path)
    described = describe_all(method)
    record = fit_method(make_method("visil-f", DIMS), draw_clips(), segments=False)
    again, fitted = load_method(save_method(method, tmp_path / "saved", record))
    assert fitted == record
    assert again.settings == method.settings
    assert torch.equal(again.score(describe_all(again), describe_all(again)), method.score(described, described))


@pytest.mark.parametrize("name", LEARNING)
def test_fitting_lowers_the_loss_and_repeats(name: str, tmp_path: Path) -> None:
    clips = draw_clips(noise=4.0)  # so that there is something to learn
    more = {"bank": 0} if name == "tca" else {}  # a bank that fills raises the loss
    found = []
    for _ in range(2):
        method = make_method(name, DIMS, quick_settings(name, tmp_path, **more), seed=1)
        torch.manual_seed(1)
        losses = method.fit(clips, seed=1)
        assert sum(losses[-5:]) < 0.97 * sum(losses[:5]), losses
        found.append((losses, method.eval().state_dict()))
        if name.startswith("dns"):
            break  # the law is the loop's, and students take long
    for (losses, weights), (others, again) in itertools.pairwise(found):
        assert losses == others
        assert all(torch.equal(weights[key], again[key]) for key in weights)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_card_and_as_many_trials(name: str) -> None:
    cls = find_method(name)
    card = read_card(cls)
    assert all(f"\n{word}:" in card for word in ("Original", "Kept", "Adapted")), card
    assert len(cls.trials) == TRIALS
    assert cls.trials[0] == {}
    assert len({repr(sorted(one.items())) for one in cls.trials}) == TRIALS
    for settings in cls.trials:
        cls.settings_type(**settings)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_measured(name: str, tmp_path: Path) -> None:
    benchmark, features = write_benchmark_files(tmp_path, dims=find_dims(name))
    method = draw_method(name, tmp_path)
    result = evaluate_method(method, benchmark, features)
    record = result.to_json()
    assert record["method"]["name"] == name
    assert record["method"]["features"] == "toy"
    assert record["method"]["bytes_per_minute"] > 0
    assert record["method"]["speeds"][0]["pairs"] == 36
    assert 0 < record["results"][0]["overall"]["value"] <= 1
    assert (result.segments is not None) == method.localises


def test_names_are_known_and_suggested() -> None:
    assert {"hash", "dml", "tmk", "lamv", "tca", "vrl", "visil", "visil-f", "visil-sym", "s2vs", "dns", "dns-a",
            "dns-b", "dns-coarse", "hapvr", "hapvr-binary", "lite"} <= set(list_methods())  # fmt: skip
    with pytest.raises(ConfigError, match="did you mean 'dml'"):
        find_method("dlm")
    with pytest.raises(ConfigError, match="hapvr method fit dml"):
        open_method("dml", DIMS)
    assert open_method("tmk", DIMS)[1] is None


def test_two_methods_cannot_share_a_name() -> None:
    class Other(Method[Settings]):
        name, title = "tmk", "Other"

    with pytest.raises(ConfigError, match="two methods 'tmk'"):
        register(Other)


def test_features_of_other_dims_are_refused() -> None:
    method = make_method("tmk", DIMS)
    with pytest.raises(ShapeError, match="4 regions x 16 dims"):
        method.describe(Features(torch.ones(3, 2, 5)))
    with pytest.raises(DataError, match="clips have"):
        fit_method(method, draw_clips(dims=(4, 8)))
    with pytest.raises(DataError, match="0 queries"):
        method.score([], [])
