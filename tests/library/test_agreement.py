"""One pair, one verdict: compare, search, duplicates and the server's tasks agree, down to the probability."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hapvr.features import Features
from hapvr.judge.second_look import SecondLookConfig
from hapvr.library import Library, duplicates
from hapvr.library.filters import VideoFilter
from hapvr.library.store import NewVideo
from hapvr.model import load
from hapvr.server.filters import write_filter
from hapvr.server.library_tasks import LibraryTasks
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from tests.judge.toy_judge import make_judge
from tests.library.test_duplicates import drawn, model, noisy, record
from tests.library.toy import make
from tests.same import is_same

PAIRS = 200
SAME = ("score", "verdict", "match", "probability", "scene_probability", "prior", "false_per_million", "reason")


def surfaces(library: Library, tasks: LibraryTasks, pairs: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """What each surface says of each pair; nothing of a pair that duplicates do not report."""
    call: Any = SimpleNamespace(check=lambda: None, progress=lambda *_, **__: None)
    videos = {record.id for record in library.videos()}
    searched: dict[str, dict[str, Any]] = {}
    for a in {a for a, _ in pairs}:
        found = library.search(a, k=len(videos), exact=True)
        searched[a] = {hit.id: hit.to_json() for hit in found.hits}
        query = {
            "query": {"id": a},
            "start_s": None,
            "end_s": None,
            "limits": write_filter(VideoFilter()),
            "filter": {},
        }
        served = tasks.search(
            query | {"k": len(videos), "min_probability": None, "exact": True, "ignore_shared": True}, call
        )
        searched[f"REST {a}"] = {hit["id"]: hit for hit in served["hits"]}
        assert served["match"] == bool(found.matches)
    report = library.find_duplicates()
    assert report.scored == math.comb(len(videos), 2)
    links = {(link.a, link.b): link for link in report.links}
    for a, b in pairs:
        compared = library.compare(a, b)
        told = {
            "compare": compared.to_json(),
            "search": searched[a][b],
            "REST search": searched[f"REST {a}"][b],
            "REST compare": tasks.compare({"a": {"id": a}, "b": {"id": b}, "ignore_shared": True}, call),
        }
        if (len(compared.query.times), a) < (len(compared.target.times), b):  # as duplicates compare them
            link = links.get((a, b))
            assert (link is not None) == compared.verdict.match
            if link is not None:
                assert link.verdict is not None
                told["duplicates"] = {**told["compare"], **link.verdict.to_json(), **link.to_json()}
        yield told


def agree(told: dict[str, Any]) -> dict[str, Any]:
    """The verdict, which is that of every surface."""
    first: dict[str, Any] = told["compare"]
    for surface, answer in told.items():
        for name in SAME:
            expected = first[name]
            near = pytest.approx(expected, abs=1e-6) if isinstance(expected, float) else expected
            assert name == "reason" or answer[name] == near, (surface, name)
        assert answer["reason"] == first["reason"], surface
        assert answer["second_look"] == first["second_look"], surface
        assert is_same(answer["segments"], first["segments"]), surface
        assert is_same(answer["best"], first["best"]), surface
    return first


def tasks_of(library: Library) -> LibraryTasks:
    """The tasks of a server's worker, in this process and with the same model."""
    settings = {
        "roots": [], "searches_at_once": 1, "library": str(library.path), "max_held_bytes": 2**24, "move_to": None,
        "device": "cpu",
    }  # fmt: skip
    tasks = LibraryTasks("search", settings)
    tasks._library._model = library._model
    return tasks


# --- drawn vectors and miniatures ------------------------------------------------------------------------------------


def small(seed: int, frames: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (frames, 16, 16), dtype=np.uint8)


def draw_videos() -> dict[str, tuple[Tensor, NDArray[np.uint8] | None]]:
    """Films, and of each an edit, a clip, look-alikes, a picture; compilations of two. Some have no miniatures."""
    videos: dict[str, tuple[Tensor, NDArray[np.uint8] | None]] = {}
    for number in range(4):
        film, pixels = drawn(number, 16), small(number, 16)
        alike = noisy(film[torch.randperm(16, generator=torch.Generator().manual_seed(number))], 0.9, number)
        videos |= {
            f"film{number}": (film, pixels),
            f"edit{number}": (noisy(film, 0.3 + 0.5 * number, number), pixels if number % 2 else None),
            f"clip{number}": (noisy(film[3 : 9 + 2 * number], 0.6, 9 + number), pixels[3 : 9 + 2 * number]),
            f"alike{number}": (alike, small(50 + number, 16)),
            f"picture{number}": (noisy(film[7:8], 0.2 + 0.4 * number), pixels[7:8]),
        }
    for one, other in ((0, 1), (2, 3)):
        both = [videos[f"film{one}"], videos[f"film{other}"]]
        pixels = np.concatenate([one[1] for one in both if one[1] is not None])
        videos[f"both{one}"] = (torch.cat([one[0] for one in both])[4:28], pixels[4:28])
    return videos


def test_surfaces_agree_on_200_random_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_MAX_CANDIDATES", 1000)  # every pair
    monkeypatch.setattr(duplicates, "_choose_alike", lambda _, keys, *__: sorted(set(keys.tolist())))
    with make(tmp_path / "library") as library:
        library._model = model()
        with library.write_access("a test") as store:
            for name, (regions, pixels) in draw_videos().items():
                key, times = store.new_key(), np.arange(len(regions)) / 2
                features = Features(regions, times, np.zeros(len(regions), np.bool_), pixels)
                store.write([NewVideo(record(name, f"{key:x}", len(regions)), key, features)])
        ids = sorted(video.id for video in library.videos())
        queries = random.Random(0).sample(ids, PAIRS // (len(ids) - 1) + 1)  # each is searched for once
        pairs = random.Random(1).sample([(a, b) for a in queries for b in ids if a != b], PAIRS)
        found = [agree(told) for told in surfaces(library, tasks_of(library), pairs)]
    assert len(found) == PAIRS
    kinds = [one["verdict"] for one in found]
    assert min(kinds.count(kind) for kind in ("copy", "same scene", "no match")) >= 5
    assert len({one["probability"] for one in found}) > 20  # what agrees is no constant


# --- films -----------------------------------------------------------------------------------------------------------


def test_surfaces_agree_on_films_with_a_second_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a look that is bounded in time might see less than the next.
    monkeypatch.setattr("hapvr.matching.SecondLookConfig", partial(SecondLookConfig, max_seconds=60.0))
    films = tmp_path / "films"
    films.mkdir()
    film, other = (draw_scene(seed, seconds=6, fps=4, size=(112, 144)) for seed in (1, 2))
    write_clip(film, films / "film.mp4")
    write_clip(other, films / "other.mp4")
    write_clip(Clip(film.images[6:20, :, ::-1].copy(), film.fps), films / "mirrored part.mp4")
    with Library.open(tmp_path / "library", create=True, codec="float16") as library:
        assert library.add([films], workers=1).added == 3
        library._model = dataclasses.replace(load(), judge=make_judge(undecided=(-50.0, 50.0)))
        ids = {Path(video.path).stem: video.id for video in library.videos()}
        pairs = [(ids["mirrored part"], ids["film"]), (ids["mirrored part"], ids["other"]), (ids["film"], ids["other"])]
        part, *others = [agree(told) for told in surfaces(library, tasks_of(library), pairs)]
    assert (part["verdict"], part["second_look"]) == ("copy", True)
    assert part["segments"][0]["target"] == pytest.approx([1.5, 5.0], abs=0.6)
    assert all(one["verdict"] != "copy" for one in others)
