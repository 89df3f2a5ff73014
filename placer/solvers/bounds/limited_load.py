"""A lower bound on the step time: the least load of the busiest resource, with copies and memory limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from placer.common.clock import TimeUpError, limit, now, remaining_s
from placer.problem.arrays import Floats
from placer.problem.parts import Links
from placer.problem.price import transfers
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import limits_can_bind
from placer.solvers.bounds.memory_prices import MAX_CUTS, MemoryPrices
from placer.solvers.bounds.step_bound import RESOURCES, loads
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.two_sided_relaxation import sides, two_sided_relaxation
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices

WEIGHT_UPDATES = 8
"""Number of updates of the multiplicative weights."""
LEARNING_RATE = 2.0
"""Exponent of the multiplicative weights: how fast they follow the loads."""
SCALE = 1024
"""Weighted loads are rounded down to 1/`SCALE` ns."""
MAX_UNITS = 2_000
"""Up to this number of units to decide, the relaxation is also solved by constraint programming."""


def limited_load_ns(simulator: Simulator, *, seconds: float) -> int:
    """A lower bound on the step time of the assignments that meet the memory limits, in ns.

    As in `least_load_ns`, any weights of the resources with sum 1 give a bound: the least weighted load of an assignment that
    fits. Resources are also the links between the own memories of two devices, and copies occupy the threads that feed streams.
    So a weighted load is a total cost, and bounds on the total cost apply: a minimum cut, or, if limits can bind, memory prices,
    then constraint programming with the limits at the moments that have a price. More than two devices are replaced by the two
    of `two_sided_relaxation`; the bound is 0 if there is no such relaxation.

    Args:
        seconds: the time limit.
    """
    best = 0
    with limit(seconds), suppress(TimeUpError):
        for load_ns in _load_bounds_ns(simulator):
            best = max(best, load_ns)
    return simulator.whole_ns(best, simulator.least_call_ns)


def _load_bounds_ns(simulator: Simulator) -> Iterator[int]:
    """Yields bounds on the least load of the busiest resource, in ns, for weights that follow the loads."""
    relaxation = two_sided_relaxation(simulator.problem) if simulator.problem.num_devices > 1 else None
    if relaxation is None:
        return
    resources, limited = _Resources(simulator, relaxation), limits_can_bind(simulator.problem)
    weight = _Resources.FIRST_WEIGHT
    for k in range(WEIGHT_UPDATES):
        weighted = resources.weighted(weight)
        if limited:
            bound, assignment = _least_cost(weighted, remaining_s() / (WEIGHT_UPDATES - k))
        else:
            cut = minimum_cut(weighted)
            bound, assignment = cut.bound_ns, cut.assignment
        yield bound // SCALE - resources.slack_ns(weight)
        busy = resources.busy(assignment)
        weight = weight * np.exp(LEARNING_RATE * busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()


class _Resources:
    """The resources of the two sides (`step_bound.RESOURCES`), then the links from side 0 to side 1 and back."""

    FEEDER, LINK = RESOURCES, 2 * RESOURCES
    FIRST_WEIGHT = np.array([0.24, 0.24, 0.24, 0.24, 0.24, 0.0, 0.02, 0.02]) / 1.24
    """Links are seldom the busiest."""

    def __init__(self, simulator: Simulator, relaxation: PlacementProblem) -> None:
        problem, side = simulator.problem, sides(simulator.problem)
        self._load = shared_loads(simulator)
        self._first = np.unique(problem.ops.unit, return_index=True)[1]
        accelerators, hosts = np.flatnonzero(side == 1), np.flatnonzero(side == 0)
        streamed = problem.devices.asynchronous[accelerators].all()
        # What an op without work sends or takes can occupy a thread when all ops have ended, so it does not count.
        idle = (simulator.tables.host_only & (problem.ops.time_ns == 0))[:, accelerators].any(axis=1)
        free = relaxation.tensors.free | idle[relaxation.tensors.op]
        np.logical_or.at(free, relaxation.consumers.tensor, idle[relaxation.consumers.op])
        kept = ~(idle[relaxation.ops.control_src] | idle[relaxation.ops.control_dst])
        self._relaxation = replace(
            relaxation,
            tensors=replace(relaxation.tensors, free=free),
            ops=replace(
                relaxation.ops,
                control_src=relaxation.ops.control_src[kept],
                control_dst=relaxation.ops.control_dst[kept],
            ),
        )
        places = [hosts, accelerators, hosts + problem.num_devices, accelerators + problem.num_devices]
        interval = np.array([[problem.links.interval_ns[np.ix_(a, b)].min() for b in places] for a in places], np.float64)
        from_accelerator, to_stream = np.arange(4) % 2 == 1, np.arange(4) == 1
        times = (from_accelerator[:, None].astype(np.float64) + to_stream) * streamed
        self._handled = np.maximum(0, interval - 1) * times * ~np.eye(4, dtype=np.bool_) / len(accelerators)
        self._moved = np.zeros((2, 4, 4))
        if problem.links.contention:
            for k, (a, b) in enumerate(((0, 1), (1, 0))):
                self._moved[k, a, b] = relaxation.links.ns_per_byte[a, b] / (len(hosts) * len(accelerators))
        edges = simulator.edges
        places_of = np.minimum(np.bincount(edges.message, minlength=len(edges.op)), 2 * problem.num_devices)
        most = np.ceil(edges.count * float(problem.links.interval_ns.max(initial=0))) * places_of
        self._slack_ns = np.bincount(edges.op, most, problem.num_ops).max(initial=0) + len(edges.op)

    def weighted(self, weight: Floats) -> PlacementProblem:
        """The problem whose total cost is the weighted load, in units of 1/`SCALE` ns."""
        time_ns = np.zeros_like(self._relaxation.ops.time_ns)
        time_ns[self._first] = np.floor(SCALE * (self._load @ weight[: self.LINK]) * (1 - 1e-9))
        per_byte = SCALE * (weight[self.LINK :, None, None] * self._moved).sum(axis=0) * (1 - 1e-9)
        return replace(
            self._relaxation,
            ops=replace(self._relaxation.ops, time_ns=time_ns),
            links=Links(latency_ns=np.floor(SCALE * weight[self.FEEDER] * self._handled).astype(np.int64), ns_per_byte=per_byte),
        )

    def slack_ns(self, weight: Floats) -> int:
        """What a weighted load can exceed the step by: copies that are sent after the last op, and a ns for each message."""
        return int(weight[self.FEEDER] * self._slack_ns + weight[self.LINK :].sum() * len(self._relaxation.tensors)) + 1

    def busy(self, assignment: Assignment) -> Floats:
        """[8]: the load of each resource in an assignment of the relaxation, in ns."""
        busy = np.append(self._load[np.arange(len(self._load)), assignment.device].sum(axis=0), [0.0, 0.0])
        copies = transfers(self._relaxation, assignment)
        tensor = copies.tensor
        sent = tensor >= 0
        count, nbytes = self._relaxation.tensors.count[tensor], self._relaxation.tensors.copy_bytes[tensor]
        busy[self.FEEDER] += (np.where(sent, count, 1) * self._handled[copies.src, copies.dst]).sum()
        for k in range(2):
            busy[self.LINK + k] = (np.where(sent, count * nbytes, 0) * self._moved[k][copies.src, copies.dst]).sum()
        return busy


def shared_loads(simulator: Simulator) -> Floats:
    """[U, 2, 6]: for each unit and side of the relaxation, the least of its `loads` on the side's devices, in ns.

    It is divided by the number of these devices: the busiest of them has at least the sum over the units on that side.
    """
    load, allowed, side = loads(simulator), simulator.problem.units.allowed, sides(simulator.problem)
    shared = np.zeros((len(load), 2, 2 * RESOURCES))
    for k in range(2):
        members = np.flatnonzero(side == k)
        own = np.stack([load[:, d, RESOURCES * d : RESOURCES * (d + 1)] for d in members], axis=1)
        least = np.where(allowed[:, members, None], own, np.inf).min(axis=1)
        shared[:, k, RESOURCES * k : RESOURCES * (k + 1)] = np.where(np.isfinite(least), least, 0) / len(members)
    return shared


def _least_cost(problem: PlacementProblem, seconds: float) -> tuple[int, Assignment]:
    """A bound on the total cost of assignments that fit, in ns, and an assignment near it, which may exceed limits."""
    started = now()
    reduced = reduce(problem)
    prices = MemoryPrices(reduced.problem)
    prices.ascend(MAX_CUTS, started + seconds / 2)
    bound, assignment = prices.bound_ns, minimum_cut(reduced.problem, memory_price=prices.per_byte()).assignment
    if choices(reduced.problem) <= MAX_UNITS:
        model = Model(reduced.problem)
        model.limit(prices.moments)
        _, candidate, proved = model.minimise(assignment, max(0.0, started + seconds - now()), seed=0)
        bound, assignment = max(bound, proved), assignment if candidate is None else candidate
    return bound, reduced.invert(assignment)
