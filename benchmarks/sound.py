"""Sound: what is found after coding, noise, cuts and other speeds, false matches, and what it costs.

    python benchmarks/sound.py FOLDER_OF_SOUNDS --drawn 40

Files of the folder that last a minute or more are looked for by parts of them, coded again; pieces of 20 s of different
files, and drawn sounds, are compared with each other: any match is a false one.
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
from hapvr.audio.fingerprints import Fingerprint, make_fingerprint
from hapvr.audio.matching import SoundQuery
from hapvr.synthetic import sounds

Samples = NDArray[np.float32]
PIECE_S = 20


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
    parser.add_argument("folder", type=Path)
    parser.add_argument("--drawn", type=int, default=40, help="drawn sounds of each kind")
    parser.add_argument("--parts", type=int, default=6, help="of each file, for each length and change")
    options = parser.parse_args()
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
