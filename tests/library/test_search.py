"""Searching a library of drawn features: exact scores, candidates, parts, ids, probabilities, bad questions."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapvr.decision import NO_STRETCH
from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.features import Features
from hapvr.library import Library, SearchResult, VideoFilter
from hapvr.library import stored_scores as module
from hapvr.library.queries import read_query
from hapvr.library.results import VideoRecord
from hapvr.library.store import NewVideo
from hapvr.library.stored_scores import RegionCache, score_contents
from hapvr.library.versions import Settings
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity, find_segments
from hapvr.similarity.calibration import fit_calibration
from hapvr.video.sampling import SamplingConfig
from tests.judge.toy_judge import make_judge
from tests.library import toy

VIDEOS, FRAMES, REGIONS, DIMS = 40, 12, 4, 64


def drawn(seed: int, frames: int = FRAMES) -> Features:
    """A video that changes slowly; frame 3 says nothing."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(frames, REGIONS, DIMS, generator=generator)
    steps[1:] *= 0.6
    regions = F.normalize(steps.cumsum(0), dim=-1)
    low = np.arange(frames) == 3
    regions[torch.from_numpy(low)] = F.normalize(torch.ones(DIMS), dim=0)  # as in every other video
    return Features(regions, np.arange(frames) / 2.0, low)


def noisy(features: Features, start: int = 0, end: int = FRAMES, *, noise: float = 0.08) -> Features:
    generator = torch.Generator().manual_seed(1)
    regions = features.regions[start:end]
    regions = F.normalize(regions + noise * torch.randn(regions.shape, generator=generator), dim=-1)
    assert features.timestamps is not None
    assert features.low_information is not None
    return Features(regions, features.timestamps[start:end], features.low_information[start:end])


def record(number: int, features: Features, **more: Any) -> VideoRecord:
    plain: dict[str, Any] = {
        "id": f"video{number:03}",
        "path": f"/films/{number:03}.mp4",
        "size": 1,
        "mtime_ns": 1,
        "content_hash": f"{number:040x}",
        "duration": len(features) / 2,
        "frames": len(features),
        "width": 64,
        "height": 48,
        "bitrate": 1.0,
        "state": "ready",
        "error": None,
        "added": datetime.now(timezone.utc),
    }
    return VideoRecord(**(plain | more))


