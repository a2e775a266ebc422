"""Small files and plans about them. Nothing here imports torch, so that a process can begin quickly."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hapvr.actions.plan import Action, Plan, PlanRow


def hash_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def row(group: int, action: Action, path: Path) -> PlanRow:
    """The row of a file as it is now."""
    data = path.read_bytes()
    return PlanRow(str(group), action, str(path), len(data), hash_bytes(data), mtime_ns=path.stat().st_mtime_ns)


def make_plan(folder: Path, *, groups: int = 2, copies: int = 2, action: Action = "move", same: bool = True) -> Plan:
    """Groups of a file that is kept and copies of it in other folders, of the same bytes or of others."""
    rows = []
    for group in range(1, groups + 1):
        kept = write(folder / "kept" / f"{group}.mp4", b"film %d" % group * 50)
        rows.append(row(group, "keep", kept))
        for copy in range(1, copies + 1):
            data = kept.read_bytes() if same else b"copy %d of %d" % (copy, group) * 40
            path = write(folder / f"copies {copy}" / f"{group}.mp4", data)
            os.utime(path, ns=(group * 10**9 + copy, group * 10**9 + copy))
            rows.append(row(group, action, path))
    return Plan(tuple(rows))


def read_tree(folder: Path) -> dict[str, tuple[str, object]]:
    """What lies below a folder: links with what they say, files with their content and time."""
    found: dict[str, tuple[str, object]] = {}
    for here, folders, names in os.walk(folder):
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(here, one)))]:
            path = Path(here, name)
            if path.is_symlink():
                found[str(path.relative_to(folder))] = ("link", os.readlink(path))
            else:
                found[str(path.relative_to(folder))] = (hash_bytes(path.read_bytes()), path.stat().st_mtime_ns)
    return found


def read_contents(folder: Path) -> set[bytes]:
    """The different contents of all regular files below a folder."""
    paths = (Path(here, name) for here, _, names in os.walk(folder) for name in names)
    return {path.read_bytes() for path in paths if not path.is_symlink()}
