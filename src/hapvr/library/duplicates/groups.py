"""Links to groups of copies, and the copy of a group that is worth keeping."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hapvr.library.duplicates.reports import Group, Link
from hapvr.library.marks import Pair, pair_of
from hapvr.library.records import VideoRecord


def grouped(
    links: Sequence[Link], records: Mapping[str, VideoRecord], marks: frozenset[Pair] = frozenset()
) -> tuple[Group, ...]:
    """Videos that are duplicates of each other, directly or by others between them; largest group first.

    Links join in the order of their strength. Two groups stay apart if any two of their videos are marked as distinct.
    """
    group_of = {id: [id] for link in links for id in (link.a, link.b)}
    for link in links:
        one, other = group_of[link.a], group_of[link.b]
        if link.kind not in ("identical", "duplicate") or one is other or _apart(one, other, records, marks):
            continue
        one += other
        group_of |= dict.fromkeys(other, one)
    groups = []
    for first, members in group_of.items():
        if len(members) < 2 or first != members[0]:  # each group once
            continue
        within = tuple(link for link in links if group_of[link.a] is members and group_of[link.b] is members)
        ordered, reason = best_first([records[id] for id in members])
        groups.append(Group(tuple(ordered), reason, within))
    return tuple(sorted(groups, key=lambda group: (-len(group.videos), group.keep.path)))


def _apart(
    one: Sequence[str], other: Sequence[str], records: Mapping[str, VideoRecord], marks: frozenset[Pair]
) -> bool:
    if not marks:
        return False
    return any(pair_of(records[a].content_hash, records[b].content_hash) in marks for a in one for b in other)


def best_first(records: Sequence[VideoRecord]) -> tuple[list[VideoRecord], str]:
    """Copies in the order in which they are worth keeping, and why the first is.

    One that is there comes before one that is missing, a file before a link; then the longest (half a second, or a
    hundredth, is no difference), the largest picture, the highest bitrate, the oldest file, and the first path.
    """
    longest = max(record.duration for record in records)
    enough = longest - max(0.5, longest / 100)

    def worth(record: VideoRecord) -> tuple[Any, ...]:
        length = min(record.duration, enough)
        return (
            *((record.state != "ready", os.path.islink(record.path)), -length, -record.width * record.height),
            -record.bitrate,
            *(record.mtime_ns, record.path),
        )

    ordered = sorted(records, key=worth)
    first, second = ordered[0], ordered[1]
    if first.state == "ready" != second.state:
        return ordered, "the only one whose file is there"
    if worth(first)[0] != worth(second)[0]:
        return ordered, "a file, and the next is a link"
    if worth(first)[1] != worth(second)[1]:
        return ordered, f"the longest: {first.duration:.1f} s, the next {second.duration:.1f} s"
    if first.width * first.height != second.width * second.height:
        sizes = f"{first.width} x {first.height}, the next {second.width} x {second.height}"
        return ordered, f"as long as any, the largest picture: {sizes}"
    if first.bitrate != second.bitrate:
        rates = f"{first.bitrate / 1000:,.0f} kbit/s, the next {second.bitrate / 1000:,.0f}"
        return ordered, f"as long and as large as any, the highest bitrate: {rates}"
    if first.mtime_ns != second.mtime_ns:
        return ordered, "they are equally good; it is the oldest file"
    return ordered, "they are equally good; it is the first by name"
