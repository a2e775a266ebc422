"""Every endpoint, with a real library, real files and real workers."""

from __future__ import annotations

import base64
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from hapvr.errors import ConfigError
from hapvr.judge.recalibration import JudgeCalibration
from hapvr.library import Library, opening
from hapvr.library.duplicate_report import write_report
from hapvr.library.filters import FiledVideo
from hapvr.server.access import list_folders
from hapvr.server.app import create_app
from hapvr.server.filters import make_filter
from hapvr.server.problems import Problem
from hapvr.server.schemas.base import FilterOptions
from hapvr.server.settings import ServerSettings
from hapvr.similarity.calibration import fit_calibration
from hapvr.synthetic.clip import Clip
from hapvr.synthetic.clip_files import write_clip

from .driving import BASE, CheckedClient, Place, error_of, events_of


def test_says_what_it_serves(place: Place) -> None:
    health = place.settled().json()
    assert (health["status"], health["cause"]) == ("ok", None)
    assert health["library"] == {"videos": 3, "failed": 1}
    states = {name: worker["state"] for name, worker in health["workers"].items()}
    assert (states["search"], set(states)) == ("ready", {"search", "add", "pictures", "previews"})
    about = place.get("/api/library").json()
    assert (about["path"], about["videos"], about["failed"], about["model"]) == ("library", 3, 1, "lite")
    assert [root["name"] for root in about["roots"]] == ["films"]


def test_says_whether_hits_have_a_probability(own: Place) -> None:
    with Library.open(own.folder / "library") as library:
        assert library.model.judge is not None
        draw = np.random.default_rng(0)
        fitted = fit_calibration(draw.uniform(0.6, 1, 200), draw.normal(0.2, 0.1, 5000))
        with library.write_access("tests") as store:
            opening.save_calibration(store, fitted)
    assert own.get("/api/library").json()["calibration"] == "judge"  # it does not go by scores
    with Library.open(own.folder / "library") as library:
        assert library.model.judge is not None
        line = JudgeCalibration(library.model.judge.digest(), -0.5, 0.9, ((0.0, 10.0),), 20, 200, 18)
        with library.write_access("tests") as store:
            opening.save_calibration(store, line)
    assert own.get("/api/library").json()["calibration"] == "library"


def test_lists_videos_by_name_and_state_with_paths_in_its_roots_alone(place: Place, own: Place) -> None:
    page = place.get("/api/videos?limit=2&offset=1").json()
    assert page["total"] == 4
    assert [video["name"] for video in page["videos"]] == ["film 0.mp4", "film 1.mp4"]
    assert [video["name"] for video in place.get("/api/videos?q=FILM%202").json()["videos"]] == ["film 2.mp4"]
    (failed,) = place.get("/api/videos?state=failed").json()["videos"]
    assert (failed["name"], failed["frames"]) == ("broken.mp4", 0)
    (failure,) = place.get("/api/failures").json()
    assert failure["name"] == "broken.mp4"
    assert failure["error"].startswith("'broken.mp4' cannot be decoded")
    for path in ("/api/failures", "/api/library"):
        assert str(place.folder) not in place.get(path).text
    (found,) = place.get("/api/videos?q=film%200").json()["videos"]
    assert found["path"] == str(place.folder / "films" / "film 0.mp4")
    settings = ServerSettings(roots=(), eager=False)
    with CheckedClient(create_app(own.folder / "library", settings=settings), base_url=BASE) as client:
        text = client.get("/api/videos").text
    assert str(own.folder) not in text
    assert '"path":null' in text.replace(" ", "")
    id = place.ids()["film 0.mp4"]
    assert place.get(f"/api/videos/{id}").json()["duration"] == pytest.approx(4, abs=0.2)
    error_of(place.get("/api/videos/000000000000", 404), "NotFound")
    said = error_of(place.get("/api/videos?state=lost", 422), "BadInput")
    assert said == "state must be 'ready', 'failed' or 'missing'; got \"lost\"."
    said = error_of(place.get("/api/videos?limit=-1&offset=1000000001", 422), "BadInput")
    assert said == 'offset must be at most 1000000000; got "1000000001". limit must be at least 0; got "-1".'


