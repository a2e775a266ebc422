from __future__ import annotations

import ast
import errno
import itertools
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.features import FeatureFile, Features, FeatureWriter, join_features, journal
from hapvr.features.feature_writer import convert_features


def drawn(frames: int = 20, regions: int = 3, dims: int = 8, *, seed: int = 0, timed: bool = True) -> Features:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((frames, regions, dims)).astype(np.float32)
    return Features(torch.from_numpy(values), generator.random(frames).cumsum() if timed else None)


def write(path: Path, videos: dict[str, Features], **settings: Any) -> Path:
    with FeatureWriter(path, **{"sync": False, **settings}) as writer:
        for id, features in videos.items():
            writer.add(id, features)
    return path


def assert_same(found: Features, expected: Features) -> None:
    assert torch.equal(found.regions, expected.regions)
    assert (found.timestamps is None) == (expected.timestamps is None)
    if found.timestamps is not None and expected.timestamps is not None:
        assert found.timestamps.tobytes() == expected.timestamps.tobytes()


VIDEOS = {
    "one": drawn(seed=1),
    "a/two": drawn(700, seed=2),
    "a/b/three": drawn(1, seed=3, timed=False),
    "ü 漢/..": drawn(5, seed=4),
}


# --- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["gzip", None])
@pytest.mark.parametrize("sync", [True, False])
def test_float32_comes_back_bit_by_bit_with_its_times(tmp_path: Path, compression: Any, sync: bool) -> None:
    path = write(tmp_path / "new" / "x.h5", VIDEOS, compression=compression, sync=sync)
    with FeatureFile.open(path) as file:
        assert file.ids == list(VIDEOS) == list(file)
        assert len(file) == 4
        assert file.lengths == {"one": 20, "a/two": 700, "a/b/three": 1, "ü 漢/..": 5}
        assert file.dims == (3, 8)
        assert "a/two" in file
        assert "a" not in file
        for id, features in VIDEOS.items():
            assert_same(file[id], features)
        streamed = dict(file.stream(prefetch=2, workers=2))
        file.verify()
    assert list(streamed) == list(VIDEOS)
    for id, features in VIDEOS.items():
        assert_same(streamed[id], features)
    assert [entry.name for entry in path.parent.iterdir()] == ["x.h5"]  # no journal is left


@pytest.mark.parametrize("compression", ["gzip", None])
def test_float16_comes_back_rounded(tmp_path: Path, compression: Any) -> None:
    path = write(tmp_path / "x.h5", VIDEOS, dtype="float16", compression=compression)
    with FeatureFile.open(path) as file, FeatureFile.open(path, dtype=None) as stored:
        for id, features in VIDEOS.items():
            assert file[id].regions.dtype == torch.float32
            assert torch.equal(file[id].regions, features.regions.half().float())
            assert stored[id].regions.dtype == torch.float16
        assert all(torch.equal(found.regions, file[id].regions) for id, found in file.stream())


@pytest.mark.parametrize("compression", ["gzip", None])
def test_int8_comes_back_within_half_a_step(tmp_path: Path, compression: Any) -> None:
    path = write(tmp_path / "x.h5", VIDEOS, dtype="int8", compression=compression)
    with FeatureFile.open(path) as file, FeatureFile.open(path, dtype=None) as stored:
        assert file.lengths == {id: len(features) for id, features in VIDEOS.items()}
        for id, features in VIDEOS.items():
            found = file[id]
            assert found.regions.dtype == stored[id].regions.dtype == torch.float32
            for vector, exact in zip(*(one.regions.view(-1, 8).tolist() for one in (found, features)), strict=True):
                step = max(abs(value) for value in exact) / 127
                assert all(abs(a - b) <= 0.5001 * step for a, b in zip(vector, exact, strict=True))
                assert all(abs(a / step - round(a / step)) < 1e-4 for a in vector)
            assert (found.timestamps is None) == (features.timestamps is None)
        assert all(torch.equal(found.regions, file[id].regions) for id, found in file.stream(workers=2))
        file.verify()


