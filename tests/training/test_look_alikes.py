"""Batches of look-alikes: who resembles whom, the order of an epoch, and what must not change."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from hapvr.errors import ConfigError, DataError, ShapeError
from hapvr.training import Bank, BankSource, Batch, ClipSource, Encoder, ViewConfig, build_network, fit, train_from_bank
from hapvr.training.config import DataConfig
from hapvr.training.encoder import Encoded
from hapvr.training.run_folder import RunFolder
from hapvr.training.sources import LookAlikes, Timed, compute_mean_vectors, derive_seed, draw_videos, find_neighbours
from tests.training.toy import noise_clips, toy_bank, toy_config

CPU = torch.device("cpu")


def clustered(videos: int = 48, *, kinds: int = 6, seed: int = 0, noise: float = 0.3) -> Bank:
    """A bank whose videos are of some kinds: video v of kind v % kinds."""
    generator = torch.Generator().manual_seed(seed)
    bank = toy_bank(videos, seed=seed)
    centres = torch.randn(kinds, 16, generator=generator)[torch.arange(videos) % kinds]
    own = torch.randn(videos, 16, generator=generator)
    regions = F.normalize(centres + noise * own, dim=-1)[:, None, None, None].expand(bank.weak.regions.shape)
    return replace(bank, weak=replace(bank.weak, regions=regions.half().contiguous()))


def videos_of(source: BankSource, step: int) -> list[int]:
    batch = source.batch(step)
    return [int(number) for number in batch.contents[: len(batch.contents) // 2, 0]]


def source(bank: Bank, *, batch: int = 16, seed: int = 3, alike: float = 1.0, group: int = 4) -> BankSource:
    return BankSource(bank, DataConfig(batch=batch, alike=alike, group=group), seed=seed, device=CPU)


def slow_nearest(vectors: Tensor, count: int) -> list[list[int]]:
    rows = vectors.tolist()
    product = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    return [
        sorted((n for n in range(len(rows)) if n != own), key=lambda n: (-product[own][n], n))[:count]
        for own in range(len(rows))
    ]


def slow_order(
    order: list[int], neighbours: list[list[int]], *, whole: int, groups: int, group: int
) -> tuple[list[list[int]], list[int]]:
    """The groups and the others of an epoch, by sets and lists."""
    left, made = list(order), []
    for _ in range(len(order) // whole * groups):
        members = [left.pop(0)]
        for like in neighbours[members[0]]:
            if len(members) < group and like in left:
                members.append(like)
                left.remove(like)
        while len(members) < group:
            members.append(left.pop(0))
        made.append(members)
    return made, left


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_neighbours_by_hand() -> None:
    # Cosines with (1, 0): .8, 0, -1. The first is most like the second, and the last like nobody but the third.
    vectors = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-1.0, 0.0]])
    assert find_neighbours(vectors, 3).tolist() == [[1, 2, 3], [0, 2, 3], [1, 0, 3], [2, 1, 0]]


def test_neighbours_agree_with_the_loop_also_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = F.normalize(torch.randn(23, 5, generator=torch.Generator().manual_seed(0)), dim=-1)
    expected = slow_nearest(vectors, 7)
    assert find_neighbours(vectors, 7).tolist() == expected
    monkeypatch.setattr("hapvr.training.sources._ROWS", 50)
    assert find_neighbours(vectors, 7).tolist() == expected


def test_equal_videos_come_in_the_order_of_their_numbers() -> None:
    assert find_neighbours(torch.tensor([[1.0, 0.0]]).expand(4, 2), 3).tolist() == [
        [1, 2, 3],
        [0, 2, 3],
        [0, 1, 3],
        [0, 1, 2],
    ]


def test_mean_vectors_agree_with_the_loop_also_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = torch.randn(5, 2, 3, 4, 6).half()
    expected = torch.stack([F.normalize(video.float().reshape(-1, 6).mean(0), dim=0) for video in regions])
    torch.testing.assert_close(compute_mean_vectors(regions), expected)
    monkeypatch.setattr("hapvr.training.sources._ROWS", 200)
    torch.testing.assert_close(compute_mean_vectors(regions), expected)
    with pytest.raises(ShapeError, match=r"\[V, W, T, R, D\]"):
        compute_mean_vectors(regions[0])


# --- the order of an epoch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 22])
@pytest.mark.parametrize(("share", "groups"), [(1.0, 3), (0.6, 2), (0.3, 1)])
def test_the_order_agrees_with_the_loop(share: float, groups: int, count: int) -> None:
    vectors = F.normalize(torch.randn(23, 5, generator=torch.Generator().manual_seed(1)), dim=-1)
    alike = LookAlikes(find_neighbours(vectors, count), share=share, group=3)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(2))
    got = alike.arrange(order, 10).tolist()
    made, left = slow_order(order.tolist(), slow_nearest(vectors, count), whole=10, groups=groups, group=3)
    alone = 10 - 3 * groups
    expected = []
    for number in range(2):
        for members in made[number * groups : (number + 1) * groups]:
            expected += members
        expected += left[number * alone : (number + 1) * alone]
    assert got == [*expected, *left[2 * alone :]]
    assert sorted(got) == list(range(23))
    assert alike.arrange(order, 10).tolist() == got  # from memory
    assert alike.arrange(order.flip(0), 10).tolist() != got


# --- laws ------------------------------------------------------------------------------------------------------------


def test_a_share_of_0_gives_random_batches() -> None:
    bank = toy_bank(11)
    plain, none = BankSource(bank, DataConfig(batch=4), seed=5, device=CPU), source(bank, batch=4, seed=5, alike=0.0)
    for step in range(6):
        order = torch.randperm(11, generator=torch.Generator().manual_seed(derive_seed(5, 0, step // 2)))
        expected = order[step % 2 * 4 :][:4].tolist()
        assert videos_of(none, step) == expected == draw_videos(step, videos=11, batch=4, seed=5).tolist()
        one, two = plain.batch(step), none.batch(step)
        assert torch.equal(one.regions, two.regions)
        assert torch.equal(one.contents, two.contents)


def test_batches_of_look_alikes_are_more_alike() -> None:
    bank = clustered()
    vectors = compute_mean_vectors(bank.weak.regions)

    def likeness(share: float) -> float:
        given = source(bank, alike=share)
        values = []
        for step in range(9):
            own = vectors[videos_of(given, step)]
            values.append(((own @ own.T).sum() - len(own)).item() / (len(own) * (len(own) - 1)))
        return sum(values) / len(values)

    assert likeness(0.0) + 0.02 < likeness(0.5) < likeness(1.0) - 0.02


def test_groups_are_of_one_kind() -> None:
    given = source(clustered(noise=0.05), group=4)
    groups = torch.tensor(videos_of(given, 0)).view(4, 4) % 6  # eight of a kind: two groups of four
    assert (groups == groups[:, :1]).all()


@pytest.mark.parametrize("share", [0.25, 0.7, 1.0])
def test_no_video_is_drawn_twice_and_an_epoch_goes_through_all(share: float) -> None:
    given = source(clustered(50), alike=share)  # 3 batches of 16, and two videos left over
    epochs = []
    for epoch in range(2):
        seen = [video for step in range(3) for video in videos_of(given, 3 * epoch + step)]
        assert len(set(seen)) == 48
        epochs.append(seen)
    assert epochs[0] != epochs[1]


def test_batches_are_a_function_of_seed_and_step() -> None:
    one, two = source(clustered()), source(clustered())
    for step in (7, 0, 4, 7):
        assert videos_of(one, step) == videos_of(two, step)
        assert torch.equal(one.batch(step).regions, two.batch(step).regions)
    assert videos_of(one, 7) != videos_of(source(clustered(), seed=4), 7)


def test_an_interrupted_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    def run(name: str, stop: int | None = None) -> Tensor:
        words = [f"run.folder={tmp_path / name}", "data.alike=0.5", "data.group=2", "run.log_every=1"]
        config = toy_config(*words)

        def report(line: str) -> None:
            if stop is not None and line.startswith(f"step {stop}/"):
                raise KeyboardInterrupt

        model = build_network(config, None)
        with contextlib.suppress(KeyboardInterrupt):
            given = source(clustered(12), batch=4, alike=config.data.alike, group=config.data.group)
            fit(model, given, config, run=RunFolder(config, report=lambda _: None), report=report)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    whole = run("whole")
    run("parts", stop=3)
    assert torch.equal(run("parts"), whole)
    other = toy_config(f"run.folder={tmp_path / 'parts'}", "data.alike=1", "data.group=2", "run.log_every=1")
    with pytest.raises(ConfigError, match=r"data\.alike: 0\.5 -> 1"):
        RunFolder(other, report=lambda _: None)


def test_settings_of_look_alikes_reach_the_batches() -> None:
    bank = clustered(12, kinds=3, noise=0.05)
    seen: list[set[int]] = []

    class Watched(BankSource):
        def batch(self, step: int, timed: Timed = lambda _: contextlib.nullcontext()) -> Batch:
            batch = super().batch(step, timed)
            seen.append({int(video) % 3 for video in batch.contents[:4, 0]})
            return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hapvr.training.run.BankSource", Watched)
        train_from_bank(bank, toy_config("data.alike=1", "data.group=4", "schedule.steps=2"))
        assert [len(kinds) for kinds in seen] == [1, 1]
        train_from_bank(bank, toy_config("schedule.steps=2"))
        assert max(len(kinds) for kinds in seen) > 1


def join(process: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=process, world_size=2)
    # The second process sees other vectors: the groups are nonetheless those of the first.
    given = source(clustered(seed=process), batch=8)
    torch.save([videos_of(given, step) for step in range(5)], f"{folder}/{process}.pt")
    dist.destroy_process_group()


def test_two_processes_draw_the_halves_of_one_batch(tmp_path: Path) -> None:
    spawn(join, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    halves = [torch.load(tmp_path / f"{process}.pt") for process in range(2)]
    alone = source(clustered(), batch=16)
    for step in range(5):
        assert halves[0][step] + halves[1][step] == videos_of(alone, step)


# --- clips -----------------------------------------------------------------------------------------------------------


class Colours(Encoder):
    """Stands for a backbone: the colours of a frame's quarters."""

    def __init__(self) -> None:
        self.device = CPU

    def __call__(self, pictures: Tensor, *, check: bool = True) -> Encoded:
        assert check
        quarters = F.adaptive_avg_pool2d(pictures.flatten(0, 1).float() / 255 - 0.5, 2)
        return Encoded(F.normalize(quarters.flatten(2).mT, dim=-1).view(*pictures.shape[:2], 4, 3), None)


