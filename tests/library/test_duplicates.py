"""Duplicates: lines in time, links, groups, and which copy to keep; with drawn region vectors instead of films."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.features import Features
from hapvr.judge import alignment
from hapvr.judge.alignment import align
from hapvr.judge.judge import Judge, Verdict
from hapvr.library import Library, duplicates
from hapvr.library.copy_groups import group_links, rank_copies
from hapvr.library.duplicate_report import (
    CSV_FIELDS,
    DuplicateProgress,
    Link,
    format_csv,
    make_rows,
)
from hapvr.library.marks import make_pair
from hapvr.library.results import VideoRecord
from hapvr.library.store import NewVideo
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.video.sampling import SamplingConfig
from tests.judge.toy_judge import make_judge
from tests.library.toy import DIMS, REGIONS, make
from tests.same import is_same

NOW = datetime(2026, 1, 10, tzinfo=timezone.utc)


# --- lines -----------------------------------------------------------------------------------------------------------


def slow_share(matrix: Any, times: list[float], others: list[float], speeds: Sequence[float]) -> float:
    """`Alignment.shares`, one way, as it is defined: every frame may begin a window of shifts."""
    columns = list(zip(*matrix, strict=True))
    means = [sum(column) / len(column) for column in columns]
    spreads = [
        math.sqrt(sum((value - mean) ** 2 for value in column) / len(column)) + 0.03
        for column, mean in zip(columns, means, strict=True)
    ]
    out = [[(row[j] - means[j]) / spreads[j] for j in range(len(others))] for row in matrix]
    most = [row.index(max(row)) for row in out]
    step = max(float(np.median(np.diff(times))), float(np.median(np.diff(others))))
    best = 0.0
    for speed in speeds:
        shifts = [others[most[i]] - speed * times[i] for i in range(len(times))]
        counted = (0, [0])
        for start in sorted(shifts):
            within = [i for i, shift in enumerate(shifts) if start <= shift <= start + 2.5 * step * max(1, abs(speed))]
            if len(within) > counted[0]:
                counted = (len(within), within)
        count = min(counted[0], 2 * len({most[i] for i in counted[1]}))
        share = max(0, count - 4) / max(len(times), 8) - (0.0 if abs(speed) == 1 else 0.2)
        best = max(best, share)
    return best


def test_shares_are_those_of_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    speeds = [1.0, -1.0, *alignment._SPEEDS, *-alignment._SPEEDS]
    for trial in range(12):
        lengths = rng.integers(4, 30, 2).tolist()
        a, b = (np.cumsum(rng.uniform(0.4, 0.6, length)) for length in lengths)
        forth = rng.random((len(a), len(b)))
        if trial % 2:  # partly in step
            for i in range(len(a) // 2):
                forth[i, min(len(b) - 1, i + trial)] += 1
        back = rng.random((len(b), len(a)))
        found = align(forth, back, a, b)
        assert found.shares[0] == pytest.approx(slow_share(forth.tolist(), a.tolist(), b.tolist(), speeds))
        assert found.shares[1] == pytest.approx(slow_share(back.tolist(), b.tolist(), a.tolist(), speeds))


def test_a_clip_lies_on_a_line_by_hand() -> None:
    # A's frames 0..9 at 1 a second are B's 10..19: ten in step less four by chance of ten, and the same of B's thirty.
    matrix = np.zeros((10, 30))
    matrix[np.arange(10), np.arange(10, 20)] = 1
    back = matrix.T.copy()
    back[:10, 9], back[20:, 0] = 1, 1  # what A does not show is like its last or its first frame
    found = align(matrix, back, np.arange(10.0), np.arange(30.0))
    assert found.shares[0] == pytest.approx(0.6)
    assert found.shares[1] <= 0.4
    assert found.agreement == pytest.approx((2 * 0.6 + found.shares[1]) / 3)
    assert found.line is not None
    assert (found.line.speed, found.line.shift) == (1.0, 10.0)
    assert found.line.query == (0.0, 9.5)
    assert found.line.target == (10.0, 19.5)


@pytest.mark.parametrize(("speed", "backwards"), [(1.0, False), (1.0, True), (1.6, False), (0.6, True)])
def test_a_line_is_found_at_its_speed_and_turns_with_the_videos(speed: float, backwards: bool) -> None:
    a, b = np.arange(30) / 2, np.arange(60) / 2
    shown = 2 + speed * (a[::-1] if backwards else a)
    matrix = -np.abs(shown[:, None] - b)
    found, back = align(matrix, matrix.T, a, b), align(matrix.T, matrix, b, a)
    assert found.line is not None
    assert back.line is not None
    assert found.line.speed == pytest.approx(-speed if backwards else speed, rel=0.05)
    assert found.shares == back.shares[::-1]
    assert back.line.speed == pytest.approx(1 / found.line.speed)
    assert back.line.query == pytest.approx(found.line.target, abs=1.0)
    assert found.agreement == back.agreement > 0.4
    assert found.line.query == pytest.approx((0, 15), abs=1.0)


def test_without_order_nothing_is_in_step() -> None:
    rng = np.random.default_rng(1)
    times = np.arange(40) / 2
    matrix = np.eye(40)[rng.permutation(40)]
    assert align(matrix, matrix.T, times, times).agreement < 0.1
    one = np.zeros((40, 40))
    one[:, 7] = 1  # all like one frame
    assert align(one, one, times, times).agreement == 0
    # Frames in quick succession that are all like one of a slower video: they span no time of it.
    quick = np.zeros((30, 10))
    quick[1:, 3] = 1
    assert align(quick, quick.T, np.arange(30) / 10, np.arange(10.0)).shares[0] == 0
    short = align(np.eye(3), np.eye(3), times[:3], times[:3])
    assert short.line is None
    assert short.agreement == 0


# --- a library of drawn vectors --------------------------------------------------------------------------------------


def drawn(seed: int, frames: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(frames, REGIONS, DIMS, generator=generator), dim=-1)


def noisy(regions: Tensor, amount: float, seed: int = 0) -> Tensor:
    noise = torch.randn(regions.shape, generator=torch.Generator().manual_seed(1000 + seed))
    return F.normalize(regions + amount * noise / math.sqrt(DIMS), dim=-1)


def record(name: str, hash: str, frames: int, **more: Any) -> VideoRecord:
    plain = VideoRecord(
        *(name, f"/films/{name}.mp4", 1000, 5, hash, frames / 2, frames, 64, 48, 800.0, "ready", None, NOW)
    )
    return dataclasses.replace(plain, **more)


def model(judge: Judge | None = None) -> Any:
    """A model of drawn vectors, with a judge of plain numbers."""
    config = SimilarityConfig(dims=DIMS, weighting="none", comparator=False, min_frames=1, temporal="chamfer")
    similarity = VideoSimilarity(config).eval()
    return SimpleNamespace(
        name="drawn",
        similarity=similarity,
        networks=(similarity,),
        sampling=SamplingConfig(),
        extractor=SimpleNamespace(device=torch.device("cpu")),
        segments=SegmentConfig(),
        calibration=None,
        judge=make_judge() if judge is None else judge,
    )


def fill(library: Library, videos: dict[str, Tensor], **more: dict[str, Any]) -> None:
    """Write videos straight into the tables; those of the same tensor are copies of one file."""
    library._model = model()
    keys: dict[int, int] = {}
    with library.write_access("a test") as store:
        for name, regions in videos.items():
            features = Features(regions, np.arange(len(regions)) / 2, np.zeros(len(regions), np.bool_))
            known = id(regions) in keys
            key = keys.setdefault(id(regions), store.new_key() if not known else 0)
            hashed = record(name, f"{key:x}", len(regions), **more.get(name, {}))
            store.write([NewVideo(hashed, key, None if known else features)])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A film, a noisy copy, one played backwards, a clip, a compilation with two clips, the same file, and others."""
    library = make(tmp_path_factory.mktemp("base") / "library")
    film, second = drawn(1, 30), drawn(2, 30)
    videos = {
        "film": film,
        "copy": noisy(film, 0.8),
        "backwards": noisy(film, 0.5, 1).flip(0),
        "clip": noisy(film[8:20], 0.5, 2),
        "same": film,
        "second": noisy(second[:12], 0.3, 3),
        "compilation": torch.cat([drawn(3, 20), second[:12], film[5:25], drawn(4, 20)]),
    }
    videos |= {f"other{seed}": drawn(100 + seed) for seed in range(12)}
    fill(
        library,
        videos,
        copy={"width": 128},
        other3={"added": NOW + timedelta(days=2)},
        clip={"added": NOW + timedelta(days=2)},
    )
    yield library
    library.close()


