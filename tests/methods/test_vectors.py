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


def test_tca_starts_as_chamfer_of_frames_and_learns_from_a_bank() -> None:
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
    losses = [
        fit_method(make_method("tca", DIMS, {"steps": 8, "batch": 3, "frames": 12, "bank": bank}), draw_clips())
        for bank in (0, 64)
    ]
    assert losses[0].first_loss is not None
    assert losses[1].last_loss is not None
    assert losses[0].last_loss is not None
    assert losses[1].last_loss > losses[0].last_loss  # more negatives


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
    method = make_method("hash", (SIDE, SIDE), {"max_distance": 100})
    videos = [draw_video(place, frames=length, dims=(SIDE, SIDE)) for place, length in ((0, 6), (1, 4), (2, 9))]
    described = [method.describe(video) for video in videos]
    for row, query in enumerate(described):
        for column, target in enumerate(described):
            distances = [min(int((x != y).sum()) for y in target.values) for x in query.values]
            share = np.mean([distance <= 100 for distance in distances])
            expected = share + 0.001 * np.mean([1 - distance / 128 for distance in distances])
            assert method.score([query], [target]).item() == pytest.approx(expected, abs=1e-6), (row, column)
    assert described[0].bytes == 6 * 32
