"""The order of a race's calls, and when a candidate leaves it: a sequential test, without clock and without TensorFlow."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import NormalDist, median

MAX_CALLS = 40
"""Limit of the calls of a race."""
WARM_UP_CALLS = 2
"""First calls of a candidate that are not timed: TensorFlow prepares the function, selects kernels and grows memory pools."""
MAX_EXCESS_S = 1.2
"""Limit of the time that a race may cost: 2% of the first minute."""
ERROR = 0.05
"""Limit of the probability that the fastest candidate leaves a race, if logarithms of times vary normally."""
CLEARLY_SLOWER = 1.5
"""An optional candidate leaves after two timed calls if both took this many times the median of the fastest."""
FAR_SLOWER = 3.0
"""An optional candidate leaves after its second call, which is not timed yet, if that took this many times the same median."""
MIN_CALLS_COMPARED = 3
"""Timed calls of a candidate before it is compared by its spread."""
MIN_SPREAD = 0.01
"""Lower limit of the relative spread of a candidate's times, since few times can be equal by chance."""
UNKNOWN_SPREAD = 0.25
"""Relative spread that is assumed where no candidate has two timed calls."""
MIN_GAIN = 0.02
"""The baseline is kept unless another candidate takes less time by at least this share of the baseline's time, and chance alone
does not explain the difference."""

_ONE_TEST = NormalDist().inv_cdf(1 - ERROR)
"""The normal deviate of a single comparison."""
_MAD_TO_DEVIATION, _MEDIAN_TO_MEAN = 1.4826, 1.2533
"""For normal values: the standard deviation in median absolute deviations, and a median's standard error in those of a mean."""


@dataclass
class Entrant:
    """What is known of one candidate during a race."""

    seconds: list[float] = field(default_factory=list)
    """Times of all its calls, in their order."""
    outcome: str = ""
    """Why it left; "" while it is in the race."""

    @property
    def timed(self) -> list[float]:
        """The times that count."""
        return self.seconds[WARM_UP_CALLS:]

    @property
    def median_s(self) -> float:
        """Median time that counts; of the last call so far if none counts; infinite before the first call."""
        return median(self.timed or self.seconds[-1:] or [math.inf])


