"""Candidates of one function, timed in turns on given arguments, with its variables put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from placer.errors import MoveError
from placer.placed.race.calls import first_line
from placer.placed.race.sequential_test import FAR_SLOWER, MIN_GAIN, WARM_UP_CALLS, SequentialTest
from placer.placed.race.unasked_moves import MOVING_LOCK
from placer.plan.verdict import DEFAULT, TimedCandidate

if TYPE_CHECKING:
    from placer.plan.call_plan import CallPlan
    from placer.tf.run.compiling import CompiledFunction
    from placer.tf.state.variables import Move

GAIN_OF_CHANGES = 0.05
"""Share of the step time that compiling, or other places of variables, must gain to be used. Both change more than a placement
does."""
MAX_CONFIRMED, CONFIRM_RATIO = 3, 1.3
"""At most this many candidates are timed once more at the end, if they are within this ratio of the fastest."""
CONFIRM_S, MIN_CALLS, MAX_CALLS = 0.5, 3, 50
"""How long a candidate is timed alone, in seconds, and limits of its number of calls."""


@dataclass(eq=False)
class Entrant:
    """A candidate that can be called, and its times."""

    name: str
    plan: CallPlan
    """The plan that it runs by. For a compiled function: the plan of those calls that cannot run compiled."""
    run: Callable[..., Any]
    moves: Sequence[Move] = ()
    """The variables that it needs in other places than they are in."""
    compiled: CompiledFunction | None = None
    """What it runs if it is the compiled function."""
    seconds: list[float] = field(default_factory=list)
    """Times that count."""
    calls: int = 0
    outcome: str = ""
    """Why it was not timed, or not to the end."""

    @property
    def median_s(self) -> float:
        """Median of its times; infinite without any."""
        return median(self.seconds) if self.seconds else float("inf")

    @property
    def site(self) -> frozenset[tuple[int, str]]:
        """Where it needs variables that have to move, as ids of variables and devices."""
        return frozenset((id(move.variable), move.device) for move in self.moves)

    @contextmanager
    def variables_moved(self) -> Iterator[None]:
        """Moves variables to where it needs them, runs the block, and moves them back.

        No other thread may call a function that uses them.

        Raises:
            MoveError: they cannot be moved, and are where they were; or they cannot be moved back.
        """
        from placer.tf.state.temporary_moves import TemporaryMoves

        if not self.moves:
            yield
            return
        with MOVING_LOCK, TemporaryMoves(self.moves).made():
            yield

    def row(self) -> TimedCandidate:
        """Its row of a verdict."""
        predicted_ns = 0 if self.compiled else self.plan.placement.step_time_ns
        return TimedCandidate(
            self.name, predicted_ns, round(1e9 * self.median_s) if self.seconds else 0, self.calls, self.outcome
        )


class Contest:
    """Times candidates on the arguments of one call.

    Args:
        concrete: the plain ConcreteFunction, for its variables.
        args, kwargs: of the calls.
        left_s: gives the seconds that are left.
        race_s: the most seconds that a race may take beyond as many calls of its fastest candidate; in all, twice as many.
        report: called with the name of the candidate that is called next.
    """

    def __init__(
        self,
        concrete: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        left_s: Callable[[], float],
        race_s: float,
        report: Callable[[str], None],
    ) -> None:
        self.entrants: dict[str, Entrant] = {}
        """By name, in the order in which they were added."""
        self._concrete, self._args, self._kwargs = concrete, args, kwargs
        self.left_s, self._race_s, self.report = left_s, race_s, report
        self._places: list[str] | None = None
        """Where the results are needed; None before the first call of TensorFlow's default."""

    @property
    def timed(self) -> list[Entrant]:
        """Those with times, the fastest first."""
        return sorted((entrant for entrant in self.entrants.values() if entrant.seconds), key=lambda e: e.median_s)

    def race(self, names: Sequence[str]) -> None:
        """Times candidates that need variables in the same places: one alone, or several in turns until the fastest is known.

        The first two are timed even if no time is left. Where variables cannot be moved, the candidates have no times.
        """
        try:
            if len(names) == 1:
                self._time_alone(self.entrants[names[0]], WARM_UP_CALLS)
            else:
                self._time_in_turns(names)
        except MoveError as error:
            for name in names:
                self.entrants[name].outcome = f"failed: {first_line(error)}"

    def _time_in_turns(self, names: Sequence[str]) -> None:
        test = SequentialTest(list(names), max_excess_s=self._race_s)
        enough_s = max(0.0, self.left_s() - 2 * self._race_s)
        with self._ready(self.entrants[names[0]]):
            while not test.end:
                is_timed = all(test.entrants[name].timed or test.entrants[name].outcome for name in names[:2])
                if is_timed and self.left_s() <= enough_s:
                    break
                name = test.next()
                seconds = self._call(self.entrants[name])
                if seconds is not None:
                    test.add(name, seconds)
                elif len(test.racing()) == 1:
                    break
                else:
                    test.drop(name, self.entrants[name].outcome)
        for name in names:
            entrant, raced = self.entrants[name], test.entrants[name]
            if not entrant.outcome.startswith("failed"):
                entrant.seconds += raced.timed or raced.seconds[-1:]
                entrant.outcome = raced.outcome or ("" if raced.seconds else "not tried: the time was used up")

    def confirm(self) -> None:
        """Times the fastest candidates once more, in two turns: those that need variables elsewhere were not timed in turns."""
        close = [e for e in self.timed[:MAX_CONFIRMED] if e.median_s <= CONFIRM_RATIO * self.timed[0].median_s]
        if len({entrant.site for entrant in close}) > 1:
            for entrant in (*close, *reversed(close)):
                if self.left_s() > 0:
                    self._time_alone(entrant, 1)

    def chosen(self) -> Entrant:
        """The candidate to use: the fastest, unless a simpler one takes nearly as long."""
        fastest, *_ = timed = self.timed
        placements = [entrant for entrant in timed if not entrant.compiled]
        simpler = [(entrant, MIN_GAIN) for entrant in timed if entrant.name == DEFAULT]
        simpler += [(entrant, GAIN_OF_CHANGES) for entrant in placements if not entrant.moves][:1]
        simpler += [(entrant, GAIN_OF_CHANGES) for entrant in placements[:1]]
        return next((e for e, gain in simpler if fastest.median_s > (1 - gain) * e.median_s), fastest)

    def placement_beside(self, entrant: Entrant) -> Entrant:
        """The fastest placement with variables where a compiled candidate has them; the candidate itself if it is a placement."""
        placements = (other for other in self.timed if not other.compiled and other.site == entrant.site)
        return next(placements, entrant) if entrant.compiled else entrant

    def _time_alone(self, entrant: Entrant, warm_up_calls: int) -> None:
        """Times a candidate for about `CONFIRM_S`; it stops early if it is far slower than the fastest."""
        best_s = self.timed[0].median_s if self.timed else float("inf")
        with self._ready(entrant):
            last = [self._call(entrant) for _ in range(warm_up_calls)][-1]
            if last is None:
                return
            if last > FAR_SLOWER * best_s:
                entrant.seconds.append(last)
                entrant.outcome = "slower"
                return
            for _ in range(int(min(MAX_CALLS, max(MIN_CALLS, CONFIRM_S / last)))):
                if (seconds := self._call(entrant)) is None:
                    return
                entrant.seconds.append(seconds)

    @contextmanager
    def _ready(self, entrant: Entrant) -> Iterator[None]:
        """Has variables in the places that a candidate needs while the block runs, then puts back places and values."""
        from placer.tf.run.timing import restored_variables

        with entrant.variables_moved(), restored_variables(self._concrete, (self._args, self._kwargs)):
            yield

    def _call(self, entrant: Entrant) -> float | None:
        """The seconds of a call; None if it failed, which takes the candidate out."""
        from placer.tf.run import timing

        self.report(entrant.name)
        entrant.calls += 1
        try:
            results, seconds = timing.timed_call(entrant.run, self._args, self._kwargs, self._places)
        except Exception as error:
            entrant.outcome = f"failed: {first_line(error)}"
            entrant.seconds.clear()
            return None
        if entrant.name == DEFAULT:
            self._places = timing.needed_places(results, self._args, self._kwargs)
        return seconds
