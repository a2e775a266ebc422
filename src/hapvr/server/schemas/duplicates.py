"""Duplicates, and what is done with their files."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hapvr.library.duplicate_report import Link as DuplicateLink
from hapvr.server.schemas.base import VIDEO_ID, FilterOptions, IgnoreShared, Strict, example
from hapvr.server.schemas.library import Video
from hapvr.server.schemas.search import SameSound, Segment, Sound

_LINK_WORDS = {
    "identical": "the same bytes",
    "duplicate": "a copy",
    "contained": "a part of the other",
    "shared": "a part of both is the same",
}


class DuplicatesRequest(FilterOptions):
    """Look for duplicates in the whole library; of what is found, list groups and links with a video that is meant."""

    model_config = example({"min_probability": 0.5, "since": None})
    min_probability: float = Field(0.5, gt=0, le=1, description="Report links that are copies with this probability.")
    since: str | None = Field(None, max_length=40, description="Only pairs with a video added since: ISO 8601.")
    ignore_shared: bool = IgnoreShared


class Marked(Strict):
    """Whether two videos are marked as no duplicates."""

    distinct: bool


class Derivation(Strict):
    """Which of two copies is an edit of the other; null with reasons: one is, and nothing says which."""

    derived: Literal["a", "b"] | None
    reasons: list[str]


class Link(Strict):
    """Two videos that show the same footage; of segments, the query is `a` and the target is `b`."""

    a: str
    b: str
    kind: Literal["identical", "duplicate", "contained", "shared"]
    score: float
    verdict: Literal["copy", "same scene", "no match"]
    probability: float | None
    reason: str = Field(description="The evidence in a sentence.")
    second_look: bool
    coverage: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    speed: float
    segments: list[Segment]
    derivation: Derivation | None = Field(description="Null if the files were not looked at.")
    sound: Sound | None = Field(description="Null if it was not compared.")
    words: str


def link_json(link: DuplicateLink) -> dict[str, Any]:
    """A `Link`."""
    return link.to_json() | {"words": _LINK_WORDS[link.kind]}


class SoundPair(Strict):
    """Two videos with the same sound and other pictures; of stretches, the query is `a` and the target is `b`."""

    a: str
    b: str
    stretches: list[SameSound]


class GroupVideo(Video):
    """A video of a group of duplicates."""

    keep: bool
    why: str | None
    copy_kind: Literal["identical", "copy", "edited", "unsure"] | None = Field(
        description="What it is to the copy to keep; null for that one."
    )
    meant: bool = Field(description="Whether the limits of the request allow it.")


class Group(Strict):
    """Copies of one video, the one to keep first."""

    videos: list[GroupVideo]
    reason: str
    links: list[Link]


class DuplicatesResult(Strict):
    """Groups of copies; links between other videos, and those videos by their ids."""

    groups: list[Group]
    links: list[Link]
    sound_pairs: list[SoundPair]
    videos: dict[str, Video]
    scored: int
    pairs: int
    marked: int
    min_probability: float
    prior: float | None
    seconds: float
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")


class ActionGroup(Strict):
    """Videos of one group of the last search for duplicates."""

    keep: str = Field(min_length=1, max_length=64, description="The id of the copy that is kept.")
    videos: list[str] = Field(min_length=1, max_length=1000, description="The ids of copies to do something with.")


class ActionRequest(Strict):
    """Do something with files of duplicates; `actions` of /api/library says what is allowed."""

    model_config = example({"action": "trash", "groups": [{"keep": VIDEO_ID, "videos": ["77aa0c1d2e3f"]}]})
    action: Literal["trash", "hardlink", "symlink", "move"]
    groups: list[ActionGroup] = Field(min_length=1, max_length=1000)


class LeftFile(Strict):
    """A file that is left alone, and why."""

    name: str
    reason: str


class ActionPreview(Strict):
    """What an action would do."""

    files: int
    bytes: int
    kept: int = Field(description="Copies of these files that are kept.")
    left: list[LeftFile]


class ActionResult(Strict):
    """What an action did, or what was taken back."""

    id: str = Field(description="By which it is taken back: POST /api/actions/{id}/undo.")
    action: Literal["trash", "hardlink", "symlink", "move", "undo"]
    files: int
    bytes: int
    left: list[LeftFile]
