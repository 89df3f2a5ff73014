"""Tables of the pages that benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: str, rows: Iterable[str]) -> str:
    """A Markdown table. The cells of the head, and of each row, have " | " between them."""
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + "---|" * columns, *(f"| {row} |" for row in rows)])
