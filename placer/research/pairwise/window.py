"""Large-neighbourhood search: a window of variables is decided anew by constraint programming, and the others stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.research.pairwise.core import distinct_moments
from placer.research.pairwise.local_search import MIN_GAIN, LocalSearch
from placer.research.pairwise.memory import Memory
from placer.solvers.primitives.cp_model import LINEARIZATION
from placer.solvers.primitives.or_tools import cp_search, cp_solver

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

FULL_MOMENT_SHARE = 0.2
"""The share of windows that are chosen around a moment with little room."""


def window(search: LocalSearch, undecided: Bools, size: int, rng: np.random.Generator) -> list[int]:
    """At most ``size`` of the undecided [V] variables, ascending: connected ones, or ones that use memory at a full moment."""
    core, candidates = search.core, np.flatnonzero(undecided)
    queue = [int(rng.choice(candidates))]
    if rng.random() < FULL_MOMENT_SHARE and len(core.room):
        # Half of the window can use memory at this moment, which is likelier to be one with little room.
        moment = int(np.argsort(search.room, kind="stable")[int(len(core.room) * rng.random() ** 3)])
        values = core.value[(core.since <= moment) & (moment < core.until)]
        holders = np.unique(np.searchsorted(core.start, values, side="right") - 1)
        queue = rng.permutation(holders[undecided[holders]])[: (size + 1) // 2].tolist() or queue
    chosen = dict.fromkeys(queue)
    while len(chosen) < min(size, len(candidates)):
        if not queue:
            queue.append(int(rng.choice(candidates)))
            chosen[queue[0]] = None
        v = queue[int(rng.integers(len(queue)))]
        others = [u for u in core.table[v] if undecided[u] and u not in chosen]
        if others:
            u = others[int(rng.integers(len(others)))]
            chosen[u] = None
            queue.append(u)
        else:
            queue.remove(v)  # all its neighbours are chosen
    return sorted(chosen)


def decide_anew(search: LocalSearch, memory: Memory, free: list[int], allowed: Bools, *, deadline: float, seed: int) -> bool:
    """Gives the free variables the cheapest values that fit; the others stay. Returns whether that is proven.

    A value is left out if a lower bound on its cost exceeds the present cost. The bound of a value is its cost with the variables
    that stay, plus half of the least cost in its row of each table between free variables.

    Args:
        search: the present values, which are changed.
        memory: of the same core.
        free: the variables to decide.
        allowed: [C]: values that may be taken beside the present ones.
        deadline: the `time.perf_counter` value at which the search ends, or soon after.
        seed: of the solver.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    core, inside = search.core, set(free)
    edges = [(v, u) for v in free for u in core.table[v] if v < u and u in inside]
    outer = {v: _outer(search, v, inside) for v in free}
    at = {v: int(search.values[v]) for v in free}
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

    room = search.room + memory.spread(memory.of(core.start[free] + search.values[free]))
    _limit(model, takes, values, memory, room)
    solver = cp_solver(seconds=max(0.0, deadline - time.perf_counter()), seed=seed, linearization_level=LINEARIZATION)
    status = cp_search(solver, model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) and solver.objective_value < present - MIN_GAIN:
        for v in free:
            value = int(values[v][next(i for i, take in enumerate(takes[v]) if solver.boolean_value(take))])
            if value != at[v]:
                search.change((v, value))
    return bool(status == cp_model.OPTIMAL)


def _outer(search: LocalSearch, variable: int, inside: set[int]) -> Floats:
    """The cost of each value with the variables that stay."""
    costs = search.costs(variable).copy()
    for other, table in search.core.table[variable].items():
        if other in inside:
            costs -= table[:, search.values[other]]
    return costs


def any_that_fit(memory: Memory, *, seconds: float, seed: int) -> tuple[Ints | None, bool]:
    """Values [V] that fit, whatever they cost, or None; and whether it is proven that there are none."""
    from placer.solvers.primitives.loaded_ortools import cp_model

    core = memory.core
    model = cp_model.CpModel()
    takes = {v: [model.new_bool_var("") for _ in cost] for v, cost in enumerate(core.cost)}
    for options in takes.values():
        model.add_exactly_one(options)
    _limit(model, takes, {v: np.arange(len(cost)) for v, cost in enumerate(core.cost)}, memory, core.room)
    solver = cp_solver(seconds=seconds, seed=seed, linearization_level=LINEARIZATION)
    status = cp_search(solver, model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bool(status == cp_model.INFEASIBLE)
    return np.array([next(i for i, take in enumerate(takes[v]) if solver.boolean_value(take)) for v in takes], np.int64), False


def _limit(model: CpModel, takes: dict[int, list[IntVar]], values: dict[int, Ints], memory: Memory, room: Ints) -> None:
    """Adds the memory limit: at each moment, the values that the variables take use at most ``room`` [T].

    Args:
        model: gets the constraints.
        takes: for each variable, a literal for each of its values.
        values: for each variable, the values that its literals stand for.
        memory: of the core.
        room: [T].
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    core = memory.core
    numbers = np.concatenate([core.start[v] + values[v] for v in takes])
    entries, owner = memory.of(numbers), np.repeat(np.arange(len(numbers)), memory.entries[numbers + 1] - memory.entries[numbers])
    since, until, amount = core.since[entries], core.until[entries], core.amount[entries]
    moments = distinct_moments(len(numbers), owner, since, until, amount, room)
    held = np.zeros((len(numbers), len(moments) + 1), np.int64)
    np.add.at(held, (owner, np.searchsorted(moments, since)), amount)
    np.subtract.at(held, (owner, np.searchsorted(moments, until)), amount)
    held = held.cumsum(axis=1)[:, :-1]
    most_held = np.maximum.reduceat(held, np.append(0, np.cumsum([len(values[v]) for v in takes]))[:-1]).sum(axis=0)
    flat = [take for v in takes for take in takes[v]]
    for moment in np.flatnonzero(most_held > room[moments]).tolist():
        users = np.flatnonzero(held[:, moment])
        model.add(
            cp_model.LinearExpr.weighted_sum([flat[i] for i in users], held[users, moment].tolist()) <= int(room[moments[moment]])
        )
