"""Where what was measured on this machine is kept: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "PLACER_CACHE"
"""Environment variable that names another folder."""


def cache_folder() -> Path:
    """``$PLACER_CACHE``, else ``$XDG_CACHE_HOME/placer``, else ``~/.cache/placer``; need not exist yet."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placer"
