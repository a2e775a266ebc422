"""Describes this machine: processor and its instructions for matrix products, GPU, engine, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hapvr import __version__
from hapvr.features.engine import describe_engine
from hapvr.workers.processes import count_cores

# What makes a difference to hapvr, by the names that Linux gives them. On Intel, `amx_tile` is what AMX needs.
_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "avx_vnni": "VNNI",
    "avx512_bf16": "bfloat16",
    "amx_bf16": "AMX bfloat16",
    "amx_int8": "AMX int8",
    "asimddp": "int8 dot products",
    "i8mm": "int8 products",
    "bf16": "bfloat16",
}
# The same by what torch knows, where the system does not list them.
_TORCH_CHECKS = {
    "_is_avx2_supported": "AVX2",
    "_is_avx512_supported": "AVX-512",
    "_is_vnni_supported": "VNNI",
    "_is_avx512_bf16_supported": "bfloat16",
    "_is_amx_tile_supported": "AMX",
}


@dataclass(frozen=True)
class Machine:
    """Hardware and software that measured figures depend on."""

    cpu: str
    cores: int  # that this process may use
    features: tuple[str, ...]  # of the processor
    memory_gib: float | None
    gpu: str | None
    engine: str  # what runs backbones on the processor, with its version
    system: str
    versions: dict[str, str]
    load: float | None  # programs that ran at once in the last minute, on average; None where it is not known

    @property
    def busy(self) -> bool:
        """Whether other programs take so much that figures are too low: more than a fourth of the cores."""
        return self.load is not None and self.load > self.cores / 4

    def to_json(self) -> dict[str, Any]:
        """The part `machine` of `hapvr bench --json`."""
        return asdict(self) | {"features": list(self.features)}

    def describe(self) -> str:
        """The machine in a line."""
        able = f" ({', '.join(self.features)})" if self.features else ""
        memory = "" if self.memory_gib is None else f", {self.memory_gib:.0f} GiB"
        gpu = "" if self.gpu is None else f", {self.gpu}"
        return f"{self.cpu}, {self.cores} {'core' if self.cores == 1 else 'cores'}{able}{memory}{gpu}"


def read_machine() -> Machine:
    """This machine."""
    info = _read_text("/proc/cpuinfo")
    return Machine(
        cpu=find_cpu_name(info) or platform.processor() or platform.machine() or "unknown processor",
        cores=count_cores(),
        features=find_features(info) or _ask_torch(),
        memory_gib=_find_memory_gib(_read_text("/proc/meminfo")),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        engine=describe_engine(),
        system=f"{platform.system()} {platform.machine()}",
        versions=_list_versions(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _list_versions() -> dict[str, str]:
    found = {"hapvr": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    with suppress(importlib.metadata.PackageNotFoundError):  # a machine without a decoder
        found["av"] = importlib.metadata.version("av")
    return found


def find_cpu_name(info: str) -> str | None:
    """The processor's name in the text of /proc/cpuinfo.

    >>> find_cpu_name("processor\\t: 0\\nmodel name\\t: AMD EPYC\\nflags\\t\\t: fpu avx2\\n")
    'AMD EPYC'
    """
    return _find_field(info, "model name")


def find_features(info: str) -> tuple[str, ...]:
    """The instructions of the processor for fast matrix products, from the text of /proc/cpuinfo.

    >>> find_features("flags\\t\\t: fpu avx2 avx512_vnni avx_vnni\\n"), find_features("Features\\t: fp i8mm bf16\\n")
    (('AVX2', 'VNNI'), ('int8 products', 'bfloat16'))
    """
    flags = set((_find_field(info, "flags") or _find_field(info, "Features") or "").split())
    return tuple(dict.fromkeys(words for flag, words in _FEATURES.items() if flag in flags))


def _ask_torch() -> tuple[str, ...]:
    checks = ((getattr(torch.cpu, name, None), words) for name, words in _TORCH_CHECKS.items())
    return tuple(words for check, words in checks if check is not None and check())


def _find_field(info: str, name: str) -> str | None:
    for line in info.splitlines():
        key, sign, value = line.partition(":")
        if sign and key.strip() == name:
            return value.strip()
    return None


def _find_memory_gib(info: str) -> float | None:
    words = (_find_field(info, "MemTotal") or "").split()
    return int(words[0]) / 2**20 if words[:1] and words[0].isdecimal() else None


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:  # no Linux
        return ""
