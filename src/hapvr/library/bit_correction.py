"""Finding a single flipped bit by checksums alone, and putting it back.

CRC-32 is linear: the sums of a block before and after one flipped bit differ by a value that depends only on how many
bits come after it, and these values are all different up to 2**32 - 1 bits. So the difference says which bit it was.
Damage of another kind can look like one flipped bit: in one of 2**32 / bits cases. `MAX_BYTES` bounds that.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache

from hapvr.library.checksums import FileSum, sum_file
from hapvr.places import Place, read_range
from hapvr.storage import parse_document, write_bytes

MAX_BYTES = 64 * 2**10
"""Of a block that is corrected by its checksum alone: other damage looks like a flipped bit once in 8,192 times."""
MAX_DOCUMENT_BYTES = 4 * 2**10
"""Of a document of which every bit is tried."""
_POLYNOMIAL = 0xEDB88320
_STEPS = 2**14  # a block of 16 MiB has 2**27 bits: as many steps of this size


def find_flipped_bit(written: int, found: int, size: int) -> int | None:
    """Which bit of a block of `size` bytes is flipped, by its CRC-32 as written and as found; None if it is not one.

    Bit 8 n + k is the one of value 2**k in byte n.

    >>> import zlib
    >>> find_flipped_bit(zlib.crc32(b"hapvr"), zlib.crc32(b"hipvr"), 5)
    11
    """
    behind, images = _count_steps()
    difference = written ^ found
    for giant in range(8 * size // _STEPS + 1):
        if difference in behind:
            place = 8 * size - 1 - (giant * _STEPS + behind[difference])
            return place if place >= 0 else None
        difference = _apply(images, difference)
    return None


@cache
def _count_steps() -> tuple[dict[int, int], list[int]]:
    """How sums differ with up to `_STEPS` bits behind the flipped one; and `_STEPS` steps back, of each single bit.

    After the flipped bit the registers of both sums differ by the polynomial; each bit behind it is one step more.
    """
    behind: dict[int, int] = {}
    state = _POLYNOMIAL
    for count in range(_STEPS):
        behind[state] = count
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return behind, [_step_back(1 << bit, _STEPS) for bit in range(32)]


def _step_back(state: int, steps: int) -> int:
    for _ in range(steps):
        state = (state ^ _POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
    return state


def _apply(images: list[int], state: int) -> int:
    """A linear map, by its images of the single bits."""
    total = 0
    for image in images:
        total ^= image if state & 1 else 0
        state >>= 1
    return total


def find_file_correction(path: Place, written: FileSum, *, max_bytes: int | None = MAX_BYTES) -> dict[int, int] | None:
    """The bytes of a file that are not as written, by place, and what they were; None if that cannot be said."""
    try:
        found = sum_file(path)
    except OSError:
        return None
    if found.size != written.size or not written.blocks:
        return None
    corrected: dict[int, int] = {}
    start = 0
    for size, now, before in zip(found.block_sizes(), found.block_sums(), written.block_sums(), strict=True):
        if now != before:
            bit = find_flipped_bit(before, now, size) if max_bytes is None or size <= max_bytes else None
            if bit is None:
                return None
            place = start + bit // 8
            corrected[place] = read_range(path, place, 1)[0] ^ 1 << bit % 8
        start += size
    return corrected


def correct_file(path: Place, corrected: dict[int, int]) -> None:
    """Put bytes in their places, in one step."""
    data = bytearray(path.read_bytes())
    for place, value in corrected.items():
        data[place] = value
    write_bytes(path, bytes(data))


def correct_document(path: Place, known: Collection[str]) -> bytes | None:
    """A small document as it was before one bit of it flipped: the only one whose checksum is right; else None."""
    try:
        data = bytearray(path.read_bytes())
    except OSError:
        return None
    found: list[bytes] = []
    for bit in range(8 * len(data) if len(data) <= MAX_DOCUMENT_BYTES else 0):
        data[bit // 8] ^= 1 << bit % 8
        try:
            parse_document(bytes(data), known, require_checksum=True)
            found.append(bytes(data))
        except ValueError:
            pass
        data[bit // 8] ^= 1 << bit % 8
    contents = {json.dumps(json.loads(one), sort_keys=True) for one in found}
    return found[0] if len(contents) == 1 else None
