"""What the search chooses today for each recorded workload, what calls run without a race, and what was measured of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.plan.doubt import doubts
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.registry import solver
from tests.benchmarks.doubt import kind_of
from tests.benchmarks.left_out import Outcome, by_workload

MAX_OTHER_OPS, MAX_OTHER_STEP = 0.05, 0.03
"""A placement counts as measured if a recorded one has at most this share of ops on other devices, and a predicted step that
differs by at most this share."""


@dataclass(frozen=True)
class Placed:
    """A placement that may have been recorded."""

    kind: str
    """As in `placer.plan.doubt`."""
    predicted_ns: float
    nearest: Outcome
    """The recorded placement with the fewest ops on other devices."""
    other_ops: float
    """The share of ops that have another device there."""

    @property
    def is_measured(self) -> bool:
        """Whether the nearest recorded placement stands for this one."""
        return self.other_ops <= MAX_OTHER_OPS and abs(self.nearest.predicted / self.predicted_ns - 1) <= MAX_OTHER_STEP


@dataclass(frozen=True)
class Choice:
    """The plan of the search for one workload, beside what was recorded."""

    plan: Placed
    unraced: Placed
    """What calls run that do not race."""
    default: Outcome
    predicted_default_ns: float
    best: Outcome
    """The fastest recorded placement with the variables where they are."""

    @property
    def gain(self) -> float:
        """How many times faster than TensorFlow's default the plan is predicted to be."""
        return self.predicted_default_ns / self.plan.predicted_ns


def choices(found: list[Outcome]) -> Iterator[Choice]:
    """The choice for each workload.

    Args:
        found: the outcomes of all placements on a machine, by the models that the search is to use.
    """
    for group in by_workload(found).values():
        default = next(each for each in group if each.label == "default")
        traced = next((each for each in group if each.label in ("plan", "random_0")), default)
        problem = traced.prediction.problem
        placed = {name: _placed(problem, assignment, group) for name, assignment in _assignments(problem)}
        usual = placed["tf_default"]
        used = usual
        for name in ("all_cpu", "all_gpu", "auto"):  # as `beyond_doubt` in placer.placed.race.candidates
            if doubts()[placed[name].kind].gain * placed[name].predicted_ns < used.predicted_ns:
                used = placed[name]
        here = [each for each in group if each is default or each.prediction.problem.num_ops == problem.num_ops]
        fixed = [each for each in here if each.label not in ("moved", "all_cpu")]
        best = min(fixed, key=lambda each: each.measured)
        yield Choice(placed["auto"], used, default, usual.predicted_ns, best)


def _assignments(problem: PlacementProblem) -> Iterator[tuple[str, Assignment]]:
    for name in ("tf_default", "all_cpu", "all_gpu", "auto"):
        assignment = solver(name).solve(problem, "step_time").assignment
        assert assignment is not None
        yield name, assignment


def _placed(problem: PlacementProblem, assignment: Assignment, group: list[Outcome]) -> Placed:
    op_device = assignment.device[problem.ops.unit]
    device = dict(zip(problem.ops.names, op_device.tolist(), strict=True))
    shares = [_other_ops(each, device) for each in group]
    k = int(np.argmin(shares))
    return Placed(kind_of(problem, op_device), Simulator(problem).step_ns(assignment), group[k], shares[k])


def _other_ops(each: Outcome, device: dict[str, int]) -> float:
    """The share of ops that have another device there; an op that only one of the graphs has counts, too."""
    names = each.prediction.problem.ops.names
    same = sum(device.get(name) == d for name, d in zip(names, each.prediction.op_device.tolist(), strict=True))
    return 1 - same / max(len(names), len(device))
