"""Lower bounds on the step time of every assignment, by the execution model."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED

WEIGHT_UPDATES = 30
"""Number of updates of the multiplicative weights."""


def step_bound_ns(simulator: Simulator) -> int:
    """The larger of the longest chain and the least load, plus the least overhead of a call, in ns.

    It is at most `Simulator.step_ns` of any assignment.
    """
    return simulator.whole_ns(max(longest_chain_ns(simulator), least_load_ns(simulator)), simulator.least_call_ns)


def longest_chain_ns(simulator: Simulator) -> int:
    """The earliest end of the last op if no two ops shared a resource, in ns.

    For each op and device it computes the earliest time at which the op can be issued, and at which it can end. Each edge chooses
    its producer's device freely; an edge between two devices pays for its copy. Time: E D².
    """
    problem, edges = simulator.problem, simulator.edges
    devices = range(problem.num_devices)
    allowed = [[d for d in devices if row[d]] for row in problem.units.allowed[problem.ops.unit].tolist()]
    streamed = (problem.devices.asynchronous & ~simulator.tables.host_only).tolist()
    dispatch, compute, alone = problem.ops.dispatch_ns.tolist(), problem.ops.compute_ns.tolist(), problem.ops.time_ns.tolist()
    edge_wait, copy = (a.tolist() for a in edges.pairs(problem))
    consumer, begin, is_control = edges.consumer_list, edges.start_list, edges.is_control_list

    ready = [[0] * problem.num_devices for _ in range(problem.num_ops)]  # [N][D]: when the host can issue the op
    behind = [[0] * problem.num_devices for _ in range(problem.num_ops)]  # [N][D]: when the stream can begin it
    end = 0
    for op, own in enumerate(allowed):
        issued, done = [0] * problem.num_devices, [0] * problem.num_devices
        for d in own:
            at = ready[op][d]
            if streamed[op][d]:
                issued[d] = at + dispatch[op][d]
                done[d] = max(issued[d], behind[op][d]) + compute[op][d]
            else:
                issued[d] = done[d] = at + alone[op][d]
        end = max(end, min(done[d] for d in own))
        follow = [done[d] if streamed[op][d] else issued[d] for d in devices]
        for e in range(begin[op], begin[op + 1]):
            user, costs = consumer[e], copy[e]
            host_ready, stream_ready = ready[user], behind[user]
            for d in allowed[user]:
                host = min([done[s] + costs[s][d] for s in own])
                stream = host
                if edge_wait[e][d] == ISSUED and d in own:  # to stay on d is never later than to leave it and come back
                    host, stream = min(host, issued[d]), min(host, issued[d] if is_control[e] else follow[d])
                host_ready[d] = max(host_ready[d], host)
                stream_ready[d] = max(stream_ready[d], stream)
    return end


def least_load_ns(simulator: Simulator) -> int:
    """A lower bound on the load of the busiest resource, in ns: threads, whole CPUs, dispatching threads and streams.

    Any weights of the resources with sum 1 give a bound: the weighted load with each unit on the device where its weighted load
    is least. The weights follow the loads (multiplicative weights; Arora, Hazan, Kale 2012). Time: 30 U D².
    """
    load = loads(simulator)
    allowed = simulator.problem.units.allowed
    weight = np.full(load.shape[2], 1 / load.shape[2])
    best = 0.0
    for _ in range(WEIGHT_UPDATES):
        priced = np.where(allowed, load @ weight, np.inf)
        device = priced.argmin(axis=1)
        best = max(best, float(priced[np.arange(len(priced)), device].sum()))
        busy = load[np.arange(len(load)), device].sum(axis=0)
        weight = weight * np.exp(busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()
    return int(best * (1 - 1e-9))


def loads(simulator: Simulator) -> Floats:
    """[U, D, 2D]: the load of a unit on a device on each device's two resources, in ns.

    The resources of a synchronous device are its threads and the device as a whole; those of an asynchronous device are the
    thread that dispatches its ops and its stream. The load of a logical CPU is on the device whose threads run its ops.
    """
    problem = simulator.problem
    runner = problem.devices.runner
    threads = problem.devices.threads[runner]
    streamed = problem.devices.asynchronous & ~simulator.tables.host_only
    whole = simulator.tables.wide & ~problem.devices.asynchronous
    fed = np.where(streamed, problem.ops.dispatch_ns, problem.ops.time_ns / np.where(problem.devices.asynchronous, 1, threads))
    second = np.where(streamed, problem.ops.compute_ns, np.where(whole, problem.ops.time_ns, 0))
    load = np.zeros((problem.num_units, problem.num_devices, 2 * problem.num_devices))
    for d, runs_on in enumerate(runner.tolist()):
        load[:, d, 2 * runs_on] = np.bincount(problem.ops.unit, fed[:, d], problem.num_units)
        load[:, d, 2 * runs_on + 1] = np.bincount(problem.ops.unit, second[:, d], problem.num_units)
    return load
