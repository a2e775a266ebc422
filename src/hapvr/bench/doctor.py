"""What a bug report needs to say about this machine and this installation, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from hapvr import __version__
from hapvr.bench.machine import read_machine
from hapvr.errors import HapvrError
from hapvr.library import engine, versions
from hapvr.library.checksums import CHECKSUMS
from hapvr.library.writer_lock import find_holder
from hapvr.model import list_model_names, read_model_info
from hapvr.model.fetching import cache_folder
from hapvr.storage import sha256_file
from hapvr.weights import CONFIG, TENSORS, VERSION

_PACKAGES = (
    "torch", "numpy", "av", "lancedb", "pyarrow", "safetensors", "pillow", "h5py", "openvino", "opencv-python-headless",
    "fastapi", "uvicorn", "pydantic", "typer", "triton",
)  # fmt: skip
_CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mpeg2video", "prores", "mjpeg", "aac", "mp3", "opus")
# Variables that change what hapvr does, and are no secrets. Of others, such as HAPVR_TOKEN, only that they are set.
_SHOWN = ("HAPVR_ENGINE", "HAPVR_CACHE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def describe_installation(library: Path | None = None) -> dict[str, Any]:
    """Versions, processor, GPU, codecs, engine, paths, free space and models, as plain values.

    The home folder is written as `~`; of variables that may hold a secret, only their names are given.
    """
    machine = read_machine().to_json()
    paths = {"package": Path(__file__).parents[1], "cache": cache_folder(), "temporary": Path(tempfile.gettempdir())}
    found = {
        "hapvr": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "machine": {name: _round(machine[name]) for name in ("cpu", "cores", "features", "memory_gib", "load")},
        "gpus": _list_gpus(),
        "engine": machine["engine"],
        "packages": _list_packages(),
        "codecs": _list_codecs(),
        "formats": {"library": versions.FORMAT, "model": VERSION},
        "paths": {name: _describe_place(path) for name, path in paths.items()},
        "models": {name: _describe_model(name) for name in list_model_names()},
        "variables": {name: shorten_home(os.environ[name]) for name in _SHOWN if name in os.environ},
        "set": sorted(name for name in os.environ if name.startswith("HAPVR_") and name not in _SHOWN),
    }
    return found if library is None else found | {"library": _describe_library(library)}


def shorten_home(text: str) -> str:
    """A text without the name of the home folder, which is often a person's.

    >>> shorten_home(str(Path.home() / "videos"))
    '~/videos'
    """
    for home in {str(Path.home()), os.path.realpath(Path.home())} - {"/"}:
        text = text.replace(home, "~")
    return text


def _round(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value


def _list_packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _list_gpus() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = []
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        found.append(
            {
                "name": about.name,
                "memory_gib": round(about.total_memory / 2**30, 1),
                "capability": f"{about.major}.{about.minor}",
                "cuda": torch.version.cuda,
            }
        )
    return found


def _list_codecs() -> dict[str, Any]:
    """Which of the usual codecs can be decoded here, and the libraries that do it."""
    try:
        import av
        import av.codec
    except ImportError as error:
        return {"error": f"PyAV cannot be imported: {error}"}
    libraries = {name: ".".join(map(str, version)) for name, version in av.library_versions.items()}
    there = []
    for name in _CODECS:
        with suppress(ValueError):  # it is not known, or only written
            av.codec.Codec(name, "r")
            there.append(name)
    return {"decodable": there, "missing": [name for name in _CODECS if name not in there], "ffmpeg": libraries}


def _describe_place(path: Path) -> dict[str, Any]:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free
    writable = os.access(there, os.W_OK)
    return {"path": shorten_home(str(path)), "free_gib": round(free / 2**30, 1), "writable": writable}


def _describe_model(name: str) -> dict[str, Any]:
    try:
        info = read_model_info(name)
        sums = {file: sha256_file(info.folder / file) for file in (CONFIG, TENSORS)}
        return {"complete": info.complete, "bytes": info.bytes, "sha256": sums}
    except (HapvrError, OSError) as error:
        return {"error": shorten_home(str(error))}


def _describe_library(path: Path) -> dict[str, Any]:
    """What can be said about a library without opening it: it may be what is wrong."""
    about: dict[str, Any] = _describe_place(path) | {"is_library": versions.is_library(path)}
    try:
        version = versions.current_version(path)
        folder = versions.version_folder(path, version)
        settings = versions.read_settings(folder)
        about |= {"version": version, "codec": settings.codec, "rate": settings.rate, "digest": settings.model_digest}
        about |= {"model": shorten_home(settings.model), "checksums": (folder / CHECKSUMS).is_file()}
        tables = sorted(folder.glob("*.lance"))
        about["tables"] = {one.stem: (engine.newest_manifest(one) or (None,))[0] for one in tables}
        about["writer"] = find_holder(path)
    except HapvrError as error:
        about["error"] = shorten_home(str(error))
    return about


def format_installation(found: dict[str, Any], indent: str = "") -> list[str]:
    """The same as lines of text.

    >>> format_installation({"hapvr": "1.0", "machine": {"cores": 2, "features": ["AVX2", "VNNI"]}})
    ['hapvr: 1.0', 'machine:', '  cores: 2', '  features: AVX2, VNNI']
    """
    lines = []
    for name, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = {str(number): one for number, one in enumerate(value)}
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", *format_installation(value, indent + "  ")]
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple | dict) else str(value)
            lines.append(f"{indent}{name}: {text or 'none'}")
    return lines
