"""Random task graphs whose times are whole numbers of ns, so that sums of them are exact in any program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.research.instances.task_graphs import SHAPES, Shape, uniform_machine

UNIT = 12
"""Work and bytes are multiples of it, and speeds and rates are divisors."""
DIVISORS = (1, 2, 3, 4, 6)


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in topological order, with one first and one last task, on processors of which none is faster than the one before."""

    work: Ints
    edges: tuple[tuple[int, int, int], ...]
    """Two tasks, and the bytes between them."""
    speed: Ints
    rate: Ints
    """[D, D]: bytes per ns."""

    @property
    def problem(self) -> PlacementProblem:
        return uniform_machine(self.work, self.edges, self.speed, 1 / self.rate)


def task_graphs(count: int) -> list[TaskGraph]:
    """Task graphs of all shapes, and of random edges, on four processors, by seeds from 0 on."""
    return [
        _task_graph(seed, tuple(SHAPES.values())[seed % len(SHAPES)] if seed % 4 else _random, (7, 13), 4)
        for seed in range(count)
    ]


def tiny_task_graphs(count: int) -> list[TaskGraph]:
    """Task graphs of six tasks with random edges, on two processors, by seeds from 0 on."""
    return [_task_graph(seed, _random, (4, 5), 2) for seed in range(count)]


def _random(rng: np.random.Generator, ops: int) -> list[tuple[int, int, float]]:
    return [(a, b, 1.0) for b in range(ops) for a in range(b) if rng.random() < 0.3]


def _task_graph(seed: int, shape: Shape, ops: tuple[int, int], processors: int) -> TaskGraph:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(*ops))
    inner = [(a + 1, b + 1) for a, b, _ in shape(rng, size)]
    tasks = max([size, *(b for _, b in inner)]) + 2
    starts, ends = set(range(1, tasks - 1)) - {b for _, b in inner}, set(range(1, tasks - 1)) - {a for a, _ in inner}
    pairs = sorted([*inner, *((0, b) for b in starts), *((a, tasks - 1) for a in ends)])
    most_bytes = int(rng.choice([500, 3_000, 10_000]))
    rate = np.triu(rng.choice(DIVISORS, (processors, processors)), 1)
    return TaskGraph(
        work=UNIT * rng.integers(100, 3_000, tasks),
        edges=tuple((a, b, UNIT * int(rng.integers(1, most_bytes))) for a, b in pairs),
        speed=-np.sort(-rng.choice(DIVISORS, processors)),
        rate=rate + rate.T + np.eye(processors, dtype=np.int64),
    )
