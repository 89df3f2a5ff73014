"""The message for a problem without a solution: the limit that is exceeded, the largest holders of memory, and the ways out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from placer.common.units import format_bytes
from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Bools, Ints
from placer.problem.memory import excess, live_ranges_of, peaks, usage
from placer.problem.persistent import persistent
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.exact.cp_sat import MAX_UNITS, cannot_fit
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.repair import repair
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices
from placer.solvers.registry import solver

SIMPLE_SOLVERS = ("greedy", "tf_default", "all_cpu", "all_gpu")
"""Solvers of the simple placements, which ignore memory limits."""
MAX_HOLDERS_SHOWN = 4
HALVINGS = 4
"""Halvings of the distance between the limits and limits that a simple placement meets."""
SEARCH_SECONDS = 2.0
"""Time limit of the search for the least excess, and of all searches for ways out together."""
SPARE_SHARE = 50
"""Suggested limits have 1/50 to spare if they are not proved to be the lowest."""


def explain_infeasible(graph: OpGraph, problem: PlacementProblem, solution: Solution, without: Mapping[str, Bools]) -> str:
    """The message for a solution without an assignment.

    If the variables and captures that are bound to one device exceed its limit, the message names them. Otherwise it shows by
    how much the simple placement with the least excess exceeds the limits.

    Args:
        graph: the graph of the problem.
        problem: the problem that has no solution, or for which none was found.
        solution: the solver's answer.
        without: for each demand that can be dropped, the way out as text, and the devices that each unit may then use, [U, D].
    """
    devices = problem.devices
    proved = solution.status is Status.INFEASIBLE
    lead = "no placement fits the memory limits" if proved else f"{solution.solver} found no placement ({solution.stop_text})"
    ways_out = _demands_to_drop(graph, problem, solution.objective, without)
    bound = np.where(problem.units.allowed.sum(axis=1) == 1, problem.units.allowed.argmax(axis=1), -1)
    for d, (name, limit) in enumerate(zip(devices.names, devices.memory_limit_bytes.tolist(), strict=True)):
        if 0 <= limit < (bound_bytes := int(problem.units.persistent_bytes[bound == d].sum())):
            ways_out = [_limits_that_fit(problem, solution.objective), *ways_out, "make some of these on another device"]
            return (
                f"{lead}: what has to be kept on {name} takes {format_bytes(bound_bytes)}, "
                f"{format_bytes(bound_bytes - limit)} over its limit of {format_bytes(limit)}. "
                f"Most is held by {_largest_holders(graph, problem, bound == d)}. "
                f"Way out: {', or '.join(ways_out)}."
            )
    attempts = _simple_placements(problem, solution.objective)
    excess_bytes = {name: excess(problem, assignment) for name, assignment in attempts.items()}
    if not excess_bytes:
        return f"{lead}. Way out: {', or '.join([*ways_out, 'higher limits, or a smaller batch'])}."
    closest = min(excess_bytes, key=lambda name: int(excess_bytes[name].sum()))
    assignment = attempts[closest]
    if not excess_bytes[closest].any():
        return f"{lead}, but {closest} fits. Way out: solver={closest!r}, or a longer time_limit_s."
    d = int(np.argmax(excess_bytes[closest]))
    name, limit, missing = devices.names[d], int(devices.memory_limit_bytes[d]), int(excess_bytes[closest][d])
    holders = _largest_holders(graph, problem, assignment.device == d, _transient_at_peak(problem, assignment, d))
    ways_out = [_limits_that_fit(problem, solution.objective), *ways_out, _smaller_batch(problem, assignment, d)]
    return (
        f"{lead}: of the placements of {', '.join(excess_bytes)}, that of {closest} comes closest. "
        f"It needs {format_bytes(limit + missing)} on {name}, {format_bytes(missing)} over its limit of {format_bytes(limit)}. "
        f"At the peak, most is held by {holders}. "
        f"Way out: {', or '.join(ways_out)}."
    )


def _simple_placements(problem: PlacementProblem, objective: Objective) -> dict[str, Assignment]:
    """The placements of the simple solvers, by name; they may exceed the limits."""
    assignments = {name: solver(name).solve(problem, objective).assignment for name in SIMPLE_SOLVERS}
    return {name: assignment for name, assignment in assignments.items() if assignment is not None}


def _demands_to_drop(graph: OpGraph, problem: PlacementProblem, objective: Objective, without: Mapping[str, Bools]) -> list[str]:
    """The ways out that drop one demand after which a placement fits, each with the variables that would then move."""
    ways_out, deadline = [], time.perf_counter() + SEARCH_SECONDS
    for way_out, allowed in without.items():
        assignment = _fitting(problem.with_allowed(allowed), objective, deadline - time.perf_counter())
        if assignment is not None:
            moves = ~problem.units.allowed[np.arange(problem.num_units), assignment.device]
            ways_out.append(f"{way_out}{_kept_that_moves(graph, problem, assignment, moves)}")
    return ways_out


def _fitting(problem: PlacementProblem, objective: Objective, seconds: float) -> Assignment | None:
    """A placement that meets the limits: a repaired simple one, or one from a search of at most `seconds`; None if not found."""
    repaired = (repair(problem, assignment) for assignment in _simple_placements(problem, objective).values())
    fitting = next((assignment for assignment in repaired if assignment is not None), None)
    if fitting is not None or seconds <= 0 or cannot_fit(problem):
        return fitting
    reduced = reduce(problem)
    start = next(iter(_simple_placements(reduced.problem, objective).values()), None)
    if start is None or choices(reduced.problem) > MAX_UNITS:
        return None
    model = Model(reduced.problem)
    model.limit_where_exceeded(start)
    closest, _ = model.least_excess(start, seconds, seed=0)
    return None if excess(reduced.problem, closest).any() else reduced.invert(closest)


def _kept_that_moves(graph: OpGraph, problem: PlacementProblem, assignment: Assignment, moves: Bools) -> str:
    """The kept memory of the units that move, largest first, as the end of a sentence; "" if there is none."""
    device = assignment.device[problem.ops.unit]
    holders = [
        (nbytes, f"{name!r} ({format_bytes(nbytes)}) on {problem.devices.names[device[op]]}")
        for op, name, nbytes in persistent(graph)
        if nbytes and moves[problem.ops.unit[op]]
    ]
    holders.sort(key=lambda holder: -holder[0])
    texts = [text for _, text in holders[:MAX_HOLDERS_SHOWN]]
    more = f" and {len(holders) - MAX_HOLDERS_SHOWN} more" if len(holders) > MAX_HOLDERS_SHOWN else ""
    return f", with {', '.join(texts)}{more}" if texts else ""


def _limits_that_fit(problem: PlacementProblem, objective: Objective) -> str:
    """Limits with which a placement fits, raised by as few bytes in total as possible, as a way out."""
    problem = reduce(problem).problem
    attempts = [*_simple_placements(problem, objective).values()]
    if not attempts:
        return "higher limits"
    closest, proved_excess = _least_excess(problem, attempts)
    excess_bytes, limits = excess(problem, closest), peaks(problem, closest)
    if excess_bytes.sum() > proved_excess:
        limits = limits + limits // SPARE_SHARE
    texts = [f"{_exactly(limits[d])} for {problem.devices.names[d]}" for d in np.flatnonzero(excess_bytes)]
    if not texts:
        return "a longer time_limit_s, since something fits"
    return f"a limit of {texts[0]}" if len(texts) == 1 else f"limits of {', '.join(texts[:-1])} and {texts[-1]}"


def _least_excess(problem: PlacementProblem, attempts: Sequence[Assignment]) -> tuple[Assignment, int]:
    """The placement with the fewest bytes over the limits that was found, and a lower bound on these bytes.

    Repairs the attempts for raised limits, which bisection lowers, and then searches with CP-SAT if the problem is small enough.
    """

    def total_excess(assignment: Assignment) -> int:
        return int(excess(problem, assignment).sum())

    candidates, limits = list(attempts), problem.devices.memory_limit_bytes
    low, high = 0, min(int(excess(problem, attempt).max()) for attempt in attempts)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        raised = problem.with_memory_limits(np.where(limits < 0, limits, limits + middle))
        repaired = [assignment for attempt in attempts if (assignment := repair(raised, attempt)) is not None]
        candidates += repaired
        low, high = (low, middle) if repaired else (middle, high)
    best = min(candidates, key=total_excess)
    if choices(problem) > MAX_UNITS:
        return best, 0
    model = Model(problem)
    model.limit_where_exceeded(best)
    return model.least_excess(best, SEARCH_SECONDS, seed=0)


def _smaller_batch(problem: PlacementProblem, assignment: Assignment, d: int) -> str:
    """The share of the batch size with which device `d` meets its limit, if all memory that is not kept grows with the batch."""
    kept_bytes = int(problem.units.persistent_bytes[assignment.device == d].sum())
    peak, limit = int(peaks(problem, assignment)[d]), int(problem.devices.memory_limit_bytes[d])
    share = (limit - kept_bytes) / max(1, peak - kept_bytes)
    return f"a batch of about {share:.0%} of this one's size" if share >= 0.01 else "a smaller batch"


def _transient_at_peak(problem: PlacementProblem, assignment: Assignment, d: int) -> Ints:
    """Bytes that device `d` holds at its peak and does not keep from step to step, by the op that made them, [N]."""
    moment = int(np.argmax(usage(problem, assignment)[d]))
    ranges, outputs = live_ranges_of(problem), slice(problem.num_tensors)
    here = problem.devices.place_device[ranges.places(assignment)[outputs]] == d
    alive = here & ~problem.tensors.shared & (ranges.first[outputs] <= moment) & (moment <= ranges.last[outputs])
    transient = np.zeros(problem.num_ops, np.int64)
    np.add.at(transient, problem.tensors.op[alive], problem.tensors.held_bytes[alive])
    running = problem.ops.at_moment[moment]
    if assignment.device[problem.ops.unit[running]] == d:
        transient[running] += problem.ops.workspace_bytes[running, d]
    return transient


def _largest_holders(graph: OpGraph, problem: PlacementProblem, units: Bools, transient: Ints | None = None) -> str:
    """The largest holders of memory, as text.

    Args:
        graph: the graph of the problem.
        problem: the problem.
        units: the units whose kept memory counts, [U].
        transient: further bytes by op, [N].
    """
    holders = [(nbytes, name) for op, name, nbytes in persistent(graph) if nbytes and units[problem.ops.unit[op]]]
    if transient is not None:
        holders += [(nbytes, problem.ops.names[op]) for op, nbytes in enumerate(transient.tolist()) if nbytes]
    holders.sort(key=lambda holder: (-holder[0], holder[1]))
    return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for nbytes, name in holders[:MAX_HOLDERS_SHOWN])


def _exactly(size: int) -> str:
    """A size to be given as a limit: a rounded one could be too low."""
    return f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
