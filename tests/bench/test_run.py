"""A whole run with tiny films and a tiny library: what it returns and says, never how fast it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hapvr.bench import run as bench_run
from hapvr.bench.config import BenchConfig, FilmKind
from hapvr.bench.drawn_films import GROUP_S, write_films
from hapvr.bench.measure import measure_decode, repeat_for
from hapvr.bench.report import format_report, make_estimates, to_json
from hapvr.bench.run import BenchResult, run_bench
from hapvr.bench.sample import Part, measure_parts
from hapvr.cli import main
from hapvr.errors import ConfigError
from hapvr.model import Model, load, save_model
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import probe
from hapvr.video.sampling import SamplingConfig

DOCS = Path(__file__).parents[2] / "docs"
SMALL, LARGE = FilmKind(96, 64, fps=4, megabits_per_s=0.1), FilmKind(160, 128, fps=4, megabits_per_s=0.2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a quick model and some videos; temporary files are made in it too."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "temporary").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAPVR_ENGINE", "torch")
        patch.setattr("tempfile.tempdir", str(folder / "temporary"))
        model = load()
        assert model.extractor.whitening is not None
        save_model(
            folder / "quick",
            backbone=model.extractor.backbone,
            whitening=model.extractor.whitening,
            similarity=model.similarity,
            sampling=SamplingConfig(fps=0.5, at_least=1, short_side=112, crop=112),
            segments=model.segments,
        )
        (folder / "videos").mkdir()
        for number in range(2):
            scene = draw_scene(number, seconds=6 + 6 * number, fps=2, size=(64, 96))
            write_clip(scene, folder / "videos" / f"{number}.mp4")
        (folder / "videos" / "broken\n.mp4").write_bytes(b"no video")
        yield folder


@pytest.fixture(scope="module")
def result(place: Path) -> BenchResult:
    config = BenchConfig(
        model=str(place / "quick"),
        seconds=30.0,
        videos=12,
        hours=(10.0, 1000.0),
        sample=place / "videos",
        films=(SMALL, LARGE),
    )
    ticks = count()
    return run_bench(config, clock=lambda: float(next(ticks)))  # a second a look: 30 s are over at once


def find_numbers(value: Any) -> list[float]:
    """Every number in a value made of dicts and lists."""
    if isinstance(value, dict):
        return [number for one in value.values() for number in find_numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in find_numbers(one)]
    return [float(value)] if isinstance(value, (int, float)) else []


def find_keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(find_keys(one) for one in value.values()))
    return set().union(*(find_keys(one) for one in value)) if isinstance(value, list) else set()


def test_everything_is_measured(result: BenchResult) -> None:
    found = json.loads(json.dumps(to_json(result)))
    films = found["measured"]["films"]
    assert [(film["name"], film["keyframes"]) for film in films] == [
        ("64p4", False), ("64p4", True), ("128p4", False), ("128p4", True),
    ]  # fmt: skip
    for film in films:
        for step in ("decode", "index"):
            # Half a frame a second of 15 s; a key frame in 5 s.
            assert film[step]["frames_per_video_s"] == pytest.approx(0.2 if film["keyframes"] else 8 / 15, abs=0.01)
            assert film[step]["video_per_s"] == pytest.approx(film[step]["video_s"] / film[step]["wall_s"])
    measured = found["measured"]
    assert min(find_numbers({name: one for name, one in measured.items() if name != "films"})) > 0
    assert [one["frames"] for one in measured["score"]] == [28, 105]
    assert measured["search"]["videos"] == 12
    assert measured["search"]["p50_s"] <= measured["search"]["p95_s"]
    assert measured["library"]["bytes_per_frame"] > 9 * 512 * 3 / 8  # what int3 takes


def test_what_was_drawn_is_removed(result: BenchResult, place: Path) -> None:
    assert result.wall_s > 0
    assert list((place / "temporary").glob("hapvr*")) == []


def test_the_folder_is_counted(result: BenchResult) -> None:
    sample = to_json(result)["sample"]
    assert (sample["files"], sample["videos"], len(sample["failed"])) == (3, 2, 1)
    assert sample["video_s"] == pytest.approx(18.0, abs=1.1)
    assert sample["usual"]["files"] == 2
    assert sample["usual"]["video_s"] == pytest.approx(sample["video_s"])


def test_estimates_follow_from_what_was_measured(result: BenchResult) -> None:
    """The time of 1,000 hours of small films, term by term."""
    film = result.films[0].index
    (one,) = (one for one in make_estimates(result) if one.of == "64p4" and one.hours == 1000.0)
    assert one.videos == 12_000
    assert one.usual is not None
    frames = 3_600_000.0 * film.frames / film.video_s
    expected = 3_600_000.0 * film.wall_s / film.video_s + frames / result.store.write_frames_per_s
    expected += result.engine_start_s + result.worker_start_s
    assert one.usual.index.seconds == pytest.approx(expected)
    assert one.usual.index.bytes == pytest.approx(frames * result.store.bytes_per_frame)


def test_the_text_says_it_in_short_lines(result: BenchResult) -> None:
    lines = format_report(result)
    text = "\n".join(lines)
    promised = (
        *("engine: torch", "decode, 64p4, key frames", "score (", "search in 12 videos", "storage:"),
        *("1,000 hours of 128p4", "Your 2 videos, 18 s", "with --rate keyframes", "1 file could not be read"),
    )
    for words in promised:
        assert words in text, words
    assert max(len(line) for line in lines if "broken" not in line and "Your" not in line) <= 100


def test_a_busy_machine_is_said(result: BenchResult) -> None:
    for number, said in ((0.0, False), (100.0, True)):
        text = "\n".join(format_report(replace(result, machine=replace(result.machine, load=number))))
        assert ("Other programs were running (load 100.0)" in text) is said


def test_a_sample_that_could_not_be_read_is_said(result: BenchResult) -> None:
    assert result.sample is not None
    text = "\n".join(format_report(replace(result, sample=replace(result.sample, usual=None))))
    assert re.search("at the usual rate +- +- +-  no part that was tried could be read", text)
    assert to_json(replace(result, sample=replace(result.sample, usual=None)))["estimates"][-1]["usual"] is None


def test_every_field_of_the_json_is_documented(result: BenchResult) -> None:
    page = (DOCS / "bench.md").read_text()
    found = to_json(result)
    found["sample"]["kinds"] = {}  # named by what is there
    named = set(re.findall(r"`(\w+)`", page))
    assert find_keys(found) - named == set()


def test_the_command_prints_what_was_measured(
    result: BenchResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[BenchConfig] = []

    def run(config: BenchConfig, **_: Any) -> BenchResult:
        asked.append(config)
        return result

    monkeypatch.setattr(bench_run, "run_bench", run)
    for options in (["--json"], ["--hours", "5", "--hours", "50", "--minutes", "2"]):
        with pytest.raises(SystemExit) as left:
            main(["bench", *options])
        assert left.value.code == 0
    first, _, second = capsys.readouterr().out.partition("\n")
    assert json.loads(first)["format"] == 1
    assert "broken\\n.mp4" in second
    assert asked == [BenchConfig(), BenchConfig(hours=(5.0, 50.0), minutes=2.0)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sample", "nowhere"], "'nowhere' is not there"),
        (["--videos", "0"], "videos must be above 0"),
        (["--seconds", "-1"], "seconds must be above 0"),
        (["--hours", "0"], "hours must be above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", *options])
    assert left.value.code == 2
    assert words in capsys.readouterr().err


# --- parts of it -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(place: Path) -> Model:
    return load(place / "quick")


def test_films_have_their_length_and_a_key_frame_in_five_seconds(place: Path) -> None:
    short, long = write_films(place, SMALL, (1, 3))
    assert (probe(short).duration_s, probe(long).duration_s) == (GROUP_S, 3 * GROUP_S)
    assert probe(long).size == (96, 64)
    assert not (place / "64p4-group.mp4").exists()


def test_tasks_are_repeated_until_time_is_up() -> None:
    ticks = count()
    keys, tasks = zip(*repeat_for(["a", "b"], 3.0, lambda: float(next(ticks))), strict=True)
    assert tasks == ("a", "b", "a", "b")  # begun at 0; looked at 1, 2 and 3 after each has had its turn
    assert len(set(keys)) == len(keys)
    assert [task for _, task in repeat_for(["a", "b"], 0.0, lambda: 0.0)] == ["a", "b"]


def test_decoding_is_measured_by_the_clock_that_is_given(quick: Model, place: Path) -> None:
    """The clock moves by 8 s a look: begun, begun repeating, asked once after the only task, and at the end."""
    ticks = count()
    rate = measure_decode(
        [place / "videos" / "1.mp4"], quick.sampling, keyframes=False, seconds=1.0, start_s=4.0,
        clock=lambda: 8.0 * next(ticks),
    )  # fmt: skip
    assert (rate.files, rate.frames) == (1, 6)
    assert rate.video_s == pytest.approx(12.0, abs=0.6)
    assert (rate.wall_s + 4.0) % 8.0 == 0


def test_only_the_part_is_read(quick: Model, place: Path) -> None:
    path = str(place / "videos" / "1.mp4")
    parts = [Part(path, 6.0, 6.0), Part(str(place / "nowhere.mp4"), 9.0)]
    found = measure_parts(quick.extractor, parts, keyframes=False, seconds=600.0, start_s=0.0)
    assert found is not None
    assert (found.rate.files, found.rate.frames, found.rate.video_s) == (1, 3, 6.0)  # at 0, 2 and 4 s
    assert [Path(one.path).name for one in found.failed] == ["nowhere.mp4"]
    assert measure_parts(quick.extractor, parts[1:], keyframes=False, seconds=600.0, start_s=0.0) is None


def test_settings_check_themselves() -> None:
    with pytest.raises(ConfigError, match="minutes must be above 0"):
        BenchConfig(minutes=float("nan"))
