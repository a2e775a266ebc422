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


@dataclass(frozen=True)
class SpriteBank:
    """Sprites of one kind, all stretched to one size; `aspects` says how wide by how high they should be shown."""

    pictures: NDArray[np.uint8]  # [M, h, w, 4], RGBA
    aspects: NDArray[np.float64]  # [M], width / height

    def __len__(self) -> int:
        return len(self.pictures)


@lru_cache(maxsize=2)
def make_sprites(kind: str) -> SpriteBank:
    """ "text": 96 lines of words, outlined or on a plate; "emoji": 64 faces, hearts, stars and flames."""
    rng = np.random.default_rng(1 if kind == "text" else 2)
    if kind == "text":
        sprites, size = [draw_caption(rng, 320, 320) for _ in range(96)], (256, 96)  # width and height as stored
    else:
        sprites, size = [draw_emoji(rng, 128) for _ in range(64)], (128, 128)
    stored = [Image.fromarray(sprite).resize(size, Image.Resampling.BICUBIC) for sprite in sprites]
    aspects = np.array([sprite.shape[1] / sprite.shape[0] for sprite in sprites])
    return SpriteBank(np.stack([np.asarray(sprite, np.uint8) for sprite in stored]), aspects)


@lru_cache(maxsize=8)
def upload_sprites(kind: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`make_sprites` as [M, 4, h, w] on a device: colours times opacity (0 to 255), opacity (0 to 1)."""
    pictures = torch.from_numpy(make_sprites(kind).pictures).permute(0, 3, 1, 2).float()
    opacity = pictures[:, 3:] / 255
    return torch.cat([pictures[:, :3] * opacity, opacity], 1).to(device, dtype)
