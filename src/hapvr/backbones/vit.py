"""ViT-S/16 as DINO trained it (Caron et al., arXiv:2104.14294), in plain torch, with DINO's state-dict names."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import Backbone, require_images

PATCH, DIMS, DEPTH, HEADS = 16, 384, 12, 6
GRID = 14  # patches along a side of the 224 x 224 pictures it was trained on
LAYER_NORM_EPS = 1e-6


class Attention(nn.Module):
    """Multi-head self-attention over tokens, `attend(q, k, v)` in each head: [N, L, D] -> [N, L, D]."""

    def __init__(self, dims: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)

    def forward(self, x: Tensor) -> Tensor:
        """[N, L, D] -> [N, L, D]."""
        count, length, dims = x.shape
        qkv = self.qkv(x).view(count, length, 3, self.heads, dims // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [N, heads, L, D / heads]
        attended = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(attended.transpose(1, 2).reshape(count, length, dims))
        return out


class Mlp(nn.Module):
    """Two layers with GELU between, four times as wide inside: [N, L, D] -> [N, L, D]."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dims, 4 * dims)
        self.fc2 = nn.Linear(4 * dims, dims)

    def forward(self, x: Tensor) -> Tensor:
        """[N, L, D] -> [N, L, D]."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """Attention, then the MLP, each on the normalised tokens and added to them: [N, L, D] -> [N, L, D]."""

    def __init__(self, dims: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dims, eps=LAYER_NORM_EPS)
        self.attn = Attention(dims, heads)
        self.norm2 = nn.LayerNorm(dims, eps=LAYER_NORM_EPS)
        self.mlp = Mlp(dims)

    def forward(self, x: Tensor) -> Tensor:
        """[N, L, D] -> [N, L, D]."""
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class PatchEmbed(nn.Module):
    """One token for each 16 x 16 patch, row by row: [N, 3, H, W] -> [N, H/16 * W/16, D]."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dims, PATCH, stride=PATCH)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, H/16 * W/16, D]."""
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class ViTSmall16(Backbone):
    """DINO's ViT-S/16 without its projection head: the frozen teacher. Sides must be multiples of 16.

    For pictures of other sizes than 224 x 224 the positional embedding is resized bicubically to their grid of
    patches. DINO's own code passes a scale padded by 0.1 where we pass the size, so values differ there in the last
    digits; at 224 x 224 nothing is resized.
    """

    name = "vit_small16"

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIMS))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + GRID * GRID, DIMS))
        self.patch_embed = PatchEmbed(DIMS)
        self.blocks = nn.ModuleList([Block(DIMS, HEADS) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIMS, eps=LAYER_NORM_EPS)
        for token in (self.cls_token, self.pos_embed):
            nn.init.normal_(token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def positions(self, rows: int, columns: int) -> Tensor:
        """The positional embedding for a grid of patches, the class token's first: [1, 1 + rows * columns, D]."""
        if (rows, columns) == (GRID, GRID):
            return self.pos_embed
        cls, patches = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        grid = patches.reshape(1, GRID, GRID, DIMS).permute(0, 3, 1, 2)  # [1, D, 14, 14]
        resized = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
        return torch.cat((cls, resized.flatten(2).transpose(1, 2)), dim=1)

    def forward(self, images: Tensor) -> Tensor:
        """The class token after the final norm, [N, 384], of normalised images [N, 3, H, W]."""
        require_images(images, multiple_of=PATCH)
        rows, columns = images.shape[2] // PATCH, images.shape[3] // PATCH
        patches = self.patch_embed(images)
        tokens = torch.cat((self.cls_token.expand(len(images), -1, -1), patches), dim=1)  # [N, 1 + patches, D]
        tokens = tokens + self.positions(rows, columns)
        for block in self.blocks:
            tokens = block(tokens)
        out: Tensor = self.norm(tokens[:, 0])
        return out
