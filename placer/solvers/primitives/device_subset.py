"""A machine without some of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.solvers.primitives.partition import accelerators

BY_DEVICE = (
    "memory_limit_bytes", "asynchronous", "device_threads", "device_call_ns", "device_wake_ns", "op_time_ns", "op_dispatch_ns",
    "op_compute_ns", "op_cold_ns", "op_workspace_bytes", "unit_allowed", "tensor_on_host", "consumer_on_host",
)  # fmt: skip
BY_PLACE = ("copy_latency_ns", "copy_ns_per_byte", "copy_interval_ns")


@dataclass(frozen=True, eq=False)
class Fewer:
    """A problem as it is on the machine that has only some of the devices, and the way back."""

    problem: PlacementProblem
    devices: Ints
    """Of the original: what each device of `problem` is there."""

    def invert(self, assignment: Assignment) -> Assignment:
        """The same assignment in the original: it costs, takes and holds the same there."""
        return Assignment(self.devices[assignment.device])


def on_first(problem: PlacementProblem, count: int) -> Fewer | None:
    """On the first so many accelerators and all else; None where an op has to be on the others."""
    kept = np.setdiff1d(np.arange(problem.devices), accelerators(problem)[count:])
    if not problem.unit_allowed[:, kept].any(axis=1).all():
        return None
    given = {name: getattr(problem, name) for name in (*BY_DEVICE, *BY_PLACE)}
    places = np.append(kept, kept + problem.devices)
    return Fewer(
        replace(
            problem,
            device_names=tuple(problem.device_names[d] for d in kept),
            device_kinds=tuple(problem.device_kinds[d] for d in kept),
            **{name: given[name][..., kept] for name in BY_DEVICE if given[name] is not None},
            **{name: given[name][np.ix_(places, places)] for name in BY_PLACE if given[name] is not None},
        ),
        kept,
    )


def halved(problem: PlacementProblem) -> Iterator[Fewer]:
    """On the first half of the accelerators, on a half of these, and so on down to one, as far as ops can be there."""
    count = len(accelerators(problem))
    while count > 1:
        count = (count + 1) // 2
        if (fewer := on_first(problem, count)) is None:
            return
        yield fewer
