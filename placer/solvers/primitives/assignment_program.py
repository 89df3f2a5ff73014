"""The device of each unit in a constraint program for CP-SAT, to which memory limits are added where they are exceeded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from placer.common.clock import spend
from placer.problem.memory import holdings, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.symmetry import interchangeable

PARTS_OF_STEP = 8
"""The step is divided into so many parts; in each, the worst moment over a limit becomes a constraint."""

Moment: TypeAlias = tuple[int, int]
"""A device and a moment, at which its memory limit may be exceeded."""


class AssignmentProgram:
    """A constraint program with a literal for each unit and device."""

    def __init__(self, problem: PlacementProblem) -> None:
        from placer.solvers.primitives.loaded_ortools import cp_model

        spend(1_000 + 20 * problem.num_ops * problem.num_devices)
        self._problem = problem
        self._cp = cp_model
        self._model: Any = cp_model.CpModel()
        self._false = self._model.new_constant(0)
        self._true = self._model.new_constant(1)
        self._on = [self._literals(allowed) for allowed in problem.units.allowed.tolist()]
        self._excess = [self._model.new_int_var(0, 0, "") for _ in range(problem.num_devices)]  # [D]: bytes over the limit
        self._limited: set[Moment] = set()
        self._groups = interchangeable(problem)
        self._break_symmetry()

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

    def limit(self, moments: Iterable[Moment]) -> None:
        """Adds the memory limits at these pairs of a device and a moment."""
        for d, moment in moments:
            if (d, moment) not in self._limited:
                self._limited.add((d, moment))
                self._model.add(self._held(d, moment) <= int(self._problem.devices.memory_limit_bytes[d]) + self._excess[d])

    def limit_where_exceeded(self, assignment: Assignment, tolerance_bytes: Sequence[int] | None = None) -> None:
        """Adds the limits that an assignment exceeds, by more than a tolerance [D], at the worst moment of each part."""
        self.limit(exceeded_moments(self._problem, assignment, tolerance_bytes))

    def _held(self, device: int, moment: int) -> Any:
        """The bytes of a device's memory in use at a moment, as a linear expression."""
        held = holdings(self._problem, device, moment)
        holders = [self._on[u][d] for u, d in zip(held.unit.tolist(), held.on_device.tolist(), strict=True)]
        present = [self._any(holders[a:b]) for a, b in pairwise(held.start.tolist())]
        return self._cp.LinearExpr.weighted_sum(present, held.nbytes.tolist())

    def _assignment(self, solver: Any) -> Assignment:
        return Assignment(
            np.array([next(d for d, on in enumerate(row) if solver.boolean_value(on)) for row in self._on], np.int64)
        )


def exceeded_moments(
    problem: PlacementProblem, assignment: Assignment, tolerance_bytes: Sequence[int] | None = None
) -> Iterator[Moment]:
    """Where an assignment exceeds the memory limits, by more than a tolerance [D]: the worst moment of each part of the step."""
    held = usage(problem, assignment)
    for d, limit in enumerate(problem.devices.memory_limit_bytes.tolist()):
        for part in np.array_split(np.arange(problem.num_ops), PARTS_OF_STEP):
            if limit >= 0 and len(part):
                moment = int(part[np.argmax(held[d, part])])
                if held[d, moment] > limit + (tolerance_bytes[d] if tolerance_bytes else 0):
                    yield d, moment
