"""Real calls that time candidates: each call runs once, by one of them, until one is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import DEFAULT, TimedCandidate, Verdict

if TYPE_CHECKING:
    from placer.placed.race.candidates import Candidate

Runner = Callable[..., Any]
"""A function that is called as the user's function is."""
AroundBackward = Callable[[Runner], Runner]
"""From the backward function of a call to the one that the tape calls."""


def _no_recorder() -> Callable[[], bool]:
    from placer.tf._private.gradients import no_recorder

    return no_recorder


@dataclass
class Dispatch:
    """Gives each call of a signature to the function that runs it."""

    alone: Runner
    """Runs eager calls that no tape records: a `Race`, a `Watch`, or a function."""
    taped: Runner
    """Runs eager calls that a tape records: a `PairRace`, or a function."""
    traced: Runner
    """Runs all other calls, such as those by a function that is being traced."""
    no_tape: Callable[[], bool] = field(default_factory=_no_recorder)
    """Whether no tape records an eager call that is made now."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from placer.tf.run import calling

        if calling.runs_on_its_own():
            return self.alone(*args, **kwargs)
        return (self.taped if calling.runs_under_tape() else self.traced)(*args, **kwargs)

    @property
    def races(self) -> bool:
        """Whether calls without a tape race."""
        return isinstance(self.alone, Race)


class Race:
    """Calls of one signature while its candidates race.

    Args:
        candidates: as `placer.placed.race.candidates.candidates` orders them.
        make: gives the function that runs a candidate; called when it is first needed.
        repeatable: whether a call changes nothing, so that a call that failed can be made again.
        settle: called once with the verdict, the winner, and the function that runs it.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        make: Callable[[Candidate], Runner],
        repeatable: bool,
        settle: Callable[[Verdict, Candidate, Runner], None],
    ) -> None:
        self._candidates = {candidate.name: candidate for candidate in candidates}
        self._make = make
        self._repeatable = repeatable
        self._settle = settle
        self._runners: dict[str, Runner] = {}
        self._test = SequentialTest(list(self._candidates))
        self._places: list[str] | None = None
        """Where the results are needed; None before the first call of TensorFlow's default."""
        self._lock = threading.RLock()
        self._settled = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            name = self._test.next()
        started = perf_counter()
        try:
            run, is_new = self._runner(name)
        except Exception as error:
            if not self._dropped(name, error):
                raise
            return self(*args, **kwargs)  # nothing has run yet
        making_s = perf_counter() - started if is_new else 0.0
        try:
            results, seconds = self._timed(name, run, args, kwargs)
        except Exception as error:
            return self._after_failure(name, error, args, kwargs)
        self._done(name, making_s + seconds)
        return results

    def _timed(self, name: str, run: Runner, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, float]:
        """The results of a call, and its seconds until they are where they are needed."""
        from placer.tf.run.timing import needed_places, timed_call

        results, seconds = timed_call(run, args, kwargs, self._places)
        if name == DEFAULT:
            self._places = self._places or needed_places(results, args, kwargs)
        return results, seconds

    def _done(self, name: str, seconds: float) -> None:
        """Records a call that a candidate ran."""
        with self._lock:
            self._test.add(name, seconds)
            self._settle_if_over()

    def _runner(self, name: str) -> tuple[Runner, bool]:
        """The function that runs a candidate, and whether it was made now."""
        with self._lock:
            if is_new := name not in self._runners:
                self._runners[name] = self._make(self._candidates[name])
            return self._runners[name], is_new

    def _after_failure(self, name: str, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Makes a failed call again by another candidate, if it changed nothing, and drops the candidate.

        The other one is TensorFlow's default. In place of the default, if memory ran out, it is the first of the others. If the
        call fails there too, the function is what fails, so the candidate stays.

        Raises:
            Exception: the call fails there too, or it may have changed something, so it is not made again.
        """
        others = [DEFAULT] if name != DEFAULT else [other for other in self._test.racing() if other != DEFAULT]
        if not others or not self._repeatable or (name == DEFAULT and not _is_out_of_memory(error)):
            self._failed(name, error)
            raise error
        run, _ = self._runner(others[0])
        try:
            results = run(*args, **kwargs)
        except Exception as own:
            raise own from own.__cause__  # without the first error, which says the same
        self._dropped(name, error)
        return results

    def _failed(self, name: str, error: Exception) -> None:
        """Drops a candidate whose call failed and cannot be made again, unless the function is what may have failed.

        The candidate is dropped if memory ran out, or if it has not run one call yet and TensorFlow's default has.
        """
        with self._lock:
            entrants = self._test.entrants
            is_suspect = name != DEFAULT and not entrants[name].seconds and entrants[DEFAULT].seconds
            if is_suspect or _is_out_of_memory(error):
                self._dropped(name, error)

    def _dropped(self, name: str, error: Exception) -> bool:
        """Takes a candidate out of the race, unless it is the last one; returns whether others are left."""
        with self._lock:
            has_others = self._test.racing() != [name]
            self._test.drop(name, f"failed: {first_line(error)}")
            self._settle_if_over()
            return has_others

    def _settle_if_over(self) -> None:
        if self._test.end and not self._settled:
            winner = self._test.winner(DEFAULT)
            self._settle(self._verdict(winner), self._candidates[winner], self._runner(winner)[0])
            self._settled = True  # not before, since Ctrl-C can interrupt it: then the next call does it

    def _verdict(self, winner: str) -> Verdict:
        test = self._test
        timed = [
            TimedCandidate(
                name,
                candidate.predicted_ns,
                round(test.entrants[name].median_s * 1e9) if test.entrants[name].seconds else 0,
                len(test.entrants[name].seconds),
                test.entrants[name].outcome,
            )
            for name, candidate in self._candidates.items()
        ]
        timed.sort(key=lambda candidate: candidate.median_ns or float("inf"))
        return Verdict(tuple(timed), winner, test.end, test.cost_s(winner))


class PairRace(Race):
    """Calls under a tape while candidates race: a call and its gradient are timed together, by one candidate.

    A call whose gradient is not taken is not timed. If too many are not, the first candidate is kept without a verdict.

    Args:
        make: gives the function that runs a candidate; its second argument goes around each backward function.
        give_up: called if too few gradients are taken.
    """

    MAX_UNTIMED_CALLS = 40

    def __init__(
        self,
        candidates: Sequence[Candidate],
        make: Callable[[Candidate, AroundBackward], Runner],
        repeatable: bool,
        settle: Callable[[Verdict, Candidate, Runner], None],
        give_up: Callable[[], None],
    ) -> None:
        super().__init__(candidates, lambda candidate: make(candidate, self._around), repeatable, settle)
        self._give_up = give_up
        self._untimed = 0
        self._gradient_places: list[str] | None = None
        self._current = threading.local()

    def _timed(self, name: str, run: Runner, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, float]:
        around, call = getattr(self._current, "call", None), _PairCall(name)  # a callback may make a call within a call
        self._current.call = call
        try:
            results, call.forward_s = super()._timed(name, run, args, kwargs)
        finally:
            self._current.call = around
        return results, call.forward_s

    def _done(self, name: str, seconds: float) -> None:
        """Counts a call; it is recorded when its gradient was taken."""
        with self._lock:
            self._untimed += 1
            if self._untimed > self.MAX_UNTIMED_CALLS and not self._settled:
                self._settled = True
                self._give_up()

    def _around(self, backward: Runner) -> Runner:
        """The backward function of the call that runs at the moment; when it is called, the pair is timed."""
        call: _PairCall | None = getattr(self._current, "call", None)
        return backward if call is None else partial(self._gradient, call, backward)

    def _gradient(self, call: _PairCall, backward: Runner, *upstream: Any) -> Any:
        """Calls the backward function of a call. The first time, that is timed, unless another function is being traced."""
        from placer.tf.run.calling import is_eager
        from placer.tf.run.timing import places_of, timed_call

        if call.counted or not is_eager():
            return backward(*upstream)
        try:
            gradients, backward_s = timed_call(backward, upstream, {}, self._gradient_places)
        except Exception as error:
            self._failed(call.name, error)
            raise
        call.counted = True
        if call.name == DEFAULT:
            self._gradient_places = self._gradient_places or places_of(gradients)
        with self._lock:
            self._untimed = 0
        super()._done(call.name, call.forward_s + backward_s)
        return gradients


@dataclass
class _PairCall:
    name: str
    forward_s: float = 0.0
    counted: bool = False


class Watch:
    """The calls of one signature after its race: times one call in `WATCH_EVERY`, and races again if they have become slower."""

    WATCH_EVERY = 64
    """Of this many calls, one waits for its results and is timed."""
    SLOWER = 1.5
    """Ratio to the verdict's time from which a call counts as slow."""
    MAX_SLOW_CALLS, MIN_SLOW_S = 5, 10.0
    """A race begins after this many timed calls in a row were slow, over at least this many seconds."""

    def __init__(self, run: Runner, median_ns: int, race_again: Callable[[], None]) -> None:
        self._run = run
        self._slow_s = self.SLOWER * median_ns / 1e9
        self._race_again = race_again
        self._calls = 0
        self._slow_since: list[float] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls % self.WATCH_EVERY:
            return self._run(*args, **kwargs)
        return self._watched(args, kwargs)

    def _watched(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        from placer.tf.run.timing import timed_call

        results, seconds = timed_call(self._run, args, kwargs)
        now = monotonic()
        self._slow_since = [*self._slow_since, now] if seconds > self._slow_s else []
        if len(self._slow_since) >= self.MAX_SLOW_CALLS and now - self._slow_since[0] >= self.MIN_SLOW_S:
            self._slow_since = []
            self._race_again()
        return results


def _is_out_of_memory(error: Exception) -> bool:
    from placer.tf.run.exhausted import is_out_of_memory

    return is_out_of_memory(error)


def first_line(error: Exception) -> str:
    """The line of an error's message that says what went wrong, or its type."""
    from cost_models.measuring.chains import error_line

    return error_line(error)[:200]
