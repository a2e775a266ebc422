"""What a run of `hapvr bench` says: as JSON, whose fields docs/bench.md lists, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hapvr.bench.estimate import (
    FileRate,
    IndexEstimate,
    count_videos,
    estimate_index,
    estimate_search,
    format_bytes,
    format_duration,
    format_length,
    round_figure,
)
from hapvr.bench.measure import SCORE_FRAMES
from hapvr.bench.run import BenchResult, FilmRate, SampleResult
from hapvr.bench.sample import FileFailure, SampleRate
from hapvr.library.results import display_path

FORMAT = 1
"""Of the JSON. Fields are added without another number; one that changes its meaning gets another number."""
OWN = "sample"
"""What the estimate of the user's own folder is called."""

_MAX_LISTED = 5  # files that could not be read


@dataclass(frozen=True)
class RateEstimate:
    """A collection at one rate: adding it, and one search in it."""

    index: IndexEstimate
    search_s: float

    def to_json(self) -> dict[str, float]:
        """A part of an estimate."""
        return {"index_s": self.index.seconds, "frames": self.index.frames, "bytes": self.index.bytes,
                "search_s": self.search_s}  # fmt: skip


@dataclass(frozen=True)
class CollectionEstimate:
    """What a collection takes, at the model's rate and with key frames alone."""

    of: str  # a kind of film, or `OWN`
    hours: float
    videos: int
    usual: RateEstimate | None
    keyframes: RateEstimate | None

    def to_json(self) -> dict[str, Any]:
        """One of `estimates`."""
        return {
            "of": self.of,
            "hours": self.hours,
            "videos": self.videos,
            "usual": None if self.usual is None else self.usual.to_json(),
            "keyframes": None if self.keyframes is None else self.keyframes.to_json(),
        }


def make_estimates(result: BenchResult) -> list[CollectionEstimate]:
    """The collections that were asked for, of small and of large films, and the user's own."""
    estimates = []
    for kind in result.config.films:
        for hours in result.config.hours:
            videos = count_videos(hours, video_minutes=result.config.minutes)
            films = (result.find_film(kind, keyframes=keyframes) for keyframes in (False, True))
            rates = (_estimate(result, film.index, hours, videos) for film in films)
            estimates.append(CollectionEstimate(kind.name, hours, videos, *rates))
    if result.sample is not None:
        folder = result.sample.folder
        hours, videos = folder.video_s / 3600, max(1, round(folder.scale * len(folder.videos)))
        measured = (result.sample.usual, result.sample.keyframes)
        own = (None if one is None else _estimate(result, one.rate, hours, videos) for one in measured)
        estimates.append(CollectionEstimate(OWN, hours, videos, *own))
    return estimates


def _estimate(result: BenchResult, rate: FileRate, hours: float, videos: int) -> RateEstimate:
    index = estimate_index(video_s=3600 * hours, rate=rate, store=result.store, start_s=result.start_s)
    search_s = estimate_search(
        videos=videos, video_frames=index.frames / videos, measured=result.search, scores=result.scores
    )
    return RateEstimate(index, search_s)


def estimate_query(result: BenchResult) -> float:
    """Seconds to read and describe a short clip, of 28 frames, before it is searched."""
    frames = min(SCORE_FRAMES)
    decode = result.find_film(result.config.films[0], keyframes=False).decode
    return frames / decode.frames_per_s + frames / result.backbone_per_s


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(result: BenchResult) -> dict[str, Any]:
    """What `hapvr bench --json` prints; docs/bench.md says what each field means."""
    config = asdict(result.config)
    del config["films"]  # they are listed with their rates
    config["sample"] = None if result.config.sample is None else display_path(result.config.sample)
    return {
        "format": FORMAT,
        "machine": result.machine.to_json(),
        "settings": config | {"hours": list(result.config.hours)},
        "model": {
            "name": result.model,
            "fps": result.fps,
            "engine": result.engine,
            "precision": result.engine_precision,
        },
        "measured": {
            "engine_start_s": result.engine_start_s,
            "worker_start_s": result.worker_start_s,
            "films": [_film_to_json(film) for film in result.films],
            "backbone_pictures_per_s": result.backbone_per_s,
            "score": [asdict(one) | {"precision": result.score_precision} for one in result.scores],
            "library": asdict(result.store),
            "search": asdict(result.search),
        },
        "sample": None if result.sample is None else _sample_to_json(result.sample),
        "query_s": estimate_query(result),
        "estimates": [one.to_json() for one in make_estimates(result)],
        "wall_s": result.wall_s,
    }


