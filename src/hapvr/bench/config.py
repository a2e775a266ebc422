"""The settings of `hapvr bench`, and their defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from hapvr.errors import ConfigError


@dataclass(frozen=True)
class FilmKind:
    """What a drawn film is like."""

    width: int
    height: int
    fps: int = 30
    megabits_per_s: float = 5.0
    codec: str = "h264"

    @property
    def name(self) -> str:
        """Such as 1080p30."""
        return f"{self.height}p{self.fps}"


SMALL = FilmKind(640, 360, megabits_per_s=0.8)
LARGE = FilmKind(1920, 1080, megabits_per_s=5.0)


@dataclass(frozen=True)
class BenchConfig:
    """What to measure, and what to answer for."""

    model: str | None = None  # the default model
    seconds: float = 60.0  # that it takes, about; --sample takes half as many again
    videos: int = 1_000  # of the drawn library that is searched
    hours: tuple[float, ...] = (100.0, 1_000.0, 10_000.0)  # of the collections that are estimated
    minutes: float = 5.0  # of a video of theirs
    sample: Path | None = None  # a folder of the user's own videos
    seed: int = 0  # of the parts of `sample`
    films: tuple[FilmKind, ...] = (SMALL, LARGE)  # that are drawn, the smallest first

    def __post_init__(self) -> None:
        for name in ("seconds", "videos", "minutes"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}.")
        if not self.hours or not all(0 < hours < math.inf for hours in self.hours):
            raise ConfigError(f"hours must be above 0, got {', '.join(map(str, self.hours)) or 'none'}.")
