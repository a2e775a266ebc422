from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.errors import ConfigError, DataError
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import join_clips, read_clip, write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.long_films import make_long_films
from hapvr.video.decode import probe
from tests.synthetic.barcodes import barcodes, grey, read
from tests.synthetic.folders import files_of, truth_of


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two videos of 16 s that give queries; frame i of video v shows 128 v + i. Their bars are as the films: 16:9."""
    folder = tmp_path_factory.mktemp("coded")
    paths = [folder / f"v{number}.mp4" for number in range(2)]
    for number, path in enumerate(paths):
        images = barcodes(256, fps=8).images[128 * number : 128 * number + 128]
        wide = np.repeat(np.repeat(images[:, :45], 4, axis=1), 3, axis=2)[:, :, : 120 * 3]
        write_clip(Clip(np.ascontiguousarray(wide[:, :, :]), 8), path)
    return paths


@pytest.fixture(scope="module")
def fillers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("fillers")
    write_clip(grey(60, fps=6), folder / "grey.mp4")
    write_clip(draw_scene(1, seconds=6, fps=5, size=(96, 64)), folder / "tall.mp4")
    return [folder / "grey.mp4", folder / "tall.mp4"]


def test_the_film_shows_the_clip_where_the_ground_truth_says_and_nowhere_else(
    coded: list[Path], fillers: list[Path], tmp_path: Path
) -> None:
    calls: list[tuple[int, int]] = []
    summary = make_long_films(
        coded, tmp_path, films=2, minutes=1, queries_per_film=1, kinds=["trim", "speed"], distractors=fillers,
        progress=lambda *n: calls.append(n),
    )  # fmt: skip
    truth = truth_of(tmp_path)
    assert (summary.queries, summary.made, summary.database, summary.failed) == (2, 2, 2, ())
    assert truth["database"] == {"film-1": "database/film-1.mp4", "film-2": "database/film-2.mp4"}
    assert calls[-1][0] == calls[-1][1] == len(calls)
    films = {id: read_clip(tmp_path / file) for id, file in truth["database"].items()}
    codes = {id: [read(image[20:-20]) for image in clip.images] for id, clip in films.items()}
    for id, clip in films.items():
        assert 45 <= clip.seconds <= 75
        assert probe(tmp_path / truth["database"][id]).duration_s == pytest.approx(clip.seconds, abs=0.2)
    for query in truth["queries"].values():
        (film,) = query["positives"]
        ((q_start, q_end, target, t_start, t_end),) = query["segments"]
        assert target == film
        clip = read_clip(tmp_path / query["file"])
        seen = [(read(image), (index + 0.5) / clip.fps) for index, image in enumerate(clip.images)]
        assert len(seen) >= 20
        for code, second in seen:
            assert code is not None
            moment = t_start + (second - q_start) / (q_end - q_start) * (t_end - t_start)
            near = codes[film][max(0, int(moment * 10) - 1) : int(moment * 10) + 2]
            assert code in near, (code, moment, near)
            # Once in this film, and in no other: frames of 1/8 s are shown for one or two of 1/10 s.
            assert sum(other == code for other in codes[film]) <= 2
            assert all(code not in codes[other] for other in codes if other != film)


def test_the_same_seed_gives_the_same_files_and_a_second_call_makes_nothing(
    coded: list[Path], fillers: list[Path], tmp_path: Path
) -> None:
    def make(out: str, **more: Any) -> int:
        return make_long_films(
            coded, tmp_path / out, films=1, minutes=0.7, queries_per_film=2, kinds=["trim"], distractors=fillers, **more
        ).made

    assert make("a") == 2
    assert make("b", workers=2) == 2
    before = files_of(tmp_path / "a")
    assert before == files_of(tmp_path / "b")
    assert make("a") == 0
    assert before == files_of(tmp_path / "a")
    assert make("a", seed=1) == 2


def test_one_of_each_group_of_duplicates_is_in_a_film(coded: list[Path], fillers: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 queries need as many videos .* there are 1"):
        make_long_films(
            coded, tmp_path, films=1, minutes=0.5, queries_per_film=2, distractors=fillers, duplicates=[coded]
        )


def test_a_query_is_never_taken_from_footage_that_comes_twice(tmp_path: Path, fillers: list[Path]) -> None:
    scene = draw_scene(4, seconds=12, fps=5, size=(45, 80))
    twice = Clip(np.concatenate([scene.images, scene.images]), 5)
    write_clip(twice, tmp_path / "twice.mp4")
    with pytest.raises(DataError, match="there are 0"):
        make_long_films(
            [tmp_path / "twice.mp4"], tmp_path / "out", films=1, minutes=0.5, queries_per_film=1, distractors=fillers
        )


def test_a_query_is_never_taken_from_footage_that_another_video_has(
    coded: list[Path], fillers: list[Path], tmp_path: Path
) -> None:
    """All but the first 2 s of the first video are in a distractor too: only the second gives a query."""
    write_clip(Clip(read_clip(coded[0]).images[16:], 8), tmp_path / "again.mp4")
    (tmp_path / "bad.mp4").write_text("no video")
    settings: dict[str, Any] = {"films": 1, "minutes": 0.5, "kinds": ["flip"]}
    others = [*fillers, tmp_path / "bad.mp4", tmp_path / "again.mp4"]
    made = make_long_films(coded, tmp_path / "out", queries_per_film=1, distractors=others, **settings)
    assert [Path(failure.file).name for failure in made.failed] == ["bad.mp4"]
    assert list(truth_of(tmp_path / "out")["queries"]) == ["v1--flip"]
    with pytest.raises(DataError, match="there are 1"):
        make_long_films(coded, tmp_path / "out", queries_per_film=2, distractors=others, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["compilation"]}, "'compilation' is no edit of one clip"),
        ({"kinds": ["flp"]}, "did you mean 'flip'"),
        ({"films": 0}, "films must be at least 1"),
        ({"queries_per_film": 0}, "queries_per_film"),
        ({"minutes": 0}, "minutes must be above 0"),
        ({"minutes": float("nan")}, "minutes must be above 0"),
        ({"workers": 0}, "workers"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_settings_are_refused(
    settings: dict[str, Any], message: str, coded: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_long_films(coded, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_films_need_fillers_and_hosts_that_are_in_no_film(coded: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none is left to fill the films"):
        make_long_films(coded, tmp_path / "out", films=1, queries_per_film=2, minutes=1)
    with pytest.raises(ConfigError, match="is a host and in a film"):
        make_long_films(coded, tmp_path / "out", films=1, queries_per_film=1, minutes=1, hosts=coded[1:])


def test_joined_clips_are_the_parts_one_after_the_other(tmp_path: Path) -> None:
    scenes = [draw_scene(seed, seconds=seed, fps=5, size=(48, 64)) for seed in (1, 2, 3)]
    paths = [tmp_path / f"{number}.mp4" for number in range(3)]
    for scene, path in zip(scenes, paths, strict=True):
        write_clip(scene, path)
    assert join_clips([*paths, paths[0]], tmp_path / "joined.mp4") == [0, 5, 15, 30]
    joined = read_clip(tmp_path / "joined.mp4")
    parts = [read_clip(path).images for path in [*paths, paths[0]]]
    assert joined.fps == 5
    assert (joined.images == np.concatenate(parts)).all()
    write_clip(draw_scene(1, seconds=1, fps=5, size=(48, 48)), paths[1])
    with pytest.raises(DataError, match="differ in size, rate or coding"):
        join_clips(paths, tmp_path / "other.mp4")
    assert not (tmp_path / "other.mp4").exists()