class SequentialTest:
    """Gives calls to candidates in balanced order, and drops a candidate when it is slower than the fastest.

    The candidates run one after the other in rounds; each round begins one candidate later than the round before. A candidate
    leaves if its median of log-times exceeds that of the fastest by more than a normal deviate times the standard error of the
    difference. The spread is pooled over the candidates, by median absolute deviations. The deviate is that of `ERROR` divided by
    the number of comparisons that a race can make (Bonferroni).

    Args:
        names: of the candidates. All but the first two are optional: they leave if their first calls would cost too much.
        max_excess_s: limit of what the race may cost, in seconds. The first two candidates run their first calls in any case.
    """

    def __init__(self, names: list[str], max_excess_s: float = MAX_EXCESS_S) -> None:
        self.entrants = {name: Entrant() for name in names}
        self.end = ""
        """Why the race ended; "" while it runs."""
        self._certain = names[:2]
        self._max_excess_s = max_excess_s
        self._rounds = 0
        # The first call of an optional candidate comes after those of the certain ones, which tell what a first call costs.
        self._queue = deque(name for name in names for _ in range(WARM_UP_CALLS))
        comparisons = max(1, len(names) - 1) * MAX_CALLS // max(1, len(names))
        self._deviate = NormalDist().inv_cdf(1 - ERROR / max(1, comparisons))
        if len(names) < 2:
            self.end = "there is one candidate"

    def racing(self) -> list[str]:
        """The candidates that are still in the race."""
        return [name for name, entrant in self.entrants.items() if not entrant.outcome]

    @property
    def fastest(self) -> str:
        """The candidate with the least median, of those that are still in the race; the first one before any call."""
        return min(self.racing(), key=lambda name: self.entrants[name].median_s)

    @property
    def excess_s(self) -> float:
        """What the calls took beyond the median of the fastest. First calls of the first two candidates do not count."""
        best_s = self.entrants[self.fastest].median_s
        counted = [
            seconds for name, entrant in self.entrants.items() for seconds in entrant.seconds[1 if name in self._certain else 0 :]
        ]
        return sum(max(0.0, seconds - best_s) for seconds in counted) if math.isfinite(best_s) else 0.0

    def cost_s(self, used: str) -> float:
        """What the calls took beyond as many calls of the candidate that is used; its first call is needed without a race.

        It is 0 if the calls took less, as they can when another candidate is used than the fastest.
        """
        best_s, seconds = self.entrants[used].median_s, [entrant.seconds for entrant in self.entrants.values()]
        first_s = sum(self.entrants[used].seconds[:1])
        return max(0.0, sum(map(sum, seconds)) - first_s - best_s * (sum(map(len, seconds)) - (first_s > 0)))

    def next(self) -> str:
        """The candidate that runs the next call. After the end it is the fastest."""
        if self.end:
            return self.fastest
        while True:
            if not self._queue:
                racing = self.racing()
                shift = self._rounds % len(racing)
                self._queue.extend(racing[shift:] + racing[:shift])
                self._rounds += 1
            name = self._queue.popleft()
            if not self.entrants[name].outcome and not self._is_too_dear(name):
                return name

    def add(self, name: str, seconds: float) -> None:
        """Records a call of a candidate, and decides who leaves."""
        self.entrants[name].seconds.append(seconds)
        if not self.end:
            self._drop_slower()
            self._end_if_decided()

    def drop(self, name: str, outcome: str) -> None:
        """Takes a candidate out of the race. The last one stays."""
        if len(self.racing()) > 1:
            self.entrants[name].outcome = outcome
            self._end_if_decided()

    def winner(self, baseline: str, min_gain: float = MIN_GAIN) -> str:
        """The candidate to use: the fastest, but the baseline where it gains less than the share `min_gain`, or by chance."""
        fastest, entrant = self.fastest, self.entrants[baseline]
        gains = self.entrants[fastest].median_s < (1 - min_gain) * entrant.median_s
        gains &= entrant.outcome != "" or _is_slower(entrant, self.entrants[fastest], self._spread(), _ONE_TEST)
        return fastest if gains or not entrant.seconds or _failed(entrant) else baseline

    def _is_too_dear(self, name: str) -> bool:
        """Whether an optional candidate's first call would exceed the limit, which takes it out of the race."""
        entrant = self.entrants[name]
        if name in self._certain or entrant.seconds:
            return False
        first_calls = [self.entrants[other].seconds[0] for other in self._certain if self.entrants[other].seconds]
        if not first_calls or self.excess_s + min(first_calls) <= self._max_excess_s:
            return False
        entrant.outcome = "not tried: its first call would take too long"
        return True

    def _drop_slower(self) -> None:
        fastest = self.fastest
        best, spread = self.entrants[fastest], self._spread()
        for name in self.racing():
            entrant = self.entrants[name]
            if name == fastest or not best.timed:
                continue
            n, m = len(entrant.timed), len(best.timed)
            leaves = n >= MIN_CALLS_COMPARED and m >= MIN_CALLS_COMPARED and _is_slower(entrant, best, spread, self._deviate)
            if name not in self._certain and len(entrant.seconds) >= WARM_UP_CALLS:
                leaves |= entrant.seconds[-1] > FAR_SLOWER * best.median_s
                leaves |= n >= 2 and m >= 2 and min(entrant.timed) > CLEARLY_SLOWER * best.median_s
            if leaves:
                entrant.outcome = "slower"

    def _spread(self) -> float:
        """Standard deviation of log-times about their candidate's median, from all candidates.

        One deviation of each candidate is left out: few values are closer to their own median than to the true one.
        """
        deviations = [
            deviation
            for entrant in self.entrants.values()
            for deviation in sorted(abs(math.log(seconds / entrant.median_s)) for seconds in entrant.timed)[1:]
        ]
        return max(MIN_SPREAD, _MAD_TO_DEVIATION * median(deviations)) if deviations else UNKNOWN_SPREAD

    def _end_if_decided(self) -> None:
        calls = sum(len(entrant.seconds) for entrant in self.entrants.values())
        if len(self.racing()) == 1:
            self.end = "all others are slower"
        elif calls >= MAX_CALLS:
            self.end = f"{MAX_CALLS} calls were made"
        elif self.excess_s > self._max_excess_s and all(self.entrants[name].seconds for name in self._certain):
            self.end = f"it had cost {self.excess_s:.2g} s"


def _is_slower(entrant: Entrant, best: Entrant, spread: float, deviate: float) -> bool:
    """Whether the median log-time of an entrant exceeds that of the best by so many standard errors of the difference."""
    error = _MEDIAN_TO_MEAN * spread * math.sqrt(1 / max(1, len(entrant.timed)) + 1 / max(1, len(best.timed)))
    return math.log(entrant.median_s / best.median_s) > deviate * error


def _failed(entrant: Entrant) -> bool:
    return bool(entrant.outcome) and entrant.outcome != "slower"
