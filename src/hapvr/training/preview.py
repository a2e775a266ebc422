"""A sheet of what training sees: the views of a few clips, one row each, with what was drawn written above it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.training.augment.config import ViewConfig
from hapvr.training.augment.plan import Seed, format_plan
from hapvr.training.augment.views import Views, make_views

_GAP, _LINE = 4, 15  # pixels between pictures, and of a line of text


def draw_preview(views: Views, *, columns: int = 10, side: int = 96) -> Image.Image:
    """The sheet of some views: for each clip a weak and a strong row of `columns` frames, evenly spread in time."""
    pictures = views.pictures.cpu().numpy()  # [2B, T, 3, S, S]
    clips, frames = len(pictures) // 2, pictures.shape[1]
    if not clips:
        raise DataError("there is no clip to draw. Give at least one.")
    if columns < 1 or side < 1:
        raise ConfigError(f"columns and side must be at least 1, got {columns} and {side}.")
    columns = min(columns, frames)
    shown = np.linspace(0, frames - 1, columns).round().astype(int)
    width, words = columns * (side + _GAP) + _GAP, format_plan(views.plan)
    font = ImageFont.load_default(size=12)
    rows: list[Image.Image] = []
    for clip in range(clips):
        for view, name in ((clip, "weak"), (clips + clip, "strong")):
            lines = _wrap(f"{clip} {name}: {words[view]}", font, width - 2 * _GAP)
            head = _GAP + _LINE * len(lines)
            row = Image.new("RGB", (width, head + side + _GAP), (24, 24, 24))
            pen = ImageDraw.Draw(row)
            for number, line in enumerate(lines):
                pen.text((_GAP, _GAP // 2 + number * _LINE), line, (235, 235, 235), font)
            for place, frame in enumerate(shown):
                picture = Image.fromarray(np.ascontiguousarray(pictures[view, frame].transpose(1, 2, 0)))
                row.paste(picture.resize((side, side), Image.Resampling.BILINEAR), (_GAP + place * (side + _GAP), head))
            rows.append(row)
    return Image.fromarray(np.concatenate([np.asarray(row) for row in rows]))


def save_preview(path: str | os.PathLike[str], clips: Sequence[Tensor], config: ViewConfig, seed: Seed) -> Views:
    """Draw the views of clips (see `make_views`) as a sheet, write it as the picture `path`, and return them."""
    views = make_views(clips, config=config, seed=seed)
    sheet = draw_preview(views)
    if Path(path).suffix.lower() not in Image.registered_extensions():
        raise ConfigError(f"'{path}' does not end like a picture file. Try '{Path(path).with_suffix('.png')}'.")
    try:
        sheet.save(path)
    except OSError as error:
        raise StorageError(f"'{path}' could not be written: {error.strerror or error}.") from error
    return views


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
