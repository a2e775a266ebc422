"""The similarity network once more, in plain loops over Python floats, written from the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, exp, sqrt, tanh

Row = Sequence[float]
Matrix = Sequence[Row]
Video = Sequence[Sequence[Row]]  # T frames of R regions of D numbers


def kept(size: int, rate: float) -> int:
    return max(1, round(rate * size))


def topk_chamfer(matrix: Matrix, rate: float) -> float:
    """Mean over rows of the mean of each row's K largest entries."""
    k = kept(len(matrix[0]), rate)
    return sum(sum(sorted(row, reverse=True)[:k]) / k for row in matrix) / len(matrix)


def aggregate(matrix: Matrix, kind: str, rate: float) -> float:
    if kind == "max":
        return max(max(row) for row in matrix)
    return topk_chamfer(matrix, {"topk": rate, "chamfer": 0.0, "average": 1.0}[kind])


def dot(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def frame_matrix(query: Video, target: Video, kind: str, rate: float) -> list[list[float]]:
    return [[aggregate([[dot(a, b) for b in there] for a in here], kind, rate) for there in target] for here in query]


def attend(x: Row, weight: Matrix, bias: Row, context: Row) -> list[float]:
    hidden = [tanh(dot(row, x) + b) for row, b in zip(weight, bias, strict=True)]
    gate = 1 / (1 + exp(-dot(context, hidden)))
    return [gate * value for value in x]


def binarize(x: Row, projection: Matrix, *, soft: bool) -> list[float]:
    norm = sqrt(dot(x, x))
    projected = [
        sum(v / norm * row[bit] for v, row in zip(x, projection, strict=True)) for bit in range(len(projection[0]))
    ]
    return [erf(y / sqrt(2e-6)) if soft else float((y > 0) - (y < 0)) for y in projected]


def convolve(planes: Sequence[Matrix], weight: Sequence[Sequence[Matrix]], bias: Row) -> list[list[list[float]]]:
    """3x3 (or 1x1) convolution of [C][H][W] with zeros outside."""
    height, width, reach = len(planes[0]), len(planes[0][0]), len(weight[0][0]) // 2
    return [
        [
            [
                b
                + sum(
                    kernel[dy + reach][dx + reach] * plane[y + dy][x + dx]
                    for plane, kernel in zip(planes, filter_, strict=True)
                    for dy in range(-reach, reach + 1)
                    for dx in range(-reach, reach + 1)
                    if 0 <= y + dy < height and 0 <= x + dx < width
                )
                for x in range(width)
            ]
            for y in range(height)
        ]
        for filter_, b in zip(weight, bias, strict=True)
    ]


def relu_pool(planes: Sequence[Matrix]) -> list[list[list[float]]]:
    return [
        [
            [
                max(0.0, *(plane[2 * y + i][2 * x + j] for i in (0, 1) for j in (0, 1)))
                for x in range(len(plane[0]) // 2)
            ]
            for y in range(len(plane) // 2)
        ]
        for plane in planes
    ]


def coarse(matrix: Matrix) -> list[list[float]]:
    """For each 4 x 4 block the mean over its rows of their largest cell; what is left over at the ends is dropped."""
    return [
        [
            sum(max(matrix[4 * i + row][4 * j + column] for column in range(4)) for row in range(4)) / 4
            for j in range(len(matrix[0]) // 4)
        ]
        for i in range(len(matrix) // 4)
    ]


def added(a: Matrix, b: Matrix) -> list[list[float]]:
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def psi(matrix: Matrix, layers: Sequence[tuple[Sequence[Sequence[Matrix]], Row]]) -> list[list[float]]:
    """The comparator on one frame matrix; layers are (weight, bias) of the four convolutions."""
    planes: list[list[list[float]]] = [[list(row) for row in matrix]]
    for weight, bias in layers[:2]:
        planes = relu_pool(convolve(planes, weight, bias))
    planes = [[[max(0.0, value) for value in row] for row in plane] for plane in convolve(planes, *layers[2])]
    return convolve(planes, *layers[3])[0]


def doubled(video: Video, min_frames: int) -> list[Sequence[Row]]:
    frames = list(video)
    while len(frames) < min_frames:
        frames = frames + frames
    return frames


def hardtanh(matrix: Matrix, negative_slope: float = 1.0) -> list[list[float]]:
    cut = [[min(1.0, max(-1.0, value)) for value in row] for row in matrix]
    return [[value if value > 0 else negative_slope * value for value in row] for row in cut]


def projected(x: Row, change: Matrix) -> list[float]:
    mapped = [a + sum(c * b for c, b in zip(row, x, strict=True)) for a, row in zip(x, change, strict=True)]
    norm = sum(a * a for a in mapped) ** 0.5
    return [a / norm for a in mapped]
