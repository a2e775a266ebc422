"""Groups of copies, and which copy of a group is worth keeping."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hapvr.library.duplicate_report import Group, Link, find_edits
from hapvr.library.marks import Pair, make_pair
from hapvr.library.results import VideoRecord, display_path


def group_links(
    links: Sequence[Link], records: Mapping[str, VideoRecord], marks: frozenset[Pair] = frozenset()
) -> tuple[Group, ...]:
    """Videos that are duplicates of each other, directly or by others between them; largest group first.

    Links join in the order in which they are given, the most certain first. Two groups stay apart if any two of their
    videos are marked as distinct.
    """

    def are_distinct(one: Sequence[str], other: Sequence[str]) -> bool:
        return bool(marks) and any(
            make_pair(records[a].content_hash, records[b].content_hash) in marks for a in one for b in other
        )

    group_of = {id: [id] for link in links for id in (link.a, link.b)}
    for link in links:
        one, other = group_of[link.a], group_of[link.b]
        if link.kind not in ("identical", "duplicate") or one is other or are_distinct(one, other):
            continue
        one += other
        group_of |= dict.fromkeys(other, one)
    groups = []
    for first, members in group_of.items():
        if len(members) < 2 or first != members[0]:  # each group once
            continue
        within = tuple(link for link in links if group_of[link.a] is members and group_of[link.b] is members)
        ordered, reason = rank_copies([records[id] for id in members], within)
        groups.append(Group(tuple(ordered), reason, within))
    return tuple(sorted(groups, key=lambda group: (-len(group.videos), group.keep.path)))


def rank_copies(records: Sequence[VideoRecord], links: Sequence[Link] | None = None) -> tuple[list[VideoRecord], str]:
    """Copies in the order in which they are worth keeping, and why the first is.

    One that is there comes before one that is missing, a file before a link, and what is no edit before an edit of it,
    where the links between them say so; then the longest (half a second, or a hundredth, is no difference), the largest
    picture, the highest bitrate, the oldest file, and the first path. The reason begins with "unsure" if one of the
    best is an edit of another and nothing says which, or if their files were not looked at; without links, never.
    """
    longest = max(record.duration for record in records)
    enough = longest - max(0.5, longest / 100)
    hashes = {record.id: record.content_hash for record in records}
    steps = _count_steps(links or (), hashes)

    def rank(record: VideoRecord) -> tuple[Any, ...]:
        missing, linked = record.state != "ready", os.path.islink(record.path)
        size = record.width * record.height
        better = -min(record.duration, enough), -size, -record.bitrate
        return missing, linked, steps[record.content_hash], *better, record.mtime_ns, record.path

    ordered = sorted(records, key=rank)
    first, second = ordered[0], ordered[1]
    edits = [(one, find_edits(one.content_hash, links or (), hashes)) for one in ordered[1:]]
    edits = [
        (one, reasons) for one, reasons in edits if reasons and steps[one.content_hash] > steps[first.content_hash]
    ]
    reasons = (
        "the only one whose file is there",
        "a file, and the next is a link",
        f"the others are edits; {_describe_edits(edits)}",
        f"the longest: {first.duration:.1f} s, the next {second.duration:.1f} s",
        f"as long as any, the largest picture: {first.width} x {first.height}, the next {second.width} x "
        f"{second.height}",
        f"as long and as large as any, the highest bitrate: {first.bitrate / 1000:,.0f} kbit/s, the next "
        f"{second.bitrate / 1000:,.0f}",
        "they are equally good; it is the oldest file",
        "they are equally good; it is the first by name",
    )
    differs = (one != other for one, other in zip(rank(first), rank(second), strict=True))
    place = next((place for place, is_it in enumerate(differs) if is_it), len(reasons) - 1)
    reason = reasons[place]
    if edits and place > 2:
        reason += f"; {_describe_edits(edits)}"
    rivals = [one for one in ordered[1:] if rank(one)[:3] == rank(first)[:3]]
    doubt = None if links is None else _find_doubt(first, rivals, links, hashes)
    return ordered, reason if doubt is None else f"unsure: {doubt} ({reason})"


def _describe_edits(edits: Sequence[tuple[VideoRecord, tuple[str, ...]]]) -> str:
    shown = [f"'{Path(display_path(one.path)).name}': {', '.join(reasons)}" for one, reasons in edits[:2]]
    return "; ".join(shown) + (f"; and {len(edits) - 2} more" if len(edits) > 2 else "")


def _count_steps(links: Sequence[Link], hashes: Mapping[str, str]) -> dict[str, int]:
    """How many edits lie between each content and one that is no edit; links in a circle count for nothing."""
    origins: dict[str, set[str]] = {content: set() for content in hashes.values()}
    for link in links:
        if link.derivation is not None and link.derivation.derived is not None:
            ends = (link.a, link.b) if link.derivation.derived == "a" else (link.b, link.a)
            if all(id in hashes for id in ends) and hashes[ends[0]] != hashes[ends[1]]:
                origins[hashes[ends[0]]].add(hashes[ends[1]])
    steps: dict[str, int] = {}
    while len(steps) < len(origins):
        known = [one for one, others in origins.items() if one not in steps and others <= steps.keys()]
        if not known:  # a circle: all that is left counts by what is outside it
            known = [one for one in origins if one not in steps]
            origins |= {one: origins[one] & steps.keys() for one in known}
        steps |= {one: 1 + max((steps[other] for other in origins[one]), default=-1) for one in known}
    return steps


def _find_doubt(
    first: VideoRecord, rivals: Sequence[VideoRecord], links: Sequence[Link], hashes: Mapping[str, str]
) -> str | None:
    """Why the first of copies may be no better than its rivals; None if it is as good as any."""
    others = {one.content_hash for one in rivals} - {first.content_hash}
    doubts: dict[str, None] = {}
    seen = not others
    for link in links:
        pair = {hashes.get(link.a), hashes.get(link.b)}
        if link.derivation is None or first.content_hash not in pair or not pair & others:
            continue
        seen = True
        if link.derivation.unsure:
            doubts |= dict.fromkeys(link.derivation.reasons)
    if doubts:
        return "; ".join(doubts)
    return None if seen else "their pictures were not compared"
