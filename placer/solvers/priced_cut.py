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
from placer.solvers.min_cut import Cut, Rent, minimum_cut

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
    moments: list[_Moment] = []
    best: Assignment | None = None
    best_ns, bound = 0, 0

    def cut() -> Cut:
        nonlocal bound
        result = minimum_cut(problem, rents=[moment.rent() for moment in moments])
        paid = sum(m.ns_per_byte * int(problem.memory_limit_bytes[m.device]) for m in moments)
        bound = max(bound, math.floor(result.bound_ns - paid))
        return result

    def consider(assignment: Assignment) -> None:
        nonlocal best, best_ns
        fitting = fit(problem, assignment)
        if fitting is not None and (best is None or total_cost_ns(problem, fitting) < best_ns):
            best, best_ns = fitting, total_cost_ns(problem, fitting)

    current = cut()
    for _ in range(MOMENTS):
        consider(current.assignment)
        held = usage(problem, current.assignment)
        over = np.where(problem.memory_limit_bytes < 0, 0, held.max(axis=1, initial=0) - problem.memory_limit_bytes)
        device = int(np.argmax(over))
        if over[device] <= 0 or time.perf_counter() >= ends:
            break
        at = int(np.argmax(held[device]))
        moment = next((m for m in moments if (m.device, m.at) == (device, at)), None)
        if moment is None:
            moment = _Moment(device, at, holdings(problem, device, at))
            moments.append(moment)
        low = moment.ns_per_byte
        high = max(2 * low, (total_cost_ns(problem, current.assignment) + 1) / int(over[device]))
        lowest = None
        for _ in range(HALVINGS):
            moment.ns_per_byte = high if lowest is None else math.sqrt(max(low, high / 1024) * high)
            trial = cut()
            if usage(problem, trial.assignment)[device, at] <= problem.memory_limit_bytes[device]:
                high, lowest = moment.ns_per_byte, trial
            elif lowest is None:
                low, high = high, 16 * high
            else:
                low = moment.ns_per_byte
                consider(trial.assignment)
            if time.perf_counter() >= ends:
                break
        if lowest is None:
            break
        moment.ns_per_byte, current = high, lowest
    consider(current.assignment)
    return PricedCut(best, bound)
