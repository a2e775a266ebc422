"""Libraries without a decoder: "videos" are small texts, and their features are drawn from what they say.

A file "video SEED FRAMES" is a video of FRAMES frames; anything else cannot be decoded. Everything but the decoder and
the backbone is the library's own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.errors import DecodeError
from hapvr.features import Features
from hapvr.features.video_extraction import ExtractedVideo
from hapvr.library import Library, adding, opening, rebuild, versions
from hapvr.library.versions import Settings
from hapvr.places import Place
from hapvr.similarity.calibration import Calibration, fit_calibration
from hapvr.video import frame_tasks
from hapvr.video.frame_tasks import VideoEnd, VideoTask
from hapvr.video.sampling import SamplingConfig

REGIONS, DIMS = 2, 32
SETTINGS = Settings("toy", "toy's digest", "float16", 1.0)


def features_of(text: str) -> Features:
    """The features of a toy video."""
    _, seed, frames = text.split()
    generator = torch.Generator().manual_seed(int(seed))
    regions = torch.randn(int(frames), REGIONS, DIMS, generator=generator).half().float()
    return Features(regions, np.arange(int(frames), dtype=np.float64), np.zeros(int(frames), np.bool_))


def read_toy(_: Any, task: VideoTask) -> VideoEnd:
    """In place of `read_video`."""
    text = Path(task.path).read_bytes().decode("latin-1")
    if not text.startswith("video "):
        raise DecodeError(f"'{task.path}' is no video.")
    return VideoEnd(float(text.split()[2]), (), (64, 48))


def toy_extracted(
    _: Any,
    tasks: Iterable[tuple[str, Any]],
    *,
    workers: int,  # noqa: ARG001
    work: Callable[[Any, Any], Any],
    stop: Callable[[], bool] | None = None,
) -> Iterator[ExtractedVideo]:
    """In place of `extract_stream`: one after the other, in this process."""
    for id, task in tasks:
        if stop is not None and stop():
            return
        end = work(None, task)
        text = Path(task.video.path).read_bytes().decode("latin-1") if end.video is not None else ""
        yield ExtractedVideo(id, features_of(text) if text else None, end, None)


def toy_model(name: str, fps: float | None, _device: str = "cpu") -> Any:
    """In place of a model that is loaded."""
    sampling = SamplingConfig(fps=fps or 1.0)
    return SimpleNamespace(
        name=name, sampling=sampling, extractor=SimpleNamespace(sampling=sampling, batch=16, digest_as_loaded=str)
    )


def install(patch: Any) -> None:
    """Put the toys in place; `patch` is pytest's monkeypatch, or does the same."""
    patch.setattr(frame_tasks, "read_video", read_toy)
    patch.setattr(adding, "extract_stream", toy_extracted)
    patch.setattr(opening, "load_at_fps", toy_model)
    patch.setattr(opening, "model_name", str)
    patch.setattr(rebuild, "model_name", str)
    patch.setattr(opening, "model_digest", lambda model: f"{model.name}'s digest")


class Forever:
    """A monkeypatch that is never undone."""

    setattr = staticmethod(setattr)


def make(path: Place, settings: Settings = SETTINGS) -> Library:
    """A new, empty library of toys."""
    versions.write_settings(versions.version_folder(path, "0001"), settings)
    versions.switch_version(path, "0001")
    return Library.open(path)


def local(place: Place) -> Path:
    """The folder of a library, or of one of its versions, that is on this machine."""
    assert isinstance(place, Path)
    return place


def write(folder: Path, name: str, seed: int, frames: int = 3) -> Path:
    """A toy video."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"video {seed} {frames}")
    return path


def calibration(seed: int) -> Calibration:
    """One of many."""
    generator = np.random.default_rng(seed)
    return fit_calibration(generator.normal(0.7, 0.1, 60).clip(-1, 1), generator.normal(0.1, 0.1, 400))


def check_whole(library: Library) -> None:
    """Every record has its content, whatever the files are by now."""
    store = library.store
    catalog = store.catalog()
    named = {int(key) for key in catalog.keys if key >= 0}
    assert len(set(catalog.ids)) == len(set(catalog.paths)) == len(catalog)
    regions = store.table_set.list_keys("regions").tolist()
    assert len(regions) == len(set(regions))
    assert named <= set(regions)
    assert named <= store.candidates.list_contents().whole
    for row, features in contents(library).items():
        assert len(features) == catalog.frames[row]


def contents(library: Library) -> dict[int, Features]:
    """The features of all rows of the catalog, read in one go."""
    store = library.store
    catalog = store.catalog()
    keys = sorted({int(key) for key in catalog.keys if key >= 0})
    found = {stored.key: stored.features(store.codec) for stored in store.read_contents(keys, batch=1000)}
    return {row: found[key] for row, key in enumerate(catalog.keys.tolist()) if key >= 0}


def check(library: Library, files: Iterable[Path] | None = None) -> None:
    """The same, and the features are those of the files, of which there are these."""
    check_whole(library)
    catalog = library.store.catalog()
    for row, features in contents(library).items():
        if catalog.states[row] == "ready":
            text = Path(os.fsdecode(catalog.paths[row])).read_text()
            torch.testing.assert_close(features.regions, features_of(text).regions)
    if files is not None:
        assert sorted(os.fsencode(path) for path in files) == catalog.paths


def nursery() -> None:
    """Start writers on request, without loading everything for each: one fork a line of JSON on stdin.

    After `seconds` the writer is killed, if it has not ended; the answer says which. What was acknowledged, the writer
    says in a file of its own.
    """
    warnings.simplefilter("ignore")  # LanceDB's, about forks: nothing of it has run yet
    install(Forever)
    for line in sys.stdin:
        request = json.loads(line)
        end = time.monotonic() + request.pop("seconds")
        number = os.fork()
        if number:
            ended = 0
            while not ended and time.monotonic() < end:
                time.sleep(0.002)
                ended = os.waitpid(number, os.WNOHANG)[0]
            if not ended:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
            print("ended" if ended else "killed", flush=True)
            continue
        status = 1
        try:
            _write(**request)
            status = 0
        except BaseException as error:
            with open(request["out"], "a") as out:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out, flush=True)
        finally:
            os._exit(status)


def _write(
    library: str,
    folder: str,
    out: str,
    *,
    batch: int,
    fragments: int = 64,
    compact: bool = False,
    model: str = "",
    do: str = "add",
    ids: list[str] | None = None,
    kill_before: str = "",
) -> None:
    from hapvr.library import engine, store

    if kill_before:  # a method of the tables, such as "put_records"
        setattr(store.Store, kill_before, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    store.BATCH, engine._FRAGMENTS = batch, fragments
    adding._MAINTAIN_EVERY = 4
    written = store.Store.write
    file = open(out, "a")  # noqa: SIM115 - as long as the process lives

    def tell(self: Any, videos: Any, **options: Any) -> Any:
        replaced = written(self, videos, **options)
        print(json.dumps([os.path.basename(video.record.path) for video in videos]), file=file, flush=True)
        return replaced

    store.Store.write = tell  # type: ignore[method-assign]
    with Library.open(library, wait_s=30) as opened:
        if model:
            opened.rebuild(model=model)
        elif do == "remove":
            opened.remove(ids or [])
        elif do == "import":
            opened.import_features(folder)
        elif do == "calibrate":
            with opened.write_access("a test") as tables:
                opening.save_calibration(tables, calibration(batch))
        elif do == "add":
            opened.add([folder], prune=True)
        if compact:
            opened.compact()
    print(json.dumps("done"), file=file, flush=True)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


if __name__ == "__main__":
    nursery()
