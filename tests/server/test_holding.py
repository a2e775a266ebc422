"""What is held is what was stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from hapvr.library import Library
from hapvr.library.tables import Stored
from hapvr.server.holding import Held, HoldingLibrary


def content(key: int, size: int = 10) -> Stored:
    return Stored(key, 1, 1, 1, None, None, bytes([key]) * size)


def test_reads_each_once_in_the_order_that_is_asked_for_and_forgets_the_oldest() -> None:
    asked: list[list[int]] = []

    def read(keys: Sequence[int], *, batch: int = 64) -> Iterator[Stored]:
        assert batch == 2
        asked.append(list(keys))
        yield from (content(key) for key in reversed(keys) if key != 9)

    stored = Held(45).reading(read)
    assert [one.key for one in stored([1, 2, 9, 3], batch=2)] == [1, 2, 3]
    assert [one.key for one in stored([3, 1], batch=2)] == [3, 1]
    assert asked == [[1, 2], [9, 3], []]
    assert [one.key for one in stored([4, 5], batch=2)] == [4, 5]  # 2 has not been used for longest: it has to go
    asked.clear()
    assert [one.data for one in stored([1, 3, 4, 5, 2], batch=2)] == [bytes([key]) * 10 for key in (1, 3, 4, 5, 2)]
    assert asked == [[], [], [2]]


def test_a_holding_library_finds_what_the_library_finds(made: Path) -> None:
    with Library.open(made / "library") as plain, HoldingLibrary.open(made / "library") as holding:
        assert isinstance(holding, HoldingLibrary)
        holding.held = Held(2**20)
        holding._model = plain.model
        id = next(record.id for record in plain.videos(state="ready"))
        expected = plain.search(id, exact=True)
        for _ in range(2):
            assert holding.search(id, exact=True).hits == expected.hits
            torch.testing.assert_close(holding.features(id).regions, plain.features(id).regions)