def toy_model(config: SimilarityConfig | None = None, **more: Any) -> Any:
    plain = SimilarityConfig(dims=DIMS, weighting="none", comparator=False, spatial="chamfer", min_frames=1)
    torch.manual_seed(0)
    similarity = VideoSimilarity(config or plain).eval()
    return SimpleNamespace(
        name="toy",
        similarity=similarity,
        networks=(similarity,),
        sampling=SamplingConfig(),
        extractor=SimpleNamespace(device=torch.device("cpu")),
        segments=SegmentConfig(),
        calibration=more.get("calibration"),
        judge=more.get("judge"),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Forty videos, the last of them a second copy of the first, and one that failed."""
    made = toy.make(tmp_path_factory.mktemp("search") / "library", Settings("toy", "toy's digest", "int4", 2.0))
    with made.write_access("test") as store:
        new = [NewVideo(record(number, drawn(number)), store.new_key(), drawn(number)) for number in range(VIDEOS - 1)]
        new.append(NewVideo(record(VIDEOS - 1, drawn(0)), new[0].key))
        failed = record(VIDEOS, drawn(0), state="failed", error="it is no video.")
        store.write([*new, NewVideo(failed)])
    made._model = toy_model()
    return made


def ids(result: SearchResult) -> list[str]:
    return [hit.id for hit in result.hits]


def loop(library: Library, query: Features) -> dict[str, float]:
    """The score of every video, one after the other."""
    model, asked = library.model.similarity, query.drop_flat().regions
    videos = (video for video in library.videos() if video.state == "ready")
    return {video.id: model.score(asked, library.features(video.id).drop_flat().regions).item() for video in videos}


def test_exact_scores_are_those_of_the_loop(library: Library) -> None:
    query = noisy(drawn(5))
    result = library.search(query, k=VIDEOS, exact=True)
    assert {hit.id: hit.score for hit in result.hits} == pytest.approx(loop(library, query), abs=1e-4)
    for some in (result.matches, result.hits[len(result.matches) :]):  # matches first
        assert [hit.score for hit in some] == sorted((hit.score for hit in some), reverse=True)
    assert [hit.id for hit in result.matches] == ["video005"]
    assert all(hit.verdict.match == (place < len(result.matches)) for place, hit in enumerate(result.hits))
    assert (result.database, result.scored) == (VIDEOS, VIDEOS - 1)  # two of them have one content
    assert set(result.seconds) == {"decode", "candidates", "score", "segments"}


def test_what_is_removed_does_not_stay_in_memory(tmp_path: Path) -> None:
    made = toy.make(tmp_path / "library", Settings("toy", "toy's digest", "int4", 2.0))
    made._model = toy_model()
    cache, held = RegionCache(2**24), []
    for number in range(4):  # the same number of videos each time, one of them another one
        with made.write_access("test") as store:
            new = range(6) if number == 0 else [5 + number]
            store.write([NewVideo(record(one, drawn(one)), store.new_key(), drawn(one)) for one in new])
        if number:
            made.remove([f"video{4 + number:03}"])
        made.search(noisy(drawn(0)), exact=True, cache=cache)
        held.append(cache.bytes)
    assert held[0] > 0
    assert held == [held[0]] * 4


@pytest.mark.parametrize("comparator", [False, True])
def test_few_are_compared_and_the_best_hit_is_that_of_the_exact_search(library: Library, comparator: bool) -> None:
    before = library._model
    library._model = toy_model(SimilarityConfig(dims=DIMS)) if comparator else before
    try:
        for number in range(1, VIDEOS - 1, 18 if comparator else 5):
            query = noisy(drawn(number), 2, 10)
            few, everything = library.search(query, k=5), library.search(query, k=5, exact=True)
            assert few.scored <= 10
            if not comparator:  # an untrained psi finds nothing
                assert ids(few)[0] == ids(everything)[0] == f"video{number:03}"
            scores = {hit.id: hit.score for hit in library.search(query, k=VIDEOS, exact=True).hits}
            assert {hit.id: hit.score for hit in few.hits} == pytest.approx(
                {hit.id: scores[hit.id] for hit in few.hits}, abs=1e-5
            )
    finally:
        library._model = before


@pytest.mark.parametrize(
    "config",
    [
        SimilarityConfig(dims=DIMS, weighting="none", comparator=False, spatial="chamfer", min_frames=1),
        SimilarityConfig(dims=DIMS, comparator=False, symmetry="levels", temporal_keep_rate=0.4, min_frames=1),
        SimilarityConfig(dims=DIMS, projection=True, comparator=False, symmetry="average", min_frames=1),
        SimilarityConfig(dims=DIMS, projection=True, residual=True, negative_slope=0.5),
        SimilarityConfig(dims=DIMS, weighting="binary", bits=32, comparator=False, min_frames=1),
    ],
    ids=lambda config: config.symmetry if not config.projection else f"projection {config.comparator}",
)
def test_hits_are_the_same_from_what_is_held(library: Library, config: SimilarityConfig) -> None:
    before, cache = library._model, RegionCache(2**24)
    library._model = model = toy_model(config)
    with torch.no_grad():
        for parameter in model.similarity.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    try:
        for number in (1, 5, 5, 9):
            for query in (noisy(drawn(number), 2, 10), f"video{number:03}"):
                plain = library.search(query, k=5)
                found = library.search(query, k=5, cache=cache)
                assert ids(found) == ids(plain)
                assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in plain.hits], abs=1e-6)
                assert [hit.segments for hit in found.hits] == [hit.segments for hit in plain.hits]
                assert (found.database, found.scored) == (plain.database, plain.scored)
                asked = read_query(library.store, library.model, query).features.regions
                for hit in found.hits:  # and they are what they should be
                    expected = model.similarity.score(asked, library.features(hit.id).drop_flat().regions).item()
                    assert hit.score == pytest.approx(expected, abs=1e-5)
        assert cache.bytes > 0
    finally:
        library._model = before


def test_a_query_that_says_nothing_has_no_hits_and_a_note(library: Library) -> None:
    black = dataclasses.replace(drawn(5), low_information=np.ones(FRAMES, np.bool_))
    for exact in (False, True):
        result = library.search(black, exact=exact)
        assert (result.hits, result.scored, result.database) == ((), 0, VIDEOS)
        assert result.note is not None
        assert "no informative frames" in result.note
        assert result.to_json()["note"] == result.note
        assert set(result.seconds) == {"decode", "candidates", "score", "segments"}
    assert library.search(drawn(5)).note is None
    assert library.search(dataclasses.replace(black, low_information=None)).hits


def test_a_part_of_a_still_scene_is_looked_for_and_a_part_of_black_is_not(library: Library) -> None:
    """Frames 0 to 7 show one picture, which frames 1 to 7 repeat; the rest is black."""
    shown = drawn(20).regions[6]
    black = F.normalize(torch.ones(REGIONS, DIMS), dim=-1)
    regions = torch.stack([shown] * 8 + [black] * 4)
    video = Features(regions, np.arange(12) / 2.0, np.arange(12) > 0)
    # Frames 4 to 7, and 8 and 9, which are black.
    part = read_query(
        library.store, library.model, video, start_s=2.0, end_s=5.0
    )  # frames 4 to 7, and 8 and 9, which are black
    assert part.features.timestamps is not None
    assert part.features.timestamps.tolist() == [2.0]
    assert library.search(video, start_s=2.0, end_s=5.0, k=1).hits[0].id == "video020"
    for start in (4.0, 4.5):
        assert library.search(video, start_s=start).note is not None
    later = dataclasses.replace(video, low_information=np.arange(12) != 11)  # what comes after the part does not count
    assert library.search(later, start_s=2.0, end_s=5.0).note is not None


def test_segments_are_those_of_the_frames_that_say_something(library: Library) -> None:
    query = noisy(drawn(7), 1, 9)
    hit = library.search(query, k=1).hits[0]
    asked, stored = query.drop_flat(), library.features(hit.id).drop_flat()
    assert asked.timestamps is not None
    assert stored.timestamps is not None
    matrix = library.model.similarity.frame_matrix(asked.regions, stored.regions).numpy()
    assert list(hit.segments) == find_segments(matrix, asked.timestamps, stored.timestamps)
    assert hit.segments[0].query == pytest.approx(hit.segments[0].target, abs=0.6)
    shown = hit.to_json()
    assert (shown["match"], shown["verdict"], shown["probability"]) == (True, "copy", None)
    assert shown["best"]["similarity"] == pytest.approx(matrix.max(), abs=1e-6)


def test_a_part_of_the_query_alone_is_looked_for(library: Library) -> None:
    one, other = drawn(11), drawn(12)
    both = Features(
        torch.cat([one.regions, other.regions]),
        np.arange(24) / 2.0,
        np.concatenate([one.low_information] * 2),
    )
    times = read_query(library.store, library.model, both, start_s=6.0, end_s=11.5).features.timestamps
    assert times is not None
    assert times.tolist() == [6.0, 6.5, 7.0, *np.arange(8.0, 11.5, 0.5)]  # at 7.5 s it says nothing; 11.5 s is outside
    result = library.search(both, start_s=6.0, end_s=12.0, k=1)
    assert ids(result) == ["video012"]
    assert result.hits[0].score == pytest.approx(1.0, abs=0.02)
    low, high = result.hits[0].segments[0].query
    assert (low, high) == pytest.approx((6.0, 12.0), abs=0.6)  # seconds of the whole query
    assert ids(library.search(both, end_s=6.0, k=1)) == ["video011"]


def test_an_indexed_video_finds_others_but_not_itself(library: Library) -> None:
    result = library.search("video007", k=VIDEOS, exact=True)
    assert "video007" not in ids(result)
    assert result.database == len(result.hits) == VIDEOS - 1
    copy = library.search("video000", k=3)
    assert ids(copy)[0] == f"video{VIDEOS - 1:03}"  # the other file of the same content
    assert copy.hits[0].score == pytest.approx(1.0, abs=1e-3)
    assert "video000" not in ids(copy)


def test_features_without_times_have_those_of_the_rate(library: Library) -> None:
    timed = drawn(9)
    untimed = dataclasses.replace(timed, timestamps=None)
    assert library.search(untimed, k=2).hits == library.search(timed, k=2).hits
    assert ids(library.search(untimed, start_s=2.0, k=1)) == ["video009"]


def test_a_still_picture_is_a_query(library: Library) -> None:
    hit = library.search(Features(drawn(20).regions[6:7]), k=1).hits[0]
    assert hit.id == "video020"
    assert hit.segments == ()
    assert hit.verdict.match  # by its instant
    assert (hit.best.query, hit.best.target) == (0.0, 3.0)
    assert hit.best.similarity > 0.99


def test_probabilities_fall_with_the_score_and_can_be_asked_for(library: Library) -> None:
    draw = np.random.default_rng(0)
    before = library._model
    library._model = toy_model(calibration=fit_calibration(draw.uniform(0.6, 1, 200), draw.normal(0.2, 0.1, 5000)))
    try:
        hits = library.search(noisy(drawn(5)), k=10).hits
        chances = [hit.probability for hit in hits]
        assert None not in chances
        assert chances == sorted(chances, reverse=True)  # type: ignore[type-var]
        calibration = library.model.calibration
        assert calibration is not None
        assert chances[0] == pytest.approx(calibration.probability(hits[0].score, prior=0.5))
        few = library.search(noisy(drawn(5)), k=10, min_probability=0.5).hits
        assert [hit.id for hit in few] == [hit.id for hit in hits if hit.probability >= 0.5] == ["video005"]  # type: ignore[operator]
        assert [hit.verdict.match for hit in few] == [True]
        # What no score can reach is said to be out of reach.
        too_much = library.search(noisy(drawn(5)), k=10, min_probability=0.99)
        assert (too_much.hits, calibration.probability(1.0) < 0.99) == ((), True)
        assert too_much.note is not None
        assert f"no more than {calibration.probability(1.0):.3f}" in too_much.note
        # The score is high, but no stretch matches: none would be long enough.
        model: Any = library._model
        model.segments = SegmentConfig(min_gain=1e6)
        (hit,) = library.search(noisy(drawn(5)), k=1).hits
        assert calibration.probability(hit.score) > 0.9
        assert (hit.segments, hit.verdict.match, hit.probability) == ((), False, 0.5)
        assert (hit.verdict.kind, hit.verdict.reason) == ("no match", NO_STRETCH)
        assert library.search(noisy(drawn(5)), k=1).matches == ()
        assert library.search(noisy(drawn(5)), k=1, min_probability=0.6).hits == ()
    finally:
        library._model = before
    with pytest.raises(ConfigError, match="no judge and no calibration"):
        library.search(drawn(5), min_probability=0.5)


def test_with_a_judge_matches_come_first_whatever_the_scores(library: Library) -> None:
    before = library._model
    library._model = toy_model(judge=make_judge())
    try:
        one, other = drawn(11), drawn(12)
        both = Features(torch.cat([noisy(one).regions, noisy(other).regions]), np.arange(24) / 2.0)
        result = library.search(both, k=VIDEOS, exact=True)
        assert {hit.id for hit in result.matches} == {"video011", "video012"}  # a part that matches is a copy
        assert list(result.matches) == list(result.hits[:2])
        chances = [hit.probability or 0.0 for hit in result.matches]
        percents = [round(chance, 2) for chance in chances]  # the same to a percent: the score decides
        assert percents == sorted(percents, reverse=True)
        assert min(chances) >= 0.5
        for hit in result.matches:
            low, high = hit.segments[0].query
            assert (low, high) == pytest.approx((0, 6) if hit.id == "video011" else (6, 12), abs=0.6)
        others = result.hits[2:]
        assert all(hit.segments == () and hit.verdict.kind != "copy" for hit in others)
        assert (result.prior, result.to_json()["match"]) == (0.02, True)
        none = library.search(drawn(99), k=5)
        assert (none.matches, none.to_json()["match"], len(none.hits)) == ((), False, 5)
        sure = library.search(both, k=5, min_probability=0.5)
        assert sure.hits == result.matches
        too_much = library.search(both, k=5, min_probability=0.99999)
        assert too_much.note is not None
        highest = library.model.judge.probability(float("inf"))  # type: ignore[union-attr]
        assert f"no more than {highest:.3f}" in too_much.note
        rare = library.search(both, k=5, prior=1e-6)
        assert (rare.prior, rare.matches) == (1e-6, ())
        # A picture matches by an instant.
        hit = library.search(Features(drawn(20).regions[6:7]), k=1).hits[0]
        assert (hit.id, hit.verdict.kind, hit.segments) == ("video020", "copy", ())
        assert (hit.best.query, hit.best.target) == (0.0, 3.0)
    finally:
        library._model = before


def test_a_search_has_the_same_hits_on_any_number_of_threads_and_leaves_it_as_it_was(library: Library) -> None:
    query, before = noisy(drawn(5)), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(library.search(query, k=5))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert ids(found[0]) == ids(found[1])
    assert [hit.score for hit in found[0].hits] == pytest.approx([hit.score for hit in found[1].hits], abs=1e-6)


def test_memory_is_bounded_and_changes_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    query = noisy(drawn(5))
    expected = library.search(query, k=VIDEOS, exact=True)
    monkeypatch.setattr(module, "_GROUP_FRAMES", 20)  # one video at a time
    monkeypatch.setattr(module, "_IN_ONE_READ", 3)
    found = library.search(query, k=VIDEOS, exact=True)
    assert ids(found) == ids(expected)
    assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in expected.hits], abs=1e-5)


@pytest.mark.parametrize("comparator", [False, True])
def test_a_rough_score_is_that_of_every_third_frame_without_psi(library: Library, comparator: bool) -> None:
    model, query = toy_model(SimilarityConfig(dims=DIMS) if comparator else None), noisy(drawn(5)).drop_flat()
    keys = sorted({int(key) for key in library.store.catalog().keys if key >= 0})
    rough = score_contents(library.store, model, query, keys, every=3)
    for key in keys[::9]:
        stored = library.store.features(key).drop_flat().regions[::3]
        matrix = model.similarity.frame_matrix(query.regions[::3], stored)
        assert rough[key] == pytest.approx(matrix.amax(1).mean().item(), abs=5e-3)
    assert set(rough) == set(keys)


@pytest.mark.parametrize("settings", [{"weighting": "none"}, {"weighting": "attention"}], ids=str)
def test_scores_in_int8_are_those_in_float32(
    library: Library, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From bytes, from vectors that are held, and on a CPU that multiplies neither bytes nor bfloat16."""
    model, query = toy_model(SimilarityConfig(dims=DIMS, **settings)), noisy(drawn(5)).drop_flat()
    keys = sorted({int(key) for key in library.store.catalog().keys if key >= 0})
    monkeypatch.setattr("hapvr.similarity.int8.multiplies_int8", lambda: False)
    monkeypatch.setattr("hapvr.similarity.int8.fast_dtype", lambda _: torch.float32)
    exact = score_contents(library.store, model, query, keys)
    monkeypatch.setattr("hapvr.similarity.int8.multiplies_int8", lambda: True)
    held = RegionCache(2**24)
    for cache in (RegionCache(0), held, held):
        fast = score_contents(library.store, model, query, keys, cache=cache)
        assert fast != exact
        assert fast == pytest.approx(exact, abs=5e-3)
    frames = {key: len(library.store.features(key).drop_flat()) for key in keys}
    stored = sum(len(one.data) for one in library.store.read_contents(keys))
    assert held.bytes <= stored + sum(frames.values()) * REGIONS * (DIMS + 4)  # a byte a number and their scales


def test_the_limit_holds_and_rough_scores_choose(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hapvr.library.candidates.MIN_CANDIDATES", 1)
    for number in range(1, VIDEOS - 1, 6):
        result = library.search(noisy(drawn(number), 2, 10), k=1)
        assert (result.scored, ids(result)) == (2, [f"video{number:03}"])


def test_a_query_whose_vectors_are_all_zero_can_only_be_compared_with_everything(library: Library) -> None:
    nothing = Features(torch.zeros(2, REGIONS, DIMS))
    with pytest.raises(DataError, match="exact=True"):
        library.search(nothing)


def test_an_empty_library_has_no_hits(tmp_path: Path) -> None:
    made = toy.make(tmp_path / "library")
    made._model = toy_model()
    for exact in (False, True):
        result = made.search(drawn(0), exact=exact)
        assert (result.hits, result.database, result.scored) == ((), 0, 0)


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"k": 0}, ConfigError, "k must be"),
        ({"k": 300}, ConfigError, "exact=True"),
        ({"max_compared": 0}, ConfigError, "max_compared must be"),
        ({"start_s": -1.0}, ConfigError, "start_s must be"),
        ({"start_s": 3.0, "end_s": 2.0}, ConfigError, "end_s must come after"),
        ({"start_s": float("nan")}, ConfigError, "start_s must be"),
        ({"min_probability": 2.0}, ConfigError, "0..1"),
        ({"start_s": 99.0}, DataError, "no frame from 99 s to its end"),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    library: Library, more: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        library.search(drawn(0), **more)


