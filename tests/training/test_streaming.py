"""Clips from shards: the same as from memory, each once an epoch, continued at any step, and with damage."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from hapvr.errors import ConfigError, DataError
from hapvr.features import PackedWriter
from hapvr.training import Camera, ClipSet, load_clips, load_config, train
from hapvr.training.clips import ClipRequest
from hapvr.training.config import DataConfig
from hapvr.training.sources import draw_batch
from hapvr.training.stream_loader import StreamConfig
from hapvr.training.streaming import StreamedClips, shuffle_shards
from hapvr.video.shard_frames import open_shards
from tests.training import toy

VIDEOS, SIZE, LENGTH, BATCH = 13, 16, 6, 4
CAMERA = Camera(frames=9, size=SIZE)
SMALL = StreamConfig(memory_bytes=2**20, workers=2)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos of 3 to 15 frames of noise, and one photograph, in several shards."""
    folder = tmp_path_factory.mktemp("stream") / "packed"
    rng = np.random.default_rng(0)
    with PackedWriter(folder, shard_mib=0.03, attributes={"fps": 1.0, "min_frames": 0}) as writer:
        for number in range(VIDEOS):
            frames = 1 if number == 5 else 3 + number
            images = rng.integers(0, 256, (frames, 24, 32, 3), dtype=np.uint8)
            writer.add(f"video {number}", images, np.arange(frames, dtype=np.float64))
    return folder


def requests(clips: ClipSet, *, seed: int = 3, parts: int = 1, batch: int = BATCH) -> Callable[[int], ClipRequest]:
    data = DataConfig(batch=batch)
    return lambda step: ClipRequest(draw_batch(clips, step, data, seed=seed, alike=None), LENGTH, (seed, step), parts)


def same(one: list[tuple[Tensor, int]], other: list[tuple[Tensor, int]]) -> bool:
    starts = [start for _, start in one] == [start for _, start in other]
    return starts and all(torch.equal(a, b) for (a, _), (b, _) in zip(one, other, strict=True))


@pytest.mark.parametrize(("size", "parts", "background"), [(SIZE, 1, False), (None, 2, True)])
def test_clips_are_those_of_the_set_in_memory(packed: Path, size: int | None, parts: int, background: bool) -> None:
    memory = ClipSet.from_packed(packed, size=size, stills=CAMERA)
    config = replace(SMALL, background=background)
    clips = StreamedClips.from_folder(packed, size=size, stills=CAMERA, config=config)
    assert (clips.ids, clips.lengths.tolist(), clips.cameras) == (memory.ids, memory.lengths.tolist(), memory.cameras)
    try:
        for step in range(8):  # more than two epochs
            expected = memory.fetch(step, requests(memory, parts=parts))
            found = clips.fetch(step, requests(clips, parts=parts))
            assert found[0] == expected[0]
            assert same(found[1], expected[1])
        assert same(clips.draw_parts([5, 1], length=4, seed=1), memory.draw_parts([5, 1], length=4, seed=1))
        assert all(torch.equal(a, b) for a, b in zip(clips.load().frames, memory.frames, strict=True))
    finally:
        clips.close()


def test_a_run_continues_with_the_same_clips_at_any_step(packed: Path) -> None:
    config = replace(SMALL, buffer=5)
    whole = StreamedClips.from_folder(packed, size=SIZE, config=config)
    run = [whole.fetch(step, requests(whole)) for step in range(6)]
    whole.close()
    again = StreamedClips.from_folder(packed, size=SIZE, config=replace(config, workers=1, background=True))
    for step in (4, 5, 2):  # continued, and gone back
        found = again.fetch(step, requests(again))
        assert found[0] == run[step][0]
        assert same(found[1], run[step][1])
    again.close()


