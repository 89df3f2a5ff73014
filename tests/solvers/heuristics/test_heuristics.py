"""Heuristics against what their papers publish, and against instances worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import placer
from placer.errors import InfeasibleError, OptionError
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.base import Status
from placer.solvers.heuristics.cpop import cpop_schedule
from placer.solvers.heuristics.heft import heft_schedule
from placer.solvers.heuristics.m_etf import m_etf_schedule
from placer.solvers.heuristics.m_sct import favourite_children, m_sct_schedule
from placer.solvers.heuristics.peft import optimistic_cost_ns, peft_schedule
from placer.solvers.primitives.list_scheduling import Schedule, upward_rank_ns
from placer.solvers.registry import solver
from tests.helpers.changed import changed
from tests.helpers.graphs import layers
from tests.helpers.shapes import ARABNEJAD, TOPCUOGLU, tasks
from tests.problem.test_price import chain


def test_heft_schedules_its_papers_example_as_its_paper_does() -> None:
    """Ranks and schedule of Topcuoglu, Hariri, Wu 2002 (table 2, figure 3a), makespan 80.

    Nothing of the instance is lost. The execution model plays the same assignment in 91: it starts ops as they become ready
    rather than in HEFT's order, and copies between two devices queue for their link.
    """
    schedule = heft_schedule(TOPCUOGLU)
    ranks = upward_rank_ns(Schedule(TOPCUOGLU))
    assert np.round(ranks, 3).tolist() == [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert (schedule.assignment.device + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
    assert schedule.start == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]
    assert schedule.makespan_ns == 80
    assert Simulator(TOPCUOGLU).step_ns(schedule.assignment) == 91


def test_cpop_and_peft_reach_the_makespans_of_their_papers() -> None:
    assert cpop_schedule(TOPCUOGLU).makespan_ns == 86
    assert optimistic_cost_ns(Schedule(ARABNEJAD))[:6].tolist() == [
        [64, 68, 86], [42, 39, 42], [27, 41, 43], [42, 39, 50], [28, 37, 28], [42, 39, 44]
    ]  # fmt: skip
    assert peft_schedule(ARABNEJAD).makespan_ns == 122
    assert heft_schedule(ARABNEJAD).makespan_ns == 133


FORK = tasks([[2, 2], [3, 3], [3, 3], [1, 1]], [(1, 2, 1), (1, 3, 4), (2, 4, 1), (3, 4, 1)])
"""One op, two after it that take 3 each, one after those; the first's tensor to the third takes 4 to copy, the others 1."""


def test_m_etf_on_a_fork() -> None:
    """By hand: op 1 on 0 from 0 to 2. Op 2 can start there at 2 (on 1 at 3), op 3 at 2 (on 1 at 6): op 2 comes first, on 0, to 5.

    Then op 3 starts at 5 on 0, before 6 on 1. Op 4 takes both from there.
    """
    schedule = m_etf_schedule(FORK)
    assert schedule.assignment.device.tolist() == [0, 0, 0, 0]
    assert schedule.start == [0, 2, 5, 8]


def test_m_etf_passes_over_a_device_without_room() -> None:
    """Op 2 keeps 10 bytes and device 0 holds 9 beside what passes: it starts on 1 at 3, when its tensor is there.

    Op 3 starts on 0 at 2. Op 4 could start there at 7, with op 2's tensor, and on 1 at 6: op 3 ends at 5, its tensor is there
    at 6, and so does op 2.
    """
    limits = np.array([9, -1])
    schedule = m_etf_schedule(changed(FORK, units_persistent_bytes=np.array([0, 10, 0, 0]), devices_memory_limit_bytes=limits))
    assert schedule.assignment.device.tolist() == [0, 1, 0, 1]
    assert schedule.start == [0, 3, 2, 6]


def test_m_sct_waits_for_the_favourite_child() -> None:
    """The linear program saves the copy that costs 4, so op 3 is op 1's favourite, and one of the two edges into op 4.

    On one device m-ETF runs op 2 first; m-SCT keeps op 1's device for op 3 and op 2 goes where it is urgent: on 1, from 3.
    """
    children = favourite_children(Schedule(FORK))
    assert children[0] == 2
    assert sorted(children[1:3]) == [-1, 3]
    schedule = m_sct_schedule(FORK)
    assert schedule.assignment.device[:3].tolist() == [0, 1, 0]
    assert schedule.start[:3] == [0, 3, 2]
    assert schedule.makespan_ns < m_etf_schedule(FORK).makespan_ns


