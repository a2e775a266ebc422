"""The losses as slow loops over plain Python numbers: an answer that owes nothing to the library.

A batch is three nested lists: scores, relevance, ignore. `queries` splits it into (positives, negatives) of each query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp, log

Numbers = list[list[float]]
Flags = list[list[bool]]


def queries(scores: Numbers, relevance: Flags, ignore: Flags) -> Iterator[tuple[list[float], list[float]]]:
    for row, relevant, ignored in zip(scores, relevance, ignore, strict=True):
        kept = [(s, r) for s, r, i in zip(row, relevant, ignored, strict=True) if not i]
        yield [s for s, r in kept if r], [s for s, r in kept if not r]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def over_queries(
    loss: Callable[[list[float], list[float]], float], scores: Numbers, relevance: Flags, ignore: Flags
) -> float:
    return mean([loss(pos, neg) for pos, neg in queries(scores, relevance, ignore) if pos])


def surrogate(x: float, delta: float) -> float:
    if x < -delta:
        return 0.0
    if x < 0:
        return (1 + x / delta) ** 2
    return 1 + 2 * x / delta


def quad_linear_ap_of(pos: list[float], neg: list[float], delta: float, rho: float) -> float:
    total = 0.0
    for s in pos:
        wrong = sum(surrogate(n - s, delta) for n in neg)
        x = wrong / (1 + rho * sum(p > s for p in pos))
        total += x / (1 + x)
    return total / len(pos)


def quad_linear_ap(scores: Numbers, relevance: Flags, ignore: Flags, delta: float, rho: float) -> float:
    return over_queries(lambda pos, neg: quad_linear_ap_of(pos, neg, delta, rho), scores, relevance, ignore)


def frame_quad_linear_ap(
    matrices: list[Numbers],
    positive: list[Flags],
    negative: list[Flags],
    query_mask: Flags,
    target_mask: Flags,
    delta: float,
    rho: float,
) -> float:
    pairs = []
    for p, matrix in enumerate(matrices):
        real = [t for t, is_real in enumerate(target_mask[p]) if is_real]
        if len(real) < 2:
            continue
        frames = []
        for q, row in enumerate(matrix):
            pos = [row[t] for t in real if positive[p][q][t]]
            neg = [row[t] for t in real if negative[p][q][t]]
            if query_mask[p][q] and pos:
                frames.append(quad_linear_ap_of(pos, neg, delta, rho))
        if frames:
            pairs.append(mean(frames))
    return mean(pairs)


def average_precision_risk(scores: Numbers, relevance: Flags, ignore: Flags) -> float:
    """1 - AP with the step H(x) = [x > 0]: equal scores count in the positive's favour."""

    def risk(pos: list[float], neg: list[float]) -> float:
        return 1 - mean([(1 + sum(p > s for p in pos)) / (1 + sum(o > s for o in pos + neg)) for s in pos])

    return over_queries(risk, scores, relevance, ignore)


def infonce(scores: Numbers, relevance: Flags, ignore: Flags, temperature: float) -> float:
    def surprise(pos: list[float], neg: list[float]) -> float:
        return mean([log(1 + sum(exp((n - s) / temperature) for n in neg)) for s in pos])

    return over_queries(surprise, scores, relevance, ignore)


def sshn(scores: Numbers, relevance: Flags, ignore: Flags, self_scores: list[float], clamp: float) -> float:
    losses = []
    for own, (_, neg) in zip(self_scores, queries(scores, relevance, ignore), strict=True):
        losses.append(-log(max(own, clamp)) - (log(max(1 - max(neg), clamp)) if neg else 0.0))
    return mean(losses)


def range_penalty(raw: list[float], mask: list[bool]) -> float:
    return sum(abs(x) - 1 for x, real in zip(raw, mask, strict=True) if real and abs(x) > 1)


