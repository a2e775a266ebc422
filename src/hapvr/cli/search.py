"""`hapvr search`: one video, picture or part of one, and what a library has of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.printing import printed

if TYPE_CHECKING:
    from hapvr.library import Library, SearchResult


def search(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="The folder of a library, see `hapvr add`.")],
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A video, GIF or picture, or the id of an indexed one.")
    ],
    k: Annotated[int, typer.Option("-k", help="Hits at most.")] = 10,
    start: Annotated[float | None, typer.Option("--from", help="Look for the query from here on, in seconds.")] = None,
    end: Annotated[float | None, typer.Option("--to", help="Look for the query up to here, in seconds.")] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="Leave out hits that match less likely, from 0 to 1.")
    ] = None,
    prior: Annotated[
        float | None, typer.Option(help="How likely a match is before looking, above 0 and below 1; 0.5 if not given.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compare with every video, not only with candidates.")] = False,
    as_json: AsJson = False,
    page: Annotated[Path | None, typer.Option("--html", help="Explain the hits on this self-contained page.")] = None,
) -> None:
    """Find what shows the same as a query: hapvr search library clip.mp4 --from 12 --to 20."""
    from hapvr.library import Library
    from hapvr.storage import require_outputs

    with Library.open(library) as opened:
        if page is not None:
            own = [query] if os.path.lexists(query) else []
            require_outputs([page], inputs=[*own, *opened.files_named(page)])
        result = opened.search(
            query, start=start, end=end, k=k, min_probability=min_probability, exact=exact, prior=prior
        )
        # The answer comes first, so that a page that cannot be written does not lose it.
        if as_json:
            typer.echo(json.dumps(result.to_json()))
        else:
            _print(result)
        if page is not None:
            _explain(opened, query, result, page, start=start, end=end)


def _print(result: SearchResult) -> None:
    from hapvr.matching import format_percent

    for number, hit in enumerate(result.hits, 1):
        sure = "" if hit.probability is None else f", probability {format_percent(hit.probability)}"
        sure = sure if hit.verdict.aligned else ", no match"
        typer.echo(f"{number:3}. {hit.score:.3f}{sure}  {hit.id}  {printed(hit.path)}")
        for segment in hit.segments:
            (a, b), (c, d) = segment.query, segment.target
            way = ", backwards" if segment.backwards else ""
            typer.echo(
                f"       {a:.1f}-{b:.1f} s of the query is {c:.1f}-{d:.1f} s (similarity {segment.score:.2f}{way})"
            )
        if hit.verdict.aligned and not hit.segments:
            typer.echo(f"       most alike at {hit.best.target:.1f} s (similarity {hit.best.similarity:.2f})")
        for warning in hit.warnings:
            typer.echo(printed(f"       {hit.id}: {warning}"), err=True)
    if not result.hits:
        typer.echo("nothing found" if result.note is None else result.note)
    for warning in result.warnings:
        typer.echo(printed(f"the query: {warning}"), err=True)
    seconds = sum(value for name, value in result.seconds.items() if name != "decode")
    typer.echo(
        f"{result.scored:,} of {result.database:,} videos compared exactly; {result.seconds['decode']:.2f} s to read "
        f"the query, {seconds:.2f} s to search"
        + ("" if result.prior is None else f"; probabilities at a prior of {result.prior:g}"),
        err=True,
    )


def _explain(
    library: Library, query: str, result: SearchResult, page: Path, *, start: float | None, end: float | None
) -> None:
    from hapvr.library.results import display_path
    from hapvr.reports.match_page import save_matches

    matches, missing = library.explain_hits(query, result, start=start, end=end)
    part = (
        ""
        if start is None and end is None
        else f" from {start or 0:g} s to {'its end' if end is None else f'{end:g} s'}"
    )
    summary = (
        f"{len(result.hits)} hits among {result.database:,} videos, of which {result.scored:,} were compared exactly. "
        "The best first."
    )
    title = f"What shows the same as {display_path(Path(query).name)}{part}"
    save_matches(matches, page, title=title, summary=summary, notes=missing)
