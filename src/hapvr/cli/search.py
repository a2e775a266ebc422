"""`hapvr search`: find videos, pictures, or parts of a video in a library."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime  # noqa: F401 - of the options
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapvr.cli.filters import After, Before, Folders, MaxLength, MaxSize, MinLength, MinSize, make_filter
from hapvr.cli.options import Cluster, Device, HtmlPage, IgnoreShared, LibraryFolder, Prior, SecondLook
from hapvr.cli.terminal import escape, progress_bar, warn

if TYPE_CHECKING:
    from hapvr.library import Library, SearchResult
    from hapvr.library.results import SoundHit
    from hapvr.library.search_report import QueryResult


def search(
    library: LibraryFolder,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY", help="Videos, GIFs or pictures, folders of them, or ids of videos of the library."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Number of hits at most.")] = 10,
    start_s: Annotated[
        float | None, typer.Option("--from", help="Where the part to look for starts, in seconds.")
    ] = None,
    end_s: Annotated[float | None, typer.Option("--to", help="Where the part to look for ends, in seconds.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all hits, and not only those that match; matches come first.")
    ] = False,
    min_probability: Annotated[
        float | None, typer.Option(help="Leave out hits with a lower probability of being a copy, from 0 to 1.")
    ] = None,
    prior: Prior = None,
    device: Device = "auto",
    second_look: SecondLook = True,
    ignore_shared: IgnoreShared = True,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every video, not only with the most promising ones.")
    ] = False,
    ray: Cluster = None,
    sound: Annotated[
        bool,
        typer.Option("--sound", help="Look for the sound of the queries alone: song.mp3, or a video's sound."),
    ] = False,
    text: Annotated[
        str | None,
        typer.Option("--text", help="In place of queries: what is to be seen, such as 'a red car'."),
    ] = None,
    folders: Folders = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    after: After = None,
    before: Before = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text: a line for each query, with all hits.")
    ] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the results: .jsonl as --json, .csv with a row for each stretch of a match (with --all, of all "
            "hits). Repeatable.",
        ),
    ] = None,
    page: HtmlPage = None,
) -> None:
    """Find the videos that show what a query shows: hapvr search library clip.mp4 --from 12 --to 20.

    A file of sound alone is looked for by its sound, in a library whose videos were added with `--audio`. `--text`
    looks for a description, in a library that was given a text model: `hapvr add --text-model`. The exit code is 0
    if there is a match, 1 if there is none, and 2 after an error, also if one of several queries could not be read.
    """
    from hapvr.errors import ConfigError
    from hapvr.video.sandboxed import start_decoder

    if any(map(os.path.isfile, queries or [])):
        start_decoder()  # while the rest is loaded
    from hapvr.library import Library
    from hapvr.library.cluster_work import use_cluster
    from hapvr.library.search_report import QueryResult, is_sound_file, list_queries, search_each, write_results

    part: dict[str, Any] = {"start_s": start_s, "end_s": end_s}
    options = part | {
        "k": k, "min_probability": min_probability, "exact": exact, "prior": prior, "second_look": second_look,
        "ignore_shared": ignore_shared,
        "filter": make_filter(
            folders=folders, min_size=min_size, max_size=max_size, min_length=min_length, max_length=max_length,
            after=after, before=before,
        ),
    }  # fmt: skip
    if text is not None:
        given: dict[str, object] = {
            "queries": queries,
            "--sound": sound,
            "-o": output,
            "--html": page is not None,
            "--exact": exact,
            "--ray": ray,
        }
        given |= {"--from": start_s is not None, "--to": end_s is not None, "--min-probability": min_probability}
        for name in (name for name, value in given.items() if value not in (None, False)):
            raise ConfigError(f"--text prints what fits a description, as text or --json. Leave out {name}.")
        with Library.open(library, device=device) as opened:
            raise typer.Exit(_search_text(opened, text, {"k": k, "filter": options["filter"]}, as_json=as_json))
    if not queries:
        raise ConfigError("Give what to look for: videos, pictures, or --text 'a description'.")
    if ray is not None and (sound or not exact):
        raise ConfigError("--ray compares with every video: it needs --exact, and goes without --sound.")
    if sound and (output or page is not None):
        raise ConfigError("--sound prints what it finds, as text or --json. Leave out -o and --html.")
    listed = list_queries(queries)
    alone = listed == queries and len(queries) == 1
    answers: list[QueryResult] = []
    with Library.open(library, device=device) as opened, ExitStack() as held:
        _require_files(opened, listed, output or [], page, alone=alone)
        if sound or (alone and not output and page is None and is_sound_file(queries[0])):
            chosen = {name: options[name] for name in ("start_s", "end_s", "k", "filter")}
            raise typer.Exit(_search_sound(opened, listed, chosen, as_json=as_json))
        options["cluster"] = held.enter_context(use_cluster(opened, ray))
        if alone:  # what cannot be read is an error
            answers = [QueryResult(queries[0], opened.search(queries[0], **options))]
            _print_answer(answers[0], as_json=as_json, everything=everything, alone=True)
        else:
            _ = opened.model  # an error of the library is none of its queries
            with progress_bar("queries", quiet=as_json) as update:
                update(0, len(listed))
                for answer in search_each(opened, listed, **options):
                    answers.append(answer)
                    _print_answer(answer, as_json=as_json, everything=everything, alone=False)
                    update(len(answers), len(listed))
            _print_counts(answers)
        # The answer comes first, so that a file that cannot be written does not lose it.
        for path in output or ():
            write_results(answers, path, everything=everything)
        if page is not None:
            _explain(opened, answers[0], page, part, everything=everything)
    if any(answer.result is None for answer in answers):
        raise typer.Exit(2)
    raise typer.Exit(0 if any(answer.match or answer.sound_match for answer in answers) else 1)


def _search_sound(library: Library, queries: Sequence[str], options: dict[str, Any], *, as_json: bool) -> int:
    """Look for the sound of each query, and print what is found; the exit code."""
    from hapvr.errors import DataError, DecodeError
    from hapvr.library.results import display_path

    found, failed = False, False
    for query in queries:
        name = display_path(query)
        try:
            result = library.search_sound(query, **options)
        except (DataError, DecodeError) as error:
            if len(queries) == 1:
                raise
            failed = True
            warn([f"{name}: {error}"])
            if as_json:
                typer.echo(json.dumps({"query": name, "match": False, "error": str(error)}))
            continue
        found = found or bool(result.hits)
        if as_json:
            typer.echo(json.dumps({"query": name} | result.to_json()))
            continue
        head = "" if len(queries) == 1 else f"{escape(name)}: "
        if not result.hits:
            typer.echo(f"{head}{result.note or 'no match'}")
        elif head:
            typer.echo(f"{head}{len(result.hits)} with the same sound")
        for line in _format_sound_hits(result.hits):
            typer.echo(line)
        warn(result.warnings, before="the query: ")
        warn([f"the sound of {result.database:,} videos compared; {sum(result.seconds.values()):.2f} s"])
    return 2 if failed else 0 if found else 1


def _search_text(library: Library, text: str, options: dict[str, Any], *, as_json: bool) -> int:
    """Look for a description, and print what fits best; the exit code."""
    result = library.search_text(text, **options)
    if as_json:
        typer.echo(json.dumps({"text": text} | result.to_json()))
        return 0 if result.hits else 1
    if not result.hits:
        typer.echo(result.note or "no video")
    for number, hit in enumerate(result.hits, 1):
        typer.echo(f"{number:3}. {hit.id}  {escape(hit.path)}")
        times = ", ".join(f"{one.time_s:.1f} s (similarity {one.similarity:.3f})" for one in hit.instants)
        typer.echo(f"       at {times}")
    warn(
        [
            f"{result.database:,} videos are described; {result.seconds['text']:.2f} s for the text, "
            f"{result.seconds['search']:.2f} s to search"
        ]
    )
    return 0 if result.hits else 1


def _require_files(
    library: Library, queries: Sequence[str], output: list[Path], page: Path | None, *, alone: bool
) -> None:
    """Raise `ConfigError` unless the files can be written without harm."""
    from hapvr.errors import ConfigError
    from hapvr.library.search_report import require_result_files
    from hapvr.storage import require_outputs

    if page is not None and not alone:
        raise ConfigError(
            f"--html shows the hits of one query, {len(queries):,} were given. Use -o FILE.csv or .jsonl."
        )
    require_result_files(output)
    files = [*output, *([] if page is None else [page])]
    own = [query for query in queries if os.path.lexists(query)]
    require_outputs(files, inputs=[*own, *(path for file in files for path in library.find_files_named(file))])


# --- printing --------------------------------------------------------------------------------------------------------


def _print_answer(answer: QueryResult, *, as_json: bool, everything: bool, alone: bool) -> None:
    from hapvr.library.search_report import choose_shown

    if as_json:
        typer.echo(json.dumps(answer.to_json()))
        return
    result = answer.result
    if result is None:
        warn([f"{answer.query}: {answer.error}"])
        return
    for line in _format_result(result, everything=everything, name="" if alone else answer.query):
        typer.echo(line)
    for hit in choose_shown(result, everything=everything):
        warn(hit.warnings, before=f"       {hit.id}: ")
    warn(result.warnings, before="the query: ")
    if alone:
        seconds = sum(value for name, value in result.seconds.items() if name != "decode")
        prior = "" if result.prior is None else f"; probabilities at a prior of {result.prior:g}"
        warn(
            [
                f"{result.scored:,} of {result.database:,} videos compared exactly; {result.seconds['decode']:.2f} s "
                f"to read the query, {seconds:.2f} s to search{prior}"
            ]
        )


def _format_result(result: SearchResult, *, everything: bool, name: str) -> Iterator[str]:
    from hapvr.decision import describe_verdict
    from hapvr.library.search_report import choose_shown

    shown = choose_shown(result, everything=everything)
    head = f"{escape(name)}: " if name else ""
    if not shown:
        yield f"{head}{'no match' if result.note is None else result.note}"
    elif not result.matches:
        yield f"{head}no match; the nearest are"
    elif head:
        count = len(result.matches)
        yield f"{head}{count} {'match' if count == 1 else 'matches'}"
    for number, hit in enumerate(shown, 1):
        yield f"{number:3}. {describe_verdict(hit.verdict)}  {hit.id}  {escape(hit.path)}"
        for segment in hit.segments:
            (a, b), (c, d) = segment.query, segment.target
            way = ", backwards" if segment.backwards else ""
            way += ", footage that many videos share" if segment.shared else ""
            yield f"       {a:.1f}-{b:.1f} s of the query is {c:.1f}-{d:.1f} s (similarity {segment.score:.2f}{way})"
        if not hit.segments:
            yield f"       most alike at {hit.best.target:.1f} s (similarity {hit.best.similarity:.2f})"
        yield f"       {hit.verdict.reason} Score {hit.score:.3f}."
        if hit.sound is not None:
            yield f"       sound: {hit.sound.describe()}"
    if result.sound_hits:
        yield f"{head}the same sound with another picture"
    yield from _format_sound_hits(result.sound_hits)


def _format_sound_hits(hits: Sequence[SoundHit]) -> Iterator[str]:
    from hapvr.audio.matching import SoundEvidence

    for number, hit in enumerate(hits, 1):
        yield f"{number:3}. {hit.verdict}  {hit.id}  {escape(hit.path)}"
        yield f"       sound: {SoundEvidence('same', hit.stretches).describe()}"


def _print_counts(answers: Sequence[QueryResult]) -> None:
    matched, failed = sum(answer.match for answer in answers), sum(answer.result is None for answer in answers)
    unread = f", {failed:,} could not be read" if failed else ""
    warn([f"{len(answers):,} queries: {matched:,} with a match, {len(answers) - matched - failed:,} without{unread}"])


def _explain(library: Library, answer: QueryResult, page: Path, part: dict[str, Any], *, everything: bool) -> None:
    from hapvr.library.results import display_path
    from hapvr.library.search_report import choose_shown
    from hapvr.reports.match_page import save_matches

    result = answer.result
    assert result is not None
    shown = choose_shown(result, everything=everything)
    matches, missing = library.explain_hits(answer.query, dataclasses.replace(result, hits=shown), **part)
    start, end = part["start_s"], part["end_s"]
    which = (
        ""
        if start is None and end is None
        else f" from {start or 0:g} s to {'its end' if end is None else f'{end:g} s'}"
    )
    count = len(result.matches)
    found = "No match" if not count else "1 match" if count == 1 else f"{count} matches"
    nearest = "" if count or not shown else " The nearest are shown."
    summary = f"{found} among {result.database:,} videos, of which {result.scored:,} were compared exactly.{nearest}"
    title = f"What shows the same as {display_path(Path(answer.query).name)}{which}"
    save_matches(matches, page, title=title, summary=summary, notes=missing)
