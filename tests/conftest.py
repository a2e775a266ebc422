from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Two cores and no clock: examples may be slow, and the same ones are drawn on every run.
settings.register_profile("hapvr", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("hapvr")

# Where tests run in the background, Ctrl-C is ignored, by what they start too; they are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Some tests start processes that import these tests; the current folder counts for those only if it is named.
_ROOT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), _ROOT]))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