def pairs_of(links: Sequence[Link]) -> dict[frozenset[str], Link]:
    return {frozenset((link.a, link.b)): link for link in links}


def test_copies_clips_and_shared_parts_are_told_apart(base: Library) -> None:
    report = base.find_duplicates()
    links = pairs_of(report.links)
    assert links[frozenset(("film", "same"))].kind == "identical"
    assert links[frozenset(("film", "copy"))].kind == "duplicate"
    backwards = links[frozenset(("film", "backwards"))]
    assert (backwards.kind, round(backwards.speed, 2)) == ("duplicate", -1.0)
    clip = links[frozenset(("film", "clip"))]
    assert (clip.a, clip.b, clip.kind) == ("clip", "film", "contained")
    assert clip.intervals[1] == pytest.approx((4, 10), abs=0.6)
    assert clip.coverage[0] == 1
    assert clip.coverage[1] == pytest.approx(12 / 30, abs=0.05)
    assert clip.segments[0].query == pytest.approx((0, 6), abs=0.5)
    assert clip.segments[0].target == pytest.approx((4, 10), abs=0.5)
    part = links[frozenset(("second", "compilation"))]
    assert (part.a, part.kind) == ("second", "contained")
    assert part.intervals[1] == pytest.approx((10, 16), abs=0.6)
    assert links[frozenset(("film", "compilation"))].kind == "shared"
    assert not [link for link in report.links if "other" in link.a + link.b]
    # A compilation does not make one of its clips.
    assert frozenset(("second", "film")) not in links
    (group,) = report.groups
    assert {video.id for video in group.videos} == {"film", "same", "copy", "backwards"}
    assert group.keep.id == "copy"
    assert "largest picture: 128 x 48" in group.reason
    assert {frozenset((link.a, link.b)) for link in report.beside} & {frozenset(("film", "same"))} == set()
    assert all(link.probability is not None and link.probability >= 0.5 for link in report.links)
    assert [link.certainty for link in report.links] == sorted((link.certainty for link in report.links), reverse=True)
    assert report.prior == 0.02


