"""The model of MTEB on a tiny task: against a fake of its data set, and in MTEB itself where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.errors import ConfigError, DataError
from hapvr.model import load
from hapvr.mteb_model import UNREADABLE, MTEBSearch
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene


@dataclass
class Video:
    """As `datasets.Video`, which would decode; here that is an error."""

    decode: bool = True


@dataclass
class Rows:
    """As much of `datasets.Dataset` as MTEB's video tasks have."""

    rows: list[dict[str, Any]]
    features: dict[str, Any]

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def cast_column(self, name: str, feature: Any) -> Rows:
        return replace(self, features={**self.features, name: feature})

    def __getitem__(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert not getattr(self.features.get("video"), "decode", False), "hapvr decodes, not the data set"
        return iter(self.rows)


def rows(videos: dict[str, Any]) -> Rows:
    return Rows([{"id": id, "video": video} for id, video in videos.items()], {"id": None, "video": Video()})


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three films, a copy of the first that is smaller, and a file that is no video."""
    folder = tmp_path_factory.mktemp("mteb")
    found = {}
    for number, name in enumerate(["a", "b", "c"]):
        clip = draw_scene(number, seconds=4.0, size=(96, 128))
        found[name] = folder / f"{name}.mp4"
        write_clip(clip, found[name])
    clip = draw_scene(0, seconds=4.0, size=(96, 128))
    found["copy"] = folder / "copy.mp4"
    write_clip(replace(clip, images=np.ascontiguousarray(clip.images[:, ::2, ::2])), found["copy"])
    found["bad"] = folder / "bad.mp4"
    found["bad"].write_bytes(b"no video" * 100)
    return found


@pytest.fixture(scope="module")
def search() -> MTEBSearch:
    return MTEBSearch("lite", device="cpu")


def test_a_copy_is_found_and_scores_are_those_of_the_model(search: MTEBSearch, videos: dict[str, Path]) -> None:
    corpus = {
        "a": {"bytes": videos["a"].read_bytes(), "path": None},
        "b": {"bytes": None, "path": str(videos["b"])},
        "c/1": str(videos["c"]),
    }
    search.index(rows(corpus), task_metadata=None, hf_split="test", hf_subset="default", encode_kwargs={}, num_proc=1)
    results = search.search(rows({"q": videos["copy"]}), top_k=2, task_metadata=None, hf_split="test",
                            hf_subset="default", encode_kwargs={}, num_proc=1)  # fmt: skip
    assert list(results) == ["q"]
    assert len(results["q"]) == 2
    assert max(results["q"], key=lambda id: results["q"][id]) == "a"
    # Pair by pair, without files of features and batches.
    model = load("lite")
    one, other = (model.features(videos[name]).drop_flat().regions for name in ("copy", "a"))
    with torch.no_grad():
        alone = model.similarity.score(one, other)
    assert results["q"]["a"] == pytest.approx(alone.item(), abs=1e-4)


def test_what_cannot_be_read_is_counted_and_stays_a_miss(search: MTEBSearch, videos: dict[str, Path]) -> None:
    search.failed.clear()
    search.index(rows({"a": videos["a"], "bad": videos["bad"], "none": None}))
    results = search.search(rows({"broken": videos["bad"], "q": videos["copy"]}), top_k=10)
    assert results["broken"] == {UNREADABLE: 0.0}
    assert set(results["q"]) == {"a"}
    assert set(search.failed) == {"bad", "none", "broken"}
    with pytest.raises(DataError, match="no video of the corpus could be read"):
        search.index(rows({"bad": videos["bad"]}))


def test_reranking_ranks_only_what_it_is_given(search: MTEBSearch, videos: dict[str, Path]) -> None:
    search.index(rows({name: videos[name] for name in "abc"}))
    results = search.search(rows({"q": videos["copy"]}), top_k=10, top_ranked={"q": ["b", "c"]})
    assert set(results["q"]) == {"b", "c"}


def test_other_tasks_and_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="no option 'fps'"):
        MTEBSearch("lite", fps=2)
    search = MTEBSearch("hapvr/lite", device="cpu")
    with pytest.raises(ConfigError, match="call index"):
        search.search(rows({}), top_k=1)
    with pytest.raises(ConfigError, match="columns id and video was expected, got id, text"):
        search.index(Rows([], {"id": None, "text": None}))


@pytest.mark.filterwarnings("ignore")
def test_mteb_runs_it(videos: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of MTEB made here: the copy's original is the one relevant video. Skipped where MTEB is not installed."""
    pytest.importorskip("mteb", reason="the extra mteb is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    import mteb
    from datasets import Dataset
    from datasets import Video as VideoFeature
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import SearchProtocol

    def make_rows(found: dict[str, Path]) -> Any:
        table = {"id": list(found), "video": [path.read_bytes() for path in found.values()]}
        return Dataset.from_dict(table).cast_column("video", VideoFeature())

    class Copies(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = TaskMetadata(
            type="Any2AnyRetrieval", name="Copies", main_score="map_at_10", category="v2v", modalities=["video"],
            description="one copy among three films", reference=None, dataset={"path": "made/here", "revision": "1"},
            eval_splits=["test"], eval_langs=["zxx-Zxxx"], date=("2026-01-01", "2026-01-02"), domains=["Web"],
            task_subtypes=["Duplicate Detection"], license="cc0-1.0", annotations_creators="derived", dialect=[],
            sample_creation="created", bibtex_citation="",
        )  # fmt: skip

        def load_data(self, **_: Any) -> None:
            corpus, queries = make_rows({name: videos[name] for name in "abc"}), make_rows({"q": videos["copy"]})
            data = RetrievalSplitData(queries=queries, corpus=corpus, relevant_docs={"q": {"a": 1}}, top_ranked=None)
            self.dataset, self.data_loaded = {"default": {"test": data}}, True

    search = MTEBSearch("lite", device="cpu", work_folder=tmp_path)
    assert isinstance(search, SearchProtocol)
    results = mteb.evaluate(search, Copies(), cache=None)
    scores = results.task_results[0].scores["test"][0]
    assert scores["main_score"] == 1.0
    assert results.model_name == "hapvr/lite"
