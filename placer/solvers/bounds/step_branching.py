"""The shortest step of a small problem by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.common.clock import OP_RUNS_PER_S, add_work_s, now, unlimited
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.problem import Assignment
from placer.problem.schedule import ASLEEP_NS, Simulator
from placer.solvers.bounds.longest_chains import LongestChains
from placer.solvers.bounds.step_bound import RESOURCES, load_weights, loads
from placer.solvers.primitives.incremental_memory import NOWHERE, IncrementalMemory
from placer.solvers.primitives.symmetry import interchangeable

NODES_AT_ONCE = 2_000
"""Nodes that are bounded together, in arrays."""
NODE_EFFORT = 0.05
"""The effort of bounding the children of a node, in simulations, for each pair of devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Branching:
    """The result of `branch`."""

    assignment: Assignment | None
    """The assignment with the shortest step that was found; None if none is shorter than the limit."""
    bound_ns: int
    """A lower bound on the step time of the assignments that meet the memory limits; at most the limit or the step found."""
    effort: float
    """In simulations."""


def branch(simulator: Simulator, limit_ns: int, *, effort: float, ends: float) -> Branching:
    """Looks for an assignment with a shorter step than `limit_ns` that meets the memory limits (Land, Doig 1960).

    A node of the tree has a device for the first units, in execution order. It is left out if its bound is no lower than the best
    step, or if these units exceed a memory limit. The bound is the longest chain or the least weighted load, whichever is longer.
    Of assignments that differ in the numbers of interchangeable devices, one is tried.

    Args:
        limit_ns: the step time of a known assignment.
        effort: limit of the effort, in simulations.
        ends: on `placer.common.clock.now`; limits around the search do not end it.
    """
    tree = _Tree(simulator)
    best, shortest_ns, spent = None, limit_ns, 0.0
    stack = [_Nodes(0, np.full((1, tree.units), NOWHERE), tree.least.sum(axis=0)[None], np.zeros(1, np.int64))]
    while stack:
        if spent > effort or now() > ends:
            return Branching(best, min(shortest_ns, *(int(nodes.bound_ns.min()) for nodes in stack)), spent)
        nodes = stack.pop().where_shorter(shortest_ns)
        if nodes.depth < tree.units:
            children = tree.children(nodes, shortest_ns)
            work = NODE_EFFORT * len(nodes.device) * simulator.problem.num_devices**2
            spent += work
            add_work_s(work * simulator.problem.num_ops / OP_RUNS_PER_S)
            stack.extend(children.parts())
            continue
        for device in nodes.device:
            assignment = Assignment(device)
            spent += 1
            with unlimited():
                step_ns = simulator.step_ns(assignment)
            if step_ns < shortest_ns:
                best, shortest_ns = assignment, step_ns
    return Branching(best, shortest_ns, spent)


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """K nodes of the same depth."""

    depth: int
    device: Ints
    """[K, U]"""
    load: Floats
    """[K, W]: the least weighted loads."""
    bound_ns: Ints
    """[K]"""

    def where_shorter(self, limit_ns: int) -> _Nodes:
        """The nodes whose bound is lower than the limit."""
        return self.at(np.flatnonzero(self.bound_ns < limit_ns))

    def at(self, rows: Ints) -> _Nodes:
        return _Nodes(self.depth, self.device[rows], self.load[rows], self.bound_ns[rows])

    def parts(self) -> list[_Nodes]:
        """The nodes in parts of at most `NODES_AT_ONCE`; the last part has the lowest bounds."""
        order = np.argsort(-self.bound_ns, kind="stable")
        cuts = range(NODES_AT_ONCE, len(order), NODES_AT_ONCE)
        return [self.at(np.sort(part)) for part in np.split(order, [len(order) - cut for cut in reversed(cuts)]) if len(part)]


class _Tree:
    """The tree of all assignments of a problem."""

    def __init__(self, simulator: Simulator) -> None:
        problem = simulator.problem
        self._simulator, self._allowed = simulator, problem.units.allowed
        self.units = problem.num_units
        self._order = np.unique(problem.ops.unit, return_index=True)[1].argsort()
        self._chains = LongestChains(simulator)
        self._memory, self._placed = IncrementalMemory(problem), np.full(self.units, NOWHERE)
        weights = np.concatenate([np.eye(RESOURCES * problem.num_devices), load_weights(simulator)[::10]])
        self._load = np.where(self._allowed[:, :, None], loads(simulator) @ weights.T, np.inf)  # [U, D, W]
        self.least = self._load.min(axis=1)  # [U, W]
        self._before = {device: group[k] for group in interchangeable(problem) for k, device in enumerate(group[1:])}

    def children(self, nodes: _Nodes, limit_ns: int) -> _Nodes:
        """The nodes with a device for one more unit, whose bound is lower than the limit, and which meet the memory limits."""
        unit = int(self._order[nodes.depth])
        rows, devices = [], []
        for d in np.flatnonzero(self._allowed[unit]).tolist():
            may = np.ones(len(nodes.device), np.bool_)
            if d in self._before:  # of interchangeable devices, one is used only if those before it are
                may = (nodes.device == self._before[d]).any(axis=1)
            rows.append(np.flatnonzero(may))
            devices.append(np.full(len(rows[-1]), d))
        row, own = np.concatenate(rows), np.concatenate(devices)
        device = nodes.device[row]
        device[:, unit] = own
        load = nodes.load[row] + self._load[unit, own] - self.least[unit]
        children = _Nodes(nodes.depth + 1, device, load, self._whole_ns((load.max(axis=1) * (1 - 1e-9)).astype(np.int64)))
        children = children.where_shorter(limit_ns)
        chosen = children.device[:, :, None] == np.arange(self._allowed.shape[1])
        allowed = np.where((children.device == NOWHERE)[:, :, None], self._allowed, chosen)
        bound_ns = np.maximum(children.bound_ns, self._whole_ns(self._chains.end_ns(allowed)))
        children = _Nodes(children.depth, children.device, children.load, bound_ns).where_shorter(limit_ns)
        children = children.at(np.lexsort(children.device.T[self._order[::-1]]))
        return children.at(np.flatnonzero(self._fit(children.device)))

    def _fit(self, device: Ints) -> Bools:
        """[K]: whether the units that have a device meet the memory limits. Rows in turn should differ in few units."""
        if not self._memory.binding:
            return np.ones(len(device), np.bool_)
        fit = np.empty(len(device), np.bool_)
        for k, row in enumerate(device):
            for unit in (row != self._placed).nonzero()[0].tolist():
                self._memory.move(unit, int(row[unit]))
            self._placed, fit[k] = row, self._memory.fits()
        return fit

    def _whole_ns(self, ops_ns: Ints) -> Ints:
        """[K]: `Simulator.whole_ns` with the least time of a call."""
        simulator = self._simulator
        waiting_ns: Ints = simulator.problem.devices.waiting_ns * np.minimum(ops_ns, ASLEEP_NS) // ASLEEP_NS
        return ops_ns + simulator.least_call_ns + waiting_ns