def test_serves_ranges_of_indexed_files(place: Place) -> None:
    data = (place.folder / "films" / "film 0.mp4").read_bytes()
    path = f"/api/videos/{place.ids()['film 0.mp4']}/file"
    whole = place.get(path)
    assert whole.content == data
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-type"] == "video/mp4"
    for asked, expected in (("bytes=5-9", data[5:10]), ("bytes=-7", data[-7:]), (f"bytes=10-{10**9}", data[10:])):
        part = place.get(path, 206, headers={"Range": asked})
        assert part.content == expected
        assert part.headers["content-range"].endswith(f"/{len(data)}")
    beyond = place.get(path, 416, headers={"Range": f"bytes={len(data)}-"})
    assert beyond.headers["content-range"] == f"bytes */{len(data)}"
    for odd in ("bytes=1-2,4-5", "lines=1-2", "bytes=9-5", "bytes=-"):
        assert place.get(path, headers={"Range": odd}).content == data
    etag = whole.headers["etag"]
    place.get(path, 304, headers={"If-None-Match": etag})
    assert place.get(path, 206, headers={"Range": "bytes=0-0", "If-Range": etag}).content == data[:1]
    assert place.get(path, headers={"Range": "bytes=0-0", "If-Range": '"other"'}).content == data
    error_of(place.get(f"/api/videos/{place.ids()['broken.mp4']}/file", 409), "Conflict")
    for escape in ("..%2f..%2fetc%2fpasswd", "%2e%2e", "/etc/passwd"):
        assert place.client.get(f"/api/videos/{escape}/file").status_code in (404, 405)


def test_heads_say_what_the_answer_would_say_without_a_body(place: Place) -> None:
    video = f"/api/videos/{place.ids()['film 0.mp4']}"
    begun = place.upload((place.folder / "clip.mp4").read_bytes())
    place.ended(begun)
    query = f"/api/queries/{begun['query']}"
    for path in (f"{one}/{kind}" for one in (video, query) for kind in ("file", "thumbnail", "strip", "preview")):
        whole, head = place.get(path), place.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "content-type", "cache-control", "accept-ranges"):
            assert head.headers.get(name) == whole.headers.get(name)
        assert int(head.headers["content-length"]) == len(whole.content)
    part = place.client.head(f"{video}/file", headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.headers["content-length"], part.content) == (206, "5", b"")
    assert part.headers["content-range"].startswith("bytes 5-9/")
    etag = place.client.head(f"{video}/file").headers["etag"]
    assert place.client.head(f"{video}/file", headers={"If-None-Match": etag}).status_code == 304
    assert place.client.head("/api/videos/000000000000/file").status_code == 404
    assert place.client.head(f"/api/videos/{place.ids()['broken.mp4']}/file").status_code == 409
    place.client.delete(query)


def test_refuses_files_that_changed_vanished_or_lead_elsewhere(own: Place) -> None:
    films, ids = own.folder / "films", own.ids()
    with (films / "film 0.mp4").open("ab") as file:
        file.write(b"more")
    assert "changed" in error_of(own.get(f"/api/videos/{ids['film 0.mp4']}/file", 409), "Conflict")
    (films / "film 1.mp4").unlink()
    assert "not there" in error_of(own.get(f"/api/videos/{ids['film 1.mp4']}/thumbnail", 409), "Conflict")
    target = films / "film 2.mp4"
    outside = own.folder / "outside.mp4"
    target.rename(outside)
    target.symlink_to(outside)
    assert "leads out" in error_of(own.get(f"/api/videos/{ids['film 2.mp4']}/file", 403), "Forbidden")
    assert "leads out" in error_of(own.get(f"/api/videos/{ids['film 2.mp4']}/preview", 403), "Forbidden")
    # A file that was replaced by something one would wait for.
    target.unlink()
    os.mkfifo(target)
    error_of(own.get(f"/api/videos/{ids['film 2.mp4']}/file", 409), "Conflict")


