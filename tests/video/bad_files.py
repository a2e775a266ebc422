"""Files that are wrong on purpose: each must give frames with warnings or a `DecodeError`, and nothing else."""

from __future__ import annotations

import os
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from tests.video import media


def make(folder: Path) -> dict[str, Path]:
    """Write them all; name -> path."""
    folder.mkdir(parents=True, exist_ok=True)
    good = _good(folder / "good")
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:{folder}/good/a.ts\n#EXT-X-ENDLIST\n"
    contents = {"reaching_out.m3u8": playlist.encode()} | _plain(good) | _cut(good) | _flipped(good) | _huge(good)
    paths = {}
    for name, content in contents.items():
        paths[name] = folder / name
        paths[name].write_bytes(content)
    return paths | _not_files(folder, good)


def _good(folder: Path) -> dict[str, bytes]:
    """One sound file of each kind, from which the bad ones are made."""
    folder.mkdir()
    codes = [media.barcode(index) for index in range(60)]
    pictures = [Image.fromarray(code) for code in codes[:12]]
    paths = [
        media.write(folder / "fast.mp4", codes, rate=20, mux={"movflags": "faststart"}),
        media.write(folder / "slow.mp4", codes, rate=20),
        media.write(folder / "a.mkv", codes, rate=20),
        media.write(folder / "a.ts", codes, rate=20, container="mpegts"),
        media.write(folder / "a.avi", codes, rate=20, codec="mpeg4"),
        media.write(folder / "a.webm", codes[:12], rate=20, codec="libvpx"),
        media.write(folder / "a.gif", codes[:12], rate=10, codec="gif", pixels="rgb8"),
        media.write_sound(folder / "sound.m4a"),
        media.write_sound(folder / "sound.flac", "flac"),
        media.write_wave(folder / "sound.wav"),
        folder / "a.webp", folder / "a.png", folder / "a.jpg",
    ]  # fmt: skip
    pictures[0].save(folder / "a.webp", save_all=True, append_images=pictures[1:], duration=100)
    pictures[0].save(folder / "a.png")
    pictures[0].save(folder / "a.jpg")
    return {path.name: path.read_bytes() for path in paths}


def _plain(good: dict[str, bytes]) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    return {
        "empty.mp4": b"",
        "one_byte.mp4": b"\0",
        "zeros.mp4": bytes(100_000),
        "noise.mp4": rng.bytes(100_000),
        "text.mp4": b"This is no video.\n" * 500,
        "page.html.mp4": b"<!doctype html><title>404</title>" * 50,
        "playlist.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfast.mp4\n#EXT-X-ENDLIST\n",
        "list.ffconcat": b"ffconcat version 1.0\nfile good/fast.mp4\n",
        "subtitles.srt": b"1\n00:00:01,000 --> 00:00:02,000\nhello\n",
        "sound.m4a": good["sound.m4a"],
        "sound.wav": good["sound.wav"],
        "sound_with_cover.flac": media.with_cover(good["sound.flac"], good["a.png"]),
        "png_named.mp4": good["a.png"],
        "only_header.mp4": good["slow.mp4"][:32],
        "two_in_one.mp4": good["fast.mp4"] + good["a.mkv"],
        "mdat_zeroed.mp4": good["fast.mp4"][:3000] + bytes(len(good["fast.mp4"]) - 3000),
        "zero_duration.mp4": _zero_duration(good["fast.mp4"]),
        "garbage_before.ts": rng.bytes(1000) + good["a.ts"],
        "hole.ts": good["a.ts"][:9400] + bytes(9400) + good["a.ts"][18800:],
    }


def _cut(good: dict[str, bytes]) -> dict[str, bytes]:
    cuts = {}
    for name in ("fast.mp4", "slow.mp4", "a.mkv", "a.ts", "a.avi", "a.webm", "a.gif", "a.webp", "a.png", "a.jpg"):
        for percent in (3, 30, 60, 95) if name != "fast.mp4" else (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99):
            cuts[f"cut_{percent:02}_{name}"] = good[name][: len(good[name]) * percent // 100]
    return cuts


def _flipped(good: dict[str, bytes]) -> dict[str, bytes]:
    """Ten bytes anywhere, then ten in the first 2%, where the headers are."""
    flipped = {}
    for name in ("fast.mp4", "a.mkv", "a.ts", "a.avi", "a.webm", "a.gif", "a.webp", "a.png", "a.jpg"):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            data = bytearray(good[name])
            reach = len(data) if seed % 2 else max(len(data) // 50, 200)
            for at in rng.integers(0, min(reach, len(data)), 10):
                data[at] ^= int(rng.integers(1, 256))
            flipped[f"flipped_{seed}_{name}"] = bytes(data)
    return flipped


def _huge(good: dict[str, bytes]) -> dict[str, bytes]:
    """Sizes that are declared and not there."""
    webp = bytearray(good["a.webp"])
    at = webp.index(b"VP8X") + 12
    webp[at : at + 6] = b"\xfe\x3f\x00\xfe\x3f\x00"
    avi = good["a.avi"].replace(struct.pack("<II", *media.SIZE), struct.pack("<II", 60_000, 60_000))
    return {
        "huge_60000.png": png(60_000, 60_000),
        "huge_12000.png": png(12_000, 12_000),
        "zero.png": png(0, 10),
        "huge.webp": bytes(webp),
        "huge.avi": avi,
        "huge.gif": b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + good["a.gif"][10:],
    }


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def _zero_duration(data: bytes) -> bytes:
    """Durations of 0 in the movie, track and media headers of an MP4 file."""
    out = bytearray(data)
    for kind, offset in ((b"mvhd", 20), (b"tkhd", 24), (b"mdhd", 20)):
        at = out.index(kind) + offset
        out[at : at + 4] = bytes(4)
    return bytes(out)


def _not_files(folder: Path, good: dict[str, bytes]) -> dict[str, Path]:
    paths = {name: folder / name for name in ("folder.mp4", "broken_link.mp4", "loop.mp4", "absent.mp4", "pipe.mp4")}
    paths["folder.mp4"].mkdir()
    paths["broken_link.mp4"].symlink_to(folder / "nowhere.mp4")
    paths["loop.mp4"].symlink_to(paths["loop.mp4"])
    os.mkfifo(paths["pipe.mp4"])
    paths["device"] = Path("/dev/null")
    paths["nul\0byte.mp4"] = Path("nul\0byte.mp4")
    paths["a_file/inside.mp4"] = folder / "empty.mp4" / "inside.mp4"
    paths["long_name"] = folder / ("x" * 300)
    paths["forbidden.mp4"] = folder / "forbidden.mp4"
    paths["forbidden.mp4"].write_bytes(good["fast.mp4"])
    paths["forbidden.mp4"].chmod(0)
    paths["socket.mp4"] = _socket(folder)
    return paths


def _socket(folder: Path) -> Path:
    """A socket; its address may be about a hundred characters long, so it is made from within the folder."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket.mp4")
    finally:
        os.chdir(here)
    return folder / "socket.mp4"
