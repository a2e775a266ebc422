"""Reports of duplicates: links, groups and the copy to keep, as JSON and CSV."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hapvr.audio.matching import SameSound, SoundEvidence
from hapvr.decision import format_percent
from hapvr.errors import ConfigError
from hapvr.judge.judge import Verdict
from hapvr.library.derivation import Derivation
from hapvr.library.results import VideoRecord, display_path
from hapvr.similarity import Segment
from hapvr.storage import StrPath, format_csv_rows, write_json, write_text

Kind = Literal["identical", "duplicate", "contained", "shared"]
Stage = Literal["candidates", "pairs", "sounds"]
CSV_FIELDS = (
    "group", "kind", "a", "b", "a_id", "b_id", "keep", "probability", "score", "a_coverage", "b_coverage", "a_from",
    "a_to", "b_from", "b_to", "speed", "reason", "derived", "derived_reason", "keep_reason", "sound",
)  # fmt: skip


@dataclass(frozen=True)
class Link:
    """Two videos that share footage: score and verdict are those of `Library.compare` of A in B.

    A is the one with fewer frames. Files of the same bytes are not compared.
    """

    a: str  # id; of a link of the kind "contained" the part
    b: str  # id; of a link of the kind "contained" the whole
    kind: Kind  # the same bytes, both are covered, only one is, or a stretch of both that is neither of them
    score: float  # from -1 to 1
    verdict: Verdict | None  # None for files of the same bytes
    coverage: tuple[float, float]  # the share of A, and of B, that the other shows
    intervals: tuple[tuple[float, float], tuple[float, float]]  # the seconds of A, and of B, that they share
    speed: float = 1.0  # of B against A; below 0 it runs backwards
    segments: tuple[Segment, ...] = ()  # the stretches that match (query: A, target: B)
    derivation: Derivation | None = None  # which is an edit of the other; None if the files were not looked at
    sound: SoundEvidence | None = None  # of both (query: A, target: B); None if it was not compared

    @property
    def probability(self) -> float | None:
        """That they share footage; None for a model that gives no probabilities."""
        return 1.0 if self.verdict is None else self.verdict.probability

    @property
    def certainty(self) -> float:
        """The probability, to sort by; 0.5 where there is none."""
        return 0.5 if self.probability is None else self.probability

    @property
    def reason(self) -> str:
        """What the link rests on, in words."""
        if self.verdict is None:
            return "the same bytes"
        sure = "" if self.probability is None else f"probability {format_percent(self.probability)}, "
        speed = f", at {abs(self.speed):.2f} times the speed" if abs(abs(self.speed) - 1) > 0.03 else ""
        way = ", backwards" if self.speed < 0 else ""
        looked = ", compared at full size" if self.verdict.second_look else ""
        sound = "" if self.sound is None else _SOUND_WORDS.get(self.sound.kind, "")
        if self.sound is not None and self.sound.audible is not None:
            sound = ", only one has sound"
        return f"{sure}score {self.score:.2f}{speed}{way}{looked}{sound}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "verdict"}
        return plain | {
            "verdict": "copy" if self.verdict is None else self.verdict.kind,
            "probability": self.probability,
            "reason": "The files have the same bytes." if self.verdict is None else self.verdict.reason,
            "second_look": self.verdict is not None and self.verdict.second_look,
            "coverage": list(self.coverage),
            "intervals": [list(interval) for interval in self.intervals],
            "segments": [segment.to_json() for segment in self.segments],
            "derivation": None if self.derivation is None else self.derivation.to_json(),
            "sound": None if self.sound is None else self.sound.to_json(),
        }


_SOUND_WORDS = {"same": ", same sound", "other": ", other sound"}


@dataclass(frozen=True)
class SoundPair:
    """Two videos with the same sound, whose pictures are no copies."""

    a: str  # id
    b: str  # id
    stretches: tuple[SameSound, ...]  # of the same sound (query: A, target: B)

    @property
    def seconds(self) -> float:
        """How much of A is heard in B."""
        return sum(one.query[1] - one.query[0] for one in self.stretches)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"a": self.a, "b": self.b, "stretches": [one.to_json() for one in self.stretches]}


@dataclass(frozen=True)
class Group:
    """Copies of one video, the one to keep first."""

    videos: tuple[VideoRecord, ...]
    reason: str  # why that one
    links: tuple[Link, ...]  # between them, the most certain first

    @property
    def keep(self) -> VideoRecord:
        """The copy that is suggested to be kept."""
        return self.videos[0]

    def find_edits(self, video: VideoRecord) -> tuple[str, ...]:
        """The traces by which a video is an edit of another of the group; empty if it is not known to be one."""
        return find_edits(video.content_hash, self.links, {one.id: one.content_hash for one in self.videos})


def find_edits(content: str, links: Sequence[Link], hashes: Mapping[str, str]) -> tuple[str, ...]:
    """The traces by which a content is an edit of another one."""
    found: dict[str, None] = {}
    for link in links:
        if link.derivation is not None and link.derivation.derived is not None:
            edit = link.a if link.derivation.derived == "a" else link.b
            if hashes.get(edit) == content:
                found |= dict.fromkeys(link.derivation.reasons)
    return tuple(found)


@dataclass(frozen=True)
class DuplicateReport:
    """What `Library.find_duplicates` found."""

    groups: tuple[Group, ...]  # copies of the same, largest group first
    links: tuple[Link, ...]  # all, the most certain first: those within groups, and of clips and shared parts
    records: Mapping[str, VideoRecord]  # the videos that links and pairs name, by id
    videos: int  # in the library
    scored: int  # pairs of contents that were compared exactly
    pairs: int  # pairs of contents there are; with `since`, those with a new one
    marked: int  # links left out because a person marked the two as distinct
    min_probability: float  # of the links reported
    seconds: float
    prior: float | None = None  # of the probabilities; None where there are none
    sound_pairs: tuple[SoundPair, ...] = ()  # the same sound with other pictures, the longest first

    @property
    def beside(self) -> tuple[Link, ...]:
        """Links that are not within a group: parts of others, shared stretches."""
        within = {(link.a, link.b) for group in self.groups for link in group.links}
        return tuple(link for link in self.links if (link.a, link.b) not in within)

    @property
    def sounding(self) -> set[str]:
        """The ids of videos that have the same sound as another, and other pictures."""
        return {id for pair in self.sound_pairs for id in (pair.a, pair.b)}

    def with_records(self, change: Callable[[VideoRecord], VideoRecord]) -> DuplicateReport:
        """The same report about changed records, such as ones that hide where files lie."""
        records = {id: change(record) for id, record in self.records.items()}
        groups = tuple(
            dataclasses.replace(group, videos=tuple(records[video.id] for video in group.videos))
            for group in self.groups
        )
        return dataclasses.replace(self, groups=groups, records=records)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr duplicates --json` prints."""
        groups = [
            {
                "keep": group.keep.id,
                "reason": group.reason,
                "videos": [video.to_json() for video in group.videos],
                "links": [link.to_json() for link in group.links],
            }
            for group in self.groups
        ]
        beside = self.beside
        named = {id for link in beside for id in (link.a, link.b)} | self.sounding
        same_names = ("scored", "pairs", "marked", "min_probability", "prior", "seconds")
        return {
            "groups": groups,
            "links": [link.to_json() for link in beside],
            "sound_pairs": [pair.to_json() for pair in self.sound_pairs],
            "videos": {id: record.to_json() for id, record in self.records.items() if id in named},
            "looked_at": self.videos,
            **{name: getattr(self, name) for name in same_names},
        }


