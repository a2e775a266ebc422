from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.features import PackedFrames, PackedWriter

Images = NDArray[np.uint8]


def drawn(frames: int = 7, height: int = 24, width: int = 40, *, seed: int = 0) -> tuple[Images, NDArray[np.float64]]:
    """Smooth pictures, as those of a camera are: JPEG keeps them within a few grey levels."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (frames, 3, 5, 3), dtype=np.uint8)
    images = [np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)) for image in coarse]
    return np.stack(images), generator.random(frames).cumsum()


def jpeg(image: Images, quality: int = 90) -> Images:
    """What is left of a picture after JPEG, by Pillow alone."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


IDS = ["plain", "a/b", "../../etc/passwd", "/abs", "", "漢字 ü\n\"'", "x" * 5000, "nul\0", "frames-00000.tar", "con"]


def pack(folder: Path, ids: list[str], **settings: Any) -> dict[str, tuple[Images, NDArray[np.float64]]]:
    videos = {id: drawn(3 + 5 * number, 24 + number, 40, seed=number) for number, id in enumerate(ids)}
    with PackedWriter(folder, **settings) as writer:
        for id, (images, times) in videos.items():
            writer.add(id, images, times)
    return videos


# --- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_mib", [15, 0.02])
def test_frames_come_back_as_jpeg_leaves_them_and_times_exactly(tmp_path: Path, shard_mib: float) -> None:
    videos = pack(tmp_path / "new", IDS, shard_mib=shard_mib)
    packed = PackedFrames.open(tmp_path / "new", workers=2)
    assert packed.ids == IDS == list(packed)
    assert len(packed) == len(IDS)
    assert packed.lengths == {id: len(images) for id, (images, _) in videos.items()}
    assert "a/b" in packed
    assert "a" not in packed
    assert packed.incomplete == []
    loaded = {id: (images, times) for id, images, times in packed.load_all()}
    assert list(loaded) == IDS
    for id, (images, times) in videos.items():
        found, found_times = packed.frames(id)
        expected = np.stack([jpeg(image) for image in images])
        assert np.array_equal(found, expected)
        assert np.abs(found.astype(int) - images).mean() < 3
        assert found_times.tobytes() == times.tobytes() == packed[id].timestamps.tobytes()
        assert np.array_equal(packed.frame(id, 1), expected[1])
        assert np.array_equal(packed.frame(id, -1), expected[-1])
        assert np.array_equal(loaded[id][0], expected)
        assert np.array_equal(loaded[id][1], times)
    packed.verify()


@pytest.mark.parametrize("shard_mib", [0.02, 0.005])
def test_shards_are_ordinary_tars_no_larger_than_allowed(tmp_path: Path, shard_mib: float) -> None:
    videos = pack(tmp_path, IDS, shard_mib=shard_mib)
    shards = sorted(tmp_path.glob("*.tar"))
    assert len(shards) > 4
    names = []
    for shard in shards:
        assert shard.stat().st_size <= shard_mib * 2**20
        with tarfile.open(shard) as tar:
            for member in tar:
                assert member.isfile()
                names.append(member.name)
                file = tar.extractfile(member)
                assert file is not None
                Image.open(file).load()
        listed = subprocess.run(["tar", "tf", shard], capture_output=True, text=True, check=True)
        assert listed.stderr == ""
        assert listed.stdout.split()[0] == "000000/" + listed.stdout.split()[0][-10:]
    assert len(names) == sum(len(images) for images, _ in videos.values())
    assert all(len(name) == 17 and ".." not in name for name in names)
    assert {path.suffix for path in tmp_path.iterdir()} == {".tar", ".json"}


