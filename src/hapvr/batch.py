"""Work on whole folders of videos: extract features, convert them, pack frames, make a benchmark.

Each function is what the command of that name does (`hapvr extract`, `convert-features`, `frames`, `make-benchmark`):
it finds the videos, goes on with what an earlier call has done, and reports what became of every file.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.features import FeatureWriter, PackedWriter
from hapvr.features.cluster_extraction import extract_on_cluster, pack_on_cluster
from hapvr.features.feature_writer import convert_features as write_converted
from hapvr.features.video_extraction import ExtractionReport, Progress, default_workers, extract_files
from hapvr.features.video_packing import pack_files
from hapvr.model import DEFAULT, load
from hapvr.storage import StrPath, require_outputs
from hapvr.synthetic import benchmark as synthetic
from hapvr.synthetic.benchmark import BenchmarkSummary
from hapvr.synthetic.benchmark_folder import require_apart
from hapvr.synthetic.long_films import make_long_films
from hapvr.video.sampling import SamplingConfig
from hapvr.video.video_files import find_videos
from hapvr.workers.cluster import connect


def extract(
    videos: Sequence[StrPath],
    output: StrPath,
    *,
    model: StrPath | None = None,
    half: bool = False,
    fps: float | None = None,
    keyframes: bool | None = None,
    workers: int | None = None,
    device: str = "cpu",
    cluster: str | None = None,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Write the region vectors of videos into one HDF5 file; videos that are in it are left as they are.

    Args:
        videos: files, and folders of them; a video's id is its path below its folder.
        output: the HDF5 file to write, or to go on with.
        model: a model's name or folder; the shipped one if None.
        half: store float16 instead of float32.
        fps: frames a second; the model's if None.
        keyframes: take key frames alone, where a video has enough of them; see `decode`.
        workers: decoding processes; by default one per usable core, sixteen at most.
        device: where vectors are computed, see `hapvr.load`.
        cluster: a Ray cluster whose nodes do it: "local", "auto" or HOST:PORT; files must be at the same paths there.
        progress: called with how many are done, and how many there are.
    """
    others: list[Path] = []
    files = _find_files(videos, others)
    require_outputs([output], inputs=files.values())
    chosen = load(model or DEFAULT, device=device)
    if fps is not None:
        chosen.extractor.sampling = replace(chosen.sampling, fps=fps)
    settings: dict[str, str | float] = {"model": chosen.name, "fps": chosen.sampling.fps, "keyframes": bool(keyframes)}
    with connect(cluster), FeatureWriter(output, dtype="float16" if half else "float32", attributes=settings) as writer:
        done = writer.done_ids()
        report = extract_files(
            chosen.extractor,
            files,
            writer.add,
            done=done,
            keyframes=bool(keyframes),
            workers=workers,
            progress=progress,
            stream=None if cluster is None else partial(extract_on_cluster, cluster),
        )
    report.other_files += others
    return report


def convert_features(
    source: StrPath,
    output: StrPath,
    *,
    dtype: Literal["int8", "float16", "float32"] = "int8",
    gzip: bool = False,
    progress: Progress | None = None,
) -> int:
    """Copy features into another HDF5 file in another precision; how many videos it then has.

    Args:
        source: an HDF5 file of features: extracted, exported or published.
        output: the HDF5 file to write, or to go on with.
        dtype: int8 (a scale a vector), float16 or float32.
        gzip: compress; without it a video is one direct read, which is faster.
        progress: called with how many are done, and how many there are.
    """
    require_outputs([output], inputs=[source])
    return write_converted(source, output, dtype=dtype, compression="gzip" if gzip else None, progress=progress)


def _find_files(videos: Sequence[StrPath], others: list[Path]) -> dict[str, Path]:
    """Videos by id, with absolute paths: nodes of a cluster have another current folder."""
    return {id: Path(os.path.abspath(path)) for id, path in find_videos(videos, others=others).items()}


