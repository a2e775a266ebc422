"""What a collection needs: storage, memory, processor time, machines, money. Arithmetic alone, nothing is measured.

Rates come from a file of `hapvr bench --json` (`read_rates`), what an index of candidates costs from
benchmarks/scale.py (`CandidateCosts`). Every quantity of a plan carries the formula that it was computed by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from hapvr.bench.estimate import (
    compute_scoring,
    compute_segments_slope,
    fit_pair_cost,
    format_bytes,
    format_duration,
    round_figure,
)
from hapvr.bench.formulas import evaluate, list_names
from hapvr.bench.plan_rates import SAMPLE, Prices, Rates
from hapvr.config import CheckedConfig, Within
from hapvr.errors import ConfigError

FORMAT = 1
"""Of the JSON; a field that changes its meaning changes it."""
_ABOVE_0 = Within(1e-9)
_DRAWN_VECTORS_PER_FRAME = 0.78  # of the drawn videos of `hapvr bench`


@dataclass(frozen=True)
class Collection(CheckedConfig):
    """What is planned for."""

    videos: Annotated[int, Within(1)]
    minutes: Annotated[float, _ABOVE_0] = 5.0  # of a video
    queries_per_s: Annotated[float, Within(0)] = 1.0
    days: Annotated[float, _ABOVE_0] = 30.0  # within which all videos are indexed


@dataclass(frozen=True)
class MachineKind(CheckedConfig):
    """A machine that is bought or rented; a disk of 0 is one that is never full, such as an object store."""

    cores: Annotated[int, Within(1)]
    memory_gb: Annotated[float, _ABOVE_0]
    disk_gb: Annotated[float, Within(0)] = 0.0
    max_load: Annotated[float, Within(0.01, 1)] = 0.7  # share of its cores and memory that is planned with
    max_shard_videos: Annotated[int, Within(0)] = 0  # of one library; 0: as many as fit


@dataclass(frozen=True)
class CandidateCosts:
    """What finding candidates costs: measured by benchmarks/scale.py on the machine of `REFERENCE` (docs/scale.md)."""

    vectors_per_frame: float = 0.43  # of real videos
    partition_vectors: int = 4096  # of the index
    probes: int = 150  # partitions that a search looks through
    query_vectors: float = 17.2  # of a query of 20 frames
    index_bytes_per_vector: float = 48.0  # on disk
    memory_bytes_per_vector: float = 230.0
    memory_bytes_per_video: float = 2100.0  # records
    memory_process_bytes: float = 1.5e9  # the model, libraries, stored videos that a server keeps
    lookup_s_per_vector: float = 1.15e-8  # of a core, to estimate a similarity
    build_s_per_vector: float = 9e-6  # of a core
    build_s_per_product: float = 1e-6  # of a core: each vector with the centre of each partition


@dataclass(frozen=True)
class Quantity:
    """A figure of a plan. `formula` is an expression of the names of others; empty for what is given or measured."""

    name: str
    value: float
    unit: str
    basis: str  # "given", "measured" or "arithmetic"
    formula: str = ""


@dataclass(frozen=True)
class Plan:
    """All quantities, in the order in which they were computed, and what each stage would fill."""

    rates: Rates
    quantities: tuple[Quantity, ...]
    stages: Mapping[str, float]  # stage -> machines that it would fill; the largest first
    currency: str

    @property
    def first(self) -> str:
        """The stage that saturates first as the collection or its use grows."""
        return next(iter(self.stages))

    def __getitem__(self, name: str) -> float:
        return next(one.value for one in self.quantities if one.name == name)

    def to_json(self) -> dict[str, Any]:
        """What `hapvr plan --json` prints; docs/scale.md says what it means."""
        about = {name: getattr(self.rates, name) for name in ("machine", "model", "film")}
        return {
            "format": FORMAT,
            "measured_on": about,
            "quantities": [asdict(one) for one in self.quantities],
            "stages": dict(self.stages),
            "saturates_first": self.first,
            "currency": self.currency,
        }


# --- the plan --------------------------------------------------------------------------------------------------------

_AMOUNTS = [
    ("video_s", "s", "videos * minutes * 60"),
    ("frames", "", "video_s * frames_per_video_s"),
    ("vectors", "", "frames * vectors_per_frame"),
    ("video_bytes", "bytes", "video_s * megabits_per_s * 1e6 / 8"),
    ("library_bytes", "bytes", "frames * bytes_per_frame + vectors * index_bytes_per_vector"),
    ("memory_bytes", "bytes", "videos * memory_bytes_per_video + vectors * memory_bytes_per_vector"),
    ("usable_memory_bytes", "bytes", "memory_gb * 1e9 * max_load - memory_process_bytes"),
]
_SHARDS = ("shards_by_memory", "", "ceil(memory_bytes / usable_memory_bytes)")
_SHARDS_BY_DISK = ("shards_by_disk", "", "ceil(library_bytes / disk_gb / 1e9)")
_SHARDS_BY_SIZE = ("shards_by_size", "", "ceil(videos / max_shard_videos)")
_READ = ("read_core_h", "core-hours", "video_s / index_video_per_s * measured_cores / 3600")
_DECODE = ("decode_core_h", "core-hours", "min(read_core_h, video_s / decode_video_per_s * measured_cores / 3600)")
_DESCRIBE = ("describe_core_h", "core-hours", "read_core_h - decode_core_h")
_DESCRIBE_BY_GPU = ("gpu_h", "GPU-hours", "frames / gpu_pictures_per_s / 3600")
_INDEXING = [
    ("write_core_h", "core-hours", "frames / write_frames_per_s * measured_cores / 3600"),
    ("products", "", "vectors * vectors / shards / partition_vectors"),  # of a vector with the centre of a partition
    ("build_core_h", "core-hours", "(vectors * build_s_per_vector + products * build_s_per_product) / 3600"),
]
_INDEX_TOTAL = ("index_core_h", "core-hours", "read_core_h + write_core_h + build_core_h")
_INDEX_TOTAL_BY_GPU = ("index_core_h", "core-hours", "decode_core_h + write_core_h + build_core_h")
_SEARCHING = [
    ("index_machines", "machines", "ceil(index_core_h / (cores * max_load * 24 * days))"),
    ("shard_videos", "", "ceil(videos / shards)"),
    ("cells", "", "query_frames * frames / videos"),  # of the matrix of the query's frames with a video's
    ("exact_s", "s", "exact_pairs(shard_videos) * (pair_s + cell_s * cells)"),
    ("rough_s", "s", "rough_pairs(shard_videos) * (pair_s + cell_s * cells / 9)"),
    ("stretches_s", "s", "max(0, measured_stretches_s + stretches_cell_s * (cells - measured_cells))"),
    ("scanned", "", "min(vectors / shards, probes * partition_vectors)"),
    ("lookup_s", "s", "query_vectors * scanned * lookup_s_per_vector"),
    ("search_s", "s", "lookup_s + rough_s + exact_s + stretches_s + other_s"),
    ("search_p95_s", "s", "search_s * measured_p95_s / measured_p50_s"),
    ("query_machines", "machines", "queries_per_s * search_s * shards * measured_cores / (cores * max_load)"),
    ("serving_bytes", "bytes", "memory_bytes + shards * memory_process_bytes"),  # a process a shard
    ("memory_machines", "machines", "serving_bytes / (memory_gb * 1e9 * max_load)"),
]
_DISK_MACHINES = "library_bytes / disk_gb / 1e9"
_SEARCH_MACHINES = ("search_machines", "machines", "ceil(max(query_machines, memory_machines))")
_SEARCH_MACHINES_BY_DISK = (*_SEARCH_MACHINES[:2], f"ceil(max(query_machines, memory_machines, {_DISK_MACHINES}))")
_MACHINE_MONEY = [
    ("index_cost", "index_core_h / (cores * max_load) * machine_hour"),
    ("search_cost_month", "search_machines * 730 * machine_hour"),
]
_GPU_MONEY = ("gpu_cost", "gpu_h * gpu_hour")
_STORAGE_MONEY = ("storage_cost_month", "library_bytes / 1e9 * storage_gb_month")
_MONEY = frozenset(name for name, _ in (*_MACHINE_MONEY, _GPU_MONEY, _STORAGE_MONEY))
# Machines that a stage would fill.
_INDEX_HOURS = "cores * max_load * 24 * days"
_QUERY_CORES = "queries_per_s * shards * measured_cores / (cores * max_load)"
_STAGES = [
    ("decode", f"decode_core_h / ({_INDEX_HOURS})"),
    ("decode and describe", f"read_core_h / ({_INDEX_HOURS})"),
    ("describe", f"describe_core_h / ({_INDEX_HOURS})"),
    ("describe (GPUs)", "gpu_h / (24 * days)"),
    ("write", f"write_core_h / ({_INDEX_HOURS})"),
    ("build the index", f"build_core_h / ({_INDEX_HOURS})"),
    ("search: look up", f"lookup_s * {_QUERY_CORES}"),
    ("search: score", f"(rough_s + exact_s) * {_QUERY_CORES}"),
    ("search: stretches", f"stretches_s * {_QUERY_CORES}"),
    ("search: the rest", f"other_s * {_QUERY_CORES}"),
    ("memory", "memory_machines"),
    ("disk", _DISK_MACHINES),
]


def make_plan(
    collection: Collection,
    rates: Rates,
    *,
    machine: MachineKind,
    prices: Prices = Prices(),  # noqa: B008 - frozen
    gpu_pictures_per_s: float | None = None,
    costs: CandidateCosts = CandidateCosts(),  # noqa: B008 - frozen
) -> Plan:
    """What a collection needs, on machines of one kind.

    A search takes as long as on the machine that was measured; one with more cores does more of them at once. If the
    memory or the disk of one machine is too small, or `max_shard_videos` are fewer, the collection is divided into
    equal shards, each a library of its own that answers every query; several may share a machine. With
    `gpu_pictures_per_s` frames are described by GPUs of that rate and the cores decode.
    """
    by_gpu, apart = gpu_pictures_per_s is not None, rates.decode_video_per_s is not None
    if by_gpu and not 0 < gpu_pictures_per_s < math.inf:  # type: ignore[operator]
        raise ConfigError(f"gpu_pictures_per_s must be above 0, got {gpu_pictures_per_s}.")
    if by_gpu and not apart:
        raise ConfigError(f"gpu_pictures_per_s needs a kind of film: of '{SAMPLE}' decoding was not measured apart.")
    if machine.memory_gb * 1e9 * machine.max_load <= costs.memory_process_bytes:
        raise ConfigError(
            f"A machine of {machine.memory_gb:g} GB is too small: a process takes "
            f"{format_bytes(costs.memory_process_bytes)}, and {machine.max_load:.0%} of the memory are planned with."
        )
    given = asdict(collection) | asdict(machine)
    if by_gpu:
        given["gpu_pictures_per_s"] = gpu_pictures_per_s
    priced = {name: value for name, value in asdict(prices).items() if name != "currency" and value}
    found = [Quantity(name, value, _UNITS.get(name, ""), "given") for name, value in given.items()]
    found += [Quantity(name, value, prices.currency, "given") for name, value in priced.items()]
    found += [
        Quantity(name, value, _UNITS.get(name, ""), "measured")
        for name, value in _list_constants(rates, costs).items()
        if value is not None
    ]
    limits = [_SHARDS, *([_SHARDS_BY_DISK] if machine.disk_gb else [])]
    limits += [_SHARDS_BY_SIZE] if machine.max_shard_videos else []
    formulas = [*_AMOUNTS, *limits, ("shards", "", f"max({', '.join(name for name, *_ in limits)}, 1)"), _READ]
    formulas += [_DECODE] if apart else []
    formulas += [_DESCRIBE_BY_GPU] if by_gpu else [_DESCRIBE] if apart else []
    formulas += [*_INDEXING, _INDEX_TOTAL_BY_GPU if by_gpu else _INDEX_TOTAL, *_SEARCHING]
    formulas += [_SEARCH_MACHINES_BY_DISK if machine.disk_gb else _SEARCH_MACHINES]
    money = [*(_MACHINE_MONEY if prices.machine_hour else []), *([_GPU_MONEY] if by_gpu and prices.gpu_hour else [])]
    money += [_STORAGE_MONEY] if prices.storage_gb_month else []
    formulas += [(name, prices.currency, formula) for name, formula in money]
    values = {one.name: one.value for one in found}
    for name, unit, formula in formulas:
        values[name] = evaluate(formula, values)
        found.append(Quantity(name, values[name], unit, "arithmetic", formula))
    left_out = {"decode and describe" if apart else "", "" if machine.disk_gb else "disk"}
    filled = {
        name: evaluate(formula, values)
        for name, formula in _STAGES
        if name not in left_out and list_names(formula) <= values.keys()
    }
    stages = dict(sorted(filled.items(), key=lambda item: -item[1]))
    return Plan(rates, tuple(found), stages, prices.currency)


_UNITS = {
    "minutes": "minutes",
    "queries_per_s": "a second",
    "days": "days",
    "memory_gb": "GB",
    "disk_gb": "GB",
    "gpu_pictures_per_s": "a second",
    "megabits_per_s": "Mb/s",
    "index_video_per_s": "s/s",
    "decode_video_per_s": "s/s",
    "write_frames_per_s": "a second",
    **dict.fromkeys(["bytes_per_frame", "index_bytes_per_vector", "memory_bytes_per_vector"], "bytes"),
    **dict.fromkeys(["memory_bytes_per_video", "memory_process_bytes"], "bytes"),
    **dict.fromkeys(["pair_s", "cell_s", "other_s", "measured_stretches_s", "stretches_cell_s"], "s"),
    **dict.fromkeys(["measured_p50_s", "measured_p95_s", "lookup_s_per_vector"], "s"),
    **dict.fromkeys(["build_s_per_vector", "build_s_per_product"], "core-s"),
}


def _list_constants(rates: Rates, costs: CandidateCosts) -> dict[str, float | None]:
    """Measured values, by the names that formulas use."""
    then = rates.search
    pair = fit_pair_cost({one.frames: one.pairs_per_s for one in rates.scores})
    cells = then.query_frames * then.video_frames
    vectors = then.videos * then.video_frames * _DRAWN_VECTORS_PER_FRAME
    lookup_s = costs.query_vectors * costs.lookup_s_per_vector * min(vectors, costs.probes * costs.partition_vectors)
    scoring_s = compute_scoring(then.videos, cells=cells, cost=pair)
    return {
        "measured_cores": rates.cores,
        "megabits_per_s": rates.megabits_per_s,
        "frames_per_video_s": rates.frames_per_video_s,
        "decode_video_per_s": rates.decode_video_per_s,
        "index_video_per_s": rates.index_video_per_s,
        "write_frames_per_s": rates.write_frames_per_s,
        "bytes_per_frame": rates.bytes_per_frame,
        **asdict(costs),
        "query_frames": then.query_frames,
        "pair_s": pair.fixed_s,
        "cell_s": pair.per_cell_s,
        "measured_cells": cells,
        "measured_stretches_s": then.segments_s,
        "stretches_cell_s": compute_segments_slope(rates.scores),
        "other_s": max(0.0, then.candidates_s + then.score_s - scoring_s - lookup_s),
        "measured_p50_s": then.p50_s,
        "measured_p95_s": then.p95_s,
    }


# --- text ------------------------------------------------------------------------------------------------------------


def format_plan(plan: Plan) -> list[str]:
    """What `hapvr plan` prints: a summary, a line a quantity with its formula, and what each stage would fill."""
    rates = plan.rates
    lines = [f"Measured on {rates.machine}; model '{rates.model}', {rates.film}.", "", *_summarize(plan), ""]
    names, values = [one.name for one in plan.quantities], [format_value(one) for one in plan.quantities]
    wide, right = max(map(len, names)), max(map(len, values))
    lines.append("How it was computed:")
    for one, value in zip(plan.quantities, values, strict=True):
        lines.append(f"  {one.name:{wide}}  {value:>{right}}  {f'= {one.formula}' if one.formula else one.basis}")
    lines += ["", "Machines that each stage would fill; the first saturates first:"]
    lines += [f"  {name:{wide}}  {round_figure(share):,g}" for name, share in plan.stages.items()]
    return lines


def _summarize(plan: Plan) -> list[str]:
    """The answers that most people look for, by the names of the quantities that they come from."""
    shown = {one.name: format_value(one) for one in plan.quantities}
    rows = [
        ("to index", f"{shown['index_core_h']}: {shown['index_machines']} for {shown['days']}"),
        ("on disk", shown["library_bytes"]),
        ("memory to search", shown["serving_bytes"]),
        ("a search", f"{shown['search_s']}, p95 {shown['search_p95_s']}"),
        (f"searches, {shown['queries_per_s']}", shown["search_machines"]),
        *((one.name.replace("_", " "), shown[one.name]) for one in plan.quantities if one.name in _MONEY),
        ("saturates first", plan.first),
    ]
    wide = max(len(name) for name, _ in rows)
    return [f"{shown['videos']} videos of {shown['minutes']}:", *(f"  {name:{wide}}  {value}" for name, value in rows)]


def format_value(one: Quantity) -> str:
    """The value of a quantity in its unit.

    >>> format_value(Quantity("library_bytes", 2.3e12, "bytes", "arithmetic"))
    '2.3 TB'
    """
    if one.unit == "bytes":
        return format_bytes(one.value)
    if one.unit == "s" and one.value >= 0.001:
        return format_duration(one.value)
    exact = one.basis == "given" or float(one.value).is_integer()
    number = f"{one.value:,g}" if exact and one.value < 1e6 else f"{one.value:,.0f}" if exact else ""
    return f"{number or f'{round_figure(one.value, 3):,g}'} {one.unit}".rstrip()
