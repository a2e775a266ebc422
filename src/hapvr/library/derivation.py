"""Which of two copies was made of the other, by what their files show.

Traces of an edit are looked for in a few matching instants of both files (`edit_traces`): a part of the picture cut
off, a frame around it, words or stickers over it, colour taken away, less detail than the pixels could hold. Each trace
names the copy that has it. A mirrored picture, changed colours or another speed are the same seen from either side:
they say that one is an edit, but not which.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hapvr.judge.registration import is_available
from hapvr.library.edit_traces import MAX_SECONDS, Traces, measure_traces
from hapvr.similarity import Segment

Side = Literal["a", "b"]

_CHOICE = 8  # instants of a stretch to choose from, by what they cost to reach
_MIN_LIKE = 0.5  # correlation of registered pictures below which nothing is said
_MIN_CROP_LIKENESS = 0.8  # correlation of registered pictures from which on one can be a crop
_MIN_REGISTERED = 0.5  # common detail of pictures that are registered beyond doubt
_MIN_EXACT = 0.6  # common detail of pictures that lie exactly on each other
# From where on a trace counts; chosen on edited copies of training videos.
_MIN_BEYOND = 0.06  # share of a picture that the other does not show
_MIN_EDGE = 2.5  # how much stronger an edge along the other's border is than edges beside it, in a frame
_MAX_EDGE = 1.7  # and in a crop
_MIN_OVERLAY = 0.004  # share of the picture that differs under words or stickers
_MIN_DIFFERING = 0.02  # and under something that has no edges
_MIN_OVERLAY_EDGES = 1.4  # how much stronger edges are there
_MAX_GREY = 3.0  # chroma of a picture without colour, in grey levels
_MIN_COLOUR = 8.0  # and of one with colour
_MAX_TONES = 1.2  # factor of contrast or saturation that coding explains
_MAX_BRIGHTNESS = 8.0  # difference of mean grey levels that coding explains
_MIN_HUES = 0.8  # correlation of colours
_MAX_SOFT = 0.75  # factor of detail, relative to the other, of a copy that is softer
_MIN_LARGER = 1.15  # how much larger a picture is whose detail should be more
_MIN_FINER = 1.25  # factor of the finest detail that a larger picture has more than a smaller one enlarged
_SOFTER = "softer: less detail"
_ENLARGED = "enlarged: less detail, in more pixels"
_NO_FINER = "enlarged: it has more pixels but no finer detail"


@dataclass(frozen=True)
class Derivation:
    """Which of two copies is an edit of the other, and why.

    Without reasons the two differ in nothing but how they were encoded. With reasons but no answer, one is an edit and
    nothing says which, or the traces contradict each other.
    """

    derived: Side | None
    reasons: tuple[str, ...] = ()

    @property
    def unsure(self) -> bool:
        """Whether they differ, and nothing says which is the edit."""
        return self.derived is None and bool(self.reasons)

    @property
    def is_quality_only(self) -> bool:
        """Whether they differ in nothing but quality: how they were encoded, the number of pixels, detail."""
        return not set(self.reasons) - {_SOFTER, _ENLARGED, _NO_FINER}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"derived": self.derived, "reasons": list(self.reasons)}

    def swap(self) -> Derivation:
        """The same about the two in the other order."""
        return Derivation(None if self.derived is None else "a" if self.derived == "b" else "b", self.reasons)


def find_derivation(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    segments: Sequence[Segment],
    *,
    speed: float = 1.0,
    max_seconds: float = MAX_SECONDS,
) -> Derivation | None:
    """Say which of two files that match is an edit of the other; the same with the two exchanged.

    None if they cannot be looked at: a file is gone or cannot be decoded in time, or OpenCV is not installed.

    Args:
        a, b: files; with names that differ.
        segments: the stretches that match (query: A, target: B); none for pictures.
        speed: of B against A; below 0 it runs backwards.
        max_seconds: after which it goes by the instants that were read.
    """
    if not is_available():
        return None
    paths, instants = (os.fspath(a), os.fspath(b)), _list_instants(segments)
    # The one is registered on the other in one order, whichever is called A.
    swapped = paths[0] > paths[1]
    if swapped:
        paths, instants = paths[::-1], [(second, first) for first, second in instants]
    traces = measure_traces(*paths, instants, max_seconds=max_seconds)
    if traces is None:
        return None
    found = decide_derivation(traces, speed=speed)
    return found.swap() if swapped else found


def _list_instants(segments: Sequence[Segment]) -> list[tuple[float, float]]:
    """Instants of both along the stretches, in seconds."""
    shares = (np.arange(_CHOICE) + 0.5) / _CHOICE
    found = []
    for segment in segments:
        (start, end), (first, last) = segment.query, segment.target
        if segment.backwards:
            first, last = last, first
        found += [(start + (end - start) * share, first + (last - first) * share) for share in shares.tolist()]
    return found or [(0.0, 0.0)]


def decide_derivation(traces: Traces, *, speed: float = 1.0) -> Derivation:
    """Weigh the traces: one copy is derived if all that name one name it."""
    if traces.likeness < _MIN_LIKE:
        return Derivation(None, ("their pictures differ too much to be compared",))
    named = _find_named(traces)
    sides = {side for side, _ in named}
    reasons = [reason for _, reason in named] + _find_symmetric(traces, speed)
    return Derivation(sides.pop() if len(sides) == 1 else None, tuple(dict.fromkeys(reasons)))


def _find_named(traces: Traces) -> list[tuple[Side, str]]:
    """Traces that say which copy is the edit."""
    found: list[tuple[Side, str]] = []
    sides: tuple[tuple[Side, Side, int], ...] = (("a", "b", 0), ("b", "a", 1))
    for this, other, place in sides:
        if traces.beyond[place] >= _MIN_BEYOND:
            if traces.edges[place] >= _MIN_EDGE:
                found.append((this, "framed: it shows the other's whole picture within a border or another picture"))
            elif traces.edges[place] <= _MAX_EDGE and _are_registered(traces):
                found.append((other, "cropped: it shows a part of the other's picture"))
        if traces.chroma[place] <= _MAX_GREY and traces.chroma[1 - place] >= _MIN_COLOUR:
            found.append((this, "without colour"))
    if traces.overlay >= _MIN_OVERLAY:
        # A blurred picture has weaker edges everywhere.
        blurred = max(traces.detail) >= 2 * min(traces.detail)
        least = _MIN_OVERLAY_EDGES * (2 if blurred else 1)
        for side, ratio in (("a", traces.overlay_edges), ("b", 1 / traces.overlay_edges)):
            if ratio >= least:
                found.append(("a" if side == "a" else "b", "words, a sticker or a logo over the picture"))
    found += _find_softer(traces)
    return found


def _find_softer(traces: Traces) -> list[tuple[Side, str]]:
    a_in_b, b_in_a = traces.detail
    larger: Side | None = None
    if max(traces.scale, 1 / traces.scale) >= _MIN_LARGER:
        larger = "a" if traces.scale > 1 else "b"
    softer: Side | None = None
    if a_in_b <= _MAX_SOFT and b_in_a >= 1:
        softer = "a"
    elif b_in_a <= _MAX_SOFT and a_in_b >= 1:
        softer = "b"
    if softer is not None:
        return [(softer, _ENLARGED if softer == larger else _SOFTER)]
    # The finest detail is compared only of pictures that lie exactly on each other.
    exact = max(traces.beyond) < _MIN_BEYOND and min(traces.detail) >= _MIN_EXACT
    if larger is not None and exact and 0 < traces.finer < _MIN_FINER:
        return [(larger, _NO_FINER)]
    return []


def _find_symmetric(traces: Traces, speed: float) -> list[str]:
    """Traces that say that one is an edit, but not which."""
    found = []
    if traces.mirrored:
        found.append("one is mirrored")
    if traces.tilted > 0.03:
        found.append("one is tilted or seen from aside")
    if traces.overlay >= _MIN_DIFFERING:
        found.append("parts of their pictures differ")
    if max(traces.beyond) >= _MIN_BEYOND:
        found.append("one shows more of the picture, or a border")
    if min(traces.detail) <= _MAX_SOFT and not _find_softer(traces):
        found.append("one is softer or noisier")
    chroma = abs(math.log((traces.chroma[0] + 2) / (traces.chroma[1] + 2)))
    if _tones_differ(traces) or chroma > math.log(_MAX_TONES) or traces.hues < _MIN_HUES:
        found.append("their colours differ")
    if abs(abs(speed) - 1) > 0.03:
        found.append("one plays faster")
    if speed < 0:
        found.append("one plays backwards")
    return found


def _are_registered(traces: Traces) -> bool:
    return traces.likeness >= _MIN_CROP_LIKENESS and min(traces.detail) >= _MIN_REGISTERED


def _tones_differ(traces: Traces) -> bool:
    contrast = abs(math.log(max(traces.contrast, 1e-3)))
    return contrast > math.log(_MAX_TONES) or abs(traces.brightness) > _MAX_BRIGHTNESS
