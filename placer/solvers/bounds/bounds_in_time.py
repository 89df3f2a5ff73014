"""The bounds on the step time that a search has time for."""

from __future__ import annotations

from placer.common.clock import add_work_s, remaining_s
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import limits_can_bind
from placer.solvers.bounds.limited_load import limited_load_ns
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.bounds.step_program import step_program_ns

BOUND_S, BOUND_SHARE = 0.5, 0.1
"""Time for each bound: seconds if there is no time limit, enough for some hundred ops; its share of one."""
MAX_UNTIMED_OPS = 5_000
"""Above this number of ops, there is time for memory limits only within a time limit."""
PROGRAM_S = 0.001
"""Time of the linear program of a bound for each op, in seconds."""


def first_bound_ns(problem: PlacementProblem, time_limit_s: float | None) -> int:
    """A lower bound on the step time of the assignments that meet the memory limits, before any is known."""
    bound_ns = step_bound_ns(Simulator(problem))
    if not limits_can_bind(problem) or time_limit_s is not None or problem.num_ops <= MAX_UNTIMED_OPS:
        bound_s = BOUND_S if time_limit_s is None else BOUND_SHARE * time_limit_s
        bound_ns = max(bound_ns, limited_load_ns(Simulator(problem), seconds=bound_s))
    return bound_ns


def raised_bound_ns(simulator: Simulator, bound_ns: int, shortest_ns: int, time_limit_s: float | None) -> int:
    """A higher bound by the linear program, if there is time for it.

    Args:
        simulator: of the problem.
        bound_ns: a known bound.
        shortest_ns: the shortest step that was found.
        time_limit_s: of the search, of which a part may be over.
    """
    program_s = PROGRAM_S * simulator.problem.num_ops
    if program_s > (BOUND_S if time_limit_s is None else remaining_s()):
        return bound_ns
    add_work_s(program_s)
    return max(bound_ns, step_program_ns(simulator, shortest_ns))
