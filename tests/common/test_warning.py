"""A warning names the line of the user's code that led to it."""

from __future__ import annotations

import inspect

import pytest
import tensorflow as tf

import placer
from placer.errors import PlacementWarning
from tests.helpers.machines import two_cpus


def test_a_warning_names_the_users_line_however_deep_the_call() -> None:
    f = placer.place(lambda x: x + 1.0, devices=two_cpus())
    with pytest.warns(PlacementWarning, match="is left as it is: a dataset calls it") as warned:
        rows = tf.data.Dataset.range(2).map(lambda row: f(tf.cast(row, tf.float32)))  # the line that is named
    assert [float(row) for row in rows] == [1.0, 2.0]
    lines = inspect.getsource(test_a_warning_names_the_users_line_however_deep_the_call).splitlines()
    first = test_a_warning_names_the_users_line_however_deep_the_call.__code__.co_firstlineno
    assert warned[0].filename == __file__
    assert "the line that is named" in lines[warned[0].lineno - first]


def test_a_warning_of_solve_names_the_callers_line() -> None:
    with tf.device("CPU:7"):
        graph = placer.build_graph(lambda x: tf.tanh(x) + 1.0, tf.ones([2]))
    with pytest.warns(PlacementWarning, match=r"tf\.device.* relaxed") as warned:
        placer.solve(graph, two_cpus())
    assert warned[0].filename == __file__
