"""Things that several drawn scenes have: hills, clouds, people, cars, birds, trees, buildings."""

from __future__ import annotations

import math

from numpy.random import Generator

from hapvr.synthetic.film_numbers import between, between_each
from hapvr.synthetic.footage_canvas import (
    HAIR,
    HEIGHT,
    SKINS,
    WIDTH,
    Draw,
    Mover,
    Rgb,
    choose_colour,
    draw_disc,
    pick_colour,
    shade_colour,
    vary_colour,
    wrap_around,
)


def draw_hills(draw: Draw, rng: Generator, base: float, height: float, colour: Rgb, *, sharp: bool = False) -> None:
    """A range of hills up to `height` above `base`, which hides what lies below; peaks if `sharp`."""
    count = 9 if sharp else 40
    phases = [(between(rng, 0.004, 0.02), between(rng, 0, 6)) for _ in range(3)]
    points: list[tuple[float, float]] = []
    for number in range(count + 1):
        x = WIDTH * number / count
        rise = float(rng.random()) if sharp else 0.5 + sum(math.sin(x * f + p) for f, p in phases) / 6
        points.append((x, base - height * rise))
    draw.polygon([(0, HEIGHT), *points, (WIDTH, HEIGHT)], fill=colour)


def draw_building(
    draw: Draw, rng: Generator, left: float, width: float, top: float, base: float, wall: Rgb, lit: Rgb, share: float
) -> None:
    """A wall with windows, a share of which are lit."""
    draw.rectangle((left, top, left + width, base), fill=wall)
    step_x, step_y = between(rng, 16, 28), between(rng, 20, 34)
    for row in range(int((base - top) / step_y)):
        for column in range(int(width / step_x)):
            x, y = left + (column + 0.25) * step_x, top + (row + 0.3) * step_y
            colour = lit if rng.random() < share else shade_colour(wall, 0.6)
            draw.rectangle((x, y, x + step_x * 0.5, y + step_y * 0.5), fill=colour)


def make_clouds(rng: Generator, top: float, bottom: float, colour: Rgb) -> Mover:
    """Clouds that drift between two heights."""
    puffs = [(between(rng, 0, WIDTH), between(rng, top, bottom), between(rng, 18, 55)) for _ in range(6)]
    speed = between(rng, 6, 22)

    def draw_clouds(draw: Draw, t: float) -> None:
        for x, y, size in puffs:
            middle = wrap_around(x + speed * t, 160)
            for shift, part in ((-1.3, 0.7), (0.0, 1.0), (1.2, 0.8), (2.1, 0.5)):
                draw_disc(draw, middle + shift * size, y - part * size * 0.2, size * part, colour, 0.55)

    return draw_clouds


def make_birds(rng: Generator, top: float, bottom: float, count: int, colour: Rgb) -> Mover:
    """A flock that flies between two heights."""
    ranges = (0, WIDTH), (top, bottom), (7, 16), (40, 110), (0, 6)
    flock = [between_each(rng, *ranges) for _ in range(count)]

    def draw_birds(draw: Draw, t: float) -> None:
        for x, y, size, speed, phase in flock:
            x, y = wrap_around(x + speed * t, 40), y + 12 * math.sin(0.9 * t + phase)
            wing = size * 0.7 * math.sin(9 * t + phase)
            draw.line((x - size, y - wing, x, y, x + size, y - wing), fill=colour, width=3)

    return draw_birds


def make_tree(rng: Generator, x: float, y: float, size: float, leaves: Rgb) -> Mover:
    """A tree whose crown sways in the wind."""
    bark, phase, pace = vary_colour(rng, (90, 65, 45), 18), between(rng, 0, 6), between(rng, 0.9, 1.8)
    blobs = [(between(rng, -0.4, 0.4), between(rng, -1.0, -0.45), between(rng, 0.16, 0.3)) for _ in range(9)]
    tones = [between(rng, 0.75, 1.2) for _ in blobs]

    def draw_tree(draw: Draw, t: float) -> None:
        lean = 0.07 * math.sin(pace * t + phase) + 0.03 * math.sin(3.1 * pace * t)
        draw.line((x, y, x + lean * size * 0.5, y - size * 0.6), fill=bark, width=max(3, round(size * 0.08)))
        for (right, up, radius), tone in zip(blobs, tones, strict=True):
            place = x + (right - lean * up * 1.5) * size
            draw_disc(draw, place, y + up * size, radius * size, shade_colour(leaves, tone), 0.85)

    return draw_tree


