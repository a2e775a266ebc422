"""What is cached is what was stored, and is found again without changing a hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hapvr.library.stored_scores import RegionCache
from hapvr.library.tables import StoredContent


def content(key: int, size: int = 10) -> StoredContent:
    return StoredContent(key, 1, 1, 1, None, None, bytes([key]) * size)


class Tables:
    """In place of a store: keys up to 8, each of 10 bytes."""

    def __init__(self, folder: str = "0001") -> None:
        self.folder = Path(folder)
        self.asked: list[list[int]] = []

    def read_contents(self, keys: Sequence[int], *, batch: int = 64, pixels: bool = True) -> Iterator[StoredContent]:
        assert batch == 2
        assert pixels  # hits are compared by them
        self.asked.append(list(keys))
        yield from (content(key) for key in reversed(keys) if key < 9)


def keys_of(cache: RegionCache, tables: Any, keys: list[int]) -> list[int]:
    return [one.key for one in cache.read_contents(tables, keys, batch=2)]


def test_reads_each_once_in_the_order_that_is_asked_for_and_forgets_the_oldest() -> None:
    cache, tables = RegionCache(45), Tables()
    assert keys_of(cache, tables, [1, 2, 9, 3]) == [1, 2, 3]
    assert keys_of(cache, tables, [3, 1]) == [3, 1]
    assert tables.asked == [[1, 2], [9, 3], []]
    assert keys_of(cache, tables, [4, 5]) == [4, 5]  # 2 has not been used for longest: it has to go
    assert cache.bytes == 40
    tables.asked.clear()
    found = [one.data for one in cache.read_contents(tables, [1, 3, 4, 5, 2], batch=2)]  # type: ignore[arg-type]
    assert found == [bytes([key]) * 10 for key in (1, 3, 4, 5, 2)]
    assert tables.asked == [[], [], [2]]


def test_other_tables_start_empty_and_nothing_is_held_where_there_is_no_room() -> None:
    cache, one, other = RegionCache(100), Tables(), Tables("0002")
    for tables in (one, other, one):
        assert keys_of(cache, tables, [1, 2]) == [1, 2]
    assert (one.asked, other.asked) == ([[1, 2], [1, 2]], [[1, 2]])  # a key of other tables is another content
    nothing = RegionCache(0)
    for _ in range(2):
        assert sorted(keys_of(nothing, other, [1, 2])) == [1, 2]
    assert len(other.asked) == 3
    assert nothing.bytes == 0


def test_vectors_are_made_once_and_parts_are_taken_of_the_whole() -> None:
    cache, tables = RegionCache(10_000), SimpleNamespace(folder=Path("0001"))
    made: list[tuple[int, int]] = []

    def vectors(keys: list[int], every: int) -> list[list[float]]:
        def make(places: list[int]) -> list[Tensor]:
            made.extend((keys[place], every) for place in places)
            return [torch.arange(20.0)[::every] + keys[place] for place in places]

        found: list[Tensor] = cache.vectors(tables, keys, every, make)  # type: ignore[arg-type]
        return [one.tolist() for one in found]

    for every in (3, 3, 1, 1, 3):
        assert vectors([7], every) == [list(range(7, 27, every))]
    assert made == [(7, 3), (7, 1)]
    assert cache.bytes == 20 * 4  # every third of them is not cached beside all
    made.clear()
    assert vectors([8, 7, 9], 3) == [list(range(key, key + 20, 3)) for key in (8, 7, 9)]
    assert made == [(8, 3), (9, 3)]  # what is there is not made again, and each is in its place


def test_vectors_are_not_held_where_only_what_is_stored_is() -> None:
    cache, tables = RegionCache(10_000, only_stored=True), Tables()
    assert not cache.keeps_vectors
    for number in range(2):
        (made,) = cache.vectors(tables, [7], 1, lambda _, number=number: [torch.full((2,), number)])  # type: ignore[arg-type,misc]
        assert made.tolist() == [number, number]
        assert keys_of(cache, tables, [1]) == [1]
    assert tables.asked == [[1], []]
    assert cache.bytes == 10


def test_contents_that_were_removed_are_dropped_with_their_vectors() -> None:
    class Catalog:
        def __init__(self, *keys: int) -> None:
            self.keys = keys

        def with_key(self, key: int) -> list[int]:
            return [0] if key in self.keys else []

    cache, tables = RegionCache(10_000), Tables()
    assert keys_of(cache, tables, [1, 2]) == [1, 2]
    cache.vectors(tables, [1, 2, 3], 3, lambda places: [torch.zeros(5, dtype=torch.uint8) for _ in places])  # type: ignore[arg-type]
    assert cache.bytes == 2 * 10 + 3 * 5
    catalog: Any = Catalog(1, 3)
    cache.drop_removed(catalog)
    assert cache.bytes == 10 + 2 * 5
    tables.asked.clear()
    assert keys_of(cache, tables, [1, 2]) == [1, 2]
    assert tables.asked == [[2]]
    catalog.keys = ()
    cache.drop_removed(catalog)  # one catalog never changes: it is looked at once
    assert cache.bytes == 2 * 10 + 2 * 5
    nothing: Any = Catalog()
    cache.drop_removed(nothing)
    assert cache.bytes == 0


@pytest.mark.parametrize("size", [24, 26])
def test_what_would_take_most_of_the_room_is_not_held(size: int) -> None:
    cache = RegionCache(100)
    tables = SimpleNamespace(folder=Path("0001"))
    cache.vectors(tables, [1], 1, lambda _: [torch.zeros(size, dtype=torch.uint8)])  # type: ignore[arg-type]
    assert cache.bytes == (24 if size == 24 else 0)
