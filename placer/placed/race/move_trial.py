"""Real calls that time a function with its variables in other places, after a race has found what is fastest without that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from placer.errors import MoveError
from placer.placed.race.calls import Runner, first_line
from placer.placed.race.sequential_test import WARM_UP_CALLS, SequentialTest
from placer.plan.verdict import TimedCandidate, Verdict

if TYPE_CHECKING:
    from placer.placed.race.candidates import Candidate
    from placer.tf.state.temporary_moves import TemporaryMoves

FIRST_CALLS = 8
"""Calls before the trial is planned: a program that makes fewer pays nothing for it."""
FIXED_CALLS = WARM_UP_CALLS + 5
"""Timed calls with the variables where they are, just before they move. The first ones do not count, as in a race."""
MAX_ATTEMPTS = 20
"""How many calls try to find a moment at which no other one runs, so that variables can move."""
MIN_GAIN = 0.15
"""Share of the step time that variables in other places must gain, predicted and measured, to be moved there."""
RETRY_CALLS = 8
"""Of this many calls, one tries to move variables back if that was not possible at once."""

State = Literal["first calls", "planning", "timing", "ready", "moving", "moved", "returning", "over"]


@dataclass(frozen=True, eq=False)
class MoveChoice:
    """Placements with the variables in the same other places, and the moves to these."""

    candidates: Sequence[Candidate]
    runners: Mapping[str, Any]
    """By name of a candidate: the function that runs it."""
    moves: TemporaryMoves

    @property
    def first(self) -> Any:
        """The function that relies on the variables' places while they are moved."""
        return next(iter(self.runners.values()))


@dataclass(frozen=True)
class TrialOwner:
    """What a `MoveTrial` needs of the function whose calls it gets."""

    choose: Callable[[], MoveChoice | None]
    """Plans the trial; None if there is nothing to try. May raise PlacerError."""
    reason_against: Callable[[MoveChoice], str]
    """Why variables should stay where they are, in words; "" if they may move. Called when no other call runs."""
    alone: Callable[[int], AbstractContextManager[bool]]
    """See `UnaskedMoves.alone`."""
    keep: Callable[[MoveChoice, Verdict, Candidate], None]
    """Called if the variables stay where they have moved, with the candidate that is used."""
    plan_again: Callable[[], None]
    """Called if some variables are in other places than any plan has them."""
    leave: Callable[[MoveChoice | None, Verdict | None, str], None]
    """Called if the variables are where they were: with what was to be tried, the verdict of race and trial if there is one, and
    the reason if no trial was made."""


