"""DML, TCA, VRL, NetVLAD and hashing against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hapvr.features import Features
from hapvr.methods import fit_method, make_method
from hapvr.methods.dml import DML
from hapvr.methods.dns_coarse import VLAD
from hapvr.methods.hashing import compute_hashes
from hapvr.methods.vectors import FrameEncoder, score_batch
from hapvr.methods.vrl import VRL
from tests.methods.toy import DIMS, SIDE, draw_clips, draw_video

Vector = NDArray[np.float64]


def unit(vector: Vector) -> Vector:
    found: Vector = vector / np.sqrt((vector * vector).sum())
    return found


def pool(video: Features) -> list[Vector]:
    return [unit(frame.double().numpy().mean(0)) for frame in video.regions]


def chamfer(one: list[Vector], other: list[Vector]) -> float:
    forth = np.mean([max(float(x @ y) for y in other) for x in one])
    back = np.mean([max(float(x @ y) for x in one) for y in other])
    return float(forth + back) / 2


def test_dml_is_a_perceptron_over_the_mean_of_the_frames() -> None:
    method = make_method("dml", DIMS, {"width": 5, "steps": 3, "batch": 6, "frames": 12})
    fit_method(method, draw_clips())
    videos = [draw_video(1), draw_video(2, frames=5)]
    assert isinstance(method, DML)
    torch.nn.init.normal_(method.layers[-1].weight)  # type: ignore[arg-type]
    layers = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in method.layers
        if isinstance(layer, torch.nn.Linear)
    ]
    vectors = []
    for video in videos:
        mean = unit(np.mean(pool(video), 0))
        value = mean * math.sqrt(DIMS[1])
        for number, (weight, bias) in enumerate(layers):
            value = weight @ value + bias
            if number < 2:
                value = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in value])
        vectors.append(unit(mean + value))
    described = [method.describe(video) for video in videos]
    assert method.score(described[:1], described[1:]).item() == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)


def test_tca_starts_as_chamfer_of_frames() -> None:
    videos = [draw_video(1), draw_video(2, frames=5)]
    method = make_method("tca", DIMS)
    described = [method.describe(video) for video in videos]
    expected = chamfer(pool(videos[0]), pool(videos[1]))
    assert method.score(described[:1], described[1:]).item() == pytest.approx(expected, abs=1e-5)
    whole = make_method("tca", DIMS, {"level": "video"})
    assert not whole.localises
    one, other = (unit(np.mean(pool(video), 0)) for video in videos)
    described = [whole.describe(video) for video in videos]
    assert whole.score(described[:1], described[1:]).item() == pytest.approx(float(one @ other), abs=1e-5)


def test_clips_of_the_bank_are_negatives_unless_they_show_the_same() -> None:
    """Nothing is learnt (rate 0) and all clips are in every batch, so the bank holds what the batch holds."""
    clips = draw_clips(3)
    settings = {"steps": 2, "batch": 3, "frames": 12, "bank": 6, "rate": 0.0, "temperature": 0.5}
    found = make_method("tca", DIMS, settings).fit(clips)
    vectors = [unit(np.mean(pool(clips.features(place)), 0)) for place in range(6)]
    for times, loss in zip((1, 2), found, strict=True):  # each negative counts once, then twice
        values = []
        for query in range(6):
            positive = (query + 3) % 6
            negatives = [place for place in range(6) if place not in (query, positive)]
            lead = [float(vectors[query] @ (vectors[place] - vectors[positive])) / 2 / 0.5 for place in negatives]
            values.append(math.log(1 + times * sum(math.exp(one) for one in lead)))
        assert loss == pytest.approx(np.mean(values), abs=1e-3)  # clips are kept in float16


def test_vrl_starts_as_chamfer_of_the_means_of_stretches() -> None:
    videos = [draw_video(1, frames=10), draw_video(2, frames=5)]  # a last stretch of 2, of 1
    method = make_method("vrl", DIMS)
    described = [method.describe(video) for video in videos]
    means = [
        [unit(np.mean(frames[first : first + 4], 0)) for first in range(0, len(frames), 4)]
        for frames in map(pool, videos)
    ]
    assert method.score(described[:1], described[1:]).item() == pytest.approx(chamfer(*means), abs=1e-5)
    assert described[0].times.tolist() == [0.75, 2.75, 4.25]
    assert isinstance(method, VRL)
    torch.nn.init.normal_(method.encoder.leave.weight)
    torch.nn.init.normal_(method.convolution.weight)
    regions = videos[0].regions[None]
    last = method.embed(regions[:, 8:])  # a stretch that is not full sees its own frames alone
    torch.testing.assert_close(method.embed(regions)[:, 2:], last, atol=1e-5, rtol=0)


def test_padding_does_not_change_what_an_encoder_sees() -> None:
    torch.manual_seed(0)
    encoder = FrameEncoder(8, 8, layers=2, heads=2, places=True).eval()
    torch.nn.init.normal_(encoder.leave.weight)
    vectors = F.normalize(torch.randn(2, 7, 8), dim=-1)
    mask = torch.arange(7) < torch.tensor([[4], [7]])
    padded = encoder(vectors.masked_fill(~mask[..., None], 9.0), mask)
    torch.testing.assert_close(padded[0, :4], encoder(vectors[:1, :4])[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(padded[1], encoder(vectors[1:])[0], atol=1e-5, rtol=0)
    assert bool((padded[0, 4:] == 0).all())


def test_scores_of_a_batch_equal_those_of_pairs() -> None:
    vectors = F.normalize(torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0)), dim=-1)
    found = score_batch(vectors, vectors[:2])
    for row in range(3):
        for column in range(2):
            sides = [list(vectors[place].double().numpy()) for place in (row, column)]
            assert found[row, column].item() == pytest.approx(chamfer(*sides), abs=1e-5)


def test_netvlad_by_a_loop() -> None:
    torch.manual_seed(0)
    pooling = VLAD(3, 2)
    vectors = torch.randn(1, 4, 3)
    shares = pooling.assign(vectors).softmax(-1)[0].detach().double().numpy()
    parts = []
    for cluster in range(2):
        centre = pooling.centres[cluster].detach().double().numpy()
        parts.append(unit(sum(shares[t, cluster] * (vectors[0, t].double().numpy() - centre) for t in range(4))))
    np.testing.assert_allclose(pooling(vectors)[0].detach().numpy(), unit(np.concatenate(parts)), atol=1e-6)


def test_hashes_are_signs_of_frequencies_about_their_median() -> None:
    picture = torch.rand(1, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) * 255
    values = np.zeros((16, 16))
    for i in range(16):
        for j in range(16):
            rows = [math.cos(math.pi / SIDE * (place + 0.5) * (i + 1)) for place in range(SIDE)]
            columns = [math.cos(math.pi / SIDE * (place + 0.5) * (j + 1)) for place in range(SIDE)]
            values[i, j] = float(np.array(rows) @ picture[0].double().numpy() @ np.array(columns))
    middle = sorted(values.ravel())[127]  # the lower of the two in the middle
    expected = np.where(values.ravel() > middle, 1.0, -1.0)
    assert compute_hashes(picture)[0].tolist() == expected.tolist()
    brighter = compute_hashes(picture * 0.5 + 60)
    assert torch.equal(brighter, compute_hashes(picture))


def test_the_hash_score_counts_frames_that_match() -> None:
    method = make_method("hash", (SIDE, SIDE), {"max_distance": 118})
    videos = [draw_video(place, frames=length, dims=(SIDE, SIDE)) for place, length in ((0, 6), (1, 4), (2, 9))]
    described = [method.describe(video) for video in videos]
    for row, query in enumerate(described):
        for column, target in enumerate(described):
            distances = [min(int((x != y).sum()) for y in target.values) for x in query.values]
            share = np.mean([distance <= 118 for distance in distances])
            expected = share + 0.001 * np.mean([1 - distance / 128 for distance in distances])
            assert method.score([query], [target]).item() == pytest.approx(expected, abs=1e-6), (row, column)
    assert described[0].bytes == 6 * 32
    shares = method.score(described, described)
    assert bool(((shares > 0.1) & (shares < 0.9)).any())  # some frames match and some do not
