"""Real calls of a step that time Keras's own function against the placed step; the faster one is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from placer.common.warning import warn
from placer.keras.keras_model import Runner
from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import TimedCandidate, Verdict

KERAS, PLACED, UNCOMPILED = "Keras's default", "the placed step", "Keras's default without XLA"


class StepRace:
    """Runs each call by one of several ways; after some timed calls, by the fastest.

    The first call runs Keras's own function, so an error of the model is the error that it is without this package. The next
    calls run the placed step until its own race of placements is over. Then the ways are timed in turns.

    Args:
        ways: by name, with `KERAS` and `PLACED`.
        is_racing: whether the placed step still races.
        reason_against: gives, for the next batches, why the ways may not run in turns, "" if they may, and these batches.
    """

    def __init__(
        self,
        ways: Mapping[str, Runner],
        is_racing: Callable[[], bool],
        reason_against: Callable[[Any], tuple[str, Any]],
    ) -> None:
        self._ways = dict(ways)
        self._is_racing = is_racing
        self._reason_against = reason_against
        self._calls = 0
        self._test: SequentialTest | None = None
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
        if self._is_racing():
            return self._ways[PLACED](batches)
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
            TimedCandidate(name, 0, round(1e9 * each.median_s) if each.seconds else 0, len(each.seconds), each.outcome)
            for name, each in test.entrants.items()
        ]
        rows.sort(key=lambda row: row.median_ns or float("inf"))
        self.verdict = Verdict(tuple(rows), used, test.end, test.cost_s(used))
        self._used = self._ways[used]
        self._ways = {used: self._used}
