"""A lower bound on the step time by destructive improvement: shorter steps are proved to be impossible."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from placer.common.clock import TimeUpError, limit, now
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import limits_can_bind
from placer.solvers.bounds.schedule_program import ScheduleProgram
from placer.solvers.bounds.time_windows import TimeWindows
from placer.solvers.primitives.assignment_program import Moment, exceeded_moments

KLEIN = (
    "R. Klein, A. Scholl, Computing lower bounds by destructive improvement: an application to resource-constrained project "
    "scheduling, European Journal of Operational Research 112(2), 1999, doi:10.1016/S0377-2217(97)00442-6"
)

MAX_OPS = 1_000
"""Up to this number of ops the programs are small enough."""
REL_TOL = 0.005
"""The search ends when a time that was not refuted is longer than the bound by at most this share of the step time."""
STEP_SHARE = 0.3
"""A trial is longer than the bound by this share of what is undecided: short times are refuted soon."""
TRIAL_SHARE = 0.5
"""Share of the remaining time for each trial."""


def destructive_bound_ns(simulator: Simulator, known_ns: int, limit_ns: int, *, seconds: float, seed: int = 0) -> int:
    """A lower bound on the step time of the assignments that meet the memory limits, or `limit_ns` if that is shorter, in ns.

    If a relaxation of the steps that are shorter than a time has no solution, the time is a bound (Klein, Scholl 1999). The
    shorter the time, the fewer devices and times are left to each op. What is undecided between the known bound and the
    limit shrinks with every trial.

    Above `MAX_OPS` ops the result is the known bound.

    Args:
        simulator: of the problem.
        known_ns: a bound to start from.
        limit_ns: the step time of a known assignment.
        seconds: the time limit.
        seed: of the constraint programs.
    """
    problem, low, high, ends = simulator.problem, known_ns, limit_ns + 1, now() + seconds
    if problem.num_ops > MAX_OPS:
        return known_ns
    moments = _moments(problem) if limits_can_bind(problem) else set()
    with limit(seconds), suppress(TimeUpError):
        while low < limit_ns and now() < ends:
            if high <= limit_ns and high - low <= REL_TOL * limit_ns:
                break
            step_ns = max(int(STEP_SHARE * (high - low)), int(REL_TOL * limit_ns), 1)
            trial = min(limit_ns, low + step_ns)
            if _none_is_shorter(simulator, trial, moments, TRIAL_SHARE * (ends - now()), seed):
                low = trial
            else:
                high = trial
    return low


def _none_is_shorter(simulator: Simulator, step_ns: int, moments: set[Moment], seconds: float, seed: int) -> bool:
    """Whether it is proved that no step is shorter than `step_ns`.

    The memory limits hold at the given moments. Those at which a solution exceeds them are added.
    """
    problem, ops_ns, ends = simulator.problem, _longest_ops_ns(simulator, step_ns), now() + seconds
    windows = TimeWindows.of(simulator, ops_ns)
    if not windows.allowed.any(axis=1).all():
        return True
    program = ScheduleProgram(Simulator(problem.with_allowed(windows.allowed)), windows, ops_ns)
    program.limit(sorted(moments))
    while True:
        possible, assignment = program.solve(max(0.0, ends - now()), seed)
        exceeded = set() if assignment is None else set(exceeded_moments(problem, assignment))
        if not exceeded:
            return not possible
        moments |= exceeded
        program.limit(sorted(exceeded))


def _moments(problem: PlacementProblem) -> set[Moment]:
    """Where the memory limits are exceeded if all units are on one device that may be there."""
    allowed = problem.units.allowed
    all_on = (Assignment(np.where(allowed[:, d], d, allowed.argmax(axis=1))) for d in range(problem.num_devices))
    return {moment for assignment in all_on for moment in exceeded_moments(problem, assignment)}


def _longest_ops_ns(simulator: Simulator, step_ns: int) -> int:
    """The longest time of all ops in a step shorter than `step_ns`."""
    low, high = -1, step_ns
    while high - low > 1:
        middle = (low + high) // 2
        if simulator.whole_ns(middle, simulator.least_call_ns) < step_ns:
            low = middle
        else:
            high = middle
    return low