def make_person(rng: Generator, place: tuple[float, float], size: float, *, speed: float) -> Mover:
    """A figure that walks along at a speed, or stands and gestures at 0."""
    shirt, trousers = pick_colour(rng), vary_colour(rng, (50, 55, 80), 40)
    skin, hair = choose_colour(rng, SKINS), choose_colour(rng, HAIR)
    phase, pace = between(rng, 0, 6), between(rng, 4.5, 7.5) if speed else between(rng, 1.2, 2.5)
    stroke = max(2, round(size * 0.11))

    def draw_person(draw: Draw, t: float) -> None:
        x, y = wrap_around(place[0] + speed * t, 60), place[1]
        swing = math.sin(pace * t + phase)
        y -= abs(swing) * size * 0.04 if speed else 0
        hip, neck, step = y - size * 0.45, y - size * 0.82, size * (0.2 * swing if speed else 0.07)
        for side in (-1, 1):
            draw.line((x, hip, x + side * step, y), fill=trousers, width=stroke + 2)
            reach = size * (0.2 * -side * swing if speed else 0.22 * side)
            lift = 0.0 if speed else size * 0.25 * (swing + 1) * (side + 1) / 2
            draw.line((x, neck + size * 0.05, x + reach, hip - lift), fill=shade_colour(shirt, 0.8), width=stroke)
        draw.rounded_rectangle((x - size * 0.13, neck, x + size * 0.13, hip + 3), size * 0.06, fill=shirt)
        draw_disc(draw, x, neck - size * 0.1, size * 0.1, skin, 1.15)
        draw.pieslice((x - size * 0.11, neck - size * 0.23, x + size * 0.11, neck), 180, 360, fill=hair)

    return draw_person


def make_car(rng: Generator, y: float, size: float, speed: float) -> Mover:
    """A car or a van that drives along at a speed."""
    body, start = pick_colour(rng, 30, 240), between(rng, 0, WIDTH)
    tall, van = between(rng, 0.3, 0.42), rng.random() < 0.3

    def draw_car(draw: Draw, t: float) -> None:
        x = wrap_around(start + speed * t, 160)
        front = 1 if speed > 0 else -1
        draw.ellipse((x - size * 0.52, y - 4, x + size * 0.52, y + size * 0.07), fill=(35, 35, 38))
        roof = (x - size * (0.5 if van else 0.3), y - size * tall * 1.25, x + size * 0.3, y - size * 0.1)
        draw.rounded_rectangle(roof, size * 0.08, fill=shade_colour(body, 0.9))
        for left in (-0.24, 0.02):
            pane = x + left * size, y - size * tall * 1.12, x + (left + 0.22) * size, y - size * 0.22
            draw.rectangle(pane, fill=(150, 190, 210))
        lower = x - size * 0.5, y - size * 0.24, x + size * 0.5, y - size * 0.04
        draw.rounded_rectangle(lower, size * 0.07, fill=body)
        for wheel in (-0.3, 0.3):
            middle, axle = x + wheel * size, y - size * 0.03
            draw_disc(draw, middle, axle, size * 0.085, (20, 20, 20))
            turn, hub = t * speed / (size * 0.085), size * 0.05
            spoke = middle, axle, middle + hub * math.cos(turn), axle + hub * math.sin(turn)
            draw.line(spoke, fill=(200, 200, 200), width=2)
        draw_disc(draw, x + front * size * 0.47, y - size * 0.15, size * 0.04, (255, 245, 190))

    return draw_car
