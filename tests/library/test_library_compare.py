"""`Library.compare`: what `hapvr.compare` says of files, from what a library knows of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import hapvr
from hapvr.errors import DataError
from hapvr.library import Library
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films, a part of the first that begins black, and a library of all but that, stored in full."""
    folder = tmp_path_factory.mktemp("comparing")
    (folder / "films").mkdir()
    one, other = (draw_scene(seed, seconds=6, fps=4, size=(96, 128)) for seed in (1, 2))
    write_clip(one, folder / "films" / "one.mp4")
    write_clip(other, folder / "films" / "other.mp4")
    (folder / "films" / "broken.mp4").write_bytes(b"this is no video")
    part = one.images[4:20].copy()
    part[:4] = 0
    write_clip(Clip(part, one.fps), folder / "part.mp4")
    with Library.open(folder / "library", create=True, codec="float16") as library:
        library.add([folder / "films"], workers=1)
    return folder


def test_ids_paths_and_features_are_compared_as_files_are(films: Path) -> None:
    part, film = films / "part.mp4", films / "films" / "one.mp4"
    expected = hapvr.compare(part, film)
    with Library.open(films / "library") as library:
        id = next(video.id for video in library.videos() if video.path == str(film))
        stored, read = library.compare(part, id), library.compare(part, film)
        assert (read.score, read.segments) == (stored.score, stored.segments)  # an indexed file is what is stored of it
        for one in (stored, read):
            assert [len(side.pictures([0])[0]) for side in (one.query, one.target)] == [256, 256]
        given = library.compare(library.model.features(part), library.features(id))
        assert given.target.pictures([0])[0].shape == (1, 1, 3)
        for found in (stored, given):
            assert found.score == pytest.approx(expected.score, abs=2e-3)  # stored as float16
            np.testing.assert_allclose(found.matrix, expected.matrix, atol=5e-3)
            assert [one.query for one in found.segments] == [one.query for one in expected.segments]
            np.testing.assert_array_equal(found.query.times, expected.query.times)  # without what is black
            np.testing.assert_allclose(found.target.times, expected.target.times)
        assert stored.target.path == str(film)
        assert stored.target.duration_s == pytest.approx(6, abs=0.3)
        assert "frames are flat or repeats" in given.query.warnings[-1]
        assert given.to_json()["score"] == given.score


def test_what_says_nothing_is_compared_and_that_is_said(films: Path) -> None:
    with Library.open(films / "library") as library:
        id = next(video.id for video in library.videos(state="ready"))
        features = library.features(id)
        black = dataclasses.replace(features, low_information=np.ones(len(features), np.bool_), timestamps=None)
        found = library.compare(black, id)
        assert len(found.query.times) == len(features)
        assert "they were compared all the same" in found.query.warnings[-1]


def test_what_cannot_be_compared_is_said(films: Path) -> None:
    with Library.open(films / "library") as library:
        ready, failed = (library.videos(state=state)[0].id for state in ("ready", "failed"))
        with pytest.raises(DataError, match="could not be described"):
            library.compare(ready, failed)
        with pytest.raises(DataError, match="neither a file nor the id of a video"):
            library.compare("000000000000", ready)
        with pytest.raises(DataError, match="an id, a path or Features"):
            library.compare(ready, 3)  # type: ignore[arg-type]
