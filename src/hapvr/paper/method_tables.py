"""Results of methods side by side: quality, cost, spread over seeds, and the paper's figures beside them.

    lines = read_method_results(["results"])      # JSON files of `hapvr evaluate --method NAME -o FILE`
    print(render(lines))

Figures are percentages. Of a method that was fitted with several seeds it is the mean, and the spread is half the
difference between its largest and its smallest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from hapvr.errors import DataError
from hapvr.methods.registry import list_methods
from hapvr.paper.tables import MISSING, find_paper_table
from hapvr.storage import StrPath

FORMATS = ("text", "markdown")
_PAPER = ("FIVR-200K DSVR mAP", "FIVR-200K DSVD uAP")  # columns of the paper's Table 1 that are shown
_HEADINGS = (
    "method", "original", "mAP", "uAP", "segment F1", "KB a minute", "pairs/s CPU", "pairs/s GPU", "fit, s", "seeds",
    "paper: DSVR mAP", "DSVD uAP",
)  # fmt: skip
Values: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class MethodLine:
    """What was measured of one method on one benchmark, a value for each seed."""

    name: str
    title: str
    benchmark: str
    features: str  # the model whose features all methods got
    settings: Mapping[str, Any]
    seeds: int
    figures: Mapping[str, Values]  # percentages: "mAP", "uAP", "segment F1" where there are
    bytes_per_minute: float
    pairs_per_s: Mapping[str, float]  # by kind of device, "cpu" and "cuda"
    fit_s: float
    fit_device: str
    supervised_original: bool
    paper: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        return {name: value for name, value in vars(self).items() if name != "paper"} | {
            "figures": {name: list(values) for name, values in self.figures.items()},
            "paper": dict(zip(_PAPER, self.paper, strict=True)),
        }


def read_method_results(folders: Iterable[StrPath]) -> list[MethodLine]:
    """One line for each method, benchmark and model of features of the JSON files in folders; others are skipped."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for path in sorted(path for folder in folders for path in Path(folder).glob("*.json")):
        record = _read(path)
        if record is not None:
            own = record["method"]
            found.setdefault((record["benchmark"], own["features"], own["name"]), []).append(record)
    if not found:
        raise DataError("There is no result of a method here: `hapvr evaluate --method NAME -o FILE.json` writes one.")
    lines = [_make_line(*key, records) for key, records in found.items()]
    return sorted(lines, key=lambda line: (line.benchmark, line.features, _order(line)))


def group_lines(lines: Sequence[MethodLine]) -> list[list[MethodLine]]:
    """Lines that can be compared: of the same benchmark and of the same features; pictures join any of a benchmark."""
    groups = []
    for _, group in groupby(lines, key=lambda line: line.benchmark):
        members = list(group)
        pictures = [line for line in members if _reads_pictures(line)]
        others = [line for line in members if line not in pictures]
        for _, same in groupby(others, key=lambda line: line.features):
            groups.append(sorted([*pictures, *same], key=_order))
        if not others:
            groups.append(pictures)
    return groups


def render(lines: Sequence[MethodLine], *, format: str = "text") -> str:
    """A table of methods for people, "text" or "markdown"."""
    rows = [_HEADINGS, *map(_format_line, lines)]
    if format == "markdown":
        cells = [f"| {' | '.join(row)} |" for row in rows]
        table = [cells[0], f"| {' | '.join(['---'] * len(_HEADINGS))} |", *cells[1:]]
    else:
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        table = [
            "  ".join(cell.ljust(width) if place < 2 else cell.rjust(width)
                      for place, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows
        ]  # fmt: skip
    of = {line.features for line in lines if not _reads_pictures(line)}
    devices = sorted({line.fit_device for line in lines if line.fit_device})
    notes = [
        f"{lines[0].benchmark}, features of {' and '.join(sorted(of)) or 'pictures'}; figures in %, mean over "
        "seeds ± half the range. All methods learn from the same edited copies; 'labels' marks originals that learn "
        "from labels.",
        f"Fitted on: {', '.join(devices)}." if devices else "",
    ]
    return "\n".join([*table, "", *(note for note in notes if note)])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"'{path}' cannot be read as JSON: {error}.") from error
    return record if isinstance(record, dict) and isinstance(record.get("method"), dict) else None


