"""`python -m hapvr.training SETTINGS [section.key=value ...]`: train with torch, numpy, safetensors and Pillow alone.

SETTINGS is a TOML file or the name of a recipe. Under torchrun: torchrun --nproc-per-node 8 -m hapvr.training ...

`python -m` itself looks for modules in the current folder, before this can prevent it: in a folder that others can
write to, use `python -P -m hapvr.training`, or PYTHONSAFEPATH=1 with torchrun (from Python 3.11).
"""

from __future__ import annotations

import sys

from hapvr.errors import HapvrError
from hapvr.training.recipe_files import list_recipes, load_stages
from hapvr.training.run import train_stages


def main(words: list[str]) -> int:
    """Run the settings that the words name; the exit code."""
    if not words or words[0] in ("-h", "--help"):
        print(f"{__doc__}\nRecipes: {', '.join(list_recipes())}.")
        return 0 if words else 2
    try:
        train_stages(load_stages(words[0], words[1:]), report=lambda line: print(line, flush=True))
    except HapvrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
