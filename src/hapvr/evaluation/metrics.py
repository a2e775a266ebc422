"""Average precision of one query, its mean over queries (mAP), and over all pairs pooled (uAP).

Arguments that all functions share:

scores     higher is more similar. One query: [N]. Several: [Q, N], or a list of Q arrays of any lengths. Numpy arrays
           or torch tensors; infinities are ranked, NaN is refused.
relevant   of the same shape, True or 1 where the target is a positive of the query.
positives  how many positives the database holds for a query (several queries: one number each), when some of them
           were not retrieved and so have no score. Default: those in `relevant`.
ids        the targets' ids, integers or strings, which order equal scores: [N] for all queries alike, or, for a list of
           queries, a list of one array each. Default: the position in the array.
ties       "id": equal scores are ordered by ascending id. "group": equal scores are one threshold, and each positive
           among them takes the precision at the end of the group, as scikit-learn's `average_precision_score`.

All figures are float64 fractions of 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError, ShapeError

Array: TypeAlias = "npt.ArrayLike | Tensor"
Queries: TypeAlias = "npt.ArrayLike | Tensor | Sequence[npt.ArrayLike | Tensor]"
Ties: TypeAlias = Literal["id", "group"]
_Scores: TypeAlias = "npt.NDArray[np.float32] | npt.NDArray[np.float64]"
_Bools: TypeAlias = npt.NDArray[np.bool_]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Ints: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 1 << 22  # scores of a [Q, N] array ranked at a time


def average_precision(
    scores: Array, relevant: Array, *, positives: int | None = None, ids: Array | None = None, ties: Ties = "id"
) -> float:
    """Sum over retrieved positives of the precision at their rank, over the positives in the database.

    NaN if the database holds no positive: the figure is not defined, and `mean_average_precision` leaves the query out.

    Example: positives at ranks 1 and 3 have precisions 1 and 2/3; with a third that was not retrieved, over 3.
        >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
        0.8333333333333333
        >>> round(average_precision([0.9, 0.8, 0.7], [True, False, True], positives=3), 4)
        0.5556
    """
    row = _check_query(scores, relevant, ids)
    total = _count_positives([row], None if positives is None else [positives])
    return float(_sum_precisions(*row, ties=ties)[0] / total[0]) if total[0] else float("nan")


def mean_average_precision(
    scores: Queries,
    relevant: Queries,
    *,
    positives: Sequence[int] | npt.NDArray[Any] | None = None,
    ids: Queries | None = None,
    ties: Ties = "id",
) -> float:
    """Mean of `average_precision` over the queries with at least one positive in the database (mAP).

    `DataError` if no query has one.

    Example: the first query has AP 1, the second 1/2; the third has no positive and is not counted.
        >>> scores = [[0.9, 0.1], [0.9, 0.1], [0.5, 0.4]]
        >>> mean_average_precision(scores, [[1, 0], [0, 1], [0, 0]])
        0.75
    """
    rows = _make_blocks(scores, relevant, ids)
    total = _count_positives(rows, positives)
    found = np.concatenate([_sum_precisions(*row, ties=ties) for row in rows])
    counted = _require_positives(total)
    return float(np.mean(found[counted] / total[counted]))


def micro_average_precision(
    scores: Queries,
    relevant: Queries,
    *,
    positives: int | Sequence[int] | npt.NDArray[Any] | None = None,
    ids: Queries | None = None,
    ties: Ties = "id",
) -> float:
    """One average precision over the (query, target) pairs of all queries, pooled and sorted by score (uAP).

    It asks more than mAP: scores must be comparable between queries. Equal scores are ordered by query (its position)
    and then by target id. `positives` is one number per query, or one for all together. Arrays [P] of pairs that are
    pooled already are taken as they are.

    Example: the pool .9(+) .8(-) .7(+) .1(-) has precisions 1 and 2/3 at its positives.
        >>> micro_average_precision([[0.9, 0.1], [0.8, 0.7]], [[1, 0], [0, 1]])
        0.8333333333333333
    """
    rows = (
        [_check_query(scores, relevant, ids)] if _is_pooled(scores) else _make_blocks(scores, relevant, ids, block=None)
    )
    if positives is not None and np.ndim(positives) == 0:
        total = _check_positives(_count_positives(rows, None).sum(keepdims=True), np.array([positives]))
    else:
        total = _count_positives(rows, positives)  # type: ignore[arg-type]  # a single number went the other way
    _require_positives(total)
    pooled_scores: _Scores = np.concatenate([numbers.ravel() for numbers, _ in rows])
    pooled_labels = np.concatenate([labels.ravel() for _, labels in rows])
    return float(_sum_precisions(pooled_scores[None], pooled_labels[None], ties=ties)[0] / total.sum())


def evve_average_precision(
    scores: Array, relevant: Array, *, positives: int | None = None, ids: Array | None = None
) -> float:
    """Average precision by the trapezoidal rule, as EVVE's evaluation computes it.

    With n positives in the database, the i-th retrieved one (from 0) at rank r (from 0) adds (p0 + p1) / 2 / n, where
    p0 = i / r is the precision before it (1 if r = 0) and p1 = (i + 1) / (r + 1) the precision with it. Equal scores
    are ordered by id. 0 if the database holds no positive.

    Example: positives at ranks 0 and 2 add (1 + 1) / 4 and (1/2 + 2/3) / 4.
        >>> round(evve_average_precision([0.9, 0.8, 0.7], [True, False, True]), 4)
        0.7917
    """
    row = _check_query(scores, relevant, ids)
    total = _count_positives([row], None if positives is None else [positives])
    return float(_sum_precisions(*row, ties="id", trapezoid=True)[0] / max(total[0], 1))


def evve_mean_average_precision(
    scores: Queries,
    relevant: Queries,
    *,
    positives: Sequence[int] | npt.NDArray[Any] | None = None,
    ids: Queries | None = None,
) -> float:
    """Mean of `evve_average_precision` over all queries: one without a positive counts, as 0.

    Example: the queries have 1/4 (a positive at rank 1: p0 = 0, p1 = 1/2), 1 and 0.
        >>> round(evve_mean_average_precision([[0.9, 0.1], [0.9, 0.1], [0.5, 0.4]], [[0, 1], [1, 0], [0, 0]]), 4)
        0.4167
    """
    rows = _make_blocks(scores, relevant, ids)
    total = _count_positives(rows, positives)
    found = np.concatenate([_sum_precisions(*row, ties="id", trapezoid=True) for row in rows])
    _require_positives(total)
    return float(np.mean(found / np.maximum(total, 1)))


def _sum_precisions(scores: _Scores, relevant: _Bools, *, ties: str, trapezoid: bool = False) -> _Floats:
    """Per row of [Q, N] arrays ordered by id, the sum over its positives of their precisions."""
    if ties not in ("id", "group"):
        raise ConfigError(f"ties has no value '{ties}'; {suggest(str(ties), ['id', 'group'])}")
    queries, targets = scores.shape
    ranked, group_ends = _rank(scores, relevant, groups=ties == "group")
    places = np.flatnonzero(ranked)  # of the positives, counted through all rows
    row = places // targets
    first = np.searchsorted(places, np.arange(queries) * targets)  # number of the first positive of each row
    if group_ends is not None:
        places = group_ends[np.searchsorted(group_ends, places)]
        number = np.searchsorted(np.flatnonzero(ranked), places, side="right") - first[row]
    else:
        number = np.arange(len(places)) - first[row] + 1
    rank = places - row * targets + 1  # both count from 1
    precision = number / rank
    if trapezoid:
        before = np.where(rank == 1, 1.0, (number - 1) / np.maximum(rank - 1, 1))
        precision = (before + precision) / 2
    sums: _Floats = np.bincount(row, weights=precision, minlength=queries).astype(np.float64)
    return sums


def _rank(scores: _Scores, relevant: _Bools, *, groups: bool) -> tuple[_Bools, _Ints | None]:
    """Relevance in falling order of score, and, if asked for, where each group of equal scores ends (row-major)."""
    queries, targets = scores.shape
    single = _as_float32(scores)
    if single is not None and targets < 1 << 31:
        # One integer holds the score, the position and the label: numpy sorts integers about twice as fast as it finds
        # a stable order, and nothing is left to look up. Adding 0 turns -0 into 0.
        bits = (single + np.float32(0)).view(np.int32)
        falling = bits ^ (~(bits >> 31) & 0x7FFFFFFF)  # smaller, as an unsigned number, where the score is larger
        keys = falling.view(np.uint32).astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= np.arange(0, 2 * targets, 2, dtype=np.uint64)
        keys |= relevant
        keys.sort(axis=1)
        ranked = (keys & np.uint64(1)).astype(np.bool_)
        changes = (keys[:, 1:] ^ keys[:, :-1]) >> np.uint64(32) != 0 if groups else None
    else:
        order = np.argsort(-scores, axis=1, kind="stable")
        ranked = np.take_along_axis(relevant, order, axis=1)
        changes = None
        if groups:
            in_order: _Floats = np.take_along_axis(np.asarray(scores, dtype=np.float64), order, axis=1)
            changes = in_order[:, 1:] != in_order[:, :-1]
    if changes is None:
        return ranked, None
    ends = np.ones((queries, targets), dtype=np.bool_)
    ends[:, :-1] = changes
    return ranked, np.flatnonzero(ends)


def _as_float32(scores: _Scores) -> npt.NDArray[np.float32] | None:
    """The same scores in float32, if that loses nothing."""
    if scores.dtype == np.float32:
        return scores  # type: ignore[return-value]
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32)
    return single if np.array_equal(single, scores) else None


def _check_query(scores: Queries, relevant: Queries, ids: Queries | None) -> tuple[_Scores, _Bools]:
    """Scores and relevance of one query as checked [1, N] arrays in the order of the ids."""
    expected = "[N], those of one query"
    instead = "For several queries use mean_average_precision or micro_average_precision."
    numbers, labels = _check_arrays(scores, relevant, ids, 1, expected, instead)
    return numbers[None], labels[None]


def _make_blocks(
    scores: Queries, relevant: Queries, ids: Queries | None, *, block: int | None = _BLOCK
) -> list[tuple[_Scores, _Bools]]:
    """Several queries as checked [Q, N] arrays in the order of the ids: blocks of an array, or one of each list's."""
    if isinstance(scores, (list, tuple)):
        return list(_check_each(scores, relevant, ids))
    expected = "[Q, N] or a list of one array per query"
    numbers, labels = _check_arrays(scores, relevant, ids, 2, expected, "For one query use average_precision.")
    step = len(numbers) if block is None else max(1, block // numbers.shape[1])
    return [(numbers[at : at + step], labels[at : at + step]) for at in range(0, len(numbers), step)]


def _check_arrays(
    scores: Any, relevant: Any, ids: Any, ndim: int, expected: str, instead: str
) -> tuple[_Scores, _Bools]:
    """Scores and relevance as arrays of `ndim` dimensions, targets in the order of their ids."""
    numbers, labels = check_scores(scores), _to_numpy(relevant, "relevant")
    if labels.dtype != np.bool_:
        if not np.issubdtype(labels.dtype, np.number) or not bool(np.all((labels == 0) | (labels == 1))):
            raise DataError(
                f"relevant must be bool, or numbers that are all 0 or 1; got other values of {labels.dtype}."
            )
        labels = labels.astype(np.bool_)
    if numbers.ndim != ndim:
        raise ShapeError(f"scores must be {expected}, got {list(numbers.shape)}. {instead}")
    if numbers.shape != labels.shape:
        shapes = f"{list(numbers.shape)} and {list(labels.shape)}"
        raise ShapeError(f"scores and relevant must have one shape, got {shapes}.")
    if ids is not None and (order := _find_order(ids, numbers.shape[-1])) is not None:
        numbers, labels = numbers[..., order], labels[..., order]
    return numbers, labels


def _check_each(scores: Sequence[Any], relevant: Any, ids: Any) -> Iterator[tuple[_Scores, _Bools]]:
    if not scores:
        raise DataError("scores is an empty list: there is no query to measure.")
    if len(relevant) != len(scores):
        raise ShapeError(f"scores are of {len(scores)} queries and relevant of {len(relevant)}: give one array each.")
    if ids is None or len(ids) == 0 or np.ndim(ids[0]) == 0:
        ids = [ids] * len(scores)
    elif len(ids) != len(scores):
        raise ShapeError(
            f"scores are of {len(scores)} queries and ids of {len(ids)}: give one array each, or one for all."
        )
    for query, row in enumerate(zip(scores, relevant, ids, strict=True)):
        try:
            yield _check_query(*row)
        except (ShapeError, DataError) as error:
            raise type(error)(f"query {query}: {error}") from error


def _count_positives(rows: list[tuple[_Scores, _Bools]], positives: Sequence[int] | npt.NDArray[Any] | None) -> _Ints:
    """Positives in the database per query [Q]."""
    found = np.concatenate([np.count_nonzero(relevant, axis=1) for _, relevant in rows]).astype(np.int64)
    return found if positives is None else _check_positives(found, np.asarray(positives))


def _check_positives(found: _Ints, positives: npt.NDArray[Any]) -> _Ints:
    if positives.shape != found.shape or not np.issubdtype(positives.dtype, np.integer):
        raise ShapeError(
            f"positives must be {len(found)} whole numbers, one per query, got {positives.dtype} of shape "
            f"{list(positives.shape)}."
        )
    short = np.flatnonzero(positives < found)
    if len(short):
        raise DataError(
            f"query {short[0]} has {found[short[0]]} positives among its targets, but positives says the database "
            f"holds {positives[short[0]]}. Count those of the whole database."
        )
    return positives.astype(np.int64)


def _require_positives(total: _Ints) -> _Bools:
    counted: _Bools = total > 0
    if not counted.any():
        raise DataError(f"none of the {len(total)} queries has a positive, so there is nothing to average.")
    return counted


def _is_pooled(scores: Any) -> bool:
    """Whether these are scores of pairs, not of queries."""
    if isinstance(scores, (list, tuple)):
        return not scores or np.ndim(scores[0]) == 0
    return np.ndim(scores) == 1


def _to_numpy(value: Any, name: str) -> npt.NDArray[Any]:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        half = value.is_floating_point() and value.element_size() < 4  # numpy has no bfloat16
        return np.asarray((value.float() if half else value).numpy())
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} is no array: its rows differ in length. Pass a list of arrays.") from error


