"""The command line: parse, call the library, print."""


def main() -> None:
    """Run the command line."""
