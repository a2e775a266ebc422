"""Searches and comparisons of two videos."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hapvr.server.schemas.base import QUERY_ID, VIDEO_ID, FilterOptions, Id, IgnoreShared, Pair, Strict, example


class SearchOptions(FilterOptions):
    """The options of a search; the fields of a form beside its file."""

    start_s: float | None = Field(None, ge=0, le=1e7, description="Seconds where the query starts.")
    end_s: float | None = Field(None, gt=0, le=1e7, description="Seconds where the query ends.")
    k: int = Field(10, ge=1, le=200, description="Number of hits at most.")
    min_probability: float | None = Field(None, ge=0, le=1, description="Leave out hits with a lower probability.")
    exact: bool = Field(False, description="Compare with every video.")
    ignore_shared: bool = IgnoreShared


class SearchRequest(SearchOptions):
    """Search by a video of the library, or by an upload that is still kept."""

    model_config = example({"id": VIDEO_ID, "k": 10})
    id: str = Id


class TextSearchRequest(FilterOptions):
    """Search by a description, in a library with a text model (`text_search` of /api/library)."""

    model_config = example({"text": "a red car at night", "k": 10})
    text: str = Field(min_length=1, max_length=500, pattern=r"\S", description="What is to be seen.")
    k: int = Field(10, ge=1, le=200, description="Number of hits at most.")


class CompareRequest(Pair):
    """Compare two videos: `a` is what is looked for, a video or an upload."""

    model_config = example({"a": QUERY_ID, "b": VIDEO_ID})
    ignore_shared: bool = IgnoreShared


class Segment(Strict):
    """A stretch of the query and the stretch of the target that shows the same footage, in seconds."""

    query: tuple[float, float]
    target: tuple[float, float]
    score: float
    backwards: bool
    shared: bool = Field(False, description="It is footage that many videos of the library share.")


class Instant(Strict):
    """The most similar frames, in seconds."""

    query: float
    target: float
    similarity: float


class Insets(Strict):
    """Windows in which the videos show others: left, top, right and bottom, in pixels of each file."""

    query: tuple[int, int, int, int] | None
    target: tuple[int, int, int, int] | None


class Verdict(Strict):
    """How well a query and a target match."""

    id: str = Field(description="Of the target.")
    name: str
    score: float
    verdict: Literal["copy", "same scene", "no match"]
    match: bool
    probability: float | None = Field(description="That they share footage.")
    scene_probability: float | None = Field(description="That they show the same scene or event, or share footage.")
    prior: float | None
    false_per_million: float | None
    reason: str = Field(description="The evidence in a sentence.")
    second_look: bool = Field(description="Whether the files were compared at full size.")
    evidence: dict[str, float]
    duration: float
    segments: list[Segment]
    best: Instant
    insets: Insets | None = Field(description="What was compared, if it was not the whole picture of both.")


class SameSound(Strict):
    """A stretch of the query that sounds like one of the video, in seconds."""

    query: tuple[float, float]
    target: tuple[float, float]
    events: int = Field(description="Moments that agree.")
    speed: float = Field(description="Of the query, of 1 for that of the video.")


class Sound(Strict):
    """What the sound of two videos says about them."""

    kind: Literal["same", "other", "silent", "not indexed"]
    stretches: list[SameSound]
    audible: Literal["query", "target"] | None = Field(description="Which has sound, if the other is silent.")


class SoundHit(Strict):
    """A video with the same sound and other pictures."""

    id: str
    name: str = Field(description="The name of its file.")
    path: str | None
    verdict: str
    stretches: list[SameSound]


class Hit(Verdict):
    """A video that was found."""

    path: str | None
    warnings: list[str]
    sound: Sound | None = Field(description="Null if sound was not compared.")


class QueryInfo(Strict):
    """What was searched for."""

    id: str
    name: str
    duration: float


class SearchResult(Strict):
    """What a search found, matches first."""

    query: QueryInfo
    match: bool = Field(description="Whether any hit is a match.")
    database: int
    scored: int
    seconds: dict[str, float]
    note: str | None = Field(description="Why there are no hits, if the reason is the query.")
    prior: float | None
    warnings: list[str]
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")
    hits: list[Hit]
    sound_hits: list[SoundHit] = Field(description="The same sound with other pictures.")


class TextInstant(Strict):
    """A frame that fits a description."""

    time_s: float
    similarity: float = Field(description="From -1 to 1; what is high depends on the text model.")


class TextHit(Strict):
    """A video with frames that fit a description."""

    id: str
    name: str = Field(description="The name of its file.")
    path: str | None
    duration: float
    instants: list[TextInstant] = Field(description="When it shows what fits, the best first.")


class TextSearchResult(Strict):
    """What a search by text found, the best first. There are hits whatever is asked for: they tell no match."""

    text: str
    database: int = Field(description="Different videos that the text model has described.")
    seconds: dict[str, float]
    note: str | None = Field(description="Why there are no hits.")
    filter: FilterOptions = Field(description="Which videos were meant: the limits of the request.")
    hits: list[TextHit]


class Matrix(Strict):
    """The similarities of all frames; `values` and `before` are base64 of one byte a cell, row by row."""

    rows: int
    columns: int
    query_times: list[float]
    target_times: list[float]
    lowest: float = Field(description="The similarity of byte 0.")
    highest: float = Field(description="The similarity of byte 255.")
    before: str = Field(description="Before the network.")
    values: str = Field(description="After the network; of a model without one, as before.")


class CompareWarnings(Strict):
    """What was wrong with the files."""

    query: list[str]
    target: list[str]


class CompareResult(Verdict):
    """Two videos compared in full."""

    warnings: CompareWarnings
    matrix: Matrix
    sound: Sound | None = Field(description="Null in a library without sound.")