@dataclass(frozen=True)
class DuplicateProgress:
    """How far the search for duplicates has come."""

    stage: Stage
    done: int
    total: int
    seconds: float  # of this stage

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of this stage at the rate so far; None before the first is done."""
        return self.seconds * (self.total - self.done) / self.done if self.done else None


# --- files -----------------------------------------------------------------------------------------------------------


def make_rows(report: DuplicateReport) -> Iterator[dict[str, Any]]:
    """One flat row for each link, as `hapvr duplicates -o FILE.csv` writes them; groups are numbered from 1.

    Then one for each pair of videos with the same sound and other pictures, with the first stretch of it.
    """
    number = {video.id: place for place, group in enumerate(report.groups, 1) for video in group.videos}
    kept = {group.keep.id: group.reason for group in report.groups}
    for link in report.links:
        a, b = report.records[link.a], report.records[link.b]
        within = number.get(a.id) is not None and number.get(a.id) == number.get(b.id)
        keep = next((name for name, id in (("a", a.id), ("b", b.id)) if within and id in kept), "")
        derivation = link.derivation or Derivation(None)
        yield {
            "group": number[a.id] if within else "",
            "kind": link.kind,
            "a": display_path(a.path),
            "b": display_path(b.path),
            "a_id": a.id,
            "b_id": b.id,
            "keep": keep,
            "probability": "" if link.probability is None else f"{link.probability:.6g}",
            "score": round(link.score, 4),
            "a_coverage": round(link.coverage[0], 4),
            "b_coverage": round(link.coverage[1], 4),
            "a_from": round(link.intervals[0][0], 2),
            "a_to": round(link.intervals[0][1], 2),
            "b_from": round(link.intervals[1][0], 2),
            "b_to": round(link.intervals[1][1], 2),
            "speed": round(link.speed, 3),
            "reason": link.to_json()["reason"],
            "derived": derivation.derived or "",
            "derived_reason": "; ".join(derivation.reasons),
            "keep_reason": kept[link.a if keep == "a" else link.b] if keep else "",
            "sound": "" if link.sound is None else link.sound.kind,
        }
    for pair in report.sound_pairs:
        first = pair.stretches[0]
        yield dict.fromkeys(CSV_FIELDS, "") | {
            "kind": "same sound",
            "a": display_path(report.records[pair.a].path),
            "b": display_path(report.records[pair.b].path),
            "a_id": pair.a,
            "b_id": pair.b,
            "a_from": round(first.query[0], 2),
            "a_to": round(first.query[1], 2),
            "b_from": round(first.target[0], 2),
            "b_to": round(first.target[1], 2),
            "reason": f"the same sound, other pictures: {pair.seconds:.1f} s in all",
            "sound": "same",
        }


def require_report_files(paths: Iterable[StrPath]) -> None:
    """Raise `ConfigError` unless `write_report` knows what to write there."""
    for path in paths:
        if Path(path).suffix.lower() not in (".json", ".csv"):
            raise ConfigError(f"A report is written as .json, or its links as .csv; got '{Path(path).name}'.")


def write_report(report: DuplicateReport, path: StrPath) -> None:
    """Write a report as JSON, or a row for each link as CSV, as the suffix says."""
    require_report_files([path])
    if Path(path).suffix.lower() == ".json":
        write_json(path, report.to_json(), indent=2)
    else:
        write_text(path, format_csv(report))


def format_csv(report: DuplicateReport) -> str:
    """The links of a report as CSV, a row each. No text of it is taken for a formula by a spreadsheet."""
    return format_csv_rows(CSV_FIELDS, make_rows(report))
