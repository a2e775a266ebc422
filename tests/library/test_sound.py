"""Sound, as a user has it: added to an old library by a command, searched by a song, and as evidence of a search."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hapvr.audio.decoding import RATE as READ_RATE
from hapvr.audio.decoding import SoundReading, has_only_sound, read_sound
from hapvr.audio.description import SoundDescription, describe_sound
from hapvr.audio.matching import NOT_INDEXED, SoundQuery
from hapvr.cli.match_watch import _format as format_event
from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.library import Library, sound_lookup
from hapvr.library.indexed_folders import IndexRules, read_sound_setting, write_folders
from hapvr.library.sound import match_sounds
from hapvr.library.sound_lookup import SoundLookup, update_sound_index
from hapvr.synthetic.clip_files import write_clip
from hapvr.synthetic.films import draw_scene
from hapvr.synthetic.sounds import RATE, add_sound, draw_sound, write_sound
from tests.audio.test_matching import draw_peaks
from tests.library import toy
from tests.library.conftest import Run
from tests.library.toy import local

toys = toy.toys


def call(*arguments: object) -> tuple[int, Any]:
    """The command in a process: its exit code, and the JSON that it printed."""
    program = "import sys\nfrom hapvr.cli import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", program, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film with a melody, one with another, one with the end of the first melody, and one without sound."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / "films").mkdir()
    melody, other = draw_sound(1, 16), draw_sound(2, 16, kind="mumble")
    sounds = {"one": melody, "two": other, "dubbed": melody[6 * RATE :], "mute": None}
    for seed, (name, sound) in enumerate(sounds.items(), 1):
        picture = folder / "picture.mp4"
        write_clip(draw_scene(seed, seconds=6, fps=8, size=(112, 144)), picture)
        if sound is None:
            os.replace(picture, folder / "films" / f"{name}.mp4")
        else:
            add_sound(picture, sound, folder / "films" / f"{name}.mp4")
    quiet = 0.3 * melody[8 * RATE : 14 * RATE]
    noisy = quiet + 0.01 * np.random.default_rng(0).normal(size=len(quiet))
    write_sound(noisy.astype(np.float32), folder / "song.mp3", bit_rate=64_000)
    write_sound(draw_sound(9, 6), folder / "unknown.m4a", bit_rate=64_000)
    return folder


def name_hits(hits: list[dict[str, Any]]) -> list[str]:
    return [Path(hit["path"]).stem for hit in hits]


def test_an_old_library_gets_sound_and_is_searched_by_it(films: Path, run: Run) -> None:
    place, one = films / "library", films / "films" / "one.mp4"
    code, out, _ = run("add", place, films / "films", "--workers", "1", "--json")
    assert (code, json.loads(out)["added"], json.loads(out)["sounds"]) == (0, 4, 0)
    code, out, err = run("search", place, films / "song.mp3")
    assert code == 2
    assert "--audio" in err
    _, out, _ = run("search", place, one, "--all", "--no-second-look", "--json")
    before = json.loads(out)
    assert before["sound_hits"] == []
    assert {hit["sound"] for hit in before["hits"]} == {None}

    code, report = call("add", place, "--audio", "--workers", "1")
    found = {name: report[name] for name in ("added", "unchanged", "sounds", "silent", "sound_failed")}
    assert (code, found) == (0, {"added": 0, "unchanged": 4, "sounds": 3, "silent": 1, "sound_failed": 0})

    code, answer = call("search", place, films / "song.mp3")  # a file without pictures
    assert code == 0
    assert sorted(name_hits(answer["sound_hits"])) == ["dubbed", "one"]
    for hit in answer["sound_hits"]:
        (stretch,) = hit["stretches"]
        start_s = {"one": 8.0, "dubbed": 2.0}[Path(hit["path"]).stem]
        assert hit["verdict"] == "same sound"
        assert stretch["target"][0] - stretch["query"][0] == pytest.approx(start_s, abs=0.15)
        assert stretch["query"][1] - stretch["query"][0] > 3
    assert run("search", place, films / "unknown.m4a")[:2] == (1, "no match\n")

    code, out, _ = run("search", place, one, "--all", "--no-second-look", "--json")
    after = json.loads(out)
    kinds = {Path(hit["path"]).stem: hit["sound"]["kind"] for hit in after["hits"]}
    assert kinds == {"one": "same", "two": "other", "dubbed": "same", "mute": "silent"}
    assert name_hits(after["sound_hits"]) == ["dubbed"]  # the picture was replaced
    assert after["sound_hits"][0]["verdict"] == "same sound, other picture"
    same = ("id", "verdict", "probability", "score", "segments")
    assert [[hit[name] for name in same] for hit in after["hits"]] == [
        [hit[name] for name in same] for hit in before["hits"]
    ]  # pictures decide as they did
    code, out, _ = run("search", place, one, "--no-second-look")
    assert code == 0
    assert "sound: same, " in out
    assert "the same sound with another picture" in out

    code, out, _ = run("compare", one, films / "films" / "dubbed.mp4", "--sound", "--html", films / "pair.html")
    assert code == 0
    assert "sound: same, " in out
    assert "Sound: same, " in (films / "pair.html").read_text()
    code, out, _ = run("compare", one, films / "films" / "mute.mp4", "--sound", "--library", place, "--json")
    assert json.loads(out)["sound"] == {"kind": "silent", "stretches": [], "audible": "query"}
    code, out, _ = run("compare", one, films / "films" / "two.mp4", "--json")
    assert json.loads(out)["sound"] is None  # it was not asked for

    code, out, _ = run("search", place, one, "--sound", "--from", "7", "--json")
    answer = json.loads(out)
    assert set(name_hits(answer["sound_hits"])) == {"one", "dubbed"}
    code, _, err = run("search", place, films / "films" / "mute.mp4", "--sound")
    assert code == 2
    assert "has no sound track" in err

    (films / "new").mkdir()
    write_clip(draw_scene(8, seconds=6, fps=8, size=(112, 144)), films / "picture.mp4")
    add_sound(films / "picture.mp4", draw_sound(1, 16)[7 * RATE : 13 * RATE], films / "new" / "song.mp4")
    os.utime(films / "new" / "song.mp4", (1_700_000_000, 1_700_000_000))
    with Library.open(place) as library:
        event = next(library.watch_matches([films / "new"], interval_s=1e-6))
    assert (event.kind, event.to_json()["matches"]) == ("match", [])
    assert set(name_hits(event.to_json()["sound_hits"])) == {"one", "dubbed"}
    lines = [line for line in format_event(event) if "s of the new file is " not in line]
    assert [line.partition("song.mp4: ")[2].split(",")[:2] for line in lines] == 2 * [["same sound", " other picture"]]


def test_duplicates_say_what_the_sound_says(films: Path, tmp_path: Path, run: Run) -> None:
    """A film, its pictures with another melody, other pictures with its melody, and a mute copy."""
    folder, source = tmp_path / "films", films / "films"
    folder.mkdir()
    for name in ("one", "dubbed"):
        shutil.copy(source / f"{name}.mp4", folder)
    write_clip(draw_scene(1, seconds=6, fps=8, size=(112, 144)), folder / "mute.mp4")  # as `one` is
    add_sound(folder / "mute.mp4", draw_sound(5, 16), folder / "translated.mp4")
    place, report = tmp_path / "library", tmp_path / "d.csv"
    assert run("add", place, folder, "--audio", "--workers", "1")[0] == 0
    code, out, _ = run("duplicates", place, "--json", "-o", report, "--html", tmp_path / "d.html",
                       "--plan", tmp_path / "plan.csv")  # fmt: skip
    assert code == 0
    answer = json.loads(out)
    (group,) = answer["groups"]
    names = {video["id"]: Path(video["path"]).stem for video in [*group["videos"], *answer["videos"].values()]}
    kinds = {frozenset((names[link["a"]], names[link["b"]])): link["sound"] for link in group["links"]}
    assert kinds[frozenset(("one", "translated"))]["kind"] == "other"
    silent = {pair: kind for pair, kind in kinds.items() if "mute" in pair}
    assert {kind["kind"] for kind in silent.values()} == {"silent"}
    assert None not in {kind["audible"] for kind in silent.values()}
    (pair,) = answer["sound_pairs"]
    assert {names[pair["a"]], names[pair["b"]]} == {"one", "dubbed"}
    starts = {names[pair["a"]]: pair["stretches"][0]["query"][0], names[pair["b"]]: pair["stretches"][0]["target"][0]}
    assert starts["one"] - starts["dubbed"] == pytest.approx(6.0, abs=0.15)
    assert "same sound" in report.read_text()
    assert "Same sound, other pictures" in (tmp_path / "d.html").read_text()
    plan = (tmp_path / "plan.csv").read_text()
    assert "only one has sound" in plan
    assert "other sound" in plan
    assert "move" not in plan  # a copy with another sound, or none, is no plain copy
    _, out, _ = run("duplicates", place, "--no-sound", "--json")
    assert json.loads(out)["sound_pairs"] == []
    _, out, _ = run("duplicates", place)
    assert "same sound, other pictures" in out


def test_sound_follows_its_video(films: Path, tmp_path: Path) -> None:
    """Remembered, counted where it cannot be read, kept by a rebuild, and removed with its video."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("one", "dubbed"):
        shutil.copy(films / "films" / f"{name}.mp4", folder / f"{name}.mp4")
    with Library.open(tmp_path / "library", create=True, codec="float16") as library:
        library.add(folder, workers=1)
        dubbed, state = folder / "dubbed.mp4", (folder / "dubbed.mp4").stat()
        dubbed.write_bytes(bytes(state.st_size))  # no video any more, though nothing tells from outside
        os.utime(dubbed, ns=(state.st_atime_ns, state.st_mtime_ns))
        report = library.add(sound=True, workers=1)
        assert (report.unchanged, report.failed, report.sounds, report.sound_failed) == (2, (), 1, 1)
        assert [Path(path).name for path, text in report.warnings if "sound" in text] == ["dubbed.mp4"]
        assert read_sound_setting(library.path)
        assert library.add(workers=1).sound_failed == 0  # it remembers sound, and does not try again
        assert library.add(workers=1, retry=True).sound_failed == 1
        ids = {Path(record.path).stem: record.id for record in library.videos()}
        assert [hit.id for hit in library.search_sound(films / "song.mp3").hits] == [ids["one"]]
        library.rebuild(codec="int8", workers=1)
        assert [hit.id for hit in library.search_sound(films / "song.mp3").hits] == [ids["one"]]
        library.remove([ids["one"]])
        assert library.search_sound(films / "song.mp3").hits == ()
        assert len(library.store.sounds.list_keys()) == 1
        library.add(workers=1, sound=False)
        assert not read_sound_setting(library.path)
        assert library.folders()
        with pytest.raises(DataError, match="neither a file nor the id"):
            library.search_sound("nothing.mp3")


