"""The command line: parse, call the package, print."""

from hapvr.cli.app import main

__all__ = ["main"]
