"""Drawn scenes in town and on the way: a street, a city at night, a train."""

from __future__ import annotations

import math

from numpy.random import Generator
from PIL import Image

from hapvr.synthetic.film_numbers import between
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
from hapvr.synthetic.footage_things import draw_building, draw_hills, make_birds, make_car, make_clouds, make_person


def paint_street(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A street with shops, people who walk and cars in both directions."""
    horizon = between(rng, 330, 400)
    fill_band(picture, 0, horizon, vary_colour(rng, (110, 160, 215)), vary_colour(rng, (215, 225, 235)))
    x = -20.0
    while x < WIDTH:
        width = between(rng, 90, 190)
        wall = vary_colour(rng, (175, 130, 105), 45)
        draw_building(draw, rng, x, width, between(rng, 60, 230), horizon, wall, (200, 220, 235), 0.4)
        draw.rectangle((x, horizon - 45, x + width, horizon), fill=pick_colour(rng, 60, 200))  # shops
        x += width + between(rng, 0, 12)
    fill_band(
        picture, horizon, horizon + 45, vary_colour(rng, (175, 172, 168), 12), vary_colour(rng, (150, 148, 145), 12)
    )
    fill_band(picture, horizon + 45, HEIGHT, (82, 82, 86), (62, 62, 66))
    for mark in range(0, WIDTH, 90):
        draw.rectangle((mark, horizon + 135, mark + 45, horizon + 142), fill=(225, 225, 215))
    people = [
        make_person(
            rng,
            (between(rng, 0, WIDTH), horizon + between(rng, 20, 42)),
            between(rng, 80, 105),
            speed=between(rng, 22, 60) * (1 if rng.random() < 0.5 else -1),
        )
        for _ in range(7)
    ]
    far = [make_car(rng, horizon + 108, 150, -between(rng, 90, 190)) for _ in range(3)]
    near = [make_car(rng, horizon + 215, 215, between(rng, 110, 240)) for _ in range(2)]
    return [*people, *far, *near]


def paint_night(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A city at night: lit windows, blinking lamps, the lights of cars."""
    base = between(rng, 430, 480)
    fill_band(picture, 0, base, vary_colour(rng, (12, 14, 38), 10), vary_colour(rng, (75, 50, 95), 25))
    for _ in range(70):
        draw_disc(draw, between(rng, 0, WIDTH), between(rng, 0, 260), 1.2, (230, 230, 255))
    draw_disc(draw, between(rng, 150, 800), between(rng, 60, 140), 34, (245, 240, 215))
    x, lamps = -10.0, []
    while x < WIDTH:
        width, top = between(rng, 60, 130), between(rng, 120, 350)
        draw_building(
            draw, rng, x, width, top, base, vary_colour(rng, (32, 34, 52), 12), (250, 210, 120), between(rng, 0.25, 0.6)
        )
        lamps.append((x + width / 2, top - 6, between(rng, 0.6, 1.6)))
        x += width + between(rng, 2, 16)
    fill_band(picture, base, HEIGHT, (30, 32, 45), (14, 15, 24))
    lights = [
        (between(rng, 0, WIDTH), base + 40 + 42 * (number % 3), between(rng, 120, 260) * (-1) ** number)
        for number in range(16)
    ]

    def draw_lights(canvas: Draw, t: float) -> None:
        for x, y, pace in lamps:
            if math.sin(pace * 3 * t) > 0:
                draw_disc(canvas, x, y, 5, (255, 70, 60))
        for x, y, speed in lights:
            place = wrap_around(x + speed * t, 60)
            colour: Rgb = (255, 245, 200) if speed > 0 else (240, 50, 40)
            canvas.line((place - speed * 0.12, y, place, y), fill=shade_colour(colour, 0.45), width=4)
            draw_disc(canvas, place, y, 7, colour)

    return [draw_lights]


def paint_train(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A steam train in a desert."""
    fill_band(picture, 0, 330, vary_colour(rng, (235, 190, 140)), vary_colour(rng, (250, 225, 180), 12))
    draw_hills(draw, rng, 330, 170, vary_colour(rng, (190, 120, 85)), sharp=True)
    draw_hills(draw, rng, 345, 80, vary_colour(rng, (165, 95, 60)))
    fill_band(picture, 340, HEIGHT, vary_colour(rng, (215, 165, 105)), vary_colour(rng, (170, 115, 70)))
    draw.rectangle((0, 466, WIDTH, 500), fill=(120, 105, 95))
    for sleeper in range(0, WIDTH, 26):
        draw.rectangle((sleeper, 470, sleeper + 10, 496), fill=(75, 58, 48))
    for rail in (472, 490):
        draw.line((0, rail, WIDTH, rail), fill=(190, 190, 195), width=4)
    for _ in range(12):
        x, y = between(rng, 0, WIDTH), between(rng, 520, 620)
        draw.line((x, y, x, y - 60), fill=(75, 110, 60), width=16)
        draw.line((x, y - 35, x + 22, y - 35, x + 22, y - 58), fill=(75, 110, 60), width=9)
    wagons = [pick_colour(rng) for _ in range(6)]
    speed, start = between(rng, 110, 200) * (1 if rng.random() < 0.5 else -1), between(rng, 200, 700)

    def draw_train(canvas: Draw, t: float) -> None:
        front = 1 if speed > 0 else -1
        for number, colour in enumerate(wagons):
            x = (start + speed * t - front * number * 215 + 800) % (WIDTH + 1500) - 800
            canvas.rounded_rectangle((x - 100, 372 - (20 if number == 0 else 0), x + 100, 462), 10, fill=colour)
            for window in range(4):
                canvas.rectangle((x - 85 + 45 * window, 390, x - 55 + 45 * window, 422), fill=(205, 225, 230))
            for wheel in (-70, -30, 30, 70):
                draw_disc(canvas, x + wheel, 466, 14, (40, 38, 40))
                turn = speed * t / 14
                canvas.line(
                    (x + wheel, 466, x + wheel + 12 * math.cos(turn), 466 + 12 * math.sin(turn)),
                    fill=(190, 60, 50),
                    width=3,
                )
            if number == 0:
                for puff in range(7):
                    age = (t * 1.1 + puff / 7) % 1
                    draw_disc(
                        canvas, x + front * 60 - front * 260 * age, 345 - 130 * age, 12 + 38 * age, (225, 220, 215)
                    )

    return [make_clouds(rng, 40, 150, (250, 240, 225)), draw_train, make_birds(rng, 80, 260, 3, (70, 50, 40))]
