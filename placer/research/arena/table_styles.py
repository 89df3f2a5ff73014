"""Tables as plain text, markdown or LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from placer.common.escaping import one_line
from placer.common.tables import table
from placer.errors import OptionError

TableStyle: TypeAlias = Literal["text", "markdown", "latex"]
STYLES: tuple[TableStyle, ...] = ("text", "markdown", "latex")
LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "µ": r"\textmu{}",
    "²": r"\textsuperscript{2}",
}
"""What LaTeX reads as a command or does not have, by character, and how it is written."""


def write_table(head: Sequence[str], rows: Sequence[Sequence[str]], style: TableStyle) -> str:
    """A table with its first column aligned left and the others right; an unnamed last column is aligned left too.

    A table in LaTeX needs the package booktabs. Raises OptionError if there is no such style.
    """
    if style == "text":
        return table(head, rows)
    if style == "markdown":
        rule = ["---", *("---" if not name else "---:" for name in head[1:])]
        return "\n".join(f"| {' | '.join(one_line(cell).replace('|', '/') for cell in row)} |" for row in [head, rule, *rows])
    if style != "latex":
        raise OptionError(f"style={style!r} must be one of {', '.join(STYLES)}.")
    columns = "l" + "".join("r" if name else "l" for name in head[1:])
    names, *lines = (" & ".join(latex(cell) for cell in row) + r" \\" for row in [head, *rows])
    return "\n".join(
        [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", names, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
    )


def heading(text: str, style: TableStyle) -> str:
    """A line above a table."""
    return {"markdown": f"### {text}", "latex": rf"\paragraph{{{latex(text)}}}"}.get(style, text)


def sentence(text: str, style: TableStyle) -> str:
    """A line below a table."""
    return latex(text) if style == "latex" else text


def latex(text: str) -> str:
    """A text of one line as LaTeX shows it."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], one_line(text))
