"""Prediction beside reality: what is predicted is the plans' own figure, what is run is the function, and its state stays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.command.main import main
from placer.placed.predict import PLAN, Trial
from placer.tf.devices import local_machine

weights = tf.Variable(np.ones((64, 64), np.float32))
calls = tf.Variable(0)
slot = tf.Variable(0.0)


@tf.function
def step(x: Any, rows: Any) -> Any:
    calls.assign_add(1)
    tf.raw_ops.AssignAddVariableOp(resource=slot.handle, value=1.0)  # as optimizers write what they keep of a variable
    weights.assign_sub(0.1 * tf.matmul(x, weights))
    return tf.reduce_sum(tf.gather(tf.nn.softmax(tf.matmul(x, weights)), rows))


shelf = iter(tf.data.Dataset.range(20))


@tf.function
def take() -> Any:
    return next(shelf)


SIGNATURE = "float32[64,64], int32[8]"


def test_each_placement_is_run_and_predicted_and_the_variables_are_put_back() -> None:
    args = tf.ones([64, 64]) / 64, tf.range(8)
    found = placer.predict(step, *args, budget_s=0.5, pins={"MatMul": "CPU:1"})
    assert weights.numpy().tolist() == [[1.0] * 64] * 64
    assert calls.numpy() == slot.numpy() == 0

    graph = placer.build_graph(step, *args)
    assert found.trials["TensorFlow's default"].predicted_ns == placer.solve(graph, solver="tf_default").step_time_ns
    assert found.trials[PLAN].predicted_ns == placer.solve(graph, pins={"MatMul": "CPU:1"}).step_time_ns
    assert set(found.trials) | set(found.skipped) >= {"all on CPU", "random cut 3"}
    assert "all on GPU" not in str(found), "there is none"
    assert any(name.startswith("random cut") for name in found.trials)
    assert all(0 < trial.measured_ns < 1e9 for trial in found.trials.values())
    assert found.median_error == pytest.approx(np.median([abs(trial.error) for trial in found.trials.values()]))


def test_the_command_makes_arguments_of_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    target = ["predict", f"{__name__}:step", "--budget-s", "0.2"]
    assert main([*target, "--signature", SIGNATURE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"] == local_machine().name
    for trial in found["trials"].values():
        assert trial["error"] == pytest.approx(trial["predicted_ns"] / trial["measured_ns"] - 1)
    assert main([*target, "--signature", SIGNATURE]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*found["trials"], *found["skipped"]])
    assert main([*target, "--signature", "float32[64,?], int32[8]", "--json"]) == 2
    assert "float32[64,?]" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main([*target, "--signature", "float32[64,99999999999], int32[8]"]) == 2
    assert "are free" in capsys.readouterr().err
    assert main([*target, "--signature", SIGNATURE, "--devices", "h100"]) == 2
    assert "GPU:0" in capsys.readouterr().err


def test_a_step_that_fails_after_a_while_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", f"{__name__}:take", "--budget-s", "0.2"]) == 1
    assert "End of sequence" in (told := capsys.readouterr().err)
    assert told.count("\n") == 1


def test_a_step_that_always_fails_is_told_as_such() -> None:
    """Where it fails under all placements, nothing is left to take turns."""
    refuses = tf.function(lambda x: tf.debugging.check_numerics(x, "x"))
    with pytest.raises(placer.PlacerError, match=r"cannot be run: TensorFlow refuses: .*NaN"):
        placer.predict(refuses, tf.constant(float("nan")), budget_s=0.01)


def test_a_function_that_does_nothing_is_predicted() -> None:
    assert placer.predict(tf.function(lambda: None), budget_s=0.01).trials[PLAN].predicted_ns > 0


def test_what_predictions_take_for_granted_is_told_with_them() -> None:
    found = placer.predict(
        tf.function(lambda n: tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])), tf.constant(3), budget_s=0.01
    )
    assert "counts as 10" in found.notes[0]
    assert found.notes[0] in str(found)
    assert json.loads(json.dumps(found.to_json()))["notes"] == [*found.notes]


def test_an_error_has_the_predictions_sign() -> None:
    assert Trial.of(1_500_000, [0.001, 0.001, 0.001]) == Trial(1_500_000, 1_000_000, 0.0)
    assert Trial(1_500_000, 1_000_000, 0.0).error == pytest.approx(0.5)
    assert Trial(500_000, 1_000_000, 0.0).error == pytest.approx(-0.5)


def test_a_function_that_is_left_alone_is_not_predicted() -> None:
    with pytest.warns(placer.PlacementWarning), pytest.raises(placer.PlanError, match="left as it is"):
        placer.predict(tf.function(lambda x: x + 1, jit_compile=True), tf.ones([2]), budget_s=0.1)
    with pytest.raises(placer.OptionError, match="budget_s"):
        placer.predict(step, budget_s=0)


def test_by_default_a_result_is_where_it_was_made() -> None:
    """TensorFlow takes out the Identity that gives it, on which there is no device; one that something takes is on the GPU."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.device("/CPU:0"):
            y = tf.raw_ops.Maximum(x=x, y=x)
        return y, tf.raw_ops.Maximum(x=tf.identity(y, name="taken"), y=x)

    usual = placer.solve(placer.build_graph(step, tf.ones([8])), "h100", solver="tf_default")
    assert {usual.device_of(name) for name in ("Maximum", "Identity")} == {"CPU:0"}
    assert {usual.device_of(name) for name in ("taken", "Maximum_1", "Identity_1")} == {"GPU:0"}
