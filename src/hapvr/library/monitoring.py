"""Monitoring a stream: its last seconds are searched in a library again and again, and each match is reported once.

A match is reported when it is first seen and when it is over, with its times in the stream and in the library's video.
Memory does not grow: of the stream nothing is kept but the features of its last seconds.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from hapvr.decision import has_probability
from hapvr.errors import ConfigError, DecodeError
from hapvr.features import Features, join_features
from hapvr.library.opening import OpenLibrary
from hapvr.library.results import Hit, display_path
from hapvr.library.search import require_search_options, search_library
from hapvr.library.stored_scores import RegionCache
from hapvr.records import Frames
from hapvr.similarity.segments import Segment
from hapvr.video.live import StreamConfig, is_address, read_stream

_CACHE_BYTES = 256 * 2**20
_WAITING = 4  # parts of a stream that are decoded ahead
_MAX_SHIFT_S = 2.0  # a stretch that lies this much beside a match in the library's video is another match
_WAIT_S = 0.2  # between questions whether to stop
_FIRST_PAUSE_S = 1.0  # before a stream that has failed is opened again, twice as long each time


@dataclass(frozen=True)
class MonitorConfig:
    """How a stream is searched for.

    Attributes:
        window_s: seconds of the stream that are searched at a time. Longer ones find weaker matches, later.
        step_s: seconds of the stream from one search to the next.
        k: videos of the library that are reported at most for one stretch of the stream.
        min_probability: matches with a lower probability are not reported. A stream is searched so often that what is
            only probable would be reported many times a day. A model without probabilities reports its copies.
        retries: times in a row that an address is opened again after it has failed, each after a longer pause.
    """

    window_s: float = 14.0
    step_s: float = 2.0
    k: int = 5
    min_probability: float = 0.8
    retries: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.step_s <= self.window_s or not self.window_s <= 600:
            raise ConfigError(
                f"step_s must be above 0 and at most window_s, which must be at most 600; got {self.step_s:g} and "
                f"{self.window_s:g}."
            )
        if self.retries < 0:
            raise ConfigError(f"retries must be at least 0, got {self.retries}.")
        require_search_options(self.k, min_probability=self.min_probability)


@dataclass(frozen=True)
class StreamMatch:
    """Where a stream shows what a video of the library shows."""

    id: str
    path: str
    stream: tuple[float, float]  # seconds since the stream was opened
    video: tuple[float, float]  # seconds in the library's video
    probability: float | None
    score: float
    found_s: float  # the time of the stream when it was first seen
    backwards: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values."""
        plain = dataclasses.asdict(self) | {"path": display_path(self.path)}
        return plain | {"stream": list(self.stream), "video": list(self.video)}


@dataclass(frozen=True)
class StreamEvent:
    """Something to be told about a stream."""

    kind: Literal["match", "end", "warning"]
    time_s: float  # of the stream
    match: StreamMatch | None = None
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """What `hapvr monitor --json` prints, as one line."""
        plain: dict[str, Any] = {"event": self.kind, "time_s": self.time_s}
        if self.match is not None:
            plain |= self.match.to_json()
        return plain | ({"text": self.text} if self.text else {})


class MatchTracker:
    """Joins what one search after the other finds to matches, each reported when it begins and when it is over.

    Args:
        window_s: how far back a search looks; a match that ended before that is over.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self.current: list[StreamMatch] = []

    def update(self, now_s: float, hits: tuple[Hit, ...]) -> Iterator[StreamEvent]:
        """What is new after a search of the last seconds before `now_s`."""
        for hit in hits:
            for segment in hit.segments:
                if segment.shared:
                    continue
                place = self._find(hit, segment)
                if place is None:
                    match = StreamMatch(
                        hit.id, hit.path, segment.query, segment.target, hit.probability, hit.score, now_s,
                        segment.backwards,
                    )  # fmt: skip
                    self.current.append(match)
                    yield StreamEvent("match", now_s, match)
                else:
                    self.current[place] = _extend(self.current[place], hit, segment)
        over = [one for one in self.current if one.stream[1] < now_s - self._window_s]
        self.current = [one for one in self.current if one not in over]
        yield from (StreamEvent("end", now_s, one) for one in over)

    def finish(self, now_s: float) -> Iterator[StreamEvent]:
        """The matches that are not over when the stream ends."""
        yield from (StreamEvent("end", now_s, one) for one in self.current)
        self.current = []

    def _find(self, hit: Hit, segment: Segment) -> int | None:
        """The match that a stretch is a part of, if there is one."""
        for place, match in enumerate(self.current):
            if match.id != hit.id or match.backwards != segment.backwards:
                continue
            overlap = min(match.stream[1], segment.query[1]) - max(match.stream[0], segment.query[0])
            shorter = min(match.stream[1] - match.stream[0], segment.query[1] - segment.query[0])
            near = abs(_shift(segment.query, segment.target) - _shift(match.stream, match.video)) <= _MAX_SHIFT_S
            if overlap > shorter / 2 or (overlap >= -_MAX_SHIFT_S and near):
                return place
        return None


def _shift(stream: tuple[float, float], video: tuple[float, float]) -> float:
    return video[0] - stream[0]


def _extend(match: StreamMatch, hit: Hit, segment: Segment) -> StreamMatch:
    """A match with one more stretch; times of the video follow those of the stream."""
    (begin, end), (first, last) = match.stream, match.video
    if segment.query[0] < begin:
        begin, first = segment.query[0], segment.target[0]
    if segment.query[1] > end:
        end, last = segment.query[1], segment.target[1]
    both = [one for one in (match.probability, hit.probability) if one is not None]
    return dataclasses.replace(
        match,
        stream=(begin, end),
        video=(first, last),
        probability=max(both) if both else None,
        score=max(match.score, hit.score),
    )


class _Window:
    """The features of the last seconds of a stream."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.features: Features | None = None

    def add(self, new: Features) -> None:
        """Take what comes next, and drop what is too old."""
        both = join_features([new] if self.features is None else [self.features, new])
        kept = both.times > both.times[-1] - self._seconds
        self.features = both if kept.all() else both.take(kept)


