"""The command line: exit codes, flags, JSON, and the three kinds of target."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from placer import Options, Placement, optimized_placement
from placer.cli import main
from tests.graphs import layers


@tf.function
def scaled_sum(x: Any, times: Any) -> Any:
    return tf.reduce_sum(x, axis=1) * tf.cast(times, tf.float32)


placed_sum = optimized_placement(scaled_sum)
SIGNATURE = "float32[8,?], int32[]"


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


def test_a_plan_can_be_planned_again_with_other_options(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = {"CPU:0": "GPU:0", "GPU:0": "CPU:0"}[Placement.load(plan).device_of("layer1/MatMul")]
    assert main(["solve", plan, "--devices", "h100", "--pins", f"layer1/MatMul={elsewhere}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"]["layer1/MatMul"] == elsewhere


def test_every_option_is_a_flag(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "devices": "h100",
        "memory_limits": "GPU:0=1GiB",
        "pins": "layer0/*=CPU:0",
        "objective": "total_cost",
        "solver": "min_cut",
        "cost_model": "analytic",
        "variables": "fixed",
        "on_missing_device": "error",
        "time_limit_s": "2.5",
        "seed": "7",
    }
    assert set(given) == {option.name for option in fields(Options)}
    flags = [part for name, value in given.items() for part in ("--" + name.replace("_", "-"), value)]
    assert main(["solve", graph, *flags, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["objective"] == "total_cost"
    assert planned["totals"]["GPU:0"]["limit_bytes"] == 2**30
    assert {planned["devices"][name] for name in planned["devices"] if name.startswith("layer0/")} == {"CPU:0"}


@pytest.mark.parametrize("target", ["scaled_sum", "placed_sum"])
def test_a_function_is_traced_for_the_types_given(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", f"{__name__}:{target}", "--signature", SIGNATURE, "--devices", "h100", "--json"]) == 0
    assert "Sum" in json.loads(capsys.readouterr().out)["devices"]


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
        (2, ["no_such_name"], ["solve", f"{__name__}:no_such_name"]),
        (2, ["float32(8)"], ["solve", f"{__name__}:scaled_sum", "--signature", "float32(8), int32[]"]),
        (2, ["float33"], ["solve", f"{__name__}:scaled_sum", "--signature", "float33[8]"]),
        (1, ["scaled_sum", "traced"], ["solve", f"{__name__}:scaled_sum", "--signature", "string[8,8], int32[]"]),
        (1, ["absent.json"], ["show", "absent.json"]),
        (1, ["{graph}", "placer.plan"], ["show", "{graph}"]),
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


@pytest.mark.parametrize(
    "arguments", [[], ["no_such_command"], ["solve", "g.json", "--pins", "no equals sign"], ["solve", "--seed", "x", "g"]]
)
def test_arguments_that_cannot_be_read_are_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2


def test_devices_and_solvers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in found["machine"]["devices"]][:2] == ["CPU:0", "CPU:1"]
    assert "h100" in found["shipped"]
    assert main(["solvers", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"auto", "min_cut", "cp_sat", "greedy"} <= set(listed)
    assert all(listed.values())


def test_the_demo_runs_by_plan_and_leaves_a_plan_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert set(json.loads(printed.out)) == {"lstm_then_dense", "detector"}
    assert printed.err.count("equal the plain function's") == 2
    assert Placement.load(tmp_path / "plan.json").machine == "h100"
    assert (tmp_path / "graph.svg").read_text().startswith("<?xml") or (tmp_path / "graph.dot").exists()
