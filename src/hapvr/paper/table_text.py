"""The paper's tables as text, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.paper.tables import MISSING, PaperTable, Result, compute_differences

Format: TypeAlias = Literal["text", "markdown", "latex"]
FORMATS = ("text", "markdown", "latex")
_CELL = 8  # characters of a cell of a text table


def render(
    table: PaperTable, results: Sequence[Result] = (), *, format: Format = "text", against: str | None = None
) -> str:
    """A table for people, the results below its lines, each with its differences to a line of the paper.

    Args:
        table: of the paper.
        results: what was measured here.
        format: "text", "markdown", or "latex" (with booktabs).
        against: what results are compared with, the first key of a line or "line 3"; the paper's own line if None.
    """
    require_format(format, FORMATS)
    writer = {"text": _write_text, "markdown": _write_markdown, "latex": _write_latex}[format]
    other = table.find_opponent(against)
    paper: list[_Printed] = []
    for number, (line, places) in enumerate(zip(table.lines, table.rank_figures(), strict=True)):
        paper.append(
            _Printed(line.keys, [format_percent(figure) for figure in line.figures], places, number == table.own)
        )
        if table.baseline is not None and number != table.baseline:
            gains = compute_differences(line, table.lines[table.baseline])
            paper.append(_print_differences(table, f"  over line {table.baseline + 1}", gains))
    ours: list[_Printed] = []
    for result in results:
        line = result.to_line(table)
        cells = [format_percent(figure) for figure in line.figures]
        ours.append(_Printed(line.keys, cells, [None] * len(cells)))
        if other is not None:
            words = f"  against {table.name_line(other)}"
            ours.append(_print_differences(table, words, compute_differences(line, other)))
    notes = [table.note, *(f"{result.label}: {words}" for result in results for words in result.coverage)]
    return writer(table, paper, ours, [note for note in notes if note])


def require_format(format: str, known: Sequence[str]) -> None:
    """Raise `ConfigError` unless tables can be printed so."""
    if format not in known:
        raise ConfigError(f"format has no value '{format}'; {suggest(str(format), list(known))}")


def format_percent(figure: float | None) -> str:
    """A percentage as the paper prints it."""
    return MISSING if figure is None else f"{figure:.2f}"


@dataclass(frozen=True)
class _Printed:
    """A line as words: cells are formatted figures."""

    keys: tuple[str, ...]
    cells: list[str]
    places: list[int | None]
    own: bool = False
    secondary: bool = False  # a line of differences, which belongs to the one before it


def _print_differences(table: PaperTable, words: str, values: Iterable[float | None]) -> _Printed:
    # Adding 0 turns -0 into 0.
    cells = [MISSING if value is None else f"{round(value, 2) + 0:+.2f}" for value in values]
    keys = (words, *[""] * (len(table.keys) - 1))
    return _Printed(keys, cells, [None] * len(cells), secondary=True)


def _write_text(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
    lines = [*paper, *ours]
    # Our labels and the words of a line of differences continue over the keys that they leave empty.
    running = [len(table.keys) > 1 and not any(line.keys[1:]) for line in lines]
    headings = [table.keys, *(line.keys for line, runs in zip(lines, running, strict=True) if not runs)]
    widths = [max(map(len, keys)) + 2 for keys in zip(*headings, strict=True)]
    room = max(sum(widths), *(len(line.keys[0]) + 2 for line in lines))
    rule = "-" * (room + _CELL * len(table.columns))
    marks = {1: "*", 2: "'", None: " "}

    def words(keys: Sequence[str]) -> str:
        return "".join(f"{key:<{width}}" for key, width in zip(keys, widths, strict=True))

    output = [f"Table {table.number}, {table.name}: {table.caption}", ""]
    for of in (lambda column: (column.measure,), lambda column: (column.measure, column.benchmark)):
        spans = ((key[-1], len(list(columns))) for key, columns in groupby(table.columns, key=of))
        output.append(" " * room + "".join(_format_heading(key, count) for key, count in spans))
    tasks = "".join(_format_heading(column.task, 1) for column in table.columns)
    output += [f"{words(table.keys):<{room}}{tasks}", rule]
    for number, (line, runs) in enumerate(zip(lines, running, strict=True)):
        output += [rule] if number == len(paper) else []
        cells = (f"{cell:>{_CELL - 1}}{marks[place]}" for cell, place in zip(line.cells, line.places, strict=True))
        output.append(f"{line.keys[0] if runs else words(line.keys):<{room}}" + "".join(cells))
    own = "" if table.own is None else f"the paper's own: {table.name_line(table.lines[table.own])}"
    legend = "; ".join(filter(None, ("* best, ' second best of the paper's lines" if table.marks else "", own)))
    output += ["", *([legend] if legend else []), *notes]
    return "\n".join(line.rstrip() for line in output).rstrip()


def _format_heading(words: str, count: int) -> str:
    """A heading over `count` cells."""
    return f"{words:>{_CELL - 1}} " if count == 1 else f" {f' {words} ':-^{count * _CELL - 2}} "


def _write_markdown(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
    head = [*table.keys, *map(str, table.columns)]
    output = [f"Table {table.number}. {table.caption}", "", f"| {' | '.join(head)} |"]
    output.append(f"|{' --- |' * len(table.keys)}{' ---: |' * len(table.columns)}")
    for line in (*paper, *ours):
        wrap = {1: "**{}**", 2: "_{}_", None: "{}"}
        cells = [wrap[place].format(cell) for cell, place in zip(line.cells, line.places, strict=True)]
        keys = [key.strip().replace("|", "\\|") for key in line.keys]
        keys[0] = f"**{keys[0]}**" if line.own else keys[0]
        output.append(f"| {' | '.join([*keys, *cells])} |")
    for note in notes:
        output += ["", note]
    return "\n".join(output)


def _write_latex(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
    def spans(of: Any) -> str:
        groups = [(key[-1], len(list(columns))) for key, columns in groupby(table.columns, key=of)]
        words = [
            _escape_tex(key) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{_escape_tex(key)}}}" for key, n in groups
        ]
        return " & ".join([*[""] * len(table.keys), *words]).strip() + r" \\"

    shape = "l" * len(table.keys) + "r" * len(table.columns)
    output = [r"\begin{table}", r"  \centering", rf"  \caption{{{_escape_tex(table.caption)}}}"]
    output += [rf"  \begin{{tabular}}{{{shape}}}", r"  \toprule", f"  {spans(lambda c: (c.measure,))}"]
    output += [f"  {spans(lambda c: (c.measure, c.benchmark))}"]
    names = [*map(_escape_tex, table.keys), *(_escape_tex(column.task) for column in table.columns)]
    output += [f"  {' & '.join(names)} \\\\", r"  \midrule"]
    for number, line in enumerate((*paper, *ours)):
        if number == len(paper):
            output.append(r"  \midrule")
        wrap = {1: r"\textbf{%s}", 2: r"\underline{%s}", None: "%s"}
        cells = [
            wrap[place] % (f"${cell}$" if line.secondary and cell != MISSING else cell)
            for cell, place in zip(line.cells, line.places, strict=True)
        ]
        keys = [_escape_tex(key.strip()) for key in line.keys]
        keys[0] = rf"\quad {keys[0]}" if line.secondary else keys[0]
        output.append(f"  {' & '.join([*keys, *cells])} \\\\")
    output += [r"  \bottomrule", r"  \end{tabular}", *(rf"  \par\smallskip {_escape_tex(note)}" for note in notes)]
    return "\n".join([*output, r"\end{table}"])


def _escape_tex(words: str) -> str:
    """Plain words for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {letter: rf"\{letter}" for letter in "&%$#_{}"}
    return "".join(special.get(letter, letter) for letter in words)
