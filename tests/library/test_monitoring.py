"""Monitoring: how hits become matches, and a drawn stream from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hapvr.errors import ConfigError, DecodeError
from hapvr.judge.judge import Verdict
from hapvr.library import Library, monitoring
from hapvr.library.monitoring import MatchTracker, MonitorConfig, StreamEvent
from hapvr.library.results import Hit
from hapvr.matching import Instant
from hapvr.records import Frames
from hapvr.similarity.segments import Segment
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.library.conftest import Run
from tests.test_webhooks import receive


def hit(id: str, *stretches: tuple[float, float, float], probability: float = 0.9, shared: bool = False) -> Hit:
    """A hit with stretches of (begin in the stream, length, begin in the video)."""
    segments = [Segment((a, a + n), (b, b + n), 0.8, False, (), shared) for a, n, b in stretches]
    verdict = Verdict("copy", probability, 0.0, 0.3, 0.0, "")
    return Hit(id, f"/{id}.mp4", 0.5, verdict, tuple(segments), Instant(0, 0, 1.0))


def said(events: list[StreamEvent]) -> list[tuple[str, str, tuple[float, float], tuple[float, float]]]:
    return [(one.kind, one.match.id, one.match.stream, one.match.video) for one in events if one.match]


def test_a_match_is_reported_when_it_begins_and_when_it_is_over() -> None:
    tracker = MatchTracker(window_s=10)
    assert said(list(tracker.update(20, (hit("a", (16, 4, 100)),)))) == [("match", "a", (16, 20), (100, 104))]
    assert list(tracker.update(22, (hit("a", (16.5, 5.5, 100.5)),))) == []
    assert list(tracker.update(26, (hit("a", (17, 8, 101)),))) == []
    assert list(tracker.update(34, ())) == []
    assert said(list(tracker.update(36, ()))) == [("end", "a", (16, 25), (100, 109))]
    assert list(tracker.finish(40)) == []


def test_the_same_video_again_is_another_match() -> None:
    tracker = MatchTracker(window_s=10)
    list(tracker.update(20, (hit("a", (10, 10, 0)),)))
    again = said(list(tracker.update(30, (hit("a", (21, 9, 0)),))))  # from its beginning
    assert again == [("match", "a", (21, 30), (0, 9))]
    ends = said(list(tracker.finish(30)))
    assert [one[2] for one in ends] == [(10, 20), (21, 30)]


def test_two_videos_and_what_all_share() -> None:
    tracker = MatchTracker(window_s=10)
    both = (hit("a", (10, 5, 0)), hit("b", (10, 5, 50)), hit("c", (10, 5, 0), shared=True))
    assert [one[1] for one in said(list(tracker.update(16, both)))] == ["a", "b"]
    assert [one[1] for one in said(list(tracker.finish(17)))] == ["a", "b"]


def test_probability_and_score_are_the_greatest() -> None:
    tracker = MatchTracker(window_s=10)
    list(tracker.update(20, (hit("a", (15, 5, 0), probability=0.6),)))
    list(tracker.update(22, (hit("a", (15, 7, 0), probability=0.95),)))
    (end,) = tracker.finish(22)
    assert end.match
    assert end.match.probability == 0.95
    assert end.match.found_s == 20
    assert end.to_json()["event"] == "end"


@pytest.mark.parametrize("settings", [{"step_s": 0}, {"step_s": 20, "window_s": 10}, {"window_s": 1000}, {"k": 0}])
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        MonitorConfig(**settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of two films, and a stream of 56 s in which 14 s of the first are shown from 22 s on."""
    folder = tmp_path_factory.mktemp("monitor")
    (folder / "films").mkdir()
    films = [draw_scene(seed, seconds=24, fps=5, size=(112, 144)) for seed in (1, 2, 8, 9)]
    for number, film in enumerate(films[:2]):
        write_clip(film, folder / "films" / f"{number}.mp4")
    shown = np.concatenate([films[2].images[:110], films[0].images[25:95], films[3].images[:100]])
    write_clip(Clip(shown, 5.0), folder / "stream.mp4")
    with Library.open(folder / "library", create=True) as library:
        assert library.add([folder / "films"], workers=1).added == 2
    return folder


def test_a_planted_clip_is_found_and_nothing_else(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("monitor", place / "library", place / "stream.mp4", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(one["event"], Path(one["path"]).name) for one in events] == [("match", "0.mp4"), ("end", "0.mp4")]
    first, last = events
    assert 22 < first["found_s"] <= 32  # within 10 s
    assert last["stream"] == pytest.approx([22, 36], abs=1.5)
    assert last["video"] == pytest.approx([5, 19], abs=1.5)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receive() as server:
        code, out, err = run("monitor", place / "library", place / "stream.mp4", "--webhook", server.address)
    ((_, _, body),) = server.got  # of the match when it is new
    message = json.loads(body)
    assert (message["source"], message["event"]) == ("monitor", first)
    assert "1 delivered, 0 failed" in err
    assert "monitoring" in err
    begun, over = out.splitlines()
    assert " is 0:00:0" in begun
    assert " was 0:00:0" in over


def test_it_ends_when_asked_to(place: Path) -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 5

    with Library.open(place / "library") as library:
        assert list(library.monitor(str(place / "stream.mp4"), stop=stop)) == []


def test_a_stream_that_is_not_there_is_an_error(place: Path, run: Run) -> None:
    code, _, err = run("monitor", place / "library", place / "none.mp4")
    assert code != 0
    assert err.startswith("error: ")
    assert "does not exist" in err
    with Library.open(place / "library") as library, pytest.raises(DecodeError):
        list(library.monitor(str(place)))


def test_an_address_that_fails_is_opened_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames, a failure, frames whose times go on, then failures until it is given up."""
    opened: list[int] = []

    def read(*_: object, **__: object) -> Iterator[Frames]:
        opened.append(1)
        if len(opened) <= 2:
            images = draw_scene(5, seconds=4, fps=2, size=(64, 64)).images
            yield Frames(
                images, np.arange(len(images)) / 2, np.zeros(len(images), bool), duration_s=None, fps=2.0,
                source_size=(64, 64),
            )  # fmt: skip
        raise DecodeError("it is gone.")

    monkeypatch.setattr(monitoring, "read_stream", read)
    monkeypatch.setattr(monitoring, "_FIRST_PAUSE_S", 0.01)
    events: list[StreamEvent] = []
    with Library.open(place / "library") as library:
        found = library.monitor("rtsp://camera/1", config=MonitorConfig(retries=2))
        with pytest.raises(DecodeError, match="it is gone"):
            events.extend(found)
    assert [one.kind for one in events] == ["warning"] * 3
    assert len(opened) == 4
    opened.clear()
    with Library.open(place / "library") as library, pytest.raises(DecodeError):
        list(library.monitor(str(place / "stream.mp4")))  # a file is not read again
    assert len(opened) == 1
