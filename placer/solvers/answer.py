"""Makes a `Solution` of an assignment: prices it, checks its memory, and checks what users' functions return."""

from __future__ import annotations

import time

import numpy as np

from placer.common.clock import unlimited
from placer.common.units import format_bytes
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
    """The solution of an assignment: OPTIMAL if it equals its bound, UNKNOWN if it exceeds a memory limit, otherwise FEASIBLE.

    Args:
        started: `time.perf_counter` when the search began.
        stop_reason: why the search ended. `NO_CHOICE` and `LIMIT_EXCEEDED` replace it where they hold.
        stop_detail: see `Solution`.
    """
    with unlimited():
        value = total_cost_ns(problem, assignment) if objective == "total_cost" else Simulator(problem).step_ns(assignment)
        excess_text = overfull(problem, assignment)
    if not (problem.units.allowed.sum(axis=1) > 1).any():
        lower_bound_ns, stop_reason, stop_detail = value, StopReason.NO_CHOICE, ""
    status = Status.OPTIMAL if value == lower_bound_ns else Status.FEASIBLE
    if excess_text:
        status, stop_reason, stop_detail = Status.UNKNOWN, StopReason.LIMIT_EXCEEDED, excess_text
    seconds = time.perf_counter() - started
    return Solution(assignment, status, objective, value, lower_bound_ns, solver, seconds, stop_reason, stop_detail)


def unfinished(problem: PlacementProblem, objective: Objective, *, solver: str, started: float) -> Solution:
    """The solution of a method that has no assignment when its time is over: every unit on the CPU, if it may be there.

    Args:
        started: `time.perf_counter` when the method began.
    """
    allowed, host = problem.units.allowed, problem.devices.host
    return answer(
        problem,
        objective,
        Assignment(np.where(allowed[:, host], host, allowed.argmax(axis=1))),
        solver=solver,
        started=started,
        stop_reason=StopReason.TIME_LIMIT,
        stop_detail="the method had no plan yet, so units are on the CPU where they may be",
    )


def checked(returned: object, problem: PlacementProblem, name: str) -> Assignment:
    """Checks what the user's function `name` returned, and gives it as an assignment.

    Raises:
        OptionError: it is no assignment of this problem.
    """
    device = np.asarray(getattr(returned, "device", None))
    if not isinstance(returned, Assignment) or device.shape != (problem.num_units,) or device.dtype.kind not in "iu":
        is_assignment = isinstance(returned, Assignment)
        actual = f"one of shape {device.shape} of {device.dtype}" if is_assignment else f"a {type(returned).__name__}"
        raise OptionError(
            f"{name}: an Assignment has {problem.num_units} integers, a device's number for each unit, and this is {actual}."
        )
    exists = (device >= 0) & (device < problem.num_devices)
    wrong = np.flatnonzero(~(exists & problem.units.allowed[np.arange(problem.num_units), np.where(exists, device, 0)]))
    if len(wrong):
        unit = int(wrong[0])
        op = problem.ops.names[int(np.argmax(problem.ops.unit == unit))]
        allowed = ", ".join(f"{d} ({problem.devices.names[d]})" for d in np.flatnonzero(problem.units.allowed[unit]).tolist())
        raise OptionError(f"{name} puts {op!r} (unit {unit}) on device {device[unit]}, and it may be on {allowed} only.")
    return Assignment(device.astype(np.int64))


def overfull(problem: PlacementProblem, assignment: Assignment) -> str:
    """The device that exceeds its memory limit most, and by how much, as text; empty if all limits hold."""
    if not limits_can_bind(problem):
        return ""
    excess_bytes = excess(problem, assignment)
    d = int(np.argmax(excess_bytes))
    if not excess_bytes[d]:
        return ""
    limit, over = int(problem.devices.memory_limit_bytes[d]), int(excess_bytes[d])
    name, held = problem.devices.names[d], format_bytes(limit + over)
    return f"{name} would hold {held}, {format_bytes(over)} over its limit of {format_bytes(limit)}"


def limits_can_bind(problem: PlacementProblem) -> bool:
    """Whether an assignment could exceed a limit. False proves, in linear time, that every assignment meets them."""
    limits = problem.devices.memory_limit_bytes
    return bool(((limits >= 0) & (limits < everything_bytes(problem))).any())


def everything_bytes(problem: PlacementProblem) -> int:
    """The bytes of all variables, a copy of each tensor at every place, and the largest workspace: no device can hold more."""
    held = problem.units.persistent_bytes.sum() + 2 * problem.num_devices * problem.tensors.held_bytes.sum()
    return int(held) + int(np.max(problem.ops.workspace_bytes, initial=0))
