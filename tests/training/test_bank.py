from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError
from hapvr.training import Bank, BankSource, ViewConfig, find_shared_content, make_bank
from hapvr.training.bank import ABOUT, Side
from hapvr.training.config import BankConfig, DataConfig, RunConfig, TrainConfig
from hapvr.training.encoder import Encoded
from hapvr.training.sources import draw_videos
from hapvr.training.step import NOTHING
from tests.training.toy import noise_clips, toy_bank

VIEWS = ViewConfig(frames=4, size=16, mixup=1.0)
CPU = torch.device("cpu")


class CountingEncoder:
    """Stands for backbone and teacher: the mean colour of four quarters of a frame."""

    device = CPU

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, pictures: Tensor, *, check: bool = True) -> Encoded:
        assert not check  # a bank looks at what it has been given once
        self.calls += 1
        quarters = F.adaptive_avg_pool2d(pictures.flatten(0, 1).float() / 255, 2)  # [N T, 3, 2, 2]
        regions = F.normalize(quarters.flatten(2).mT + 0.01, dim=-1).view(*pictures.shape[:2], 4, 3)
        return Encoded(regions, regions.mean(2))


def settings(bank: BankConfig, views: ViewConfig = VIEWS, seed: int = 0) -> TrainConfig:
    return TrainConfig(bank=bank, views=views, data=DataConfig(batch=3), run=RunConfig(seed=seed))


def made(
    folder: str = "", *, weak: int = 1, strong: int = 2, videos: int = 7, seed: int = 0, views: ViewConfig = VIEWS
) -> tuple[Bank, CountingEncoder]:
    encoder = CountingEncoder()
    config = settings(BankConfig(weak=weak, strong=strong, folder=folder), views, seed)
    return make_bank(noise_clips(videos, side=16), encoder, config), encoder  # type: ignore[arg-type]


def same(one: Bank, two: Bank) -> bool:
    return all(
        torch.equal(a, b)
        for x, y in ((one.weak, two.weak), (one.strong, two.strong))
        for a, b in ((x.regions, y.regions), (x.contents, y.contents), (x.frames, y.frames))
        if a is not None and b is not None
    )


def test_a_bank_holds_the_views_asked_for() -> None:
    bank, _ = made(weak=1, strong=3)
    assert bank.weak.regions.shape == (7, 1, 4, 4, 3)
    assert bank.strong.regions.shape == (7, 3, 4, 4, 3)
    assert bank.strong.regions.dtype == torch.float16
    assert bank.strong.frames is not None
    assert bank.strong.frames.shape == (7, 3, 4, 3)
    assert len(bank) == 7
    values = 7 * (1 + 3) * 4 * (4 * 3 + 3)
    assert bank.gib == pytest.approx(values * 2 / 2**30)


def test_contents_are_numbers_of_videos_and_hosts_are_among_them() -> None:
    bank, _ = made()
    own = torch.arange(7)[:, None]
    assert (bank.weak.contents[..., 0] == own).all()
    assert (bank.weak.contents[..., 1] == NOTHING).all()
    assert (bank.strong.contents == own[..., None]).any(-1).all()  # every view shows its own video
    hosts = [int(n) for row in bank.strong.contents.flatten(0, 1).tolist() for n in row if n != NOTHING]
    assert len(hosts) > 2 * 7  # mixup = 1: some show their host too, under a number of the whole set
    assert max(hosts) == 6


def test_the_same_seed_gives_the_same_bank_and_another_another() -> None:
    assert same(made()[0], made()[0])
    assert not same(made()[0], made(seed=1)[0])


def test_a_bank_on_disk_is_made_once_and_completed_where_it_was_interrupted(tmp_path: Path) -> None:
    folder = str(tmp_path / "bank")
    bank, encoder = made(folder)
    assert same(bank, made()[0])
    again, unused = made(folder)
    assert same(again, bank)
    assert unused.calls == 0
    shards = sorted((tmp_path / "bank").glob("views-*.safetensors"))
    shards[0].unlink()
    shards[2].with_suffix(".sha256").unlink()
    data = bytearray(shards[3].read_bytes())
    data[-1] ^= 1
    shards[3].write_bytes(data)
    completed, some = made(folder)
    assert same(completed, bank)
    assert 0 < some.calls < encoder.calls


class BrokenEncoder(CountingEncoder):
    """Overflows in its third call."""

    def __init__(self, *, frames: bool) -> None:
        super().__init__()
        self.frames = frames

    def __call__(self, pictures: Tensor, *, check: bool = True) -> Encoded:
        regions, frames = super().__call__(pictures, check=check)
        if self.calls == 3:
            assert frames is not None
            (frames if self.frames else regions)[0, 1] = torch.inf
        return Encoded(regions, frames)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("frames", "what"), [(False, "the region vectors of"), (True, "the teacher's frame vectors of")]
)
def test_vectors_that_are_not_finite_never_reach_a_bank(tmp_path: Path, kept: bool, frames: bool, what: str) -> None:
    folder = str(tmp_path / "bank") if kept else ""
    config = settings(BankConfig(weak=1, strong=2, folder=folder))
    clips = noise_clips(7, side=16)
    with pytest.raises(DataError, match=f"{what} .* views holds"):
        make_bank(clips, BrokenEncoder(frames=frames), config)  # type: ignore[arg-type]
    shards = sorted(tmp_path.rglob("*.safetensors"))
    assert len(shards) == (1 if kept else 0)  # what came before, and nothing of what is broken
    if kept:
        assert same(made(folder)[0], made()[0])


