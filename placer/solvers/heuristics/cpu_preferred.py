"""Ops that only compute with values in host memory stay on the CPU, as in ONNX Runtime."""

from __future__ import annotations

import numpy as np

from placer.problem.grouping import grouped
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.one_kind import all_on

SOURCE = (
    "ONNX Runtime developers, ONNX Runtime, 2018, GetCpuPreferredNodes in "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/framework/fallback_cpu_capability.cc"
)

MAX_COPIED_CONSTANT_BYTES = 400
"""Largest constant that may be copied: ONNX Runtime's limit of 100 elements, of four bytes each."""


def cpu_preferred_assignment(problem: PlacementProblem) -> Assignment:
    """Puts everything on the first GPU, except ops that only compute with values that GPU ops leave in host memory.

    The candidates are the consumers of GPU ops' outputs in host memory and, in the order of ops, the consumers of ops that stay
    on the CPU. A candidate stays on the CPU if each of its inputs is a small constant, an argument, or in host memory although
    its GPU kernel reads it from the GPU's memory. Differs from ONNX Runtime in two ways: there is no exception for 16-bit
    types, because a problem does not have them; and only an op that is a unit by itself moves. Ignores memory limits.
    Time: N + E.
    """
    device = all_on(problem, "GPU").device.copy()
    op_device = device[problem.ops.unit]
    on_cpu = op_device == problem.devices.host
    alone = np.bincount(problem.ops.unit, minlength=problem.num_units)[problem.ops.unit] == 1
    movable = (alone & problem.units.allowed[problem.ops.unit, problem.devices.host]).tolist()
    source = np.bincount(problem.consumers.op, minlength=problem.num_ops) == 0
    argument = (source & on_cpu)[problem.tensors.op] & ~problem.tensors.free
    harmless = (argument | (problem.tensors.free & (problem.tensors.nbytes <= MAX_COPIED_CONSTANT_BYTES))).tolist()
    tensors, entries = np.arange(problem.num_tensors), np.arange(len(problem.consumers))
    on_host = (problem.tensors.on_host[tensors, op_device[problem.tensors.op]] & ~on_cpu[problem.tensors.op]).tolist()
    from_host = problem.consumers.on_host[entries, op_device[problem.consumers.op]].tolist()

    made_by, taken_by = grouped(problem.tensors.op, problem.num_ops), grouped(problem.consumers.op, problem.num_ops)
    start, consumer = problem.consumers.start.tolist(), problem.consumers.op.tolist()
    tensor_of, unit_of = problem.consumers.tensor.tolist(), problem.ops.unit.tolist()
    candidate, was_on_cpu = [False] * problem.num_ops, on_cpu.tolist()
    for op in range(problem.num_ops):
        stays = candidate[op] and (
            was_on_cpu[op]
            or (movable[op] and all(harmless[t := tensor_of[e]] or (on_host[t] and not from_host[e]) for e in taken_by[op]))
        )
        if stays:
            device[unit_of[op]] = problem.devices.host
        for t in made_by[op]:
            on_host[t] = on_host[t] or stays
            if on_host[t]:
                for entry in range(start[t], start[t + 1]):
                    candidate[consumer[entry]] = True
    return Assignment(device)


def solver() -> Heuristic:
    """ONNX Runtime's rule for ops that work on values in host memory."""
    return Heuristic("cpu_preferred", cpu_preferred_assignment, SOURCE)
