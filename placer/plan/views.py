"""The views of a Placement by name: functions from a Placement, and keyword options, to text or files.

A package adds one by an entry point in the group "placer.views". The built-in ones are entry points too, so that they are loaded
when they are drawn; they are listed here so that they exist where the package is not installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from placer.common.garbage_collection import paused_collection
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError

if TYPE_CHECKING:
    from placer.plan.placement import Placement

Drawn: TypeAlias = str | bytes | Mapping[str, bytes]
"""Text; the bytes of a file; or several files, by their paths below a folder."""

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


@cache
def views() -> dict[str, EntryPoint]:
    """All registered views, none loaded yet, sorted by name. A built-in view keeps its name, whatever is installed."""
    return dict(sorted((entry.name, entry) for entry in (*entry_points(group=GROUP), *_BUILT_IN)))


def draw(name: str, placement: Placement, **options: Any) -> Drawn:
    """Draws the view `name` of a placement.

    Raises:
        OptionError: there is no such view, or it does not take these options.
    """
    if name not in views():
        raise OptionError(f"no view is called {name!r}{did_you_mean(name, views())} There are {', '.join(views())}.")
    view: Callable[..., Drawn] = views()[name].load()
    signature = inspect.signature(view)
    try:
        signature.bind(placement, **options)
    except TypeError as error:
        takes = ", ".join(list(signature.parameters)[1:]) or "no options"
        raise OptionError(f"the view {name!r} cannot be drawn so: {error}. It takes {takes}.") from error
    with paused_collection():
        return view(placement, **options)


def write(drawn: Drawn, path: str | Path) -> None:
    """Writes a drawn view to the file `path`, or to files below the folder `path`. Raises PlanError if that fails."""
    file = path
    try:
        files = {Path(path) / name: part for name, part in drawn.items()} if isinstance(drawn, Mapping) else {Path(path): drawn}
        for file, content in files.items():
            if isinstance(drawn, Mapping):
                file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
    except (OSError, TypeError, ValueError) as error:
        raise PlanError(f"{file} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
