"""The placements that a plan is compared with: TensorFlow's default, all ops on CPU, all ops on GPU."""

from __future__ import annotations

import numpy as np

from placer.common.units import format_bytes
from placer.options import Options
from placer.plan.parts import Baseline
from placer.problem.arrays import Bools
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.registry import solver

BASELINES = {"tf_default": "CPU", "all_cpu": "CPU", "all_gpu": "GPU"}
"""The solvers that make baselines, and the kind of device that each needs."""


def price_baselines(
    unpinned: PlacementProblem, with_pins: Bools, options: Options
) -> dict[str, tuple[Baseline, Assignment | None]]:
    """The baselines that the devices allow, by name, with their assignments; None for one that does not exist.

    Args:
        unpinned: the problem that was solved, without the pins.
        with_pins: the devices that each unit may use with the pins, [U, D].
        options: the options of the planning.
    """
    return {
        name: _baseline(unpinned, with_pins, name, options) for name, kind in BASELINES.items() if kind in unpinned.devices.kinds
    }


def _baseline(problem: PlacementProblem, with_pins: Bools, name: str, options: Options) -> tuple[Baseline, Assignment | None]:
    """One baseline of the problem without pins, with a note on what it could not do and on the pins that it violates."""
    solution = solver(name).solve(problem, options.objective, seed=options.seed)
    assignment = solution.assignment
    if assignment is None:
        return Baseline(False, 0, 0, solution.stop_text), None
    unit_ops = np.bincount(problem.ops.unit, minlength=problem.num_units)
    excess_bytes = excess(problem, assignment)
    worst = int(np.argmax(excess_bytes))
    notes = []
    if excess_bytes[worst]:
        limit = format_bytes(int(problem.devices.memory_limit_bytes[worst]))
        notes.append(f"exceeds the limit of {problem.devices.names[worst]} ({limit}) by {format_bytes(int(excess_bytes[worst]))}")
    elif name != "tf_default":
        kinds = np.array(problem.devices.kinds)[assignment.device]
        if elsewhere := int(unit_ops[kinds != BASELINES[name]].sum()):
            notes.append(f"{elsewhere} of {problem.num_ops} ops cannot be placed there")
    violating = ~with_pins[np.arange(problem.num_units), assignment.device]
    if pinned := int(unit_ops[violating].sum()):
        notes.append(f"{pinned} of {problem.num_ops} ops are pinned elsewhere")
    step_ns = Simulator(problem).step_ns(assignment)
    return Baseline(not excess_bytes[worst], total_cost_ns(problem, assignment), step_ns, ", ".join(notes)), assignment
