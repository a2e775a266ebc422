"""The sound of a library's videos: reading it after an `add`, evidence for hits, and a search by sound alone."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from hapvr.audio.description import SoundDescription, describe_sound, describe_sound_task
from hapvr.audio.matching import NOT_INDEXED, OTHER, SoundEvidence, SoundQuery, make_silent_evidence
from hapvr.errors import ConfigError, DataError
from hapvr.features.video_extraction import default_workers
from hapvr.library.filters import VideoFilter, find_allowed
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import AddOptions, AddReport, SoundHit, SoundResult, display_path
from hapvr.library.side_tables import BatchWriter
from hapvr.library.sound_lookup import SoundLookup, update_sound_index
from hapvr.library.store import Store
from hapvr.library.stored_scores import find_row, find_unchanged
from hapvr.library.tables import Catalog
from hapvr.storage import StrPath
from hapvr.video.sandboxed import call_sandboxed
from hapvr.workers.pool import run_tasks
from hapvr.workers.sandbox import Sandbox

# --- adding ----------------------------------------------------------------------------------------------------------


def add_sounds(store: Store, report: AddReport, options: AddOptions) -> AddReport:
    """Read the sound of all contents that have none yet and whose files are at hand; with the lock held.

    A sound that cannot be read fails no video: it is counted, and a warning says why. Interrupted, the next `add` goes
    on where it was. With `options.retry`, those that could not be read are read again.
    """
    began = time.monotonic()
    paths = _find_missing(store, retry=options.retry)
    counts: Counter[str] = Counter()  # by state
    warnings: list[tuple[str, str]] = []
    writer = BatchWriter(store.sounds.put)
    done = 0
    is_stopped = options.stop or (lambda: False)
    for key, sound in _describe_all(paths, default_workers(options.workers)):
        writer.put(key, sound)
        done += 1
        counts[sound.state] += 1
        if sound.warning is not None:
            warnings.append((paths[key], f"The sound: {sound.warning}"))
        if is_stopped():
            break
    writer.flush()
    store.maintain()
    update_sound_index(store)
    return replace(
        report,
        sounds=counts["ready"],
        silent=counts["silent"] + counts["none"],
        sound_failed=counts["failed"],
        warnings=(*report.warnings, *warnings),
        stopped=report.stopped or done < len(paths),
        seconds=report.seconds + time.monotonic() - began,
    )


def _find_missing(store: Store, *, retry: bool) -> dict[int, str]:
    """The files of contents whose sound is to be read, by key; of copies, the first that is at hand."""
    known = store.sounds.list_keys()
    if retry:
        known -= {key for key, sound in store.sounds.read() if sound.state == "failed"}
    return find_unchanged(store.catalog(), known)


def _describe_all(paths: dict[int, str], workers: int) -> Iterator[tuple[int, SoundDescription]]:
    """The sounds of files, as they are read by other processes: a decoder that crashes loses one file's sound."""
    for end in run_tasks(describe_sound_task, paths.items(), workers=workers, sandbox=Sandbox(), file_of=str):
        assert isinstance(end.key, int)
        yield end.key, end.value or SoundDescription("failed", warning=f"{end.error}.")


# --- looking for a sound ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SoundMatches:
    """What the sound of a query says of the contents of a library, by key."""

    evidence: dict[int, SoundEvidence]
    warning: str | None = None  # what was wrong with the query's sound

    def find(self, key: int) -> SoundEvidence:
        """The evidence for one content."""
        return self.evidence.get(key, NOT_INDEXED)

    def list_hits(
        self,
        catalog: Catalog,
        allowed: Collection[int] | None,
        *,
        without: Collection[str | None],
        picture: Literal["other"] | None,
    ) -> list[SoundHit]:
        """The videos of the allowed rows with the same sound, `without` some ids; the longest stretches first."""
        hits = [
            SoundHit(catalog.ids[row], os.fsdecode(catalog.paths[row]), evidence.stretches, picture)
            for key, evidence in self.evidence.items()
            if evidence.kind == "same"
            for row in catalog.with_key(key)
            if catalog.ids[row] not in without and (allowed is None or row in allowed)
        ]
        return sorted(hits, key=lambda hit: (-hit.seconds, hit.path))


