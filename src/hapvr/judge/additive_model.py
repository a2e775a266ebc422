"""A monotone additive model of log odds over named evidence, and its fit.

    log odds(x) = bias + sum over evidence i of f_i(x_i)

Each f_i rises and is piecewise linear between a few knots; beyond the outer ones it is constant, so that no evidence
counts for more than it did among the pairs of the fit. Evidence that is not known (NaN) counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapvr.errors import ConfigError, DataError, ShapeError

Array = NDArray[np.float64]
_SHARES = (0.02, 0.2, 0.4, 0.6, 0.8, 0.98)  # of the pairs, below each knot
_MAX_STEPS = 20_000
_CONVERGED = 1e-7  # of the largest change of a weight


@dataclass(frozen=True)
class AdditiveModel:
    """See the module. Get one by `fit_additive_model`.

    >>> model = AdditiveModel(("step",), ((0.0, 1.0, 2.0),), ((0.0, 1.0, 4.0),), bias=-1.0)
    >>> model.log_odds([[0.5], [1.5], [9.0]]).tolist()             # -1 + .5; -1 + (1 + 4) / 2; -1 + 4
    [-0.5, 1.5, 3.0]
    """

    names: tuple[str, ...]  # of the evidence
    knots: tuple[tuple[float, ...], ...]  # of each evidence, ascending
    values: tuple[tuple[float, ...], ...]  # of its function at the knots, never falling
    bias: float

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.knots) == len(self.values):
            raise ConfigError("An additive model needs knots and values for each name.")
        for name, knots, values in zip(self.names, self.knots, self.values, strict=True):
            if len(knots) != len(values) or not knots or (np.diff(knots) <= 0).any() or (np.diff(values) < 0).any():
                raise ConfigError(f"The knots of '{name}' must ascend, and its values must not fall.")

    @cached_property
    def _functions(self) -> list[tuple[Array, Array]]:
        """Knots and values of each function; made once, as a search asks for the odds of many pairs."""
        return [(np.array(knots), np.array(values)) for knots, values in zip(self.knots, self.values, strict=True)]

    def log_odds(self, evidence: ArrayLike) -> Array:
        """[N, evidence] -> [N]."""
        table = np.asarray(evidence, np.float64)
        if table.ndim != 2 or table.shape[1] != len(self.names):
            raise ShapeError(f"evidence must be [N, {len(self.names)}], got {list(table.shape)}.")
        added = [np.interp(table[:, place], *function) for place, function in enumerate(self._functions)]
        return np.asarray(self.bias + np.where(np.isnan(table), 0.0, np.stack(added, 1)).sum(1))

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        functions = {
            name: {"knots": list(knots), "values": list(values)}
            for name, knots, values in zip(self.names, self.knots, self.values, strict=True)
        }
        return {"bias": self.bias, "evidence": functions}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> AdditiveModel:
        """What `to_json` wrote."""
        functions = plain["evidence"]
        return cls(
            tuple(functions),
            tuple(tuple(float(knot) for knot in one["knots"]) for one in functions.values()),
            tuple(tuple(float(value) for value in one["values"]) for one in functions.values()),
            float(plain["bias"]),
        )


def fit_additive_model(
    names: Sequence[str],
    evidence: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    ridge: float = 1e-3,
) -> AdditiveModel:
    """The model of the greatest likelihood, each class weighing the same, with a ridge that keeps functions flat.

    Args:
        names: of the columns.
        evidence: [N, evidence].
        labels: [N] bool, True for pairs that match.
        weights: [N] of the rows within their class; the same for all if None.
        ridge: times the sum of squared rises; half the likelihood is of each class, so that it needs no scale.
    """
    table, matches = np.asarray(evidence, np.float64), np.asarray(labels, bool)
    if table.shape != (len(matches), len(names)):
        raise ShapeError(f"evidence must be [{len(matches)}, {len(names)}], got {list(table.shape)}.")
    if matches.all() or not matches.any():
        raise DataError("A fit needs pairs that match and pairs that do not.")
    weight = np.ones(len(matches)) if weights is None else np.asarray(weights, np.float64)
    weight = np.where(matches, weight / weight[matches].sum(), weight / weight[~matches].sum()) / 2
    knots = [_choose_knots(column, weight) for column in table.T]
    columns = [_ramps(column, places) for column, places in zip(table.T, knots, strict=True)]
    design = np.concatenate([*columns, np.ones((len(table), 1))], 1)  # [N, ramps + 1]
    solution = _descend(design, matches, weight, ridge)
    values, first = [], 0
    for places in knots:
        rises = solution[first : first + len(places) - 1]
        values.append((0.0, *np.cumsum(rises).tolist()))
        first += len(places) - 1
    return AdditiveModel(tuple(names), tuple(tuple(k.tolist()) for k in knots), tuple(values), float(solution[-1]))


def _choose_knots(values: Array, weight: Array) -> Array:
    """Places that have these shares of the weight below them."""
    known = ~np.isnan(values)
    order = np.argsort(values[known])
    ordered, below = values[known][order], np.cumsum(weight[known][order])
    if not len(ordered):
        return np.array([0.0, 1.0])
    places: Array = np.unique(np.interp(np.array(_SHARES) * below[-1], below, ordered).round(6))
    return places if len(places) > 1 else np.array([places[0], places[0] + 1.0])


def _ramps(values: Array, knots: Array) -> Array:
    """[N] -> [N, knots - 1]: how much of the way from each knot to the next; 0 where the value is not known."""
    ramps = np.clip((values[:, None] - knots[:-1]) / np.diff(knots), 0, 1)
    return np.where(np.isnan(values)[:, None], 0.0, ramps)


def _descend(design: Array, matches: NDArray[np.bool_], weight: Array, ridge: float) -> Array:
    """Minimise the weighted log loss with all weights but the last at least 0: accelerated projected gradient."""
    bound = np.append(np.zeros(design.shape[1] - 1), -np.inf)
    penalty = np.append(np.full(design.shape[1] - 1, ridge), 0.0)
    rate = 1 / (0.25 * np.linalg.norm(design.T @ (design * weight[:, None]), 2) + ridge)
    now = ahead = np.zeros(design.shape[1])
    momentum = 1.0
    for _ in range(_MAX_STEPS):
        chance = 1 / (1 + np.exp(-(design @ ahead)))
        gradient = design.T @ (weight * (chance - matches)) + penalty * ahead
        following = np.maximum(ahead - rate * gradient, bound)
        if (following - now) @ (ahead - following) > 0:  # overshot: begin to gather speed again
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + (momentum - 1) / faster * (following - now)
        moved, now, momentum = np.abs(following - now).max(), following, faster
        if moved < _CONVERGED:
            break
    return now