def test_what_cannot_be_found_out_is_said(library: Library, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither a file nor the id .*did you mean 'video0"):
        library.search("video01")
    for path in (tmp_path / "gone", str(tmp_path / "gone.mp4"), "gone.mp4"):
        with pytest.raises(DataError, match=r"There is no such file: .*gone"):
            library.search(path)
    with pytest.raises(DataError) as several:
        library.search("video0")
    assert str(several.value).count("video0") <= 4  # what was given, and three at most
    with pytest.raises(DataError, match=r"in the library: it has 41, which `hapvr status LIBRARY --state ready` lists"):
        library.search("zzz")
    with pytest.raises(DataError, match="it is no video"):
        library.search(f"video{VIDEOS:03}")
    with pytest.raises(DataError, match="an id, a path or Features"):
        library.search(3)  # type: ignore[arg-type]
    for regions, dims in ((9, DIMS), (REGIONS, 2 * DIMS)):
        with pytest.raises(ShapeError, match="different models"):
            library.search(Features(torch.ones(2, regions, dims)))


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
def test_a_filtered_search_gives_the_hits_that_the_filter_allows(library: Library, exact: bool) -> None:
    """As an exact search of everything, less what is left out; also where frames vote for other videos."""
    query = noisy(drawn(5))
    everything = library.search(query, k=VIDEOS, exact=True).hits
    for folders in (("/films/007.mp4", "/films/030.mp4"), ("/films/000.mp4",), ("/films",), ("/other",)):
        result = library.search(query, k=5, exact=exact, filter=VideoFilter(folders))
        allowed = [hit.id for hit in everything if VideoFilter(folders).allows(library.get(hit.id))]
        assert result.database == len(allowed)
        assert set(ids(result)) <= set(allowed)
        if len(allowed) <= 5 or exact:
            assert ids(result) == allowed[:5]
    assert library.search(query, filter=VideoFilter(min_seconds=100.0)).hits == ()
    assert library.search("video000", k=1, filter=VideoFilter(("/films/039.mp4",))).hits[0].id == "video039"
    assert library.search("video039", filter=VideoFilter(("/films/039.mp4",))).hits == ()  # itself