def pack_frames(
    videos: Sequence[StrPath],
    output: StrPath,
    *,
    fps: float | None = None,
    short_side: int | None = None,
    min_frames: int | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Pack sampled frames of videos as JPEG in tar shards, for machines without a decoder.

    Args:
        videos: files, and folders of them.
        output: the folder of shards to write, or to go on with.
        fps: frames a second; as models sample if None.
        short_side: pixels of the shorter side; as models sample if None.
        min_frames: frames that a short video gives at least: it is sampled faster than `fps`. As models sample if
            None; 0 keeps to `fps`, however short a video is, as the paper does.
        workers, cluster, progress: see `extract`.
    """
    others: list[Path] = []
    usual, files = SamplingConfig(), _find_files(videos, others)
    side = short_side or usual.short_side
    least = usual.at_least if min_frames is None else min_frames
    sampling = SamplingConfig(fps=fps or usual.fps, at_least=least, short_side=side, crop=min(side, usual.crop))
    attributes = {"fps": sampling.fps}
    if least != usual.at_least:  # folders of before do not say it
        attributes["min_frames"] = least
    with connect(cluster), PackedWriter(output, attributes=attributes) as writer:
        stream = None if cluster is None else partial(pack_on_cluster, cluster)
        report = pack_files(writer, files, sampling, workers=workers, progress=progress, stream=stream)
    report.other_files += others
    return report


def make_benchmark(
    videos: StrPath,
    output: StrPath,
    *,
    distractors: Sequence[StrPath] = (),
    hosts: Sequence[StrPath] = (),
    duplicates: StrPath | None = None,
    lookalikes: bool = False,
    origins: StrPath | None = None,
    shared_cards: float = 0.0,
    long_films: int = 0,
    film_minutes: float = 120.0,
    kinds: Sequence[str] = (),
    seed: int = 0,
    queries: int = 4,
    workers: int | None = None,
    progress: Progress | None = None,
) -> BenchmarkSummary:
    """Make a benchmark of edited copies of the videos in a folder; see `hapvr.synthetic.benchmark.make_benchmark`.

    Args:
        videos: the folder of source videos.
        output: the benchmark folder to write, or to go on with; apart from the folders of videos.
        distractors: more videos for the database, files and folders.
        hosts: videos to mix others into, outside the database; drawn films if there are none.
        duplicates: a JSON file, a list of groups of files in `videos` that show the same footage.
        lookalikes: put two parts of one video into the database, copies of one of them into the queries; note the
            folder of each video below `videos` and `distractors` as its source, if `origins` does not name it.
        origins: a CSV file with a column `file` (names or paths of videos) and a column `source` (or `repository`).
        shared_cards: the share of database videos, and of queries, that get one of three title or end cards.
        long_films: if not 0, the database is that many films, each a row of the given videos, and queries are clips of
            10 s; see `hapvr.synthetic.long_films.make_long_films`.
        film_minutes: the length of each.
        kinds: kinds of edited copy, or "all"; those of "default" if there are none.
        seed: the same seed makes the same benchmark.
        queries: edited copies of each video; with `long_films`, of each film.
        workers, progress: see `extract`.
    """
    given = map(Path, (videos, *distractors, *hosts))
    require_apart(Path(output), folders=[path for path in given if path.is_dir()])
    others: list[Path] = []
    sources = find_videos([videos], others=others)
    fillers, mixed = (list(find_videos(paths, others=others).values()) for paths in (distractors, hosts))
    groups = [] if duplicates is None else _read_groups(Path(duplicates), sources)
    if long_films:
        if lookalikes or origins is not None or shared_cards:
            raise ConfigError("long films have no look-alikes, origins or shared cards. Make those in another folder.")
        summary = make_long_films(
            list(sources.values()),
            Path(output),
            films=long_films,
            minutes=film_minutes,
            queries_per_film=queries,
            seed=seed,
            kinds=kinds or None,
            distractors=fillers,
            hosts=mixed,
            duplicates=groups,
            workers=default_workers(workers),
            progress=progress,
        )
        return replace(summary, other_files=len(set(others)))
    named: dict[Path, str] | None = None
    if lookalikes or origins is not None:
        folders = {path: _name_folder(path, root) for root in map(Path, (videos, *distractors))
                   for path in find_videos([root]).values()}  # fmt: skip
        named = {path: name for path, name in folders.items() if name} if lookalikes else {}
        named |= {} if origins is None else _read_origins(Path(origins), folders)
    summary = synthetic.make_benchmark(
        list(sources.values()),
        Path(output),
        seed=seed,
        kinds=kinds or None,
        queries_per_video=queries,
        distractors=fillers,
        hosts=mixed,
        duplicates=groups,
        lookalikes=lookalikes,
        origins=named,
        shared_cards=shared_cards,
        workers=default_workers(workers),
        progress=progress,
    )
    return replace(summary, other_files=len(set(others)))


def _read_groups(file: Path, sources: Mapping[str, Path]) -> list[list[Path]]:
    """Groups of duplicates as a JSON file names them, relative to the folder of sources."""
    try:
        groups = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"'{file}' cannot be read as JSON: {error}.") from error
    if not isinstance(groups, list) or not all(
        isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups
    ):
        raise ConfigError(f"'{file}' must hold a list of lists of file names.")
    for name in (name for group in groups for name in group):
        if name not in sources:
            raise ConfigError(f"'{file}' names '{name}', which is not in the folder; {suggest(name, list(sources))}")
    return [[sources[name] for name in group] for group in groups]


def _name_folder(path: Path, root: Path) -> str:
    """The folder of a video below the folder that was given, with its name; empty for files that lie right in it.

    >>> _name_folder(Path("films/beach/a.mp4"), Path("films")), _name_folder(Path("films/a.mp4"), Path("films"))
    ('films/beach', '')
    """
    below = path.relative_to(root).parent if path != root else Path()
    return f"{root.resolve().name}/{below.as_posix()}" if below.parts else ""


def _read_origins(file: Path, videos: Collection[Path]) -> dict[Path, str]:
    """The sources of videos as a CSV file names them. Lines of other files are skipped; other columns do not matter."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            table = csv.DictReader(lines, strict=True)
            columns = {(name or "").strip().lower(): name for name in table.fieldnames or ()}
            source = columns.get("source") or columns.get("origin") or columns.get("repository")
            if "file" not in columns or source is None:
                raise ConfigError(
                    f"'{file}' needs a column 'file' and a column 'source' (or 'repository'), got "
                    f"{', '.join(table.fieldnames or ()) or 'nothing'}."
                )
            rows = [((row[columns["file"]] or "").strip(), (row[source] or "").strip()) for row in table]
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"'{file}' cannot be read as CSV: {error}.") from error
    found: dict[Path, str] = {}
    by_name: dict[str, list[Path]] = {}
    for path in videos:
        by_name.setdefault(path.name, []).append(path)
    for name, origin in rows:
        parts = Path(name).parts
        # A name is the end of a path: "beach/a.mp4" is any a.mp4 in a folder beach.
        for path in by_name.get(Path(name).name, ()) if origin else ():
            if path.parts[-len(parts) :] == parts and found.setdefault(path, origin) != origin:
                raise ConfigError(f"'{file}' names two sources of '{path}': '{found[path]}' and '{origin}'.")
    if not found:
        raise ConfigError(f"'{file}' names none of the {len(videos)} videos in its column 'file'.")
    return found
