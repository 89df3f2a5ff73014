"""The placements of one function that are worth timing beside its plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placer.plan.doubt import doubt_of
from placer.plan.parts import BASELINE_NAMES
from placer.plan.placement import Placement
from placer.plan.verdict import DEFAULT, PLAN
from placer.problem.memory import excess
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.base import Solution
from placer.solvers.registry import solver
from placer.solvers.run import run
from placer.verbs.solve import Solved

BEST_FOUND, FEWER_COPIES = "the best plan found", "a plan with fewer copies"
COPY_FACTOR = 3
"""Factor of the time of all copies in the search for a plan with fewer of them. A plan with many copies has the least certain
prediction."""
MAX_PREDICTED_RATIO = 10
"""A candidate is not timed if its predicted step is longer than this multiple of the shortest one. A prediction can be wrong by a
factor of three on either side."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement to time."""

    name: str
    solved: Solved
    """The plan of the function."""
    solution: Solution
    """Of the problem that the plan solves."""

    @property
    def predicted_ns(self) -> int:
        """Predicted step time."""
        return self.solution.objective_ns

    @property
    def is_plan(self) -> bool:
        """Whether it is the plan."""
        return self.solution is self.solved.solution

    @cached_property
    def placement(self) -> Placement:
        """The candidate as a Placement. The bound that the search of the plan has proved holds for each candidate."""
        if self.is_plan:
            return self.solved.placement
        bound_ns = self.solved.solution.lower_bound_ns if self.solved.options.objective == "step_time" else 0
        return self.solved.placement_of(replace(self.solution, lower_bound_ns=bound_ns))


def candidates(solved: Solved, *, searched: bool = True) -> list[Candidate]:
    """The plan, if it is not TensorFlow's default, then the default, then the other candidates by predicted step time.

    The others are: everything on one kind of device; the plan of a search in which copies take `COPY_FACTOR` times as long; and
    the best plan of the search where TensorFlow's default was kept because that plan gains little. Both searches have the option
    `effort` of the plan. Left out are those that equal another candidate, exceed a memory limit, or have a predicted step of more
    than `MAX_PREDICTED_RATIO` times the shortest one.

    Args:
        solved: the plan.
        searched: False leaves out those that need another search. `beyond_doubt` reads none of these.

    Returns:
        The candidates; none if TensorFlow's default exceeds a memory limit.
    """
    plan = Candidate(PLAN, solved, solved.solution)
    default = Candidate(DEFAULT, solved, _solution(solved, solved.problem, "tf_default"))
    if exceeds_limit(default):
        return []
    is_default = is_same(plan, default)
    chosen = [default] if is_default else [plan, default]
    for candidate in sorted(_others(solved, is_default, searched), key=lambda candidate: candidate.predicted_ns):
        shortest_ns = min(each.predicted_ns for each in chosen)
        is_known = any(is_same(candidate, each) for each in chosen)
        if not is_known and candidate.predicted_ns <= MAX_PREDICTED_RATIO * shortest_ns and not exceeds_limit(candidate):
            chosen.append(candidate)
    return chosen


def beyond_doubt(entrants: list[Candidate]) -> Candidate | None:
    """The candidate to use without a race: TensorFlow's default, unless another is predicted to be faster beyond doubt.

    Everything on one kind of device must be faster than the default beyond doubt, and the plan faster than the better of these.

    Args:
        entrants: as `candidates` gives them.
    """
    by_name = {each.name: each for each in entrants}
    best = by_name.get(DEFAULT)
    for name in (BASELINE_NAMES["all_cpu"], BASELINE_NAMES["all_gpu"], PLAN):
        other = by_name.get(name)
        if best is None or other is None:
            continue
        if doubt_of(other.placement).gain * other.predicted_ns < best.predicted_ns:
            best = other
    return best


def _others(solved: Solved, default_is_kept: bool, searched: bool) -> Iterator[Candidate]:
    problem = solved.problem
    for rule in ("all_cpu", "all_gpu"):
        if rule in solved.placement.baselines:
            yield Candidate(BASELINE_NAMES[rule], solved, _solution(solved, problem, rule))
    if not searched:
        return
    searches = {FEWER_COPIES: with_dearer_copies(problem)}
    if default_is_kept:
        searches[BEST_FOUND] = problem
    for name, dearer in searches.items():
        options = solved.options
        solution = run(solver("step_time"), dearer, "step_time", seed=options.seed, effort=options.effort)
        if isinstance(solution, Solution) and solution.assignment is not None:
            step_ns = Simulator(problem).step_ns(solution.assignment)
            yield Candidate(name, solved, replace(solution, objective_ns=step_ns))


def with_dearer_copies(problem: PlacementProblem) -> PlacementProblem:
    """The problem with copies that take `COPY_FACTOR` times as long."""
    links = problem.links
    dearer = replace(links, latency_ns=COPY_FACTOR * links.latency_ns, ns_per_byte=COPY_FACTOR * links.ns_per_byte)
    return replace(problem, links=dearer)


def _solution(solved: Solved, problem: PlacementProblem, name: str) -> Solution:
    return solver(name).solve(problem, "step_time", seed=solved.options.seed)


def is_same(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates of one problem are the same placement."""
    a, b = one.solution.assignment, other.solution.assignment
    return a is not None and b is not None and np.array_equal(a.device, b.device)


def exceeds_limit(candidate: Candidate) -> bool:
    """Whether the candidate is no placement, or its predicted peak exceeds a memory limit."""
    assignment = candidate.solution.assignment
    return assignment is None or bool(excess(candidate.solved.problem, assignment).any())
