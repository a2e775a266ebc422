"""What `hapvr duplicates` found as one self-contained page: groups and parts, with frames of the same moments."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hapvr.audio.matching import describe_stretch
from hapvr.library.duplicate_report import DuplicateReport, Group, Link, SoundPair
from hapvr.library.results import VideoRecord, display_path
from hapvr.reports.frame_strips import render_strip
from hapvr.reports.html_page import format_interval, format_time, write_page
from hapvr.storage import StrPath

_FRAMES = 6  # of a strip
_MAX_SHOWN = 200  # groups on a page, and as many links beside them

_STYLE = """<style>
.copy { display: grid; grid-template-columns: minmax(0, 34rem) minmax(0, 1fr); gap: .2rem 1.5rem; padding: .6rem 0;
  align-items: start; }
.group { border-top: 1px solid #8884; padding: .6rem 0; break-inside: avoid; } .group h3 { margin: .2rem 0; }
.copy p { margin: 0; } .copy .path { overflow-wrap: anywhere; font-weight: 600; }
.copy .strip img { height: 4.2rem; } .none { height: 4.2rem; display: flex; align-items: center; opacity: .6; }
@media (max-width: 50rem) { .copy { grid-template-columns: 1fr; } }
</style>"""


def save_page(report: DuplicateReport, path: StrPath, library: StrPath) -> Path:
    """Write the page; a video that cannot be read any more is shown without frames."""
    groups, beside = report.groups, report.beside
    copies = sum(len(group.videos) - 1 for group in groups)
    spare = sum(video.size for group in groups for video in group.videos[1:])
    summary = (
        f"{len(groups):,} groups of copies and {len(beside):,} other links among {report.videos:,} videos. "
        f"{copies:,} copies beside those suggested to be kept take {spare / 1e6:,.1f} MB. Nothing was deleted."
    )
    sections = "".join(_render_group(number, group) for number, group in enumerate(groups[:_MAX_SHOWN], 1))
    others = "".join(_render_link(link, report) for link in beside[:_MAX_SHOWN])
    more = ""
    if max(len(groups), len(beside), len(report.sound_pairs)) > _MAX_SHOWN:
        more = f"<p class='note'>Only {_MAX_SHOWN} of each are shown here; --json and -o FILE.csv have all.</p>"
    sounds = "".join(_render_sound_pair(pair, report) for pair in report.sound_pairs[:_MAX_SHOWN])
    body = f"""{_STYLE}<h1>Duplicates in {html.escape(display_path(library))}</h1>
<p class="lead">{html.escape(summary)}</p>
<p class="note">Frames one below the other are of the same moment of what they share.</p>{more}
{sections}
{f"<h2>Parts of others</h2>{others}" if others else ""}
{f"<h2>Same sound, other pictures</h2>{sounds}" if sounds else ""}
<p class="note">{report.scored:,} of {report.pairs:,} pairs were compared, links have a probability of at least
{report.min_probability:g}. To say that two are no duplicates: hapvr duplicates LIBRARY --distinct ID ID</p>"""
    return write_page(Path(path), title="Duplicates", body=body)


def _render_group(number: int, group: Group) -> str:
    shown_at = _choose_moments(group)
    strongest = {id: link for link in reversed(group.links) for id in (link.a, link.b)}
    rows = "".join(
        _render_copy(
            video,
            shown_at[video.id],
            "keep" if video is group.keep else strongest[video.id].kind,
            "good" if video is group.keep else "fair",
            group.reason if video is group.keep else _describe_copy(group, video, strongest[video.id]),
        )
        for video in group.videos
    )
    return f"<section class='group'><h3>Group {number}: {len(group.videos)} copies</h3>{rows}</section>"


def _describe_copy(group: Group, video: VideoRecord, link: Link) -> str:
    edits = group.find_edits(video)
    return _explain_link(link) + (f"; an edit: {', '.join(edits)}" if edits else "")


def _render_link(link: Link, report: DuplicateReport) -> str:
    a, b = report.records[link.a], report.records[link.b]
    where = [format_interval(part) for part in link.intervals]
    notes = {
        "contained": (f"is {where[1]} of the one below", "the whole"),
        "shared": (f"{where[0]} of it is {where[1]} of the one below", "shares that part"),
    }.get(link.kind, ("is a copy of the one below", "its copy"))
    first = _render_copy(a, _spread_times(link.intervals[0]), link.kind, "fair", f"{notes[0]}; {_explain_link(link)}")
    times = _spread_times(link.intervals[1])
    second = _render_copy(b, times[::-1] if link.speed < 0 else times, notes[1], "good", "")
    return f"<section class='group'>{first}{second}</section>"


def _render_sound_pair(pair: SoundPair, report: DuplicateReport) -> str:
    where = ", ".join(describe_stretch(one, "it", "the one below") for one in pair.stretches)
    first = pair.stretches[0]
    a = _render_copy(report.records[pair.a], _spread_times(first.query), "same sound", "fair", where)
    b = _render_copy(report.records[pair.b], _spread_times(first.target), "same sound", "fair", "")
    return f"<section class='group'>{a}{b}</section>"


def _explain_link(link: Link) -> str:
    """The verdict and what it rests on."""
    return link.reason if link.verdict is None else f"copy, {link.reason}. {link.verdict.reason}"


def _choose_moments(group: Group) -> dict[str, list[float]]:
    """For each copy, the seconds of the moments that are shown: those of the one to keep, as far as links tell."""
    keep = group.keep
    direct: dict[str, tuple[tuple[float, float], tuple[float, float], bool]] = {}
    for link in group.links:
        if keep.id in (link.a, link.b):
            own, other = link.intervals if link.a == keep.id else link.intervals[::-1]
            direct.setdefault(link.b if link.a == keep.id else link.a, (own, other, link.speed < 0))
    times = _spread_times((0.0, keep.duration))
    moments = {keep.id: times}
    for video in group.videos[1:]:
        if video.id not in direct:
            moments[video.id] = _spread_times((0.0, video.duration))
            continue
        (start, end), target, backwards = direct[video.id]
        place = np.clip((np.array(times) - start) / max(end - start, 1e-9), 0, 1)
        along = 1 - place if backwards else place
        moments[video.id] = (target[0] + along * (target[1] - target[0])).tolist()
    return moments


def _spread_times(part: tuple[float, float]) -> list[float]:
    start, end = part
    return [float(start + (end - start) * (place + 0.5) / _FRAMES) for place in range(_FRAMES)]


def _render_copy(video: VideoRecord, times: Sequence[float], word: str, mark: str, note: str) -> str:
    length = f"{format_time(video.duration)}, " if video.duration else ""
    facts = f"{length}{video.width} x {video.height}, {video.bitrate / 1000:,.0f} kbit/s, {video.size / 1e6:.1f} MB"
    gone = "" if video.state == "ready" else f" ({video.state})"
    return f"""<div class="copy">{render_strip(video, times)}
<div><p class="path">{html.escape(display_path(video.path))}{gone}</p>
<p><span class="badge {mark}">{html.escape(word)}</span> {html.escape(note)}</p>
<p class="note">{html.escape(video.id)}: {facts}</p></div></div>
"""
