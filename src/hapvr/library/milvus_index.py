"""Frame vectors in a collection of a Milvus server; see `hapvr.library.candidate_index`.

A version of a library has a collection of its own, whose name ends in the version: `films_0001`. A row is a vector: the
id says which content it belongs to and which of its vectors it is; `runs`, of the first vector of a content, says how
many that content has. What the collection was made for is written in its description, as JSON: no other is touched.

A writer waits until what it added can be found, so that the record in the library's tables is written after that.
Searches then need not wait for the newest state (Milvus' consistency level "Bounded").
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hapvr.errors import ConfigError, ShapeError, StorageError
from hapvr.library.candidates import Finds

TOKEN_VARIABLE = "HAPVR_MILVUS_TOKEN"  # noqa: S105 - the name of a variable
_SCHEME, _PORT = "milvus", 19530
_FORM = "milvus://host:port/collection"
_MIN_SERVER = (2, 3, 5)  # the oldest that this was tested with
_OWNER, _MODEL = "hapvr library", "model"  # names in the description of a collection
_PLACES = 2**20  # an id is the key of a content, times this, plus the place of the vector among those of the content
# Its similarities are exact. Of 1,024 lists of 200,000 drawn vectors, 16, 64, 128 and 256 hold .35, .59, .73 and .86 of
# the 300 nearest, for 37, 65, 118 and 155 ms of the server's processor a query of 17 frames. With 64 of them more
# needles are found than by the library's own index (docs/scale.md).
_INDEX = {"index_type": "IVF_FLAT", "metric_type": "IP", "params": {"nlist": 1024}}
_SEARCH = {"params": {"nprobe": 64}}
_ROWS = 8_192  # written or read at once: some 8 MB
_QUERIES = 256  # vectors searched for at once
_CONTENTS = 100  # removed at once: the server parses a condition for each
_CONNECT_S, _ANSWER_S, _LOAD_S = 5.0, 60.0, 600.0


@dataclass(frozen=True)
class MilvusAddress:
    """Where a collection is: `milvus://host:port/collection`."""

    host: str
    port: int
    collection: str

    @classmethod
    def parse(cls, text: str) -> MilvusAddress:
        """The address that a text names; `ConfigError` if it names none."""
        try:
            parts = urlsplit(text)
            port = _PORT if parts.port is None else parts.port
        except ValueError as error:
            raise ConfigError(_explain_address(text, f"{error}")) from error
        name = parts.path.removeprefix("/")
        if parts.scheme != _SCHEME:
            raise ConfigError(_explain_address(text, f"it must begin with '{_SCHEME}://', or be 'embedded'"))
        if parts.username is not None or parts.password is not None:
            hidden = f"{_SCHEME}://...@{parts.hostname}{parts.path}"  # what is secret is not repeated
            raise ConfigError(_explain_address(hidden, f"credentials are given by the variable {TOKEN_VARIABLE}"))
        if not parts.hostname or parts.query or parts.fragment or port == 0:
            raise ConfigError(_explain_address(text, "a host, a port and a collection are wanted, nothing else"))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
            raise ConfigError(
                _explain_address(text, f"'{name}' is no name of a collection: letters, digits and _, 200 at most")
            )
        return cls(parts.hostname, port, name)

    @property
    def server(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{_SCHEME}://{self.server}/{self.collection}"


def _explain_address(text: str, why: str) -> str:
    return f"candidates cannot be '{text}': {why}. The form is {_FORM}."


@dataclass(frozen=True)
class IndexedContents:
    """The keys of contents in an index."""

    whole: set[int]  # all their vectors are there
    broken: set[int]  # some are missing, or there are too many


class MilvusIndex:
    """The collection of one version. It is made when the first vectors are added, which say how long vectors are.

    Args:
        address: of the server, with the name that collections begin with.
        version: of the library.
        owner: by which the library knows its collections.
        model: what the vectors come from; others would not be comparable.
    """

    def __init__(self, address: MilvusAddress, version: str, *, owner: str, model: str) -> None:
        self.address, self.name = address, f"{address.collection}_{version}"
        self._owner, self._model = owner, model
        self._lock = threading.Lock()
        self._client: Any = None
        self._dims = 0  # of its vectors; 0 while it is not known to be there and loaded

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{_SCHEME}://{self.address.server}/{self.name}"

    # --- connecting --------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to the server, and load the collection if it is there; `StorageError` if it cannot be used."""
        with self._lock:
            client = self._reach()
            if not self._dims and (found := self._describe()) is not None:
                self._require_own(found)
                with self._ask("load the collection"):
                    if not client.list_indexes(self.name, timeout=_ANSWER_S):  # a writer was killed while it made it
                        self._make_index()
                    client.load_collection(self.name, timeout=_LOAD_S)
                self._dims = found.dims

    def is_there(self) -> bool:
        """Whether the collection exists; `StorageError` if it is not this library's."""
        self.connect()
        return bool(self._dims)

    def require_new(self) -> None:
        """Raise `StorageError` unless the collection can be made; one that this library left is dropped."""
        with self._lock:
            self._reach()
            if (found := self._describe()) is None:
                return
        if found.owner == self._owner:
            self.drop()
            return
        raise StorageError(
            f"There is a collection '{self.place}' already, {found.explain()}. Give another name with --candidates, or "
            "drop it in Milvus if nobody needs it."
        )

    def list_others(self) -> list[str]:
        """The names of this library's collections for other versions: what a rebuild or a repair left."""
        pattern = re.compile(rf"{re.escape(self.address.collection)}_\d{{4,}}")
        with self._lock:
            client = self._reach()
            with self._ask("list collections"):
                names = client.list_collections(timeout=_ANSWER_S)
            found = {name: self._describe(name) for name in names if pattern.fullmatch(name) and name != self.name}
        return sorted(name for name, one in found.items() if one is not None and one.owner == self._owner)

    def _reach(self) -> Any:
        """A client of the server."""
        if self._client is None:
            self._client = _connect(self.address)
        return self._client

    def _describe(self, name: str | None = None) -> _Described | None:
        """What is known of a collection; None if there is none."""
        with self._ask("describe the collection"):
            if not self._client.has_collection(name or self.name, timeout=_ANSWER_S):
                return None
            found = self._client.describe_collection(name or self.name, timeout=_ANSWER_S)
        dims = [int(one["params"]["dim"]) for one in found["fields"] if "dim" in one.get("params", {})]
        try:
            written = json.loads(found.get("description") or "null")
        except ValueError:
            written = None
        written = written if isinstance(written, dict) else {}
        return _Described(dims[0] if dims else 0, str(written.get(_OWNER, "")), str(written.get(_MODEL, "")))

    def _require_own(self, found: _Described) -> None:
        if (found.owner, found.model) != (self._owner, self._model):
            raise StorageError(
                f"The collection '{self.place}' is not the one that this library wrote: it is {found.explain()}. Bring "
                "the right one back; or drop this one in Milvus if nobody needs it, and make the vectors again: "
                "hapvr check LIBRARY --repair"
            )

    def _make(self, dims: int) -> None:
        """Make the collection for vectors of `dims` dimensions."""
        from pymilvus import DataType

        client = self._reach()
        with self._ask("make the collection"):
            description = json.dumps({_OWNER: self._owner, _MODEL: self._model})
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
            schema.add_field("id", DataType.INT64, is_primary=True)
            schema.add_field("runs", DataType.INT32)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dims)
            client.create_collection(self.name, schema=schema, timeout=_ANSWER_S)
            self._make_index()
            client.load_collection(self.name, timeout=_LOAD_S)
        self._dims = dims

    def _make_index(self) -> None:
        wanted = self._client.prepare_index_params()
        wanted.add_index("vector", **_INDEX)
        self._client.create_index(self.name, wanted, timeout=_LOAD_S)

    @contextmanager
    def _ask(self, what: str) -> Iterator[None]:
        """Within, what the server or its client raises becomes a `StorageError`."""
        with translate_errors(self.address, what):
            yield

    # --- reading -----------------------------------------------------------------------------------------------------

    def find_nearest(self, vectors: Tensor, *, k: int, exact: bool) -> Finds:  # noqa: ARG002 - it always is
        """The nearest stored vectors, and their exact similarities."""
        if not self.is_there():
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        self._require_dims(vectors.shape[1])
        which, ids, similarities = [], [], []
        for first in range(0, len(vectors), _QUERIES):
            data = list(vectors[first : first + _QUERIES].float().numpy())
            with self._ask("search"):
                found = self._client.search(
                    self.name, data=data, limit=k, search_params=_SEARCH, consistency_level="Bounded", timeout=_ANSWER_S
                )
            for number, hits in enumerate(found, first):
                which.append(np.full(len(hits.ids), number, np.int64))
                ids.append(np.array(hits.ids, np.int64))
                similarities.append(np.array(hits.distances, np.float32))
        return np.concatenate(which), np.concatenate(ids) // _PLACES, np.concatenate(similarities)

    def read_all(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The keys and vectors of all frames."""
        if not self.is_there() or not self._count_rows():
            return np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
        rows = [row for part in self._read_rows(fields=("id", "vector")) for row in part]
        keys = np.array([row["id"] // _PLACES for row in rows], np.int64)
        return keys, np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), self._dims)

    def count(self) -> int:
        """How many vectors there are."""
        return self._count_rows() if self.is_there() else 0

    def count_indexed(self) -> int:
        """How many of them are in an index of Milvus."""
        if not self.is_there():
            return 0
        with self._ask("describe the index"):
            return int(self._client.describe_index(self.name, "vector", timeout=_ANSWER_S)["indexed_rows"])

    def count_contents(self) -> int:
        """How many contents have a first vector."""
        return self._count_rows("runs > 0") if self.is_there() else 0

    def list_contents(self) -> IndexedContents:
        """Which contents have vectors. Only if the numbers do not add up, all rows are looked at."""
        if not self.is_there():
            return IndexedContents(set(), set())
        total = self._count_rows()
        first = {row["id"]: row["runs"] for part in self._read_rows("runs > 0") for row in part}
        if sum(first.values()) == total and all(id % _PLACES == 0 for id in first):
            return IndexedContents({id // _PLACES for id in first}, set())
        places: dict[int, list[int]] = {}
        runs: dict[int, int] = {}
        for part in self._read_rows():
            for row in part:
                key, place = divmod(row["id"], _PLACES)
                places.setdefault(key, []).append(place)
                if place == 0:
                    runs[key] = row["runs"]
        whole = {key for key, found in places.items() if sorted(found) == list(range(runs.get(key, 0)))}
        return IndexedContents(whole, places.keys() - whole)

    def _count_rows(self, condition: str = "") -> int:
        """How many rows meet a condition, of all that anybody has written by now."""
        with self._ask("count vectors"):
            found = self._client.query(
                self.name,
                filter=condition,
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=_ANSWER_S,
            )
        return int(found[0]["count(*)"])

    def _read_rows(self, condition: str = "", fields: Sequence[str] = ("id", "runs")) -> Iterator[list[dict[str, Any]]]:
        """Columns of all rows that meet a condition, some at a time, by ascending ids."""
        with self._ask("read vectors"):
            rows = self._client.query_iterator(
                self.name, batch_size=_ROWS, filter=condition, output_fields=list(fields), timeout=_ANSWER_S
            )
            try:
                while part := rows.next():
                    yield part
            finally:
                rows.close()

    def _require_dims(self, dims: int) -> None:
        if dims != self._dims:
            raise ShapeError(f"The collection '{self.place}' holds vectors of {self._dims} dimensions, not of {dims}.")

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, keys: Sequence[int], vectors: Sequence[NDArray[np.float16]]) -> None:
        """Add the vectors of contents, and wait until they can be found."""
        if not sum(map(len, vectors)):
            return
        dims = vectors[0].shape[1]
        if not self.is_there():
            with self._lock:
                self._make(dims)
        self._require_dims(dims)
        rows: list[dict[str, Any]] = []
        for key, own in zip(keys, vectors, strict=True):
            if len(own) >= _PLACES:
                raise StorageError(f"A video has {len(own):,} frame vectors; {_PLACES - 1:,} are possible with Milvus.")
            for place, vector in enumerate(own.astype(np.float32)):
                rows.append({"id": key * _PLACES + place, "runs": 0 if place else len(own), "vector": vector})
        with self._ask("write vectors"):
            for first in range(0, len(rows), _ROWS):
                self._client.insert(self.name, rows[first : first + _ROWS], timeout=_ANSWER_S)
            last = [rows[-1]["id"]]
            kept = self._client.get(self.name, last, output_fields=["id"], consistency_level="Strong", timeout=_LOAD_S)
        if not kept:
            raise StorageError(f"'{self.place}' has not kept vectors that it acknowledged. Look at the server's log.")

    def remove(self, keys: Collection[int]) -> None:
        """Remove the vectors of contents."""
        if not keys or not self.is_there():
            return
        ordered = sorted(keys)
        with self._ask("remove vectors"):
            for first in range(0, len(ordered), _CONTENTS):
                ranges = [(key * _PLACES, (key + 1) * _PLACES) for key in ordered[first : first + _CONTENTS]]
                condition = " or ".join(f"(id >= {start} and id < {end})" for start, end in ranges)
                self._client.delete(self.name, filter=condition, timeout=_LOAD_S)

    def maintain(self, *, thoroughly: bool) -> None:
        """Milvus indexes and compacts by itself, in time; `thoroughly` asks it to begin now, and does not wait."""
        if thoroughly and self.is_there():
            with self._ask("compact the collection"):
                self._client.flush(self.name, timeout=_LOAD_S)
                self._client.compact(self.name, timeout=_ANSWER_S)

    def drop(self) -> None:
        """Drop the collection, if it is this library's."""
        self.drop_collection(self.name)
        self._dims = 0

    def drop_collection(self, name: str) -> None:
        """Drop a collection of this library by its name."""
        with self._lock:
            client = self._reach()
            if (found := self._describe(name)) is None or found.owner != self._owner:
                return
            with self._ask("drop the collection"):
                client.drop_collection(name, timeout=_ANSWER_S)


@dataclass(frozen=True)
class _Described:
    """A collection that exists."""

    dims: int
    owner: str
    model: str

    def explain(self) -> str:
        """Whose it is, as a part of a sentence."""
        if not self.owner:
            return f"of {self.dims} dimensions, and not made by hapvr"
        return f"of {self.dims} dimensions, made by hapvr for the library '{self.owner}' and the model '{self.model}'"


def _connect(address: MilvusAddress) -> Any:
    """A client of a server that can be used."""
    if importlib.util.find_spec("pymilvus") is None:
        raise ConfigError(f"'{address}' needs the client of Milvus: pip install 'hapvr[milvus]'")
    from pymilvus import MilvusClient

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # errors are raised; it would print them as well
    uri = f"http://{address.server}"
    with translate_errors(address, "connect"):
        client = MilvusClient(uri=uri, token=os.environ.get(TOKEN_VARIABLE, ""), timeout=_CONNECT_S)
        version = str(client.get_server_version(timeout=_ANSWER_S))
        client.list_collections(timeout=_ANSWER_S)  # asks for rights too
    _require_version(address, version)
    return client


def _require_version(address: MilvusAddress, version: str) -> None:
    """Raise `StorageError` if a server is too old, or does not say how old it is."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    wanted = ".".join(map(str, _MIN_SERVER))
    if found is None or tuple(map(int, found.groups())) < _MIN_SERVER:
        raise StorageError(
            f"The Milvus server at {address.server} is of version '{version}'; hapvr needs {wanted} or newer."
        )


@contextmanager
def translate_errors(address: MilvusAddress, what: str) -> Iterator[None]:
    """Within, what the server or its client raises becomes a `StorageError` that says what to do."""
    import grpc
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise StorageError(_explain_credentials(address, details)) from error
        raise StorageError(_explain_failure(address, what, f"{code.name}: {details}")) from error
    except MilvusException as error:
        message = str(error.message).strip().splitlines()[0][:300]
        if "auth check failure" in message or "missing authorization" in message:
            raise StorageError(_explain_credentials(address, message)) from error
        if "Fail connecting" in message:
            raise StorageError(
                f"No Milvus server answers at {address.server}. Start it, or look whether the address is right; the "
                "library's own tables are as they were."
            ) from error
        raise StorageError(_explain_failure(address, what, message)) from error


def _explain_credentials(address: MilvusAddress, details: str) -> str:
    return (
        f"The Milvus server at {address.server} refuses the credentials: {details}. Set {TOKEN_VARIABLE} to "
        "user:password, or to an API key."
    )


def _explain_failure(address: MilvusAddress, what: str, message: str) -> str:
    return (
        f"The Milvus server at {address.server} could not {what}: {message.rstrip('.')}. What was acknowledged before "
        "is kept; see that the server is well, and run the same again."
    )
