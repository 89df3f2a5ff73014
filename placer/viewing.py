"""Views by name: functions from a `Placement` (and keyword options) to text.

A package adds one by an entry point in the group "placer.views". The built-in ones are entry points too, made here so that they
are found where the package runs without being installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from placer.errors import OptionError

GROUP = "placer.views"
_BUILT_IN = (
    EntryPoint("summary", "placer.views.text:summary", GROUP),
    EntryPoint("explain", "placer.views.text:explain", GROUP),
    EntryPoint("dot", "placer.views.dot:dot", GROUP),
    EntryPoint("svg", "placer.views.picture:svg", GROUP),
)


def view(name: str) -> Callable[..., str]:
    """The view registered under `name`; OptionError listing them where there is none."""
    found = views()
    if name not in found:
        raise OptionError(f"no view is called {name!r}; there are {', '.join(found)}.")
    function: Callable[..., str] = found[name].load()
    return function


@cache
def views() -> dict[str, EntryPoint]:
    """All registered views, not loaded yet, sorted by name; a built-in keeps its name, whatever is installed."""
    return dict(sorted((entry.name, entry) for entry in (*entry_points(group=GROUP), *_BUILT_IN)))
