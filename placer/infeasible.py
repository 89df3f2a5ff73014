"""Why nothing fits: which device, which limit, by how much, what takes most there, and the way out."""

from __future__ import annotations

import numpy as np

from placer.problem.memory import excess, usage
from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.solvers.base import Solution, Status
from placer.solvers.registry import solver
from placer.units import format_bytes

ATTEMPTS = ("greedy", "tf_default", "all_cpu", "all_gpu")
HOLDERS_SHOWN = 4


def explain_infeasible(problem: PlacementProblem, solution: Solution) -> str:
    """The message for a solution that proves that nothing fits, or found nothing that does.

    Variables and captures that are bound to one device can prove the point alone; otherwise it shows what the simple placement
    lacks that misses the limits least.
    """
    proved = solution.status is Status.INFEASIBLE
    lead = "no placement fits the memory limits" if proved else f"{solution.solver} found no placement ({solution.stop_reason})"
    bound = np.where(problem.unit_allowed.sum(axis=1) == 1, problem.unit_allowed.argmax(axis=1), -1)
    for d, (name, limit) in enumerate(zip(problem.device_names, problem.memory_limit_bytes.tolist(), strict=True)):
        kept = np.where(bound == d, problem.unit_persistent_bytes, 0)
        if 0 <= limit < (held := int(kept.sum())):
            return (
                f"{lead}: what has to stay on {name} takes {_bytes(held)}, {_bytes(held - limit)} over its limit of "
                f"{_bytes(limit)}. Most is held by {_most(problem, kept)}. Way out: a limit of at least {held} bytes for {name}, "
                "or make some of these on another device."
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
    return (
        f"{lead}: {closest}, the closest of {', '.join(over)}, needs {_bytes(limit + missing)} on {problem.device_names[d]}, "
        f"{_bytes(missing)} over its limit of {_bytes(limit)}. At the peak, most is held by "
        f"{_most(problem, *_held_at_peak(problem, assignment, d))}. Way out: a limit of at least {limit + missing} bytes for "
        f"{problem.device_names[d]}, or a smaller batch."
    )


def _held_at_peak(problem: PlacementProblem, assignment: Assignment, d: int) -> tuple[Ints, Ints]:
    """Bytes on device `d` while it holds most: kept for good by each unit [U], and passing, by the op that made them [N]."""
    kept = np.where(assignment.device == d, problem.unit_persistent_bytes, 0)
    moment = int(np.argmax(usage(problem, assignment)[d]))
    until = problem.tensor_op.copy()
    np.maximum.at(until, problem.consumer_tensor, problem.consumer_op)
    until[problem.tensor_is_result] = problem.ops - 1
    made_here = problem.place_device[
        problem.tensor_place[np.arange(len(until)), assignment.device[problem.op_unit[problem.tensor_op]]]
    ]
    alive = (made_here == d) & (problem.shared_place < 0) & (problem.tensor_op <= moment) & (moment <= until)
    passing = np.zeros(problem.ops, np.int64)
    np.add.at(passing, problem.tensor_op[alive], problem.tensor_bytes[alive])
    if assignment.device[problem.op_unit[moment]] == d:
        passing[moment] += problem.op_workspace_bytes[moment, d]
    return kept, passing


def _most(problem: PlacementProblem, kept: Ints, passing: Ints | None = None) -> str:
    first = {unit: name for name, unit in reversed(list(zip(problem.op_names, problem.op_unit.tolist(), strict=True)))}
    found = [(nbytes, first[unit]) for unit, nbytes in enumerate(kept.tolist()) if nbytes]
    if passing is not None:
        found += [(nbytes, problem.op_names[op]) for op, nbytes in enumerate(passing.tolist()) if nbytes]
    found.sort(key=lambda holder: (-holder[0], holder[1]))
    return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for nbytes, name in found[:HOLDERS_SHOWN])


def _bytes(size: int) -> str:
    return f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
