"""Lower bounds on the step time of every assignment, by the execution model."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.model_tables import SMALL, WIDE
from placer.problem.schedule import Simulator
from placer.solvers.bounds.longest_chains import LongestChains

WEIGHT_UPDATES = 30
"""Number of updates of the multiplicative weights."""
RESOURCES = 3
"""Resources of a device. Those of a synchronous one are its threads, its wide ops and its small ops: no two wide ops run at once,
and no two small ones. Those of an asynchronous one are the thread that dispatches its ops, its stream, and one without load."""


def step_bound_ns(simulator: Simulator) -> int:
    """The larger of the longest chain and the least load, plus the least overhead of a call, in ns.

    It is at most `Simulator.step_ns` of any assignment.
    """
    chain_ns = int(LongestChains(simulator).end_ns(simulator.problem.units.allowed[None])[0])
    return simulator.whole_ns(max(chain_ns, least_load_ns(simulator)), simulator.least_call_ns)


def least_load_ns(simulator: Simulator) -> int:
    """A lower bound on the load of the busiest resource, in ns; `loads` lists the resources."""
    priced = loads(simulator) @ load_weights(simulator).T
    least = np.where(simulator.problem.units.allowed[:, :, None], priced, np.inf).min(axis=1).sum(axis=0)
    return int(float(least.max()) * (1 - 1e-9))


def load_weights(simulator: Simulator) -> Floats:
    """[W, 3D]: weights of the resources of `loads`, each row with sum 1.

    Any such weights give a bound: the weighted load with each unit on the device where its weighted load is least. The weights
    follow the loads (multiplicative weights; Arora, Hazan, Kale 2012). Time: 30 U D².
    """
    load = loads(simulator)
    allowed = simulator.problem.units.allowed
    weight = np.full(load.shape[2], 1 / load.shape[2])
    weights = []
    for _ in range(WEIGHT_UPDATES):
        weights.append(weight)
        device = np.where(allowed, load @ weight, np.inf).argmin(axis=1)
        busy = load[np.arange(len(load)), device].sum(axis=0)
        weight = weight * np.exp(busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()
    return np.array(weights)


def loads(simulator: Simulator) -> Floats:
    """[U, D, 3D]: the load of a unit on a device on each device's `RESOURCES`, in ns.

    The load of a logical CPU is on the device whose threads run its ops.
    """
    problem, sharing = simulator.problem, simulator.tables.sharing
    runner = problem.devices.runner
    threads = problem.devices.threads[runner]
    synchronous = ~problem.devices.asynchronous
    streamed = problem.devices.asynchronous & ~simulator.tables.host_only
    fed = np.where(streamed, problem.ops.dispatch_ns, problem.ops.time_ns / np.where(synchronous, threads, 1))
    second = np.where(streamed, problem.ops.compute_ns, np.where(synchronous & (sharing == WIDE), problem.ops.time_ns, 0))
    small = np.where(synchronous & (sharing == SMALL), problem.ops.time_ns, 0)
    load = np.zeros((problem.num_units, problem.num_devices, RESOURCES * problem.num_devices))
    for d, runs_on in enumerate(runner.tolist()):
        for k, work in enumerate((fed, second, small)):
            load[:, d, RESOURCES * runs_on + k] = np.bincount(problem.ops.unit, work[:, d], problem.num_units)
    return load
