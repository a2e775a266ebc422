"""A plan of what to do with duplicates (`hapvr.actions.plan`), made from a report.

Only whole copies get an action: files of the same bytes, and files whose pictures differ in nothing but how they were
encoded. Edits, clips of longer videos and doubtful cases are listed without one, unless they are asked for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from hapvr.actions.plan import WAYS, Action, Plan, PlanRow, Way
from hapvr.decision import format_percent
from hapvr.errors import ConfigError
from hapvr.library.duplicate_report import DuplicateReport, Group, Link
from hapvr.library.filters import VideoFilter
from hapvr.library.marks import make_pair
from hapvr.library.results import VideoRecord

CopyKind = Literal["identical", "copy", "edited", "unsure", "clip", "shared"]
"""What a file is to the copy that is kept: of the same bytes; encoded in another way; edited; doubtful (it may be an
edit, has another sound, is less probable, or is linked to that copy by others only); a part of it; or only a stretch of
both is the same.
"""
COPY_KINDS: tuple[CopyKind, ...] = get_args(CopyKind)


@dataclass(frozen=True)
class PlanOptions:
    """What a plan holds.

    Attributes:
        way: the action that is written for files that are not kept.
        kinds: of the files that get it. None: those of `default_kinds`, and the others are listed without an action.
        filter: of the files that get it; groups without such a file are left out.
        default_kinds: whole copies.
        min_probability: of a copy that gets an action without being asked for.
    """

    way: Way = "move"
    kinds: tuple[CopyKind, ...] | None = None
    filter: VideoFilter = field(default_factory=VideoFilter)
    default_kinds: tuple[CopyKind, ...] = ("identical", "copy")
    min_probability: float = 0.9

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise ConfigError(f"way must be one of {', '.join(WAYS)}; got '{self.way}'.")
        require_kinds(self.kinds or ())


def require_kinds(kinds: Iterable[str]) -> None:
    """`ConfigError` unless there are such kinds."""
    if unknown := [kind for kind in kinds if kind not in COPY_KINDS]:
        raise ConfigError(f"kinds must be among {', '.join(COPY_KINDS)}; got '{unknown[0]}'.")


def make_plan(report: DuplicateReport, options: PlanOptions | None = None) -> Plan:
    """A plan of a report's groups and clips, groups that save most first, numbered from 1."""
    options = options or PlanOptions()
    groups = [_plan_group(group, options) for group in report.groups]
    acting = {row.path for rows in groups for row in rows if row.action in WAYS}
    keeping = {row.path for rows in groups for row in rows if row.action == "keep"}
    groups += _plan_clips(report, options, acting, keeping)
    listed = [rows for rows in groups if len(rows) > 1]
    listed.sort(key=lambda rows: (-sum(row.saves for row in rows), -sum(row.size for row in rows[1:]), rows[0].path))
    numbered = [dataclasses.replace(row, group=str(place)) for place, rows in enumerate(listed, 1) for row in rows]
    return Plan(tuple(numbered))


def _plan_group(group: Group, options: PlanOptions) -> list[PlanRow]:
    """The copy to keep, and the others that the options allow, the largest file first."""
    keep = group.keep
    usable = keep.state == "ready" and not os.path.islink(keep.path)
    rows = []
    for video in group.videos[1:]:
        if not options.filter.allows(video):
            continue
        kind, why, link = classify_copy(video, group, min_probability=options.min_probability)
        if options.kinds is not None and kind not in options.kinds:
            continue
        action = _choose_action(video, kind, options)
        if not usable:
            action, why = "none", "the copy to keep is missing, or a link"
        rows.append(_make_row(video, action, kind, why, 1.0 if link is None else link.probability))
    rows.sort(key=lambda row: (-row.saves, -row.size, row.path))
    return [_make_row(keep, "keep", "", group.reason, None), *rows]


def classify_copy(
    video: VideoRecord, group: Group, *, min_probability: float = PlanOptions.min_probability
) -> tuple[CopyKind, str, Link | None]:
    """What a video of a group is to the one that is kept, why, and the link between their contents."""
    keep = group.keep
    if video.content_hash == keep.content_hash:
        return "identical", "the same bytes", None
    hashes = {one.id: one.content_hash for one in group.videos}
    pair = make_pair(video.content_hash, keep.content_hash)
    link = next((one for one in group.links if make_pair(hashes[one.a], hashes[one.b]) == pair), None)
    if link is None:
        return "unsure", "linked to the copy to keep by others of the group only", None
    derivation = link.derivation
    if derivation is None:
        return "unsure", f"{link.reason}; their pictures were not compared", link
    seen = f"; {', '.join(derivation.reasons)}" if derivation.reasons else ""
    is_derived = derivation.derived is not None and hashes[getattr(link, derivation.derived)] == video.content_hash
    if derivation.reasons and not is_derived:
        return "unsure", f"{link.reason}{seen}", link
    if not derivation.is_quality_only:
        return "edited", f"{link.reason}{seen}", link
    if link.sound is not None and (link.sound.kind == "other" or link.sound.audible is not None):
        return "unsure", link.reason, link  # which says it: to keep one of them would lose a sound
    if link.probability is not None and link.probability < min_probability:
        return "unsure", f"{link.reason}; below {format_percent(min_probability)}", link
    return "copy", f"{link.reason}{seen}", link