def test_draws_thumbnails_and_strips_and_keeps_them(place: Place) -> None:
    id = place.ids()["film 1.mp4"]
    first = place.get(f"/api/videos/{id}/thumbnail?t=1&width=160")
    assert first.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(first.content)).size == (160, 120)
    other = place.get(f"/api/videos/{id}/thumbnail?t=3&width=160").content
    assert other != first.content
    assert place.get(f"/api/videos/{id}/thumbnail?t=1&width=160").content == first.content
    beyond = place.get(f"/api/videos/{id}/thumbnail?t=1000&width=160").content  # the last frame
    assert np.asarray(Image.open(io.BytesIO(beyond))).std() > 5
    strip = place.get(f"/api/videos/{id}/strip?count=4&height=60")
    assert Image.open(io.BytesIO(strip.content)).size == (4 * 80, 60)
    for bad in ("thumbnail?width=5", "thumbnail?t=nan", "thumbnail?t=-1", "strip?count=0", "strip?height=9999"):
        error_of(place.get(f"/api/videos/{id}/{bad}", 422), "BadInput")


def test_makes_previews_that_keep_the_time(place: Place) -> None:
    path = f"/api/videos/{place.ids()['film 1.mp4']}/preview"
    preview = place.get(path)
    assert preview.headers["content-type"] == "video/mp4"
    with av.open(io.BytesIO(preview.content), "r") as container:
        assert container.streams.video[0].codec_context.name == "h264"
        times = [float(frame.time or 0.0) for frame in container.decode(video=0)]
    assert times[0] == pytest.approx(0, abs=0.01)
    assert times[-1] == pytest.approx(4, abs=0.3)
    assert place.get(path, 206, headers={"Range": "bytes=0-3"}).content == preview.content[:4]


def test_finds_the_film_that_a_clip_was_cut_from(place: Place) -> None:
    begun = place.upload((place.folder / "clip.mp4").read_bytes(), name="../my clip.mp4", k=2)
    result = place.ended(begun)["result"]
    assert result["query"] == {"id": begun["query"], "name": "my clip.mp4", "duration": pytest.approx(2.5, abs=0.2)}
    assert result["database"] == 3
    assert len(result["hits"]) == 2
    best = result["hits"][0]
    assert (best["id"], best["name"]) == (place.ids()["film 1.mp4"], "film 1.mp4")
    assert best["score"] > result["hits"][1]["score"]
    assert (result["match"], best["verdict"], best["match"]) == (True, "copy", True)
    assert best["reason"].startswith("Along ")
    (segment,) = best["segments"]
    assert segment["target"][0] - segment["query"][0] == pytest.approx(1.0, abs=0.3)
    query = f"/api/queries/{begun['query']}"
    assert place.get(f"{query}/file").content == (place.folder / "clip.mp4").read_bytes()
    for kind in ("thumbnail", "strip"):
        assert place.get(f"{query}/{kind}").headers["content-type"] == "image/jpeg"
    assert place.get(f"{query}/preview").headers["content-type"] == "video/mp4"
    # The same upload again, a part of it, and its comparison with the film.
    part = place.ended(place.begin("/api/searches", {"id": begun["query"], "start_s": 0.5, "end_s": 1.5, "k": 1}))[
        "result"
    ]
    assert part["hits"][0]["id"] == best["id"]
    assert all(0.4 <= time <= 1.6 for segment in part["hits"][0]["segments"] for time in segment["query"])
    compared = place.ended(place.begin("/api/compare", {"a": begun["query"], "b": best["id"]}))["result"]
    assert compared["matrix"]["query_times"][0] >= 0.5
    assert place.client.delete(query).json() == {"removed": 1}
    error_of(place.get(f"{query}/file", 404), "NotFound")
    assert place.kept() == []


def test_finds_the_film_of_a_picture(place: Place) -> None:
    picture = place.get(f"/api/videos/{place.ids()['film 2.mp4']}/thumbnail?t=2&width=256").content
    begun = place.upload(picture, name="still.jpg", k=1, exact="true")
    result = place.ended(begun)["result"]
    (hit,) = result["hits"]
    assert (hit["name"], hit["segments"]) == ("film 2.mp4", [])  # a picture has an instant, and no stretch
    assert (hit["best"]["query"], hit["best"]["target"]) == (0, pytest.approx(2, abs=0.3))
    assert result["query"]["duration"] == 0
    assert place.get(f"/api/queries/{begun['query']}/strip").status_code == 200
    place.client.delete(f"/api/queries/{begun['query']}")