def test_codes_by_hand_and_vectors_of_zeros(tmp_path: Path) -> None:
    values = torch.tensor([[[2.54, -1.0, 0.031], [0.0, 0.0, 0.0]]])
    path = write(tmp_path / "x.h5", {"x": Features(values)}, dtype="int8", compression=None)
    with h5py.File(path) as h5:
        assert h5["x"][:].tolist() == [[[127, -50, 2], [0, 0, 0]]]
        assert h5["x"].attrs["scales"].tolist() == [[pytest.approx(0.02), 0.0]]
        assert h5["x"].chunks is None  # one direct read
        assert h5.attrs["hapvr_version"] == 2
    with FeatureFile.open(path) as file:
        assert file["x"].regions.flatten().tolist() == pytest.approx([2.54, -1.0, 0.04, 0, 0, 0])


@pytest.mark.parametrize("scales", [
    np.ones((2, 1), np.float32), np.ones((1, 2)), np.array([[1, np.nan]], np.float32), np.array([[1, -1]], np.float32),
    np.array([[1, 2]], np.float32),
])  # fmt: skip
def test_scales_that_cannot_be_are_refused(tmp_path: Path, scales: Any) -> None:
    path = write(tmp_path / "x.h5", {"x": Features(torch.ones(1, 2, 3))}, dtype="int8")
    with h5py.File(path, "r+") as h5:
        h5["x"].attrs["scales"] = scales
    with FeatureFile.open(path) as file, pytest.raises(StorageError, match=r"'x' cannot be used: .*(scales|written)"):
        file["x"]


def test_features_are_converted_with_all_they_have(tmp_path: Path) -> None:
    flags = np.arange(20) % 3 == 0
    videos = {**VIDEOS, "flagged": Features(drawn(seed=9).regions, None, flags)}
    source = write(tmp_path / "x.h5", videos, attributes={"model": "lite", "fps": 1.0})
    output, done = tmp_path / "c.h5", []
    assert convert_features(source, output, progress=lambda *counts: done.append(counts)) == 5
    assert done == [(number, 5) for number in range(1, 6)]
    with FeatureFile.open(source) as before, FeatureFile.open(output) as after:
        assert after.attributes == {"model": "lite", "fps": 1.0}
        assert after.ids == before.ids
        for id in before:
            torch.testing.assert_close(after[id].regions, before[id].regions, rtol=0, atol=3.2 / 127)
            stamps = before[id].timestamps
            assert stamps is None or np.array_equal(stamps, after[id].timestamps)  # type: ignore[arg-type]
        assert np.array_equal(after["flagged"].low_information, flags)  # type: ignore[arg-type]
    size = output.stat().st_size
    assert convert_features(source, output) == 5  # nothing is left to do
    assert output.stat().st_size == size
    convert_features(source, tmp_path / "h.h5", dtype="float16")
    with FeatureFile.open(tmp_path / "h.h5", dtype=None) as half:
        assert torch.equal(half["one"].regions, VIDEOS["one"].regions.half())


def test_a_conversion_goes_on_and_refuses_the_file_of_another(tmp_path: Path) -> None:
    source = write(tmp_path / "x.h5", VIDEOS)
    write(tmp_path / "c.h5", {"one": VIDEOS["one"]}, dtype="int8", compression=None)
    assert convert_features(source, tmp_path / "c.h5") == 4
    write(tmp_path / "other.h5", {"elsewhere": VIDEOS["one"]}, dtype="int8")
    with pytest.raises(StorageError, match=r"other\.h5' has 'elsewhere', which .*x\.h5' lacks"):
        convert_features(source, tmp_path / "other.h5")


def test_halves_and_doubles_are_taken(tmp_path: Path) -> None:
    regions = drawn().regions
    path = write(tmp_path / "x.h5", {"half": Features(regions.half()), "brain": Features(regions.bfloat16()),
                                     "double": Features(regions.double())})  # fmt: skip
    with FeatureFile.open(path) as file:
        assert torch.equal(file["half"].regions, regions.half().float())
        assert torch.equal(file["brain"].regions, regions.bfloat16().float())
        assert torch.equal(file["double"].regions, regions)


@pytest.mark.parametrize("frames", [1, 2, 20_000])
def test_times_of_very_long_videos_are_kept(tmp_path: Path, frames: int) -> None:
    features = drawn(frames, 1, 2)
    path = write(tmp_path / "x.h5", {"long": features, "short": drawn(2, 1, 2)})
    with FeatureFile.open(path) as file:
        assert_same(file["long"], features)


