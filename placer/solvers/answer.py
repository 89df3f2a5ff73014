"""What solvers share: pricing an answer, telling how good it is, and checking that it is one."""

from __future__ import annotations

import time

import numpy as np

from placer.errors import OptionError
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.base import Objective, Solution, Status, StopReason


def answer(
    problem: PlacementProblem,
    objective: Objective,
    assignment: Assignment,
    *,
    solver: str,
    started: float,
    stop_reason: StopReason = StopReason.COMPLETED,
    stop_detail: str = "",
    lower_bound_ns: int = 0,
) -> Solution:
    """Prices an assignment: OPTIMAL where its bound proves it, FEASIBLE where it fits, UNKNOWN where it misses a memory limit.

    Args:
        started: `time.perf_counter` when the search began.
        stop_reason: why it ended. `NO_CHOICE` and `LIMIT_EXCEEDED` replace it where they hold.
        stop_detail: see `Solution`.
    """
    value = total_cost_ns(problem, assignment) if objective == "total_cost" else Simulator(problem).step_ns(assignment)
    if not (problem.units.allowed.sum(axis=1) > 1).any():
        lower_bound_ns, stop_reason, stop_detail = value, StopReason.NO_CHOICE, ""
    status = Status.OPTIMAL if value == lower_bound_ns else Status.FEASIBLE
    if over := overfull(problem, assignment):
        status, stop_reason, stop_detail = Status.UNKNOWN, StopReason.LIMIT_EXCEEDED, over
    seconds = time.perf_counter() - started
    return Solution(assignment, status, objective, value, lower_bound_ns, solver, seconds, stop_reason, stop_detail)


def checked(made: object, problem: PlacementProblem, name: str) -> Assignment:
    """The assignment that the user's own solver `name` made. Raises OptionError where it is none for this problem."""
    device = np.asarray(getattr(made, "device", None))
    if not isinstance(made, Assignment) or device.shape != (problem.num_units,) or device.dtype.kind not in "iu":
        given = f"shape {device.shape} of {device.dtype}" if isinstance(made, Assignment) else f"a {type(made).__name__}"
        raise OptionError(
            f"{name} returned no Assignment of {problem.num_units} integers, a device's number for each unit, but {given}."
        )
    known = (device >= 0) & (device < problem.num_devices)
    wrong = np.flatnonzero(~(known & problem.units.allowed[np.arange(problem.num_units), np.where(known, device, 0)]))
    if len(wrong):
        unit = int(wrong[0])
        op = problem.ops.names[int(np.argmax(problem.ops.unit == unit))]
        allowed = ", ".join(f"{d} ({problem.devices.names[d]})" for d in np.flatnonzero(problem.units.allowed[unit]).tolist())
        raise OptionError(f"{name} puts {op!r} (unit {unit}) on device {device[unit]}, and it may be on {allowed} only.")
    return Assignment(device.astype(np.int64))


def overfull(problem: PlacementProblem, assignment: Assignment) -> str:
    """The device that misses its memory limit most and by how much, in words; "" where all hold."""
    if not limits_can_bind(problem):
        return ""
    over = excess(problem, assignment)
    d = int(np.argmax(over))
    if not over[d]:
        return ""
    limit = int(problem.devices.memory_limit_bytes[d])
    return f"{problem.devices.names[d]} would hold {limit + int(over[d])} bytes, {int(over[d])} over its limit of {limit}"


def limits_can_bind(problem: PlacementProblem) -> bool:
    """Whether holding everything at once, a copy at every place, could exceed any limit; False is cheap proof that all fits."""
    most = int(problem.units.persistent_bytes.sum() + 2 * problem.num_devices * problem.tensors.held_bytes.sum())
    most += int(np.max(problem.ops.workspace_bytes, initial=0))
    limits = problem.devices.memory_limit_bytes
    return bool(((limits >= 0) & (limits < most)).any())
