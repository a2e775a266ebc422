"""The command line: parse, call the library, print. Each group of commands has its own module beside this one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hapvr import __version__
from hapvr.cli import (
    ablate,
    compare,
    demo,
    duplicates,
    evaluate,
    folders,
    library,
    model,
    plot,
    search,
    serve,
    table,
    train,
)
from hapvr.cli.interrupts import code_of
from hapvr.cli.printing import printed
from hapvr.errors import HapvrError
from hapvr.processes import leave_current_folder_out

# What goes on where it stopped if it is called again.
_RESUMED = {"ablate", "add", "evaluate", "extract", "frames", "make-benchmark", "train"}


class _Interruptible(TyperGroup):
    """Ctrl-C is one line on stderr and exit code 130; SIGTERM, where a command heeds it, is 143."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            again = "; run the same command again to go on" if ctx.invoked_subcommand in _RESUMED else ""
            typer.echo(f"interrupted{again}", err=True)
            raise typer.Exit(code_of(interrupt)) from None


app = typer.Typer(
    cls=_Interruptible,
    help="Find videos by content.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(ablate.ablate)
app.command()(library.add)
app.command()(duplicates.calibrate)
app.command()(library.compact)
app.command()(compare.compare)
app.command()(demo.demo)
app.command()(duplicates.duplicates)
app.command()(evaluate.evaluate)
app.command()(library.export)
app.command()(folders.extract)
app.command()(folders.frames)
app.command("import")(library.import_features)
app.command()(library.info)
app.command("make-benchmark")(folders.make_benchmark)
app.add_typer(model.app, name="model")
app.add_typer(plot.app, name="plot")
app.command()(library.remove)
app.command()(search.search)
app.command()(serve.serve)
app.command()(library.status)
app.command()(table.table)
app.add_typer(train.app, name="train")
app.command()(library.watch)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hapvr {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Find videos by content: copies, edited copies, clips inside longer videos, footage of the same incident."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. What hapvr refuses is one line on stderr and exit code 2, as is a wrong option.

    Without arguments it is a program, not a call within one: then it imports nothing more from the current folder.
    """
    if arguments is None:
        leave_current_folder_out()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="hapvr")
    except HapvrError as error:
        print(f"error: {printed(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as interrupt:  # before or after a command
        print("interrupted", file=sys.stderr)
        raise SystemExit(code_of(interrupt)) from None
