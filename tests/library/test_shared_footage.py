"""Shared footage: what is found, what is not, and what it does to matches; with drawn region vectors."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import StorageError
from hapvr.features import Features
from hapvr.library import Library, shared_detection, shared_file, shared_matching
from hapvr.library.results import VideoRecord
from hapvr.library.shared_detection import find_exemplars, find_shared_footage
from hapvr.library.shared_file import SHARED, update_shared_footage
from hapvr.library.shared_footage import SharedFootage
from hapvr.library.store import NewVideo
from hapvr.places import file_state
from hapvr.similarity import Segment
from tests.library.test_duplicates import model
from tests.library.toy import DIMS, REGIONS, local, make
from tests.same import is_same


def drawn(seed: int, frames: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(frames, REGIONS, DIMS, generator=generator), dim=-1)


def noisy(regions: Tensor, amount: float, seed: int = 0) -> Tensor:
    noise = torch.randn(regions.shape, generator=torch.Generator().manual_seed(1000 + seed))
    return F.normalize(regions + amount * noise / math.sqrt(DIMS), dim=-1)


CARD = drawn(900, 5)


def with_card(seed: int, *, at_end: bool = False, frames: int = 20) -> Tensor:
    """A video of its own with a slightly changed card before or after it."""
    parts = [noisy(CARD, 0.15, seed), drawn(seed, frames)]
    return torch.cat(parts[::-1] if at_end else parts)


def fill(library: Library, videos: dict[str, Tensor]) -> None:
    """Write videos straight into the tables, two frames a second, and update the shared footage as `add` does."""
    without_judge = model()
    without_judge.judge = None
    library._model = without_judge
    with library.write_access("a test") as store:
        for name, regions in videos.items():
            features = Features(regions, np.arange(len(regions)) / 2, np.zeros(len(regions), np.bool_))
            frames = len(regions)
            record = VideoRecord(name, f"/films/{name}.mp4", 1000, 5, f"hash of {name}", frames / 2, frames)
            store.write([NewVideo(record, store.new_key(), features)])
        update_shared_footage(store)


def find(path: Path, videos: dict[str, Tensor]) -> SharedFootage:
    with make(path) as library:
        fill(library, videos)
        return library.find_shared_footage()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Six videos with one card, a copy of the first, the card alone, and three that have nothing to do with it."""
    library = make(tmp_path_factory.mktemp("channel") / "library")
    videos = {f"episode{seed}": with_card(seed) for seed in range(6)}
    videos["copy"] = noisy(videos["episode0"], 0.3)
    videos["card"] = noisy(CARD, 0.1, 77)
    videos |= {f"other{seed}": drawn(100 + seed) for seed in range(3)}
    fill(library, videos)
    yield library
    library.close()


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_end", [False, True])
def test_a_card_of_many_videos_is_found_with_its_times(tmp_path: Path, at_end: bool) -> None:
    videos = {f"video{seed}": with_card(seed, at_end=at_end) for seed in range(6)}
    videos |= {f"other{seed}": drawn(100 + seed) for seed in range(4)}
    (clip,) = find(tmp_path / "library", videos).clips
    assert clip.videos == 6
    assert clip.seconds == 2.5
    start = 10.0 if at_end else 0.0
    assert [(one.video, one.start_s, one.end_s) for one in clip.occurrences] == [
        (f"video{seed}", start, start + 2.5) for seed in range(6)
    ]


def test_a_title_and_an_end_card_are_two_clips(tmp_path: Path) -> None:
    end = drawn(901, 6)
    videos = {f"video{seed}": torch.cat([with_card(seed, frames=8), noisy(end, 0.15, seed)]) for seed in range(5)}
    videos["title only"] = with_card(50)
    clips = find(tmp_path / "library", videos).clips
    assert [(clip.videos, clip.seconds) for clip in clips] == [(6, 2.5), (5, 3.0)]  # in more videos first


def test_three_videos_are_too_few(tmp_path: Path) -> None:
    assert find(tmp_path / "library", {f"video{seed}": with_card(seed) for seed in range(3)}).clips == ()


