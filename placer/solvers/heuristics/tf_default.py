"""The placement that TensorFlow's own placer makes."""

from __future__ import annotations

import numpy as np

from placer.problem.edges import edges_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.one_kind import all_on

SOURCE = (
    "M. Abadi and others, TensorFlow: a system for large-scale machine learning, 12th USENIX Symposium on Operating Systems "
    "Design and Implementation (OSDI), 2016, arXiv:1605.08695, "
    "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/common_runtime/placer.cc"
)


def default_assignment(problem: PlacementProblem) -> Assignment:
    """Puts every unit on the first GPU that it may use, with the exceptions of TensorFlow's placer (``placer.cc``).

    An op that only reads its input's metadata goes with that input, and a loop variable with the producer of its first value.
    Then an op that has no inputs and one output, and is a unit by itself, goes to its consumers if they are on one device. Pins,
    resources and colocation are in ``units.allowed`` already. Ignores memory limits. Time: N + E.
    """
    device = all_on(problem, "GPU").device.copy()
    allowed = problem.units.allowed
    _, leading, size = np.unique(problem.ops.unit, return_index=True, return_counts=True)
    alone = size[problem.ops.unit] == 1
    inputs = np.bincount(problem.consumers.op, minlength=problem.num_ops)

    first = np.full(problem.num_ops, -1, np.int64)
    first[problem.consumers.op[::-1]] = problem.tensors.op[problem.consumers.tensor[::-1]]
    follows_input = np.bincount(problem.ops.unit, problem.ops.follows_input) == size
    for op in leading[follows_input & (inputs[leading] > 0)].tolist():
        unit, input_device = problem.ops.unit[op], device[problem.ops.unit[first[op]]]
        if allowed[unit, input_device]:
            device[unit] = input_device

    edges = edges_of(problem)
    producer, consumer = edges.producer, device[problem.ops.unit[edges.consumer]]
    low, high = np.full(problem.num_ops, problem.num_devices), np.full(problem.num_ops, -1)
    np.minimum.at(low, producer, consumer)
    np.maximum.at(high, producer, consumer)
    outputs = np.bincount(problem.tensors.op, minlength=problem.num_ops)
    generators = np.flatnonzero(alone & (inputs == 0) & (outputs == 1) & (low == high))
    units, target = problem.ops.unit[generators], low[generators]
    can = allowed[units, target]
    device[units[can]] = target[can]
    return Assignment(device)


def solver() -> Heuristic:
    """TensorFlow's own placement."""
    return Heuristic("tf_default", default_assignment, SOURCE)
