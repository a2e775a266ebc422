"""Tables of the paper for people: as text, Markdown or LaTeX, with one's own results below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.paper.tables import MISSING, PaperTable, Result, differences

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
    if format not in FORMATS:
        raise ConfigError(f"format has no value '{format}'; {suggest(str(format), list(FORMATS))}")
    writer = {"text": _text, "markdown": _markdown, "latex": _latex}[format]
    other = table.opponent(against)
    paper: list[_Printed] = []
    for number, (line, places) in enumerate(zip(table.lines, table.places(), strict=True)):
        paper.append(_Printed(line.keys, [_percent(figure) for figure in line.figures], places, number == table.own))
        if table.baseline is not None and number != table.baseline:
            gains = differences(line, table.lines[table.baseline])
            paper.append(_below(table, f"  over line {table.baseline + 1}", gains))
    ours: list[_Printed] = []
    for result in results:
        line = result.in_columns_of(table)
        ours.append(_Printed(line.keys, [_percent(figure) for figure in line.figures], [None] * len(line.figures)))
        if other is not None:
            ours.append(_below(table, f"  against {table.name_line(other)}", differences(line, other)))
    notes = [table.note, *(f"{result.label}: {words}" for result in results for words in result.coverage)]
    return writer(table, paper, ours, [note for note in notes if note])


@dataclass(frozen=True)
class _Printed:
    """A line as words: cells are formatted figures."""

    keys: tuple[str, ...]
    cells: list[str]
    places: list[int | None]
    own: bool = False
    secondary: bool = False  # a line of differences, which belongs to the one before it


def _percent(figure: float | None) -> str:
    return MISSING if figure is None else f"{figure:.2f}"


def _below(table: PaperTable, words: str, values: Iterable[float | None]) -> _Printed:
    # Adding 0 turns -0 into 0.
    cells = [MISSING if value is None else f"{round(value, 2) + 0:+.2f}" for value in values]
    keys = (words, *[""] * (len(table.keys) - 1))
    return _Printed(keys, cells, [None] * len(cells), secondary=True)


def _text(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
    lines = [*paper, *ours]
    # Our labels and the words of a line of differences run on over the keys that they leave empty.
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
        output.append(" " * room + "".join(_over(key, count) for key, count in spans))
    output += [f"{words(table.keys):<{room}}" + "".join(_over(column.task, 1) for column in table.columns), rule]
    for number, (line, runs) in enumerate(zip(lines, running, strict=True)):
        output += [rule] if number == len(paper) else []
        cells = (f"{cell:>{_CELL - 1}}{marks[place]}" for cell, place in zip(line.cells, line.places, strict=True))
        output.append(f"{line.keys[0] if runs else words(line.keys):<{room}}" + "".join(cells))
    own = "" if table.own is None else f"the paper's own: {table.name_line(table.lines[table.own])}"
    legend = "; ".join(filter(None, ("* best, ' second best of the paper's lines" if table.marks else "", own)))
    output += ["", *([legend] if legend else []), *notes]
    return "\n".join(line.rstrip() for line in output).rstrip()


def _over(words: str, count: int) -> str:
    """A heading over `count` cells."""
    return f"{words:>{_CELL - 1}} " if count == 1 else f" {f' {words} ':-^{count * _CELL - 2}} "


def _markdown(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
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


def _latex(table: PaperTable, paper: list[_Printed], ours: list[_Printed], notes: list[str]) -> str:
    def spans(of: Any) -> str:
        groups = [(key[-1], len(list(columns))) for key, columns in groupby(table.columns, key=of)]
        words = [_tex(key) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{_tex(key)}}}" for key, n in groups]
        return " & ".join([*[""] * len(table.keys), *words]).strip() + r" \\"

    shape = "l" * len(table.keys) + "r" * len(table.columns)
    output = [r"\begin{table}", r"  \centering", rf"  \caption{{{_tex(table.caption)}}}"]
    output += [rf"  \begin{{tabular}}{{{shape}}}", r"  \toprule", f"  {spans(lambda c: (c.measure,))}"]
    output += [f"  {spans(lambda c: (c.measure, c.benchmark))}"]
    names = [*map(_tex, table.keys), *(_tex(column.task) for column in table.columns)]
    output += [f"  {' & '.join(names)} \\\\", r"  \midrule"]
    for number, line in enumerate((*paper, *ours)):
        if number == len(paper):
            output.append(r"  \midrule")
        wrap = {1: r"\textbf{%s}", 2: r"\underline{%s}", None: "%s"}
        cells = [
            wrap[place] % (f"${cell}$" if line.secondary and cell != MISSING else cell)
            for cell, place in zip(line.cells, line.places, strict=True)
        ]
        keys = [_tex(key.strip()) for key in line.keys]
        keys[0] = rf"\quad {keys[0]}" if line.secondary else keys[0]
        output.append(f"  {' & '.join([*keys, *cells])} \\\\")
    output += [r"  \bottomrule", r"  \end{tabular}", *(rf"  \par\smallskip {_tex(note)}" for note in notes)]
    return "\n".join([*output, r"\end{table}"])


def _tex(words: str) -> str:
    """Plain words for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {letter: rf"\{letter}" for letter in "&%$#_{}"}
    return "".join(special.get(letter, letter) for letter in words)
