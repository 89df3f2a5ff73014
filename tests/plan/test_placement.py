"""From a graph to a plan: that it adds up, says why, survives the disk, and that what cannot be is refused in words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placer
from cost_models.base import TensorSpec
from placer.errors import InfeasibleError, OptionError, PlanError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.placement import Placement
from placer.problem.price import move_costs_ns, total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import MIN_GAIN
from placer.verbs.solve import solve
from tests.helpers.graphs import CPU_ONLY, GraphBuilder, floats, layers, loop_then_wide, towers
from tests.helpers.random_problems import problems, random_assignment


@pytest.fixture(scope="module")
def plan() -> Placement:
    return solve(loop_then_wide(), "h100", objective="total_cost")


@given(problems(), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_moving_one_unit_changes_the_cost_as_said(problem: PlacementProblem, seed: int) -> None:
    here = random_assignment(problem, seed)
    moves, base = move_costs_ns(problem, here), total_cost_ns(problem, here)
    for unit, device in np.argwhere(problem.units.allowed).tolist():
        there = here.device.copy()
        there[unit] = device
        now, then = (unit, here.device[unit]), (unit, device)
        said = problem.unit_time_ns[then] - problem.unit_time_ns[now] + moves[then] - moves[now]
        assert total_cost_ns(problem, Assignment(there)) - base == said


def test_the_loop_stays_with_the_host_and_the_layers_go(plan: Placement) -> None:
    assert {plan.device_of(op.name) for op in plan.graph if op.body} == {"CPU:0"}
    assert {plan.device_of(f"wide{k}/MatMul") for k in range(4)} == {"GPU:0"}
    assert plan.why("wide0/MatMul").kind == "cost"
    assert plan.why("wide0/ReadVariableOp").kind == "resource"
    assert plan.why("batch").kind == "location"


@pytest.mark.parametrize("objective", ["total_cost", "step_time"])
@pytest.mark.parametrize("graph", [layers(), loop_then_wide(), towers()], ids=lambda g: g.name)
def test_figures_add_up(graph: OpGraph, objective: str) -> None:
    plan = solve(graph, "2xh100", objective=objective)
    times = {device: total.time_ns for device, total in plan.totals.items()}
    for name, op in plan.ops.items():
        times[op.device] -= op.time_ns.get(op.device, 0)
        assert op.device in plan.units[op.unit].time_ns, name
    assert not any(times.values())
    counted = [op for op in graph if op.role != "constant"]
    assert sum(total.ops for total in plan.totals.values()) == len(counted)
    constants = len(graph) - len(counted)
    assert (f"{len(graph)} ops on 2xh100, {constants} of them constants" in plan.summary()) == (constants > 0)
    work = sum(total.time_ns for total in plan.totals.values())
    assert plan.total_cost_ns - work >= sum(t.time_ns for t in plan.transfers)
    if not any(data["control"] for *_, data in graph.graph.edges(data=True)):
        assert plan.total_cost_ns - work == sum(t.time_ns for t in plan.transfers)
    assert [t.time_ns for t in plan.transfers] == sorted((t.time_ns for t in plan.transfers), reverse=True)
    assert plan.lower_bound_ns <= plan.objective_ns
    assert plan.objective_ns == (plan.total_cost_ns if objective == "total_cost" else plan.step_time_ns)
    feasible = [b.total_cost_ns if objective == "total_cost" else b.step_time_ns for b in plan.baselines.values() if b.feasible]
    margin = MIN_GAIN if objective == "step_time" else 0
    assert plan.objective_ns * (1 - margin) <= min(feasible)
    assert set(plan.baselines) == {"tf_default", "all_cpu", "all_gpu"}


def test_same_input_same_plan(plan: Placement) -> None:
    again = solve(loop_then_wide(), "h100", Options(objective="total_cost"))
    assert again.ops == plan.ops
    assert again.transfers == plan.transfers


def test_a_plan_comes_back_from_disk_as_it_was(plan: Placement, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = Placement.load(path, loop_then_wide())
    assert loaded == plan
    assert hash(loaded) == hash(plan)
    assert loaded.summary() == plan.summary()
    assert loaded.records() == plan.records()
    assert loaded.options["objective"] == "total_cost"
    assert not loaded.diff(plan).moved


@pytest.mark.parametrize("graph", [layers(), loop_then_wide(), towers()], ids=lambda g: g.name)
def test_plans_as_json_follow_the_schema_and_come_back(graph: OpGraph) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(placer.__file__).parent / "common" / "plan.schema.json").read_text())
    plan = solve(graph, "2xh100", pins={"*0/*": "CPU:0"} if graph.name == "mlp" else {})
    written = json.loads(str(plan.view("json")))
    jsonschema.validate(written, schema)
    assert Placement.from_json(written) == plan
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written | {"version": 1}, schema)


def test_plan_files_that_cannot_be_used(plan: Placement, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    with pytest.raises(PlanError, match=r"'loop_then_wide' \(28 ops.*'mlp'.*'x' is .*float32"):
        Placement.load(path, layers())
    data = json.loads(path.read_text())
    for edit, words in [
        ({"plan": data["plan"] | {"objective_ns": 1}}, "checksum"),
        ({"version": 0}, "version 0"),
        ({"format": "x"}, "'x'"),
    ]:
        path.write_text(json.dumps(data | edit))
        with pytest.raises(PlanError, match=words):
            Placement.load(path)
    path.write_text(path.read_text()[:-100])
    with pytest.raises(PlanError, match="not JSON"):
        Placement.load(path)


def test_to_networkx_can_be_written_and_agrees(plan: Placement, tmp_path: Path) -> None:
    placed = plan.to_networkx()
    nx.write_graphml(placed, tmp_path / "placed.graphml")
    read = nx.read_graphml(tmp_path / "placed.graphml")
    assert dict(read.nodes(data=True)) == dict(placed.nodes(data=True))
    assert read.adj == placed.adj
    assert list(placed) == list(plan.ops)
    crossing = {src for src, _, data in placed.edges(data=True) if data["crosses"] and data["nbytes"]}
    assert crossing == {t.tensor.rpartition(":")[0] for t in plan.transfers}


def test_summary_and_explain_say_what_was_asked_for(plan: Placement) -> None:
    summary = plan.summary()
    for words in (
        "CPU:0",
        "GPU:0",
        "transfers",
        "objective",
        str(plan.status),
        "TensorFlow's default",
        "all on CPU",
        "all on GPU",
    ):
        assert words in summary
    said = plan.explain("wide0/MatMul")
    for words in ("MatMul", "GPU:0", "cheaper by", "on CPU:0", "batch:0", "copied to GPU:0", "8.00 MiB"):
        assert words in said
    assert "loop variable 0 of while keeps one device" in plan.explain("in0")
    with pytest.raises(OptionError, match="did you mean"):
        plan.explain("wide0/MatMull")
    with pytest.raises(OptionError, match=r"dot, explain, .*summary"):
        plan.view("hologram")


def test_an_op_whose_variable_fits_nowhere_else_is_explained_by_the_limit() -> None:
    made = GraphBuilder()
    ids, table = made.argument("ids", TensorSpec("int32", (1024,))), made.variable("table", 24 << 20)
    made.op("rows", "ResourceGather", [table, ids], (floats(1024, 64),), group="table")
    weights = made.constant("weights", floats(64, 4096))
    made.op("product", "MatMul", ["rows", weights], (floats(1024, 4096),), attrs=(("T", "float32"),))
    made.op("sums", "Sum", ["product"], (floats(1024),))
    plan = solve(made.build("sums"), "h100", variables="move", memory_limits={"GPU:0": "20MiB"})
    assert "GPU:0 has no room for 24.0 MiB that would be kept there: it keeps 0 B of at most 20.0 MiB" in plan.explain("rows")
    assert "no room" not in plan.explain("product")


def test_a_limit_nothing_fits_in() -> None:
    with pytest.raises(InfeasibleError, match=r"GPU:0 takes 256 MiB, 255 MiB over its limit of 1\.00 MiB") as error:
        solve(loop_then_wide(), "h100", memory_limits={"GPU:0": "1MiB"})
    assert "wide0/kernel" in str(error.value)
    enough = re.findall(r"a limit of 256 MiB \((\d+) bytes\) for GPU:0", str(error.value))[0]
    assert solve(loop_then_wide(), "h100", memory_limits={"GPU:0": f"{enough}B"}).totals["GPU:0"].persistent_bytes == 256 << 20
    with pytest.raises(InfeasibleError, match=r"CPU:0.*a batch of about"):
        solve(layers(), "cpu2", memory_limits={"CPU:0": "60KiB"})


def test_ops_whose_results_depend_on_the_device_are_flagged() -> None:
    b = GraphBuilder()
    b.argument("x", floats(8))
    b.op("noise", "RandomUniform", [], (floats(8),), flags=("random",))
    b.op("sum", "AddV2", ["x", "noise"], (floats(8),))
    b.op("hash", "Unique", ["sum"], (floats(8),), kernels=CPU_ONLY)
    plan = solve(b.build("hash"), "h100", objective="total_cost")
    assert plan.device_of("noise") == "CPU:0"
    assert any("'noise'" in note and "random numbers" in note for note in plan.notes)


def test_a_saved_graph_is_solved_and_shown_without_tensorflow(tmp_path: Path) -> None:
    loop_then_wide().save(tmp_path / "graph.json")
    code = """
import sys
sys.modules["tensorflow"] = None
from placer.graph.op_graph import OpGraph
from placer.verbs.solve import solve
plan = solve(OpGraph.load(sys.argv[1]), "h100")
print(plan.summary(), plan.view("dot"))
"""
    arguments = [sys.executable, "-c", code, str(tmp_path / "graph.json")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert "digraph" in done.stdout
