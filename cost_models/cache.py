"""The user's cache folder, in which calibrations, measurements and plans are kept between processes."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

FOLDER_VARIABLE = "PLACER_CACHE"
"""Environment variable that names another folder."""

_told: set[str] = set()
"""The warnings that this process has given."""


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


def exists(path: Path) -> bool:
    """Whether there is a file or folder. Unlike `Path.exists`, it raises OSError where that cannot be found out."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def listed(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names match a pattern. A folder that cannot be read has none; that is told once."""
    try:
        return list(folder.glob(pattern)) if exists(folder) else []
    except OSError as error:
        tell_once(f"{folder} cannot be read, so its files are ignored: {error.strerror}")
        return []


def tell_once(text: str) -> None:
    """Gives a `CacheWarning`, unless this process has given it before."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, CacheWarning, stacklevel=3)
