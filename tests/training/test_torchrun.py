"""A run under torchrun: two processes with streamed shards, one of which is killed, go on from the last checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.training import toy

# In the first attempt, the second process is killed before its third step.
KILLED = """
import os, signal, sys
from hapvr.training import trainer
from hapvr.training.__main__ import main

step = trainer.Trainer.step

def step_or_die(self, source):
    if self.done == 2 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, source)

if __name__ == "__main__":
    trainer.Trainer.step = step_or_die
    raise SystemExit(main(sys.argv[1:]))
"""


def run(*program: str, packed: Path, folder: Path) -> str:
    settings = ["tiny", f"data.frames={packed}", f"run.folder={folder}", "data.stream=0.1", "data.workers=1"]
    settings += ["views.frames=4", "data.size=112", "data.batch=2", "bank.weak=0", "bank.strong=0", "run.device=cpu"]
    settings += ["schedule.steps=4", "schedule.warm_up=1", "run.checkpoint_every=1", "run.log_every=1"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "1", *program, *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    toy.packed(str(tmp_path / "packed"), toy.noise_clips(6))
    (tmp_path / "killed.py").write_text(KILLED)
    lines = run(str(tmp_path / "killed.py"), packed=tmp_path / "packed", folder=tmp_path / "killed").splitlines()
    assert "continued after step 2" in lines
    assert any("2 process(es)" in line for line in lines)
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    assert "continued" not in run("-m", "hapvr.training", packed=tmp_path / "packed", folder=tmp_path / "whole")
    one, other = (tmp_path / name / "model" / "model.safetensors" for name in ("killed", "whole"))
    assert one.read_bytes() == other.read_bytes()
