"""Real calls that time candidates: each call runs once, by one of them, until one is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from placer.errors import PlacerError
from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import DEFAULT, TimedCandidate, Verdict

if TYPE_CHECKING:
    from placer.placed.race.candidates import Candidate

Runner = Callable[..., Any]
"""A function that is called as the user's function is."""


class Race:
    """The calls of one signature while its candidates race.

    A call that a tape records, or that a function makes while it is traced, runs the plan and is not timed.

    Args:
        candidates: as `placer.placed.race.candidates.candidates` orders them.
        plan: the function that runs the plan.
        make: gives the function that runs a candidate; called when it is first needed.
        repeatable: whether a call changes nothing, so that a call that failed can be made again.
        settle: called once with the verdict, the winner, and the function that runs it.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        plan: Runner,
        make: Callable[[Candidate], Runner],
        repeatable: bool,
        settle: Callable[[Verdict, Candidate, Runner], None],
    ) -> None:
        self._candidates = {candidate.name: candidate for candidate in candidates}
        self._plan = plan
        self._make = make
        self._repeatable = repeatable
        self._settle = settle
        self._runners: dict[str, Runner] = {}
        self._test = SequentialTest(list(self._candidates))
        self._lock = threading.RLock()
        self._settled = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from placer.tf.run.calling import runs_on_its_own

        if not runs_on_its_own():
            return self._plan(*args, **kwargs)
        with self._lock:
            name = self._test.next()
        try:
            results, seconds = self._timed(name, args, kwargs)
        except Exception as error:
            return self._after_failure(name, error, args, kwargs)
        with self._lock:
            self._test.add(name, seconds)
            self._settle_if_over()
        return results

    def _timed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, float]:
        """The results of a call, and how long it took with what had to be made for it."""
        from placer.tf.run.timing import timed_call

        started, is_made = perf_counter(), name in self._runners
        run = self._runner(name)
        making_s = 0.0 if is_made else perf_counter() - started
        results, seconds = timed_call(run, args, kwargs)
        return results, seconds + making_s

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
        from placer.tf.run.calling import runs_on_its_own
        from placer.tf.run.timing import timed_call

        if not runs_on_its_own():
            return self._run(*args, **kwargs)
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
