"""A Milvus server: its address, connecting to it, and what its errors mean."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hapvr.errors import ConfigError, StorageError

TOKEN_VARIABLE = "HAPVR_MILVUS_TOKEN"  # noqa: S105 - the name of a variable
SCHEME, _PORT = "milvus", 19530
_FORM = "milvus://host:port/collection"
_MIN_SERVER = (2, 3, 5)  # the oldest that this was tested with
ANSWER_S = 60.0
"""How long a server may take to answer."""
_CONNECT_S = 5.0


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
        if parts.scheme != SCHEME:
            raise ConfigError(_explain_address(text, f"it must begin with '{SCHEME}://', or be 'embedded'"))
        if parts.username is not None or parts.password is not None:
            hidden = f"{SCHEME}://...@{parts.hostname}{parts.path}"  # what is secret is not repeated
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
        return f"{SCHEME}://{self.server}/{self.collection}"


def _explain_address(text: str, why: str) -> str:
    return f"candidates cannot be '{text}': {why}. The form is {_FORM}."


def connect_server(address: MilvusAddress) -> Any:
    """A client of a server that can be used."""
    if importlib.util.find_spec("pymilvus") is None:
        raise ConfigError(f"'{address}' needs the client of Milvus: pip install 'hapvr[milvus]'")
    from pymilvus import MilvusClient

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # errors are raised; it would print them as well
    uri = f"http://{address.server}"
    with translate_errors(address, "connect"):
        client = MilvusClient(uri=uri, token=os.environ.get(TOKEN_VARIABLE, ""), timeout=_CONNECT_S)
        version = str(client.get_server_version(timeout=ANSWER_S))
        client.list_collections(timeout=ANSWER_S)  # asks for rights too
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
