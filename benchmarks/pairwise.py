"""Scoring many videos against many: pairs a second, distance from the float32 scores, and where the time goes.

    python benchmarks/pairwise.py            # on a GPU where there is one, else a smaller run on the CPU
    python benchmarks/pairwise.py --stored   # on one core of the CPU, `lite`: one query with the videos of a library
    python benchmarks/pairwise.py --tiles    # on a GPU: Chamfer alone and psi alone with other tiles
    python benchmarks/pairwise.py --sweep    # on a GPU: what each of the fused steps brings, in turns; some 60 seconds

On a GPU bfloat16 and int8 take turns, so that their ratio is of one run; `plain kernels` are those for
GPUs before Hopper, forced here (HAPVR_KERNELS=plain does the same).

Baselines in the same run: `one pair at a time` is VideoSimilarity.score in a float32 loop, `plain torch` is the same
packed work in half precision without the fused kernels, `bare product` the region products alone as one matrix
product, nothing reduced.

`--sweep`: `pairwise` with steps done as they were before there were kernels for them (`OLD_STEPS`), with each kernel
alone and with all, one way and both ways, against float32.

`--stored`: videos of equal length, vectors held or decoded from a library's bytes (int3), by precision, scored one way
and both ways; bfloat16 where the CPU has it, int8 by the library in C and by torch. They take turns and the least CPU
time of each counts, so that a busy machine changes the figures little.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from hapvr.features.extractor import fast_dtype
from hapvr.library import codecs
from hapvr.library.codecs import DEFAULT, get_codec
from hapvr.model import load
from hapvr.similarity import Descriptors, SimilarityConfig, VideoSimilarity, int8, kernels, pairwise
from hapvr.similarity.int8 import Int8Descriptors
from hapvr.similarity.native import load_native
from hapvr.similarity.network import Symmetry
from hapvr.similarity.pairwise import _Pack, _Scorer
from measure import forget_peak, lengths, machine, peak_gib, seconds, video

WAYS: dict[Symmetry, str] = {"none": "one way", "lengths": "both ways"}


def main() -> None:
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu = torch.cuda.is_available()
    parser.add_argument("--queries", type=int, default=100 if gpu else 8)
    parser.add_argument("--targets", type=int, default=4000 if gpu else 40)
    parser.add_argument("--checked", type=int, default=10_000 if gpu else 64, help="pairs compared with the loop")
    parser.add_argument("--tiles", action="store_true", help="Chamfer and psi alone with other tiles, on a GPU")
    parser.add_argument("--sweep", action="store_true", help="what each fused step brings, on a GPU")
    parser.add_argument("--seconds", type=float, default=60.0, help="after which --sweep begins no turn")
    parser.add_argument("--stored", action="store_true", help="one query with stored videos, on one core")
    parser.add_argument("--json", help="write the figures here too")
    arguments = parser.parse_args()
    if arguments.stored:
        score_stored()
        return
    device = torch.device("cuda" if gpu else "cpu")
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = responsive(device)
    queries = [video(length, device) for length in lengths(arguments.queries, generator)]
    targets = [video(length, device) for length in lengths(arguments.targets, generator)]
    plant(queries, targets)
    mean = sum(map(len, targets)) / len(targets)
    print(f"{machine()}; {len(queries)} queries x {len(targets)} targets, mean length {mean:.0f} frames, 9 x 512")
    figures: dict[str, float] = {}

    def report(name: str, value: float) -> None:
        figures[name] = value
        print(f"  {name:<48} {value:12,.0f}" if value >= 1000 else f"  {name:<48} {value:12.4g}", flush=True)

    def rate(dtype: torch.dtype, chosen: list[Tensor], *, repeats: int) -> float:
        return (
            len(queries) * len(chosen) / seconds(lambda: pairwise(model, queries, chosen, dtype=dtype), repeats=repeats)
        )

    half = torch.bfloat16
    if gpu and arguments.tiles:
        compare_tiles(model, queries, targets, report)
        compare_psi_tiles(model, queries, targets, report)
        write_json(arguments.json, figures)
        return
    if gpu and arguments.sweep:
        sweep(model, queries, targets, report, deadline=started + arguments.seconds)
        write_json(arguments.json, figures)
        return
    if gpu:
        for number in range(2):
            for dtype in (half, torch.int8):
                report(f"pairwise {dtype}, pairs/s ({number + 1})", rate(dtype, targets, repeats=3))
        for dtype in (half, torch.float16, torch.int8):
            forget_peak()
            videos = torch.cuda.memory_allocated() / 2**30
            report(f"pairwise {dtype}, pairs/s", rate(dtype, targets, repeats=1))
            report(f"pairwise {dtype}, peak GiB", peak_gib() - videos)
        with mock.patch.object(kernels, "use_tma", return_value=False):
            for dtype in (half, torch.int8):
                report(f"plain kernels {dtype}, pairs/s", rate(dtype, targets, repeats=1))
        with mock.patch.object(kernels, "usable", return_value=False):
            report("plain torch bfloat16, pairs/s", rate(half, targets[:400], repeats=1))
    few = targets[: arguments.checked // len(queries)]
    report("pairwise float32, pairs/s", rate(torch.float32, few, repeats=1))

    exact = torch.empty(len(queries), len(few))

    @torch.no_grad()
    def loop() -> None:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            for row, query in enumerate(queries):
                for column, target in enumerate(few):
                    exact[row, column] = model.score(query, target)

    report("one pair at a time float32, pairs/s", exact.numel() / seconds(loop, repeats=1, warm_up=0))
    report("largest exact score", exact.max().item())
    report("spread of exact scores", exact.std().item())
    for dtype in (torch.float32, half, torch.float16, torch.int8):
        error = (pairwise(model, queries, few, dtype=dtype) - exact).abs().max().item()
        report(f"largest error {dtype}", error)
    if gpu:
        with mock.patch.object(kernels, "use_tma", return_value=False):
            for dtype in (half, torch.int8):
                error = (pairwise(model, queries, few, dtype=dtype) - exact).abs().max().item()
                report(f"largest error, plain kernels {dtype}", error)
        for dtype in (half, torch.int8):
            for name, value in split(model, queries, targets, dtype).items():
                report(f"{dtype}: {name}", value)
    write_json(arguments.json, figures)


def write_json(path: str | None, figures: dict[str, float]) -> None:
    if path:
        with open(path, "w") as file:
            json.dump({"machine": machine(), **figures}, file, indent=2)


@torch.no_grad()
def score_stored() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    codec, models = get_codec(DEFAULT), {symmetry: load().similarity for symmetry in WAYS}
    for symmetry, model in models.items():
        model.config = replace(model.config, symmetry=symmetry)
    for frames, count in ((28, 72), (105, 12)):
        films = [video(frames, "cpu") for _ in range(count)]
        plant(films[:1], films[1:2])
        stored = [codec.encode(film) for film in films]
        query: Tensor = Descriptors.of(films[0])
        shape = (frames, *films[0].shape[1:])
        floats = {torch.float32, fast_dtype(torch.device("cpu"))}
        made: dict[str, list[Tensor | Int8Descriptors]] = {
            str(dtype): [Descriptors.of(codec.decode(data, *shape, dtype=dtype)) for data in stored]
            for dtype in sorted(floats, key=str, reverse=True)
        }
        for kind in ("int8 by torch", "int8 in C") if load_native() else ("int8 by torch",):
            made[kind] = [codec.decode_to_int8(data, *shape) for data in stored]

        def decode(kind: str, stored: list[bytes] = stored, shape: Any = shape) -> None:
            for data in stored:
                codec.decode_to_int8(data, *shape) if "int8" in kind else codec.decode(data, *shape, dtype=choose(kind))

        def score(symmetry: Symmetry, kind: str, query: Tensor = query, made: Any = made) -> Tensor:
            return pairwise(models[symmetry], [query], made[kind], dtype=choose(kind))[0]

        runs = [(symmetry, kind) for symmetry in models for kind in made]
        scores: dict[tuple[Symmetry, str], Tensor] = {}
        least: dict[tuple[Any, ...], float] = {}
        for _ in range(7):
            for symmetry, kind in runs:
                with without_native() if kind == "int8 by torch" else nullcontext():
                    mark = time.thread_time()
                    scores[symmetry, kind] = score(symmetry, kind)
                    held = time.thread_time() - mark
                    decode(kind)
                    for decoded, spent in ((False, held), (True, time.thread_time() - mark)):
                        key = (symmetry, kind, decoded)
                        least[key] = min(spent, least.get(key, spent))
        print(f"{frames} frames, pairs a second of one core: vectors held, decoded first; times float32; largest error")
        for symmetry, kind in runs:
            rates = [count / least[symmetry, kind, decoded] for decoded in (False, True)]
            times = [
                least[symmetry, "torch.float32", decoded] / least[symmetry, kind, decoded] for decoded in (False, True)
            ]
            error = (scores[symmetry, kind] - scores[symmetry, "torch.float32"]).abs().max().item()
            found = f"{rates[0]:8,.0f} {rates[1]:8,.0f}  x {times[0]:.2f} {times[1]:.2f}   {error:.1e}"
            print(f"  {WAYS[symmetry]:<9} {kind:<15} {found}")


def choose(kind: str) -> torch.dtype:
    """The precision that a row of `--stored` is scored in."""
    return torch.int8 if "int8" in kind else {"torch.float32": torch.float32, "torch.bfloat16": torch.bfloat16}[kind]


@contextmanager
def without_native() -> Iterator[None]:
    """As on a machine for which the library in C was not compiled."""
    with ExitStack() as stack:
        for module in (int8, codecs):
            stack.enter_context(mock.patch.object(module, "load_native", return_value=None))
        yield


def responsive(device: torch.device) -> VideoSimilarity:
    """HAP-VR's network with random weights, its last layer scaled so that psi's outputs fill [-1, 1]."""
    model = VideoSimilarity(SimilarityConfig()).to(device).eval()
    comparator = model.comparator
    assert comparator is not None
    with torch.no_grad():
        sample = video(200, device)
        raw = comparator(model.frame_matrix(sample, sample)[None])
        comparator.final.weight.mul_(0.5 / raw.std())
        assert comparator.final.bias is not None
        comparator.final.bias.sub_(raw.mean() * 0.5 / raw.std())
    return model


def plant(queries: list[Tensor], targets: list[Tensor]) -> None:
    """Put a noisy copy of each query into the target of the same number, so that some scores are high."""
    for query, target in zip(queries, targets, strict=False):
        frames = min(len(query), len(target))
        noisy = query[:frames] + 0.02 * torch.randn_like(query[:frames])
        target[:frames] = torch.nn.functional.normalize(noisy, dim=-1)


def make_packs(scorer: _Scorer, videos: list[Tensor], max_frames: int) -> list[_Pack]:
    return [scorer.pack(videos, group) for group in scorer.groups(videos, "videos", max_frames)]


def make_block(scorer: _Scorer, queries: list[Tensor], targets: list[Tensor]) -> tuple[_Pack, _Pack]:
    """The packs of one full block."""
    query = max(make_packs(scorer, queries, 5792), key=lambda pack: len(pack.order) * pack.mask.numel())
    some = make_packs(scorer, targets, scorer.cells // query.mask.numel())
    return query, some[len(some) // 2]


@torch.no_grad()
def compare_tiles(
    model: VideoSimilarity, queries: list[Tensor], targets: list[Tensor], report: Callable[[str, float], None]
) -> None:
    """TFLOP/s of Chamfer on one full block with other tiles, TMA and pointers; 0 where a tile does not fit."""
    from hapvr.similarity.kernels import chamfer

    tiles = {
        True: [
            *(chamfer.Tile(128, 128, 128, warps=8, stages=stages) for stages in (3, 4, 5, 6)),
            *(chamfer.Tile(128, 128, 256, warps=8, stages=stages) for stages in (2, 3)),
            chamfer.Tile(128, 128, 128, warps=8, stages=4, branch=True),
            chamfer.Tile(128, 128, 128, warps=8, stages=5, branch=True),
            chamfer.Tile(128, 64, 128, warps=8, stages=4),
            chamfer.Tile(64, 128, 128, warps=4, stages=3),
        ],
        False: [
            chamfer.Tile(128, 64, 128, warps=8, stages=3),
            chamfer.Tile(128, 128, 64, warps=8, stages=4),
            chamfer.Tile(128, 128, 128, warps=8, stages=3),
        ],
    }
    for dtype in (torch.bfloat16, torch.int8):
        scorer = _Scorer(model, dtype, None)
        query, target = make_block(scorer, queries, targets)
        operations = query.mask.numel() * target.mask.numel() * 81 * 512 * 2
        for tma, some in tiles.items():
            for tile in some:
                name = f"{dtype}, {'TMA' if tma else 'pointers'} {tuple(tile)}"
                with (
                    mock.patch.object(kernels, "use_tma", return_value=tma),
                    mock.patch.object(chamfer, "choose_tile", return_value=tile),
                ):
                    taken = seconds_if_it_fits(name, partial(scorer._frame_matrix, query, target))
                report(f"{name}, TFLOP/s", operations / taken / 1e12)


@torch.no_grad()
def compare_psi_tiles(
    model: VideoSimilarity, queries: list[Tensor], targets: list[Tensor], report: Callable[[str, float], None]
) -> None:
    """Microseconds a pair of psi on one full block, one of its kernels with another tile at a time."""
    from hapvr.similarity.kernels import psi

    scorer = _Scorer(model, torch.int8, None)
    query, target = make_block(scorer, queries, targets)
    pairs = len(query.order) * len(target.order)
    matrix, comparator = scorer._frame_matrix(query, target), model.comparator
    assert comparator is not None
    looped = {"LOOP": True, "num_stages": 3}
    others: list[tuple[int, dict[str, int]]] = [  # which kernel, its tile
        *((0, psi._tile(*shape)) for shape in ((1, 64, 4), (1, 128, 8))),
        (1, psi._tile(4, 16, 4)),
        *((2, {**psi._tile(*shape), **looped}) for shape in ((16, 16, 8), (8, 16, 8))),
        (2, psi._tile(8, 16, 4)),
    ]

    def measure(name: str, place: int, tile: dict[str, int]) -> None:
        tiles = [*psi._SCORING_TILES]
        tiles[place] = tile
        with mock.patch.object(psi, "_SCORING_TILES", tiles):
            work = partial(scorer._psi, comparator, matrix, query.mask, target.mask)
            report(f"psi, {name}, us a pair", seconds_if_it_fits(name, work) / pairs * 1e6)

    measure("as it is", 0, psi._SCORING_TILES[0])
    for place, tile in others:
        measure(f"{('_first', '_middle_by_rows', '_last')[place]} {tuple(tile.values())}", place, tile)


def seconds_if_it_fits(name: str, work: Callable[[], object]) -> float:
    """`seconds`, or infinity and a line that says why not."""
    try:
        return seconds(work)
    except Exception as error:  # Triton has several kinds for a tile that does not fit
        print(f"  {name}: {type(error).__name__}: {str(error)[:100]}", flush=True)
        return math.inf


# --- what the fused steps bring ------------------------------------------------------------------------------------


def place_step_by_step(
    scorer: _Scorer, videos: list[Tensor], places: Any, real: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Attention in float32 by torch, then codes, then gaps: four passes over the frames more than `_Scorer._place`."""
    from hapvr.similarity.kernels.frames import pack_frames

    frames, scales = scorer.make_all_descriptors(videos), None
    if scorer.dtype == torch.int8:
        frames, scales = pack_frames(frames, dtype=torch.int8)
    if places is not None:
        at = scorer._upload(places.clip(0))
        scales = None if scales is None else scales[at]
        frames = frames[at].masked_fill_(~real[:, None, None], 0)
    return frames, scales


