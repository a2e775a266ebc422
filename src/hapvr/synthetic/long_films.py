"""A benchmark of short clips inside long films: is a clip of 10 seconds found in two hours, and where?

A film is a row of videos, small and each once; if they are too few they come again mirrored or cropped. Queries are
edited copies of a few seconds of some of them, which are in one film and come there once.

Each video is coded once in the format of the films; a film is these pieces joined, so that hours cost seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from hapvr.errors import ConfigError, DataError, HapvrError
from hapvr.storage import write_json
from hapvr.synthetic import edit_pixels as pixels
from hapvr.synthetic.benchmark import BenchmarkSummary
from hapvr.synthetic.benchmark_folder import (
    BenchmarkFailure,
    name_once,
    prepare_folder,
    probe_videos,
    require_apart,
    require_benchmark,
)
from hapvr.synthetic.benchmark_jobs import describe_file, list_segments, read_note, read_source, run_each, write_note
from hapvr.synthetic.benchmark_plan import check_kinds, choose_ids
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import join_clips, read_clip, write_clip
from hapvr.synthetic.edits import DEFAULT_EDITS, EDITS, change_rate, find_edit
from hapvr.synthetic.film_numbers import between
from hapvr.synthetic.lookalikes import Small, make_small, share_small

_SIZE, _FPS, _CRF = (180, 320), 10.0, 26  # of films
_MAX_SECONDS = 60.0  # of each video in a film
_CLIP_S = 10.0  # of a query, before it is edited
_MIN_SECONDS = 14.0  # of a video that a query is taken from
_GAP_S = 2.0  # around a query, where its video may look like it
_TURNS = 8  # ways in which a video may come again
_RECIPE = 1


@dataclass(frozen=True)
class _Piece:
    """A video in the format of the films; from the second turn on mirrored or cropped."""

    path: Path
    id: str
    turn: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.id}.piece-{self.turn}"

    @property
    def file(self) -> str:
        return f".made/{self.name}.mp4"


@dataclass(frozen=True)
class _QuerySource:
    """A video that a query is taken from: the piece, and the query's settings."""

    piece: _Piece
    start_s: float
    kind: str
    host: Path | None

    @property
    def query(self) -> str:
        return f"{self.piece.id}--{self.kind}"


@dataclass(frozen=True)
class _Query:
    """A finished query; its segments in seconds of its video."""

    segments: list[list[Any]]
    made: bool


