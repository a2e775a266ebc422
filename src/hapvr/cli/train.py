"""`hapvr train`: a training run from a settings file or a recipe, and a look at the views it would learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hapvr.cli.options import AsJson
from hapvr.cli.terminal import show


class _RunByDefault(TyperGroup):
    """`hapvr train SETTINGS` is `hapvr train run SETTINGS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Train the similarity network on unlabelled videos: hapvr train small data.frames=packed.",
)

Settings = Annotated[
    str, typer.Argument(metavar="SETTINGS", help="A TOML file, or a recipe: paper, small, tiny, whole.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.KEY=VALUE", help="Values that replace those of the file, such as run.seed=1."),
]


@app.command()
def run(settings: Settings, words: Words = None, as_json: AsJson = False) -> None:
    """Train a model, or continue a run: hapvr train run small data.frames=packed.

    The word `run` may be left out. Under torchrun the batch grows with the processes; see `python -m hapvr.training`.
    """
    from hapvr.training.recipe_files import load_stages
    from hapvr.training.run import train_stages

    trained = train_stages(load_stages(settings, words or []), report=lambda line: typer.echo(line, err=as_json))
    show(as_json, trained.to_json(), [])


@app.command()
def preview(
    settings: Settings,
    words: Words = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The PNG to write.")] = Path("views.png"),
    clips: Annotated[int, typer.Option(min=2, help="Number of videos to show at most.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Draw the edited frames that a run would learn from: hapvr train preview small data.frames=packed -o views.png."""
    from hapvr.training.recipe_files import load_stages
    from hapvr.training.run_parts import preview_views

    first = next(iter(load_stages(settings, words or []).values()))  # of a recipe with stages
    shown = preview_views(first, output, clips=clips)
    text = f"{output}: weak and strong views of {shown} videos" + ("; there are no more" if shown < clips else "")
    show(as_json, {"file": str(output), "videos": shown}, text)
