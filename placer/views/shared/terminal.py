"""Text in colours on a terminal, if rich is installed."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from placer.common.escaping import printable

if TYPE_CHECKING:
    from rich.text import Text

_DEVICE = re.compile(r"\b([A-Z]+):(\d+)\b")
_CPUS, _OTHERS = ("blue", "cyan"), ("green", "yellow", "magenta", "red")
"""The terminal's own colours that are nearest to `placer.views.shared.colours`; they suit its background."""


def print_text(text: str) -> None:
    """Prints to standard output, in colours if it is a terminal and rich is installed."""
    if sys.stdout.isatty():
        text = printable(text)
        try:
            from rich.console import Console

            Console(soft_wrap=True).print(coloured(text))
        except ImportError:
            pass
        else:
            return
    print(text, flush=True)


def coloured(text: str) -> Text:
    """The text with devices in their colours, labels bold, notes yellow, and violated limits red."""
    from rich.text import Text

    coloured_text = Text(text)
    coloured_text.highlight_regex(r"(?m)^[a-z]+( [a-z]+)*(?=  )", "bold")
    coloured_text.highlight_regex(r"(?m)^note:.*$", "yellow")
    coloured_text.highlight_regex(r"not possible:.*", "bold red")
    for kind, index in set(_DEVICE.findall(text)):
        cycle = _CPUS if kind == "CPU" else _OTHERS
        coloured_text.highlight_regex(rf"\b{kind}:{index}\b", f"bold {cycle[int(index) % len(cycle)]}")
    return coloured_text
