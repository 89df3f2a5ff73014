"""Two devices and memory limits: minimum cuts that pay rent for memory at the moments where a limit is missed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from placer.problem.memory import Holdings, holdings, usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.fit import fit
from placer.solvers.min_cut import MinCut, Rent, minimum_cut

MOMENTS = 8
HALVINGS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
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


def priced_cut(problem: PlacementProblem, *, time_limit_s: float = math.inf) -> Priced:
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
    return Priced(best, bound)


@dataclass(frozen=True, slots=True)
class PricedCut:
    """Total cost under memory limits on two devices: usually within a few percent of its bound, in a few dozen cuts."""

    name: str = "priced_cut"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives and other numbers of devices."""
        return MinCut().unsupported(replace(problem, memory_limit_bytes=np.full(problem.devices, -1)), objective)

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = math.inf, seed: int = 0
    ) -> Solution:
        """UNKNOWN where neither a cut nor its repair fits."""
        started = time.perf_counter()
        found = priced_cut(problem, time_limit_s=time_limit_s)
        if found.assignment is None:
            reason = "no cut at any price of memory could be made to fit"
            taken = time.perf_counter() - started
            return Solution(None, Status.UNKNOWN, objective, 0, found.bound_ns, self.name, taken, reason)
        return answer(
            problem,
            objective,
            found.assignment,
            solver=self.name,
            started=started,
            stop_reason="memory priced at its peaks",
            lower_bound_ns=found.bound_ns,
        )

    def cite(self) -> str:
        """Lagrangian relaxation."""
        return "M. Held, R. M. Karp, The traveling-salesman problem and minimum spanning trees II, 1971; M. L. Fisher, 1981"
