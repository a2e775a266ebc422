"""`hapvr demo`: drawn films, edited copies of them, and who matches whom. Needs no network and no GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Images = NDArray[np.uint8]

FILMS, FPS = 8, 1.5


def demo(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Draw films, edit copies of them, and find each copy's original with the model that is shipped: hapvr demo."""
    result = _run(quiet=as_json)
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("edited copy", "best match", "score", "next best", "", title="Who is it a copy of?")
    for row in result["copies"]:  # type: ignore[attr-defined]
        mark = "[green]right[/]" if row["best"] == row["film"] else f"[red]is {row['film']}[/]"
        table.add_row(f"{row['film']}, {row['edit']}", row["best"], f"{row['score']:.3f}", f"{row['next']:.3f}", mark)
    console = Console()
    console.print(table)
    console.print(
        f"{result['right']} of {len(result['copies'])} found; mAP {result['mAP']:.3f}, uAP {result['uAP']:.3f}."  # type: ignore[arg-type]
        f"\nThe model is '{result['model']}'. On files of your own: hapvr compare A B --html match.html"
    )


def _run(*, quiet: bool) -> dict[str, object]:
    import torch
    from rich.progress import track

    from hapvr.evaluation import mean_average_precision, micro_average_precision
    from hapvr.model import load
    from hapvr.similarity import pairwise
    from hapvr.video.synth import draw_scene

    model = load()
    films = {f"film {number}": draw_scene(number, seconds=8, fps=FPS).images for number in range(FILMS)}
    copies = [(name, edit, change(images)) for name, images in films.items() for edit, change in _edits().items()]
    database = [model.extractor(images) for images in track(films.values(), "Films", disable=quiet, transient=True)]
    queries = [model.extractor(images) for _, _, images in track(copies, "Copies", disable=quiet, transient=True)]

    scores = pairwise(model.similarity, queries, database)  # [copies, films]
    names = list(films)
    relevant = torch.tensor([[name == film for name in names] for film, _, _ in copies])
    order = scores.argsort(dim=1, descending=True).tolist()
    rows = [
        {"film": film, "edit": edit, "best": names[best], "score": row[best].item(), "next": row[second].item()}
        for (film, edit, _), row, (best, second, *_) in zip(copies, scores, order, strict=True)
    ]
    return {
        "model": model.name,
        "copies": rows,
        "right": sum(row["film"] == row["best"] for row in rows),
        "mAP": mean_average_precision(scores, relevant),
        "uAP": micro_average_precision(scores, relevant),
    }


def _edits() -> dict[str, Callable[[Images], Images]]:
    import numpy as np

    def darkened(images: Images) -> Images:
        noise = np.random.default_rng(0).integers(0, 30, images.shape)
        return (images * 0.6 + noise).clip(0, 255).astype(np.uint8)

    def blurred(images: Images) -> Images:
        return images[:, ::4, ::4].repeat(4, axis=1).repeat(4, axis=2)

    def pasted(images: Images) -> Images:
        out = np.full_like(images, 90)
        out[:, 30:210, 40:280] = images[:, ::4, ::4].repeat(3, axis=1).repeat(3, axis=2)
        return out

    return {
        "mirrored": lambda images: images[:, :, ::-1].copy(),
        "cropped": lambda images: images[:, 30:210, 40:280].copy(),
        "dark and noisy": darkened,
        "blurred": blurred,
        "in a frame": pasted,
        "second half": lambda images: images[len(images) // 2 :],
    }