@given(ids=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), max_size=8))
def test_any_id_is_stored_as_it_is_or_refused(ids: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ids") / "x.h5"
    features = drawn(1)
    kept = []
    with FeatureWriter(path, sync=False) as writer:
        for id in ids:
            try:
                writer.add(id, features)
            except (DataError, StorageError):
                continue
            kept.append(id)
    with FeatureFile.open(path) as file:
        assert sorted(file) == sorted(kept)
        assert all(len(file[id]) == 1 for id in kept)


def test_a_very_long_id_is_stored(tmp_path: Path) -> None:
    with FeatureFile.open(write(tmp_path / "x.h5", {"漢" * 8192: drawn()})) as file:
        assert_same(file["漢" * 8192], drawn())


def test_a_stream_follows_the_ids_it_is_given_and_can_be_left_early(tmp_path: Path) -> None:
    with FeatureFile.open(write(tmp_path / "x.h5", VIDEOS)) as file:
        assert [id for id, _ in file.stream(["a/two", "one", "a/two"], prefetch=1)] == ["a/two", "one", "a/two"]
        assert next(file.stream())[0] == "one"
        with pytest.raises(StorageError, match="no video 'x'"):
            list(file.stream(["one", "x"]))
        with pytest.raises(ConfigError, match="prefetch"):
            list(file.stream(prefetch=0))


# --- the public layout ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [
    {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {}, {"chunks": True}, {"compression": "lzf"},
    {"compression": "gzip", "fletcher32": True}, {"dtype": ">f4", "compression": "gzip"},
])  # fmt: skip
@pytest.mark.parametrize("shape", [(107, 9, 512), (33, 512)])
def test_reads_files_as_they_are_published(tmp_path: Path, packing: dict[str, Any], shape: tuple[int, ...]) -> None:
    values = {f"events/{number}/v": np.random.default_rng(number).random(shape, np.float32) for number in range(2)}
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        for id, array in values.items():
            h5.create_dataset(id, data=array, **packing)
    with FeatureFile.open(tmp_path / "x.h5") as file:
        assert file.dims == ((9, 512) if len(shape) == 3 else (1, 512))
        assert file.attributes == {}
        streamed = dict(file.stream())
        for id, array in values.items():
            expected = array if array.ndim == 3 else array[:, None]
            assert np.array_equal(file[id].regions.numpy(), expected)
            assert np.array_equal(streamed[id].regions.numpy(), expected)
            assert file[id].timestamps is None


@pytest.mark.parametrize("compression", ["gzip", None])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_plain_h5py_reads_our_files_as_the_public_layout(tmp_path: Path, compression: Any, dtype: Any) -> None:
    write(tmp_path / "x.h5", VIDEOS, compression=compression, dtype=dtype)
    found: dict[str, Any] = {}
    with h5py.File(tmp_path / "x.h5", "r") as h5:
        h5.visititems(lambda id, thing: found.update({id: thing[:]}) if isinstance(thing, h5py.Dataset) else None)
        assert h5["one"].compression == compression
    assert set(found) == set(VIDEOS)
    for id, features in VIDEOS.items():
        assert found[id].dtype == dtype
        assert np.array_equal(found[id], features.regions.numpy().astype(dtype))


def test_appends_to_a_published_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    published = np.random.default_rng(0).random((30, 3, 8), np.float32)
    with h5py.File(path, "w") as h5:
        for number in range(50):
            h5.create_dataset(f"p/{number}", data=published, compression="gzip")
    write(path, {"p/new": drawn(20_000), **VIDEOS})
    with FeatureFile.open(path) as file:
        assert len(file) == 55
        assert_same(file["p/new"], drawn(20_000))
        assert np.array_equal(file["p/49"].regions.numpy(), published)
        file.verify()


# --- what does not mix ----------------------------------------------------------------------------------------------


