"""Fills devices in the order of execution, as Hugging Face accelerate does."""

from __future__ import annotations

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.filling import fill, in_order

SOURCE = (
    "S. Gugger, L. Debut, T. Wolf, P. Schmid, Z. Mueller, S. Mangrulkar, M. Sun, B. Bossan, Accelerate: training and inference "
    "at scale made simple, efficient and adaptable, 2022, infer_auto_device_map in "
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py"
)


def in_order_assignment(problem: PlacementProblem) -> Assignment:
    """Fills the GPUs one after the other, then the CPU, with units in the order of their first op.

    Differs from accelerate's `infer_auto_device_map` in three ways. It places units, not modules. It counts all memory over
    lifetimes, not weights only. It reserves no memory for loading a layer from the CPU, because that layer runs on the CPU.
    Time: that of `fill`.
    """
    return fill(problem, in_order(problem))


def solver() -> Heuristic:
    """Devices filled in the order of execution."""
    return Heuristic("in_order_fill", in_order_assignment, SOURCE)
