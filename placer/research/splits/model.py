"""Minimises the max load by constraint programming, over all units or over those of some devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.problem import SplitProblem, loads_ns
from placer.solvers.primitives.or_tools import cp_search, cp_solver

WORKERS = 2
"""Threads of the solver."""


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The answer of a search over free units."""

    device: Ints | None
    """[U]; None if no split was found."""
    bound_ns: int
    """A lower bound on the value, however the free units are decided."""


def decide_anew(
    problem: SplitProblem,
    device: Ints,
    free: Bools,
    devices: list[int],
    *,
    seconds: float,
    seed: int,
    at_least_ns: int = 0,
) -> Decided:
    """Minimises the max load of some devices over the places of the free units.

    Args:
        problem: the problem.
        device: [U]: a split. Units that are not free stay; the free ones have their device as a hint. No worse split is returned.
        free: [U]: the units to decide. Each is on one of `devices` and may go to any of them.
        devices: the devices whose max load is minimised.
        seconds: time limit.
        seed: of the solver.
        at_least_ns: a known lower bound.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    model: Any = cp_model.CpModel()
    k, chosen, time = problem.accelerators, np.flatnonzero(free).tolist(), problem.unit_time_ns.tolist()
    supported, nbytes = problem.unit_supported.tolist(), problem.unit_bytes.tolist()
    on = {u: {d: model.new_bool_var("") for d in devices if d >= k or supported[u]} for u in chosen}
    for row in on.values():
        model.add_exactly_one(row.values())
    held = np.zeros(problem.devices, np.int64)
    fixed = np.zeros(problem.devices, np.int64)
    other = np.flatnonzero(~free)
    np.add.at(held, device[other], problem.unit_bytes[other])
    np.add.at(fixed, device[other], problem.unit_time_ns[other, (device[other] < k).astype(np.int64)])
    work: dict[int, list[tuple[Any, int]]] = {
        d: [(row[d], time[u][int(d < k)]) for u, row in on.items() if d in row] for d in devices
    }
    nets = problem.nets
    for m, cost in enumerate(nets.cost_ns.tolist()):
        members = nets.unit[nets.start[m] : nets.start[m + 1]]
        free_members = members[free[members]].tolist()
        fixed_devices = set(device[members[~free[members]]].tolist())
        for d in devices:
            if d >= k:
                continue
            inside, outside = d in fixed_devices, bool(fixed_devices - {d})
            if inside and outside:
                fixed[d] += cost
            elif free_members:
                work[d].append((_cut(model, [on[u].get(d) for u in free_members], inside, outside), cost))
    top = model.new_int_var(at_least_ns, int(loads_ns(problem, device)[devices].max()), "")
    for d in devices:
        model.add(sum(literal * cost for literal, cost in work[d]) + int(fixed[d]) <= top)
        if d < k:
            model.add(sum(row[d] * nbytes[u] for u, row in on.items() if d in row) <= problem.memory_limit_bytes - int(held[d]))
    if free.all():
        _break_symmetry(model, problem, on)
    hint = _renumbered(problem, device) if free.all() else device
    for u, row in on.items():
        for d, literal in row.items():
            model.add_hint(literal, bool(hint[u] == d))
    model.minimize(top)
    solver, bound = solve(model, seconds=seconds, seed=seed)
    bound = max(at_least_ns, bound)
    if solver is None:
        return Decided(None, bound)
    decided = device.copy()
    for u, row in on.items():
        decided[u] = next(d for d, literal in row.items() if solver.boolean_value(literal))
    return Decided(decided, bound)


def solve(model: Any, *, seconds: float, seed: int) -> tuple[Any, int]:
    """Minimises a constraint program of times in ns.

    Returns:
        The solver, which has the values of the best solution, or None if it found no solution; a lower bound on the objective.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    solver: Any = cp_solver(seconds=seconds, seed=seed, workers=WORKERS)
    status = cp_search(solver, model)
    bound = max(0, math.ceil(solver.best_objective_bound - 0.5))
    return solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None, bound


def _cut(model: Any, here: list[Any], inside: bool, outside: bool) -> Any:
    """A literal that is true if an accelerator holds some but not all members of a net.

    Args:
        model: gets the constraints.
        here: for each free member, the literal that it is on the accelerator; None if it cannot be there.
        inside: whether a member that stays is on the accelerator.
        outside: whether a member that stays is elsewhere.
    """
    cut = model.new_bool_var("")
    outside |= any(literal is None for literal in here)
    present = [literal for literal in here if literal is not None]
    if inside:
        for literal in present:
            model.add_bool_or(literal, cut)
        if outside:
            model.add(cut == 1)
    elif outside:
        for literal in present:
            model.add_implication(literal, cut)
    else:
        return either(model, present)
    return cut


def either(model: Any, literals: list[Any]) -> Any:
    """A literal that is true if some but not all of these are. It may be true otherwise too; that only costs more."""
    some = model.new_bool_var("")
    for a, b in zip(literals, literals[1:] + literals[:1], strict=True):
        model.add_bool_or(~a, b, some)
    return some


def _break_symmetry(model: Any, problem: SplitProblem, on: dict[int, dict[int, Any]]) -> None:
    """Orders the accelerators by their longest unit: d has a unit only if d - 1 has a longer one."""
    for d in range(1, problem.accelerators):
        earlier: Any = None
        for u in _longest_first(problem):
            if d in on[u]:
                if earlier is None:
                    model.add(on[u][d] == 0)
                else:
                    model.add_implication(on[u][d], earlier)
                up_to_u = model.new_bool_var("")
                model.add_bool_or([on[u][d - 1], ~up_to_u] + ([] if earlier is None else [earlier]))
                earlier = up_to_u


def _longest_first(problem: SplitProblem) -> list[int]:
    """Units by descending time on an accelerator."""
    order: list[int] = np.argsort(-problem.unit_time_ns[:, 1], kind="stable").tolist()
    return order


def _renumbered(problem: SplitProblem, device: Ints) -> Ints:
    """The same split, its accelerators numbered in the order of `_break_symmetry`."""
    number: dict[int, int] = {}
    for u in _longest_first(problem):
        if (d := int(device[u])) < problem.accelerators:
            number.setdefault(d, len(number))
    renumbered = np.arange(problem.devices)
    for d in range(problem.accelerators):
        number.setdefault(d, len(number))
        renumbered[d] = number[d]
    return renumbered[device]
