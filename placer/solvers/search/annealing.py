"""Simulated annealing of the total cost or the step time."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placer.common.clock import TimeUpError, limit, now, spend, unlimited
from placer.problem.price import total_cost_ns
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

DEFAULT_S, MAX_MOVES_PER_UNIT = 2.0, 100
"""Effort without a time limit: seconds, or moves for each unit if that is less."""
MOVES_PER_S, OP_RUNS_PER_S = 20_000, 400_000
"""Speed for the total cost, and for the step time in ops run by the execution model. Only on a slower machine the clock ends a
search before these moves are made."""
MOVE_OP_RUNS = 6
"""The work of a move beside a simulation, see `placer.common.clock.spend`."""
SAMPLED_MOVES = 100
"""The first temperature is the mean change of the objective by so many first moves."""
LAST_TEMPERATURE_SHARE = 1e-3
"""The last temperature, as a share of the first."""


class _Moves(Protocol):
    """An assignment that changes. `move` returns the change of the objective, in ns."""

    def move(self, unit: int, device: int) -> int: ...


class _StepTime:
    """The step time while single units move."""

    def __init__(self, problem: PlacementProblem, assignment: Assignment) -> None:
        self._simulator, self._device = Simulator(problem), assignment.device.copy()
        self._step_ns = self._simulator.step_ns(assignment)

    def move(self, unit: int, device: int) -> int:
        self._device[unit] = device
        previous_ns, self._step_ns = self._step_ns, self._simulator.step_ns(Assignment(self._device))
        return self._step_ns - previous_ns


def anneal(
    problem: PlacementProblem,
    objective: Objective,
    start: Assignment,
    moves: int,
    rng: np.random.Generator,
    ends: float = math.inf,
) -> Assignment:
    """Moves single units at random; returns the best assignment on the way. It fits if the start fits.

    A move that raises the objective by r is kept with probability exp(-r / T), where T is the temperature (Kirkpatrick, Gelatt,
    Vecchi 1983). T falls geometrically from the mean change of the first moves to a thousandth of it. A move that exceeds a
    memory limit is never kept.

    Args:
        start: the first assignment.
        moves: the number of moves.
        rng: draws the moves.
        ends: on `placer.common.clock.now`. If the moves take longer, the clock determines T in the second half of the time.
    """
    started = now()
    seconds = max(1e-9, ends - started)
    free = np.flatnonzero(problem.units.allowed.sum(axis=1) > 1)
    if not len(free):
        return start
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    state: _Moves = IncrementalCost(problem, start) if objective == "total_cost" else _StepTime(problem, start)
    memory, device = IncrementalMemory(problem), start.device.tolist()
    for unit, d in enumerate(device):
        memory.move(unit, d)
    best, lowest, value, rises, first_temperature = device.copy(), 0, 0, [], 1.0
    with limit(ends - started), suppress(TimeUpError):
        for k in range(moves):
            spend(MOVE_OP_RUNS)
            progress = max(k / moves, 2 * (now() - started) / seconds - 1)
            unit = int(free[rng.integers(len(free))])
            current = device[unit]
            to = choices[unit][int(rng.integers(len(choices[unit]) - 1))]
            if to == current:
                to = choices[unit][-1]
            rise = state.move(unit, to)
            if k < SAMPLED_MOVES:
                rises.append(abs(rise))
                first_temperature = max(1.0, sum(rises) / len(rises))
            temperature = temperature_at(min(1.0, progress), first_temperature, LAST_TEMPERATURE_SHARE)
            if not (is_accepted(rise, temperature, rng.random) and memory.move_if_fits(unit, to)):
                state.move(unit, current)
                continue
            device[unit] = to
            value += rise
            if value < lowest:
                best, lowest = device.copy(), value
    return Assignment(np.array(best, np.int64))


def anneal_repeatedly(
    problem: PlacementProblem,
    objective: Objective,
    start: Assignment,
    moves: int,
    rng: np.random.Generator,
    ends: float = math.inf,
) -> tuple[Assignment, int]:
    """Anneals from the start again and again, each time with twice the moves, until a run finds nothing better.

    The first run has `MAX_MOVES_PER_UNIT` moves for each unit. Arguments as of `anneal`.

    Args:
        moves: limit of the number of moves of all runs.

    Returns:
        The best assignment, and the number of moves of the runs.
    """
    simulator = Simulator(problem)
    best, least, made, run = start, math.inf, 0, MAX_MOVES_PER_UNIT * max(1, problem.num_units)
    while made < moves and now() < ends:
        found = anneal(problem, objective, start, min(run, moves - made), rng, ends)
        made, run = made + min(run, moves - made), 2 * run
        with unlimited():
            value = total_cost_ns(problem, found) if objective == "total_cost" else simulator.step_ns(found)
        if value >= least:
            break
        best, least = found, value
    return best, made


def moves_within(problem: PlacementProblem, objective: Objective, seconds: float) -> int:
    """The number of moves that take about so many seconds."""
    return int(seconds * (MOVES_PER_S if objective == "total_cost" else OP_RUNS_PER_S / max(1, problem.num_ops)))


@dataclass(frozen=True, slots=True)
class Annealing:
    """Simulated annealing from TensorFlow's default, which is repaired first. Every assignment meets the memory limits."""

    name: str = "annealing"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Empty: it solves every problem."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Makes moves for about the time limit, or until longer runs find nothing better: see `anneal_repeatedly`.

        Args:
            time_limit_s: None spends `DEFAULT_S`, or `MAX_MOVES_PER_UNIT` if that is less.
            seed: of the moves.
        """
        started, began = time.perf_counter(), now()
        start = repair(problem, default_assignment(problem))
        if start is None:
            seconds, detail = time.perf_counter() - started, "no start could be repaired"
            return Solution(None, Status.UNKNOWN, objective, 0, 0, self.name, seconds, StopReason.NOT_FOUND, detail)
        moves = moves_within(problem, objective, DEFAULT_S if time_limit_s is None else time_limit_s)
        if time_limit_s is None:
            moves = min(moves, MAX_MOVES_PER_UNIT * problem.num_units)
        ends = math.inf if time_limit_s is None else began + time_limit_s
        best, made = anneal_repeatedly(problem, objective, start, moves, np.random.default_rng(seed), ends)
        return answer(problem, objective, best, solver=self.name, started=started, stop_detail=f"at most {made} moves")

    def cite(self) -> str:
        """The method."""
        return SOURCE


solver = Annealing
