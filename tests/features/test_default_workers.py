"""How many processes read videos if nobody says."""

from __future__ import annotations

import pytest

from hapvr.errors import ConfigError
from hapvr.features import video_extraction
from hapvr.features.video_extraction import default_workers


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (6, 6), (16, 16), (128, 16)])
def test_each_core_decodes_files_up_to_a_limit(cores: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video_extraction, "count_cores", lambda: cores)
    assert default_workers(None) == default_workers(None, gpu=True) == workers


@pytest.mark.parametrize(("cores", "on_cpu", "with_gpu"), [(1, 1, 1), (2, 2, 1), (128, 128, 127)])
def test_all_cores_unpack_frames_but_the_one_that_feeds_a_gpu(
    cores: int, on_cpu: int, with_gpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_extraction, "count_cores", lambda: cores)
    assert default_workers(None, packed=True) == on_cpu
    assert default_workers(None, packed=True, gpu=True) == with_gpu


def test_a_number_that_is_asked_for_is_taken() -> None:
    assert default_workers(64) == default_workers(64, packed=True, gpu=True) == 64
    for packed in (False, True):
        with pytest.raises(ConfigError, match="workers must be at least 1, got 0"):
            default_workers(0, packed=packed)
