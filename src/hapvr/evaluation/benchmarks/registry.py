"""A benchmark by name or from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hapvr.config import suggest
from hapvr.errors import ConfigError, DataError
from hapvr.evaluation.benchmarks import published, segment_benchmarks
from hapvr.evaluation.benchmarks.annotation_file import read_json
from hapvr.evaluation.benchmarks.benchmark import FORMAT, Benchmark, parse_benchmark
from hapvr.evaluation.benchmarks.ground_truth import GROUND_TRUTH, parse_ground_truth, read_csv
from hapvr.storage import StrPath

BENCHMARKS = {
    "fivr-5k": "fivr.pickle",
    "fivr-200k": "fivr.pickle",
    "evve": "evve.pickle",
    "svd": "svd_test_groundtruth",
    "vcdb": "vcdb.pickle",
    "cc_web_video": "cc_web_video.pickle",
    "vsc2022": "ground_truth.csv",
    "vcsl": "label_file_uuid_total.json",
}
"""The published benchmarks, each with the name of its annotation file."""
# Taken where that is not there.
_OTHER_FILES: Mapping[str, tuple[str, ...]] = {
    "fivr-5k": ("fivr_audio.pickle",),
    "fivr-200k": ("fivr_audio.pickle",),
    "vsc2022": ("gt.csv",),
}

_READERS: dict[str, Callable[..., Benchmark]] = {
    "fivr-5k": partial(published.read_fivr, version="5k"),
    "fivr-200k": partial(published.read_fivr, version="200k"),
    "evve": published.read_evve,
    "svd": published.read_svd,
    "vcdb": published.read_vcdb,
    "cc_web_video": published.read_cc_web_video,
    "vsc2022": segment_benchmarks.read_vsc2022,
    "vcsl": segment_benchmarks.read_vcsl,
}
_OPTIONS = {
    "easy_duplicates": ("fivr-5k", "fivr-200k"),
    "unlabelled": ("svd",),
    "distractors": ("vcdb",),
    "query_itself": ("cc_web_video",),
    "positives": ("a CSV file",),
    "query_list": ("vsc2022",),
    "database_list": ("vsc2022",),
    "split": ("vcsl",),
}


def open_benchmark(
    name_or_path: StrPath,
    *,
    annotations: StrPath | None = None,
    easy_duplicates: StrPath | None = None,
    unlabelled: StrPath | None = None,
    distractors: bool | None = None,
    query_itself: bool | None = None,
    positives: Sequence[str] | None = None,
    query_list: StrPath | None = None,
    database_list: StrPath | None = None,
    split: str | None = None,
) -> Benchmark:
    """A published benchmark by its name, or one from a file or folder.

    What a file is decides how it is read: a `.csv` file with the columns query, target, label; a folder that `hapvr
    make-benchmark` made, or its ground_truth.json; a `.json` file of `write_benchmark`.

    Args:
        name_or_path: a name of `BENCHMARKS` (capitals and "_" or "-" do not matter), or a path.
        annotations: the annotation file of a published benchmark as its authors publish it, or a folder that holds it
            under its published name. FIVR has two, fivr.pickle and fivr_audio.pickle, which the authors of HAP-VR
            measure by: of a folder with both, the first is taken. For "vcdb" also a folder of VCDB's own text files,
            which give segments too.
        easy_duplicates: FIVR's list of easy duplicates, one id a line: adds the tasks without them. Taken from the
            folder `annotations` if it holds fivr_easy_duplicates.txt.
        unlabelled: SVD's list of unlabelled videos, one id a line. Without it every scored video that SVD does not
            label is one.
        distractors: whether VCDB's database holds its distractors. Default: no.
        query_itself: whether CC_WEB_VIDEO's queries stay in their own rankings, as in published figures. Default: yes.
        positives: the labels of a CSV file that are positives. Default: all but "0".
        query_list: VSC2022's query metadata, or a list of ids, one a line: its ground truth names only queries that
            match something.
        database_list: the same for its references.
        split: VCSL: "train", "val" or "test", of which the folder holds the list of pairs; "all": the labelled pairs.
            Default: "test" if its list is there, else "all".
    """
    given = {"easy_duplicates": easy_duplicates, "unlabelled": unlabelled, "distractors": distractors,
             "query_itself": query_itself, "positives": positives, "query_list": query_list,
             "database_list": database_list, "split": split}  # fmt: skip
    given = {option: value for option, value in given.items() if value is not None}
    path = Path(name_or_path)
    lower = str(name_or_path).lower()
    known = {key.replace("_", "-"): key for key in BENCHMARKS}
    name = known.get(lower.replace("_", "-"))
    if name is not None and not path.is_file():
        _refuse_options(given, name)
        file = _find_annotations(name, annotations)
        if name in _OPTIONS["easy_duplicates"] and annotations is not None:
            beside = Path(annotations) / "fivr_easy_duplicates.txt"
            given = ({"easy_duplicates": beside} if beside.is_file() else {}) | given
        return _READERS[name](file, **given)
    if annotations is not None:
        raise ConfigError(
            f"annotations belong to a published benchmark, and '{name_or_path}' is none; "
            f"{suggest(lower, [*BENCHMARKS])}"
        )
    if path.is_dir():
        path = path / GROUND_TRUTH
    if not path.is_file():
        raise DataError(
            f"there is no benchmark '{name_or_path}': it is neither a file or made folder nor a published name; "
            f"{suggest(lower, [*BENCHMARKS])}"
        )
    if path.suffix.lower() == ".csv":
        _refuse_options(given, "a CSV file")
        return read_csv(path, positives=positives)
    _refuse_options(given, f"'{path.name}'")
    content = read_json(path)
    is_stored = isinstance(content, dict) and content.get("format") == FORMAT
    return parse_benchmark(content, path) if is_stored else parse_ground_truth(content, path)


def _find_annotations(name: str, annotations: StrPath | None) -> Path:
    if annotations is None:
        raise ConfigError(f"{name} needs its annotation file: give annotations=.../{BENCHMARKS[name]}.")
    path = Path(annotations)
    files: tuple[str, ...] = (BENCHMARKS[name], *_OTHER_FILES.get(name, ()))
    for file in files:
        if (path / file).is_file():
            return path / file
    if path.is_dir() and name != "vcdb":
        raise DataError(f"'{path}' is a folder without {' and '.join(files)}, the annotation file of {name}.")
    return path


def _refuse_options(given: Mapping[str, object], name: str) -> None:
    for option in given:
        if name not in _OPTIONS[option]:
            raise ConfigError(f"{option} is an option of {' and '.join(_OPTIONS[option])}, not of {name}.")
