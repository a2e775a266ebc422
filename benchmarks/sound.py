"""Sound: what is found after coding, noise, cuts and other speeds, false matches, and what it costs.

    python benchmarks/sound.py FOLDER_OF_SOUNDS --drawn 40
    python benchmarks/sound.py --videos 10000

Files of the folder that last a minute or more are looked for by parts of them, coded again; pieces of 20 s of different
files, and drawn sounds, are compared with each other: any match is a false one.

With `--videos`, a search in that many sounds: by the index, and by comparing all, in turns. The sounds are drawn ones
whose parts of two seconds were put into another order and moved up or down by some tones, since drawing takes long.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hapvr.audio.decoding import RATE, SoundPart, SoundReading, read_sound
from hapvr.audio.fingerprints import BINS, FRAME_S, Fingerprint, make_fingerprint
from hapvr.audio.matching import SoundQuery
from hapvr.audio.sound_index import build_index, read_index, write_index
from hapvr.synthetic import sounds

Samples = NDArray[np.float32]
PIECE_S = 20
PART_FRAMES = round(2 / FRAME_S)


def read(path: Path) -> Samples:
    """All samples of a file."""
    parts = [part.samples for part in read_sound(path, SoundReading())]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def describe(samples: Samples) -> Fingerprint:
    """The fingerprint of samples."""
    return make_fingerprint([SoundPart(0.0, samples, False)])


def code_again(samples: Samples, folder: Path, name: str, bit_rate: int, *, speed: float = 1.0) -> Samples:
    """What is left of a sound after a coder; played faster by `speed`."""
    places = np.arange(0, len(samples) - 1, speed * RATE / sounds.RATE)
    doubled = np.interp(places, np.arange(len(samples)), samples).astype(np.float32)
    sounds.write_sound(doubled, folder / name, bit_rate=bit_rate)
    return read(folder / name)


def add_noise(samples: Samples, decibels: float, rng: np.random.Generator) -> Samples:
    """White noise that much weaker than the sound."""
    level = float(np.sqrt(np.mean(np.square(samples)))) / 10 ** (decibels / 20)
    return (samples + level * rng.normal(size=len(samples))).astype(np.float32)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--drawn", type=int, default=40, help="drawn sounds of each kind")
    parser.add_argument("--parts", type=int, default=6, help="of each file, for each length and change")
    parser.add_argument("--videos", type=int, help="sounds to search in")
    parser.add_argument("--seconds", type=int, default=20, help="of each of them")
    parser.add_argument("--queries", type=int, default=5, help="of 10 s each")
    options = parser.parse_args()
    if options.videos is not None:
        measure_search(options.videos, options.seconds, options.queries)
    if options.folder is not None:
        measure_matching(options)


def mix(parts: list[Fingerprint], seconds: int, rng: np.random.Generator) -> Fingerprint:
    """A sound made of parts of two seconds, each moved by up to 20 bins."""
    frames, bins = [], []
    for place in range(seconds // 2):
        part, move = parts[rng.integers(len(parts))], rng.integers(-20, 21)
        kept = (part.bins + move >= 0) & (part.bins + move < BINS)
        frames.append(part.frames[kept] + place * PART_FRAMES)
        bins.append(part.bins[kept] + move)
    return Fingerprint(np.concatenate(frames), np.concatenate(bins))


def measure_search(videos: int, seconds: int, queries: int) -> None:
    """Print what a search in many sounds costs, in seconds of processor time."""
    rng = np.random.default_rng(0)
    parts = []
    for kind, seed in itertools.product(("melody", "mumble"), range(40)):
        drawn = sounds.draw_sound(seed, PIECE_S, kind=kind)  # type: ignore[arg-type]
        whole = describe(np.ascontiguousarray((drawn[::2] + drawn[1::2]) / 2))
        for start in range(0, int(whole.frames.max()), PART_FRAMES):
            inside = (whole.frames >= start) & (whole.frames < start + PART_FRAMES)
            parts.append(Fingerprint(whole.frames[inside] - start, whole.bins[inside]))
    targets = {key: mix(parts, seconds, rng) for key in range(videos)}
    began = time.process_time()
    index = build_index({key: (0, peaks) for key, peaks in targets.items()})
    spent = time.process_time() - began
    with tempfile.TemporaryDirectory() as made:
        write_index(index, Path(made, "index.npz"))
        size = Path(made, "index.npz").stat().st_size
        began = time.process_time()
        index = read_index(Path(made, "index.npz"))
        read_s = time.process_time() - began
    print(f"{videos:,} sounds of {seconds} s, {len(index.places):,} pairs: {spent:.1f} s to index them, "
          f"{size / 2**20:.0f} MiB, {read_s:.2f} s to read the index")  # fmt: skip
    for _ in range(queries):
        wanted = int(rng.integers(videos))
        query_peaks = targets[wanted].between(5.0, 15.0)
        took = [time.process_time()]
        query = SoundQuery(query_peaks)
        candidates = index.names[index.find_candidates(query)].tolist()
        quick = {key: found for key in candidates if (found := query.find(targets[key]))}
        took.append(time.process_time())
        slow = {key: found for key, peaks in targets.items() if (found := query.find(peaks))}
        took.append(time.process_time())
        print(f"{len(query_peaks)} peaks: {took[1] - took[0]:.3f} s by the index, {len(candidates):,} candidates; "
              f"{took[2] - took[1]:.2f} s by comparing all; {len(slow):,} found, the answers are "
              f"{'equal' if quick == slow else 'NOT EQUAL'}")  # fmt: skip


def measure_matching(options: argparse.Namespace) -> None:
    """Print what is found, false matches, and costs, of the files of a folder."""
    rng = np.random.default_rng(0)
    files = {path.name: read(path) for path in sorted(options.folder.iterdir()) if path.is_file()}
    began = time.process_time()
    prints = {path: describe(read(options.folder / path)) for path in files}
    seconds = sum(map(len, files.values())) / RATE
    size = sum(len(one.to_bytes()) for one in prints.values())
    spent = time.process_time() - began
    print(f"{len(files)} files, {seconds / 60:.1f} min: {60 * spent / seconds:.3f} s of processor time to read and "
          f"describe a minute, {60 * size / seconds:,.0f} bytes a minute")  # fmt: skip

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        changes: dict[str, Callable[[Samples], Samples]] = {
            "AAC 64 kbit/s": lambda x: code_again(x, folder, "a.m4a", 64_000),
            "MP3 64 kbit/s": lambda x: code_again(x, folder, "a.mp3", 64_000),
            "a tenth of the volume, MP3 128": lambda x: 0.1 * code_again(x, folder, "a.mp3", 128_000),
            "noise at -20 dB, MP3 128": lambda x: code_again(add_noise(x, 20, rng), folder, "a.mp3", 128_000),
            "noise at -10 dB, MP3 128": lambda x: code_again(add_noise(x, 10, rng), folder, "a.mp3", 128_000),
            "speed 1.05, MP3 128": lambda x: code_again(x, folder, "a.mp3", 128_000, speed=1.05),
            "speed 0.96, MP3 128": lambda x: code_again(x, folder, "a.mp3", 128_000, speed=0.96),
        }
        long = {name: samples for name, samples in files.items() if len(samples) >= 60 * RATE}
        for change, apply in changes.items():
            found = dict.fromkeys((5, 10, 20), 0)
            for length, (name, samples) in itertools.product(found, long.items()):
                for _ in range(options.parts):
                    start = int(rng.integers(len(samples) - length * RATE))
                    query = SoundQuery(describe(apply(samples[start : start + length * RATE])))
                    found[length] += bool(query.find(prints[name]))
            total = options.parts * len(long)
            print(f"{change}: " + ", ".join(f"{count} of {total} of {length} s" for length, count in found.items()))

        pieces: list[tuple[str, Fingerprint]] = []
        for name, samples in files.items():
            starts = range(0, max(1, len(samples) - 5 * RATE), PIECE_S * RATE)
            pieces += [(name, describe(samples[start : start + PIECE_S * RATE])) for start in starts]
        kinds: tuple[sounds.Kind, ...] = ("melody", "mumble")
        for kind, seed in itertools.product(kinds, range(options.drawn)):
            drawn = sounds.draw_sound(seed, PIECE_S, kind=kind)
            pieces.append((f"{kind} {seed}", describe(np.ascontiguousarray((drawn[::2] + drawn[1::2]) / 2))))
    wrong = pairs = 0
    began = time.process_time()
    for name, piece in pieces:
        query = SoundQuery(piece)
        for other, target in pieces:
            if name != other:
                pairs += 1
                if found_here := query.find(target):
                    wrong += 1
                    print(f"  false: {name} and {other}, {found_here}")
    spent = time.process_time() - began
    print(f"{wrong} false matches among {pairs:,} pairs of {PIECE_S} s of different sounds at 11 speeds; "
          f"{1e3 * spent / pairs:.2f} ms a pair")  # fmt: skip


if __name__ == "__main__":
    main()
