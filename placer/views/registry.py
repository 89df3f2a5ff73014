"""Views by name: functions from a `Placement` (and keyword options) to what can be shown or written.

A package adds one by an entry point in the group "placer.views". The built-in ones are entry points too, made here so that they
are found where the package runs without being installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeAlias

from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError

Drawn: TypeAlias = str | bytes | Mapping[str, bytes]
"""Text; the bytes of a file; or files, by their paths below a folder."""

GROUP = "placer.views"
_BUILT_IN = (
    EntryPoint("summary", "placer.views.text:summary", GROUP),
    EntryPoint("rich", "placer.views.terminal:rich", GROUP),
    EntryPoint("explain", "placer.views.text:explain", GROUP),
    EntryPoint("ops", "placer.views.listing:ops", GROUP),
    EntryPoint("dot", "placer.views.dot:dot", GROUP),
    EntryPoint("svg", "placer.views.picture:svg", GROUP),
    EntryPoint("html", "placer.views.report:html", GROUP),
    EntryPoint("notebook", "placer.views.notebook:notebook", GROUP),
    EntryPoint("tensorboard", "placer.views.tensorboard:tensorboard", GROUP),
    EntryPoint("netron", "placer.views.graphdef:netron", GROUP),
    EntryPoint("timeline", "placer.views.timeline:timeline", GROUP),
    EntryPoint("json", "placer.views.graphs:plan_json", GROUP),
    EntryPoint("graphml", "placer.views.graphs:graphml", GROUP),
)


def view(name: str) -> Callable[..., Drawn]:
    """The view registered under `name`; OptionError listing them where there is none."""
    found = views()
    if name not in found:
        raise OptionError(f"no view is called {name!r}{did_you_mean(name, found)} There are {', '.join(found)}.")
    function: Callable[..., Drawn] = found[name].load()
    return function


@cache
def views() -> dict[str, EntryPoint]:
    """All registered views, not loaded yet, sorted by name; a built-in keeps its name, whatever is installed."""
    return dict(sorted((entry.name, entry) for entry in (*entry_points(group=GROUP), *_BUILT_IN)))


def write(drawn: Drawn, path: str | Path) -> None:
    """Writes what a view made: a file, or files below the folder `path`. Raises PlanError where that cannot be."""
    file = path
    try:
        files = {Path(path) / name: part for name, part in drawn.items()} if isinstance(drawn, Mapping) else {Path(path): drawn}
        for file, content in files.items():
            if isinstance(drawn, Mapping):
                file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
    except (OSError, TypeError, ValueError) as error:
        raise PlanError(f"{file} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
