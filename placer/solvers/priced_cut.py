"""Two devices and memory limits: minimum cuts that pay rent for memory at the moments where a limit is missed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from placer.problem.memory import Holdings, holdings, usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.fit import fit
from placer.solvers.min_cut import Rent, minimum_cut

MOMENTS = 8
HALVINGS = 10


@dataclass(frozen=True, slots=True, eq=False)
class PricedCut:
    """The cheapest assignment found that meets the limits, None if there is none, and a lower bound on all that do."""

    assignment: Assignment | None
    bound_ns: int


@dataclass(slots=True, eq=False)
class _Moment:
    device: int
    at: int
    holdings: Holdings
    ns_per_byte: float = 0.0

    def rent(self) -> Rent:
        return Rent(self.device, self.holdings, np.floor(self.ns_per_byte * self.holdings.nbytes).astype(np.int64))


def priced_cut(problem: PlacementProblem, *, time_limit_s: float = math.inf) -> PricedCut:
    """Lagrangian relaxation of the limits, one moment after the other.

    Where the cheapest cut exceeds a limit most, the bytes in use there get a price, which is halved down to the lowest at which
    the limit holds; then the next moment, at the prices so far. Any cut at any prices is a lower bound once what full use of the
    limits would pay is taken off (Held, Karp 1971; Fisher 1981). Cuts that miss a limit are repaired by single moves.
    """
    ends = time.perf_counter() + time_limit_s
    limits = problem.memory_limit_bytes
    moments: list[_Moment] = []
    bound = 0

    def cut() -> Assignment:
        nonlocal bound
        result = minimum_cut(problem, rents=[moment.rent() for moment in moments])
        paid = sum(m.ns_per_byte * int(limits[m.device]) for m in moments)
        bound = max(bound, math.floor(result.bound_ns - paid))
        return result.assignment

    current, nearly = cut(), None
    for _ in range(MOMENTS):
        held = usage(problem, current)
        over = np.where(limits < 0, 0, held.max(axis=1, initial=0) - limits)
        device = int(np.argmax(over))
        if over[device] <= 0 or time.perf_counter() >= ends:
            break
        at = int(np.argmax(held[device]))
        moment = _Moment(device, at, holdings(problem, device, at))
        moments.append(moment)
        low, high = 0.0, (total_cost_ns(problem, current) + 1) / int(over[device])
        lowest = None
        for _ in range(HALVINGS):
            moment.ns_per_byte = high if lowest is None else math.sqrt(max(low, high / 1024) * high)
            trial = cut()
            if usage(problem, trial)[device, at] <= limits[device]:
                high, lowest = moment.ns_per_byte, trial
            elif lowest is None:
                low, high = high, 16 * high
            else:
                low, nearly = moment.ns_per_byte, trial
            if time.perf_counter() >= ends:
                break
        if lowest is None:
            break
        moment.ns_per_byte, current = high, lowest
    repaired = [fit(problem, a) for a in (current, nearly) if a is not None]
    best = min((a for a in repaired if a is not None), key=lambda a: total_cost_ns(problem, a), default=None)
    return PricedCut(best, bound)
