"""Simulated annealing on the latency of a split (Kirkpatrick, Gelatt, Vecchi 1983)."""

from __future__ import annotations

import random
import time

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.grouping import grouped
from placer.research.splits.problem import SplitProblem, loads_ns
from placer.solvers.primitives.metropolis import is_accepted, temperature_at

END_TEMPERATURE = 0.01
"""The last temperature as a share of the first."""
LOAD_WEIGHT = 0.02
"""Weight of the sum of all loads beside the latency, so that work that delays nothing is reduced too."""
CLUSTER_SIZES = (2, 3, 5, 8, 13)
"""Numbers of connected units that move together."""


def anneal(problem: SplitProblem, start: Ints, *, moves: int, deadline: float, seed: int, start_temperature: float) -> Ints:
    """[U]: the split of the least latency on the way from ``start``, which must fit and have a latency.

    ``start_temperature`` is a share of the latency of ``start``.
    """
    state = _State(problem, start)
    rng = random.Random(seed)
    k, units = problem.accelerators, problem.units
    first_latency = state.latency()
    if first_latency is None or not units:
        return start
    best_latency, best, scale = first_latency, list(state.device), start_temperature * first_latency
    value = first_latency + LOAD_WEIGHT * sum(state.load)
    for move in range(moves):
        if move % 64 == 0 and time.perf_counter() > deadline:
            break
        unit = rng.randrange(units)
        here, neighbours = state.device[unit], state.neighbours[unit]
        chance = rng.random()
        to = k if chance < 0.9 else rng.randrange(k)
        if chance < 0.75 and neighbours:
            to = state.device[rng.choice(neighbours)]
        if to == here:
            continue
        group = state.cluster(unit, rng.choice(CLUSTER_SIZES)) if rng.random() < 0.25 else [unit]
        if not state.may_move(group, to):
            continue
        state.move(group, to)
        latency = state.latency()
        if latency is not None:
            new_value = latency + LOAD_WEIGHT * sum(state.load)
            temperature = max(1e-9, temperature_at(move / moves, scale, END_TEMPERATURE))
            if is_accepted(new_value - value, temperature, rng.random):
                value = new_value
                if latency < best_latency:
                    best_latency, best = latency, list(state.device)
                continue
        state.move(group, here)
    return np.array(best, np.int64)


class _State:
    """A split with its loads, which moves update. All CPUs are one device, k."""

    def __init__(self, problem: SplitProblem, device: Ints) -> None:
        k, nets = problem.accelerators, problem.nets
        self._k, self._ops = k, problem.ops
        self._members = [nets.unit[a:b].tolist() for a, b in zip(nets.start[:-1], nets.start[1:], strict=True)]
        self._cost = nets.cost_ns.tolist()
        self._nets = grouped(nets.unit, problem.units)
        net = np.repeat(np.arange(len(self._cost)), np.diff(nets.start)).tolist()
        self._nets = [[net[entry] for entry in entries] for entries in self._nets]
        maker, user = problem.tensor_op[problem.consumer_tensor], problem.consumer_op
        self._after = [user[entries].tolist() for entries in grouped(maker, problem.ops)]
        self._unit = problem.op_unit.tolist()
        self._cpu = problem.op_time_ns[:, 0].tolist()
        self._time = problem.unit_time_ns[:, 1].tolist()
        self._nbytes, self._limit = problem.unit_bytes.tolist(), problem.memory_limit_bytes
        self._supported = problem.unit_supported.tolist()
        neighbours: list[dict[int, None]] = [{} for _ in range(problem.units)]
        for a, b in zip(problem.op_unit[maker].tolist(), problem.op_unit[user].tolist(), strict=True):
            neighbours[a][b] = neighbours[b][a] = None
        self.neighbours = [[b for b in others if b != a] for a, others in enumerate(neighbours)]
        self.device: list[int] = np.minimum(device, k).tolist()
        self.load: list[int] = loads_ns(problem, device)[:k].tolist()
        units_of = grouped(np.minimum(device, k), k + 1)
        self._held = [sum(self._nbytes[u] for u in units) for units in units_of]
        self._count = [len(units) for units in units_of]

    def cluster(self, unit: int, size: int) -> list[int]:
        """At most ``size`` units of one device that are connected with a unit, itself first."""
        cluster = {unit: None}
        queue, at = [unit], 0
        while at < len(queue) and len(cluster) < size:
            for other in self.neighbours[queue[at]]:
                if other not in cluster and self.device[other] == self.device[unit]:
                    cluster[other] = None
                    queue.append(other)
            at += 1
        return list(cluster)[:size]

    def may_move(self, group: list[int], to: int) -> bool:
        """Whether a device supports these units and has memory for them."""
        if to == self._k:
            return True
        fits = self._held[to] + sum(self._nbytes[u] for u in group) <= self._limit
        return fits and all(self._supported[u] for u in group)

    def move(self, group: list[int], to: int) -> None:
        """Moves units of one device to another."""
        for unit in group:
            here = self.device[unit]
            if here < self._k:
                self.load[here] -= self._share(unit, here)
            if to < self._k:
                self.load[to] += self._share(unit, to)
            self.device[unit] = to
            self._held[here] -= self._nbytes[unit]
            self._held[to] += self._nbytes[unit]
            self._count[here] -= 1
            self._count[to] += 1

    def _share(self, unit: int, device: int) -> int:
        """The load that a unit adds to an accelerator, given all other units there."""
        share: int = self._time[unit]
        for net in self._nets[unit]:
            members = self._members[net]
            others = sum(1 for other in members if other != unit and self.device[other] == device)
            if others == 0:
                share += self._cost[net]
            elif others == len(members) - 1:
                share -= self._cost[net]
        return share

    def latency(self) -> int | None:
        """The latency in ns, as `placer.research.splits.problem.latency_ns` defines it."""
        k, after, cpu = self._k, self._after, self._cpu
        where = [self.device[unit] for unit in self._unit]
        block = [k + op if d == k else d for op, d in enumerate(where)]
        waits = [0] * (k + self._ops)
        held: list[list[int]] = [[] for _ in range(k)]
        for op, users in enumerate(after):
            own = block[op]
            if own < k:
                held[own].append(op)
            for user in users:
                if block[user] != own:
                    waits[block[user]] += 1
        start = [0] * (k + self._ops)
        ready = [d for d in range(k) if self._count[d] and not waits[d]]
        ready += [b for op, b in enumerate(block) if b == k + op and not waits[b]]
        waiting = sum(1 for d in range(k) if self._count[d]) + where.count(k)
        longest = 0
        while ready:
            current = ready.pop()
            waiting -= 1
            end = start[current] + (self.load[current] if current < k else cpu[current - k])
            longest = max(longest, end)
            for op in held[current] if current < k else (current - k,):
                for user in after[op]:
                    follower = block[user]
                    if follower != current:
                        start[follower] = max(start[follower], end)
                        waits[follower] -= 1
                        if not waits[follower]:
                            ready.append(follower)
        return None if waiting else longest
