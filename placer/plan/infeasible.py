"""Why nothing fits: which limit, by how much, what takes most there, which demands stand in the way, and the way out."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from placer.common.units import format_bytes
from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Bools, Ints
from placer.problem.formulate import kept
from placer.problem.memory import excess, live_ranges_of, peaks, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.exact.cp_sat import LARGEST, cannot_fit
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.repair import fit
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices
from placer.solvers.registry import solver

ATTEMPTS = ("greedy", "tf_default", "all_cpu", "all_gpu")
HOLDERS_SHOWN = 4
HALVINGS = 4
"""Of the distance to limits that a simple placement meets."""
SECONDS = 2.0
"""For coming nearer to the limits than repairs do, and for all ways out that these do not find."""


def explain_infeasible(graph: OpGraph, problem: PlacementProblem, solution: Solution, without: Mapping[str, Bools]) -> str:
    """The message for a solution of the graph's problem that proves that nothing fits, or found nothing that does.

    Variables and captures that are bound to one device can prove the point alone; otherwise it shows what the simple placement
    lacks that misses the limits least.

    Args:
        without: by a way out, in words: where units may be, [U, D], once a demand is dropped.
    """
    proved = solution.status is Status.INFEASIBLE
    lead = "no placement fits the memory limits" if proved else f"{solution.solver} found no placement ({solution.stop_text})"
    outs = _ways_out(graph, problem, solution.objective, without)
    bound = np.where(problem.units.allowed.sum(axis=1) == 1, problem.units.allowed.argmax(axis=1), -1)
    for d, (name, limit) in enumerate(zip(problem.devices.names, problem.devices.memory_limit_bytes.tolist(), strict=True)):
        if 0 <= limit < (held := int(problem.units.persistent_bytes[bound == d].sum())):
            outs = [_limits(problem, solution.objective), *outs]
            return (
                f"{lead}: what has to stay on {name} takes {_bytes(held)}, {_bytes(held - limit)} over its limit of "
                f"{_bytes(limit)}. Most is held by {_most(graph, problem, bound == d)}. "
                f"Way out: {', or '.join([*outs, 'make some of these on another device'])}."
            )
    attempts = _attempts(problem, solution.objective)
    over = {name: excess(problem, a) for name, a in attempts.items()}
    if not over:
        return f"{lead}. Way out: {', or '.join([*outs, 'higher limits, or a smaller batch'])}."
    closest = min(over, key=lambda name: int(over[name].sum()))
    assignment = attempts[closest]
    if not over[closest].any():
        return f"{lead}, but {closest} fits. Way out: solver={closest!r}, or a longer time_limit_s."
    d = int(np.argmax(over[closest]))
    name, limit, missing = problem.devices.names[d], int(problem.devices.memory_limit_bytes[d]), int(over[closest][d])
    passing = _passing_at_peak(problem, assignment, d)
    outs = [_limits(problem, solution.objective), *outs]
    return (
        f"{lead}: {closest}, the closest of {', '.join(over)}, needs {_bytes(limit + missing)} on {name}, {_bytes(missing)} over "
        f"its limit of {_bytes(limit)}. At the peak, most is held by {_most(graph, problem, assignment.device == d, passing)}. "
        f"Way out: {', or '.join([*outs, _batch(problem, assignment, d)])}."
    )


def _attempts(problem: PlacementProblem, objective: Objective) -> dict[str, Assignment]:
    """Simple placements, whatever the limits."""
    found = {name: solver(name).solve(problem, objective).assignment for name in ATTEMPTS}
    return {name: assignment for name, assignment in found.items() if assignment is not None}


def _fitting(problem: PlacementProblem, objective: Objective, seconds: float) -> Assignment | None:
    """One that meets the limits, if it is found by repairing simple ones or, for so long, by a search."""
    repaired = (fit(problem, assignment) for assignment in _attempts(problem, objective).values())
    found = next((assignment for assignment in repaired if assignment is not None), None)
    if found is not None or seconds <= 0 or cannot_fit(problem):
        return found
    reduced = reduce(problem)
    start = next(iter(_attempts(reduced.problem, objective).values()), None)
    if start is None or choices(reduced.problem) > LARGEST:
        return None
    model = Model(reduced.problem)
    model.limit_where_exceeded(start)
    nearest, _ = model.least_excess(start, seconds, seed=0)
    return None if excess(reduced.problem, nearest).any() else reduced.invert(nearest)


def _ways_out(graph: OpGraph, problem: PlacementProblem, objective: Objective, without: Mapping[str, Bools]) -> list[str]:
    """Demands that stand in the way: without any one of these something fits."""
    outs, ends = [], time.perf_counter() + SECONDS
    for words, allowed in without.items():
        found = _fitting(problem.with_allowed(allowed), objective, ends - time.perf_counter())
        if found is not None:
            stayed = problem.units.allowed[np.arange(problem.num_units), found.device]
            outs.append(f"{words}{_moved(graph, problem, found, ~stayed)}")
    return outs


def _moved(graph: OpGraph, problem: PlacementProblem, found: Assignment, moves: Bools) -> str:
    """What is kept from step to step and is then elsewhere."""
    told = [
        (nbytes, f"{name!r} ({format_bytes(nbytes)}) on {problem.devices.names[found.device[problem.ops.unit[op]]]}")
        for op, name, nbytes in kept(graph)
        if nbytes and moves[problem.ops.unit[op]]
    ]
    told.sort(key=lambda entry: -entry[0])
    more = f" and {len(told) - HOLDERS_SHOWN} more" if len(told) > HOLDERS_SHOWN else ""
    return f", with {', '.join(text for _, text in told[:HOLDERS_SHOWN])}{more}" if told else ""


def _limits(problem: PlacementProblem, objective: Objective) -> str:
    """Limits with which something fits, as few bytes higher in all as found, in words."""
    problem = reduce(problem).problem
    attempts = [*_attempts(problem, objective).values()]
    if not attempts:
        return "higher limits"
    found, proved = _least_over(problem, attempts)
    over, needed = excess(problem, found), peaks(problem, found)
    if over.sum() > proved:  # a search that is not exact wants room
        needed = needed + needed // 50
    told = [f"{needed[d]} bytes for {problem.devices.names[d]}" for d in np.flatnonzero(over)]
    if not told:
        return "a longer time_limit_s, since something fits"
    return f"a limit of {told[0]}" if len(told) == 1 else f"limits of {', '.join(told[:-1])} and {told[-1]}"


def _least_over(problem: PlacementProblem, attempts: list[Assignment]) -> tuple[Assignment, int]:
    """The placement found that misses the limits by the fewest bytes in all, and a lower bound on these bytes."""

    def over(assignment: Assignment) -> int:
        return int(excess(problem, assignment).sum())

    found, limits = list(attempts), problem.devices.memory_limit_bytes
    low, high = 0, min(int(excess(problem, attempt).max()) for attempt in attempts)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        raised = problem.with_memory_limits(np.where(limits < 0, limits, limits + middle))
        repaired = [a for a in (fit(raised, attempt) for attempt in attempts) if a is not None]
        found += repaired
        low, high = (low, middle) if repaired else (middle, high)
    best = min(found, key=over)
    if choices(problem) > LARGEST:
        return best, 0
    model = Model(problem)
    model.limit_where_exceeded(best)
    return model.least_excess(best, SECONDS, seed=0)


def _batch(problem: PlacementProblem, assignment: Assignment, d: int) -> str:
    """How much smaller a batch has to be if all that is not kept grows with it."""
    held = int(problem.units.persistent_bytes[assignment.device == d].sum())
    peak, limit = int(peaks(problem, assignment)[d]), int(problem.devices.memory_limit_bytes[d])
    share = (limit - held) / max(1, peak - held)
    return f"a batch of about {share:.0%} of this one's size" if share >= 0.01 else "a smaller batch"


def _passing_at_peak(problem: PlacementProblem, assignment: Assignment, d: int) -> Ints:
    """[N]: bytes on device `d` while it holds most, by the op that made them, without what is kept from step to step."""
    moment = int(np.argmax(usage(problem, assignment)[d]))
    ranges, made = live_ranges_of(problem), slice(problem.num_tensors)
    here = problem.devices.place_device[ranges.places(assignment)[made]] == d
    alive = here & ~problem.tensors.shared & (ranges.first[made] <= moment) & (moment <= ranges.last[made])
    passing = np.zeros(problem.num_ops, np.int64)
    np.add.at(passing, problem.tensors.op[alive], problem.tensors.held_bytes[alive])
    now = problem.ops.at_moment[moment]
    if assignment.device[problem.ops.unit[now]] == d:
        passing[now] += problem.ops.workspace_bytes[now, d]
    return passing


def _most(graph: OpGraph, problem: PlacementProblem, here: Bools, passing: Ints | None = None) -> str:
    """Names what takes most: of that kept by the units that are `here` [U], and of what is `passing` [N]."""
    found = [(nbytes, name) for op, name, nbytes in kept(graph) if nbytes and here[problem.ops.unit[op]]]
    if passing is not None:
        found += [(nbytes, problem.ops.names[op]) for op, nbytes in enumerate(passing.tolist()) if nbytes]
    found.sort(key=lambda holder: (-holder[0], holder[1]))
    return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for nbytes, name in found[:HOLDERS_SHOWN])


def _bytes(size: int) -> str:
    return f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
