"""Features out and in again, as HDF5."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hapvr.errors import StorageError
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.library import Library, transfer
from tests.library import toy
from tests.library.toy import toys  # noqa: F401

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        toy.write(tmp_path / "videos", f"{number}.mp4", number, 2 + number)
    (tmp_path / "videos" / "copy.mp4").write_bytes((tmp_path / "videos" / "1.mp4").read_bytes())
    with open(os.path.join(os.fsencode(tmp_path / "videos"), b"caf\xe9.mp4"), "wb") as file:
        file.write(b"video 9 9")
    (tmp_path / "videos" / "bad.mp4").write_text("nothing")
    return tmp_path / "videos"


@pytest.fixture
def library(tmp_path: Path, folder: Path) -> Library:
    made = toy.make(tmp_path / "library")
    made.add([folder])
    return made


def test_what_goes_out_comes_in_again(library: Library, tmp_path: Path, folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert library.export(tmp_path / "f.h5", progress=lambda done, of: seen.append((done, of))) == 5
    assert seen[-1] == (5, 5)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    with FeatureFile.open(tmp_path / "f.h5") as file:
        assert sorted(file.ids) == sorted(one.id for one in library.videos(state="ready"))
        file.verify()
    other = toy.make(tmp_path / "other")
    report = other.import_features(tmp_path / "f.h5")
    assert (report.added, report.frames, report.failed) == (5, 2 + 3 + 3 + 4 + 9, ())
    assert other.videos() == library.videos(state="ready")
    assert other.info().contents == 4
    toy.check(other)
    assert other.import_features(tmp_path / "f.h5").unchanged == 5
    again = other.add([folder])
    assert (again.unchanged, len(again.failed)) == (5, 1)
    with pytest.raises(StorageError, match="is there already"):
        library.export(tmp_path / "f.h5")


def test_a_folder_that_is_not_there_is_not_made(library: Library, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written: '.*deep' is no folder\. Make it first"):
        library.export(tmp_path / "deep" / "f.h5")
    with pytest.raises(StorageError, match="is no folder"):
        library.export(tmp_path / "videos" / "0.mp4" / "f.h5")
    assert not (tmp_path / "deep").exists()


def test_videos_whose_files_are_elsewhere_are_found_when_they_are_added(
    library: Library, tmp_path: Path, folder: Path
) -> None:
    library.export(tmp_path / "f.h5")
    folder.rename(tmp_path / "moved")
    other = toy.make(tmp_path / "other")
    other.import_features(tmp_path / "f.h5")
    assert other.info().missing == 5
    report = other.add([tmp_path / "moved"])
    assert (report.moved, report.added, report.frames) == (5, 0, 0)
    toy.check(other)


def test_features_that_would_not_mix_are_refused(library: Library, tmp_path: Path) -> None:
    library.export(tmp_path / "f.h5")
    for settings, message in (
        (replace(toy.SETTINGS, model="elsewhere/third"), "another model "),
        (replace(toy.SETTINGS, fps=2.0), "another fps"),
        (replace(toy.SETTINGS, model_digest="x"), "another model's weights"),
    ):
        other = toy.make(tmp_path / message, settings)
        with pytest.raises(StorageError, match=message):
            other.import_features(tmp_path / "f.h5")
        assert other.info().videos == 0
    with FeatureWriter(tmp_path / "published.h5") as writer:
        writer.add("a", Features(torch.ones(2, 2, 32)))
    with pytest.raises(StorageError, match="does not say with which model"):
        library.import_features(tmp_path / "published.h5")
    with FeatureWriter(tmp_path / "narrow.h5", attributes={"model": "toy", "fps": 1.0}) as writer:
        writer.add("a", Features(torch.ones(2, 2, 16)))
    with pytest.raises(StorageError, match=r"\(2, 16\) regions and dimensions, the library of \(2, 32\)"):
        library.import_features(tmp_path / "narrow.h5")


def test_files_that_extract_wrote_come_in_too(library: Library, tmp_path: Path) -> None:
    features = toy.features_of("video 30 4")
    with FeatureWriter(tmp_path / "extracted.h5", attributes={"model": "toy", "fps": 1.0}) as writer:
        writer.add("deep/x.mp4", features)
        writer.add("deep/y.mp4", Features(features.regions * 2))
    report = library.import_features(tmp_path / "extracted.h5")
    assert report.added == 2
    x, y = (one for one in library.videos(state="missing"))
    assert (x.path, x.duration, y.duration) == (str(tmp_path / "deep" / "x.mp4"), 4.0, 4.0)
    torch.testing.assert_close(library.features(x.id).regions, features.regions)
    assert library.features(y.id).timestamps is None
    toy.write(tmp_path, "deep/x.mp4", 30, 4)
    assert library.add([tmp_path / "deep"]).updated == 1


def test_a_damaged_video_costs_itself_and_a_damaged_record_the_file(library: Library, tmp_path: Path) -> None:
    library.export(tmp_path / "f.h5")
    id = library.videos()[0].id
    with h5py.File(tmp_path / "f.h5", "r+") as h5:
        h5[id].attrs["crc32"] = np.uint32(1)
    other = toy.make(tmp_path / "other")
    report = other.import_features(tmp_path / "f.h5")
    assert (report.added, [path for path, _ in report.failed]) == (4, [id])
    with h5py.File(tmp_path / "f.h5", "r+") as h5:
        h5[id].attrs["record"] = "{}"
    with pytest.raises(StorageError, match=f"the record of '{id}' cannot be read"):
        other.import_features(tmp_path / "f.h5")


def test_a_flipped_bit_of_an_export_is_told_or_changes_nothing(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    library.export(path)
    data = path.read_bytes()
    before = everything(path)
    draw = random.Random(0)
    records = [data.find(record.content_hash.encode()) for record in library.videos(state="ready")]
    assert min(records) > 0
    for place in [*records, *(draw.randrange(len(data)) for _ in range(150))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :])
        try:
            assert everything(path) == before
            assert place not in records
        except StorageError:
            continue


def test_records_of_an_older_release_come_in(library: Library, tmp_path: Path) -> None:
    library.export(tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        for id in list(file):
            text = file[id].attrs["record"].decode()
            del file[id].attrs["record"]
            file[id].attrs["record"] = text  # of variable length
    other = toy.make(tmp_path / "other")
    other.import_features(tmp_path / "f.h5")
    assert other.videos() == library.videos(state="ready")


def everything(path: Path) -> str:
    with FeatureFile.open(path) as file:
        read = {id: file[id] for id in file}
        values = {id: (one.regions.numpy().tobytes(), one.timestamps, one.low_information) for id, one in read.items()}
        return repr((sorted(file.attributes.items()), values, transfer._read_records(path, file)))
