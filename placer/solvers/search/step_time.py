"""Step time: the best of many starts, improved by local search on the execution model."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from placer.common.clock import OP_RUNS_PER_S, TimeUpError, limit, now, remaining_s, unlimited
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.bounds_in_time import first_bound_ns, raised_bound_ns
from placer.solvers.bounds.branch_and_bound import LAND
from placer.solvers.bounds.destructive_bound import KLEIN, destructive_bound_ns
from placer.solvers.bounds.lagrangian_relaxation import lagrangian_relaxation
from placer.solvers.bounds.step_branching import branch
from placer.solvers.heuristics.earliest_finish import earliest_finish_assignment
from placer.solvers.heuristics.gdl import gdl_schedule
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.greedy_benefit import greedy_benefit_assignment
from placer.solvers.heuristics.heft import SOURCE as HEFT
from placer.solvers.heuristics.heft import heft_schedule
from placer.solvers.heuristics.in_order_fill import in_order_assignment
from placer.solvers.heuristics.max_min import max_min_schedule
from placer.solvers.heuristics.min_min import min_min_schedule
from placer.solvers.heuristics.msbc import msbc_schedule
from placer.solvers.heuristics.peft import SOURCE as PEFT
from placer.solvers.heuristics.peft import peft_schedule
from placer.solvers.heuristics.sufferage import sufferage_schedule
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.coarsening import KARYPIS
from placer.solvers.primitives.device_subset import halved
from placer.solvers.primitives.graph_cut import STONE, minimum_cut
from placer.solvers.primitives.hill_climbing import HANSEN, HillClimbing
from placer.solvers.primitives.local_search import local_search
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.primitives.partition import BARNARD, accelerators, partitions
from placer.solvers.primitives.repair import repair
from placer.solvers.primitives.step_annealing import HOT, WARM, anneal_step
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.search.annealing import SOURCE as ANNEALING
from placer.solvers.search.annealing import moves_within
from placer.solvers.sources import own_work, references

CUT_VARIANTS = ((1.0, False), (1.0, True), (0.25, False), (4.0, False), (0.25, True))
"""Minimum cuts to start from: the weight of copies, and whether dispatch is ignored. The total cost counts work that overlaps in
the step, and ignores queues, so other weights can give a shorter step."""
LIST_SCHEDULES = (gdl_schedule, sufferage_schedule, msbc_schedule, min_min_schedule, max_min_schedule)
"""Starts on devices of one kind."""
MAX_OPS_ALL_STARTS = 5_000
"""Above this number of ops fewer starts are tried."""
OP_RUNS = 160_000
"""Effort without a time limit: ops run in all simulations of one search, about 0.25 s. Starts are tried in any case."""
MAX_EFFORT_FACTOR = 4
"""Limit of the factor of the effort, which grows with the number of accelerators."""
MAX_RELAXATION_STARTS = 20
"""Limit of the number of starts from the Lagrangian relaxation, those of least total cost."""
MAX_CLIMBS = 3
"""Number of the best assignments from which units are moved, with memory limits, several accelerators or a long time limit: one
alone often ends in a poor local optimum."""
FIRST_CLIMB_SHARE = 0.25
"""Limit of the share of the effort that is used before the other searches run."""
DESCENT_SHARE = 0.1
"""Limit of the share of the time before the other searches run."""
MAX_BRANCHED_UNITS, MAX_PROVED_UNITS, BRANCH_SHARE = 40, 12, 0.4
"""Branch and bound looks for the shortest step up to the first number of units to decide. Up to the second number it does so
before annealing, with a share of the remaining effort that often suffices for a proof."""
MOVES_PER_CHOICE, MAX_FAILURES, ANNEALED_STARTS = 300, 3, 3
"""The effort of the first round of annealing for each unit, in simulations; the number of rounds in turn that may find nothing
better; the number of the best assignments from which rounds start."""
ANNEALED_RUNS, ANNEALED_MOVES_PER_UNIT, FEW_ROUNDS = 100_000, 20, 3
"""Without a time limit and with several accelerators, annealing has this effort, in ops run, if that suffices for so many moves
of each unit, and so many rounds."""
ANNEALING_SHARE, MAX_ROUNDS = 0.9, 30
"""Share of the time that remains for annealing; limit of the number of its rounds."""
BRANCH_SHARE_AFTER, PROOF_SHARE, MAX_PROOF_S = 0.6, 0.8, 30.0
"""Shares of the time that remains after annealing for branch and bound, and then for proofs of a higher bound; limit of the time
for proofs, in seconds, as they can take very long."""
MAX_START_RATIO = 2
"""A subset of the accelerators is given up if the step of its best start is longer than this multiple of the best step."""
MAX_CLUSTERINGS, MAX_CLUSTERINGS_LARGE, MAX_PASSES = 8, 2, 3
"""Limits of the number of partitions that are improved, in small and large problems, and of the passes of local search."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Minimises the predicted step time: tries simple placements, minimum cuts and list schedules, and improves the best.

    The result is no worse, by the execution model, than TensorFlow's default, everything on the CPU, or everything on the GPU, if
    those fit. With several accelerators, copies between them can have an extra cost, `Devices.unhidden_percent`.
    """

    name: str = "step_time"
    start: Assignment | None = field(default=None, repr=False)
    """An assignment to start from, such as that of a plan for less memory. If it fits, the result is no worse: its step is no
    longer, counting the extra cost of copies between accelerators."""

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective is another."""
        return "" if objective == "step_time" else f"it minimises step_time, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Tries all starts, then makes moves from the best, until a local optimum, the bound, or the end of the effort.

        With memory limits or several accelerators, single moves often lead nowhere, so it makes moves from the best few starts.
        With several accelerators, partitions are starts too; in the best of these, whole clusters are moved before units. All of
        this is repeated with half of the accelerators, a quarter, and so on down to one, and the shortest step is kept.

        If there are few units, branch and bound then looks for the shortest step. If the time limit allows a random move of each
        unit, the best are annealed, and moves are made from the results.

        Args:
            time_limit_s: None limits the effort by the size of the problem: about 0.4 s at 10,000 ops and 3 s at 100,000 for each
                subset of the accelerators, multiplied by the number of accelerators (at most by `MAX_EFFORT_FACTOR`).
            seed: of the moves of annealing.
        """
        started = time.perf_counter()
        search, others = _search(problem, time_limit_s), list[Assignment]()
        search.offer_fitting(default_assignment(problem))  # whatever the limit, there is an assignment
        if self.start is not None:
            search.offer_fitting(self.start)
        try:
            with limit(time_limit_s):
                reason = _searched(search, others, time_limit_s, seed)
        except TimeUpError:
            reason = StopReason.TIME_LIMIT
        found = [*([] if search.best is None else [search.best]), *others]
        if not found:
            elapsed_s, detail = time.perf_counter() - started, "no start could be repaired"
            return Solution(
                None, Status.UNKNOWN, objective, 0, search.bound_ns, self.name, elapsed_s, StopReason.NOT_FOUND, detail
            )
        return answer(
            problem,
            objective,
            min(found, key=search.step_ns),
            solver=self.name,
            started=started,
            stop_reason=reason,
            lower_bound_ns=search.bound_ns,
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
            LAND,
            KLEIN,
        )


def _searched(search: HillClimbing, others: list[Assignment], time_limit_s: float | None, seed: int) -> StopReason:
    """Runs all searches; returns why they ended. The results on fewer accelerators are added to `others`."""
    problem, seconds = search.problem, time_limit_s or 0.0
    if choices(problem) == 0 and search.best is not None:
        search.bound_ns = search.step_ns(search.best)
        return StopReason.PROVED_OPTIMAL
    subsets = [*halved(problem)]
    run_searches = 0 < choices(problem) <= moves_within(problem, "step_time", seconds)
    shares = [share * remaining_s() for share in _time_shares(1 + len(subsets), run_searches)]
    search.bound_ns = first_bound_ns(problem, time_limit_s)
    reason = _descend(search, run_searches, shares[0])
    branches_first = not run_searches or choices(problem) <= MAX_PROVED_UNITS
    if branches_first and search.best is not None and reason is not StopReason.PROVED_OPTIMAL:
        reason = _branch(search, BRANCH_SHARE) or reason
    if not run_searches and search.best is not None and reason is not StopReason.PROVED_OPTIMAL:
        _raise_bound(search, time_limit_s)
    for subset, share in zip(subsets, shares[1:], strict=True):
        if reason is StopReason.PROVED_OPTIMAL:
            break
        max_start_ns = math.inf if search.best is None else MAX_START_RATIO * search.step_ns(search.best)
        other = _search(subset.problem, None if time_limit_s is None else share, search.bound_ns)
        other_reason = _descend(other, run_searches, share, max_start_ns)
        if other.best is not None and other_reason is not StopReason.ABANDONED:
            others.append(subset.invert(other.best))
            reason = other_reason if search.best is None else reason
    if run_searches and search.best is not None and reason is not StopReason.PROVED_OPTIMAL:
        for assignment in others:
            search.offer(assignment)
        try:
            with limit(ANNEALING_SHARE * remaining_s()):
                reason = _anneal(search, seed, MOVES_PER_CHOICE * choices(problem))
        except TimeUpError:
            reason = StopReason.TIME_LIMIT
        if reason is not StopReason.PROVED_OPTIMAL:
            _raise_bound(search, time_limit_s)
            reason = _branch(search, BRANCH_SHARE_AFTER) or reason
        if reason is not StopReason.PROVED_OPTIMAL:
            reason = _prove(search, seed) or reason
        return reason
    annealed = ANNEALED_RUNS / max(1, problem.num_ops)
    wanted = not seconds and others and reason is StopReason.LOCAL_OPTIMUM
    if wanted and annealed >= ANNEALED_MOVES_PER_UNIT * choices(problem):
        search.effort = min(search.effort, annealed)
        _anneal(search, seed, annealed / (2**FEW_ROUNDS - 1), FEW_ROUNDS)
    return reason


def _time_shares(descents: int, run_searches: bool) -> list[float]:
    """The shares of the time limit of the descents with all accelerators, half of them, and so on.

    If nothing follows them, they are a half, a quarter, and so on; the last two are equal.
    """
    if run_searches:
        return [DESCENT_SHARE / descents] * descents
    return [0.5 ** min(k + 1, descents - 1) for k in range(descents)]


def _search(problem: PlacementProblem, time_limit_s: float | None, bound_ns: int = 0) -> HillClimbing:
    """A search without an assignment, and with an effort by the time limit and the number of accelerators."""
    runs = OP_RUNS if time_limit_s is None else OP_RUNS_PER_S * time_limit_s
    factor = min(MAX_EFFORT_FACTOR, max(1, len(accelerators(problem))))
    return HillClimbing(problem, bound_ns, effort=int(runs * factor / max(1, problem.num_ops)))


def _descend(search: HillClimbing, run_searches: bool, seconds: float, max_start_ns: float = math.inf) -> StopReason:
    """Offers starts to the search and makes moves from the best of them; returns why it ended.

    Args:
        run_searches: other searches follow, so moves use a share of the effort, and start from several assignments.
        seconds: time limit.
        max_start_ns: give up if no simple start has a step as short as this.
    """
    try:
        with limit(seconds):
            return _descended(search, run_searches, max_start_ns)
    except TimeUpError:
        return StopReason.TIME_LIMIT


def _descended(search: HillClimbing, run_searches: bool, max_start_ns: float) -> StopReason:
    problem, reserve = search.problem, (1 - FIRST_CLIMB_SHARE) * search.effort if run_searches else 0.0
    for start in _starts(problem):
        if search.offer(start) is None and (search.best is None or problem.num_ops <= MAX_OPS_ALL_STARTS):
            search.offer_repaired(start)
    clusterings = _clusterings(search)
    if max_start_ns < math.inf and (search.best is None or search.step_ns(search.best) > max_start_ns):
        return StopReason.ABANDONED
    if search.limited and (search.best is None or (problem.num_ops <= MAX_OPS_ALL_STARTS and not run_searches)):
        for fitting in lagrangian_relaxation(problem, halves=False).assignments[:MAX_RELAXATION_STARTS]:
            search.offer(fitting)
    if search.best is None:
        return StopReason.NOT_FOUND
    for reduced, start in clusterings:
        search.climb(reduced, start, (search.effort - reserve) // (2 * len(clusterings)))
    several = problem.num_ops <= MAX_OPS_ALL_STARTS and (run_searches or search.limited or len(accelerators(problem)) > 1)
    return _climb(search, MAX_CLIMBS if several else 1, search.effort - reserve)


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


def _branch(search: HillClimbing, share: float) -> StopReason | None:
    """Looks for the shortest step of a small problem by branch and bound, with a share of the time and of the effort that remain.

    Returns why that ended, None if it found nothing.
    """
    assert search.best is not None
    if choices(search.problem) > MAX_BRANCHED_UNITS:
        return None
    shortest_ns = min(map(search.step_ns, search.ranked()))
    ends = now() + share * remaining_s()
    branching = branch(search.simulator, shortest_ns, effort=share * search.effort, ends=ends)
    search.effort -= branching.effort
    search.bound_ns = max(search.bound_ns, branching.bound_ns)
    if branching.assignment is not None:
        search.offer(branching.assignment)
    if search.step_ns(search.best) <= search.bound_ns:
        return StopReason.PROVED_OPTIMAL
    return None if branching.assignment is None else _climb(search, 1, search.effort)


def _raise_bound(search: HillClimbing, time_limit_s: float | None) -> None:
    """Raises the bound by `raised_bound_ns`."""
    shortest_ns = min(map(search.step_ns, search.ranked()))
    search.bound_ns = raised_bound_ns(search.simulator, search.bound_ns, shortest_ns, time_limit_s)


def _prove(search: HillClimbing, seed: int) -> StopReason | None:
    """Raises the bound by proofs that shorter steps are impossible, with a share of the time that remains.

    Returns `PROVED_OPTIMAL` if it is raised to the shortest step.
    """
    assert search.best is not None
    shortest_ns, seconds = min(map(search.step_ns, search.ranked())), min(MAX_PROOF_S, PROOF_SHARE * remaining_s())
    search.bound_ns = destructive_bound_ns(search.simulator, search.bound_ns, shortest_ns, seconds=seconds, seed=seed)
    return StopReason.PROVED_OPTIMAL if search.step_ns(search.best) <= search.bound_ns else None


def _anneal(search: HillClimbing, seed: int, effort: float, rounds: int = MAX_ROUNDS) -> StopReason:
    """Anneals from the best assignments, and makes moves from the results; returns why that ended.

    Each round has twice the effort of the one before, and the last one all that remains. It ends when some rounds in turn have
    found nothing better, at the bound, or when the effort or the time is over.

    Args:
        seed: of the moves.
        effort: of the first round, in simulations.
        rounds: limit of the number of rounds.
    """
    rng, starts, failures = np.random.default_rng(seed), search.ranked()[:ANNEALED_STARTS], 0
    for k in range(rounds):
        before = search.best
        assert before is not None
        remaining = min(search.effort, remaining_s() * OP_RUNS_PER_S / max(1, search.problem.num_ops))
        if remaining <= 0:
            return StopReason.MOVE_BUDGET
        within = effort * 2**k if effort * 2 ** (k + 1) <= remaining else remaining
        search.effort -= within
        temperature = HOT if k % 2 else WARM
        found = anneal_step(search.simulator, starts[k % len(starts)], within, rng, now() + remaining_s(), temperature)
        with unlimited():  # what is found is not lost
            search.offer(found)
        if search.step_ns(search.best or before) <= search.bound_ns:
            return StopReason.PROVED_OPTIMAL
        failures = failures + 1 if search.best is before else 0
        if failures >= MAX_FAILURES:
            break
    return _climb(search, MAX_CLIMBS, search.effort)


def _starts(problem: PlacementProblem) -> Iterator[Assignment]:
    """The simple placements, so that the result is no worse than they are; then minimum cuts and heuristics."""
    large = problem.num_ops > MAX_OPS_ALL_STARTS
    yield default_assignment(problem)
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
    else:
        yield in_order_assignment(problem)
    if not large:
        yield heft_schedule(problem).assignment
        yield peft_schedule(problem).assignment
        yield greedy_assignment(problem)
        if len(set(problem.devices.kinds)) == 1:  # cuts and partitions are for a host and its accelerators
            for schedule in LIST_SCHEDULES:
                yield schedule(problem).assignment


solver = StepTime
