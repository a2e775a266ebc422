"""Drawn scenes of people at work and at play: a kitchen, a game, a concert, a talk."""

from __future__ import annotations

import math

from numpy.random import Generator
from PIL import Image

from hapvr.synthetic.film_numbers import between, between_each
from hapvr.synthetic.footage_canvas import (
    HAIR,
    HEIGHT,
    SKINS,
    WIDTH,
    Draw,
    Mover,
    choose_colour,
    draw_disc,
    fill_band,
    pick_colour,
    shade_colour,
    vary_colour,
)
from hapvr.synthetic.footage_things import make_person


def paint_kitchen(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A cook who chops, between two steaming pots."""
    wall = vary_colour(rng, (225, 215, 195), 25)
    fill_band(picture, 0, HEIGHT, wall, shade_colour(wall, 0.85))
    tile = vary_colour(rng, (140, 180, 185), 45)
    for row in range(5):
        for column in range(22):
            draw.rectangle(
                (column * 45, 215 + row * 36, column * 45 + 42, 248 + row * 36), fill=vary_colour(rng, tile, 10)
            )
    cupboard = vary_colour(rng, (150, 100, 65), 35)
    for number in range(5):
        draw.rectangle((number * 195, 0, number * 195 + 188, 165), fill=cupboard)
        draw_disc(draw, number * 195 + 165, 130, 6, (220, 220, 210))
    draw.rectangle((0, 395, WIDTH, 430), fill=vary_colour(rng, (95, 90, 88), 20))
    draw.rectangle((0, 430, WIDTH, HEIGHT), fill=shade_colour(cupboard, 0.8))
    pots = [(between(rng, 80, 250), pick_colour(rng)), (between(rng, 620, 860), pick_colour(rng))]
    steam = [(between(rng, -25, 25), between(rng, 0, 3), between(rng, 0.35, 0.6)) for _ in range(9)]

    def draw_pots(canvas: Draw, t: float) -> None:
        for x, colour in pots:
            for shift, phase, pace in steam:
                rise = (t * pace + phase) % 1
                place = x + shift + 16 * math.sin(3 * rise + phase)
                draw_disc(canvas, place, 330 - 190 * rise, 8 + 18 * rise, (238, 238, 238))
            canvas.rounded_rectangle((x - 62, 330, x + 62, 400), 10, fill=colour)
            lid = 330 - 5 * abs(math.sin(7 * t + x))
            canvas.rounded_rectangle((x - 66, lid - 12, x + 66, lid), 6, fill=shade_colour(colour, 0.7))

    cook = between(rng, 380, 520)
    board = vary_colour(rng, (205, 165, 110), 15)

    def draw_knife(canvas: Draw, t: float) -> None:
        canvas.rectangle((cook - 20, 388, cook + 170, 400), fill=board)
        chop = 26 * abs(math.sin(6.5 * t))
        x = cook + 60 + 50 * math.sin(0.5 * t)
        blade = [(x - 40, 385 - chop), (x + 40, 388 - chop), (x + 40, 370 - chop), (x - 40, 376 - chop)]
        canvas.polygon(blade, fill=(215, 220, 225))
        for number in range(5):
            draw_disc(canvas, cook + 90 + 15 * number, 382, 8, (220, 70 + 20 * number, 50))

    return [make_person(rng, (cook, 640), 470, speed=0.0), draw_pots, draw_knife]


def paint_game(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A ball game of two teams before a crowd."""
    grass = vary_colour(rng, (60, 140, 60), 25)
    fill_band(picture, 0, 150, vary_colour(rng, (70, 75, 95)), (110, 110, 125))
    for _ in range(900):
        draw_disc(draw, between(rng, 0, WIDTH), between(rng, 20, 140), 5, pick_colour(rng))  # the crowd
    draw.rectangle((0, 140, WIDTH, 170), fill=pick_colour(rng, 30, 200))
    for stripe in range(8):
        draw.rectangle(
            (stripe * 120, 170, stripe * 120 + 120, HEIGHT), fill=grass if stripe % 2 else shade_colour(grass, 0.88)
        )
    line, middle = (235, 240, 235), between(rng, 380, 600)
    draw.line((0, 200, WIDTH, 200), fill=line, width=5)
    draw.line((middle, 200, middle - 40, HEIGHT), fill=line, width=6)
    draw.ellipse((middle - 150, 310, middle + 120, 480), outline=line, width=6)
    teams = pick_colour(rng, 120, 250), pick_colour(rng, 20, 140)
    ranges = (120, 840), (240, 600), (0.35, 0.9), (0, 6), (50, 150)
    players = [between_each(rng, *ranges) for _ in range(10)]
    order = sorted(range(len(players)), key=lambda number: players[number][1])
    skins, hair = [choose_colour(rng, SKINS) for _ in players], [choose_colour(rng, HAIR) for _ in players]

    def place(number: int, t: float) -> tuple[float, float]:
        x, y, pace, phase, reach = players[number]
        return x + reach * math.sin(pace * t + phase), y + 0.3 * reach * math.cos(1.3 * pace * t + phase)

    def draw_players(canvas: Draw, t: float) -> None:
        for number in order:
            x, y = place(number, t)
            size, swing = 60 + y * 0.09, math.sin(9 * t + number)
            shirt = teams[number % 2]
            draw_disc(canvas, x, y, size * 0.25, shade_colour(grass, 0.6), 0.25)
            for side in (-1, 1):
                canvas.line((x, y - 0.45 * size, x + side * 0.22 * size * swing, y), fill=skins[number], width=7)
                canvas.line((x, y - 0.8 * size, x - side * 0.25 * size * swing, y - 0.5 * size), fill=shirt, width=6)
            chest = x - 0.14 * size, y - 0.85 * size, x + 0.14 * size, y - 0.42 * size
            canvas.rounded_rectangle(chest, 5, fill=shirt)
            canvas.rectangle((x - 0.14 * size, y - 0.48 * size, x + 0.14 * size, y - 0.34 * size), fill=(240, 240, 240))
            draw_disc(canvas, x, y - 0.95 * size, 0.1 * size, skins[number], 1.1)
            draw_disc(canvas, x, y - 1.01 * size, 0.09 * size, hair[number], 0.6)

    def draw_ball(canvas: Draw, t: float) -> None:
        leg = int(t / 1.1)
        share = t / 1.1 - leg
        (x0, y0), (x1, y1) = (place((3 * number) % len(players), t) for number in (leg, leg + 1))
        x, y = x0 + (x1 - x0) * share, y0 + (y1 - y0) * share
        draw_disc(canvas, x, y, 7, shade_colour(grass, 0.5), 0.5)
        draw_disc(canvas, x, y - 8 - 170 * share * (1 - share), 10, (250, 250, 250))

    return [draw_players, draw_ball]


def paint_concert(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """A band on a stage, moving lamps, and a crowd that jumps."""
    fill_band(picture, 0, HEIGHT, vary_colour(rng, (22, 10, 38), 12), vary_colour(rng, (60, 20, 55), 25))
    draw.polygon([(60, 430), (900, 430), (WIDTH, 500), (0, 500)], fill=vary_colour(rng, (70, 55, 60), 15))
    for x in (90, 800):
        draw.rectangle((x, 260, x + 80, 430), fill=(28, 28, 30))
        for y in (300, 370):
            draw_disc(draw, x + 40, y, 28, (60, 60, 64))
    lamps = [
        (between(rng, 80, 880), pick_colour(rng, 60, 255), between(rng, 0.5, 1.4), between(rng, 0, 6)) for _ in range(6)
    ]
    crowd = [
        (between(rng, 0, WIDTH), between(rng, 540, 640), between(rng, 26, 40), between(rng, 0, 6), rng.random() < 0.3)
        for _ in range(60)
    ]
    crowd.sort(key=lambda one: one[1])

    def draw_lamps(canvas: Draw, t: float) -> None:
        for x, colour, pace, phase in lamps:
            foot = x + 260 * math.sin(pace * t + phase)
            light = shade_colour(colour, 0.3 + 0.12 * math.sin(4 * t + phase))
            canvas.polygon([(x - 6, 0), (x + 6, 0), (foot + 70, 440), (foot - 70, 440)], fill=light)
            draw_disc(canvas, foot, 450, 72, shade_colour(colour, 0.75), 0.25)

    def draw_crowd(canvas: Draw, t: float) -> None:
        for x, y, size, phase, raised in crowd:
            jump = 14 * abs(math.sin(4.2 * t + phase))
            if raised:
                canvas.line((x, y - jump, x + 18 * math.sin(3 * t + phase), y - 90 - jump), fill=(20, 12, 26), width=11)
            draw_disc(canvas, x, y - jump, size, (14, 9, 20), 1.15)

    band = [make_person(rng, (250 + 220 * number, 455), 175, speed=0.0) for number in range(3)]
    return [draw_lamps, *band, draw_crowd]


def paint_talk(picture: Image.Image, draw: Draw, rng: Generator) -> list[Mover]:
    """Somebody who talks at a desk, before shelves and a screen."""
    wall = vary_colour(rng, (60, 80, 120), 50)
    fill_band(picture, 0, HEIGHT, shade_colour(wall, 1.2), shade_colour(wall, 0.6))
    for shelf in range(4):
        y = 90 + 110 * shelf
        draw.rectangle((40, y, 330, y + 10), fill=(110, 75, 50))
        x = 50.0
        while x < 310:
            width = between(rng, 9, 24)
            draw.rectangle((x, y - between(rng, 45, 85), x + width, y), fill=pick_colour(rng))
            x += width + 2
    draw.rectangle((600, 70, 920, 280), fill=(20, 22, 30))
    bars = [(between(rng, 0.6, 1.8), between(rng, 0, 6), pick_colour(rng, 90, 250)) for _ in range(7)]
    skin, hair, shirt = choose_colour(rng, SKINS), choose_colour(rng, HAIR), pick_colour(rng)
    middle = between(rng, 430, 500)

    def draw_screen(canvas: Draw, t: float) -> None:
        for number, (pace, phase, colour) in enumerate(bars):
            tall = 90 + 70 * math.sin(pace * t + phase)
            canvas.rectangle((622 + 42 * number, 268 - tall, 652 + 42 * number, 268), fill=colour)

    def draw_speaker(canvas: Draw, t: float) -> None:
        x, nod = middle + 16 * math.sin(0.7 * t) + 5 * math.sin(2.3 * t), 6 * math.sin(1.9 * t)
        canvas.rounded_rectangle((x - 125, 395, x + 125, 660), 50, fill=shirt)
        canvas.rectangle((x - 28, 350, x + 28, 410), fill=shade_colour(skin, 0.85))
        draw_disc(canvas, x, 290 + nod, 76, skin, 1.2)
        canvas.pieslice((x - 82, 190 + nod, x + 82, 340 + nod), 180, 360, fill=hair)
        for side in (-1, 1):
            closed = 2 if math.sin(1.7 * t) > 0.97 else 8
            draw_disc(canvas, x + side * 28, 288 + nod, 8, (30, 25, 25), closed / 8)
            hand = (x + side * (150 + 40 * math.sin(1.6 * t + side)), 520 - 90 * max(0.0, math.sin(1.1 * t + 2 * side)))
            arm = x + side * 110, 440, x + side * 175, 560, *hand
            canvas.line(arm, fill=shade_colour(shirt, 0.8), width=44, joint="curve")
            draw_disc(canvas, *hand, 26, skin)
        draw_disc(canvas, x, 336 + nod, 20, (120, 40, 45), 0.15 + 0.5 * abs(math.sin(7 * t) * math.sin(1.3 * t)))
        canvas.rectangle((0, 590, WIDTH, HEIGHT), fill=(125, 90, 60))
        canvas.rounded_rectangle((x + 175, 540, x + 235, 595), 8, fill=(235, 235, 230))

    return [draw_screen, draw_speaker]