def match_sounds(store: Store, query: SoundDescription) -> SoundMatches:
    """What the sound of a query says of all contents; those that may be the same are compared."""
    if query.state == "failed":
        return SoundMatches({}, f"Its sound cannot be read: {query.warning}")
    asked, lookup = SoundQuery(query.peaks), SoundLookup(store)
    evidence = {}
    for key, sound in lookup.sounds.items():
        heard = not asked.is_silent, sound.state == "ready"
        if sound.state == "failed":
            evidence[key] = NOT_INDEXED
        else:
            evidence[key] = OTHER if all(heard) else make_silent_evidence(query=heard[0], target=heard[1])
    for key, described in store.sounds.read(lookup.find_candidates(asked)):
        evidence[key] = asked.compare(described.peaks)
    return SoundMatches(evidence, query.warning)


def read_sound_query(
    store: Store, given: StrPath, *, start_s: float | None = None, end_s: float | None = None
) -> SoundDescription:
    """The sound of a query: as it is stored of an id, or of a file that is as it was added; else read now.

    Raises:
        DataError: there is no such id or file, or the sound of the id is not indexed.
        DecodeError: the file cannot be opened.
    """
    catalog = store.catalog()
    by_id = isinstance(given, str) and given in catalog
    row = catalog.row(str(given)) if by_id else find_row(catalog, given)
    if row is not None:
        for _, sound in store.sounds.read([int(catalog.keys[row])]):
            return replace(sound, peaks=sound.peaks.between(start_s, end_s))
    if by_id:
        path = catalog.record(catalog.row(str(given))).path
        if not os.path.lexists(path):
            raise DataError(f"The sound of '{given}' is not indexed, and its file '{display_path(path)}' is gone.")
        given = path
    if not os.path.lexists(given):
        raise DataError(f"'{display_path(given)}' is neither a file nor the id of a video in the library.")
    return call_sandboxed(describe_sound, given, start_s=start_s, end_s=end_s)


def search_sound(
    library: OpenLibrary,
    query: StrPath,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    k: int = 10,
    filter: VideoFilter | None = None,
) -> SoundResult:
    """Find the videos that hold the sound of a file, whatever they show: the longest stretches first.

    Speeds from 0.95 to 1.05 are tried.

    Args:
        library: an open one, whose videos were added with `sound`.
        query: a file of sound (wav, mp3, m4a, ...), a video, whose sound counts, or the id of an indexed one.
        start_s: seconds; what lies before is left out.
        end_s: seconds; what lies from there on is left out.
        k: hits at most.
        filter: only videos that it allows are searched.

    Raises:
        ConfigError: the library has no sound.
        DecodeError: the file cannot be read.
        DataError: there is no such file or id, or it has no sound.
    """
    store = library.store
    require_sound(store)
    began = time.perf_counter()
    sound = read_sound_query(store, query, start_s=start_s, end_s=end_s)
    if sound.state in ("none", "failed"):
        why = "has no sound track" if sound.state == "none" else f"has sound that cannot be read: {sound.warning}"
        raise DataError(f"'{display_path(query)}' {why.rstrip('.')}. Give a file with sound.")
    read = time.perf_counter()
    catalog = store.catalog()
    own = query if isinstance(query, str) and query in catalog else None
    matches = match_sounds(store, sound)
    hits = matches.list_hits(catalog, find_allowed(catalog, filter), without={own}, picture=None)
    indexed = len(matches.evidence)
    note = None
    if SoundQuery(sound.peaks, speeds=(1.0,)).is_silent:
        note = "The query is silent, or nearly: there is nothing to look for."
    seconds = {"decode": read - began, "search": time.perf_counter() - read}
    warnings = () if sound.warning is None else (sound.warning,)
    return SoundResult(tuple(hits[:k]), indexed, seconds, note, warnings)


def require_sound(store: Store) -> None:
    """Raise `ConfigError` for a library without sound."""
    if not store.sounds.exists:
        raise ConfigError(
            f"'{display_path(store.library)}' has no sound: its videos were added without. Read it now, which leaves "
            f"everything else as it is: hapvr add {display_path(store.library)} --audio"
        )
