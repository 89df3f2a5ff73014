"""Minimises the latency by constraint programming, over some units or all."""

from __future__ import annotations

from typing import Any

from placer.problem.arrays import Bools, Ints
from placer.research.splits.model import Decided, either, solve
from placer.research.splits.problem import SplitProblem, latency_ns


def decide_anew(problem: SplitProblem, device: Ints, free: Bools, *, seconds: float, seed: int) -> Decided:
    """Minimises the latency over the places of the free units; the other units stay.

    Args:
        problem: the problem.
        device: [U]: a split within the memory limit in which accelerators do not wait in a circle. No worse split is returned.
        free: [U]: the units to decide.
        seconds: time limit.
        seed: of the solver.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    model: Any = cp_model.CpModel()
    k, supported = problem.accelerators, problem.unit_supported.tolist()
    here = device.tolist()
    never, always = model.new_constant(0), model.new_constant(1)
    on: list[list[Any]] = []  # [U][k + 1]: the literal for each accelerator, and for the CPUs last
    for u in range(problem.units):
        if free[u]:
            row = [model.new_bool_var("") if supported[u] or d == k else never for d in range(k + 1)]
            model.add_exactly_one(row)
            for d, literal in enumerate(row):
                if literal is not never:
                    model.add_hint(literal, min(here[u], k) == d)
        else:
            row = [always if min(here[u], k) == d else never for d in range(k + 1)]
        on.append(row)

    horizon = latency_ns(problem, device)
    top = model.new_int_var(0, horizon, "")
    ends = [model.new_int_var(0, horizon, "") for _ in range(problem.ops)]
    starts = [model.new_int_var(0, horizon, "") for _ in range(k)]
    finishes = [model.new_int_var(0, horizon, "") for _ in range(k)]
    nets, time_ns, nbytes = problem.nets, problem.unit_time_ns[:, 1].tolist(), problem.unit_bytes.tolist()
    for d in range(k):
        work = sum(row[d] * time_ns[u] for u, row in enumerate(on))
        for m, cost in enumerate(nets.cost_ns.tolist()):
            members = [on[u][d] for u in nets.unit[nets.start[m] : nets.start[m + 1]].tolist()]
            if any(literal is not never for literal in members):
                work += cost * either(model, members)
        model.add(finishes[d] >= starts[d] + work)
        model.add(sum(row[d] * nbytes[u] for u, row in enumerate(on)) <= problem.memory_limit_bytes)

    unit, cpu = problem.op_unit.tolist(), problem.op_time_ns[:, 0].tolist()
    for op, u in enumerate(unit):
        model.add(ends[op] >= cpu[op] * on[u][k])
        model.add(ends[op] <= top)
        for d in range(k):
            if on[u][d] is not never:
                model.add(ends[op] >= finishes[d]).only_enforce_if(on[u][d])
    makers = problem.tensor_op[problem.consumer_tensor].tolist()
    for a, b in zip(makers, problem.consumer_op.tolist(), strict=True):
        model.add(ends[b] >= ends[a] + cpu[b] * on[unit[b]][k])
        if unit[a] != unit[b]:
            for d in range(k):
                if on[unit[b]][d] is not never and on[unit[a]][d] is not always:
                    model.add(starts[d] >= ends[a]).only_enforce_if(on[unit[b]][d], ~on[unit[a]][d])
    model.minimize(top)
    solver, bound = solve(model, seconds=seconds, seed=seed)
    if solver is None:
        return Decided(None, bound)
    decided = device.copy()
    for u, row in enumerate(on):
        if free[u]:
            decided[u] = next(d for d, literal in enumerate(row) if solver.boolean_value(literal))
    return Decided(decided, bound)
