"""Simulated annealing of the step time by moves of single units, of connected units and of pairs that change places."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from placer.common.clock import TimeUpError, limit, now
from placer.problem.arrays import Ints
from placer.problem.moving_schedule import MovingSchedule
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.primitives.metropolis import temperature_at

WARM, HOT, COLD, SAMPLED_MOVES = 0.4, 1.0, 0.008, 50
"""Two first temperatures and the last one, as shares of the mean change by so many moves. A search from `WARM` improves what
it starts from; one from `HOT` leaves it."""
SINGLE, FOLLOWING, JOINED = 0.4, 0.6, 0.9
"""A random number from 0 to 1 chooses the kind of a move. Up to the first limit, one unit moves to any device; up to the second,
to the device of a neighbour. Up to the third, connected units move together. Above, two units change places."""
MAX_JOINED = 8
"""Limit of the number of connected units that move together."""


def anneal_step(
    simulator: Simulator, start: Assignment, effort: float, rng: np.random.Generator, ends: float, temperature: float = WARM
) -> Assignment:
    """Moves units at random; returns the assignment with the shortest step on the way. It fits if the start fits.

    The rule of acceptance is that of Kirkpatrick, Gelatt, Vecchi 1983, and the temperature falls geometrically. The random number
    that accepts a move is drawn before the move is played, so that playing can end once the step is too long.

    Args:
        start: the first assignment.
        effort: the work of so many simulations.
        rng: draws the moves.
        ends: on `placer.common.clock.now`. If the effort takes longer, the clock determines the temperature in the second half of
            the time.
        temperature: `WARM` or `HOT`.
    """
    moves = _Moves(simulator.problem, rng)
    if not moves.free:
        return start
    started, op_runs = now(), effort * simulator.problem.num_ops
    seconds = max(1e-9, ends - started)
    best, shortest_ns = start.device, math.inf
    with limit(ends - started), suppress(TimeUpError):
        schedule, memory = MovingSchedule(simulator, start), IncrementalMemory(simulator.problem)
        for unit, device in enumerate(start.device.tolist()):
            memory.move(unit, device)
        shortest_ns, drawn = schedule.step_ns, (moves.draw(schedule.device) for _ in range(SAMPLED_MOVES))
        changes_ns = [abs(schedule.move(units, devices) - shortest_ns) for units, devices in drawn if units]
        first_ns = max(1.0, temperature * sum(changes_ns) / max(1, len(changes_ns)))
        while (progress := max(schedule.spent / op_runs, 2 * (now() - started) / seconds - 1)) < 1:
            units, devices = moves.draw(schedule.device)
            current_ns = temperature_at(progress, first_ns, COLD / temperature)
            most_ns = schedule.step_ns - current_ns * math.log(1 - rng.random())
            if not units or schedule.move(units, devices, most_ns) > most_ns:
                continue
            before = schedule.device[units].tolist()
            if memory.move_all_if_fit(units, devices, before):
                schedule.keep()
                if schedule.step_ns < shortest_ns:
                    best, shortest_ns = schedule.device, schedule.step_ns
            else:
                schedule.forbid()
    return Assignment(best)


class _Moves:
    """Draws random moves."""

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator) -> None:
        self._random = rng.random
        self._allowed: list[list[bool]] = problem.units.allowed.tolist()
        self._choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
        self.free = [unit for unit, choices in enumerate(self._choices) if len(choices) > 1]
        """The units with several devices to choose from."""
        near = [set[int]() for _ in range(problem.num_units)]
        producer = problem.ops.unit[problem.tensors.op[problem.consumers.tensor]].tolist()
        for a, b in zip(producer, problem.ops.unit[problem.consumers.op].tolist(), strict=True):
            near[a].add(b)
            near[b].add(a)
        self._near = [sorted(units - {unit}) for unit, units in enumerate(near)]

    def draw(self, device: Ints) -> tuple[list[int], list[int]]:
        """Units and their new devices; no units if the move that is drawn is impossible."""
        kind, unit = self._random(), self._one(self.free)
        own = device[unit]
        if kind >= JOINED:
            other = self._one(self.free)
            to = device[other]
            possible = to != own and self._allowed[unit][to] and self._allowed[other][own]
            return ([unit, other], [to, own]) if possible else ([], [])
        targets = self._choices[unit]
        if SINGLE <= kind < FOLLOWING:
            targets = sorted({int(device[other]) for other in self._near[unit]}.intersection(targets))
        others = [to for to in targets if to != own]
        if not others:
            return [], []
        to = self._one(others)
        units = [unit] if kind < FOLLOWING else self._connected(device, unit, to)
        return units, [to] * len(units)

    def _connected(self, device: Ints, unit: int, to: int) -> list[int]:
        """A unit and some on its device that are connected to it and may be on the device `to`; few more often than many."""
        units, size = [unit], 2 + int(self._random() * self._random() * (MAX_JOINED - 1))
        edge = [unit]
        while edge and len(units) < size:
            near = [
                other
                for other in self._near[edge[-1]]
                if other not in units and device[other] == device[unit] and self._allowed[other][to]
            ]
            if near:
                edge.append(self._one(near))
                units.append(edge[-1])
            else:
                edge.pop()
        return units

    def _one(self, items: list[int]) -> int:
        return items[int(self._random() * len(items))]
