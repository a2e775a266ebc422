"""From two files to an answer, with the model that is shipped."""

from __future__ import annotations

import dataclasses
import json
import shutil
import weakref
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import hapvr
from hapvr.cli import main
from hapvr.decision import NO_STRETCH, decide, format_percent
from hapvr.errors import ConfigError, DecodeError, WeightsError
from hapvr.features import Features
from hapvr.judge.evidence import PairFrames
from hapvr.judge.judge import Kind, Verdict
from hapvr.matching import Instant, Match, compare, describe_video, match_videos, warn_of_flat_frames
from hapvr.model import Model, load, save_calibration, save_model
from hapvr.model.parts import SHIPPED, list_model_names
from hapvr.records import Frames
from hapvr.reports.match_page import choose_pairs, save_html, save_plot
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.similarity.network import Symmetry
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.video.decode import decode, decode_chunks
from hapvr.video.sampling import SamplingConfig
from hapvr.weights import load_parts
from tests.judge.toy_judge import make_judge


@pytest.fixture(scope="module")
def lite() -> Model:
    return load()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A film, its mirrored middle, and another film; 4 frames a second are enough here."""
    folder = tmp_path_factory.mktemp("films")
    film, other = (draw_scene(seed, seconds=9, fps=4, size=(128, 160)) for seed in (1, 2))
    clips = {"film": film, "middle": Clip(film.images[12:28, :, ::-1].copy(), film.fps), "other": other}
    for name, clip in clips.items():
        write_clip(clip, folder / f"{name}.mp4")
    return {name: folder / f"{name}.mp4" for name in clips}


@pytest.fixture(scope="module")
def match(lite: Model, films: dict[str, Path]) -> Match:
    judged = dataclasses.replace(lite, judge=make_judge())
    return compare(films["middle"], films["film"], model=judged, second_look=False)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    draw = np.random.default_rng(0)
    return fit_calibration(draw.uniform(0.3, 0.9, 200), draw.normal(0.1, 0.1, 5000))


@pytest.fixture(scope="module")
def calibrated(lite: Model, calibration: Calibration) -> Model:
    return dataclasses.replace(lite, calibration=calibration, judge=None)


def test_a_mirrored_part_is_found_where_it_was(match: Match) -> None:
    assert match.score > 0.3  # of a film that is more than twice as long
    segment = match.segments[0]
    assert segment.query == pytest.approx((0, 4), abs=0.6)
    assert segment.target == pytest.approx((3, 7), abs=0.6)
    assert not segment.backwards


@pytest.mark.parametrize("symmetry", ["none", "average", "levels", "lengths"])
@pytest.mark.parametrize("psi", [False, True])
def test_one_matrix_gives_the_score_of_the_network(lite: Model, match: Match, symmetry: Symmetry, psi: bool) -> None:
    """Also for a side so short that the network doubles it."""
    torch.manual_seed(0)
    network = VideoSimilarity(SimilarityConfig(comparator=psi, symmetry=symmetry)).eval()
    model = Model("other", lite.extractor, network, lite.segments)
    for length in (len(match.query.times), 5):
        sides = []
        for side in (match.query, match.target):
            few = Features(side.features.regions[:length], side.times[:length])
            with torch.no_grad():
                described = network.make_descriptors(few.regions)
            sides.append(dataclasses.replace(side, features=few, descriptors=described))
        again = match_videos(*sides, model=model)
        with torch.no_grad():
            expected = network.score(*(side.descriptors for side in sides)).item()
            matrix = network.scored_matrix(*(side.descriptors for side in sides))
        assert again.score == expected
        if symmetry == "lengths":  # one product of all regions gives both directions, with other last bits
            np.testing.assert_allclose(again.matrix, matrix.numpy(), atol=1e-6)
        else:
            assert np.array_equal(again.matrix, matrix.numpy())
        assert (again.psi is not None) is psi


def test_without_a_judge_stretches_are_found_in_the_matrix_that_is_scored(lite: Model) -> None:
    """Nine frames, alike by .9 one way and by .3 the other: by .6 in the mean."""
    forth, back = (np.where(np.eye(9, dtype=bool), level, 0.0).astype(np.float32) for level in (0.9, 0.3))
    pairs = [PairFrames(*matrices, np.arange(9.0), np.arange(9.0)) for matrices in ((forth, back), (back, forth))]
    ways: dict[Symmetry, list[int]] = {"none": [1, 0], "average": [1, 0], "lengths": [1, 1]}
    for symmetry, counts in ways.items():
        network = VideoSimilarity(SimilarityConfig(comparator=False, symmetry=symmetry)).eval()
        model = Model("other", lite.extractor, network, SegmentConfig(threshold=0.45))
        found = [decide(pair, 0.5, model=model) for pair in pairs]
        assert [len(one.segments) for one in found] == counts
        assert [one.verdict.match for one in found] == [bool(count) for count in counts]
    assert found[0].segments == found[1].segments
    assert found[0].segments[0].score == pytest.approx(0.6)


@pytest.mark.parametrize("other", ["film", "other"])
def test_a_verdict_of_the_shipped_judge_does_not_depend_on_how_the_model_finds_segments(
    lite: Model, films: dict[str, Path], match: Match, other: str
) -> None:
    target = match.target if other == "film" else describe_video(films[other], lite)
    loose, strict = SegmentConfig(threshold=-0.5, min_gain=0.0), SegmentConfig(threshold=0.99, min_frames=300)
    found, *others = (
        match_videos(match.query, target, model=dataclasses.replace(lite, segments=segments), second_look=False)
        for segments in (lite.segments, loose, strict)
    )
    assert lite.judge is not None
    assert lite.judge.candidates is not None
    assert found.min_frames == lite.judge.candidates.min_frames
    assert found.too_short is False
    assert found.verdict.match is (other == "film")
    for one in others:
        assert (one.verdict, one.segments, one.min_frames) == (found.verdict, found.segments, found.min_frames)
        assert np.array_equal(one.matrix, found.matrix)


def test_sides_are_read_once_for_many_comparisons(lite: Model, films: dict[str, Path], match: Match) -> None:
    middle = describe_video(films["middle"], lite)
    assert match_videos(middle, match.target, model=lite).score == match.score
    assert match_videos(middle, middle, model=lite).score == pytest.approx(1, abs=0.01)


def test_another_film_does_not_match(lite: Model, films: dict[str, Path], match: Match) -> None:
    answer = compare(films["middle"], films["other"], model=lite)
    assert answer.score < match.score - 0.5
    # Drawn films are somewhat alike: what is found there stands far behind what matches.
    assert all(segment.score < match.segments[0].score - 0.2 for segment in answer.segments)


def test_the_answer_as_json(match: Match) -> None:
    answer = json.loads(json.dumps(match.to_json()))
    assert answer["score"] == match.score
    assert answer["probability"] == match.probability
    assert answer["best"] == dataclasses.asdict(match.best)
    assert answer["best"]["similarity"] == match.matrix.max()
    assert set(answer["segments"][0]) == {"query", "target", "score", "backwards"}


def test_a_calibrated_model_without_a_judge_goes_by_its_score(
    calibrated: Model, calibration: Calibration, match: Match, tmp_path: Path
) -> None:
    known = match_videos(match.query, match.target, model=calibrated)
    assert known.probability == calibration.probability(match.score) > 0.9
    assert known.to_json()["false_per_million"] == known.verdict.false_per_million
    rare = match_videos(match.query, match.target, model=calibrated, prior=1e-6)
    assert rare.probability == calibration.probability(match.score, prior=1e-6) < 0.1
    assert (known.verdict.prior, rare.verdict.prior) == (0.5, 1e-6)
    assert rare.meaning == f"no match (probability of a copy {format_percent(rare.probability)})"
    page = save_html(rare, tmp_path / "match.html").read_text()
    assert f"<strong>N{rare.meaning[1:]}.</strong>" in page
    save_plot(known, tmp_path / "match.svg")


def verdict_of(
    model: Model, score: float, rows: int, *, stretch: bool, best: float = 0.9, prior: float | None = None
) -> Verdict:
    """On nine frames, those of the query in step with them or not."""
    matrix = np.full((9, 9), -1.0, np.float32) if stretch else np.full((9, 9), best, np.float32)
    if stretch:
        np.fill_diagonal(matrix, best)
    elif rows >= model.segments.min_frames:
        matrix[:, 1:] = -1.0  # all like one frame: that is no stretch
    times = np.arange(9) / 2
    pair = PairFrames(matrix[:rows], matrix[:rows].T.copy(), times[:rows], times)
    return decide(pair, score, model=model, prior=prior).verdict


def test_without_a_stretch_it_is_no_match_whatever_the_score(calibrated: Model, calibration: Calibration) -> None:
    for score in (0.35, 0.6, 1.0):
        found, none = (verdict_of(calibrated, score, 9, stretch=stretch) for stretch in (True, False))
        assert (found.kind, found.match, found.probability) == ("copy", True, calibration.probability(score))
        assert (none.kind, none.match) == ("no match", False)
        assert (none.probability, none.prior) == (0.5, 0.5)  # the prior, and no more
        assert none.reason == NO_STRETCH
    low = verdict_of(calibrated, -0.5, 9, stretch=False)
    assert low.probability == calibration.probability(-0.5) < 0.1  # a low score speaks against a match all the same
    assert verdict_of(calibrated, -0.5, 9, stretch=True).kind == "no match"


@pytest.mark.parametrize("prior", [0.001, 0.5, 0.9])
def test_a_verdict_never_falls_as_the_score_rises(calibrated: Model, prior: float) -> None:
    for stretch in (False, True):
        scores = np.linspace(-1, 1, 81).tolist()
        found = [verdict_of(calibrated, score, 9, stretch=stretch, prior=prior) for score in scores]
        chances = [one.probability or 0.0 for one in found]
        assert chances == sorted(chances)
        assert [one.match for one in found] == sorted(one.match for one in found)
        assert any(one.match for one in found) == (stretch and max(chances) >= 0.5)


def test_a_picture_matches_by_an_instant(calibrated: Model, lite: Model) -> None:
    plain = dataclasses.replace(lite, calibration=None, judge=None)
    for frames in (1, 2):
        assert verdict_of(calibrated, 0.8, frames, stretch=False).match
        assert verdict_of(plain, 0.8, frames, stretch=False).match
        unlike = verdict_of(calibrated, 0.8, frames, stretch=False, best=lite.segments.threshold - 0.01)
        assert (unlike.match, unlike.reason) == (False, "No frames of the two videos are alike.")
        assert not verdict_of(calibrated, -0.5, frames, stretch=False).match
    assert not verdict_of(plain, 0.8, 3, stretch=False).match
    wide = np.full((9, 2), 0.9, np.float32)  # a picture as the target
    assert decide(PairFrames(wide, wide.T.copy(), np.arange(9.0), np.arange(2.0)), 0.8, model=calibrated).verdict.match


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_picture_has_an_instant_and_no_stretch_with_a_judge_too(lite: Model, frames: int) -> None:
    judged = dataclasses.replace(lite, judge=make_judge())
    matrix = np.full((frames, 9), 0.1, np.float32)
    matrix[np.arange(frames), 3 + np.arange(frames)] = 0.99
    pair = PairFrames(matrix, matrix.T.copy(), np.arange(frames) / 2, np.arange(9) / 2)
    found = decide(pair, 0.9, model=judged)
    if frames < lite.segments.min_frames:
        assert (found.verdict.kind, found.segments) == ("copy", ())
    turned = decide(PairFrames(pair.back, pair.forth, pair.b_times, pair.a_times), 0.9, model=judged)
    assert turned.verdict.kind == found.verdict.kind
    assert bool(turned.segments) == bool(found.segments)


def test_a_judge_decides_whatever_the_calibration_says(calibrated: Model, match: Match) -> None:
    judged = dataclasses.replace(calibrated, judge=make_judge())
    found = match_videos(match.query, match.target, model=judged, second_look=False)
    again = match_videos(
        match.query, match.target, model=dataclasses.replace(judged, calibration=None), second_look=False
    )
    assert found.verdict == again.verdict
    assert (found.verdict.kind, found.verdict.prior, found.verdict.second_look) == ("copy", 0.02, False)
    rare = match_videos(match.query, match.target, model=judged, prior=1e-6, second_look=False)
    assert rare.verdict.prior == 1e-6
    assert rare.probability is not None
    assert found.probability is not None
    assert rare.probability < found.probability
    looked = match_videos(
        match.query, match.target, model=dataclasses.replace(judged, judge=make_judge(undecided=(-50.0, 50.0)))
    )
    assert looked.verdict.second_look
    assert looked.verdict.reason.count("at full size") == 1
    assert "full size" not in found.verdict.reason


@pytest.mark.parametrize("kind", ["no match", "same scene"])
def test_text_json_and_page_do_not_contradict_each_other(
    kind: Kind, match: Match, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = 0.02 if kind == "no match" else 0.9
    verdict = Verdict(kind, 0.02, chance, 0.02, 900.0, "Frames are hardly alike.")
    none = dataclasses.replace(match, segments=(), verdict=verdict)
    monkeypatch.setattr("hapvr.matching.compare", lambda *_, **__: none)
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as left:
        main(["compare", "a.mp4", "b.mp4", "--html", str(page)])
    out = capsys.readouterr().out
    assert left.value.code == 0
    said = "no match" if kind == "no match" else "same scene or event, not the same footage"
    assert out.splitlines()[0] == f"{said} (probability of a copy 2.0%)"
    assert out.splitlines()[2] == f"  Frames are hardly alike. Score {match.score:.3f}."
    text = page.read_text()
    assert ("<h1>No match;" in text) == (kind == "no match")
    assert ("<h1>The same scene or event, not the same footage;" in text) == (kind == "same scene")
    assert f"<strong>{said.capitalize()} (probability of a copy 2.0%).</strong> Frames are hardly alike." in text
    assert "A copy" not in text
    with pytest.raises(SystemExit):
        main(["compare", "a.mp4", "b.mp4", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["match"], answer["probability"]) == (kind, False, 0.02)
    assert (answer["segments"], answer["reason"]) == ([], "Frames are hardly alike.")


def test_a_model_without_judge_and_calibration_gives_no_probability(
    lite: Model, match: Match, films: dict[str, Path]
) -> None:
    plain = dataclasses.replace(lite, calibration=None, judge=None)
    silent = match_videos(match.query, match.target, model=plain)
    assert (silent.probability, silent.verdict.false_per_million, silent.meaning) == (None, None, "copy")
    assert silent.verdict.match
    with pytest.raises(ConfigError, match="gives no probabilities"):
        compare(*list(films.values())[:2], model=plain, prior=0.5)


def test_a_calibration_is_kept_with_the_model(
    calibration: Calibration, films: dict[str, Path], match: Match, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "known"
    shutil.copytree(SHIPPED / "lite", folder)
    before = load_parts(folder)
    save_calibration(folder, calibration)
    after = load_parts(folder)
    for name, part in before.items():
        if name != "calibration":
            assert after[name].config == part.config
            assert all(torch.equal(after[name].tensors[key], value) for key, value in part.tensors.items())
    again = load(folder).calibration
    assert again is not None
    assert again.probability(match.score) == calibration.probability(match.score)
    files = [str(films["middle"]), str(films["film"]), "--model", str(folder)]
    with pytest.raises(SystemExit) as left:
        main(["compare", *files])
    assert left.value.code == 0
    assert "probability" in capsys.readouterr().out.splitlines()[0]
    with pytest.raises(SystemExit) as left:
        main(["compare", *files, "--prior", "1"])
    assert left.value.code == 2
    assert "--prior must be" in capsys.readouterr().err


def test_frames_that_say_nothing_are_left_out_and_it_is_said(lite: Model, tmp_path: Path) -> None:
    film = draw_scene(3, seconds=4, fps=4, size=(128, 160))
    black = np.zeros_like(film.images[:8])
    write_clip(Clip(np.concatenate([black, film.images]), 4), tmp_path / "late.mp4")
    side = compare(tmp_path / "late.mp4", tmp_path / "late.mp4", model=lite).query
    assert side.times[0] >= 1.9
    assert side.warnings == (f"{24 - len(side.times)} of 24 frames are flat or repeats: left out.",)


@pytest.mark.parametrize(
    ("flat", "frames", "said"),
    [(0, 20, False), (1, 20, False), (2, 20, True), (19, 20, True), (20, 20, False), (3, 31, False), (4, 31, True)],
)
def test_few_frames_that_are_left_out_are_not_worth_a_warning(flat: int, frames: int, said: bool) -> None:
    features = Features(torch.ones(frames, 1, 2), low_information=np.arange(frames) < flat)
    wanted = (f"{flat} of {frames} frames are flat or repeats: left out.",) if said else ()
    assert warn_of_flat_frames(features) == wanted


def test_a_picture_is_a_video_of_one_frame(lite: Model, films: dict[str, Path], tmp_path: Path, match: Match) -> None:
    Image.fromarray(match.target.pictures([10])[0]).save(tmp_path / "still.png")
    judged = dataclasses.replace(lite, judge=make_judge())
    still = compare(tmp_path / "still.png", films["film"], model=judged, second_look=False)
    assert still.score > 0.7
    assert still.verdict.kind == "copy"
    # Too short for a stretch, so the instant is told instead: which of all pairs of frames is the most similar.
    assert still.segments == ()
    assert still.too_short
    row, column = max(np.ndindex(still.matrix.shape), key=lambda cell: still.matrix[cell])
    assert column == 10
    assert still.best == Instant(0.0, match.target.times[10], float(still.matrix[row, column]))
    page = save_html(still, tmp_path / "still.html").read_text()
    where = f"it is at {still.best.target:.1f} s of film.mp4 (similarity {still.best.similarity:.2f})"
    assert f"<h1>A copy: {where}</h1>" in page
    assert "still.png has 1 frame to compare: a stretch takes 3" in page
    assert "Most similar frames" in page
    assert "Frames that match" not in page
    save_plot(still, tmp_path / "plot.svg")


@pytest.mark.parametrize(("frames", "short"), [(1, True), (2, True), (3, False)])
def test_what_is_said_without_a_segment_depends_on_whether_there_could_be_one(
    match: Match, tmp_path: Path, frames: int, short: bool
) -> None:
    features = match.query.features
    query = dataclasses.replace(match.query, features=Features(features.regions[:frames], match.query.times[:frames]))
    none = Verdict("no match", 0.02, 0.02, 0.02, 900.0, NO_STRETCH)
    few = dataclasses.replace(match, query=query, segments=(), matrix=match.matrix[:frames], verdict=none)
    assert few.too_short is short
    page = save_html(few, tmp_path / "few.html").read_text()
    assert "<h1>No match; most alike at" in page
    assert ("a stretch takes 3, so only single frames can be compared" in page) is short
    assert choose_pairs(few) == [few.best_pair]


def test_the_command_line_tells_the_instant_of_a_picture(
    films: dict[str, Path], tmp_path: Path, match: Match, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(match.target.pictures([10])[0]).save(tmp_path / "still.png")
    files = [str(tmp_path / "still.png"), str(films["film"])]
    with pytest.raises(SystemExit):
        main(["compare", *files, "--json"])
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["query"] == 0
    with pytest.raises(SystemExit):
        main(["compare", *files])
    place = f"most alike at {best['target']:.1f} s of B (similarity {best['similarity']:.2f})"
    assert capsys.readouterr().out.splitlines()[1] == f"  {place}"


def test_a_black_video_is_said_to_be_once(lite: Model, tmp_path: Path) -> None:
    write_clip(Clip(np.zeros((12, 96, 128, 3), np.uint8), 4), tmp_path / "black.mp4")
    side = describe_video(tmp_path / "black.mp4", lite)
    flat, compared = side.warnings
    assert "Every frame is flat" in flat
    assert "they were compared all the same" in compared
    assert len(side.times) == 12


def test_a_long_video_is_described_in_parts_and_its_pictures_are_read_again(
    lite: Model, films: dict[str, Path], match: Match, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = decode(films["film"], fps=lite.sampling.fps, min_frames=lite.sampling.at_least)
    held: list[int] = []

    def parts(_: object, path: Path, sampling: SamplingConfig, **__: object) -> Iterator[Frames]:
        images: list[weakref.ref[Frames]] = []
        for part in decode_chunks(path, chunk=5, fps=sampling.fps, min_frames=sampling.at_least):
            held.append(sum(one() is not None for one in images))
            images.append(weakref.ref(part))
            yield part
            del part

    monkeypatch.setattr("hapvr.video.sandboxed.iterate_sandboxed", parts)
    target = describe_video(films["film"], lite)
    assert len(held) > 5
    assert max(held) == 0  # no part is held while the next is decoded
    assert np.array_equal(target.times, match.target.times)
    torch.testing.assert_close(target.features.regions, match.target.features.regions, atol=1e-5, rtol=0)
    assert match_videos(match.query, target, model=lite).score == pytest.approx(match.score, abs=1e-5)
    places = [len(target.times) - 1, 0, 7]
    for place, picture in zip(places, target.pictures(places), strict=True):
        expected = whole.images[int(np.flatnonzero(whole.timestamps == target.times[place])[0])]
        assert np.array_equal(picture, expected)
    page = save_html(dataclasses.replace(match, target=target), tmp_path / "parts.html").read_text()
    assert page == save_html(match, tmp_path / "whole.html").read_text()


def test_outputs_are_checked_before_anything_is_read(
    films: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object, **__: object) -> Match:
        raise AssertionError

    monkeypatch.setattr("hapvr.matching.compare", compare)
    film = tmp_path / "film.mp4"
    shutil.copy(films["film"], film)
    picture = tmp_path / "a.png"
    for options, words in (
        (["--plot", tmp_path / "s.txt"], "its suffix must be one of"),
        (["--plot", tmp_path / "s"], "its suffix must be one of"),
        (["--plot", tmp_path / "new" / "s.png"], "new' is no folder"),
        (["--html", tmp_path / "new" / "s.html"], "new' is no folder"),
        (["--html", tmp_path], "it is a folder"),
        (["--html", film], "which is read"),
        (["--plot", picture, "--html", picture], "which is written as well"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["compare", str(films["middle"]), str(film), *map(str, options)])
        printed = capsys.readouterr()
        assert left.value.code == 2
        assert words in printed.err
        assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [film]
    assert film.read_bytes() == films["film"].read_bytes()


def test_the_answer_is_printed_before_pictures_are_written(
    match: Match, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hapvr.matching.compare", lambda *_, **__: match)
    with pytest.raises(SystemExit) as left:
        main(["compare", "a.mp4", "b.mp4", "--html", str(tmp_path / ("x" * 300))])
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert "cannot be written" in printed.err
    assert printed.out.startswith(match.meaning)


def test_a_file_that_is_no_video_is_refused(lite: Model, films: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(DecodeError, match=r"text\.mp4"):
        compare(tmp_path / "text.mp4", films["film"], model=lite)


def test_pictures_are_drawn(match: Match, tmp_path: Path) -> None:
    with Image.open(save_plot(match, tmp_path / "match.png")) as picture:
        assert min(picture.size) > 500
    page = save_html(match, tmp_path / "match.html").read_text()
    parser = HTMLParser()
    parser.feed(page)
    parser.close()
    assert "middle.mp4" in page
    assert "% of the query is footage of film.mp4</h1>" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/jpeg") == 2 * len(choose_pairs(match))


def test_psi_is_drawn_where_the_model_has_one(lite: Model, films: dict[str, Path], tmp_path: Path) -> None:
    torch.manual_seed(0)
    with_psi = Model("psi", lite.extractor, VideoSimilarity(SimilarityConfig()).eval(), lite.segments)
    match = compare(films["middle"], films["film"], model=with_psi)
    assert match.psi is not None
    assert match.psi.shape == (match.matrix.shape[0] // 4, match.matrix.shape[1] // 4)
    save_plot(match, tmp_path / "psi.svg")


def test_the_command_line(films: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", str(films["middle"]), str(films["film"]), "--json", "--html", str(tmp_path / "m.html")])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["segments"]
    assert (tmp_path / "m.html").stat().st_size > 10_000
    with pytest.raises(SystemExit) as left:
        main(["compare", str(films["middle"]), str(tmp_path / "nowhere.mp4")])
    assert left.value.code == 2
    assert "nowhere.mp4" in capsys.readouterr().err


def test_a_saved_model_scores_as_before(lite: Model, films: dict[str, Path], tmp_path: Path, match: Match) -> None:
    assert lite.extractor.whitening is not None
    folder = save_model(
        tmp_path / "copy",
        backbone=lite.extractor.backbone,
        whitening=lite.extractor.whitening,
        similarity=lite.similarity,
        sampling=lite.sampling,
        segments=lite.segments,
        half=True,
    )
    again = compare(films["middle"], films["film"], model=load(folder))
    assert again.score == pytest.approx(match.score, abs=1e-3)  # the whitening with its projection, in float16


def test_models_are_found_by_name_and_checked(tmp_path: Path) -> None:
    assert "lite" in list_model_names()
    assert (SHIPPED / "lite" / "README.md").is_file()
    assert (SHIPPED / "lite" / "model.safetensors").stat().st_size <= 20e6
    with pytest.raises(WeightsError, match="did you mean 'lite'"):
        load("light")
    VideoSimilarity().save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="lacks backbone, whitening, sampling, segments"):
        load(tmp_path)


def test_the_names_at_the_top() -> None:
    assert hapvr.load is load
    assert hapvr.compare is compare
    with pytest.raises(AttributeError):
        hapvr.nothing  # noqa: B018
