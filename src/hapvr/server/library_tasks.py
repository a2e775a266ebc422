"""The program of the search and add workers: search, compare, add, find duplicates and act on them, remove."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import HapvrError
from hapvr.library import AddProgress, Library
from hapvr.library.duplicate_plan import classify_copy, filter_report
from hapvr.library.duplicate_report import DuplicateProgress, format_csv
from hapvr.library.filters import VideoFilter
from hapvr.library.indexed_folders import read_text_model
from hapvr.library.queries import Query
from hapvr.library.results import Hit, SoundHit, TextHit, escape_text
from hapvr.library.stored_scores import RegionCache
from hapvr.matching import Match
from hapvr.reports.plotting import map_colours
from hapvr.server.access import file_name, hide_path, visible_path, visible_record
from hapvr.server.action_tasks import ActionTasks
from hapvr.server.described_uploads import DescribedUpload, DescribedUploads
from hapvr.server.filters import read_filter
from hapvr.server.schemas.duplicates import link_json
from hapvr.server.schemas.library import video_json
from hapvr.server.worker_process import Call, Task, lower_priority, release_memory, serve
from hapvr.similarity.comparator import DOWNSAMPLING

_MAX_CELLS = 640  # rows and columns of a matrix that is sent
_LOWEST, _HIGHEST = -0.1, 1.0  # similarities at the ends of the scale 0..255


class LibraryTasks:
    """What a worker with a library can do: the kind "search" reads it, the kind "add" writes it.

    A side of a comparison, or a query, is `{"id": ...}` for a video of the library; an upload also has its path
    ("upload"), its "name", and the part that was last searched ("start_s", "end_s", or None).
    """

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        self._kind, self._settings = kind, settings
        self._roots: list[str] = settings["roots"]  # folders whose paths may be shown
        if kind == "add":
            lower_priority(10)  # people wait for searches, not for adding
        else:  # searches side by side are done sooner with a share of the cores each than with all of them
            torch.set_num_threads(max(1, torch.get_num_threads() // settings["searches_at_once"]))
        self._library = Library.open(Path(settings["library"]), wait_s=2.0, device=settings["device"])
        self._actions = ActionTasks(self._library, settings["move_to"])
        self._cache = RegionCache(settings["max_held_bytes"] if kind == "search" else 0)
        self._uploads = DescribedUploads(self._library, settings)

    def prepare(self) -> None:
        """Load the model, if this worker searches."""
        if self._kind == "search":
            _ = self._library.model

    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""
        reading: list[Task] = [
            self.search, self.search_text, self.compare, self.matrix, self.shared, self.forget
        ]  # fmt: skip
        writing: list[Task] = [self.add, self.check, self.duplicates, self.remove, self.distinct, self.undo_distinct]
        if self._settings["allow_actions"]:
            writing += [self.preview_actions, self.actions, self.undo]
        if self._kind == "add":
            return {task.__name__: _release_after(task) for task in writing}
        return {task.__name__: task for task in reading}

    def hide_paths(self, text: str, arguments: dict[str, Any]) -> str:
        """A message without the paths of the library, of uploads and of folders that are added."""
        for side in (arguments.get(name, {}) for name in ("query", "a", "b")):
            if "upload" in side:
                text = hide_path(text, side["upload"], side["name"] or "the upload")
        if "text" in arguments:
            with suppress(HapvrError):  # what cannot be read named no folder in the message
                model = read_text_model(self._library.path)
                text = text if model is None else hide_path(text, model.name)
        for path in (*arguments.get("paths", ()), self._settings["library"]):
            text = hide_path(text, path)
        return text

    # --- reading -----------------------------------------------------------------------------------------------------

    def search(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """The videos that show what the query shows."""
        query, start_s, end_s = arguments["query"], arguments["start_s"], arguments["end_s"]
        options = {name: arguments[name] for name in ("k", "min_probability", "exact", "ignore_shared")}
        options["filter"] = read_filter(arguments["limits"])
        if "upload" in query:
            began = time.perf_counter()
            upload = self._uploads.describe(query, start_s, end_s, call)
            about = {"id": query["id"], "name": query["name"], "duration": upload.duration}
            reading = time.perf_counter() - began
            result = self._library.search(self._uploads.make_query(query, upload), cache=self._cache, **options)
            seconds, warnings = result.seconds | {"decode": reading}, (*upload.warnings, *result.warnings)
            result = dataclasses.replace(result, seconds=seconds, warnings=warnings)
        else:
            record = self._library.get(query["id"])
            about = {"id": record.id, "name": file_name(record.path), "duration": record.duration}
            result = self._library.search(record.id, start_s=start_s, end_s=end_s, cache=self._cache, **options)
        durations = self._find_durations(hit.id for hit in result.hits)
        hits = [
            self._show_hit(hit)
            | {
                "duration": durations.get(hit.id, 0.0),
                "warnings": [hide_path(text, hit.path) for text in hit.warnings],
            }
            for hit in result.hits
        ]
        sounds = [self._show_hit(hit) for hit in result.sound_hits]
        own = [escape_text(text) for text in result.warnings]
        more = {"sound_hits": sounds, "warnings": own, "filter": arguments["filter"]}
        return result.to_json() | {"query": about, "hits": hits} | more

    def search_text(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """The videos with frames that fit a description. The text model is loaded for the first one, and kept."""
        call.progress(message="searching")
        result = self._library.search_text(arguments["text"], k=arguments["k"], filter=read_filter(arguments["limits"]))
        durations = self._find_durations(hit.id for hit in result.hits)
        hits = [self._show_hit(hit) | {"duration": durations.get(hit.id, 0.0)} for hit in result.hits]
        return result.to_json() | {"text": arguments["text"], "hits": hits, "filter": arguments["filter"]}

    def _show_hit(self, hit: Hit | SoundHit | TextHit) -> dict[str, Any]:
        return hit.to_json() | {"name": file_name(hit.path), "path": visible_path(hit.path, self._roots)}

    def _find_durations(self, ids: Iterable[str]) -> dict[str, float]:
        """The lengths of those videos that are still there, in seconds."""
        catalog = self._library.store.catalog()
        rows = [catalog.row(id) for id in ids if id in catalog]
        return {record.id: record.duration for record in catalog.records(rows)}

    def forget(self, arguments: dict[str, Any], _: Call) -> None:
        """Forget an upload."""
        self._uploads.forget(arguments["id"])

    def _compare(
        self, arguments: dict[str, Any], call: Call, *, ignore_shared: bool, sound: bool = False
    ) -> tuple[Match, list[DescribedUpload | None]]:
        """The comparison of sides "a" and "b"; and each side that is an upload."""
        sides: list[str | Query] = []
        uploads: list[DescribedUpload | None] = []
        for side in (arguments["a"], arguments["b"]):
            upload = self._uploads.describe(side, side["start_s"], side["end_s"], call) if "upload" in side else None
            sides.append(self._library.get(side["id"]).id if upload is None else self._uploads.make_query(side, upload))
            uploads.append(upload)
        call.check()
        return self._library.compare(*sides, ignore_shared=ignore_shared, sound=sound), uploads

    def compare(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Two videos in full: the score, where they match, and the matrix of their frames."""
        sound = self._library.store.sounds.exists
        found, uploads = self._compare(arguments, call, ignore_shared=arguments["ignore_shared"], sound=sound)
        warnings = {}
        for name, side, upload in zip(("query", "target"), (found.query, found.target), uploads, strict=True):
            texts = (*(() if upload is None else upload.warnings), *side.warnings)
            warnings[name] = [hide_path(text, side.path) for text in texts]
        small, rows, columns = _pool(found.matrix)
        refined = small if found.psi is None else _pool(_enlarge(found.psi, found.matrix.shape))[0]
        matrix = {
            "rows": len(rows),
            "columns": len(columns),
            "query_times": found.query.times[rows].round(3).tolist(),
            "target_times": found.target.times[columns].round(3).tolist(),
            "lowest": _LOWEST,
            "highest": _HIGHEST,
            "before": _encode(small),
            "values": _encode(refined),
        }
        target, upload = arguments["b"], uploads[1]
        answer = found.to_json() | {"id": target["id"], "warnings": warnings, "matrix": matrix}
        del answer["query"], answer["target"]  # their paths
        if upload is not None:
            return answer | {"name": file_name(target["name"]), "duration": upload.duration}
        return answer | {
            "name": file_name(found.target.path), "duration": self._library.get(target["id"]).duration
        }  # fmt: skip

    def matrix(self, arguments: dict[str, Any], call: Call) -> str:
        """The matrix of two videos as a PNG, base64."""
        from PIL import Image

        found, _ = self._compare(arguments, call, ignore_shared=False)  # the matrix is that of all frames
        values = _pool(found.matrix if arguments["stage"] == "before" or found.psi is None else found.psi)[0]
        picture = Image.fromarray(map_colours(values))
        scale = max(1, 480 // max(picture.size))
        picture = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        return base64.b64encode(stream.getvalue()).decode()

    def shared(self, _: dict[str, Any], __: Call) -> dict[str, Any]:
        """The footage that many videos share, with the names of those that show it."""
        footage = self._library.find_shared_footage()
        catalog = self._library.store.catalog()
        clips = []
        for clip in footage.clips:
            places = [
                {
                    "id": one.video,
                    "name": file_name(catalog.record(catalog.row(one.video)).path),
                    "start_s": one.start_s,
                    "end_s": one.end_s,
                }
                for one in clip.occurrences
                if one.video in catalog
            ]
            clips.append({"id": clip.id, "seconds": clip.seconds, "videos": clip.videos, "occurrences": places})
        return {"complete": footage.complete, "clips": clips}

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Update the library from a folder."""

        def report_progress(now: AddProgress) -> None:
            if call.is_cancelled():  # `add` ends by itself, and keeps what is done
                return
            rate = now.frames / now.seconds if now.seconds > 0 else None
            pace = now.seconds / max(1, now.done - now.unchanged)
            message = None if now.current is None else file_name(now.current)
            call.progress(now.done, now.total, message, rate=rate, eta_s=pace * (now.total - now.done))

        call.progress(message="looking for videos")
        report = self._library.add(
            [Path(path) for path in arguments["paths"]],
            prune=arguments["prune"],
            retry=arguments["retry"],
            progress=report_progress,
            stop=call.is_cancelled,
        )
        return dataclasses.asdict(report) | {
            "failed": [{"name": file_name(path), "error": hide_path(why, path)} for path, why in report.failed],
            "warnings": [{"name": file_name(path), "warning": hide_path(why, path)} for path, why in report.warnings],
        }

    def check(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Whether the library is as it was written."""
        call.progress(message="checking the library")
        report = self._library.check(quick=arguments["quick"], progress=call.progress).to_json()
        for problem in report["problems"]:
            problem["what"] = hide_path(hide_path(problem["what"], problem["place"]), self._settings["library"])
            problem["remedy"] = hide_path(problem["remedy"], self._settings["library"])
            problem["place"] = file_name(problem["place"])
        names = ("intact", "quick", "problems", "videos", "files", "bytes", "seconds")
        notes = [hide_path(note, self._settings["library"]) for note in report["notes"]]
        return {name: report[name] for name in names} | {"notes": notes}

    def remove(self, arguments: dict[str, Any], _: Call) -> int:
        """Remove videos from the library."""
        return self._library.remove(arguments["ids"])

    def duplicates(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Groups of videos that show the same footage."""

        def report_progress(now: DuplicateProgress) -> None:
            what = {"candidates": "looking for candidates", "pairs": "comparing videos", "sounds": "comparing sounds"}
            call.progress(now.done, now.total, what[now.stage], eta_s=now.left_s)

        since = None if arguments["since"] is None else datetime.fromisoformat(arguments["since"])
        report = self._library.find_duplicates(
            min_probability=arguments["min_probability"],
            ignore_shared=arguments["ignore_shared"],
            since=since,
            progress=report_progress,
        )
        chosen = read_filter(arguments["limits"])
        if chosen != VideoFilter():
            report = filter_report(report, chosen)
        self._actions.remember(report)
        visible = report.with_records(lambda record: visible_record(record, self._roots))
        ids = {id for link in report.beside for id in (link.a, link.b)} | report.sounding
        return {
            "groups": [
                {
                    "videos": [
                        video_json(one, self._roots)
                        | {"keep": one is group.keep, "why": group.reason if one is group.keep else None}
                        | {"copy_kind": None if one is group.keep else classify_copy(one, group)[0]}
                        | {"meant": chosen.allows(one)}
                        for one in group.videos
                    ],
                    "reason": group.reason,
                    "links": [link_json(link) for link in group.links],
                }
                for group in report.groups
            ],
            "links": [link_json(link) for link in report.beside],
            "sound_pairs": [pair.to_json() for pair in report.sound_pairs],
            "videos": {id: video_json(report.records[id], self._roots) for id in ids},
            **{
                name: getattr(report, name)
                for name in ("scored", "pairs", "marked", "min_probability", "prior", "seconds")
            },
            "filter": arguments["filter"],
            "export": {"json": json.dumps(visible.to_json(), indent=2) + "\n", "csv": format_csv(visible)},
        }

    def distinct(self, arguments: dict[str, Any], _: Call) -> None:
        """Mark two videos as no duplicates."""
        self._library.mark_distinct(arguments["a"], arguments["b"])

    def undo_distinct(self, arguments: dict[str, Any], _: Call) -> None:
        """Remove that mark."""
        self._library.unmark_distinct(arguments["a"], arguments["b"])

    def preview_actions(self, arguments: dict[str, Any], _: Call) -> dict[str, Any]:
        """What `actions` would do."""
        return self._actions.preview(arguments)

    def actions(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Move files of duplicates, or replace them by links."""
        return self._actions.apply(arguments, _report_until_cancelled(call), call.is_cancelled)

    def undo(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Take that back."""
        return self._actions.undo(arguments["id"], _report_until_cancelled(call), call.is_cancelled)


def _release_after(task: Task) -> Task:
    """A task after which free memory goes back to the system: the next one may come in a week."""

    def run(arguments: dict[str, Any], call: Call) -> Any:
        try:
            return task(arguments, call)
        finally:
            release_memory()

    return run


def _report_until_cancelled(call: Call) -> Callable[[int, int], None]:
    """Progress of what ends by itself when it is cancelled, and keeps what is done."""

    def report(done: int, total: int) -> None:
        if not call.is_cancelled():
            call.progress(done, total)

    return report


def _pool(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]:
    """A matrix that is not too large to send, each cell the largest of those it stands for; and the frames it shows."""
    starts = []
    for axis, length in enumerate(matrix.shape):
        first = np.unique(np.linspace(0, length, min(length, _MAX_CELLS), endpoint=False).astype(np.intp))
        matrix = np.maximum.reduceat(matrix, first, axis=axis)
        starts.append(first)
    return matrix, starts[0], starts[1]


def _enlarge(matrix: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Each cell in the place of those it was made of: psi's output is a quarter as long either way."""
    rows, columns = (np.minimum(np.arange(n) // DOWNSAMPLING, m - 1) for n, m in zip(shape, matrix.shape, strict=True))
    enlarged: NDArray[np.float32] = matrix[rows][:, columns]
    return enlarged


def _encode(matrix: NDArray[np.float32]) -> str:
    scaled = np.clip((matrix - _LOWEST) / (_HIGHEST - _LOWEST), 0, 1)
    return base64.b64encode((scaled * 255).round().astype(np.uint8).tobytes()).decode()


if __name__ == "__main__":
    serve(partial(LibraryTasks, sys.argv[1]))
