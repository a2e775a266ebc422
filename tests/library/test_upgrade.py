"""What an older release wrote is opened and answers as it did; what a newer one wrote is refused, with what to do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hapvr.errors import StorageError, WeightsError
from hapvr.library import Library, check_library
from hapvr.library.versions import current_version, read_settings, version_folder, write_settings
from hapvr.model import load
from hapvr.similarity import VideoSimilarity
from hapvr.storage import write_json
from tests.library.release_fixture import FIXTURES, read_answers

RELEASES = sorted(FIXTURES.glob("release-*.zip"))


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    shutil.unpack_archive(request.param, folder)
    return folder


def test_there_is_a_fixture_of_a_release() -> None:
    assert [path.name for path in RELEASES] == ["release-0.1.0.zip"]


def test_a_library_and_a_model_of_an_older_release_answer_as_they_did(release: Path) -> None:
    written, now = json.loads((release / "answers.json").read_text()), read_answers(release)
    assert now["score"] == pytest.approx(written["score"], abs=1e-3)
    assert now["hits"].keys() == written["hits"].keys()
    for id, hits in written["hits"].items():
        assert [hit[:2] for hit in now["hits"][id]] == [hit[:2] for hit in hits]
        assert [hit[2] for hit in now["hits"][id]] == pytest.approx([hit[2] for hit in hits], abs=2e-3)


def test_a_library_of_an_older_release_is_sound_and_can_be_changed(release: Path, tmp_path: Path) -> None:
    place = shutil.copytree(release / "library", tmp_path / "library")
    assert check_library(place).intact
    with Library.open(place) as library:
        assert library.remove([library.videos()[0].id]) == 1
    assert check_library(place).intact


def test_a_model_of_a_newer_release_is_refused(release: Path, tmp_path: Path) -> None:
    place = shutil.copytree(release / "model", tmp_path / "model")
    config = json.loads((place / "config.json").read_text())
    write_json(place / "config.json", config | {"version": config["version"] + 1})
    with pytest.raises(WeightsError, match=r"newer release.*pip install --upgrade hapvr"):
        VideoSimilarity.from_pretrained(place)


def test_a_library_whose_digest_is_of_loaded_weights_opens_where_it_was_made(release: Path, tmp_path: Path) -> None:
    """Until digests were of what is stored, they held on processors of one kind."""
    place = shutil.copytree(release / "library", tmp_path / "library")
    folder = version_folder(place, current_version(place))
    settings = replace(read_settings(folder), model_digest=load("lite").extractor.digest_as_loaded())
    assert settings.model_digest != read_settings(folder).model_digest
    write_settings(folder, settings)
    with Library.open(place) as library:
        assert library.search(library.videos()[0].id, k=1).hits
    write_settings(folder, replace(settings, model_digest="0" * 64))
    with Library.open(place) as library, pytest.raises(StorageError, match="it has changed since"):
        library.search(library.videos()[0].id, k=1)
