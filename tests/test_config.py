"""What an error message suggests, and settings that are checked by their types."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Annotated, Any, Literal

import pytest

from hapvr.config import CheckedConfig, Range, Within, suggest
from hapvr.errors import ConfigError


def test_no_more_than_forty_names_are_listed() -> None:
    names = [f"name{number:03}" for number in range(60)]
    assert suggest("zzz", names[:40]) == f"known: {', '.join(names[:40])}."
    assert suggest("zzz", names[:41]) == f"known: {', '.join(names[:40])} and 1 more."
    assert suggest("zzz", names) == f"known: {', '.join(names[:40])} and 20 more."
    assert suggest("zzz", names * 100).endswith(" and 5,960 more.")


def test_a_near_name_is_found_behind_the_first_forty() -> None:
    names = [f"{number:03}" for number in range(60)]
    assert suggest("keep_rates", [*names, "keep_rate"]) == "did you mean 'keep_rate'?"


@dataclasses.dataclass(frozen=True)
class Shot(CheckedConfig):
    name: str = "a"
    kind: Literal["wide", "near"] = "wide"
    still: bool = False
    frames: Annotated[int, Within(1)] = 8
    speed: Annotated[float, Within(0, 4, "It is a factor.")] = 1.0
    offset: float = 0.0
    zoom: Annotated[Range, Within(0, 1)] = (0.5, 1.0)
    window: Annotated[tuple[int, int], Within(1)] = (4, 15)
    other: list[int] | None = None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": 3}, "Shot.name must be a text, got 3."),
        ({"kind": "wid"}, "Shot.kind cannot be 'wid'; did you mean 'wide'?"),
        ({"still": 1}, "Shot.still must be true or false, got 1."),
        ({"frames": 0}, "Shot.frames must be a whole number of at least 1, got 0."),
        ({"frames": 2.0}, "Shot.frames must be a whole number of at least 1, got 2.0."),
        ({"frames": True}, "Shot.frames must be a whole number of at least 1, got True."),
        ({"speed": 5}, "Shot.speed must be a number from 0 to 4, got 5. It is a factor."),
        ({"offset": math.nan}, "Shot.offset must be a number, got nan."),
        ({"offset": math.inf}, "Shot.offset must be a number, got inf."),
        ({"zoom": (0.9, 0.1)}, "Shot.zoom must be a range (lowest, highest) within 0 to 1, got (0.9, 0.1)."),
        ({"zoom": 0.5}, "Shot.zoom must be a range (lowest, highest) within 0 to 1, got 0.5."),
        ({"window": (1.5, 3)}, "Shot.window must be a range of whole numbers (lowest, highest) within 1 to inf, got"),
    ],
)
def test_settings_are_held_to_the_types_of_their_fields(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        Shot(**settings)


def test_a_whole_number_stands_for_a_float_and_a_list_for_a_range() -> None:
    shot = Shot(speed=2, zoom=[0, 1], other=[1])  # type: ignore[arg-type]
    assert (shot.speed, shot.zoom, shot.other) == (2, (0, 1), [1])
