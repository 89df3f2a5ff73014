"""Placement as a constraint program whose limits are added where they are exceeded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import numpy as np

from placer.problem.crossings import crossings_of
from placer.problem.memory import excess, holdings, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import Status
from placer.solvers.primitives.symmetry import canonical, interchangeable

LINEARIZATION = 2
"""All clauses are in the linear relaxation too: that of a cut is integral, and a few limits leave little to search. One worker
with it proves in a second what eight strategies in turns do in a minute."""
DETERMINISTIC_PER_SECOND = 0.3
"""How much of its own unit of work the solver surely does in a second, so that this ends a search before the clock does."""
HEAD_START_S = 0.2
"""What is solved before that needs no second search beside it."""
NEAR = 0.01
"""The share of what devices hold to which the bytes that limits lack are told."""
STRETCHES = 8
"""Parts of a step in each of which the worst moment over a limit becomes a constraint."""


class Model:
    """The assignment as a CP-SAT model: a literal for each unit and device, a charge for each copy that could be due."""

    def __init__(self, problem: PlacementProblem) -> None:
        from ortools.sat.python import cp_model

        self._problem = problem
        self._cp = cp_model
        self._model: Any = cp_model.CpModel()
        self._never = self._model.new_constant(0)
        self._always = self._model.new_constant(1)
        self._on = [self._literals(allowed) for allowed in problem.units.allowed.tolist()]
        self._most = int(2 * problem.num_devices * problem.tensors.held_bytes.sum() + problem.units.persistent_bytes.sum())
        self._most += int(np.max(problem.ops.workspace_bytes, initial=0))
        self._short = [self._model.new_int_var(0, 0, "") for _ in range(problem.num_devices)]  # by how much limits are missed
        self._limited: set[tuple[int, int]] = set()
        self._groups = interchangeable(problem)
        self._break_symmetry()
        literals = [literal for row in self._on for literal in row]
        charges, costs = self._charges()
        self._cost = cp_model.LinearExpr.weighted_sum(literals + charges, problem.unit_time_ns.ravel().tolist() + costs)

    def _literals(self, allowed: list[bool]) -> list[Any]:
        """By device: true where the unit is there."""
        choices = [d for d, ok in enumerate(allowed) if ok]
        row: list[Any] = [self._never] * len(allowed)
        if len(choices) == 1:
            row[choices[0]] = self._always
        elif len(choices) == 2:
            row[choices[0]] = self._model.new_bool_var("")
            row[choices[1]] = ~row[choices[0]]
        else:
            for d in choices:
                row[d] = self._model.new_bool_var("")
            self._model.add_exactly_one(row[d] for d in choices)
        return row

    def _break_symmetry(self) -> None:
        """Of devices that can trade places, one takes a unit only after the one before it took an earlier unit."""
        for group in self._groups:
            for before, device in pairwise(group):
                earlier = self._never
                for row in self._on:
                    if row[device] is not self._never:
                        self._model.add_implication(row[device], earlier)
                    if row[before] is not self._never:
                        now = self._model.new_bool_var("")
                        self._model.add_bool_or(row[before], earlier, ~now)
                        earlier = now

    def _charges(self) -> tuple[list[Any], list[int]]:
        """A variable for each crossing, place and price: true where that copy is due."""
        problem, crossings = self._problem, crossings_of(self._problem)
        places = np.arange(2 * problem.num_devices)
        prices = problem.links.copy_ns(
            crossings.nbytes[:, None, None], crossings.count[:, None, None], crossings.place[:, :, None], places
        ).tolist()
        start, user, user_place = crossings.start.tolist(), crossings.user.tolist(), crossings.user_place.tolist()
        due: list[Any] = []
        costs: list[int] = []
        for x, maker in enumerate(crossings.unit.tolist()):
            for q in places.tolist():
                e = q % problem.num_devices
                users = [user[i] for i in range(start[x], start[x + 1]) if user_place[i][e] == q]
                wanted = self._any([self._on[u][e] for u in dict.fromkeys(users)])
                by_price: dict[int, list[int]] = {}
                for d, row in enumerate(prices[x]):
                    if row[q] and self._on[maker][d] is not self._never:
                        by_price.setdefault(row[q], []).append(d)
                if wanted is self._never:
                    continue
                for price, origins in by_price.items():
                    charge = self._model.new_bool_var("")
                    for d in origins:
                        self._model.add_bool_or(~self._on[maker][d], ~wanted, charge)
                    due.append(charge)
                    costs.append(price)
        return due, costs

    def _any(self, literals: list[Any]) -> Any:
        """A literal that is true where one of these is; it may be true elsewhere too, which nothing rewards."""
        literals = [literal for literal in literals if literal is not self._never]
        if any(literal is self._always for literal in literals):
            return self._always
        if len(literals) < 2:
            return literals[0] if literals else self._never
        result = self._model.new_bool_var("")
        for literal in literals:
            self._model.add_implication(literal, result)
        return result

    def limit(self, moments: Iterable[tuple[int, int]]) -> None:
        """Adds the limits of these devices at these moments."""
        for d, moment in moments:
            if (d, moment) not in self._limited:
                self._limited.add((d, moment))
                self._model.add(self._held(d, moment) <= int(self._problem.devices.memory_limit_bytes[d]) + self._short[d])

    def limit_where_exceeded(self, assignment: Assignment, by: Sequence[int] | None = None) -> None:
        """Adds the limits that an assignment exceeds by more than so many bytes, [D], at its worst moment in each stretch."""
        held = usage(self._problem, assignment)
        for d, limit in enumerate(self._problem.devices.memory_limit_bytes.tolist()):
            for stretch in np.array_split(np.arange(self._problem.num_ops), STRETCHES):
                if limit >= 0 and len(stretch):
                    moment = int(stretch[np.argmax(held[d, stretch])])
                    if held[d, moment] > limit + (by[d] if by else 0):
                        self.limit([(d, moment)])

    def _held(self, device: int, moment: int) -> Any:
        """Bytes of a device's memory in use while an op runs."""
        held = holdings(self._problem, device, moment)
        holders = [self._on[u][d] for u, d in zip(held.unit.tolist(), held.on_device.tolist(), strict=True)]
        present = [self._any(holders[a:b]) for a, b in pairwise(held.start.tolist())]
        return self._cp.LinearExpr.weighted_sum(present, held.nbytes.tolist())

    def minimise(
        self, hint: Assignment, seconds: float, seed: int, *, proving: bool = False
    ) -> tuple[Status, Assignment | None, int]:
        """What is known of this relaxation within the time: its status, its best assignment and its bound.

        Args:
            proving: beside the search for assignments, on another processor, one raises the bound from below.
        """
        self._model.minimize(self._cost)
        self._hint(hint)
        solver, proved = self._solver(seconds, seed), 0
        if proving:
            solver, status, proved = self._search_and_prove(solver, seconds, seed)
        else:
            status = solver.solve(self._model)
        if status == self._cp.INFEASIBLE:
            return Status.INFEASIBLE, None, 0
        bound = max(0, proved, math.ceil(solver.best_objective_bound - 0.5))
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            return Status.UNKNOWN, None, bound
        found, value = self._found(solver), round(solver.objective_value)
        if status == self._cp.OPTIMAL or value <= bound:
            return Status.OPTIMAL, found, value
        return Status.FEASIBLE, found, bound

    def _search_and_prove(self, solver: Any, seconds: float, seed: int) -> tuple[Any, Any, int]:
        """A search with another beside it that raises the bound: the one that found the cheapest, its status, and the bound.

        Each is done after so much work, whatever the clock says, and a tie goes to the first: equal runs give equal assignments.
        """
        prover, proved, value, ended = self._solver(seconds, seed), 0, math.inf, Event()
        prover.parameters.use_objective_lb_search = True
        proof: Any = self._cp.UNKNOWN
        solved = (self._cp.OPTIMAL, self._cp.FEASIBLE)

        def at_least(bound: float) -> None:
            nonlocal proved
            proved = max(proved, math.ceil(bound - 0.5))
            if value <= proved:
                solver.stop_search()

        class Found(self._cp.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                nonlocal value
                value = round(self.objective_value)
                if value <= proved:
                    self.stop_search()

        def prove() -> None:
            nonlocal proof
            if not ended.wait(HEAD_START_S):
                proof = prover.solve(self._model)

        prover.best_bound_callback = at_least
        thread = Thread(target=prove)
        thread.start()
        try:
            status = solver.solve(self._model, Found())
            if status not in (self._cp.OPTIMAL, self._cp.INFEASIBLE) and value > proved:
                thread.join()
        finally:
            ended.set()
            while thread.is_alive():
                prover.stop_search()
                thread.join(0.01)
        if proof in solved and (status not in solved or prover.objective_value < solver.objective_value):
            return prover, proof, max(proved, math.ceil(solver.best_objective_bound - 0.5))
        return solver, status, proved

    def least_excess(self, start: Assignment, seconds: float, seed: int) -> tuple[Assignment, int]:
        """What misses all limits together by the fewest bytes, as far as found, and a lower bound on these bytes.

        Ends where what fits is found, or ruled out and the two are within `NEAR` of what the devices that are too full hold.
        """
        started, best, bound = time.perf_counter(), start, 0
        over = excess(self._problem, best)
        for short in self._short:
            short.proto.domain[:] = [0, self._most]
        self._model.minimize(sum(self._short))
        while (left := seconds - (time.perf_counter() - started)) > 0:
            near = NEAR * int((self._problem.devices.memory_limit_bytes + over)[over > 0].sum()) if bound else 0
            if over.sum() <= bound + near:
                break
            self._hint(best)
            solver = self._solver(left, seed)
            status = solver.solve(self._model)
            bound = max(bound, math.ceil(solver.best_objective_bound - 0.5))
            if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
                break
            found, limited = self._found(solver), len(self._limited)
            if (missed := excess(self._problem, found)).sum() < over.sum():
                best, over = found, missed
            self.limit_where_exceeded(found, [solver.value(short) for short in self._short])
            if status == self._cp.FEASIBLE and len(self._limited) == limited:
                break
        for short in self._short:
            short.proto.domain[:] = [0, 0]
        return best, bound

    def _hint(self, assignment: Assignment) -> None:
        """Where the next search begins."""
        self._model.clear_hints()
        for row, device in zip(self._on, canonical(assignment, self._groups).device.tolist(), strict=True):
            open_to = [d for d, literal in enumerate(row) if literal is not self._never]
            for d in open_to if len(open_to) > 2 else open_to[:-1]:  # of two, one is the other's negation
                self._model.add_hint(row[d], d == device)

    def _found(self, solver: Any) -> Assignment:
        return Assignment(
            np.array([next(d for d, on in enumerate(row) if solver.boolean_value(on)) for row in self._on], np.int64)
        )

    def _solver(self, seconds: float, seed: int) -> Any:
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1  # equal runs are equal
        solver.parameters.linearization_level = LINEARIZATION
        solver.parameters.random_seed = seed
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.max_deterministic_time = seconds * DETERMINISTIC_PER_SECOND
        return solver
