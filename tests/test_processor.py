"""AMX that cannot be used: what is claimed, what is done about it, and that nothing is killed on this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from hapvr import processor
from hapvr.features.extractor import fast_dtype

LIMIT = "ONEDNN_MAX_CPU_ISA"


@pytest.mark.parametrize("unusable", [True, False])
def test_onednn_is_limited_where_amx_is_unusable_alone(monkeypatch: pytest.MonkeyPatch, unusable: bool) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setattr(processor, "has_unusable_amx", lambda: unusable)
    processor.avoid_unusable_amx()
    assert os.environ.pop(LIMIT, None) == ("AVX512_CORE_BF16" if unusable else None)


def test_a_limit_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "AVX2")
    monkeypatch.setattr(processor, "has_unusable_amx", lambda: True)
    processor.avoid_unusable_amx()
    assert os.environ[LIMIT] == "AVX2"


def test_a_processor_without_amx_has_none_that_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_claims_amx", lambda: False)
    assert not processor.has_unusable_amx.__wrapped__()


def test_float32_is_used_where_amx_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    for unusable, dtype in ((True, torch.float32), (False, torch.bfloat16)):
        monkeypatch.setattr("hapvr.features.extractor.has_unusable_amx", lambda unusable=unusable: unusable)
        assert fast_dtype(torch.device("cpu")) == dtype


def test_products_in_bfloat16_do_not_kill_the_process() -> None:
    program = "import hapvr, torch; x = torch.ones(64, 512).bfloat16(); print((x @ x.T).float().mean().item())"
    environment = {name: value for name, value in os.environ.items() if name != LIMIT}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "512.0\n"), done.stderr