def compare_way_by_way(scorer: _Scorer, query: _Pack, target: _Pack) -> Tensor:
    """The frame matrix with a launch for each direction, added up by torch."""
    from hapvr.similarity.kernels.chamfer import chamfer, chamfer_of_codes

    def one_way(one: _Pack, other: _Pack) -> Tensor:
        if one.scales is None or other.scales is None:
            return chamfer(one.frames, other.frames, remember=False)[0]
        return chamfer_of_codes(one.frames, one.scales, other.frames, other.scales)

    if not scorer.model.config.compares_regions_both_ways:
        return one_way(query, target)
    return (one_way(query, target) + one_way(target, query).T) / 2


OLD_STEPS: dict[str, Callable[..., Any]] = {  # of `_Scorer`
    "_place": place_step_by_step,
    "_prepare_psi": lambda _: None,  # psi's weights are prepared for each block, and its kernels are training's
    "_find_parts": lambda *_: None,  # cells are gathered and aggregated by torch
    "_frame_matrix": compare_way_by_way,
}


class Variant(NamedTuple):
    """`pairwise` in one precision, with some steps done as before."""

    name: str
    dtype: torch.dtype
    symmetry: Symmetry = "none"
    old: tuple[str, ...] = ()

    def score(self, model: VideoSimilarity, queries: list[Tensor], targets: list[Tensor]) -> Tensor:
        with ExitStack() as stack:
            for step in self.old:
                stack.enter_context(mock.patch.object(_Scorer, step, OLD_STEPS[step]))
            stack.enter_context(mock.patch.object(model, "config", replace(model.config, symmetry=self.symmetry)))
            return pairwise(model, queries, targets, dtype=self.dtype)


