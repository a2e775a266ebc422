"""What all pages share: a document with its style and nothing to load, images as data URLs, times."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hapvr.storage import require_outputs, write_text

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem; } h1 { line-height: 1.2; } .lead { font-size: 1.15rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .25rem 1.2rem .25rem 0; }
.matrix { position: relative; width: min(100%, 36rem); } .matrix > * { width: 100%; display: block; }
.matrix img { image-rendering: pixelated; height: 22rem; } .matrix svg { position: absolute; inset: 0; height: 22rem; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; } figure img { height: 7rem; margin-right: .25rem; }
figcaption, .note { font-size: .85rem; opacity: .75; } .note { margin: .2rem 0; } .bar { height: 14px; width: 100%; }
.entry { display: grid; grid-template-columns: minmax(0, 34rem) minmax(15rem, 1fr) 13rem; gap: .2rem 1.5rem;
  padding: 1rem 0; border-top: 1px solid #8884; break-inside: avoid; }
.entry header { grid-column: 1 / -1; display: flex; gap: .8rem; align-items: baseline; flex-wrap: wrap; }
.entry h3, .entry p { margin: 0; } .match { border-top: 1px solid #8884; margin-top: 2rem; padding-top: 1rem; }
.badge { padding: .05rem .6rem; border-radius: 1rem; color: white; font-size: .85rem; }
.good { background: #2c7a4b; } .fair { background: #9a6a12; } .bad { background: #b3363f; }
.strip { display: flex; gap: 2px; align-self: start; } .strip figure { margin: 0; flex: 1 1 0; min-width: 0; }
.strip img { display: block; width: 100%; height: 4.4rem; object-fit: cover; margin: 0 0 2px; }
.facts { font-size: .9rem; } .where { font-variant-numeric: tabular-nums; } .where th { font-weight: 600; }
.where th, .where td { padding: 0 1rem .1rem 0; }
.matrix.small img, .matrix.small svg { height: 9.2rem; }
.wide { overflow-x: auto; } .scores { font-size: .8rem; font-variant-numeric: tabular-nums; }
.scores td, .scores th { padding: .3rem .4rem; text-align: center; }
.scores th { font-weight: 500; white-space: nowrap; } .scores tr > th:first-child { text-align: right; }
.scores th img { display: block; width: 3.6rem; height: 2.7rem; object-fit: cover; margin: auto; }
.scores td.best { outline: 3px solid #d1495b; outline-offset: -3px; font-weight: 700; }
@media (max-width: 62rem) { .entry { grid-template-columns: 1fr; } }
"""


def write_page(path: Path, *, title: str, body: str) -> Path:
    """Write a page; `ConfigError` where the path cannot be written, `StorageError` where writing failed."""
    require_outputs([path])
    write_text(
        path,
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
{body}
</html>
""",
    )
    return path


def make_thumbnail(picture: NDArray[np.uint8], height: int) -> str:
    """A picture [H, W, 3] for a place of at most `height` pixels, as a data URL; twice as fine where it can be."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    tall = min(2 * height, image.height)
    image = image.resize((max(1, round(image.width * tall / image.height)), tall), Image.Resampling.BILINEAR)
    return _encode(image, "JPEG", quality=80)


def make_png(image: NDArray[np.uint8]) -> str:
    """An image [H, W, 3] as a data URL, pixel by pixel."""
    return _encode(Image.fromarray(np.ascontiguousarray(image)), "PNG")


def _encode(image: Image.Image, kind: str, **options: int) -> str:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"


def format_interval(seconds: tuple[float, float]) -> str:
    """A part of a video as minutes and seconds.

    >>> format_interval((5.0, 83.25))
    '0:05.0 to 1:23.2'
    """
    return f"{format_time(seconds[0])} to {format_time(seconds[1])}"


def format_time(seconds: float) -> str:
    """Minutes and seconds.

    >>> format_time(83.25)
    '1:23.2'
    """
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"
