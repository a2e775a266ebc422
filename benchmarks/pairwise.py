"""Scoring many videos against many: pairs a second, distance from the float32 scores, and where the time goes.

    python benchmarks/pairwise.py            # on a GPU where there is one, else a smaller run on the CPU
    python benchmarks/pairwise.py --stored   # on one core of the CPU, `lite`: one query with the videos of a library
    python benchmarks/pairwise.py --tiles    # on a GPU: Chamfer alone with other tiles, TFLOP/s by precision
    python benchmarks/pairwise.py --sweep    # on a GPU: what each of the fused steps brings, in turns; some 90 seconds

On a GPU bfloat16 and int8 take turns, so that their ratio is of one run; `plain kernels` are those for
GPUs before Hopper, forced here (HAPVR_KERNELS=plain does the same).

Baselines in the same run: `one pair at a time` is VideoSimilarity.score in a float32 loop, `plain torch` is the same
packed work in half precision without the fused kernels, `bare product` the region products alone as one matrix
product, nothing reduced.

`--sweep`: psi alone with other tiles on one block; then `pairwise` with steps done as they were before there were
kernels for them (`OLD_STEPS`), with each kernel alone and with all, one way and both ways, against float32.

`--stored`: videos of equal length, vectors held or decoded from a library's bytes (int3), by precision, scored one way
and both ways. They take turns and the least CPU time of each counts, so that a busy machine changes the figures little.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast
from unittest import mock

import torch
from torch import Tensor

from hapvr.library.codecs import DEFAULT, get_codec
from hapvr.model import load
from hapvr.similarity import Descriptors, SimilarityConfig, VideoSimilarity, kernels, pairwise
from hapvr.similarity.comparator import Comparator
from hapvr.similarity.int8 import Int8Descriptors
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
    parser.add_argument("--tiles", action="store_true", help="Chamfer alone with other tiles, on a GPU")
    parser.add_argument("--sweep", action="store_true", help="what each fused step brings, on a GPU")
    parser.add_argument("--seconds", type=float, default=85.0, help="after which --sweep begins nothing more")
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
        print(f"  {name:<36} {value:12,.0f}" if value >= 1000 else f"  {name:<36} {value:12.4g}", flush=True)

    def rate(dtype: torch.dtype, chosen: list[Tensor], *, repeats: int) -> float:
        return (
            len(queries) * len(chosen) / seconds(lambda: pairwise(model, queries, chosen, dtype=dtype), repeats=repeats)
        )

    half = torch.bfloat16
    if gpu and arguments.tiles:
        compare_tiles(model, queries, targets, report)
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
        made: dict[torch.dtype, list[Tensor | Int8Descriptors]] = {
            dtype: [Descriptors.of(codec.decode(data, *shape, dtype=dtype)) for data in stored]
            for dtype in (torch.float32, torch.bfloat16)
        }
        made[torch.int8] = [codec.decode_to_int8(data, *shape) for data in stored]

        def decode(dtype: torch.dtype, stored: list[bytes] = stored, shape: Any = shape) -> None:
            for data in stored:
                codec.decode_to_int8(data, *shape) if dtype == torch.int8 else codec.decode(data, *shape, dtype=dtype)

        runs = [(symmetry, dtype) for symmetry in models for dtype in made]
        scores = {(one, dtype): pairwise(models[one], [query], made[dtype], dtype=dtype)[0] for one, dtype in runs}
        least: dict[tuple[Any, ...], float] = {}
        for _ in range(7):
            for symmetry, dtype in runs:
                mark = time.thread_time()
                pairwise(models[symmetry], [query], made[dtype], dtype=dtype)
                held = time.thread_time() - mark
                decode(dtype)
                for decoded, spent in ((False, held), (True, time.thread_time() - mark)):
                    key = (symmetry, dtype, decoded)
                    least[key] = min(spent, least.get(key, spent))
        print(f"{frames} frames, pairs a second of one core: vectors held, vectors decoded first; largest error")
        for symmetry, dtype in runs:
            rates = [count / least[symmetry, dtype, decoded] for decoded in (False, True)]
            error = (scores[symmetry, dtype] - scores[symmetry, torch.float32]).abs().max().item()
            print(f"  {WAYS[symmetry]:<9} {dtype!s:<16} {rates[0]:8,.0f} {rates[1]:8,.0f}   {error:.1e}")


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
                    try:
                        taken = seconds(partial(scorer._frame_matrix, query, target))
                    except Exception as error:  # Triton has several kinds for a tile that does not fit
                        print(f"  {name}: {type(error).__name__}: {str(error)[:100]}")
                        taken = math.inf
                report(f"{name}, TFLOP/s", operations / taken / 1e12)


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
    "_prepare_psi": lambda _: None,  # psi's weights are prepared for each block
    "_find_parts": lambda *_: None,  # cells are gathered and aggregated by torch
    "_frame_matrix": compare_way_by_way,
}


class Variant(NamedTuple):
    """`pairwise` in one precision, with some steps done as before."""

    name: str
    dtype: torch.dtype
    symmetry: Symmetry = "none"
    old: tuple[str, ...] = ()
    cells: int | None = None
    psi: tuple[Any, dict[str, Any]] | None = None  # tiles, and arguments of `prepare`

    def score(self, model: VideoSimilarity, queries: list[Tensor], targets: list[Tensor]) -> Tensor:
        with ExitStack() as stack:
            for step in self.old:
                stack.enter_context(mock.patch.object(_Scorer, step, OLD_STEPS[step]))
            if self.psi is not None:
                from hapvr.similarity.kernels import psi

                tiles, options = self.psi

                def prepare(scorer: _Scorer) -> list[Tensor]:
                    return psi.prepare(cast(Comparator, model.comparator), scorer.psi_dtype, **options)

                stack.enter_context(mock.patch.object(psi, "_choose_tiles", return_value=tiles))
                stack.enter_context(mock.patch.object(_Scorer, "_prepare_psi", prepare))
            stack.enter_context(mock.patch.object(model, "config", replace(model.config, symmetry=self.symmetry)))
            return pairwise(model, queries, targets, dtype=self.dtype, max_cells=self.cells)


def make_variants(psi: tuple[Any, dict[str, Any]] | None) -> list[Variant]:
    every = tuple(OLD_STEPS)

    def without(step: str) -> tuple[str, ...]:
        return tuple(name for name in every if name != step)

    int8, half = torch.int8, torch.bfloat16
    return [
        Variant("int8, as before", int8, old=every),
        Variant("int8, all kernels", int8),
        Variant("int8, all, fastest psi", int8, psi=psi),
        Variant("bfloat16, as before", half, old=every),
        Variant("bfloat16, all kernels", half),
        Variant("bfloat16, all, fastest psi", half, psi=psi),
        Variant("both ways, int8, as before", int8, "lengths", old=every),
        Variant("both ways, int8, all kernels", int8, "lengths"),
        Variant("int8, all, blocks of 2^26 cells", int8, cells=1 << 26),
        Variant("int8, frames packed in one pass", int8, old=without("_place")),
        Variant("int8, psi's weights prepared once", int8, old=without("_prepare_psi")),
        Variant("int8, time aggregated in one pass", int8, old=without("_find_parts")),
        Variant("both ways, bfloat16, as before", half, "lengths", old=every),
        Variant("both ways, bfloat16, all kernels", half, "lengths"),
    ]


@torch.no_grad()
def sweep(
    model: VideoSimilarity,
    queries: list[Tensor],
    targets: list[Tensor],
    report: Callable[[str, float], None],
    *,
    deadline: float,
) -> None:
    """What each fused step brings. A variant that fails is named and left out."""
    variants = make_variants(attempt("psi", partial(compare_psi, model, queries, targets, report, deadline - 50)))
    few = targets[:100]
    exact = {way: Variant("", torch.float32, way).score(model, queries, few) for way in WAYS}
    errors: dict[str, float] = {}
    times: dict[str, list[float]] = {}
    for turn in range(5):
        for variant in variants:
            # The first turn compiles, and leaves time for one that counts.
            if time.perf_counter() > deadline - (25 if turn == 0 else 0) or (turn and variant.name not in times):
                continue
            mark = time.perf_counter()
            scores = attempt(variant.name, partial(variant.score, model, queries, targets))
            taken = time.perf_counter() - mark  # scores arrive on the CPU, so the GPU has been waited for
            if scores is None:
                times.pop(variant.name, None)
            elif turn == 0:  # compiles
                errors[variant.name] = (scores[:, : len(few)] - exact[variant.symmetry]).abs().max().item()
                times[variant.name] = []
            else:
                times[variant.name].append(taken)
    print(f"  {'':<36} {'pairs/s: median':>16} {'best':>10} {'turns':>6} {'largest error':>14}")
    for variant in variants:
        if variant.name not in times:
            print(f"  {variant.name}: failed or not reached")
    for name, spent in times.items():
        pairs = len(queries) * len(targets)
        rates = [pairs / one for one in spent] or [math.nan]
        print(
            f"  {name:<36} {statistics.median(rates):16,.0f} {max(rates):10,.0f} {len(spent):6} {errors[name]:14.1e}",
            flush=True,
        )


def compare_psi(
    model: VideoSimilarity,
    queries: list[Tensor],
    targets: list[Tensor],
    report: Callable[[str, float], None],
    deadline: float,
) -> tuple[Any, dict[str, Any]]:
    """Microseconds a pair of psi on one full block, one of its kernels changed at a time; gives the fastest three."""
    from hapvr.similarity.kernels import psi

    scorer = _Scorer(model, torch.int8, None)
    query, target = make_block(scorer, queries, targets)
    pairs = len(query.order) * len(target.order)
    matrix, comparator = scorer._frame_matrix(query, target), model.comparator
    assert comparator is not None
    tiles = list(psi._choose_tiles())
    looped = {"LOOP": 1, "num_stages": 3}
    others: list[tuple[int, dict[str, int], dict[str, Any]]] = [  # which kernel, its tile, arguments of `prepare`
        *((0, tile, {"first": torch.float16}) for tile in (tiles[0], psi._tile(1, 128, 8), psi._tile(1, 128, 4))),
        (0, psi._tile(1, 128, 8), {}),
        *((1, tile, {"by_rows": True}) for tile in (psi._tile(4, 16, 4), psi._tile(8, 16, 8))),
        (1, psi._tile(8, 16, 8), {}),
        *((2, {**psi._tile(*shape), **looped}, {}) for shape in ((16, 16, 8), (8, 16, 8), (8, 16, 4))),
        *((2, tile, {}) for tile in (psi._tile(16, 16, 8), psi._tile(8, 16, 8))),
    ]

    def measure(tiles: list[dict[str, int]], options: dict[str, Any]) -> float:
        scorer.prepared = psi.prepare(comparator, scorer.psi_dtype, **options)
        with mock.patch.object(psi, "_choose_tiles", return_value=tuple(tiles)):
            taken = seconds(partial(scorer._psi, comparator, matrix, query.mask, target.mask), repeats=7, warm_up=2)
        return taken / pairs * 1e6

    default = measure(tiles, {})
    report("psi, us a pair", default)
    fastest: list[tuple[float, dict[str, int], dict[str, Any]]] = [(default, tile, {}) for tile in tiles]
    for place, tile, options in others:
        if time.perf_counter() > deadline:
            break
        name = " ".join([("_first", "_middle", "_last")[place], str(tuple(tile.values())), *options])
        taken = attempt(name, partial(measure, [*tiles[:place], tile, *tiles[place + 1 :]], options))
        if taken is None:
            continue
        report(f"psi, {name}", taken)
        if taken < min(0.99 * default, fastest[place][0]):  # within a hundredth the choice would be noise
            fastest[place] = taken, tile, options
    best = tuple(tile for _, tile, _ in fastest), {key: one[2][key] for one in fastest for key in one[2]}
    print(f"  fastest psi: {best}")
    return best


def attempt(name: str, work: Callable[[], Any]) -> Any:
    """What `work` gives, or None and a line that says why not."""
    try:
        return work()
    except Exception as error:  # Triton has several kinds for a tile that does not fit
        print(f"  {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None


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
