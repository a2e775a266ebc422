"""Drawn films that look like footage, for the demo: streets, seas, stages, games, each with people or things that move.

A film has three shots: a scene, a nearer view of it, and a scene of another kind. Each scene paints a background larger
than the picture and lists what moves over it; a camera pans or zooms over both. All of it follows from one seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from hapvr.errors import ConfigError
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.film_numbers import between

Rgb = tuple[int, int, int]
Draw = ImageDraw.ImageDraw
Mover = Callable[[Draw, float], None]
"""Draws one thing that moves, at a time in seconds."""

_WIDTH, _HEIGHT = 960, 640  # of a scene, in pixels
_GRAIN = 5  # grey levels


def draw_footage(seed: int, *, seconds: float = 12.0, fps: float = 10.0, size: tuple[int, int] = (240, 320)) -> Clip:
    """Draw the film of a seed: [T, H, W, 3] at `fps`; size is (height, width). `ConfigError` for a seed below 1.

    Films of neighbouring seeds begin with scenes of different kinds; after twelve the kinds come again, in new forms.

    >>> draw_footage(3, seconds=0.5, size=(48, 64)).images.shape
    (5, 48, 64, 3)
    """
    if seed < 1:
        raise ConfigError(f"seed must be 1 or above, got {seed}.")
    rng = np.random.default_rng([seed, 7])
    kind = (seed - 1) % len(_SCENES)
    first, other = (_SCENES[number % len(_SCENES)] for number in (kind, kind + 5))
    scene = _Scene(first, np.random.default_rng([seed, 1]))
    shots = [
        (scene, _Camera(rng, zoom=between(rng, 0.8, 0.95))),
        (scene, _Camera(rng, zoom=between(rng, 0.45, 0.6))),
        (_Scene(other, np.random.default_rng([seed, 2])), _Camera(rng, zoom=between(rng, 0.65, 0.9))),
    ]
    cuts = np.cumsum([between(rng, 0.8, 1.3) for _ in shots])
    cuts *= seconds / cuts[-1]
    height, width = size
    grain = rng.integers(-_GRAIN, _GRAIN + 1, (4, height, width, 1)).astype(np.int16)
    images = np.empty((max(1, round(seconds * fps)), height, width, 3), np.uint8)
    for frame in range(len(images)):
        time_s = frame / fps
        shot = int(np.searchsorted(cuts[:-1], time_s, side="right"))
        begin = 0.0 if shot == 0 else cuts[shot - 1]
        scene, camera = shots[shot]
        box = camera.find_box((time_s - begin) / (cuts[shot] - begin), time_s, width / height)
        picture = scene.draw(time_s).resize((width, height), Image.Resampling.BILINEAR, box=box)
        images[frame] = np.clip(np.asarray(picture, np.int16) + grain[frame % len(grain)], 0, 255)
    return Clip(images, fps)


class _Camera:
    """A slow move from one part of a scene to another, with a little shake."""

    def __init__(self, rng: Generator, *, zoom: float) -> None:
        self.zoom = zoom, zoom * between(rng, 0.85, 1.05)
        self.start, self.end = ((float(rng.random()), between(rng, 0.3, 0.8)) for _ in range(2))
        self.shake = between(rng, 0.0, 4.0)

    def find_box(self, share: float, time_s: float, aspect: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what is seen."""
        zoom = min(1.0, self.zoom[0] + (self.zoom[1] - self.zoom[0]) * share)
        width = min(_WIDTH, _HEIGHT * aspect) * zoom
        height = width / aspect
        x, y = (start + (end - start) * share for start, end in zip(self.start, self.end, strict=True))
        left = (_WIDTH - width) * x + self.shake * math.sin(5.1 * time_s)
        top = (_HEIGHT - height) * y + self.shake * math.sin(3.7 * time_s + 1)
        left, top = min(max(left, 0.0), _WIDTH - width), min(max(top, 0.0), _HEIGHT - height)
        return left, top, left + width, top + height


class _Scene:
    """A painted background and what moves over it."""

    def __init__(self, paint: Painter, rng: Generator) -> None:
        picture = Image.new("RGB", (_WIDTH, _HEIGHT))
        self.movers = paint(picture, ImageDraw.Draw(picture), rng)
        self.background = _roughen(picture, rng)

    def draw(self, time_s: float) -> Image.Image:
        """The scene at a time."""
        picture = self.background.copy()
        draw = ImageDraw.Draw(picture)
        for mover in self.movers:
            mover(draw, time_s)
        return picture


def _roughen(picture: Image.Image, rng: Generator) -> Image.Image:
    """A picture with patches of light and fine texture, as surfaces have."""
    light = np.zeros((_HEIGHT, _WIDTH), np.float32)
    for cells, strength in ((6, 0.10), (24, 0.07), (120, 0.07), (480, 0.05)):
        noise = rng.random((cells * _HEIGHT // _WIDTH + 1, cells)).astype(np.float32) - 0.5
        light += strength * np.asarray(Image.fromarray(noise).resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC))
    lit = np.asarray(picture, np.float32) * (1 + 2 * light[..., None])
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))


# --- parts of scenes -------------------------------------------------------------------------------------------------

Painter = Callable[[Image.Image, Draw, Generator], list[Mover]]
_SKINS: list[Rgb] = [(240, 205, 175), (214, 170, 130), (160, 110, 75), (105, 70, 50)]
_HAIR: list[Rgb] = [(40, 30, 25), (90, 60, 30), (190, 150, 80), (120, 120, 120), (25, 25, 35)]


