"""Large-neighbourhood search: some variables are decided anew by constraint programming, the others stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.research.pairwise.core import different
from placer.research.pairwise.descent import GAIN, Descent
from placer.research.pairwise.memory import Memory

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, IntVar

SHORT = 0.2
"""Of windows, where memory is short."""


def around(descent: Descent, open_: Bools, size: int, rng: np.random.Generator) -> list[int]:
    """`size` of the open [V] variables near to each other, or all if there are not more; now and then where memory is short."""
    core, candidates = descent.core, np.flatnonzero(open_)
    queue = [int(rng.choice(candidates))]
    if rng.random() < SHORT and len(core.room):
        # Half of them from those that can hold something at a moment with little room, the less the likelier.
        moment = int(np.argsort(descent.room, kind="stable")[int(len(core.room) * rng.random() ** 3)])
        there = core.value[(core.since <= moment) & (moment < core.until)]
        holders = np.unique(np.searchsorted(core.start, there, side="right") - 1)
        queue = rng.permutation(holders[open_[holders]])[: (size + 1) // 2].tolist() or queue
    chosen = dict.fromkeys(queue)
    while len(chosen) < min(size, len(candidates)):
        if not queue:
            queue.append(int(rng.choice(candidates)))
            chosen[queue[0]] = None
        v = queue[int(rng.integers(len(queue)))]
        others = [u for u in core.table[v] if open_[u] and u not in chosen]
        if others:
            u = others[int(rng.integers(len(others)))]
            chosen[u] = None
            queue.append(u)
        else:
            queue.remove(v)  # all around it is chosen
    return sorted(chosen)


def decide_anew(descent: Descent, memory: Memory, free: list[int], allowed: Bools, *, ends: float, seed: int) -> bool:
    """Gives the free variables the cheapest values that fit, the others as they are; whether that could be told in the time.

    Values are those `allowed` [C] and the present ones. It ends at `ends` on `time.perf_counter`, or soon after.

    A choice of values costs at least what each costs with those that stay and, of each table between free variables, half of
    the least in its row and in its column: values that would cost more than the present ones by that are left out.
    """
    from ortools.sat.python import cp_model

    core, inside = descent.core, set(free)
    edges = [(v, u) for v in free for u in core.table[v] if v < u and u in inside]
    outer = {v: _outer(descent, v, inside) for v in free}
    at = {v: int(descent.values[v]) for v in free}
    present = sum(outer[v][at[v]] for v in free) + sum(core.table[v][u][at[v], at[u]] for v, u in edges)
    least = {
        v: outer[v] + sum((table.min(axis=1) / 2 for u, table in core.table[v].items() if u in inside), np.zeros(len(outer[v])))
        for v in free
    }
    slack = present - sum(costs.min() for costs in least.values())
    values = {}
    for v in free:
        cheap = (least[v] <= least[v].min() + slack) & allowed[core.start[v] : core.start[v + 1]]
        cheap[at[v]] = True
        values[v] = np.flatnonzero(cheap)

    model = cp_model.CpModel()
    takes = {v: [model.new_bool_var("") for _ in values[v]] for v in free}
    terms = [take for v in free for take in takes[v]]
    costs = [int(outer[v][i]) for v in free for i in values[v]]
    for v in free:
        model.add_exactly_one(takes[v])
        for take, i in zip(takes[v], values[v].tolist(), strict=True):
            model.add_hint(take, i == at[v])
    for v, u in edges:
        table = core.table[v][u][np.ix_(values[v], values[u])]
        pairs = [[model.new_bool_var("") for _ in row] for row in table]
        for take, row in zip(takes[v], pairs, strict=True):
            model.add(sum(row) == take)
        for take, *column in zip(takes[u], *pairs, strict=True):
            model.add(sum(column) == take)
        for i, row in zip(values[v].tolist(), pairs, strict=True):
            for j, pair in zip(values[u].tolist(), row, strict=True):
                model.add_hint(pair, i == at[v] and j == at[u])
        terms += [pair for row in pairs for pair in row]
        costs += table.astype(np.int64).ravel().tolist()
    model.minimize(cp_model.LinearExpr.weighted_sum(terms, costs))

    room = descent.room + memory.spread(memory.of(core.start[free] + descent.values[free]))
    _limit(model, takes, values, memory, room)
    solver = _solver(max(0.0, ends - time.perf_counter()), seed)
    status: Any = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) and solver.objective_value < present - GAIN:
        for v in free:
            value = int(values[v][next(i for i, take in enumerate(takes[v]) if solver.boolean_value(take))])
            if value != at[v]:
                descent.change((v, value))
    return bool(status == cp_model.OPTIMAL)


def _outer(descent: Descent, variable: int, inside: set[int]) -> Floats:
    """What each value costs with the variables that stay."""
    costs = descent.costs(variable).copy()
    for other, table in descent.core.table[variable].items():
        if other in inside:
            costs -= table[:, descent.values[other]]
    return costs


def something_that_fits(memory: Memory, *, seconds: float, seed: int) -> tuple[Ints | None, bool]:
    """A value for each variable, whatever it costs, or None; and whether None is proved."""
    from ortools.sat.python import cp_model

    core = memory.core
    model = cp_model.CpModel()
    takes = {v: [model.new_bool_var("") for _ in cost] for v, cost in enumerate(core.cost)}
    for options in takes.values():
        model.add_exactly_one(options)
    _limit(model, takes, {v: np.arange(len(cost)) for v, cost in enumerate(core.cost)}, memory, core.room)
    solver = _solver(seconds, seed)
    status: Any = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bool(status == cp_model.INFEASIBLE)
    return np.array([next(i for i, take in enumerate(takes[v]) if solver.boolean_value(take)) for v in takes], np.int64), False


def _solver(seconds: float, seed: int) -> CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = seconds
    return solver


def _limit(model: CpModel, takes: dict[int, list[IntVar]], values: dict[int, Ints], memory: Memory, room: Ints) -> None:
    """Variables `takes` say which of their `values` they take; at each moment these hold `room` [T] at most."""
    from ortools.sat.python.cp_model import LinearExpr

    core = memory.core
    numbers = np.concatenate([core.start[v] + values[v] for v in takes])
    entries, mine = memory.of(numbers), np.repeat(np.arange(len(numbers)), memory.entries[numbers + 1] - memory.entries[numbers])
    since, until, amount = core.since[entries], core.until[entries], core.amount[entries]
    kept = different(len(numbers), mine, since, until, amount, room)
    held = np.zeros((len(numbers), len(kept) + 1), np.int64)
    np.add.at(held, (mine, np.searchsorted(kept, since)), amount)
    np.subtract.at(held, (mine, np.searchsorted(kept, until)), amount)
    held = held.cumsum(axis=1)[:, :-1]
    most = np.maximum.reduceat(held, np.append(0, np.cumsum([len(values[v]) for v in takes]))[:-1]).sum(axis=0)
    flat = [take for v in takes for take in takes[v]]
    for moment in np.flatnonzero(most > room[kept]).tolist():
        some = np.flatnonzero(held[:, moment])
        model.add(LinearExpr.weighted_sum([flat[i] for i in some], held[some, moment].tolist()) <= int(room[kept[moment]]))
