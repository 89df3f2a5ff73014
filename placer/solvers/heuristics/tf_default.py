"""What TensorFlow's own placer would do."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.edges import edges_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.sources import TENSORFLOW


def default_assignment(problem: PlacementProblem) -> Assignment:
    """Everything on the first GPU that can be there, with the placer's exceptions.

    An op that only reads its input's metadata stays beside it, and a loop's value where what has a device made the first. Then
    an op without inputs and with one output, alone in its unit, goes where all its consumers are. Pins, resources and
    colocation are in ``units.allowed`` already. Memory limits are not looked at.
    """
    device = all_on(problem, "GPU").device.copy()
    allowed = problem.units.allowed
    _, leading, size = np.unique(problem.ops.unit, return_index=True, return_counts=True)
    alone = size[problem.ops.unit] == 1
    inputs = np.bincount(problem.consumers.op, minlength=problem.num_ops)

    first = np.full(problem.num_ops, -1, np.int64)
    first[problem.consumers.op[::-1]] = problem.tensors.op[problem.consumers.tensor[::-1]]
    following = np.bincount(problem.ops.unit, problem.ops.follows_input) == size
    for op in leading[following & (inputs[leading] > 0)].tolist():
        unit, there = problem.ops.unit[op], device[problem.ops.unit[first[op]]]
        if allowed[unit, there]:
            device[unit] = there

    edges = edges_of(problem)
    producer, consumer = edges.producer, device[problem.ops.unit[edges.consumer]]
    low, high = np.full(problem.num_ops, problem.num_devices), np.full(problem.num_ops, -1)
    np.minimum.at(low, producer, consumer)
    np.maximum.at(high, producer, consumer)
    outputs = np.bincount(problem.tensors.op, minlength=problem.num_ops)
    generators = np.flatnonzero(alone & (inputs == 0) & (outputs == 1) & (low == high))
    units, there = problem.ops.unit[generators], low[generators]
    can = allowed[units, there]
    device[units[can]] = there[can]
    return Assignment(device)


tf_default = partial(Heuristic, "tf_default", default_assignment, TENSORFLOW)
