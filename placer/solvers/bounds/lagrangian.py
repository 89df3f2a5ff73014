"""Total cost under memory limits: minimum cuts that pay rent for memory, a bound, and assignments that fit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.memory import excess, usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.two_sided_relaxation import merged
from placer.solvers.exact.min_cut import Cut, expansion, minimum_cut
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.primitives.device_subset import Fewer, halved
from placer.solvers.primitives.local_search import exchange
from placer.solvers.primitives.partition import partitions
from placer.solvers.primitives.repair import fit
from placer.solvers.sources import BOYKOV, FISHER, HELD, MARSTEN, lines

CUTS, TILTS = 60, 30
"""The most cuts for the prices, and the most tilts."""
OP_CUTS, LEAST_CUTS = 400_000, 8
"""Without a time limit: ops in all cuts for the prices, and in those of all tilts; but at least so many cuts."""
STRETCHES = 8
"""Parts of a step in each of which the worst moment over a limit gets a price."""
CLOSE = 1e-4
"""The bound is taken as found when no more than this part of it is left to gain."""
NEVER_NS = 2**50
"""More than anything costs; thousands of it add up in 64 bits."""
DOUBLINGS, HALVINGS = 6, 7
BEST, PASSES = 3, 20
"""How many of the assignments found are improved by moves, and how often all of these are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """Assignments that meet the limits, the cheapest first, and a lower bound on the total cost of all that do."""

    found: tuple[Assignment, ...]
    bound_ns: int
    prices: Prices

    @property
    def moments(self) -> tuple[tuple[int, int], ...]:
        """Devices and ops at which memory is short: those that have a price."""
        return tuple(self.prices.moments)


