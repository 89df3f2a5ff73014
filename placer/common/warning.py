"""Warnings that name the user's line, whatever the number of calls between it and the cause."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from placer.errors import PlacementWarning

PACKAGE_FOLDER = str(Path(__file__).parents[1]) + os.sep


def warn(text: str) -> None:
    """Gives a `PlacementWarning` for the innermost line outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PlacementWarning, stacklevel=level)
