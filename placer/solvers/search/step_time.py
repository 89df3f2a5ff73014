"""Step time: the best of many starts, improved by local search on the execution model."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placer.common.clock import TimeUpError, limit, now, remaining_s, unlimited
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.lagrangian_relaxation import lagrangian_relaxation
from placer.solvers.bounds.limited_load import limited_load_ns
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.heuristics.earliest_finish import earliest_finish_assignment
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.greedy_benefit import greedy_benefit_assignment
from placer.solvers.heuristics.heft import SOURCE as HEFT
from placer.solvers.heuristics.heft import heft_schedule
from placer.solvers.heuristics.peft import SOURCE as PEFT
from placer.solvers.heuristics.peft import peft_schedule
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.coarsening import KARYPIS
from placer.solvers.primitives.device_subset import halved
from placer.solvers.primitives.graph_cut import STONE, minimum_cut
from placer.solvers.primitives.hill_climbing import HANSEN, HillClimbing
from placer.solvers.primitives.local_search import local_search
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.primitives.partition import BARNARD, accelerators, partitions
from placer.solvers.primitives.repair import repair
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.search.annealing import SOURCE as ANNEALING
from placer.solvers.search.annealing import anneal_repeatedly, moves_within
from placer.solvers.search.genetic import RANDOM_KEYS, effort_within, evolve
from placer.solvers.sources import own_work, references

CUT_VARIANTS = ((1.0, False), (1.0, True), (0.25, False), (4.0, False), (0.25, True))
"""Minimum cuts to start from: the weight of copies, and whether dispatch is ignored. The total cost counts work that overlaps in
the step, and ignores queues, so other weights can give a shorter step."""
MAX_OPS_ALL_STARTS = 5_000
"""Above this number of ops fewer starts are tried."""
OP_RUNS = 160_000
"""Effort without a time limit: ops run in all simulations of one search, about 0.25 s. Starts are tried in any case."""
OP_RUNS_PER_S = 400_000
"""Effort per second of a time limit."""
BOUND_S, BOUND_SHARE = 0.5, 0.2
"""Time for the bound under memory limits: seconds if there is no time limit, enough for some hundred ops; its share of one."""
MAX_EFFORT_FACTOR = 4
"""Limit of the factor of the effort, which grows with the number of accelerators."""
MAX_RELAXATION_STARTS = 20
"""Limit of the number of starts from the Lagrangian relaxation, those of least total cost."""
MAX_CLIMBS = 3
"""Number of the best assignments from which units are moved, with memory limits, several accelerators or a long time limit: one
alone often ends in a poor local optimum."""
FIRST_CLIMB_SHARE = 0.25
"""Limit of the share of the effort that is used before the other searches run."""
GENETIC_SHARE, ANNEALING_SHARE = 0.4, 0.9
"""Shares of the time that remains for the other searches."""
MAX_ENUMERATED = 20_000
"""Up to this number of assignments, and if the time limit allows it, all of them are tried instead of the other searches."""
MAX_START_RATIO = 2
"""A subset of the accelerators is given up if the step of its best start is longer than this multiple of the best step."""
MAX_CLUSTERINGS, MAX_CLUSTERINGS_LARGE, MAX_PASSES = 8, 2, 3
"""Limits of the number of partitions that are improved, in small and large problems, and of the passes of local search."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Minimises the predicted step time: tries simple placements, minimum cuts and list schedules, and improves the best.

    The result is no worse, by the execution model, than TensorFlow's default, everything on the CPU, or everything on the GPU, if
    those fit. With several accelerators, copies between them have an extra cost, `hill_climbing.COPY_WEIGHT`.
    """

    name: str = "step_time"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective is another."""
        return "" if objective == "step_time" else f"it minimises step_time, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Tries all starts, then makes moves from the best, until a local optimum, the bound, or the end of the effort.

        With memory limits or several accelerators, single moves often lead nowhere, so it makes moves from the best few starts.
        If the time limit allows a random move of each unit, `genetic` and `annealing` run too, with this time limit and seed, and
        moves are made from their results.

        With several accelerators, partitions are starts too; in the best of these, whole clusters are moved before units. All of
        this is repeated with half of the accelerators, a quarter, and so on down to one. The assignment with the shortest step is
        kept. Fewer accelerators can give a shorter step, because copies to a single accelerator have no extra cost.

        Args:
            time_limit_s: each of these searches gets half of the time that remains, the last one all of it. None limits the
                effort by the size of the problem: about 0.4 s at 10,000 ops and 3 s at 100,000 for each subset of the
                accelerators, multiplied by the number of accelerators (at most by `MAX_EFFORT_FACTOR`).
            seed: of `genetic` and `annealing`.
        """
        with limit(time_limit_s):
            return self._on_subsets(problem, objective, time_limit_s, seed)

    def _on_subsets(self, problem: PlacementProblem, objective: Objective, time_limit_s: float | None, seed: int) -> Solution:
        """The best of the searches on all accelerators, half of them, and so on."""
        started = time.perf_counter()
        subsets = [*halved(problem)]
        best = self._on_all(problem, objective, _time_share(time_limit_s, 0, len(subsets)), seed)
        if best.status is Status.OPTIMAL or not subsets:
            return best
        bound_ns = best.lower_bound_ns
        for k, subset in enumerate(subsets, 1):
            max_start_ns = None if best.assignment is None else MAX_START_RATIO * best.objective_ns
            other = self._on_all(
                subset.problem, objective, _time_share(time_limit_s, k, len(subsets)), seed, bound_ns, max_start_ns
            )
            if other.assignment is not None and (best.assignment is None or other.objective_ns < best.objective_ns):
                best = replace(other, assignment=subset.invert(other.assignment))
        if best.assignment is None:
            return replace(best, seconds=time.perf_counter() - started)
        return answer(
            problem,
            objective,
            best.assignment,
            solver=self.name,
            started=started,
            stop_reason=best.stop_reason,
            stop_detail=best.stop_detail,
            lower_bound_ns=bound_ns,
        )

    def _on_all(
        self,
        problem: PlacementProblem,
        objective: Objective,
        time_limit_s: float | None,
        seed: int,
        known_bound_ns: int = 0,
        max_start_ns: float | None = None,
    ) -> Solution:
        """The best assignment from starts on all devices of the problem.

        Args:
            known_bound_ns: a bound for a superset of the devices; 0 if a bound is to be computed.
            max_start_ns: the search is given up if no simple start has a step as short as this; None to never give up.
        """
        started = time.perf_counter()
        runs = OP_RUNS if time_limit_s is None else OP_RUNS_PER_S * time_limit_s
        search = HillClimbing(
            problem,
            bound_ns=known_bound_ns,
            effort=int(runs * min(MAX_EFFORT_FACTOR, max(1, len(accelerators(problem)))) / max(1, problem.num_ops)),
            ends=math.inf if time_limit_s is None else now() + time_limit_s,
        )
        try:
            with limit(time_limit_s):
                reason = _searched(search, objective, time_limit_s, seed, known_bound_ns, max_start_ns)
        except TimeUpError:
            reason = StopReason.TIME_LIMIT
        if search.best is None or reason is StopReason.ABANDONED:
            detail = "" if reason is StopReason.ABANDONED else "no start could be repaired"
            reason = StopReason.ABANDONED if reason is StopReason.ABANDONED else StopReason.NOT_FOUND
            elapsed_s = time.perf_counter() - started
            return Solution(None, Status.UNKNOWN, objective, 0, search.bound_ns, self.name, elapsed_s, reason, detail)
        return answer(
            problem, objective, search.best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=search.bound_ns
        )

    def cite(self) -> str:
        """The methods that it combines."""
        return references(
            own_work("local search on the execution model from the best of many starts"),
            HANSEN,
            STONE,
            HEFT,
            PEFT,
            BARNARD,
            KARYPIS,
            ANNEALING,
            RANDOM_KEYS,
        )


def _searched(
    search: HillClimbing,
    objective: Objective,
    time_limit_s: float | None,
    seed: int,
    known_bound_ns: int,
    max_start_ns: float | None,
) -> StopReason:
    """Offers starts to the search and makes moves from the best; returns why it ended. Arguments as of `StepTime._on_all`."""
    problem = search.problem
    with unlimited():  # whatever the limit, there is an assignment
        search.offer_fitting(default_assignment(problem))
    if not known_bound_ns:
        search.bound_ns = step_bound_ns(search.simulator)
        if search.limited and (time_limit_s is not None or problem.num_ops <= MAX_OPS_ALL_STARTS):
            bound_s = BOUND_S if time_limit_s is None else BOUND_SHARE * time_limit_s
            search.bound_ns = max(search.bound_ns, limited_load_ns(search.simulator, seconds=bound_s))
    for start in _starts(problem):
        if search.offer(start) is None and (search.best is None or problem.num_ops <= MAX_OPS_ALL_STARTS):
            search.offer_repaired(start)
    clusterings = _clusterings(search)
    if max_start_ns is not None and (search.best is None or search.step_ns(search.best) > max_start_ns):
        return StopReason.ABANDONED
    if search.limited and (search.best is None or problem.num_ops <= MAX_OPS_ALL_STARTS):
        for fitting in lagrangian_relaxation(problem, halves=False).assignments[:MAX_RELAXATION_STARTS]:
            search.offer(fitting)
    if search.best is None:
        return StopReason.NOT_FOUND
    for reduced, start in clusterings:
        search.climb(reduced, start, search.effort // (2 * len(clusterings)))
    seconds = time_limit_s or 0.0
    run_searches = 0 < choices(problem) <= moves_within(problem, objective, seconds)
    several = problem.num_ops <= MAX_OPS_ALL_STARTS and (run_searches or search.limited or len(accelerators(problem)) > 1)
    starts = MAX_CLIMBS if several else 1
    reason = _climb(search, starts, search.effort * (FIRST_CLIMB_SHARE if run_searches else 1))
    if run_searches and reason in {StopReason.LOCAL_OPTIMUM, StopReason.MOVE_BUDGET}:
        if _assignments(problem) <= min(search.effort, MAX_ENUMERATED):
            return _enumerate(search)
        for result in _search_results(problem, seconds, seed, search):
            search.offer_fitting(result)
        reason = _climb(search, starts, search.effort)
    return reason


def _time_share(seconds: float | None, k: int, last: int) -> float | None:
    """The time limit of search k: a half, a quarter, and so on of all the time; the last two are equal."""
    return None if seconds is None else seconds / 2 ** min(k + 1, last)


def _clusterings(search: HillClimbing) -> list[tuple[Reduced, Assignment]]:
    """Offers partitions to the search; returns the best, with the reduced problems whose units are their clusters.

    In small problems the best are also improved by local search and offered again. With more than three accelerators, partitions
    over all but the last one are offered as well: three of four accelerators may be closer to each other.
    """
    problem = search.problem
    scored: list[tuple[float, Reduced, Assignment]] = []
    group, machines = accelerators(problem), [problem]
    if len(group) > 3:
        allowed = problem.units.allowed & (np.arange(problem.num_devices) != group[-1])
        allowed = np.where(allowed.any(axis=1)[:, None], allowed, problem.units.allowed)
        machines.append(problem.with_allowed(allowed))
    for reduced, start in itertools.chain.from_iterable(map(partitions, machines)):
        coarse = repair(reduced.problem, start) if search.limited else start
        if coarse is None:
            search.offer_repaired(reduced.invert(start))
        elif (score := search.offer(reduced.invert(coarse))) is not None:
            scored.append((score, reduced, coarse))
    scored.sort(key=lambda entry: entry[0])
    if problem.num_ops > MAX_OPS_ALL_STARTS:
        return [(reduced, coarse) for _, reduced, coarse in scored[:MAX_CLUSTERINGS_LARGE]]
    for _, reduced, coarse in scored[:MAX_CLUSTERINGS]:
        search.offer(local_search(problem, reduced.invert(coarse), max_passes=MAX_PASSES))
    return [(reduced, coarse) for _, reduced, coarse in scored[:MAX_CLUSTERINGS]]


def _climb(search: HillClimbing, starts: int, effort: float) -> StopReason:
    """Makes moves of units from each of the best assignments; returns why that ended."""
    unreduced, reserve = Reduced.identity(search.problem), search.effort - effort
    for start in search.ranked()[:starts]:
        reason = search.climb(unreduced, start, search.effort - reserve)
        if reason is not StopReason.LOCAL_OPTIMUM:
            break
    return reason


def _assignments(problem: PlacementProblem) -> int:
    """The number of assignments."""
    return math.prod(problem.units.allowed.sum(axis=1).tolist())


def _enumerate(search: HillClimbing) -> StopReason:
    """Offers every assignment, so that the shortest step is the bound; returns why it ended."""
    options = [np.flatnonzero(row).tolist() for row in search.problem.units.allowed]
    shortest_ns: float = math.inf
    for device in itertools.product(*options):
        assignment = Assignment(np.array(device, np.int64))
        if search.offer(assignment) is not None:
            shortest_ns = min(shortest_ns, search.step_ns(assignment))
    search.bound_ns = max(search.bound_ns, int(shortest_ns))
    whole = search.best is not None and search.step_ns(search.best) <= search.bound_ns
    return StopReason.PROVED_OPTIMAL if whole else StopReason.COMPLETED


def _search_results(problem: PlacementProblem, seconds: float, seed: int, search: HillClimbing) -> Iterator[Assignment]:
    """The results of `genetic` and `annealing` with this time limit and seed. They end at the bound of the search."""
    with limit(GENETIC_SHARE * remaining_s()):
        effort, rng = effort_within(problem, seconds), np.random.default_rng(seed)
        evolved = evolve(problem, "step_time", *effort, rng, search.bound_ns)[0]
    yield evolved
    start = repair(problem, default_assignment(problem))
    if start is not None:
        moves, rng = moves_within(problem, "step_time", seconds), np.random.default_rng(seed)
        ends = now() + ANNEALING_SHARE * remaining_s()
        yield anneal_repeatedly(problem, "step_time", start, moves, rng, ends, search.bound_ns)[0]


def _starts(problem: PlacementProblem) -> Iterator[Assignment]:
    """Simple placements beside the default, so that the result is no worse than they are; then minimum cuts and heuristics."""
    large = problem.num_ops > MAX_OPS_ALL_STARTS
    yield all_on(problem, "CPU")
    yield all_on(problem, "GPU")
    undispatched = np.zeros((problem.num_units, problem.num_devices), np.int64)
    np.add.at(undispatched, problem.ops.unit, np.where(problem.devices.asynchronous, problem.ops.compute_ns, problem.ops.time_ns))
    for other in range(problem.num_devices):
        pair = (problem.devices.host, other)
        if other != problem.devices.host and problem.units.allowed[:, pair].any(axis=1).all():
            for copies, ignore_dispatch in CUT_VARIANTS[:2] if large else CUT_VARIANTS:
                yield minimum_cut(problem, pair, work_ns=undispatched if ignore_dispatch else None, copies=copies).assignment
    if not large or problem.num_devices == 2:  # partitions are better starts on several accelerators
        if limits_can_bind(problem):
            yield greedy_benefit_assignment(problem)
        yield earliest_finish_assignment(problem)
    if not large:
        yield heft_schedule(problem).assignment
        yield peft_schedule(problem).assignment
        yield greedy_assignment(problem)


solver = StepTime
