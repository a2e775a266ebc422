"""Many queries in one run: which files they are, what was found of each, and the files that results are written to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hapvr.audio.decoding import has_only_sound
from hapvr.errors import ConfigError, DataError, DecodeError
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import Hit, SearchResult, display_path, escape_text
from hapvr.library.search import search_library
from hapvr.storage import StrPath, format_csv_rows, write_text
from hapvr.video.video_files import walk_videos

NEAREST = 3
"""Hits that are shown of a query without a match."""
CSV_FIELDS = (
    "query", "rank", "verdict", "match", "probability", "scene_probability", "score", "id", "path", "query_from",
    "query_to", "target_from", "target_to", "backwards", "second_look", "reason", "error",
)  # fmt: skip


@dataclass(frozen=True)
class QueryResult:
    """What was found of one query, or why it could not be read."""

    query: str  # a path, or the id of a video of the library
    result: SearchResult | None
    error: str | None = None

    @property
    def match(self) -> bool:
        """Whether the library has a match."""
        return self.result is not None and bool(self.result.matches)

    @property
    def sound_match(self) -> bool:
        """Whether a video with other pictures has the same sound."""
        return self.result is not None and bool(self.result.sound_hits)

    def to_json(self) -> dict[str, Any]:
        """A line of `hapvr search --json`."""
        name = {"query": display_path(self.query)}
        if self.result is None:
            return name | {"match": False, "error": self.error}
        return name | self.result.to_json()


def list_queries(given: Iterable[str]) -> list[str]:
    """The queries that were given, with the videos and pictures below a folder in place of it.

    `ConfigError` for a folder without any.
    """
    queries: list[str] = []
    for one in given:
        if not os.path.isdir(one):
            queries.append(one)
            continue
        found = sorted(os.fspath(path) for path in walk_videos(Path(one)))
        if not found:
            raise ConfigError(f"There is no video in the folder '{display_path(one)}'. Name files, or another folder.")
        queries += found
    return list(dict.fromkeys(queries))


def is_sound_file(query: str) -> bool:
    """Whether a query is a file of sound alone, without pictures; a cover is none."""
    return os.path.isfile(query) and has_only_sound(query)


def search_each(library: OpenLibrary, queries: Sequence[str], **options: Any) -> Iterator[QueryResult]:
    """Search for one after the other, with the options of `Library.search`; what cannot be read does not stop it."""
    for query in queries:
        try:
            yield QueryResult(query, search_library(library, query, **options))
        except (DataError, DecodeError) as error:
            yield QueryResult(query, None, escape_text(str(error)))


def choose_shown(result: SearchResult, *, everything: bool = False) -> tuple[Hit, ...]:
    """The hits that are shown: matches, or if there are none the nearest few; or everything."""
    return result.hits if everything else result.matches or result.hits[:NEAREST]


def make_rows(answers: Iterable[QueryResult], *, everything: bool = False) -> Iterator[dict[str, Any]]:
    """A flat row for each stretch of each match, or of each hit if `everything`; at least one for each query.

    A hit without a stretch, as that of a picture, has the instant where it is most alike, from and to the same second.
    """
    for answer in answers:
        base: dict[str, Any] = dict.fromkeys(CSV_FIELDS, "") | {"query": display_path(answer.query), "match": False}
        hits = () if answer.result is None else answer.result.hits if everything else answer.result.matches
        if answer.result is None:
            yield base | {"error": answer.error}
        elif not hits:
            yield base | {"verdict": "no match", "reason": answer.result.note or ""}
        for rank, hit in enumerate(hits, 1):
            plain = hit.to_json()
            own = {name: plain[name] for name in ("verdict", "match", "id", "path", "second_look", "reason")}
            own |= {"rank": rank, "score": round(hit.score, 4)}
            for name in ("probability", "scene_probability"):
                own[name] = "" if plain[name] is None else f"{plain[name]:.6g}"
            instant = (hit.best.query, hit.best.query), (hit.best.target, hit.best.target), False
            stretches = [(one.query, one.target, one.backwards) for one in hit.segments] or [instant]
            for (a, b), (c, d), backwards in stretches:
                where = {"query_from": a, "query_to": b, "target_from": c, "target_to": d}
                places = {name: round(second, 2) for name, second in where.items()}
                yield base | own | places | {"backwards": backwards}


def require_result_files(paths: Iterable[StrPath]) -> None:
    """Raise `ConfigError` unless `write_results` knows what to write there."""
    for path in paths:
        if Path(path).suffix.lower() not in (".jsonl", ".csv"):
            raise ConfigError(f"Results of a search are written as .jsonl or .csv; got '{Path(path).name}'.")


def write_results(answers: Sequence[QueryResult], path: StrPath, *, everything: bool = False) -> None:
    """Write results as JSON, a line for each query, or as CSV, as the suffix says; see `make_rows`."""
    require_result_files([path])
    if Path(path).suffix.lower() == ".jsonl":
        write_text(path, "".join(json.dumps(answer.to_json()) + "\n" for answer in answers))
    else:
        write_text(path, format_csv_rows(CSV_FIELDS, make_rows(answers, everything=everything)))
