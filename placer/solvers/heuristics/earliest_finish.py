"""List scheduling on the execution model: each unit on the device where its first op ends first."""

from __future__ import annotations

import numpy as np

from placer.problem.grouping import grouped
from placer.problem.model_tables import tables_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import ISSUED, step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.heft import SOURCE as HEFT
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.sources import own_work, references


def earliest_finish_assignment(problem: PlacementProblem) -> Assignment:
    """Schedules ops in their order; the first op of a unit decides its device: the one where that op ends first.

    This is HEFT's choice of a processor (Topcuoglu, Hariri, Wu 2002) without its ranks, with the threads and streams of the
    execution model, and with links that never queue. It spreads independent work over devices, which a cut does not. A device
    whose memory limit would be exceeded is skipped, unless all would be. Time: (N + E) D, plus that of `IncrementalMemory`.
    """
    edges, memory = step_edges_of(problem), IncrementalMemory(problem)
    devices = range(problem.num_devices)
    edge_wait, copy = (a.tolist() for a in edges.pairs(problem))
    into = grouped(edges.consumer, problem.num_ops)
    producer, is_control = edges.producer.tolist(), edges.is_control_list
    streamed = (problem.devices.asynchronous & ~tables_of(problem).host_only).tolist()
    dispatch, compute, alone = problem.ops.dispatch_ns.tolist(), problem.ops.compute_ns.tolist(), problem.ops.time_ns.tolist()
    threads = problem.devices.threads.tolist()

    host = [  # [D]: when each thread of a device is idle again
        [0] * (1 if asynchronous else n) for n, asynchronous in zip(threads, problem.devices.asynchronous.tolist(), strict=True)
    ]
    host = [host[runner] for runner in problem.devices.runner.tolist()]
    stream = [0] * problem.num_devices
    issued, done = [0] * problem.num_ops, [0] * problem.num_ops
    chosen: list[int] = [-1] * problem.num_units
    allowed = [[d for d in devices if row[d]] for row in problem.units.allowed.tolist()]
    unit_of = problem.ops.unit.tolist()
    for op, unit in enumerate(unit_of):
        choices = allowed[unit] if chosen[unit] < 0 else [chosen[unit]]
        ends = []
        for d in choices:
            ready = 0
            for e in into[op]:
                source = producer[e]
                s = chosen[unit_of[source]]
                if s == d and edge_wait[e][d] == ISSUED:
                    ready = max(ready, issued[source])
                else:
                    ready = max(ready, (issued if is_control[e] else done)[source] + copy[e][s][d])
            begin = max(ready, min(host[d])) if alone[op][d] else ready
            if streamed[op][d]:
                host_end = begin + dispatch[op][d]
                end = max(host_end, stream[d]) + compute[op][d]
            else:
                host_end = end = begin + alone[op][d]
            ends.append((end, d, host_end))
        ends.sort()
        end, d, host_end = next((choice for choice in ends if memory.move_if_fits(unit, choice[1])), ends[0])
        memory.move(unit, d)
        chosen[unit], issued[op], done[op] = d, host_end, end
        if streamed[op][d]:
            stream[d] = end
        if alone[op][d]:
            host[d][host[d].index(min(host[d]))] = host_end
    return Assignment(np.array(chosen, np.int64))


def solver() -> Heuristic:
    """HEFT's choice of a processor, on the execution model."""
    source = references(own_work("the processor choice of HEFT on the execution model"), HEFT)
    return Heuristic("earliest_finish", earliest_finish_assignment, source, note="a list schedule")
