"""What is left as it is: one warning says why, and the function runs as the plain one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.machines import two_cpus

X = tf.constant([1.0, 2.0])


def mirrored(devices: list[str]) -> Any:
    return tf.distribute.MirroredStrategy(devices)


def captured(strategy: Any, variable: tf.Variable) -> Callable[[Any], Any]:
    return lambda x: x * variable


def replicated(strategy: Any, variable: tf.Variable) -> Callable[[Any], Any]:
    return lambda x: strategy.reduce("SUM", strategy.run(lambda y: y * variable, (x,)), axis=None)


@pytest.mark.parametrize("build", [captured, replicated])
@pytest.mark.parametrize(
    "make",
    [lambda: mirrored(["CPU:0", "CPU:1"]), lambda: mirrored(["CPU:0"]), lambda: tf.distribute.OneDeviceStrategy("CPU:1")],
    ids=["two replicas", "one replica", "one device"],
)
def test_what_uses_a_strategys_variables_is_left_alone(make: Callable[[], Any], build: Callable[..., Any]) -> None:
    strategy = make()
    with strategy.scope():
        variable = tf.Variable(3.0)
    fn = build(strategy, variable)
    placed = placer.place(fn, devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="distribution strategy") as warned:
        found = placed(X)
    assert len([w for w in warned if w.category is placer.PlacementWarning]) == 1
    np.testing.assert_allclose(found, tf.function(fn)(X))
    assert not placed.placements


def test_what_is_called_under_a_strategy_is_left_alone() -> None:
    placed = placer.place(lambda x: x * 2.0, devices=two_cpus())
    strategy = mirrored(["CPU:0"])
    with pytest.warns(placer.PlacementWarning, match="called under a distribution strategy"):
        np.testing.assert_allclose(strategy.run(placed, (X,)), X * 2.0)


@pytest.mark.parametrize("make", [lambda: mirrored(["CPU:0", "CPU:1"]), lambda: tf.distribute.OneDeviceStrategy("CPU:1")])
@pytest.mark.parametrize("outside_first", [False, True])
@pytest.mark.filterwarnings("ignore::placer.PlacementWarning")
def test_a_strategy_in_scope_tells_calls_apart(make: Callable[[], Any], outside_first: bool) -> None:
    placed = placer.place(lambda x: x * 2.0, devices=two_cpus())
    strategy = make()

    def outside() -> None:
        np.testing.assert_allclose(placed(X), X * 2.0)
        assert placed.placement.ops

    if outside_first:
        outside()
    for run in (lambda: placed(X), lambda: strategy.run(placed, (X,))):
        with strategy.scope():
            found = strategy.experimental_local_results(run())
        np.testing.assert_allclose(found[0], X * 2.0)
        with pytest.raises(placer.PlanError, match="left as it is"):
            _ = placed.placement
    outside()


def test_a_dtensor_argument_is_left_alone() -> None:
    dtensor = tf.experimental.dtensor
    mesh = dtensor.create_mesh([("x", 1)], devices=["CPU:0"])
    with dtensor.default_mesh(mesh):
        x = dtensor.copy_to_mesh(X, dtensor.Layout.replicated(mesh, rank=1))
        placed = placer.place(lambda x: x * x, devices=two_cpus())
        with pytest.warns(placer.PlacementWarning, match="DTensors"):
            (part,) = dtensor.unpack(placed(x))
    np.testing.assert_allclose(part, X * X)
