"""Genetic search over random keys, which a greedy rule decodes to assignments."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from placer.common.clock import OP_RUNS_PER_S, TimeUpError, limit, spend, unlimited
from placer.problem.arrays import Floats
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution
from placer.solvers.primitives.filling import in_order
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.sources import references

RANDOM_KEYS = (
    "J. F. Gonçalves, M. G. C. Resende, Biased random-key genetic algorithms for combinatorial optimization, Journal of "
    "Heuristics 17, 2011, doi:10.1007/s10732-010-9143-1"
)
PLACEMENT_BY_GENETIC_SEARCH = (
    "A. Paliwal, F. Gimeno, V. Nair, Y. Li, M. Lubin, P. Kohli, O. Vinyals, Reinforced genetic algorithm learning for optimizing "
    "computation graphs, International Conference on Learning Representations (ICLR), 2020, arXiv:1905.02494"
)

DEFAULT_S, MAX_DECODINGS = 2.0, 500
"""Effort without a time limit: seconds, or decoded assignments if that is less."""
DECODED_OPS_PER_S = {False: 100_000, True: 20_000}
"""Speed of decoding, by whether memory limits can bind. The clock ends a search only on a machine that is slower or busy."""
DECODE_SHARE = {limited: OP_RUNS_PER_S / speed for limited, speed in DECODED_OPS_PER_S.items()}
"""The work of decoding an op, in ops run by the execution model."""
ELITE_SHARE, MUTANT_SHARE, ELITE_KEY_PROBABILITY = 0.2, 0.15, 0.7
"""Shares of a generation, and the probability that a child's key comes from its elite parent."""
MAX_POPULATION, MIN_GENERATIONS = 50, 10
"""Limit of the population, which is smaller if there is no time for so many generations."""
PATIENCE = 50
"""Generations that may find nothing better, beside as many as were needed for the best."""
KEY_RANGE = 64.0
"""Keys multiply costs by factors between 1/8 and 8."""


class _Decoder:
    """Decodes keys to an assignment: units in the order of their first op, each on the device of least cost.

    The cost is the unit's time on the device plus the copies from and to units placed before, times `KEY_RANGE` ** (key - 1/2).
    With all keys 1/2 this is a greedy heuristic. If a unit exceeds a memory limit, the device of next higher cost is tried.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        crossings = crossings_of(problem)
        x = crossings.user_crossing
        copy = problem.links.copy_ns(
            crossings.nbytes[x][:, None, None],
            crossings.count[x][:, None, None],
            crossings.place[x][:, :, None],
            crossings.user_place[:, None, :],
        )  # [E, D, D]: from the producer's device to the user's, in ns
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
        """The assignment of keys, shape [U, D]."""
        factor: list[list[float]] = (KEY_RANGE ** (keys - 0.5)).tolist()
        memory = IncrementalMemory(self._problem)
        device = [0] * len(factor)
        for unit in self._order:
            costs = []
            for d in self._choices[unit]:
                cost = self._alone[unit][d]
                for other, copy in self._before[unit]:
                    cost += copy[device[other]][d]
                costs.append((cost * factor[unit][d], d))
            costs.sort()
            device[unit] = next((d for _, d in costs if memory.move_if_fits(unit, d)), costs[0][1])
            memory.move(unit, device[unit])
        return Assignment(np.array(device, np.int64))


def evolve(
    problem: PlacementProblem,
    objective: Objective,
    population: int,
    generations: int,
    rng: np.random.Generator,
) -> tuple[Assignment, int]:
    """The best assignment, first by the bytes over memory limits, then by the objective; and the number of generations.

    A biased random-key genetic algorithm (Gonçalves, Resende 2011). The elite survives. A child takes each key from a parent in
    the elite with probability `ELITE_KEY_PROBABILITY`, otherwise from a parent outside it. The rest of a generation is random.
    The first generation contains the greedy heuristic. It ends early if most of the generations, and at least
    `PATIENCE`, have found nothing better, or if the best assignment costs nothing.
    """
    decoder, simulator = _Decoder(problem), Simulator(problem)

    def evaluated(keys: Floats) -> tuple[tuple[int, int], Floats, Assignment]:
        spend(DECODE_SHARE[limits_can_bind(problem)] * problem.num_ops)
        assignment = decoder.decode(keys)
        over = int(excess(problem, assignment).sum()) if limits_can_bind(problem) else 0
        value = total_cost_ns(problem, assignment) if objective == "total_cost" else simulator.step_ns(assignment)
        return (over, value), keys, assignment

    shape = (problem.num_units, problem.num_devices)
    elite, mutants = max(1, round(ELITE_SHARE * population)), round(MUTANT_SHARE * population)
    with unlimited():
        individuals = [evaluated(np.full(shape, 0.5))]
    generation = best_generation = 1
    with suppress(TimeUpError):
        individuals.extend(evaluated(rng.random(shape)) for _ in range(population - 1))
        individuals.sort(key=lambda individual: individual[0])
        best = individuals[0][0]
        while generation < generations and best > (0, 0) and generation < 2 * best_generation + PATIENCE:
            generation += 1
            children = []
            for _ in range(population - elite - mutants):
                parents = rng.integers(elite), rng.integers(elite, population)
                children.append(
                    np.where(rng.random(shape) < ELITE_KEY_PROBABILITY, individuals[parents[0]][1], individuals[parents[1]][1])
                )
            children.extend(rng.random(shape) for _ in range(mutants))
            for k, child in enumerate(children):
                individuals[elite + k] = evaluated(child)
            individuals.sort(key=lambda individual: individual[0])
            if individuals[0][0] < best:
                best, best_generation = individuals[0][0], generation
    return min(individuals, key=lambda individual: individual[0])[2], generation


def effort_within(problem: PlacementProblem, time_limit_s: float | None) -> tuple[int, int]:
    """The population and the number of generations that take about so long; None for `DEFAULT_S` or `MAX_DECODINGS`."""
    per_s = DECODED_OPS_PER_S[limits_can_bind(problem)] / max(1, problem.num_ops)
    decodings = min(DEFAULT_S * per_s, MAX_DECODINGS) if time_limit_s is None else time_limit_s * per_s
    population = min(MAX_POPULATION, max(4, int(decodings / MIN_GENERATIONS)))
    return population, max(1, int(decodings / population))


@dataclass(frozen=True, slots=True)
class Genetic:
    """A genetic search with biased random keys. The result may exceed memory limits: only the decoding considers them."""

    name: str = "genetic"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Empty: it solves every problem."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Runs generations for about the time limit, or until most of them find nothing better: see `evolve`.

        Args:
            time_limit_s: None spends `DEFAULT_S`, or `MAX_DECODINGS` if that is less.
            seed: of the keys and the parents.
        """
        started = time.perf_counter()
        population, generations = effort_within(problem, time_limit_s)
        with limit(time_limit_s):
            best, generations = evolve(problem, objective, population, generations, np.random.default_rng(seed))
        detail = f"{generations} generations of {population} placements"
        return answer(problem, objective, best, solver=self.name, started=started, stop_detail=detail)

    def cite(self) -> str:
        """The method, and its use for placement."""
        return references(RANDOM_KEYS, PLACEMENT_BY_GENETIC_SEARCH)


solver = Genetic