def test_m_topo_gives_each_device_an_equal_share_and_fills_go_on_until_full() -> None:
    """Five ops in a row that keep 10 bytes each and make nothing: a share is 50 // 2 + 10."""
    row = tasks([[1, 1]] * 5, [(i, i + 1, 0) for i in range(1, 5)])
    row = changed(row, units_persistent_bytes=np.full(5, 10))
    assert device_of("m_topo", row) == [0, 0, 0, 1, 1]
    limited = changed(row, devices_memory_limit_bytes=np.array([20, -1]))
    for name in ("in_order_fill", "dfs_fill"):
        assert device_of(name, row) == [0, 0, 0, 0, 0]
        assert device_of(name, limited) == [0, 0, 1, 1, 1]


def test_dfs_fill_keeps_branches_together_where_execution_order_does_not() -> None:
    """Two branches of two ops from one, in turns: a device with room for three has the start and one whole branch."""
    branches = tasks([[1, 1]] * 5, [(1, 2, 0), (1, 3, 0), (2, 4, 0), (3, 5, 0)])
    branches = changed(branches, units_persistent_bytes=np.full(5, 10), devices_memory_limit_bytes=np.array([30, -1]))
    assert device_of("dfs_fill", branches) == [0, 1, 0, 1, 0]
    assert device_of("in_order_fill", branches) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("made_on_host", "taken_from_host", "device"),
    [(True, False, [1, 0, 1]), (True, True, [1, 1, 1]), (False, False, [1, 1, 1])],
)
def test_cpu_preferred_keeps_what_follows_host_values(made_on_host: bool, taken_from_host: bool, device: list[int]) -> None:
    """in → work → out: `work` stays with its input in host memory, unless its GPU kernel takes that from there."""
    on_host = np.array([[False, made_on_host], [False, False]])
    from_host = np.array([[False, taken_from_host], [False, True]])
    problem = chain(tensors_on_host=on_host, consumers_on_host=from_host)
    assert device_of("cpu_preferred", problem)[:2] == device[:2]


def test_searches_find_shorter_steps_than_list_schedules() -> None:
    """On the example of HEFT's paper, played by the execution model."""
    lists = [solver(name).solve(TOPCUOGLU, "step_time").objective_ns for name in ("heft", "cpop", "peft", "m_etf", "m_sct")]
    for name in ("annealing", "genetic"):
        assert solver(name).solve(TOPCUOGLU, "step_time").objective_ns < min(lists)


def everything_on_the_first(problem: PlacementProblem) -> Assignment:
    """Each unit on the first device it may use."""
    return Assignment(problem.units.allowed.argmax(axis=1))


def test_a_function_is_a_solver() -> None:
    placement = placer.solve(layers(), "h100", solver=everything_on_the_first)
    assert placement.solver == placement.options["solver"] == "everything_on_the_first"
    assert solver(everything_on_the_first).cite() == "Each unit on the first device it may use."


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (Assignment(np.zeros(2, np.int64)), "shape (2,)"),
        (None, "an Assignment has 3 integers"),
        (Assignment(np.array([0, 0, 5])), "'out' (unit 2) on device 5"),
        (Assignment(np.array([0, 1, 0])), "'work' (unit 1) on device 1, and it may be on 0 (CPU:0) only"),
    ],
)
def test_what_a_function_returns_is_checked(returned: Assignment, told: str) -> None:
    allowed = np.array([[True, True], [True, False], [True, True]])
    with pytest.raises(OptionError) as raised:
        solver(lambda _: returned).solve(chain(units_allowed=allowed), "step_time")
    assert told in str(raised.value)


def test_what_a_heuristic_finds_no_room_for_is_infeasible_not_wrong() -> None:
    with pytest.raises(InfeasibleError, match="genetic found no placement"):
        placer.solve(layers(), "h100", solver="genetic", memory_limits={"CPU:0": 100, "GPU:0": 100})


def device_of(name: str, problem: PlacementProblem) -> list[int]:
    solution = solver(name).solve(problem, "step_time")
    assert solution.status is Status.FEASIBLE
    assert solution.assignment is not None
    return [int(d) for d in solution.assignment.device]
