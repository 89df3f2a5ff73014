"""List schedules of task graphs on processors of different speeds, without contention."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import simulate
from placer.research.instances.task_graphs import task_graph
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.registry import solver
from tests.helpers.changed import changed
from tests.helpers.task_graphs import TaskGraph, task_graphs, tiny_task_graphs

SAGA = json.loads((Path(__file__).parents[2] / "data" / "saga.json").read_text())
"""Makespans in ns that the schedulers of the package SAGA give, by `tests.benchmarks.record_saga`."""
AS_IT_IS, CORRECTED = SAGA["as it is"], SAGA["corrected"]
GRAPHS = task_graphs(100)
PAGE = (Path(__file__).parents[3] / "docs" / "solvers.md").read_text()


def scheduler(name: str) -> Callable[[PlacementProblem], Schedule]:
    """The list scheduler of a heuristic; WBA takes the first of the pairs that it could draw."""
    function: Callable[..., Schedule] = getattr(import_module(f"placer.solvers.heuristics.{name}"), f"{name}_schedule")
    return partial(function, width=0.5, draw=lambda _: 0) if name == "wba" else function


@pytest.mark.parametrize("name", [name for name in AS_IT_IS if name != "brute_force"])
def test_list_schedules_are_as_long_as_those_of_saga(name: str) -> None:
    makespans = [scheduler(name)(graph.problem).makespan_ns for graph in GRAPHS]
    assert makespans == CORRECTED.get(name, AS_IT_IS[name])


def test_brute_force_is_no_better_than_that_of_saga_which_tries_all_orders_too() -> None:
    step_ns = [solver("brute_force").solve(graph.problem, "step_time").objective_ns for graph in tiny_task_graphs(100)]
    assert all(own >= least for own, least in zip(step_ns, AS_IT_IS["brute_force"], strict=True))
    assert f"has the makespan of SAGA's brute force for {same(step_ns, AS_IT_IS['brute_force'])}." in PAGE


def test_the_page_says_for_how_many_graphs_saga_gives_the_same_as_it_is() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d+) \|", PAGE, re.MULTILINE)
    told = {name: int(count) for names, count in rows for name in re.findall(r"\w+", names)}
    assert told == {name: same(CORRECTED.get(name, found), found) for name, found in AS_IT_IS.items() if name != "brute_force"}


def same(some: list[int], others: list[int]) -> int:
    return sum(a == b for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("name", [name for name in AS_IT_IS if name != "brute_force"])
def test_the_execution_model_takes_as_long_as_a_list_schedule_whose_order_it_must_keep(name: str) -> None:
    for graph in GRAPHS[list(AS_IT_IS).index(name) :: 20]:
        schedule = scheduler(name)(graph.problem)
        problem, assignment = in_order(graph, schedule)
        assert simulate(problem, assignment).step_ns == schedule.makespan_ns


def in_order(graph: TaskGraph, schedule: Schedule) -> tuple[PlacementProblem, Assignment]:
    """The problem with a control edge from each op to the next one on its device, its ops in the order of their starts."""
    order = np.argsort(schedule.start)
    number, device = np.argsort(order), schedule.assignment.device[order]
    edges = tuple((int(number[a]), int(number[b]), nbytes) for a, b, nbytes in graph.edges)
    follows = [pair for d in range(len(graph.speed)) for pair in pairwise(np.flatnonzero(device == d).tolist())]
    problem = replace(graph, work=graph.work[order], edges=edges).problem
    control = {"ops_control_src": np.array([a for a, _ in follows]), "ops_control_dst": np.array([b for _, b in follows])}
    return changed(problem, **control), Assignment(device)


def test_the_makespan_on_the_page_is_the_one_that_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    program = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = [text for text in program if "gdl_schedule" in text]
    exec(found, {})
    assert f"# {capsys.readouterr().out.strip()}\n" in found


@pytest.mark.parametrize(("shape", "ccr"), [("out_trees", 4.0), ("train", 1.0), ("predict", 1.0)])
def test_no_list_schedule_has_a_shorter_step_than_the_search(shape: str, ccr: float) -> None:
    problem = task_graph(shape, ops=40, ccr=ccr, seed=7)
    step_ns = solver("step_time").solve(problem, "step_time").objective_ns
    for name in AS_IT_IS:
        if not solver(name).unsupported(problem, "step_time"):
            assert step_ns <= solver(name).solve(problem, "step_time").objective_ns
