"""The arena: every run becomes a record, whatever the solver does, once."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placer
from placer.command.main import main
from placer.errors import OptionError, PlanError
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.research.arena import arena as arena_module
from placer.research.arena import solver_code as code
from placer.research.arena.records import KEY
from placer.research.instances.families import synthetic
from placer.solvers.base import Solution
from placer.solvers.registry import solver
from placer.solvers.run import run
from tests.helpers.graphs import layers
from tests.helpers.solvers_that_fail import Failing, drawn, first_allowed, without_tensorflow

SMALL = synthetic("layered", ops=24, memory=0.5)


def outcomes(problems: Any, solvers: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """By solver, the record of its only run."""
    comparison = placer.arena(problems, solvers, jobs=2, **{"time_limits_s": [0.2]} | options)
    return {record["solver"]: record for record in comparison.records}


def test_a_record_tells_what_the_solver_found() -> None:
    options: dict[str, Any] = {"objective": "total_cost", "seeds": [3], "efforts": [500], "time_limits_s": None}
    records = outcomes({"small": SMALL}, ["annealing", "m_etf", "greedy_benefit"], **options)
    for name, record in records.items():
        solution = run(solver(name), SMALL, "total_cost", effort=record["effort"], seed=record["seed"])
        assert isinstance(solution, Solution)
        assert solution.assignment is not None
        report = validate(SMALL, solution.assignment)
        assert (record["objective_ns"], record["total_cost_ns"]) == (solution.objective_ns, report.total_cost_ns)
        assert record["step_time_ns"] == Simulator(SMALL).step_ns(solution.assignment)
        assert record["lower_bound_ns"] == solution.lower_bound_ns
        assert record["status"] == solution.status
        assert [record[f"peak_bytes.{device}"] for device in SMALL.devices.names] == list(report.peak_bytes)
        assert record["limit_bytes.GPU:0"] == SMALL.devices.memory_limit_bytes[1]
        assert record["feasible"] is True
        assert placer.evaluate(SMALL, record["assignment"]).assignment.device.tolist() == solution.assignment.device.tolist()
        assert record.keys() >= {*KEY}
        assert all(isinstance(value, str | int | float) for value in record.values())


def test_what_goes_wrong_is_a_record_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "MIN_GRACE_S", 3.0)
    wrong = {
        "declines": ("declined", "it never wants to"),
        "raises": ("failed", "KeyError: 'what is missing' (solvers_that_fail.py, line"),
        "dies": ("crashed", "SIGABRT"),
        "exits": ("crashed", "exit code 3"),
        "hangs": ("overran", "over its time limit of 0.2 s"),
        "returns nothing": ("failed", "returned None"),
        "leaves the devices": ("failed", "may be on"),
        "claims a bound": ("failed", "claims a lower bound of"),
        "claims less": ("failed", "claims 1 ns where its placement takes"),
        "writes into the problem": ("failed", "where its placement takes"),
        "overfills": ("failed", "claims FEASIBLE, but GPU:0 holds"),
    }
    records = outcomes({"small": SMALL}, [*map(Failing, wrong), first_allowed])
    for name, (outcome, note) in wrong.items():
        assert records[name]["outcome"] == outcome
        assert note in records[name]["note"]
    assert records["first_allowed"]["outcome"] == "answered"


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    counted, results = tmp_path / "ran", tmp_path / "results.jsonl"

    def run(problem: PlacementProblem, seeds: list[int], limit: float = 1.0) -> placer.Comparison:
        mine = Failing("works", ran=str(counted))
        return placer.arena({"p": problem}, [mine], seeds=seeds, time_limits_s=[limit], results=results, jobs=1)

    def runs() -> int:
        return counted.read_text().count("ran")

    first = run(SMALL, [0, 1])
    assert runs() == 2
    assert run(SMALL, [0, 1]).records == first.records == placer.Comparison.load(results).records
    assert runs() == 2
    run(SMALL, [0, 1, 2])
    assert runs() == 3
    run(SMALL, [0], limit=2.0)
    assert runs() == 4
    run(synthetic("layered", ops=24, memory=0.6), [0])
    assert runs() == 5

    text = results.read_text()
    results.write_text(text[: -len(text.splitlines()[-1]) // 2])  # the last line was not written whole
    assert len(placer.Comparison.load(results).records) == 4
    run(synthetic("layered", ops=24, memory=0.6), [0])
    assert runs() == 6
    assert results.read_text().splitlines()[:-1] == text.splitlines()[:-1]


def test_a_run_is_known_by_all_the_code_that_its_solver_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "site-packages/bought/__init__": "import whatever_it_needs",
        "site-packages/bought-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: bought\nVersion: 1\n",
        "site-packages/bought-1.dist-info/top_level.txt": "bought\n",
        "mine/__init__": "from . import always",
        "mine/always": "",
        "mine/rule": "import bought.parts\nfrom .below import deep as it\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import mine.apart\n\ndef rule(problem):\n    from importlib import import_module\n"
        "    import_module('mine.plugin')\n    import placer\n    return placer.evaluate\n",
        "mine/plugin": "",
        "mine/below/deep": "from ..deeper import VALUE",
        "mine/deeper": "import mine.rule, json",
        "mine/apart": "",
    }

    def path(name: str) -> Path:
        return tmp_path / (name if "dist-info" in name else f"{name}.py")

    for name, text in sources.items():
        path(name).parent.mkdir(parents=True, exist_ok=True)
        path(name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "site-packages"), *sys.path])
    rule = types.ModuleType("mine.rule")
    rule.__file__ = str(path("mine/rule"))
    monkeypatch.setitem(sys.modules, "mine.rule", rule)
    code._installed.cache_clear()
    seen = [code.digest(["mine.rule"])]
    for name in ("mine/apart", "site-packages/bought/__init__"):
        path(name).write_text("changed = True\n")
        assert code.digest(["mine.rule"]) == seen[0]
    for name in ("mine/deeper", "mine/below/deep", "mine/plugin", "mine/always", "mine/rule", "mine/__init__"):
        path(name).write_text(path(name).read_text() + "\nchanged = True\n")
        seen.append(code.digest(["mine.rule"]))
    (tmp_path / "site-packages" / "bought-1.dist-info").rename(tmp_path / "site-packages" / "bought-2.dist-info")
    metadata = tmp_path / "site-packages" / "bought-2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1", "Version: 2"))
    seen.append(code.digest(["mine.rule"]))
    evaluated = Path(sys.modules["placer.verbs.evaluate"].__file__ or "")
    monkeypatch.setattr(Path, "read_bytes", lambda file, read=Path.read_bytes: read(file) + b"\n" * (file == evaluated))
    seen.append(code.digest(["mine.rule"]))
    code._installed.cache_clear()
    assert len({*seen}) == len(seen) == 9


def test_rules_run_once_whatever_the_seeds_unless_they_draw() -> None:
    comparison = placer.arena({"small": SMALL}, ["m_etf", "random", drawn], seeds=[0, 1], time_limits_s=[0.2])
    assert sorted((record["solver"], record["seed"]) for record in comparison.records) == [
        ("drawn", 0),
        ("drawn", 1),
        ("m_etf", 0),
        ("random", 0),
        ("random", 1),
    ]
    for record in comparison.records:
        if record["solver"] == "drawn":
            expected = drawn(SMALL, np.random.default_rng(record["seed"]))
            assert record["step_time_ns"] == Simulator(SMALL).step_ns(expected)


def test_runs_on_a_saved_graph_load_no_tensorflow(tmp_path: Path) -> None:
    layers().save(tmp_path / "graph.json")
    record = outcomes([str(tmp_path / "graph.json")], [without_tensorflow], devices="h100")["without_tensorflow"]
    assert record["outcome"] == "answered", record["note"]
    assert record["devices"] == "CPU:0 GPU:0"


SCRIPT = """
import sys
import placer
from placer.problem.problem import Assignment