def test_a_bank_that_names_a_setting_by_its_old_name_is_used(tmp_path: Path) -> None:
    bank, _ = made(str(tmp_path))
    about = tmp_path / ABOUT
    about.write_text(about.read_text().replace("max_stickers", "most_stickers"))
    again, unused = made(str(tmp_path))
    assert same(again, bank)
    assert unused.calls == 0


def test_a_bank_from_before_a_setting_existed_is_used_while_that_has_its_default(tmp_path: Path) -> None:
    bank, _ = made(str(tmp_path))
    about = tmp_path / ABOUT
    content = json.loads(about.read_text())
    assert content["settings"]["views"].pop("temporal_edits") == "hapvr"
    about.write_text(json.dumps(content))
    again, unused = made(str(tmp_path))
    assert same(again, bank)
    assert unused.calls == 0
    with pytest.raises(ConfigError, match="views differ"):
        made(str(tmp_path), views=dataclasses.replace(VIEWS, temporal_edits="authors"))


def test_a_bank_of_whole_frames_is_no_bank_of_squares(tmp_path: Path) -> None:
    config = settings(BankConfig(weak=1, strong=1, folder=str(tmp_path)))
    whole = dataclasses.replace(config, data=dataclasses.replace(config.data, whole_frames=True))
    make_bank(noise_clips(7, side=16), CountingEncoder(), whole)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="whole_frames differ"):
        make_bank(noise_clips(7, side=16), CountingEncoder(), config)  # type: ignore[arg-type]


def test_a_bank_of_other_settings_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "bank")
    made(folder)
    with pytest.raises(ConfigError, match="seed differ"):
        made(folder, seed=1)
    with pytest.raises(ConfigError, match="views differ"):
        made(folder, views=dataclasses.replace(VIEWS, flip=0.0))
    with pytest.raises(ConfigError, match="videos, ids_sha256 differ"):
        made(folder, videos=6)
    (tmp_path / "bank" / "bank.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be used"):
        made(folder)


def test_a_batch_draws_one_view_of_each_kind_for_each_video() -> None:
    bank = toy_bank(8)
    batch = BankSource(bank, DataConfig(batch=4), seed=3, device=CPU).batch(5)
    videos = draw_videos(5, videos=8, batch=4, seed=3)
    assert batch.contents[:4, 0].tolist() == batch.contents[4:, 0].tolist() == videos.tolist()
    for row, video in enumerate(videos.tolist()):
        assert torch.equal(batch.regions[row], bank.weak.regions[video, 0])
        assert any(torch.equal(batch.regions[4 + row], view) for view in bank.strong.regions[video])
    # A strong view that shows the next video too shares content with that one's views, where they are in the batch.
    labels = find_shared_content(batch.contents, batch.contents)
    for row in range(8):
        for column in range(8):
            shown = {n for n in batch.contents[row].tolist() if n != NOTHING}
            assert labels[row, column] == bool(shown & set(batch.contents[column].tolist()))


def test_batches_are_a_function_of_seed_and_step_and_go_through_all_videos() -> None:
    source = BankSource(toy_bank(8), DataConfig(batch=4), seed=0, device=CPU)
    one, two = source.batch(7), BankSource(toy_bank(8), DataConfig(batch=4), seed=0, device=CPU).batch(7)
    assert torch.equal(one.regions, two.regions)
    assert torch.equal(one.contents, two.contents)
    seen = torch.cat([source.batch(step).contents[:4, 0] for step in (0, 1)])
    assert sorted(seen.tolist()) == list(range(8))
    later = torch.cat([source.batch(step).contents[:4, 0] for step in (2, 3)])
    assert sorted(later.tolist()) == list(range(8))
    assert seen.tolist() != later.tolist()


def test_every_view_is_drawn_some_time() -> None:
    bank = toy_bank(4, strong=3)
    source = BankSource(bank, DataConfig(batch=4), seed=0, device=CPU)
    seen = set()
    for step in range(30):
        batch = source.batch(step)
        for row in range(4):
            video = int(batch.contents[row, 0])
            (view,) = (n for n in range(3) if torch.equal(batch.regions[4 + row], bank.strong.regions[video, n]))
            seen.add((video, view))
    assert len(seen) == 12


def test_too_few_videos_are_refused() -> None:
    with pytest.raises(DataError, match="8 videos, fewer than a batch of 9"):
        BankSource(toy_bank(8), DataConfig(batch=9), seed=0, device=CPU)
    with pytest.raises(DataError, match="at least 2 videos"):
        made(videos=1)
    with pytest.raises(ConfigError, match="how many views"):
        made(weak=0, strong=0)


def test_sides_that_do_not_fit_are_refused() -> None:
    bank = toy_bank(4)
    with pytest.raises(ShapeError, match="same videos"):
        Bank(bank.weak, toy_bank(5).strong)
    with pytest.raises(ShapeError, match=r"\[V, W, T, R, D\]"):
        Bank(Side(bank.weak.regions[0], bank.weak.contents, None), bank.strong)
