"""`hapvr compare`: whether two videos match, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapvr.cli.options import AsJson, Device, HtmlPage, IgnoreShared, Model, Prior, SecondLook
from hapvr.cli.terminal import show, warn

if TYPE_CHECKING:
    from hapvr.matching import Match
    from hapvr.methods.comparison import MethodMatch


def compare(
    query: Annotated[str, typer.Argument(metavar="A", help="A video, GIF or picture to look for.")],
    target: Annotated[str, typer.Argument(metavar="B", help="The video in which A is looked for.")],
    model: Model = None,
    method: Annotated[
        str | None,
        typer.Option(help="Compare by this method of `hapvr method list`, or by the folder of a fitted one, instead."),
    ] = None,
    library: Annotated[
        Path | None,
        typer.Option(help="Compare with the model and the stored vectors of this library; A and B may be ids of it."),
    ] = None,
    prior: Prior = None,
    device: Device = "auto",
    second_look: SecondLook = True,
    ignore_shared: IgnoreShared = True,
    sound: Annotated[
        bool, typer.Option("--sound", help="Compare the sound too; the verdict is about the pictures in any case.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the match into this PNG, SVG or PDF.")] = None,
    page: HtmlPage = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether and where two videos match: hapvr compare clip.mp4 film.mp4 --html match.html."""
    from hapvr.devices import find_device
    from hapvr.errors import ConfigError
    from hapvr.methods.comparison import compare_by_method
    from hapvr.reports.match_page import save_html, save_plot
    from hapvr.reports.plotting import require_pictures
    from hapvr.storage import require_outputs

    if method is not None:
        if library is not None or plot is not None or page is not None or sound:
            raise ConfigError(
                "--method gives a score and segments alone. Leave out --library, --sound, --plot and --html."
            )
        found = compare_by_method(query, target, method, model=model, device=find_device(device))
        show(as_json, found.to_json(), _format_method(found))
        return
    if plot is not None:
        require_pictures([plot])
    outputs = [file for file in (plot, page) if file is not None]
    require_outputs(outputs, inputs=(query, target))
    match = _compare(
        query,
        target,
        model=model,
        library=library,
        prior=prior,
        second_look=second_look,
        ignore_shared=ignore_shared,
        device=device,
        sound=sound,
        outputs=outputs,
    )
    # The answer comes first, so that a page that cannot be written does not lose it.
    show(as_json, match.to_json(), _format_match(match))
    if not as_json:
        warn(match.query.warnings, before="  A: ")
        warn(match.target.warnings, before="  B: ")
    if plot is not None:
        save_plot(match, plot)
    if page is not None:
        save_html(match, page)


def _compare(
    query: str,
    target: str,
    *,
    model: str | None,
    library: Path | None,
    prior: float | None,
    second_look: bool,
    ignore_shared: bool,
    device: str,
    sound: bool,
    outputs: Sequence[Path],
) -> Match:
    from hapvr.errors import ConfigError
    from hapvr.library import Library
    from hapvr.matching import compare as compare_files
    from hapvr.storage import require_outputs

    if library is None:
        return compare_files(
            query, target, model=model, prior=prior, second_look=second_look, device=device, sound=sound
        )
    if model is not None:
        raise ConfigError("A library compares with the model that it was made with: give --library or --model.")
    with Library.open(library, device=device) as opened:
        require_outputs(outputs, inputs=[path for file in outputs for path in opened.find_files_named(file)])
        return opened.compare(
            query, target, prior=prior, second_look=second_look, ignore_shared=ignore_shared, sound=sound
        )


def _format_match(match: Match) -> Iterator[str]:
    yield match.meaning
    for segment in match.segments:
        (a, b), (c, d) = segment.query, segment.target
        way = ", backwards" if segment.backwards else ""
        way += ", footage that many videos share" if segment.shared else ""
        yield f"  {a:.1f}-{b:.1f} s of A is {c:.1f}-{d:.1f} s of B (similarity {segment.score:.2f}{way})"
    if not match.segments:
        own = "" if len(match.matrix) == 1 else f"{match.best.query:.1f} s of A and "
        yield f"  most alike at {own}{match.best.target:.1f} s of B (similarity {match.best.similarity:.2f})"
    yield f"  {match.verdict.reason} Score {match.score:.3f}."
    if match.sound is not None:
        yield f"  sound: {match.sound.describe('A', 'B')}"


def _format_method(match: MethodMatch) -> Iterator[str]:
    yield f"Score by {match.method}: {match.score:.3f}."
    for (a, b), (c, d) in match.segments or ():
        yield f"  {a:.1f}-{b:.1f} s of A is {c:.1f}-{d:.1f} s of B"