def test_a_black_query_has_no_hits_and_says_why(place: Place, tmp_path: Path) -> None:
    write_clip(Clip(np.zeros((16, 96, 128, 3), np.uint8), 8), tmp_path / "black.mp4")
    begun = place.upload((tmp_path / "black.mp4").read_bytes(), name="black.mp4")
    result = place.ended(begun)["result"]
    assert (result["hits"], result["scored"], result["database"]) == ([], 0, 3)
    assert "no informative frames" in result["note"]
    place.client.delete(f"/api/queries/{begun['query']}")
    found = place.ended(place.begin("/api/searches", {"id": place.ids()["film 0.mp4"]}))["result"]
    assert found["note"] is None


def test_searches_by_id_and_by_part(place: Place) -> None:
    id = place.ids()["film 0.mp4"]
    result = place.ended(place.begin("/api/searches", {"id": id}))["result"]
    assert (result["query"]["id"], result["database"], len(result["hits"])) == (id, 2, 2)
    assert place.ended(place.begin("/api/searches", {"id": id, "start_s": 1, "end_s": 3}))["result"]["scored"] == 2
    job = place.ended(place.begin("/api/searches", {"id": id, "start_s": 900}), "failed")
    assert job["error"]["type"] == "BadInput"
    assert "has no frame from 900 s" in job["error"]["message"]
    error_of(place.client.post("/api/searches", json={"id": "000000000000"}), "NotFound")
    error_of(place.client.post("/api/searches", json={"id": place.ids()["broken.mp4"]}), "Conflict")
    error_of(place.client.post("/api/searches", json={"id": id, "start_s": 3, "end_s": 1}), "BadInput")
    wrong: list[Any] = [{"id": id, "k": 0}, {"id": id, "K": 1}, {}, [], {"id": id, "start_s": "NaN"}, {"id": "\ud800"}]
    for bad in wrong:
        headers = {"Content-Type": "application/json"}
        answer = place.client.post("/api/searches", content=json.dumps(bad), headers=headers)
        assert answer.status_code in (404, 422)
        assert set(answer.json()) == {"error"}
    assert place.client.post("/api/searches", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415


def test_searches_only_what_the_limits_mean(place: Place) -> None:
    id, root = place.ids()["film 0.mp4"], place.get("/api/library").json()["roots"][0]["id"]
    videos = {video["name"]: video for video in place.get("/api/videos?state=ready").json()["videos"]}

    def names(**limits: Any) -> list[str]:
        found = place.ended(place.begin("/api/searches", {"id": id, "exact": True, **limits}))["result"]
        assert found["filter"] == limits
        assert found["database"] == len(found["hits"])
        return sorted(hit["name"] for hit in found["hits"])

    both = ["film 1.mp4", "film 2.mp4"]
    assert names(root=root) == both
    assert names(min_seconds=3.5, max_seconds=4.5) == both
    assert names(min_seconds=4.5) == []
    size = videos["film 1.mp4"]["size"]
    assert names(min_size=size, max_size=size) == ["film 1.mp4"]
    assert names(after="2000-01-01T00:00:00Z", before="2001-01-01T00:00:00Z") == []
    begun = place.upload((place.folder / "clip.mp4").read_bytes(), root=root, max_seconds="3", after="2000-01-01")
    result = place.ended(begun)["result"]
    assert result["hits"] == []
    assert result["filter"] == {"root": root, "max_seconds": 3, "after": "2000-01-01T00:00:00"}
    place.client.delete(f"/api/queries/{begun['query']}")
    for limits, status in (
        ({"root": root, "folder": "../library"}, 403),
        ({"root": root, "folder": "/etc"}, 403),
        ({"root": root, "folder": "nowhere"}, 404),
        ({"root": "none"}, 404),
        ({"folder": "films"}, 400),
        ({"min_seconds": 5, "max_seconds": 4}, 400),
        ({"after": "2026-01-02", "before": "2026-01-01"}, 400),
        ({"after": "0001-01-01T00:00:00"}, 400),
        ({"after": "yesterday"}, 422),
    ):
        for path, body in (("searches", {"id": id}), ("duplicates", {})):
            answer = place.client.post(f"/api/{path}", json=body | limits)
            assert answer.status_code == status, (limits, answer.text)


def test_a_folder_is_meant_by_its_link_and_by_its_place(tmp_path: Path) -> None:
    """Videos may have been added through a link to a folder: a filter by the folder means them all the same."""
    (tmp_path / "disk" / "new").mkdir(parents=True)
    (tmp_path / "films").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "out").symlink_to(tmp_path)
    settings = ServerSettings(roots=(tmp_path / "films",))
    ((id, _),) = settings.named_roots.items()
    chosen = make_filter(FilterOptions.model_validate({"root": id, "folder": "new"}), settings.named_roots)
    for folder, meant in (("films/new", True), ("disk/new", True), ("disk", False)):
        video = FiledVideo(str(tmp_path / folder / "a.mp4"), size=1, duration=1.0, mtime_ns=0)
        assert chosen.allows(video) == meant
    with pytest.raises(Problem) as refused:
        make_filter(FilterOptions.model_validate({"root": id, "folder": "out"}), settings.named_roots)
    assert refused.value.status == 403