def test_a_second_writer_appends_and_knows_what_is_done(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", {"one": drawn()}, attributes={"model": "lite", "fps": 1.0, "flip": True, "n": 3})
    with FeatureWriter(path, attributes={"model": "lite", "fps": 1}) as writer:
        assert writer.done_ids() == {"one"}
        writer.add("two", drawn(seed=2))
        assert writer.done_ids() == {"one", "two"}
    with FeatureFile.open(path) as file:
        assert file.attributes == {"model": "lite", "fps": 1.0, "flip": True, "n": 3}
        assert_same(file["one"], drawn())
        assert_same(file["two"], drawn(seed=2))


@pytest.mark.parametrize(("settings", "message"), [
    ({"attributes": {"model": "r50"}}, "model 'lite', not with model 'r50'"),
    ({"attributes": {"model": "lite", "fps": 2.0}}, "no fps, not with fps 2.0"),
    ({"dims": (9, 512)}, "3 regions x 8 dims .* not of 9 regions x 512 dims"),
    ({"dtype": "float16"}, "holds float32 features"),
])  # fmt: skip
def test_a_writer_refuses_a_file_of_other_features(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "x.h5", {"one": drawn()}, attributes={"model": "lite"})
    before = path.read_bytes()
    with pytest.raises(StorageError, match=message):
        FeatureWriter(path, **settings)
    assert path.read_bytes() == before


def test_a_writer_refuses_videos_of_other_dims_and_goes_on(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "x.h5", dims=(3, 8)) as writer:
        with pytest.raises(StorageError, match="takes features of 3 regions x 8 dims, 'x' has 4 regions x 8 dims"):
            writer.add("x", drawn(regions=4))
        writer.add("x", drawn())


def test_a_file_of_two_kinds_of_features_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        h5["a"] = np.zeros((2, 9, 8), np.float32)
        h5["b"] = np.zeros((2, 9, 4), np.float32)
    with pytest.raises(StorageError, match=r"mixes features of 9 regions x 8 dims \('a'\) and of 9 regions x 4 dims"):
        FeatureFile.open(tmp_path / "x.h5")


def test_ids_are_unique_and_a_name_is_a_video_or_a_folder(tmp_path: Path) -> None:
    with FeatureWriter(write(tmp_path / "x.h5", {"a/b": drawn(), "c": drawn()}), sync=False) as writer:
        with pytest.raises(StorageError, match="has 'c' already"):
            writer.add("c", drawn())
        with pytest.raises(StorageError, match=r"cannot hold both 'a' and 'a/b'.*Rename"):
            writer.add("a", drawn())
        with pytest.raises(StorageError, match="cannot hold both 'c' and 'c/d/e'"):
            writer.add("c/d/e", drawn())
        writer.add("d/e", drawn())
        with pytest.raises(StorageError, match="cannot hold both 'd' and 'd/e'"):
            writer.add("d", drawn())
        assert writer.done_ids() == {"a/b", "c", "d/e"}


@pytest.mark.parametrize("id", ["", "/a", "a/", "a//b", ".", "a/./b", "a\0b", "\ud800", "x" * 8193, 7])
def test_ids_that_hdf5_would_change_are_refused(tmp_path: Path, id: Any) -> None:
    with FeatureWriter(tmp_path / "x.h5") as writer, pytest.raises(DataError, match=r"id"):
        writer.add(id, drawn())


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for settings in ({"dtype": "float64"}, {"compression": "lzf"}, {"attributes": {"x": [1]}}, {"attributes": {"": 1}},
                     {"attributes": {"x": "\ud800"}}, {"attributes": {"x": "x" * 40_000}}):  # fmt: skip
        with pytest.raises(ConfigError):
            FeatureWriter(tmp_path / "x.h5", **settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(dtype: torch.dtype, bad: float) -> None:
    regions = torch.zeros(4, 3, 8, dtype=dtype)
    regions[2, 1, 5] = bad
    with pytest.raises(DataError, match="holds 1 NaN or infinite of 96 values"):
        Features(regions)


def test_features_check_themselves() -> None:
    regions = torch.zeros(2, 3, 8)
    for wrong in (regions[0], regions.int(), None):
        with pytest.raises(ShapeError, match="regions must be"):
            Features(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one value"):
        Features(torch.zeros(0, 9, 512))
    for times in (np.zeros(3), np.zeros(2, np.float32), [0.0, 1.0]):
        with pytest.raises(ShapeError, match=r"timestamps must be a float64 array \[2\]"):
            Features(regions, times)  # type: ignore[arg-type]
    for values in ([0.0, 0.0], [1.0, 0.0], [0.0, np.nan]):
        with pytest.raises(DataError, match="strictly increasing"):
            Features(regions, np.array(values))


def test_values_beyond_float16_are_refused_in_its_files(tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "x.h5", dtype="float16") as writer:
        with pytest.raises(DataError, match="hold 70000; float16 ends at 65504"):
            writer.add("x", Features(torch.full((1, 1, 1), -70_000.0)))
        writer.add("x", Features(torch.full((1, 1, 1), 65_000.0)))


# --- files that cannot be used --------------------------------------------------------------------------------------


def test_what_is_no_feature_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        FeatureFile.open(tmp_path / "none.h5")
    with pytest.raises(StorageError, match="is a folder"):
        FeatureFile.open(tmp_path)
    for content in (b"", b"hello", b"\x89HDF\r\n\x1a\n", b"x" * 10_000):
        (tmp_path / "x.h5").write_bytes(content)
        with pytest.raises(StorageError, match=r"x\.h5' is not a readable HDF5 file"):
            FeatureFile.open(tmp_path / "x.h5")
        with pytest.raises(StorageError, match=r"x\.h5' is not a readable HDF5 file"):
            FeatureWriter(tmp_path / "x.h5")
        assert (tmp_path / "x.h5").read_bytes() == content


def test_missing_ids_and_closed_files_are_named(tmp_path: Path) -> None:
    with (
        FeatureFile.open(write(tmp_path / "x.h5", VIDEOS)) as file,
        pytest.raises(StorageError, match="no video 'two'"),
    ):
        file["two"]
    with pytest.raises(StorageError, match="has been closed"):
        file["one"]


@pytest.mark.parametrize(("value", "message"), [
    (np.zeros((2, 9, 8)), "float64, not float32"),
    (np.zeros((2, 9, 8), np.int32), "int32, not float32"),
    (np.zeros((2, 9, 8), np.uint8), "uint8, not float32"),
    (np.zeros((2, 9, 8), np.int8), "int8 without the attribute 'scales'"),
    (np.float32(1), r"shape is \[\]"),
    (np.zeros(5, np.float32), r"shape is \[5\]"),
    (np.zeros((1, 1, 1, 1), np.float32), r"shape is \[1, 1, 1, 1\]"),
    (np.zeros((0, 9, 8), np.float32), r"shape is \[0, 9, 8\]"),
    (np.dtype("f4"), "neither a dataset nor a group"),
    (h5py.SoftLink("/elsewhere"), "link to elsewhere"),
    (h5py.ExternalLink("other.h5", "/x"), "link to elsewhere"),
])  # fmt: skip
def test_things_that_are_no_features_are_refused_on_opening(tmp_path: Path, value: Any, message: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        h5["g/bad"] = value
    with pytest.raises(StorageError, match=r"x\.h5': 'g/bad' .*" + message):
        FeatureFile.open(tmp_path / "x.h5")


def test_a_header_that_promises_more_than_the_file_can_hold_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        h5.create_dataset("big", shape=(10**9, 9, 512), dtype="f4", chunks=(16, 9, 512))
    with pytest.raises(StorageError, match=r"'big' .*more than the file can hold"):
        FeatureFile.open(tmp_path / "x.h5")


def test_values_that_were_never_written_or_not_finite_are_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as h5:
        h5["nan"] = np.full((4, 2, 2), np.nan, np.float32)
        h5.create_dataset("hole", shape=(4, 2, 2), dtype="f4")
        h5.create_dataset("part", shape=(4, 2, 2), dtype="f4", chunks=(2, 2, 2), compression="gzip")[:2] = 1
        h5["times"] = np.ones((4, 2, 2), np.float32)
        h5["times"].attrs["timestamps"] = np.zeros(3)
        h5["fine"] = np.ones((4, 2, 2), np.float32)
    with FeatureFile.open(path) as file:
        for id, message in {"nan": "16 NaN", "hole": "only 0 of 64 bytes", "part": "only 1 of 2 pieces",
                            "times": "timestamps must be"}.items():  # fmt: skip
            with pytest.raises(StorageError, match=rf"x\.h5': the features of '{id}' .*{message}"):
                file[id]
            with pytest.raises(StorageError, match=message):
                list(file.stream([id]))
        assert len(file["fine"]) == 4
        with pytest.raises(StorageError, match="4 of 5 videos that cannot be used: 'nan', 'hole', 'part', 'times'"):
            file.verify()


@pytest.mark.parametrize("damage", ["short", "cut", "long"])
def test_a_piece_that_does_not_unpack_to_its_size_is_refused(tmp_path: Path, damage: str) -> None:
    values = np.random.default_rng(0).random((4, 2, 8), np.float32)
    packed = zlib.compress(values.tobytes()[:-4] if damage == "short" else values.tobytes() + bytes(damage == "long"))
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        dataset = h5.create_dataset("x", shape=(4, 2, 8), dtype="f4", chunks=(4, 2, 8), compression="gzip")
        dataset.id.write_direct_chunk((0, 0, 0), packed[:-3] if damage == "cut" else packed)
    with FeatureFile.open(tmp_path / "x.h5") as file, pytest.raises(StorageError, match="a piece of it is damaged"):
        list(file.stream())


def test_values_in_another_file_are_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    with h5py.File(tmp_path / "x.h5", "w") as h5:
        h5.create_dataset("outside", shape=(4, 2, 2), dtype="f4", external=[(str(tmp_path / "secret"), 0, 64)])
    with FeatureFile.open(tmp_path / "x.h5") as file, pytest.raises(StorageError, match="lie in another file"):
        file["outside"]


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", VIDEOS)
    with h5py.File(path, "r+") as h5:
        assert h5.attrs["hapvr_version"] == 1  # without codes, earlier versions of hapvr read it
        h5.attrs["hapvr_version"] = 3
    with pytest.raises(StorageError, match="version 3 of this layout; this hapvr reads 2"):
        FeatureFile.open(path)


def test_readers_and_writers_keep_out_of_each_others_way(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", VIDEOS)
    with FeatureFile.open(path), FeatureFile.open(path), pytest.raises(StorageError, match="in use by another"):
        FeatureWriter(path)
    with FeatureWriter(path) as writer:
        writer.add("new", drawn())
        with pytest.raises(StorageError, match="in use by another"):
            FeatureWriter(path)
        with pytest.raises(StorageError, match="in use by another"):
            FeatureFile.open(path)
        with pytest.raises(BlockingIOError):
            h5py.File(path, "r")
    with FeatureFile.open(path) as file:
        assert len(file) == 5


@pytest.mark.parametrize("call", [1, 3, 8])
@pytest.mark.parametrize("name", ["seek", "write"])
def test_ctrl_c_within_hdf5_waits_until_the_video_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    calls = itertools.count(1)
    plain = getattr(journal.JournaledFile, name)

    def interrupted(self: Any, *args: Any) -> Any:
        if next(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return plain(self, *args)

    with FeatureWriter(tmp_path / "x.h5", sync=False) as writer:
        writer.add("before", VIDEOS["one"])
        with monkeypatch.context() as patch:
            patch.setattr(journal.JournaledFile, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.add("a/two", VIDEOS["a/two"])
        writer.add("after", VIDEOS["one"])
    assert next(calls) > call
    with FeatureFile.open(tmp_path / "x.h5") as file:
        assert set(file) == {"before", "a/two", "after"}
        assert_same(file["a/two"], VIDEOS["a/two"])


DAMAGE = """
import signal, sys
import torch
from hapvr.errors import StorageError
from hapvr.features import FeatureFile

path, step = sys.argv[1], int(sys.argv[2])
data = open(path, "rb").read()
with FeatureFile.open(path) as file:
    expected = {id: file[id].regions for id in file}

def use(copy):
    with FeatureFile.open(copy) as file:
        for id, features in [*file.stream(workers=1), *((id, file[id]) for id in file)]:
            if id in expected and not torch.equal(features.regions, expected[id]):
                return "other values"
    return "no harm"

outcomes = {}
cuts, flips = range(0, len(data), 4 * step), range(0, len(data), step)
for kind, at in [*(("cut", at) for at in cuts), *(("flip", at) for at in flips)]:
    changed = bytearray(data[:at]) if kind == "cut" else bytearray(data)
    if kind == "flip":
        changed[at] ^= (0xFF, 0x01, 0x80)[at % 3]
    open(path + ".damaged", "wb").write(changed)
    print(kind, at, flush=True)  # the last line, should HDF5 crash, or hang until the alarm ends it
    signal.alarm(20)
    try:
        outcome = use(path + ".damaged")
    except StorageError as error:
        outcome = "typed error" if path in str(error) else repr(error)
    except BaseException as error:
        outcome = repr(error)
    outcomes[kind, outcome] = outcomes.get((kind, outcome), 0) + 1
print(outcomes)
"""


@pytest.mark.parametrize("written_by", ["us, gzip", "us, uncompressed", "us, int8", "others"])
def test_damage_anywhere_is_a_typed_error_or_does_no_harm(tmp_path: Path, written_by: str) -> None:
    path = tmp_path / "x.h5"
    if written_by == "others":
        with h5py.File(path, "w") as h5:
            for id, features in VIDEOS.items():
                h5.create_dataset(id, data=features.regions[:20].numpy(), compression="gzip", chunks=(1, 3, 8))
    else:
        small = {id: Features(features.regions[:20]) for id, features in VIDEOS.items()}
        dtype, packing = "int8" if "int8" in written_by else "float32", "gzip" if "gzip" in written_by else None
        write(path, small, dtype=dtype, compression=packing, attributes={"model": "x"})
    outcomes = program(DAMAGE, str(path), str(max(1, path.stat().st_size // 300)))
    counts: dict[tuple[str, str], int] = ast.literal_eval(outcomes.splitlines()[-1])
    if written_by == "others":  # without checksums HDF5 may be told another piece, or that it is not packed
        assert counts.pop(("flip", "other values"), 0) < 8
    assert set(counts) <= {("cut", "typed error"), ("flip", "typed error"), ("flip", "no harm")}, counts
    assert counts["cut", "typed error"] >= 70
    assert counts["flip", "typed error"] > 40


# --- being killed ---------------------------------------------------------------------------------------------------

WRITER = """
import itertools, os, random, signal, sys, time
import h5py  # here, not in every child
import numpy as np
import torch
from hapvr.features import FeatureFile, Features, FeatureWriter, journal

path, compression, videos = sys.argv[1], sys.argv[2] if sys.argv[2] != "None" else None, int(sys.argv[3])

def drawn(number):
    generator = np.random.default_rng(number)
    frames = int(generator.integers(1, 60))
    values = generator.standard_normal((frames, 3, 64)).astype(np.float32)
    return Features(torch.from_numpy(values), generator.random(frames).cumsum())

def id_of(number):
    return (f"v{number}", f"g/{number}", f"g/h{number % 5}/{number}")[number % 3]

numbers = {id_of(number): number for number in range(10_000)}

def write(acknowledge, count):
    with FeatureWriter(path, compression=compression, sync=False) as writer:
        done = writer.done_ids()
        for number in range(count):
            if id_of(number) not in done:
                writer.add(id_of(number), drawn(number))
                os.write(acknowledge, number.to_bytes(4, "little"))

def in_child(work):
    "Run `work(acknowledge)` in a child; yields it, then returns which numbers it acknowledged before it ended."
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            work(writing)
            os._exit(0)
        except BaseException as error:
            print("the writer failed:", repr(error), flush=True)
            os._exit(1)
    os.close(writing)
    return child, reading

def acknowledged(reading):
    data = b""
    while block := os.read(reading, 1 << 16):
        data += block
    os.close(reading)
    return {int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)}

def check(safe):
    "Everything acknowledged is there, bit by bit; at most one more, and that one whole."
    if not os.path.exists(path):
        assert not safe
        return set()
    with FeatureFile.open(path) as file:
        found = {numbers[id] for id in file}
        assert safe <= found, sorted(safe - found)
        assert len(found) <= len(safe) + 1
        for id in file:
            features, expected = file[id], drawn(numbers[id])
            assert torch.equal(features.regions, expected.regions), id
            assert np.array_equal(features.timestamps, expected.timestamps), id
    return found
"""

KILLED = (
    WRITER
    + """
chance, safe = random.Random(0), set()
for _ in range(16):
    child, reading = in_child(lambda acknowledge: write(acknowledge, videos))
    begun = os.read(reading, 4) if chance.random() < 0.8 else b""  # else perhaps before its first video
    time.sleep(chance.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    safe = check(safe | acknowledged(reading) | ({int.from_bytes(begun, "little")} if begun else set()))
print("safe", len(safe))
"""
)

STOPPED = (
    WRITER
    + """
whole = journal._write_at

def stopped_at(stop, acknowledge):
    calls = itertools.count()
    def write_at(file, offset, data):
        if next(calls) == stop:
            whole(file, offset, data[: len(data) // 2])
            os._exit(9)
        whole(file, offset, data)
    journal._write_at = write_at
    write(acknowledge, videos)

for stop in itertools.count():
    for name in os.listdir(os.path.dirname(path)):
        os.unlink(os.path.join(os.path.dirname(path), name))
    child, reading = in_child(lambda acknowledge: stopped_at(stop, acknowledge))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    safe = check(acknowledged(reading))
    if code == 0:
        break
    assert code == 9
    if stop % 5 == 0:  # and the next writer goes on from there
        child, reading = in_child(lambda acknowledge: write(acknowledge, videos))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(check(safe | acknowledged(reading))) == videos
print("stops", stop)
"""
)


def program(source: str, *arguments: str) -> str:
    """Run a program that forks: not in this process, which has threads."""
    run = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_a_writer_killed_at_random_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    safe = int(program(KILLED, str(tmp_path / "x.h5"), "gzip", "10000").split()[-1])
    assert safe >= 10  # most children live until their first video is acknowledged, however slow the machine is


@pytest.mark.parametrize(("compression", "videos"), [("gzip", 7), ("None", 4)])
def test_a_writer_stopped_in_the_middle_of_any_write_loses_nothing_it_acknowledged(
    tmp_path: Path, compression: str, videos: int
) -> None:
    stops = int(program(STOPPED, str(tmp_path / "x.h5"), compression, str(videos)).split()[-1])
    assert stops > 4 * videos


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Call it with n: the n-th write from then on fails, as on a full disk."""
    whole = journal._write_at

    def fail_at(stop: int) -> None:
        calls = itertools.count()

        def write_at(file: Any, offset: int, data: Any) -> None:
            if next(calls) == stop:
                whole(file, offset, data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            whole(file, offset, data)

        monkeypatch.setattr(journal, "_write_at", write_at)

    yield fail_at
    monkeypatch.undo()


def test_a_full_disk_is_a_typed_error_and_costs_only_the_video_at_hand(tmp_path: Path, failing: Any) -> None:
    failures = 0
    for stop in range(100):
        path = write(tmp_path / f"{stop}.h5", {"one": drawn(), "g/two": drawn(700)})
        with FeatureWriter(path, sync=False) as writer:
            failing(stop)
            try:
                writer.add("g/new", drawn(300, seed=5))
            except StorageError:
                with pytest.raises(StorageError, match="closed to this writer"):
                    writer.add("other", drawn())
                failures += 1
            else:
                break
        failing(-1)
        with FeatureFile.open(path) as file:
            assert set(file) - {"g/new"} == {"one", "g/two"}
            file.verify()
        with FeatureWriter(path, sync=False) as writer:
            if "g/new" not in writer.done_ids():
                writer.add("g/new", drawn(300, seed=5))
        with FeatureFile.open(path) as file:
            assert_same(file["g/new"], drawn(300, seed=5))
    assert failures > 5


def test_a_journal_of_another_file_is_not_applied(tmp_path: Path, failing: Any) -> None:
    path = write(tmp_path / "x.h5", {"one": drawn()})
    with FeatureWriter(path, sync=False) as writer:
        failing(5)  # among the pages, after the journal
        with pytest.raises(StorageError, match="No space left on device"):
            writer.add("two", drawn())
    failing(-1)
    journal = tmp_path / "x.h5.journal"
    assert journal.stat().st_size > 0
    other = write(tmp_path / "other.h5", {f"v{number}": drawn() for number in range(50)})
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    with pytest.raises(StorageError, match=r"x\.h5\.journal' belongs to another state of 'x\.h5'"):
        FeatureFile.open(path)
    assert path.read_bytes() == other.read_bytes()
    path.write_bytes(kept)
    with FeatureFile.open(path) as file:
        assert set(file) == {"one", "two"}
    assert not journal.exists()


def test_flags_of_frames_that_say_nothing_are_kept_and_checked(tmp_path: Path) -> None:
    path, flags = tmp_path / "a.h5", np.array([True, False, False])
    with FeatureWriter(path, sync=False) as writer:
        writer.add("told", Features(torch.ones(3, 9, 4), None, flags))
        writer.add("untold", Features(torch.ones(3, 9, 4)))
    with FeatureFile.open(path) as file:
        assert file["told"].low_information.tolist() == [True, False, False]  # type: ignore[union-attr]
        assert file["untold"].low_information is None
    parts = [Features(torch.ones(3, 9, 4), None, flags), Features(torch.ones(1, 9, 4), None, np.array([True]))]
    assert join_features(parts).low_information.tolist() == [True, False, False, True]  # type: ignore[union-attr]
    assert join_features([parts[0], Features(torch.ones(1, 9, 4))]).low_information is None
    with pytest.raises(ShapeError, match=r"low_information must be a bool array \[3\]"):
        Features(torch.ones(3, 9, 4), None, np.array([1, 0, 0]))
    for wrong in (np.array([2, 0, 0], np.uint8), np.array([1, 0], np.uint8), np.array([1.0, 0.0, 0.0])):
        with h5py.File(path, "r+") as h5:
            h5["told"].attrs["low_information"] = wrong
        with (
            FeatureFile.open(path) as file,
            pytest.raises(StorageError, match=r"'told' cannot be used.*low_information"),
        ):
            file["told"]
