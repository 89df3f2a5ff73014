"""Calls that are left to a distribution strategy: they run as without placer, and one warning says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus


def test_every_strategy_has_a_row_in_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "supported.md").read_text().partition("## Under a distribution strategy")[2]
    names = {name for module in (tf.distribute, tf.distribute.experimental) for name in dir(module) if name.endswith("Strategy")}
    assert {name for name in names - {"Strategy"} if f"| `{name}` |" not in page} == set()


def test_replicas_of_tpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no TPU here: a strategy that was not initialised stands for one."""
    strategy = object.__new__(tf.distribute.TPUStrategy)
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    placed = placer.place(tf.function(tf.sin), devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="XLA compiles the replicas of a TPUStrategy as a whole"):
        np.testing.assert_allclose(placed(tf.ones([4])), tf.sin(tf.ones([4])))


def test_a_call_in_the_plain_function_of_a_replica() -> None:
    """The strategy has begun to trace the replicas then, so the call is left as it is."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    placed = placer.place(tf.sin, devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="strategy.run of the placed function itself places it"):
        results = strategy.run(tf.function(lambda x: 1.0 + placed(x)), (tf.ones([4]),))
    for result in strategy.experimental_local_results(results):
        np.testing.assert_allclose(result, 1.0 + tf.sin(tf.ones([4])))
