"""Records check themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hapvr.errors import DataError, ShapeError
from hapvr.records import Frames


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "images": np.zeros((2, 4, 6, 3), np.uint8), "timestamps": np.array([0.0, 1.0]),
        "low_information": np.array([True, False]), "duration_s": 2.0, "fps": 1.0, "source_size": (6, 4),
    } | changed  # fmt: skip


def test_frames_hold_what_they_are_given() -> None:
    assert len(Frames(**fields(crop=(0, 0, 6, 4), duration_s=None))) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"images": np.zeros((2, 4, 6, 3))},
        {"images": np.zeros((2, 3, 4, 6), np.uint8)},
        {"images": [1]},
        {"timestamps": np.array([0.0])},
        {"timestamps": np.array([0.0, 1.0], np.float32)},
        {"low_information": np.array([0, 1])},
    ],
)
def test_other_shapes_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ShapeError):
        Frames(**fields(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"images": np.zeros((0, 4, 6, 3), np.uint8), "timestamps": np.zeros(0), "low_information": np.zeros(0, bool)},
        {"timestamps": np.array([0.0, 0.0])},
        {"timestamps": np.array([-1.0, 0.0])},
        {"timestamps": np.array([0.0, np.nan])},
        {"duration_s": -1.0},
        {"duration_s": float("inf")},
        {"fps": 0.0},
        {"source_size": (0, 4)},
        {"crop": (0, 0, 7, 4)},
        {"crop": (3, 0, 3, 4)},
    ],
)
def test_impossible_values_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        Frames(**fields(**changed))
