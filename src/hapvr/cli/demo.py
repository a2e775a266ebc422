"""`hapvr demo`: drawn films, edited copies of them, and who matches whom. Needs no weights, no network and no GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Images = NDArray[np.uint8]

FILMS, BACKGROUND, FPS = 8, 6, 1.5


def demo(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Draw films, edit copies of them, and find each copy's original with an untrained network: hapvr demo."""
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
        "\nThe network is untrained and its weights are random: regions of a random EfficientNet-Lite0, whitened, "
        "compared by Chamfer similarity."
    )


def _run(*, quiet: bool) -> dict[str, object]:
    import torch
    from rich.progress import track

    from hapvr.backbones import build_backbone
    from hapvr.evaluation import mean_average_precision, micro_average_precision
    from hapvr.features import WhiteningFit, extract_regions
    from hapvr.similarity import SimilarityConfig, VideoSimilarity, pairwise
    from hapvr.video.synth import draw_scene

    torch.manual_seed(0)
    backbone = build_backbone("efficientnet_lite0").eval()

    @torch.no_grad()
    def regions(images: Images) -> Tensor:
        """[T, H, W, 3] bytes -> [T, R, D]."""
        pictures = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
        pictures = torch.nn.functional.interpolate(pictures, (224, 224), mode="bilinear")
        return extract_regions(backbone, pictures)

    def film(number: int) -> Images:
        return draw_scene(number, seconds=8, fps=FPS).images

    films = {f"film {number}": film(number) for number in range(FILMS)}
    copies = [(name, edit, change(images)) for name, images in films.items() for edit, change in _edits().items()]
    fit = WhiteningFit()
    for number in track(range(BACKGROUND), "Fitting the whitening on other films", disable=quiet, transient=True):
        fit.update(regions(film(1000 + number)))
    whiten = fit.finish(outputs=128)
    database = [whiten(regions(images)) for images in track(films.values(), "Films", disable=quiet, transient=True)]
    queries = [whiten(regions(images)) for _, _, images in track(copies, "Copies", disable=quiet, transient=True)]

    config = SimilarityConfig(dims=128, weighting="none", comparator=False, spatial="chamfer", temporal="chamfer")
    scores = pairwise(VideoSimilarity(config), queries, database)  # [copies, films]
    names = list(films)
    relevant = torch.tensor([[name == film for name in names] for film, _, _ in copies])
    order = scores.argsort(dim=1, descending=True).tolist()
    rows = [
        {"film": film, "edit": edit, "best": names[best], "score": row[best].item(), "next": row[second].item()}
        for (film, edit, _), row, (best, second, *_) in zip(copies, scores, order, strict=True)
    ]
    return {
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
