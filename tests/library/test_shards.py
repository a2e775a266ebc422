"""Exact scores by shards: the best of the best of shards are the best of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapvr.errors import ConfigError
from hapvr.library import Library, cluster_work
from hapvr.library.cluster_work import keep_best, run_here, score_shards
from hapvr.library.filters import VideoFilter
from hapvr.library.stored_scores import score_contents
from tests.library.test_search import drawn, library, noisy  # noqa: F401


def test_the_best_are_kept_with_what_ties_by_hand() -> None:
    scores = {1: 0.3, 2: 0.8, 3: 0.8, 4: 0.5, 5: 0.5, 6: 0.1}
    assert keep_best(scores, 1) == {2: 0.8, 3: 0.8}
    assert keep_best(scores, 2) == {2: 0.8, 3: 0.8}
    assert keep_best(scores, 3) == {2: 0.8, 3: 0.8, 4: 0.5, 5: 0.5}
    assert keep_best(scores, 9) == scores
    assert keep_best({}, 3) == {}


few = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9])  # so that many tie


@given(st.lists(few, max_size=30), st.integers(1, 8), st.integers(1, 7))
def test_the_best_of_shards_are_those_of_a_slow_loop_over_all(scores: list[float], count: int, size: int) -> None:
    """However it is cut, the first rows by score and then key are the same."""
    whole = dict(enumerate(scores))
    merged: dict[int, float] = {}
    for start in range(0, len(scores), size):
        shard = {key: whole[key] for key in list(whole)[start : start + size]}
        merged = keep_best(merged | keep_best(shard, count), count)
    left, expected = dict(whole), list[tuple[int, float]]()
    while left and len(expected) < count:
        best = next(iter(left))
        for key, score in left.items():
            if (-score, key) < (-left[best], best):
                best = key
        expected.append((best, left.pop(best)))
    assert sorted(merged.items(), key=lambda one: (-one[1], one[0]))[:count] == expected


@pytest.mark.parametrize("shard", [1, 7, 1000])
@pytest.mark.parametrize("count", [1, 4, 100])
def test_scores_of_shards_are_those_of_all_at_once(library: Library, shard: int, count: int) -> None:  # noqa: F811
    query, store = noisy(drawn(5)), library.store
    keys = store.catalog().contents.tolist()
    whole = score_contents(store, library.model, query, keys)
    found, compared = score_shards(run_here(store, lambda: library.model), query, keys, count=count, shard=shard)
    assert (found, compared) == (keep_best(whole, count), len(keys))


@pytest.mark.parametrize("k", [1, 3, 50])
def test_an_exact_search_by_shards_has_the_same_answer(
    library: Library,  # noqa: F811
    k: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_work, "_SHARD", 9)
    run = run_here(library.store, lambda: library.model)

    def backwards(work: Any, tasks: Any) -> Iterator[Any]:
        return run(work, reversed(list(tasks)))

    for query in (noisy(drawn(5)), library.videos()[0].id):  # the second has a copy, and is no hit itself
        here, there = (library.search(query, k=k, exact=True, cluster=one) for one in (None, backwards))
        assert there.hits == here.hits
        assert (there.database, there.scored) == (here.database, here.scored)
    # All but the copy of the query: the best content then has no row that may be a hit.
    first, *others, _ = library.videos(state="ready")
    chosen = VideoFilter(tuple(video.path for video in (first, *others)))
    here, there = (library.search(first.id, k=k, exact=True, cluster=one, filter=chosen) for one in (None, backwards))
    assert len(here.hits) == min(k, len(others))
    assert there.hits == here.hits
    with pytest.raises(ConfigError, match="exact=True"):
        library.search(noisy(drawn(5)), cluster=backwards)
