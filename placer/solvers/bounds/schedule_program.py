"""Whether a step can be as short as a given time: a constraint program over devices of units and times of ops and copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from placer.common.clock import add_work_s, spend
from placer.problem.encoded_assignment import copy_columns
from placer.problem.model_tables import PARALLEL, SMALL, WIDE
from placer.problem.problem import Assignment
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED
from placer.solvers.bounds.time_windows import TimeWindows
from placer.solvers.primitives.assignment_program import AssignmentProgram
from placer.solvers.primitives.or_tools import cp_search, cp_solver

DETERMINISTIC_TIME_PER_S = 0.12
"""Deterministic time of CP-SAT in a second: less than in other programs, as it counts little of the work on intervals."""
FEEDER, STREAM = "feeder", "stream"
"""Resources of an asynchronous device; those of another are `PARALLEL` for its threads, `SMALL` and `WIDE`."""


class ScheduleProgram(AssignmentProgram):
    """A relaxation of the steps whose ops take at most a given time. Times are in ns.

    Every assignment with such a step is a solution, with the times of its schedule. Ops and copies do not overlap on a resource.
    An op begins after those before it. A copy out of or into the own memory of an asynchronous device begins after all ops of the
    device's stream that the producer depends on. The program leaves out that resources serve in the order of ready times: ops and
    copies may wait for any time.

    Args:
        simulator: of a problem with the allowed devices of the windows.
        windows: of steps as short as `ops_ns`.
        ops_ns: the time.
    """

    def __init__(self, simulator: Simulator, windows: TimeWindows, ops_ns: int) -> None:
        problem, edges = simulator.problem, simulator.edges
        super().__init__(problem)
        self._simulator, self._windows, self._end = simulator, windows, ops_ns
        self._wait = edges.pairs(problem)[0]
        self._streamed = problem.devices.asynchronous & ~simulator.tables.host_only
        self._intervals: dict[tuple[Any, int], list[Any]] = {}
        self._threads: dict[int, list[Any]] = {}
        ops = range(problem.num_ops)
        self._ready = [self._time() for _ in ops]
        self._issued = [self._time() for _ in ops]
        self._begin = [self._time() for _ in ops]
        self._done = [self._time() for _ in ops]
        self._in_stream = self._fronts()
        self._copies: dict[tuple[int, int, int], tuple[Any, Any, int]] = {}
        for op in ops:
            spend(20 * problem.num_devices)
            self._add_op(op)
        for edge in range(len(edges.message)):
            spend(20 * problem.num_devices**2)
            self._add_edge(edge)
        for intervals in self._intervals.values():
            self._model.add_no_overlap(intervals)
        for device, intervals in self._threads.items():
            self._model.add_cumulative(intervals, [1] * len(intervals), int(problem.devices.threads[device]))

    def _time(self) -> Any:
        return self._model.new_int_var(0, self._end, "")

    def _if(self, constraint: Any, *literals: Any) -> None:
        """Enforces a constraint where all literals are true."""
        constraint.only_enforce_if([literal for literal in literals if literal is not self._true])

    def _occupy(self, resource: Any, device: int, begin: Any, takes: int, literal: Any) -> None:
        """Occupies a resource of a device for a time."""
        if takes > 0:
            interval = self._model.new_optional_fixed_size_interval_var(begin, takes, literal, "")
            if resource == PARALLEL:
                self._threads.setdefault(device, []).append(interval)
            else:
                self._intervals.setdefault((resource, device), []).append(interval)

    def _fronts(self) -> dict[int, list[Any]]:
        """For each asynchronous device, a time for each op: the end of all ops of its stream up to this op, on paths to it."""
        devices = np.flatnonzero(self._problem.devices.asynchronous).tolist()
        return {d: [self._time() for _ in range(self._problem.num_ops)] for d in devices}

    def _add_op(self, op: int) -> None:
        """On each device that the op may be on: its earliest and latest times, and what it occupies."""
        problem, windows = self._problem, self._windows
        ready, issued, begin, done = (times[op] for times in (self._ready, self._issued, self._begin, self._done))
        for d in np.flatnonzero(problem.units.allowed[problem.ops.unit[op]]).tolist():
            on, runner = self._on[problem.ops.unit[op]][d], int(problem.devices.runner[d])
            time_ns, dispatch_ns, compute_ns = (
                int(part[op, d]) for part in (problem.ops.time_ns, problem.ops.dispatch_ns, problem.ops.compute_ns)
            )
            self._if(self._model.add(issued >= int(windows.issued[op, d])), on)
            self._if(self._model.add(done >= int(windows.done[op, d])), on)
            self._if(self._model.add(issued <= self._end - int(windows.after_issue[op, d])), on)
            self._if(self._model.add(done <= self._end - int(windows.after_end[op, d])), on)
            if self._streamed[op, d]:
                self._if(self._model.add(issued >= ready + dispatch_ns), on)
                self._if(self._model.add(begin >= issued), on)
                self._if(self._model.add(done >= begin + compute_ns), on)
                self._occupy(FEEDER, d, issued - dispatch_ns, dispatch_ns, on)
                self._occupy(STREAM, d, begin, compute_ns, on)
                if compute_ns:
                    self._if(self._model.add(self._in_stream[d][op] >= done), on)
                continue
            self._if(self._model.add(begin >= ready), on)
            self._if(self._model.add(done >= begin + time_ns), on)
            self._if(self._model.add(issued == done), on)
            self._occupy(FEEDER if problem.devices.asynchronous[d] else PARALLEL, runner, begin, time_ns, on)
            sharing = int(self._simulator.tables.sharing[op, d])
            if sharing in (SMALL, WIDE) and not problem.devices.asynchronous[d]:
                self._occupy(sharing, runner, begin, time_ns, on)

    def _add_edge(self, edge: int) -> None:
        """The consumer waits for the producer, by their devices."""
        problem, edges = self._problem, self._simulator.edges
        message, producer, consumer = int(edges.message[edge]), int(edges.producer[edge]), int(edges.consumer[edge])
        ready, done = self._ready[consumer], self._done[producer]
        first, second = (problem.ops.unit[op] for op in (producer, consumer))
        for device, front in self._in_stream.items():
            self._model.add(front[consumer] >= front[producer])
            on = self._on[second][device]
            if on is not self._false and self._streamed[consumer, device]:
                self._if(self._model.add(self._begin[consumer] >= front[producer]), on)
        for d in np.flatnonzero(problem.units.allowed[first]).tolist():
            for e in [d] if first == second else np.flatnonzero(problem.units.allowed[second]).tolist():
                both = (self._on[first][d], self._on[second][e])
                source, target = int(edges.place[message, d]), int(edges.consumer_place[edge, e])
                if d == e and self._wait[edge, d] == ISSUED:
                    self._if(self._model.add(ready >= self._issued[producer]), *both)
                elif source == target or edges.free[message]:
                    self._if(self._model.add(ready >= done), *both)
                else:
                    copied, arrived = self._copy(message, producer, source, target)
                    self._model.add_bool_or(*(~literal for literal in both), copied)
                    self._if(self._model.add(ready >= arrived), *both)

    def _copy(self, message: int, producer: int, source: int, target: int) -> tuple[Any, Any]:
        """A literal that is true if a copy is made, and when it arrives."""
        key = message, source, target
        if key not in self._copies:
            columns = copy_columns(self._problem, *(np.array([value]) for value in key))
            takes, busy, link, out_of, into, _ = (int(column[0]) for column in columns)
            copied, begin = self._model.new_bool_var(""), self._time()
            self._if(self._model.add(begin >= self._done[producer]), copied)
            for device in {out_of, into} - {-1}:
                self._if(self._model.add(begin >= self._in_stream[device][producer]), copied)
            self._occupy("link", link, begin, busy, copied)
            self._copies[key] = copied, begin, takes
        copied, begin, takes = self._copies[key]
        return copied, begin + takes

    def solve(self, seconds: float, seed: int) -> tuple[bool, Assignment | None]:
        """Whether there can be such a step, and an assignment of the relaxation, None if none is found in time."""
        solver = cp_solver(seconds=seconds, seed=seed, linearization_level=0, cp_model_probing_level=0)
        solver.parameters.max_deterministic_time = seconds * DETERMINISTIC_TIME_PER_S
        status = cp_search(solver, self._model)
        add_work_s(solver.response_proto.deterministic_time / DETERMINISTIC_TIME_PER_S)
        if status == self._cp.INFEASIBLE:
            return False, None
        return True, self._assignment(solver) if status in (self._cp.OPTIMAL, self._cp.FEASIBLE) else None
