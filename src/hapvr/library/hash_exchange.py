"""vPDQ hashes of videos, libraries and files, for exchange with others: made, written, read, and matched.

The format and the rule of a match are in `hapvr.video.vpdq`. Hashes are made from the files of videos whenever they are
asked for; a library keeps none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from hapvr.errors import ConfigError, DataError, to_sentence
from hapvr.features.video_extraction import default_workers
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import display_path, escape_text
from hapvr.library.versions import is_library
from hapvr.storage import StrPath, require_outputs, write_text
from hapvr.video.video_files import find_videos, walk_videos
from hapvr.video.vpdq import SIGNAL, MatchRule, VideoHashes, hash_video_task, match_hashes, parse_signals
from hapvr.workers.pool import run_tasks
from hapvr.workers.sandbox import Sandbox

Progress = Callable[[int, int], None]
_SUFFIXES = (".json", ".txt")  # of files of hashes


@dataclass(frozen=True)
class ExportReport:
    """What `export_hashes` wrote."""

    videos: int
    frames: int
    failed: tuple[tuple[str, str], ...]  # path and reason

    def to_json(self) -> dict[str, Any]:
        """What `hapvr hashes export --json` prints."""
        return asdict(self) | {"failed": _list_failed(self.failed)}


@dataclass(frozen=True)
class HashMatch:
    """A video that matches known hashes."""

    query: str
    known: str
    query_percent: float  # of the query's hashes that the known video has
    known_percent: float  # of the known video's hashes that the query has


@dataclass(frozen=True)
class MatchReport:
    """What `match_known` found."""

    videos: int  # that were compared
    known: int  # videos whose hashes were given
    matches: tuple[HashMatch, ...]
    failed: tuple[tuple[str, str], ...]  # path and reason

    def to_json(self) -> dict[str, Any]:
        """What `hapvr hashes match --json` prints."""
        return asdict(self) | {"matches": [asdict(one) for one in self.matches], "failed": _list_failed(self.failed)}


def _list_failed(failed: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"path": path, "error": reason} for path, reason in failed]


# --- which videos ----------------------------------------------------------------------------------------------------


@dataclass
class _Sources:
    """Videos to hash, and hashes that are read already, by names that tell them apart."""

    videos: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, VideoHashes] = field(default_factory=dict)


def read_known(places: Iterable[StrPath]) -> dict[str, VideoHashes]:
    """The hashes of files, and of the .json and .txt files below folders, by file and line.

    Raises:
        ConfigError: a place is not there, or a folder has no such file.
        DataError: a file holds something else.
    """
    found: dict[str, VideoHashes] = {}
    for place in map(Path, places):
        files = [place]
        if place.is_dir():
            files = sorted(path for path in place.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
            if not files:
                raise ConfigError(f"There are no hashes in '{display_path(place)}': no .json and no .txt file.")
        for file in files:
            found |= _read_file(file)
    return found


def _read_file(file: Path) -> dict[str, VideoHashes]:
    try:
        signals = parse_signals(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"'{display_path(file)}' is not there.") from None
    except (OSError, UnicodeDecodeError, DataError) as error:
        raise DataError(f"'{display_path(file)}' holds no vPDQ hashes: {to_sentence(error)}") from error
    name = display_path(file)
    return {name if len(signals) == 1 else f"{name}:{line}": one for line, one in signals.items()}


def _find_sources(places: Sequence[StrPath]) -> _Sources:
    """What is below these places: libraries, folders and files of videos; files of hashes, and folders of nothing else.

    A video's name is its path below its folder; in a library, its file's name and its id.
    """
    found, others = _Sources(), []
    for place in map(Path, places):
        if is_library(place):
            with OpenLibrary.open(place) as library:
                for record in library.store.catalog().records(library.store.catalog().rows("ready")):
                    found.videos[f"{os.path.basename(record.path)}.{record.id}"] = record.path
        elif place.suffix.lower() in _SUFFIXES or (place.is_dir() and next(walk_videos(place), None) is None):
            found.hashes |= read_known([place])
        else:
            others.append(place)
    found.videos |= {name: os.fspath(path) for name, path in find_videos(others).items()}
    return found


def _hash_all(
    sources: _Sources, failed: list[tuple[str, str]], *, every_s: float, workers: int | None, progress: Progress | None
) -> Iterator[tuple[str, VideoHashes]]:
    """The hashes of all sources by name, as they are made; videos that cannot be read are added to `failed`."""
    if not 0.01 <= every_s <= 3600:
        raise ConfigError(f"every_s must be 0.01 to 3,600 seconds, got {every_s:g}.")
    yield from sources.hashes.items()
    tasks = ((name, (path, every_s)) for name, path in sources.videos.items())
    ends = run_tasks(hash_video_task, tasks, workers=default_workers(workers), sandbox=Sandbox(), file_of=itemgetter(0))
    for done, end in enumerate(ends, 1):
        name = str(end.key)
        if end.error is not None:
            failed.append((display_path(sources.videos[name]), escape_text(end.error)))
        else:
            yield name, end.value
        if progress is not None:
            progress(done, len(sources.videos))


# --- export and match ------------------------------------------------------------------------------------------------


def export_hashes(
    places: Sequence[StrPath],
    output: StrPath,
    *,
    every_s: float = 1.0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write the vPDQ hashes of videos: into a folder a .json file for each, or all into one .txt file.

    Args:
        places: libraries, and files and folders of videos; of a library, the videos whose files are there.
        output: a folder, which is made, or the .txt file.
        every_s: seconds between hashes.
        workers: processes that read videos; one per usable core, sixteen at most, if None.
        progress: called with how many videos are done, and how many there are.
    """
    sources, target = _find_sources(places), Path(output)
    if not sources.videos:
        raise ConfigError("There is no video to hash. Give libraries, and files and folders of videos.")
    one_file = target.suffix.lower() == ".txt"
    require_outputs([target] if one_file else [], inputs=sources.videos.values())
    failed: list[tuple[str, str]] = []
    lines: dict[str, str] = {}
    videos, frames = 0, 0
    for name, hashes in _hash_all(sources, failed, every_s=every_s, workers=workers, progress=progress):
        if one_file:
            lines[name] = f"{SIGNAL} {hashes.to_json()}\n"
        else:
            _write_below(target, f"{name}.json", hashes.to_json() + "\n")
        videos, frames = videos + 1, frames + len(hashes)
    if one_file:
        write_text(target, "".join(lines[name] for name in sources.videos if name in lines))
    return ExportReport(videos, frames, tuple(failed))


