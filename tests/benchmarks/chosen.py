"""What the search chooses today for each recorded workload, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.problem.schedule import Simulator
from placer.solvers.registry import solver
from tests.benchmarks.left_out import Outcome, by_workload

MAX_OTHER_OPS, MAX_OTHER_STEP = 0.05, 0.03
"""A choice counts as measured if a recorded placement has at most this share of ops on other devices, and a predicted step that
differs by at most this share."""


@dataclass(frozen=True)
class Choice:
    """The plan of the search for one workload."""

    machine: str
    workload: str
    predicted_ns: float
    predicted_default_ns: float
    nearest: Outcome
    """The recorded placement with the fewest ops on other devices."""
    other_ops: float
    """The share of ops that have another device there."""
    default: Outcome
    best: Outcome
    """The fastest recorded placement."""

    @property
    def gain(self) -> float:
        """How many times faster than TensorFlow's default it is predicted to be."""
        return self.predicted_default_ns / self.predicted_ns

    @property
    def is_measured(self) -> bool:
        """Whether the nearest recorded placement stands for the choice."""
        return self.other_ops <= MAX_OTHER_OPS and abs(self.nearest.predicted / self.predicted_ns - 1) <= MAX_OTHER_STEP


def choices(found: list[Outcome]) -> Iterator[Choice]:
    """The choice for each workload whose plan was recorded.

    Args:
        found: the outcomes of all placements on a machine, by the models that the search is to use.
    """
    for group in by_workload(found).values():
        default = next(each for each in group if each.label == "default")
        traced = next((each for each in group if each.label in ("plan", "random_0")), default)
        problem = traced.prediction.problem
        solution = solver("auto").solve(problem, "step_time")
        assert solution.assignment is not None
        device = dict(zip(problem.ops.names, solution.assignment.device[problem.ops.unit].tolist(), strict=True))
        shares = [_other_ops(each, device) for each in group]
        k = int(np.argmin(shares))
        best = min(group, key=lambda each: each.measured)
        step_ns = Simulator(problem).step_ns(solution.assignment)
        yield Choice(default.machine, default.workload, step_ns, default.predicted, group[k], shares[k], default, best)


def _other_ops(each: Outcome, device: dict[str, int]) -> float:
    """The share of ops that have another device there; an op that only one of the graphs has counts, too."""
    names = each.prediction.problem.ops.names
    same = sum(device.get(name) == d for name, d in zip(names, each.prediction.op_device.tolist(), strict=True))
    return 1 - same / max(len(names), len(device))
