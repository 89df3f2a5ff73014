"""What a learner sees of the devices that the next unit may use, while units get their devices one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Floats
from placer.problem.grouping import grouped
from placer.problem.problem import PlacementProblem, once_per_problem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristics.peft import optimistic_cost_ns
from placer.solvers.primitives.filling import in_order, unit_bytes
from placer.solvers.primitives.forward_schedule import ForwardSchedule
from placer.solvers.primitives.incremental_memory import NOWHERE, IncrementalMemory
from placer.solvers.primitives.list_scheduling import Schedule

FEATURES = (
    "end",  # when the unit's first op would end
    "time",  # time of the unit's ops
    "copies_in",  # time of copies from units that have a device
    "copies_out",  # time of copies to other units; the mean over the devices that a unit may use, if it has none yet
    "rest",  # time from the end of the unit to the end of the step, if later units choose freely and never wait
    "load",  # time of the ops that the device has already
    "memory",  # share of the device's memory limit that its units take, with this one; 0 without a limit
    "cpu",  # 1 for a CPU
    "previous",  # 1 for the device of the unit before
)
"""What is known of each device, by column. Times are logarithms: log(1 + t / m), where m is the mean time of a unit; of `end`,
`time` and `rest`, t is the excess over the allowed device with the least. So no feature has a unit of measure."""


@dataclass(frozen=True, eq=False)
class _Tables:
    """What does not depend on the assignment: E edges, D devices, U units."""

    order: list[int]
    """The units that have a choice, by their first op."""
    first_op: list[int]
    """[U]"""
    into: list[list[int]]
    """By unit: the edges from other units."""
    out_of: list[list[int]]
    """By unit: the edges to other units."""
    producer: list[int]
    """[E]: a unit."""
    consumer: list[int]
    """[E]: a unit."""
    mean_copy_ns: list[list[float]]
    """[E][D]: the copy from a device, as a mean over the devices that the consumer may use."""
    rest_ns: list[list[float]]
    """[U][D]"""
    scale_ns: float
    """The mean time of a unit on the devices that it may use."""


def _tables(problem: PlacementProblem) -> _Tables:
    edges, allowed = step_edges_of(problem), problem.units.allowed
    producer, consumer = problem.ops.unit[edges.producer], problem.ops.unit[edges.consumer]
    _, copy = edges.pairs(problem)
    may = allowed[consumer][:, None, :]
    mean_copy = (copy * may).sum(axis=2) / may.sum(axis=2)
    rest = np.zeros((problem.num_units, problem.num_devices))
    np.maximum.at(rest, problem.ops.unit, optimistic_cost_ns(Schedule(problem)))
    _, first = np.unique(problem.ops.unit, return_index=True)
    apart = np.flatnonzero(producer != consumer)
    into, out_of = grouped(consumer[apart], problem.num_units), grouped(producer[apart], problem.num_units)
    free = allowed.sum(axis=1) > 1
    return _Tables(
        order=[unit for unit in in_order(problem) if free[unit]],
        first_op=first.tolist(),
        into=[apart[list(own)].tolist() for own in into],
        out_of=[apart[list(own)].tolist() for own in out_of],
        producer=producer.tolist(),
        consumer=consumer.tolist(),
        mean_copy_ns=mean_copy.tolist(),
        rest_ns=rest.tolist(),
        scale_ns=max(1.0, float(problem.unit_time_ns[allowed].mean())),
    )


_tables_of = once_per_problem(_tables)


class Choices:
    """A partial assignment: units get their devices in the order of their first ops.

    Units that may use one device only have it from the start, so their memory counts from the start.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self._tables = _tables_of(problem)
        self._schedule, self._memory = ForwardSchedule(problem), IncrementalMemory(problem)
        self._next_op, self._position, self._previous = 0, 0, NOWHERE
        self._unit_time_ns: list[list[int]] = problem.unit_time_ns.tolist()
        self._allowed: list[list[bool]] = problem.units.allowed.tolist()
        self._cpu = [float(kind == "CPU") for kind in problem.devices.kinds]
        self._bytes, self._limit = unit_bytes(problem).tolist(), problem.devices.memory_limit_bytes.tolist()
        self._busy_ns, self._held_bytes = [0] * problem.num_devices, [0] * problem.num_devices
        for unit in np.flatnonzero(problem.units.allowed.sum(axis=1) == 1).tolist():
            self._place(unit, self._allowed[unit].index(True))

    @property
    def unit(self) -> int:
        """The next unit; `NOWHERE` when all have a device."""
        order = self._tables.order
        return order[self._position] if self._position < len(order) else NOWHERE

    @property
    def device(self) -> list[int]:
        """By unit: its device, or `NOWHERE`."""
        return self._schedule.device

    def mask(self) -> Bools:
        """[D]: the devices that the next unit may use and on which all memory limits hold with it."""
        mask = np.zeros(len(self._cpu), np.bool_)
        if (unit := self.unit) != NOWHERE:
            for device, allowed in enumerate(self._allowed[unit]):
                if allowed and self._memory.move_if_fits(unit, device):
                    self._memory.move(unit, NOWHERE)
                    mask[device] = True
        return mask

    def features(self) -> Floats:
        """[D, F]: see `FEATURES`; 0 for devices that the next unit may not use."""
        values = np.zeros((len(self._cpu), len(FEATURES)))
        if (unit := self.unit) == NOWHERE:
            return values
        tables, copy, op = self._tables, self._schedule.copy_ns, self._tables.first_op[unit]
        while self._next_op < op:
            self._schedule.run(self._next_op)
            self._next_op += 1
        known = [(e, d) for e in tables.into[unit] if (d := self.device[tables.producer[e]]) != NOWHERE]
        users = [(e, self.device[tables.consumer[e]]) for e in tables.out_of[unit]]
        devices = [device for device, allowed in enumerate(self._allowed[unit]) if allowed]
        for d in devices:
            limit = self._limit[d]
            values[d] = (
                self._schedule.end_ns(op, d),
                self._unit_time_ns[unit][d],
                sum(copy[e][source][d] for e, source in known),
                sum(tables.mean_copy_ns[e][d] if to == NOWHERE else copy[e][d][to] for e, to in users),
                tables.rest_ns[unit][d],
                self._busy_ns[d],
                (self._held_bytes[d] + self._bytes[unit]) / limit if limit > 0 else 0.0,
                self._cpu[d],
                d == self._previous,
            )
        for column in (0, 1, 4):
            values[devices, column] -= values[devices, column].min()
        values[:, :6] = np.log1p(values[:, :6] / tables.scale_ns)
        return values

    def place(self, device: int) -> None:
        """Gives the next unit a device."""
        self._place(self.unit, device)
        self._previous = device
        self._position += 1

    def _place(self, unit: int, device: int) -> None:
        self._schedule.device[unit] = device
        self._memory.move(unit, device)
        self._busy_ns[device] += self._unit_time_ns[unit][device]
        self._held_bytes[device] += self._bytes[unit]
