"""Text models: what puts frames and words into one space of vectors, so that videos are found by a description.

hapvr ships none. A folder with a model of open_clip (CLIP, SigLIP and others; the extra `text`) is loaded by
`load_text_model`; any other model is an object with the four names of `TextModel`:

    class MyModel:
        name = "my model"
        digest = "2024-05"                                        # another one for other weights

        def embed_frames(self, images):                           # uint8 [T, H, W, 3], RGB
            return numpy_array                                    # [T, D], of any length

        def embed_text(self, text):
            return numpy_array                                    # [D]

    library.add("Videos", text_model=MyModel())
    library.search_text("a red car", text_model=MyModel())
"""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError

from hapvr.devices import find_device
from hapvr.errors import ConfigError, WeightsError, to_sentence
from hapvr.storage import StrPath, crc32_json, sample_file

CONFIG = "open_clip_config.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_NOT_LOADED = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, AssertionError,
               pickle.UnpicklingError, SafetensorError)  # fmt: skip


class TextModel(Protocol):
    """A model that describes frames and words by vectors; those of a frame and of words that fit it are close."""

    @property
    def name(self) -> str:
        """What messages call it, and for a model that can be loaded from it, its folder."""

    @property
    def digest(self) -> str:
        """Tells models apart: vectors of two models cannot be compared."""

    def embed_frames(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The vectors of frames: RGB [T, H, W, 3] -> [T, D]."""

    def embed_text(self, text: str) -> NDArray[np.float32]:
        """The vector of a description, [D]."""


class OpenClipModel:
    """A model of open_clip, from files on this machine: nothing is downloaded."""

    def __init__(self, folder: StrPath, *, device: str = "cpu") -> None:
        path = Path(os.path.abspath(folder))
        weights = find_weights(path)
        self.name = str(path)
        config = path / CONFIG
        self.digest = f"{crc32_json([sample_file(file) for file in (config, *weights) if file.is_file()]):08x}"
        self._device = find_device(device)
        open_clip = _import_open_clip()
        # A folder without a config is called as the model is.
        place = f"local-dir:{path}" if config.is_file() else path.name
        chosen = {} if config.is_file() else {"pretrained": str(weights[0])}
        try:
            self._model, self._preprocess = open_clip.create_model_from_pretrained(place, device=self._device, **chosen)
            self._tokenize = open_clip.get_tokenizer(place)
        except _NOT_LOADED as error:
            raise WeightsError(f"open_clip cannot load '{path}': {to_sentence(error)}") from error
        self._model.eval()

    @torch.no_grad()
    def embed_frames(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The vectors of frames: RGB [T, H, W, 3] -> [T, D]."""
        pictures = torch.stack([self._preprocess(Image.fromarray(image)) for image in images])
        vectors: NDArray[np.float32] = self._model.encode_image(pictures.to(self._device)).float().cpu().numpy()
        return vectors

    @torch.no_grad()
    def embed_text(self, text: str) -> NDArray[np.float32]:
        """The vector of a description, [D]."""
        tokens = self._tokenize([text]).to(self._device)
        vector: NDArray[np.float32] = self._model.encode_text(tokens)[0].float().cpu().numpy()
        return vector


def load_text_model(folder: StrPath, *, device: str = "cpu") -> TextModel:
    """Load a model of open_clip from a folder with `open_clip_config.json` and weights, as the Hugging Face hub has it.

    Without that file, the folder must have the name of a model that open_clip knows, such as ViT-B-32, and hold one
    file of weights. Pickles are opened in torch's restricted mode.

    Raises:
        ConfigError: there is no such folder, or open_clip is not installed.
        WeightsError: it cannot be loaded.
    """
    return OpenClipModel(folder, device=device)


def find_weights(folder: Path) -> list[Path]:
    """The files of weights in a folder of a text model; `ConfigError` if it is none."""
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' is no folder of a text model. Give one with {CONFIG} and weights.")
    weights = sorted(file for file in folder.iterdir() if file.suffix in _WEIGHTS)
    if not weights or (len(weights) > 1 and not (folder / CONFIG).is_file()):
        found = "no weights" if not weights else f"{len(weights)} files of weights and no {CONFIG}"
        raise ConfigError(f"'{folder}' holds {found}. A text model is one of open_clip: {CONFIG} and its weights.")
    return weights


def _import_open_clip() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a tokenizer that is not in the folder is an error, no download
    try:
        return importlib.import_module("open_clip")
    except (ImportError, RuntimeError, OSError) as error:  # a torchvision of another torch fails with the last two
        raise ConfigError(
            f"Text models need open_clip, which cannot be imported ({to_sentence(error)[:200]}) Install it: "
            "pip install 'hapvr[text]', with a torchvision that fits torch."
        ) from error
