"""How much memory an assignment holds on each device."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, Ints, PlacementProblem


def usage(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """Bytes held on each device while each op runs, shape [D, N], ops running in their order.

    - A tensor is held where it is produced from its producer to its last consumer, wherever that is, or to the end of the
      step where it is a result; each copy is held at its place from the producer to the last consumer there.
    - A free tensor (a constant) is held all the time at each place that makes or takes it.
    - Persistent bytes are held all the time on their unit's device, workspace while its op runs.
    - A device pays for its own place; the first CPU pays for all views of host memory.
    """
    device = assignment.device
    op_device = device[problem.op_unit]
    ops, tensors = problem.ops, len(problem.tensor_op)
    every = np.arange(tensors)
    src = problem.tensor_place[every, op_device[problem.tensor_op]]
    dst = problem.consumer_place[np.arange(len(problem.consumer_op)), op_device[problem.consumer_op]]

    until = np.full((tensors, 2 * problem.devices), -1, np.int64)
    np.maximum.at(until, (problem.consumer_tensor, dst), problem.consumer_op)
    last = np.maximum(until.max(axis=1, initial=-1), problem.tensor_op)
    until[every, src] = np.where(problem.tensor_is_result, ops - 1, last)
    tensor, place = np.nonzero(until >= 0)
    free = problem.tensor_free[tensor]
    begin = np.where(free, 0, problem.tensor_op[tensor])
    end = np.where(free, ops - 1, until[tensor, place])

    change = np.zeros((problem.devices, ops + 1), np.int64)
    np.add.at(change, (problem.place_device[place], begin), problem.tensor_bytes[tensor])
    np.subtract.at(change, (problem.place_device[place], end + 1), problem.tensor_bytes[tensor])
    np.add.at(change, (device, 0), problem.unit_persistent_bytes)
    held = np.cumsum(change[:, :-1], axis=1)
    held[op_device, np.arange(ops)] += problem.op_workspace_bytes[np.arange(ops), op_device]
    return held


def peaks(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """The most bytes each device holds at once, shape [D]; see `usage`."""
    return usage(problem, assignment).max(axis=1, initial=0)


def excess(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """By how many bytes each device's limit is missed, shape [D]; 0 where it holds."""
    over = peaks(problem, assignment) - problem.memory_limit_bytes
    return np.where(problem.memory_limit_bytes < 0, 0, np.maximum(over, 0))
