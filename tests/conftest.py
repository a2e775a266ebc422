from __future__ import annotations

import signal

import pytest
import torch
from hypothesis import settings

# Two cores and no clock: examples may be slow, and the same ones are drawn on every run.
settings.register_profile("hapvr", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("hapvr")

# Where tests run in the background, Ctrl-C is ignored, by what they start too; they are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
