"""Uploads that are wrong in every way: each gets a clear answer, and nothing of it is left."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hapvr.errors import StorageError
from hapvr.server.app import create_app
from hapvr.server.problems import Problem, translate_error
from hapvr.server.settings import ServerSettings
from hapvr.server.uploads import Uploads

from .driving import BASE, CheckedClient, Place, error_of

BOUNDARY = "frontier"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def form(*parts: tuple[str, bytes], end: bool = True) -> bytes:
    """A form of parts: what follows `form-data;` in the header, and the content."""
    body = b"".join(
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in parts
    )
    return body + f"--{BOUNDARY}--\r\n".encode() if end else body


FILE = 'name="file"; filename="a.mp4"'


def post(place: Place, body: bytes, kind: str = TYPE) -> Any:
    return place.client.post("/api/searches", content=body, headers={"Content-Type": kind})


def test_what_is_no_video_is_refused_and_removed(place: Place) -> None:
    answer = post(place, form((FILE, b"just some text, of no kind that shows anything")))
    assert answer.status_code == 415
    assert error_of(answer, "BadInput").startswith("'a.mp4' cannot be decoded")
    assert str(place.state.folder) not in answer.text
    cut = (place.folder / "clip.mp4").read_bytes()[:3000]  # the index of the file is missing
    assert post(place, form((FILE, cut))).status_code == 415
    assert place.kept() == []


@pytest.mark.parametrize(
    ("body", "kind", "status", "text"),
    [
        (form((FILE, b"")), TYPE, 400, "is empty"),
        (b"", TYPE, 400, "cut off"),
        (form((FILE, b"abc"), end=False), TYPE, 400, "cut off"),
        (form((FILE, b"abc"))[:-20], TYPE, 400, "cut off"),
        (form(('name="k"', b"3")), TYPE, 400, "no file"),
        (form(('name="file"', b"abc")), TYPE, 400, "no file"),
        (form((FILE, b"abc"), (FILE, b"def")), TYPE, 400, "One file"),
        (form((FILE, b"abc"), ('name="k"', b"many")), TYPE, 422, 'k must be a whole number; got "many".'),
        (form((FILE, b"abc"), ('name="color"', b"red")), TYPE, 422, "color is no field of this request."),
        (form((FILE, b"abc"), ('name="start_s"', b"nan")), TYPE, 422, 'start_s must be a finite number; got "nan".'),
        (form((FILE, b"abc"), ('name="start_s"', b"5"), ('name="end_s"', b"2")), TYPE, 400, "end_s must come after"),
        (form((FILE, b"abc"), ('name="k"', b"1" * 1000)), TYPE, 400, "too long"),
        (form(*[(f'name="a{n}"', b"1") for n in range(40)]), TYPE, 400, "too many"),
        (form((f'name="file"; filename="{"x" * 9000}"', b"abc")), TYPE, 400, "header"),
        (b"garbage that is no form", TYPE, 400, "form"),
        (form((FILE, b"abc")), "multipart/form-data", 415, "boundary"),
        (form((FILE, b"abc")), "multipart/mixed; boundary=frontier", 415, "form"),
    ],
)
def test_forms_that_are_wrong(place: Place, body: bytes, kind: str, status: int, text: str) -> None:
    answer = post(place, body, kind)
    assert answer.status_code == status, answer.text
    assert text in error_of(answer, "BadInput")
    assert place.kept() == []


def test_what_is_too_large_is_refused_before_and_while_it_comes(place: Place) -> None:
    most = place.state.settings.max_upload_bytes
    answer = place.client.post("/api/searches", content=b"", headers={"Content-Type": TYPE, "Content-Length": "9" * 12})
    assert answer.status_code == 413
    error_of(answer, "TooLarge")
    assert post(place, form((FILE, bytes(most + 1)))).status_code == 413
    assert place.kept() == []


# --- the streaming itself --------------------------------------------------------------------------------------------


async def _pieces(*pieces: bytes | BaseException | asyncio.Event) -> AsyncIterator[bytes]:
    for piece in pieces:
        if isinstance(piece, BaseException):
            raise piece
        if isinstance(piece, asyncio.Event):
            await piece.wait()
        else:
            yield piece


async def _endless(seen: list[int]) -> AsyncIterator[bytes]:
    yield form((FILE, b""), end=False)[:-2]
    while True:
        seen.append(1)
        yield bytes(100_000)


def receive(folder: Path, chunks: AsyncIterator[bytes], **settings: Any) -> tuple[Any, Uploads]:
    uploads = Uploads(folder, ServerSettings(**settings), forgotten=lambda _: None)
    return asyncio.run(uploads.receive(TYPE, None, chunks)), uploads


def refusal(folder: Path, chunks: AsyncIterator[bytes], **settings: Any) -> int:
    with pytest.raises(Problem) as refused:
        receive(folder, chunks, **settings)
    assert list(folder.iterdir()) == []
    return refused.value.status


def test_an_upload_arrives_as_it_was_sent_however_it_is_cut(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000 + b"\r\n--frontie" + b"\r\n--"
    body = form((FILE, content), ('name="k"', b"7"))
    for size in (1009, 65_536, len(body)):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        (query, fields), _ = receive(tmp_path, _pieces(*pieces))
        assert query.path.read_bytes() == content
        assert (query.name, query.size, fields) == ("a.mp4", len(content), {"k": "7"})
        assert query.path.parent == tmp_path
        assert query.path.name == query.id


def test_an_endless_upload_is_ended(tmp_path: Path) -> None:
    seen: list[int] = []
    assert refusal(tmp_path, _endless(seen), max_upload_bytes=1_000_000) == 413
    assert len(seen) < 15


def test_an_upload_that_breaks_off_is_removed(tmp_path: Path) -> None:
    begun = form((FILE, b"abc"), end=False)
    with pytest.raises(KeyError):
        receive(tmp_path, _pieces(begun, KeyError()))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_a_part(file: Any, data: bytes) -> None:
        file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hapvr.server.uploads._write_all", write_a_part)
    assert refusal(tmp_path, _pieces(form((FILE, bytes(1000))))) == 507
    assert translate_error(OSError(errno.ENOSPC, "No space left on device")).status == 507
    wrapped = StorageError("'a.jpg' cannot be written")
    wrapped.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert translate_error(wrapped).status == 507
    assert translate_error(OSError(errno.EIO, "Input/output error")).status == 500


def test_uploads_of_which_little_has_come_take_no_place(tmp_path: Path) -> None:
    begun, large = form((FILE, b"abc"), end=False), form((FILE, bytes(10**6)))

    async def several() -> None:
        uploads = Uploads(tmp_path, ServerSettings(max_uploads_at_once=1), forgotten=lambda _: None)
        later = asyncio.Event()

        def begin(*pieces: bytes | asyncio.Event) -> asyncio.Task[Any]:
            return asyncio.create_task(uploads.receive(TYPE, None, _pieces(*pieces)))

        slow = [begin(begun, later) for _ in range(20)]
        stored = begin(large[:500_000], later, large[500_000:])
        while not uploads.stored:
            await asyncio.sleep(0)
        with pytest.raises(Problem, match="1 uploads are being received already"):
            await begin(large)
        query, _ = await begin(form((FILE, b"all of it")))
        assert query.path.read_bytes() == b"all of it"
        later.set()
        assert (await stored)[0].size == 10**6
        assert (await begin(large))[0].size == 10**6
        for one in slow:
            with pytest.raises(Problem, match="cut off"):
                await one

    asyncio.run(several())


def test_names_are_never_places(tmp_path: Path) -> None:
    body = form(('name="file"; filename="../../../etc/cron.d/x"', b"abc"))
    (query, _), _ = receive(tmp_path, _pieces(body))
    assert query.name == "x"
    assert [path.name for path in tmp_path.iterdir()] == [query.id]


def test_uploads_are_removed_when_they_are_old_or_room_is_needed(tmp_path: Path) -> None:
    body = form((FILE, bytes(1000)))
    settings = ServerSettings(keep_uploads_s=1000, max_uploads_bytes=2500, max_uploads_at_once=1)
    gone: list[str] = []
    uploads = Uploads(tmp_path, settings, forgotten=gone.append)

    def another() -> str:
        query, _ = asyncio.run(uploads.receive(TYPE, len(body), _pieces(body)))
        return str(query.id)

    first, second = another(), another()
    with pytest.raises(Problem, match="no room"):  # both were used just now
        another()
    uploads.get(first).used -= 500
    third = another()
    assert gone == [first]
    uploads.get(second).used -= 2000
    uploads.get(third).used -= 2000
    uploads.get(third).jobs = 1
    uploads.expire()
    assert gone == [first, second]
    assert [path.name for path in tmp_path.iterdir()] == [third]


def test_an_upload_is_kept_for_a_link_beyond_the_server_and_no_longer_than_said(
    own: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (own.folder / "clip.mp4").read_bytes()
    begun = own.upload(data, end_s="2")
    hit = own.ended(begun)["result"]["hits"][0]["id"]
    id = begun["query"]
    assert own.get(f"/api/queries/{id}").json()["until"] is None
    kept = own.begin(f"/api/queries/{id}/keep", None, 200)
    assert (kept["name"], kept["until"][:2]) == ("clip.mp4", "20")
    settings = ServerSettings(eager=False, max_searches_at_once=1)
    with CheckedClient(create_app(tmp_path / "library", settings=settings), base_url=BASE) as client:
        later = Place(client, tmp_path)  # another server of the library, which has received nothing
        assert later.get(f"/api/queries/{id}").json() == kept
        assert later.get(f"/api/queries/{id}/file").content == data
        assert later.ended(later.begin("/api/compare", {"a": id, "b": hit}))["result"]["match"]
        linked = Uploads(tmp_path, settings, linked=tmp_path / "library" / "linked uploads", forgotten=lambda _: None)
        assert linked.get(id).part == (None, 2.0)
        linked.expire()
        assert id in linked
        monkeypatch.setattr("hapvr.server.uploads.time.time", lambda: 4e9)
        linked.expire()
        assert id not in linked
        assert list((tmp_path / "library" / "linked uploads").iterdir()) == []
        monkeypatch.undo()
    for path in (f"/api/queries/{'q' + '0' * 24}", "/api/queries/q..%2f..%2fetc"):
        answer = own.get(path, 404)
        if "queries/q0" in path:
            assert "is not kept any more" in error_of(answer, "NotFound")
            assert "for 30 days" in answer.json()["error"]["hint"]
    gone = own.client.post("/api/compare", json={"a": "q" + "0" * 24, "b": hit})
    assert "is not kept any more" in error_of(gone, "NotFound")


def test_what_is_kept_for_links_has_a_limit_and_takes_no_room_of_others(tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / f"q{'1' * 24}.json").write_text('{"name": "no file"}')
    (tmp_path / "linked" / f"q{'2' * 24}.json").write_text("not JSON")
    settings = ServerSettings(max_linked_bytes=5, max_uploads_bytes=6)
    uploads = Uploads(tmp_path, settings, linked=tmp_path / "linked", forgotten=lambda _: None)
    assert len(uploads) == 0

    async def receive(content: bytes) -> str:
        async def chunks() -> AsyncIterator[bytes]:
            yield form((FILE, content))

        return (await uploads.receive(TYPE, None, chunks()))[0].id

    first = asyncio.run(receive(b"abcd"))
    assert uploads.keep(first).until == pytest.approx(uploads.keep(first).until, abs=60)  # asked for twice
    assert uploads.stored == 0
    second = asyncio.run(receive(b"xyz"))
    with pytest.raises(Problem) as refused:
        uploads.keep(second)
    assert refused.value.status == 507
    uploads.remove(first)
    assert uploads.keep(second).size == 3
