"""The metrics written from their definitions, slowly, on lists."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Key = Any


def ranked(scores: Sequence[float], relevant: Sequence[int], ids: Sequence[Key]) -> list[tuple[float, int]]:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], ids[i]))
    return [(scores[i], relevant[i]) for i in order]


def average_precision(
    scores: Sequence[float], relevant: Sequence[int], *, positives: int, ids: Sequence[Key], ties: str = "id"
) -> float:
    ranking = ranked(scores, relevant, ids)
    total = Fraction(0)
    for place, (score, label) in enumerate(ranking):
        if not label:
            continue
        last = place
        if ties == "group":
            last = max(i for i, (other, _) in enumerate(ranking) if other == score)
        total += Fraction(sum(found for _, found in ranking[: last + 1]), last + 1)
    return float(total / positives)


def evve_average_precision(
    scores: Sequence[float], relevant: Sequence[int], *, positives: int, ids: Sequence[Key]
) -> float:
    ap, found = 0.0, 0
    for place, (_, label) in enumerate(ranked(scores, relevant, ids)):
        if label:
            before = 1.0 if place == 0 else found / place
            found += 1
            ap += (before + found / (place + 1)) / 2 / positives
    return ap
