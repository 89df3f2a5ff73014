"""Moves of variables that the user did not ask for: made only where nothing else uses them, and undone if they do not help."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

from placer.tf.rewrite.taping import TapedFunction
from placer.tf.state.handle_holders import HandleHolders, watched_variables
from placer.tf.state.lent_variables import can_be_lent, end_loan, lend
from placer.tf.state.moving import move
from placer.tf.state.variables import Move, bytes_of, name_of, release_variables
from placer.tf.trace.tracing import Trace

MAX_BYTES = 256 << 20
"""The most bytes that are moved by default: a move of them takes about a tenth of a second."""

_TENSORFLOW = os.path.dirname(tf.__file__) + os.sep


def other_threads_use_tensorflow(waiting: Collection[int] = ()) -> bool:
    """Whether another Python thread runs code of TensorFlow at this moment.

    Args:
        waiting: ids of threads that are known to do nothing.
    """
    idle = {threading.get_ident(), *waiting}
    for thread, innermost in sys._current_frames().items():
        frame = None if thread in idle else innermost
        while frame is not None:
            if frame.f_code.co_filename.startswith(_TENSORFLOW):
                return True
            frame = frame.f_back
    return False


class TemporaryMoves:
    """Moves that can be undone.

    No other thread may be using the variables while they move.

    Args:
        moves: each variable once.
        trace: of the placed function for which they move. Functions of this trace do not count as other users.
    """

    def __init__(self, moves: Sequence[Move], trace: Trace) -> None:
        self._moves = moves
        self._back = [Move(each.variable, str(each.variable.device)) for each in moves]
        self._trace = trace
        self.give_back: Callable[[], None] = lambda: None
        """Called when a function that uses the variables is being traced while they are moved. It should undo the moves."""

    @property
    def are_made(self) -> bool:
        """Whether all variables are in their new places."""
        return all(each.variable.device == each.device for each in self._moves)

    @property
    def are_undone(self) -> bool:
        """Whether all variables are where they were."""
        return all(each.variable.device == each.device for each in self._back)

    def end_loan(self) -> None:
        """Lets the variables stay where they are, whatever is traced."""
        for each in self._moves:
            end_loan(each.variable)

    def release(self, function: TapedFunction) -> None:
        """Lets other plans move the variables, which stay where they are now."""
        self.end_loan()
        release_variables(function)

    def reason_against(self) -> str:
        """Why the variables should stay where they are, in words; "" if they may move."""
        if (nbytes := sum(bytes_of(each.variable) for each in self._moves)) > MAX_BYTES:
            return f"they have {nbytes >> 20} MiB, more than the {MAX_BYTES >> 20} MiB that are moved by default"
        variables = [each.variable for each in self._moves]
        if special := [name_of(variable) for variable in variables if not can_be_lent(variable)]:
            return f"{special[0]!r} is no plain tf.Variable"
        holders = HandleHolders.found(variables, watched_variables())
        for variable in variables:
            if hindrance := holders.hindrance(variable):
                return f"{hindrance} holds them"
        own = {id(body.graph) for body in self._trace.root.walk()}
        for function in holders.functions:
            graph, trace = function.graph, getattr(function.graph, "trace", None)
            if id(graph) not in own and trace is not self._trace:
                return f"{(trace or graph).name!r} holds them"
        return "a function that took one as an argument holds them" if holders.graphs else ""

    def make(self, function: TapedFunction) -> None:
        """Moves the variables. From then on no other plan moves them, since `function` relies on them.

        Raises:
            MoveError: they cannot be moved; see `are_undone`.
        """
        try:
            move(self._moves, function, "repoint", watched_variables())
        except BaseException:
            self.undo(function)
            raise
        for each in self._moves:
            lend(each.variable, self._wanted_back)

    def _wanted_back(self) -> None:
        self.give_back()

    def undo(self, function: TapedFunction) -> None:
        """Moves the variables back to where they were.

        Raises:
            MoveError: something holds one of them; see `are_made`.
        """
        back = [each for each in self._back if each.variable.device != each.device]
        self.end_loan()
        try:
            move(back, function, "repoint", watched_variables())
        finally:
            release_variables(function)