def _make_line(benchmark: str, features: str, name: str, records: list[dict[str, Any]]) -> MethodLine:
    first = records[0]["method"]
    seeds = [(record["method"].get("fit") or {}).get("seed", 0) for record in records]
    if len(set(seeds)) != len(seeds):
        raise DataError(f"{first['title']} has two results of one seed on {benchmark}. Keep one of them in the folder.")
    if any(record["method"]["settings"] != first["settings"] for record in records):
        raise DataError(f"{first['title']} has results of different settings on {benchmark}. Keep those of one.")
    figures: dict[str, Values] = {}
    for figure in ("mAP", "uAP"):
        values = [
            100 * task["overall"]["value"]
            for record in records
            for task in record["results"]
            if task["task"]["figure"] == figure
        ]
        if len(values) == len(records):
            figures[figure] = tuple(values)
    overall = [(record.get("segments") or {}).get("") for record in records]
    if all(one is not None and one["f1"] is not None for one in overall):
        figures["segment F1"] = tuple(100 * one["f1"] for one in overall if one is not None)
    fits = [fit for record in records if (fit := record["method"].get("fit"))]
    speeds: dict[str, list[float]] = {}
    for record in records:
        for speed in record["method"]["speeds"]:
            speeds.setdefault(speed["kind"], []).append(speed["pairs_per_s"])
    cls = list_methods().get(name)
    table = find_paper_table("methods")
    paper: tuple[float | None, ...] = (None,) * len(_PAPER)
    if cls is not None and cls.paper_line:
        columns = [str(column) for column in table.columns]
        paper = tuple(table.line(cls.paper_line).figures[columns.index(column)] for column in _PAPER)
    return MethodLine(
        name=name,
        title=first["title"],
        benchmark=benchmark,
        features=features,
        settings=first["settings"],
        seeds=len(records),
        figures=figures,
        bytes_per_minute=mean(record["method"]["bytes_per_minute"] for record in records),
        pairs_per_s={kind: mean(values) for kind, values in speeds.items()},
        fit_s=mean(fit["seconds"] for fit in fits) if fits else 0.0,
        fit_device=fits[0]["device"] if fits and fits[0]["steps"] else "",
        supervised_original=cls is not None and cls.supervised_original,
        paper=paper,
    )


def _reads_pictures(line: MethodLine) -> bool:
    cls = list_methods().get(line.name)
    return cls is not None and cls.reads == "pictures"


def _order(line: MethodLine) -> tuple[int, bool, str]:
    """As the paper's Table 1 has them, each followed by its variants; others, by name, before them."""
    keys = [one.keys[0] for one in find_paper_table("methods").lines]
    places = {name: keys.index(cls.paper_line) for name, cls in list_methods().items() if cls.paper_line in keys}
    family = [place for name, place in places.items() if name.partition("-")[0] == line.name.partition("-")[0]]
    return places.get(line.name, max(family, default=-1)), line.name not in places, line.name


def _format_line(line: MethodLine) -> tuple[str, ...]:
    figures = [_format_values(line.figures.get(name)) for name in ("mAP", "uAP", "segment F1")]
    speeds = [f"{speed:,.0f}" if (speed := line.pairs_per_s.get(kind)) else MISSING for kind in ("cpu", "cuda")]
    fit = f"{line.fit_s:.0f}" if line.fit_s else MISSING
    original = "labels" if line.supervised_original else "no labels"
    paper = [MISSING if value is None else f"{value:.1f}" for value in line.paper]
    size = f"{line.bytes_per_minute / 1000:,.1f}"
    return (line.title, original, *figures, size, *speeds, fit, str(line.seeds), *paper)


def _format_values(values: Values | None) -> str:
    if not values:
        return MISSING
    spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"
