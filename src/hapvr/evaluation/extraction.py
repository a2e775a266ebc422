"""A benchmark whose videos lie in a folder: which file is which id, and its features in a file that is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.evaluation.benchmarks.benchmark import Benchmark
from hapvr.features import FeatureWriter
from hapvr.features.video_extraction import (
    ExtractionFailure,
    ExtractionReport,
    ExtractStream,
    extract_files,
    find_insets,
)
from hapvr.records import Box
from hapvr.storage import StrPath, sample_file, write_json
from hapvr.video.video_files import find_videos

if TYPE_CHECKING:
    from hapvr.features.extractor import RegionExtractor


# What a file below the folder may be called, the surest first.
_NAMES: tuple[Callable[[PurePosixPath], str], ...] = (
    str, lambda file: str(file.with_suffix("")), lambda file: file.name, lambda file: file.stem
)  # fmt: skip


def find_video_files(benchmark: Benchmark, folder: StrPath) -> dict[str, Path]:
    """The file of each video of a benchmark that a folder has: id -> path.

    An id is a file's path below the folder or its bare name, each with or without its suffix. A file that the benchmark
    does not name is left out, or joins under its path if the database is open. `ConfigError` where two files could be
    one id.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"'{folder}' is no folder of videos.")
    files = find_videos([folder])
    wanted = {*benchmark.queries, *benchmark.database}
    matched: dict[str, Path] = {}
    used: set[Path] = set()
    for name_file in _NAMES:
        found: dict[str, Path] = {}
        for below, path in files.items():
            id = name_file(PurePosixPath(below))
            if id not in wanted or id in matched:
                continue
            if id in found:
                raise ConfigError(f"'{found[id]}' and '{path}' could both be '{id}'. Leave one of them.")
            found[id] = path
        matched |= found
        used |= set(found.values())
    if benchmark.open_database:
        matched |= {id: path for id, path in files.items() if path not in used and id not in matched}
    if not matched:
        some = ", ".join(f"'{id}'" for id in benchmark.database[:3])
        raise DataError(
            f"'{folder}' has no video of {benchmark.name}: among its {len(files)} files none is called like {some}."
        )
    return matched


def extract_videos(
    extractor: RegionExtractor,
    files: Mapping[str, StrPath],
    out: StrPath,
    *,
    model: str,
    insets: Mapping[str, Box] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    stream: ExtractStream | None = None,
) -> ExtractionReport:
    """Extract the features of all files into the HDF5 file `out`; what it has is not decoded again.

    Beside it lies `NAME.sources.json`, a checksum of each file: features of a video that has changed since, and those
    of another extractor, are refused (`StorageError`), for they would be measured in place of the right ones. A file
    that cannot be decoded, or is not there, is in the report's `failed`. The warnings of damaged videos are kept in
    `NAME.warnings.json`, so that the report has those of an earlier call too. `insets` are the rectangles of frames
    that are read, `stream` reads the videos: see `extract_files`.
    """
    out = Path(out)
    there = {id: Path(path).absolute() for id, path in files.items() if Path(path).is_file()}
    digest = extractor.digest()[:16]
    attributes: dict[str, str | float] = {"model": model, "fps": extractor.sampling.fps, "extractor": digest}
    with FeatureWriter(out, attributes=attributes) as writer:
        done = writer.done_ids()
        path = out.with_name(out.name + ".sources.json")
        write_json(path, _check_sources(path, out, there, done), indent=None)
        noted = out.with_name(out.name + ".warnings.json")
        known = _read_table(noted, out)
        warnings = {id: texts for id, texts in known.items() if id in done}
        if warnings != known:  # those of features that are no longer there
            write_json(noted, warnings, indent=None)

        def warn(id: str, texts: list[str]) -> None:
            warnings[id] = texts
            write_json(noted, warnings, indent=None)

        options: dict[str, Any] = {"workers": workers, "progress": progress, "warn": warn, "stream": stream}
        options["insets"] = insets
        report = extract_files(extractor, there, writer.add, done=done, **options)
    report.warnings = {id: warnings[id] for id in files if id in warnings}
    report.failed += [
        ExtractionFailure(id, os.fspath(path), "the file is not there") for id, path in files.items() if id not in there
    ]
    return report


def extract_insets(
    extractor: RegionExtractor,
    files: Mapping[str, StrPath],
    features: StrPath,
    *,
    model: str,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    stream: ExtractStream | None = None,
) -> Path | None:
    """Extract what videos show in windows into the file `NAME-insets.h5` beside their `features`; None if none does.

    `NAME-insets.json` keeps where the windows are, so that a second call looks for none. For other arguments see
    `extract_videos`, which is called before: files that have changed since are refused there.
    """
    out = Path(features)
    out = out.with_name(f"{out.stem}-insets.h5")
    noted = out.with_suffix(".json")
    known = _read_table(noted, out)
    if new := {id: path for id, path in files.items() if id not in known}:
        found = find_insets(new, extractor.sampling, workers=workers)
        known |= {id: found.get(id) for id in new}
        write_json(noted, known, indent=None)
    insets = {id: tuple(known[id]) for id in files if known[id]}
    if not insets:
        return None
    shown = {id: files[id] for id in insets}
    extract_videos(extractor, shown, out, model=model, insets=insets, workers=workers, progress=progress, stream=stream)
    return out


def _check_sources(path: Path, out: Path, files: Mapping[str, Path], done: Iterable[str]) -> dict[str, str]:
    """The checksum of every file, those of an earlier call included; `StorageError` if one is not what it was."""
    known = _read_table(path, out)
    sources = {id: sample_file(file)[:16] for id, file in files.items()}
    for id in done:
        if id in sources and sources[id] != known.get(id):
            raise StorageError(
                f"'{out}' holds features of '{id}', but '{files[id]}' is not the file they were made from. Delete "
                f"'{out.name}' and '{path.name}', or give another file, and run it again."
            )
    return {**known, **sources}


def _read_table(path: Path, out: Path) -> dict[str, Any]:
    """A JSON file that lies beside `out`; empty if it is not there."""
    try:
        table = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if not isinstance(table, dict):
            raise ValueError("it is no table")
    except (OSError, ValueError) as error:
        raise StorageError(
            f"'{path}' cannot be read: {error}. Delete it and '{out.name}', and run it again."
        ) from error
    return table
