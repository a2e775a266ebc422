"""What the workers do with a library: search, compare, add, look for duplicates, forget."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import HapvrError
from hapvr.features import Features
from hapvr.library import AddProgress, Library
from hapvr.library.duplicate_report import DuplicateProgress, Link, format_csv
from hapvr.library.results import escape_text
from hapvr.library.stored_scores import RegionCache
from hapvr.matching import Instant, Verdict
from hapvr.plotting import RAMP
from hapvr.records import Frames
from hapvr.server.limiting import be_nice
from hapvr.server.problems import Problem, status_of
from hapvr.server.wording import (
    LINK_WORDS,
    name_of,
    problem_of,
    video_json,
    visible_path,
    visible_record,
    without_place,
)
from hapvr.server.worker import Call, Task
from hapvr.similarity import Segment
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.video.isolated import decode_sampled_isolated
from hapvr.video.limits import DecodeLimits

_REMEMBERED = 256 * 2**20  # bytes of described uploads
_MOST_CELLS = 640  # rows and columns of a matrix that is sent
_LOWEST, _HIGHEST = -0.1, 1.0  # similarities at the ends of the scale 0..255


@dataclass(frozen=True, eq=False)
class _Upload:
    """An upload, described."""

    features: Features
    duration: float  # seconds; 0 for a picture
    warnings: tuple[str, ...]  # what was wrong with its file


class LibraryTasks:
    """What a worker with a library can do: one searches, the other writes."""

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        self._kind, self._settings = kind, settings
        self._roots: list[str] = settings["roots"]  # folders whose paths may be shown
        if kind == "add":
            be_nice(10)  # searches are waited for, adding is not
        # Several small tasks side by side are done sooner by one thread each than by all threads one after the other.
        slots = int(settings.get("slots", 1))
        if slots > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // slots))
        self._library = Library.open(Path(settings["library"]), wait_s=2.0)
        self._cache = RegionCache(settings["held_bytes"] if kind == "search" else 0)
        self._described: OrderedDict[tuple[str, float | None, float | None], _Upload] = OrderedDict()
        self._lock = threading.Lock()

    def ready(self) -> dict[str, Any]:
        """Load the model, for whoever searches."""
        if self._kind == "search":
            model = self._library.model
            return {"model": model.name, "calibrated": model.calibration is not None}
        return {}

    def tasks(self) -> dict[str, Task]:
        """What can be asked for."""
        found: list[Task] = [self.search, self.compare, self.matrix, self.forget]
        if self._kind == "add":
            found = [self.add, self.duplicates, self.remove, self.distinct, self.not_distinct]
        return {task.__name__: self._placeless(task) for task in found}

    def _placeless(self, task: Task) -> Task:
        """The task, whose errors do not say where the library lies."""

        def done(arguments: dict[str, Any], call: Call) -> Any:
            try:
                return task(arguments, call)
            except Exception as error:
                if (problem := problem_of(error, self._library.path)) is None:
                    raise
                raise problem from error

        return done

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """The videos that show what the query shows."""
        began = time.perf_counter()
        query = arguments["query"]
        start, end = arguments["from"], arguments["to"]
        options = {name: arguments[name] for name in ("k", "min_probability", "exact")}
        if "upload" in query:
            upload = self._upload(query, start, end, call)
            told = {"id": query["id"], "name": query["name"], "duration": upload.duration}
            reading = time.perf_counter() - began
            result = self._library.search(upload.features, cache=self._cache, **options)
            seconds, warnings = result.seconds | {"decode": reading}, (*upload.warnings, *result.warnings)
            result = dataclasses.replace(result, seconds=seconds, warnings=warnings)
        else:
            record = self._library.get(query["id"])
            told = {"id": record.id, "name": name_of(record.path), "duration": record.duration}
            result = self._library.search(record.id, start=start, end=end, cache=self._cache, **options)
        catalog = self._library.store.catalog()
        durations = {}
        for record in catalog.records([catalog.row(hit.id) for hit in result.hits if hit.id in catalog]):
            durations[record.id] = record.duration
        hits = [
            _hit(hit.id, hit.path, hit.score, hit.verdict, hit.segments, hit.best, durations.get(hit.id, 0.0))
            | {
                "path": visible_path(hit.path, self._roots),
                "warnings": [without_place(text, hit.path) for text in hit.warnings],
            }
            for hit in result.hits
        ]
        return {
            "query": told,
            "database": result.database,
            "scored": result.scored,
            "seconds": result.seconds,
            "note": result.note,
            "prior": result.prior,
            "warnings": [escape_text(text) for text in result.warnings],
            "hits": hits,
        }

    def _upload(self, query: dict[str, Any], start: float | None, end: float | None, call: Call) -> _Upload:
        """An upload, or a part of it, described once."""
        key = (query["id"], start, end)
        with self._lock:
            if key in self._described:
                self._described.move_to_end(key)
                return self._described[key]
        model = self._library.model
        settings, sampling = self._settings, model.sampling
        stream = decode_sampled_isolated(
            query["upload"],
            sampling,
            start_s=start,
            end_s=end,
            limits=DecodeLimits(settings["decode_pixels"], settings["decode_frames"], settings["decode_s"]),
            memory_bytes=settings["decode_bytes"],
            check=call.check,
        )

        def parts() -> Iterator[Frames]:
            count = 0
            for frames in stream:
                yield frames
                duration, count = frames.duration_s or 0.0, count + len(frames)
                expected = max(float(count), min(duration, end or duration) * sampling.fps) if duration else None
                call.progress(count, expected, "reading the video")
                del frames  # it would stay while the next part is decoded

        call.progress(message="reading the video")
        name = query["name"] or "the upload"
        try:
            read = model.extractor.describe_parts(parts(), start_s=start, end_s=end, name=f"'{name}'")
        except HapvrError as error:
            raise Problem(status_of(error), str(error).replace(query["upload"], name)) from error
        upload = _Upload(read.features, read.duration_s or 0.0, read.warnings)
        self._remember(key, upload)
        call.progress(message="searching")  # how far that is, nobody can say
        return upload

    def _remember(self, key: tuple[str, float | None, float | None], upload: _Upload) -> None:
        with self._lock:
            self._described[key] = upload
            while (
                len(self._described) > 1
                and sum(one.features.regions.nbytes for one in self._described.values()) > _REMEMBERED
            ):
                self._described.popitem(last=False)

    def forget(self, arguments: dict[str, Any], _: Call) -> None:
        """Forget an upload."""
        with self._lock:
            for key in [key for key in self._described if key[0] == arguments["id"]]:
                del self._described[key]

    # --- comparing ---------------------------------------------------------------------------------------------------

    def _side(self, side: dict[str, Any], call: Call) -> tuple[str | Features, float, tuple[str, ...]]:
        """A video of the library by its id, or the features of an upload; how long it is, and an upload's warnings."""
        if "upload" in side:
            upload = self._upload(side, side.get("from"), side.get("to"), call)
            return upload.features, upload.duration, upload.warnings
        record = self._library.get(side["id"])
        return record.id, record.duration, ()  # its warnings come with the answer

    def compare(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Two videos in full: the score, where they match, and the matrix of their frames."""
        (a, _, a_warnings), (b, duration, b_warnings) = (self._side(arguments[one], call) for one in ("a", "b"))
        call.check()
        found = self._library.compare(a, b)
        target = arguments["b"]
        path = target["name"] if "upload" in target else found.target.path
        warnings = {
            "query": [without_place(text, found.query.path) for text in (*a_warnings, *found.query.warnings)],
            "target": [without_place(text, found.target.path) for text in (*b_warnings, *found.target.warnings)],
        }
        small, rows, columns = _pooled(found.matrix)
        refined = small if found.psi is None else _pooled(_enlarged(found.psi, found.matrix.shape))[0]
        matrix: dict[str, Any] = {
            "rows": len(rows),
            "columns": len(columns),
            "query_times": found.query.times[rows].round(3).tolist(),
            "target_times": found.target.times[columns].round(3).tolist(),
            "lowest": _LOWEST,
            "highest": _HIGHEST,
            "before": _encoded(small),
            "values": _encoded(refined),
        }
        hit = _hit(target["id"], path, found.score, found.verdict, found.segments, found.best, duration)
        return hit | {"warnings": warnings, "matrix": matrix}

    def matrix(self, arguments: dict[str, Any], call: Call) -> str:
        """The matrix of two videos as a PNG, base64."""
        from PIL import Image

        a, b = (self._side(arguments[one], call)[0] for one in ("a", "b"))
        found = self._library.compare(a, b)
        after = found.matrix if found.psi is None else found.psi
        values = _pooled(found.matrix if arguments["stage"] == "before" else after)[0]
        picture = Image.fromarray(_coloured(values))
        scale = max(1, 480 // max(picture.size))
        picture = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        return base64.b64encode(stream.getvalue()).decode()

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Bring the library in step with a folder."""

        def tell(now: AddProgress) -> None:
            if call.stopped():  # it ends by itself, and keeps what is done
                return
            rate = now.frames / now.seconds if now.seconds > 0 else None
            pace = now.seconds / max(1, now.done - now.unchanged)
            message = None if now.current is None else name_of(now.current)
            call.progress(now.done, now.total, message, rate=rate, eta_s=pace * (now.total - now.done))

        call.progress(message="looking for videos")
        with _placeless(arguments["paths"]):
            report = self._library.add(
                [Path(path) for path in arguments["paths"]],
                prune=arguments["prune"],
                retry=arguments["retry"],
                progress=tell,
                stop=call.stopped,
            )
        return dataclasses.asdict(report) | {
            "failed": [{"name": name_of(path), "error": without_place(why, path)} for path, why in report.failed],
            "warnings": [{"name": name_of(path), "warning": without_place(why, path)} for path, why in report.warnings],
        }

    def remove(self, arguments: dict[str, Any], _: Call) -> int:
        """Forget videos."""
        return self._library.remove(arguments["ids"])

    def duplicates(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        """Groups of videos that show the same."""
        since = None if arguments["since"] is None else datetime.fromisoformat(arguments["since"])

        def tell(now: DuplicateProgress) -> None:
            message = "looking for candidates" if now.stage == "candidates" else "comparing videos"
            call.progress(now.done, now.total, message, eta_s=now.left_s)

        report = self._library.duplicates(threshold=arguments["threshold"], since=since, progress=tell)
        groups = [
            {
                "videos": [
                    video_json(one, self._roots)
                    | {"keep": one is group.keep, "why": group.reason if one is group.keep else None}
                    for one in group.videos
                ],
                "reason": group.reason,
                "links": [_link(link) for link in group.links],
            }
            for group in report.groups
        ]
        beside = report.beside
        named = {id: video_json(report.records[id], self._roots) for link in beside for id in (link.a, link.b)}
        told = {name: getattr(report, name) for name in ("scored", "pairs", "marked", "threshold", "prior", "seconds")}
        visible = report.with_records(lambda record: visible_record(record, self._roots))
        export = {"json": json.dumps(visible.to_json(), indent=2) + "\n", "csv": format_csv(visible)}
        return {"groups": groups, "links": [_link(link) for link in beside], "videos": named, "export": export, **told}

    def distinct(self, arguments: dict[str, Any], _: Call) -> None:
        """Mark two videos as no duplicates."""
        self._library.mark_distinct(arguments["a"], arguments["b"])

    def not_distinct(self, arguments: dict[str, Any], _: Call) -> None:
        """Take the mark back."""
        self._library.forget_mark(arguments["a"], arguments["b"])


class _placeless:  # noqa: N801 - used as a statement
    """Within, errors do not say where files lie."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HapvrError):
            message = str(error)
            for path in self._paths:
                message = without_place(message, path)
            raise Problem(status_of(error), message) from error


def _link(link: Link) -> dict[str, Any]:
    return link.to_json() | {"words": LINK_WORDS[link.kind]}


def _hit(
    id: str,
    path: str,
    score: float,
    verdict: Verdict,
    segments: Sequence[Segment],
    best: Instant,
    duration: float,
) -> dict[str, Any]:
    return {
        "id": id,
        "name": name_of(path),
        "score": score,
        **verdict.to_json(),
        "duration": duration,
        "segments": [one.to_json() for one in segments],
        "best": dataclasses.asdict(best),
    }


def _pooled(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]:
    """A matrix that is not too large to send, each cell the largest of those it stands for; and the frames it shows."""
    starts = []
    for axis, length in enumerate(matrix.shape):
        first = np.unique(np.linspace(0, length, min(length, _MOST_CELLS), endpoint=False).astype(np.intp))
        matrix = np.maximum.reduceat(matrix, first, axis=axis)
        starts.append(first)
    return matrix, starts[0], starts[1]


def _enlarged(matrix: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Each cell in the place of those it was made of: psi's output is a quarter as long either way."""
    rows, columns = (np.minimum(np.arange(n) // DOWNSAMPLING, m - 1) for n, m in zip(shape, matrix.shape, strict=True))
    enlarged: NDArray[np.float32] = matrix[rows][:, columns]
    return enlarged


def _scaled(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = np.clip((matrix - _LOWEST) / (_HIGHEST - _LOWEST), 0, 1)
    return scaled


def _encoded(matrix: NDArray[np.float32]) -> str:
    return base64.b64encode((_scaled(matrix) * 255).round().astype(np.uint8).tobytes()).decode()


def _coloured(matrix: NDArray[np.float32]) -> NDArray[np.uint8]:
    place = _scaled(matrix) * (len(RAMP) - 1)
    low = np.minimum(place.astype(int), len(RAMP) - 2)
    share = (place - low)[..., None]
    colours: NDArray[np.uint8] = (RAMP[low] * (1 - share) + RAMP[low + 1] * share).round().astype(np.uint8)
    return colours
