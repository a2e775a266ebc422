"""What the processor says about itself where libraries read it wrongly."""

from __future__ import annotations

import os
import sys
from functools import cache

_LIMIT = "ONEDNN_MAX_CPU_ISA"
# push rbx; mov eax, 0x1d; xor ecx, ecx; cpuid; pop rbx; ret
_COUNT_TILE_LAYOUTS = bytes.fromhex("53 b8 1d000000 31c9 0fa2 5b c3")


def avoid_unusable_amx() -> None:
    """Keep oneDNN, in torch and in OpenVINO, off AMX where its tiles cannot be set up: the process would be killed.

    oneDNN reads the limit once, at its first operation. One that is set already is left as it is.
    """
    if _LIMIT not in os.environ and has_unusable_amx():
        os.environ[_LIMIT] = "AVX512_CORE_BF16"


@cache
def has_unusable_amx() -> bool:
    """Whether the processor claims to have AMX and names no layout of its tiles (leaf 0x1d of cpuid), as some virtual
    machines do. oneDNN (up to 3.12) then sets up none and runs into an illegal instruction.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64" or not _claims_amx():
        return False
    import ctypes  # here, so that `import hapvr` stays quick elsewhere
    import mmap

    try:
        with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as memory:
            memory.write(_COUNT_TILE_LAYOUTS)
            held = ctypes.c_char.from_buffer(memory)
            count = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(held))()
            del held  # which would keep the memory from being closed
    except OSError:  # a system that forbids code in written memory; oneDNN makes its own code, and does not run there
        return False
    return bool(count == 0)


def _claims_amx() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return "amx_tile" in flags.split()


def multiplies_bytes() -> bool:
    """Whether the processor has instructions that multiply bytes and add up four products (VNNI), by what torch knows.

    Without them pairs of products are added in 16 bits, which may overflow.
    """
    import torch  # here, so that `import hapvr` stays quick

    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if "avx512_vnni" in capabilities:
        return bool(capabilities["avx512_vnni"] or capabilities.get("avx_vnni"))
    check = getattr(torch.cpu, "_is_vnni_supported", None)  # older versions of torch
    return check is not None and bool(check())
