"""Where a library lies: in a folder, or below a prefix of a bucket. Both are asked by the same few calls.

A folder is a `Path`. `s3://bucket/prefix` is an `ObjectPath`, which has the methods of a `Path` that libraries need. It
is no `os.PathLike`: what works with files alone refuses it. The functions below do for either what `os` does for files.
An object is written whole or not at all, as `hapvr.storage` writes files. An object that is not there is a
`FileNotFoundError`; a store that cannot be reached, or refuses, a `StorageError` that says what to do.

The address and the rights come from the environment, as other programs read them: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, and `AWS_ENDPOINT_URL` for a server that is not Amazon's;
without keys, the role of the machine.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hapvr.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from obstore.store import S3Store

Result = TypeVar("Result")

_SCHEME = "s3://"
_ADDRESS = re.compile(r"s3:/{1,2}([a-z0-9][a-z0-9.-]+)(?:/(.*))?")  # a `Path` has joined the two slashes to one
_TIMEOUT: Any = {"connect_timeout": "5s", "timeout": "60s"}
_MAX_RETRIES, _MAX_RETRY_S = 3, 30


@dataclass(frozen=True)
class ObjectPath:
    """A name in a bucket: of an object, or of all objects below it."""

    bucket: str
    key: str  # without a slash at either end

    def __str__(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """Its last part."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def parent(self) -> ObjectPath:
        """What it is in."""
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[ObjectPath]:
        """What it is in, what that is in, and so on, up to the bucket."""
        return [self.parent, *self.parent.parents] if self.key else []

    @property
    def options(self) -> dict[str, str]:
        """What LanceDB must be told to reach it; keys of access are not among it: it finds them as we do."""
        return dict(_read_options())

    def read_bytes(self) -> bytes:
        """The content of the object."""
        return self._ask(lambda client: bytes(client.get(self.key).bytes()))

    def read_with_tag(self) -> tuple[bytes, str]:
        """The content of the object, and the tag by which `replace_bytes` knows it."""

        def read(client: S3Store) -> tuple[bytes, str]:
            found = client.get(self.key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        return self._ask(read)

    def write_bytes(self, data: bytes) -> str:
        """Write the object, whatever was there; its tag."""
        return self._ask(lambda client: client.put(self.key, data)["e_tag"] or "")

    def replace_bytes(self, data: bytes, *, tag: str | None) -> str | None:
        """Write the object if it still has this tag, or, with None, if there is none; None if that is not so."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put(client: S3Store) -> str | None:
            try:
                return client.put(self.key, data, mode="create" if tag is None else {"e_tag": tag})["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError):
                return None

        return self._ask(put)

    def head(self) -> tuple[int, str]:
        """Bytes and tag of the object."""
        found = self._ask(lambda client: client.head(self.key))
        return found["size"], found["e_tag"] or ""

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

        def ask(client: S3Store) -> dict[str, int]:
            return {one["path"][len(start) :]: one["size"] for part in client.list(start or None) for one in part}

        return self._ask(ask)

    def list_names(self) -> list[str]:
        """The next parts of all names below it, sorted."""

        def ask(client: S3Store) -> list[str]:
            found = client.list_with_delimiter(self.key or None)
            names = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
            return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

        return self._ask(ask)

    def copy_into(self, file: Path) -> None:
        """Write the content of the object into a file, part by part."""

        def copy(client: S3Store) -> None:
            with file.open("wb") as target:
                for part in client.get(self.key).stream():
                    target.write(part)

        self._ask(copy)

    def remove_object(self) -> None:
        """Remove the object."""
        self._ask(lambda client: client.delete(self.key))

    def remove(self) -> None:
        """Remove all objects below it."""
        names = [str(self / name)[len(f"{_SCHEME}{self.bucket}/") :] for name in self.sizes()]
        self._ask(lambda client: client.delete(names) if names else None)

    def _ask(self, ask: Callable[[S3Store], Result]) -> Result:
        """The answer of the store; `StorageError` says why there is none."""
        try:
            from obstore.exceptions import BaseError
        except ModuleNotFoundError as error:
            raise StorageError(f"'{self}' needs the package obstore: pip install 'hapvr[s3]'") from error
        try:
            return ask(_open_bucket(self.bucket, tuple(one for one in os.environ.items() if one[0].startswith("AWS_"))))
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                raise StorageError(f"'{self}' cannot be used: {_explain(error, self.bucket)}.") from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self)) from error
        except (BaseError, OSError) as error:
            raise StorageError(f"'{self}' cannot be used: {_explain(error, self.bucket)}.") from error


_NO_BUCKET = "NoSuchBucket"


def _explain(error: Exception, bucket: str) -> str:
    """What a client says at length, in a sentence."""
    text, endpoint = str(error), os.environ.get("AWS_ENDPOINT_URL", "Amazon S3")
    if _NO_BUCKET in text:
        return f"there is no bucket '{bucket}' at {endpoint}. Make it first, or give another address"
    if "api/token" in text or "meta-data" in text:
        return "no keys were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
    if any(status in text for status in ("401 Unauthorized", "403 Forbidden")):
        return "the keys are wrong, or do not give the right to do this. Check AWS_ACCESS_KEY_ID and its policy"
    if "error sending request" in text or "timed out" in text:
        return f"{endpoint} cannot be reached. Check AWS_ENDPOINT_URL and the network"
    return text.splitlines()[0][:300].rstrip(".") if text else type(error).__name__


def _read_options() -> Mapping[str, str]:
    """The address of the store; keys are read from the environment by those who need them."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {"aws_region": region}
    return {"aws_region": region, "aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()}


@lru_cache(maxsize=8)
def _open_bucket(bucket: str, _environment: tuple[tuple[str, str], ...]) -> S3Store:
    """A client, which keeps its connections, and reads the environment when it is made."""
    from obstore.store import S3Store

    config: Any = {("aws_allow_http" if name == "allow_http" else name): to for name, to in _read_options().items()}
    retries: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_MAX_RETRY_S)}
    return S3Store(bucket, config=config, client_options=_TIMEOUT, retry_config=retries)


