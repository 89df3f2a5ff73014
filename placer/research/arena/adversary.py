"""Problems on which one solver loses most to another, searched for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from placer.errors import OptionError
from placer.problem.problem import PlacementProblem
from placer.problem.validate import validate
from placer.research.instances.families import synthetic
from placer.solvers.base import Objective, Solver
from placer.solvers.heuristic import Rule
from placer.solvers.registry import solver

Rng: TypeAlias = np.random.Generator
LEAST_NS, MOST_NS = 1_000, 100_000
"""Of an op's time and a copy's latency."""
LEAST_BYTES, MOST_BYTES = 1_000, 1_000_000
"""Of a tensor."""
FACTOR = 4.0
"""By how much one step changes a number at most."""
WARM, COLD = 0.1, 0.001
"""The first and the last temperature, on the scale of the ratio's logarithm."""
SECONDS = 0.05
"""What a solver may search on each problem."""


@dataclass(frozen=True, eq=False)
class Adversarial:
    """A problem on which `loser` takes `ratio` times what `winner` takes."""

    problem: PlacementProblem
    loser: str
    winner: str
    ratio: float
    started_at: float
    """The ratio on the problem that the search began with."""


def adversarial(
    loser: str | Solver | Rule,
    winner: str | Solver | Rule,
    *,
    objective: Objective = "step_time",
    shape: str = "layered",
    ops: int = 12,
    gpus: int = 1,
    memory: float = 0.0,
    seed: int = 0,
    steps: int = 500,
) -> Adversarial:
    """Changes a small made-up problem step by step so that the first solver does ever worse beside the second.

    J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling algorithms, 2024,
    arXiv:2403.07120: simulated annealing over problems. A step changes the time of an op on one device, the size of a tensor, a
    link's latency, or who takes a tensor; none adds a device, an op or a limit. Same arguments: same problem, where equal runs of
    the two are equal.

    Raises:
        OptionError: no such solver or shape, or one of the two does not solve the problem that the search begins with.
    """
    pair = solver(loser), solver(winner)
    rng = np.random.default_rng(seed)
    here = synthetic(shape, ops=ops, gpus=gpus, memory=memory, seed=seed)
    values = [_value_ns(one, here, objective, seed) for one in pair]
    for one, value in zip(pair, values, strict=True):
        if value is None:
            raise OptionError(f"{one.name!r} finds nothing on the problem to begin with, so the two cannot be compared on it.")
    now = best = started = _ratio(*values)
    found = here
    for k in range(steps):
        temperature = WARM * (COLD / WARM) ** (k / steps)
        there = CHANGES[int(rng.integers(len(CHANGES)))](rng, here)
        ratio = _ratio(*(_value_ns(one, there, objective, seed) for one in pair))
        if ratio > 0 and (ratio >= now or rng.random() < math.exp((math.log(ratio) - math.log(now)) / temperature)):
            here, now = there, ratio
            if now > best:
                found, best = here, now
    return Adversarial(found, pair[0].name, pair[1].name, best, started)


def _value_ns(chosen: Solver, problem: PlacementProblem, objective: Objective, seed: int) -> int | None:
    """What a solver finds, priced by the model; None where it finds nothing that fits."""
    if chosen.unsupported(problem, objective):
        return None
    found = chosen.solve(problem, objective, time_limit_s=SECONDS, seed=seed)
    if found.assignment is None or not validate(problem, found.assignment).ok:
        return None
    return found.objective_ns


def _ratio(loser_ns: int | None, winner_ns: int | None) -> float:
    """0 where either found nothing."""
    return loser_ns / winner_ns if loser_ns and winner_ns else 0.0


def _scaled(rng: Rng, value: int, least: int, most: int) -> int:
    return int(np.clip(round(value * FACTOR ** rng.uniform(-1, 1)), least, most))


def _op_time(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    op, d = int(rng.integers(problem.num_ops)), int(rng.integers(problem.num_devices))
    time, compute = problem.ops.time_ns.copy(), problem.ops.compute_ns.copy()
    least = max(LEAST_NS, int(problem.ops.dispatch_ns[op, d]))
    time[op, d] = _scaled(rng, int(time[op, d]), least, MOST_NS)
    compute[op, d] = time[op, d] if problem.devices.asynchronous[d] else time[op, d] - problem.ops.dispatch_ns[op, d]
    return replace(problem, ops=replace(problem.ops, time_ns=time, compute_ns=compute))


def _tensor_size(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    if not problem.num_tensors:
        return problem
    t, nbytes = int(rng.integers(problem.num_tensors)), problem.tensors.nbytes.copy()
    nbytes[t] = _scaled(rng, int(nbytes[t]), LEAST_BYTES, MOST_BYTES)
    return replace(problem, tensors=replace(problem.tensors, nbytes=nbytes, copy_bytes=nbytes, held_bytes=nbytes))


def _latency(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Of all copies that take the longest now: those between memories."""
    latency = problem.links.latency_ns
    longest = int(latency.max())
    changed = np.where(latency == longest, _scaled(rng, longest, LEAST_NS, MOST_NS), latency)
    return replace(problem, links=replace(problem.links, latency_ns=changed))


def _consumer(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Another op takes a tensor, one that comes after its maker."""
    if not len(problem.consumers):
        return problem
    c, consumer = int(rng.integers(len(problem.consumers))), problem.consumers.op.copy()
    maker = int(problem.tensors.op[problem.consumers.tensor[c]])
    consumer[c] = rng.integers(maker + 1, problem.num_ops)
    return replace(problem, consumers=replace(problem.consumers, op=consumer, until=consumer))


CHANGES: tuple[Callable[[Rng, PlacementProblem], PlacementProblem], ...] = (_op_time, _tensor_size, _latency, _consumer)
"""Steps from a problem to another."""
