"""A user's own function as a solver."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.errors import OptionError
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic, Rule


def own(function: Rule) -> Heuristic:
    """Calls itself what the function is called, and cites its docstring. What it returns is checked."""
    name = getattr(function, "__name__", type(function).__name__)
    source = (function.__doc__ or "").strip().partition("\n")[0]
    return Heuristic(name, partial(_checked, function, name), source or "A function of the user's.")


def _checked(function: Rule, name: str, problem: PlacementProblem) -> Assignment:
    device = np.asarray(getattr(function(problem), "device", None))
    if device.shape != (problem.units,) or device.dtype.kind not in "iu":
        raise OptionError(
            f"{name} returned no Assignment of {problem.units} integers, a device's number for each unit, "
            f"but shape {device.shape} of {device.dtype}."
        )
    known = (device >= 0) & (device < problem.devices)
    wrong = np.flatnonzero(~(known & problem.unit_allowed[np.arange(problem.units), np.where(known, device, 0)]))
    if len(wrong):
        unit = int(wrong[0])
        op = problem.op_names[int(np.argmax(problem.op_unit == unit))]
        allowed = ", ".join(f"{d} ({problem.device_names[d]})" for d in np.flatnonzero(problem.unit_allowed[unit]).tolist())
        raise OptionError(f"{name} puts {op!r} (unit {unit}) on device {device[unit]}, and it may be on {allowed} only.")
    return Assignment(device.astype(np.int64))
