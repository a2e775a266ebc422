"""Work on whole folders of videos: extract features, pack frames, make a benchmark.

Each function is what the command of that name does (`hapvr extract`, `frames`, `make-benchmark`): it finds the videos,
goes on with what an earlier call has done, and reports what became of every file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.features import FeatureWriter, PackedWriter
from hapvr.features.video_extraction import ExtractionReport, Progress, default_workers, extract_files, pack_files
from hapvr.model import DEFAULT, load
from hapvr.storage import StrPath, require_outputs
from hapvr.synthetic import benchmark as synthetic
from hapvr.synthetic.benchmark import BenchmarkSummary
from hapvr.video.sampling import SamplingConfig
from hapvr.video.video_files import find_videos


def extract(
    videos: Sequence[StrPath],
    output: StrPath,
    *,
    model: StrPath | None = None,
    half: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Write the region vectors of videos into one HDF5 file; videos that are in it are left as they are.

    Args:
        videos: files, and folders of them; a video's id is its path below its folder.
        output: the HDF5 file to write, or to go on with.
        model: a model's name or folder; the shipped one if None.
        half: store float16 instead of float32.
        workers: decoding processes; by default as many as cores, four at most.
        progress: called with how many are done, and how many there are.
    """
    others: list[Path] = []
    files = find_videos(videos, others=others)
    require_outputs([output], inputs=files.values())
    chosen = load(model or DEFAULT)
    settings: dict[str, str | float] = {"model": chosen.name, "fps": chosen.sampling.fps}
    with FeatureWriter(output, dtype="float16" if half else "float32", attributes=settings) as writer:
        done = writer.done_ids()
        report = extract_files(chosen.extractor, files, writer.add, done=done, workers=workers, progress=progress)
    report.other_files += others
    return report


def pack_frames(
    videos: Sequence[StrPath],
    output: StrPath,
    *,
    fps: float | None = None,
    short_side: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ExtractionReport:
    """Pack sampled frames of videos as JPEG in tar shards, for machines without a decoder.

    Args:
        videos: files, and folders of them.
        output: the folder of shards to write, or to go on with.
        fps: frames a second; as models sample if None.
        short_side: pixels of the shorter side; as models sample if None.
        workers, progress: see `extract`.
    """
    others: list[Path] = []
    usual, files = SamplingConfig(), find_videos(videos, others=others)
    side = short_side or usual.short_side
    sampling = SamplingConfig(fps=fps or usual.fps, short_side=side, crop=min(side, usual.crop))
    with PackedWriter(output, attributes={"fps": sampling.fps}) as writer:
        report = pack_files(writer, files, sampling, workers=workers, progress=progress)
    report.other_files += others
    return report


def make_benchmark(
    videos: StrPath,
    output: StrPath,
    *,
    distractors: Sequence[StrPath] = (),
    hosts: Sequence[StrPath] = (),
    duplicates: StrPath | None = None,
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
        kinds: kinds of edited copy, or "all"; those of "default" if there are none.
        seed: the same seed makes the same benchmark.
        queries: edited copies of each video.
        workers, progress: see `extract`.
    """
    given = map(Path, (videos, *distractors, *hosts))
    synthetic.require_apart(Path(output), folders=[path for path in given if path.is_dir()])
    others: list[Path] = []
    sources = find_videos([videos], others=others)
    fillers, mixed = (list(find_videos(paths, others=others).values()) for paths in (distractors, hosts))
    summary = synthetic.make_benchmark(
        list(sources.values()),
        Path(output),
        seed=seed,
        kinds=kinds or None,
        queries_per_video=queries,
        distractors=fillers,
        hosts=mixed,
        duplicates=[] if duplicates is None else _read_groups(Path(duplicates), sources),
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