@pytest.mark.usefixtures("toys")
def test_damage_of_stored_sound_is_said(films: Path, tmp_path: Path) -> None:
    with toy.make(tmp_path / "library") as library:
        library.add(toy.write(tmp_path, "toy.mp4", 1), workers=1)
        with library.write_access("a test") as store:
            store.sounds.put({int(store.catalog().keys[0]): describe_sound(films / "song.mp3")})
        assert library.search_sound(films / "song.mp3").hits
        (data,) = (local(library.store.folder) / "sounds.lance" / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[len(content) // 3] ^= 255
    data.write_bytes(content)
    with Library.open(tmp_path / "library") as library, pytest.raises(StorageError, match="damaged"):
        library.search_sound(films / "song.mp3")


@pytest.mark.usefixtures("toys")
def test_an_index_of_sounds_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With index files, with some that are outdated or damaged, and without any, the evidence is the same."""
    with toy.make(tmp_path / "library") as library:
        library.add([toy.write(tmp_path, f"{n}.mp4", n) for n in range(8)], workers=1)
        keys = library.store.catalog().contents.tolist()
        film = draw_peaks(1, 900)
        sounds = {key: SoundDescription("ready", draw_peaks(10 + n, 500), 16.0) for n, key in enumerate(keys)}
        sounds[keys[1]] = SoundDescription("ready", film, 28.8)
        sounds[keys[2]] = SoundDescription("silent")
        sounds[keys[3]] = SoundDescription("failed", warning="It is damaged.")
        query = SoundDescription("ready", film.between(3, 15), 12.0)

        def find_kinds() -> list[str]:
            with library.write_access("a test") as store:
                matches = match_sounds(store, query)
                asked = SoundQuery(query.peaks)
                for key, sound in store.sounds.read():  # one by one
                    assert matches.find(key) == (NOT_INDEXED if sound.state == "failed" else asked.compare(sound.peaks))
                return [matches.find(key).kind for key in keys]

        def update(changed: dict[int, SoundDescription]) -> list[Path]:
            with library.write_access("a test") as store:
                store.sounds.put(changed)
                update_sound_index(store)
                return sorted(local(store.folder).glob("sound-index-*.npz"))

        assert update(sounds) == []  # too little sound
        assert SoundLookup(library.store).missing == set(keys) - {keys[2], keys[3]}
        expected = ["other", "same", "silent", "not indexed", *4 * ["other"]]
        assert find_kinds() == expected
        monkeypatch.setattr(sound_lookup, "_MIN_SECONDS", 10.0)
        monkeypatch.setattr(sound_lookup, "_MAX_PEAKS", 300)
        files = update({})
        assert len(files) > 1
        assert SoundLookup(library.store).missing == set()
        assert find_kinds() == expected
        monkeypatch.setattr(sound_lookup, "_MIN_SECONDS", 1_000.0)
        update({keys[4]: SoundDescription("ready", film, 28.8)})  # in a file, but as it was before
        library.remove([library.store.catalog().record(library.store.catalog().with_key(keys[0])[0]).id])
        assert SoundLookup(library.store).missing == {keys[4]}
        expected[0], expected[4] = "not indexed", "same"
        assert find_kinds() == expected
        files[0].write_bytes(files[0].read_bytes()[:-30])
        assert len(SoundLookup(library.store).missing) > 1
        assert find_kinds() == expected
        monkeypatch.setattr(sound_lookup, "_MIN_SECONDS", 10.0)
        assert files[0] not in update({})
        assert SoundLookup(library.store).missing == set()
        assert find_kinds() == expected


@pytest.mark.usefixtures("toys")
def test_a_library_without_sound_says_how_to_get_it(tmp_path: Path) -> None:
    with toy.make(tmp_path / "library") as library:
        with pytest.raises(ConfigError, match="--audio"):
            library.search_sound("song.mp3")
        write_folders(library.path, {"/films": IndexRules()})
        assert not read_sound_setting(library.path)
        assert '"sound"' not in (local(library.path) / "folders.json").read_text()  # as older releases write it


def test_the_sound_of_a_file_is_read_with_its_times(films: Path) -> None:
    reading = SoundReading()
    parts = list(read_sound(films / "films" / "one.mp4", reading))
    assert reading.has_track
    assert reading.has_picture
    assert not reading.warnings
    assert reading.seconds == pytest.approx(16, abs=0.2)
    assert abs(parts[0].start_s) < 0.1
    assert all(part.joined for part in parts[1:])
    part = list(read_sound(films / "films" / "one.mp4", SoundReading(), start_s=3.0, end_s=5.0))
    assert part[0].start_s == pytest.approx(3, abs=0.01)
    assert sum(len(one.samples) for one in part) == pytest.approx(2 * READ_RATE, abs=20)
    assert has_only_sound(films / "song.mp3")
    assert not has_only_sound(films / "films" / "one.mp4")
    assert not has_only_sound(films / "films" / "mute.mp4")
    assert not has_only_sound(Path(__file__))


def test_damaged_and_silent_sound_is_reported_and_no_error(films: Path, tmp_path: Path) -> None:
    content = bytearray((films / "song.mp3").read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(len(content) // 3, len(content), size=400):
        content[place] ^= 255
    (tmp_path / "damaged.mp3").write_bytes(content)
    damaged = describe_sound(tmp_path / "damaged.mp3")
    assert damaged.state == "ready"
    assert len(damaged.peaks) > 20
    write_sound(np.zeros(2 * RATE, np.float32), tmp_path / "silent.wav")
    assert describe_sound(tmp_path / "silent.wav").state == "silent"
    assert describe_sound(films / "films" / "mute.mp4").state == "none"
