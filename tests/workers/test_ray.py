"""Work on a real Ray cluster: two nodes on this machine give what this process gives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hapvr.batch import extract, pack_frames
from hapvr.bench.drawn_videos import draw_query, draw_regions, fill_store, make_videos
from hapvr.evaluation.benchmarks.benchmark import Benchmark, Task
from hapvr.evaluation.scoring import score_benchmark
from hapvr.features import FeatureFile
from hapvr.library import Library
from hapvr.library.cluster_work import use_cluster
from hapvr.model import load
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.workers import cluster
from hapvr.workers.cluster import AUTO, connect

pytest.importorskip("ray")
NODE = {"num_cpus": 1, "object_store_memory": 2**27}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with a core each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "_LOOK_S", 0.1)
        with connect(made.address):
            yield made
    made.shutdown()


def test_a_library_is_searched_and_its_duplicates_found_as_here(nodes: Any, tmp_path: Path) -> None:  # noqa: ARG001
    generator = torch.Generator().manual_seed(0)
    pool = [draw_regions(8, generator) for _ in range(4)]
    with Library.open(tmp_path / "library", create=True) as library:
        with library.write_access("a test") as tables:
            fill_store(tables, make_videos(pool, pool[:1], range(30)))
        query = draw_query(pool[0], generator, frames=6, mirror=False)
        with use_cluster(library, AUTO) as there:
            for k in (3, 40):
                here, found = (library.search(query, k=k, exact=True, cluster=one) for one in (None, there))
                assert (found.hits, found.scored) == (here.hits, here.scored)
            both = [library.find_duplicates(cluster=one) for one in (None, there)]
            assert [(one.links, one.scored) for one in both] == [(both[0].links, both[0].scored)] * 2


def test_videos_are_read_and_scored_as_here(nodes: Any, tmp_path: Path) -> None:  # noqa: ARG001
    (tmp_path / "films").mkdir()
    for number in range(4):
        write_clip(draw_scene(number, seconds=2, fps=4, size=(96, 128)), tmp_path / "films" / f"{number}.mp4")
    (tmp_path / "films" / "bad.mp4").write_bytes(b"no video")
    reports = [
        extract([tmp_path / "films"], tmp_path / f"{name}.h5", cluster=address)
        for name, address in (("here", None), ("there", AUTO))
    ]
    assert [[failure.id for failure in one.failed] for one in reports] == [["bad.mp4"], ["bad.mp4"]]
    with FeatureFile.open(tmp_path / "here.h5") as here, FeatureFile.open(tmp_path / "there.h5") as there:
        assert sorted(here.ids) == sorted(there.ids) == [f"{number}.mp4" for number in range(4)]
        for id in here.ids:
            assert there[id].regions.equal(here[id].regions)
    packed = [
        pack_frames([tmp_path / "films"], tmp_path / name, cluster=address)
        for name, address in (("packed here", None), ("packed there", AUTO))
    ]
    assert packed[0].frames == packed[1].frames > 0
    ids = tuple(f"{number}" for number in range(4))
    benchmark = Benchmark("small", ids[:2], ids, {ids[0]: {ids[2]: "1"}}, (Task("mAP", ("1",), "mAP"),))
    scored = [
        score_benchmark(load().similarity, benchmark, tmp_path / "here.h5", chunk_bytes=1, cluster=address).scores
        for address in (None, AUTO)
    ]
    assert scored[0] is not None
    assert scored[1] is not None
    assert scored[1].values.tobytes() == scored[0].values.tobytes()
