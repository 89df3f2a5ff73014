"""What TensorFlow's own placer would do."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.sources import TENSORFLOW


def default_assignment(problem: PlacementProblem) -> Assignment:
    """Everything on the first GPU that can be there, with the placer's exceptions.

    An op that only reads its input's metadata stays beside it, and a loop's value where what has a device made the first. Then
    an op without inputs and with one output, alone in its unit, goes where all its consumers are. Pins, resources and
    colocation are in ``unit_allowed`` already. Memory limits are not looked at.
    """
    device = all_on(problem, "GPU").device.copy()
    allowed = problem.unit_allowed
    _, leading, size = np.unique(problem.op_unit, return_index=True, return_counts=True)
    alone = size[problem.op_unit] == 1
    inputs = np.bincount(problem.consumer_op, minlength=problem.ops)

    if problem.op_follows_input is not None:
        first = np.full(problem.ops, -1, np.int64)
        first[problem.consumer_op[::-1]] = problem.tensor_op[problem.consumer_tensor[::-1]]
        following = np.bincount(problem.op_unit, problem.op_follows_input) == size
        for op in leading[following & (inputs[leading] > 0)].tolist():
            unit, there = problem.op_unit[op], device[problem.op_unit[first[op]]]
            if allowed[unit, there]:
                device[unit] = there

    producer = np.append(problem.tensor_op[problem.consumer_tensor], problem.control_src)
    consumer = device[problem.op_unit[np.append(problem.consumer_op, problem.control_dst)]]
    low, high = np.full(problem.ops, problem.devices), np.full(problem.ops, -1)
    np.minimum.at(low, producer, consumer)
    np.maximum.at(high, producer, consumer)
    outputs = np.bincount(problem.tensor_op, minlength=problem.ops)
    generators = np.flatnonzero(alone & (inputs == 0) & (outputs == 1) & (low == high))
    units, there = problem.op_unit[generators], low[generators]
    can = allowed[units, there]
    device[units[can]] = there[can]
    return Assignment(device)


tf_default = partial(Heuristic, "tf_default", default_assignment, TENSORFLOW)
