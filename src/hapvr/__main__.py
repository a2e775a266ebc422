"""`python -m hapvr` is the command `hapvr`."""

from hapvr.cli import main

if __name__ == "__main__":
    main()
