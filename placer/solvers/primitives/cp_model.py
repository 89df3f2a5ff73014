"""Placement for the total cost as a constraint program for CP-SAT."""

from __future__ import annotations

import math
from threading import Event
from typing import Any

import numpy as np

from placer.common.clock import now
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import everything_bytes
from placer.solvers.base import Status
from placer.solvers.primitives.assignment_program import AssignmentProgram
from placer.solvers.primitives.or_tools import Running, add_search, cp_search, cp_solver
from placer.solvers.primitives.symmetry import canonical

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


class Model(AssignmentProgram):
    """The problem as a CP-SAT model: a literal for each unit and device, and a charge for each possible copy."""

    def __init__(self, problem: PlacementProblem) -> None:
        super().__init__(problem)
        self._max_excess = everything_bytes(problem)
        literals = [literal for row in self._on for literal in row]
        charges, costs = self._charges()
        self._cost = self._cp.LinearExpr.weighted_sum(literals + charges, problem.unit_time_ns.ravel().tolist() + costs)

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

    def _solver(self, seconds: float, seed: int) -> Any:
        return cp_solver(seconds=seconds, seed=seed, repeatable=True, linearization_level=LINEARIZATION)
