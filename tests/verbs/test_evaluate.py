"""Problems and the price of assignments, as a researcher gets them: without a solver and without TensorFlow."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placer
from placer.errors import OptionError, PlacerError, PlanError
from placer.problem.memory import peaks
from placer.problem.price import total_cost_ns
from placer.problem.schedule import Simulator
from placer.research.formats.problem_file import fingerprint
from placer.research.instances.families import synthetic
from placer.verbs import evaluate as evaluate_module
from placer.verbs import problem as problem_module
from placer.verbs.solve import solved
from tests.helpers.graphs import layers
from tests.helpers.random_problems import problems
from tests.helpers.solvers_that_fail import halve_times
from tests.test_docs import ROOT, code, run
from tests.test_import import in_a_new_process

SMALL = synthetic("layered", ops=24, gpus=2, memory=0.5)


@given(problems(), st.integers(0, 9))
@settings(max_examples=30)
def test_an_evaluation_is_what_the_execution_model_says(problem: placer.PlacementProblem, seed: int) -> None:
    priority = np.random.default_rng(seed).random(problem.units.allowed.shape)
    chosen = placer.Assignment(np.where(problem.units.allowed, priority, -1).argmax(axis=1))
    found = placer.evaluate(problem, chosen)
    assert found.step_time_ns == Simulator(problem).step_ns(chosen)
    assert found.total_cost_ns == total_cost_ns(problem, chosen)
    assert list(found.peak_bytes.values()) == peaks(problem, chosen).tolist()
    limits = problem.devices.memory_limit_bytes
    assert found.feasible == ((limits < 0) | (peaks(problem, chosen) <= limits)).all()
    work = problem.unit_time_ns[np.arange(problem.num_units), chosen.device].sum()
    assert sum(crossing.time_ns for crossing in found.crossings) == found.total_cost_ns - work
    assert found.schedule.end_ns.max() <= found.step_time_ns


def test_a_problem_is_the_one_that_solve_solves_and_a_plan_is_evaluated_as_it_says() -> None:
    graph = layers()
    given: dict[str, Any] = {"memory_limits": {"GPU:0": "8MiB"}, "pins": {"layer0/*": "CPU:0"}, "share": 0.5}
    planned = solved(graph, "h100", **given)
    problem = placer.problem(graph, "h100", **given)
    assert fingerprint(problem) == fingerprint(planned.problem)
    assert planned.solution.assignment is not None
    found = placer.evaluate(problem, planned.solution.assignment)
    assert (found.step_time_ns, found.total_cost_ns) == (planned.placement.step_time_ns, planned.placement.total_cost_ns)
    assert {crossing.tensor for crossing in found.crossings} == {transfer.tensor for transfer in planned.placement.transfers}


def test_what_is_no_graph_or_no_assignment_is_said() -> None:
    first = SMALL.units.allowed.argmax(axis=1)
    for wrong, message in [
        (first[1:], "one of shape"),
        (first + 0.5, "float64"),
        ("0 1 x", "a device number for each unit"),
        (np.full(len(first), 7), "on device 7"),
        (None, "object"),
    ]:
        with pytest.raises(OptionError, match=message):
            placer.evaluate(SMALL, wrong)
    with pytest.raises(OptionError, match="makes one"):
        placer.evaluate(layers(), first)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="is no graph"):
        placer.problem(5)
    with pytest.raises(OptionError, match="unknown option 'memory_limit'"):
        placer.problem(layers(), "h100", memory_limit=1)


def test_no_solver_wins_by_writing_into_the_problem() -> None:
    with pytest.raises(PlacerError, match="ns for a plan of"):
        placer.solve(layers(), "h100", solver=halve_times)


def test_the_chart_has_a_row_for_each_device_and_link_in_use_and_names_each_op(tmp_path: Path) -> None:
    chosen = np.where(SMALL.units.allowed, np.arange(3) * (np.arange(SMALL.num_units) % 2)[:, None], -1).argmax(axis=1)
    found = placer.evaluate(SMALL, chosen)
    chart = found.plot(tmp_path / "chart.svg", width=4000)
    assert (tmp_path / "chart.svg").read_text() == chart == chart._repr_svg_()
    drawn = ElementTree.fromstring(chart)
    texts = [element.text or "" for element in drawn.iter() if element.tag.endswith("}text")]
    crossed = {f"{crossing.src} to {crossing.dst}" for crossing in found.crossings if crossing.src != crossing.dst}
    assert crossed <= set(texts)
    assert {f"{SMALL.devices.names[d]} thread" for d in set(chosen) if SMALL.devices.kinds[d] == "CPU"} <= set(texts)
    tips = " ".join(element.text or "" for element in drawn.iter() if element.tag.endswith("}title"))
    long = np.flatnonzero(found.schedule.end_ns - found.schedule.start_ns > 1_000)
    assert all(SMALL.ops.names[op] in tips for op in long)
    with pytest.raises(PlanError, match="cannot be written"):
        found.plot(tmp_path / "no" / "chart.svg")


@pytest.mark.parametrize("module", [evaluate_module, problem_module])
def test_the_examples_of_the_docstrings_hold(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 2) == (0, True)


def test_the_program_on_the_page_of_problems_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(code((ROOT / "docs" / "problems.md").read_text(), "python"), tmp_path)
    assert names["found"].feasible
    assert (tmp_path / "fastest.svg").exists()


def test_problems_are_made_and_evaluated_without_tensorflow(tmp_path: Path) -> None:
    layers().save(tmp_path / "graph.json")
    program = """
import sys, placer
problem = placer.problem(sys.argv[1], "h100")
found = placer.evaluate(problem, problem.units.allowed.argmax(axis=1))
found.plot(sys.argv[2])
from placer import problem as package
assert package(sys.argv[1], "h100").num_ops == package.problem.PlacementProblem.num_ops.fget(problem) == problem.num_ops
print([name for name in ("tensorflow", "keras", "matplotlib") if name in sys.modules])
"""
    assert in_a_new_process(program, str(tmp_path / "graph.json"), str(tmp_path / "chart.svg")).strip() == "[]"