@dataclass(frozen=True)
class _Broken:
    """A live stream has failed; it is opened again."""

    text: str


@dataclass(frozen=True)
class _Ended:
    """What follows the last frames of a stream: an error, if it did not end by itself."""

    error: DecodeError | None


class _Reader:
    """A thread that reads frames of a stream while others are searched.

    Args:
        read: the frames from the beginning, or from now on; given a function that it calls before each part.
        retries: times that it is called again after it has failed and given frames before.
    """

    def __init__(self, read: Callable[[Callable[[], None]], Iterator[Frames]], retries: int) -> None:
        self._read_parts, self._retries = read, retries
        self._stopped = threading.Event()
        self._queue: queue.Queue[Frames | _Broken | _Ended] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(_StoppedError):
            self._put(_Ended(self._read_all()))

    def _read_all(self) -> DecodeError | None:
        """Read until the end, or until it has failed too often in a row: the error."""
        began, shift_s, last_s, failures, ever = time.monotonic(), 0.0, 0.0, 0, False
        while True:
            try:
                for frames in self._read_parts(self._check):
                    failures, ever = 0, True
                    last_s = float(frames.timestamps[-1]) + shift_s
                    self._put(replace(frames, timestamps=frames.timestamps + shift_s))
                return None
            except DecodeError as error:
                if not ever or failures >= self._retries:
                    return error
                pause_s = _FIRST_PAUSE_S * 2**failures
                failures += 1
                self._put(_Broken(f"{error} It is opened again in {pause_s:g} s."))
                if self._stopped.wait(pause_s):
                    raise _StoppedError from None
                shift_s = max(time.monotonic() - began, last_s + 1.0)  # times go on as the clock does

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    def _put(self, item: Frames | _Broken | _Ended) -> None:
        while not self._stopped.is_set():
            try:
                return self._queue.put(item, timeout=_WAIT_S)
            except queue.Full:
                continue
        return None

    def get(self) -> Frames | _Broken | _Ended | None:
        """The next frames; None if there are none yet."""
        try:
            return self._queue.get(timeout=_WAIT_S)
        except queue.Empty:
            return None

    def is_behind(self) -> bool:
        """Whether more frames wait than are searched."""
        return self._queue.full()

    def close(self) -> None:
        """End the thread; a stream that stands still is left to end with the process."""
        self._stopped.set()
        self._thread.join(2 * _WAIT_S)


class _StoppedError(Exception):
    """Nobody wants the frames any more."""


def monitor_stream(
    library: OpenLibrary,
    source: str,
    *,
    config: MonitorConfig | None = None,
    stream: StreamConfig | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[StreamEvent]:
    """Search a stream in a library while it runs: an event for each match when it is first seen, and when it is over.

    Args:
        library: an open one.
        source: an address (HLS, RTSP, ...), an HLS playlist, or a video file.
        config: how it is searched for.
        stream: how it is read; `follow` for a file that is still being written.
        stop: asked all the time.

    Raises:
        DecodeError: the stream cannot be opened, or has failed too often.
    """
    chosen, reading = config or MonitorConfig(), stream or StreamConfig()
    is_stopped = stop or (lambda: False)
    extractor, sampling = library.model.extractor, library.model.sampling
    window, tracker = _Window(chosen.window_s), MatchTracker(chosen.window_s)
    cache = RegionCache(_CACHE_BYTES)
    min_probability = chosen.min_probability if has_probability(library.model) else None
    searched_s = now_s = 0.0

    def search() -> Iterator[StreamEvent]:
        if window.features is None or window.features.all_flat:
            yield from tracker.update(now_s, ())
            return
        found = search_library(
            library,
            window.features,
            k=chosen.k,
            min_probability=min_probability,
            second_look=False,
            cache=cache,
        )
        yield from tracker.update(now_s, found.matches)

    live = is_address(source)
    retries = chosen.retries if live else 0
    with closing(_Reader(lambda check: read_stream(source, sampling, reading, check=check), retries)) as reader:
        while not is_stopped():
            part = reader.get()
            if part is None:
                continue
            if isinstance(part, _Ended):
                if now_s > searched_s:
                    yield from search()
                yield from tracker.finish(now_s)
                if part.error is not None:
                    raise part.error
                return
            if isinstance(part, _Broken):
                yield StreamEvent("warning", now_s, text=part.text)
                continue
            window.add(extractor.features(part))
            now_s = float(part.timestamps[-1])
            # A live stream does not wait: where searching takes too long, some searches are left out.
            late = live and reader.is_behind()
            step_s = max(chosen.step_s, chosen.window_s / 2) if late else chosen.step_s
            if now_s - searched_s >= step_s:
                searched_s = now_s
                yield from search()
    yield from tracker.finish(now_s)
