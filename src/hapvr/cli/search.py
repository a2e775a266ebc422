"""`hapvr search`: find a video, a picture, or a part of a video in a library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, HtmlPage, LibraryFolder, Prior, SecondLook
from hapvr.cli.terminal import escape, show, warn

if TYPE_CHECKING:
    from hapvr.library import Library, SearchResult


def search(
    library: LibraryFolder,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A video, GIF or picture, or the id of a video of the library.")
    ],
    k: Annotated[int, typer.Option("-k", help="Number of hits at most.")] = 10,
    start_s: Annotated[
        float | None, typer.Option("--from", help="Where the part to look for starts, in seconds.")
    ] = None,
    end_s: Annotated[float | None, typer.Option("--to", help="Where the part to look for ends, in seconds.")] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="Leave out hits with a lower probability of being a match, from 0 to 1.")
    ] = None,
    prior: Prior = None,
    second_look: SecondLook = True,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare with every video, not only with the most promising ones.")
    ] = False,
    as_json: AsJson = False,
    page: HtmlPage = None,
) -> None:
    """Find the videos that show what a query shows: hapvr search library clip.mp4 --from 12 --to 20."""
    from hapvr.library import Library
    from hapvr.storage import require_outputs

    with Library.open(library) as opened:
        if page is not None:
            own = [query] if os.path.lexists(query) else []
            require_outputs([page], inputs=[*own, *opened.find_files_named(page)])
        result = opened.search(
            query,
            start_s=start_s,
            end_s=end_s,
            k=k,
            min_probability=min_probability,
            exact=exact,
            prior=prior,
            second_look=second_look,
        )
        # The answer comes first, so that a page that cannot be written does not lose it.
        show(as_json, result.to_json(), _format_result(result))
        if not as_json:
            _print_notes(result)
        if page is not None:
            _explain(opened, query, result, page, start_s=start_s, end_s=end_s)


def _format_result(result: SearchResult) -> Iterator[str]:
    from hapvr.matching import describe_verdict

    for number, hit in enumerate(result.hits, 1):
        yield f"{number:3}. {describe_verdict(hit.verdict)}, score {hit.score:.3f}  {hit.id}  {escape(hit.path)}"
        for segment in hit.segments:
            (a, b), (c, d) = segment.query, segment.target
            way = ", backwards" if segment.backwards else ""
            yield f"       {a:.1f}-{b:.1f} s of the query is {c:.1f}-{d:.1f} s (similarity {segment.score:.2f}{way})"
        if hit.verdict.match and not hit.segments:
            yield f"       most alike at {hit.best.target:.1f} s (similarity {hit.best.similarity:.2f})"
    if not result.hits:
        yield "nothing found" if result.note is None else result.note


def _print_notes(result: SearchResult) -> None:
    for hit in result.hits:
        warn(hit.warnings, before=f"       {hit.id}: ")
    warn(result.warnings, before="the query: ")
    seconds = sum(value for name, value in result.seconds.items() if name != "decode")
    prior = "" if result.prior is None else f"; probabilities at a prior of {result.prior:g}"
    warn(
        [
            f"{result.scored:,} of {result.database:,} videos compared exactly; {result.seconds['decode']:.2f} s to "
            f"read the query, {seconds:.2f} s to search{prior}"
        ]
    )


def _explain(
    library: Library, query: str, result: SearchResult, page: Path, *, start_s: float | None, end_s: float | None
) -> None:
    from hapvr.library.results import display_path
    from hapvr.reports.match_page import save_matches

    matches, missing = library.explain_hits(query, result, start_s=start_s, end_s=end_s)
    part = (
        ""
        if start_s is None and end_s is None
        else f" from {start_s or 0:g} s to {'its end' if end_s is None else f'{end_s:g} s'}"
    )
    summary = (
        f"{len(result.hits)} hits among {result.database:,} videos, of which {result.scored:,} were compared exactly. "
        "The best first."
    )
    title = f"What shows the same as {display_path(Path(query).name)}{part}"
    save_matches(matches, page, title=title, summary=summary, notes=missing)
