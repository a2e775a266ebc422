"""Where a library lies: in a folder, or below a prefix of a bucket. Both are asked by the same few calls.

A folder is a `Path`. `s3://bucket/prefix` is an `ObjectPath`, which has the methods of a `Path` that libraries need. It
is no `os.PathLike`: what works with files alone refuses it. The functions below do for either what `os` does for files.
An object is written whole or not at all, as `hapvr.storage` writes files. An object that is not there is a
`FileNotFoundError`; a store that cannot be reached, or refuses, an `UnavailableError` that says what to do.

The address and the rights come from the environment, as other programs read them:

    s3://  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, and AWS_ENDPOINT_URL for a server
           that is not Amazon's; without keys, the role of the machine
    az://  AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, and AZURE_STORAGE_ENDPOINT for another server
    gs://  GOOGLE_SERVICE_ACCOUNT, the path of a file, and GOOGLE_BASE_URL for another server; without the first, the
           role of the machine
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from hapvr.errors import ConfigError, StorageError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client = S3Store | GCSStore | AzureStore

Result = TypeVar("Result")

Tag = tuple[str | None, str | None]
"""By which a store knows one content of an object: its e_tag and, where the store counts them, its version."""


@dataclass(frozen=True)
class _Kind:
    """What differs between kinds of object stores."""

    client: str  # of `obstore.store`
    variables: str  # how those of the environment begin that are of use
    name: str  # of the store, unless a variable names another server
    endpoint: str  # that variable
    keys: str  # what has to be set
    no_bucket: str  # what the store says where there is none


_KINDS = {
    "s3": _Kind(client="S3Store", variables="AWS_", name="Amazon S3", endpoint="AWS_ENDPOINT_URL",
                keys="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", no_bucket="NoSuchBucket"),
    "az": _Kind(client="AzureStore", variables="AZURE_", name="Azure Blob Storage", endpoint="AZURE_STORAGE_ENDPOINT",
                keys="AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY", no_bucket="ContainerNotFound"),
    "gs": _Kind(client="GCSStore", variables="GOOGLE_", name="Google Cloud Storage", endpoint="GOOGLE_BASE_URL",
                keys="GOOGLE_SERVICE_ACCOUNT", no_bucket="NoSuchBucket"),
}  # fmt: skip
# A `Path` has joined the two slashes to one.
_ADDRESS = re.compile(rf"({'|'.join(_KINDS)}):/{{1,2}}([a-z0-9][a-z0-9._-]+)(?:/(.*))?")
_TIMEOUT: Any = {"connect_timeout": "5s", "timeout": "60s"}
_MAX_RETRIES, _MAX_RETRY_S = 3, 30


@dataclass(frozen=True)
class ObjectPath:
    """A name in a bucket: of an object, or of all objects below it."""

    bucket: str
    key: str  # without a slash at either end
    scheme: str = "s3"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> ObjectPath:
        return replace(self, key=f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """Its last part."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def parent(self) -> ObjectPath:
        """What it is in."""
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[ObjectPath]:
        """What it is in, what that is in, and so on, up to the bucket."""
        return [self.parent, *self.parent.parents] if self.key else []

    def relative_to(self, other: ObjectPath) -> PurePosixPath:
        """Its name below another one."""
        return PurePosixPath(self.key).relative_to(other.key)

    @property
    def options(self) -> dict[str, str]:
        """What LanceDB must be told to reach it; keys of access are not among it: it finds them as we do."""
        return dict(_read_options(self.scheme))

    def read_bytes(self) -> bytes:
        """The content of the object."""
        return self._ask(lambda client: bytes(client.get(self.key).bytes()))

    def read_range(self, start: int, count: int) -> bytes:
        """Some bytes of the object, as far as it has them."""
        return self._ask(lambda client: bytes(client.get_range(self.key, start=start, length=count)))

    def read_with_tag(self) -> tuple[bytes, Tag]:
        """The content of the object, and the tag by which `replace_bytes` knows it."""

        def read(client: Client) -> tuple[bytes, Tag]:
            found = client.get(self.key)
            return bytes(found.bytes()), _get_tag(found.meta)

        return self._ask(read)

    def write_bytes(self, data: bytes) -> None:
        """Write the object, whatever was there."""
        self._ask(lambda client: client.put(self.key, data))

    def replace_bytes(self, data: bytes, *, tag: Tag | None) -> Tag | None:
        """Write the object if it still has this tag, or, with None, if there is none; None if that is not so."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create"
        if tag is not None:
            mode = {name: value for name, value in zip(("e_tag", "version"), tag, strict=True) if value is not None}

        def put(client: Client) -> Tag | None:
            try:
                return _get_tag(client.put(self.key, data, mode=mode))
            except (AlreadyExistsError, PreconditionError):
                return None

        return self._ask(put)

    def head(self) -> tuple[int, Tag]:
        """Bytes and tag of the object."""
        found = self._ask(lambda client: client.head(self.key))
        return found["size"], _get_tag(found)

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        try:
            self.head()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects below this name."""
        return self._ask(lambda client: any(client.list(f"{self.key}/" if self.key else None, chunk_size=1)))

    def exists(self) -> bool:
        """Whether there is anything of this name."""
        return self.is_file() or self.is_dir()

    def sizes(self) -> dict[str, int]:
        """The bytes of all objects below it, by their names from here."""
        start = f"{self.key}/" if self.key else ""

        def ask(client: Client) -> dict[str, int]:
            return {one["path"][len(start) :]: one["size"] for part in client.list(start or None) for one in part}

        return self._ask(ask)

    def list_names(self) -> list[str]:
        """The next parts of all names below it, sorted."""

        def ask(client: Client) -> list[str]:
            found = client.list_with_delimiter(self.key or None)
            names = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
            return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

        return self._ask(ask)

    def copy_into(self, file: Path) -> None:
        """Write the content of the object into a file, part by part."""

        def copy(client: Client) -> None:
            with file.open("wb") as target:
                for part in client.get(self.key).stream():
                    target.write(part)

        self._ask(copy)

    def copy_to(self, other: ObjectPath) -> None:
        """Copy the object within the bucket; its bytes stay in the store."""
        self._ask(lambda client: client.copy(self.key, other.key))

    def remove_object(self) -> None:
        """Remove the object."""
        self._ask(lambda client: client.delete(self.key))

    def remove(self) -> None:
        """Remove all objects below it."""
        names = [(self / name).key for name in self.sizes()]
        self._ask(lambda client: client.delete(names) if names else None)

    def require_available(self, error: Exception) -> None:
        """Raise `UnavailableError` if what another client of the store raised says nothing about its objects."""
        if (why := _explain_refusal(error, self)) is not None:
            raise UnavailableError(f"'{self}' cannot be used: {why}.") from error

    def _ask(self, ask: Callable[[Client], Result]) -> Result:
        """The answer of the store; `UnavailableError` says why there is none."""
        try:
            from obstore.exceptions import BaseError
        except ModuleNotFoundError as error:
            raise StorageError(f"'{self}' needs the package obstore: pip install 'hapvr[s3]'") from error
        try:
            return ask(_open_bucket(self.scheme, self.bucket, _read_environment(self.scheme)))
        except FileNotFoundError as error:
            self.require_available(error)
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self)) from error
        except (BaseError, OSError) as error:
            self.require_available(error)
            text = str(error).splitlines()[0][:300].rstrip(".") if str(error) else type(error).__name__
            raise UnavailableError(f"'{self}' cannot be used: {text}.") from error