# --- either ----------------------------------------------------------------------------------------------------------

Place = Path | ObjectPath
"""A folder or file of this machine, or of an object store."""
AnyPlace = TypeVar("AnyPlace", bound=Place)


def parse_place(text: str | os.PathLike[str] | ObjectPath) -> Place:
    """A folder, made absolute, or an address of an object store.

    >>> parse_place("s3://films/library/"), parse_place(Path("s3://films"))
    (ObjectPath(bucket='films', key='library'), ObjectPath(bucket='films', key=''))
    """
    if isinstance(text, ObjectPath):
        return text
    name = os.fspath(text)
    found = _ADDRESS.fullmatch(name)
    if found is not None:
        return ObjectPath(found[1], (found[2] or "").strip("/"))
    if name.startswith("s3:/"):
        raise ConfigError(f"'{name}' is no address in an object store: one looks like s3://bucket/folder.")
    return Path(os.path.abspath(name))


BACK_UP = " Copy it into one first: hapvr backup LIBRARY FOLDER"


def require_local(place: Place, what: str, hint: str = "") -> Path:
    """A folder of this machine; `ConfigError` says that `what` needs one."""
    if isinstance(place, ObjectPath):
        raise ConfigError(f"{what} needs a library in a folder of this machine; '{place}' is in an object store.{hint}")
    return place


def file_state(file: Place) -> Hashable:
    """What changes when a file is replaced; `FileNotFoundError` if there is none."""
    if isinstance(file, ObjectPath):
        return file.head()
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def file_size(file: Place) -> int:
    """The bytes of a file; `FileNotFoundError` if there is none."""
    return file.head()[0] if isinstance(file, ObjectPath) else file.stat().st_size


def path_exists(place: Place) -> bool:
    """Whether there is a file or folder of this name, be it a link to nothing."""
    return place.exists() if isinstance(place, ObjectPath) else os.path.lexists(place)


def list_names(folder: Place) -> list[str]:
    """The names in a folder, sorted; none where there is no folder that can be read."""
    if isinstance(folder, ObjectPath):
        return folder.list_names()
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


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


def copy_folder(source: Place, target: Path) -> None:
    """Copy all files below a folder into a folder of this machine."""
    if not isinstance(source, ObjectPath):
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    for name in source.sizes():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name)


def remove_file(file: Place) -> None:
    """Remove a file."""
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