@given(
    id=st.text(st.characters(exclude_categories=["Cs"])), times=st.sets(st.floats(-1e9, 1e9), min_size=1, max_size=5)
)
def test_any_id_and_any_times_come_back(id: str, times: set[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    images = np.zeros((len(times), 2, 2, 3), np.uint8)
    with PackedWriter(folder, workers=1) as writer:
        writer.add(id, images, np.array(sorted(times)))
    packed = PackedFrames.open(folder)
    assert packed.ids == [id]
    assert packed[id].timestamps.tolist() == sorted(times)
    assert sorted(path.name for path in folder.iterdir()) == ["frames-00000.json", "frames-00000.tar", "frames.json"]


def test_large_frames_are_reduced_and_small_ones_left(tmp_path: Path) -> None:
    images, times = drawn(3, 90, 160)
    with PackedWriter(tmp_path, short_side=45, attributes={"fps": 2.0}) as writer:
        writer.add("wide", images, times)
        writer.add("tall", np.ascontiguousarray(images.transpose(0, 2, 1, 3)), times)
        writer.add("small", images[:, :30, :60], times)
    packed = PackedFrames.open(tmp_path)
    assert packed.attributes == {"fps": 2.0}
    assert packed.frame("wide", 0).shape == (45, 80, 3)
    assert packed.frame("tall", 0).shape == (80, 45, 3)
    assert packed.frame("small", 0).shape == (30, 60, 3)
    reduced = np.asarray(Image.fromarray(images[0]).resize((80, 45), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(packed.frame("wide", 0) - reduced).mean() < 4


@pytest.mark.parametrize("size", [24, 16, 60, 5])
def test_squares_are_the_middle_of_the_frame(tmp_path: Path, size: int) -> None:
    images = np.zeros((2, 24, 48, 3), np.uint8)
    images[:, :, 12:36] = 200  # the middle square is bright, what is beside it dark
    with PackedWriter(tmp_path) as writer:
        writer.add("x", images, np.arange(2.0))
    packed = PackedFrames.open(tmp_path)
    found, _ = packed.frames("x", size=size)
    assert found.shape == (2, size, size, 3)
    assert found[:, :, size // 3 : size - size // 3].min() > 185
    assert np.array_equal(next(packed.load_all(["x"], size=size))[1], found)


def test_loading_follows_the_ids_it_is_given_and_can_be_left_early(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hapvr.video.packed_frames._AHEAD_BYTES", 1)
    pack(tmp_path, IDS)
    packed = PackedFrames.open(tmp_path)
    assert [id for id, _, _ in packed.load_all(["a/b", "plain", "a/b"])] == ["a/b", "plain", "a/b"]
    assert next(packed.load_all())[0] == "plain"
    with pytest.raises(StorageError, match="no video 'x'"):
        list(packed.load_all(["a/b", "x"]))
    with pytest.raises(ConfigError, match="size"):
        list(packed.load_all(size=0))


def test_reads_with_pillow_numpy_and_the_standard_library_alone(tmp_path: Path) -> None:
    pack(tmp_path, IDS)
    program = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'av', 'h5py', 'cv2', 'torchvision'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from hapvr.features import PackedFrames\n"
        "print(sum(len(images) for _, images, _ in PackedFrames.open(sys.argv[1]).load_all()))"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(run.stdout) == sum(3 + 5 * number for number in range(len(IDS)))


# --- resuming -------------------------------------------------------------------------------------------------------


def test_a_second_writer_appends_and_knows_what_is_done(tmp_path: Path) -> None:
    images, times = drawn()
    with PackedWriter(tmp_path) as writer:
        writer.add("one", images, times)
        assert writer.done_ids() == set()  # not yet in a shard
        with pytest.raises(StorageError, match="has 'one' already"):
            writer.add("one", images, times)
        writer.flush()
        assert writer.done_ids() == {"one"}
        with pytest.raises(StorageError, match="in use by another"):
            PackedWriter(tmp_path)
    with PackedWriter(tmp_path) as writer:
        assert writer.done_ids() == {"one"}
        with pytest.raises(StorageError, match="has 'one' already"):
            writer.add("one", images, times)
        writer.add("two", images[:1], times[:1])
    with pytest.raises(StorageError, match="closed to this writer"):
        writer.add("three", images, times)
    assert PackedFrames.open(tmp_path).lengths == {"one": 7, "two": 1}


@pytest.mark.parametrize("settings", [{"quality": 80}, {"short_side": 20}, {"attributes": {"fps": 2.0}}, {}])
def test_other_settings_do_not_mix(tmp_path: Path, settings: dict[str, Any]) -> None:
    pack(tmp_path, IDS[:2], attributes={"fps": 1.0})
    with pytest.raises(StorageError, match="these do not mix"):
        PackedWriter(tmp_path, **{"attributes": {"fps": 1.0}, **settings} if settings else {})


KILLED = """
import os, random, signal, sys, time
import numpy as np
from hapvr.features import PackedFrames, PackedWriter

folder = sys.argv[1]

def drawn(number):
    return np.random.default_rng(number).integers(0, 256, (1 + 7 * (number % 9), 12, 16, 3), dtype=np.uint8)

def indices():
    return sum(name.endswith(".json") and name != "frames.json" for name in os.listdir(folder))

def write():
    with PackedWriter(folder, shard_mib=0.08, workers=1) as writer:
        done = writer.done_ids()
        for number in range(10_000):
            if str(number) not in done:
                images = drawn(number)
                writer.add(str(number), images, np.arange(len(images), dtype=np.float64))

chance, safe, split = random.Random(1), set(), 0
for _ in range(12):
    child = os.fork()
    if not child:
        try:
            write()
        finally:
            os._exit(1)
    before, deadline = indices(), time.monotonic() + 5
    while indices() < before + 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    if indices():
        packed = PackedFrames.open(folder)
        assert safe <= set(packed)
        safe = set(packed)
        split += bool(packed.incomplete)
with PackedWriter(folder, shard_mib=0.08) as writer:
    assert writer.done_ids() == safe
    for number in range(max(map(int, safe)) + 2):
        if str(number) not in safe:
            images = drawn(number)
            writer.add(str(number), images, np.arange(len(images), dtype=np.float64))
packed = PackedFrames.open(folder)
packed.verify()
assert sorted(map(int, packed)) == list(range(len(packed))), packed.ids
assert not packed.incomplete
assert all(len(images) == 1 + 7 * (int(id) % 9) for id, images, _ in packed.load_all())
names = os.listdir(folder)
assert len(names) == 2 * indices() + 1, names
print(len(safe), split)
"""


def test_a_writer_killed_at_random_keeps_its_shards_and_the_next_goes_on(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[0]) > 10


def test_a_video_begun_by_an_interrupted_writer_is_started_again(tmp_path: Path) -> None:
    images, times = drawn(60)
    with PackedWriter(tmp_path, shard_mib=0.02) as writer:
        writer.add("long", images, times)
    for path in sorted(tmp_path.iterdir())[-3:]:
        path.unlink()  # as if it had been killed before the last shard, and before it closed the folder
    (tmp_path / "frames-00009.tar").write_bytes(b"without an index")
    (tmp_path / "frames-00009.tar.partial").write_bytes(b"half")
    (tmp_path / ".frames-00009.tar.123-0a1b2c3d.part").write_bytes(b"half")
    packed = PackedFrames.open(tmp_path)
    assert packed.ids == []
    assert packed.incomplete == ["long"]
    with PackedWriter(tmp_path, shard_mib=0.02) as writer:
        assert writer.done_ids() == set()
        writer.add("long", images, times)
    packed = PackedFrames.open(tmp_path)
    assert packed.incomplete == []
    assert np.array_equal(packed.frames("long")[0], np.stack([jpeg(image) for image in images]))
    assert not list(tmp_path.glob("*00009*")) + list(tmp_path.glob(".*.part")) + list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_a_typed_error_and_costs_only_the_shard_at_hand(tmp_path: Path, monkeypatch: Any) -> None:
    pack(tmp_path, ["before"])
    with PackedWriter(tmp_path) as writer:
        writer.add("after", *drawn())

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("hapvr.storage.sync_file", full)
        with pytest.raises(StorageError, match=r"frames-00001\.tar' cannot be written: No space left"):
            writer.flush()
    assert PackedFrames.open(tmp_path).ids == ["before"]


# --- what cannot be used --------------------------------------------------------------------------------------------


def test_folders_without_packed_frames_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder"):
        PackedFrames.open(tmp_path / "none")
    with pytest.raises(StorageError, match="holds no packed frames"):
        PackedFrames.open(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be written"):
        PackedWriter(tmp_path / "file")


def test_missing_and_shortened_shards_are_named(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:3])
    shard = tmp_path / "frames-00000.tar"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(StorageError, match=rf"frames-00000\.tar' has {len(data) - 1:,} bytes instead of {len(data):,}"):
        PackedFrames.open(tmp_path)
    shard.write_bytes(data)
    packed = PackedFrames.open(tmp_path)
    shard.unlink()
    with pytest.raises(StorageError, match=r"frames-00000\.tar' cannot be read: No such file"):
        packed.frame("plain", 0)
    with pytest.raises(StorageError, match="1 of 1 shards that are damaged"):
        packed.verify()
    with pytest.raises(StorageError, match=r"frames-00000\.tar' is missing"):
        PackedFrames.open(tmp_path)


def test_a_flipped_byte_anywhere_in_a_shard_is_found(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:2])
    shard = tmp_path / "frames-00000.tar"
    data = shard.read_bytes()
    index = json.loads((tmp_path / "frames-00000.json").read_text())
    inside = {at for part in index["videos"] for offset, size in zip(part["offsets"], part["sizes"], strict=True)
              for at in range(offset, offset + size)}  # fmt: skip
    packed = PackedFrames.open(tmp_path)
    for at in range(0, len(data), len(data) // 150):
        shard.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        with pytest.raises(StorageError, match=r"1 of 1 shards that are damaged \('frames-00000\.tar'\)"):
            packed.verify()
        if at in inside:
            with pytest.raises(StorageError, match=r"frames-00000\.tar': frame \d+ of '.*' is damaged"):
                list(packed.load_all())
        else:
            assert len(list(packed.load_all())) == 2


def test_a_damaged_index_is_a_typed_error_or_does_no_harm(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:2])
    path = tmp_path / "frames-00000.json"
    data = path.read_bytes()
    before = contents(tmp_path)
    refused = 0
    for at in range(0, len(data), len(data) // 200):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :]):
            path.write_bytes(damaged)
            try:
                assert contents(tmp_path) == before
            except StorageError:
                refused += 1
    assert refused > 390


def contents(folder: Path) -> dict[str, Any]:
    """All that a folder says of its videos."""
    packed = PackedFrames.open(folder)
    images = {id: [one.tobytes() for one in packed.frames(id)] for id in packed}
    return images | {"attributes": packed.attributes, "incomplete": packed.incomplete}


def test_an_index_that_is_gone_is_named_if_there_are_later_ones(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:3], shard_mib=0.01)
    assert len(list(tmp_path.glob("*.json"))) > 2
    (tmp_path / "frames-00001.json").unlink()
    with pytest.raises(StorageError, match=r"frames-00001\.json' is missing, though there are later ones"):
        PackedFrames.open(tmp_path)
    with pytest.raises(StorageError, match=r"frames-00001\.json' is missing"):  # and its shard is not removed as a rest
        PackedWriter(tmp_path, shard_mib=0.01)
    assert (tmp_path / "frames-00001.tar").exists()


@pytest.mark.parametrize("lost", [[".json"], [".json", ".tar"]])
def test_a_last_index_that_is_gone_is_named(tmp_path: Path, lost: list[str]) -> None:
    pack(tmp_path, IDS[:3], shard_mib=0.01)
    last = max(tmp_path.glob("frames-*.json"))
    for suffix in lost:
        last.with_suffix(suffix).unlink()
    count = int(last.stem[-5:]) + 1
    for open_folder in (PackedFrames.open, PackedWriter):
        with pytest.raises(StorageError, match=rf"{last.name}' is missing: the folder had {count} shards"):
            open_folder(tmp_path)
    assert last.with_suffix(".tar").exists() == (".tar" not in lost)  # not removed as what a killed writer left
    (tmp_path / "frames.json").unlink()  # as folders of older releases are, and those of killed writers
    assert set(PackedFrames.open(tmp_path)) < set(IDS[:3])


def test_a_damaged_count_of_shards_is_a_typed_error(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:3])
    path = tmp_path / "frames.json"
    path.write_text(path.read_text().replace('"shards": 1', '"shards": 0'))
    with pytest.raises(StorageError, match=r"frames\.json' is not a readable index of packed frames: its checksum"):
        PackedFrames.open(tmp_path)


def edited(path: Path, **changes: Any) -> None:
    """An index with other content and without its checksum, as if it had been written so."""
    index = {**json.loads(path.read_text()), **changes}
    del index["crc32"]
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("change", [
    {"format": "x"}, {"version": 2}, {"bytes": "many"}, {"videos": 3}, {"settings": None}, {"sha256": 5},
    {"videos": [{}]}, {"settings": {"attributes": {"x": []}}},
])  # fmt: skip
def test_an_index_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    pack(tmp_path, IDS[:2])
    edited(tmp_path / "frames-00000.json", **change)
    with pytest.raises(StorageError, match=r"frames-00000"):
        PackedFrames.open(tmp_path).verify()


@pytest.mark.parametrize(("field", "value"), [
    ("id", 7), ("frames", 4), ("frames", 2.0), ("frames", True), ("height", 0), ("width", 10**9), ("first", 1),
    ("first", -1), ("timestamps", [0, 1, 1]), ("timestamps", [0, 1]), ("timestamps", [0, 1, float("nan")]),
    ("timestamps", ["a", "b", "c"]), ("offsets", [512, 512, 512]), ("offsets", [-512, 512, 1024]),
    ("offsets", [1, 2, 10**30]), ("offsets", [1.5, 2e6, 3e6]), ("sizes", [0, 1, 1]), ("sizes", [10**9] * 3),
    ("sizes", None), ("crc32", [1, 2]),
])  # fmt: skip
def test_an_index_that_contradicts_itself_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    pack(tmp_path, ["x"])
    path = tmp_path / "frames-00000.json"
    videos = json.loads(path.read_text())["videos"]
    videos[0][field] = value
    edited(path, videos=videos)
    with pytest.raises(StorageError, match=r"frames-00000|no video 'x'"):
        PackedFrames.open(tmp_path).frames("x")


def test_a_video_in_two_shards_is_refused(tmp_path: Path) -> None:
    pack(tmp_path, ["x"])
    for suffix in (".tar", ".json"):
        (tmp_path / f"frames-00001{suffix}").write_bytes((tmp_path / f"frames-00000{suffix}").read_bytes())
    with pytest.raises(StorageError, match=r"has 'x' twice, again in 'frames-00001\.tar'"):
        PackedFrames.open(tmp_path)


def test_a_picture_of_another_size_than_the_index_says_is_refused(tmp_path: Path) -> None:
    pack(tmp_path, ["x"])
    path = tmp_path / "frames-00000.json"
    videos = json.loads(path.read_text())["videos"]
    videos[0]["height"] = 40
    edited(path, videos=videos)
    with pytest.raises(StorageError, match=r"frame 0 of 'x' is damaged: it is \(40, 24\) RGB, not \(40, 40\) RGB"):
        PackedFrames.open(tmp_path).frames("x")


def test_arguments_that_cannot_be_are_refused(tmp_path: Path) -> None:
    images, times = drawn(2)
    for settings in ({"shard_mib": 0}, {"quality": 0}, {"quality": 100}, {"short_side": 0}, {"workers": 0}):
        with pytest.raises(ConfigError):
            PackedWriter(tmp_path, **settings)  # type: ignore[arg-type]
    with PackedWriter(tmp_path, shard_mib=0.01) as writer:
        for wrong in (images[0], images.astype(float), images[..., :1], None):
            with pytest.raises(ShapeError, match="images must be a uint8 array"):
                writer.add("x", wrong, times)  # type: ignore[arg-type]
        for wrong_times in (times[:1], times.astype(np.float32), [0.0, 1.0]):
            with pytest.raises(ShapeError, match="timestamps must be a float64 array"):
                writer.add("x", images, wrong_times)  # type: ignore[arg-type]
        for values in ([1.0, 1.0], [0.0, np.inf]):
            with pytest.raises(DataError, match="strictly increasing"):
                writer.add("x", images, np.array(values))
        with pytest.raises(DataError, match="a frame at least"):
            writer.add("x", images[:0], times[:0])
        for id in (7, "\ud800"):
            with pytest.raises(DataError, match="valid Unicode"):
                writer.add(id, images, times)  # type: ignore[arg-type]
        writer.add("x", images, times)
        noise = np.random.default_rng(0).integers(0, 256, (1, 200, 200, 3), dtype=np.uint8)
        with pytest.raises(DataError, match=r"Frame 0 of 'noise' takes .* more than a shard"):
            writer.add("noise", noise, np.zeros(1))
        later = np.concatenate([np.zeros((20, 200, 200, 3), np.uint8), noise])
        with pytest.raises(DataError, match=r"Frame 20 of 'late' takes .* more than a shard"):
            writer.add("late", later, np.arange(21.0))
        assert PackedFrames.open(tmp_path).incomplete == ["late"]
        writer.add("late", images, times)
        writer.add("y", images, times)
    packed = PackedFrames.open(tmp_path)
    assert packed.lengths == {"x": 2, "late": 2, "y": 2}
    assert packed.incomplete == []
    assert len(packed.frames("late")[0]) == 2
    with pytest.raises(DataError, match="has frames 0 to 1, got 2"):
        packed.frame("x", 2)


def test_an_open_folder_can_be_handed_to_another_process(tmp_path: Path) -> None:
    pack(tmp_path, IDS[:3])
    packed = PackedFrames.open(tmp_path)
    copy = pickle.loads(pickle.dumps(packed))
    assert copy.ids == packed.ids
    assert np.array_equal(copy.frames("a/b")[0], packed.frames("a/b")[0])
