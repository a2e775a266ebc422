"""A bar on stderr while something is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(unit: str = "videos", *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """What sets the bar to so many of so many. Nothing is shown if `quiet`, or where stderr is no terminal."""
    with progress_bars(quiet=quiet) as reach:
        yield lambda done, total: reach(unit, done, total)


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """What sets the bar of a named step to so many of so many; a step's bar appears when it begins."""
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
    with rich.Progress(*columns, console=console, disable=off, transient=True) as progress:

        def reach(step: str, done: int, total: int) -> None:
            now = time.perf_counter()
            if step not in begun:
                begun[step] = (progress.add_task(step, total=total or None, rate=""), now, done)
            task, start, first = begun[step]
            rate = f"{(done - first) / (now - start):.1f}/s" if done > first and now > start else ""
            progress.update(task, completed=done, total=total or None, rate=rate)

        yield reach
