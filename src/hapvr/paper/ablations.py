"""The paper's ablations from one feature bank: `ablate` trains every line of a table with several seeds and measures.

    python -m hapvr.paper.ablations table3 small data.frames=packed --benchmark tune=tune.h5,ground_truth.json

needs torch, numpy, safetensors and Pillow alone (HDF5 features need h5py; files of `ValidationSet.save` do not), and is
what `hapvr ablate` does. Finished runs are kept in RUN/ablations (see `ablation_store`), so that a study can continue.

k_t takes part in training only through K', the number of columns that are kept of those a training clip has. Lines that
differ in k_t alone and have the same K' there are the same training problem; with `share_training` it is solved once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hapvr.errors import ConfigError, DataError, HapvrError
from hapvr.model import load
from hapvr.paper.ablation_store import Store
from hapvr.paper.ablation_tables import FORMATS, MEASURES, AblationLine, AblationTable, Figure, render
from hapvr.paper.compilations import make_compilations
from hapvr.paper.studies import NOTES, STUDIES, Row, count_kept, plan_rows, study_tables
from hapvr.paper.tables import PaperTable
from hapvr.storage import sha256_bytes
from hapvr.training.bank import Bank, make_bank
from hapvr.training.config import LossesConfig, TrainConfig, ValidationConfig
from hapvr.training.recipe_files import add_new_settings, list_recipes, load_config, to_table
from hapvr.training.run import train_from_bank
from hapvr.training.run_folder import Report, read_versions
from hapvr.training.run_parts import build_encoder, build_network, load_clips
from hapvr.training.sources import draw_videos
from hapvr.training.validation import ValidationSet, load_validation_set

LONG = 400  # frames of a compilation, where TopK keeps several columns
_ROUNDS = 4  # compilations that each target is part of
_TRAINED_BY = ("data", "views", "model", "similarity", "teacher", "losses", "optimiser", "schedule")


def ablate(
    study: str,
    bank: Bank,
    config: TrainConfig,
    benchmarks: Mapping[str, ValidationSet],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    lines: Collection[int] = (),
    share_training: bool = False,
    report: Report = print,
) -> list[AblationTable]:
    """Train and measure all lines of the tables of a study; finished ones are taken from the run's folder.

    A run whose loss overflows is noted as failed, and the others continue.

    Args:
        study: one of `STUDIES`.
        bank: the views that all runs learn from.
        config: the settings that lines have in common, and the folder; [run] seed is added to the seeds.
        benchmarks: by name; mAP and uAP are measured on each.
        seeds: of network and batches; the bank stays.
        lines: the numbers, from 1, of those to run; all if empty.
        share_training: train lines once that differ in nothing that training sees; see the module.
        report: takes lines of progress.
    """
    if not benchmarks or not seeds:
        raise ConfigError("an ablation needs at least one benchmark and one seed.")
    chosen = _choose_rows(study, config, lines)
    every = [row for _, rows in chosen for row in rows]
    if not every:
        raise ConfigError(f"none of the tables of '{study}' has a line {', '.join(map(str, sorted(lines)))}.")
    draw_videos(0, videos=len(bank), batch=config.data.batch, seed=0)  # refuses too few
    framed = [row.name for row in every if "frame" in row.config.losses.build().levels]
    if framed and (bank.weak.frames is None or bank.strong.frames is None):
        raise ConfigError(f"'{framed[0]}' has the frame loss, and the bank holds no frame vectors of a teacher.")
    work = _Work(bank, config, benchmarks, Store(Path(config.run.folder) / "ablations"), report)
    donors = _find_donors(every, work.frames) if share_training else {}
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for turn, seed in enumerate(seeds):
        for number, row in enumerate(every):
            record = work.complete(row, seed, donors.get(row.name, row))
            records[row.name, seed] = record
            done = turn * len(every) + number + 1
            line = f"{row.name} ({', '.join(row.keys)}) seed {seed}: {_format_record(record)}"
            report(f"{done}/{len(every) * len(seeds)} {line}")
    words = {name: _format_benchmark(benchmark) for name, benchmark in benchmarks.items()}
    notes = _write_notes(bank, config, seeds)
    return [
        AblationTable(
            table,
            tuple(
                _make_line(row, [records[row.name, seed] for seed in seeds], work.frames, benchmarks, donors)
                for row in rows
            ),
            words,
            (*filter(None, (table.note, NOTES.get(table.name))), *notes),
        )
        for table, rows in chosen
    ]


def _choose_rows(study: str, config: TrainConfig, lines: Collection[int]) -> list[tuple[PaperTable, list[Row]]]:
    """The tables of a study with those of their rows that are asked for."""
    return [
        (table, [row for row in plan_rows(table, config) if not lines or row.number in lines])
        for table in study_tables(study)
    ]


# --- one line, one seed ----------------------------------------------------------------------------------------------


class _Work:
    """What the runs of an ablation share."""

    def __init__(
        self, bank: Bank, config: TrainConfig, benchmarks: Mapping[str, ValidationSet], store: Store, report: Report
    ) -> None:
        self.benchmarks, self.store, self.report = benchmarks, store, report
        device = config.run.torch_device()
        self.bank = bank if config.bank.device == "cpu" else bank.to(device)
        self.frames = bank.weak.regions.shape[2]
        self.bank_print, self.versions = _fingerprint_bank(bank), read_versions(device)
        self.prints = {name: _fingerprint_benchmark(benchmark) for name, benchmark in benchmarks.items()}

    def complete(self, row: Row, seed: int, donor: Row) -> dict[str, Any]:
        """The record of a line and seed with figures on all benchmarks; what is missing is trained and measured."""
        config = _with_seed(row.config, seed)
        record = self._read_record(_name_run(row, seed), config)
        if record is not None and record["trained_as"] not in (row.name, donor.name):
            record = None  # its network was shared, and must not be now
        if record is not None and (record["failed"] or not self._find_missing(record["figures"])):
            return record
        given, tensors = self._train(donor if record is None or record["trained_as"] == donor.name else row, seed)
        same = record is not None and record["sha256"] == given["sha256"]
        figures = dict(record["figures"]) if record is not None and same else {}
        record = given | self._make_record(row, seed, config) | {"figures": figures}
        if tensors is not None:
            start = dataclasses.replace(config, model=dataclasses.replace(config.model, start="random"))
            model = build_network(start, None)
            model.load_state_dict(tensors, strict=True)
            model = model.to(config.run.torch_device()).eval()
            for missing in self._find_missing(figures):
                measured = self.benchmarks[missing].measure(model)
                figures[missing] = {"benchmark": self.prints[missing], **{key: measured[key] for key in MEASURES}}
        self.store.write(_name_run(row, seed), record)
        return record

    def _train(self, row: Row, seed: int) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
        """The record and the weights of a line's network, from the store or trained; None if training failed."""
        name, config = _name_run(row, seed), _with_seed(row.config, seed)
        record = self._read_record(name, config)
        if record is not None and record["trained_as"] == row.name:
            tensors = self.store.read_network(name, record["sha256"])
            if tensors is not None or record["failed"]:
                return record, tensors
            self.report(f"the network of {name} is damaged or gone: it is trained again")
        began = time.perf_counter()
        record = self._make_record(row, seed, config) | {
            "trained_as": row.name,
            "failed": None,
            "sha256": "",
            "figures": {},
        }
        try:
            tensors = train_from_bank(self.bank, config, report=self.report).state_dict()
            record["sha256"] = self.store.write_network(name, tensors)
        except DataError as error:
            record["failed"], tensors = str(error), None
        record["seconds"] = round(time.perf_counter() - began, 3)
        self.store.write(name, record)
        return record, tensors

    def _make_record(self, row: Row, seed: int, config: TrainConfig) -> dict[str, Any]:
        own = {"table": row.table, "line": row.number, "keys": list(row.keys), "seed": seed}
        return own | {"settings": self._settings(config), "versions": self.versions}

    def _find_missing(self, figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
        return [name for name, own in self.prints.items() if figures.get(name, {}).get("benchmark") != own]

    def _read_record(self, name: str, config: TrainConfig) -> dict[str, Any] | None:
        return self.store.read(name, self._settings(config), complete=_add_new_settings)

    def _settings(self, config: TrainConfig) -> dict[str, Any]:
        """All that a network depends on."""
        table = to_table(config)
        settings = {section: table[section] for section in _TRAINED_BY}
        settings["data"] = {key: value for key, value in settings["data"].items() if key != "device"}
        settings["run"] = {"seed": config.run.seed, "precision": config.run.precision}
        return json.loads(json.dumps(settings | {"bank": self.bank_print}))  # type: ignore[no-any-return]


def _add_new_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a record, with the defaults of those that came later."""
    sections = [section for section in _TRAINED_BY if section != "losses" and isinstance(before.get(section), Mapping)]
    return {**before, **{section: add_new_settings(section, before[section], now[section]) for section in sections}}


def _name_run(row: Row, seed: int) -> str:
    return f"{row.name}-seed-{seed}"


def _with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    return dataclasses.replace(config, run=dataclasses.replace(config.run, seed=config.run.seed + seed))


def _find_donors(rows: Sequence[Row], frames: int) -> dict[str, Row]:
    """For each line the first that training cannot tell from it: the same settings but for k_t, and the same K'."""
    first: dict[str, Row] = {}
    donors = {}
    for row in rows:
        table = to_table(row.config)
        similarity = {key: value for key, value in table["similarity"].items() if not key.startswith("temporal")}
        seen = table | {"similarity": similarity, "kept": count_kept(row.config.similarity, frames)}
        donors[row.name] = first.setdefault(json.dumps(seen, sort_keys=True), row)
    return donors


# --- in numbers and words --------------------------------------------------------------------------------------------


def _make_line(
    row: Row,
    records: Sequence[Mapping[str, Any]],
    frames: int,
    benchmarks: Mapping[str, ValidationSet],
    donors: Mapping[str, Row],
) -> AblationLine:
    done = [record["figures"] for record in records if not record["failed"]]
    similarity = row.config.similarity
    donor = donors.get(row.name, row)
    return AblationLine(
        row,
        {
            (name, measure): Figure(tuple(100 * figures[name][measure] for figures in done))
            for name in benchmarks
            for measure in MEASURES
        },
        count_kept(similarity, frames),
        {
            name: (count_kept(similarity, statistics.median_low(lengths)), count_kept(similarity, max(lengths)))
            for name, lengths in ((name, list(map(len, benchmark.targets))) for name, benchmark in benchmarks.items())
        },
        tuple(f"seed {record['seed']}: {record['failed']}" for record in records if record["failed"]),
        None if donor is row else donor.name,
    )


def _format_record(record: Mapping[str, Any]) -> str:
    if record["failed"]:
        return f"failed: {record['failed']}"
    return "; ".join(
        f"{name} " + ", ".join(f"{measure} {100 * own[measure]:.2f}" for measure in MEASURES)
        for name, own in record["figures"].items()
    )


def _format_benchmark(benchmark: ValidationSet) -> str:
    lengths = list(map(len, benchmark.targets))
    missing = f", {benchmark.missing} videos without features left out" if benchmark.missing else ""
    return (
        f"{len(benchmark.queries):,} queries, {len(lengths):,} targets of {min(lengths):,} to {max(lengths):,} frames "
        f"(median {statistics.median_low(lengths):,}){missing}"
    )


def _write_notes(bank: Bank, config: TrainConfig, seeds: Sequence[int]) -> list[str]:
    words = f"{len(seeds)} seeds: the mean and, after ±, the standard deviation over them."
    (_, weak, frames), strong = bank.weak.regions.shape[:3], bank.strong.regions.shape[1]
    scale = (
        f"Each run: {config.schedule.steps:,} steps of {config.data.batch} videos at rate {config.optimiser.rate:g}, "
        f"from a bank of {len(bank):,} videos in {weak} weak and {strong} strong views of {frames} frames; base model "
        f"{config.model.base}, teacher {config.teacher.kind}."
    )
    return [words if len(seeds) > 1 else "One seed: no spread is known.", scale]


def _fingerprint_bank(bank: Bank) -> dict[str, Any]:
    """What tells banks apart whose vectors may differ in their last bits: shapes, and which videos each view shows."""
    contents = b"".join(side.contents.cpu().numpy().tobytes() for side in (bank.weak, bank.strong))
    shapes = {"weak": list(bank.weak.regions.shape), "strong": list(bank.strong.regions.shape)}
    return shapes | {"contents_sha256": sha256_bytes(contents)}


def _fingerprint_benchmark(benchmark: ValidationSet) -> str:
    lengths = [[len(video) for video in videos] for videos in (benchmark.queries, benchmark.targets)]
    return sha256_bytes(benchmark.relevant.to(torch.uint8).cpu().numpy().tobytes() + repr(lengths).encode())


# --- from settings ---------------------------------------------------------------------------------------------------


def run_study(
    study: str,
    config: TrainConfig,
    *,
    benchmarks: Sequence[str] = (),
    seeds: int = 3,
    lines: Collection[int] = (),
    compilation_frames: int | None = None,
    share_training: bool = False,
    report: Report = print,
) -> list[AblationTable]:
    """`ablate` with the bank that the settings describe and benchmarks from files.

    Args:
        study: see `ablate`, as for `lines`, `share_training` and `report`.
        config: see `load_config`; without benchmarks the one of [validation] is taken.
        benchmarks: each NAME=FEATURES or NAME=FEATURES,TRUTH, as [validation] takes them.
        seeds: how many.
        compilation_frames: frames of the compilations that are made of each benchmark and measured too; 0 makes none.
            By default 400 for table4, whose k_t acts on long targets alone, and none for the others.
    """
    rows = [row for _, rows in _choose_rows(study, config, lines) for row in rows]
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}.")
    if not config.bank.used:
        raise ConfigError("an ablation runs from a bank: give bank.weak and bank.strong, such as 2 and 6.")
    measured = dict(map(_load_named, benchmarks))
    if not measured:
        if (validation := load_validation_set(config.validation)) is None:
            raise ConfigError("nothing to measure on: give a benchmark, NAME=FEATURES,TRUTH, or validation.features.")
        measured["validation"] = validation
    frames = (LONG if study == "table4" else 0) if compilation_frames is None else compilation_frames
    store = Store(Path(config.run.folder) / "ablations")
    for name, benchmark in list(measured.items()) if frames else ():
        made = make_compilations(benchmark, frames=frames, rounds=_ROUNDS)
        measured[f"{name}-{frames}"] = made.benchmark
        store.note(f"compilations-{name}-{frames}", [list(part) for part in made.parts])
    bank = _make_bank(config, rows, report)
    return ablate(
        *(study, bank, config, measured), seeds=range(seeds), lines=lines, share_training=share_training, report=report
    )