def _write_below(folder: Path, name: str, text: str) -> None:
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"'{display_path(path.parent)}' cannot be made: {error.strerror}.") from error
    write_text(path, text)


def match_known(
    places: Sequence[StrPath],
    known: Mapping[str, VideoHashes],
    *,
    rule: MatchRule = MatchRule(),  # noqa: B008 - frozen
    every_s: float = 1.0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> MatchReport:
    """Find the videos that match known hashes, in the order of the places; see `hapvr.video.vpdq.match_hashes`.

    Args:
        places: libraries, files and folders of videos, or of hashes that `export_hashes` wrote. They are the queries.
        known: hashes by name, from `read_known`.
        rule: when two videos match.
        every_s, workers, progress: as in `export_hashes`.
    """
    sources = _find_sources(places)
    names, others = list(known), list(known.values())
    failed: list[tuple[str, str]] = []
    found: dict[str, list[HashMatch]] = {}
    for name, hashes in _hash_all(sources, failed, every_s=every_s, workers=workers, progress=progress):
        percents = match_hashes(hashes, others, rule).tolist()
        pairs = sorted(zip(percents, names, strict=True), key=lambda pair: (-pair[0][0], -pair[0][1], pair[1]))
        shown = display_path(sources.videos.get(name, name))
        found[name] = [HashMatch(shown, other, *both) for both, other in pairs if rule.allows(*both)]
    order = [*sources.hashes, *sources.videos]
    matches = tuple(match for name in order for match in found.get(name, ()))
    return MatchReport(len(found), len(known), matches, tuple(failed))