class MoveTrial:
    """Calls of one signature while variables may move.

    The first calls run as before. Then the trial is planned. A block of calls is timed with the variables where they are. If
    nothing else uses the variables, they move, and a block of calls is timed there, by the same sequential test as in a race.
    They stay if the fastest takes less by the share `MIN_GAIN`, and else they are moved back.

    Args:
        fixed: what is fastest with the variables where they are.
        run: the function that runs it.
        plain: the function that TensorFlow runs, wherever the variables are.
        before: the verdict of the race; None if there was none.
        repeatable: whether a call changes nothing, so that a call that failed can be made again.
        owner: see `TrialOwner`.
    """

    def __init__(
        self,
        fixed: Candidate,
        run: Runner,
        plain: Runner,
        before: Verdict | None,
        repeatable: bool,
        owner: TrialOwner,
    ) -> None:
        self._fixed, self._run, self._plain = fixed, run, plain
        self._before, self._repeatable, self._owner = before, repeatable, owner
        self._state: State = "first calls"
        self._first_calls = FIRST_CALLS if before is None else 0
        self._attempts = 0
        self._why = ""
        self._prepared_s = 0.0
        """What planning the trial and moving variables took, apart from the timed calls."""
        self._choice: MoveChoice | None = None
        self._places: list[str] = []
        """Where the results are needed."""
        self._test = SequentialTest([fixed.name])
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._begins("first calls", "planning"):
            self._plan()
        if self._begins("ready", "moving"):
            self._try_to_move()
        if self._state == "returning" and self._attempts % RETRY_CALLS == 0:
            self._try_to_return()
        with self._lock:
            state, run = self._state, self._run
            name = self._next_moved() if state == "moved" else ""
            self._first_calls -= 1
            self._attempts += state == "returning"
        if name:
            return self._moved_call(name, args, kwargs)
        if state == "timing":
            return self._timed_call(args, kwargs)
        return (self._plain if state == "returning" else run)(*args, **kwargs)

    def end(self, own_calls: int = 1) -> bool:
        """Ends the trial if variables have moved for it. Returns False if they cannot be moved back yet.

        Args:
            own_calls: how many calls this thread has begun in which the function does not run yet.
        """
        if self._state == "moved":
            self._return("other uses of the variables began", own_calls)
        elif self._state == "returning":
            self._try_to_return(own_calls)
        return self._state not in ("moving", "moved", "returning")

    def _end_for_trace(self) -> None:
        self.end(own_calls=0)

    def abandon(self) -> None:
        """Ends the trial because the variables were moved for another function. They stay where they are."""
        with self._lock:
            self._state, self._run = "over", self._plain
        if self._choice is not None:
            self._choice.moves.release(self._choice.first)

    # -- before the move -------------------------------------------------------------------------------------------

    def _begins(self, state: State, next_state: State) -> bool:
        """Whether this call is the one that does what comes after a state."""
        with self._lock:
            if self._state != state or (state == "first calls" and self._first_calls > 0):
                return False
            self._state = next_state
            return True

    def _plan(self) -> None:
        choice = None
        try:
            with self._preparing():
                choice = self._owner.choose()
        except Exception:
            pass  # there is no plan with variables in other places, or it cannot be applied
        except BaseException:
            self._state = "first calls"
            raise
        if choice is None:
            self._leave(None, "")
            return
        with self._lock:
            self._choice = choice
            self._test = SequentialTest([self._fixed.name, *(candidate.name for candidate in choice.candidates)])
            self._state = "timing"

    def _timed_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        from placer.tf.run.timing import needed_places, timed_call

        results, seconds = timed_call(self._run, args, kwargs)
        self._places = needed_places(results, args, kwargs)
        with self._lock:
            if self._state == "timing":
                self._test.add(self._fixed.name, seconds)
                if len(self._test.entrants[self._fixed.name].seconds) >= FIXED_CALLS:
                    self._state = "ready"
        return results

    def _try_to_move(self) -> None:
        """Moves the variables if no other thread and nothing else uses them. The state is then "moved"."""
        choice = self._choice
        assert choice is not None
        state: State = "ready"
        reason = ""
        try:
            with self._owner.alone(1) as is_alone:
                self._attempts += 1
                if is_alone:
                    reason = self._owner.reason_against(choice)
                    if not reason:
                        with self._preparing():
                            choice.moves.make(choice.first)
                        choice.moves.lend(self._end_for_trace)
                        state = "moved"
                elif self._attempts >= MAX_ATTEMPTS:
                    reason = "other threads use TensorFlow all the time"
        except MoveError as error:
            reason = first_line(error)
            if not choice.moves.are_undone:
                self._lose()
                return
        finally:
            self._state = state
        if reason:
            self._attempts = 0
            self._leave(None, reason)

    # -- after the move --------------------------------------------------------------------------------------------

    def _next_moved(self) -> str:
        """The candidate that runs the next call with the variables moved."""
        assert self._choice is not None
        while not self._test.end:
            if (name := self._test.next()) != self._fixed.name:
                return name
        return min(self._choice.runners, key=lambda name: self._test.entrants[name].median_s)

    def _moved_call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        from placer.tf.run.timing import timed_call

        assert self._choice is not None
        try:
            results, seconds = timed_call(self._choice.runners[name], args, kwargs, self._places)
        except Exception as error:
            self._test.entrants[name].outcome = f"failed: {first_line(error)}"
            self._return(f"{name} failed")
            if self._repeatable:
                return self(*args, **kwargs)
            raise
        with self._lock:
            if self._state == "moved":
                self._test.add(name, seconds)
            is_over = self._state == "moved" and bool(self._test.end)
        if is_over:
            self._decide()
        return results

    def _decide(self) -> None:
        winner = self._test.winner(self._fixed.name, MIN_GAIN)
        if winner == self._fixed.name:
            self._return("")
        else:
            self._keep("moved", winner)

    def _keep(self, state: State, name: str, why: str = "") -> None:
        """Lets the variables stay where they have moved, unless another thread has left this state already."""
        choice = self._choice
        assert choice is not None
        with self._lock:
            if self._state != state:
                return
            self._state, self._run = "over", choice.runners[name]
        candidate = next(candidate for candidate in choice.candidates if candidate.name == name)
        self._owner.keep(choice, self._verdict(name, why), candidate)

    def _return(self, why: str, own_calls: int = 1) -> None:
        """Moves variables back, now or, while other calls run, in a later call.

        Args:
            why: why the trial ended, in words; "" if its test ended.
            own_calls: see `end`.
        """
        if self._begins("moved", "returning"):
            self._why, self._attempts = why, 1
            self._try_to_return(own_calls)

    def _try_to_return(self, own_calls: int = 1) -> None:
        choice = self._choice
        assert choice is not None
        try:
            with self._owner.alone(own_calls) as is_alone:
                if not is_alone or self._state != "returning":
                    return
                with self._preparing():
                    choice.moves.undo(choice.first)
                self._state = "over"
        except MoveError as error:
            if choice.moves.are_made:
                fastest = min(choice.runners, key=lambda name: self._test.entrants[name].median_s)
                self._keep("returning", fastest, f"the variables cannot be moved back: {first_line(error)}")
                return
            if not choice.moves.are_undone:
                self._lose()
                return
        self._leave(self._verdict(self._fixed.name, self._why), "")

    def _lose(self) -> None:
        """Ends the trial with some variables here and some there, which happens if TensorFlow refuses memory for a copy."""
        self.abandon()
        self._owner.plan_again()

    def _leave(self, verdict: Verdict | None, reason: str) -> None:
        self._state = "over"
        if verdict is None and self._before is not None:
            verdict = replace(self._before, cost_s=self._before.cost_s + self._prepared_s)
        self._owner.leave(self._choice, verdict, reason)

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self._prepared_s += perf_counter() - started

    def _verdict(self, used: str, why: str) -> Verdict:
        """The verdict of the race with the candidates of the trial."""
        assert self._choice is not None
        earlier = () if self._before is None else self._before.candidates
        rows = {row.name: row for row in earlier}
        for candidate in (self._fixed, *self._choice.candidates):
            entrant, known = self._test.entrants[candidate.name], rows.get(candidate.name)
            median_ns = round(entrant.median_s * 1e9) if entrant.seconds else 0
            outcome = "" if candidate.name == used else entrant.outcome or f"gains less than {MIN_GAIN:.0%}"
            row = TimedCandidate(candidate.name, candidate.predicted_ns, median_ns, len(entrant.seconds), outcome)
            rows[candidate.name] = row if known is None else replace(row, calls=known.calls + row.calls)
        timed = sorted(rows.values(), key=lambda row: row.median_ns or float("inf"))
        cost_s = self._prepared_s + self._test.cost_s(used) + (0.0 if self._before is None else self._before.cost_s)
        return Verdict(tuple(timed), used, why or self._test.end, cost_s)
