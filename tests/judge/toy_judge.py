"""A judge with plain numbers, for tests of what asks it: it needs no fit, and no fit changes it."""

from __future__ import annotations

from typing import Any

from hapvr.judge.additive_model import AdditiveModel
from hapvr.judge.judge import Judge


def make_judge(**changes: Any) -> Judge:
    """A judge for which frames in step, alike and many, are a copy.

    Log odds of a stretch rise from -12 by up to 8 for similarity, 8 for frames in step and 8 for their number. Frames
    that are all but the same are enough, and so are pixels that change alike. A copy takes odds of 49 at the prior of
    0.02, whose logarithm is 3.9.
    """
    similarity = ((0.2, 0.8, 0.9, 0.98), (0.0, 8.0, 8.0, 20.0))
    in_step = ((0.0, 0.6), (0.0, 8.0))
    frames = ((0.0, 2.5), (0.0, 8.0))  # 8 at 11 frames more than chance gives
    changes_alike = ((0.2, 0.8), (0.0, 22.0))
    alike = ((0.5, 0.95), (0.0, 12.0))
    parts: dict[str, Any] = {
        "stretch": _add(-16.0, similarity=similarity, in_step=in_step, frames=frames, changes=changes_alike),
        "stretch_without_pixels": _add(-12.0, similarity=similarity, in_step=in_step, frames=frames),
        "instant": _add(-5.0, similarity=alike),
        "instant_without_pixels": _add(-5.0, similarity=alike),
        "second_look": _add(-6.0, structure=((0.0, 1.0), (0.0, 10.0)), motion=((0.0, 1.0), (0.0, 8.0))),
        "scene": _add(-2.0, likeness=((0.2, 0.9), (0.0, 10.0))),
        "tail": ((-12.0, 900_000.0), (0.0, 1000.0), (12.0, 1.0)),
        "videos": 3000,
        "prior": 0.02,
        "undecided": (-3.0, 6.0),
    }
    return Judge(**(parts | changes))


def _add(bias: float, **functions: tuple[tuple[float, ...], tuple[float, ...]]) -> AdditiveModel:
    knots, values = zip(*functions.values(), strict=True)
    return AdditiveModel(tuple(functions), knots, values, bias)
