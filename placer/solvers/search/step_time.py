"""Step time: the best of many starts on the execution model, improved by local search."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.lagrangian import lagrangian
from placer.solvers.bounds.limited_load import limited_load_ns
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.exact.min_cut import minimum_cut
from placer.solvers.heuristics.earliest_finish import earliest_finish_assignment
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.greedy_benefit import greedy_benefit_assignment
from placer.solvers.heuristics.heft import heft_schedule
from placer.solvers.heuristics.peft import peft_schedule
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.device_subset import halved
from placer.solvers.primitives.hill_climbing import Search
from placer.solvers.primitives.local_search import exchange
from placer.solvers.primitives.partition import accelerators, partitions
from placer.solvers.primitives.repair import fit
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.search.annealing import anneal, moves_within
from placer.solvers.search.genetic import Genetic
from placer.solvers.sources import (
    ARABNEJAD,
    BARNARD,
    GONCALVES,
    HANSEN,
    KARYPIS,
    KIRKPATRICK,
    STONE,
    TOPCUOGLU,
    here,
    lines,
)

CUTS = ((1.0, False), (1.0, True), (0.25, False), (4.0, False), (0.25, True))
"""Weights of copies, and whether dispatch is hidden, in the cuts to start from: overlap hides what a sum charges in full, and
queues lengthen it."""
LARGE = 5_000
"""Ops from which on fewer starts are tried."""
OP_RUNS = 160_000
"""Ops played in all simulations of one search without a time limit, about a quarter of a second; starts are tried anyway."""
OP_RUNS_PER_S = 400_000
"""The same per second of a time limit. Counting these rather than looking at the clock makes equal runs equal."""
BOUND_S, SHARE = 0.5, 0.2
"""For a bound that knows the limits: seconds where there is no time limit, enough for some hundred ops, and its share of one."""
SEVERAL = 4
"""Accelerators up to whose number the effort grows with it."""
RELAXED = 20
"""Assignments of the relaxation that are tried, those of least total cost."""
CLIMBED = 3
"""The best so far from which units are moved, where limits or several accelerators make it likely that one leads nowhere, or a
time limit leaves room for it."""
CLIMBING = 0.25
"""The most of the effort that climbing takes before other searches have their turn."""
HOPELESS = 2
"""Times the best step: fewer accelerators are given up where all that is quickly found on them takes longer."""
CLIMBS, LARGE_CLIMBS, PASSES = 8, 2, 3
"""Partitions that are improved, fewer of a large problem, and how often all units are tried."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The least simulated step time of the usual placements, minimum cuts, list schedules and local moves from the best.

    Never worse, by the model, than TensorFlow's default, all-CPU or all-GPU where those fit; with several accelerators a copy
    counts beyond what it adds to the step, see `climbing.WORTH`.
    """

    name: str = "step_time"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "step_time" else f"it minimises step_time, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Tries each start, then moves from the best, until a local optimum, the bound, or the end of the effort; where limits
        or several accelerators make single moves hard, from the best few.

        A time limit in which each unit could be moved at random goes to the searches among the heuristics too, which do what they
        do by themselves with that limit and seed, and to moves from what they find.

        With several accelerators, starts are partitions too, and in the best of these whole clusters are moved before units. The
        same is done with half of them, down to one, and the shortest step is kept: of one accelerator what copies add counts for
        nothing, so that a plan for it can be shorter.

        Args:
            time_limit_s: of which each of these searches has half of what is left, the last all of it. None spends an effort
                by size: about 0.4 s at 10,000 ops, 3 s at 100,000, and as many times that as there are accelerators, up to
                `SEVERAL`, for each number of them.
            seed: of those searches.
        """
        started = time.perf_counter()
        fewer = [*halved(problem)]
        found = self._on_all(problem, objective, _part(time_limit_s, 0, len(fewer)), seed)
        if found.status is Status.OPTIMAL or not fewer:
            return found
        bound_ns = found.lower_bound_ns
        for k, some in enumerate(fewer, 1):
            most_ns = None if found.assignment is None else HOPELESS * found.objective_ns
            other = self._on_all(some.problem, objective, _part(time_limit_s, k, len(fewer)), seed, bound_ns, most_ns)
            if other.assignment is not None and (found.assignment is None or other.objective_ns < found.objective_ns):
                found = replace(other, assignment=some.invert(other.assignment))
        if found.assignment is None:
            return replace(found, seconds=time.perf_counter() - started)
        return answer(
            problem,
            objective,
            found.assignment,
            solver=self.name,
            started=started,
            stop_reason=found.stop_reason,
            stop_detail=found.stop_detail,
            lower_bound_ns=bound_ns,
        )

    def _on_all(
        self,
        problem: PlacementProblem,
        objective: Objective,
        time_limit_s: float | None,
        seed: int,
        known_ns: int = 0,
        most_ns: float | None = None,
    ) -> Solution:
        """The best found from starts on all devices.

        Args:
            known_ns: a bound for more devices, so that none need be looked for here.
            most_ns: it gives up where no simple start makes a step as short as this; None for never.
        """
        started = time.perf_counter()
        runs = OP_RUNS if time_limit_s is None else OP_RUNS_PER_S * time_limit_s
        bound = max(known_ns, step_bound_ns(Simulator(problem)))
        if not known_ns and limits_can_bind(problem) and (time_limit_s is not None or problem.num_ops <= LARGE):
            bounding = BOUND_S if time_limit_s is None else SHARE * time_limit_s
            bound = max(bound, limited_load_ns(Simulator(problem), seconds=bounding))
        search = Search(
            problem,
            bound_ns=bound,
            effort=int(runs * min(SEVERAL, max(1, len(accelerators(problem)))) / max(1, problem.num_ops)),
            ends=started + (time_limit_s if time_limit_s is not None else float("inf")),
        )
        for start in _starts(problem):
            if search.offer(start) is None and (search.best is None or problem.num_ops <= LARGE):
                search.offer_fitting(start)
        parts = _parts(search)
        if most_ns is not None and (search.best is None or search.step_ns(search.best) > most_ns):
            taken = time.perf_counter() - started
            return Solution(None, Status.UNKNOWN, objective, 0, search.bound_ns, self.name, taken, StopReason.ABANDONED)
        if search.limited and (search.best is None or problem.num_ops <= LARGE):
            for fitting in lagrangian(problem, halves=False).found[:RELAXED]:
                search.offer(fitting)
        if search.best is None:
            taken, detail = time.perf_counter() - started, "no start could be repaired"
            return Solution(None, Status.UNKNOWN, objective, 0, search.bound_ns, self.name, taken, StopReason.NOT_FOUND, detail)
        for reduced, start in parts:
            search.climb(reduced, start, search.effort // (2 * len(parts)))
        seconds = time_limit_s or 0.0
        searching = 0 < choices(problem) <= moves_within(problem, objective, seconds)
        several = problem.num_ops <= LARGE and (searching or search.limited or len(accelerators(problem)) > 1)
        starts = CLIMBED if several else 1
        reason = _climbed(search, starts, search.effort * (CLIMBING if searching else 1))
        if searching and reason in {StopReason.LOCAL_OPTIMUM, StopReason.MOVE_BUDGET}:
            for found in _searched(problem, seconds, seed, search.ends):
                if search.offer(found) is None:
                    search.offer_fitting(found)
            reason = _climbed(search, starts, search.effort)
        return answer(
            problem, objective, search.best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=search.bound_ns
        )

    def cite(self) -> str:
        """Its parts."""
        return lines(
            here("local search on the execution model from the best of many starts"),
            HANSEN,
            STONE,
            TOPCUOGLU,
            ARABNEJAD,
            BARNARD,
            KARYPIS,
            KIRKPATRICK,
            GONCALVES,
        )


def _part(seconds: float | None, k: int, last: int) -> float | None:
    """A half, a quarter and so on of the time, and once more the last of these."""
    return None if seconds is None else seconds / 2 ** min(k + 1, last)


def _parts(search: Search) -> list[tuple[Reduced, Assignment]]:
    """Offers partitions, and the best ones improved unit by unit in problems that are not large; gives those, to be improved.

    Those that leave out one accelerator too, where half of them are fewer still: three of four may be nearer to each other.
    """
    problem = search.problem
    found: list[tuple[float, Reduced, Assignment]] = []
    group, machines = accelerators(problem), [problem]
    if len(group) > 3:
        allowed = problem.units.allowed & (np.arange(problem.num_devices) != group[-1])
        allowed = np.where(allowed.any(axis=1)[:, None], allowed, problem.units.allowed)
        machines.append(problem.with_allowed(allowed))
    for reduced, start in itertools.chain.from_iterable(map(partitions, machines)):
        coarse = fit(reduced.problem, start) if search.limited else start
        if coarse is None:
            search.offer_fitting(reduced.invert(start))
        elif (score := search.offer(reduced.invert(coarse))) is not None:
            found.append((score, reduced, coarse))
    found.sort(key=lambda entry: entry[0])
    if problem.num_ops > LARGE:
        return [(reduced, coarse) for _, reduced, coarse in found[:LARGE_CLIMBS]]
    for _, reduced, coarse in found[:CLIMBS]:
        search.offer(exchange(problem, reduced.invert(coarse), passes=PASSES))
    return [(reduced, coarse) for _, reduced, coarse in found[:CLIMBS]]


def _climbed(search: Search, starts: int, effort: float) -> StopReason:
    """Moves units from each of the best few on; says why that ended."""
    everything, least = Reduced.nothing(search.problem), search.effort - effort
    for start in search.ranked()[:starts]:
        reason = search.climb(everything, start, search.effort - least)
        if reason is not StopReason.LOCAL_OPTIMUM:
            break
    return reason


def _searched(problem: PlacementProblem, seconds: float, seed: int, ends: float) -> Iterator[Assignment]:
    """What the searches among the heuristics find with this limit and seed."""
    found = Genetic().solve(problem, "step_time", time_limit_s=seconds, seed=seed).assignment
    if found is not None:
        yield found
    start = fit(problem, default_assignment(problem))
    if start is not None:
        moves = moves_within(problem, "step_time", seconds)
        yield anneal(problem, "step_time", start, moves, np.random.default_rng(seed), ends)


def _starts(problem: PlacementProblem) -> Iterator[Assignment]:
    """The simple placements, so that nothing found is worse than they are, and what may be better."""
    large = problem.num_ops > LARGE
    yield default_assignment(problem)
    yield all_on(problem, "CPU")
    yield all_on(problem, "GPU")
    hidden = np.zeros((problem.num_units, problem.num_devices), np.int64)
    np.add.at(hidden, problem.ops.unit, np.where(problem.devices.asynchronous, problem.ops.compute_ns, problem.ops.time_ns))
    for other in range(problem.num_devices):
        pair = (problem.devices.host, other)
        if other != problem.devices.host and problem.units.allowed[:, pair].any(axis=1).all():
            for copies, overlapped in CUTS[:2] if large else CUTS:
                yield minimum_cut(problem, pair, work_ns=hidden if overlapped else None, copies=copies).assignment
    if not large or problem.num_devices == 2:  # these look at each device in turn, and partitions are better starts on several
        if limits_can_bind(problem):
            yield greedy_benefit_assignment(problem)
        yield earliest_finish_assignment(problem)
    if not large:
        yield heft_schedule(problem).assignment
        yield peft_schedule(problem).assignment
        yield greedy_assignment(problem)