def make_long_films(
    videos: Sequence[Path],
    out: Path,
    *,
    films: int = 2,
    minutes: float = 120.0,
    queries_per_film: int = 10,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
    distractors: Sequence[Path] = (),
    hosts: Sequence[Path] = (),
    duplicates: Sequence[Sequence[Path]] = (),
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> BenchmarkSummary:
    """Build a folder like those of `make_benchmark` whose database is a few long films.

    Calling it again completes an interrupted folder. A file that cannot be read is reported and left out. `DataError`
    if there are too few videos for queries: `films * queries_per_film` of at least 14 s are needed, with a part that
    comes neither again in them nor in another video.

    Args:
        videos: queries are taken from some of them, drawn at random; the others fill the films.
        out: the folder, made if it is not there.
        films: how many.
        minutes: the length of each, to within the length of a video.
        queries_per_film: queries of 10 s, before they are edited.
        seed: of everything that is drawn.
        kinds: edits of the queries, spread evenly; those of "default" if None.
        distractors: more videos to fill the films.
        hosts: videos for edits that mix two; they must be in no film.
        duplicates: groups of `videos` known to show the same footage; one of each is used.
        workers: processes.
        progress: called with the number of pieces and queries finished so far, and of all.
    """
    chosen = _check_settings(kinds, films=films, queries_per_film=queries_per_film, workers=workers, seed=seed)
    if not 0 < minutes <= 24 * 60:
        raise ConfigError(f"minutes must be above 0 and at most a day, got {minutes}.")
    require_apart(out, files=[*videos, *distractors, *hosts])
    require_benchmark(out)
    failed: list[BenchmarkFailure] = []
    names: dict[Path, Path] = {}
    given = name_once([*videos, *distractors], names)
    doubles = {path for group in duplicates for path in name_once(group, names)[1:]}
    guests = [path for path, _ in probe_videos(name_once(hosts, names), failed)]
    for path in guests:
        if path in given:
            raise ConfigError(f"'{path}' is a host and in a film: its queries would have matches no one notes.")
    small = _read_small_frames([path for path in given if path not in doubles], out, workers, failed)
    ids = choose_ids(list(small))
    own = [path for path in name_once(videos, names) if path in small]
    sources = _choose_query_sources(own, ids, films * queries_per_film, chosen, guests, seed, small)
    used = {source.piece.path for source in sources}
    fillers = {path: len(frames) / _FPS for path, frames in small.items() if path not in used}
    if not fillers:
        raise DataError(f"all {len(small)} videos give queries, so that none is left to fill the films. Give more.")

    prepare_folder(out)
    rolls = [
        _plan_film(sources[number::films], fillers, ids, minutes * 60, seed, np.random.default_rng([seed, 7, number]))
        for number in range(films)
    ]
    pieces = list(dict.fromkeys(piece for roll in rolls for piece in roll))
    done, total = 0, len(pieces) + len(sources)
    lost: set[_Piece] = set()
    for piece, reason, death in run_each(_make_piece, pieces, out, workers):
        if reason or death:
            lost.add(piece)
            failed.append(BenchmarkFailure(str(piece.path), reason or death))
        done += 1
        if progress is not None:
            progress(done, total)
    starts = dict(_join_films(rolls, lost, out))
    queries: dict[str, Any] = {}
    made = 0
    for source, result, death in run_each(
        _make_query, [source for source in sources if source.piece in starts], out, workers
    ):
        if result is None or isinstance(result, str):
            failed.append(BenchmarkFailure(str(source.piece.path), result or death))
        else:
            queries[source.query] = _describe_query(source, result, *starts[source.piece])
            made += result.made
        done += 1
        if progress is not None:
            progress(done, total)
    if not queries:
        raise DataError("no query could be made" + (f": {failed[0].reason}" if failed else "."))
    database = {_name_film(number): f"database/{_name_film(number)}.mp4" for number in range(films)}
    write_json(out / "ground_truth.json", {"queries": dict(sorted(queries.items())), "database": database})
    kinds_made = dict(sorted(Counter(query["kind"] for query in queries.values()).items()))
    return BenchmarkSummary(out, len(queries), made, len(database), kinds_made, tuple(failed))


def _check_settings(kinds: Sequence[str] | None, *, seed: int, **counts: int) -> tuple[str, ...]:
    """The kinds of edit; `ConfigError` for settings that cannot be."""
    for name, value, low in (*((name, value, 1) for name, value in counts.items()), ("seed", seed, 0)):
        if value < low:
            raise ConfigError(f"{name} must be at least {low}, got {value}.")
    chosen = check_kinds(DEFAULT_EDITS if kinds is None else tuple(kinds))
    if others := [kind for kind in chosen if kind not in EDITS and "+" not in kind]:
        raise ConfigError(f"'{others[0]}' is no edit of one clip, which long films need. Name others with kinds.")
    return chosen


def _describe_query(source: _QuerySource, query: _Query, film: str, offset_s: float) -> dict[str, Any]:
    """The query as ground_truth.json has it; its video begins at `offset_s` of the film."""
    segments = [
        [round(q_start, 4), round(q_end, 4), film, round(t_start + offset_s, 4), round(t_end + offset_s, 4)]
        for q_start, q_end, _, t_start, t_end in query.segments
    ]
    return {"file": f"queries/{source.query}.mp4", "kind": source.kind, "positives": [film], "segments": segments}


def _name_film(number: int) -> str:
    return f"film-{number + 1}"


def _read_small_frames(paths: list[Path], out: Path, workers: int, failed: list[BenchmarkFailure]) -> dict[Path, Small]:
    """A few pixels of each frame of all videos, to find footage that they share; in the order of the paths."""
    small: dict[Path, Small] = {}
    for path, frames, death in run_each(_read_small, paths, out, workers):
        if frames is None or isinstance(frames, str):
            failed.append(BenchmarkFailure(str(path), frames or death))
        else:
            small[path] = frames
    return {path: small[path] for path in paths if path in small}


def _read_small(path: Path, _: Path) -> Small | str:
    try:
        clip = read_clip(path, max_seconds=_MAX_SECONDS, max_fps=_FPS, max_short_side=90)
    except HapvrError as error:
        return str(error)
    return make_small(change_rate(clip, _FPS).clip)


def _choose_query_sources(
    paths: list[Path],
    ids: dict[Path, str],
    wanted: int,
    kinds: Sequence[str],
    hosts: Sequence[Path],
    seed: int,
    small: dict[Path, Small],
) -> list[_QuerySource]:
    """Videos with a part of 10 s that comes neither again in them nor in another: it would have two answers."""
    rng = np.random.default_rng([seed, 6])
    order = [kinds[place] for place in rng.permutation(len(kinds)).tolist()]
    sources: list[_QuerySource] = []
    count, gap = round(_CLIP_S * _FPS), round(_GAP_S * _FPS)
    for place in rng.permutation(len(paths)).tolist():
        path, share = paths[place], float(rng.random())
        host = hosts[int(rng.integers(len(hosts)))] if hosts else None
        if len(sources) == wanted:
            break
        own = small[path]
        first = int(share * (len(own) - count))
        if len(own) < _MIN_SECONDS * _FPS:
            continue
        rest = [own[: max(0, first - gap)], own[first + count + gap :]]
        rest += [frames for other, frames in small.items() if other != path]
        part = own[first : first + count]
        if not any(len(frames) >= gap and share_small(part, frames, fps=_FPS) for frames in rest):
            kind = order[len(sources) % len(order)]
            sources.append(_QuerySource(_Piece(path, ids[path], 0, seed), first / _FPS, kind, host))
    if len(sources) < wanted:
        raise DataError(
            f"{wanted} queries need as many videos of at least {_MIN_SECONDS:.0f} s with a part that comes nowhere "
            f"else; there are {len(sources)}. Ask for fewer films or queries."
        )
    return sources


def _plan_film(
    sources: list[_QuerySource],
    fillers: dict[Path, float],
    ids: dict[Path, str],
    seconds: float,
    seed: int,
    rng: Generator,
) -> list[_Piece]:
    """The pieces of a film in order: fillers in turns, each turn in another order, and the sources among them."""
    left, turn, roll = seconds - len(sources) * _MAX_SECONDS / 2, 0, list[_Piece]()
    paths = list(fillers)
    while left > 0:
        for place in rng.permutation(len(paths)).tolist():
            if left <= 0:
                break
            roll.append(_Piece(paths[place], ids[paths[place]], turn % _TURNS, seed))
            left -= fillers[paths[place]]
        turn += 1
    for source in sources:
        roll.insert(int(rng.integers(len(roll) + 1)), source.piece)
    return roll


def _make_piece(piece: _Piece, out: Path) -> str:
    """Code a video in the format of the films, if that is not done; why it cannot be, or nothing."""
    try:
        recipe = {"version": _RECIPE, "seed": piece.seed, "turn": piece.turn, "source": describe_file(piece.path)}
        if read_note(piece.name, recipe, out) is not None:
            return ""
        side = _SIZE[0] if piece.turn == 0 else 2 * _SIZE[0]
        clip = read_clip(piece.path, max_seconds=_MAX_SECONDS, max_fps=_FPS, max_short_side=side)
        images = change_rate(clip, _FPS).clip.images
        if piece.turn:
            rng = np.random.default_rng([piece.seed, piece.turn])
            kept = [round(between(rng, 0.6, 0.9) * length) for length in images.shape[1:3]]
            top, left = (
                int(rng.integers(whole - part + 1)) for whole, part in zip(images.shape[1:3], kept, strict=True)
            )
            images = images[:, top : top + kept[0], left : left + kept[1]]
            images = images[:, :, ::-1] if piece.turn % 2 else images
        write_clip(Clip(pixels.fit_whole(np.ascontiguousarray(images), _SIZE), _FPS), out / piece.file, crf=_CRF)
        write_note(piece.name, recipe, [piece.file], {}, out)
    except (HapvrError, OSError) as error:
        return str(error)
    return ""


def _join_films(rolls: list[list[_Piece]], lost: set[_Piece], out: Path) -> Iterator[tuple[_Piece, tuple[str, float]]]:
    """Write the films; yields each piece with a film and the second at which it begins there."""
    for number, roll in enumerate(rolls):
        kept = [piece for piece in roll if piece not in lost]
        if not kept:
            raise DataError(f"no piece of {_name_film(number)} could be read.")
        starts = join_clips([out / piece.file for piece in kept], out / "database" / f"{_name_film(number)}.mp4")
        for piece, frame in zip(kept, starts, strict=True):
            yield piece, (_name_film(number), frame / _FPS)


def _make_query(source: _QuerySource, out: Path) -> _Query | str:
    """The edited copy of a part of a video, or why it cannot be made."""
    try:
        host = None if source.host is None else describe_file(source.host)
        recipe = {"version": _RECIPE, "seed": source.piece.seed, "start": source.start_s, "kind": source.kind,
                  "host": host, "source": describe_file(source.piece.path)}  # fmt: skip
        if (note := read_note(source.query, recipe, out)) is not None and "segments" in note:
            return _Query(note["segments"], made=False)
        clip = read_source(source.piece.path)
        first = min(round(source.start_s * clip.fps), max(0, len(clip) - round(_CLIP_S * clip.fps)))
        part = Clip(clip.images[first : first + round(_CLIP_S * clip.fps)], clip.fps)
        rng = np.random.default_rng([source.piece.seed, *source.query.encode()])
        guest = None if source.host is None else read_source(source.host)
        edited = find_edit(source.kind).apply(part, rng, host=guest)
        segments = list_segments(edited.time, source.piece.id, first / clip.fps)
        write_clip(edited.clip, out / "queries" / f"{source.query}.mp4")
        write_note(source.query, recipe, [f"queries/{source.query}.mp4"], {"segments": segments}, out)
    except (HapvrError, OSError) as error:
        return str(error)
    return _Query(segments, made=True)