def check_ranking(scores: Array, relevant: Array) -> tuple[_Scores, _Bools]:
    """Scores and relevance of one ranking as arrays [N]; `ShapeError` or `DataError` if they are none."""
    numbers, labels = _check_query(scores, relevant, None)
    return numbers[0], labels[0]


def check_scores(value: Any) -> _Scores:
    """Scores as an array of float32 or float64; `ShapeError` or `DataError` if they are no numbers, or NaN."""
    array = _to_numpy(value, "scores")
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ShapeError(f"scores must be numbers, got {array.dtype}.")
    if array.size == 0:
        raise DataError(f"scores is empty, of shape {list(array.shape)}: there is nothing to rank.")
    array = array.astype(np.float32 if array.dtype in (np.float16, np.float32) else np.float64, copy=False)
    if bad := int(np.count_nonzero(np.isnan(array))):
        raise DataError(f"scores holds {bad} NaN of {array.size} values, which have no rank. Find what made them.")
    return array


def _find_order(ids: Any, targets: int) -> _Ints | None:
    """The order that sorts the ids, or None if they are sorted."""
    array = _to_numpy(ids, "ids")
    if array.shape != (targets,):
        raise ShapeError(f"ids must be {targets}, one per target, got shape {list(array.shape)}.")
    order = np.argsort(array, kind="stable")
    array = array[order]
    same = np.flatnonzero(array[1:] == array[:-1])
    if len(same):
        raise DataError(f"ids holds {array[same[0]]!r} more than once: a ranking holds each target once.")
    return None if np.array_equal(order, np.arange(targets)) else order


def replace_nan(table: Mapping[str, Any], value: Any = None) -> dict[str, Any]:
    """A table in which figures that are not defined (NaN) are another value, as CSV and JSON need it.

    >>> replace_nan({"f1": float("nan"), "found": 0})
    {'f1': None, 'found': 0}
    """
    return {name: value if isinstance(one, float) and np.isnan(one) else one for name, one in table.items()}


class Figures:
    """The base of dataclasses of figures.

    Attributes:
        derived: names of properties that are figures too.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping; what is not defined is None."""
        return replace_nan(asdict(self) | {name: getattr(self, name) for name in self.derived})  # type: ignore[call-overload]
