"""The solvers of OR-Tools: constraint programs, linear programs and minimum cuts. Only this module makes and runs them.

No signal handler of Python runs while the main thread waits inside OR-Tools, and CP-SAT replaces the handler of SIGINT unless it
is told not to. So a constraint program, which can take long, runs in a thread of its own, and the thread that waits for it is in
Python: it can be interrupted, and then stops the search. Linear programs and minimum cuts take well under a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from placer.common.clock import add_work_s, is_counted, remaining_s
from placer.problem.arrays import Bools, Ints

if TYPE_CHECKING:
    from ortools.linear_solver.python.model_builder import Model as LinearModel
    from ortools.linear_solver.python.model_builder import Solver as LinearSolver
    from ortools.sat.python.cp_model import CpModel, CpSolver, CpSolverSolutionCallback

T = TypeVar("T")

DETERMINISTIC_TIME_PER_S = 0.3
"""Deterministic time of CP-SAT that one second always suffices for, so that it ends a search before the time limit does."""
LINEAR_S = 0.002
"""Work of a linear program, in seconds."""
MAX_STOP_S = 0.5
"""The longest time that an interrupted thread waits for a search to stop."""


def load() -> None:
    """Imports OR-Tools, so that the first search need not: that takes some tenths of a second."""
    from placer.solvers.primitives.loaded_ortools import cp_model, max_flow, model_builder  # noqa: F401


class Running(Generic[T]):
    """A call in a thread of its own. A thread that waits for it can be interrupted; then the call is stopped.

    Args:
        call: what to run.
        stop: asks the call to end soon. May be called at any time and several times.
    """

    def __init__(self, call: Callable[[], T], stop: Callable[[], None]) -> None:
        self._stop = stop
        executor = ThreadPoolExecutor(1)
        self._future: Future[T] = executor.submit(call)
        executor.shutdown(wait=False)  # the thread ends with the call

    def result(self) -> T:
        """Waits for the call and returns its result, or raises what it raised."""
        try:
            return self._future.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the call, and waits until it has ended or `MAX_STOP_S` have passed."""
        ends = time.monotonic() + MAX_STOP_S
        self._stop()
        while wait([self._future], 0.01).not_done and time.monotonic() < ends:
            self._stop()


def cp_solver(*, seconds: float, seed: int, workers: int = 1, repeatable: bool = False, **parameters: Any) -> CpSolver:
    """A solver of constraint programs, for `cp_search`.

    Args:
        seconds: time limit. Where work is counted, it limits CP-SAT's deterministic time and no real time.
        seed: of the search.
        workers: threads. With one, equal runs give equal results.
        repeatable: limits the deterministic time in any case, so that the search usually ends before its time limit.
        parameters: fields of CP-SAT's `SatParameters`.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    solver = cp_model.CpSolver()
    seconds = max(0.0, min(seconds, remaining_s()))
    limits = {} if is_counted() else {"max_time_in_seconds": seconds}
    if repeatable or is_counted():
        limits["max_deterministic_time"] = seconds * DETERMINISTIC_TIME_PER_S
    values = {"random_seed": seed, "num_workers": workers, **limits, **parameters}
    for name, value in {**values, "catch_sigint_signal": False}.items():
        setattr(solver.parameters, name, value)
    return solver


def cp_search(solver: CpSolver, model: CpModel, on_solution: CpSolverSolutionCallback | None = None) -> Any:
    """Solves a constraint program; returns the status. The search ends soon after an interrupt of the calling thread."""
    return Running(lambda: solver.solve(model, on_solution), solver.stop_search).result()


def add_search(deterministic_time: float) -> None:
    """Tells the clock of a search that took so much of CP-SAT's deterministic time."""
    add_work_s(deterministic_time / DETERMINISTIC_TIME_PER_S)


def linear_optimum(program: LinearModel, parameters: str = "") -> LinearSolver | None:
    """Solves a linear program by the simplex method; returns the solver, which has the values, or None if there is no optimum.

    None, too, if a `placer.common.clock.limit` ends before the optimum is known.

    Args:
        program: what to solve.
        parameters: of GLOP, in the text format of `GlopParameters`.
    """
    from placer.solvers.primitives.loaded_ortools import model_builder

    add_work_s(LINEAR_S)
    simplex = model_builder.Solver("GLOP")
    if not is_counted() and remaining_s() < math.inf:
        simplex.set_time_limit_in_seconds(max(0.0, remaining_s()))
    simplex.set_solver_specific_parameters(parameters)
    return simplex if simplex.solve(program) == model_builder.SolveStatus.OPTIMAL else None


def least_cut(tail: Ints, head: Ints, capacity: Ints, *, source: int, sink: int, nodes: int) -> tuple[int, Bools]:
    """A minimum cut between two nodes of a flow network.

    Args:
        tail: [A]: the node where each arc begins.
        head: [A]: the node where each arc ends.
        capacity: [A]: of each arc.
        source: a node.
        sink: another node.
        nodes: the number of nodes.

    Returns:
        The capacity of the cut; [nodes], the nodes on the source's side.

    Raises:
        ValueError: the sum of the capacities exceeds 64 bits.
    """
    from placer.solvers.primitives.loaded_ortools import max_flow

    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(tail, head, capacity)
    status = flow.solve(source, sink)
    if status != flow.OPTIMAL:
        raise ValueError(f"the maximum flow ended with {status}: the costs are too large for 64 bits.")
    with_source = np.array(flow.get_source_side_min_cut(), np.int64)
    side = np.zeros(nodes, np.bool_)
    side[with_source[with_source < nodes]] = True
    return int(flow.optimal_flow()), side
