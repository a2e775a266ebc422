"""What is kept of a file's sound: its fingerprint, or why there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from hapvr.audio.decoding import SoundReading, read_sound
from hapvr.audio.fingerprints import NOTHING, Fingerprint, make_fingerprint
from hapvr.audio.matching import NOT_INDEXED, SoundEvidence, SoundQuery, is_silent
from hapvr.errors import DecodeError
from hapvr.storage import StrPath
from hapvr.video.limits import DecodeLimits

SoundState = Literal["ready", "silent", "none", "failed"]


@dataclass(frozen=True, eq=False)
class SoundDescription:
    """The sound of a file.

    Attributes:
        state: "ready"; "silent": a track of silence, or nearly; "none": no sound track; "failed": it cannot be read.
        peaks: its fingerprint; empty unless it is ready.
        seconds: of sound that were read.
        warning: what was wrong with it, in a sentence.
    """

    state: SoundState
    peaks: Fingerprint = NOTHING
    seconds: float = 0.0
    warning: str | None = None


def describe_sound(
    path: StrPath,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    limits: DecodeLimits = DecodeLimits(),  # noqa: B008 - frozen
) -> SoundDescription:
    """Read the sound of a file, or of its part in [start_s, end_s); a track that cannot be decoded is "failed".

    Raises:
        DecodeError: the file cannot be opened.
    """
    reading = SoundReading()
    peaks = make_fingerprint(read_sound(path, reading, start_s=start_s, end_s=end_s, limits=limits))
    warning = " ".join(reading.warnings) or None
    if not reading.has_track:
        return SoundDescription("none")
    if not reading.seconds and warning is not None:
        return SoundDescription("failed", warning=warning)
    if is_silent(peaks):
        return SoundDescription("silent", seconds=reading.seconds, warning=warning)
    return SoundDescription("ready", peaks, reading.seconds, warning)


def compare_sounds(query: SoundDescription, target: SoundDescription) -> SoundEvidence:
    """What two sounds say about their videos."""
    if "failed" in (query.state, target.state):
        return NOT_INDEXED
    return SoundQuery(query.peaks).compare(target.peaks)


def describe_sound_task(_context: Any, path: str) -> SoundDescription:
    """The task of a worker process: `describe_sound`; a file that cannot be opened is "failed" as well."""
    try:
        return describe_sound(path)
    except DecodeError as error:
        return SoundDescription("failed", warning=str(error).replace(os.fspath(path), os.path.basename(path)))
