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


# Minutes of browsers, killed processes, whole commands and training: `make test-fast` leaves these files out.
SLOW = [
    "cli/test_demo.py",
    "cli/test_folders.py",
    "bench/test_run.py",
    "evaluation/test_scoring.py",
    "features/test_engine.py",
    "features/test_files.py",
    "video/test_packed.py",
    "library/test_adding.py",
    "library/test_agreement.py",
    "library/test_candidate_index.py",
    "library/test_contract.py",
    "library/test_monitoring.py",
    "library/test_object_store.py",
    "library/test_sound.py",
    "library/test_text.py",
    "library/test_library_calibration.py",
    "library/test_checking.py",
    "library/test_checksums.py",
    "library/test_cli.py",
    "library/test_cli_search.py",
    "library/test_cli_toys.py",
    "library/test_contract.py",
    "library/test_crashes.py",
    "library/test_damage.py",
    "library/test_library.py",
    "library/test_library_compare.py",
    "library/test_match_watch.py",
    "library/test_determinism.py",
    "library/test_power_loss.py",
    "paper/test_ablations.py",
    "server/test_api.py",
    "server/test_browser.py",
    "server/test_client.py",
    "server/test_connections.py",
    "server/test_fuzz.py",
    "server/test_health.py",
    "server/test_running.py",
    "server/test_schemas.py",
    "server/test_surfaces.py",
    "server/test_workers.py",
    "similarity/test_kernels.py",
    "synthetic/test_benchmark.py",
    "test_compare.py",
    "test_convert.py",
    "test_current_folder.py",
    "test_fuzzing.py",
    "test_install.py",
    "training/test_look_alikes.py",
    "training/test_cli_train.py",
    "training/test_distributed.py",
    "training/test_torchrun.py",
    "training/test_trainer.py",
    "training/test_trainer_learns.py",
    "training/test_whole.py",
    "video/test_decode_bad.py",
    "video/test_decode_chunks.py",
    "workers/test_pool.py",
    "workers/test_ray.py",
    "workers/test_sandbox.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {Path(__file__).parent / name for name in SLOW}
    missing = sorted(str(path) for path in slow if not path.is_file())
    assert not missing, f"tests/conftest.py names test files that are not there: {missing}"
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
    # Long files first: with one file a core, a long one at the end would leave the other cores idle.
    items.sort(key=lambda item: item.path not in slow)
