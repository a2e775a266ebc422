"""The loss of a step: labels from contents, and two processes that equal one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from hapvr.errors import DataError, ShapeError
from hapvr.losses import MeanSquared, QuadLinearAP, Term, WeightedLosses
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.training.config import LossesConfig, TeacherConfig
from hapvr.training.distributed import world_size
from hapvr.training.pseudo_labels import make_pseudo_labels
from hapvr.training.step import NOTHING, Batch, compute_step_losses, find_shared_content, list_contents
from tests.training.toy import run_two_processes

RECIPES: dict[str, dict[str, dict[str, float]]] = {
    "paper": {name: {"weight": 1.0} for name in ("frame_ap", "video_ap", "infonce", "sshn", "range")},
    "rivals": {name: {"weight": 1.0} for name in ("triplet", "contrastive", "fast_ap", "mse", "circle")},
}
SPLITS = {"even": [6, 6], "uneven": [4, 8]}


def joined_batch() -> Batch:
    """12 clips of 6 videos; two of them show a second video, so that positives are spread unevenly."""
    generator = torch.Generator().manual_seed(1)
    regions = F.normalize(torch.randn(12, 8, 2, 16, generator=generator), dim=-1)
    contents = torch.tensor([[number % 6, NOTHING] for number in range(12)])
    contents[7, 1], contents[11, 1] = 3, 3
    return Batch(regions, contents, torch.randn(12, 8, 5, generator=generator))


def network() -> VideoSimilarity:
    torch.manual_seed(2)
    model = VideoSimilarity(SimilarityConfig(dims=16, min_frames=4))
    assert model.comparator is not None
    with torch.no_grad():
        model.comparator.final.weight *= 200  # beyond [-1, 1] in places, so that the range penalty counts
    return model


def losses(name: str) -> WeightedLosses:
    return LossesConfig(RECIPES[name]).build()


def part(batch: Batch, first: int, count: int) -> Batch:
    rows = slice(first, first + count)
    assert batch.frames is not None
    return Batch(batch.regions[rows], batch.contents[rows], batch.frames[rows])


def test_a_step_shows_frame_matrices_of_positive_pairs() -> None:
    batch, model = joined_batch(), network()
    values = compute_step_losses(model, losses("paper"), batch, teacher=TeacherConfig())
    pairs = [(i, j) for i, j in values.relevance.nonzero().tolist() if i != j][:4]
    alone = [model(batch.regions[i : i + 1], batch.regions[j : j + 1]).frame_matrices[0, 0] for i, j in pairs]
    torch.testing.assert_close(values.matrices, torch.stack(alone))
    assert not values.matrices.requires_grad


def run(name: str, batch: Batch) -> dict[str, Any]:
    model = network()
    values = compute_step_losses(model, losses(name), batch, teacher=TeacherConfig())
    values.total.backward()  # type: ignore[no-untyped-call]
    gradients = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()])
    total = values.total.detach().clone()
    if world_size() > 1:
        for value in (gradients, total):
            dist.all_reduce(value)
            value /= world_size()
    return {"total": total, "terms": values.terms, "gradients": gradients, "scores": values.scores}


def work(process: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=process, world_size=2)
    batch, results = joined_batch(), {}
    for name in RECIPES:
        for split, sizes in SPLITS.items():
            results[name, split] = run(name, part(batch, sum(sizes[:process]), sizes[process]))
    torch.save(results, f"{folder}/{process}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return run_two_processes(work, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_equal_one_on_the_joined_batch(processes: list[dict[Any, Any]], name: str, split: str) -> None:
    alone = run(name, joined_batch())
    assert alone["gradients"].abs().max() > 0
    for process in processes:
        for key in ("total", "scores", "gradients", "terms"):
            torch.testing.assert_close(process[name, split][key], alone[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_the_total_is_that_of_losses_called_one_by_one_on_pairs_scored_one_by_one(name: str) -> None:
    model, batch = network(), joined_batch()
    assert batch.frames is not None
    shown = [{number for number in row if number != NOTHING} for row in batch.contents.tolist()]
    scores = torch.stack([torch.stack([model.score(q, t) for t in batch.regions]) for q in batch.regions]) / 2 + 0.5
    relevance = torch.tensor([[bool(a & b) for b in shown] for a in shown])
    itself = torch.eye(12, dtype=torch.bool)
    pairs = [(q, t) for q in range(12) for t in range(12) if q != t and shown[q] & shown[t]]
    assert len(pairs) == 22  # 12 within the videos; clips 7 and 11 with the two of video 3, and with each other, 10
    matrices = torch.stack([model.frame_matrix(batch.regions[q], batch.regions[t]) for q, t in pairs])
    labels = [make_pseudo_labels(batch.frames[q][None], batch.frames[t][None]) for q, t in pairs]
    positive, negative = (torch.cat(kind) for kind in zip(*labels, strict=True))
    raw = model(batch.regions, batch.regions).raw
    total = torch.zeros(())
    for term in losses(name).terms.values():
        arguments: dict[str, tuple[Any, ...]] = {"frame": (matrices, positive, negative), "range": (raw,)}
        options: dict[str, Any] = {} if term.level in arguments else {"ignore": itself}
        if term.level == "self":
            options["self_scores"] = scores.diagonal()
        total = total + term.weight * term.loss(*arguments.get(term.level, (scores, relevance)), **options)
    assert run(name, batch)["total"].item() == pytest.approx(total.item(), rel=1e-4)


def test_the_range_penalty_takes_part(processes: list[dict[Any, Any]]) -> None:
    assert processes[0]["paper", "even"]["terms"]["range"] > 0.1


def test_labels_by_hand_and_by_a_loop() -> None:
    contents = torch.tensor([[0, NOTHING], [1, NOTHING], [0, NOTHING], [1, 2]])
    expected = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert find_shared_content(contents, contents).int().tolist() == expected
    drawn = torch.randint(-1, 6, (20, 3))
    sets = [{number for number in row if number != NOTHING} for row in drawn.tolist()]
    loop = [[bool(a & b) for b in sets] for a in sets]
    assert find_shared_content(drawn, drawn).tolist() == loop


def test_labels_are_those_of_the_content_matrix() -> None:
    # L L^T > 0, with L the content matrix; rows of one or two videos, numbers that are no positions.
    content = torch.eye(5, dtype=torch.bool).repeat(2, 1)
    content[7, 0] = content[9, 3] = True
    numbers = torch.tensor([40, 7, 12, 99, 3])
    contents = list_contents(content, numbers)
    product = content.float() @ content.float().T > 0
    assert torch.equal(find_shared_content(contents, contents), product)
    assert sorted(contents[7].tolist()) == [12, 40]


def test_only_what_the_recipe_reads_is_needed() -> None:
    batch = joined_batch()
    without = Batch(batch.regions, batch.contents)
    compute_step_losses(network(), losses("rivals"), without, teacher=TeacherConfig())
    with pytest.raises(DataError, match="no frame vectors of a teacher"):
        compute_step_losses(network(), losses("paper"), without, teacher=TeacherConfig())


def test_half_precision_is_near_and_losses_stay_in_float32() -> None:
    values = {
        dtype: compute_step_losses(network(), losses("paper"), joined_batch(), teacher=TeacherConfig(), dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    assert values[torch.bfloat16].total.dtype == torch.float32
    torch.testing.assert_close(values[torch.bfloat16].scores, values[torch.float32].scores, rtol=0, atol=0.05)


def test_parts_that_do_not_fit_are_refused() -> None:
    batch = joined_batch()
    with pytest.raises(ShapeError, match="contents must be int64"):
        Batch(batch.regions, batch.contents[:3])
    with pytest.raises(ShapeError, match="contents must be int64"):
        Batch(batch.regions, batch.contents.float())
    with pytest.raises(ShapeError, match="frames must be"):
        Batch(batch.regions, batch.contents, torch.ones(12, 7, 5))
    with pytest.raises(ShapeError, match="regions must be"):
        Batch(batch.regions[0], batch.contents)


# --- instants and events ---------------------------------------------------------------------------------------------


def plain(dims: int) -> VideoSimilarity:
    """Chamfer alone: a score is a mean of frame similarities."""
    return VideoSimilarity(SimilarityConfig(dims=dims, weighting="none", comparator=False, min_frames=1))


def mse(level: str) -> WeightedLosses:
    return WeightedLosses({"mse": Term(MeanSquared(), level=level)})


def test_frames_are_scored_by_instant_by_hand() -> None:
    # Two clips of two frames; the last frame of the first and the first of the second show the instant 5.
    regions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.0]]).view(2, 2, 1, 2)
    instants = torch.tensor([[4, NOTHING], [5, NOTHING], [7, 5], [NOTHING, NOTHING]]).view(2, 2, 2)
    batch = Batch(regions, torch.tensor([[0], [1]]), instants=instants)
    total = compute_step_losses(plain(2), mse("instant"), batch, teacher=TeacherConfig()).total
    # The two frames that have a positive: cosines .8 (positive) and 0, and back .8 (positive) and .6; s / 2 + 1 / 2.
    assert total.item() == pytest.approx((0.1**2 + 0.5**2 + 0.1**2 + 0.8**2) / 4, abs=1e-6)
    ignored = torch.zeros(4, 4, dtype=torch.bool)
    ignored[0, 2] = ignored[2, 0] = ignored[1, 2] = True  # a positive is never ignored
    total = compute_step_losses(
        plain(2), mse("instant"), replace(batch, ignored_frame_pairs=ignored), teacher=TeacherConfig()
    ).total
    assert total.item() == pytest.approx((0.1**2 + 0.5**2 + 0.1**2) / 3, abs=1e-6)


def test_targets_take_the_place_of_the_views_and_a_clip_meets_its_own() -> None:
    regions = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(2, 1, 1, 2)
    targets = torch.tensor([[0.6, 0.8], [0.0, 1.0]]).view(2, 1, 1, 2)
    batch = Batch(regions, torch.tensor([[0], [1]]), instants=torch.tensor([1, 2]).view(2, 1, 1), targets=targets)
    total = compute_step_losses(plain(2), mse("instant"), batch, teacher=TeacherConfig()).total
    assert total.item() == pytest.approx(((1 - 0.8) ** 2 + 0.5**2 + 0.9**2 + 0.0) / 4, abs=1e-6)


def test_instants_need_to_be_known() -> None:
    batch = Batch(torch.ones(2, 1, 1, 2), torch.tensor([[0], [1]]))
    with pytest.raises(DataError, match="does not know which instants"):
        compute_step_losses(plain(2), mse("instant"), batch, teacher=TeacherConfig())


@pytest.mark.parametrize("seed", range(3))
def test_instants_agree_with_a_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    N, T = 4, 3
    regions = F.normalize(torch.randn(N, T, 2, 8, generator=generator), dim=-1)
    instants = torch.randint(0, 5, (N, T, 1), generator=generator)
    ignored = torch.rand(N * T, N * T, generator=generator) < 0.2
    batch = Batch(regions, torch.arange(N)[:, None], instants=instants, ignored_frame_pairs=ignored)
    losses = WeightedLosses({"ap": Term(QuadLinearAP(), level="instant")})
    got = compute_step_losses(plain(8), losses, batch, teacher=TeacherConfig()).total.item()
    values, frames = [], regions.flatten(0, 1)
    for q in range(N * T):
        scores, labels = [], []
        for c in range(N * T):
            positive = bool(instants.flatten()[q] == instants.flatten()[c])
            if q // T != c // T and (positive or not ignored[q, c]):
                scores.append((frames[q] @ frames[c].T).amax(1).mean() / 2 + 0.5)
                labels.append(positive)
        if any(labels):
            values.append(QuadLinearAP()(torch.stack(scores)[None], torch.tensor([labels])).item())
    assert got == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_other_footage_of_a_video_is_an_event_and_neither_copy_nor_stranger() -> None:
    # Clips 0 and 1 are two windows of one video, clip 2 is a copy of the first window, clip 3 a stranger.
    angles = torch.tensor([0.0, 0.5, 0.2, 1.2])
    regions = torch.stack([angles.cos(), angles.sin()], 1).view(4, 1, 1, 2)
    batch = Batch(regions, torch.tensor([[0], [1], [0], [3]]), videos=torch.tensor([[7], [7], [7], [9]]))
    scores = (angles[:, None] - angles).cos() / 2 + 0.5

    def expected(kind: torch.Tensor) -> float:
        """Of pairs that are positive (1), negative (0) or left out (-1); clips without a positive do not ask."""
        counted = (kind >= 0) & (kind > 0).any(1, keepdim=True)
        return float(((scores - kind) ** 2)[counted].mean())

    copies = torch.tensor([[-1, -1, 1, 0], [-1, -1, -1, 0], [1, -1, -1, 0], [0, 0, 0, -1]])
    events = torch.tensor([[-1, 1, 1, 0], [1, -1, 1, 0], [1, 1, -1, 0], [0, 0, 0, -1]])
    for level, kind in (("video", copies), ("event", events)):
        total = compute_step_losses(plain(2), mse(level), batch, teacher=TeacherConfig()).total.item()
        assert total == pytest.approx(expected(kind), abs=1e-6)
    ignored = torch.zeros(4, 4, dtype=torch.bool)
    ignored[0, 3] = ignored[0, 2] = True  # strangers that look the same are left out; copies are not
    copies[0, 3] = -1
    total = compute_step_losses(
        plain(2), mse("video"), replace(batch, ignored_clip_pairs=ignored), teacher=TeacherConfig()
    ).total.item()
    assert total == pytest.approx(expected(copies), abs=1e-6)
