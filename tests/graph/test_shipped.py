"""The op graphs that come with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import placer
from cost_models.machine_files import shipped_machines
from placer.errors import OptionError
from placer.graph import shipped
from placer.graph.shipped import ENDING, shipped_graph, shipped_graphs
from placer.problem.memory import excess, peaks
from placer.problem.validate import validate
from placer.research.arena.problems import problem_of, with_memory_share
from placer.research.formats.problem_file import fingerprint
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.one_kind import all_on

FOLDER = Path(shipped.__file__).parent / shipped.FOLDER


@pytest.mark.parametrize("name", shipped_graphs())
def test_a_shipped_graph_is_small_and_a_problem_with_everything_that_is_special_here(name: str) -> None:
    graph = shipped_graph(name)
    assert graph.name == name
    assert FOLDER.joinpath(name + ENDING).stat().st_size < 100_000
    problem = problem_of(f"shipped:{name}", {})
    assert problem.devices.names == ("CPU:0", "GPU:0")
    assert problem.tensors.on_host.any()
    assert problem.consumers.on_host.any()
    assert 0 < (problem.units.allowed.sum(axis=1) > 1).sum() < problem.num_units
    if loops := [op for op in graph if op.role == "loop"]:
        assert max(op.count for op in loops) > 1
    tight = with_memory_share(problem, 0.5)
    free = minimum_cut(problem).assignment
    assert excess(tight, free)[1] > 0
    assert validate(tight, all_on(problem, "CPU")).ok
    assert peaks(problem, all_on(problem, "CPU"))[1] <= tight.devices.memory_limit_bytes[1] < peaks(problem, free)[1]


@pytest.mark.parametrize("name", shipped_graphs())
def test_a_graph_costs_the_same_as_a_target_and_as_an_object(name: str) -> None:
    graph = shipped_graph(name)
    for machine in shipped_machines():
        given = {"devices": machine}
        assert fingerprint(problem_of(f"shipped:{name}", given)) == fingerprint(problem_of(graph, given))


def test_loops_are_among_them() -> None:
    assert {name for name in shipped_graphs() if shipped_graph(name).rounds} >= {"lstm_then_wide", "decoding"}


def test_their_page_lists_them_with_their_sizes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", FOLDER.joinpath("README.md").read_text(), re.MULTILINE)
    what, costs = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert [name for name, _ in what] == [name for name, _ in costs]
    assert sorted((name, int(ops)) for name, ops in costs) == [(name, len(shipped_graph(name))) for name in shipped_graphs()]


def test_a_shipped_graph_is_a_target_like_others() -> None:
    name = shipped_graphs()[0]
    assert fingerprint(problem_of(f"shipped:{name}", {"devices": "2xh100"})) != fingerprint(problem_of(f"shipped:{name}", {}))
    assert placer.solve(shipped_graph(name), "h100", objective="total_cost").status == "OPTIMAL"
    with pytest.raises(OptionError, match=name):
        problem_of("shipped:nothing", {})
