"""List scheduling on the execution model: each unit where its first op would finish first."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.model_tables import tables_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import ISSUED, step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.grouping import grouped
from placer.solvers.primitives.incremental_memory import Room
from placer.solvers.sources import TOPCUOGLU, here, lines


def earliest_finish_assignment(problem: PlacementProblem) -> Assignment:
    """Takes ops in their order and gives each new unit the device on which its op ends first, as things stand then.

    The processor choice of HEFT, without its ranking, with threads and streams as the execution model has them, and with
    links that never queue. It spreads independent work over devices, which a cut does not. A device whose memory limit would
    not hold is passed over, unless all are. Linear in edges times devices, plus what `Room` takes where limits can bind.
    """
    edges, room = step_edges_of(problem), Room(problem)
    devices = range(problem.num_devices)
    code, copy = (a.tolist() for a in edges.pairs(problem))
    into = grouped(edges.consumer, problem.num_ops)
    producer, hop = edges.producer.tolist(), edges.is_control_list
    streamed = (problem.devices.asynchronous & ~tables_of(problem).host_only).tolist()
    dispatch, compute, alone = problem.ops.dispatch_ns.tolist(), problem.ops.compute_ns.tolist(), problem.ops.time_ns.tolist()
    threads = problem.devices.threads.tolist()

    host = [
        [0] * (1 if asynchronous else n) for n, asynchronous in zip(threads, problem.devices.asynchronous.tolist(), strict=True)
    ]
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
                if s == d and code[e][d] == ISSUED:
                    ready = max(ready, issued[source])
                else:
                    ready = max(ready, (issued if hop[e] else done)[source] + copy[e][s][d])
            free = max(ready, min(host[d])) if alone[op][d] else ready
            if streamed[op][d]:
                gone = free + dispatch[op][d]
                end = max(gone, stream[d]) + compute[op][d]
            else:
                gone = end = free + alone[op][d]
            ends.append((end, d, gone))
        ends.sort()
        end, d, gone = next((found for found in ends if room.take(unit, found[1])), ends[0])
        room.move(unit, d)
        chosen[unit], issued[op], done[op] = d, gone, end
        if streamed[op][d]:
            stream[d] = end
        if alone[op][d]:
            host[d][host[d].index(min(host[d]))] = gone
    return Assignment(np.array(chosen, np.int64))


earliest_finish = partial(
    Heuristic,
    "earliest_finish",
    earliest_finish_assignment,
    lines(here("the processor choice of HEFT on the execution model"), TOPCUOGLU),
    note="a list schedule",
)