def test_clips_are_grouped_by_a_weak_view_of_each() -> None:
    clips = noise_clips(12, side=16)
    for number, frames in enumerate(clips.frames):
        frames.copy_(torch.tensor([[250, 5, 5], [5, 250, 5], [5, 5, 250]])[number % 3])  # three kinds, four of each
    views = ViewConfig(frames=4, size=16)
    given = [
        ClipSource(clips, Colours(), DataConfig(batch=4, alike=1.0, group=4), views=views, seed=0) for _ in range(2)
    ]
    for step in range(6):
        one, two = (each.batch(step) for each in given)
        assert torch.equal(one.contents, two.contents)
        assert torch.equal(one.regions, two.regions)
        assert len({int(video) % 3 for video in one.contents[:4, 0]}) == 1
    plain = ClipSource(clips, Colours(), DataConfig(batch=4), views=views, seed=0)
    assert plain.alike is None
    assert plain.batch(0).contents[:4, 0].tolist() == draw_videos(0, videos=12, batch=4, seed=0).tolist()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_what_gives_no_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.alike=0\.1 of a batch of 16 videos is no group of 8"):
        source(clustered(), alike=0.1, group=8)
    with pytest.raises(ConfigError, match="is no group of 32"):
        source(clustered(), group=32)
    with pytest.raises(ConfigError, match="share must lie in"):
        LookAlikes(torch.zeros(2, 1, dtype=torch.int64), share=1.5, group=2)
    with pytest.raises(ShapeError, match="int64"):
        LookAlikes(torch.zeros(2, 1), share=1.0, group=2)
    bank = clustered()
    bank.weak.regions[3] = torch.nan
    with pytest.raises(DataError, match="not finite"):
        source(bank)
