"""The command line: parse, call the library, print."""

from hapvr.cli.app import main

__all__ = ["main"]
