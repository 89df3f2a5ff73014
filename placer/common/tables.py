"""Text tables with aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from placer.common.escaping import one_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = ("",)) -> str:
    """A table as text. The first column and those whose head is in `left` are aligned left, the others right.

    >>> print(table(["device", "ops", ""], [["CPU:0", "7", "all"], ["GPU:0", "113", ""]]))
    device  ops
    CPU:0     7  all
    GPU:0   113
    """
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    to_left = [k == 0 or name in left for k, name in enumerate(head)]
    return "\n".join(
        "  ".join(cell.ljust(w) if ll else cell.rjust(w) for cell, w, ll in zip(row, widths, to_left, strict=True)).rstrip()
        for row in cells
    )
