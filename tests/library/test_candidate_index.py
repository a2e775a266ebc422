"""Frame vectors in the library's own table and in Milvus: what holds between the two, and what is refused.

`test_contract` has what holds for either.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hapvr.bench.drawn_videos import draw_query, draw_regions, fill_store, make_id
from hapvr.errors import ConfigError, ShapeError, StorageError
from hapvr.features import Features
from hapvr.library import Library, check_library, milvus_index, milvus_server, repair_library, versions
from hapvr.library.candidate_index import find_vectors, open_collection, parse_index
from hapvr.library.milvus_index import MilvusIndex
from hapvr.library.milvus_server import TOKEN_VARIABLE, MilvusAddress
from tests.library import toy
from tests.library.conftest import Run
from tests.library.test_crashes import Nursery, nursery  # noqa: F401
from tests.library.toy import toys  # noqa: F401
from tests.milvus_server import RunningServer

KINDS = ("embedded", "milvus")
CLOSED = "milvus://127.0.0.1:1/films"  # nobody listens there


@pytest.fixture(params=KINDS)
def candidates(request: pytest.FixtureRequest) -> str:
    """Each kind of index, for a new library."""
    return name_index(request, request.param)


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """A collection that does not exist yet."""
    return name_index(request, "milvus")


def name_index(request: pytest.FixtureRequest, kind: str) -> str:
    if kind == "embedded":
        return kind
    running: RunningServer = request.getfixturevalue("milvus")
    return running.address(f"films_{secrets.token_hex(4)}")


def make(path: Path, candidates: str) -> Library:
    return Library.open(path, create=True, model="toy", codec="float16", candidates=candidates)


def collection(library: Library) -> MilvusIndex:
    index = library.store.candidates
    assert isinstance(index, MilvusIndex)
    return index


def require_agreement(library: Library) -> None:
    """The index has the vectors of what the records name, and finds the nearest as a loop over all does."""
    store = library.store
    catalog = store.catalog()
    expected = {}  # by key
    for row, features in toy.contents(library).items():
        expected[int(catalog.keys[row])] = find_vectors(features).astype(np.float32)
    found = store.candidates.list_contents()
    assert (found.whole, found.broken) == (set(expected), set())
    keys, vectors = store.candidates.read_all()
    assert len(keys) == store.candidates.count() == sum(map(len, expected.values()))
    for key, own in expected.items():
        assert sorted(vectors[keys == key].tolist()) == sorted(own.tolist())
    for queries in (torch.from_numpy(vectors[:3]), torch.nn.functional.normalize(torch.randn(2, toy.DIMS), dim=-1)):
        which, near, similar = store.find_nearest(queries, k=5, exact=True)
        for number, query in enumerate(queries.numpy()):
            scored = sorted(((float(query @ one), key) for key, own in expected.items() for one in own), reverse=True)
            assert similar[which == number].tolist() == pytest.approx([score for score, _ in scored[:5]], abs=1e-5)
            assert near[which == number].tolist() == [key for _, key in scored[:5]]


# --- both ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("order", [KINDS, KINDS[::-1]])
def test_a_library_moves_to_another_index_by_a_rebuild(
    request: pytest.FixtureRequest, order: tuple[str, str], tmp_path: Path, folder: Path
) -> None:
    first, second = (name_index(request, kind) for kind in order)
    library = make(tmp_path / "library", first)
    library.add([folder])
    before = [record.id for record in library.videos()]
    with pytest.raises(StorageError, match=r"made with the candidates .* --candidates .* --rebuild"):
        Library.open(library.path, candidates=second)
    old = library.store.candidates
    assert library.rebuild(candidates=second, stop=lambda: True).stopped or library.info().candidates == second
    library.rebuild(codec="int8", candidates=second)
    library.refresh()
    assert (library.info().candidates, library.info().codec) == (second, "int8")
    assert [record.id for record in library.videos()] == before
    assert library.store.candidates.count_contents() == 4
    if isinstance(old, MilvusIndex):
        assert not old.is_there()
    else:
        left = collection(library)
        assert (left.name[-5:], left.list_others()) == (f"_{library.info().version}", [])
    assert library.check().intact


def test_a_search_finds_the_same_videos_with_both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(3)
    films = [draw_regions(12, draw) for _ in range(14)]  # more than are compared exactly in any case
    queries = [draw_query(film, draw, frames=8, mirror=False) for film in films[:2]]
    found = []
    for kind in KINDS:
        with Library.open(tmp_path / kind, create=True, candidates=name_index(request, kind)) as library:
            with library.write_access("a test") as store:
                fill_store(store, enumerate(Features(film, np.arange(12.0)) for film in films))
            hits = [library.search(query).hits for query in queries]
            found.append([[(hit.id, round(hit.score, 5)) for hit in one] for one in hits])
    assert found[0] == found[1]
    assert [hits[0][0] for hits in found[1]] == [make_id(0), make_id(1)]
    with Library.open(tmp_path / "milvus") as library:
        monkeypatch.setattr(milvus_index, "connect_server", refuse)
        with pytest.raises(StorageError, match="nobody answers"):
            library.search(tmp_path / "no file")  # before the query is looked at
        assert library.search(queries[0], exact=True).hits[0].id == found[0][0][0][0]  # which needs no candidates


def refuse(_: MilvusAddress) -> Any:
    raise StorageError("nobody answers")


# --- after a crash ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
@pytest.mark.usefixtures("toys")
def test_a_writer_killed_between_the_two_stores_leaves_only_surplus(
    candidates: str,
    tmp_path: Path,
    folder: Path,
    nursery: Nursery,  # noqa: F811
) -> None:
    library = make(tmp_path / "library", candidates)
    library.add([folder])
    ids = [record.id for record in library.videos()]
    toy.write(folder, "more.mp4", 9, 6)
    request = {"library": str(library.path), "folder": str(folder), "out": str(tmp_path / "out"), "batch": 8}
    removal = {"do": "remove", "ids": ids[:1]}
    for kept, before, what in ((4, "put_records", {}), (3, "_remove_contents", removal)):
        assert not nursery.run(**request, **what, kill_before=before, seconds=60)  # it killed itself
        library.refresh()
        assert library.info().videos == kept  # the record comes last, and goes first
        found, named = library.store.candidates.list_contents(), set(library.store.catalog().contents.tolist())
        assert (len(found.whole - named), named <= found.whole) == (1, True)
        report = library.check()
        if candidates == "embedded":
            assert report.intact
        else:
            assert [problem.repair for problem in report.problems] == ["again"]
            assert repair_library(library.path).intact
            require_agreement(library)
        library.compact()  # the next writer removes what is left
        require_agreement(library)
    library.add([folder])
    assert library.info().videos == 5
    require_agreement(library)


@pytest.mark.usefixtures("toys")
def test_check_finds_what_milvus_lost_and_repair_makes_it_again(address: str, tmp_path: Path, folder: Path) -> None:
    library = make(tmp_path / "library", address)
    library.add([folder])
    index, keys = collection(library), library.store.catalog().contents.tolist()
    left = MilvusIndex(index.address, "0007", owner=index._owner, model="an older one")
    left.add([1], [np.eye(4, dtype=np.float16)])  # a version that a rebuild left, when it was killed
    first = keys[0] * 2**20
    index._client.delete(index.name, ids=[first + 1])  # a hole in one content,
    index.remove([keys[1]])  # one that is gone,
    index.add([77], [np.eye(toy.DIMS, dtype=np.float16)[:2]])  # and one that nobody knows
    for quick in (False, True):
        report = check_library(library.path, quick=quick)
        said = sorted((problem.what.split()[0], problem.repair) for problem in report.problems)
        assert said == [("Frame", "again"), ("Frame", "again"), ("It", "again"), ("It", "again")]
    index.remove([77])
    with Library.open(library.path) as reader:
        with pytest.raises(StorageError, match=r"vectors of 3 contents; .* has 4 .*hapvr check .* --repair"):
            reader.store.find_nearest(torch.eye(toy.DIMS)[:1])
        with pytest.raises(StorageError, match="some are lost"):
            reader.remove([reader.videos()[0].id])
    report = repair_library(library.path)
    assert report.intact
    assert len(report.done) == 2
    require_agreement(library)
    assert not left.is_there() or left._describe() is None
    index.drop()  # all of it, as when the server lost its disk
    assert [problem.what for problem in library.check().problems] == ["There is no such collection."]
    assert repair_library(library.path).intact
    with Library.open(library.path) as again:
        require_agreement(again)
        assert again.info().version == "0001"  # the tables needed no repair
        regions = max((tmp_path / "library" / "versions" / "0001" / "regions.lance" / "data").iterdir())
    regions.write_bytes(bytes(regions.stat().st_size))  # now the truth is damaged: the videos are read again
    report = repair_library(library.path)
    assert report.intact, report.problems
    with Library.open(library.path) as repaired:
        require_agreement(repaired)
        assert (repaired.info().version, collection(repaired).list_others()) == ("0002", [])


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must begin with 'milvus://'"),
        ("http://host:19530/films", "must begin with 'milvus://'"),
        ("milvus://host:19530", "is no name of a collection"),
        ("milvus://host:19530/", "is no name of a collection"),
        ("milvus://host:19530/my-films", "'my-films' is no name"),
        ("milvus://host:19530/a/b", "'a/b' is no name"),
        ("milvus:///films", "a host, a port and a collection"),
        ("milvus://host:port/films", "candidates cannot be"),
        ("milvus://host:99999/films", "candidates cannot be"),
        ("milvus://host:0/films", "a host, a port and a collection"),
        ("milvus://host/films?timeout=3", "nothing else"),
        ("milvus://[::1/films", "candidates cannot be"),
    ],
)
def test_a_malformed_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")) as error:
        parse_index(text)
    assert "milvus://host:port/collection" in str(error.value)


def test_an_address_never_holds_credentials() -> None:
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE) as error:
        parse_index("milvus://root:secret@host/films")
    assert "secret" not in str(error.value)


def test_an_address_has_one_form() -> None:
    assert parse_index("milvus://[::1]/films") == "milvus://[::1]:19530/films"
    assert MilvusAddress.parse("milvus://host:7/films") == MilvusAddress("host", 7, "films")


@pytest.mark.usefixtures("toys", "milvus")
def test_nothing_is_made_where_no_server_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_server, "_CONNECT_S", 0.5)
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    with silent:
        for at in (CLOSED, f"milvus://127.0.0.1:{silent.getsockname()[1]}/films"):
            with pytest.raises(StorageError, match=r"No Milvus server answers at 127\.0\.0\.1:"):
                make(tmp_path / "library", at)
    assert not (tmp_path / "library").exists()


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("token", ["", "root:wrong", "no such key"])
def test_wrong_credentials_are_refused(
    address: str, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(StorageError, match=f"refuses the credentials: .*Set {TOKEN_VARIABLE}"):
        make(tmp_path / "library", address)
    assert not (tmp_path / "library").exists()
    assert capfd.readouterr().err == ""  # its client prints what it raises, if it is let


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("version", ["v2.2.16", "2.3.4-lite", "unknown"])
def test_an_old_server_is_refused(address: str, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pymilvus

    monkeypatch.setattr(pymilvus.MilvusClient, "get_server_version", lambda *_, **__: version)
    with pytest.raises(StorageError, match=rf"is of version '{version}'; hapvr needs 2\.3\.5 or newer"):
        make(tmp_path / "library", address)
    assert not (tmp_path / "library").exists()


@pytest.mark.usefixtures("toys")
def test_a_missing_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_server.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"pip install 'hapvr\[milvus\]'"):
        make(tmp_path / "library", CLOSED)
    assert not (tmp_path / "library").exists()


@pytest.mark.usefixtures("toys")
def test_a_collection_of_somebody_else_is_left_alone(address: str, tmp_path: Path, folder: Path) -> None:
    where = MilvusAddress.parse(address)
    client = milvus_server.connect_server(where)
    client.create_collection(f"{where.collection}_0001", dimension=5)
    with pytest.raises(StorageError, match=r"already, of 5 dimensions, and not made by hapvr.*another name"):
        make(tmp_path / "library", address)
    assert not (tmp_path / "library").exists()
    client.drop_collection(f"{where.collection}_0001")
    library = make(tmp_path / "library", address)  # its collection is made with the first video
    other = MilvusIndex(where, "0001", owner="another library", model="another model")
    with other._lock:
        other._make(64)
    for act in (lambda: library.add([folder]), lambda: library.store.find_nearest(torch.eye(toy.DIMS)[:1])):
        with pytest.raises(StorageError, match=r"not the one that this library wrote: it is of 64 .*'another model'"):
            act()
    assert [problem.repair for problem in library.check().problems] == ["none"]
    assert other.count() == 0


@pytest.mark.usefixtures("toys")
def test_vectors_of_another_length_are_refused(address: str) -> None:
    index = MilvusIndex(MilvusAddress.parse(address), "0001", owner="o", model="m")
    index.add([1], [np.eye(4, dtype=np.float16)])
    for act in (
        lambda: index.add([2], [np.eye(8, dtype=np.float16)]),
        lambda: index.find_nearest(torch.eye(8), k=1, exact=False),
    ):
        with pytest.raises(ShapeError, match="holds vectors of 4 dimensions, not of 8"):
            act()
    assert index.list_contents().whole == {1}


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("toys")
def test_the_command_remembers_the_address(address: str, tmp_path: Path, folder: Path, run: Run) -> None:
    library = tmp_path / "library"
    code, _, err = run("add", library, folder, "--model", "toy", "--candidates", "milvus://nowhere")
    assert (code, library.exists()) == (2, False)
    assert "is no name of a collection" in err
    assert run("add", library, folder, "--model", "toy", "--candidates", address)[0] == 0
    toy.write(folder, "more.mp4", 8)
    assert "1 added, 4 unchanged" in run("add", library)[1]
    assert f"frame vectors in {address}" in run("info", library)[1]
    assert run("check", library)[0] == 0
    code, _, err = run("add", library, "--candidates", "embedded")
    assert (code, "--candidates embedded --rebuild" in " ".join(err.split())) == (2, True)
    settings = versions.read_settings(versions.version_folder(library, "0001"))
    index = open_collection(settings, "0001")
    assert index is not None
    assert index.count_contents() == 5
    index.drop()
    assert run("check", library)[0] == 1
    code, out, _ = run("check", library, "--repair")
    assert (code, "the vectors of 5 contents were made again" in out) == (0, True)
