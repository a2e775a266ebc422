"""Look-alikes, shared cards and compilations: what the ground truth says of them is what the files show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.batch import make_benchmark as make_from_folder
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation import open_benchmark
from hapvr.synthetic.benchmark import make_benchmark
from hapvr.synthetic.benchmark_plan import plan_queries
from hapvr.synthetic.cards import add_card, draw_card, draw_cards
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import read_clip, write_clip
from hapvr.synthetic.compilation import compile_clips
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.lookalikes import cut_apart, share_footage
from tests.synthetic.barcodes import barcodes, grey, read
from tests.synthetic.folders import files_of, truth_of

FPS = 5.0
COUNT = 4
SPAN = 256 // COUNT  # bar codes of each of the videos: of 0 to 255, each its own quarter


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Videos of 12.8 s; frame i of video v shows 64 v + i."""
    folder = tmp_path_factory.mktemp("coded")
    codes = barcodes(256, fps=FPS).images
    paths = [folder / f"v{number}.mp4" for number in range(COUNT)]
    for number, path in enumerate(paths):
        write_clip(Clip(codes[number * SPAN : (number + 1) * SPAN], FPS), path)
    return paths


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("films")
    paths = [folder / f"film{seed}.mp4" for seed in range(7)]
    for seed, path in enumerate(paths):
        write_clip(draw_scene(seed, seconds=14, fps=5, size=(48, 64)), path)
    return paths


def read_codes(file: Path) -> list[int | None]:
    return [read(image) for image in read_clip(file).images]


def assert_segments_are_what_the_files_show(out: Path, *, slack: int = 1) -> None:
    """Each frame of a query that has a code shows what its segment says of the target; frames outside show no code.

    slack: frames by which a change of rate may be off.
    """
    truth = truth_of(out)
    stored = {id: read_codes(out / file) for id, file in truth["database"].items()}
    for query in truth["queries"].values():
        clip, shown = read_clip(out / query["file"]), 0
        assert query["segments"]
        assert {target for _, _, target, _, _ in query["segments"]} <= set(query["positives"])
        for index, image in enumerate(clip.images):
            second, code = (index + 0.5) / clip.fps, read(image)
            inside = [part for part in query["segments"] if part[0] <= second < part[1]]
            if code is None:
                continue
            assert inside, f"{query['file']} shows {code} at {second:.2f} s; the ground truth says nothing"
            q_start, q_end, target, t_start, t_end = inside[0]
            place = (t_start + (second - q_start) / (q_end - q_start) * (t_end - t_start)) * FPS
            near = stored[target][max(0, int(place) - slack) : int(place) + slack + 1]
            assert code in near, (query["file"], index, code, near)
            shown += 1
        assert shown > len(clip) / 4


# --- compilations --------------------------------------------------------------------------------------------------


