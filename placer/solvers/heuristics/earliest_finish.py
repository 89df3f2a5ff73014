"""List scheduling on the execution model: each unit on the device where its first op ends first."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.heft import SOURCE as HEFT
from placer.solvers.primitives.forward_schedule import ForwardSchedule
from placer.solvers.primitives.incremental_memory import NOWHERE, IncrementalMemory
from placer.solvers.sources import own_work, references


def earliest_finish_assignment(problem: PlacementProblem) -> Assignment:
    """Schedules ops in their order; the first op of a unit decides its device: the one where that op ends first.

    This is HEFT's choice of a processor (Topcuoglu, Hariri, Wu 2002) without its ranks, with the threads and streams of the
    execution model, and with links that never queue. It spreads independent work over devices, which a cut does not. A device
    whose memory limit would be exceeded is skipped, unless all would be. Time: (N + E) D, plus that of `IncrementalMemory`.
    """
    schedule, memory = ForwardSchedule(problem), IncrementalMemory(problem)
    allowed = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    for op, unit in enumerate(schedule.unit):
        if schedule.device[unit] == NOWHERE:
            ends = sorted((schedule.end_ns(op, device), device) for device in allowed[unit])
            chosen = next((device for _, device in ends if memory.move_if_fits(unit, device)), ends[0][1])
            memory.move(unit, chosen)
            schedule.device[unit] = chosen
        schedule.run(op)
    return schedule.assignment


def solver() -> Heuristic:
    """HEFT's choice of a processor, on the execution model."""
    source = references(own_work("the processor choice of HEFT on the execution model"), HEFT)
    return Heuristic("earliest_finish", earliest_finish_assignment, source, note="a list schedule")
