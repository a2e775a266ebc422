"""What a process says of itself, run by `python_command`; or by `tell`, in one that was spawned."""

from __future__ import annotations

import json
import os
import sys
from multiprocessing.connection import Connection
from typing import Any


def describe() -> dict[str, Any]:
    import random
    import socket
    import tokenize

    files = [module.__file__ for module in (random, socket, tokenize)]
    main = getattr(sys.modules["__main__"], "__file__", None)
    return {"path": sys.path, "files": files, "folder": os.getcwd(), "main": main}


def tell(pipe: Connection) -> None:
    pipe.send(describe())


if __name__ == "__main__":
    print(json.dumps(describe() | {"words": sys.argv[1:], "token": os.environ.get("HAPVR_TOKEN")}))
