"""Everything hapvr raises on purpose. Catch `HapvrError` to catch them all.

    HapvrError
    ├── ShapeError    a tensor of another shape or type than the call expects
    ├── DataError     values that cannot be used: NaN, an empty video, a mask that leaves nothing
    ├── ConfigError   a setting that does not exist, or that contradicts another
    ├── WeightsError  a weight file that is damaged, of another kind, or lacks tensors
    ├── ClusterError  a Ray cluster that cannot be reached, has other versions, or was lost
    ├── StorageError  stored features or frames that are damaged, missing, of another kind, or would not mix
    │   ├── BusyError           another process is writing into the library
    │   └── UnavailableError    an object store that cannot be reached, or refuses
    └── DecodeError   a file from which no frame could be read
        ├── NoVideoError        it can be opened, but holds no video: audio only, or no frame that can be decoded
        ├── DecodeLimitError    its frames are larger than the limits allow
        └── DecodeTimeoutError  decoding took longer than the limits allow

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations


class HapvrError(Exception):
    """Base of every error that hapvr raises on purpose."""


class ShapeError(HapvrError, ValueError):
    """A tensor has another shape or type than the call expects."""


class DataError(HapvrError, ValueError):
    """The values cannot be used: NaN, an empty video, a mask that leaves nothing."""


class ConfigError(HapvrError, ValueError):
    """A setting does not exist or contradicts another one."""


class WeightsError(HapvrError):
    """A weight file is damaged, of another kind, or its tensors do not fit the model."""


class StorageError(HapvrError):
    """Stored features or frames are damaged, missing, of another kind, or would not mix with what is to be added."""


class ClusterError(HapvrError):
    """A Ray cluster cannot be reached, has other versions, or was lost."""


class FormatError(StorageError):
    """It was stored by another release of hapvr, in a format that this one does not read."""


class BusyError(StorageError):
    """Another process is writing into the library."""


class UnavailableError(StorageError):
    """An object store cannot be reached, or refuses: nothing is known about what lies there."""


class DecodeError(HapvrError):
    """No frame could be read from a file: it is missing, damaged, of an unknown kind, or not a file."""


class NoVideoError(DecodeError):
    """A file can be opened but holds no video: audio only, or no frame that can be decoded."""


class DecodeLimitError(DecodeError):
    """The frames of a file are larger than the limits allow."""


class DecodeTimeoutError(DecodeError):
    """Decoding a file took longer than the limits allow."""


def explain_format(found: object, known: int) -> str:
    """What to say of a format that this release does not read: it is newer, or it is none.

    >>> explain_format(3, 1).partition(":")[0]
    'of format 3, and this hapvr reads up to 1. A newer release wrote it'
    """
    if isinstance(found, int) and not isinstance(found, bool) and found > known:
        return (
            f"of format {found}, and this hapvr reads up to {known}. A newer release wrote it: install that one again, "
            "or a later one, with `pip install --upgrade hapvr`; nothing was changed."
        )
    return f"of format {found!r}, which no release of hapvr writes; this one reads {known}. Restore it from a copy."


def to_sentence(error: BaseException) -> str:
    """The message of an error as a sentence, to be put into another.

    >>> to_sentence(OSError("no room")), to_sentence(MemoryError())
    ('no room.', 'MemoryError.')
    """
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error) or type(error).__name__
    return text if text.endswith(".") else text + "."