def test_copies_and_clips_of_one_film_share_nothing(tmp_path: Path) -> None:
    film = drawn(1, 40)
    videos = {f"copy{seed}": noisy(film, 0.2, seed) for seed in range(5)}
    videos |= {f"clip{seed}": noisy(film[seed : seed + 24], 0.2, 10 + seed) for seed in range(0, 16, 4)}
    videos |= {f"other{seed}": drawn(100 + seed) for seed in range(4)}
    assert find(tmp_path / "library", videos).clips == ()


def test_copies_of_one_video_count_as_one(tmp_path: Path) -> None:
    # Five copies of an episode and two other episodes: three different ones show the card.
    first = with_card(0)
    videos = {f"copy{seed}": noisy(first, 0.15, seed) for seed in range(5)}
    videos |= {f"episode{seed}": with_card(seed) for seed in (1, 2)}
    assert find(tmp_path / "few", videos).clips == ()
    (clip,) = find(tmp_path / "enough", videos | {"episode3": with_card(3)}).clips
    assert (clip.videos, clip.seconds) == (8, 2.5)


def test_a_scene_within_videos_takes_twice_as_many(tmp_path: Path) -> None:
    quoted = {
        f"video{seed}": torch.cat([drawn(seed, 10), noisy(CARD, 0.15, seed), drawn(50 + seed, 10)]) for seed in range(8)
    }
    seven = {name: quoted[name] for name in list(quoted)[:7]}
    assert find(tmp_path / "seven", seven).clips == ()
    assert [clip.videos for clip in find(tmp_path / "eight", quoted).clips] == [8]


def test_the_order_of_adding_does_not_matter(tmp_path: Path) -> None:
    videos = {f"video{seed}": with_card(seed) for seed in range(6)}
    one = find(tmp_path / "one", videos)
    other = find(tmp_path / "other", dict(reversed(videos.items())))
    assert [clip.to_json() for clip in one.clips] == [clip.to_json() for clip in other.clips]


def slow_counts(vectors: np.ndarray, keys: np.ndarray) -> list[int]:
    return [
        len({int(key) for key, other in zip(keys, vectors, strict=True) if float(one @ other) >= 0.9})
        for one in vectors
    ]