def lagrangian(problem: PlacementProblem, *, time_limit_s: float = math.inf, seed: int = 0, halves: bool = True) -> Relaxed:
    """Lagrangian relaxation of the limits (Held, Karp 1971; Fisher 1981).

    A limit holds at each moment of the step; at those where cuts exceed it, bytes in use get a price. Any cut at any prices is
    a bound once what full use of the limits would pay is taken off. At the best prices cuts go all or nothing where much of a
    graph is alike, and none of them nearly fills a limit. So prices are tilted by what an op makes, more and less along the
    step, and raised until all fits: each tilt gives another assignment. Those are repaired and improved by moves.

    With three devices and more, cuts are alpha-expansions, which bound nothing: the bound is that of all devices taken as two.
    Expansions move single units well and whole layers badly, so partitions are repaired and improved beside them.

    Args:
        halves: partitions over half of the accelerators, a quarter and so on too, which copy less.
    """
    started = time.perf_counter()
    hurried = not math.isinf(time_limit_s)
    effort = OP_CUTS // max(1, problem.num_ops)
    cuts = CUTS if hurried else min(CUTS, max(LEAST_CUTS, effort))
    tilts = TILTS if hurried else min(TILTS, max(1, effort // (DOUBLINGS + HALVINGS)))
    passes = PASSES if hurried else min(PASSES, effort // 20)
    best = BEST if hurried else min(1, passes)

    prices = Prices(problem)
    prices.climb(cuts, started + 0.3 * time_limit_s)
    bound = prices.height_ns
    if problem.num_devices > 2:
        bound = _least_work_ns(problem)
        if (two := merged(problem)) is not None:
            of_two = Prices(two)
            of_two.climb(cuts, started + 0.4 * time_limit_s)
            bound = max(bound, of_two.height_ns)

    found: dict[bytes, tuple[int, Assignment]] = {}
    for tilt in _tilts(problem.num_ops, tilts if prices.moments else 1, seed):
        for candidate in _raised(problem, prices.rent(), tilt):
            fitting = fit(problem, candidate)
            if fitting is not None:
                found.setdefault(fitting.device.tobytes(), (total_cost_ns(problem, fitting), fitting))
        if time.perf_counter() > started + 0.7 * time_limit_s:
            break
    machines = [Fewer(problem, np.arange(problem.num_devices)), *(halved(problem) if halves else ())]
    for fitting in _spread(machines) if prices.moments else ():
        found.setdefault(fitting.device.tobytes(), (total_cost_ns(problem, fitting), fitting))
    ranked = [a for _, a in sorted(found.values(), key=lambda entry: entry[0])]
    for k, assignment in enumerate(ranked[:best]):
        left = (started + time_limit_s - time.perf_counter()) / (best - k)
        if left <= 0:
            break
        better = exchange(problem, assignment, passes=passes, time_limit_s=left)
        found.setdefault(better.device.tobytes(), (total_cost_ns(problem, better), better))
    return Relaxed(tuple(a for _, a in sorted(found.values(), key=lambda entry: entry[0])), bound, prices)


def _spread(machines: list[Fewer]) -> Iterator[Assignment]:
    """Partitions over all accelerators of each that fit or were made to."""
    for fewer in machines:
        for reduced, start in partitions(fewer.problem):
            coarse = fit(reduced.problem, start)
            fitting = fit(fewer.problem, reduced.invert(start)) if coarse is None else reduced.invert(coarse)
            if fitting is not None:
                yield fewer.invert(fitting)


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """What a cut's assignment costs and holds: a plane that at no prices is below the bound."""

    assignment: Assignment
    cost_ns: int
    held: Ints
    """[D, N]: bytes, see `usage`."""


@dataclass
class Prices:
    """Prices of memory on two devices at moments of the step, raised to where the bound is highest.

    The bound is concave in the prices, and each cut gives a plane above it. The next prices are where these planes are highest
    in a box around the best so far, which grows with success and shrinks without (Marsten, Hogan, Blankenship 1975). There the
    planes that meet have weights: a mixture of cuts that costs as much as the bound, and meets the limits wherever memory has a
    price. Where it does not meet them elsewhere, that moment gets a price too.
    """

    problem: PlacementProblem
    fixed: Mapping[int, int] = field(default_factory=dict)
    """Units that must be on a device."""
    height_ns: int = 0
    """A bound on all that fits, where cuts are exact."""
    moments: list[tuple[int, int]] = field(default_factory=list)
    """Device and op."""
    best: Floats = field(default_factory=lambda: np.zeros(0))
    """[moments]: ns for holding a full limit."""
    planes: list[Plane] = field(default_factory=list)
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    """[planes]: of the mixture, summing up to one; of the planes known when it was made."""

    def rent(self, full_ns: Floats | None = None) -> Floats:
        """[D, N]: in ns per byte."""
        rent = np.zeros((self.problem.num_devices, self.problem.num_ops))
        for (device, moment), price in zip(self.moments, self.best if full_ns is None else full_ns, strict=False):
            rent[device, moment] = price / max(1, int(self.problem.devices.memory_limit_bytes[device]))
        return rent

    def climb(self, cuts: int, ends: float, enough_ns: float = math.inf) -> None:
        """Raises the bound, in at most so many cuts, as far as it is of use."""
        problem, limits = self.problem, self.problem.devices.memory_limit_bytes
        work = problem.unit_time_ns.copy()
        for unit, there in self.fixed.items():
            work[unit, np.arange(problem.num_devices) != there] += NEVER_NS
        here, box, promised = self.best, 1.0, math.inf
        for k in range(cuts):
            rent = self.rent(here)
            cut = _cut(problem, rent, None, work)
            value = cut.bound_ns - float((rent * limits[:, None]).sum())
            gained = value - self.height_ns
            if k == 0 or gained > 0:
                box *= 1.5 if k and gained > (promised - self.height_ns) / 2 else 1.0
                self.height_ns, self.best = max(0, math.floor(value)), here
            else:
                box *= 0.7
            self.planes.append(Plane(cut.assignment, total_cost_ns(problem, cut.assignment), usage(problem, cut.assignment)))
            self._look_for_moments(self.planes[-1].held)
            if not self.moments or self.height_ns >= enough_ns or time.perf_counter() > ends:
                break
            model = self._highest(box)
            if model is not None and model[1] - self.height_ns <= CLOSE * model[1]:
                if not self._look_for_moments(self._mixed_held()):
                    break
                model = self._highest(box)
            if model is None:
                break
            here, promised = model

    def mixed(self) -> Floats:
        """[U, D]: how much of each unit the mixture has on each device."""
        parts = np.zeros((self.problem.num_units, self.problem.num_devices))
        for weight, plane in zip(self.weights, self.planes, strict=False):
            parts[np.arange(self.problem.num_units), plane.assignment.device] += weight
        return parts

    def _mixed_held(self) -> Floats:
        """[D, N]: what the mixture holds where memory has no price, less what rounding adds."""
        held: Floats = sum(weight * plane.held for weight, plane in zip(self.weights, self.planes, strict=False)) * (1 - CLOSE)
        held[tuple(np.array(self.moments).T)] = 0
        return held

    def _look_for_moments(self, held: Ints | Floats) -> bool:
        """Adds the worst moment over a limit in each stretch of the step; whether there was one."""
        known = len(self.moments)
        for device, limit in enumerate(self.problem.devices.memory_limit_bytes.tolist()):
            for stretch in np.array_split(np.arange(self.problem.num_ops), STRETCHES):
                if limit >= 0 and len(stretch):
                    worst = (device, int(stretch[np.argmax(held[device, stretch])]))
                    if held[worst] > limit and worst not in self.moments:
                        self.moments.append(worst)
        self.best = np.append(self.best, np.zeros(len(self.moments) - len(self.best)))
        return len(self.moments) > known

    def _highest(self, box: float) -> tuple[Floats, float] | None:
        """The prices in the box at which the planes are highest, and their height; None where the program fails."""
        from ortools.linear_solver.python import model_builder

        device, moment = np.array(self.moments).T
        limit = self.problem.devices.memory_limit_bytes[device]
        over = (np.stack([plane.held[device, moment] for plane in self.planes]) - limit) / np.maximum(1, limit)
        unit = float(max(1, min(plane.cost_ns for plane in self.planes)))
        program = model_builder.Model()  # type: ignore[no-untyped-call]
        height = program.new_num_var(-math.inf, math.inf, "")
        price = [program.new_num_var(max(0.0, at - box), at + box, "") for at in (self.best / unit).tolist()]
        below = [
            program.add(height - model_builder.LinearExpr.weighted_sum(price, row.tolist()) <= plane.cost_ns / unit)
            for plane, row in zip(self.planes, over, strict=True)
        ]
        program.maximize(height)
        simplex = model_builder.Solver("GLOP")
        if simplex.solve(program) != model_builder.SolveStatus.OPTIMAL:
            return None
        self.weights = np.array([simplex.dual_value(plane) for plane in below])
        return np.maximum(0.0, [unit * simplex.value(p) for p in price]), unit * simplex.objective_value


def _tilts(ops: int, count: int, seed: int) -> Iterator[Floats | None]:
    """None at first, then rising, falling, and rising and falling, then anyhow in stretches; each of shape [N]."""
    at = np.linspace(0, 1, ops)
    regular = [None, 1 + at, 2 - at, 1 + 2 * np.minimum(at, 1 - at), 2 - 2 * np.minimum(at, 1 - at)]
    yield from regular[:count]
    rng = np.random.default_rng(seed)
    for _ in range(count - len(regular)):
        stretches = int(rng.integers(3, 40))
        yield rng.uniform(0.5, 2, stretches)[np.arange(ops) * stretches // max(1, ops)]


def _raised(problem: PlacementProblem, rent: Floats, tilt: Floats | None) -> list[Assignment]:
    """The cuts at the lowest prices, all raised by one factor, at which the limits hold, and at slightly lower ones."""
    low, high = 0.0, None
    under = over = None
    factor = 1.0
    for _ in range(DOUBLINGS + HALVINGS if rent.any() else 1):
        cut = _cut(problem, factor * rent, tilt).assignment
        if not excess(problem, cut).any():
            high, under = factor, cut
        else:
            low, over = factor, cut
        if high is None:
            factor *= 2
        elif low == 0.0:
            factor /= 2
        else:
            factor = math.sqrt(low * high)
    return [cut for cut in (under, over) if cut is not None]


def _cut(problem: PlacementProblem, rent: Floats, tilt: Floats | None, work_ns: Ints | None = None) -> Cut:
    """The cheapest assignment at these prices; with more than two devices what one expansion to each comes to, as its bound."""
    if problem.num_devices == 2:
        return minimum_cut(problem, rent=rent, tilt=tilt, work_ns=work_ns)

    def value(assignment: Assignment) -> int:
        return total_cost_ns(problem, assignment) + math.floor(float((rent * usage(problem, assignment)).sum()))

    best = all_on(problem, "CPU")
    for device in range(problem.num_devices):
        moved = expansion(problem, best, device, rent=rent, tilt=tilt).assignment
        if tilt is not None or value(moved) < value(best):
            best = moved
    return Cut(best, value(best))


def _least_work_ns(problem: PlacementProblem) -> int:
    """Each unit where it works fastest, and no copies."""
    return int(np.where(problem.units.allowed, problem.unit_time_ns, np.iinfo(np.int64).max).min(axis=1).sum())


@dataclass(frozen=True, slots=True)
class Lagrangian:
    """Total cost under memory limits with a bound, in a few hundred minimum cuts."""

    name: str = "lagrangian"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = math.inf, seed: int = 0
    ) -> Solution:
        """UNKNOWN where no cut and no repair fits."""
        started = time.perf_counter()
        relaxed = lagrangian(problem, time_limit_s=time_limit_s, seed=seed)
        if not relaxed.found:
            taken = time.perf_counter() - started
            detail = "no cut, at any memory price, could be repaired"
            return Solution(None, Status.UNKNOWN, objective, 0, relaxed.bound_ns, self.name, taken, StopReason.NOT_FOUND, detail)
        return answer(
            problem,
            objective,
            relaxed.found[0],
            solver=self.name,
            started=started,
            stop_detail="memory has a price where limits bind",
            lower_bound_ns=relaxed.bound_ns,
        )

    def cite(self) -> str:
        """Relaxation, its ascent, and expansions."""
        return lines(HELD, FISHER, MARSTEN, BOYKOV)
