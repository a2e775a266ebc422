"""What commands share at a terminal: text that stays on its line, progress bars, Ctrl-C and SIGTERM."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hapvr.webhooks import WebhookCounts, Webhooks

# Control characters, line and paragraph separators, marks that change the direction of writing, and lone surrogates,
# which stand for bytes that are no text.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str | os.PathLike[str]) -> str:
    r"""A path or a message in one line, with escapes in place of what would break the line or control the terminal.

    >>> print(escape("a\nb\x1b[2J.mp4"), escape("caf\udce9"))
    a\nb\x1b[2J.mp4 caf\xe9
    """

    def escape_one(found: re.Match[str]) -> str:
        number = ord(found[0])
        if 0xDC80 <= number <= 0xDCFF:  # a byte, as `os.fsdecode` keeps it
            return f"\\x{number - 0xDC00:02x}"
        return found[0].encode("unicode_escape").decode("ascii")

    return _UNPRINTABLE.sub(escape_one, os.fspath(text))


def show(as_json: bool, value: Any, text: str | Iterable[str] | Callable[[], None]) -> None:
    """Print a value as JSON; or else a text, its lines, or what a function prints.

    No text controls the terminal; names that may break a line are for the caller to `escape`.
    """
    if as_json:
        typer.echo(json.dumps(value))
    elif callable(text):
        text()
    else:
        for line in [text] if isinstance(text, str) else text:
            typer.echo("\n".join(map(escape, line.split("\n"))))


def warn(texts: Iterable[str], *, before: str = "") -> None:
    """Print lines on stderr."""
    for text in texts:
        typer.echo(escape(f"{before}{text}"), err=True)


def describe_problem(path: str, reason: str) -> str:
    """A line about a file; a reason that begins with the file's name needs no other mention of it.

    >>> describe_problem("a.mp4", "'a.mp4' is empty."), describe_problem("a.mp4", "it is cut off.")
    ("  'a.mp4' is empty.", '  a.mp4: it is cut off.')
    """
    return f"  {reason}" if reason.startswith(f"'{path}' ") else f"  {path}: {reason}"


def count_things(number: int, what: str) -> str:
    """How many of them there are.

    >>> count_things(1, "video"), count_things(1_200, "video")
    ('1 video', '1,200 videos')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def make_table(first: str, *others: str, title: str) -> Table:
    """An empty table: a column of names, then columns of numbers."""
    from rich.table import Table

    table = Table(first, title=title)
    for name in others:
        table.add_column(name, justify="right")
    return table


def format_percent(value: float) -> str:
    """A share in percent; "-" for NaN."""
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


# --- progress --------------------------------------------------------------------------------------------------------


@contextmanager
def progress_bar(unit: str = "videos", *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr: the function sets how many are done and how many there are. See `progress_bars`."""
    with progress_bars(quiet=quiet) as update:
        yield lambda done, total: update(unit, done, total)


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on stderr, one for each step that is named. Nothing is shown if `quiet`, or if stderr is no terminal."""
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    off = quiet or not console.is_terminal
    begun: dict[str, tuple[rich.TaskID, float, int]] = {}  # the bar, and when and where it began
    # What is printed meanwhile is put above the bar, unless it goes elsewhere than to the terminal.
    beside = sys.stdout.isatty()
    with rich.Progress(*columns, console=console, disable=off, transient=True, redirect_stdout=beside) as progress:

        def update(step: str, done: int, total: int) -> None:
            now = time.perf_counter()
            if step not in begun:
                begun[step] = (progress.add_task(step, total=total or None, rate=""), now, done)
            task, start, first = begun[step]
            rate = f"{(done - first) / (now - start):.1f}/s" if done > first and now > start else ""
            progress.update(task, completed=done, total=total or None, rate=rate)

        yield update


# --- webhooks --------------------------------------------------------------------------------------------------------


@contextmanager
def open_webhooks(
    addresses: Sequence[str] | None, *, source: str, library: str
) -> Iterator[tuple[Webhooks, list[WebhookCounts]]]:
    """Webhooks that say on stderr what goes wrong; the list has what became of their messages after the block."""
    from hapvr.webhooks import Webhooks

    hooks = Webhooks(addresses or (), source=source, library=library, say=lambda text: warn([text]))
    counts: list[WebhookCounts] = []
    try:
        yield hooks, counts
    finally:
        counts += hooks.close()
        warn(
            f"webhook {one.address}: {one.delivered:,} delivered, {one.failed:,} failed, {one.dropped:,} dropped, "
            f"{one.undelivered:,} not yet delivered"
            for one in counts
        )


# --- signals ---------------------------------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """SIGTERM came: a command ends as at Ctrl-C, with another exit code."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code that a shell expects: 128 and the number of the signal.

    >>> exit_code(KeyboardInterrupt()), exit_code(Terminated())
    (130, 143)
    """
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Within, SIGTERM raises `Terminated` as Ctrl-C raises KeyboardInterrupt; a second one acts as without this."""

    def stop(number: int, _: Any) -> None:
        signal.signal(number, before)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def catch_signals() -> Iterator[Callable[[], bool]]:
    """Tells whether Ctrl-C or SIGTERM has come; a second one acts as without this."""
    stopped = threading.Event()

    def stop(number: int, _: Any) -> None:
        stopped.set()
        signal.signal(number, before[number])

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopped.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
