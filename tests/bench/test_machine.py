from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hapvr.bench import machine
from hapvr.bench.machine import find_features, read_machine

INTEL = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum
flags\t\t: fpu sse avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: something else
"""


def test_features_by_the_flags_of_the_system() -> None:
    assert find_features(INTEL) == ("AVX2", "AVX-512", "VNNI", "bfloat16", "AMX bfloat16", "AMX int8")
    assert find_features("no such line") == ()


def test_a_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/proc/cpuinfo": INTEL, "/proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n"}
    monkeypatch.setattr(machine, "_read_text", texts.get)
    monkeypatch.setattr(machine, "count_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    found = read_machine()
    assert found.describe() == (
        "Intel(R) Xeon(R) Platinum, 8 cores (AVX2, AVX-512, VNNI, bfloat16, AMX bfloat16, AMX int8), 16 GiB"
    )
    assert json.loads(json.dumps(found.to_json()))["versions"].keys() == {"hapvr", "python", "torch", "av"}


def test_a_system_that_says_nothing_has_a_name_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read_text", lambda _: "")
    found = read_machine()
    assert found.cpu
    assert found.memory_gib is None
    assert found.cores >= 1


@pytest.mark.parametrize(("load", "busy"), [(None, False), (0.9, False), (2.1, True)])
def test_a_machine_is_busy_from_a_fourth_of_its_cores(load: float | None, busy: bool) -> None:
    assert replace(read_machine(), cores=8, load=load).busy is busy
