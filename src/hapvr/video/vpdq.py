"""vPDQ, the video hash of Meta's ThreatExchange: PDQ hashes of frames a second apart; how it is written and matched.

What python-threatexchange calls a signal is one video: a JSON list of `"HASH,QUALITY,SECONDS"`, the hash in 64
hexadecimal digits. Its files of signals hold one on each line, behind the word `vpdq`. Older releases wrote an object
of `{"quality", "hash", "timestamp"}` by frame number, and the C++ program writes lines of
`FRAME,QUALITY,HASH,SECONDS`. All of these are read; the first two are written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError
from hapvr.storage import StrPath
from hapvr.video.decode import decode_chunks, probe
from hapvr.video.limits import MAX_FRAMES, DecodeLimits
from hapvr.video.pdq import BITS, hash_picture

SIGNAL = "vpdq"
"""What ThreatExchange calls this kind of hash."""
_MAX_SIDE = 512  # pixels of the short side of a frame that is hashed: larger ones are reduced, which takes less time
_MIN_SIDE = 16  # that can be decoded
_DIGITS = re.compile(r"[0-9a-f]{64}")
_CELLS = 1 << 24  # pairs of hashes that are compared at a time


@dataclass(frozen=True, eq=False)
class VideoHashes:
    """The hashes of the frames of one video."""

    hashes: NDArray[np.uint8]  # [T, 32]
    qualities: NDArray[np.int64]  # [T], from 0 to 100
    times: NDArray[np.float64]  # [T], seconds

    def __len__(self) -> int:
        return len(self.hashes)

    def to_json(self) -> str:
        """The signal of python-threatexchange.

        >>> VideoHashes(np.full((1, 32), 171, np.uint8), np.array([90]), np.array([2.0])).to_json()[-17:]
        'ababab,90,2.000"]'
        """
        rows = zip(self.hashes, self.qualities.tolist(), self.times.tolist(), strict=True)
        return json.dumps([f"{one.tobytes().hex()},{quality},{time_s:.3f}" for one, quality, time_s in rows])


@dataclass(frozen=True)
class MatchRule:
    """When two videos match, with the defaults of python-threatexchange.

    Attributes:
        max_distance: bits that two hashes of frames may differ in.
        min_quality: frames below it do not count.
        min_query: percent of the query's different hashes that the known video must have.
        min_known: percent of the known video's different hashes that the query must have.
    """

    max_distance: int = 31
    min_quality: int = 50
    min_query: float = 80.0
    min_known: float = 0.0

    def __post_init__(self) -> None:
        for name, largest in (("max_distance", BITS), ("min_quality", 100), ("min_query", 100), ("min_known", 100)):
            if not 0 <= (value := getattr(self, name)) <= largest:
                raise ConfigError(f"{name} must lie from 0 to {largest}, got {value}.")

    def allows(self, query_percent: float, known_percent: float) -> bool:
        """Whether these percentages are a match; nothing in common is none, whatever is asked for."""
        return max(query_percent, known_percent) > 0 and (
            query_percent >= self.min_query and known_percent >= self.min_known
        )


def hash_video(path: StrPath, *, every_s: float = 1.0) -> VideoHashes:
    """The hashes of frames of a video, one in `every_s` seconds; black bars stay, as in ThreatExchange.

    Raises:
        DecodeError: no frame can be read.
    """
    side = max(_MIN_SIDE, min(_MAX_SIDE, *probe(path).size))
    found: list[tuple[NDArray[np.uint8], int]] = []
    times: list[float] = []
    for frames in decode_chunks(
        path, fps=1 / every_s, short_side=side, min_frames=0, crop_bars=False, chunk=32, threads=1,
        limits=DecodeLimits(max_frames=MAX_FRAMES),
    ):  # fmt: skip
        found += [hash_picture(image) for image in frames.images]
        times += frames.timestamps.tolist()
    return VideoHashes(
        np.stack([one for one, _ in found]), np.array([quality for _, quality in found]), np.array(times)
    )


def hash_video_task(_context: Any, task: tuple[str, float]) -> VideoHashes:
    """The task of a worker process: a path and the seconds between hashes."""
    return hash_video(task[0], every_s=task[1])


# --- reading ---------------------------------------------------------------------------------------------------------


def parse_signals(text: str) -> dict[int, VideoHashes]:
    """The videos of a file by the lines where they begin, from 1; `DataError` says what is wrong with it.

    >>> zeros = "0" * 64
    >>> found = parse_signals(f'vpdq ["{zeros},100,0.0"]\\n\\nvpdq ["{zeros},90,0.0", "{zeros},80,1.0"]\\n')
    >>> {line: one.qualities.tolist() for line, one in found.items()}
    {1: [100], 3: [90, 80]}
    """
    lines = {number: line.strip() for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    if not lines:
        raise DataError("it is empty.")
    if text.lstrip()[0] in "0123456789":  # of the C++ program
        return {1: _join([_parse_line(number, line) for number, line in lines.items()])}
    try:
        return {1: _parse_signal(json.loads(text))}
    except json.JSONDecodeError:
        pass  # a line for each video
    found: dict[int, VideoHashes] = {}
    for number, line in lines.items():
        try:
            found[number] = _parse_signal(json.loads(line.removeprefix(SIGNAL)))
        except json.JSONDecodeError as error:
            raise DataError(f"line {number} is no JSON: {error}.") from None
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None
    return found


def _parse_signal(content: Any) -> VideoHashes:
    if isinstance(content, list) and content and all(isinstance(one, str) for one in content):
        return _join([_parse_frame(one, *one.split(",")) for one in content])
    if isinstance(content, dict) and content and all(isinstance(one, dict) for one in content.values()):
        names = ("hash", "quality", "timestamp")
        return _join([_parse_frame(one, *(str(one.get(name)) for name in names)) for one in content.values()])
    raise DataError('a video is a list of "HASH,QUALITY,SECONDS", or frames by number; here is another JSON value.')


def _parse_line(number: int, line: str) -> tuple[bytes, int, float]:
    try:
        _, quality, digits, seconds = line.split(",")
        return _parse_frame(line, digits, quality, seconds)
    except ValueError:  # `DataError` is one
        raise DataError(f"line {number} is no FRAME,QUALITY,HASH,SECONDS: {line[:100]!r}.") from None


def _parse_frame(given: Any, *parts: str) -> tuple[bytes, int, float]:
    try:
        digits, quality, seconds = parts[0].lower(), int(parts[1]), float(parts[2])
        if len(parts) == 3 and _DIGITS.fullmatch(digits) and 0 <= quality <= 100 and 0 <= seconds < math.inf:
            return bytes.fromhex(digits), quality, seconds
    except (ValueError, IndexError):
        pass
    raise DataError(
        f"{str(given)[:100]!r} is no frame: expected a hash of 64 hexadecimal digits, a quality from 0 to 100, and "
        "seconds."
    )


def _join(frames: Sequence[tuple[bytes, int, float]]) -> VideoHashes:
    hashes, qualities, times = zip(*frames, strict=True)
    packed = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(frames), -1)
    return VideoHashes(packed, np.array(qualities, np.int64), np.array(times, np.float64))


# --- matching --------------------------------------------------------------------------------------------------------


def match_hashes(
    query: VideoHashes,
    known: Sequence[VideoHashes],
    rule: MatchRule = MatchRule(),  # noqa: B008 - frozen
) -> NDArray[np.float64]:
    """Percent of the query's hashes that each known video has, and of that one's that the query has: [N, 2].

    Frames below the quality are left out, equal hashes of a video count once, and order does not count. Two frames
    match if their hashes differ in at most `rule.max_distance` bits. Where nothing is left of a video, both are 0.

    >>> a = parse_signals(f'["{"0" * 64},100,0", "{"f" * 64},100,1"]')[1]
    >>> b = parse_signals(f'["{"0" * 63}1,100,0", "{"f" * 64},10,1"]')[1]  # one bit differs; a frame of low quality
    >>> match_hashes(a, [b]).tolist()
    [[50.0, 100.0]]
    """
    own = _find_signs(query, rule.min_quality)
    others = [_find_signs(one, rule.min_quality) for one in known]
    percent = np.zeros((len(others), 2))
    counts = np.array([len(one) for one in others], np.int64)
    present = np.flatnonzero(counts)
    if not len(own) or not len(present):
        return percent
    frames = np.concatenate([others[place] for place in present])  # [W, 256]
    starts = np.concatenate([[0], np.cumsum(counts[present])[:-1]])
    found, seen = np.zeros(len(present), np.int64), np.zeros(len(frames), np.bool_)
    rows = max(1, _CELLS // len(frames))
    for first in range(0, len(own), rows):
        # The product of signs is the number of equal bits less that of others.
        alike = own[first : first + rows] @ frames.T >= BITS - 2 * rule.max_distance  # [rows, W]
        found += np.logical_or.reduceat(alike, starts, axis=1).sum(0)
        seen |= alike.any(0)
    percent[present, 0] = 100 * found / len(own)
    percent[present, 1] = 100 * np.add.reduceat(seen.astype(np.int64), starts) / counts[present]
    return percent


def _find_signs(video: VideoHashes, min_quality: int) -> NDArray[np.float32]:
    """The different hashes of good frames as signs, [U, 256], -1 or 1."""
    kept = np.unique(video.hashes[video.qualities >= min_quality], axis=0)
    return np.unpackbits(kept, axis=1).astype(np.float32) * 2 - 1
