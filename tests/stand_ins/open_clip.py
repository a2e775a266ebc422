"""What hapvr asks of open_clip, for folders with a random matrix: a frame lies where the word for its colour lies.

A process whose PYTHONPATH names this folder imports it as `open_clip`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

COLOURS = {"red": (230, 20, 20), "green": (20, 230, 20), "blue": (20, 20, 230)}
LOADED: list[str] = []  # what was asked for


def make_python_path() -> str:
    """PYTHONPATH of a process that imports this module as `open_clip`, and everything else from where this one does."""
    return os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


class Model:
    def __init__(self, place: str) -> None:
        self._weights = load_file(Path(place.removeprefix("local-dir:")) / "model.safetensors")["directions"]

    def eval(self) -> None:
        LOADED.append("eval")

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3)) @ self._weights

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float() @ self._weights


def create_model_from_pretrained(place: str, *, device: Any, **chosen: str) -> tuple[Model, Any]:
    LOADED.append(" ".join([place, str(device), *chosen]))
    return Model(place), lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


def get_tokenizer(_: str) -> Callable[[Sequence[str]], torch.Tensor]:
    return lambda words: torch.tensor([COLOURS[word] for word in words])


def write_model(folder: Path, *, dims: int = 8, seed: int = 0) -> Path:
    """A folder of a text model."""
    folder.mkdir()
    (folder / "open_clip_config.json").write_text("{}")
    directions = torch.randn(3, dims, generator=torch.Generator().manual_seed(seed))
    save_file({"directions": directions}, folder / "model.safetensors")
    return folder


def write_colours(path: Path, *names: str, seconds: int = 10) -> Path:
    """A clip of noise in one colour after another, each for some seconds."""
    from hapvr.synthetic.clip import Clip
    from hapvr.synthetic.clip_files import write_clip

    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(path.name.encode())).integers(-20, 21, (len(names) * seconds, 48, 64, 1))
    colours = np.repeat(np.array([COLOURS[name] for name in names]), seconds, 0)[:, None, None]
    write_clip(Clip((colours + noise).clip(0, 255).astype(np.uint8), 1.0), path)
    return path