def _get_tag(found: Any) -> Tag:
    return found["e_tag"], found["version"]


def _explain_refusal(error: Exception, place: ObjectPath) -> str | None:
    """What a client says at length, in a sentence; None if it is not about the store as a whole."""
    text, kind = str(error), _KINDS[place.scheme]
    endpoint = os.environ.get(kind.endpoint, kind.name)
    if kind.no_bucket in text:
        return f"there is no bucket '{place.bucket}' at {endpoint}. Make it first, or give another address"
    if any(word in text for word in ("api/token", "meta-data", "metadata/identity", "Account must be specified")):
        return f"no keys were found. Set {kind.keys}, or give the machine a role"
    if any(word in text for word in ("401 Unauthorized", "403 Forbidden", "necessary privileges")):
        return f"the keys are wrong, or do not give the right to do this. Check {kind.keys} and what they may do"
    if "error sending request" in text or "timed out" in text:
        return f"{endpoint} cannot be reached. Check {kind.endpoint} and the network"
    if re.search(r"\b(429 Too Many|5\d\d [A-Z])", text):
        return f"{endpoint} answers with errors. Try again later"
    return None


def _read_environment(scheme: str) -> tuple[tuple[str, str], ...]:
    start = _KINDS[scheme].variables
    return tuple(one for one in os.environ.items() if one[0].startswith(start))