@pytest.mark.parametrize("buffer", [0, 1, 5, 100])
def test_an_epoch_has_each_video_once_and_processes_share_it(
    packed: Path, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = StreamedClips.from_folder(packed, size=SIZE, config=replace(SMALL, buffer=buffer))
    steps = VIDEOS // BATCH
    seen = [number for step in range(steps) for number in requests(clips)(step).videos]
    assert len(set(seen)) == len(seen) == steps * BATCH
    # Two processes of half the batch see the same videos, none twice.
    monkeypatch.setattr("hapvr.training.sources.world_size", lambda: 2)
    shared = []
    for rank in (0, 1):
        monkeypatch.setattr("hapvr.training.sources.rank", lambda rank=rank: rank)
        shared += [number for step in range(steps) for number in requests(clips, batch=BATCH // 2)(step).videos]
    assert sorted(shared) == sorted(seen)
    clips.close()


def test_the_buffer_keeps_shards_together_and_bounds_how_early_a_video_comes() -> None:
    shards = [number // 10 for number in range(200)]
    order = shuffle_shards(shards, 15, 0).tolist()
    assert sorted(order) == list(range(200))
    # By hand from the rule: whatever is among the first n comes from the first n + 14 that were read.
    first_seen = list(dict.fromkeys(shards[number] for number in order))
    assert len(first_seen) == 20
    for place in range(200):
        reached = {shards[number] for number in order[: place + 1]}
        assert len(reached) <= -(-(place + 15) // 10)
    assert shuffle_shards(shards, 15, 0).tolist() == order != shuffle_shards(shards, 15, 1).tolist()
    # A buffer of one only shuffles shards.
    alone = shuffle_shards(shards, 1, 0)
    assert [number % 10 for number in alone.tolist()] == list(range(10)) * 20


def damage(folder: Path, id: str, frame: int) -> None:
    (video,) = (video for video in open_shards(folder).videos if video.id == id)
    for run in video.runs:
        if frame < len(run):
            with open(run.path, "r+b") as file:
                file.seek(int(run.offsets[frame] + run.sizes[frame] // 2))
                file.write(b"\0damaged\0")
            return
        frame -= len(run)


def test_a_damaged_video_is_replaced_noted_and_continued_with_the_same_clips(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(packed, folder)
    for frame in range(3):
        damage(folder, "video 0", frame)
    noted: list[tuple[str, str]] = []
    clips = StreamedClips.from_folder(folder, size=SIZE, config=SMALL, on_skip=noted.append)
    memory = StreamedClips.from_folder(packed, size=SIZE, config=SMALL)
    run = []
    for step in range(6):
        wanted = requests(memory)(step)
        expected = memory.draw_parts(wanted.videos, length=LENGTH, seed=wanted.seed)
        videos, drawn = clips.fetch(step, requests(clips))
        run.append((videos, drawn))
        assert len(set(videos)) == BATCH
        for slot, number in enumerate(wanted.videos):
            if number == 0:
                assert videos[slot] not in wanted.videos
            else:
                assert videos[slot] == number
                assert torch.equal(drawn[slot][0], expected[slot][0])
    assert 1 <= clips.replaced <= 3
    assert [id for id, _ in clips.skipped] == ["video 0"]
    assert noted == clips.skipped
    assert "damaged" in noted[0][1]
    clips.close()
    memory.close()
    again = StreamedClips.from_folder(folder, size=SIZE, config=SMALL)
    for step in (3, 4, 5):
        found = again.fetch(step, requests(again))
        assert found[0] == run[step][0]
        assert same(found[1], run[step][1])
    black = again.window(0, 0, 2)
    assert black.shape == (2, SIZE, SIZE, 3)
    assert int(black.max()) == 0
    loaded = again.load()
    assert "video 0" not in loaded.ids
    assert len(loaded) == VIDEOS - 1
    again.close()


def test_shards_that_vanish_are_an_error_and_not_an_endless_search(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(packed, folder)
    clips = StreamedClips.from_folder(folder, size=SIZE, config=SMALL)
    shutil.rmtree(folder)
    with pytest.raises(DataError, match=r"100 videos in a row could not be read"):
        clips.fetch(0, requests(clips))
    clips.close()


@pytest.mark.parametrize("background", [False, True])
def test_a_killed_process_costs_no_clip(packed: Path, background: bool) -> None:
    memory = ClipSet.from_packed(packed, size=SIZE)
    clips = StreamedClips.from_folder(packed, size=SIZE, config=replace(SMALL, background=background))
    for step in range(9):
        found, expected = clips.fetch(step, requests(clips)), memory.fetch(step, requests(memory))
        assert found[0] == expected[0]
        assert same(found[1], expected[1])
        if step in (1, 4, 5):
            pool = clips._loader and clips._loader._pool
            for worker in [*(pool._workers if pool else ())][: 2 if step == 4 else 1]:
                worker.process.kill()  # without effect on one that was killed before and is not replaced yet
    assert clips.skipped == []
    assert clips.replaced == 0
    clips.close()


def test_an_error_of_the_thread_reaches_who_waits_and_close_ends_it(packed: Path) -> None:
    clips = StreamedClips.from_folder(packed, size=SIZE, config=replace(SMALL, background=True))

    def request(step: int) -> ClipRequest:
        if step > 4:  # what step 2 wants to know of step 5
            raise DataError("there is no such step.")
        return requests(clips)(step)

    clips.fetch(0, request)
    clips.fetch(1, request)
    with pytest.raises(DataError, match="no such step"):
        clips.fetch(2, request)
    clips.close()
    again = StreamedClips.from_folder(packed, size=SIZE, config=replace(SMALL, background=True))
    again.fetch(0, requests(again))
    thread = again._loader and again._loader._thread
    assert thread
    again.close()
    assert not thread.is_alive()


def test_memory_is_bounded_and_too_little_is_refused(packed: Path) -> None:
    clips = StreamedClips.from_folder(packed, size=SIZE, config=SMALL)
    clips.fetch(0, requests(clips))
    assert clips._loader is not None
    assert clips._loader._pool is not None
    window = LENGTH * SIZE * SIZE * 3
    blocks = sum(len(memory.data) for memory in clips._loader._pool._memories)
    assert blocks + BATCH * window <= SMALL.memory_bytes
    clips.close()
    little = StreamedClips.from_folder(packed, size=SIZE, config=StreamConfig(memory_bytes=5 * window, workers=2))
    with pytest.raises(ConfigError, match=r"a step of 4 clips of .* takes .* at least"):
        little.fetch(0, requests(little))
    little.close()
    with pytest.raises(ConfigError, match="cannot be joined"):
        little + ClipSet([torch.zeros(1, 4, 4, 3, dtype=torch.uint8)], ["x"])
    with pytest.raises(DataError, match="cannot take"):
        clips.window(0, 99, 1)


def test_webdataset_shards_train_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for shard in range(3):
        with tarfile.open(tmp_path / f"set-{shard}.tar", "w") as tar:
            for video in range(4):
                for frame in range(5):
                    buffer = io.BytesIO()
                    Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(buffer, "JPEG")
                    member = tarfile.TarInfo(f"{shard}-{video}.{frame:03d}.jpg")
                    member.size = len(buffer.getvalue())
                    tar.addfile(member, io.BytesIO(buffer.getvalue()))
    no_bank = ["bank.weak=0", "bank.strong=0"]
    settings = [f"data.frames={tmp_path}", "data.size=16", "data.batch=4", *no_bank, "data.fps=1"]
    memory = load_clips(load_config("tiny", settings), torch.device("cpu"))
    stream = load_clips(load_config("tiny", [*settings, "data.stream=0.01", "data.workers=1"]), torch.device("cpu"))
    assert isinstance(stream, StreamedClips)
    assert len(memory) == len(stream) == 12
    found, expected = stream.fetch(0, requests(stream)), memory.fetch(0, requests(memory))
    assert same(found[1], expected[1])
    stream.close()
    with pytest.raises(ConfigError, match=r"data\.fps is 2"):
        load_clips(load_config("tiny", [*settings[:-1], "data.fps=2"]), torch.device("cpu"))
    with pytest.raises(ConfigError, match="single pictures"):
        load_clips(load_config("tiny", [*settings, "data.stream=1", f"data.pictures={tmp_path}"]), torch.device("cpu"))
    with pytest.raises(ConfigError, match="a bank is made of videos in memory"):
        load_clips(
            load_config("tiny", [*settings, "data.stream=1", "bank.weak=1", "bank.strong=1"]), torch.device("cpu")
        )


def test_a_streamed_run_learns_what_a_run_from_memory_learns_and_continues(tmp_path: Path) -> None:
    toy.packed(str(tmp_path / "packed"), toy.noise_clips(6))
    quick = ["views.frames=4", "data.size=112", "data.batch=2", "bank.weak=0", "bank.strong=0", "run.device=cpu"]
    quick += [f"data.frames={tmp_path / 'packed'}", "schedule.warm_up=1", "run.checkpoint_every=1"]
    stream = ["data.stream=0.1", "data.workers=2"]
    lines: list[str] = []
    quick += ["schedule.steps=3", "run.log_every=1"]
    train(load_config("tiny", [*quick, f"run.folder={tmp_path / 'memory'}"]), report=lines.append)
    streamed = load_config("tiny", [*quick, *stream, f"run.folder={tmp_path / 'stream'}"])
    with pytest.raises(KeyboardInterrupt):
        train(streamed, report=stop_after(2))
    train(streamed, report=lines.append)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("memory", "stream"))
    assert one == other
    assert any("continued after step" in line for line in lines)
    for frame in range(6):
        damage(tmp_path / "packed", "video 2", frame)
    lines.clear()
    train(load_config("tiny", [*quick, *stream, f"run.folder={tmp_path / 'damaged'}"]), report=lines.append)
    assert any(line.startswith("skipped 'video 2'") for line in lines)
    assert any("1 clips could not be read" in line for line in lines)
    assert json.loads((tmp_path / "damaged" / "skipped.json").read_text())[0][0] == "video 2"


def stop_after(step: int) -> Callable[[str], None]:
    def report(line: str) -> None:
        if line.startswith(f"step {step}/"):
            raise KeyboardInterrupt

    return report
