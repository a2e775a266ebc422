"""How well `hapvr duplicates` finds planted copies: precision, recall by kind of edit, time, pairs compared.

    python benchmarks/duplicates.py                                   # 30 drawn films, a copy of each, 20 others
    python benchmarks/duplicates.py --videos FOLDER --distractors OTHERS --groups 100 --known known.json --out WORK

Bases are the videos of FOLDER, and then of OTHERS until there are enough; each gives one edited copy, kinds in turn.
All of it is indexed into one library. A link between a base and its copy is right; every other link between videos of
different origin is wrong, unless --known says otherwise. A copy is found if it is linked with its base, or in one group
with it. WORK is kept, and gone on with when called again.

Real collections hold duplicates of their own. --known names them, as far as a person who looked through FOLDER and
OTHERS found them: a JSON file, one list of groups, each group a list of two or more file names without folders, such as

    [["beach.mp4", "beach (1).mp4", "beach_small.webm"], ["talk.mp4", "talk_720p.mp4"]]

All videos of a group, and their copies, then count as of one origin: links among them are right, and of the pairs
within a group it is told how many were found. A video is in one group at most; suffixes do not count, so names must
differ without them. What is not in the file counts as different: a duplicate that nobody listed is a wrong link.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hapvr.library import Library
from hapvr.library.duplicate_report import DuplicateReport
from hapvr.library.duplicates import MIN_PROBABILITY
from hapvr.synthetic.benchmark import make_benchmark
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.edits import DEFAULT_EDITS
from hapvr.synthetic.films import draw_scene
from hapvr.video.video_files import find_videos
from measure import machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=Path, help="a folder of base videos; drawn films if not given")
    parser.add_argument("--distractors", type=Path, help="a folder of more videos")
    parser.add_argument("--groups", type=int, default=30, help="planted groups: a base and its copy")
    parser.add_argument("--known", type=Path, help="JSON: lists of file names that show the same")
    parser.add_argument("--model", help="a model's name or folder")
    parser.add_argument("--min-probability", type=float, default=MIN_PROBABILITY)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="keep videos and library here")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    print(machine())
    if arguments.out is not None:
        run(arguments, arguments.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(arguments, Path(folder))


def run(arguments: argparse.Namespace, out: Path) -> None:
    truth = plant(arguments, out)
    known = [] if arguments.known is None else read_known(arguments.known, set(truth["database"]))
    start = time.perf_counter()
    with Library.open(out / "library", create=True, model=arguments.model) as library:
        added = library.add([out / "made" / "database", out / "made" / "queries"], workers=arguments.workers)
        print(f"{added.added} videos added, {added.unchanged} were there, {len(added.failed)} failed; "
              f"{added.frames} frames in {time.perf_counter() - start:.0f} s")  # fmt: skip
        report = library.find_duplicates(min_probability=arguments.min_probability)
    figures = judge(report, truth, known)
    show(report, figures)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), **figures}, indent=2) + "\n")


def plant(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Make the copies; what `make_benchmark` says about them."""
    made = out / "made"
    if not (made / "ground_truth.json").is_file():
        base, more = arguments.videos, arguments.distractors
        if base is None:
            base = draw(out / "films", range(arguments.groups))
            more = more or draw(out / "others", range(1000, 1020))
        videos = list(find_videos([base]).values())
        others = [] if more is None else list(find_videos([more]).values())
        bases = [*videos, *others][: arguments.groups]
        rest = [path for path in [*videos, *others] if path not in set(bases)]
        print(f"making {len(bases)} copies")
        make_benchmark(
            bases, made, seed=arguments.seed, kinds=DEFAULT_EDITS, queries_per_video=1, distractors=rest,
            workers=arguments.workers,
        )  # fmt: skip
    truth: dict[str, Any] = json.loads((made / "ground_truth.json").read_text())
    return truth


