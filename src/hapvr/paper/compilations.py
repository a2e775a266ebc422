"""Long targets without long videos: compilations of a benchmark's database videos, made of their features."""

from __future__ import annotations

from typing import NamedTuple

import torch

from hapvr.errors import ConfigError, DataError
from hapvr.training.validation import ValidationSet


class Compilations(NamedTuple):
    """A benchmark whose targets are compilations, and what each is made of."""

    benchmark: ValidationSet
    parts: tuple[tuple[int, ...], ...]  # of each target, the numbers of the targets it was joined from, in order


def make_compilations(benchmark: ValidationSet, *, frames: int = 400, rounds: int = 1, seed: int = 0) -> Compilations:
    """The same queries against long targets: database videos joined end to end until they have `frames` frames.

    A compilation is relevant to a query if any of its parts is. In each round every target becomes part of one
    compilation, drawn at random; those that are left over at the end are joined to the last. `DataError` if all targets
    together are shorter.

    Args:
        benchmark: whose targets are joined.
        frames: that a compilation has at least.
        rounds: how often each target takes part, in other company each time: more compilations, steadier figures.
        seed: of what is drawn.

    Example: videos of 3, 2 and 4 frames, 5 at least; whatever is drawn, the last two end up together.
        >>> videos = [torch.zeros(length, 1, 2) for length in (3, 2, 4)]
        >>> given = ValidationSet(videos[:1], videos, torch.tensor([[True, False, False]]))
        >>> long, parts = make_compilations(given, frames=5)
        >>> sorted(number for part in parts for number in part), min(len(target) for target in long.targets) >= 5
        ([0, 1, 2], True)
    """
    if frames < 1 or rounds < 1:
        raise ConfigError(f"frames and rounds must be at least 1, got {frames} and {rounds}.")
    lengths = [len(target) for target in benchmark.targets]
    if sum(lengths) < frames:
        raise DataError(
            f"all {len(lengths)} targets together have {sum(lengths)} frames, and a compilation needs {frames}. "
            "Ask for fewer, or give a larger benchmark."
        )
    generator = torch.Generator().manual_seed(seed)
    parts: list[tuple[int, ...]] = []
    for _ in range(rounds):
        made: list[list[int]] = []
        part: list[int] = []
        for number in torch.randperm(len(lengths), generator=generator).tolist():
            part.append(number)
            if sum(lengths[each] for each in part) >= frames:
                made.append(part)
                part = []
        made[-1] += part
        parts += map(tuple, made)
    targets = [torch.cat([benchmark.targets[number] for number in part]) for part in parts]
    relevant = torch.stack([benchmark.relevant[:, list(part)].any(1) for part in parts], 1)
    return Compilations(ValidationSet(benchmark.queries, targets, relevant, benchmark.missing), tuple(parts))
