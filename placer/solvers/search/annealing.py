"""Simulated annealing on the objective itself."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.incremental_cost import IncrementalCost
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.primitives.metropolis import is_accepted, temperature_at
from placer.solvers.primitives.repair import repair

SOURCE = (
    "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, Science 220(4598), 1983, "
    "doi:10.1126/science.220.4598.671"
)

SECONDS, MOVES_PER_UNIT = 2.0, 100
"""The effort without a time limit: the lesser of the two."""
MOVES_PER_S, OP_RUNS_PER_S = 20_000, 400_000
"""For the total cost, and ops played by the execution model for the step time. Counting these rather than looking at the clock
makes equal runs equal."""
BY_THE_CLOCK_S = 1.0
"""From here on a time limit is held by the clock too, where the machine is slower or busy."""
SAMPLED = 100
COOLEST = 1e-3
"""The last temperature over the first."""


class _Moves(Protocol):
    """An assignment under change: `move` returns by how much the objective rises."""

    def move(self, unit: int, device: int) -> int: ...


class _StepTime:
    """A `IncrementalCost` for the step time."""

    def __init__(self, problem: PlacementProblem, assignment: Assignment) -> None:
        self._simulator, self._device = Simulator(problem), assignment.device.copy()
        self._now = self._simulator.step_ns(assignment)

    def move(self, unit: int, device: int) -> int:
        self._device[unit] = device
        before, self._now = self._now, self._simulator.step_ns(Assignment(self._device))
        return self._now - before


def anneal(
    problem: PlacementProblem,
    objective: Objective,
    start: Assignment,
    moves: int,
    rng: np.random.Generator,
    ends: float = math.inf,
) -> Assignment:
    """The best assignment met while single units move at random, which fits wherever the start does.

    A move that raises the objective by r is kept with probability exp(-r / T), one that breaks a memory limit never. T falls
    geometrically from the mean rise of the first moves to a thousandth of it.

    Args:
        ends: on `time.perf_counter`; where moves are too slow to be done by then, the last half of the time cools by the clock.
    """
    started = time.perf_counter()
    seconds = max(1e-9, ends - started)
    free = np.flatnonzero(problem.units.allowed.sum(axis=1) > 1)
    if not len(free):
        return start
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    state: _Moves = IncrementalCost(problem, start) if objective == "total_cost" else _StepTime(problem, start)
    room, device = IncrementalMemory(problem), start.device.tolist()
    for unit, d in enumerate(device):
        room.move(unit, d)
    best, lowest, value, rises, hottest = device.copy(), 0, 0, [], 1.0
    for k in range(moves):
        gone = max(k / moves, 2 * (time.perf_counter() - started) / seconds - 1)
        if gone >= 1:
            break
        unit = int(free[rng.integers(len(free))])
        here = device[unit]
        to = choices[unit][int(rng.integers(len(choices[unit]) - 1))]
        if to == here:
            to = choices[unit][-1]
        rise = state.move(unit, to)
        if k < SAMPLED:
            rises.append(abs(rise))
            hottest = max(1.0, sum(rises) / len(rises))
        temperature = temperature_at(gone, hottest, COOLEST)
        if not (is_accepted(rise, temperature, rng.random) and room.move_if_fits(unit, to)):
            state.move(unit, here)
            continue
        device[unit] = to
        value += rise
        if value < lowest:
            best, lowest = device.copy(), value
    return Assignment(np.array(best, np.int64))


def moves_within(problem: PlacementProblem, objective: Objective, seconds: float) -> int:
    """How many moves take about so long."""
    return int(seconds * (MOVES_PER_S if objective == "total_cost" else OP_RUNS_PER_S / max(1, problem.num_ops)))


@dataclass(frozen=True, slots=True)
class Annealing:
    """Simulated annealing from TensorFlow's default, made to fit. Memory limits hold throughout."""

    name: str = "annealing"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """It takes everything."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Anneals for as many moves as take about the time.

        Args:
            time_limit_s: None spends `SECONDS`, or `MOVES_PER_UNIT` if that is less.
            seed: of the moves.
        """
        started = time.perf_counter()
        start = repair(problem, default_assignment(problem))
        if start is None:
            seconds, detail = time.perf_counter() - started, "no start could be repaired"
            return Solution(None, Status.UNKNOWN, objective, 0, 0, self.name, seconds, StopReason.NOT_FOUND, detail)
        moves = moves_within(problem, objective, SECONDS if time_limit_s is None else time_limit_s)
        if time_limit_s is None:
            moves = min(moves, MOVES_PER_UNIT * problem.num_units)
        ends = started + time_limit_s if time_limit_s is not None and time_limit_s >= BY_THE_CLOCK_S else math.inf
        found = anneal(problem, objective, start, moves, np.random.default_rng(seed), ends)
        return answer(problem, objective, found, solver=self.name, started=started, stop_detail=f"at most {moves} moves")

    def cite(self) -> str:
        """The method."""
        return SOURCE


solver = Annealing
