"""What importing placer loads, and what works where TensorFlow is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import placer
from tests.helpers.graphs import layers


def in_a_new_process(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["placer", "placer.command.main"])
def test_importing_placer_or_its_command_loads_none_of_the_big_packages(module: str) -> None:
    heavy = ("tensorflow", "keras", "ortools", "networkx", "numpy", "matplotlib")
    code = f"import sys, {module}; print([name for name in sys.argv[1:] if name in sys.modules])"
    assert in_a_new_process(code, *heavy).strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in placer.__all__:
        assert getattr(placer, name).__name__.removeprefix("placer.") == name
    assert set(placer.__all__) <= set(dir(placer))
    assert not hasattr(placer, "no_such_name")


WITHOUT_TENSORFLOW = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from placer.command.main import main
graph, plan = sys.argv[1:]
for solver in ("min_cut", "greedy", "auto"):
    assert main(["solve", graph, "--devices", "h100", "--objective", "total_cost", "--solver", solver, "--out", plan]) == 0
assert main(["show", plan, "--explain", "layer1/MatMul"]) == 0
assert main(["show", plan, "--view", "dot"]) == 0
assert main(["solve", graph]) == 2
"""


def test_a_saved_graph_is_solved_and_shown_without_tensorflow(tmp_path: Path) -> None:
    layers().save(tmp_path / "graph.json")
    shown = in_a_new_process(WITHOUT_TENSORFLOW, str(tmp_path / "graph.json"), str(tmp_path / "plan.json"))
    assert "layer1/MatMul" in shown
    assert "digraph" in shown