def _near(rng: Generator, colour: Rgb, spread: int = 28) -> Rgb:
    red, green, blue = (int(min(max(one + between(rng, -spread, spread), 0), 255)) for one in colour)
    return red, green, blue


def _any(rng: Generator, low: int = 40, high: int = 235) -> Rgb:
    red, green, blue = (int(between(rng, low, high)) for _ in range(3))
    return red, green, blue


def _choose(rng: Generator, colours: Sequence[Rgb]) -> Rgb:
    return colours[int(rng.integers(len(colours)))]


def _shade(colour: Rgb, factor: float) -> Rgb:
    red, green, blue = (int(min(max(one * factor, 0), 255)) for one in colour)
    return red, green, blue


def _fill(picture: Image.Image, top: float, bottom: float, above: Rgb, below: Rgb) -> None:
    """A band between two heights, from one colour to another."""
    first, last = round(top), max(round(top) + 1, round(bottom))
    shares = np.linspace(0, 1, last - first, dtype=np.float32)[:, None, None]
    band = np.array(above, np.float32) * (1 - shares) + np.array(below, np.float32) * shares
    picture.paste(Image.fromarray(np.broadcast_to(band, (last - first, _WIDTH, 3)).astype(np.uint8)), (0, first))


def _disc(draw: Draw, x: float, y: float, radius: float, colour: Rgb, squash: float = 1.0) -> None:
    draw.ellipse((x - radius, y - radius * squash, x + radius, y + radius * squash), fill=colour)


def _wrap(place: float, margin: float) -> float:
    """A place that leaves at one side and comes back at the other."""
    return (place + margin) % (_WIDTH + 2 * margin) - margin


def _hills(draw: Draw, rng: Generator, base: float, height: float, colour: Rgb, *, sharp: bool = False) -> None:
    count = 9 if sharp else 40
    phases = [(between(rng, 0.004, 0.02), between(rng, 0, 6)) for _ in range(3)]
    points: list[tuple[float, float]] = []
    for number in range(count + 1):
        x = _WIDTH * number / count
        rise = float(rng.random()) if sharp else 0.5 + sum(math.sin(x * f + p) for f, p in phases) / 6
        points.append((x, base - height * rise))
    draw.polygon([(0, _HEIGHT), *points, (_WIDTH, _HEIGHT)], fill=colour)


def _clouds(rng: Generator, top: float, bottom: float, colour: Rgb) -> Mover:
    puffs = [(between(rng, 0, _WIDTH), between(rng, top, bottom), between(rng, 18, 55)) for _ in range(6)]
    speed = between(rng, 6, 22)

    def draw_clouds(draw: Draw, t: float) -> None:
        for x, y, size in puffs:
            middle = _wrap(x + speed * t, 160)
            for shift, part in ((-1.3, 0.7), (0.0, 1.0), (1.2, 0.8), (2.1, 0.5)):
                _disc(draw, middle + shift * size, y - part * size * 0.2, size * part, colour, 0.55)

    return draw_clouds


def _person(
    rng: Generator, place: tuple[float, float], size: float, *, speed: float, clothes: Rgb | None = None
) -> Mover:
    """A figure that walks along at a speed, or stands and gestures at 0."""
    shirt, trousers = clothes or _any(rng), _near(rng, (50, 55, 80), 40)
    skin, hair = _choose(rng, _SKINS), _choose(rng, _HAIR)
    phase, pace = between(rng, 0, 6), between(rng, 4.5, 7.5) if speed else between(rng, 1.2, 2.5)
    stroke = max(2, round(size * 0.11))

    def draw_person(draw: Draw, t: float) -> None:
        x, y = _wrap(place[0] + speed * t, 60), place[1]
        swing = math.sin(pace * t + phase)
        y -= abs(swing) * size * 0.04 if speed else 0
        hip, neck, step = y - size * 0.45, y - size * 0.82, size * (0.2 * swing if speed else 0.07)
        for side in (-1, 1):
            draw.line((x, hip, x + side * step, y), fill=trousers, width=stroke + 2)
            reach = size * (0.2 * -side * swing if speed else 0.22 * side)
            lift = 0.0 if speed else size * 0.25 * (swing + 1) * (side + 1) / 2
            draw.line((x, neck + size * 0.05, x + reach, hip - lift), fill=_shade(shirt, 0.8), width=stroke)
        draw.rounded_rectangle((x - size * 0.13, neck, x + size * 0.13, hip + 3), size * 0.06, fill=shirt)
        _disc(draw, x, neck - size * 0.1, size * 0.1, skin, 1.15)
        draw.pieslice((x - size * 0.11, neck - size * 0.23, x + size * 0.11, neck), 180, 360, fill=hair)

    return draw_person


def _car(rng: Generator, y: float, size: float, speed: float) -> Mover:
    body, start = _any(rng, 30, 240), between(rng, 0, _WIDTH)
    tall, van = between(rng, 0.3, 0.42), rng.random() < 0.3

    def draw_car(draw: Draw, t: float) -> None:
        x = _wrap(start + speed * t, 160)
        front = 1 if speed > 0 else -1
        draw.ellipse((x - size * 0.52, y - 4, x + size * 0.52, y + size * 0.07), fill=(35, 35, 38))
        roof = (x - size * (0.5 if van else 0.3), y - size * tall * 1.25, x + size * 0.3, y - size * 0.1)
        draw.rounded_rectangle(roof, size * 0.08, fill=_shade(body, 0.9))
        for left in (-0.24, 0.02):
            draw.rectangle(
                (x + left * size, y - size * tall * 1.12, x + (left + 0.22) * size, y - size * 0.22),
                fill=(150, 190, 210),
            )
        draw.rounded_rectangle(
            (x - size * 0.5, y - size * 0.24, x + size * 0.5, y - size * 0.04), size * 0.07, fill=body
        )
        for wheel in (-0.3, 0.3):
            _disc(draw, x + wheel * size, y - size * 0.03, size * 0.085, (20, 20, 20))
            turn = t * speed / (size * 0.085)
            hub = size * 0.05
            draw.line(
                (
                    x + wheel * size,
                    y - size * 0.03,
                    x + wheel * size + hub * math.cos(turn),
                    y - size * 0.03 + hub * math.sin(turn),
                ),
                fill=(200, 200, 200),
                width=2,
            )
        _disc(draw, x + front * size * 0.47, y - size * 0.15, size * 0.04, (255, 245, 190))

    return draw_car


