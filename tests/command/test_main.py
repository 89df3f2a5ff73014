"""The command line: exit codes, flags, JSON, and the three kinds of target."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer import Options, Placement, optimized_placement
from placer.command.main import main
from placer.common.units import format_ns
from tests.helpers import forked
from tests.helpers.graphs import layers


@tf.function
def scaled_sum(x: Any, times: Any) -> Any:
    return tf.reduce_sum(x, axis=1) * tf.cast(times, tf.float32)


placed_sum = optimized_placement(scaled_sum)
pinned_sum = optimized_placement(devices="h100", objective="total_cost", pins={"Sum": "CPU"})(scaled_sum)
strict_sum = tf.function(scaled_sum.python_function, input_signature=[tf.TensorSpec([8, None]), tf.TensorSpec([], tf.int32)])


def with_keyword(x: Any, *, scale: Any) -> Any:
    return x * scale


SIGNATURE = "float32[8,?], int32[]"
TOTAL = {"objective": "total_cost", "solver": "min_cut"}


@pytest.fixture
def graph(tmp_path: Path) -> str:
    path = tmp_path / "graph.json"
    layers().save(path)
    return str(path)


@pytest.fixture
def plan(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "plan.json")
    assert main(["solve", graph, "--devices", "h100", "--out", path]) == 0
    capsys.readouterr()
    return path


def test_what_solve_saved_is_what_it_printed(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", plan, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    saved = Placement.load(plan)
    assert shown["devices"] == {name: op.device for name, op in saved.ops.items()}
    assert shown["step_time_ns"] == saved.step_time_ns
    assert main(["show", plan]) == 0
    assert capsys.readouterr().out.strip() == saved.summary().strip()
    assert main(["show", plan, "--explain", "layer1/MatMul"]) == 0
    assert capsys.readouterr().out.strip() == saved.explain("layer1/MatMul").strip()
    assert main(["show", plan, "--view", "dot", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"view": "dot", "text": saved.view("dot")}


def test_what_explain_says_is_in_its_json_too(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = Placement.load(plan).explain("layer1/MatMul")
    assert main(["show", plan, "--json", "--explain", "layer1/MatMul"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["reason"]["text"] in words
    assert all(f"{format_ns(ns)} on {device}" in words for device, ns in facts["time_ns"].items())
    for tensor in [*facts["inputs"], *facts["outputs"]]:
        line = next(line for line in words.splitlines() if tensor["name"] in line)
        assert tensor["type"] in line
        assert all(f"copied to {copy['dst']}" in line for copy in tensor["copies"])


def test_a_plan_is_planned_again_for_its_own_machine(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", plan, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["machine"] == "h100"
    assert again.err == ""


def test_a_graph_is_planned_for_what_is_here_and_that_is_said(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", graph, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["machine"] == "local"
    assert "--devices" in printed.err


def test_a_placed_functions_own_options_hold_unless_others_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    target = ["solve", f"{__name__}:pinned_sum", "--signature", SIGNATURE, "--json"]
    for flags, machine, objective in (([], "h100", "total_cost"), (["--devices", "cpu2"], "cpu2", "total_cost")):
        assert main([*target, *flags]) == 0
        planned = json.loads(capsys.readouterr().out)
        assert (planned["machine"], planned["objective"]) == (machine, objective)
        assert planned["devices"]["Sum"] == "CPU:0"


def test_what_cannot_be_saved_is_told_before_the_work(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in (tmp_path, tmp_path / "absent" / "plan.json"):
        assert main(["solve", graph, "--devices", "h100", "--out", str(out), "--pins", "no_such_op=CPU:0"]) == 2
        assert "cannot be written" in capsys.readouterr().err
    existing = tmp_path / "existing.json"
    existing.write_text("kept")
    assert main(["solve", graph, "--devices", "h100", "--out", str(existing), "--pins", "no_such_op=CPU:0"]) == 2
    assert existing.read_text() == "kept"


def test_a_reader_that_has_enough_ends_it_quietly(plan: str) -> None:
    command = f"{sys.executable} -m placer show {plan} --json"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | head -1"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_a_plan_can_be_planned_again_with_other_options(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = {"CPU:0": "GPU:0", "GPU:0": "CPU:0"}[Placement.load(plan).device_of("layer1/MatMul")]
    assert main(["solve", plan, "--devices", "h100", "--pins", f"layer1/MatMul={elsewhere}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"]["layer1/MatMul"] == elsewhere


def test_every_option_is_a_flag(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "devices": "h100",
        "memory_limits": "GPU:0=1GiB",
        "share": "0.5",
        "pins": "layer0/*=CPU:0",
        "objective": "total_cost",
        "solver": "min_cut",
        "cost_model": "analytic",
        "variables": "move",
        "stale": "invalidate",
        "on_out_of_memory": "replan",
        "on_missing_device": "error",
        "trace_for": "here",
        "time_limit_s": "2.5",
        "race": "off",
        "planning": "background",
        "seed": "7",
    }
    of_functions = {"sizes", "rounds", "learn_sizes"}  # a saved graph has them
    instead = {"effort": "50"}  # of a time limit
    assert set(given) | of_functions | set(instead) == {option.name for option in fields(Options)}
    flags = [part for name, value in given.items() for part in ("--" + name.replace("_", "-"), value)]
    assert main(["solve", graph, *flags, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["objective"] == "total_cost"
    assert planned["totals"]["GPU:0"]["limit_bytes"] == 2**30
    assert {planned["devices"][name] for name in planned["devices"] if name.startswith("layer0/")} == {"CPU:0"}
    assert main(["solve", graph, "--devices", "h100", "--effort", instead["effort"], "--json"]) == 0


@pytest.mark.parametrize(
    ("target", "signature"),
    [
        ("scaled_sum", SIGNATURE),
        ("placed_sum", SIGNATURE),
        ("scaled_sum", "float32[8,None], int32[]"),
        ("scaled_sum", " float32[ 8 , -1 ],int32[ ]"),
        ("strict_sum", None),
    ],
)
def test_a_function_is_traced_for_the_types_given(target: str, signature: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    types = ["--signature", signature] if signature else []
    assert main(["solve", f"{__name__}:{target}", *types, "--devices", "h100", "--json"]) == 0
    assert "Sum" in json.loads(capsys.readouterr().out)["devices"]


def test_the_module_of_a_function_may_set_the_devices(tmp_path: Path) -> None:
    (tmp_path / "two_cpus.py").write_text(
        """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
