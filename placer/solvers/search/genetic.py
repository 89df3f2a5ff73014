"""A genetic search over keys that a greedy rule decodes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution
from placer.solvers.primitives.filling import in_order
from placer.solvers.primitives.incremental_memory import Room
from placer.solvers.sources import GONCALVES, PALIWAL, lines

SECONDS, DECODINGS = 2.0, 500
"""The effort without a time limit: the lesser of the two."""
DECODED_OPS_PER_S = {False: 100_000, True: 20_000}
"""By whether limits can bind. Counting these rather than looking at the clock makes equal runs equal."""
ELITE, MUTANTS, FROM_ELITE = 0.2, 0.15, 0.7
"""Shares of a generation, and how often a key comes from the elite parent."""
POPULATION, GENERATIONS = 50, 10
"""The most of the one, where there is time for at least the other."""
BEND = 64.0
"""Keys change what counts by up to a factor of 8 either way."""


class _Decoder:
    """Keys to an assignment: units in the order of their first op, each where it is cheapest beside those placed before.

    What counts is its time there and a copy for each unit that it takes from or gives to, times `BEND` ** (key - 1/2). Keys of
    a half are the plain greedy rule. What a device has no room for goes to the next best.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        crossings = crossings_of(problem)
        x = crossings.user_crossing
        copy = problem.links.copy_ns(
            crossings.nbytes[x][:, None, None],
            crossings.count[x][:, None, None],
            crossings.place[x][:, :, None],
            crossings.user_place[:, None, :],
        )  # [E, D, D]: from the maker's device to the user's
        self._problem = problem
        self._order = in_order(problem)
        turn = np.argsort(self._order).tolist()
        self._before: list[list[tuple[int, list[list[int]]]]] = [[] for _ in range(problem.num_units)]
        alone = problem.unit_time_ns.copy()
        for maker, user, cost in zip(crossings.unit[x].tolist(), crossings.user.tolist(), copy, strict=True):
            if maker == user:
                alone[user] += cost.diagonal()
            elif turn[maker] < turn[user]:
                self._before[user].append((maker, cost.tolist()))
            else:
                self._before[maker].append((user, cost.T.tolist()))
        self._alone: list[list[int]] = alone.tolist()
        self._choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]

    def decode(self, keys: Floats) -> Assignment:
        """The assignment of keys [U, D]."""
        bent: list[list[float]] = (BEND ** (keys - 0.5)).tolist()
        room = Room(self._problem)
        device = [0] * len(bent)
        for unit in self._order:
            costs = []
            for d in self._choices[unit]:
                cost = self._alone[unit][d]
                for other, copy in self._before[unit]:
                    cost += copy[device[other]][d]
                costs.append((cost * bent[unit][d], d))
            costs.sort()
            device[unit] = next((d for _, d in costs if room.take(unit, d)), costs[0][1])
            room.move(unit, device[unit])
        return Assignment(np.array(device, np.int64))


def evolve(
    problem: PlacementProblem, objective: Objective, population: int, generations: int, rng: np.random.Generator
) -> Assignment:
    """The fittest assignment: least over the memory limits, then of the least objective.

    The elite stays; a child takes each key from a parent of the elite with probability `FROM_ELITE`, otherwise from any other;
    the rest are new. The first generation has the plain greedy rule in it.
    """
    decoder, simulator = _Decoder(problem), Simulator(problem)

    def graded(keys: Floats) -> tuple[tuple[int, int], Floats, Assignment]:
        assignment = decoder.decode(keys)
        over = int(excess(problem, assignment).sum()) if limits_can_bind(problem) else 0
        value = total_cost_ns(problem, assignment) if objective == "total_cost" else simulator.step_ns(assignment)
        return (over, value), keys, assignment

    shape = (problem.num_units, problem.num_devices)
    elite, mutants = max(1, round(ELITE * population)), round(MUTANTS * population)
    people = [graded(np.full(shape, 0.5)), *(graded(rng.random(shape)) for _ in range(population - 1))]
    people.sort(key=lambda person: person[0])
    for _ in range(generations - 1):
        children = []
        for _ in range(population - elite - mutants):
            parents = rng.integers(elite), rng.integers(elite, population)
            children.append(np.where(rng.random(shape) < FROM_ELITE, people[parents[0]][1], people[parents[1]][1]))
        children.extend(rng.random(shape) for _ in range(mutants))
        people[elite:] = [graded(child) for child in children]
        people.sort(key=lambda person: person[0])
    return people[0][2]


@dataclass(frozen=True, slots=True)
class Genetic:
    """A genetic search with biased random keys. Meets memory limits as far as its greedy decoding does."""

    name: str = "genetic"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """It takes everything."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Evolves for as many decodings as take about the time.

        Args:
            time_limit_s: None spends `SECONDS`, or `DECODINGS` if that is less.
            seed: of the keys.
        """
        started = time.perf_counter()
        per_s = DECODED_OPS_PER_S[limits_can_bind(problem)] / max(1, problem.num_ops)
        decodings = min(SECONDS * per_s, DECODINGS) if time_limit_s is None else time_limit_s * per_s
        population = min(POPULATION, max(4, int(decodings / GENERATIONS)))
        generations = max(1, int(decodings / population))
        found = evolve(problem, objective, population, generations, np.random.default_rng(seed))
        detail = f"{generations} generations of {population} placements"
        return answer(problem, objective, found, solver=self.name, started=started, stop_detail=detail)

    def cite(self) -> str:
        """The method, and where it was used for placement."""
        return lines(GONCALVES, PALIWAL)
