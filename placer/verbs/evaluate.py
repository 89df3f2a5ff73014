"""Prices an assignment of a problem: times, memory, crossings and schedule, without a solver and without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.plan.parts import Transfer
from placer.problem.arrays import Grouped, Ints
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulation, Simulator
from placer.problem.validate import validate
from placer.solvers.answer import checked

if TYPE_CHECKING:
    from placer.views.shared.gantt import Picture

Assigned: TypeAlias = Assignment | Sequence[int] | Ints | str
"""A device number for each unit, [U]: an `Assignment`, a list, an array, or the field ``assignment`` of an arena's record."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an assignment costs by the execution model. Times in ns, sizes in bytes; N ops, U units, X copies."""

    problem: PlacementProblem = field(repr=False)
    assignment: Assignment = field(repr=False)
    """[U]: the device number of each unit."""
    step_time_ns: int
    """The predicted time of one step: ops and copies overlap."""
    total_cost_ns: int
    """The sum of the times of all ops and copies, as if nothing overlapped."""
    peak_bytes: Mapping[str, int]
    """By device: the most memory that is held at once."""
    violations: tuple[str, ...]
    """The memory limits that the assignment exceeds, a sentence for each."""
    schedule: Simulation = field(repr=False)
    """The start and the end of each op [N] and copy [X], from the start of the first op; and how long each device is busy."""

    @property
    def feasible(self) -> bool:
        """Whether all memory limits hold."""
        return not self.violations

    @cached_property
    def crossings(self) -> tuple[Transfer, ...]:
        """What is copied from one place to another, in the order of starts; a tensor is named by its op and its number there."""
        problem, schedule = self.problem, self.schedule
        tensor, op, tensors = schedule.copy_tensor, schedule.copy_op, problem.tensors
        nbytes, copy_bytes, runs = (np.append(a, 0)[tensor] for a in (tensors.nbytes, tensors.copy_bytes, tensors.count))
        runs = np.where(tensor < 0, problem.ops.control_count[op], runs)
        cost = problem.links.copy_ns(copy_bytes, runs, schedule.copy_src, schedule.copy_dst)
        outputs = Grouped.by(tensors.op, problem.num_ops)
        number = np.zeros(problem.num_tensors + 1, np.int64)
        number[outputs.order] = np.arange(problem.num_tensors) - outputs.start[tensors.op[outputs.order]]
        order = np.lexsort((schedule.copy_end_ns, schedule.copy_start_ns))
        times = (cost, schedule.copy_start_ns, schedule.copy_end_ns)
        columns = (tensor, op, schedule.copy_src, schedule.copy_dst, nbytes, runs, *times)
        op_name, device, count = problem.ops.names, problem.devices.names, problem.num_devices
        return tuple(
            Transfer(
                f"^{op_name[i]}" if t < 0 else f"{op_name[i]}:{number[t]}",
                device[src % count],
                device[dst % count],
                "host" if dst >= count else "device",
                size,
                copies,
                *timed,
            )
            for t, i, src, dst, size, copies, *timed in zip(*(a[order].tolist() for a in columns), strict=True)
        )

    def summary(self) -> str:
        """Times, peaks and exceeded limits as text."""
        lines = [f"step time {format_ns(self.step_time_ns)}, total cost {format_ns(self.total_cost_ns)}"]
        lines += [f"{device} holds {format_bytes(held)} at its peak" for device, held in self.peak_bytes.items()]
        return "\n".join([*lines, *self.violations])

    def plot(self, path: str | Path | None = None, *, width: int = 1000) -> Picture:
        """The schedule as a Gantt chart: a row for each thread, stream and link, and a bar for each op and copy.

        Args:
            path: a file to write the chart to.
            width: of the chart, in pixels.

        Returns:
            SVG text, which a notebook shows as a picture.

        Raises:
            PlanError: the file cannot be written.
        """
        from placer.plan.views import write
        from placer.views.shared.gantt import gantt
        from placer.views.shared.tracks import spans

        chart = gantt(spans(self.problem, self.assignment, self.schedule), title=self.summary().splitlines()[0], width=width)
        if path is not None:
            write(chart, path)
        return chart


def evaluate(problem: PlacementProblem, assignment: Assigned) -> Evaluation:
    """What an assignment costs, by the execution model and an independent check of memory and total cost.

    Args:
        problem: U units on D devices.
        assignment: [U]: a device number for each unit, as an `Assignment`, a list, an array, or the text in the field
            ``assignment`` of an arena's record.

    Raises:
        OptionError: it is no assignment of this problem: another shape, or a unit on a device where it may not be.

    >>> import placer
    >>> problem = placer.problem("shipped:detector")
    >>> on_cpu = placer.evaluate(problem, problem.units.allowed.argmax(axis=1))
    >>> on_cpu.step_time_ns, on_cpu.total_cost_ns, len(on_cpu.crossings)
    (10609452, 14909166, 24)
    """
    if not isinstance(problem, PlacementProblem):
        raise OptionError(f"evaluate takes a PlacementProblem, not a {type(problem).__name__}: placer.problem makes one.")
    chosen = checked(_as_assignment(assignment), problem, "the assignment")
    total = total_cost_ns(problem, chosen)
    report = validate(problem, chosen, total)
    return Evaluation(
        problem=problem,
        assignment=chosen,
        step_time_ns=(schedule := Simulator(problem).run(chosen)).step_ns,
        total_cost_ns=total,
        peak_bytes=dict(zip(problem.devices.names, report.peak_bytes, strict=True)),
        violations=report.violations,
        schedule=schedule,
    )


def _as_assignment(given: Assigned) -> Assignment:
    if isinstance(given, Assignment):
        return given
    try:
        return Assignment(np.array(given.split(), np.int64) if isinstance(given, str) else np.asarray(given))
    except (TypeError, ValueError) as error:
        raise OptionError(f"an assignment is a device number for each unit: {error}.") from error
