"""Copies that only their pixels tell: correlations of miniatures, how they are kept, and links by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from hapvr.errors import ShapeError
from hapvr.features import Features, join_features
from hapvr.judge import alignment
from hapvr.judge.alignment import correlate, enlarge_middle, make_pixel_views, measure_likeness, standardise
from hapvr.library import Library, tables
from hapvr.library.codecs import get_codec
from hapvr.library.store import NewVideo
from tests.library.test_duplicates import drawn, model, noisy, pairs_of, record
from tests.library.toy import make

Bytes = NDArray[np.uint8]


def film(seed: int, frames: int = 24) -> Bytes:
    """Miniatures of a film in which everything changes."""
    return np.random.default_rng(seed).integers(0, 256, (frames, 16, 16), dtype=np.uint8)


def spoilt(small: Bytes, amount: float, seed: int = 9) -> Bytes:
    noise = np.random.default_rng(seed).normal(0, amount, small.shape)
    return np.clip(small * 0.6 + 40 + noise, 0, 255).astype(np.uint8)


# --- correlations ----------------------------------------------------------------------------------------------------


def test_correlations_by_hand() -> None:
    a = np.array([[[0, 200], [0, 200]]], np.uint8)
    b = np.array([[[0, 200], [0, 200]], [[0, 0], [200, 200]], [[200, 0], [200, 0]]], np.uint8)
    matrix = standardise(a) @ standardise(b).T / 4
    assert matrix.round(2).tolist() == [[1.0, 0.0, -1.0]]


def test_correlations_are_those_of_a_slow_loop() -> None:
    a, b = film(1, 5).astype(np.float64), film(2, 4).astype(np.float64)
    slow = np.array([[np.corrcoef(one.ravel(), other.ravel())[0, 1] for other in b] for one in a])
    found = standardise(a) @ standardise(b).T / 256
    assert np.abs(found - slow).max() < 2e-3  # but for what keeps flat ones from counting


def test_brightness_and_contrast_do_not_matter_and_flat_frames_correlate_with_nothing() -> None:
    small = film(3, 6)
    changed = (small * 0.5 + 60).astype(np.uint8)
    assert np.diag(standardise(small) @ standardise(changed).T / 256).min() > 0.995
    flat = np.full((2, 16, 16), 128, np.uint8)
    flat[:, 3, 4] = 130
    assert np.abs(standardise(flat) @ standardise(small).T / 256).max() < 0.2
    assert (standardise(flat) @ standardise(flat).T / 256).max() < 0.01  # not even with each other


@pytest.mark.parametrize("share", [1.0, 0.75, 0.6])
def test_a_middle_is_linear_interpolation(share: float) -> None:
    values = np.random.default_rng(0).random(16)
    places = 7.5 + (np.arange(16) - 7.5) * share
    assert enlarge_middle(16, share) @ values == pytest.approx(np.interp(places, np.arange(16), values), abs=1e-6)
    assert enlarge_middle(16, share).sum(1) == pytest.approx(np.ones(16), abs=1e-6)


def test_mirror_images_turns_and_middles_are_found_from_either_side() -> None:
    rough = np.random.default_rng(4).uniform(0, 255, (8, 5, 5))
    finer = np.maximum(0, 1 - np.abs(np.linspace(0, 4, 16)[:, None] - np.arange(5)))  # [16, 5]
    small = np.einsum("ij,tjk,lk->til", finer, rough, finer).astype(np.uint8)
    height, width = alignment._MIDDLES[0]
    part = np.einsum(
        "ij,tjk,lk->til", enlarge_middle(16, height), small.astype(np.float32), enlarge_middle(16, width)
    ).astype(np.uint8)
    plain = make_pixel_views(small)
    assert plain.shape == (len(alignment._MIDDLES) + 5, 8, 256)
    for other in (small[:, :, ::-1], part, *(np.rot90(small, quarters, (1, 2)) for quarters in (1, 2, 3))):
        for matrix in (correlate(plain, make_pixel_views(other)), correlate(make_pixel_views(other), plain).T):
            assert np.diag(matrix).min() > 0.99
    assert measure_likeness(plain[0] @ standardise(part).T / 256) < 0.98


def test_views_and_their_best_correlation_are_those_of_a_loop_over_frames() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 256, (count, 16, 16)).astype(np.uint8) for count in (3, 5))
    b[1:4] = np.rot90(a, 3, (1, 2))

    def view_slowly(pictures: NDArray[np.uint8]) -> list[NDArray[np.float64]]:
        views = []
        changes: list[Callable[[NDArray[np.float64]], NDArray[np.float64]]] = [
            lambda one: one,
            *(partial(enlarge_slowly, share=share) for share in alignment._MIDDLES),
            lambda one: one[:, ::-1],
            *(partial(np.rot90, k=quarters) for quarters in (1, 2, 3)),
        ]
        for change in changes:
            seen = [change(one.astype(np.float64)) for one in pictures]
            views.append(np.stack([((one - one.mean()) / np.sqrt(one.var() + 4)).ravel() for one in seen]))
        return views

    def enlarge_slowly(picture: NDArray[np.float64], share: tuple[float, float]) -> NDArray[np.float64]:
        places = [7.5 + (np.arange(16) - 7.5) * part for part in share]
        wide = np.stack([np.interp(places[1], np.arange(16), row) for row in picture])
        return np.stack([np.interp(places[0], np.arange(16), column) for column in wide.T]).T

    one, other = view_slowly(a), view_slowly(b)
    for fast, slow in ((make_pixel_views(a), one), (make_pixel_views(b), other)):
        np.testing.assert_allclose(fast, np.stack(slow), atol=1e-4)
    matrices = [one[0] @ view.T / 256 for view in other] + [view @ other[0].T / 256 for view in one[1:8]]
    best = max(matrices, key=measure_likeness)
    np.testing.assert_allclose(correlate(make_pixel_views(a), make_pixel_views(b)), best, atol=1e-4)
    assert min(best[0, 1], best[1, 2], best[2, 3]) > 0.99  # the turn is found


# --- keeping ---------------------------------------------------------------------------------------------------------


def features(regions: torch.Tensor, small: Bytes | None) -> Features:
    return Features(regions, np.arange(len(regions)) / 2, np.zeros(len(regions), np.bool_), small)


def test_features_carry_them_along() -> None:
    small = film(1, 4)
    one = Features(drawn(1, 4), None, np.array([False, True, False, False]), small)
    kept = one.drop_flat().miniatures
    assert kept is not None
    assert np.array_equal(kept, small[[0, 2, 3]])
    both = join_features([one, one])
    assert both.miniatures is not None
    assert np.array_equal(both.miniatures, np.concatenate([small, small]))
    assert join_features([one, Features(drawn(1, 4), None, one.low_information)]).miniatures is None
    wrongs: list[Any] = [small[:3], small.astype(np.float32), small[0]]
    for wrong in wrongs:
        with pytest.raises(ShapeError, match="miniatures must be uint8"):
            Features(drawn(1, 4), miniatures=wrong)


def put(library: Library, videos: dict[str, tuple[torch.Tensor, Bytes | None]]) -> None:
    library._model = model()
    with library.write_access("a test") as store:
        for name, (regions, small) in videos.items():
            key = store.new_key()
            store.write([NewVideo(record(name, f"{key:x}", len(regions)), key, features(regions, small))])


def test_they_are_kept_as_they_were(tmp_path: Path) -> None:
    small = film(1)
    with make(tmp_path / "library") as library:
        put(library, {"with": (drawn(1), small), "without": (drawn(2), None)})
        kept = library.features("with").miniatures
        assert kept is not None
        assert np.array_equal(kept, small)
        assert library.features("without").miniatures is None


def test_damaged_ones_are_told_and_a_search_does_not_read_them(tmp_path: Path) -> None:
    row = tables.encode_content(1, features(drawn(1), film(1)), get_codec("float16"))
    assert tables.is_intact(row)
    assert tables.parse_content(row).miniatures is not None
    spoilt_bytes = bytearray(row["miniatures"])
    spoilt_bytes[100] ^= 1
    assert not tables.is_intact(row | {"miniatures": bytes(spoilt_bytes)})
    with make(tmp_path / "library") as library:
        put(library, {"film": (drawn(1), film(1))})
        key = int(library.store.catalog().keys[0])
        (plain,) = library.store.read_contents([key], pixels=False)
        assert plain.miniatures is None
        assert plain.data == next(library.store.read_contents([key])).data


def test_a_library_from_before_there_were_any_is_read_and_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = pa.schema([field for field in tables.REGIONS_SCHEMA if field.name != "miniatures"])
    with monkeypatch.context() as patch:
        patch.setattr(tables, "REGIONS_SCHEMA", old)
        with make(tmp_path / "library") as library:
            put(library, {"old": (drawn(1), film(1))})
    with Library.open(tmp_path / "library") as library:
        put(library, {"new": (noisy(drawn(1), 0.3), film(1))})
        assert library.features("old").miniatures is None
        assert library.features("new").miniatures is None  # the column is not there
        (link,) = library.find_duplicates().links
        assert link.verdict is not None
        assert "similarity" in link.verdict.evidence
        assert "changes" not in link.verdict.evidence  # not known


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_copy_whose_regions_are_spoilt_is_found_by_its_pixels(tmp_path: Path) -> None:
    base, small = drawn(1, 30), film(1, 30)
    far = noisy(base, 2.5)  # alike enough to be a candidate, and not in step
    shuffled = far[torch.randperm(30, generator=torch.Generator().manual_seed(5))]
    with make(tmp_path / "library") as library:
        put(
            library,
            {
                "film": (base, small),
                "spoilt": (shuffled, spoilt(small, 25)),
                "unlike": (shuffled, film(7, 30)),
                "other": (drawn(9, 30), film(8, 30)),
            },
        )
        links = pairs_of(library.find_duplicates().links)
        link = links[frozenset(("film", "spoilt"))]
        assert link.kind == "duplicate"
        assert min(link.coverage) > 0.9
        assert link.verdict is not None
        assert link.verdict.evidence["changes"] > 0.5
        assert link.verdict.evidence["in_step"] < 0.3
        assert frozenset(("film", "unlike")) not in links
        assert not [pair for pair in links if "other" in pair]


def test_the_pixels_of_a_still_copy_speak_for_it_and_those_of_another_do_not(tmp_path: Path) -> None:
    regions = drawn(1, 1).expand(24, -1, -1).contiguous()
    still, other = film(1, 1).repeat(24, 0), film(5, 1).repeat(24, 0)
    with make(tmp_path / "library") as library:
        put(
            library,
            {
                "one": (noisy(regions, 0.3, 1), still),
                "copy": (noisy(regions, 0.3, 2), spoilt(still, 3)),
                "unlike": (noisy(regions, 0.3, 3), other),
                "without": (noisy(regions, 0.3, 4), None),
            },
        )
        found = {name: library.compare("one", name).verdict.evidence for name in ("copy", "unlike", "without")}
    assert found["copy"]["pixels"] > 0.9
    assert found["unlike"]["pixels"] < 0.6
    assert "pixels" not in found["without"]
