"""A library in an object store: one writer, readers that follow, checks, clear errors. `test_contract` has the rest."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from hapvr.errors import BusyError, ConfigError, StorageError, UnavailableError
from hapvr.library import Library, check_library, repair_library, writer_lock
from hapvr.library.checking import Examination
from hapvr.library.engine import newest_manifest
from hapvr.library.marks import MARKS, read_marks
from hapvr.library.stored_scores import RegionCache
from hapvr.library.writer_lock import WriterLease, find_writer
from hapvr.places import ObjectPath, list_files, parse_place
from hapvr.server.app import create_app
from hapvr.server.settings import ServerSettings
from tests.library import toy
from tests.library.conftest import Run
from tests.library.damage import model
from tests.library.test_duplicates import drawn, fill, noisy
from tests.library.toy import toys  # noqa: F401
from tests.object_server import ObjectServer

pytestmark = pytest.mark.usefixtures("toys")


def test_regions_that_were_compared_before_are_not_read_again(
    bucket: ObjectPath, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hapvr.library.opening._MAX_AGE_S", math.inf)  # else a slow machine looks for new videos too
    library, film = toy.make(bucket), drawn(1, 60)
    fill(library, {"film": film, "copy": noisy(film, 0.4), "other": drawn(2, 60)})
    library._model = model()
    cache, sent = RegionCache(2**20), []
    for _ in range(3):
        objects.reset()
        hits = library.search("film", exact=True, cache=cache).hits
        assert [hit.id for hit in hits] == ["copy", "other"]
        sent.append(objects.sent)
    assert sent[0] > cache.bytes > 50 * max(sent[1:])


def test_a_reader_sees_new_videos_without_opening_again(
    bucket: ObjectPath, tmp_path: Path, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Library.open(bucket, create=True, model="toy", codec="float16") as writer, Library.open(bucket) as reader:
        assert reader.videos() == []
        writer.add([toy.write(tmp_path, "a.mp4", 1)])
        reader.refresh()
        [seen] = reader.videos()
        assert reader.features(seen.id).regions.equal(toy.features_of("video 1 3").regions)
        reader.refresh()
        objects.reset()
        reader.refresh()
        assert reader.videos() == [seen]
        assert sum(objects.requests.values()) <= 2, objects.requests  # the manifest, and whether the list has changed
        monkeypatch.setattr("hapvr.library.opening._MAX_AGE_S", 0.0)  # a second, which need not be waited for here
        writer.add([toy.write(tmp_path, "b.mp4", 2)])
        assert len(reader.videos()) == 2  # by itself


def test_a_backup_of_a_bucket_is_a_library_that_can_be_checked(bucket: ObjectPath, tmp_path: Path, run: Run) -> None:
    with Library.open(bucket, create=True, model="toy", codec="float16") as library:
        library.add([toy.write(tmp_path, "a.mp4", 1), toy.write(tmp_path, "b.mp4", 2)])
        records = library.videos()
    code, _, text = run("backup", bucket, "s3://films/copy")
    assert (code, "a backup goes into a folder" in " ".join(text.split())) == (2, True)
    code, out, _ = run("backup", bucket, tmp_path / "copy")
    assert (code, out.startswith("2 videos")) == (0, True)
    with Library.open(tmp_path / "copy") as copy:
        assert copy.videos() == records
        assert copy.check().intact
        copy.remove([records[0].id])
        toy.check(copy)
        assert copy.check().intact


def test_check_finds_damage_in_a_bucket_and_repairs_it(
    bucket: ObjectPath, objects: ObjectServer, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Library.open(bucket, create=True, model="toy", codec="float16") as library:
        library.add([toy.write(tmp_path, f"{seed}.mp4", seed) for seed in range(3)])
        library.mark_distinct(*(one.id for one in library.videos()[:2]))
        catalog, values = library.store.catalog(), store_values(library, 1)
    assert run("check", bucket)[1].startswith("intact: everything checked (3 videos")
    objects.refused = {"GET"}  # what is not given out is not damaged, and nothing is made again
    for option in ("--quick", "--repair"):
        code, _, text = run("check", bucket, option)
        assert (code, "do not give the right to do this" in " ".join(text.split())) == (2, True)
    objects.refused = set()
    assert check_library(bucket).intact
    with monkeypatch.context() as patch:  # the same while tables are read
        patch.setattr(Examination, "_check_files", lambda _: objects.refused.add("GET"))
        with pytest.raises(UnavailableError, match="do not give the right"):
            check_library(bucket)
    objects.refused = set()
    version = bucket / "versions" / "0001"
    change_byte(bucket / MARKS, 40, 1)
    [regions] = [version / "regions.lance" / name for name in list_files(version / "regions.lance") if "data/" in name]
    change_byte(
        regions, regions.read_bytes().index(values) + 5, 255
    )  # of the same size: only the checksum of the row tells
    newest = newest_manifest(version / "frames.lance")
    assert newest is not None
    (version / "frames.lance" / newest[1]).remove_object()
    places = sorted((one.place, one.repair) for one in check_library(bucket).problems)
    assert places == [
        (os.fsdecode(catalog.paths[1]), "again"),
        (MARKS, "exact"),
        (f"versions/0001/frames.lance/{newest[1]}", "again"),
    ]
    assert [one.place for one in check_library(bucket, quick=True).problems] == [places[1][0], places[2][0]]
    code, out, _ = run("check", bucket, "--repair", "--workers", 1)
    assert code == 0
    assert "a flipped bit was put back" in out
    assert "1 of 1 videos were read again" in out
    with Library.open(bucket) as repaired:
        toy.check(repaired)
        assert (repaired.info().version, repaired.info().videos, len(read_marks(bucket))) == ("0002", 3, 1)
        assert {one.id for one in repaired.videos()} == set(catalog.ids)
    assert find_writer(bucket) is None
    assert not (bucket / ".repair").exists()


def store_values(library: Library, row: int) -> bytes:
    """The regions of a video, as float16 stores them."""
    return toy.contents(library)[row].regions.half().numpy().tobytes()


def change_byte(file: ObjectPath, place: int, bits: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= bits
    file.write_bytes(bytes(data))


def test_checksums_that_were_copied_from_a_folder_are_compared_by_a_check(bucket: ObjectPath, tmp_path: Path) -> None:
    with Library.open(tmp_path / "library", create=True, model="toy", codec="float16") as library:
        library.add([toy.write(tmp_path, "a.mp4", 1)])
        values = store_values(library, 0)
    for name in list_files(tmp_path / "library"):
        (bucket / name).write_bytes((tmp_path / "library" / name).read_bytes())
    assert check_library(bucket).intact
    [data] = [bucket / name for name in list_files(bucket) if "regions.lance/data/" in name]
    before = data.read_bytes()
    change_byte(data, before.index(values) + 9, 16)
    assert len(Library.open(bucket).videos()) == 1  # readers compare sizes alone
    assert check_library(bucket, quick=True).intact
    (problem,) = check_library(bucket).problems
    assert (problem.repair, problem.what) == (
        "exact",
        "It is damaged: its checksum is not the one it was written with.",
    )
    assert repair_library(bucket).intact
    assert data.read_bytes() == before


def test_one_writer_holds_the_lease_and_others_wait(bucket: ObjectPath) -> None:
    one, other = WriterLease(bucket), WriterLease(bucket)
    one.acquire("hapvr add", wait_s=0)
    one.require_held()
    assert "`hapvr add`" in (find_writer(bucket) or "")
    with pytest.raises(BusyError, match="is being written by `hapvr add`"):
        other.acquire("hapvr remove", wait_s=0)
    with pytest.raises(StorageError, match="was lost"):
        other.require_held()
    one.release(clean=True)
    assert find_writer(bucket) is None
    other.acquire("hapvr remove", wait_s=0)
    assert not other.left_behind
    other.release(clean=False)
    one.acquire("hapvr add", wait_s=0)  # at once, though the last one did not end well
    assert one.left_behind
    one.release(clean=True)


def test_of_many_writers_at_once_one_gets_the_lease(bucket: ObjectPath) -> None:
    leases = [WriterLease(bucket) for _ in range(6)]
    got: list[WriterLease] = []

    def try_one(lease: WriterLease) -> None:
        try:
            lease.acquire("hapvr add", wait_s=0)
            got.append(lease)
        except BusyError:
            pass

    threads = [threading.Thread(target=try_one, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    got[0].release(clean=True)


def test_a_lease_that_is_not_renewed_lapses_and_its_holder_stops(
    bucket: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lock, "RENEW_S", 0.1)
    monkeypatch.setattr(writer_lock, "GIVE_UP_S", 0.5)
    monkeypatch.setattr(writer_lock, "LAPSE_S", 1.0)
    killed, other = WriterLease(bucket), WriterLease(bucket)
    killed.acquire("hapvr add", wait_s=0)
    time.sleep(0.8)
    killed.require_held()  # it is renewed
    with pytest.raises(BusyError):
        other.acquire("hapvr add", wait_s=1.2)  # longer than a lease lasts that is not
    killed._ending.set()  # as if its process had ended: nobody renews it
    other.acquire("hapvr add", wait_s=1.5)
    assert other.left_behind
    with pytest.raises(StorageError, match="was lost"):
        killed.require_held()
    killed.release(clean=True)
    other.require_held()  # which the old one has not taken away
    other.release(clean=True)


def test_a_clock_that_is_ahead_neither_takes_a_lease_nor_waits_for_ever(
    bucket: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lock, "RENEW_S", 0.1)
    holder = WriterLease(bucket)
    holder.acquire("hapvr add", wait_s=0)
    plain = time.time
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: plain() + 1e9)
        with pytest.raises(BusyError, match="hapvr add"):
            WriterLease(bucket).acquire("hapvr remove", wait_s=0.2)
    holder.require_held()
    holder.release(clean=True)


def test_a_writer_that_loses_the_lease_writes_nothing_more(bucket: ObjectPath, tmp_path: Path) -> None:
    with Library.open(bucket, create=True, model="toy", codec="float16") as library:
        library.add([toy.write(tmp_path, "a.mp4", 1)])

        def write() -> None:
            with library.write_access("hapvr remove") as store:
                (bucket / "writer.lock").write_bytes(json.dumps({"token": "another"}).encode())
                time.sleep(0.3)
                store.remove([library.videos()[0].id])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer_lock, "RENEW_S", 0.05)
            with pytest.raises(StorageError, match="was lost"):
                write()
        assert len(library.videos()) == 1


def test_objects_that_are_gone_or_cut_are_found(bucket: ObjectPath, tmp_path: Path) -> None:
    with Library.open(bucket, create=True, model="toy", codec="float16") as library:
        library.add([toy.write(tmp_path, "a.mp4", 1)])
    table = bucket / "versions" / "0001" / "videos.lance"
    [name] = [name for name in table.sizes() if name.startswith("data/")]
    (table / name).write_bytes((table / name).read_bytes()[:-1])
    with pytest.raises(StorageError, match=rf"{name}' is damaged: it has"):
        Library.open(bucket)
    (table / name).remove()


def test_what_a_store_refuses_is_said_at_the_start(
    bucket: ObjectPath, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    def refused(address: object) -> str:
        code, _, text = run("add", address, toy.write(tmp_path, "a.mp4", 1), "--model", "toy")
        assert code != 0
        assert "Traceback" not in text
        return " ".join(text.replace("│", " ").split())

    assert "there is no bucket 'elsewhere'" in refused("s3://elsewhere/library")
    assert "is no address in an object store" in refused("s3://Not_A_Bucket/library")
    objects.refused = {"PUT"}
    assert "do not give the right to do this" in refused(bucket)
    objects.refused = {"LIST", "HEAD", "GET"}
    assert "do not give the right to do this" in refused(bucket)
    objects.refused = set()
    assert not bucket.exists()  # nothing is half made
    assert "does not exist" in " ".join(run("search", bucket, tmp_path / "a.mp4")[2].split())
    with pytest.raises(ConfigError, match="--allow-actions needs a library in a folder"):
        create_app(bucket, settings=ServerSettings(allow_actions=True))
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        assert "no keys were found" in refused(bucket)
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert "cannot be reached" in refused(bucket)


def test_addresses() -> None:
    place = parse_place("s3://films/a/b/")
    assert isinstance(place, ObjectPath)
    assert (str(place), str(place / "c"), place.name, str(place.parent)) == (
        "s3://films/a/b",
        "s3://films/a/b/c",
        "b",
        "s3://films/a",
    )
    assert list(map(str, place.parents)) == ["s3://films/a", "s3://films"]
    assert parse_place(Path("s3://films/a/b")) == place  # typed as a path, which joins the slashes
    assert isinstance(parse_place("films"), Path)
    for scheme in ("az", "gs"):
        other = parse_place(f"{scheme}://films/a/b/")
        assert isinstance(other, ObjectPath)
        assert (other.scheme, str(other / "c"), str(other.parent)) == (
            scheme,
            f"{scheme}://films/a/b/c",
            f"{scheme}://films/a",
        )
        assert other != place
        with pytest.raises(ConfigError, match="is no address in an object store"):
            parse_place(f"{scheme}:///films")


def test_the_keys_of_another_kind_of_store_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UnavailableError, match=r"no keys were found\. Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_"):
        parse_place("az://films/library").exists()
