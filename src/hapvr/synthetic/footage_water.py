"""Drawn scenes at the water and in it: a sea with boats, an aquarium."""

from __future__ import annotations

import math

from numpy.random import Generator
from PIL import Image

from hapvr.synthetic.film_numbers import between, between_each
from hapvr.synthetic.footage_canvas import (
    HEIGHT,
    WIDTH,
    Draw,
    Mover,
    draw_disc,
    fill_band,
    pick_colour,
    shade_colour,
    vary_colour,
    wrap_around,
)
from hapvr.synthetic.footage_things import draw_hills, make_birds, make_clouds


def paint_sea(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A sea by day or in the evening, with waves, boats and birds."""
    horizon = between(rng, 230, 300)
    evening = rng.random() < 0.5
    fill_band(
        picture,
        0,
        horizon,
        (70, 80, 140) if evening else vary_colour(rng, (90, 160, 225)),
        (250, 170, 110) if evening else (205, 230, 245),
    )
    draw_disc(draw, between(rng, 200, 760), horizon - between(rng, 40, 150), 42, (255, 235, 180))
    draw_hills(draw, rng, horizon + 8, 70, vary_colour(rng, (85, 95, 115)))
    water = (60, 70, 110) if evening else vary_colour(rng, (25, 105, 145))
    fill_band(picture, horizon, HEIGHT, shade_colour(water, 1.35), shade_colour(water, 0.6))

    def draw_waves(canvas: Draw, t: float) -> None:
        for row in range(14):
            y = horizon + 8 + row * row * 1.8
            reach = 14 + row * 5
            for number in range(12):
                x = wrap_around(number * 97 + row * 53 + (12 + 5 * row) * t, 60)
                lift = (1 + row * 0.5) * math.sin(1.7 * t + number + row)
                canvas.line(
                    (x - reach, y, x, y - 2 - lift, x + reach, y), fill=shade_colour(water, 1.7), width=1 + row // 5
                )

    def make_boat(y: float, size: float, speed: float) -> Mover:
        hull, sail = pick_colour(rng), vary_colour(rng, (240, 235, 220), 20)
        start, phase = between_each(rng, (0, WIDTH), (0, 6))

        def draw_boat(canvas: Draw, t: float) -> None:
            x, tip = wrap_around(start + speed * t, 120), 0.12 * math.sin(1.3 * t + phase)
            base = y + 5 * math.sin(1.7 * t + phase)
            deck = base - 0.3 * size
            canvas.polygon([(x - size, deck), (x + size, deck), (x + 0.65 * size, base), (x - 0.7 * size, base)], hull)
            top = (x + tip * 1.6 * size, base - 1.9 * size)
            canvas.line((x, base - 0.3 * size, *top), fill=(90, 70, 50), width=4)
            canvas.polygon([top, (x + 0.8 * size, base - 0.42 * size), (x + 4, base - 0.42 * size)], fill=sail)
            canvas.polygon(
                [top, (x - 0.55 * size, base - 0.42 * size), (x - 4, base - 0.42 * size)], fill=shade_colour(sail, 0.85)
            )

        return draw_boat

    boats = [
        make_boat(
            horizon + 40 + 90 * number, 38 + 34 * number, between(rng, 15, 45) * (1 if rng.random() < 0.5 else -1)
        )
        for number in range(3)
    ]
    return [
        make_clouds(rng, 30, horizon - 90, (250, 215, 200) if evening else (250, 250, 252)),
        draw_waves,
        *boats,
        make_birds(rng, 60, horizon, 7, (250, 250, 250)),
    ]


def paint_aquarium(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """Fish, weeds and bubbles."""
    water = vary_colour(rng, (20, 120, 165), 30)
    fill_band(picture, 0, 560, shade_colour(water, 1.4), shade_colour(water, 0.45))
    fill_band(picture, 560, HEIGHT, (205, 185, 140), (160, 140, 100))
    for _ in range(9):
        x, y, size = between_each(rng, (0, WIDTH), (560, 620), (30, 95))
        draw_disc(draw, x, y, size, vary_colour(rng, (105, 90, 100), 40), 0.7)
    fish = [
        (
            between(rng, 0, WIDTH),
            between(rng, 70, 520),
            between(rng, 22, 62),
            between(rng, 35, 130) * (1 if rng.random() < 0.5 else -1),
            pick_colour(rng, 90, 255),
            between(rng, 0, 6),
        )
        for _ in range(12)
    ]
    weeds = [
        (between(rng, 0, WIDTH), between(rng, 120, 330), vary_colour(rng, (45, 140, 75), 40), between(rng, 0, 6))
        for _ in range(13)
    ]
    bubbles = [(between(rng, 0, WIDTH), between(rng, 0, 1), between(rng, 4, 11)) for _ in range(26)]

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
            x, y = wrap_around(start + speed * t, 90), deep + 22 * math.sin(0.8 * t + phase)
            way, tail = (1 if speed > 0 else -1), size * 0.4 * math.sin(8 * t + phase)
            back = x - way * size * 1.6
            fin = [(x - way * size * 0.8, y), (back, y - size * 0.5 + tail), (back, y + size * 0.5 + tail)]
            canvas.polygon(fin, fill=shade_colour(colour, 0.75))
            draw_disc(canvas, x, y, size, colour, 0.55)
            for stripe in (-0.3, 0.15):
                place, dark = x + stripe * size, shade_colour(colour, 0.55)
                line = place, y - size * 0.45, place, y + size * 0.45
                canvas.line(line, fill=dark, width=max(3, round(size * 0.14)))
            draw_disc(canvas, x + way * size * 0.6, y - size * 0.12, size * 0.12, (250, 250, 250))
            draw_disc(canvas, x + way * size * 0.64, y - size * 0.12, size * 0.06, (10, 10, 10))

    return [draw_water, draw_fish]
