"""What no assignment's step can go under, by the execution model."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED

ROUNDS = 30


def step_bound_ns(simulator: Simulator) -> int:
    """The larger of the longest chain and the least load, plus the least of a call's; at most `Simulator.step_ns` of anything."""
    return simulator.whole_ns(max(longest_chain_ns(simulator), least_load_ns(simulator)), simulator.least_call_ns)


def longest_chain_ns(simulator: Simulator) -> int:
    """The earliest end of the last op if every op had every resource to itself and each edge chose its producer's device.

    For each op and device: when it can be issued at the earliest, and when it is done. What a chain costs between devices is
    counted, so that leaving one pays its copies.
    """
    problem, edges = simulator.problem, simulator.edges
    devices = range(problem.num_devices)
    allowed = [[d for d in devices if row[d]] for row in problem.units.allowed[problem.ops.unit].tolist()]
    streamed = (problem.devices.asynchronous & ~simulator.tables.host_only).tolist()
    runs = simulator.tables.runs[:, None]
    first = (problem.ops.dispatch_ns / runs).astype(np.int64).tolist()
    last = (problem.ops.compute_ns / runs).astype(np.int64).tolist()
    dispatch, compute, alone = problem.ops.dispatch_ns.tolist(), problem.ops.compute_ns.tolist(), problem.ops.time_ns.tolist()
    code, copy = (a.tolist() for a in edges.pairs(problem))
    consumer, begin, hop = edges.consumer_list, edges.start_list, edges.is_control_list

    ready = [[0] * problem.num_devices for _ in range(problem.num_ops)]  # [op][device]: for the host to go on
    behind = [[0] * problem.num_devices for _ in range(problem.num_ops)]  # for the stream to go on
    end = 0
    for op, own in enumerate(allowed):
        issued, done = [0] * problem.num_devices, [0] * problem.num_devices
        for d in own:
            at = ready[op][d]
            if streamed[op][d]:
                issued[d] = at + dispatch[op][d]
                done[d] = max(max(at + first[op][d], behind[op][d]) + compute[op][d], issued[d] + last[op][d])
            else:
                issued[d] = done[d] = at + alone[op][d]
        end = max(end, min(done[d] for d in own))
        follow = [done[d] if streamed[op][d] else issued[d] for d in devices]
        for e in range(begin[op], begin[op + 1]):
            to, costs = consumer[e], copy[e]
            goes, follows = ready[to], behind[to]
            for d in allowed[to]:
                host = min([done[s] + costs[s][d] for s in own])
                stream = host
                if code[e][d] == ISSUED and d in own:  # staying is never later than leaving and coming back
                    host, stream = min(host, issued[d]), min(host, issued[d] if hop[e] else follow[d])
                goes[d] = max(goes[d], host)
                follows[d] = max(follows[d], stream)
    return end


def least_load_ns(simulator: Simulator) -> int:
    """How long the busiest resource must work whatever is where: threads, whole CPUs, feeding threads and streams.

    Any weights of the resources, summing up to one, give a bound: the weighted load with each unit where that is least. The
    weights follow the loads (multiplicative weights; Arora, Hazan, Kale 2012).
    """
    load = loads(simulator)
    allowed = simulator.problem.units.allowed
    weight = np.full(load.shape[2], 1 / load.shape[2])
    best = 0.0
    for _ in range(ROUNDS):
        priced = np.where(allowed, load @ weight, np.inf)
        there = priced.argmin(axis=1)
        best = max(best, float(priced[np.arange(len(priced)), there].sum()))
        busy = load[np.arange(len(load)), there].sum(axis=0)
        weight = weight * np.exp(busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()
    return int(best * (1 - 1e-9))


def loads(simulator: Simulator) -> Floats:
    """[U, D, 2D]: what a unit on a device takes of each device's two resources.

    Those are its threads and the whole of it, or the feeding thread and the stream of an asynchronous one.
    """
    problem = simulator.problem
    threads = problem.devices.threads
    streamed = problem.devices.asynchronous & ~simulator.tables.host_only
    whole = simulator.tables.wide & ~problem.devices.asynchronous
    fed = np.where(streamed, problem.ops.dispatch_ns, problem.ops.time_ns / np.where(problem.devices.asynchronous, 1, threads))
    second = np.where(streamed, problem.ops.compute_ns, np.where(whole, problem.ops.time_ns, 0))
    load = np.zeros((problem.num_units, problem.num_devices, 2 * problem.num_devices))
    for d in range(problem.num_devices):
        load[:, d, 2 * d] = np.bincount(problem.ops.unit, fed[:, d], problem.num_units)
        load[:, d, 2 * d + 1] = np.bincount(problem.ops.unit, second[:, d], problem.num_units)
    return load
