"""Splits by simulated annealing on the latency (Kirkpatrick, Gelatt, Vecchi 1983)."""

from __future__ import annotations

import math
import random
import time

import numpy as np

from placer.problem.arrays import Ints
from placer.research.splits.problem import SplitProblem, loads_ns
from placer.solvers.primitives.grouping import grouped

COLD = 0.01
"""The last temperature, as a part of the first."""
WORK = 0.02
"""What all loads together count beside the latency, so that what does not wait is kept short too."""
CLUSTERS = (2, 3, 5, 8, 13)


def anneal(problem: SplitProblem, start: Ints, *, moves: int, ends: float, seed: int, hot: float) -> Ints:
    """[U]: the split of the least latency on the way from `start`, which must fit and make nothing wait in circles."""
    state = _State(problem, start)
    rng = random.Random(seed)
    k, units = problem.accelerators, problem.units
    now = state.latency()
    if now is None or not units:
        return start
    least, best, scale = now, list(state.device), hot * now
    worth = now + WORK * sum(state.load)
    for move in range(moves):
        if move % 64 == 0 and time.perf_counter() > ends:
            break
        unit = rng.randrange(units)
        here, near = state.device[unit], state.near[unit]
        chance = rng.random()
        to = k if chance < 0.9 else rng.randrange(k)
        if chance < 0.75 and near:
            to = state.device[rng.choice(near)]
        if to == here:
            continue
        group = state.cluster(unit, rng.choice(CLUSTERS)) if rng.random() < 0.25 else [unit]
        if not state.may_move(group, to):
            continue
        state.move(group, to)
        value = state.latency()
        if value is not None:
            new = value + WORK * sum(state.load)
            if new <= worth or rng.random() < math.exp((worth - new) / max(1e-9, scale * COLD ** (move / moves))):
                worth = new
                if value < least:
                    least, best = value, list(state.device)
                continue
        state.move(group, here)
    return np.array(best, np.int64)


class _State:
    """A split, its loads kept up to date, and its latency played anew when asked for. CPUs are one device, k."""

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
        near: list[dict[int, None]] = [{} for _ in range(problem.units)]
        for a, b in zip(problem.op_unit[maker].tolist(), problem.op_unit[user].tolist(), strict=True):
            near[a][b] = near[b][a] = None
        self.near = [[b for b in found if b != a] for a, found in enumerate(near)]
        self.device: list[int] = np.minimum(device, k).tolist()
        self.load: list[int] = loads_ns(problem, device)[:k].tolist()
        there = grouped(np.minimum(device, k), k + 1)
        self._held = [sum(self._nbytes[u] for u in units) for units in there]
        self._count = [len(units) for units in there]

    def cluster(self, unit: int, size: int) -> list[int]:
        """So many connected units of one device."""
        found, at = {unit: None}, 0
        queue = [unit]
        while at < len(queue) and len(found) < size:
            for other in self.near[queue[at]]:
                if other not in found and self.device[other] == self.device[unit]:
                    found[other] = None
                    queue.append(other)
            at += 1
        return list(found)[:size]

    def may_move(self, group: list[int], to: int) -> bool:
        if to == self._k:
            return True
        fits = self._held[to] + sum(self._nbytes[u] for u in group) <= self._limit
        return fits and all(self._supported[u] for u in group)

    def move(self, group: list[int], to: int) -> None:
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
        """What a unit adds to an accelerator's load, beside all others there."""
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
        """As `placer.research.splits.problem.latency_ns` defines it."""
        k, after, cpu = self._k, self._after, self._cpu
        where = [self.device[unit] for unit in self._unit]
        block = [k + op if d == k else d for op, d in enumerate(where)]
        waits = [0] * (k + self._ops)
        held: list[list[int]] = [[] for _ in range(k)]
        for op, users in enumerate(after):
            mine = block[op]
            if mine < k:
                held[mine].append(op)
            for user in users:
                if block[user] != mine:
                    waits[block[user]] += 1
        start = [0] * (k + self._ops)
        ready = [d for d in range(k) if self._count[d] and not waits[d]]
        ready += [b for op, b in enumerate(block) if b == k + op and not waits[b]]
        left = sum(1 for d in range(k) if self._count[d]) + where.count(k)
        longest = 0
        while ready:
            now = ready.pop()
            left -= 1
            ends = start[now] + (self.load[now] if now < k else cpu[now - k])
            longest = max(longest, ends)
            for op in held[now] if now < k else (now - k,):
                for user in after[op]:
                    then = block[user]
                    if then != now:
                        start[then] = max(start[then], ends)
                        waits[then] -= 1
                        if not waits[then]:
                            ready.append(then)
        return None if left else longest
