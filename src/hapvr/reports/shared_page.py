"""The footage that many videos of a library share as one self-contained page, with frames of where it occurs."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

from hapvr.library.results import VideoRecord, display_path
from hapvr.library.shared_footage import Occurrence, SharedClip, SharedFootage
from hapvr.reports.frame_strips import render_strip
from hapvr.reports.html_page import format_interval, write_page
from hapvr.storage import StrPath

_FRAMES = 5  # of a strip
_OCCURRENCES = 3  # of a clip that are shown with frames

_STYLE = """<style>
.clip { border-top: 1px solid #8884; padding: .6rem 0; break-inside: avoid; } .clip h3 { margin: .2rem 0; }
.place { display: grid; grid-template-columns: minmax(0, 34rem) minmax(0, 1fr); gap: .2rem 1.5rem; padding: .3rem 0; }
.place p { margin: 0; overflow-wrap: anywhere; } .place .strip img { height: 4.2rem; }
.none { height: 4.2rem; display: flex; align-items: center; opacity: .6; }
@media (max-width: 50rem) { .place { grid-template-columns: 1fr; } }
</style>"""


def save_page(footage: SharedFootage, records: Mapping[str, VideoRecord], path: StrPath, library: StrPath) -> Path:
    """Write the page; `records` are those of the occurrences, by id. A file that is gone is shown without frames."""
    clips = "".join(_render_clip(clip, records) for clip in footage.clips)
    count = len(footage.clips)
    summary = (
        f"{count:,} {'clip occurs' if count == 1 else 'clips occur'} in many videos and make no two of them copies."
    )
    body = f"""{_STYLE}<h1>Shared footage in {html.escape(display_path(library))}</h1>
<p class="lead">{summary}</p>
<p class="note">Searches and comparisons leave it out; with --keep-shared it counts.</p>
{clips}"""
    return write_page(Path(path), title="Shared footage", body=body)


def _render_clip(clip: SharedClip, records: Mapping[str, VideoRecord]) -> str:
    places = "".join(_render_place(one, records[one.video]) for one in clip.occurrences[:_OCCURRENCES])
    return (
        f"<section class='clip'><h3>{html.escape(clip.id)}: {clip.seconds:.1f} s in {clip.videos:,} videos</h3>"
        f"{places}</section>"
    )


def _render_place(place: Occurrence, video: VideoRecord) -> str:
    length = place.end_s - place.start_s
    times = [place.start_s + length * (number + 0.5) / _FRAMES for number in range(_FRAMES)]
    return f"""<div class="place">{render_strip(video, times)}
<div><p><strong>{html.escape(display_path(video.path))}</strong></p>
<p class="note">{html.escape(video.id)}: {format_interval((place.start_s, place.end_s))}</p></div></div>
"""
