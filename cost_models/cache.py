"""The user's cache folder, in which calibrations and measurements are kept between processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

FOLDER_VARIABLE = "PLACER_CACHE"
"""Environment variable that names another folder."""


class CacheWarning(UserWarning):
    """A file in the cache folder, or part of it, cannot be used."""


def cache_folder() -> Path:
    """``$PLACER_CACHE``, else ``$XDG_CACHE_HOME/placer``, else ``~/.cache/placer``. It need not exist yet.

    For a user without a home it is below the folder for temporary files.
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(os.path.expanduser(named))
    if xdg_folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg_folder) / "placer"
    try:
        return Path.home() / ".cache" / "placer"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"placer-{os.getuid()}"