def _make_bank(config: TrainConfig, rows: Sequence[Row], report: Report) -> Bank:
    """The bank of the settings, with a teacher's vectors where a line needs them."""
    if any("frame" in row.config.losses.build().levels for row in rows):
        config = dataclasses.replace(config, losses=LossesConfig())
    device = config.run.torch_device()
    base = load(config.model.base)
    build_network(config, base)  # what contradicts the base is refused before any work
    clips = load_clips(config, device)
    draw_videos(0, videos=len(clips), batch=config.data.batch, seed=config.run.seed)
    report(f"{len(clips)} videos, {len(clips.skipped)} skipped; {device}")
    return make_bank(clips, build_encoder(config, base, device), config, report=report)


def _load_named(word: str) -> tuple[str, ValidationSet]:
    name, sign, files = word.partition("=")
    features, _, truth = files.partition(",")
    if not sign or not name or not features:
        raise ConfigError(f"a benchmark is NAME=FEATURES or NAME=FEATURES,TRUTH; got '{word}'.")
    benchmark = load_validation_set(ValidationConfig(features=features, truth=truth))
    assert benchmark is not None  # there are features
    return name, benchmark


# --- as a program ----------------------------------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    """Run the study that the words name and print its tables; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hapvr.paper.ablations", description=f"Recipes: {', '.join(list_recipes())}."
    )
    parser.add_argument("study", help=f"{', '.join(STUDIES)}.")
    parser.add_argument("settings", help="a TOML file or a recipe")
    parser.add_argument("words", nargs="*", metavar="section.key=value")
    parser.add_argument("--benchmark", action="append", default=[], metavar="NAME=FEATURES[,TRUTH]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lines", default="", help="numbers of the lines to run, such as 1,3; by default all")
    parser.add_argument("--compilation-frames", type=int, default=None, help="frames of compilations; 0 makes none")
    parser.add_argument("--share-training", action="store_true")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_intermixed_args(list(words))
    try:
        tables = run_study(
            given.study,
            load_config(given.settings, given.words),
            benchmarks=given.benchmark,
            seeds=given.seeds,
            lines=parse_line_numbers(given.lines),
            compilation_frames=given.compilation_frames,
            share_training=given.share_training,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except HapvrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps([table.to_json() for table in tables]))
    else:
        print("\n\n".join(render(table, format=given.format) for table in tables))
    return 0


def parse_line_numbers(words: str) -> list[int]:
    """The numbers in "1,3".

    >>> parse_line_numbers("1,3"), parse_line_numbers("")
    ([1, 3], [])
    """
    try:
        return [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise ConfigError(f"lines are numbers such as 1,3; got '{words}'.") from None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
