"""Warnings that name the user's line, whatever the number of calls between it and the cause."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from placer.common.escaping import printable
from placer.errors import PlacementWarning

PACKAGE_FOLDER = str(Path(__file__).parents[1]) + os.sep
OTHER_FILES = (
    contextlib.__file__,  # has a frame for each decorator that is made of a context manager
    *(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("tensorflow", "keras")),
    "__autograph_generated_file",
)
"""Parts of the paths of other files that are not the user's."""


_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Around the making of another plan of a function, whose first plan gave the same warnings."""
    before = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(before)


def warn(text: str) -> None:
    """Gives a `PlacementWarning` for the innermost line that is the user's: not of this package, TensorFlow or Keras."""
    if _is_quiet.get():
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_skipped(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(text), PlacementWarning, stacklevel=level)


def _is_skipped(file: str) -> bool:
    return file.startswith(PACKAGE_FOLDER) or any(part in file for part in OTHER_FILES)
