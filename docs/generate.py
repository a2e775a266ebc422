"""Write docs/api.md, docs/cli.md, the man page docs/hapvr.1 and the cards of docs/methods.md.

`--check` only compares (a test does).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import typer
from typer.main import get_command

from hapvr import __version__
from hapvr.cli.app import PANELS, _options, app
from hapvr.methods import list_methods, read_card

# The packages and modules that people import from, the everyday ones first.
MODULES = [
    "hapvr",
    "hapvr.matching",
    "hapvr.decision",
    "hapvr.library",
    "hapvr.library.duplicate_plan",
    "hapvr.library.filters",
    "hapvr.webhooks",
    "hapvr.client",
    "hapvr.actions",
    "hapvr.model",
    "hapvr.batch",
    "hapvr.model_evaluation",
    "hapvr.verdict_evaluation",
    "hapvr.mteb_model",
    "hapvr.video.decode",
    "hapvr.synthetic.films",
    "hapvr.synthetic.edits",
    "hapvr.synthetic.benchmark",
    "hapvr.synthetic.long_films",
    "hapvr.backbones",
    "hapvr.features",
    "hapvr.similarity",
    "hapvr.losses",
    "hapvr.training",
    "hapvr.methods",
    "hapvr.evaluation",
    "hapvr.paper",
    "hapvr.conversion",
    "hapvr.errors",
]
OPENED = ["Library", "Client"]  # classes whose methods are listed too
HERE = Path(__file__).parent
CARDS = "## Cards"  # where the generated part of methods.md begins


def first_paragraph(thing: object) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def signature(name: str, thing: object, *, bound: bool = False) -> str:
    if not callable(thing):
        return name
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return name
    if [parameter.name for parameter in parameters] == ["args", "kwargs"]:
        return f"{name}()"  # a module without settings of its own
    shown = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    shown = shown[1:] if bound and inspect.isfunction(thing) else shown  # nobody passes self
    return f"{name}{inspect.Signature(shown)}"


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its `__all__`, or the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    own = inspect.getmembers(module, lambda one: inspect.isfunction(one) or inspect.isclass(one))
    return [name for name, thing in own if not name.startswith("_") and thing.__module__ == module.__name__]


def api() -> str:
    lines = ["# Python API", "", "Written by `make docs` from the docstrings; `help(name)` shows the rest.", ""]
    for path in MODULES:
        module = importlib.import_module(path)
        lines += [f"## {path}", "", first_paragraph(module), ""]
        for name in public_names(module):
            thing = getattr(module, name)
            if not callable(thing):
                value = ", ".join(map(str, thing)) if isinstance(thing, dict) else thing
                lines += [f"- `{name}`: {value}."]
                continue
            lines += [f"- `{signature(name, thing)}`: {first_paragraph(thing)}"]
            if name in OPENED:
                bases = [base for base in reversed(inspect.getmro(thing)) if base is not object]
                methods = dict.fromkeys(key for base in bases for key in vars(base) if not key.startswith("_"))
                for key in methods:
                    method = getattr(thing, key)
                    lines += [f"  - `{signature(key, method, bound=True)}`: {first_paragraph(method)}"]
        lines += [""]
    return "\n".join(lines)


def get_root() -> typer.core.TyperGroup:
    """All commands, with their parameters named as `--help` names them."""
    root: typer.core.TyperGroup = get_command(app)  # type: ignore[assignment]
    root.get_params(typer.Context(root))
    return root


def commands(command: typer.core.TyperCommand | typer.core.TyperGroup, path: str) -> list[tuple[str, str]]:
    if isinstance(command, typer.core.TyperGroup):
        named = command.list_commands(typer.Context(command))
        return [row for name in named for row in commands(command.commands[name], f"{path} {name}")]  # type: ignore[arg-type]
    context = typer.Context(command, info_name=path)
    lines = [f"    {' '.join([path, *command.collect_usage_pieces(context)])}", ""]
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            lines += [f"- `{record[0]}`: {record[1]}"]
    return [(path, "\n".join([" ".join((command.help or "").split()), "", *lines]))]


def cli() -> str:
    lines = ["# The command line", "", "Written by `make docs` from the commands' own help.", ""]
    panels = {name: panel for panel, named in PANELS.items() for name in named}
    panel = None
    for path, text in commands(get_root(), "hapvr"):
        if panels[path.split()[1]] != panel:
            panel = panels[path.split()[1]]
            lines += [f"## {panel}", ""]
        lines += [f"### {path}", "", text, ""]
    return "\n".join(lines)


def escape_roff(text: str) -> str:
    """Text for a man page: backslashes, hyphens, and dots and quotes at the start of a line mean something there."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def man() -> str:
    """The man page: a section for each panel of commands, in it each command with its options."""
    lines = [
        f'.TH HAPVR 1 "" "hapvr {__version__}" "User Commands"',
        *(".SH NAME", "hapvr \\- find videos by content"),
        *(".SH SYNOPSIS", ".B hapvr", "COMMAND [ARGUMENTS]... [OPTIONS]"),
        *(".SH DESCRIPTION", escape_roff(first_paragraph(_options)), "Each command explains itself:"),
        ".B hapvr COMMAND \\-\\-help",
    ]
    panels = {name: panel for panel, named in PANELS.items() for name in named}
    panel = None
    for path, text in commands(get_root(), "hapvr"):
        if panels[path.split()[1]] != panel:
            panel = panels[path.split()[1]]
            lines += [f'.SH "{panel.upper()}"']
        about, _, usage, _, *options = text.split("\n")
        lines += [f'.SS "{escape_roff(path)}"', ".PP", f".B {escape_roff(usage)}", ".PP", escape_roff(about)]
        for option in options:
            name, _, help = option.removeprefix("- `").partition("`: ")
            lines += [".TP", f".B {escape_roff(name)}", escape_roff(help) or "\\&"]
    lines += [
        *(".SH FILES", ".TP", ".I ~/.cache/hapvr", "Weights that were downloaded; HAPVR_CACHE names another folder."),
        *(".SH EXIT STATUS", "0 after success, 1 if something failed or nothing was found, 2 after an error."),
    ]
    return "\n".join(lines)


def methods() -> str:
    """The page of methods: what is written by hand, up to the cards, and the card of each."""
    written = (HERE / "methods.md").read_text().partition(CARDS)[0].rstrip()
    lines = [written, "", CARDS, "", "Written by `make docs` from the modules of `hapvr.methods`.", ""]
    cards: dict[str, list[str]] = {}
    for name, cls in list_methods().items():
        cards.setdefault(read_card(cls), []).append(f"`{name}`")
    for card, names in cards.items():
        title, _, text = card.partition("\n")
        lines += [f"### {', '.join(names)}", "", title, text.rstrip(), ""]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    texts = {"api.md": api(), "cli.md": cli(), "hapvr.1": man(), "methods.md": methods()}
    return {HERE / name: text.rstrip() + "\n" for name, text in texts.items()}


if __name__ == "__main__":
    for file, content in pages().items():
        if "--check" in sys.argv and file.read_text() != content:
            raise SystemExit(f"{file.name} is stale: run `make docs`.")
        file.write_text(content)
