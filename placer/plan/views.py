"""The views of a Placement by name: functions from a Placement, and keyword options, to text or files.

Each module of `placer.views` is a built-in view: the function of the module's name draws it. A package adds views by entry points
in the group "placer.views". A view is loaded when it is first drawn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from placer.common.garbage_collection import paused_collection
from placer.common.plugins import load
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError

if TYPE_CHECKING:
    from placer.plan.placement import Placement

Drawn: TypeAlias = str | bytes | Mapping[str, bytes]
"""Text; the bytes of a file; or several files, by their paths below a folder."""

GROUP = "placer.views"


@cache
def views() -> dict[str, EntryPoint]:
    """All registered views, none loaded yet, sorted by name. A built-in view keeps its name, whatever is installed."""
    modules = (file.name.removesuffix(".py") for file in resources.files(GROUP).iterdir() if file.name.endswith(".py"))
    built_in = (EntryPoint(name, f"{GROUP}.{name}:{name}", GROUP) for name in modules if name != "__init__")
    return dict(sorted((entry.name, entry) for entry in (*entry_points(group=GROUP), *built_in)))


def draw(name: str, placement: Placement, **options: Any) -> Drawn:
    """Draws the view `name` of a placement.

    Raises:
        OptionError: there is no such view, it cannot be loaded, it does not take these options, or it draws neither text
            nor bytes nor files.
    """
    if name not in views():
        raise OptionError(f"no view is called {name!r}{did_you_mean(name, views())} There are {', '.join(views())}.")
    view: Callable[..., Drawn] = load(views()[name], "view")
    signature = inspect.signature(view)
    try:
        signature.bind(placement, **options)
    except TypeError as error:
        takes = ", ".join(list(signature.parameters)[1:]) or "no options"
        raise OptionError(f"the view {name!r} cannot be drawn so: {error}. It takes {takes}.") from error
    with paused_collection():
        drawn = view(placement, **options)
    if not isinstance(drawn, str | bytes | Mapping):
        raise OptionError(f"the view {name!r} returned a value of type {type(drawn).__name__}, not text, bytes or files.")
    return drawn


def write(drawn: Drawn, path: str | Path) -> None:
    """Writes a drawn view to the file `path`, or to files below the folder `path`. Raises PlanError if that fails."""
    from cost_models.files import write_whole

    file = path
    try:
        files = {Path(path) / name: part for name, part in drawn.items()} if isinstance(drawn, Mapping) else {Path(path): drawn}
        for file, content in files.items():
            if isinstance(drawn, Mapping):
                file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, content.encode() if isinstance(content, str) else content)
    except (OSError, TypeError, ValueError) as error:
        raise PlanError(f"{file} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
