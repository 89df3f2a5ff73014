"""Variables that were moved unasked. They go back before another function that uses them is traced.

Such a function could be slower with the variables where they are, and XLA refuses a function whose variables are on several
devices.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import tensorflow as tf

from placer.tf import rewrite
from placer.tf._private.handles import PlainVariable

_REWRITING = os.path.dirname(str(rewrite.__file__)) + os.sep


class _LentVariable(PlainVariable):  # type: ignore[misc]
    """A variable that is lent. In all else it is like any other."""

    _give_back: Callable[[], None]

    @property
    def handle(self) -> Any:
        if not tf.executing_eagerly() and not _is_rewriting():
            self._give_back()
        return self._handle

    def _read_variable_op(self, *args: Any, **kwargs: Any) -> Any:
        _ = self.handle  # before tapes begin to watch the variable
        return PlainVariable._read_variable_op(self, *args, **kwargs)  # by then it may be of this class


def can_be_lent(variable: Any) -> bool:
    """Whether a variable is of TensorFlow's own class, so that it can become one that is lent."""
    return type(variable) is PlainVariable


def lend(variable: Any, give_back: Callable[[], None]) -> None:
    """Lends a variable that has moved.

    Args:
        variable: for which `can_be_lent` holds.
        give_back: called when another function that uses it is being traced. It should move the variable back.
    """
    variable._give_back = give_back
    variable.__class__ = _LentVariable


def end_loan(variable: Any) -> None:
    """Makes a variable like any other, wherever it is."""
    if type(variable) is _LentVariable:
        variable.__class__ = PlainVariable
        del variable._give_back


def _is_rewriting() -> bool:
    """Whether this package builds a graph from one that was traced before, with the variables' handles of that one."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_REWRITING):
            return True
        frame = frame.f_back
    return False
