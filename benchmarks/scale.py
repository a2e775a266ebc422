"""What changes beyond one machine: a subcommand for each question, in a module of its own.

python benchmarks/scale.py s3 --videos 2000               # a library in an object store against a folder
python benchmarks/scale.py ray VIDEOS --count 200         # features by a Ray cluster against a plain run
python benchmarks/scale.py candidates --help              # the index of candidates at sizes
python benchmarks/scale.py million --help                 # a simulation of larger ones
python benchmarks/scale.py milvus --help                  # the index of candidates in Milvus and in the library
"""

from __future__ import annotations

import argparse
import importlib

SUBCOMMANDS = {
    "s3": "object_storage",
    "ray": "ray_cluster",
    "candidates": "candidate_index",
    "million": "million",
    "milvus": "milvus_candidates",
}
"""Subcommand -> the module beside this one that has `add_arguments` and `measure`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module_name in SUBCOMMANDS.items():
        module = importlib.import_module(module_name)
        formatter = argparse.RawDescriptionHelpFormatter
        one = commands.add_parser(name, description=module.__doc__, formatter_class=formatter)
        module.add_arguments(one)
        one.set_defaults(measure=module.measure)
    options = parser.parse_args()
    options.measure(options)


if __name__ == "__main__":
    main()
