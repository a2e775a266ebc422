"""What the package's build does besides copying files: it compiles what is written in C, if there is a compiler."""

from __future__ import annotations

import runpy
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds compiled scores to wheels and editable installations; without them torch computes the same, more slowly."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        native = runpy.run_path(f"{self.root}/src/hapvr/similarity/native/build.py")
        try:
            built = native["build"]()
        except native["BuildError"] as error:
            self.app.display_warning(f"Without compiled scores, which torch computes too: {error}.")
            return
        if version != "editable":
            build_data["artifacts"] += [str(path.relative_to(self.root)) for path in built]
            build_data["pure_python"] = False
            # For any Python: the libraries are called through ctypes.
            build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