def make_variants() -> list[Variant]:
    every = tuple(OLD_STEPS)

    def without(step: str) -> tuple[str, ...]:
        return tuple(name for name in every if name != step)

    alone = {
        "frames packed in one pass": "_place",
        "psi prepared once, its fastest": "_prepare_psi",
        "time aggregated in one pass": "_find_parts",
    }
    variants = []
    for dtype, kind in ((torch.int8, "int8"), (torch.bfloat16, "bfloat16")):
        for symmetry, way in WAYS.items():
            variants.append(Variant(f"{way}, {kind}, as before", dtype, symmetry, every))
            variants.append(Variant(f"{way}, {kind}, all kernels", dtype, symmetry))
    variants += [Variant(f"int8, {name}", torch.int8, old=without(step)) for name, step in alone.items()]
    return variants


@torch.no_grad()
def sweep(
    model: VideoSimilarity,
    queries: list[Tensor],
    targets: list[Tensor],
    report: Callable[[str, float], None],
    *,
    deadline: float,
) -> None:
    """What the fused steps bring: median pairs a second over up to five turns, after one that compiles."""
    variants, few = make_variants(), targets[:100]
    exact = {way: Variant("", torch.float32, way).score(model, queries, few) for way in WAYS}
    rates: dict[str, list[float]] = {variant.name: [] for variant in variants}
    errors: dict[str, float] = {}
    for turn in range(6):
        if turn > 1 and time.perf_counter() > deadline:
            break
        for variant in variants:
            mark = time.perf_counter()
            scores = variant.score(model, queries, targets)  # on the CPU, so the GPU has been waited for
            if turn:
                rates[variant.name].append(scores.numel() / (time.perf_counter() - mark))
            else:
                errors[variant.name] = (scores[:, : len(few)] - exact[variant.symmetry]).abs().max().item()
    for name, measured in rates.items():
        report(f"{name}, pairs/s", statistics.median(measured))
        report(f"{name}, largest error", errors[name])


