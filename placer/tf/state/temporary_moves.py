"""Moves of variables that the user did not ask for: made only where nothing else uses them, and undone if they do not help.

Variables that have moved so are *lent*. They go back before another function that uses them is traced: it could be slower with
the variables where they are, and XLA refuses a function whose variables are on several devices.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from placer.tf import rewrite
from placer.tf._private.handles import PlainVariable
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.state.handle_holders import HandleHolders, watched_variables
from placer.tf.state.moving import move
from placer.tf.state.variables import Move, bytes_of, name_of, release_variables
from placer.tf.trace.tracing import Trace

MAX_BYTES = 256 << 20
"""The most bytes that are moved by default: a move of them takes about a tenth of a second."""

_TENSORFLOW = os.path.dirname(tf.__file__) + os.sep
_REWRITING = os.path.dirname(str(rewrite.__file__)) + os.sep


def other_threads_use_tensorflow(waiting: Collection[int] = ()) -> bool:
    """Whether another Python thread runs code of TensorFlow at this moment.

    Args:
        waiting: ids of threads that are known to do nothing.
    """
    idle = {threading.get_ident(), *waiting}
    return any(_runs(_TENSORFLOW, frame) for thread, frame in sys._current_frames().items() if thread not in idle)


class TemporaryMoves:
    """Moves that can be undone.

    No other thread may be using the variables while they move.

    Args:
        moves: each variable once.
    """

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self._back = [Move(each.variable, str(each.variable.device)) for each in moves]

    @property
    def are_made(self) -> bool:
        """Whether all variables are in their new places."""
        return all(each.variable.device == each.device for each in self._moves)

    @property
    def are_undone(self) -> bool:
        """Whether all variables are where they were."""
        return all(each.variable.device == each.device for each in self._back)

    def reason_against(self, trace: Trace) -> str:
        """Why the variables should stay where they are, in words; "" if they may move.

        Args:
            trace: of the placed function for which they would move. Functions of this trace do not count as other users.
        """
        if (nbytes := sum(bytes_of(each.variable) for each in self._moves)) > MAX_BYTES:
            return f"they have {nbytes >> 20} MiB, more than the {MAX_BYTES >> 20} MiB that are moved by default"
        variables = [each.variable for each in self._moves]
        if special := [name_of(variable) for variable in variables if type(variable) is not PlainVariable]:
            return f"{special[0]!r} is no plain tf.Variable"
        holders = HandleHolders.found(variables, watched_variables())
        for variable in variables:
            if hindrance := holders.hindrance(variable):
                return f"{hindrance} holds them"
        own = {id(body.graph) for body in trace.root.walk()}
        for function in holders.functions:
            graph, holder = function.graph, getattr(function.graph, "trace", None)
            if id(graph) not in own and holder is not trace:
                return f"{(holder or graph).name!r} holds them"
        return "a function that took one as an argument holds them" if holders.graphs else ""

    def make(self, function: TapedFunction | None = None) -> None:
        """Moves the variables. From then on no other plan moves them, if `function` relies on them.

        Raises:
            MoveError: they cannot be moved; see `are_undone`.
        """
        try:
            move(self._moves, function, "repoint", watched_variables())
        except BaseException:
            self.undo(function)
            raise

    def undo(self, function: TapedFunction | None = None) -> None:
        """Moves the variables back to where they were.

        Raises:
            MoveError: something holds one of them; see `are_made`.
        """
        back = [each for each in self._back if each.variable.device != each.device]
        self.end_loan()
        try:
            move(back, function, "repoint", watched_variables())
        finally:
            if function is not None:
                release_variables(function)

    @contextmanager
    def made(self) -> Iterator[None]:
        """Moves the variables, runs the block, and moves them back. Raises MoveError as `make` and `undo` do."""
        self.make()
        try:
            yield
        finally:
            self.undo()

    def lend(self, give_back: Callable[[], None]) -> None:
        """Calls `give_back` when another function that uses a variable is being traced. It should undo the moves."""
        for each in self._moves:
            each.variable._give_back = give_back
            each.variable.__class__ = _LentVariable

    def end_loan(self) -> None:
        """Lets the variables stay where they are, whatever is traced."""
        for each in self._moves:
            if type(each.variable) is _LentVariable:
                each.variable.__class__ = PlainVariable
                del each.variable._give_back

    def release(self, function: TapedFunction) -> None:
        """Lets other plans move the variables, which stay where they are now."""
        self.end_loan()
        release_variables(function)


class _LentVariable(PlainVariable):  # type: ignore[misc]
    """A variable that is lent. In all else it is like any other."""

    _give_back: Callable[[], None]

    @property
    def handle(self) -> Any:
        # The private copies of this package take the handles that the trace has.
        if not tf.executing_eagerly() and not _runs(_REWRITING, sys._getframe(1)):
            self._give_back()
        return self._handle

    def _read_variable_op(self, *args: Any, **kwargs: Any) -> Any:
        _ = self.handle  # before tapes begin to watch the variable
        return PlainVariable._read_variable_op(self, *args, **kwargs)  # by then it may be of this class


def _runs(folder: str, frame: FrameType | None) -> bool:
    """Whether a frame, or one that called it, runs code of a folder."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            return True
        frame = frame.f_back
    return False