def _choose_action(video: VideoRecord, kind: CopyKind, options: PlanOptions) -> Action:
    wanted = options.default_kinds if options.kinds is None else options.kinds
    if kind not in wanted or video.state != "ready" or os.path.islink(video.path):
        return "none"
    return options.way


def _plan_clips(
    report: DuplicateReport, options: PlanOptions, acting: Collection[str], keeping: Collection[str]
) -> Iterator[list[PlanRow]]:
    """A group for each video that others are parts of. Each clip is listed once; none gets an action that is kept."""
    if options.kinds is not None and "clip" not in options.kinds:
        return
    records = report.records
    best: dict[str, Link] = {}  # of each clip the whole that is kept, or else the most certain one
    for link in report.beside:
        if link.kind == "contained" and options.filter.allows(records[link.a]):
            known = best.setdefault(link.a, link)
            if records[link.b].path in keeping and records[known.b].path not in keeping:
                best[link.a] = link
    wholes = {records[link.b].path for link in best.values()}
    groups: dict[str, list[PlanRow]] = {}
    for link in best.values():
        clip, whole = records[link.a], records[link.b]
        action, why = _choose_action(clip, "clip", options), _describe_clip(link)
        if action != "none" and (clip.path in acting or clip.path in keeping or clip.path in wholes):
            action, why = "none", f"{why}; another group keeps it or acts on it"
        if action != "none" and (whole.path in acting or whole.state != "ready" or os.path.islink(whole.path)):
            action, why = "none", f"{why}; the whole is missing, a link, or itself to be acted on"
        groups.setdefault(whole.id, []).append(_make_row(clip, action, "clip", why, link.probability))
    for id, rows in groups.items():
        rows.sort(key=lambda row: (-row.saves, -row.size, row.path))
        yield [_make_row(records[id], "keep", "", "the whole of which the others are parts", None), *rows]


def _describe_clip(link: Link) -> str:
    start, end = link.intervals[1]
    return f"{start:.1f}-{end:.1f} s of it; {link.reason}"


def _make_row(video: VideoRecord, action: Action, kind: str, why: str, probability: float | None) -> PlanRow:
    return PlanRow(
        group="",
        action=action,
        path=video.path,
        size=video.size,
        content_hash=video.content_hash,
        kind=kind,
        probability=probability,
        why=why if video.state == "ready" else f"{video.state}; {why}",
        seconds=video.duration,
        width=video.width,
        height=video.height,
        mtime_ns=video.mtime_ns,
    )


def filter_report(
    report: DuplicateReport, chosen: VideoFilter, kinds: Sequence[CopyKind] | None = None
) -> DuplicateReport:
    """The groups and links of a report in which a video is allowed that is of one of the kinds, or of any."""
    wanted = None if kinds is None else set(kinds)

    def is_listed(video: VideoRecord, group: Group) -> bool:
        if wanted is None:
            return chosen.allows(video) or chosen.allows(group.keep)
        return chosen.allows(video) and classify_copy(video, group)[0] in wanted

    def is_shown(link: Link) -> bool:
        kind = {"contained": "clip", "shared": "shared"}.get(link.kind, "copy")
        ends = (report.records[link.a], report.records[link.b])
        return (wanted is None or kind in wanted) and any(map(chosen.allows, ends))

    groups = tuple(group for group in report.groups if any(is_listed(video, group) for video in group.videos[1:]))
    within = {(link.a, link.b) for group in groups for link in group.links}
    beside = {(link.a, link.b) for link in report.beside if is_shown(link)}
    links = tuple(link for link in report.links if (link.a, link.b) in within | beside)
    sounds = report.sound_pairs if wanted is None else ()
    pairs = [pair for pair in sounds if any(chosen.allows(report.records[id]) for id in (pair.a, pair.b))]
    return dataclasses.replace(report, groups=groups, links=links, sound_pairs=tuple(pairs))