def smooth_ap(scores: Numbers, relevance: Flags, ignore: Flags, temperature: float) -> float:
    def step(x: float) -> float:
        return 1 / (1 + exp(-x / temperature)) if x > 0 else exp(x / temperature) / (1 + exp(x / temperature))

    def risk(pos: list[float], neg: list[float]) -> float:
        precisions = []
        for i, s in enumerate(pos):
            above = 1 + sum(step(p - s) for j, p in enumerate(pos) if j != i)
            precisions.append(above / (above + sum(step(n - s) for n in neg)))
        return 1 - mean(precisions)

    return over_queries(risk, scores, relevance, ignore)


def binned_ap(scores: Numbers, relevance: Flags, ignore: Flags, centres: int) -> float:
    width = 1 / (centres - 1)

    def at(values: list[float], centre: float) -> float:
        return sum(max(0.0, 1 - abs(s - centre) / width) for s in values)

    def risk(pos: list[float], neg: list[float]) -> float:
        ap, relevant, everything = 0.0, 0.0, 0.0
        for m in range(centres):
            here = at(pos, 1 - m * width)
            relevant += here
            everything += here + at(neg, 1 - m * width)
            ap += here * relevant / everything if here else 0.0
        return 1 - ap / len(pos)

    return over_queries(risk, scores, relevance, ignore)


def ranks(entries: list[tuple[float, bool]]) -> list[int]:
    """The rank of each (score, is positive), from 1; equal scores: negatives first, then as listed."""
    order = sorted(range(len(entries)), key=lambda i: (-entries[i][0], entries[i][1], i))
    return [order.index(i) + 1 for i in range(len(entries))]


def black_box_ap(
    scores: Numbers, relevance: Flags, ignore: Flags, strength: float, margin: float
) -> tuple[float, Numbers]:
    """The loss, and its gradient for every score."""
    losses: list[float] = []
    gradient = [[0.0] * len(row) for row in scores]
    for q, row in enumerate(scores):
        kept = [j for j in range(len(row)) if not ignore[q][j]]
        labels = [relevance[q][j] for j in kept]
        if not any(labels):
            continue
        shifted = [row[j] + (-1 if relevance[q][j] else 1) * margin / 2 for j in kept]
        rank = ranks(list(zip(shifted, labels, strict=True)))
        ap = 0.0
        moved = list(shifted)
        for i, label in enumerate(labels):
            if label:
                among = sum(other and r <= rank[i] for other, r in zip(labels, rank, strict=True))
                precision = among / rank[i] / sum(labels)
                ap += precision
                moved[i] += strength * precision / rank[i]
        losses.append(1 - ap)
        for j, before, after in zip(kept, rank, ranks(list(zip(moved, labels, strict=True))), strict=True):
            gradient[q][j] = -(before - after) / strength
    count = max(1, len(losses))
    return mean(losses), [[g / count for g in row] for row in gradient]


def triplet(scores: Numbers, relevance: Flags, ignore: Flags, margin: float) -> float:
    leads = [n - p for pos, neg in queries(scores, relevance, ignore) for p in pos for n in neg]
    return mean([lead + margin for lead in leads if lead + margin > 0])


def circle(scores: Numbers, relevance: Flags, ignore: Flags, margin: float, scale: float) -> float:
    def loss(pos: list[float], neg: list[float]) -> float:
        pull = sum(exp(-scale * max(0.0, 1 + margin - s) * (s - 1 + margin)) for s in pos)
        push = sum(exp(scale * max(0.0, s + margin) * (s - margin)) for s in neg)
        return log(1 + pull * push)

    return over_queries(loss, scores, relevance, ignore)


def contrastive(scores: Numbers, relevance: Flags, ignore: Flags, margin: float) -> float:
    def loss(pos: list[float], neg: list[float]) -> float:
        return mean([(1 - s) ** 2 for s in pos]) + mean([max(0.0, s - margin) ** 2 for s in neg])

    return over_queries(loss, scores, relevance, ignore)


def mean_error(scores: Numbers, relevance: Flags, ignore: Flags, power: int) -> float:
    errors: list[float] = []
    for pos, neg in queries(scores, relevance, ignore):
        if pos:
            errors += [abs(1 - s) ** power for s in pos] + [abs(s) ** power for s in neg]
    return mean(errors)