def test_few_pairs_are_compared_and_every_link_is_as_a_comparison_says(
    base: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = base.find_duplicates()
    assert report.videos == 19
    assert report.pairs == math.comb(18, 2)
    monkeypatch.setattr(duplicates, "_MAX_CANDIDATES", 2)
    few = base.find_duplicates()
    assert few.scored <= 2 * 18 < report.pairs
    assert pairs_of(few.links).keys() <= pairs_of(report.links).keys()
    for link in report.links:
        if link.kind == "identical":
            assert (link.verdict, link.probability, link.score) == (None, 1.0, 1.0)
            continue
        assert len(base.features(link.a)) <= len(base.features(link.b))
        match = base.compare(link.a, link.b)
        assert link.score == pytest.approx(match.score, abs=1e-5)
        assert is_same(link.verdict, match.verdict)
        assert is_same(link.segments, match.segments)


def test_a_higher_min_probability_leaves_a_part_of_the_links(base: Library) -> None:
    before: set[frozenset[str]] | None = None
    for min_probability in (0.05, 0.5, 0.9, 1.0):
        report = base.find_duplicates(min_probability=min_probability)
        links = set(pairs_of(report.links))
        assert all(link.certainty >= min_probability for link in report.links)
        assert report.min_probability == min_probability
        assert before is None or links <= before
        before = links
    assert before == {frozenset(("film", "same"))}  # bytes are no matter of degree


def test_a_low_min_probability_misses_no_pair_that_a_comparison_gives_it(tmp_path: Path) -> None:
    with make(tmp_path / "library") as library:
        film = drawn(1, 6)
        fill(library, {"film": film} | {f"copy{n}": noisy(film, 0.8 + 0.3 * n, n) for n in range(8)})
        judge = library.model.judge
        assert judge is not None
        chances = {n: library.compare("film", f"copy{n}").probability or 0.0 for n in range(8)}
        undecided = judge.probability(judge.undecided[0])
        low = min(chance for chance in chances.values() if chance > undecided / 100)
        assert low < undecided / 2  # a pair so improbable that its files would not be looked at
        links = pairs_of(library.find_duplicates(min_probability=low).links)
        found = {n for n in chances if frozenset(("film", f"copy{n}")) in links}
        assert found == {n for n, chance in chances.items() if chance >= low}


def test_without_a_judge_a_stretch_makes_a_link_and_there_is_no_probability(tmp_path: Path) -> None:
    with make(tmp_path / "library") as library:
        film = drawn(1, 30)
        fill(library, {"film": film, "copy": noisy(film, 0.4), "other": drawn(5, 30)})
        plain: Any = library._model
        plain.judge = None
        (link,) = library.find_duplicates(min_probability=0.9).links
        assert {link.a, link.b} == {"film", "copy"}
        assert (link.probability, link.certainty) == (None, 0.5)
        assert link.to_json()["probability"] is None
        assert "probability" not in link.reason


def test_a_link_says_what_it_rests_on_and_whether_files_were_looked_at() -> None:
    same, plain = link("a", "b", "identical", None), link("a", "b", probability=0.93)
    assert (same.reason, same.to_json()["reason"]) == ("the same bytes", "The files have the same bytes.")
    assert (same.to_json()["verdict"], plain.to_json()["verdict"]) == ("copy", "copy")
    assert plain.reason == "probability 93.0%, score 0.90"
    assert not plain.to_json()["second_look"]
    assert plain.verdict is not None
    looked = dataclasses.replace(plain, verdict=dataclasses.replace(plain.verdict, second_look=True))
    assert looked.to_json()["second_look"]
    assert looked.reason == "probability 93.0%, score 0.90, compared at full size"


def test_since_takes_new_videos_against_all(base: Library) -> None:
    report = base.find_duplicates(since=NOW + timedelta(days=1))
    links = pairs_of(report.links)
    assert set(links) == {pair for pair in pairs_of(base.find_duplicates().links) if "clip" in pair}
    assert links[frozenset(("film", "clip"))].kind == "contained"
    assert report.pairs == math.comb(18, 2) - math.comb(16, 2)
    assert report.groups == ()
    assert base.find_duplicates(since=NOW + timedelta(days=9)).links == ()
    naive = (NOW + timedelta(days=1)).astimezone().replace(tzinfo=None)  # local time
    assert set(pairs_of(base.find_duplicates(since=naive).links)) == set(links)


def test_progress_tells_both_stages_and_what_is_left(base: Library) -> None:
    told: list[DuplicateProgress] = []
    report = base.find_duplicates(progress=told.append)
    stages = [now.stage for now in told]
    assert stages == sorted(stages)  # candidates, then pairs
    first = told[stages.index("pairs")]
    assert (first.done, first.total) == (0, report.scored)  # told at once: the model may take long to load
    assert (told[-1].done, told[-1].total, told[-1].left_s) == (report.scored, report.scored, 0)
    assert dataclasses.replace(told[0], done=2, total=6, seconds=3.0).left_s == 6.0
    assert dataclasses.replace(told[0], done=0).left_s is None


def test_what_makes_no_sense_is_refused(base: Library) -> None:
    for min_probability in (0, -1, 1.5, float("nan"), "high", True):
        with pytest.raises(ConfigError, match="min_probability"):
            base.find_duplicates(min_probability=min_probability)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="since"):
        base.find_duplicates(since="yesterday")  # type: ignore[arg-type]