def draw(folder: Path, seeds: range) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        if not (path := folder / f"{seed}.mp4").exists():
            write_clip(draw_scene(seed, seconds=8 + seed % 7, fps=8, size=(112, 160)), path)
    return folder


def read_known(file: Path, stems: set[str]) -> list[list[str]]:
    """The groups of --known, checked; names that are none of the videos' are counted on stdout, and do not matter."""
    groups = json.loads(file.read_text())
    if not isinstance(groups, list) or not all(
        isinstance(group, list) and len(group) > 1 and all(isinstance(one, str) for one in group) for group in groups
    ):
        raise SystemExit(f"{file} must hold a list of groups, each a list of two or more file names.")
    names = Counter(stem_of(one) for group in groups for one in group)
    if twice := [one for one, count in names.items() if count > 1]:
        raise SystemExit(f"{file} names '{twice[0]}' more than once: a video is in one group at most.")
    if strange := names.keys() - stems:
        print(f"{len(strange)} names of {file.name} are none of these videos', such as '{min(strange)}'")
    return groups


def judge(report: DuplicateReport, truth: dict[str, Any], known: list[list[str]]) -> dict[str, Any]:
    """Precision over links, recall over planted copies; by the origin of each video."""
    origin = {Path(name).stem: Path(group[0]).stem for group in known for name in group}

    def root(stem: str) -> str:
        base = truth["queries"][stem]["positives"][0] if stem in truth["queries"] else stem
        return origin.get(base, base)

    stems = {id: Path(record.path).stem for id, record in report.records.items()}
    wrong = [link for link in report.links if root(stems[link.a]) != root(stems[link.b])]
    together = {frozenset((stems[link.a], stems[link.b])) for link in report.links}
    for group in report.groups:
        names = [Path(video.path).stem for video in group.videos]
        together |= {frozenset((one, other)) for one in names for other in names}
    found, planted = Counter[str](), Counter[str]()
    for copy, query in truth["queries"].items():
        planted[query["kind"]] += 1
        found[query["kind"]] += frozenset((copy, query["positives"][0])) in together
    pairs = [frozenset((a, b)) for group in known for a in map(stem_of, group) for b in map(stem_of, group) if a < b]
    return {
        "precision": 1 - len(wrong) / max(1, len(report.links)),
        "recall": sum(found.values()) / max(1, sum(planted.values())),
        "links": len(report.links),
        "groups": len(report.groups),
        "kinds": {kind: {"found": found[kind], "planted": count} for kind, count in sorted(planted.items())},
        "of_kind": dict(Counter(link.kind for link in report.links)),
        "wrong": [[stems[link.a], stems[link.b], link.kind, link.certainty, link.score] for link in wrong],
        "missed": [copy for copy, query in truth["queries"].items()
                   if frozenset((copy, query["positives"][0])) not in together],
        "known_pairs": len(pairs),
        "known_found": sum(pair in together for pair in pairs),
        "videos": report.videos,
        "scored": report.scored,
        "pairs": report.pairs,
        "seconds": report.seconds,
    }  # fmt: skip


def stem_of(name: str) -> str:
    return Path(name).stem


def show(report: DuplicateReport, figures: dict[str, Any]) -> None:
    print(f"{figures['links']} links {figures['of_kind']} in {figures['groups']} groups at {report.min_probability}: "
          f"precision {figures['precision']:.4f}, recall {figures['recall']:.3f}")  # fmt: skip
    print(f"known duplicates: {figures['known_found']} of {figures['known_pairs']} pairs")
    for kind, counts in figures["kinds"].items():
        print(f"  {kind:20} {counts['found']:3} of {counts['planted']}")
    for a, b, kind, certainty, score in figures["wrong"]:
        print(f"  wrong: {a} {b}: {kind}, probability {certainty:.3f}, score {score:.3f}")
    print(f"  missed: {', '.join(figures['missed'])}")
    print(f"{figures['scored']:,} of {figures['pairs']:,} pairs compared, {figures['videos']} videos, "
          f"{figures['seconds']:.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
