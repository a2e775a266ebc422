"""Drawn scenes in the country: a park, a slope in the snow, a farm."""

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
    Rgb,
    draw_disc,
    fill_band,
    pick_colour,
    shade_colour,
    vary_colour,
    wrap_around,
)
from hapvr.synthetic.footage_things import draw_hills, make_birds, make_clouds, make_person, make_tree


def paint_park(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A park in summer or autumn: trees in the wind, people on a path."""
    horizon = between(rng, 250, 320)
    fill_band(picture, 0, horizon, vary_colour(rng, (150, 195, 230)), (230, 238, 240))
    autumn = rng.random() < 0.5
    leaves: Rgb = (200, 120, 40) if autumn else (65, 125, 55)
    draw_hills(draw, rng, horizon, 60, shade_colour(leaves, 0.6))
    fill_band(picture, horizon, HEIGHT, vary_colour(rng, (125, 160, 75)), vary_colour(rng, (70, 110, 45)))
    left, right = between_each(rng, (300, 600), (620, 660))
    path = [(left, horizon), (right, horizon), (WIDTH, HEIGHT - 60), (WIDTH, HEIGHT), (120, HEIGHT)]
    draw.polygon(path, fill=(200, 180, 145))
    trees = [
        make_tree(
            rng, between(rng, 0, WIDTH), horizon + 30 + 38 * number, 190 + 42 * number, vary_colour(rng, leaves, 25)
        )
        for number in range(6)
    ]
    people = [
        make_person(
            rng,
            (between(rng, 0, WIDTH), horizon + 160 + 50 * number),
            150 + 25 * number,
            speed=between(rng, 25, 70) * (-1) ** number,
        )
        for number in range(3)
    ]
    return [make_birds(rng, 40, 180, 4, (60, 60, 70)), *trees[:4], *people, *trees[4:]]


def paint_snow(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """Riders on a slope with trees, in falling snow."""
    fill_band(picture, 0, 330, vary_colour(rng, (75, 135, 210)), (200, 225, 245))
    draw_hills(draw, rng, 330, 260, vary_colour(rng, (125, 140, 165)), sharp=True)
    draw_hills(draw, rng, 345, 150, vary_colour(rng, (190, 205, 225), 15), sharp=True)
    slope = between(rng, 0.12, 0.3)
    draw.polygon([(0, 250), (WIDTH, 250 + slope * WIDTH), (WIDTH, HEIGHT), (0, HEIGHT)], fill=(238, 243, 250))
    for _ in range(26):
        x = between(rng, 0, WIDTH)
        y, size = 255 + slope * x + between(rng, 0, 330), between(rng, 24, 60)
        for part in range(3):
            top, low, wide = y - size * (1.5 - 0.35 * part), y - size * (0.8 - 0.4 * part), size * (0.25 + 0.12 * part)
            draw.polygon([(x, top), (x - wide, low), (x + wide, low)], fill=vary_colour(rng, (40, 85, 65), 15))
    riders = [
        (between(rng, 0, WIDTH), between(rng, 60, 290), between(rng, 90, 190), pick_colour(rng), between(rng, 1.4, 2.6))
        for _ in range(5)
    ]
    flakes = [between_each(rng, (0, WIDTH), (0, HEIGHT), (40, 100), (1.5, 4)) for _ in range(110)]

    def draw_riders(canvas: Draw, t: float) -> None:
        for start, deep, speed, suit, pace in riders:
            x = wrap_around(start + speed * t, 60)
            y = 262 + slope * x + deep + 26 * math.sin(pace * t)
            lean = 14 * math.cos(pace * t)
            canvas.line((x - 34, y + 4 - 8 * slope, x + 34, y + 6 + 12 * slope), fill=(40, 40, 60), width=5)
            canvas.line((x, y, x + lean * 0.4, y - 26), fill=(50, 50, 70), width=10)
            canvas.line((x + lean * 0.4, y - 24, x + lean, y - 56), fill=suit, width=17)
            canvas.line((x + lean, y - 48, x + 26, y - 20), fill=suit, width=6)
            draw_disc(canvas, x + lean * 1.15, y - 67, 10, shade_colour(suit, 0.6))

    def draw_flakes(canvas: Draw, t: float) -> None:
        for x, y, speed, size in flakes:
            draw_disc(canvas, wrap_around(x - 0.4 * speed * t, 20), (y + speed * t) % HEIGHT, size, (255, 255, 255))

    return [draw_riders, draw_flakes]


def paint_farm(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """Fields with a barn, a windmill and cows."""
    horizon = between(rng, 300, 360)
    fill_band(picture, 0, horizon, vary_colour(rng, (95, 170, 235)), (225, 240, 250))
    draw_hills(draw, rng, horizon, 60, vary_colour(rng, (110, 160, 90)))
    for number in range(7):
        top = horizon + (number / 7) ** 1.5 * (HEIGHT - horizon)
        crop = vary_colour(rng, (205, 185, 80) if number % 2 else (115, 160, 60), 30)
        fill_band(picture, top, HEIGHT, crop, vary_colour(rng, (100, 130, 50)))
    barn, roof = between(rng, 560, 760), vary_colour(rng, (95, 60, 50))
    draw.rectangle((barn, horizon - 60, barn + 190, horizon + 60), fill=vary_colour(rng, (170, 45, 40), 25))
    draw.polygon([(barn - 15, horizon - 60), (barn + 205, horizon - 60), (barn + 95, horizon - 140)], fill=roof)
    mill, spin = between(rng, 160, 400), between(rng, 0.7, 1.6)
    draw.polygon(
        [(mill - 42, horizon + 80), (mill + 42, horizon + 80), (mill + 24, horizon - 130), (mill - 24, horizon - 130)],
        fill=vary_colour(rng, (230, 225, 210), 15),
    )
    draw_disc(draw, mill, horizon - 130, 28, roof)

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
        (between(rng, 0, WIDTH), horizon + 110 + 55 * number, between(rng, 8, 24) * (-1) ** number, between(rng, 0, 6))
        for number in range(4)
    ]

    def draw_cows(canvas: Draw, t: float) -> None:
        for start, y, speed, phase in cows:
            x, way = wrap_around(start + speed * t, 80), (1 if speed > 0 else -1)
            for leg, shift in enumerate((-32, -20, 20, 32)):
                foot = x + shift + 8 * math.sin(4 * t + phase + 3 * leg)
                canvas.line((x + shift, y - 30, foot, y), fill=(60, 45, 40), width=7)
            canvas.rounded_rectangle((x - 45, y - 68, x + 45, y - 24), 16, fill=(240, 236, 230))
            for spot in (-22, 12):
                draw_disc(canvas, x + spot, y - 50, 14, (70, 50, 42), 0.8)
            nod = 10 * math.sin(1.1 * t + phase)
            draw_disc(canvas, x + way * 56, y - 66 + nod, 17, (225, 215, 205), 0.8)

    return [
        make_clouds(rng, 40, 200, (252, 252, 254)),
        draw_sails,
        draw_cows,
        make_birds(rng, 50, 250, 5, (50, 50, 60)),
    ]
