"""DnS, ITQ, binarised networks and the methods around the similarity network, against loops and closed forms."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapvr.errors import ConfigError, ShapeError
from hapvr.features import Features
from hapvr.methods import fit_method, make_method
from hapvr.methods.dns import DnS, select_pairs
from hapvr.methods.itq import fit_rotation
from hapvr.methods.networks import NetworkMethod
from hapvr.model import load_network
from hapvr.similarity import pairwise
from tests.methods.toy import DIMS, draw_clips, draw_video, quick_settings


def draw_vectors(count: int = 200, dims: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(count, dims, generator=generator) @ torch.randn(dims, dims, generator=generator)
    return F.normalize(mixed, dim=1)


def test_itq_rotates_and_lowers_the_error() -> None:
    vectors = draw_vectors()
    found = fit_rotation(vectors, bits=8)
    torch.testing.assert_close(found.rotation @ found.rotation.T, torch.eye(8, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(found.projection.T @ found.projection, torch.eye(8), atol=1e-5, rtol=0)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(found.errors))
    assert found.errors[-1] < 0.9 * found.errors[0]
    loop = 0.0
    for vector in vectors.double():
        value = vector @ found.projection.double()
        loop += float(((value.sign() / 8**0.5 - value) ** 2).sum())
    assert loop / len(vectors) == pytest.approx(found.errors[-1], abs=1e-6)
    with pytest.raises(ConfigError, match="1 to 12 bits"):
        fit_rotation(vectors, bits=13)


def test_itq_rotates_codes_onto_themselves() -> None:
    """Vectors that are signs already, turned by a rotation, have no error left."""
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, (64, 4), generator=generator).double() * 2 - 1
    turned = signs / 2 @ torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    assert min(fit_rotation(turned, bits=4, seed=seed).errors[-1] for seed in range(4)) < 1e-9


@pytest.mark.parametrize("name", ["dns-b", "hapvr-binary"])
def test_the_frames_of_a_binarised_network_are_compared_by_hamming_distance(name: str, tmp_path: Path) -> None:
    method = make_method(name, DIMS, quick_settings(name, tmp_path, steps=2, bits=8))
    fit_method(method, draw_clips())
    videos = [draw_video(1), draw_video(2, frames=5)]
    one, other = (method.describe(video) for video in videos)
    assert one.bytes == 12 * 4 * 8 / 8
    assert set(one.values.flatten().tolist()) == {-1.0, 1.0}
    assert isinstance(method, NetworkMethod)
    weight = method.network.binarization.projection  # type: ignore[union-attr]
    expected = np.zeros((12, 5))
    for t in range(12):
        for u in range(5):
            best = []
            for region in videos[0].regions[t]:
                bits = (region @ weight > 0).tolist()
                others = [(target @ weight > 0).tolist() for target in videos[1].regions[u]]
                best.append(max(1 - 2 * sum(a != b for a, b in zip(bits, own, strict=True)) / 8 for own in others))
            expected[t, u] = np.mean(best)
    np.testing.assert_allclose(method.frame_matrix(one, other).numpy(), expected, atol=1e-6)


def test_a_larger_budget_keeps_what_a_smaller_one_selects() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)).round(decimals=1)  # with ties
    before = torch.zeros(5, 40, dtype=torch.bool)
    for budget in (0.0, 0.1, 0.25, 0.5, 0.99, 1.0):
        chosen = select_pairs(logits, budget)
        assert (chosen.sum(1) == round(budget * 40)).all()
        assert bool((chosen | ~before).all())
        left_out = logits.masked_fill(chosen, -torch.inf).amax(1)
        assert bool((logits.masked_fill(~chosen, torch.inf).amin(1) >= left_out).all())
        before = chosen


def test_dns_scores_coarsely_and_what_it_selects_finely(tmp_path: Path) -> None:
    settings = quick_settings("dns", tmp_path, steps=2)
    whole = make_method("dns", DIMS, settings, seed=2)
    assert isinstance(whole, DnS)
    fit_method(whole, draw_clips())
    videos = [draw_video(place, frames=length) for place, length in enumerate((9, 4, 13, 20))]
    others = [draw_video(place, frames=7) for place in (20, 21, 22, 23)]
    coarse, fine = (
        student.score(*([student.describe(video) for video in side] for side in (videos, others)))
        for student in (whole.coarse, whole.fine)
    )
    described, targets = ([whole.describe(video) for video in side] for side in (videos, others))
    assert described[0].bytes == 2 * DIMS[1] + 9 * 4 * 16 / 8 + 2
    for budget, count in ((0.0, 0), (0.5, 2), (1.0, 4)):
        method = make_method("dns", DIMS, {**settings, "budget": budget})
        method.load_state_dict(whole.state_dict())
        scores = method.score(described, targets)
        is_fine, is_coarse = (torch.isclose(scores, one, atol=1e-5) for one in (fine, coarse))
        assert bool((is_fine | is_coarse).all())
        assert (is_fine & ~is_coarse).sum(1).tolist() == [count] * 4


def test_students_learn_the_scores_of_their_teacher(tmp_path: Path) -> None:
    method = make_method("dns-coarse", DIMS, quick_settings("dns-coarse", tmp_path, steps=1, teacher="lite"))
    with pytest.raises(ShapeError, match="takes 512 dims, the clips have 16"):
        method.fit(draw_clips())
    own = quick_settings("dns-coarse", tmp_path)
    dml = make_method("dml", DIMS)
    from hapvr.methods import save_method

    save_method(dml, tmp_path / "dml")
    with pytest.raises(ConfigError, match="cannot teach"):
        make_method("dns-coarse", DIMS, {**own, "teacher": str(tmp_path / "dml")}).fit(draw_clips())


def test_visil_f_is_chamfer_on_both_levels() -> None:
    method = make_method("visil-f", DIMS)
    videos = [draw_video(1, frames=4), draw_video(2, frames=3)]
    rows = []
    for frame in videos[0].regions:
        cells = []
        for other in videos[1].regions:
            cells.append(np.mean([max(float(x @ y) for y in other) for x in frame]))
        rows.append(max(cells))
    described = [method.describe(video) for video in videos]
    assert method.score(described[:1], described[1:]).item() == pytest.approx(float(np.mean(rows)), abs=1e-5)


def test_lite_is_the_shipped_network() -> None:
    method = make_method("lite", (9, 512))
    videos = [draw_video(place, dims=(9, 512)) for place in range(2)]
    described = [method.describe(video) for video in videos]
    expected = pairwise(load_network("lite"), *[[video.regions for video in videos]] * 2)
    torch.testing.assert_close(method.score(described, described), expected, atol=1e-5, rtol=0)
    with pytest.raises(ShapeError, match="takes 512 dims"):
        make_method("lite", DIMS)


def test_pooled_clips_hold_the_means_of_regions() -> None:
    clips = draw_clips(2)
    pooled = clips.pool()
    assert pooled.dims == (1, 16)
    for place in (0, 3):
        for frame, expected in zip(pooled.features(place).regions, clips.features(place).regions, strict=True):
            mean = sum(expected) / 4
            torch.testing.assert_close(frame[0], mean / mean.norm(), atol=1e-3, rtol=0)
    assert pooled.ids == clips.ids


def test_flat_frames_are_left_out_of_clips() -> None:
    from hapvr.methods import make_clips

    video = draw_video(1)
    flags = np.zeros(len(video), np.bool_)
    flags[:3] = True
    clips = make_clips({"a": Features(video.regions, video.timestamps, flags), "b": video}, {"b": ["a"]})
    assert clips.lengths.tolist() == [9, 12]
    assert clips.features(0).times[0] == 1.5


def test_batches_hold_an_original_once_with_a_copy_of_the_same_stretch() -> None:
    from hapvr.methods import make_clips

    videos = {f"v{place}": Features(torch.full((40, 1, 2), float(place))) for place in range(4)}
    numbered = {id: Features(video.regions + torch.arange(40.0)[:, None, None] / 64) for id, video in videos.items()}
    copies = {f"{id}-{number}": video for id, video in numbered.items() for number in range(2)}
    clips = make_clips({**numbered, **copies}, {id: [id.partition("-")[0]] for id in copies})
    assert len(clips.copies) == 8
    for seed in range(5):
        batch = clips.draw(batch=3, frames=8, generator=torch.Generator().manual_seed(seed))
        assert batch.regions.shape == (6, 8, 1, 2)
        assert torch.equal(batch.regions[:3], batch.regions[3:])  # copies are the same, cut at the same place
        assert len(set(batch.contents[:3, 0].tolist())) == 3
        assert torch.equal(batch.contents[:3], batch.contents[3:])
        steps = batch.regions[:, 1:, 0, 0] - batch.regions[:, :-1, 0, 0]
        assert bool((steps == 1 / 64).all())  # one stretch, in order
    short = clips.draw(batch=2, frames=50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(short.regions[:, 40:], short.regions[:, :10])  # repeated
