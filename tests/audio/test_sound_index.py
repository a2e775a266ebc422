"""The index of sounds finds what a comparison with every sound finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hapvr.audio.fingerprints import NOTHING, Fingerprint
from hapvr.audio.matching import MatchConfig, SoundQuery, change_speed
from hapvr.audio.sound_index import SoundIndex, build_index, read_index, write_index
from hapvr.errors import DataError
from tests.audio.test_matching import draw_peaks, shift


def cut(peaks: Fingerprint, first: int, count: int) -> Fingerprint:
    chosen = slice(first, first + count)
    return Fingerprint(peaks.frames[chosen] - peaks.frames[first], peaks.bins[chosen])


def join(*parts: tuple[int, Fingerprint]) -> Fingerprint:
    """Sounds that begin at these frames, of which each ends before the next begins."""
    moved = [shift(peaks, start) for start, peaks in parts]
    return Fingerprint(*(np.concatenate([getattr(one, name) for one in moved]) for name in ("frames", "bins")))


def make(sounds: dict[int, Fingerprint]) -> SoundIndex:
    return build_index({key: (0, peaks) for key, peaks in sounds.items()})


def find_slowly(sounds: dict[int, Fingerprint], query: SoundQuery) -> set[int]:
    return {key for key, peaks in sounds.items() if query.find(peaks)}


def find(index: SoundIndex, query: SoundQuery) -> set[int]:
    return set(index.names[index.find_candidates(query)].tolist())


def test_eight_pairs_at_one_distance_make_a_candidate_and_seven_do_not() -> None:
    # Each pair has tones of its own and lies far from the next, so that it is the only one.
    def draw(count: int, step: int) -> Fingerprint:
        points = [(step * n + d, 3 * n + d) for n in range(count) for d in (0, 4)]
        return Fingerprint(np.array([t for t, _ in points]), np.array([b for _, b in points]))

    index = make({5: draw(12, 100), 6: draw(7, 100), 7: draw(12, 104)})
    assert len(index.places) == 12 + 7 + 12
    assert find(index, SoundQuery(draw(12, 100), speeds=(1.0,))) == {5}
    assert find(index, SoundQuery(draw(7, 100), speeds=(1.0,), config=MatchConfig(min_events=7))) == {5, 6}


def test_many_pairs_of_few_moments_make_no_candidate() -> None:
    """Six peaks, twice: 30 pairs that agree, of ten moments."""
    points = [(4 * n + start, 30 + 7 * n) for start in (0, 500) for n in range(6)]
    peaks = Fingerprint(np.array([t for t, _ in points]), np.array([b for _, b in points]))
    query = SoundQuery(peaks, speeds=(1.0,), config=MatchConfig(min_events=11))
    assert len(query.variants[0][1]) > 20
    assert find(make({1: peaks}), query) == find_slowly({1: peaks}, query) == set()


@pytest.mark.parametrize("seed", range(2))
def test_all_that_a_comparison_with_each_finds_is_a_candidate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sounds = {100 + n: draw_peaks(1_000 * seed + n, int(rng.integers(0, 1_500))) for n in range(30)}
    films = [key for key, peaks in sounds.items() if len(peaks) > 300]
    sounds[200] = NOTHING
    sounds[201] = join((0, cut(sounds[films[0]], 50, 100)), (800, draw_peaks(seed + 50, 500)))
    sounds[202] = change_speed(sounds[films[0]], 1.03)
    sounds[203] = sounds[films[0]]
    index = make(sounds)
    clips = [cut(sounds[key], int(rng.integers(0, 150)), 120) for key in films[:3]]
    long = join((0, draw_peaks(seed + 60, 4_000)), (5_000, clips[0]), (9_000, draw_peaks(seed + 61, 3_000)))
    for peaks in (*clips, long, draw_peaks(seed + 70, 900), NOTHING):
        query = SoundQuery(peaks)
        expected = find_slowly(sounds, query)
        assert expected <= find(index, query)
        assert len(find(index, query)) <= len(expected) + 3  # few others
    assert find_slowly(sounds, SoundQuery(long)) >= {films[0], 201, 203}


def test_a_clip_is_found_wherever_it_lies_in_a_long_query() -> None:
    """The query is looked up in windows; the clip lies across the end of each of them in turn."""
    clip = draw_peaks(3, 200)
    index = make({1: draw_peaks(4, 900), 2: clip})
    for start in range(0, 12_000, 450):
        assert find(index, SoundQuery(shift(clip, start), speeds=(1.0,))) == {2}


def test_sounds_in_any_order_have_the_same_candidates() -> None:
    sounds = {n: draw_peaks(n, 600) for n in range(10)}
    index, other = make(sounds), make(dict(reversed(sounds.items())))
    for key, peaks in sounds.items():
        assert find(index, SoundQuery(peaks)) == find(other, SoundQuery(peaks)) == {key}
    assert find(make({}), SoundQuery(sounds[0])) == set()


def test_an_index_is_written_and_damage_is_seen(tmp_path: Path) -> None:
    index = build_index({n: (40 + n, draw_peaks(n, 600)) for n in range(4)})
    path = tmp_path / "index.npz"
    write_index(index, path)
    again = read_index(path)
    for name in vars(index):
        np.testing.assert_array_equal(getattr(again, name), getattr(index, name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_index(path)


def test_flipped_bits_of_an_index_are_seen_or_change_nothing(tmp_path: Path) -> None:
    index = build_index({7: (1, draw_peaks(7, 10))})
    path = tmp_path / "index.npz"
    write_index(index, path)
    content = path.read_bytes()
    start = content.rindex(b"PK\1\2")  # what the archive says of its last array: also how that is packed
    for bit in range(8 * start, 8 * len(content), 2):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            again = read_index(path)
        except DataError:
            continue
        for name in vars(index):
            np.testing.assert_array_equal(getattr(again, name), getattr(index, name))