double = tf.function(lambda x: 2.0 * x)
"""
    )
    done = forked.run("-m", "placer", "solve", "two_cpus:double", "--signature", "float32[8]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "CPU:1" in done.stdout


def test_a_saved_model_is_planned_by_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tf.Module()
    model.weights = tf.Variable(tf.ones([16, 4]))
    spec = tf.TensorSpec([2, 16], tf.float32)
    model.infer = tf.function(lambda x: {"y": x @ model.weights}, input_signature=[spec])
    tf.saved_model.save(model, str(tmp_path), signatures={"infer": model.infer})
    assert main(["solve", str(tmp_path), "--signature", "infer", "--devices", "h100", "--json"]) == 0
    assert any("MatMul" in name or "matmul" in name for name in json.loads(capsys.readouterr().out)["devices"])
    assert main(["solve", str(tmp_path), "--devices", "h100"]) == 2
    assert "infer" in capsys.readouterr().err
    assert main(["solve", str(tmp_path / "variables"), "--devices", "h100"]) == 2
    assert "is not the folder of a SavedModel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, ["greedy", "no_such_solver"], ["solve", "{graph}", "--devices", "h100", "--solver", "no_such_solver"]),
        (2, ["h100", "no_such_machine"], ["solve", "{graph}", "--devices", "no_such_machine"]),
        (2, ["objective", "speed"], ["solve", "{graph}", "--devices", "h100", "--objective", "speed"]),
        (2, ["lots"], ["solve", "{graph}", "--devices", "h100", "--memory-limits", "GPU:0=lots"]),
        (2, ["no_such_op"], ["solve", "{graph}", "--devices", "h100", "--pins", "no_such_op=CPU:0"]),
        (2, ["nothing_here", "MODULE:FUNCTION"], ["solve", "nothing_here"]),
        (2, ["no_such_module"], ["solve", "no_such_module:f"]),
        (2, ["without .py: programs:f"], ["solve", "programs.py:f"]),
        (2, ["without .py: folder.programs:f"], ["solve", "./folder/programs.py:f"]),
        (2, ["no_such_name"], ["solve", f"{__name__}:no_such_name"]),
        (2, ["float32(8)"], ["solve", f"{__name__}:scaled_sum", "--signature", "float32(8), int32[]"]),
        (2, ["float33"], ["solve", f"{__name__}:scaled_sum", "--signature", "float33[8]"]),
        (1, ["scaled_sum", "traced"], ["solve", f"{__name__}:scaled_sum", "--signature", "string[8,8], int32[]"]),
        (2, ["float32[]"], ["solve", f"{__name__}:scaled_sum", "--signature", "float32[8], float32"]),
        (2, ["dicts"], ["solve", f"{__name__}:scaled_sum", "--signature", "x=float32[8]"]),
        (2, ["-3"], ["solve", f"{__name__}:scaled_sum", "--signature", "float32[8,-3], int32[]"]),
        (2, ["no types", "'x'"], ["solve", f"{__name__}:scaled_sum"]),
        (2, ["1 type:", "'times'"], ["solve", f"{__name__}:scaled_sum", "--signature", "float32[8,8]"]),
        (2, ["int32", "cast"], ["solve", f"{__name__}:strict_sum", "--signature", "int32[8,8], int32[]"]),
        (2, ["'scale'", "keywords"], ["solve", f"{__name__}:with_keyword", "--signature", "float32[8,8]"]),
        (2, ["not a function"], ["solve", f"{__name__}:SIGNATURE", "--signature", "float32[8,8]"]),
        (2, ["--signature", "{graph}"], ["solve", "{graph}", "--signature", "float32[8,8]"]),
        (2, ["{graph}", "can be run", "MODULE:FUNCTION"], ["predict", "{graph}"]),
        (2, ["shipped:detector", "can be run", "MODULE:FUNCTION"], ["predict", "shipped:detector"]),
        (2, ["'GPU:7'"], ["solve", "{graph}", "--devices", "h100", "--pins", "MatMul=GPU:7"]),
        (2, ["pins", "'MatMul' twice"], ["solve", "{graph}", "--devices=h100", "--pins=MatMul=CPU:0", "--pins=MatMul=GPU:0"]),
        (2, ["'GPU' twice"], ["solve", "{graph}", "--devices=h100", "--memory-limits=GPU=1GiB", "--memory-limits=GPU=2GiB"]),
        (2, ["float32"], ["solve", f"{__name__}:scaled_sum", "--signature", f"float32[{9**30}], int32[]"]),
        (2, ["no_such_solver", "greedy"], ["compare", "{graph}", "--devices", "h100", "--solvers", "no_such_solver"]),
        (2, ["--seeds", "'0,x'"], ["compare", "{graph}", "--seeds", "0,x"]),
        (2, ["--report", "/proc/absent"], ["compare", "{graph}", "--devices", "h100", "--report", "/proc/absent"]),
        (2, ["COMMAND"], []),
        (2, ["'no_such_command'", "measurements"], ["no_such_command"]),
        (2, ["--no-such-flag"], ["solve", "{graph}", "--no-such-flag"]),
        (2, ["--pins", "KEY=VALUE"], ["solve", "{graph}", "--pins", "MatMul="]),
        (2, ["--seed", "'x'", "placer solve --help"], ["solve", "{graph}", "--seed", "x"]),
        (2, ["--explain", "--view"], ["show", "{graph}", "--explain", "x", "--view", "dot"]),
        (2, ["'GPU:7'"], ["solve", "{graph}", "--devices", "h100", "--memory-limits", "GPU:7=1GiB"]),
        (2, ["min_cut", "step_time"], ["solve", "{graph}", "--devices", "h100", "--solver", "min_cut"]),
        (2, ["--explain OP"], ["show", "{graph}", "--view", "explain"]),
        (2, ["absent.json"], ["show", "absent.json"]),
        (2, ["absent.json"], ["solve", "absent.json"]),
        (2, ["/proc/absent"], ["demo", "--out", "/proc/absent"]),
        (1, ["{graph}", "placer.plan"], ["show", "{graph}"]),
        (3, ["MatMul", "pin"], ["solve", "{graph}", "--devices", "h100", "--pins", "layer0/*=CPU", "--pins", "MatMul=GPU"]),
        (3, ["all_gpu", "over"], ["solve", "{graph}", "--devices", "h100", "--solver=all_gpu", "--memory-limits=GPU=9"]),
        (
            3,
            ["GPU:0", "limit"],
            ["solve", "{graph}", "--devices", "h100", "--memory-limits", "GPU:0=1", "--memory-limits", "CPU:0=1"],
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(
    code: int, words: list[str], arguments: list[str], graph: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(graph=graph) for argument in arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("placer: error: ")
    assert "Traceback" not in printed.err
    for word in words:
        assert word.format(graph=graph) in printed.err

    assert main([argument.format(graph=graph) for argument in (*arguments, "--json")]) == code
    printed = capsys.readouterr()
    assert printed.err == ""
    error = json.loads(printed.out)["error"]
    assert error["type"] in placer.__all__
    for word in words:
        assert word.format(graph=graph) in error["message"]


def test_a_table_of_less_than_nothing_is_refused(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", plan, "--limit", "-3"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, "limit=-3" in printed.err) == ("", True)


def test_what_profile_measures_is_counted_exported_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path / "here"))
    target = [f"{__name__}:scaled_sum", "--signature", "float32[800,800], int32[]"]
    assert main(["profile", *target, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured >= 1
    assert main(["measurements", "--export", str(tmp_path / "export.json")]) == 0
    assert f"{measured} ops on" in capsys.readouterr().out
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "measurements-2.sqlite").write_text("what another program has there")
    assert main(["measurements", "--import", str(tmp_path / "export.json"), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["new"] == measured
    assert [row["ops"] for row in json.loads(printed.out)["measured"]] == [measured]
    assert (printed.err[:16], printed.err.count("\n"), "aside-1" in printed.err) == ("placer: warning:", 1, True)
    assert main(["measurements", "--import", str(tmp_path / "absent.json")]) == 1
    assert "absent.json" in capsys.readouterr().err
    assert main(["profile", *target, "--budget-s", "0"]) == 2


def test_what_compare_prints_is_what_the_arena_gives(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.jsonl"
    flags = ["--devices", "h100", "--solvers", "min_cut,greedy", "--time-limits-s", "1", "--objective", "total_cost"]
    flags += ["--results", str(results)]
    assert main(["compare", graph, *flags, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    comparison = placer.Comparison.load(results)
    assert sorted(map(str, printed["records"])) == sorted(map(str, comparison.records))
    assert {record["objective_ns"] for record in comparison.records} >= {placer.solve(layers(), "h100", **TOTAL).total_cost_ns}
    for more in ([], ["--style=markdown"], ["--style=latex", "--report", str(tmp_path / "paper")]):
        assert main(["compare", graph, *flags, *more]) == 0
        assert capsys.readouterr().out.count("min" + ("\\_" if "latex" in str(more) else "_") + "cut") == 2
    assert "min_cut" in (tmp_path / "paper" / "profiles.svg").read_text()


def test_a_function_is_compared_on_as_its_saved_graph_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placer.build_graph(scaled_sum, tf.TensorSpec([8, 4]), tf.TensorSpec([], tf.int32)).save(tmp_path / "graph.json")
    hashes = []
    for target in ([str(tmp_path / "graph.json")], [f"{__name__}:scaled_sum", "--signature", "float32[8,4], int32[]"]):
        assert main(["compare", *target, "--devices", "h100", "--solvers", "all_cpu", "--time-limits-s", "1", "--json"]) == 0
        hashes += [record["problem_hash"] for record in json.loads(capsys.readouterr().out)["records"]]
    assert hashes[0] == hashes[1]


def test_devices_and_solvers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == 0
    listed_devices = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in listed_devices["machine"]["devices"]][:2] == ["CPU:0", "CPU:1"]
    assert "h100" in listed_devices["shipped"]
    assert main(["solvers", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"auto", "min_cut", "cp_sat", "greedy"} <= set(listed)
    assert all(listed.values())
    assert main(["solvers", "--cite", "m_etf"]) == 0
    assert capsys.readouterr().out.strip() == listed["m_etf"]
    assert main(["solvers"]) == 0
    lines = capsys.readouterr().out
    assert all(reference in lines for cited in listed.values() for reference in cited.splitlines())


def test_the_demo_runs_by_plan_and_leaves_plans_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    results = json.loads(printed.out)
    assert set(results) == {"lstm_then_dense", "detector"}
    for name, part in results.items():
        saved = Placement.load(tmp_path / f"{name}.json")
        assert part["plan"]["step_time_ns"] == saved.step_time_ns
        assert set(part["checked"]["ops_ran"]) == {"CPU:0", "CPU:1"}
        assert part["checked"]["largest_difference"] < 1e-3
    assert Placement.load(tmp_path / "plan.json").machine == "h100"
    assert (tmp_path / "report.html").read_text() == Placement.load(tmp_path / "plan.json").view("html")
    assert (tmp_path / "graph.svg").read_text().startswith("<?xml") or (tmp_path / "graph.dot").exists()
