"""Real calls of a step that time Keras's own function against the placed step; the faster one is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import TimedCandidate, Verdict

KERAS, PLACED, UNCOMPILED = "Keras's default", "the placed step", "Keras's default without XLA"

Runner = Callable[[Any], Any]
"""What runs a step on the next batches."""


class StepRace:
    """Runs each call by one of several ways; after some timed calls, by the fastest.

    The first call runs Keras's own function, so an error of the model is the error that it is without this package. The next
    calls run the placed step until its own race of placements is over. Then the ways are timed in turns.

    Args:
        ways: by name, with `KERAS` and `PLACED`.
        is_racing: whether the placed step still races.
    """

    def __init__(self, ways: Mapping[str, Runner], is_racing: Callable[[], bool]) -> None:
        self._ways = dict(ways)
        self._is_racing = is_racing
        self._has_run = False
        self._test: SequentialTest | None = None
        self._used: Runner | None = None
        self.verdict: Verdict | None = None
        """The measured times, and what is used; None while calls race."""

    def __call__(self, batches: Any) -> Any:
        if self._used is not None:
            return self._used(batches)
        if not self._has_run or self._is_racing():
            results = self._ways[PLACED if self._has_run else KERAS](batches)
            self._has_run = True
            return results
        return self._timed(batches)

    def _timed(self, batches: Any) -> Any:
        from placer.tf.run.timing import timed_call

        if self._test is None:
            self._test = SequentialTest(list(self._ways))
        name = self._test.next()
        results, seconds = timed_call(self._ways[name], (batches,), {})
        self._test.add(name, seconds)
        if self._test.end:
            self._settle(self._test)
        return results

    def _settle(self, test: SequentialTest) -> None:
        used = test.winner(KERAS)
        rows = [
            TimedCandidate(
                name, 0, round(1e9 * entrant.median_s) if entrant.seconds else 0, len(entrant.seconds), entrant.outcome
            )
            for name, entrant in test.entrants.items()
        ]
        rows.sort(key=lambda row: row.median_ns or float("inf"))
        self.verdict = Verdict(tuple(rows), used, test.end, test.cost_s(used))
        self._used = self._ways[used]
        self._ways = {used: self._used}