def test_folders_are_listed_inside_roots_alone(tmp_path: Path) -> None:
    root = tmp_path / "films"
    for name in ("b/inner", "A", ".hidden", "c\nd"):
        (root / name).mkdir(parents=True)
    (tmp_path / "secret" / "plans").mkdir(parents=True)
    (root / "a file.txt").write_text("no folder")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("..")
    (root / "again").symlink_to(root / "b")
    (root / "round").symlink_to(root)
    (root / "nowhere").symlink_to(root / "none")
    assert list_folders(root, "") == (["A", "again", "b"], False)
    assert list_folders(root, "b") == (["inner"], False)
    assert list_folders(root, "again") == (["inner"], False)
    refused = {"..": 403, "b/../..": 403, "/": 403, "/etc": 403, "C:/": 403, "..\\": 403, "out": 403, "out/plans": 403,
               "up": 403, "none": 404, "nowhere": 404, "a file.txt": 400, "b\0": 403}  # fmt: skip
    for given, status in refused.items():
        with pytest.raises(Problem) as problem:
            list_folders(root, given)
        assert problem.value.status == status, given
        assert str(tmp_path) not in problem.value.message


def test_folders_are_listed_by_the_id_of_a_root(place: Place) -> None:
    root = place.get("/api/library").json()["roots"][0]["id"]
    assert place.get(f"/api/roots/{root}/folders").json() == {"path": "", "folders": [], "more": False}
    error_of(place.get(f"/api/roots/{root}/folders?path=..", 403), "Forbidden")
    error_of(place.get("/api/roots/none/folders", 404), "NotFound")


