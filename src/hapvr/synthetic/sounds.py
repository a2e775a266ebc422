"""Drawn sounds, and files that hold them: melodies and mumbling, for tests and benchmarks."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.storage import replace_file

RATE = 16_000
"""Samples a second of a drawn sound."""
Sound = NDArray[np.float32]
Kind = Literal["melody", "mumble"]

_SCALE = (0, 2, 4, 5, 7, 9, 11, 12, 14, 16)  # half tones above the key
_CODECS = {".wav": ("wav", "pcm_s16le"), ".mp3": ("mp3", "libmp3lame"), ".m4a": ("ipod", "aac")}


def draw_sound(seed: int, seconds: float, *, kind: Kind = "melody") -> Sound:
    """A sound [S] in [-1, 1] at `RATE`, the same for the same arguments, another for each seed.

    A "melody" has notes with overtones, a bass and a drum at a steady beat; a "mumble" has voiced syllables of
    gliding pitch with two formants, hisses and pauses, as speech does.
    """
    rng = np.random.default_rng([seed, 0 if kind == "melody" else 1])
    samples = _draw_melody(rng, seconds) if kind == "melody" else _draw_mumble(rng, seconds)
    return np.asarray(0.5 * samples / max(float(np.abs(samples).max(initial=0.0)), 1e-9), np.float32)


def _draw_melody(rng: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    made = np.zeros(round(seconds * RATE))
    beat_s, key = rng.uniform(0.18, 0.4), 180 * 2 ** (rng.integers(12) / 12)
    overtones = rng.dirichlet(np.ones(5))
    for number in range(int(seconds / beat_s) + 1):
        start_s = number * beat_s
        if rng.random() < 0.85:
            pitch = key * 2 ** (rng.choice(_SCALE) / 12)
            _add_note(made, start_s, beat_s * rng.choice((1, 1, 2, 3)), pitch, overtones, rng.uniform(0.4, 1))
        if number % 4 == 0:
            _add_note(made, start_s, 4 * beat_s, key / 2 * 2 ** (rng.choice(_SCALE[:5]) / 12), overtones, 0.6)
        if number % 2 == 0:
            _add_hiss(made, rng, start_s, 0.06, 0.3)
    return made


def _draw_mumble(rng: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    made = np.zeros(round(seconds * RATE))
    voice, now_s = rng.uniform(90, 220), 0.0
    while now_s < seconds:
        long_s = rng.uniform(0.08, 0.3)
        times = np.arange(round(long_s * RATE)) / RATE
        pitch = voice * (1 + rng.uniform(-0.2, 0.2) + rng.uniform(-0.3, 0.3) * times)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        formants = rng.uniform(300, 900), rng.uniform(1000, 2800)
        order = np.arange(1, 25)
        strengths = sum(np.exp(-np.square((order * voice - one) / 180)) for one in formants) + 0.02
        syllable = (np.sin(phase[:, None] * order) * strengths).sum(axis=1) * np.sin(np.pi * times / long_s)
        _add(made, now_s, syllable)
        if rng.random() < 0.3:
            _add_hiss(made, rng, now_s + long_s, 0.08, 0.5)
        now_s += long_s + (rng.uniform(0.3, 0.9) if rng.random() < 0.15 else rng.uniform(0.0, 0.08))
    return made


def _add(made: NDArray[np.float64], start_s: float, samples: NDArray[np.float64]) -> None:
    first = round(start_s * RATE)
    made[first : first + len(samples)] += samples[: max(0, len(made) - first)]


def _add_note(
    made: NDArray[np.float64], start_s: float, long_s: float, pitch: float, overtones: NDArray[np.float64], loud: float
) -> None:
    times = np.arange(round(long_s * RATE)) / RATE
    waves = [share * np.sin(2 * np.pi * pitch * number * times) for number, share in enumerate(overtones, 1)]
    _add(made, start_s, loud * np.sum(waves, axis=0) * np.exp(-3 * times / long_s))


def _add_hiss(made: NDArray[np.float64], rng: np.random.Generator, start_s: float, long_s: float, loud: float) -> None:
    count = round(long_s * RATE)
    _add(made, start_s, loud * rng.normal(size=count) * np.exp(-4 * np.arange(count) / count) / 3)


# --- files -----------------------------------------------------------------------------------------------------------


def write_sound(sound: Sound, path: str | Path, *, bit_rate: int = 128_000, rate: int = 44_100) -> None:
    """Write a file of sound alone: .wav, .mp3 or .m4a, as its name says; mono, `rate` samples a second."""
    suffix = Path(path).suffix.lower()
    if suffix not in _CODECS:
        raise ConfigError(f"A sound is written as {', '.join(_CODECS)}; got '{Path(path).name}'.")
    form, codec = _CODECS[suffix]
    with replace_file(path, sync=False) as temporary, av.open(os.fspath(temporary), "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        assert isinstance(stream, av.AudioStream)
        if form != "wav":
            stream.bit_rate = bit_rate
        _encode(container, stream, sound, rate)


def add_sound(video: str | Path, sound: Sound, path: str | Path, *, bit_rate: int = 96_000) -> None:
    """Write an mp4 file with the pictures of `video`, not coded again, and a sound (AAC); any sound it had is gone."""
    with (
        replace_file(path, sync=False) as temporary,
        av.open(os.fspath(video)) as source,
        av.open(os.fspath(temporary), "w", format="mp4") as container,
    ):
        pictures = source.streams.video[0]
        copied = container.add_stream_from_template(pictures)
        stream = container.add_stream("aac", rate=44_100, layout="mono")
        stream.bit_rate = bit_rate
        for packet in source.demux(pictures):
            if packet.dts is not None:
                packet.stream = copied
                container.mux(packet)
        _encode(container, stream, sound, 44_100)


def _encode(container: av.container.OutputContainer, stream: av.AudioStream, sound: Sound, rate: int) -> None:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound)[None], format="flt", layout="mono")
    frame.sample_rate, frame.time_base, frame.pts = RATE, Fraction(1, RATE), 0
    size = stream.codec_context.frame_size or None
    resampler = av.AudioResampler(format=stream.format.name, layout="mono", rate=rate, frame_size=size)
    for made in [*resampler.resample(frame), *resampler.resample(None)]:
        container.mux(stream.encode(made))
    container.mux(stream.encode(None))
