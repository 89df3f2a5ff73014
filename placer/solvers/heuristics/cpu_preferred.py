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
    op_device = device[problem.ops.unit]
    on_cpu = op_device == problem.devices.host
    alone = np.bincount(problem.ops.unit, minlength=problem.num_units)[problem.ops.unit] == 1
    movable = (alone & problem.units.allowed[problem.ops.unit, problem.devices.host]).tolist()
    source = np.bincount(problem.consumers.op, minlength=problem.num_ops) == 0
    argument = (source & on_cpu)[problem.tensors.op] & ~problem.tensors.free
    harmless = (argument | (problem.tensors.free & (problem.tensors.nbytes <= SMALL_BYTES))).tolist()
    every, entries = np.arange(problem.num_tensors), np.arange(len(problem.consumers))
    on_host = (problem.tensors.on_host[every, op_device[problem.tensors.op]] & ~on_cpu[problem.tensors.op]).tolist()
    from_host = problem.consumers.on_host[entries, op_device[problem.consumers.op]].tolist()

    makes, takes = grouped(problem.tensors.op, problem.num_ops), grouped(problem.consumers.op, problem.num_ops)
    start, consumer = problem.consumers.start.tolist(), problem.consumers.op.tolist()
    tensor_of, unit_of = problem.consumers.tensor.tolist(), problem.ops.unit.tolist()
    candidate, was_on_cpu = [False] * problem.num_ops, on_cpu.tolist()
    for op in range(problem.num_ops):
        stays = candidate[op] and (
            was_on_cpu[op]
            or (movable[op] and all(harmless[t := tensor_of[e]] or (on_host[t] and not from_host[e]) for e in takes[op]))
        )
        if stays:
            device[unit_of[op]] = problem.devices.host
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
