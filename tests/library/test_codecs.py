"""Region vectors as bytes: each codec against a loop over bits, its levels against Lloyd's two conditions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.library.codecs import _LEVELS, CODECS, get_codec

FEW_BITS = {"int4": 4, "int3": 3, "int2": 2, "binary": 1}


def vectors(frames: int = 5, regions: int = 3, dims: int = 64, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(frames, regions, dims, generator=generator), dim=-1)


def decoded(name: str, regions: Tensor) -> Tensor:
    codec = get_codec(name)
    return codec.decode(codec.encode(regions), *regions.shape)


def test_two_bits_by_hand() -> None:
    data = get_codec("int2").encode(torch.tensor([[[2.0, -0.2, 0.2, -2.0]]]))
    # The spread of (2, -.2, .2, -2) is 1.42: in units of it (1.41, -.14, .14, -1.41), which are levels 3, 1, 2, 0.
    assert data[2:] == bytes([3 | 1 << 2 | 2 << 4 | 0 << 6])
    length = math.sqrt(2 * 2.0**2 + 2 * 0.2**2)
    levels = math.sqrt(2 * 1.510418**2 + 2 * 0.452780**2)
    assert np.frombuffer(data[:2], "<f2")[0] == pytest.approx(length / levels, rel=1e-3)
    assert get_codec("int2").decode(data, 1, 1, 4).flatten().tolist() == pytest.approx(
        [value * length / levels for value in (1.510418, -0.452780, 0.452780, -1.510418)], rel=1e-3
    )


def test_int8_by_hand() -> None:
    data = get_codec("int8").encode(torch.tensor([[[127.0, -64.0, 0.4]]]))
    assert np.frombuffer(data, "<f2", 1).tolist() == [1.0]
    assert np.frombuffer(data, np.int8, offset=2).tolist() == [127, -64, 0]


@pytest.mark.parametrize("name", FEW_BITS)
@pytest.mark.parametrize("dims", [1, 5, 8, 24, 30])
def test_decodes_as_a_loop_over_the_bits_does(name: str, dims: int) -> None:
    bits, regions = FEW_BITS[name], vectors(3, 2, dims)
    data = get_codec(name).encode(regions)
    upper = list(_LEVELS[bits])
    levels = [-value for value in reversed(upper)] + upper
    width = math.ceil(dims * bits / 8)
    expected = []
    for row in range(6):
        factor = float(np.frombuffer(data, "<f2", 6)[row])
        number = int.from_bytes(data[12 + row * width : 12 + (row + 1) * width], "little")
        expected.append([levels[number >> (place * bits) & (1 << bits) - 1] * factor for place in range(dims)])
    found = get_codec(name).decode(data, 3, 2, dims).reshape(6, dims)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FEW_BITS)
def test_each_number_takes_the_nearest_level(name: str) -> None:
    regions = vectors(1, 1, 32)
    upper = list(_LEVELS[FEW_BITS[name]])
    levels = [-value for value in reversed(upper)] + upper
    spread = math.sqrt(float(regions.square().mean()))
    nearest = []
    for value in regions.flatten().tolist():
        distances = [abs(value / spread - level) for level in levels]
        nearest.append(levels[distances.index(min(distances))])
    assert F.cosine_similarity(decoded(name, regions).flatten(), torch.tensor(nearest), dim=0) == pytest.approx(1.0)


@pytest.mark.parametrize("bits", _LEVELS)
def test_levels_lose_least_of_a_normal_variable(bits: int) -> None:
    grid = np.linspace(-9, 9, 400_001)
    density = np.exp(-(grid**2) / 2)
    upper = np.array(_LEVELS[bits])
    levels = np.concatenate([-upper[::-1], upper])
    cell = np.searchsorted((levels[1:] + levels[:-1]) / 2, grid)  # the first condition: a number's level is the nearest
    means = np.bincount(cell, density * grid) / np.bincount(cell, density)
    np.testing.assert_allclose(levels, means, atol=2e-4)  # the second: a level is the mean of its numbers


@pytest.mark.parametrize("name", list(CODECS))
def test_keeps_lengths_and_takes_the_size_it_says(name: str) -> None:
    regions = vectors() * torch.tensor([1.0, 5.0, 0.01])[None, :, None]
    codec = get_codec(name)
    data = codec.encode(regions)
    assert len(data) == codec.size(*regions.shape)
    torch.testing.assert_close(decoded(name, regions).norm(dim=-1), regions.norm(dim=-1), rtol=5e-3, atol=0)


def test_fewer_bits_keep_less() -> None:
    regions = vectors(dims=512)
    kept = [F.cosine_similarity(decoded(name, regions), regions, dim=-1).mean().item() for name in list(CODECS)]
    assert kept == sorted(kept, reverse=True)
    # What theory has the levels keep of a normal variable: the square root of one less their mean squared error.
    theory = {"int4": 0.009497, "int3": 0.03454, "int2": 0.1175, "binary": 0.3634}
    for name, share in zip(CODECS, kept, strict=True):
        assert share == pytest.approx(math.sqrt(1 - theory.get(name, 0.0)), abs=3e-3)


@pytest.mark.parametrize("name", list(CODECS))
def test_encoding_what_was_decoded_changes_nothing_more(name: str) -> None:
    once = decoded(name, vectors())
    torch.testing.assert_close(decoded(name, once), once, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("name", list(CODECS))
def test_a_frame_does_not_depend_on_its_neighbours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = vectors(7)
    whole = decoded(name, regions)
    assert torch.equal(whole[2:3], decoded(name, regions[2:3]))
    monkeypatch.setattr("hapvr.library.codecs._BLOCK", 100)  # one vector at a time
    assert torch.equal(whole, decoded(name, regions))


@pytest.mark.parametrize("name", list(CODECS))
def test_frames_are_taken_out_without_decoding(name: str) -> None:
    regions, chosen = vectors(7, dims=30), np.array([5, 0, 2])
    codec = get_codec(name)
    data = codec.take(codec.encode(regions), 7, 3, 30, chosen)
    assert data == codec.encode(regions[chosen])
    assert torch.equal(codec.decode(data, 3, 3, 30), decoded(name, regions)[chosen])


@pytest.mark.parametrize("name", list(CODECS))
def test_a_zero_vector_stays_zero(name: str) -> None:
    regions = vectors()
    regions[1] = 0.0
    assert not decoded(name, regions)[1].any()


@pytest.mark.parametrize("name", list(CODECS))
def test_bfloat16_is_the_rounded_result(name: str) -> None:
    regions = vectors()
    codec = get_codec(name)
    half = codec.decode(codec.encode(regions), *regions.shape, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, decoded(name, regions).bfloat16())


def test_refuses_what_it_cannot_keep() -> None:
    codec = get_codec("int4")
    with pytest.raises(DataError, match="NaN"):
        codec.encode(torch.full((1, 1, 4), torch.nan))
    with pytest.raises(DataError, match="65504"):
        codec.encode(torch.full((1, 1, 4), 1e6))
    with pytest.raises(ShapeError, match=r"\[T, R, D\]"):
        codec.encode(torch.zeros(4))
    with pytest.raises(StorageError, match="damaged"):
        codec.decode(codec.encode(vectors())[:-1], 5, 3, 64)
    with pytest.raises(ConfigError, match="float16"):
        codec.decode(codec.encode(vectors()), 5, 3, 64, dtype=torch.float16)
    with pytest.raises(ConfigError, match="did you mean 'float16'"):
        get_codec("float15")


# --- decoded to int8 -------------------------------------------------------------------------------------------------


def test_three_bits_as_int8_by_hand() -> None:
    """Levels .245094, .756005, 1.343909, 2.151946 in steps of one: their ratios are kept within half a step."""
    codec = get_codec("int3")
    quantized = codec.decode_to_int8(
        np.float16(2.0).tobytes() + bytes([0 | 3 << 3 | (4 & 3) << 6, 4 >> 2 | 7 << 1]), 1, 1, 4
    )
    step = quantized.scales.item() / 2.0
    first, second, third, fourth = quantized.codes.flatten().tolist()
    assert (first, second, third) == (-fourth, -third, -second)
    assert 64 <= fourth <= 127
    assert fourth * step == pytest.approx(2.151946)
    assert third * step == pytest.approx(0.245094, abs=step / 2)


@pytest.mark.parametrize("dims", [64, 37])
@pytest.mark.parametrize("name", CODECS)
def test_int8_is_what_is_decoded(name: str, dims: int) -> None:
    regions, codec = vectors(dims=dims), get_codec(name)
    data = codec.encode(regions)
    quantized = codec.decode_to_int8(data, *regions.shape)
    assert quantized.codes.is_contiguous()
    expected = codec.decode(data, *regions.shape)
    largest = expected.abs().amax((1, 2), keepdim=True)
    assert bool(((quantized.decode() - expected).abs() <= 0.0051 * largest).all())
    if name in ("int8", "binary"):
        torch.testing.assert_close(quantized.decode(), expected)


def test_damaged_bytes_are_no_int8_either() -> None:
    with pytest.raises(StorageError, match="damaged"):
        get_codec("int3").decode_to_int8(bytes(7), 1, 1, 8)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("dims", [8, 30])
def test_videos_decoded_together_are_those_decoded_alone(name: str, dims: int) -> None:
    codec, every_third, last = get_codec(name), np.arange(0, 5, 3), np.array([4])
    encoded = [codec.encode(vectors(5, 2, dims, seed=seed)) for seed in range(3)]
    chosen = [None, every_third, last]
    joined = codec.decode_all_to_int8([(data, 5, some) for data, some in zip(encoded, chosen, strict=True)], 2, dims)
    alone = [
        codec.decode_to_int8(data, 5, 2, dims)
        if some is None
        else codec.decode_to_int8(codec.take(data, 5, 2, dims, some), len(some), 2, dims)
        for data, some in zip(encoded, chosen, strict=True)
    ]
    assert torch.equal(joined.codes, torch.cat([one.codes for one in alone]))
    assert torch.equal(joined.scales, torch.cat([one.scales for one in alone]))


def test_many_vectors_are_looked_up_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, regions = get_codec("int3"), vectors(7, 3, 30)
    data = codec.encode(regions)
    whole = codec.decode_to_int8(data, *regions.shape)
    monkeypatch.setattr("hapvr.library.codecs._IN_ONE_LOOK", 4)  # 21 vectors: five blocks, and one that is not full
    assert torch.equal(codec.decode_to_int8(data, *regions.shape).codes, whole.codes)


def test_one_damaged_video_among_several_is_an_error() -> None:
    codec = get_codec("int3")
    with pytest.raises(StorageError, match="damaged"):
        codec.decode_all_to_int8([(codec.encode(vectors(2, 1, 8)), 2, None), (bytes(7), 1, None)], 1, 8)
