from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hapvr.errors import ConfigError, DataError
from hapvr.synthetic.benchmark import BenchmarkSummary, make_benchmark
from hapvr.synthetic.benchmark_plan import DEFAULT_KINDS, KINDS, check_kinds
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import read_clip, write_clip
from hapvr.synthetic.edits import Edited
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.time_map import Segment, TimeMap
from tests.synthetic.barcodes import assert_shows_what_the_map_says, barcodes, grey, read
from tests.synthetic.folders import files_of, truth_of

QUICK = ["flip", "greyscale", "trim", "speed"]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("films")
    paths = [folder / f"film{seed}.mp4" for seed in range(4)]
    for seed, path in enumerate(paths):
        write_clip(draw_scene(seed, seconds=3, fps=5, size=(48, 64)), path)
    return paths


def test_the_ground_truth_names_files_kinds_positives_and_segments(films: list[Path], tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    summary = make_benchmark(
        films[:2],
        tmp_path,
        kinds=QUICK,
        queries_per_video=2,
        distractors=films[2:],
        progress=lambda *n: calls.append(n),
    )
    truth = truth_of(tmp_path)
    assert set(truth) == {"queries", "database"}
    assert truth["database"] == {f"film{seed}": f"database/film{seed}.mp4" for seed in range(4)}
    assert len(truth["queries"]) == 4
    for name, query in truth["queries"].items():
        assert set(query) == {"file", "kind", "positives", "segments"}
        assert query["file"] == f"queries/{name}.mp4"
        assert query["positives"] == [name.split("--")[0]]
        clip = read_clip(tmp_path / query["file"])
        for q_start, q_end, target, t_start, t_end in query["segments"]:
            assert target in query["positives"]
            assert 0 <= q_start < q_end <= clip.seconds + 1e-3
            assert 0 <= t_start < t_end <= 3 + 1e-3
    for file in truth["database"].values():
        assert (tmp_path / file).read_bytes() == films[int(file[-5])].read_bytes()
    kinds = dict.fromkeys(sorted(QUICK), 1)
    assert summary == BenchmarkSummary(tmp_path, queries=4, made=4, database=4, kinds=kinds, failed=())
    assert calls == [(2, 4), (4, 4)]


def test_the_segments_are_what_the_files_show(tmp_path: Path) -> None:
    original, host = barcodes(100, fps=10), grey(40, fps=6)
    write_clip(original, tmp_path / "bars.mp4")
    write_clip(host, tmp_path / "host.mp4")
    kinds = ["trim", "speed", "reverse", "insert", "frame-rate", "recompress", "insert+speed+trim", "noise"]
    out = tmp_path / "out"
    make_benchmark([tmp_path / "bars.mp4"], out, kinds=kinds, queries_per_video=8, hosts=[tmp_path / "host.mp4"])
    queries = truth_of(out)["queries"]
    assert sorted(query["kind"] for query in queries.values()) == sorted(kinds)
    for query in queries.values():
        segments = [Segment(a, b, c, d) for a, b, _, c, d in query["segments"]]
        if query["kind"] == "reverse":  # the file has intervals, without the direction
            segments = [Segment(part.q_start, part.q_end, part.t_end, part.t_start) for part in segments]
        edited = Edited(read_clip(out / query["file"]), TimeMap.of(*segments))
        assert_shows_what_the_map_says(edited, original, slack_s=1e-3)


def test_the_same_seed_gives_the_same_folder_whatever_the_number_of_processes(
    films: list[Path], tmp_path: Path
) -> None:
    make_benchmark(films[:2], tmp_path / "a", kinds=["noise", "recompress"], queries_per_video=2)
    make_benchmark(films[:2], tmp_path / "b", kinds=["noise", "recompress"], queries_per_video=2, workers=2)
    make_benchmark(films[:2], tmp_path / "c", kinds=["noise", "recompress"], queries_per_video=2, seed=1)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    changed = {name for name, content in files_of(tmp_path / "c").items() if files_of(tmp_path / "a")[name] != content}
    assert {name for name in changed if name.startswith("queries")} == {
        f"queries/film{seed}--{kind}.mp4" for seed in (0, 1) for kind in ("noise", "recompress")
    }


def test_calling_it_again_makes_only_what_is_missing_or_damaged(films: list[Path], tmp_path: Path) -> None:
    def make(seed: int = 0) -> BenchmarkSummary:
        return make_benchmark(films[:2], tmp_path, kinds=QUICK, queries_per_video=4, seed=seed)

    make()
    before = files_of(tmp_path)
    assert make().made == 0
    (tmp_path / "ground_truth.json").unlink()
    (tmp_path / "queries/film0--trim.mp4").unlink()
    (tmp_path / "queries/film1--flip.mp4").write_bytes(before["queries/film1--flip.mp4"][:500])
    (tmp_path / ".made/film1--speed.json").write_text("{")
    again = make()
    assert (again.made, again.queries) == (3, 8)
    assert files_of(tmp_path) == before
    assert make(seed=1).made == 8
    films[0].touch()
    assert make(seed=1).made == 4  # the source has changed since


def test_an_interrupted_run_leaves_no_ground_truth(films: list[Path], tmp_path: Path) -> None:
    make_benchmark(films[:2], tmp_path, kinds=["flip"], queries_per_video=1)

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_benchmark(films[:2], tmp_path, kinds=["flip"], queries_per_video=1, seed=2, progress=interrupt)
    assert not (tmp_path / "ground_truth.json").exists()
    assert make_benchmark(films[:2], tmp_path, kinds=["flip"], queries_per_video=1, seed=2).made == 1


def test_a_folder_that_holds_something_else_is_refused_and_left_as_it_was(films: list[Path], tmp_path: Path) -> None:
    def refused(out: Path, words: str, **more: Any) -> None:
        before = files_of(tmp_path)
        with pytest.raises(ConfigError, match=words):
            make_benchmark(films[:1], out, kinds=["flip"], queries_per_video=1, **more)
        assert files_of(tmp_path) == before

    for name, content in (("notes", None), ("theirs", '{"queries": {"a": {}}, "database": {}}'), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("notes.txt" if content is None else "ground_truth.json")).write_text(content or "mine")
    refused(tmp_path / "notes", "holds files and is no benchmark")
    refused(tmp_path / "notes" / "notes.txt", "cannot be used as a folder")
    refused(tmp_path / "theirs", "was not written by make-benchmark")
    (tmp_path / "broken" / ".made").mkdir()
    refused(tmp_path / "broken", "was not written by make-benchmark")

    out = tmp_path / "out"
    make_benchmark(films[:1], out, kinds=["flip"], queries_per_video=1)
    (tmp_path / "link.mp4").symlink_to(out / "database" / "film0.mp4")
    for mine in (out / "database" / "film0.mp4", tmp_path / "link.mp4"):
        for option in ("distractors", "hosts"):
            refused(out, "lies in the benchmark folder", **{option: [mine]})
    shutil.rmtree(out / ".made")  # as a copy without hidden files is
    assert make_benchmark(films[:1], out, kinds=["flip"], queries_per_video=1).made == 1
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".DS_Store").write_text("")
    assert make_benchmark(films[:1], tmp_path / "hidden", kinds=["flip"], queries_per_video=1).made == 1