def test_marks_hide_a_link_and_keep_groups_apart(tmp_path: Path) -> None:
    library = make(tmp_path / "library")
    film = drawn(1, 30)
    fill(library, {"film": film, "copy": noisy(film, 0.4), "third": noisy(film, 0.4, 1), "other": drawn(5)})
    assert [len(group.videos) for group in library.find_duplicates().groups] == [3]
    library.mark_distinct("film", "third")
    report = library.find_duplicates()
    assert report.marked == 1
    assert frozenset(("film", "third")) not in pairs_of(report.links)
    (group,) = report.groups  # `copy` may be with one of them only
    assert len(group.videos) == 2
    assert "copy" in {video.id for video in group.videos}
    assert len(report.beside) == 1
    library.unmark_distinct("film", "third")
    assert [len(group.videos) for group in library.find_duplicates().groups] == [3]


def test_still_videos_pictures_and_nothing_at_all(tmp_path: Path) -> None:
    library = make(tmp_path / "library")
    assert library.find_duplicates().links == ()
    still = drawn(1, 1).expand(12, -1, -1).contiguous()
    film = noisy(still, 0.05)
    fill(
        library,
        {
            "still": film,
            "again": noisy(film, 0.01, 1),
            "alike": noisy(still, 0.9, 2),  # the same scene, not the same picture
            "picture": drawn(1, 1),
            "film": torch.cat([drawn(7, 10), drawn(1, 1), drawn(8, 10)]),
        },
        picture={"duration": 0.0},
    )
    links = pairs_of(library.find_duplicates().links)
    assert links[frozenset(("still", "again"))].kind == "duplicate"
    assert frozenset(("still", "alike")) not in links
    assert links[frozenset(("picture", "still"))].kind == "duplicate"
    inside = links[frozenset(("picture", "film"))]
    assert (inside.a, inside.kind) == ("picture", "contained")
    assert inside.intervals[1] == pytest.approx((5, 5), abs=0.5)


