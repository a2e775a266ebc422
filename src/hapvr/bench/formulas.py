"""Formulas of a plan as text: evaluate them, and list the names that they use."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from hapvr.bench.estimate import count_exact_pairs, count_rough_pairs

_FUNCTIONS: dict[str, Callable[..., float]] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "exact_pairs": count_exact_pairs,
    "rough_pairs": count_rough_pairs,
}
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """The value of a formula: numbers, names of values, + - * /, and functions of `_FUNCTIONS`.

    >>> evaluate("2 * ceil(hours / 24)", {"hours": 25.0})
    4.0
    """

    def compute(node: ast.expr) -> float:
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](compute(node.left), compute(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _FUNCTIONS[node.func.id](*map(compute, node.args))
        return float(ast.literal_eval(node))

    return compute(ast.parse(formula, mode="eval").body)


def list_names(formula: str) -> set[str]:
    """The names of values that a formula uses.

    >>> sorted(list_names("2 * ceil(hours / days)"))
    ['days', 'hours']
    """
    return {node.id for node in ast.walk(ast.parse(formula)) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
