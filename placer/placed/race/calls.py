"""Real calls that time candidates: each call runs once, by one of them, until one is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from placer.errors import PlacerError
from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import DEFAULT, TimedCandidate, Verdict

if TYPE_CHECKING:
    from placer.placed.race.candidates import Candidate

Runner = Callable[..., Any]
"""A function that is called as the user's function is."""
AroundBackward = Callable[[Runner], Runner]
"""From the backward function of a call to the one that the tape calls."""


@dataclass
class Dispatch:
    """Gives each call of a signature to the function that runs it."""

    alone: Runner
    """Runs eager calls that no tape records: a `Race`, a `Watch`, or a function."""
    taped: Runner
    """Runs eager calls that a tape records: a `PairRace`, or a function."""
    traced: Runner
    """Runs all other calls, such as those by a function that is being traced."""

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
        self._lock = threading.RLock()
        self._settled = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            name = self._test.next()
        try:
            return self._run(name, args, kwargs)
        except Exception as error:
            return self._after_failure(name, error, args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        results, seconds = self._timed(name, args, kwargs)
        self._add(name, seconds)
        return results

    def _timed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, float]:
        """The results of a call, and how long it took with what had to be made for it."""
        from placer.tf.run.timing import timed_call

        started, is_made = perf_counter(), name in self._runners
        run = self._runner(name)
        making_s = 0.0 if is_made else perf_counter() - started
        results, seconds = timed_call(run, args, kwargs)
        return results, seconds + making_s

    def _add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._test.add(name, seconds)
            self._settle_if_over()

    def _runner(self, name: str) -> Runner:
        with self._lock:
            if name not in self._runners:
                self._runners[name] = self._make(self._candidates[name])
            return self._runners[name]

    def _after_failure(self, name: str, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Makes a failed call again by TensorFlow's default, if that is possible, and drops the candidate.

        If the call fails there too, the function is what fails, so the candidate stays.

        Raises:
            Exception: the call fails there too, or it may have changed something, so it is not made again.
        """
        from placer.tf.run.exhausted import is_out_of_memory

        may_repeat = name != DEFAULT and (self._repeatable or isinstance(error, PlacerError))
        results = self._runner(DEFAULT)(*args, **kwargs) if may_repeat else None
        if may_repeat or is_out_of_memory(error):
            with self._lock:
                self._test.drop(name, f"failed: {first_line(error)}")
                self._settle_if_over()
        if not may_repeat:
            raise error
        return results

    def _settle_if_over(self) -> None:
        if not self._test.end or self._settled:
            return
        self._settled = True
        winner = self._test.winner(DEFAULT)
        self._settle(self._verdict(winner), self._candidates[winner], self._runner(winner))

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
        return Verdict(tuple(timed), winner, test.end, test.excess_s)


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
        self._current = threading.local()

    def _run(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        call = self._current.call = _PairCall(name)
        try:
            results, call.forward_s = self._timed(name, args, kwargs)
        finally:
            self._current.call = None
        with self._lock:
            self._untimed += 1
            if self._untimed > self.MAX_UNTIMED_CALLS and not self._settled:
                self._settled = True
                self._give_up()
        return results

    def _around(self, backward: Runner) -> Runner:
        """The backward function of the call that runs at the moment; when it is called, the pair is timed."""
        from placer.tf.run.timing import timed_call

        call: _PairCall | None = getattr(self._current, "call", None)
        if call is None:
            return backward

        def timed(*upstream: Any) -> Any:
            gradients, backward_s = timed_call(backward, upstream, {})
            if not call.counted:
                call.counted = True
                self._untimed = 0
                self._add(call.name, call.forward_s + backward_s)
            return gradients

        return timed


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


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
