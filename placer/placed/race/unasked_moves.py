"""Moves of variables that no option asks for: what a placed function knows of them, and what keeps threads apart meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from placer.errors import MoveError

if TYPE_CHECKING:
    from placer.placed.race.calls import Runner
    from placer.placed.race.move_trial import MoveTrial
    from placer.tf.rewrite.taping import TapedFunction
    from placer.tf.state.temporary_moves import TemporaryMoves

MOVING_LOCK = threading.RLock()
"""Serialises planning between functions whose plans may move variables: two plans must not move the same variable at once."""
WAIT_S = 1.0
"""How long a call waits until no other one runs, so that variables can move."""


class Gate:
    """Passed by every call of a placed function, as long as its variables may move unasked.

    It counts the calls that run, and lets one thread wait until no other thread makes one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: dict[int, int] = {}
        """By id of a thread: how many calls it runs, one inside the other."""
        self._closed = False
        self._waiting: set[int] = set()

    @property
    def waiting(self) -> frozenset[int]:
        """Ids of the threads that wait to make a call."""
        return frozenset(self._waiting)

    def __enter__(self) -> None:
        """Begins a call. It waits while another thread is alone; a call inside of a call never waits."""
        me = threading.get_ident()
        with self._lock:
            calls = self._running.get(me, 0)
            if self._closed and not calls:
                self._wait(me)
            self._running[me] = calls + 1

    def __exit__(self, *raised: object) -> None:
        me = threading.get_ident()
        with self._lock:
            calls = self._running.pop(me) - 1
            if calls:
                self._running[me] = calls
            if self._closed:
                self._changed.notify_all()

    def _wait(self, me: int) -> None:
        self._waiting.add(me)
        try:
            self._changed.wait_for(lambda: not self._closed)
        finally:
            self._waiting.discard(me)

    @contextmanager
    def alone(self, timeout_s: float, own_calls: int = 1) -> Iterator[bool]:
        """Keeps other threads from making calls while the block runs; gives whether none is running any more.

        It does not wait for a thread that is alone already, nor longer than `timeout_s`: a call that runs may itself wait for
        one that has not begun.

        Args:
            timeout_s: see above.
            own_calls: how many calls of the thread itself may be running.
        """
        me = threading.get_ident()

        def others() -> int:
            return sum(self._running.values()) - min(own_calls, self._running.get(me, 0))

        with self._changed:
            closed = not self._closed
            self._closed = True
            try:
                is_alone = closed and self._changed.wait_for(lambda: not others(), timeout_s)
            except BaseException:
                self._open(closed)
                raise
            if not is_alone:
                self._open(closed)
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._changed:
                    self._open(closed)

    def _open(self, closed_here: bool) -> None:
        if closed_here:
            self._closed = False
            self._changed.notify_all()


class UnaskedMoves:
    """The state of a placed function whose variables may move unasked.

    Args:
        function: its name.
        may_move: whether they may.
        lock: of its plans.
    """

    def __init__(self, function: str, may_move: bool, lock: Any) -> None:
        self.gate: Gate | None = Gate() if may_move else None
        """Passed by all calls as long as variables may move. None: they do not, or no longer."""
        self.trial: MoveTrial | None = None
        """Gives calls to placements with variables in other places, as long as that goes on."""
        self.give_back: Callable[[], None] | None = None
        """Moves variables back that have moved and were to stay. None while there are none."""
        self.other_use = ""
        """What else uses the variables, so that they do not move, in words; "" if nothing is known of."""
        self.other_arguments = f"calls of {function} with other arguments use them"
        """Such a use: the placed function's own calls with other arguments."""
        self._lock = lock

    @contextmanager
    def alone(self, own_calls: int = 1) -> Iterator[bool]:
        """Keeps other threads from calls while the block moves variables; gives whether the variables may move now.

        Args:
            own_calls: how many calls this thread has begun in which the function does not run yet.
        """
        from placer.tf.state.temporary_moves import other_threads_use_tensorflow

        gate = self.gate or Gate()
        with gate.alone(WAIT_S, own_calls) as is_alone, ExitStack() as held:
            for lock in (self._lock, MOVING_LOCK) if is_alone else ():
                if lock.acquire(blocking=False):
                    held.callback(lock.release)
                else:
                    yield False
                    return
            yield is_alone and not other_threads_use_tensorflow(gate.waiting)

    def lend(self, moves: TemporaryMoves, run: TapedFunction, afterwards: Callable[[], None]) -> None:
        """Lets variables stay where they have moved until another function that uses them is traced; then they go back.

        Args:
            moves: that were made.
            run: the function whose calls need the variables there.
            afterwards: called when the variables have gone back.
        """
        self.gate = self.gate or Gate()

        def give_back() -> None:
            with self.alone(own_calls=0) as is_alone:
                if not is_alone:
                    moves.end_loan()
                    return
                with suppress(MoveError):  # something holds them: they stay
                    moves.undo(run)
                self.gate = self.give_back = None
                self.other_use = "other functions use them"
                afterwards()

        self.give_back = give_back
        moves.lend(give_back)

    def end_trial(self) -> bool:
        """Moves variables back that have moved for a trial. Returns False if they cannot be moved yet, since other calls run."""
        return self.trial is None or self.trial.end()

    def stop(self, other_use: str = "") -> None:
        """Lets no variables move from now on; those that were to stay in their new places do so.

        Args:
            other_use: what else uses them, in words; "" for calls with other arguments.
        """
        self.other_use = other_use or self.other_arguments
        if self.gate is not None and self.give_back is None and self.end_trial():
            self.gate = None

    def undo(self, other_use: str) -> None:
        """Moves all variables back, and lets none move from now on."""
        self.stop(other_use)
        if self.give_back is not None:
            self.give_back()

    def forget(self, alone: Runner) -> None:
        """Ends a trial whose calls are planned again; `alone` is what runs them."""
        if self.trial is not None and self.trial is alone:
            self.trial.end()
            self.abandon()

    def abandon(self) -> None:
        """Ends a trial whose variables were moved for another function, or whose calls are planned again."""
        if self.trial is not None:
            self.trial.abandon()
            self.trial = None
