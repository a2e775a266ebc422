"""Search by words: frames of a library's videos are described by a text model, and those nearest to words are found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, HapvrError, to_sentence
from hapvr.features.video_extraction import default_workers, make_tasks
from hapvr.library.filters import VideoFilter, find_allowed
from hapvr.library.indexed_folders import TextModelSource, read_text_model, write_text_model
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import (
    AddOptions,
    AddProgress,
    AddReport,
    TextHit,
    TextInstant,
    TextResult,
    display_path,
    escape_text,
)
from hapvr.library.side_tables import BatchWriter
from hapvr.library.store import Store
from hapvr.library.stored_scores import find_unchanged
from hapvr.library.tables import FrameEmbeddings
from hapvr.library.text_model import TextModel, load_text_model
from hapvr.storage import StrPath
from hapvr.video.frame_tasks import file_of_task, read_video
from hapvr.video.sampling import SamplingConfig
from hapvr.workers.pool import Block, WorkerPool
from hapvr.workers.sandbox import Sandbox

_SAMPLING = SamplingConfig(fps=0.2, at_least=4, short_side=336, crop=336)  # a frame in 5 s
_BLOCK_BYTES = 2 * 8 * _SAMPLING.short_side**2 * 3  # two of the widest pictures
_INSTANTS = 3  # of a video, at most, that are named
_FRAMES_EACH = 20  # frames looked at for each video that is asked for


# --- adding ----------------------------------------------------------------------------------------------------------


def choose_text_model(library: OpenLibrary, given: TextModel | StrPath) -> TextModel:
    """A text model that was given, loaded if it is a folder; `ConfigError` if the library has another one."""
    model = load_text_model(given, device=library.device) if isinstance(given, str | os.PathLike) else given
    _require_same(library, model)
    return model


def _require_same(library: OpenLibrary, model: TextModel) -> None:
    known = read_text_model(library.path)
    if known is not None and known.digest != model.digest:
        place = display_path(library.path)
        raise ConfigError(
            f"'{place}' was made with the text model '{known.name}' ({known.digest}), and '{model.name}' "
            f"({model.digest}) is another: their vectors cannot be compared. To change it, which describes all videos "
            f"again: hapvr add {place} --text-model none, then --text-model {model.name}"
        )


def forget_text_model(library: OpenLibrary) -> None:
    """Remove what a text model said of the videos; another model may then be given to `add`."""
    with library.write_access("hapvr add") as store:
        store.embeddings.clear()
        write_text_model(library.path, None)


def add_embeddings(library: OpenLibrary, store: Store, report: AddReport, options: AddOptions) -> AddReport:
    """Describe frames of all contents that have no description yet and whose files are at hand; with the lock held.

    By the text model of the options, which the library remembers, or by the one that it remembers. If that cannot be
    loaded, a warning says so and nothing is done. Interrupted, the next `add` goes on where it was.
    """
    if options.text_model is not None:
        write_text_model(library.path, TextModelSource(options.text_model.name, options.text_model.digest))
    if (known := read_text_model(library.path)) is None:
        return report
    paths = find_unchanged(store.catalog(), store.embeddings.list_keys())
    if not paths:
        return report
    began, failed = time.monotonic(), []
    try:
        model = options.text_model or _load_remembered(library)
    except HapvrError as error:
        return replace(report, warnings=(*report.warnings, (known.name, f"New videos are not found by text. {error}")))
    writer = BatchWriter(store.embeddings.put)
    done, frames = 0, 0
    is_stopped = options.stop or (lambda: False)
    for key, found in _describe_all(model, paths, default_workers(options.workers)):
        done += 1
        if isinstance(found, str):
            failed.append((paths[key], f"Not described for text: {found}"))
        else:
            writer.put(key, found)
            frames += len(found.times)
        if options.progress is not None:
            seconds = time.monotonic() - began
            options.progress(AddProgress(done, len(paths), 0, len(failed), 0, frames, seconds, paths[key]))
        if is_stopped():
            break
    writer.flush()
    store.maintain()
    return replace(
        report,
        text_described=done - len(failed),
        warnings=(*report.warnings, *failed),
        stopped=report.stopped or done < len(paths),
        seconds=report.seconds + time.monotonic() - began,
    )


def _describe_all(model: TextModel, paths: dict[int, str], workers: int) -> Iterator[tuple[int, FrameEmbeddings | str]]:
    """Descriptions of files by key as they are made, or what was wrong; other processes decode, this one describes."""
    begun: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float16]]]] = {}
    files = {str(key): path for key, path in paths.items()}
    tasks = make_tasks(files, _SAMPLING, workers=workers, keyframes=True)
    with WorkerPool(
        read_video, tasks, workers=workers, block_bytes=_BLOCK_BYTES, sandbox=Sandbox(), file_of=file_of_task
    ) as pool:
        while pool.busy:
            for event in pool.wait():
                id = str(event.key)
                if isinstance(event, Block):
                    images = event.data[: np.prod(event.note.shape)].reshape(event.note.shape)
                    vectors = embed_frames(model, images)
                    begun.setdefault(id, []).append((event.note.timestamps, vectors))
                    pool.release(event)
                elif event.error is not None or id not in begun:
                    begun.pop(id, None)
                    yield int(id), escape_text(event.error or "it has no frames.")
                else:
                    times, parts = zip(*begun.pop(id), strict=True)
                    yield int(id), FrameEmbeddings(np.concatenate(times), np.concatenate(parts))


def embed_frames(model: TextModel, images: NDArray[np.uint8]) -> NDArray[np.float16]:
    """What a text model says of frames, [T, D], of unit length; `DataError` if it says nothing of use."""
    vectors = np.asarray(model.embed_frames(images), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(images):
        raise DataError(
            f"The text model '{model.name}' must give a vector for each frame, [{len(images)}, D]; it gave "
            f"{list(vectors.shape)}."
        )
    return _normalise(model, vectors).astype(np.float16)


def _normalise(model: TextModel, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise DataError(f"The text model '{model.name}' gave a vector that is zero or no number.")
    unit: NDArray[np.float32] = vectors / lengths
    return unit


# --- searching -------------------------------------------------------------------------------------------------------


def search_text(
    library: OpenLibrary,
    text: str,
    *,
    text_model: TextModel | None = None,
    k: int = 10,
    filter: VideoFilter | None = None,
) -> TextResult:
    """Find the videos with frames that fit a description best, and when these are shown.

    There are hits whatever is asked for: similarities tell which fit better, and not whether one fits.

    Args:
        library: an open one, to whose videos a text model was given (`add`).
        text: the description, such as "a red car at night", in a language that the model knows.
        text_model: a model of your own; None loads the one that the library remembers from its folder.
        k: hits at most.
        filter: only videos that it allows are searched.

    Raises:
        ConfigError: the library has no text model, it cannot be loaded, or it is another one.
    """
    if not text.strip():
        raise ConfigError("The description is empty. Say what is to be seen, as in --text 'a red car'.")
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}.")
    while True:
        # The model that is remembered is the same before and after: the vectors that were searched are its own.
        known = require_text_model(library)
        library.refresh()
        try:
            result = _search_once(library, text, text_model, k, filter)
        except HapvrError:
            if read_text_model(library.path) == known:
                raise
        else:
            if read_text_model(library.path) == known:
                return result


def _search_once(
    library: OpenLibrary, text: str, text_model: TextModel | None, k: int, filter: VideoFilter | None
) -> TextResult:
    """`search_text`, while no other process gives the library another text model."""
    began = time.perf_counter()
    model = text_model or _load_remembered(library)
    _require_same(library, model)
    vector = np.asarray(model.embed_text(text), np.float32)
    if vector.ndim != 1:
        raise DataError(f"The text model '{model.name}' must give one vector, [D], for a text; it gave {vector.shape}.")
    vector = _normalise(model, vector)
    described = time.perf_counter()
    store = library.store
    catalog = store.catalog()
    allowed = find_allowed(catalog, filter)
    keys = None if allowed is None else {int(catalog.keys[row]) for row in allowed}
    best = _find_best(lambda count: store.embeddings.find_nearest(vector, k=count, keys=keys), k, catalog.with_key)
    hits: list[TextHit] = []
    for key, instants in best.items():
        for row in catalog.with_key(key):
            if allowed is None or row in allowed:
                hits.append(TextHit(catalog.ids[row], os.fsdecode(catalog.paths[row]), instants))
    database = len(store.embeddings.list_keys())
    seconds = {"text": described - began, "search": time.perf_counter() - described}
    note = None if database else "No video has been described by the text model yet."
    return TextResult(tuple(hits[:k]), database, seconds, note)


def _find_best(
    find: Callable[[int], tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]],
    k: int,
    rows_of: Callable[[int], list[int]],
) -> dict[int, tuple[TextInstant, ...]]:
    """The best `k` contents that count and their best instants; looks at more frames until there are as many."""
    count = k * _FRAMES_EACH
    while True:
        keys, times, similarities = find(count)
        found: dict[int, list[TextInstant]] = {}
        for place in np.lexsort((times, -similarities)).tolist():
            key = int(keys[place])
            if rows_of(key):
                found.setdefault(key, []).append(TextInstant(float(times[place]), float(similarities[place])))
        if len(found) >= k or len(keys) < count:
            return {key: tuple(instants[:_INSTANTS]) for key, instants in list(found.items())[:k]}
        count *= 4


def require_text_model(library: OpenLibrary) -> TextModelSource:
    """The text model that a library remembers; `ConfigError` if it has none."""
    known = read_text_model(library.path)
    if known is None:
        place = display_path(library.path)
        raise ConfigError(
            f"'{place}' cannot be searched by text: no text model has described its videos. Give it one, which leaves "
            f"everything else as it is: hapvr add {place} --text-model FOLDER"
        )
    return known


def _load_remembered(library: OpenLibrary) -> TextModel:
    """The text model of a library, from the folder that it remembers; loaded once, unless it is changed."""
    known, loaded = require_text_model(library), library.loaded_text_model
    if loaded is not None and loaded.digest == known.digest:
        return loaded
    try:
        model = load_text_model(known.name, device=library.device)
    except ConfigError as error:
        raise ConfigError(
            f"{to_sentence(error)} The library was made with the text model '{known.name}'; if it lies elsewhere by "
            f"now: hapvr add {display_path(library.path)} --text-model FOLDER"
        ) from error
    _require_same(library, model)
    library.loaded_text_model = model
    return model
