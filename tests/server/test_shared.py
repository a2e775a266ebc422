"""Footage that many videos share, as the server lists and ignores it: drawn films that begin with one intro."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hapvr.library import Library
from hapvr.server.app import create_app
from hapvr.server.settings import ServerSettings
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene

from .driving import BASE, CheckedClient, Place, error_of

FILMS, FPS, SIZE = 5, 8, (96, 128)
INTRO_S, SCENE_S = 4, 6


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server of films that begin with one intro."""
    folder = tmp_path_factory.mktemp("channel")
    (folder / "films").mkdir()
    intro = draw_scene(90, seconds=INTRO_S, fps=FPS, size=SIZE).images
    for seed in range(FILMS):
        scene = draw_scene(seed, seconds=SCENE_S, fps=FPS, size=SIZE).images
        write_clip(Clip(np.concatenate([intro, scene]), FPS), folder / "films" / f"film {seed}.mp4")
    with Library.open(folder / "library", create=True) as library:
        library.add([folder / "films"], workers=1)
    settings = ServerSettings(roots=(folder / "films",), max_searches_at_once=1, eager=False)
    with CheckedClient(create_app(folder / "library", settings=settings), base_url=BASE) as client:
        yield Place(client, folder)


def find_shared(answer: dict[str, Any]) -> list[Any]:
    return [one for one in answer["segments"] if one.get("shared")]


def test_the_intro_is_listed_with_the_videos_that_show_it(channel: Place) -> None:
    answer = channel.get("/api/shared")
    assert answer.json()["complete"] is True
    (clip,) = answer.json()["clips"]
    assert clip["videos"] == FILMS
    assert {one["name"]: one["id"] for one in clip["occurrences"]} == channel.ids()
    assert all(one["start_s"] == 0 and one["end_s"] == pytest.approx(INTRO_S, abs=0.6) for one in clip["occurrences"])
    assert str(channel.folder) not in answer.text


def test_the_intro_makes_a_match_only_where_that_is_asked_for(channel: Place) -> None:
    ids = channel.ids()
    pair = {"a": ids["film 2.mp4"], "b": ids["film 3.mp4"]}
    ignored = channel.ended(channel.begin("/api/compare", pair))["result"]
    counted = channel.ended(channel.begin("/api/compare", pair | {"ignore_shared": False}))["result"]
    assert (ignored["match"], counted["match"]) == (False, True)
    assert find_shared(ignored) == ignored["segments"] != []
    assert find_shared(counted)
    assert f"occurs in {FILMS} videos" in ignored["reason"]
    searches = [
        channel.ended(channel.begin("/api/searches", {"id": pair["a"], "ignore_shared": ignore}))["result"]
        for ignore in (True, False)
    ]
    for search, compared in zip(searches, (ignored, counted), strict=True):
        (hit,) = [one for one in search["hits"] if one["id"] == pair["b"]]
        assert {name: hit[name] for name in ("match", "probability", "segments")} == {
            name: compared[name] for name in ("match", "probability", "segments")
        }


def test_the_intro_makes_duplicates_only_where_that_is_asked_for(channel: Place) -> None:
    def link(**options: Any) -> set[frozenset[str]]:
        """The pairs that nothing but the intro links."""
        found = channel.ended(channel.begin("/api/duplicates", options))["result"]
        links = found["links"] + [one for group in found["groups"] for one in group["links"]]
        return {frozenset((one["a"], one["b"])) for one in links if find_shared(one) == one["segments"]}

    pair = frozenset(channel.ids()[name] for name in ("film 2.mp4", "film 3.mp4"))
    assert link() == link(ignore_shared=True) == set()
    assert pair in link(ignore_shared=False)


@pytest.mark.parametrize("path", ["searches", "compare", "duplicates"])
def test_the_option_is_true_or_false(channel: Place, path: str) -> None:
    body = {"searches": {"id": "0"}, "compare": {"a": "0", "b": "0"}, "duplicates": {}}[path]
    answer = channel.client.post(f"/api/{path}", json=body | {"ignore_shared": "perhaps"})
    assert answer.status_code == 422
    error_of(answer, "BadInput")
