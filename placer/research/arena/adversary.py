"""Searches for problems on which one solver is much worse than another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from placer.errors import OptionError
from placer.problem.price import total_cost_ns
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.research.instances.families import synthetic
from placer.solvers.base import Objective, Solution, Solver
from placer.solvers.heuristic import Rule
from placer.solvers.primitives.metropolis import is_accepted, temperature_at
from placer.solvers.registry import solver
from placer.solvers.run import run, why_unsupported

Rng: TypeAlias = np.random.Generator
MIN_TIME_NS, MAX_TIME_NS = 1_000, 100_000
"""Limits of the time of an op and of the latency of a copy."""
MIN_BYTES, MAX_BYTES = 1_000, 1_000_000
"""Limits of the size of a tensor."""
MAX_FACTOR = 4.0
"""The largest factor by which one step changes a number."""
START_TEMPERATURE, END_TEMPERATURE = 0.1, 0.001
"""The first and the last temperature, in units of the logarithm of the ratio."""
EFFORT = 1_500
"""Effort of a solver on each problem, in evaluations."""


@dataclass(frozen=True, eq=False)
class Adversarial:
    """A problem on which the value of ``loser``'s answer is ``ratio`` times the value of ``winner``'s answer."""

    problem: PlacementProblem
    loser: str
    winner: str
    ratio: float
    first_ratio: float
    """The ratio on the first problem of the search."""


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
    """Finds a small made-up problem on which the first solver is much worse than the second, by simulated annealing.

    A step of the search changes the time of an op on one device, the size of a tensor, the latency of copies, or a consumer of a
    tensor. No step adds a device, an op or a limit. The same arguments give the same problem if both solvers are deterministic.

    J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling algorithms, 2024,
    arXiv:2403.07120.

    Args:
        loser: the solver that shall be worse.
        winner: the other solver.
        objective: by which the two are compared.
        shape: of the first problem, as are ``ops``, ``gpus`` and ``memory``; see `synthetic`.
        ops: number of ops.
        gpus: number of GPUs.
        memory: memory limit of each GPU as a share.
        seed: of the search and of both solvers.
        steps: of the search.

    Raises:
        OptionError: there is no such solver or shape, or one of the two solvers does not solve the first problem.
    """
    pair = solver(loser), solver(winner)
    rng = np.random.default_rng(seed)
    current = synthetic(shape, ops=ops, gpus=gpus, memory=memory, seed=seed)
    values = [_value_ns(one, current, objective, seed) for one in pair]
    for one, value in zip(pair, values, strict=True):
        if value is None:
            raise OptionError(f"{one.name!r} does not solve the first problem, so the two solvers cannot be compared on it.")
    current_ratio = best_ratio = first_ratio = _ratio(*values)
    best = current
    for k in range(steps):
        temperature = temperature_at(k / steps, START_TEMPERATURE, END_TEMPERATURE / START_TEMPERATURE)
        changed = CHANGES[int(rng.integers(len(CHANGES)))](rng, current)
        ratio = _ratio(*(_value_ns(one, changed, objective, seed) for one in pair))
        if ratio > 0 and is_accepted(math.log(current_ratio) - math.log(ratio), temperature, rng.random):
            current, current_ratio = changed, ratio
            if ratio > best_ratio:
                best, best_ratio = changed, ratio
    return Adversarial(best, pair[0].name, pair[1].name, best_ratio, first_ratio)


def _value_ns(chosen: Solver, problem: PlacementProblem, objective: Objective, seed: int) -> int | None:
    """The objective of a solver's answer, on a problem that it had no access to; None if no answer meets the limits."""
    if why_unsupported(chosen, problem, objective, effort=EFFORT):
        return None
    solution = run(chosen, problem, objective, effort=EFFORT, seed=seed)
    if not isinstance(solution, Solution) or solution.assignment is None or not validate(problem, solution.assignment).ok:
        return None
    if objective == "total_cost":
        return total_cost_ns(problem, solution.assignment)
    return Simulator(problem).step_ns(solution.assignment)


def _ratio(loser_ns: int | None, winner_ns: int | None) -> float:
    """The ratio of two values; 0 if one is None or 0."""
    return loser_ns / winner_ns if loser_ns and winner_ns else 0.0


def _scaled(rng: Rng, value: int, minimum: int, maximum: int) -> int:
    return int(np.clip(round(value * MAX_FACTOR ** rng.uniform(-1, 1)), minimum, maximum))


def _op_time(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Changes the time of an op on one device."""
    op, d = int(rng.integers(problem.num_ops)), int(rng.integers(problem.num_devices))
    time, compute = problem.ops.time_ns.copy(), problem.ops.compute_ns.copy()
    minimum = max(MIN_TIME_NS, int(problem.ops.dispatch_ns[op, d]))
    time[op, d] = _scaled(rng, int(time[op, d]), minimum, MAX_TIME_NS)
    compute[op, d] = time[op, d] if problem.devices.asynchronous[d] else time[op, d] - problem.ops.dispatch_ns[op, d]
    return replace(problem, ops=replace(problem.ops, time_ns=time, compute_ns=compute))


def _tensor_size(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Changes the size of a tensor."""
    if not problem.num_tensors:
        return problem
    t, nbytes = int(rng.integers(problem.num_tensors)), problem.tensors.nbytes.copy()
    nbytes[t] = _scaled(rng, int(nbytes[t]), MIN_BYTES, MAX_BYTES)
    return replace(problem, tensors=replace(problem.tensors, nbytes=nbytes, copy_bytes=nbytes, held_bytes=nbytes))


def _latency(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Changes the latency of all copies that have the longest, which are those between memories."""
    latency = problem.links.latency_ns
    longest = int(latency.max())
    changed = np.where(latency == longest, _scaled(rng, longest, MIN_TIME_NS, MAX_TIME_NS), latency)
    return replace(problem, links=replace(problem.links, latency_ns=changed))


def _consumer(rng: Rng, problem: PlacementProblem) -> PlacementProblem:
    """Replaces a consumer of a tensor by another op that comes after its producer."""
    if not len(problem.consumers):
        return problem
    c, consumer = int(rng.integers(len(problem.consumers))), problem.consumers.op.copy()
    producer = int(problem.tensors.op[problem.consumers.tensor[c]])
    consumer[c] = rng.integers(producer + 1, problem.num_ops)
    return replace(problem, consumers=replace(problem.consumers, op=consumer, until=consumer))


CHANGES: tuple[Callable[[Rng, PlacementProblem], PlacementProblem], ...] = (_op_time, _tensor_size, _latency, _consumer)
"""The steps of the search."""
