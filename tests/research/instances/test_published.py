"""Published instances by name: found in a folder of data, solved, compared and priced by the package."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placer
from placer.command.main import main
from placer.errors import OptionError
from placer.problem.problem import PlacementProblem
from placer.research.instances.instance import Instance
from placer.research.instances.published import published
from placer.research.instances.solvers import InstanceSolution, InstanceSolver
from placer.research.splits.problem import SplitProblem
from placer.solvers.base import Status
from tests.helpers.pairwise import random_pairwise
from tests.helpers.splits import least_latency_ns, least_max_load_ns, random_split

WORKLOAD = {
    "maxSizePerFPGA": 10.0,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {"id": i, "supportedOnFpga": 1, "cpuLatency": 20.0 + i, "fpgaLatency": 2.0, "size": 4.0, "colorClass": None}
        for i in range(4)
    ],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.5, "size": 1.0} for i in range(3)],
}
CONTEST = {
    "problem": {
        "name": "tiny",
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[5, 1], [2, 7]], "usages": [[1, 9], [1, 1]]},
        "edges": {"nodes": [[0, 1]], "costs": [[0, 3, 4, 0]]},
        "usage_limit": 5,
    }
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as the publications have it."""
    files = {
        "dnn/throughput-inputs/OperatorGraphs/bert.json": WORKLOAD,
        "dnn/throughput-inputs/LayerGraphs/bert.json": WORKLOAD,
        "dnn/throughput-inputs/LayerGraphs/gnmt.json": WORKLOAD,
        "dnn/latency-inputs/LayerGraphs/gnmt.json": WORKLOAD,
        "contest/asplos-2025-iopddl-Z.json": CONTEST,
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return tmp_path


def test_a_name_finds_its_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(published("dnn-partitioning:gnmt", data), PlacementProblem)
    found = {name: published(name, data) for name in ("maxload:Operator/bert", "latency:gnmt", "iopddl:Z")}
    assert [getattr(each, "objective", None) for each in found.values()] == ["max_load", "latency", "cost"]
    monkeypatch.setenv("PLACER_DATA", str(data))
    assert isinstance(published("iopddl:z"), Instance)


def test_a_name_without_data_says_where_to_get_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACER_DATA", raising=False)
    for given, name, message in (
        (None, "iopddl:B", "--data FOLDER.*PLACER_DATA.*github.com/google/iopddl"),
        (data / "nowhere", "maxload:gnmt", "no folder.*git clone"),
        (data / "contest", "latency:gnmt", "has no files.*git clone"),
        (data, "maxload:gnmtt", "no instance 'maxload:gnmtt'.*Layer/gnmt"),
        (data, "maxload:bert", "maxload:Layer/bert and maxload:Operator/bert"),
    ):
        with pytest.raises(OptionError, match=message):
            published(name, given)


def all_on_the_first_cpu(problem: SplitProblem) -> Any:
    """All on the first CPU."""
    return np.full(problem.units, problem.accelerators)


def drawn(problem: SplitProblem, rng: np.random.Generator) -> Any:
    """At random."""
    return rng.integers(problem.devices, size=problem.units)


def boast(problem: SplitProblem, time_limit_s: float, seed: int) -> InstanceSolution:
    return InstanceSolution(all_on_the_first_cpu(problem), Status.OPTIMAL, 1, 1, "I say so")


def test_the_arena_compares_instances_and_trusts_no_solver() -> None:
    split, pairwise = random_split(3), random_pairwise(1, room=1.0)
    boaster = InstanceSolver("boast", "max_load", boast, "none")
    load = runs(Instance(split, "max_load"), ["max_load", "heft", "latency", all_on_the_first_cpu, drawn, boaster])
    assert load["max_load"]["objective_ns"] == least_max_load_ns(split)
    assert load["heft"]["outcome"] == load["latency"]["outcome"] == "declined"
    assert load["boast"]["note"].startswith("claims 1 ns")
    assert load["all_on_the_first_cpu"]["objective_ns"] == split.unit_time_ns[:, 0].sum()
    assert load["drawn"]["outcome"] in {"answered", "failed"}  # it may put a unit where it may not be
    assert runs(Instance(split, "latency"), ["latency"])["latency"]["objective_ns"] == least_latency_ns(split)
    assert runs(Instance(pairwise, "cost"), ["pairwise"])["pairwise"]["status"] == "OPTIMAL"


def runs(instance: Instance, solvers: Any) -> dict[str, dict[str, Any]]:
    """By solver, the record of its run. The tables can be written."""
    comparison = placer.arena({"it": instance}, solvers, time_limits_s=[5.0], jobs=2)
    assert f"{instance.objective.replace('_', ' ')}" in comparison.table()
    assert comparison.summary()
    return {record["solver"]: record for record in comparison.records}


def test_every_registered_solver_of_a_kind_runs_by_default(data: Path) -> None:
    comparison = placer.arena(["latency:gnmt"], time_limits_s=[0.2], data=data, jobs=2)
    assert {(r["solver"], r["outcome"]) for r in comparison.records} == {("latency", "answered"), ("latency_cp_sat", "answered")}


def test_solve_and_compare_read_the_same_targets(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stg = tmp_path / "chain.stg"
    stg.write_text("2\n1 5 0\n2 7 1 1\n")
    targets = [f"{stg},processors=2", "family:chain,ops=5", "dnn-partitioning:gnmt", "maxload:gnmt", "iopddl:Z"]
    common = ["--data", str(data)]
    solved = {}
    for target, out in zip(targets, itertools.count(), strict=False):
        assert main(["solve", target, *common, "--time-limit-s", "0.1", "--json", "--out", str(tmp_path / f"{out}.json")]) == 0
        solved[target] = json.loads(capsys.readouterr().out)
        saved = json.loads((tmp_path / f"{out}.json").read_text())
        assert saved["record"] == solved[target]
    assert solved[targets[0]]["step_time_ns"] == 12
    assert solved["iopddl:Z"]["objective_ns"] == 5 + 2  # the cheaper choice of the first node does not fit in memory
    assert main(["compare", *targets[:2], "--solvers", "auto", "--time-limits-s", "0.1", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert [record["objective_ns"] for record in records] == [solved[target]["objective_ns"] for target in targets[:2]]


def test_a_converted_graph_is_a_problem_and_what_is_lost_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, lossy = tmp_path / "detector.npz", tmp_path / "detector.graphml"
    assert main(["convert", "shipped:detector", str(whole)]) == 0
    assert "holds all of it" in capsys.readouterr().out
    assert main(["convert", str(whole), str(lossy)]) == 0
    assert "tensors.on_host" in capsys.readouterr().out
    assert main(["solve", str(lossy), "--solver", "greedy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ops"] == 163


def test_what_does_not_apply_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["solve", "family:chain", "--pins", "a=CPU:0"], "pins is for graphs"),
        (["solve", "maxload:gnmt", "--solver", "heft", "--data", str(data)], "it solves placement problems only"),
        (["solve", "maxload:gnmt", "--effort", "9", "--data", str(data)], "give a time limit"),
        (["solve", "maxload:gnmt", "--solver", "m:f", "--data", str(data)], "No module named 'm'"),
        (["solve", "family:chain", "--solver", "max_load"], "it does not solve placement problems"),
        (["compare", "maxload:gnmt", "--memory-share", "0.5", "--data", str(data)], "memory_share is for placement problems"),
        (["convert", "family:chain", "chain.txt"], "must end in one of"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
