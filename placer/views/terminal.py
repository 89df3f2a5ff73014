"""Text in colours, by rich, where that is installed."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from placer.errors import OptionError

if TYPE_CHECKING:
    from rich.text import Text

    from placer.plan.placement import Placement

_DEVICE = re.compile(r"\b([A-Z]+):(\d+)\b")
_CPUS, _OTHERS = ("blue", "cyan"), ("green", "yellow", "magenta", "red")
"""The terminal's own colours, nearest to those of `placer.views.colours`, so that they suit its background."""


def print_text(text: str) -> None:
    """Prints to standard output: in colours on a terminal where rich is installed, as it is elsewhere."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console

            Console(soft_wrap=True).print(coloured(text))
        except ImportError:
            pass
        else:
            return
    print(text, flush=True)


def coloured(text: str) -> Text:
    """Devices in their colours, what labels a line bold, notes and what does not fit told apart."""
    from rich.text import Text

    told = Text(text)
    told.highlight_regex(r"(?m)^[a-z]+( [a-z]+)*(?=  )", "bold")
    told.highlight_regex(r"(?m)^note:.*$", "yellow")
    told.highlight_regex(r"\b(?:INFEASIBLE|UNKNOWN)\b|exceeds the limit.*", "bold red")
    for kind, index in set(_DEVICE.findall(text)):
        turn = _CPUS if kind == "CPU" else _OTHERS
        told.highlight_regex(rf"\b{kind}:{index}\b", f"bold {turn[int(index) % len(turn)]}")
    return told


def rich(placement: Placement) -> str:
    """The summary as rich's markup, which `rich.print(placement)` shows. Raises OptionError where rich is not installed."""
    from placer.views.text import summary

    try:
        return coloured(summary(placement)).markup
    except ImportError as error:
        raise OptionError("the view 'rich' is written with rich, which is not installed: pip install rich.") from error