@pytest.fixture
def legible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of compilations are edited in ways that leave bar codes legible."""
    monkeypatch.setattr("hapvr.synthetic.compilation._EDITS", ["speed", "greyscale"])


@pytest.mark.usefixtures("legible")
@pytest.mark.parametrize("seed", range(8))
def test_a_compilation_shows_of_each_clip_what_its_map_says(seed: int) -> None:
    codes = barcodes(240, fps=12).images
    clips = [Clip(codes[60 * part : 60 * part + 60], fps) for part, fps in enumerate((10.0, 12.0, 7.5, 10.0))]
    made, maps = compile_clips([lambda c=c: c for c in clips], np.random.default_rng(seed), size=(48, 120), fps=10.0)  # type: ignore[misc]
    assert made.size == (48, 120)
    numbered = int(read(made.images[0]) is None)  # a second before each part, or nothing
    end_s = 0.0
    for number, (clip, time) in enumerate(zip(clips, maps, strict=True)):
        (part,) = time.segments
        assert part.q_start == pytest.approx(end_s + numbered, abs=0.06)
        end_s = part.q_end
        frames = range(round(part.q_start * 10), int(part.q_end * 10))
        assert len(frames) >= 9
        for index in frames:
            code = read(made.images[index])
            assert code is not None
            assert code // 60 == number
            moment = time((index + 0.5) / 10)
            assert moment is not None
            assert abs((code - 60 * number + 0.5) / clip.fps - moment) <= 0.5 / clip.fps + 1e-6
    assert made.seconds == pytest.approx(end_s, abs=0.06)


@pytest.mark.usefixtures("legible")
def test_a_compilation_has_all_its_videos_as_positives_with_their_segments(coded: list[Path], tmp_path: Path) -> None:
    make_benchmark(coded, tmp_path, kinds=["compilation"], queries_per_video=2)
    truth = truth_of(tmp_path)
    assert len(truth["queries"]) == 8
    for query in truth["queries"].values():
        assert query["positives"] == [f"v{number}" for number in range(COUNT)]
        assert {part[2] for part in query["segments"]} == set(query["positives"])
    assert_segments_are_what_the_files_show(tmp_path, slack=2)


def test_a_compilation_of_a_duplicate_has_all_versions_as_positives(coded: list[Path], tmp_path: Path) -> None:
    jobs = plan_queries(
        dict.fromkeys(coded, 12.8), {path: path.stem for path in coded}, kinds=["compilation"], queries_per_video=1,
        hosts=[], grouped=set(), seed=0,
    )  # fmt: skip
    assert all(job.source not in [other.path for other in job.queries[0].others] for job in jobs)
    make_benchmark(coded[:3], tmp_path, kinds=["compilation"], queries_per_video=1, duplicates=[coded[:2]])
    assert truth_of(tmp_path)["queries"]["v2--compilation"]["positives"] == ["v0", "v1", "v2"]


def test_one_video_gives_no_compilation(coded: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no second video"):
        make_benchmark(coded[:1], tmp_path / "out", kinds=["compilation"])


# --- look-alikes ---------------------------------------------------------------------------------------------------


def test_the_two_parts_of_a_video_share_no_frame_with_each_other(coded: list[Path], tmp_path: Path) -> None:
    make_benchmark(coded, tmp_path, kinds=["trim", "speed"], queries_per_video=2, lookalikes=True)
    truth = truth_of(tmp_path)
    others = [id for id in truth["database"] if id.endswith("--other-part")]
    assert len(others) == 2  # half of the videos
    for other in others:
        target = other.removesuffix("--other-part")
        parts = [{code for code in read_codes(tmp_path / truth["database"][id]) if code is not None}
                 for id in (target, other)]  # fmt: skip
        assert min(map(len, parts)) >= 25
        assert max(min(parts[0]), min(parts[1])) - min(max(parts[0]), max(parts[1])) >= 0.1 * SPAN  # the gap
        assert truth["origins"][other] == {"videos": [target], "sources": []}
        assert truth["origins"][f"{target}--trim"]["videos"] == [target]
        assert all(other not in query["positives"] for query in truth["queries"].values())
    assert_segments_are_what_the_files_show(tmp_path)
    benchmark = open_benchmark(str(tmp_path))
    related = {benchmark.relate(query, target) for query in benchmark.queries for target in benchmark.database}
    assert related == {"match", "same video", "unrelated"}


def test_videos_that_repeat_themselves_stay_whole(tmp_path: Path) -> None:
    scene = draw_scene(5, seconds=7, fps=5, size=(48, 64))
    looped = tmp_path / "looped.mp4"
    write_clip(Clip(np.concatenate([scene.images, scene.images]), 5), looped)
    still = tmp_path / "still.mov"
    write_clip(Clip(np.repeat(scene.images[:1], 70, axis=0), 5), tmp_path / "still.mp4")
    (tmp_path / "still.mp4").rename(still)
    out = tmp_path / "out"
    make_benchmark([looped, still], out, kinds=["flip"], queries_per_video=1, lookalikes=True)
    truth = truth_of(out)
    assert truth["database"] == {"looped": "database/looped.mp4", "still": "database/still.mov"}
    assert (out / "database/looped.mp4").read_bytes() == looped.read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_repeated_footage_is_seen_forwards_backwards_and_off_step(seed: int) -> None:
    one, other = (draw_scene(number, seconds=6, fps=10, size=(48, 64)) for number in (2 * seed + 10, 2 * seed + 11))
    assert not share_footage(one, other)
    for planted in (one.images[7:37], one.images[36:6:-1]):
        mixed = other.images.copy()
        mixed[11:41] = planted
        assert share_footage(one, Clip(mixed, 10))
        assert share_footage(Clip(mixed, 10), one)
    short = other.images.copy()
    short[20:24] = one.images[20:24]  # less than the 2 s of a stretch
    assert not share_footage(one, Clip(short, 10))


def test_a_still_wall_with_something_that_moves_is_no_repetition() -> None:
    wall = draw_scene(3, seconds=0.2, fps=5, size=(96, 128)).images[0]
    takes = []
    for phase in (0.0, 0.5):
        images = np.repeat(wall[None], 60, axis=0)
        for index, image in enumerate(images):
            left = round(50 + 30 * np.sin(2 * np.pi * (index / 23 + phase) * (1 + phase)))
            image[30:90, left : left + 24] = (200, 40, 40)
        takes.append(Clip(images, 10))
    assert not share_footage(*takes)
    assert share_footage(takes[0], takes[0])


def test_the_rough_comparison_never_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one pixel's size make the rough comparison as strict as the fine one allows: no pair is lost by it."""
    answers = []
    for block in (16, 1):
        monkeypatch.setattr("hapvr.synthetic.lookalikes._BLOCK", block)
        rng = np.random.default_rng(3)
        for strength in (0, 2, 4, 8, 16, 32):
            scene = draw_scene(6, seconds=4, fps=5, size=(48, 64))
            noise = rng.normal(0, strength, scene.images.shape)
            answers.append(share_footage(scene, Clip(np.clip(scene.images + noise, 0, 255).astype(np.uint8), 5)))
    assert answers[:6] == answers[6:]
    assert answers[0]