def _read_options(scheme: str) -> Mapping[str, str]:
    """The address of the store; keys are read from the environment by those who need them."""
    if scheme != "s3":
        is_plain = os.environ.get(_KINDS[scheme].endpoint, "").startswith("http:")
        return {"allow_http": "true"} if is_plain else {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {"aws_region": region}
    return {"aws_region": region, "aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()}


@lru_cache(maxsize=8)
def _open_bucket(scheme: str, bucket: str, _environment: tuple[tuple[str, str], ...]) -> Client:
    """A client, which keeps its connections, and reads the environment when it is made."""
    from obstore import store

    config = dict(_read_options(scheme))
    options: Any = {**_TIMEOUT, "allow_http": config.pop("allow_http", "false") == "true"}
    retries: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_MAX_RETRY_S)}
    client: Any = getattr(store, _KINDS[scheme].client)
    opened: Client = client(bucket, config=config, client_options=options, retry_config=retries)
    return opened


# --- either ----------------------------------------------------------------------------------------------------------

Place = Path | ObjectPath
"""A folder or file of this machine, or of an object store."""
AnyPlace = TypeVar("AnyPlace", bound=Place)


def parse_place(text: str | os.PathLike[str] | ObjectPath) -> Place:
    """A folder, made absolute, or an address of an object store.

    >>> parse_place("s3://films/library/"), parse_place(Path("s3://films"))
    (ObjectPath(bucket='films', key='library', scheme='s3'), ObjectPath(bucket='films', key='', scheme='s3'))
    """
    if isinstance(text, ObjectPath):
        return text
    name = os.fspath(text)
    found = _ADDRESS.fullmatch(name)
    if found is not None:
        return ObjectPath(found[2], (found[3] or "").strip("/"), found[1])
    if name.startswith(tuple(f"{scheme}:/" for scheme in _KINDS)):
        raise ConfigError(f"'{name}' is no address in an object store: one looks like s3://bucket/folder.")
    return Path(os.path.abspath(name))


def require_local(place: Place, what: str) -> Path:
    """A folder of this machine; `ConfigError` says that `what` needs one."""
    if isinstance(place, ObjectPath):
        raise ConfigError(f"{what} needs a library in a folder of this machine; '{place}' is in an object store.")
    return place


def name_below(place: Place, folder: Place) -> str:
    """The name of a file or folder from another folder on, which it is in."""
    return str(place.relative_to(folder))  # type: ignore[arg-type] # both are of one kind


def file_state(file: Place) -> Hashable:
    """What changes when a file is replaced; `FileNotFoundError` if there is none."""
    if isinstance(file, ObjectPath):
        return file.head()
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def file_size(file: Place) -> int:
    """The bytes of a file; `FileNotFoundError` if there is none."""
    return file.head()[0] if isinstance(file, ObjectPath) else file.stat().st_size


def find_state(file: Place) -> Hashable:
    """`file_state`, or None if there is no file."""
    try:
        return file_state(file)
    except OSError:
        return None


def path_exists(place: Place) -> bool:
    """Whether there is a file or folder of this name, be it a link to nothing."""
    return place.exists() if isinstance(place, ObjectPath) else os.path.lexists(place)


def read_range(file: Place, start: int, count: int) -> bytes:
    """Some bytes of a file, as far as it has them."""
    if isinstance(file, ObjectPath):
        return file.read_range(start, count)
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(count)


def list_names(folder: Place) -> list[str]:
    """The names in a folder, sorted; none where there is no folder that can be read."""
    if isinstance(folder, ObjectPath):
        return folder.list_names()
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def list_files(folder: Place) -> list[str]:
    """The names of all files below a folder, from there."""
    if isinstance(folder, ObjectPath):
        return list(folder.sizes())
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def make_folder(folder: Place) -> None:
    """Make a folder, unless it is there; an object store needs none."""
    if not isinstance(folder, ObjectPath):
        folder.mkdir(parents=True, exist_ok=True)


def copy_file(source: Place, target: Path) -> None:
    """Copy a file into a file of this machine; `FileNotFoundError` if there is none."""
    if isinstance(source, ObjectPath):
        source.copy_into(target)
    else:
        shutil.copyfile(source, target)


def link_file(source: AnyPlace, target: AnyPlace) -> None:
    """Give a file that never changes another name beside the first: by a link or, where there are none, by a copy."""
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        source.copy_to(target)
        return
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy_folder(source: Place, target: Path) -> None:
    """Copy all files below a folder into a folder of this machine."""
    if not isinstance(source, ObjectPath):
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    for name in source.sizes():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name)


def remove_file(file: Place) -> None:
    """Remove a file, if there is one."""
    with suppress(FileNotFoundError):
        if isinstance(file, ObjectPath):
            file.remove_object()
        else:
            file.unlink()


def remove_folder(folder: Place) -> None:
    """Remove a folder and what is in it, as far as that can be done."""
    if isinstance(folder, ObjectPath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def count_bytes(folder: Place) -> int:
    """Bytes of all files below a folder."""
    if isinstance(folder, ObjectPath):
        return sum(folder.sizes().values())
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:  # removed meanwhile
                continue
    return total
