"""What people lay over videos: captions, emoji, stickers and logos, drawn as RGBA sprites [h, w, 4]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from hapvr.synthetic.film_numbers import between

Sprite = NDArray[np.uint8]
Choice = TypeVar("Choice")
Ink = tuple[int, int, int]

_PHRASES = [
    "wait for it", "best day ever", "you will not believe this", "watch until the end", "breaking news", "no way",
    "live from town", "part two", "follow for more", "this is why we love weekends", "look at that", "again",
]  # fmt: skip
_SHOUTS = ["WOW", "OMG", "LOL", "NO WAY", "100%", "HA HA", "NEW!", "BOOM"]
_INKS = [(255, 255, 255), (255, 230, 0), (0, 255, 200), (255, 90, 90), (20, 20, 20)]
_SMOOTH = 4  # sprites are drawn this much larger and shrunk, for smooth edges


def pick(rng: Generator, choices: list[Choice]) -> Choice:
    """One of the choices, all as likely."""
    return choices[int(rng.integers(len(choices)))]


def draw_caption(rng: Generator, width: int, height: int) -> Sprite:
    """One or two lines of words, outlined or on a plate, that fit a picture `width` pixels wide."""
    size = max(8, round(height * (0.06 + 0.06 * float(rng.random()))))
    font = ImageFont.load_default(size=size)
    lines = []
    for _ in range(int(rng.integers(1, 3))):
        words = f"{pick(rng, _PHRASES)} {pick(rng, _PHRASES)}".split()
        while len(words) > 1 and font.getlength(" ".join(words)) > 0.9 * width:
            words.pop()
        lines.append(" ".join(words))
    text, stroke = "\n".join(lines), max(1, size // 10)
    if rng.random() < 0.4:
        text = text.upper()
    left, top, right, bottom = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox(
        (0, 0), text, font, stroke_width=stroke, align="center"
    )
    pad = size // 3
    sprite = Image.new("RGBA", (math.ceil(right - left) + 2 * pad, math.ceil(bottom - top) + 2 * pad))
    draw, ink = ImageDraw.Draw(sprite), pick(rng, _INKS)
    edge = (0, 0, 0) if sum(ink) > 200 else (255, 255, 255)
    if rng.random() < 0.35:
        draw.rounded_rectangle((0, 0, sprite.width - 1, sprite.height - 1), size // 4, fill=(*edge, 190))
    draw.multiline_text(
        (pad - left, pad - top), text, (*ink, 255), font, stroke_width=stroke, stroke_fill=(*edge, 255), align="center"
    )
    return np.asarray(sprite)


def draw_emoji(rng: Generator, pixels: int) -> Sprite:
    """A face, a heart, a star or a flame, `pixels` high."""
    draw_on = pick(rng, [_face, _face, _heart, _star, _flame])
    return _draw_sprite(pixels, pixels, lambda draw, size: draw_on(rng, draw, size))


def draw_headline(rng: Generator, width: int, height: int, ink: Ink) -> Sprite:
    """Words in as many lines as fit a band of `height` by `width` pixels, plain, on nothing."""
    words = " ".join(pick(rng, _PHRASES) for _ in range(int(rng.integers(2, 4)))).split()
    left_aligned, size = bool(rng.random() < 0.5), max(6, round(height * between(rng, 0.26, 0.5)))
    while True:
        font = ImageFont.load_default(size=size)
        lines = _wrap(words, font, 0.94 * width)
        fits = len(lines) * size * 1.25 <= 0.95 * height and all(font.getlength(line) <= 0.96 * width for line in lines)
        if fits or size <= 6:
            break
        size = max(6, size - max(1, size // 10))
    sprite = Image.new("RGBA", (width, height))
    place, anchor = ((0.03 * width, height / 2), "lm") if left_aligned else ((width / 2, height / 2), "mm")
    ImageDraw.Draw(sprite).multiline_text(
        place,
        "\n".join(lines),
        (*ink, 255),
        font,
        anchor,
        spacing=size * 0.25,
        align="left" if left_aligned else "center",
    )
    return np.asarray(sprite)


def _wrap(words: list[str], font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: float) -> list[str]:
    """The words in lines of at most `width` pixels; a word that is wider has a line for itself."""
    lines = [words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def draw_words(text: str, width: int, height: int) -> Sprite:
    """White words in the middle of `height` by `width` pixels."""
    sprite = Image.new("RGBA", (width, height))
    font = ImageFont.load_default(size=max(6.0, min(height * 0.3, 1.6 * width / len(text))))
    ImageDraw.Draw(sprite).text((width / 2, height / 2), text, "white", font, anchor="mm")
    return np.asarray(sprite)


def draw_sticker(rng: Generator, pixels: int) -> Sprite:
    """An emoji with a white edge, a speech bubble or a burst with a word, `pixels` high."""
    form = pick(rng, ["emoji", "emoji", "bubble", "burst"])
    if form == "emoji":
        return _add_white_edge(draw_emoji(rng, pixels))
    ink, word = pick(rng, [(255, 230, 0), (255, 255, 255), (255, 90, 90), (0, 220, 190)]), pick(rng, _SHOUTS)
    if form == "bubble":
        wide = round(pixels * between(rng, 1.1, 1.6))
        return _draw_sprite(pixels, wide, lambda draw, size: _bubble(draw, size, wide * _SMOOTH, ink, word))
    return _draw_sprite(pixels, pixels, lambda draw, size: _burst(draw, size, ink, word))


def _add_white_edge(sprite: Sprite) -> Sprite:
    """As if cut out of paper: white around what is drawn, within the same size."""
    edge = max(1, round(min(sprite.shape[:2]) * 0.03))
    inner = Image.fromarray(sprite).resize((sprite.shape[1] - 2 * edge, sprite.shape[0] - 2 * edge))
    whole = Image.new("RGBA", (sprite.shape[1], sprite.shape[0]))
    whole.paste(inner, (edge, edge))
    white = Image.new("RGBA", whole.size, (255, 255, 255, 0))
    white.putalpha(whole.getchannel("A").filter(ImageFilter.MaxFilter(2 * edge + 1)))
    return np.asarray(Image.alpha_composite(white, whole))


def draw_logo(rng: Generator, pixels: int) -> Sprite:
    """A badge and two letters beside it, `pixels` high."""
    colour = tuple(int(value) for value in rng.integers(60, 256, 3))
    letters = "".join(chr(ord("A") + int(code)) for code in rng.integers(0, 26, int(rng.integers(2, 5))))
    form = int(rng.integers(3))

    def badge(draw: ImageDraw.ImageDraw, size: int) -> None:
        if form == 0:
            draw.ellipse((0, 0, size, size), fill=(*colour, 255))
        elif form == 1:
            draw.rounded_rectangle((0, 0, size, size), size // 4, fill=(*colour, 255))
        else:
            draw.regular_polygon((size / 2, size / 2, size / 2), 6, fill=(*colour, 255))
        draw.polygon([(size * 0.38, size * 0.28), (size * 0.38, size * 0.72), (size * 0.76, size * 0.5)], fill="white")
        font = ImageFont.load_default(size=round(size * 0.8))
        draw.text((size * 1.15, size / 2), letters, (255, 255, 255, 255), font, anchor="lm", stroke_width=size // 24,
                  stroke_fill=(*colour, 255))  # fmt: skip

    return _draw_sprite(pixels, round(pixels * (1.2 + 0.65 * len(letters))), badge)


def _draw_sprite(height: int, width: int, draw_on: Callable[[ImageDraw.ImageDraw, int], None]) -> Sprite:
    large = Image.new("RGBA", (width * _SMOOTH, height * _SMOOTH))
    draw_on(ImageDraw.Draw(large), height * _SMOOTH - 1)
    return np.asarray(large.resize((width, height), Image.Resampling.BOX))


def _face(rng: Generator, draw: ImageDraw.ImageDraw, size: int) -> None:
    skin = pick(rng, [(255, 205, 50, 255), (255, 205, 50, 255), (150, 210, 80, 255), (240, 90, 70, 255)])
    draw.ellipse((0, 0, size, size), fill=skin, outline=(120, 80, 0, 255), width=max(1, size // 40))
    for eye in (0.32, 0.68):
        draw.ellipse((size * (eye - 0.07), size * 0.28, size * (eye + 0.07), size * 0.48), fill=(60, 35, 10, 255))
    mouth = size * 0.25, size * 0.4, size * 0.75, size * 0.82
    mood = int(rng.integers(3))
    if mood == 0:
        draw.chord(mouth, 0, 180, fill=(110, 25, 20, 255))
    elif mood == 1:
        draw.arc(mouth, 20, 160, fill=(60, 35, 10, 255), width=max(2, size // 14))
    else:
        draw.ellipse((size * 0.4, size * 0.58, size * 0.6, size * 0.84), fill=(60, 35, 10, 255))


def _heart(rng: Generator, draw: ImageDraw.ImageDraw, size: int) -> None:
    ink = pick(rng, [(230, 30, 60, 255), (255, 110, 180, 255), (110, 60, 220, 255)])
    draw.ellipse((0, size * 0.08, size * 0.52, size * 0.6), fill=ink)
    draw.ellipse((size * 0.48, size * 0.08, size, size * 0.6), fill=ink)
    draw.polygon(
        [(size * 0.06, size * 0.48), (size * 0.5, size * 0.25), (size * 0.94, size * 0.48), (size * 0.5, size)],
        fill=ink,
    )


def _star(rng: Generator, draw: ImageDraw.ImageDraw, size: int) -> None:
    ink = pick(rng, [(255, 200, 0, 255), (255, 255, 255, 255), (80, 180, 255, 255)])
    tips = []
    for tip in range(10):
        reach, angle = size * (0.5 if tip % 2 == 0 else 0.21), math.pi * (tip / 5 - 0.5)
        tips.append((size / 2 + reach * math.cos(angle), size / 2 + reach * math.sin(angle)))
    draw.polygon(tips, fill=ink, outline=(90, 60, 0, 255), width=max(1, size // 40))


def _flame(_: Generator, draw: ImageDraw.ImageDraw, size: int) -> None:
    for share, ink in ((1.0, (240, 70, 20, 255)), (0.65, (255, 160, 30, 255)), (0.35, (255, 235, 120, 255))):
        middle, base = size / 2, size * 0.98
        wide, high = size * 0.36 * share, size * share
        draw.ellipse((middle - wide, base - 1.8 * wide, middle + wide, base), fill=ink)
        draw.polygon(
            [(middle - wide, base - wide), (middle + 0.2 * wide, base - high), (middle + wide, base - wide)], ink
        )


def _bubble(draw: ImageDraw.ImageDraw, size: int, width: int, paper: Ink, word: str) -> None:
    line, bottom = max(2, size // 30), size * 0.78
    tail = [(width * 0.2, bottom - 2 * line), (width * 0.12, size), (width * 0.42, bottom - 2 * line)]
    draw.rounded_rectangle((0, 0, width - 1, bottom), size // 4, fill=(*paper, 255), outline="black", width=line)
    draw.polygon(tail, fill=(*paper, 255))
    draw.line([tail[0], tail[1], tail[2]], "black", line, "curve")
    font = ImageFont.load_default(size=size * 0.8 * min(0.5, 1.1 * width / size / len(word)))
    draw.text((width / 2, bottom / 2), word, "black", font, anchor="mm", stroke_width=line // 2)


def _burst(draw: ImageDraw.ImageDraw, size: int, paper: Ink, word: str) -> None:
    tips = []
    for tip in range(24):
        reach, angle = size * (0.5 if tip % 2 == 0 else 0.4), math.pi * tip / 12
        tips.append((size / 2 + reach * math.cos(angle), size / 2 + reach * math.sin(angle)))
    draw.polygon(tips, fill=(*paper, 255), outline=(200, 20, 20, 255), width=max(1, size // 40))
    font = ImageFont.load_default(size=size * min(0.34, 1.05 / len(word)))
    draw.text((size / 2, size / 2), word, (200, 20, 20, 255), font, anchor="mm", stroke_width=size // 60)