def _birds(rng: Generator, top: float, bottom: float, count: int, colour: Rgb) -> Mover:
    flock = [
        (
            between(rng, 0, _WIDTH),
            between(rng, top, bottom),
            between(rng, 7, 16),
            between(rng, 40, 110),
            between(rng, 0, 6),
        )
        for _ in range(count)
    ]

    def draw_birds(draw: Draw, t: float) -> None:
        for x, y, size, speed, phase in flock:
            x, y = _wrap(x + speed * t, 40), y + 12 * math.sin(0.9 * t + phase)
            wing = size * 0.7 * math.sin(9 * t + phase)
            draw.line((x - size, y - wing, x, y, x + size, y - wing), fill=colour, width=3)

    return draw_birds


def _tree(rng: Generator, x: float, y: float, size: float, leaves: Rgb) -> Mover:
    """A tree whose crown sways in the wind."""
    bark, phase, pace = _near(rng, (90, 65, 45), 18), between(rng, 0, 6), between(rng, 0.9, 1.8)
    blobs = [(between(rng, -0.4, 0.4), between(rng, -1.0, -0.45), between(rng, 0.16, 0.3)) for _ in range(9)]
    tones = [between(rng, 0.75, 1.2) for _ in blobs]

    def draw_tree(draw: Draw, t: float) -> None:
        lean = 0.07 * math.sin(pace * t + phase) + 0.03 * math.sin(3.1 * pace * t)
        draw.line((x, y, x + lean * size * 0.5, y - size * 0.6), fill=bark, width=max(3, round(size * 0.08)))
        for (right, up, radius), tone in zip(blobs, tones, strict=True):
            _disc(draw, x + (right - lean * up * 1.5) * size, y + up * size, radius * size, _shade(leaves, tone), 0.85)

    return draw_tree


def _building(
    draw: Draw, rng: Generator, left: float, width: float, top: float, base: float, wall: Rgb, lit: Rgb, share: float
) -> None:
    draw.rectangle((left, top, left + width, base), fill=wall)
    step_x, step_y = between(rng, 16, 28), between(rng, 20, 34)
    for row in range(int((base - top) / step_y)):
        for column in range(int(width / step_x)):
            x, y = left + (column + 0.25) * step_x, top + (row + 0.3) * step_y
            colour = lit if rng.random() < share else _shade(wall, 0.6)
            draw.rectangle((x, y, x + step_x * 0.5, y + step_y * 0.5), fill=colour)


# --- scenes ----------------------------------------------------------------------------------------------------------


