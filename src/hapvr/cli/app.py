"""The command line: parse, call the package, print. Each group of commands has its own module beside this one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hapvr import __version__
from hapvr.cli import (
    ablate,
    actions,
    adding,
    bench,
    check,
    compare,
    demo,
    duplicates,
    evaluate,
    folders,
    hashes,
    library,
    map,
    method,
    model,
    monitor,
    plan,
    plot,
    search,
    serve,
    table,
    train,
)
from hapvr.cli.option_names import NamingCommand
from hapvr.cli.terminal import escape, exit_code
from hapvr.errors import HapvrError
from hapvr.workers.processes import leave_current_folder_out

# Commands that continue where they stopped when they are run again.
_RESUMED = {
    "ablate", "add", "apply", "convert-features", "evaluate", "extract", "frames", "make-benchmark", "train", "undo",
}  # fmt: skip


PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Everyday": {
        "demo": demo.demo,
        "compare": compare.compare,
        "add": adding.add,
        "search": search.search,
        "duplicates": duplicates.duplicates,
        "apply": actions.apply,
        "undo": actions.undo,
        "serve": serve.serve,
        "watch": adding.watch,
        "monitor": monitor.monitor,
        "status": library.status,
        "bench": bench.bench,
        "plan": plan.plan,
        "doctor": bench.doctor,
    },
    "Care of a library": {
        "info": library.info,
        "check": check.check,
        "backup": check.backup,
        "folders": library.folders,
        "map": map.draw_map,
        "remove": library.remove,
        "calibrate": duplicates.calibrate,
        "compact": library.compact,
        "export": library.export,
        "import": adding.import_features,
        "hashes": hashes.app,
    },
    "Models and research": {
        "model": model.app,
        "method": method.app,
        "make-benchmark": folders.make_benchmark,
        "evaluate": evaluate.evaluate,
        "extract": folders.extract,
        "convert-features": folders.convert_features,
        "frames": folders.frames,
        "train": train.app,
        "ablate": ablate.ablate,
        "table": table.table,
        "plot": plot.app,
    },
}
"""All commands by the panel of --help that they stand in, in its order."""


_VALUES: dict[Any, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}
"""What an option without a metavar of its own takes, by its type."""


def _hide_types(command: Any, ctx: Any) -> None:
    """Leave types of Python out of the help: switches and arguments show none, options say what they take."""
    for parameter in TyperGroup.get_params(command, ctx):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":
            vars(parameter)["display_type_rich"] = lambda **_: ""
        elif parameter.metavar is None:
            described = getattr(parameter, "type_descriptor", None)
            parameter.metavar = _VALUES.get(getattr(described, "annotation", None))
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner, ctx)


class _Commands(TyperGroup):
    """Ctrl-C is one line on stderr and exit code 130; SIGTERM, in commands that handle it, is 143."""

    def get_params(self, ctx: Any) -> Any:
        _hide_types(self, ctx)
        return super().get_params(ctx)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            again = "; run the same command again to go on" if ctx.invoked_subcommand in _RESUMED else ""
            typer.echo(f"interrupted{again}", err=True)
            raise typer.Exit(exit_code(interrupt)) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the panels; typer puts commands with subcommands behind all others."""
        order = [name for commands in PANELS.values() for name in commands]
        return sorted(super().list_commands(ctx), key=order.index)


app = typer.Typer(
    cls=_Commands,
    help="Find videos by content.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            for _inner in _command.registered_commands:
                _inner.cls = NamingCommand
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, cls=NamingCommand, rich_help_panel=_panel)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hapvr {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
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
        print(f"error: {escape(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as interrupt:  # before or after a command
        print("interrupted", file=sys.stderr)
        raise SystemExit(exit_code(interrupt)) from None
