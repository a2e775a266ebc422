"""Which of two copies was made of the other: traces in drawn films, by hand, and the order of copies that follows."""

from __future__ import annotations

import dataclasses
import itertools
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.library.copy_groups import _count_steps, group_links, rank_copies
from hapvr.library.derivation import Derivation, decide_derivation, find_derivation
from hapvr.library.duplicate_report import DuplicateReport as Report
from hapvr.library.duplicate_report import Group, Link, format_csv
from hapvr.library.edit_traces import Traces, _measure_edge
from hapvr.library.results import VideoRecord
from hapvr.similarity import Segment
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.edits import find_edit
from hapvr.synthetic.films import draw_scene

SECONDS = 2.0
NOW = datetime(2026, 1, 10, tzinfo=timezone.utc)
PLAIN = Traces(
    likeness=0.99,
    mirrored=False,
    tilted=0.0,
    beyond=(0.0, 0.0),
    edges=(0.0, 0.0),
    overlay=0.0,
    overlay_edges=1.0,
    chroma=(30.0, 30.0),
    hues=1.0,
    contrast=1.0,
    brightness=0.0,
    detail=(0.97, 0.97),
    scale=1.0,
    finer=0.0,
)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clip, Path]:
    clip = draw_scene(3, seconds=SECONDS, fps=8, size=(160, 208))
    path = tmp_path_factory.mktemp("derivation") / "film.mp4"
    write_clip(clip, path, crf=20)
    return clip, path


def enlarge(clip: Clip, factor: float) -> Clip:
    height, width = (round(side * factor / 2) * 2 for side in clip.size)
    return Clip(pixels.resize(clip.images, (height, width)), clip.fps)


def look(a: Path, b: Path) -> Derivation | None:
    whole = Segment((0.0, SECONDS), (0.0, SECONDS), 0.9, False, ())
    return find_derivation(a, b, [whole], max_seconds=1000)  # however busy the machine is


EDITS = ["upscale", "flip", "colour", "greyscale", "crop", "letterbox", "meme-border", "caption", "logo", "camcorder"]
SURE = ["upscale", "greyscale", "crop", "letterbox", "meme-border", "caption", "camcorder"]


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_never_taken_for_the_original(film: tuple[Clip, Path], tmp_path: Path, name: str) -> None:
    pytest.importorskip("cv2")
    clip, original = film
    edited = clip if name == "upscale" else find_edit(name).apply(clip, np.random.default_rng(5)).clip
    path = tmp_path / "edit.mp4"
    write_clip(enlarge(edited, 1.5), path, crf=12)  # larger, and of a higher bitrate
    found = look(original, path)
    assert found is not None
    assert found.derived == "b" or (found.unsure and name not in SURE), found
    assert look(path, original) == found.swap()


