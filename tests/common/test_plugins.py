"""Solvers, cost models and views that another package registers: those that work are used, the others are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cost_models.registry
import placer.plan.views
import placer.solvers.registry
from placer import OptionError, solve
from placer.command.main import main
from placer.graph.shipped import shipped_graph

MODULE = """
from cost_models import OpCost
from placer.problem.problem import Assignment
from placer.solvers.heuristic import Heuristic

class Price:
    name = "works"
    def op_cost(self, signature, device):
        return OpCost(1000, 1000, 0, 0, "analytic")

def solver():
    return Heuristic("works", lambda problem: Assignment(problem.units.allowed.argmax(axis=1)), source="this test")

def view(placement):
    return f"{len(placement.ops)} ops"

def number(*placement):
    return 3

def fails():
    raise RuntimeError("no licence")
"""
WORKS = {"solvers": "solver", "cost_models": "Price", "views": "view"}
BROKEN = {"no_module": "missing_plugin:x", "no_name": "a_plugin:missing", "number": "a_plugin:number"}
KINDS = tuple(WORKS)


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with one working and several broken entry points of each kind."""
    (tmp_path / "a_plugin.py").write_text(MODULE)
    info = tmp_path / "a_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n")
    groups = {kind: {"works": f"a_plugin:{name}", "fails": "a_plugin:fails", **BROKEN} for kind, name in WORKS.items()}
    (info / "entry_points.txt").write_text(
        "\n".join(f"[placer.{kind}]\n" + "\n".join(f"{k} = {v}" for k, v in entries.items()) for kind, entries in groups.items())
    )
    caches: tuple[Callable[[], None], ...] = (
        placer.solvers.registry.solvers.cache_clear,
        placer.plan.views.views.cache_clear,
        cost_models.registry._entries.cache_clear,
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for clear in caches:
        clear()
    yield
    for clear in caches:
        clear()


def use(kind: str, name: str) -> object:
    """Solves with the solver or the cost model of that name, or draws the view."""
    if kind == "solvers":
        return solve(shipped_graph("detector"), "h100", solver=name)
    if kind == "cost_models":
        return solve(shipped_graph("detector"), "h100", solver="greedy", cost_model=name)
    return solve(shipped_graph("detector"), "h100", solver="greedy").view(name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_package_registers_is_used(kind: str) -> None:
    assert use(kind, "works")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_used_is_refused_by_its_name(kind: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}'|'a_plugin:{name}'"):
        use(kind, name)


@pytest.mark.parametrize("kind", ["solvers", "cost_models"])
def test_the_error_of_a_factory_is_in_the_message(kind: str) -> None:
    with pytest.raises(OptionError, match=r"'fails' of the package a-plugin .*RuntimeError: no licence"):
        use(kind, "fails")


def test_a_broken_solver_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers", "--json"]) == 0
    sources = json.loads(capsys.readouterr().out)
    assert sources["works"] == "this test"
    assert "missing_plugin" in sources["no_module"]
    assert "Topcuoglu" in sources["heft"]
