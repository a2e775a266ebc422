"""Checks of tensor arguments, worded once. Each raises an error that names the argument, and returns nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hapvr.errors import DataError, ShapeError


def shape_of(value: Any) -> str:
    """How an argument is named in an error: its shape if it is a tensor, else its type.

    >>> shape_of(torch.zeros(2, 3)), shape_of("x")
    ('[2, 3]', 'a str')
    """
    return str(list(value.shape)) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def require_tensor(value: Any, name: str, *, dims: int, axes: str, hint: str = "") -> None:
    """Raise `ShapeError` unless `value` is a floating-point tensor of `dims` dimensions; `axes` names them."""
    if not isinstance(value, Tensor) or value.ndim != dims:
        raise ShapeError(f"{name} must be a tensor {axes}, got {shape_of(value)}.{' ' + hint if hint else ''}")
    if not value.is_floating_point():
        raise ShapeError(f"{name} must be floating point, got {value.dtype}. Convert it with .float().")


def require_mask(mask: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raise `ShapeError` unless `mask` is a bool tensor of exactly this shape (True = real)."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = str(mask.dtype) if isinstance(mask, Tensor) else shape_of(mask)
        raise ShapeError(f"{name} must be a bool tensor, True where the entry is real; got {kind}.")
    if tuple(mask.shape) != shape:
        raise ShapeError(f"{name} must have shape {list(shape)}, got {list(mask.shape)}.")


def require_finite(value: Tensor, name: str) -> None:
    """Raise `DataError` if a value is NaN or infinite, and say how many are."""
    if value.numel() == 0:
        return
    low, high = value.detach().aminmax()  # NaN if a value is; unlike `isfinite` of all, they take no memory
    if not bool(low.isfinite() & high.isfinite()):
        bad = int((~torch.isfinite(value)).sum())
        raise DataError(
            f"{name} holds {bad} NaN or infinite of {value.numel()} values. Look for the step before this one that "
            "made them; hapvr never replaces them."
        )
