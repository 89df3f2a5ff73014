"""Real calls of a step that time Keras's own function against the placed step; the faster one is kept."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from placer.common.warning import warn
from placer.keras.keras_model import Runner
from placer.keras.placed_step import PlacedStep
from placer.keras.verdict_memory import recall_verdict, remember_verdict
from placer.placed.race.sequential_test import FAR_SLOWER, SequentialTest
from placer.plan.verdict import TimedCandidate, Verdict

KERAS, PLACED, UNCOMPILED = "Keras's default", "the placed step", "Keras's default without XLA"


class StepRace:
    """Runs each call by one of several ways; after some timed calls, by the fastest.

    The first call runs Keras's own function, so an error of the model is the error that it is without this package. The next
    calls run the placed step until its own race of placements is over. Then the ways are timed in turns, unless an earlier start
    of the program has done that.

    Args:
        ways: by name, with `KERAS` and `PLACED`.
        placed: the placed step.
        reason_against: gives, for the next batches, why the ways may not run in turns, "" if they may, and these batches.
    """

    def __init__(self, ways: Mapping[str, Runner], placed: PlacedStep, reason_against: Callable[[Any], tuple[str, Any]]) -> None:
        self._ways = dict(ways)
        self._placed = placed
        self._reason_against = reason_against
        self._calls = 0
        self._test: SequentialTest | None = None
        self._left_out: set[str] = set()
        """The ways whose latest call is not counted."""
        self._used: Runner | None = None
        self._lock = threading.RLock()
        self.verdict: Verdict | None = None
        """The measured times, and what is used; None while calls race, and where they may not."""

    def __call__(self, batches: Any) -> Any:
        if self._used is not None:
            return self._used(batches)
        with self._lock:  # one call at a time, or their times would say nothing
            return self._raced(batches) if self._used is None else self._used(batches)

    def _raced(self, batches: Any) -> Any:
        from placer.tf.run.timing import timed_call

        if not self._calls:
            results = self._ways[KERAS](batches)
            self._calls = 1
            return results
        if self._calls == 1:
            reason, batches = self._reason_against(batches)
            if reason:
                warn(reason)
                self._used = self._ways[KERAS]
                return self._used(batches)
            self._calls = 2
        if self._placed.is_racing():
            return self._ways[PLACED](batches)
        if self._test is None:
            if (verdict := recall_verdict(self._placed, self._ways)) is not None:
                return self._use(verdict)(batches)
            self._test = SequentialTest(list(self._ways))
        name = self._test.next()
        results, seconds = timed_call(self._ways[name], (batches,), {})
        if self._is_counted(name, self._test.entrants[name].median_s, seconds):
            self._test.add(name, seconds)
        if self._test.end:
            self._settle(self._test)
        return results

    def _is_counted(self, name: str, median_s: float, seconds: float) -> bool:
        """Whether a call counts. One that takes far longer than the way's others does not, unless the one before did so, too.

        XLA compiles for each size of a batch, such as that of a smaller last batch.
        """
        is_slow = math.isfinite(median_s) and seconds > FAR_SLOWER * median_s and name not in self._left_out
        (self._left_out.add if is_slow else self._left_out.discard)(name)
        return not is_slow

    def _settle(self, test: SequentialTest) -> None:
        used = test.winner(KERAS)
        rows = [
            TimedCandidate(name, 0, round(1e9 * each.median_s) if each.seconds else 0, len(each.seconds), each.outcome)
            for name, each in test.entrants.items()
        ]
        rows.sort(key=lambda row: row.median_ns or float("inf"))
        verdict = Verdict(tuple(rows), used, test.end, test.cost_s(used))
        remember_verdict(self._placed, self._ways, verdict)
        self._use(verdict)

    def _use(self, verdict: Verdict) -> Runner:
        self.verdict = verdict
        self._used = self._ways[verdict.used]
        self._ways = {verdict.used: self._used}
        return self._used
