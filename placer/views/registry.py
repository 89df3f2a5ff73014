"""Views by name: functions from a `Placement` (and keyword options) to text.

A package adds one by an entry point in the group "placer.views"; the built-in ones are entry points too, listed here so that
they are found where the package runs without being installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from placer.errors import OptionError

GROUP = "placer.views"
BUILT_IN = {
    "summary": "placer.views.text:summary",
    "explain": "placer.views.text:explain",
    "dot": "placer.views.dot:dot",
    "svg": "placer.views.picture:svg",
}


def view(name: str) -> Callable[..., str]:
    """The view registered under `name`; OptionError listing them where there is none."""
    found = views()
    if name not in found:
        raise OptionError(f"no view is called {name!r}; there are {', '.join(found)}.")
    function: Callable[..., str] = found[name].load()
    return function


@cache
def views() -> dict[str, EntryPoint]:
    """All registered views, not loaded yet, sorted by name; an installed package's view replaces a built-in of its name."""
    found = {name: EntryPoint(name, target, GROUP) for name, target in BUILT_IN.items()}
    found |= {point.name: point for point in entry_points(group=GROUP)}
    return dict(sorted(found.items()))