def test_parts_of_short_and_odd_clips() -> None:
    for frames in (1, 2, 3, 7):
        first, last = cut_apart(barcodes(frames, fps=5))
        assert len(first) == len(last) >= 1
        assert share_footage(first, first)


# --- origins -------------------------------------------------------------------------------------------------------


def test_sources_come_from_folders_and_from_a_table(films: list[Path], tmp_path: Path) -> None:
    videos, more = tmp_path / "videos", tmp_path / "more"
    for place, film in zip(("videos/tv/a", "videos/tv/b", "videos/c", "more/tv/d"), films, strict=False):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{place}.mp4").write_bytes(film.read_bytes())
    out = tmp_path / "out"
    make_from_folder(videos, out, distractors=[more], lookalikes=True, kinds=["flip"], queries=1, workers=1)
    origins = truth_of(out)["origins"]
    assert {id: origin["sources"] for id, origin in origins.items() if "--" not in id} == {
        "a": ["videos/tv"], "b": ["videos/tv"], "c": [], "d": ["more/tv"],
    }  # fmt: skip
    benchmark = open_benchmark(str(out))
    assert [benchmark.relate("a--flip", target) for target in "abcd"] == [
        "match", "same source", "unrelated", "unrelated",
    ]  # fmt: skip

    table = tmp_path / "index.csv"
    table.write_text("split,file,Source,seconds\nx,tv/a.mp4,one,1\nx,c.mp4,one,2\nx,tv/d.mp4,two,1\nx,gone.mp4,two,1\n")
    make_from_folder(
        videos, tmp_path / "other", distractors=[more], origins=table, kinds=["flip"], queries=1, workers=1
    )
    origins = truth_of(tmp_path / "other")["origins"]
    assert {id: origin["sources"] for id, origin in origins.items() if "--" not in id} == {
        "a": ["one"], "b": [], "c": ["one"], "d": ["two"],
    }  # fmt: skip
    assert all(id in origins for id in truth_of(tmp_path / "other")["queries"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,length\na.mp4,3\n", "needs a column 'file' and a column 'source'"),
        ("", "got nothing"),
        ("file,source\nelsewhere.mp4,tv\n", "names none of the 1 videos"),
        ("file,source\nfilm0.mp4,tv\nfilm0.mp4,radio\n", "names two sources"),
    ],
)
def test_a_table_of_sources_that_cannot_be_used_is_refused(
    text: str, message: str, films: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/film0.mp4").write_bytes(films[0].read_bytes())
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_from_folder(tmp_path / "videos", tmp_path / "out", origins=tmp_path / "table.csv", workers=1)


# --- cards ---------------------------------------------------------------------------------------------------------


def test_a_card_looks_the_same_at_every_size_and_rate_and_unlike_the_others() -> None:
    cards = draw_cards(0, 3)
    assert [card.at_start for card in cards] == [False, True, False]
    assert all(2 <= card.seconds <= 4 for card in cards)
    small, large = (draw_card(cards[0], size, fps=5)[-1] for size in ((90, 160), (180, 320)))
    halved = large.reshape(90, 2, 160, 2, 3).mean((1, 3))
    assert np.abs(halved - small).mean() < 6
    pictures = [draw_card(card, (90, 160), fps=5)[-1].astype(int) for card in cards]
    assert (
        min(np.abs(one - other).mean() for one, other in ((pictures[0], pictures[1]), (pictures[1], pictures[2]))) > 2
    )
    clip = draw_scene(1, seconds=2, fps=5, size=(90, 160))
    ended, (start, end) = add_card(clip, cards[0])
    assert (start, end) == (2.0, ended.seconds)
    assert (ended.images[:10] == clip.images).all()
    begun, (start, end) = add_card(clip, cards[1])
    assert start == 0.0
    assert (begun.images[round(end * 5) :] == clip.images).all()


@pytest.mark.usefixtures("legible")
def test_cards_shift_the_segments_and_are_noted_as_shared(coded: list[Path], tmp_path: Path) -> None:
    write_clip(grey(60, fps=5), tmp_path / "filler.mp4")
    out = tmp_path / "out"
    make_benchmark(
        coded, out, kinds=["trim", "speed", "compilation"], queries_per_video=3, shared_cards=0.7, lookalikes=True,
        distractors=[tmp_path / "filler.mp4"], seed=5,
    )  # fmt: skip
    truth = truth_of(out)
    assert_segments_are_what_the_files_show(out, slack=2)
    spans = {id: (card, *span) for card, ids in truth["shared"].items() for id, span in ids.items()}
    assert any(id in truth["database"] for id in spans)
    assert any(id in truth["queries"] for id in spans)
    cards = {card.id: card for card in draw_cards(5, 3)}
    for id, (card, start, end) in spans.items():
        file = truth["database"].get(id) or truth["queries"][id]["file"]
        clip = read_clip(out / file)
        first, last = round(start * clip.fps), round(end * clip.fps)
        drawn = draw_card(cards[card], clip.size, clip.fps)
        assert last - first == len(drawn)
        assert 0 <= first < last <= len(clip)
        assert np.abs(clip.images[last - 1].astype(int) - drawn[-1]).mean() < 6
        assert all(code is None for code in read_codes(out / file)[first:last])
    for id, query in truth["queries"].items():
        for target in query["positives"]:
            assert id not in spans or spans[id][0] != spans.get(target, ("",))[0]
    assert open_benchmark(str(out)).shared == {
        card: {id: tuple(span) for id, span in ids.items()} for card, ids in truth["shared"].items()
    }


# --- all of it -----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_files_and_a_second_call_makes_nothing(films: list[Path], tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "kinds": ["trim", "compilation", "same-event"], "queries_per_video": 2, "lookalikes": True, "shared_cards": 0.5,
    }  # fmt: skip
    make_benchmark(films, tmp_path / "a", **settings)
    make_benchmark(films, tmp_path / "b", **settings, workers=2)
    assert files_of(tmp_path / "a", "*.mp4") == files_of(tmp_path / "b", "*.mp4")
    assert truth_of(tmp_path / "a") == truth_of(tmp_path / "b")
    before = files_of(tmp_path / "a", "*.mp4"), truth_of(tmp_path / "a")
    assert make_benchmark(films, tmp_path / "a", **settings).made == 0
    made = next(id for id in truth_of(tmp_path / "a")["database"] if id.endswith("--other-part"))
    (tmp_path / f"a/database/{made}.mp4").unlink()
    make_benchmark(films, tmp_path / "a", **settings)
    assert (files_of(tmp_path / "a", "*.mp4"), truth_of(tmp_path / "a")) == before


def test_queries_do_not_depend_on_what_others_are_asked_for(films: list[Path], tmp_path: Path) -> None:
    """Labels of the origin alone change no video."""
    make_benchmark(films[:2], tmp_path / "a", kinds=["trim"], queries_per_video=1)
    make_benchmark(films[:2], tmp_path / "b", kinds=["trim"], queries_per_video=1, origins={films[0]: "tv"})
    assert files_of(tmp_path / "a", "*.mp4") == files_of(tmp_path / "b", "*.mp4")
    assert set(truth_of(tmp_path / "a")) == {"queries", "database"}
    assert set(truth_of(tmp_path / "b")) == {"queries", "database", "origins"}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_of_cards_is_between_0_and_1(share: float, films: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shared_cards"):
        make_benchmark(films[:1], tmp_path / "out", shared_cards=share)
