"""PDQ and vPDQ: hashes as the reference program computes them, the files of others, and the rule of a match."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode
from hapvr.video.pdq import hash_picture
from hapvr.video.vpdq import MatchRule, VideoHashes, hash_video, match_hashes, parse_signals

ZEROS, ONES = "0" * 64, "f" * 64


def draw(height: int, width: int, step: int) -> NDArray[np.uint8]:
    """A picture by whole numbers alone, the same everywhere."""
    y, x = np.mgrid[:height, :width]
    channels = [(x * x // step + y * 3) % 256, (x * y // step) % 256, ((x // step ^ y // step) * 37) % 256]
    return np.stack(channels, -1).astype(np.uint8)


# By the package pdqhash 0.2.8, which holds the program of ThreatExchange.
KNOWN = {
    (64, 64, 3): "35b56925db6126c8eccb9aaa3152e2559da53b6de4c983133c73e1c7a61e6470",
    (97, 150, 5): "492d924db6cd6c899999333946339c7338e3f1c783871f0ef80e81fc1fe0ff00",
    (240, 320, 11): "e3c6c3ce8f060f9e0f0f1c0e7c3ef07ee03c81ffffbc520003c8fea0ffc07000",
    (500, 333, 29): "18e770e7f1c2e05f87ec1f001e0e3e08fc1ef894607e00fa07f87fecffa0bc00",
}


@pytest.mark.parametrize("drawn", KNOWN)
def test_hashes_are_those_of_the_reference_program(drawn: tuple[int, int, int]) -> None:
    bits, quality = hash_picture(draw(*drawn))
    assert (bits.tobytes().hex(), quality) == (KNOWN[drawn], 100)


def test_quality_says_how_much_there_is_to_see() -> None:
    assert hash_picture(np.full((80, 90, 3), 77, np.uint8))[1] == 0
    faint = np.zeros((80, 90, 3), np.uint8)
    faint[20:60, 30:70] = np.arange(40, dtype=np.uint8)[:, None, None] * 3
    assert hash_picture(faint)[1] == 43  # as by pdqhash


def test_a_hash_agrees_with_the_loop() -> None:
    """A picture of 64 x 64 is neither blurred nor reduced: its hash is signs of cosine sums."""
    image = draw(64, 64, 7)
    luma = [[0.299 * r + 0.587 * g + 0.114 * b for r, g, b in row] for row in image.tolist()]
    wave = [[math.cos(math.pi / 128 * i * (2 * j + 1)) for j in range(64)] for i in range(17)]
    rows = [[sum(wave[i][y] * luma[y][x] for y in range(64)) for x in range(64)] for i in range(1, 17)]
    found = [sum(wave[j][x] * row[x] for x in range(64)) for row in rows for j in range(1, 17)]
    median = sorted(found)[127]
    number = sum((value > median) << place for place, value in enumerate(found))
    assert hash_picture(image)[0].tobytes().hex() == f"{number:064x}"


@pytest.mark.parametrize("drawn", KNOWN)
def test_a_transposed_picture_has_the_transposed_hash(drawn: tuple[int, int, int]) -> None:
    image = draw(*drawn)
    bits, other = (
        np.unpackbits(hash_picture(one)[0]).reshape(16, 16)
        for one in (image, np.ascontiguousarray(image.swapaxes(0, 1)))
    )
    assert (bits == other.T).mean() > 0.98  # rows are blurred before columns: a sum may round to the other side


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_video_has_a_hash_for_each_second_of_its_frames(tmp_path: Path) -> None:
    write_clip(draw_scene(3, seconds=4, fps=8, size=(112, 144)), tmp_path / "a.mp4")
    hashes = hash_video(tmp_path / "a.mp4")
    frames = decode(tmp_path / "a.mp4", fps=1.0, short_side=112, min_frames=0, crop_bars=False)
    assert hashes.times.tolist() == frames.timestamps.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [(one.tobytes(), quality) for one, quality in zip(hashes.hashes, hashes.qualities, strict=True)] == [
        (bits.tobytes(), quality) for bits, quality in map(hash_picture, frames.images)
    ]
    again = parse_signals(hashes.to_json())[1]
    for name in ("hashes", "qualities", "times"):
        assert getattr(again, name).tolist() == getattr(hashes, name).tolist()


def test_every_form_of_a_signal_is_read() -> None:
    frames = [(ZEROS, 90, 0.0), (ONES, 100, 1.033)]
    listed = json.dumps([f"{one},{quality},{time_s:.3}" for one, quality, time_s in frames], indent=1)
    numbered = json.dumps({30 * n: {"quality": q, "hash": one, "timestamp": t} for n, (one, q, t) in enumerate(frames)})
    lines = "".join(f"{30 * n},{q},{one},{t:.3f}\n" for n, (one, q, t) in enumerate(frames))
    for text in (listed, numbered, lines, f"vpdq {numbered}\n"):
        (found,) = parse_signals(text).values()
        assert [one.tobytes().hex() for one in found.hashes] == [ZEROS, ONES]
        assert found.qualities.tolist() == [90, 100]
        assert found.times[1] == pytest.approx(1.03, abs=0.01)
    assert parse_signals('["' + ONES + ',5,1.23e+03"]')[1].times.tolist() == [1230]  # as long videos are written


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is empty"),
        ("[]", "another JSON value"),
        ("{}", "another JSON value"),
        ("[1, 2]", "another JSON value"),
        ('{"0": {"quality": 100}}', "is no frame"),
        (f'["{ZEROS},100"]', "is no frame"),
        (f'["{ZEROS},101,0"]', "is no frame"),
        (f'["{ZEROS},100,-1"]', "is no frame"),
        (f'["{ZEROS},100,nan"]', "is no frame"),
        (f'["{ZEROS[1:]},100,0"]', "is no frame"),
        (f'["{ZEROS},100,0,7"]', "is no frame"),
        (f'vpdq ["{ZEROS},100,0"]\nvpdq [', "line 2 is no JSON"),
        (f'["{ZEROS},100,0"]\npdq ["{ZEROS},100,0"]', "line 2 is no JSON"),
        (f"0,100,{ZEROS},0.0\n1,100,{ZEROS}", "line 2 is no FRAME"),
        (f"0,100,{'g' * 64},0.0", "line 1 is no FRAME"),
    ],
)
def test_what_is_no_signal_is_refused_and_named(text: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        parse_signals(text)


# --- matching --------------------------------------------------------------------------------------------------------


def make(hashes: list[int], qualities: list[int] | None = None) -> VideoHashes:
    packed = np.frombuffer(b"".join(one.to_bytes(32, "big") for one in hashes), np.uint8).reshape(-1, 32)
    return VideoHashes(packed, np.array(qualities or [100] * len(hashes)), np.arange(len(hashes), dtype=float))


def test_a_match_is_counted_by_hand() -> None:
    """Frames at distances 0, 31 and 32; one below the quality; one that is there twice."""
    query = make([0, 0, 2**255, 2**256 - 1], [100, 100, 49, 100])
    known = [make([2**31 - 1]), make([2**32 - 1]), make([2**256 - 1, 5]), make([0], [10])]
    assert match_hashes(query, known).tolist() == [[50, 100], [0, 0], [100, 100], [0, 0]]
    assert match_hashes(make([0], [10]), known).tolist() == [[0, 0]] * 4
    assert MatchRule(min_query=50).allows(50, 0)
    assert not MatchRule(min_query=0).allows(0, 0)
    with pytest.raises(ConfigError, match="min_query must lie from 0 to 100, got 101"):
        MatchRule(min_query=101)


def test_matching_agrees_with_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hapvr.video.vpdq._CELLS", 7)  # blocks end within a video
    rng = np.random.default_rng(0)
    centres = [int.from_bytes(rng.bytes(32), "big") for _ in range(3)]

    def draw_video() -> tuple[list[int], list[int]]:
        count = int(rng.integers(1, 6))
        noise = [sum(1 << int(bit) for bit in rng.choice(256, int(rng.integers(0, 24)), False)) for _ in range(count)]
        hashes = [centres[int(rng.integers(3))] ^ one for one in noise]
        return hashes + hashes[:1], rng.integers(30, 101, count + 1).tolist()

    def share(ours: set[int], theirs: set[int]) -> float:
        return 100 * sum(any((a ^ b).bit_count() <= 31 for b in theirs) for a in ours) / len(ours) if ours else 0.0

    for _ in range(20):
        videos = [draw_video() for _ in range(4)]
        kept = [{one for one, quality in zip(*video, strict=True) if quality >= 50} for video in videos]
        wanted = [[share(kept[0], one) if one else 0, share(one, kept[0])] for one in kept[1:]]
        found = match_hashes(make(*videos[0]), [make(*video) for video in videos[1:]])
        np.testing.assert_allclose(found, wanted)


def test_a_video_matches_itself_and_swapping_swaps_the_shares() -> None:
    rng = np.random.default_rng(1)
    a, b = (make([int.from_bytes(rng.bytes(32), "big") for _ in range(count)]) for count in (3, 5))
    assert match_hashes(a, [a]).tolist() == [[100, 100]]
    joined = VideoHashes(
        *(np.concatenate([getattr(x, name) for x in (a, b)]) for name in ("hashes", "qualities", "times"))
    )
    assert match_hashes(a, [joined])[0].tolist() == match_hashes(joined, [a])[0][::-1].tolist() == [100, 37.5]
