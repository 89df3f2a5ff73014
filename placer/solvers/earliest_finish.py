"""List scheduling: each unit where its first op would finish first."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment
from placer.problem.simulate import ISSUED, Simulator


def earliest_finish(simulator: Simulator) -> Assignment:
    """Takes ops in their order and gives each new unit the device on which its op ends first, as things stand then.

    The processor choice of HEFT (Topcuoglu, Hariri, Wu 2002), without its ranking and with links that never queue. It spreads
    independent work over devices, which a cut does not.
    """
    problem, edges = simulator.problem, simulator.edges
    devices = range(problem.devices)
    code, copy = (a.tolist() for a in edges.pairs(problem))
    order = np.argsort(edges.consumer, kind="stable")
    into = order.tolist()
    start = np.searchsorted(edges.consumer[order], np.arange(problem.ops + 1)).tolist()
    producer, hop = edges.op[edges.tensor].tolist(), edges.hop_list
    streamed = (problem.asynchronous & ~simulator.host_only).tolist()
    dispatch, compute, alone = problem.op_dispatch_ns.tolist(), problem.op_compute_ns.tolist(), problem.op_time_ns.tolist()
    threads = [1] * problem.devices if problem.device_threads is None else problem.device_threads.tolist()

    host = [[0] * (1 if asynchronous else n) for n, asynchronous in zip(threads, problem.asynchronous.tolist(), strict=True)]
    stream = [0] * problem.devices
    issued, done = [0] * problem.ops, [0] * problem.ops
    chosen: list[int] = [-1] * problem.units
    allowed = [[d for d in devices if row[d]] for row in problem.unit_allowed.tolist()]
    unit_of = problem.op_unit.tolist()
    for op, unit in enumerate(unit_of):
        choices = allowed[unit] if chosen[unit] < 0 else [chosen[unit]]
        best = (0, 0, 0)
        for k, d in enumerate(choices):
            ready = 0
            for e in into[start[op] : start[op + 1]]:
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
            if k == 0 or end < best[0]:
                best = (end, gone, d)
        end, gone, d = best
        chosen[unit], issued[op], done[op] = d, gone, end
        if streamed[op][d]:
            stream[d] = end
        if alone[op][d]:
            host[d][host[d].index(min(host[d]))] = gone
    return Assignment(np.array(chosen, np.int64))