def draw_runs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs of 60 contents, of which each shows up to two of five clips."""
    rng = np.random.default_rng(seed)
    shown = rng.normal(size=(5, 16))
    vectors, keys = [], []
    for key in range(60):
        own = list(rng.normal(size=(rng.integers(1, 5), 16)))
        own += [shown[clip] + rng.normal(size=16) * 0.15 for clip in rng.choice(5, rng.integers(0, 3), replace=False)]
        vectors += own
        keys += [key] * len(own)
    found = np.array(vectors, np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True), np.array(keys, np.int64)


@pytest.mark.parametrize("seed", range(4))
def test_contents_are_counted_as_by_a_slow_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, keys = draw_runs(seed)
    expected = slow_counts(vectors, keys)
    assert shared_detection._count_contents(vectors, keys).tolist() == expected
    monkeypatch.setattr(shared_detection, "_BLOCK", 7)
    assert shared_detection._count_contents(vectors, keys).tolist() == expected
    monkeypatch.setattr(shared_detection, "_ONE_BY_ONE", 16)  # in groups: nearly all are found, and none too many
    counts = shared_detection._count_contents(vectors, keys)
    assert (counts <= expected).all()
    assert counts.sum() >= 0.8 * sum(expected)


@pytest.mark.parametrize("seed", range(4))
def test_exemplars_are_apart_and_their_runs_are_alike(seed: int) -> None:
    vectors, keys = draw_runs(seed)
    labels, leaders = find_exemplars(vectors, keys)
    assert len(leaders) >= 3
    for number, row in enumerate(leaders):
        assert labels[row] == number
        assert (vectors[labels == number] @ vectors[row] >= 0.9).all()
        assert len(set(keys[labels == number].tolist())) >= 4
    chosen = vectors[leaders]
    assert (np.triu(chosen @ chosen.T, 1) < 0.9).all()


def test_frames_belong_to_a_clip_whatever_comes_before_and_after(channel: Library) -> None:
    footage = channel.find_shared_footage()
    card = footage.find_frames(Features(noisy(CARD, 0.3, 5)))
    assert card.tolist() == [0] * 5
    whole = footage.find_frames(Features(torch.cat([drawn(400, 3), noisy(CARD, 0.3, 5), drawn(401, 4)])))
    assert whole.tolist() == [-1] * 3 + card.tolist() + [-1] * 4
    assert SharedFootage().find_frames(Features(CARD)).tolist() == [-1] * 5


# --- what it does to matches -----------------------------------------------------------------------------------------


def test_a_card_makes_no_match_on_any_surface(channel: Library) -> None:
    match = channel.compare("episode1", "episode2")
    assert match.verdict.kind == "no match"
    assert match.verdict.reason == "Only a part that occurs in 8 videos of the library matches: 0:00-0:02."
    (segment,) = match.segments
    assert segment.to_json()["shared"] is True
    assert segment.query == segment.target == (0.0, 2.25)
    hits = {hit.id: hit for hit in channel.search("episode1", k=20, exact=True).hits}
    assert not any(hit.verdict.match for id, hit in hits.items() if id != "card")
    assert is_same(hits["episode2"].verdict, match.verdict)
    assert is_same(hits["episode2"].segments, match.segments)
    links = {frozenset((link.a, link.b)) for link in channel.find_duplicates().links}
    assert {pair for pair in links if "card" not in pair} == {frozenset(("episode0", "copy"))}


def test_what_is_kept_is_marked_on_every_surface(channel: Library) -> None:
    match = channel.compare("episode1", "episode2", ignore_shared=False)
    assert match.verdict.match
    assert [segment.shared for segment in match.segments] == [True]
    assert match.to_json()["segments"][0]["shared"] is True
    hits = {hit.id: hit for hit in channel.search("episode1", k=20, exact=True, ignore_shared=False).hits}
    assert is_same(hits["episode2"].verdict, match.verdict)
    assert is_same(hits["episode2"].segments, match.segments)
    links = {frozenset((link.a, link.b)): link for link in channel.find_duplicates(ignore_shared=False).links}
    assert all(segment.shared for segment in links[frozenset(("episode1", "episode2"))].segments)


def test_surfaces_agree_on_every_pair(channel: Library) -> None:
    ids = [record.id for record in channel.videos()]
    links = {frozenset((link.a, link.b)) for link in channel.find_duplicates().links}
    for one in ids:
        hits = {hit.id: hit for hit in channel.search(one, k=20, exact=True).hits}
        for other in set(ids) - {one}:
            match, turned = channel.compare(one, other), channel.compare(other, one)
            assert is_same((hits[other].verdict, hits[other].segments), (match.verdict, match.segments))
            assert match.verdict.match == turned.verdict.match == (frozenset((one, other)) in links)
            assert channel.compare(one, other, ignore_shared=False).score == match.score


def test_a_copy_with_the_card_is_a_copy_and_says_where_the_card_is(channel: Library) -> None:
    match = channel.compare("episode0", "copy")
    assert match.verdict.match
    assert [segment.shared for segment in match.segments] == [False, True]
    assert match.segments[0].query == (2.25, 12.25)
    assert match.segments[1].query == (0.0, 2.25)
    assert all(frame >= 5 for pair in match.segments[0].path for frame in pair)
    assert [(row, row) for row in range(5)] == list(match.segments[1].path)


def test_the_card_itself_finds_all_that_show_it(channel: Library) -> None:
    hits = channel.search(Features(noisy(CARD, 0.2, 3)), k=20, exact=True).hits
    assert {hit.id for hit in hits if hit.verdict.match} == {"card", "copy", *(f"episode{seed}" for seed in range(6))}
    assert channel.compare("card", "episode3").verdict.match
    # A picture of it too; another picture finds the video that it is of.
    picture = channel.search(Features(CARD[2:3]), k=20, exact=True).hits
    assert {hit.id for hit in picture if hit.verdict.match} >= {f"episode{seed}" for seed in range(6)}


def test_a_video_that_is_not_in_the_library_is_treated_alike(channel: Library) -> None:
    stranger = Features(with_card(60))
    assert not any(hit.verdict.match for hit in channel.search(stranger, k=20, exact=True).hits if hit.id != "card")
    assert channel.compare(stranger, "episode1", ignore_shared=False).verdict.match
    known = Features(torch.cat([CARD, noisy(drawn(4, 20), 0.3)]))
    hits = [hit.id for hit in channel.search(known, k=20, exact=True).hits if hit.verdict.match]
    assert hits == ["episode4", "card"]


def test_hits_are_explained_as_they_were_found(channel: Library) -> None:
    result = channel.search("episode1", k=5, exact=True)
    assert channel.explain_hits("episode1", result)[0] == []  # there are no files
    assert len(result.hits) == 5


def test_a_card_that_two_stretches_run_through_is_listed_once(channel: Library) -> None:
    one, other = (Segment(query, (0.0, 2.0), 0.9, False, ()) for query in ((0.0, 2.25), (2.0, 4.0)))
    assert shared_matching._overlap(one, other)
    assert not shared_matching._overlap(one, dataclasses.replace(other, query=(2.25, 4.0)))
    assert not shared_matching._overlap(one, dataclasses.replace(other, target=(2.0, 4.0)))
    twice = torch.cat([with_card(1), noisy(CARD, 0.15, 9)])  # the card before and after it
    match = channel.compare(Features(twice), "episode2")
    assert match.verdict.kind == "no match"
    places = [segment.query for segment in match.segments if segment.shared]
    assert len(places) == len(set(places)) <= 2


# --- kept with the library -------------------------------------------------------------------------------------------


def test_adding_and_removing_update_it(tmp_path: Path) -> None:
    with make(tmp_path / "library") as library:
        fill(library, {f"video{seed}": with_card(seed) for seed in range(3)})
        assert not (library.store.folder / SHARED).exists()
        assert library.compare("video0", "video1").verdict.match
        fill(library, {"video3": with_card(3)})
        assert [clip.videos for clip in library.find_shared_footage().clips] == [4]
        assert not library.compare("video0", "video1").verdict.match
        fill(library, {"video4": with_card(4)})
        assert [clip.videos for clip in library.find_shared_footage().clips] == [5]
        library.remove(["video4", "video0"])
        assert library.find_shared_footage().clips == ()
        assert library.compare("video1", "video2").verdict.match


def test_a_library_without_the_file_finds_it_in_memory(tmp_path: Path) -> None:
    with make(tmp_path / "library") as library:
        fill(library, {f"video{seed}": with_card(seed) for seed in range(5)})
        kept = [clip.to_json() for clip in library.find_shared_footage().clips]
        path = local(library.store.folder) / SHARED
        path.unlink()
        assert [clip.to_json() for clip in library.find_shared_footage().clips] == kept
        assert not library.compare("video0", "video1").verdict.match
        assert not path.exists()  # reading writes nothing
        fill(library, {})  # the next writer does
        assert path.exists()


@pytest.mark.parametrize("damage", ["byte", "cut", "format", "nothing"])
def test_damage_is_noticed_and_it_is_found_again(tmp_path: Path, damage: str) -> None:
    with make(tmp_path / "library") as library:
        fill(library, {f"video{seed}": with_card(seed) for seed in range(5)})
        kept = [clip.to_json() for clip in library.find_shared_footage().clips]
        path = local(library.store.folder) / SHARED
        content = path.read_bytes()
        exemplars = content.index(b'"exemplars"') + 40
        broken = {
            "byte": content[:exemplars] + bytes([content[exemplars] ^ 1]) + content[exemplars + 1 :],
            "cut": content[:-50],
            "format": json.dumps({"format": 9, "clips": []}).encode(),
            "nothing": b"",
        }[damage]
        path.write_bytes(broken)
        with pytest.raises(StorageError, match="cannot be read"):
            shared_file._read(path, file_state(path))
        assert [clip.to_json() for clip in library.find_shared_footage().clips] == kept
        fill(library, {})
        assert path.read_bytes() == content


def test_a_large_library_waits_for_enough_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = np.arange(100, 200)
    kept = shared_file._Kept(SharedFootage(), 100, 199, shared_file._digest(before))
    few, many = np.arange(102, 202), np.arange(103, 203)  # two, and three, of either kind
    assert not kept.is_outdated(before)
    assert kept.is_outdated(few)  # a small one does not wait
    monkeypatch.setattr(shared_file, "_LARGE", 50)
    assert not kept.is_outdated(few)
    assert kept.is_outdated(many)


def test_a_library_that_is_too_large_has_none_and_says_so(channel: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert channel.find_shared_footage().complete
    monkeypatch.setattr(shared_detection, "_MAX_VECTORS", 10)
    footage = find_shared_footage(channel.store)
    assert (footage.clips, footage.complete) == ((), False)