# --- groups ----------------------------------------------------------------------------------------------------------


def link(a: str, b: str, kind: Any = "duplicate", probability: float | None = 0.9) -> Link:
    verdict = Verdict("copy", probability, probability, 0.02, 3.0, "Frames are closely alike.")
    return Link(a, b, kind, 0.9, None if kind == "identical" else verdict, (1.0, 0.5), ((0, 1), (2, 3)))


def test_groups_are_what_duplicates_connect() -> None:
    records = {name: record(name, name, 20) for name in "abcdefg"}
    links = [link("a", "b"), link("b", "c"), link("d", "e", "identical"), link("f", "a", "contained"), link("f", "g")]
    groups = group_links(links, records)
    assert [sorted(video.id for video in group.videos) for group in groups] == [["a", "b", "c"], ["d", "e"], ["f", "g"]]
    # Slowly: whoever can be reached over duplicates.
    reach = {name: {name} for name in records}
    for _ in records:
        for one in links:
            if one.kind != "contained":
                joined = reach[one.a] | reach[one.b]
                reach[one.a], reach[one.b] = joined, joined
    assert all({video.id for video in group.videos} <= reach[group.keep.id] for group in groups)
    marks = frozenset({make_pair("a", "c")})
    assert [len(group.videos) for group in group_links(links, records, marks)] == [2, 2, 2]


def test_the_copy_to_keep_and_why() -> None:
    def kept(*records: VideoRecord) -> tuple[str, str]:
        ordered, reason = rank_copies(records)
        again, _ = rank_copies(records[::-1])
        assert [one.id for one in ordered] == [one.id for one in again]
        return ordered[0].id, reason

    plain = record("plain", "1", 40)
    assert kept(plain, record("long", "2", 60)) == ("long", "the longest: 30.0 s, the next 20.0 s")
    large = record("large", "3", 40, width=640, duration=19.8)  # a little shorter is as long
    assert kept(plain, large) == ("large", "as long as any, the largest picture: 640 x 48, the next 64 x 48")
    rich = record("rich", "4", 40, bitrate=9000.0)
    assert kept(plain, rich)[1] == "as long and as large as any, the highest bitrate: 9 kbit/s, the next 1"
    assert kept(plain, record("old", "5", 40, mtime_ns=1)) == ("old", "they are equally good; it is the oldest file")
    assert kept(plain, record("again", "6", 40))[0] == "again"  # by name
    assert kept(plain, record("gone", "7", 90, state="missing"))[0] == "plain"


def test_rows_and_json_hold_every_link(base: Library) -> None:
    report = base.find_duplicates()
    listed = list(make_rows(report))
    assert len(listed) == len(report.links)
    assert all(tuple(row) == CSV_FIELDS for row in listed)
    numbers = {row["group"] for row in listed}
    assert numbers == {1, ""}
    content = report.to_json()
    inside = [one for group in content["groups"] for one in group["links"]]
    assert len(inside) + len(content["links"]) == len(report.links)
    assert set(content["videos"]) == {id for one in content["links"] for id in (one["a"], one["b"])}
    assert content["groups"][0]["keep"] == "copy"


def test_a_link_is_no_copy_and_never_the_one_to_keep(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"film")
    (tmp_path / "copy.mp4").write_bytes(b"film")
    (tmp_path / "a link.mp4").symlink_to(tmp_path / "film.mp4")
    link, film, copy = (
        record(name, "h", 10, path=str(tmp_path / name)) for name in ("a link.mp4", "film.mp4", "copy.mp4")
    )
    assert [one.path for one in duplicates._drop_links([link, film, copy])] == [film.path, copy.path]
    assert [one.path for one in duplicates._drop_links([link])] == [link.path]
    ordered, reason = rank_copies([link, film])
    assert (ordered[0].path, reason) == (film.path, "a file, and the next is a link")


def test_no_name_in_a_table_is_taken_for_a_formula(base: Library) -> None:
    report = base.find_duplicates()
    renamed = report.with_records(lambda record: dataclasses.replace(record, path=f"={record.id}"))
    assert all(video.path == f"={video.id}" for group in renamed.groups for video in group.videos)
    lines = list(csv.DictReader(io.StringIO(format_csv(renamed))))
    assert len(lines) == len(report.links)
    assert all(line["a"] == f"'={line['a_id']}" for line in lines)