def test_files_that_cannot_be_read_are_reported_and_stop_nothing(films: list[Path], tmp_path: Path) -> None:
    bad = [tmp_path / "bad.mp4", tmp_path / "missing.mp4", tmp_path / "worse.mp4"]
    bad[0].write_text("not a video")
    bad[2].write_bytes(films[0].read_bytes()[:300])
    summary = make_benchmark(
        [bad[0], films[0], bad[1]], tmp_path / "out", kinds=["flip"], queries_per_video=1, distractors=[bad[2]]
    )
    assert (summary.queries, summary.database) == (1, 1)
    assert [failure.file for failure in summary.failed] == [str(path) for path in bad]
    assert all(failure.reason for failure in summary.failed)
    assert "3 files could not be used" in str(summary)
    with pytest.raises(DataError, match="none of the 2 videos can be read"):
        make_benchmark(bad[:2], tmp_path / "none")


def test_a_video_that_fails_while_it_is_edited_is_reported_and_stays_in_the_database(
    films: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, **limits: float) -> Clip:
        if path.stem == "film1":
            raise DataError("worn out")
        return read_clip(path, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr("hapvr.synthetic.benchmark_jobs.read_clip", fail)
    summary = make_benchmark(films[:3], tmp_path, kinds=["flip"], queries_per_video=1)
    assert (summary.queries, summary.database) == (2, 3)
    assert [(Path(failure.file).stem, failure.reason) for failure in summary.failed] == [("film1", "worn out")]


def test_same_event_queries_share_no_frame_with_their_target(films: list[Path], tmp_path: Path) -> None:
    sources = [tmp_path / name for name in ("long1.mp4", "long2.mp4")]
    for path in sources:
        write_clip(barcodes(100, fps=10), path)
    content = sources[0].read_bytes()
    out = tmp_path / "out"
    make_benchmark([*sources, films[0]], out, kinds=["flip", "same-event"], queries_per_video=1)
    truth = truth_of(out)
    (name,) = (name for name, query in truth["queries"].items() if query["kind"] == "same-event")
    query = truth["queries"][name]
    assert query["segments"] == []
    (target,) = query["positives"]
    shown, stored = (
        {read(image) for image in read_clip(out / file).images} for file in (query["file"], truth["database"][target])
    )
    assert len(shown) >= 40
    assert len(stored) >= 40
    assert not shown & stored
    # The other long video is there whole; the originals are untouched.
    assert len(truth["database"]) == 3
    assert sorted(len(read_clip(out / f"database/{path.name}")) for path in sources) == [42, 100]
    assert all(path.read_bytes() == content for path in sources)


def test_kinds_are_spread_evenly(films: list[Path], tmp_path: Path) -> None:
    summary = make_benchmark(films, tmp_path, kinds=QUICK, queries_per_video=2)
    assert summary.kinds == dict.fromkeys(sorted(QUICK), 2)
    repeated = make_benchmark(films[:1], tmp_path / "again", kinds=["trim"], queries_per_video=3)
    assert set(truth_of(repeated.folder)["queries"]) == {"film0--trim", "film0--trim-2", "film0--trim-3"}


def test_known_duplicates_are_positives_of_each_other(films: list[Path], tmp_path: Path) -> None:
    make_benchmark(films[:3], tmp_path, kinds=["flip"], queries_per_video=1, duplicates=[[films[0], films[2]]])
    queries = truth_of(tmp_path)["queries"]
    assert queries["film2--flip"]["positives"] == ["film0", "film2"]
    assert queries["film1--flip"]["positives"] == ["film1"]
    assert queries["film2--flip"]["segments"][0][2] == "film2"


def test_files_of_one_name_get_different_ids_and_one_file_counts_once(films: list[Path], tmp_path: Path) -> None:
    twin, link = tmp_path / "film0.mp4", tmp_path / "link.mp4"
    shutil.copy(films[1], twin)
    link.symlink_to(films[0])
    make_benchmark(
        [films[0], twin, link], tmp_path / "out", kinds=["flip"], queries_per_video=1, distractors=[films[0]]
    )
    assert truth_of(tmp_path / "out")["database"] == {"film0": "database/film0.mp4", "film0-2": "database/film0-2.mp4"}


def test_lists_of_kinds_have_names() -> None:
    assert check_kinds(["default"]) == DEFAULT_KINDS
    assert check_kinds(["all"]) == KINDS
    assert set(DEFAULT_KINDS) < set(KINDS)
    assert check_kinds(["default", "flip", "tiny-coarse"]) == (*DEFAULT_KINDS, "tiny-coarse")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["same-evnt"]}, "did you mean 'same-event'"),
        ({"kinds": ["trim+flp"]}, "did you mean 'flip'"),
        ({"kinds": []}, "kinds is empty"),
        ({"queries_per_video": 0}, "queries_per_video"),
        ({"workers": 0}, "workers"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_settings_are_refused(
    settings: dict[str, Any], message: str, films: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_benchmark(films[:1], tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_host_must_not_be_in_the_database(films: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a host and in the database"):
        make_benchmark(films[:2], tmp_path / "out", kinds=["insert"], hosts=films[1:2])
    with pytest.raises(ConfigError, match="two groups"):
        make_benchmark(films[:2], tmp_path / "out", duplicates=[films[:2], films[1:2]])
