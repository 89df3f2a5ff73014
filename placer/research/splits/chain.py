"""The contiguous split of the least max load, by a dynamic programme over ideals.

J. Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators, NeurIPS 2020.
"""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.problem import SplitProblem
from placer.solvers.primitives.ideals import contained, ideals, precedence

MAX_IDEALS = 1_000
"""A problem with more ideals is solved over the prefixes of depth-first orders only."""
IMPOSSIBLE_NS = np.iinfo(np.int64).max // 4
"""Load of a piece that no device may have, above all loads."""


def unit_order(problem: SplitProblem) -> list[tuple[int, int]]:
    """Pairs (a, b) of units where a must come before b; units in a circle are in no order."""
    order = np.argsort(problem.consumer_op, kind="stable")
    maker = problem.op_unit[problem.tensor_op[problem.consumer_tensor[order]]]
    user = problem.op_unit[problem.consumer_op[order]]
    return precedence(problem.units, zip(maker.tolist(), user.tolist(), strict=True))


def chain_split(problem: SplitProblem) -> Ints:
    """[U]: the device of each unit, when every device has one contiguous piece; the least max load of such splits that fit."""
    family, _ = ideals(problem.units, unit_order(problem), MAX_IDEALS)
    on_accelerator, on_cpu = piece_loads_ns(problem, family)
    k, cpus, count = problem.accelerators, problem.cpus, len(family)
    every = np.arange(count)
    best: dict[tuple[int, int], Ints] = {(0, 0): np.where(every == 0, 0, IMPOSSIBLE_NS)}
    origin: dict[tuple[int, int], tuple[Ints, Bools]] = {}  # the ideal before the last piece; is that on an accelerator?
    for a in range(k + 1):
        for c in range(cpus + 1):
            if a + c == 0:
                continue
            value, before = np.full(count, IMPOSSIBLE_NS), np.zeros(count, np.int64)
            on = np.zeros(count, np.bool_)
            for used, piece, is_accelerator in (((a - 1, c), on_accelerator, True), ((a, c - 1), on_cpu, False)):
                if used in best:
                    reached = np.maximum(best[used][:, None], piece)
                    i = reached.argmin(axis=0)
                    better = reached[i, every] < value
                    value = np.where(better, reached[i, every], value)
                    before, on = np.where(better, i, before), np.where(better, is_accelerator, on)
            best[a, c], origin[a, c] = value, (before, on)
    device = np.full(problem.units, problem.accelerators)
    a, c, j = k, cpus, count - 1
    while a + c:
        before, on = origin[a, c]
        i, is_accelerator = int(before[j]), bool(on[j])
        device[family[j] & ~family[i]] = a - 1 if is_accelerator else k + c - 1
        a, c, j = a - is_accelerator, c - (not is_accelerator), i
    return device


def piece_loads_ns(problem: SplitProblem, family: Bools) -> tuple[Ints, Ints]:
    """Two [I, I]: the load of the units in ideal j but not in ideal i, on an accelerator and on a CPU.

    `IMPOSSIBLE_NS` where j does not contain i, or where the units may not be there or do not fit.
    """
    nets, count = problem.nets, len(family)
    members = np.zeros((problem.units, len(nets.cost_ns)), np.float32)
    members[nets.unit, np.repeat(np.arange(len(nets.cost_ns)), np.diff(nets.start))] = 1
    within = family.astype(np.float32) @ members
    size = np.diff(nets.start)
    cut = np.zeros((count, count), np.int64)
    for i in range(count):
        inside = within[i:] - within[i]
        cut[i, i:] = ((inside > 0) & (inside < size)) @ nets.cost_ns

    def beyond(amount: Ints) -> Ints:
        """[I, I]: the sum of an amount [U] over the units in ideal j but not in ideal i."""
        total = family.astype(np.int64) @ amount
        difference: Ints = total - total[:, None]
        return difference

    allowed = contained(family)
    fits = allowed & (beyond(problem.unit_bytes) <= problem.memory_limit_bytes)
    fits &= beyond((~problem.unit_supported).astype(np.int64)) == 0
    cpu, accelerator = problem.unit_time_ns.T
    return np.where(fits, beyond(accelerator) + cut, IMPOSSIBLE_NS), np.where(allowed, beyond(cpu), IMPOSSIBLE_NS)
