"""Text in colours where a terminal shows it and rich is installed; as it is elsewhere."""

from __future__ import annotations

import re
import sys

_DEVICE = re.compile(r"\b([A-Z]+):(\d+)\b")
_CPUS, _OTHERS = ("blue", "cyan"), ("green", "yellow", "magenta", "red")
"""The terminal's own colours, nearest to those of `placer.views.colours`, so that they suit its background."""


def show(text: str) -> None:
    """Prints to standard output: devices in their colours, what labels a line bold, notes and what is infeasible told apart."""
    if not sys.stdout.isatty():
        print(text, flush=True)
        return
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(text, flush=True)
        return
    told = Text(text)
    told.highlight_regex(r"(?m)^[a-z]+( [a-z]+)*(?=  )", "bold")
    told.highlight_regex(r"(?m)^note:.*$", "yellow")
    told.highlight_regex(r"\b(?:INFEASIBLE|UNKNOWN)\b|exceeds the limit.*", "bold red")
    for kind, index in set(_DEVICE.findall(text)):
        turn = _CPUS if kind == "CPU" else _OTHERS
        told.highlight_regex(rf"\b{kind}:{index}\b", f"bold {turn[int(index) % len(turn)]}")
    Console(soft_wrap=True).print(told)
