"""Tables that the execution model reads, and that do not depend on the assignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.problem import PlacementProblem, once_per_problem

WIDE_NS = 20_000
"""An op that computes longer than this per run uses all cores of a CPU; about the grain at which Eigen splits work."""
SMALL_NS = 3_000
"""An op on a CPU that takes less per run is run by the thread that made it ready: 8,000 cycles in TensorFlow's executor.cc."""
PARALLEL, SMALL, WIDE = 0, 1, 2
"""How an op uses the threads of a CPU: one beside others, one that no other small op uses meanwhile, or all cores."""


@dataclass(frozen=True, eq=False)
class ModelTables:
    """Properties of ops that decide how the model runs them."""

    present: Bools
    """[N]: the op does work or makes a tensor that is not free, so its device counts as used by a call. Constants, which are
    wherever their consumers are, do not."""
    host_only: Bools
    """[N, D]: all outputs are in host memory of an asynchronous device, so the op does not enter the device's stream."""
    runs: Floats
    """[N]: runs per step, at least 1."""
    wide: Bools
    """[N, D]: the op uses all cores of a device that is not asynchronous."""
    sharing: Ints
    """[N, D]: `PARALLEL`, `SMALL` or `WIDE`."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> ModelTables:
        """Computes the tables of a problem."""
        ops, tensors = problem.ops, problem.tensors
        present = np.any(ops.time_ns > 0, axis=1)
        present[tensors.op[~tensors.free]] = True

        outputs = np.bincount(tensors.op, minlength=problem.num_ops)
        on_host = np.zeros((problem.num_ops, problem.num_devices), np.int64)
        np.add.at(on_host, tensors.op, tensors.on_host)
        host_only = (on_host == outputs[:, None]) & (outputs > 0)[:, None] & problem.devices.asynchronous

        runs = np.maximum(ops.count, 1)
        wide = (ops.compute_ns > WIDE_NS * runs[:, None]) & ~ops.serial[:, None]
        small = ops.time_ns < SMALL_NS * runs[:, None]
        return cls(
            present=present,
            host_only=host_only,
            runs=runs,
            wide=wide,
            sharing=np.where(wide, WIDE, np.where(small, SMALL, PARALLEL)),
        )


tables_of = once_per_problem(ModelTables.of)
