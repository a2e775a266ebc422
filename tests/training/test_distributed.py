"""Two processes against one on the joined batch. The processes start once; each test reads what they left."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hapvr.errors import ShapeError
from hapvr.losses import LossInputs, WeightedLosses, build_hapvr_losses
from hapvr.similarity import Descriptors, SimilarityConfig, VideoSimilarity
from hapvr.training import gather, make_pseudo_labels, rank, world_size
from tests.training.toy import run_two_processes

BATCH, INPUTS, SPLITS = 6, 5, {"equal": [3, 3], "unequal": [4, 2]}


def toy_model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def toy_batch() -> Tensor:
    return torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def squares(rows: Tensor, everything: Tensor, _first: int) -> Tensor:
    """Mean over rows of the squared length of their sum with the mean of everything."""
    return (rows + everything.mean(0)).square().sum(1).mean()


def info_nce(rows: Tensor, everything: Tensor, first: int) -> Tensor:
    """Mean over query rows of a cross entropy on their row of the score matrix; the positive is the next clip."""
    scores = rows @ everything.mT / 0.5
    own = torch.arange(first, first + len(rows))
    scores = scores.masked_fill(own[:, None] == torch.arange(len(everything)), -torch.inf)
    return nn.functional.cross_entropy(scores, (own + 1) % len(everything))


LOSSES: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {"squares": squares, "info_nce": info_nce}


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def step(loss: str, sizes: list[int]) -> dict[str, Any]:
    """One step of this process, its share of the batch given by `sizes`: DDP, gather, own query rows."""
    model = DistributedDataParallel(toy_model())
    first = sum(sizes[: rank()])
    rows = model(toy_batch()[first : first + sizes[rank()]])
    value = LOSSES[loss](rows, gather(rows), first) * (world_size() * sizes[rank()] / BATCH)
    value.backward()  # type: ignore[no-untyped-call]
    return {"loss": value.detach(), "gradients": gradients(model)}


def hapvr_step(sizes: list[int]) -> dict[str, Any]:
    """One step of the real network and HAP-VR's total loss: own clips are the queries, all gathered clips the targets.

    Clips 0..2 are views of videos 0..2, clips 3..5 other views of the same. The means over queries are equal shares of
    the joined mean; the range penalty is a sum, so it is scaled by the number of processes.
    """
    torch.manual_seed(5)
    model = VideoSimilarity(SimilarityConfig(dims=16)).double()
    first, count = sum(sizes[: rank()]), sizes[rank()]
    clips = torch.randn(BATCH, 8, 4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    own = clips[first : first + count]
    described = model.make_descriptors(own)
    comparison = model(described, Descriptors.of(gather(described.as_subclass(Tensor))))
    content, number = torch.arange(BATCH) % 3, torch.arange(BATCH)
    relevance = (content[:, None] == content)[first : first + count]
    itself = (number[:, None] == number)[first : first + count]
    query, target = (relevance & ~itself).nonzero(as_tuple=True)
    positive, negative = make_pseudo_labels(own.mean(2)[query], clips.mean(2)[target])
    scores = comparison.scores / 2 + 0.5
    recipe = build_hapvr_losses().terms
    penalty = replace(recipe["range"], weight=recipe["range"].weight * world_size())
    total, _ = WeightedLosses({**recipe, "range": penalty})(
        LossInputs(
            scores=scores,
            relevance=relevance,
            ignore=itself,
            self_scores=scores[itself],
            frame_matrices=comparison.frame_matrices[query, target],
            frame_positive=positive,
            frame_negative=negative,
            raw=20 * comparison.raw,  # beyond [-1, 1], so that the penalty counts
        )
    )
    total.backward()
    averaged = gradients(model)
    for gradient in averaged if world_size() > 1 else ():
        dist.all_reduce(gradient)
        gradient /= world_size()
    return {"loss": total.detach(), "gradients": averaged, "outside": (20 * comparison.raw).abs().max().item()}


def refusal(tensor: Tensor) -> str:
    try:
        gather(tensor)
    except ShapeError as error:
        return str(error)
    return "accepted"


def work(process: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=process, world_size=2)
    weighted = torch.arange(2.0).requires_grad_()
    joined = gather(weighted)
    (joined * torch.tensor([1.0, 2, 3, 4]) * (10**process)).sum().backward()
    results = {
        "numbers": (rank(), world_size()),
        "steps": {(loss, name): step(loss, sizes) for loss in LOSSES for name, sizes in SPLITS.items()},
        "hapvr": hapvr_step([3, 3]),
        "gradient": weighted.grad,
        "joined": {
            "ragged": gather(torch.full((1 + process, 2), float(process))),
            "empty": gather(torch.ones(process, 2)),
            "transposed": gather(torch.arange(6.0).view(2, 3).mT + process),
            "bool": gather(torch.tensor([True, False, process == 1])),
            "long": gather(torch.tensor([2**40 + process])),
            "bfloat16": gather(torch.tensor([1.5 + process], dtype=torch.bfloat16)),
        },
        "refusals": {
            "width": refusal(torch.ones(2, 3 + process)),
            "dims": refusal(torch.ones(2, 3) if process else torch.ones(2)),
            "dtype": refusal(torch.ones(2).double() if process else torch.ones(2)),
            "gradient": refusal(torch.ones(2, requires_grad=process == 1)),
        },
    }
    torch.save(results, f"{folder}/{process}.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of DDP and gloo that outlive the interpreter now and then abort the process as it ends


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_two_processes(work, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_equal_one_on_the_joined_batch(processes: list[dict[str, Any]], loss: str, split: str) -> None:
    model = toy_model()
    rows = model(toy_batch())
    value = LOSSES[loss](rows, gather(rows), 0)
    value.backward()  # type: ignore[no-untyped-call]
    steps = [process["steps"][loss, split] for process in processes]
    torch.testing.assert_close(torch.stack([step["loss"] for step in steps]).mean(), value.detach())
    for step in steps:
        torch.testing.assert_close(step["gradients"], gradients(model))


def test_the_whole_method_in_two_processes_equals_one_on_the_joined_batch(processes: list[dict[str, Any]]) -> None:
    alone = hapvr_step([BATCH])
    assert alone["outside"] > 1
    steps = [process["hapvr"] for process in processes]
    torch.testing.assert_close(torch.stack([step["loss"] for step in steps]).mean(), alone["loss"])
    for step in steps:
        torch.testing.assert_close(step["gradients"], alone["gradients"])


def test_the_gradient_is_that_of_the_sum_over_processes(processes: list[dict[str, Any]]) -> None:
    # Process 0 backpropagates (1, 2, 3, 4), process 1 ten times as much; each keeps its own two.
    assert [process["gradient"].tolist() for process in processes] == [[11, 22], [33, 44]]


def test_processes_know_their_number(processes: list[dict[str, Any]]) -> None:
    assert [process["numbers"] for process in processes] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ragged", torch.tensor([[0.0, 0], [1, 1], [1, 1]])),
        ("empty", torch.ones(1, 2)),
        ("transposed", torch.tensor([[0.0, 3], [1, 4], [2, 5], [1, 4], [2, 5], [3, 6]])),
        ("bool", torch.tensor([True, False, False, True, False, True])),
        ("long", torch.tensor([2**40, 2**40 + 1])),
        ("bfloat16", torch.tensor([1.5, 2.5], dtype=torch.bfloat16)),
    ],
)
def test_tensors_are_joined_in_the_order_of_ranks(processes: list[dict[str, Any]], name: str, expected: Tensor) -> None:
    for process in processes:
        assert torch.equal(process["joined"][name], expected)
        assert process["joined"][name].dtype == expected.dtype


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("width", "rank 0 [2, 3] torch.float32, without gradient; rank 1 [2, 4]"),
        ("dims", "rank 0 [2] torch.float32, without gradient; rank 1 [2, 3]"),
        ("dtype", "rank 1 [2] torch.float64"),
        ("gradient", "without gradient; rank 1 [2] torch.float32, with gradient"),
    ],
)
def test_tensors_that_cannot_be_joined_are_refused_everywhere(
    processes: list[dict[str, Any]], name: str, words: str
) -> None:
    for process in processes:
        assert words in process["refusals"][name]


def test_without_a_process_group_gathering_is_the_identity() -> None:
    tensor = torch.randn(3, 2, requires_grad=True)
    assert gather(tensor) is tensor
    assert (rank(), world_size()) == (0, 1)


@pytest.mark.parametrize("tensor", [torch.tensor(1.0), torch.ones(2, dtype=torch.complex64), [1.0]])
def test_what_cannot_be_gathered_is_refused_on_a_laptop_too(tensor: Tensor) -> None:
    with pytest.raises(ShapeError, match="gather takes tensors"):
        gather(tensor)