def _film_to_json(film: FilmRate) -> dict[str, Any]:
    return {
        "name": film.kind.name,
        **asdict(film.kind),
        "keyframes": film.keyframes,
        "decode": _rate_to_json(film.decode),
        "index": _rate_to_json(film.index),
    }


def _rate_to_json(rate: FileRate) -> dict[str, float]:
    return asdict(rate) | {
        "frames_per_s": rate.frames_per_s,
        "video_per_s": rate.video_per_s,
        "frames_per_video_s": rate.frames_per_video_s,
    }


def _sample_to_json(sample: SampleResult) -> dict[str, Any]:
    folder = sample.folder
    return {
        "files": folder.files,
        "skipped": folder.skipped,
        "probed": len(folder.probed),
        "videos": len(folder.videos),
        "complete": folder.complete,
        "video_s": folder.video_s,
        "kinds": folder.count_kinds(),
        "failed": [asdict(one) for one in folder.failed],
        "usual": _sample_rate_to_json(sample.usual),
        "keyframes": _sample_rate_to_json(sample.keyframes),
    }


def _sample_rate_to_json(measured: SampleRate | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return _rate_to_json(measured.rate) | {"failed": [asdict(one) for one in measured.failed]}


# --- text ------------------------------------------------------------------------------------------------------------


def format_report(result: BenchResult) -> list[str]:
    """What `hapvr bench` prints, in lines of 100 characters at most, names of files aside."""
    return [
        *_format_machine(result),
        "",
        *_format_rates(result),
        "",
        *_format_estimates(result),
        *(_format_sample(result, result.sample) if result.sample is not None else ()),
    ]


def _format_machine(result: BenchResult) -> Iterator[str]:
    machine = result.machine
    able = f" ({', '.join(machine.features)})" if machine.features else ""
    yield f"{machine.cpu}, {_count(machine.cores, 'core')}{able}"
    if machine.gpu is not None:
        yield f"{machine.gpu}: not used here; add and search run on the CPU"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    yield f"engine: {machine.engine}, {result.engine_precision}; {versions}"
    yield f"model '{result.model}', {result.fps:g} frames a second"
    if machine.busy:
        yield f"Other programs were running (load {machine.load:.1f}): on quiet cores it is faster."


def _format_rates(result: BenchResult) -> Iterator[str]:
    rows = [("", "frames/s", "video, x real time")]
    for step in ("decode", "index"):
        name = "decode" if step == "decode" else "decode and extract"
        for film in result.films:
            rate: FileRate = getattr(film, step)
            key = ", key frames" if film.keyframes else ""
            rows.append((f"{name}, {film.kind.name}{key}", _figure(rate.frames_per_s), _figure(rate.video_per_s)))
    rows.append(("extract, pictures in memory", _figure(result.backbone_per_s), ""))
    rows.append(("write into a library", _figure(result.store.write_frames_per_s), ""))
    yield from _align(rows)
    scores = ", ".join(f"{_figure(one.pairs_per_s)} of {one.frames} frames" for one in result.scores)
    yield f"score ({result.score_precision}): pairs/s {scores}"
    search = result.search
    yield (
        f"search in {search.videos:,} videos of {search.video_frames} frames: p50 {_ms(search.p50_s)}, "
        f"p95 {_ms(search.p95_s)}, the query described already"
    )
    hour = 3600 * result.fps * result.store.bytes_per_frame
    yield f"storage: {format_bytes(hour)} an hour of video; {result.store.bytes_per_frame:,.0f} bytes a frame"


def _format_estimates(result: BenchResult) -> Iterator[str]:
    minutes = result.config.minutes
    else_busy = "as busy as it was" if result.machine.busy else "doing nothing else"
    yield f"What that means for a collection of videos of {minutes:g} minutes, with this machine {else_busy}:"
    rows = [("", "to index", "on disk", "a search", "key frames: to index", "on disk", "a search")]
    for one in make_estimates(result):
        if one.of != OWN:
            rows.append((f"{one.hours:,g} hours of {one.of}", *_cells(one.usual), *_cells(one.keyframes)))
    yield from _align(rows)
    yield f"A search by a file takes {format_duration(estimate_query(result))} more, to read and describe a short clip."


def _format_sample(result: BenchResult, sample: SampleResult) -> Iterator[str]:
    folder = sample.folder
    own = next(one for one in make_estimates(result) if one.of == OWN)
    yield ""
    about = "" if folder.complete else "about "
    length = format_length(folder.video_s)
    yield f"Your {about}{_count(own.videos, 'video')}, {about}{length} ('{display_path(sample.path)}'):"
    kinds = [f"{share:.0%} {kind}" for kind, share in folder.count_kinds().items()]
    yield f"  {', '.join(kinds[:_MAX_LISTED])}{' and others' if len(kinds) > _MAX_LISTED else ''} (by length)"
    rows = [("", "to index", "on disk", "a search", "measured on")]
    for name, estimate, measured in (
        ("  at the usual rate", own.usual, sample.usual),
        ("  with --rate keyframes", own.keyframes, sample.keyframes),
    ):
        from_what = "no part that was tried could be read"
        if measured is not None:
            rate = measured.rate
            from_what = f"{format_length(rate.video_s)} of {_count(rate.files, 'video')}, x {_figure(rate.video_per_s)}"
        rows.append((name, *_cells(estimate), from_what))
    yield from _align(rows)
    if not folder.complete:
        looked = len(folder.probed) + len(folder.failed)
        yield f"  {looked:,} of {folder.files:,} files were looked at; the rest is taken to be like them"
    without = len(folder.probed) - len(folder.videos)
    if without:
        yield f"  {_count(without, 'file')} without a declared length, such as pictures, not counted"
    failed = {one.path: one for one in folder.failed}
    for tried in (sample.usual, sample.keyframes):
        failed |= {one.path: one for one in (() if tried is None else tried.failed)}
    yield from _format_failures(list(failed.values()))


def _format_failures(failed: Sequence[FileFailure]) -> Iterator[str]:
    if failed:
        yield f"  {_count(len(failed), 'file')} could not be read:"
        for one in failed[:_MAX_LISTED]:
            yield f"    {one.error if one.path in one.error else f'{one.path}: {one.error}'}"
        if len(failed) > _MAX_LISTED:
            yield f"    and {len(failed) - _MAX_LISTED:,} more (--json lists all)"


def _cells(estimate: RateEstimate | None) -> tuple[str, str, str]:
    if estimate is None:
        return ("-", "-", "-")
    index = estimate.index
    return format_duration(index.seconds), format_bytes(index.bytes), format_duration(estimate.search_s)


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as columns: the first to the left, the others to the right.

    >>> list(_align([("", "a"), ("one", "100")]))
    ['       a', 'one  100']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def _figure(value: float) -> str:
    """A rate with two or three digits.

    >>> _figure(1234.5), _figure(45.67), _figure(2.345)
    ('1,230', '45.7', '2.35')
    """
    return f"{round_figure(value, 3):,g}" if value < 1e5 else f"{round_figure(value, 3):,.0f}"


def _ms(seconds: float) -> str:
    return f"{round_figure(1000 * seconds, 3):,g} ms"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
