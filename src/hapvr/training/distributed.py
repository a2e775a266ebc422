"""One batch over several processes: gathering that gradients can follow back.

Without a process group everything here is the identity, so one code path serves a laptop and a cluster.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.rendezvous import rendezvous

from hapvr.errors import ShapeError

Value = TypeVar("Value")

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool)
_MAX_DIMS = 8
_MAX_WAIT = timedelta(hours=3)  # of one process for another: the first one makes the bank


def rank() -> int:
    """Number of this process, from 0; 0 without a process group."""
    return dist.get_rank() if _is_grouped() else 0


def world_size() -> int:
    """How many processes share the batch; 1 without a process group."""
    return dist.get_world_size() if _is_grouped() else 1


def gather(tensor: Tensor) -> Tensor:
    """The tensors of all processes joined along axis 0, in the order of their ranks: [N_0 + N_1 + ..., ...].

    First dimensions may differ; all else (other dimensions, type, whether a gradient is asked for) must not, and every
    process raises where it does. Without a process group it is the tensor itself.

    Gradient: the tensor of a process receives the gradient of the SUM over processes of what each backpropagates; then
    the parameters' gradients are averaged over the W processes. So with L_p the loss that process p computes for its
    own query rows against all gathered targets, a step equals one process on the joined batch
      - as it is, if L_p is a mean over p's query rows and all processes hold equally many;
      - with L_p times W N_p / N, if they hold N_p rows of N in all;
      - with L_p times W, if L is a sum over query rows.

    Every process must gather the same tensors in the same order, and call backward through each of them, if need be
    with a zero loss that depends on it: the backward pass waits for all. Second derivatives are refused.

    >>> gather(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not isinstance(tensor, Tensor) or not 1 <= tensor.ndim <= _MAX_DIMS or tensor.dtype not in _DTYPES:
        what = f"{list(tensor.shape)} of {tensor.dtype}" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise ShapeError(
            f"gather takes tensors [N, ...] of 1 to {_MAX_DIMS} dimensions and type "
            f"{', '.join(str(known).removeprefix('torch.') for known in _DTYPES)}; got {what}."
        )
    if world_size() == 1:
        return tensor
    return _Gather.apply(tensor, _exchange_lengths(tensor))  # type: ignore[no-untyped-call, no-any-return]


def broadcast(value: Value) -> Value:
    """What the first process has, a plain object, in all of them."""
    box = [value]
    if world_size() > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def average(value: Tensor) -> Tensor:
    """The mean over processes of a detached scalar."""
    value = value.detach().clone()
    if world_size() > 1:
        dist.all_reduce(value)
        value /= world_size()
    return value


@contextlib.contextmanager
def join_processes() -> Iterator[None]:
    """The process group of `torchrun`, for as long as a run lasts; nothing for one process, or inside a group."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or _is_grouped():
        yield
        return
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # torchrun keeps one store for all attempts. What processes that were lost have left in it is not for the new ones.
    store, rank, size = next(rendezvous("env://", timeout=_MAX_WAIT))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    backend = "nccl" if gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_MAX_WAIT)
    try:
        yield
    finally:
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, lengths: list[int]) -> Tensor:
        ctx.lengths = lengths
        wire = tensor.detach().to(torch.uint8) if tensor.dtype == torch.bool else tensor.detach()
        # Collectives take equal shapes: the short ones are padded at the end and cut again.
        padding = [0, 0] * (tensor.ndim - 1) + [0, max(lengths) - len(tensor)]
        wire = F.pad(wire, padding).contiguous()
        received = [torch.empty_like(wire) for _ in lengths]
        dist.all_gather(received, wire)
        return torch.cat([part[:n] for part, n in zip(received, lengths, strict=True)]).to(tensor.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)  # sum over processes
        return torch.split(total, ctx.lengths)[dist.get_rank()], None


def _exchange_lengths(tensor: Tensor) -> list[int]:
    """First dimensions of all processes' tensors, after checking that they can be joined."""
    differentiable = tensor.requires_grad and torch.is_grad_enabled()
    header = [tensor.ndim, _DTYPES.index(tensor.dtype), int(differentiable), *tensor.shape]
    mine = torch.tensor(header + [0] * (_MAX_DIMS - tensor.ndim), device=tensor.device)
    received = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(received, mine)
    headers = [row.tolist() for row in received]
    kinds = [row[:3] + row[4:] for row in headers]
    if any(kind != kinds[0] for kind in kinds):
        described = "; ".join(_format_header(number, row) for number, row in enumerate(headers))
        raise ShapeError(f"the processes gather tensors that cannot be joined along axis 0: {described}.")
    return [row[3] for row in headers]


def _format_header(number: int, header: list[int]) -> str:
    dims, dtype, differentiable, *shape = header
    return f"rank {number} {shape[:dims]} {_DTYPES[dtype]}, {'with' if differentiable else 'without'} gradient"


def _is_grouped() -> bool:
    return dist.is_available() and dist.is_initialized()
