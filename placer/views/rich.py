"""The summary with the markup of rich."""

from __future__ import annotations

from placer.errors import OptionError
from placer.plan.placement import Placement
from placer.views.shared.terminal import coloured
from placer.views.summary import summary


def rich(placement: Placement) -> str:
    """The summary as rich's markup, which `rich.print(placement)` shows. Raises OptionError if rich is not installed."""
    try:
        return coloured(summary(placement)).markup
    except ImportError as error:
        raise OptionError("the view 'rich' is written with rich, which is not installed: pip install rich.") from error