def run(problem):  # a name that others use too
    return Assignment(problem.units.allowed.argmax(axis=1))

def main():
    comparison = placer.arena(["family:chain,ops=12"], [run], time_limits_s=[1])
    print([(r["solver"], r["outcome"], r["note"]) for r in comparison.records])

if GUARD:
    main()
"""


@pytest.mark.parametrize(("guard", "output"), [('__name__ == "__main__"', "('run', 'answered'"), ("True", "call arena under if")])
def test_a_solver_may_be_defined_in_the_program_itself(guard: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT.replace("GUARD", guard))
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=True)
    assert output in done.stdout


def test_what_cannot_be_compared_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(json.dumps({"format": "something else"}) + "\n")
    for message, error, problems, solvers, options in [
        ("no solver 'magic'", OptionError, {"p": SMALL}, ["magic"], {}),
        ("at least one element", OptionError, {"p": SMALL}, [], {}),
        ("at least one element", OptionError, {"p": SMALL}, "auto", {}),
        ("no problem to compare on", OptionError, [], None, {}),
        ("is a text", OptionError, "family:chain", None, {}),
        ("5 is not a problem", OptionError, {"p": 5}, None, {}),
        ("'star'", OptionError, ["family:star"], None, {}),
        ("'ops=x' is not KEY=NUMBER", OptionError, ["family:chain,ops=x"], None, {}),
        ("'opps=3' is not KEY=NUMBER", OptionError, ["family:chain,opps=3"], None, {}),
        ("needs 2 names and has 1", OptionError, ["adversarial:heft"], None, {}),
        ("no solver 'magic'", OptionError, ["adversarial:heft,magic"], None, {}),
        ("memory_share=2", OptionError, {"p": SMALL}, None, {"memory_share": 2}),
        ("give one", OptionError, {"p": SMALL}, None, {"memory_share": 0.5, "memory_limits": {"GPU:0": 1}}),
        ("with an accelerator", OptionError, {"p": layers()}, None, {"memory_share": 0.5, "devices": "cpu2"}),
        ("seed=-1", OptionError, {"p": SMALL}, None, {"seeds": [-1]}),
        ("time_limits_s=0", OptionError, {"p": SMALL}, None, {"time_limits_s": [0]}),
        ("efforts=0.5", OptionError, {"p": SMALL}, None, {"efforts": [0.5]}),
        (r"no target 'famly:chain'; did you mean family:\? A target is .*\.npz", OptionError, ["famly:chain"], None, {}),
        ("no target 'detector'.*shipped:NAME.*iopddl:B", OptionError, ["detector"], None, {}),
        ("family:chain need none", OptionError, ["family:chain"], None, {"signature": "float32[8]"}),
        ("'no_module:rule'.* cannot be loaded", OptionError, {"p": SMALL}, ["no_module:rule"], {}),
        ("jobs=0", OptionError, {"p": SMALL}, None, {"jobs": 0}),
        ("is for one run", OptionError, {"p": SMALL}, None, {"seed": 1}),
        ("top level of a module", OptionError, {"p": SMALL}, [lambda problem: Assignment(problem.ops.unit)], {}),
        ("not a placer.arena file", PlanError, {"p": SMALL}, ["all_cpu"], {"results": tmp_path / "other.jsonl"}),
        ("cannot be written", PlanError, {"p": SMALL}, ["all_cpu"], {"results": tmp_path / "no" / "folder"}),
    ]:
        with pytest.raises(error, match=message):
            placer.arena(problems, solvers, **{"results": tmp_path / "never.jsonl"} | options)
    assert not (tmp_path / "never.jsonl").exists()


def test_a_limit_by_effort_is_a_run_of_its_own_and_the_same_again() -> None:
    options: dict[str, Any] = {"seeds": [4], "time_limits_s": [0.2], "efforts": [50, 300], "jobs": 2}
    first, again = (placer.arena({"small": SMALL}, ["annealing"], **options) for _ in range(2))
    limits = [(record.get("time_limit_s"), record.get("effort")) for record in first.records]
    assert limits == [(0.2, None), (None, 50), (None, 300)]
    for one, other in zip(first.records[1:], again.records[1:], strict=True):
        assert (one["assignment"], one["objective_ns"], one["note"]) == (
            other["assignment"],
            other["objective_ns"],
            other["note"],
        )
    assert "annealing 300 evaluations" in first.table()


MINE = """
import tensorflow as tf
from placer.problem.problem import Assignment
from placer.solvers.exact.min_cut import MinCut

def rule(problem):
    return Assignment(problem.units.allowed.argmax(axis=1))

def maker():
    return MinCut()

step = tf.function(lambda x: x @ x)
"""


def test_solvers_and_typed_targets_are_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_in_here.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    targets = ["shipped:detector", "mine_in_here:step"]
    options = ["--signature", "float32[8,8]", "--devices", "h100", "--objective", "total_cost", "--efforts", "10", "--json"]
    assert main(["compare", *targets, "--solvers", "mine_in_here:rule,mine_in_here:maker", *options]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert [(record["problem"], record["solver"], record["outcome"]) for record in records] == [
        (target, name, "answered") for target in targets for name in ("rule", "min_cut")
    ]
    assert main(["solve", "shipped:detector", "--solver", "mine_in_here:rule", "--json"]) == 0