def test_a_copy_that_was_only_encoded_again_is_no_edit(film: tuple[Clip, Path], tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    clip, original = film
    write_clip(clip, tmp_path / "again.mp4", crf=16)
    assert look(original, tmp_path / "again.mp4") == Derivation(None)


def test_files_that_cannot_be_read_give_no_answer(film: tuple[Clip, Path], tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    (tmp_path / "broken.mp4").write_bytes(b"no film")
    assert look(film[1], tmp_path / "gone.mp4") is None
    assert look(film[1], tmp_path / "broken.mp4") is None


# --- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "derived", "word"),
    [
        ({"beyond": (0.3, 0.0), "edges": (5.0, 0.0)}, "a", "framed"),
        ({"beyond": (0.3, 0.0), "edges": (1.0, 0.0)}, "b", "cropped"),
        ({"beyond": (0.3, 0.0), "edges": (1.0, 0.0), "likeness": 0.6}, None, "border"),
        ({"overlay": 0.05, "overlay_edges": 3.0}, "a", "words"),
        ({"chroma": (1.0, 30.0)}, "a", "colour"),
        ({"detail": (0.5, 1.6)}, "a", "softer"),
        ({"detail": (0.5, 1.6), "scale": 1.5}, "a", "enlarged"),
        ({"scale": 1.5, "finer": 1.0}, "a", "enlarged"),
        ({"overlay": 0.1}, None, "parts"),
        ({"detail": (0.5, 0.5)}, None, "noisier"),
        ({"mirrored": True}, None, "mirrored"),
        ({"contrast": 1.5}, None, "colours differ"),
        ({"tilted": 0.2}, None, "tilted"),
        ({"likeness": 0.1}, None, "too much"),
        ({"chroma": (1.0, 30.0), "detail": (1.6, 0.5)}, None, "softer"),  # they contradict each other
    ],
)
def test_each_trace_names_its_copy(change: dict[str, Any], derived: str | None, word: str) -> None:
    traces = dataclasses.replace(PLAIN, **change)
    found = decide_derivation(traces)
    assert found.derived == derived
    assert any(word in reason for reason in found.reasons)
    assert found.unsure == (derived is None)
    # Of the two in the other order it is the other one.
    pairs = {name: getattr(traces, name)[::-1] for name in ("beyond", "edges", "chroma", "detail")}
    ratios = {name: 1 / getattr(traces, name) for name in ("overlay_edges", "contrast", "scale")}
    swapped = dataclasses.replace(traces, **pairs, **ratios, brightness=-traces.brightness)
    again = decide_derivation(swapped)
    assert (again.derived, set(again.reasons)) == (found.swap().derived, set(found.reasons))


def test_what_coding_changes_and_what_is_larger_and_finer_is_no_edit() -> None:
    assert decide_derivation(PLAIN) == Derivation(None)
    assert decide_derivation(dataclasses.replace(PLAIN, scale=2.0, finer=3.0)) == Derivation(None)


def test_another_speed_is_an_edit_of_one_of_them() -> None:
    assert decide_derivation(PLAIN, speed=1.25) == Derivation(None, ("one plays faster",))
    assert decide_derivation(PLAIN, speed=-1.0) == Derivation(None, ("one plays backwards",))


def test_an_edge_along_a_border_stands_out_from_those_beside_it() -> None:
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    picture = np.cumsum(rng.normal(0, 3, (80, 120)), 1).astype(np.float32) + 128
    covered = np.zeros(picture.shape, bool)
    covered[20:60, 30:90] = True
    assert _measure_edge(picture, covered) < 1.7  # it goes on beyond the border
    framed = np.where(covered, picture, 255).astype(np.float32)
    assert _measure_edge(framed, covered) > 2.5
    assert _measure_edge(picture, np.ones_like(covered)) == 0


# --- the order of copies ---------------------------------------------------------------------------------------------


def record(name: str, **more: Any) -> VideoRecord:
    plain = VideoRecord(
        name, f"/films/{name}.mp4", 9, 5, f"hash of {name}", 20.0, 40, 64, 48, 800.0, "ready", None, NOW
    )
    return dataclasses.replace(plain, **more)


def link(a: str, b: str, derivation: Derivation | None) -> Link:
    whole = ((0.0, 20.0), (0.0, 20.0))
    return Link(a, b, "duplicate", 0.9, None, (1.0, 1.0), whole, derivation=derivation)


FILM, LARGE = record("film"), record("large", width=640, height=480, bitrate=9000.0)
EDIT = Derivation("b", ("cropped",))


def test_a_larger_edit_comes_after_its_original() -> None:
    for records in ([FILM, LARGE], [LARGE, FILM]):
        for one in (link("film", "large", EDIT), link("large", "film", EDIT.swap())):
            ordered, reason = rank_copies(records, [one])
            assert [video.id for video in ordered] == ["film", "large"]
            assert reason == "the others are edits; 'large.mp4': cropped"


def test_it_is_unsure_where_nothing_says_which_is_the_edit() -> None:
    size = "as long as any, the largest picture: 640 x 480, the next 64 x 48"
    mirrored = link("film", "large", Derivation(None, ("one is mirrored",)))
    assert rank_copies([FILM, LARGE], [mirrored])[1] == f"unsure: one is mirrored ({size})"
    assert rank_copies([FILM, LARGE], [link("film", "large", Derivation(None))])[1] == size
    assert rank_copies([FILM, LARGE], [link("film", "large", None)])[1] == (
        f"unsure: their pictures were not compared ({size})"
    )
    assert rank_copies([FILM, LARGE])[1] == size  # by their records only
    gone = dataclasses.replace(FILM, state="missing")
    assert rank_copies([gone, LARGE], [link("film", "large", None)])[1] == "the only one whose file is there"


def test_copies_of_an_edit_are_edits_too() -> None:
    again = dataclasses.replace(LARGE, id="large-2", path="/films/again.mp4")
    links = [link("film", "large", EDIT), dataclasses.replace(link("large", "large-2", None), kind="identical")]
    (group,) = group_links(links, {one.id: one for one in (FILM, LARGE, again)})
    assert group.keep is FILM
    assert group.find_edits(again) == group.find_edits(LARGE) == ("cropped",)
    assert group.find_edits(FILM) == ()


def test_no_edit_comes_before_its_original_in_any_group() -> None:
    rng = np.random.default_rng(4)
    for _ in range(60):
        names = [f"v{number}" for number in range(int(rng.integers(2, 7)))]
        records = [record(name, width=int(rng.integers(64, 640))) for name in names]
        links = [
            link(a, b, [Derivation("a", ("x",)), Derivation("b", ("x",)), Derivation(None), None][rng.integers(4)])
            for a, b in itertools.combinations(names, 2)
        ]
        ordered, _ = rank_copies(records, links)
        assert rank_copies(records[::-1], links)[0] == ordered
        place = {one.id: number for number, one in enumerate(ordered)}
        edges = {
            (one.b, one.a) if one.derivation.derived == "a" else (one.a, one.b)
            for one in links
            if one.derivation is not None and one.derivation.derived
        }
        # What an original is reached from goes round in a circle: then nothing is known of the two.
        reach = {name: {name} for name in names}
        for _ in names:
            for origin, edit in edges:
                reach[origin] |= reach[edit]
        for origin, edit in edges:
            if origin not in reach[edit]:
                assert place[origin] < place[edit] or _is_behind_a_circle(origin, reach)


def _is_behind_a_circle(name: str, reach: dict[str, set[str]]) -> bool:
    return any(name in reach[one] and any(one in reach[two] for two in reach[one] - {one}) for one in reach)


def test_edits_are_counted_from_what_is_no_edit() -> None:
    hashes = {name: name for name in "abcde"}
    chain = [link("a", "b", EDIT), link("b", "c", EDIT), link("a", "c", EDIT)]
    assert _count_steps(chain, hashes) == {"a": 0, "b": 1, "c": 2, "d": 0, "e": 0}
    circle = [link("a", "b", EDIT), link("b", "a", EDIT), link("b", "c", EDIT)]
    assert _count_steps(circle, hashes)["a"] == _count_steps(circle, hashes)["b"] == 0


def test_the_report_says_why() -> None:
    one = link("film", "large", EDIT)
    records = {"film": FILM, "large": LARGE}
    groups = group_links([one], records)
    report = Report(groups, (one,), records, 2, 1, 1, 0, 0.5, 1.0)
    assert isinstance(groups[0], Group)
    assert report.to_json()["groups"][0]["links"][0]["derivation"] == {"derived": "b", "reasons": ["cropped"]}
    header, row = format_csv(report).splitlines()
    assert header.endswith("derived,derived_reason,keep_reason,sound")
    assert row.endswith("b,cropped,the others are edits; 'large.mp4': cropped,")
