"""Where in TOML text a key is written, which the standard library's parser does not say."""

from __future__ import annotations

import re
from collections import Counter

_HEADER = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]")


def line_of(text: str, table: str = "", index: int = 0, key: str = "") -> int:
    """The number of a line of TOML text, from 1 on.

    Args:
        text: the TOML text.
        table: the name of a table, "" for the keys before all tables.
        index: which of the tables of that name, from 0 on.
        key: a key of that table.

    Returns:
        The line of the key; that of the table's header if the key is not on a line of its own; 1 if there is no header either.
    """
    headers: Counter[str] = Counter()
    here, found = ("", 0), 1
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            here = header[1], headers[header[1]]
            headers[header[1]] += 1
            if here == (table, index):
                found = number
        elif here == (table, index) and key and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return found
