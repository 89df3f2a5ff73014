"""What only computes on host values stays on the CPU, as in ONNX Runtime."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.primitives.grouping import grouped
from placer.solvers.sources import ONNX_RUNTIME

SMALL_BYTES = 400
"""Constants up to here may be copied: ONNX Runtime's 100 elements, of four bytes."""


def cpu_preferred_assignment(problem: PlacementProblem) -> Assignment:
    """Everything on the first GPU, save what follows from its outputs in host memory and needs nothing from its own.

    Starts from users of host outputs of GPU ops and goes on, in order, through users of what stays on the CPU. An op stays if
    each input is in host memory where its GPU kernel would not take it from there, or a small constant, or an argument. As in
    ONNX Runtime, but without its exception for 16-bit types, which a problem does not tell; and only ops that are a unit by
    themselves move. Linear. Knows no memory limits.
    """
    device = all_on(problem, "GPU").device.copy()
    op_device = device[problem.op_unit]
    on_cpu = op_device == problem.host
    alone = np.bincount(problem.op_unit, minlength=problem.units)[problem.op_unit] == 1
    movable = (alone & problem.unit_allowed[problem.op_unit, problem.host]).tolist()
    source = np.bincount(problem.consumer_op, minlength=problem.ops) == 0
    argument = (source & on_cpu)[problem.tensor_op] & ~problem.tensor_free
    harmless = (argument | (problem.tensor_free & (problem.tensor_bytes <= SMALL_BYTES))).tolist()
    every, entries = np.arange(len(problem.tensor_op)), np.arange(len(problem.consumer_op))
    on_host = (problem.tensor_on_host[every, op_device[problem.tensor_op]] & ~on_cpu[problem.tensor_op]).tolist()
    from_host = problem.consumer_on_host[entries, op_device[problem.consumer_op]].tolist()

    makes, takes = grouped(problem.tensor_op, problem.ops), grouped(problem.consumer_op, problem.ops)
    start, consumer = problem.consumer_start.tolist(), problem.consumer_op.tolist()
    tensor_of, unit_of = problem.consumer_tensor.tolist(), problem.op_unit.tolist()
    candidate, was_on_cpu = [False] * problem.ops, on_cpu.tolist()
    for op in range(problem.ops):
        stays = candidate[op] and (
            was_on_cpu[op]
            or (movable[op] and all(harmless[t := tensor_of[e]] or (on_host[t] and not from_host[e]) for e in takes[op]))
        )
        if stays:
            device[unit_of[op]] = problem.host
        for t in makes[op]:
            on_host[t] = on_host[t] or stays
            if on_host[t]:
                for entry in range(start[t], start[t + 1]):
                    candidate[consumer[entry]] = True
    return Assignment(device)


cpu_preferred = partial(
    Heuristic,
    "cpu_preferred",
    cpu_preferred_assignment,
    ONNX_RUNTIME,
)
