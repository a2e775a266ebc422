"""What training changed in a backbone that a model does not carry itself, in as few numbers as possible.

A tensor is stored whole, or, where its change has a low rank, as the two factors of the change: `NAME.up` [O, r] and
`NAME.down` [r, I h w], so that NAME is what it was plus up @ down.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hapvr.errors import WeightsError
from hapvr.model.fetching import halve

_UP, _DOWN = ".up", ".down"
_NEGLIGIBLE = 1e-4  # of the largest singular value: below what the factors' float16 can tell


def list_changes(new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of `new`, in float16, that differ from `old`, those of a low-rank change as two factors.

    `old` holds the tensors as `hapvr.model.fetching.halve` gives them, under the same names.

    >>> old = {"weight": torch.zeros(8, 8, dtype=torch.float16), "bias": torch.zeros(8)}
    >>> new = {"weight": torch.ones(8, 8), "bias": torch.zeros(8)}
    >>> {name: tuple(tensor.shape) for name, tensor in list_changes(new, old).items()}
    {'weight.up': (8, 1), 'weight.down': (1, 8)}
    """
    changes: dict[str, Tensor] = {}
    new = {name: tensor.detach().cpu() for name, tensor in new.items()}
    for name, halved in halve(new).items():
        if torch.equal(halved, old[name]):
            continue
        factors = _factorise(new[name].float() - old[name].float()) if new[name].ndim > 1 else None
        if factors is None:
            changes[name] = halved
        else:
            changes[name + _UP], changes[name + _DOWN] = (factor.half() for factor in factors)
    return changes


def apply_changes(old: Mapping[str, Tensor], changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a backbone with what `list_changes` gave; `WeightsError` for factors that fit no tensor.

    >>> factors = {"weight.up": torch.tensor([[1.0], [2.0]]), "weight.down": torch.tensor([[3.0, 4.0]])}
    >>> apply_changes({"weight": torch.zeros(2, 2)}, factors)["weight"].tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    tensors = dict(old)
    for name, value in changes.items():
        if name.endswith(_DOWN) and name.removesuffix(_DOWN) + _UP in changes:
            continue
        base = name.removesuffix(_UP)
        if base == name or base not in old:
            tensors[name] = value  # a whole tensor; a name that the backbone does not have is refused when it is loaded
            continue
        down = changes.get(base + _DOWN)
        if down is None or value.ndim != 2 or down.ndim != 2 or value.shape[1] != down.shape[0]:
            raise WeightsError(
                f"the change of '{base}' is not whole: it needs '{base}{_UP}' and a '{base}{_DOWN}' that fits."
            )
        if (len(value), down.shape[1]) != (len(old[base]), old[base][0].numel()):
            raise WeightsError(
                f"the change of '{base}' is for a matrix of {len(value)} x {down.shape[1]}; the backbone has "
                f"{len(old[base])} x {old[base][0].numel()}."
            )
        tensors[base] = old[base].float() + (value.float() @ down.float()).view(old[base].shape)
    return tensors


def _factorise(change: Tensor) -> tuple[Tensor, Tensor] | None:
    """Two factors of a change [O, ...], or None where they would not be less than half of its numbers."""
    matrix = change.flatten(1)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    rank = max(1, int((values > _NEGLIGIBLE * values[0]).sum()))
    if 2 * rank * sum(matrix.shape) > matrix.numel():
        return None
    roots = values[:rank].sqrt()  # both factors get half, so that neither leaves the range of float16
    return left[:, :rank] * roots, roots[:, None] * right[:rank]
