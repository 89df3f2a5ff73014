"""Placement as a constraint program for CP-SAT, to which memory limits are added where they are exceeded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from threading import Event
from typing import Any

import numpy as np

from placer.common.clock import now, spend
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess, holdings, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import everything_bytes
from placer.solvers.base import Status
from placer.solvers.primitives.or_tools import Running, add_search, cp_search, cp_solver
from placer.solvers.primitives.symmetry import canonical, interchangeable

PERRON = (
    "L. Perron, F. Didier, S. Gay, The CP-SAT-LP solver, 29th International Conference on Principles and Practice of Constraint "
    "Programming (CP), 2023, doi:10.4230/LIPIcs.CP.2023.3"
)

LINEARIZATION = 2
"""Puts all clauses into the linear relaxation. The relaxation of a minimum cut is integral, so with a few limits there is little
to search. With this setting, one worker proves in a second what eight strategies in turns prove in a minute."""
HEAD_START_S = 0.2
"""Time before the second search, which raises the bound, is started; in seconds."""
EXCESS_REL_TOL = 0.01
"""Tolerance of the least excess over the limits, as a share of the bytes that the overfull devices hold."""
PARTS_OF_STEP = 8
"""The step is divided into so many parts; in each, the worst moment over a limit becomes a constraint."""


class Model:
    """The problem as a CP-SAT model: a literal for each unit and device, and a charge for each possible copy."""

    def __init__(self, problem: PlacementProblem) -> None:
        from placer.solvers.primitives.loaded_ortools import cp_model

        spend(1_000 + 20 * problem.num_ops * problem.num_devices)
        self._problem = problem
        self._cp = cp_model
        self._model: Any = cp_model.CpModel()
        self._false = self._model.new_constant(0)
        self._true = self._model.new_constant(1)
        self._on = [self._literals(allowed) for allowed in problem.units.allowed.tolist()]
        self._max_excess = everything_bytes(problem)
        self._excess = [self._model.new_int_var(0, 0, "") for _ in range(problem.num_devices)]  # [D]: bytes over the limit
        self._limited: set[tuple[int, int]] = set()
        self._groups = interchangeable(problem)
        self._break_symmetry()
        literals = [literal for row in self._on for literal in row]
        charges, costs = self._charges()
        self._cost = cp_model.LinearExpr.weighted_sum(literals + charges, problem.unit_time_ns.ravel().tolist() + costs)

    def _literals(self, allowed: list[bool]) -> list[Any]:
        """[D]: a literal for each device, true if the unit is on it."""
        choices = [d for d, ok in enumerate(allowed) if ok]
        row: list[Any] = [self._false] * len(allowed)
        if len(choices) == 1:
            row[choices[0]] = self._true
        elif len(choices) == 2:
            row[choices[0]] = self._model.new_bool_var("")
            row[choices[1]] = ~row[choices[0]]
        else:
            for d in choices:
                row[d] = self._model.new_bool_var("")
            self._model.add_exactly_one(row[d] for d in choices)
        return row

    def _break_symmetry(self) -> None:
        """Of interchangeable devices, one may have a unit only if the one before it has an earlier unit."""
        for group in self._groups:
            for before, device in pairwise(group):
                earlier = self._false
                for row in self._on:
                    if row[device] is not self._false:
                        self._model.add_implication(row[device], earlier)
                    if row[before] is not self._false:
                        used = self._model.new_bool_var("")
                        self._model.add_bool_or(row[before], earlier, ~used)
                        earlier = used

    def _charges(self) -> tuple[list[Any], list[int]]:
        """A literal for each crossing, place and cost, true if that copy is made; and the costs, in ns."""
        problem, crossings = self._problem, crossings_of(self._problem)
        places = np.arange(2 * problem.num_devices)
        copy_ns = problem.links.copy_ns(
            crossings.nbytes[:, None, None], crossings.count[:, None, None], crossings.place[:, :, None], places
        ).tolist()
        start, user, user_place = crossings.start.tolist(), crossings.user.tolist(), crossings.user_place.tolist()
        due: list[Any] = []
        costs: list[int] = []
        for x, maker in enumerate(crossings.unit.tolist()):
            for q in places.tolist():
                e = q % problem.num_devices
                users = [user[i] for i in range(start[x], start[x + 1]) if user_place[i][e] == q]
                used = self._any([self._on[u][e] for u in dict.fromkeys(users)])
                by_cost: dict[int, list[int]] = {}
                for d, row in enumerate(copy_ns[x]):
                    if row[q] and self._on[maker][d] is not self._false:
                        by_cost.setdefault(row[q], []).append(d)
                if used is self._false:
                    continue
                for cost, producers in by_cost.items():
                    charge = self._model.new_bool_var("")
                    for d in producers:
                        self._model.add_bool_or(~self._on[maker][d], ~used, charge)
                    due.append(charge)
                    costs.append(cost)
        return due, costs

    def _any(self, literals: list[Any]) -> Any:
        """A literal that is true if one of these is. It may be true otherwise too, but that lowers no cost."""
        literals = [literal for literal in literals if literal is not self._false]
        if any(literal is self._true for literal in literals):
            return self._true
        if len(literals) < 2:
            return literals[0] if literals else self._false
        result = self._model.new_bool_var("")
        for literal in literals:
            self._model.add_implication(literal, result)
        return result

    def limit(self, moments: Iterable[tuple[int, int]]) -> None:
        """Adds the memory limits at these pairs of a device and a moment."""
        for d, moment in moments:
            if (d, moment) not in self._limited:
                self._limited.add((d, moment))
                self._model.add(self._held(d, moment) <= int(self._problem.devices.memory_limit_bytes[d]) + self._excess[d])

    def limit_where_exceeded(self, assignment: Assignment, tolerance_bytes: Sequence[int] | None = None) -> None:
        """Adds the limits that an assignment exceeds, by more than a tolerance [D], at the worst moment of each part."""
        held = usage(self._problem, assignment)
        for d, limit in enumerate(self._problem.devices.memory_limit_bytes.tolist()):
            for part in np.array_split(np.arange(self._problem.num_ops), PARTS_OF_STEP):
                if limit >= 0 and len(part):
                    moment = int(part[np.argmax(held[d, part])])
                    if held[d, moment] > limit + (tolerance_bytes[d] if tolerance_bytes else 0):
                        self.limit([(d, moment)])

    def _held(self, device: int, moment: int) -> Any:
        """The bytes of a device's memory in use at a moment, as a linear expression."""
        held = holdings(self._problem, device, moment)
        holders = [self._on[u][d] for u, d in zip(held.unit.tolist(), held.on_device.tolist(), strict=True)]
        present = [self._any(holders[a:b]) for a, b in pairwise(held.start.tolist())]
        return self._cp.LinearExpr.weighted_sum(present, held.nbytes.tolist())

    def minimise(
        self, hint: Assignment, seconds: float, seed: int, *, proving: bool = False
    ) -> tuple[Status, Assignment | None, int]:
        """Minimises the total cost under the limits added so far; returns the status, the best assignment and a bound in ns.

        Args:
            hint: the assignment to start from.
            seconds: the time limit.
            seed: of the search.
            proving: also runs a second search on another processor, which raises the bound.
        """
        self._model.minimize(self._cost)
        self._hint(hint)
        solver, proved = self._solver(seconds, seed), 0
        if proving:
            solver, status, proved = self._search_and_prove(solver, seconds, seed)
        else:
            status = cp_search(solver, self._model)
            add_search(solver.response_proto.deterministic_time)
        if status == self._cp.INFEASIBLE:
            return Status.INFEASIBLE, None, 0
        bound = max(0, proved, math.ceil(solver.best_objective_bound - 0.5))
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            return Status.UNKNOWN, None, bound
        assignment, value = self._assignment(solver), round(solver.objective_value)
        if status == self._cp.OPTIMAL or value <= bound:
            return Status.OPTIMAL, assignment, value
        return Status.FEASIBLE, assignment, bound

    def _search_and_prove(self, solver: Any, seconds: float, seed: int) -> tuple[Any, Any, int]:
        """Runs a search, and a second one that raises the bound; returns the one with the better result, its status, and a bound.

        Each ends after a fixed amount of work, and the first wins a tie, so that equal runs give equal assignments. The work that
        the clock counts does not depend on which of the two ends first: up to the last solution if that is optimal, else all.
        """
        head_start_s = min(HEAD_START_S, seconds / 4)
        prover, proved, value, ended = self._solver(seconds - head_start_s, seed), 0, math.inf, Event()
        prover.parameters.use_objective_lb_search = True
        found_at = 0.0
        solved = (self._cp.OPTIMAL, self._cp.FEASIBLE)

        def raise_bound(bound: float) -> None:
            nonlocal proved
            proved = max(proved, math.ceil(bound - 0.5))
            if value <= proved:
                solver.stop_search()

        class OnSolution(self._cp.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                nonlocal value, found_at
                value, found_at = round(self.objective_value), self.deterministic_time
                if value <= proved:
                    self.stop_search()

        def prove() -> Any:
            return self._cp.UNKNOWN if ended.wait(head_start_s) else prover.solve(self._model)

        prover.best_bound_callback = raise_bound
        second = Running(prove, prover.stop_search)
        try:
            status = cp_search(solver, self._model, OnSolution())
            if status not in (self._cp.OPTIMAL, self._cp.INFEASIBLE) and value > proved:
                second.result()
        finally:
            ended.set()
            second.stop()
        proof = second.result()
        whole = status in (self._cp.OPTIMAL, self._cp.INFEASIBLE) or value <= proved
        add_search(found_at if whole else solver.parameters.max_deterministic_time)
        if proof in solved and (status not in solved or prover.objective_value < solver.objective_value):
            return prover, proof, max(proved, math.ceil(solver.best_objective_bound - 0.5))
        return solver, status, proved

    def least_excess(self, start: Assignment, seconds: float, seed: int) -> tuple[Assignment, int]:
        """Minimises the bytes over all limits together; returns the best assignment and a lower bound on these bytes.

        Ends if an assignment fits; or if none can, and the excess and its bound differ by at most `EXCESS_REL_TOL` of the bytes
        that the overfull devices hold.
        """
        ends, best, bound = now() + seconds, start, 0
        over = excess(self._problem, best)
        for excess_bytes in self._excess:
            excess_bytes.proto.domain[:] = [0, self._max_excess]
        self._model.minimize(sum(self._excess))
        while (remaining_s := ends - now()) > 0:
            tolerance = EXCESS_REL_TOL * int((self._problem.devices.memory_limit_bytes + over)[over > 0].sum()) if bound else 0
            if over.sum() <= bound + tolerance:
                break
            self._hint(best)
            solver = self._solver(remaining_s, seed)
            status = cp_search(solver, self._model)
            add_search(solver.response_proto.deterministic_time)
            bound = max(bound, math.ceil(solver.best_objective_bound - 0.5))
            if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
                break
            candidate, limited = self._assignment(solver), len(self._limited)
            if (excess_now := excess(self._problem, candidate)).sum() < over.sum():
                best, over = candidate, excess_now
            self.limit_where_exceeded(candidate, [solver.value(excess_bytes) for excess_bytes in self._excess])
            if status == self._cp.FEASIBLE and len(self._limited) == limited:
                break
        for excess_bytes in self._excess:
            excess_bytes.proto.domain[:] = [0, 0]
        return best, bound

    def _hint(self, assignment: Assignment) -> None:
        """Sets the assignment from which the next search starts."""
        self._model.clear_hints()
        for row, device in zip(self._on, canonical(assignment, self._groups).device.tolist(), strict=True):
            open_to = [d for d, literal in enumerate(row) if literal is not self._false]
            for d in open_to if len(open_to) > 2 else open_to[:-1]:  # the second of two is the negation of the first
                self._model.add_hint(row[d], d == device)

    def _assignment(self, solver: Any) -> Assignment:
        return Assignment(
            np.array([next(d for d, on in enumerate(row) if solver.boolean_value(on)) for row in self._on], np.int64)
        )

    def _solver(self, seconds: float, seed: int) -> Any:
        return cp_solver(seconds=seconds, seed=seed, repeatable=True, linearization_level=LINEARIZATION)