def split(model: VideoSimilarity, queries: list[Tensor], targets: list[Tensor], dtype: torch.dtype) -> dict[str, float]:
    """Microseconds a pair for each stage, on the packs of one full block, and the bare matrix product beside them."""
    scorer = _Scorer(model, dtype, None)
    with torch.no_grad():
        query, target = make_block(scorer, queries, targets)
        pairs = len(query.order) * len(target.order)
        cells = query.mask.numel() * target.mask.numel()
        matrix = scorer._frame_matrix(query, target)
        comparator = model.comparator
        assert comparator is not None
        # Sizes a library's product likes best, so that it is a ceiling: multiples of 256.
        q, t = (pack.frames.flatten(0, 1)[: pack.frames.shape[0] * 9 // 1024 * 1024] for pack in (query, target))
        if dtype == torch.int8:  # the bare product is that of bfloat16 for both
            q, t = q.to(torch.bfloat16), t.to(torch.bfloat16)
        out = torch.empty(len(q) // 4, len(t), device=q.device, dtype=q.dtype)

        def bare() -> None:
            for part in q.chunk(4):
                torch.mm(part, t.T, out=out)

        stages = {
            "bare product": bare,
            "chamfer": lambda: scorer._frame_matrix(query, target),
            "psi": lambda: scorer._psi(comparator, matrix, query.mask, target.mask),
            "whole block": lambda: scorer.score(query, target),
        }
        times = {name: seconds(stage) for name, stage in stages.items()}
        figures: dict[str, float] = {f"{name}, us a pair": time / pairs * 1e6 for name, time in times.items()}
        figures["bare product, TFLOP/s"] = len(q) * len(t) * 512 * 2 / times["bare product"] / 1e12
        figures["chamfer, TFLOP/s"] = cells * 81 * 512 * 2 / times["chamfer"] / 1e12
        figures["pack and describe, us a target"] = (
            1e6 * seconds(lambda: make_packs(scorer, targets, 5792)) / len(targets)
        )
    return figures


if __name__ == "__main__":
    main()