def test_compares_frame_by_frame(place: Place) -> None:
    ids = place.ids()
    a, b = ids["film 0.mp4"], ids["film 1.mp4"]
    same = place.ended(place.begin("/api/compare", {"a": a, "b": a}))["result"]
    assert same["score"] == pytest.approx(1, abs=0.05)
    matrix = same["matrix"]
    values = np.frombuffer(base64.b64decode(matrix["values"]), np.uint8).reshape(matrix["rows"], matrix["columns"])
    assert len(matrix["query_times"]) == matrix["rows"]
    # psi, if the model has it, says the same of four frames by four.
    assert (values.argmax(1) // 4 == np.arange(len(values)) // 4).mean() > 0.8
    before = np.frombuffer(base64.b64decode(matrix["before"]), np.uint8).reshape(values.shape)
    assert (before.argmax(1) == np.arange(len(before))).mean() > 0.9
    assert (np.diagonal(before) > 200).all()
    with Library.open(place.folder / "library") as library:  # what the bytes stand for
        expected = library.compare(a, a).matrix
    span = matrix["highest"] - matrix["lowest"]
    assert (matrix["lowest"] + before / 255 * span) == pytest.approx(expected.clip(-0.1, 1), abs=0.003)
    other = place.ended(place.begin("/api/compare", {"a": a, "b": b}))["result"]
    assert other["score"] < same["score"]
    for stage in ("before", "after"):
        answer = place.get(f"/api/matrix.png?a={a}&b={b}&stage={stage}")
        assert answer.headers["content-type"] == "image/png"
        assert min(Image.open(io.BytesIO(answer.content)).size) > 10
    error_of(place.get(f"/api/matrix.png?a={a}&b=000000000000", 404), "NotFound")
    error_of(place.client.post("/api/compare", json={"a": a, "b": ids["broken.mp4"]}), "Conflict")


def test_tells_jobs_as_they_change(place: Place) -> None:
    begun = place.begin("/api/searches", {"id": place.ids()["film 0.mp4"]})
    answer = place.get(f"/api/jobs/{begun['job']['id']}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = events_of(answer.text)
    assert seen[-1]["state"] == "done"
    assert seen[-1]["result"]["hits"]
    (listed,) = [job for job in place.get("/api/jobs").json() if job["id"] == begun["job"]["id"]]
    assert (listed["state"], listed["result"]) == ("done", None)
    assert place.client.delete(f"/api/jobs/{listed['id']}").json()["state"] == "done"  # it is over: it stays so
    for path in ("", "/events"):
        error_of(place.get(f"/api/jobs/j0{path}", 404), "NotFound")


def test_a_check_says_what_is_wrong_and_no_paths(own: Place) -> None:
    assert own.ended(own.begin("/api/jobs/check", {"quick": True}))["result"]["intact"] is True
    library = own.folder / "library"
    next(library.glob("versions/0001/regions.lance/data/*")).write_bytes(b"damaged")
    result = own.ended(own.begin("/api/jobs/check", {}))["result"]
    assert result["intact"] is False
    assert {problem["place"] for problem in result["problems"]} >= {"film 0.mp4", "film 1.mp4", "film 2.mp4"}
    assert str(own.folder) not in json.dumps(result)


def test_adds_what_is_in_a_root_and_nothing_else(own: Place, made: Path) -> None:
    films = own.folder / "films"
    new = films / "new"
    new.mkdir()
    (new / "copy.mp4").write_bytes((made / "clip.mp4").read_bytes())
    (new / "bad.mp4").write_bytes(b"nothing to see")
    (own.folder / "secret").mkdir()
    (films / "way out").symlink_to(own.folder / "secret")
    root = own.get("/api/library").json()["roots"][0]["id"]
    for path in ("..", "../secret", "new/../../secret", "/etc", "\\\\host\\share", "C:\\films", "way out", "a\0b"):
        answer = own.client.post("/api/jobs/add", json={"root": root, "path": path})
        assert answer.status_code == 403, path
        assert str(own.folder) not in answer.text
    error_of(own.client.post("/api/jobs/add", json={"root": root, "path": "nowhere"}), "NotFound")
    error_of(own.client.post("/api/jobs/add", json={"root": "films"}), "NotFound")
    job = own.ended(own.begin("/api/jobs/add", {"root": root, "path": "new"}))
    assert job["result"]["added"] == 1
    ((failure),) = job["result"]["failed"]
    assert failure["name"] == "bad.mp4"
    assert str(own.folder) not in str(job)
    assert job["progress"]["done"] == job["progress"]["total"] == 2
    assert own.get("/api/library").json()["videos"] == 4
    # And one is removed; its file stays.
    id = own.ids()["copy.mp4"]
    assert own.client.delete(f"/api/videos/{id}").json() == {"removed": 1}
    error_of(own.get(f"/api/videos/{id}", 404), "NotFound")
    error_of(own.client.delete(f"/api/videos/{id}"), "NotFound")
    assert (new / "copy.mp4").exists()


def test_describes_itself(place: Place) -> None:
    document = place.get("/api/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {"401", "403", "422", "500"} <= set(operation["responses"]), (method, path)
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and (path, status) != ("/api/health", "503"):
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Error"}, (method, path, status)
    assert "example" in str(document["components"]["schemas"]["Job"])
    for path in ("/docs", "/redoc"):
        error_of(place.get(path, 404), "NotFound")
    place.get("/api/health")
    text = place.get("/metrics").text
    assert 'hapvr_requests_total{method="GET",route="/api/health",status="200"} ' in text
    assert "hapvr_videos 3.0\n" in text


def test_finds_what_is_there_twice_and_believes_those_who_know_better(own: Place) -> None:
    error_of(own.get("/api/duplicates.csv", 404), "NotFound")
    films = own.folder / "films"
    (films / "=copy of 0.mp4").write_bytes((films / "film 0.mp4").read_bytes())
    (films / "clip.mp4").write_bytes((own.folder / "clip.mp4").read_bytes())
    root = own.get("/api/library").json()["roots"][0]["id"]
    assert own.ended(own.begin("/api/jobs/add", {"root": root}))["result"]["added"] == 2
    ids = own.ids()
    result = own.ended(own.begin("/api/duplicates", {}))["result"]
    (group,) = [one for one in result["groups"] if ids["film 0.mp4"] in [video["id"] for video in one["videos"]]]
    assert {video["id"] for video in group["videos"]} == {ids["film 0.mp4"], ids["=copy of 0.mp4"]}
    assert sum(video["keep"] for video in group["videos"]) == 1
    assert group["links"][0]["kind"] == "identical"
    rest = result["links"] + [link for one in result["groups"] for link in one["links"] if one is not group]
    (link,) = [one for one in rest if {one["a"], one["b"]} == {ids["clip.mp4"], ids["film 1.mp4"]}]
    assert {"query", "target"} <= set(link["segments"][0])
    assert {video["path"] for video in group["videos"]} == {
        str(films / name) for name in ("film 0.mp4", "=copy of 0.mp4")
    }
    assert "export" not in result
    assert all(video["meant"] for video in group["videos"])
    copies = sorted([ids["=copy of 0.mp4"], ids["film 0.mp4"]])
    size = (films / "film 0.mp4").stat().st_size
    limits = {"min_size": size, "max_size": size}
    some = own.ended(own.begin("/api/duplicates", limits))["result"]
    assert [sorted(video["id"] for video in one["videos"]) for one in some["groups"]] == [copies]
    assert (some["links"], some["filter"]) == ([], limits)
    assert "clip.mp4" not in own.get("/api/duplicates.csv").text
    none = own.ended(own.begin("/api/duplicates", {"min_seconds": 100}))["result"]
    assert (none["groups"], none["links"]) == ([], [])
    own.ended(own.begin("/api/duplicates", {}))
    # The downloads are what the command writes, but for how long it took.
    written = own.folder / "duplicates.csv"
    with Library.open(own.folder / "library") as library:
        report = library.find_duplicates()
    write_report(report, written)
    assert own.get("/api/duplicates.csv").text == written.read_text()
    assert own.get("/api/duplicates.json").json() | {"seconds": 0} == report.to_json() | {"seconds": 0}
    pair = {"a": ids["clip.mp4"], "b": ids["film 1.mp4"]}
    assert own.begin("/api/duplicates/distinct", pair, 200) == {"distinct": True}
    again = own.ended(own.begin("/api/duplicates", {}))["result"]
    assert pair["a"] not in str(again)
    answer = own.client.request("DELETE", "/api/duplicates/distinct", json=pair)
    assert answer.json() == {"distinct": False}
    for bad, kind in (({"a": "0", "b": ids["clip.mp4"]}, "NotFound"), ({"a": "0", "b": "0"}, "BadInput")):
        error_of(own.client.post("/api/duplicates/distinct", json=bad), kind)
    same = {"a": ids["film 0.mp4"], "b": ids["=copy of 0.mp4"]}
    assert "byte for byte" in error_of(own.client.post("/api/duplicates/distinct", json=same), "BadInput")
    error_of(own.client.post("/api/duplicates", json={"since": "yesterday"}), "BadInput")
    error_of(own.client.post("/api/duplicates", json={"min_probability": 0.0}), "BadInput")


def wait_for_names(own: Place, names: set[str]) -> None:
    """The server reads the library again after a job, a moment later."""
    for _ in range(600):
        if set(own.ids()) == names:
            return
        time.sleep(0.1)
    assert set(own.ids()) == names


def test_files_of_duplicates_are_moved_and_taken_back(own: Place) -> None:
    films = own.folder / "films"
    copy = films / "copy of 0.mp4"
    copy.write_bytes((films / "film 0.mp4").read_bytes())
    (films / "again.mp4").write_bytes(copy.read_bytes())
    root = own.get("/api/library").json()["roots"][0]["id"]
    assert own.ended(own.begin("/api/jobs/add", {"root": root}))["result"]["added"] == 2
    before = own.ids()
    named = {"keep": before["film 0.mp4"], "videos": [before["copy of 0.mp4"], before["again.mp4"]]}
    request = {"action": "move", "groups": [named]}
    assert "Look for duplicates" in error_of(own.client.post("/api/actions/preview", json=request), "BadInput")
    (group,) = own.ended(own.begin("/api/duplicates", {}))["result"]["groups"]
    assert {video["name"]: video["copy_kind"] for video in group["videos"]} == {
        "film 0.mp4": None, "copy of 0.mp4": "identical", "again.mp4": "identical",
    }  # fmt: skip
    for keep, other in (("film 1.mp4", "film 2.mp4"), ("film 0.mp4", "film 0.mp4"), ("film 0.mp4", "film 1.mp4")):
        strange = {"action": "move", "groups": [{"keep": before[keep], "videos": [before[other]]}]}
        assert own.ended(own.begin("/api/actions", strange), "failed")["error"]["type"] == "BadInput"
    own.ended(own.begin("/api/duplicates", {}))
    size = copy.stat().st_size
    copy.write_bytes(b"changed meanwhile")
    preview = own.begin("/api/actions/preview", request, 200)
    assert {name: preview[name] for name in ("files", "bytes", "kept")} == {"files": 1, "bytes": size, "kept": 1}
    assert [(one["name"], "has changed" in one["reason"]) for one in preview["left"]] == [("copy of 0.mp4", True)]
    assert not (own.folder / "moved").exists()
    done = own.ended(own.begin("/api/actions", request))["result"]
    assert (done["files"], done["bytes"], done["left"]) == (1, size, preview["left"])
    assert str(own.folder) not in str(done)
    assert [path.name for path in (own.folder / "moved").iterdir()] == ["again.mp4"]
    wait_for_names(own, set(before) - {"again.mp4"})
    error_of(own.get("/api/duplicates.csv", 404), "NotFound")  # what was found is no longer so
    assert not [job for job in own.get("/api/jobs").json() if job["kind"] == "duplicates"]
    back = own.ended(own.begin(f"/api/actions/{done['id']}/undo", {}))["result"]
    assert done["action"] == "move"
    assert back == {"id": done["id"], "action": "undo", "files": 1, "bytes": size, "left": []}
    wait_for_names(own, set(before))
    assert (films / "again.mp4").stat().st_size == size
    error_of(own.client.post("/api/actions/a0123456789abcdef/undo"), "NotFound")
    error_of(own.client.post("/api/actions/..%2F..%2Fx/undo"), "NotFound")


def test_files_are_not_touched_unless_the_server_was_started_so(place: Place) -> None:
    assert place.get("/api/library").json()["actions"] == []
    ids = place.ids()
    group = {"keep": ids["film 0.mp4"], "videos": [ids["film 1.mp4"]]}
    for action in ("trash", "hardlink", "symlink", "move"):
        for path in ("/api/actions", "/api/actions/preview"):
            answer = place.client.post(path, json={"action": action, "groups": [group]})
            assert "does not touch files" in error_of(answer, "Forbidden")
    assert "does not touch files" in error_of(place.client.post("/api/actions/a0123456789abcdef/undo"), "Forbidden")
    with pytest.raises(ConfigError, match="--allow-actions"):
        ServerSettings(move_to=place.folder)
    assert "move" not in ServerSettings(allow_actions=True).actions


def test_a_library_that_is_gone_is_said_without_its_place_and_comes_back(own: Place) -> None:
    id = own.ids()["film 0.mp4"]
    place, away = own.folder / "library", own.folder / "away"
    place.rename(away)
    time.sleep(1.1)  # what was read a second ago still counts
    for path in ("/api/health", "/api/library", "/api/videos", f"/api/videos/{id}/file", "/metrics"):
        answer = own.get(path, 503)
        assert "not there" in error_of(answer, "Busy")
        assert answer.headers["retry-after"]
        assert str(own.folder) not in answer.text
    for kind in ("searches", "compare"):
        body = {"id": id} if kind == "searches" else {"a": id, "b": id}
        error_of(own.client.post(f"/api/{kind}", json=body), "Busy")
    # A job that was taken before, by a worker that has to be started.
    arguments = {"query": {"id": id}, "start_s": None, "end_s": None, "k": 1, "min_probability": None, "exact": False}
    arguments |= {"ignore_shared": True}
    job = own.client.portal.call(own.state.jobs.submit, "search", arguments)  # type: ignore[union-attr]
    error = own.ended({"job": {"id": job.id}}, "failed")["error"]
    assert (error["type"], str(own.folder) in json.dumps(error)) == ("Busy", False)
    away.rename(place)
    health = own.get("/api/health", 503).json()  # the worker that could not be started is not tried until it is needed
    assert (health["status"], "not there" in health["cause"]) == ("failed", False)
    assert own.ended(own.begin("/api/searches", {"id": id}))["result"]["hits"]
    assert own.get("/api/health").json()["status"] == "ok"
