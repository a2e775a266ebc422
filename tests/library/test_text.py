"""Search by text: a tiny model whose words are colours describes clips of coloured noise."""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hapvr.errors import ConfigError, DataError, ShapeError, StorageError, WeightsError
from hapvr.features import Features
from hapvr.library import Library, VideoFilter, adding, check_library, repair_library, side_tables, table_set, text
from hapvr.library.indexed_folders import read_folders, read_text_model
from hapvr.library.tables import FrameEmbeddings
from hapvr.library.text_model import load_text_model
from hapvr.storage import blake2b_file, file_signature
from hapvr.video import frame_tasks
from hapvr.video.frame_tasks import FileEnd, FileTask, VideoEnd
from tests.library import toy
from tests.library.conftest import Run
from tests.stand_ins import open_clip
from tests.stand_ins.open_clip import COLOURS, write_colours, write_model

READ_VIDEO = frame_tasks.read_video
toys = toy.toys


class ColourModel:
    """Random directions in place of learnt ones: a frame lies where the word for its colour lies."""

    def __init__(self, dims: int = 8, seed: int = 0) -> None:
        self.name, self.digest = "colours", f"{dims} {seed}"
        self._directions = np.random.default_rng(seed).normal(size=(3, dims)).astype(np.float32)

    def embed_frames(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = images.mean((1, 2)).astype(np.float32)
        return mean @ self._directions

    def embed_text(self, text: str) -> NDArray[np.float32]:
        return np.array(COLOURS[text], np.float32) @ self._directions


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours")
    for name in ("red", "red-green", "blue"):
        write_colours(folder / f"{name}.mp4", *name.split("-"))
    return folder


def read_hash(_: Any, task: FileTask) -> FileEnd:
    """In place of `read_file`: nothing is decoded for regions."""
    path, digest = task.video.path, blake2b_file(task.video.path)
    if digest in task.known:
        return FileEnd(*file_signature(path), digest, known=True)
    return FileEnd(*file_signature(path), digest, video=VideoEnd(20.0, (), (64, 48)))


@pytest.fixture
def films(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Real clips, in libraries whose regions are toys."""
    toy.install(monkeypatch)
    draw: Any = toy.features_of

    def read_features(content: str) -> Features:
        features: Features = draw(f"video {zlib.crc32(content.encode())} 3")
        return features

    monkeypatch.setattr(frame_tasks, "read_video", READ_VIDEO)  # which decodes for the text model
    monkeypatch.setattr(adding, "read_file", read_hash)
    monkeypatch.setattr(toy, "features_of", read_features)
    shutil.copytree(made, tmp_path / "films")
    return tmp_path / "films"


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of a stand-in for open_clip."""
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    open_clip.LOADED.clear()
    return open_clip.LOADED


def name_hits(answer: dict[str, Any]) -> list[str]:
    return [Path(hit["path"]).stem for hit in answer["hits"]]


def test_an_old_library_is_described_and_searched_by_words(
    films: Path, tmp_path: Path, run: Run, record: list[str]
) -> None:
    model, library = write_model(tmp_path / "clip"), tmp_path / "library"
    toy.make(library).close()
    assert run("add", library, films, "--workers", "1")[0] == 0
    code, _, err = run("search", library, "--text", "red")
    assert code == 2
    assert f"hapvr add {library} --text-model FOLDER" in err

    code, out, _ = run("add", library, "--text-model", model, "--workers", "1")
    assert (code, "3 videos described for search by text" in out) == (0, True)
    assert record == [f"local-dir:{model} cpu", "eval"]
    assert run("add", library, "--workers", "1", "--json")[0] == 0
    assert len(record) == 2  # nothing to describe: it is not loaded

    code, out, _ = run("search", library, "--text", "green", "--json")
    answer = json.loads(out)
    assert (code, answer["text"], answer["database"], len(answer["hits"])) == (0, "green", 3, 3)
    assert name_hits(answer)[0] == "red-green"
    times = [one["time_s"] for one in answer["hits"][0]["instants"]]
    assert min(times[:2]) >= 10  # the second half is green
    assert answer["hits"][0]["instants"][0]["similarity"] > 0.95
    code, out, err = run("search", library, "--text", "blue", "-k", "1")
    assert (code, out.splitlines()[0].endswith("blue.mp4")) == (0, True)
    assert "3 videos are described" in err
    code, out, _ = run("search", library, "--text", "blue", "--folder", films / "nothing", "--json")
    assert (code, json.loads(out)["hits"]) == (1, [])

    shutil.move(model, tmp_path / "moved")
    code, _, err = run("search", library, "--text", "red")
    assert (code, "if it lies elsewhere by now: hapvr add" in err) == (2, True)
    write_colours(films / "more.mp4", "blue", "blue")
    code, out, err = run("add", library, "--workers", "1")  # the video is added all the same
    assert (code, out.startswith("1 added")) == (0, True)
    assert "New videos are not found by text" in err
    shutil.move(tmp_path / "moved", model)
    assert "1 video described" in run("add", library, "--workers", "1")[1]  # by the model that it remembers
    answer = json.loads(run("search", library, "--text", "blue", "-k", "2", "--json")[1])
    assert set(name_hits(answer)) == {"blue", "more"}
    run("add", library, "--text-model", shutil.move(model, tmp_path / "moved"))
    assert f"text model {tmp_path / 'moved'}\n" in run("info", library)[1]

    other = write_model(tmp_path / "other", dims=5, seed=1)
    code, _, err = run("add", library, "--text-model", other)
    assert code == 2
    assert "is another: their vectors cannot be compared" in err
    run("add", library, "--text-model", "none", "--workers", "1")
    assert run("search", library, "--text", "red")[0] == 2
    assert "4 videos described" in run("add", library, "--text-model", other, "--workers", "1")[1]
    assert name_hits(json.loads(run("search", library, "--text", "green", "--json")[1]))[0] == "red-green"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("search", "library"), "Give what to look for"),
        (("search", "library", "clip.mp4", "--text", "red"), "Leave out queries"),
        (("search", "library", "--text", "red", "--sound"), "Leave out --sound"),
        (("search", "library", "--text", "red", "--from", "0"), "Leave out --from"),
        (("search", "library", "--text", " "), "The description is empty"),
        (("add", "new", "films", "--text-model", "films"), "holds no weights"),
        (("add", "new", "films", "--text-model", "nothing"), "is no folder of a text model"),
        (("add", "library", "--rebuild", "--text-model", "films"), "when it is done"),
    ],
)
@pytest.mark.usefixtures("toys")
def test_what_cannot_be_asked_is_said(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    toy.write(tmp_path / "films", "a.mp4", 1)
    toy.make(tmp_path / "library").close()
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert what in err
    assert not (tmp_path / "new").exists()


def test_a_model_of_your_own_describes_and_finds(films: Path, tmp_path: Path) -> None:
    model = ColourModel()
    (films / "copy.mp4").write_bytes((films / "blue.mp4").read_bytes())
    with toy.make(tmp_path / "library") as library:
        progress: list[tuple[int, int]] = []
        report = library.add(
            films, text_model=model, workers=1, progress=lambda now: progress.append((now.done, now.total))
        )
        assert (report.added, report.text_described, report.warnings) == (4, 3, ())
        assert progress[-1] == (3, 3)
        assert set(read_folders(library.path)) == {str(films)}
        remembered = read_text_model(library.path)
        assert remembered is not None
        assert (remembered.name, remembered.digest) == (model.name, model.digest)
        names = [Path(hit.path).stem for hit in library.search_text("blue", text_model=model, k=2).hits]
        assert sorted(names) == ["blue", "copy"]
        only = VideoFilter(folders=(str(films / "red.mp4"),))
        assert [Path(hit.path).stem for hit in library.search_text("blue", text_model=model, filter=only).hits] == [
            "red"
        ]
        with pytest.raises(ConfigError, match="is no folder of a text model"):
            library.search_text("blue")
        library.loaded_text_model = model
        assert len(library.search_text("blue").hits) == 4  # one that was loaded is kept
        library.loaded_text_model = ColourModel(seed=1)
        with pytest.raises(ConfigError, match="is no folder of a text model"):  # and not taken for another
            library.search_text("blue")
        with pytest.raises(ConfigError, match="is another"):
            library.search_text("blue", text_model=ColourModel(seed=1))

        before = library.search_text("red", text_model=model)
        library.rebuild(codec="int8", workers=1)
        after = library.search_text("red", text_model=model)
        assert [(hit.path, hit.instants) for hit in after.hits] == [(hit.path, hit.instants) for hit in before.hits]
        ids = [record.id for record in library.videos() if Path(record.path).stem == "red"]
        library.remove(ids)
        left = {Path(hit.path).stem for hit in library.search_text("red", text_model=model).hits}
        assert left == {"red-green", "blue", "copy"}
        assert len(library.store.embeddings.list_keys()) == 2

        (films / "blue.mp4").write_bytes(b"nothing")
        (data,) = (toy.local(library.store.folder) / "embeddings.lance" / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[len(content) // 3] ^= 255
    data.write_bytes(content)
    with Library.open(tmp_path / "library") as library, pytest.raises(StorageError, match="damaged"):
        library.search_text("red", text_model=model)


@pytest.mark.parametrize("dims", [8, 5])
@pytest.mark.parametrize("when", ["before", "while it loads", "while it answers"])
def test_words_are_compared_with_vectors_of_their_own_model_while_it_is_exchanged(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, dims: int
) -> None:
    old, new = ColourModel(), ColourModel(dims, seed=1)
    new.name = "new"
    place = tmp_path / "library"

    def exchange() -> None:
        with Library.open(place) as writer:
            writer.forget_text_model()
            writer.add([], text_model=new, workers=1)

    def once(moment: str) -> None:
        if when == moment and (known := read_text_model(place)) is not None and known.name == old.name:
            exchange()

    def load(name: str, **_: str) -> ColourModel:
        once("while it loads")
        return {old.name: old, new.name: new}[name]

    def answer(word: str) -> NDArray[np.float32]:
        once("while it answers")
        return ColourModel().embed_text(word)

    monkeypatch.setattr(text, "load_text_model", load)
    with toy.make(place) as library:
        library.add(films, text_model=old, workers=1)
        assert library.search_text("green").hits[0].instants[0].similarity > 0.95
        library.loaded_text_model = None
        monkeypatch.setattr(old, "embed_text", answer)
        once("before")
        best = library.search_text("green").hits[0]
        assert library.loaded_text_model is new
    assert (Path(best.path).stem, best.instants[0].similarity > 0.95) == ("red-green", True)


def test_a_model_that_answers_wrongly_is_named() -> None:
    images = np.zeros((2, 4, 4, 3), np.uint8)
    for answer, what in (
        (np.ones((1, 3)), r"a vector for each frame, \[2, D\]; it gave \[1, 3\]"),
        (np.zeros((2, 3)), "zero or no number"),
        (np.full((2, 3), np.nan), "zero or no number"),
    ):
        model: Any = SimpleNamespace(name="mine", embed_frames=lambda _, answer=answer: answer)
        with pytest.raises(DataError, match=what):
            text.embed_frames(model, images)
    vectors = text.embed_frames(ColourModel(), images + np.uint8(7))
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(float), axis=1), 1, atol=2e-3)


def test_a_folder_that_open_clip_cannot_load_is_named(
    tmp_path: Path, record: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "ViT-B-32")
    first = load_text_model(folder)
    assert first.digest != load_text_model(write_model(tmp_path / "b", seed=1)).digest
    assert first.digest == load_text_model(shutil.copytree(folder, tmp_path / "c")).digest
    (folder / "open_clip_config.json").unlink()
    with pytest.raises(WeightsError, match="open_clip cannot load"):  # the stand-in knows no names of models
        load_text_model(folder)
    assert record[-1] == "ViT-B-32 cpu pretrained"
    (folder / "more.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="2 files of weights and no"):
        load_text_model(folder)
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(ConfigError, match=r"pip install 'hapvr\[text\]'"):
        load_text_model(tmp_path / "b")


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("indexed", [False, True])
def test_the_nearest_frames_agree_with_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, indexed: bool
) -> None:
    monkeypatch.setattr(table_set, "INDEX_FROM", 600 if indexed else 10**6)
    monkeypatch.setattr(side_tables, "REFINE", 40)  # all finds are computed: the index only estimates
    rng = np.random.default_rng(0)
    with toy.make(tmp_path / "library") as library:
        library.add([toy.write(tmp_path, f"{seed}.mp4", seed) for seed in range(4)], workers=1)
        keys = [int(key) for key in library.store.catalog().contents]
        drawn = {}
        for key, count in zip(keys, (500, 100, 1, 30), strict=True):  # one video has most of the frames
            vectors = rng.normal(size=(count, 16)) + (3 if count == 500 else 0)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            drawn[key] = FrameEmbeddings(np.arange(count, dtype=np.float64), vectors.astype(np.float16))
        with library.write_access("a test") as opened:
            opened.embeddings.put(drawn)
            opened.maintain()
        assert (library.store.table_set.count_indexed("embeddings") > 0) == indexed
        query = np.full(16, 0.25, np.float32)
        wanted = sorted(
            (-float(vector.astype(np.float64) @ query), key, time_s)
            for key, one in drawn.items()
            for vector, time_s in zip(one.vectors, one.times.tolist(), strict=True)
        )
        found, times, similarities = library.store.embeddings.find_nearest(query, k=20)
        assert list(zip(found.tolist(), times.tolist(), strict=True)) == [one[1:] for one in wanted[:20]]
        np.testing.assert_allclose(similarities, [-one[0] for one in wanted[:20]], atol=2e-3)
        found, _, _ = library.store.embeddings.find_nearest(query, k=9, keys=keys[1:3])
        assert set(found.tolist()) <= set(keys[1:3])
        best = text._find_best(
            lambda count: library.store.embeddings.find_nearest(query, k=count), 3, library.store.catalog().with_key
        )
        order = list(dict.fromkeys(key for _, key, _ in wanted))
        assert list(best) == order[:3]  # though the first 500 frames are of one
        assert [one.time_s for one in best[order[0]]] == [time_s for _, key, time_s in wanted if key == order[0]][:3]
        with pytest.raises(ShapeError, match="gives 7 numbers; the library was made with 16"):
            library.store.embeddings.find_nearest(np.ones(7, np.float32), k=1)


def test_what_is_lost_is_described_again_if_the_model_is_there(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: Any, *, device: str) -> ColourModel:
        del device
        return ColourModel()

    place = tmp_path / "library"
    with toy.make(place) as library:
        library.add(films / "red.mp4", text_model=ColourModel(), workers=1)
        library.add([films / "red-green.mp4", films / "blue.mp4"], text_model=ColourModel(), workers=1)
        before = library.search_text("green", text_model=ColourModel()).hits
        library.back_up(tmp_path / "copy")
    assert check_library(place).problems == check_library(place, quick=True).problems == ()
    assert check_library(place).notes == ()
    shutil.copytree(tmp_path / "copy", tmp_path / "other")
    data = sorted(
        (tmp_path / "copy").glob("versions/0001/embeddings.lance/data/*"), key=lambda path: path.stat().st_size
    )
    data[0].unlink()  # of one video
    (tmp_path / "other" / data[0].relative_to(tmp_path / "copy")).write_bytes(b"")
    (problem,) = check_library(tmp_path / "copy").problems
    assert problem.repair == "again"

    report = repair_library(tmp_path / "copy", workers=1)  # there is no folder "colours"
    assert report.intact, report.problems
    (lost,) = report.lost
    assert "of 1 videos" in lost
    assert "--text-model" in lost
    with Library.open(tmp_path / "copy") as library:
        left = library.search_text("green", text_model=ColourModel()).hits
        assert [hit for hit in before if Path(hit.path).stem != "red"] == list(left)  # the others are as they were

    monkeypatch.setattr(text, "load_text_model", load)
    report = repair_library(tmp_path / "other", workers=1)
    assert (report.intact, report.lost) == (True, ())
    assert "1 videos were described again by the text model." in report.done
    with Library.open(tmp_path / "other") as library:
        assert library.search_text("green", text_model=ColourModel()).hits == before
