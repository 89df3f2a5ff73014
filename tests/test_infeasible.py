"""What nothing fits is told with what stands in the way; whoever takes one of the ways out gets a plan."""

from __future__ import annotations

import contextlib
import re

import pytest
import tensorflow as tf

import placer
from placer.errors import InfeasibleError
from placer.opgraph import OpGraph
from tests.fitting import SMALL
from tests.machines import two_cpus

MIB = 2**20


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    """A step of Adam: 3 MiB of weights and 6 MiB of slots, all on the first device."""
    program = SMALL["adam"]()
    step, variables = program.make(lambda _: contextlib.nullcontext())
    function = tf.function(step)
    function.variables = variables
    return placer.build_graph(function, *program.args)


def told(graph: OpGraph, **options: object) -> str:
    with pytest.raises(InfeasibleError) as error:
        placer.solve(graph, two_cpus(), **options)
    return str(error.value)


def limit_in(text: str) -> tuple[str, int]:
    found = re.search(r"Way out: a limit of (\d+) bytes for (CPU:\d)", text)
    assert found is not None, text
    return found[2], int(found[1])


def test_a_limit_that_would_do(graph: OpGraph) -> None:
    limits = {"CPU:0": 4 * MIB, "CPU:1": 4 * MIB}
    for options in ({"variables": "move"}, {}):
        device, limit = limit_in(told(graph, memory_limits=limits, **options))
        assert limit > limits[device]
        assert placer.solve(graph, two_cpus(), memory_limits={**limits, device: limit}, **options)


def test_variables_that_would_have_to_move(graph: OpGraph) -> None:
    limits = {"CPU:0": 6 * MIB}
    text = told(graph, memory_limits=limits)
    assert 'variables="move", with' in text
    assert re.search(r"'net_w\d\w*' \(1\.00 MiB\) on CPU:1", text)
    assert "over its limit" in text
    assert placer.solve(graph, two_cpus(), memory_limits=limits, variables="move")


def test_pins_that_stand_in_the_way(graph: OpGraph) -> None:
    pins = {"net_w?_m": "CPU:1", "net_w?_v": "CPU:1", "net_w0": "CPU:0"}
    options = {"memory_limits": {"CPU:1": 4 * MIB}, "variables": "move"}
    text = told(graph, pins=pins, **options)
    assert "no pin 'net_w0'" not in text
    for pin in ("net_w?_m", "net_w?_v"):
        assert f"no pin '{pin}', with" in text
        assert placer.solve(graph, two_cpus(), pins={p: d for p, d in pins.items() if p != pin}, **options)


def test_how_much_smaller_a_batch() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ tf.ones([64, 4096])) @ tf.ones([4096, 64])

    def limited(rows: int) -> placer.Placement:
        graph = placer.build_graph(tf.function(step), tf.TensorSpec([rows, 64]))
        return placer.solve(graph, two_cpus(), memory_limits={"CPU": 12 * MIB})

    with pytest.raises(InfeasibleError) as error:
        limited(2048)
    share = int(re.search(r"a batch of about (\d+)% of this one's size", str(error.value))[1]) / 100  # type: ignore[index]
    assert limited(int(2048 * share * 0.9))
