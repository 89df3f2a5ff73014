"""Why nothing fits: which device, which limit, by how much, what takes most there, and the way out."""

from __future__ import annotations

import numpy as np

from placer.opgraph import OpGraph
from placer.problem.formulate import kept
from placer.problem.memory import excess, usage
from placer.problem.problem import Assignment, Bools, Ints, PlacementProblem
from placer.solvers.base import Solution, Status
from placer.solvers.registry import solver
from placer.units import format_bytes

ATTEMPTS = ("greedy", "tf_default", "all_cpu", "all_gpu")
HOLDERS_SHOWN = 4


def explain_infeasible(graph: OpGraph, problem: PlacementProblem, solution: Solution) -> str:
    """The message for a solution of the graph's problem that proves that nothing fits, or found nothing that does.

    Variables and captures that are bound to one device can prove the point alone; otherwise it shows what the simple placement
    lacks that misses the limits least.
    """
    proved = solution.status is Status.INFEASIBLE
    lead = "no placement fits the memory limits" if proved else f"{solution.solver} found no placement ({solution.stop_reason})"
    bound = np.where(problem.unit_allowed.sum(axis=1) == 1, problem.unit_allowed.argmax(axis=1), -1)
    for d, (name, limit) in enumerate(zip(problem.device_names, problem.memory_limit_bytes.tolist(), strict=True)):
        if 0 <= limit < (held := int(problem.unit_persistent_bytes[bound == d].sum())):
            return (
                f"{lead}: what has to stay on {name} takes {_bytes(held)}, {_bytes(held - limit)} over its limit of "
                f"{_bytes(limit)}. Most is held by {_most(graph, problem, bound == d)}. "
                f"Way out: a limit of at least {held} bytes for {name}, or make some of these on another device."
            )
    attempts = {name: solver(name).solve(problem, solution.objective).assignment for name in ATTEMPTS}
    over = {name: excess(problem, a) for name, a in attempts.items() if a is not None}
    if not over:
        return f"{lead}. Way out: higher limits, or a smaller batch."
    closest = min(over, key=lambda name: int(over[name].sum()))
    assignment = attempts[closest]
    assert assignment is not None
    if not over[closest].any():
        return f"{lead}, but {closest} fits. Way out: solver={closest!r}, or a longer time_limit_s."
    d = int(np.argmax(over[closest]))
    limit, missing = int(problem.memory_limit_bytes[d]), int(over[closest][d])
    most = _most(graph, problem, assignment.device == d, _passing_at_peak(problem, assignment, d))
    return (
        f"{lead}: {closest}, the closest of {', '.join(over)}, needs {_bytes(limit + missing)} on {problem.device_names[d]}, "
        f"{_bytes(missing)} over its limit of {_bytes(limit)}. At the peak, most is held by {most}. "
        f"Way out: a limit of at least {limit + missing} bytes for {problem.device_names[d]}, or a smaller batch."
    )


def _passing_at_peak(problem: PlacementProblem, assignment: Assignment, d: int) -> Ints:
    """[N]: bytes on device `d` while it holds most, by the op that made them, without what is kept from step to step."""
    moment = int(np.argmax(usage(problem, assignment)[d]))
    until = problem.tensor_op.copy()
    np.maximum.at(until, problem.consumer_tensor, problem.consumer_op)
    until[problem.tensor_is_result] = problem.ops - 1
    made_here = problem.place_device[
        problem.tensor_place[np.arange(len(until)), assignment.device[problem.op_unit[problem.tensor_op]]]
    ]
    alive = (made_here == d) & ~problem.shared & (problem.tensor_op <= moment) & (moment <= until)
    passing = np.zeros(problem.ops, np.int64)
    np.add.at(passing, problem.tensor_op[alive], problem.tensor_bytes[alive])
    if assignment.device[problem.op_unit[moment]] == d:
        passing[moment] += problem.op_workspace_bytes[moment, d]
    return passing


def _most(graph: OpGraph, problem: PlacementProblem, here: Bools, passing: Ints | None = None) -> str:
    """Names what takes most: of that kept by the units that are `here` [U], and of what is `passing` [N]."""
    found = [(nbytes, name) for op, name, nbytes in kept(graph) if nbytes and here[problem.op_unit[op]]]
    if passing is not None:
        found += [(nbytes, problem.op_names[op]) for op, nbytes in enumerate(passing.tolist()) if nbytes]
    found.sort(key=lambda holder: (-holder[0], holder[1]))
    return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for nbytes, name in found[:HOLDERS_SHOWN])


def _bytes(size: int) -> str:
    return f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
