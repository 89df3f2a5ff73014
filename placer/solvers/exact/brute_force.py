"""Every assignment that could be the best, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from placer.common.clock import TimeUpError, limit, spend
from placer.problem.memory import excess
from placer.problem.model_tables import tables_of
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.search.annealing import moves_within
from placer.solvers.sources import own_work

MAX_ASSIGNMENTS = 2**20
NODE_OP_RUNS = 3
"""The work at a node of the tree, see `placer.common.clock.spend`."""


@dataclass(frozen=True, slots=True)
class BruteForce:
    """Prices all assignments, except those whose work alone takes as long as the best one so far.

    For the total cost, the work is the sum of all ops' times. For the step time, it is the work of the busiest stream or threads.
    """

    name: str = "brute_force"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that there are too many assignments."""
        count = math.prod(problem.units.allowed.sum(axis=1).tolist())
        if count <= MAX_ASSIGNMENTS:
            return ""
        return f"it tries at most {MAX_ASSIGNMENTS:,} assignments, and there are over 10^{int(math.log10(count))}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Prices as many assignments as about the time limit allows. Exact if these are all."""
        started, limited = time.perf_counter(), limits_can_bind(problem)
        remaining = moves_within(problem, objective, time_limit_s)
        tree, simulator, best, all_priced = _Tree(problem, objective), Simulator(problem), None, False
        with limit(time_limit_s), suppress(TimeUpError):
            for assignment in tree.leaves():
                if not remaining:
                    break
                remaining -= 1
                value = total_cost_ns(problem, assignment) if objective == "total_cost" else simulator.step_ns(assignment)
                if value < tree.best_ns and not (limited and excess(problem, assignment).any()):
                    best, tree.best_ns = assignment, value
            else:
                all_priced = True
        if all_priced and best is None:
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE)
        if all_priced and best is not None:
            return answer(
                problem, objective, best, solver=self.name, started=started,
                stop_reason=StopReason.PROVED_OPTIMAL, lower_bound_ns=int(tree.best_ns),
            )  # fmt: skip
        if best is None:
            seconds = time.perf_counter() - started
            return Solution(None, Status.UNKNOWN, objective, 0, 0, self.name, seconds, StopReason.NOT_FOUND)
        return answer(problem, objective, best, solver=self.name, started=started, stop_reason=StopReason.TIME_LIMIT)

    def cite(self) -> str:
        """This package: it is a rule, not an algorithm."""
        return own_work("all assignments, without those whose work alone is too much")


class _Tree:
    """All assignments as the leaves of a tree: each level places one unit that has a choice, those with most work first."""

    def __init__(self, problem: PlacementProblem, objective: Objective) -> None:
        devices, host_only = problem.devices, tables_of(problem).host_only
        self.best_ns: float = math.inf
        """Subtrees with this much work are left out."""
        if objective == "total_cost":
            work, self._worker, self._workers = problem.unit_time_ns, [0] * problem.num_devices, [1]
        else:
            of_op = np.where(devices.asynchronous, np.where(host_only, 0, problem.ops.compute_ns), problem.ops.time_ns)
            work = np.zeros((problem.num_units, problem.num_devices), np.int64)
            np.add.at(work, problem.ops.unit, of_op)
            self._worker, self._workers = devices.runner.tolist(), np.where(devices.asynchronous, 1, devices.threads).tolist()
        least = np.where(problem.units.allowed, work, np.iinfo(np.int64).max).min(axis=1)
        free = np.flatnonzero(problem.units.allowed.sum(axis=1) > 1)
        order = free[np.argsort(-least[free], kind="stable")]
        self._order: list[int] = order.tolist()
        self._choices = [
            sorted(np.flatnonzero(row).tolist(), key=times.__getitem__)
            for row, times in zip(problem.units.allowed, work.tolist(), strict=True)
        ]
        self._work: list[list[int]] = work.tolist()
        later = np.append(np.cumsum(least[order[::-1]])[::-1], 0)
        self._later: list[int] = (later * (objective == "total_cost")).tolist()  # by level: the least work of the units to come
        self._load = [0] * len(self._workers)
        self._device = problem.units.allowed.argmax(axis=1)
        for unit in set(range(problem.num_units)) - set(self._order):
            self._load[self._worker[self._device[unit]]] += self._work[unit][self._device[unit]]

    def leaves(self, level: int = 0) -> Iterator[Assignment]:
        """The assignments below the current node, without those that have too much work."""
        spend(NODE_OP_RUNS)
        if max(load / n for load, n in zip(self._load, self._workers, strict=True)) + self._later[level] >= self.best_ns:
            return
        if level == len(self._order):
            yield Assignment(self._device.copy())
            return
        unit = self._order[level]
        for d in self._choices[unit]:
            self._device[unit] = d
            self._load[self._worker[d]] += self._work[unit][d]
            yield from self.leaves(level + 1)
            self._load[self._worker[d]] -= self._work[unit][d]


solver = BruteForce
