"""Captions and emoji to lay over frames: drawn once, kept on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hapvr.synthetic.edit_sprites import draw_caption, draw_emoji

_CAPTIONS, _EMOJI = 96, 64
_CAPTION_SIZE, _EMOJI_SIZE = (96, 256), (128, 128)  # height and width as stored


@dataclass(frozen=True)
class SpriteBank:
    """Sprites of one kind, all stretched to one size; `aspects` says how wide by how high they should be shown."""

    pictures: NDArray[np.uint8]  # [M, h, w, 4], RGBA
    aspects: NDArray[np.float64]  # [M], width / height

    def __len__(self) -> int:
        return len(self.pictures)


@lru_cache(maxsize=1)
def captions() -> SpriteBank:
    """Lines of words, outlined or on a plate."""
    rng = np.random.default_rng(1)
    return _bank([draw_caption(rng, 320, 320) for _ in range(_CAPTIONS)], _CAPTION_SIZE)


@lru_cache(maxsize=1)
def emojis() -> SpriteBank:
    """Faces, hearts, stars and flames."""
    rng = np.random.default_rng(2)
    return _bank([draw_emoji(rng, _EMOJI_SIZE[0]) for _ in range(_EMOJI)], _EMOJI_SIZE)


@lru_cache(maxsize=8)
def on_device(kind: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The bank of "text" or "emoji" as [M, 4, h, w] on a device: colours times opacity (0 to 255), opacity (0 to 1)."""
    bank = captions() if kind == "text" else emojis()
    pictures = torch.from_numpy(bank.pictures).permute(0, 3, 1, 2).float()
    opacity = pictures[:, 3:] / 255
    return torch.cat([pictures[:, :3] * opacity, opacity], 1).to(device, dtype)


def _bank(sprites: list[NDArray[np.uint8]], size: tuple[int, int]) -> SpriteBank:
    drawn = [Image.fromarray(sprite).resize((size[1], size[0]), Image.Resampling.BICUBIC) for sprite in sprites]
    aspects = np.array([sprite.shape[1] / sprite.shape[0] for sprite in sprites])
    return SpriteBank(np.stack([np.asarray(sprite, np.uint8) for sprite in drawn]), aspects)