def _paint_street(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    horizon = between(rng, 330, 400)
    _fill(picture, 0, horizon, _near(rng, (110, 160, 215)), _near(rng, (215, 225, 235)))
    x = -20.0
    while x < _WIDTH:
        width = between(rng, 90, 190)
        wall = _near(rng, (175, 130, 105), 45)
        _building(draw, rng, x, width, between(rng, 60, 230), horizon, wall, (200, 220, 235), 0.4)
        draw.rectangle((x, horizon - 45, x + width, horizon), fill=_any(rng, 60, 200))  # shops
        x += width + between(rng, 0, 12)
    _fill(picture, horizon, horizon + 45, _near(rng, (175, 172, 168), 12), _near(rng, (150, 148, 145), 12))
    _fill(picture, horizon + 45, _HEIGHT, (82, 82, 86), (62, 62, 66))
    for mark in range(0, _WIDTH, 90):
        draw.rectangle((mark, horizon + 135, mark + 45, horizon + 142), fill=(225, 225, 215))
    people = [
        _person(
            rng,
            (between(rng, 0, _WIDTH), horizon + between(rng, 20, 42)),
            between(rng, 80, 105),
            speed=between(rng, 22, 60) * (1 if rng.random() < 0.5 else -1),
        )
        for _ in range(7)
    ]
    far = [_car(rng, horizon + 108, 150, -between(rng, 90, 190)) for _ in range(3)]
    near = [_car(rng, horizon + 215, 215, between(rng, 110, 240)) for _ in range(2)]
    return [*people, *far, *near]


def _paint_sea(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    horizon = between(rng, 230, 300)
    evening = rng.random() < 0.5
    _fill(
        picture,
        0,
        horizon,
        (70, 80, 140) if evening else _near(rng, (90, 160, 225)),
        (250, 170, 110) if evening else (205, 230, 245),
    )
    _disc(draw, between(rng, 200, 760), horizon - between(rng, 40, 150), 42, (255, 235, 180))
    _hills(draw, rng, horizon + 8, 70, _near(rng, (85, 95, 115)))
    water = (60, 70, 110) if evening else _near(rng, (25, 105, 145))
    _fill(picture, horizon, _HEIGHT, _shade(water, 1.35), _shade(water, 0.6))

    def draw_waves(canvas: Draw, t: float) -> None:
        for row in range(14):
            y = horizon + 8 + row * row * 1.8
            reach = 14 + row * 5
            for number in range(12):
                x = _wrap(number * 97 + row * 53 + (12 + 5 * row) * t, 60)
                lift = (1 + row * 0.5) * math.sin(1.7 * t + number + row)
                canvas.line((x - reach, y, x, y - 2 - lift, x + reach, y), fill=_shade(water, 1.7), width=1 + row // 5)

    def make_boat(y: float, size: float, speed: float) -> Mover:
        hull, sail, start, phase = (
            _any(rng),
            _near(rng, (240, 235, 220), 20),
            between(rng, 0, _WIDTH),
            between(rng, 0, 6),
        )

        def draw_boat(canvas: Draw, t: float) -> None:
            x, tip = _wrap(start + speed * t, 120), 0.12 * math.sin(1.3 * t + phase)
            base = y + 5 * math.sin(1.7 * t + phase)
            canvas.polygon(
                [
                    (x - size, base - 0.3 * size),
                    (x + size, base - 0.3 * size),
                    (x + 0.65 * size, base),
                    (x - 0.7 * size, base),
                ],
                fill=hull,
            )
            top = (x + tip * 1.6 * size, base - 1.9 * size)
            canvas.line((x, base - 0.3 * size, *top), fill=(90, 70, 50), width=4)
            canvas.polygon([top, (x + 0.8 * size, base - 0.42 * size), (x + 4, base - 0.42 * size)], fill=sail)
            canvas.polygon(
                [top, (x - 0.55 * size, base - 0.42 * size), (x - 4, base - 0.42 * size)], fill=_shade(sail, 0.85)
            )

        return draw_boat

    boats = [
        make_boat(
            horizon + 40 + 90 * number, 38 + 34 * number, between(rng, 15, 45) * (1 if rng.random() < 0.5 else -1)
        )
        for number in range(3)
    ]
    return [
        _clouds(rng, 30, horizon - 90, (250, 215, 200) if evening else (250, 250, 252)),
        draw_waves,
        *boats,
        _birds(rng, 60, horizon, 7, (250, 250, 250)),
    ]


def _paint_park(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    horizon = between(rng, 250, 320)
    _fill(picture, 0, horizon, _near(rng, (150, 195, 230)), (230, 238, 240))
    autumn = rng.random() < 0.5
    leaves: Rgb = (200, 120, 40) if autumn else (65, 125, 55)
    _hills(draw, rng, horizon, 60, _shade(leaves, 0.6))
    _fill(picture, horizon, _HEIGHT, _near(rng, (125, 160, 75)), _near(rng, (70, 110, 45)))
    draw.polygon(
        [
            (between(rng, 300, 600), horizon),
            (between(rng, 620, 660), horizon),
            (_WIDTH, _HEIGHT - 60),
            (_WIDTH, _HEIGHT),
            (120, _HEIGHT),
        ],
        fill=(200, 180, 145),
    )
    trees = [
        _tree(rng, between(rng, 0, _WIDTH), horizon + 30 + 38 * number, 190 + 42 * number, _near(rng, leaves, 25))
        for number in range(6)
    ]
    people = [
        _person(
            rng,
            (between(rng, 0, _WIDTH), horizon + 160 + 50 * number),
            150 + 25 * number,
            speed=between(rng, 25, 70) * (-1) ** number,
        )
        for number in range(3)
    ]
    return [_birds(rng, 40, 180, 4, (60, 60, 70)), *trees[:4], *people, *trees[4:]]


def _paint_night(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    base = between(rng, 430, 480)
    _fill(picture, 0, base, _near(rng, (12, 14, 38), 10), _near(rng, (75, 50, 95), 25))
    for _ in range(70):
        _disc(draw, between(rng, 0, _WIDTH), between(rng, 0, 260), 1.2, (230, 230, 255))
    _disc(draw, between(rng, 150, 800), between(rng, 60, 140), 34, (245, 240, 215))
    x, lamps = -10.0, []
    while x < _WIDTH:
        width, top = between(rng, 60, 130), between(rng, 120, 350)
        _building(
            draw, rng, x, width, top, base, _near(rng, (32, 34, 52), 12), (250, 210, 120), between(rng, 0.25, 0.6)
        )
        lamps.append((x + width / 2, top - 6, between(rng, 0.6, 1.6)))
        x += width + between(rng, 2, 16)
    _fill(picture, base, _HEIGHT, (30, 32, 45), (14, 15, 24))
    lights = [
        (between(rng, 0, _WIDTH), base + 40 + 42 * (number % 3), between(rng, 120, 260) * (-1) ** number)
        for number in range(16)
    ]

    def draw_lights(canvas: Draw, t: float) -> None:
        for x, y, pace in lamps:
            if math.sin(pace * 3 * t) > 0:
                _disc(canvas, x, y, 5, (255, 70, 60))
        for x, y, speed in lights:
            place = _wrap(x + speed * t, 60)
            colour: Rgb = (255, 245, 200) if speed > 0 else (240, 50, 40)
            canvas.line((place - speed * 0.12, y, place, y), fill=_shade(colour, 0.45), width=4)
            _disc(canvas, place, y, 7, colour)

    return [draw_lights]


def _paint_kitchen(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    wall = _near(rng, (225, 215, 195), 25)
    _fill(picture, 0, _HEIGHT, wall, _shade(wall, 0.85))
    tile = _near(rng, (140, 180, 185), 45)
    for row in range(5):
        for column in range(22):
            draw.rectangle((column * 45, 215 + row * 36, column * 45 + 42, 248 + row * 36), fill=_near(rng, tile, 10))
    cupboard = _near(rng, (150, 100, 65), 35)
    for number in range(5):
        draw.rectangle((number * 195, 0, number * 195 + 188, 165), fill=cupboard)
        _disc(draw, number * 195 + 165, 130, 6, (220, 220, 210))
    draw.rectangle((0, 395, _WIDTH, 430), fill=_near(rng, (95, 90, 88), 20))
    draw.rectangle((0, 430, _WIDTH, _HEIGHT), fill=_shade(cupboard, 0.8))
    pots = [(between(rng, 80, 250), _any(rng)), (between(rng, 620, 860), _any(rng))]
    steam = [(between(rng, -25, 25), between(rng, 0, 3), between(rng, 0.35, 0.6)) for _ in range(9)]

    def draw_pots(canvas: Draw, t: float) -> None:
        for x, colour in pots:
            for shift, phase, pace in steam:
                rise = (t * pace + phase) % 1
                _disc(
                    canvas,
                    x + shift + 16 * math.sin(3 * rise + phase),
                    330 - 190 * rise,
                    8 + 18 * rise,
                    (238, 238, 238),
                )
            canvas.rounded_rectangle((x - 62, 330, x + 62, 400), 10, fill=colour)
            lid = 330 - 5 * abs(math.sin(7 * t + x))
            canvas.rounded_rectangle((x - 66, lid - 12, x + 66, lid), 6, fill=_shade(colour, 0.7))

    cook = between(rng, 380, 520)
    board = _near(rng, (205, 165, 110), 15)

    def draw_knife(canvas: Draw, t: float) -> None:
        canvas.rectangle((cook - 20, 388, cook + 170, 400), fill=board)
        chop = 26 * abs(math.sin(6.5 * t))
        x = cook + 60 + 50 * math.sin(0.5 * t)
        canvas.polygon(
            [(x - 40, 385 - chop), (x + 40, 388 - chop), (x + 40, 370 - chop), (x - 40, 376 - chop)],
            fill=(215, 220, 225),
        )
        for number in range(5):
            _disc(canvas, cook + 90 + 15 * number, 382, 8, (220, 70 + 20 * number, 50))

    return [_person(rng, (cook, 640), 470, speed=0.0), draw_pots, draw_knife]


def _paint_game(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    grass = _near(rng, (60, 140, 60), 25)
    _fill(picture, 0, 150, _near(rng, (70, 75, 95)), (110, 110, 125))
    for _ in range(900):
        _disc(draw, between(rng, 0, _WIDTH), between(rng, 20, 140), 5, _any(rng))  # the crowd
    draw.rectangle((0, 140, _WIDTH, 170), fill=_any(rng, 30, 200))
    for stripe in range(8):
        draw.rectangle(
            (stripe * 120, 170, stripe * 120 + 120, _HEIGHT), fill=grass if stripe % 2 else _shade(grass, 0.88)
        )
    line, middle = (235, 240, 235), between(rng, 380, 600)
    draw.line((0, 200, _WIDTH, 200), fill=line, width=5)
    draw.line((middle, 200, middle - 40, _HEIGHT), fill=line, width=6)
    draw.ellipse((middle - 150, 310, middle + 120, 480), outline=line, width=6)
    teams = _any(rng, 120, 250), _any(rng, 20, 140)
    players = [
        (
            between(rng, 120, 840),
            between(rng, 240, 600),
            between(rng, 0.35, 0.9),
            between(rng, 0, 6),
            between(rng, 50, 150),
        )
        for _ in range(10)
    ]
    order = sorted(range(len(players)), key=lambda number: players[number][1])
    skins, hair = [_choose(rng, _SKINS) for _ in players], [_choose(rng, _HAIR) for _ in players]

    def place(number: int, t: float) -> tuple[float, float]:
        x, y, pace, phase, reach = players[number]
        return x + reach * math.sin(pace * t + phase), y + 0.3 * reach * math.cos(1.3 * pace * t + phase)

    def draw_players(canvas: Draw, t: float) -> None:
        for number in order:
            x, y = place(number, t)
            size, swing = 60 + y * 0.09, math.sin(9 * t + number)
            shirt = teams[number % 2]
            _disc(canvas, x, y, size * 0.25, _shade(grass, 0.6), 0.25)
            for side in (-1, 1):
                canvas.line((x, y - 0.45 * size, x + side * 0.22 * size * swing, y), fill=skins[number], width=7)
                canvas.line((x, y - 0.8 * size, x - side * 0.25 * size * swing, y - 0.5 * size), fill=shirt, width=6)
            canvas.rounded_rectangle(
                (x - 0.14 * size, y - 0.85 * size, x + 0.14 * size, y - 0.42 * size), 5, fill=shirt
            )
            canvas.rectangle((x - 0.14 * size, y - 0.48 * size, x + 0.14 * size, y - 0.34 * size), fill=(240, 240, 240))
            _disc(canvas, x, y - 0.95 * size, 0.1 * size, skins[number], 1.1)
            _disc(canvas, x, y - 1.01 * size, 0.09 * size, hair[number], 0.6)

    def draw_ball(canvas: Draw, t: float) -> None:
        leg = int(t / 1.1)
        share = t / 1.1 - leg
        (x0, y0), (x1, y1) = (place((3 * number) % len(players), t) for number in (leg, leg + 1))
        x, y = x0 + (x1 - x0) * share, y0 + (y1 - y0) * share
        _disc(canvas, x, y, 7, _shade(grass, 0.5), 0.5)
        _disc(canvas, x, y - 8 - 170 * share * (1 - share), 10, (250, 250, 250))

    return [draw_players, draw_ball]


def _paint_snow(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    _fill(picture, 0, 330, _near(rng, (75, 135, 210)), (200, 225, 245))
    _hills(draw, rng, 330, 260, _near(rng, (125, 140, 165)), sharp=True)
    _hills(draw, rng, 345, 150, _near(rng, (190, 205, 225), 15), sharp=True)
    slope = between(rng, 0.12, 0.3)
    draw.polygon([(0, 250), (_WIDTH, 250 + slope * _WIDTH), (_WIDTH, _HEIGHT), (0, _HEIGHT)], fill=(238, 243, 250))
    for _ in range(26):
        x = between(rng, 0, _WIDTH)
        y, size = 255 + slope * x + between(rng, 0, 330), between(rng, 24, 60)
        for part in range(3):
            draw.polygon(
                [
                    (x, y - size * (1.5 - 0.35 * part)),
                    (x - size * (0.25 + 0.12 * part), y - size * (0.8 - 0.4 * part)),
                    (x + size * (0.25 + 0.12 * part), y - size * (0.8 - 0.4 * part)),
                ],
                fill=_near(rng, (40, 85, 65), 15),
            )
    riders = [
        (between(rng, 0, _WIDTH), between(rng, 60, 290), between(rng, 90, 190), _any(rng), between(rng, 1.4, 2.6))
        for _ in range(5)
    ]
    flakes = [
        (between(rng, 0, _WIDTH), between(rng, 0, _HEIGHT), between(rng, 40, 100), between(rng, 1.5, 4))
        for _ in range(110)
    ]

    def draw_riders(canvas: Draw, t: float) -> None:
        for start, deep, speed, suit, pace in riders:
            x = _wrap(start + speed * t, 60)
            y = 262 + slope * x + deep + 26 * math.sin(pace * t)
            lean = 14 * math.cos(pace * t)
            canvas.line((x - 34, y + 4 - 8 * slope, x + 34, y + 6 + 12 * slope), fill=(40, 40, 60), width=5)
            canvas.line((x, y, x + lean * 0.4, y - 26), fill=(50, 50, 70), width=10)
            canvas.line((x + lean * 0.4, y - 24, x + lean, y - 56), fill=suit, width=17)
            canvas.line((x + lean, y - 48, x + 26, y - 20), fill=suit, width=6)
            _disc(canvas, x + lean * 1.15, y - 67, 10, _shade(suit, 0.6))

    def draw_flakes(canvas: Draw, t: float) -> None:
        for x, y, speed, size in flakes:
            _disc(canvas, _wrap(x - 0.4 * speed * t, 20), (y + speed * t) % _HEIGHT, size, (255, 255, 255))

    return [draw_riders, draw_flakes]


def _paint_train(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    _fill(picture, 0, 330, _near(rng, (235, 190, 140)), _near(rng, (250, 225, 180), 12))
    _hills(draw, rng, 330, 170, _near(rng, (190, 120, 85)), sharp=True)
    _hills(draw, rng, 345, 80, _near(rng, (165, 95, 60)))
    _fill(picture, 340, _HEIGHT, _near(rng, (215, 165, 105)), _near(rng, (170, 115, 70)))
    draw.rectangle((0, 466, _WIDTH, 500), fill=(120, 105, 95))
    for sleeper in range(0, _WIDTH, 26):
        draw.rectangle((sleeper, 470, sleeper + 10, 496), fill=(75, 58, 48))
    for rail in (472, 490):
        draw.line((0, rail, _WIDTH, rail), fill=(190, 190, 195), width=4)
    for _ in range(12):
        x, y = between(rng, 0, _WIDTH), between(rng, 520, 620)
        draw.line((x, y, x, y - 60), fill=(75, 110, 60), width=16)
        draw.line((x, y - 35, x + 22, y - 35, x + 22, y - 58), fill=(75, 110, 60), width=9)
    wagons = [_any(rng) for _ in range(6)]
    speed, start = between(rng, 110, 200) * (1 if rng.random() < 0.5 else -1), between(rng, 200, 700)

    def draw_train(canvas: Draw, t: float) -> None:
        front = 1 if speed > 0 else -1
        for number, colour in enumerate(wagons):
            x = (start + speed * t - front * number * 215 + 800) % (_WIDTH + 1500) - 800
            canvas.rounded_rectangle((x - 100, 372 - (20 if number == 0 else 0), x + 100, 462), 10, fill=colour)
            for window in range(4):
                canvas.rectangle((x - 85 + 45 * window, 390, x - 55 + 45 * window, 422), fill=(205, 225, 230))
            for wheel in (-70, -30, 30, 70):
                _disc(canvas, x + wheel, 466, 14, (40, 38, 40))
                turn = speed * t / 14
                canvas.line(
                    (x + wheel, 466, x + wheel + 12 * math.cos(turn), 466 + 12 * math.sin(turn)),
                    fill=(190, 60, 50),
                    width=3,
                )
            if number == 0:
                for puff in range(7):
                    age = (t * 1.1 + puff / 7) % 1
                    _disc(canvas, x + front * 60 - front * 260 * age, 345 - 130 * age, 12 + 38 * age, (225, 220, 215))

    return [_clouds(rng, 40, 150, (250, 240, 225)), draw_train, _birds(rng, 80, 260, 3, (70, 50, 40))]


def _paint_concert(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    _fill(picture, 0, _HEIGHT, _near(rng, (22, 10, 38), 12), _near(rng, (60, 20, 55), 25))
    draw.polygon([(60, 430), (900, 430), (_WIDTH, 500), (0, 500)], fill=_near(rng, (70, 55, 60), 15))
    for x in (90, 800):
        draw.rectangle((x, 260, x + 80, 430), fill=(28, 28, 30))
        for y in (300, 370):
            _disc(draw, x + 40, y, 28, (60, 60, 64))
    lamps = [(between(rng, 80, 880), _any(rng, 60, 255), between(rng, 0.5, 1.4), between(rng, 0, 6)) for _ in range(6)]
    crowd = [
        (between(rng, 0, _WIDTH), between(rng, 540, 640), between(rng, 26, 40), between(rng, 0, 6), rng.random() < 0.3)
        for _ in range(60)
    ]
    crowd.sort(key=lambda one: one[1])

    def draw_lamps(canvas: Draw, t: float) -> None:
        for x, colour, pace, phase in lamps:
            foot = x + 260 * math.sin(pace * t + phase)
            canvas.polygon(
                [(x - 6, 0), (x + 6, 0), (foot + 70, 440), (foot - 70, 440)],
                fill=_shade(colour, 0.3 + 0.12 * math.sin(4 * t + phase)),
            )
            _disc(canvas, foot, 450, 72, _shade(colour, 0.75), 0.25)

    def draw_crowd(canvas: Draw, t: float) -> None:
        for x, y, size, phase, raised in crowd:
            jump = 14 * abs(math.sin(4.2 * t + phase))
            if raised:
                canvas.line((x, y - jump, x + 18 * math.sin(3 * t + phase), y - 90 - jump), fill=(20, 12, 26), width=11)
            _disc(canvas, x, y - jump, size, (14, 9, 20), 1.15)

    band = [_person(rng, (250 + 220 * number, 455), 175, speed=0.0) for number in range(3)]
    return [draw_lamps, *band, draw_crowd]


def _paint_aquarium(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    water = _near(rng, (20, 120, 165), 30)
    _fill(picture, 0, 560, _shade(water, 1.4), _shade(water, 0.45))
    _fill(picture, 560, _HEIGHT, (205, 185, 140), (160, 140, 100))
    for _ in range(9):
        _disc(
            draw,
            between(rng, 0, _WIDTH),
            between(rng, 560, 620),
            between(rng, 30, 95),
            _near(rng, (105, 90, 100), 40),
            0.7,
        )
    fish = [
        (
            between(rng, 0, _WIDTH),
            between(rng, 70, 520),
            between(rng, 22, 62),
            between(rng, 35, 130) * (1 if rng.random() < 0.5 else -1),
            _any(rng, 90, 255),
            between(rng, 0, 6),
        )
        for _ in range(12)
    ]
    weeds = [
        (between(rng, 0, _WIDTH), between(rng, 120, 330), _near(rng, (45, 140, 75), 40), between(rng, 0, 6))
        for _ in range(13)
    ]
    bubbles = [(between(rng, 0, _WIDTH), between(rng, 0, 1), between(rng, 4, 11)) for _ in range(26)]

    def draw_water(canvas: Draw, t: float) -> None:
        for x, tall, colour, phase in weeds:
            points = [
                (x + 26 * (part / 8) * math.sin(1.2 * t + phase + part * 0.5), 590 - tall * part / 8)
                for part in range(9)
            ]
            canvas.line(points, fill=colour, width=13, joint="curve")
        for x, phase, size in bubbles:
            rise = (0.16 * t + phase) % 1
            place = x + 14 * math.sin(4 * t + 9 * phase)
            y = 600 - 600 * rise
            canvas.ellipse((place - size, y - size, place + size, y + size), outline=(205, 235, 245), width=2)

    def draw_fish(canvas: Draw, t: float) -> None:
        for start, deep, size, speed, colour, phase in fish:
            x, y = _wrap(start + speed * t, 90), deep + 22 * math.sin(0.8 * t + phase)
            way, tail = (1 if speed > 0 else -1), size * 0.4 * math.sin(8 * t + phase)
            canvas.polygon(
                [
                    (x - way * size * 0.8, y),
                    (x - way * size * 1.6, y - size * 0.5 + tail),
                    (x - way * size * 1.6, y + size * 0.5 + tail),
                ],
                fill=_shade(colour, 0.75),
            )
            _disc(canvas, x, y, size, colour, 0.55)
            for stripe in (-0.3, 0.15):
                canvas.line(
                    (x + stripe * size, y - size * 0.45, x + stripe * size, y + size * 0.45),
                    fill=_shade(colour, 0.55),
                    width=max(3, round(size * 0.14)),
                )
            _disc(canvas, x + way * size * 0.6, y - size * 0.12, size * 0.12, (250, 250, 250))
            _disc(canvas, x + way * size * 0.64, y - size * 0.12, size * 0.06, (10, 10, 10))

    return [draw_water, draw_fish]


def _paint_farm(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    horizon = between(rng, 300, 360)
    _fill(picture, 0, horizon, _near(rng, (95, 170, 235)), (225, 240, 250))
    _hills(draw, rng, horizon, 60, _near(rng, (110, 160, 90)))
    for number in range(7):
        top = horizon + (number / 7) ** 1.5 * (_HEIGHT - horizon)
        _fill(
            picture,
            top,
            _HEIGHT,
            _near(rng, (205, 185, 80) if number % 2 else (115, 160, 60), 30),
            _near(rng, (100, 130, 50)),
        )
    barn, roof = between(rng, 560, 760), _near(rng, (95, 60, 50))
    draw.rectangle((barn, horizon - 60, barn + 190, horizon + 60), fill=_near(rng, (170, 45, 40), 25))
    draw.polygon([(barn - 15, horizon - 60), (barn + 205, horizon - 60), (barn + 95, horizon - 140)], fill=roof)
    mill, spin = between(rng, 160, 400), between(rng, 0.7, 1.6)
    draw.polygon(
        [(mill - 42, horizon + 80), (mill + 42, horizon + 80), (mill + 24, horizon - 130), (mill - 24, horizon - 130)],
        fill=_near(rng, (230, 225, 210), 15),
    )
    _disc(draw, mill, horizon - 130, 28, roof)

    def draw_sails(canvas: Draw, t: float) -> None:
        for quarter in range(4):
            turn = spin * t + quarter * math.pi / 2
            x, y = math.cos(turn), math.sin(turn)
            hub = (mill, horizon - 125)
            canvas.polygon(
                [
                    hub,
                    (hub[0] + 150 * x, hub[1] + 150 * y),
                    (hub[0] + 150 * x - 32 * y, hub[1] + 150 * y + 32 * x),
                    (hub[0] + 25 * x - 32 * y, hub[1] + 25 * y + 32 * x),
                ],
                fill=(245, 240, 225),
                outline=(90, 70, 60),
            )

    cows = [
        (between(rng, 0, _WIDTH), horizon + 110 + 55 * number, between(rng, 8, 24) * (-1) ** number, between(rng, 0, 6))
        for number in range(4)
    ]

    def draw_cows(canvas: Draw, t: float) -> None:
        for start, y, speed, phase in cows:
            x, way = _wrap(start + speed * t, 80), (1 if speed > 0 else -1)
            for leg, shift in enumerate((-32, -20, 20, 32)):
                canvas.line(
                    (x + shift, y - 30, x + shift + 8 * math.sin(4 * t + phase + 3 * leg), y),
                    fill=(60, 45, 40),
                    width=7,
                )
            canvas.rounded_rectangle((x - 45, y - 68, x + 45, y - 24), 16, fill=(240, 236, 230))
            for spot in (-22, 12):
                _disc(canvas, x + spot, y - 50, 14, (70, 50, 42), 0.8)
            nod = 10 * math.sin(1.1 * t + phase)
            _disc(canvas, x + way * 56, y - 66 + nod, 17, (225, 215, 205), 0.8)

    return [_clouds(rng, 40, 200, (252, 252, 254)), draw_sails, draw_cows, _birds(rng, 50, 250, 5, (50, 50, 60))]


def _paint_talk(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    wall = _near(rng, (60, 80, 120), 50)
    _fill(picture, 0, _HEIGHT, _shade(wall, 1.2), _shade(wall, 0.6))
    for shelf in range(4):
        y = 90 + 110 * shelf
        draw.rectangle((40, y, 330, y + 10), fill=(110, 75, 50))
        x = 50.0
        while x < 310:
            width = between(rng, 9, 24)
            draw.rectangle((x, y - between(rng, 45, 85), x + width, y), fill=_any(rng))
            x += width + 2
    draw.rectangle((600, 70, 920, 280), fill=(20, 22, 30))
    bars = [(between(rng, 0.6, 1.8), between(rng, 0, 6), _any(rng, 90, 250)) for _ in range(7)]
    skin, hair, shirt = _choose(rng, _SKINS), _choose(rng, _HAIR), _any(rng)
    middle = between(rng, 430, 500)

    def draw_screen(canvas: Draw, t: float) -> None:
        for number, (pace, phase, colour) in enumerate(bars):
            tall = 90 + 70 * math.sin(pace * t + phase)
            canvas.rectangle((622 + 42 * number, 268 - tall, 652 + 42 * number, 268), fill=colour)

    def draw_speaker(canvas: Draw, t: float) -> None:
        x, nod = middle + 16 * math.sin(0.7 * t) + 5 * math.sin(2.3 * t), 6 * math.sin(1.9 * t)
        canvas.rounded_rectangle((x - 125, 395, x + 125, 660), 50, fill=shirt)
        canvas.rectangle((x - 28, 350, x + 28, 410), fill=_shade(skin, 0.85))
        _disc(canvas, x, 290 + nod, 76, skin, 1.2)
        canvas.pieslice((x - 82, 190 + nod, x + 82, 340 + nod), 180, 360, fill=hair)
        for side in (-1, 1):
            closed = 2 if math.sin(1.7 * t) > 0.97 else 8
            _disc(canvas, x + side * 28, 288 + nod, 8, (30, 25, 25), closed / 8)
            hand = (x + side * (150 + 40 * math.sin(1.6 * t + side)), 520 - 90 * max(0.0, math.sin(1.1 * t + 2 * side)))
            canvas.line(
                (x + side * 110, 440, x + side * 175, 560, *hand), fill=_shade(shirt, 0.8), width=44, joint="curve"
            )
            _disc(canvas, *hand, 26, skin)
        _disc(canvas, x, 336 + nod, 20, (120, 40, 45), 0.15 + 0.5 * abs(math.sin(7 * t) * math.sin(1.3 * t)))
        canvas.rectangle((0, 590, _WIDTH, _HEIGHT), fill=(125, 90, 60))
        canvas.rounded_rectangle((x + 175, 540, x + 235, 595), 8, fill=(235, 235, 230))

    return [draw_screen, draw_speaker]


_SCENES: list[Painter] = [
    _paint_street, _paint_sea, _paint_park, _paint_night, _paint_kitchen, _paint_game,
    _paint_snow, _paint_train, _paint_concert, _paint_aquarium, _paint_farm, _paint_talk,
]  # fmt: skip
