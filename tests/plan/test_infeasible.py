"""What nothing fits is told with what stands in the way; whoever takes one of the ways out gets a plan."""

from __future__ import annotations

import contextlib
import re

import pytest
import tensorflow as tf

import placer
from placer.errors import InfeasibleError
from placer.graph.op_graph import OpGraph
from tests.helpers.fitting import SMALL
from tests.helpers.graphs import GraphBuilder, floats
from tests.helpers.machines import two_cpus

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


def limits_in(text: str) -> dict[str, int]:
    """By device, the first way out."""
    found = re.search(r"Way out: (?:a limit|limits) of ((?:(?:[\d.]+ \w+ \()?\d+ bytes\)? for CPU:\d(?:, | and )?)+)", text)
    assert found is not None, text
    return {device: int(nbytes) for nbytes, device in re.findall(r"(\d+) bytes\)? for (CPU:\d)", found[1])}


@pytest.mark.parametrize("variables", ["fixed", "move"])
def test_limits_that_would_do(graph: OpGraph, variables: str) -> None:
    limits = {"CPU:0": 4 * MIB, "CPU:1": 4 * MIB}
    enough = limits_in(told(graph, memory_limits=limits, variables=variables))
    assert all(enough[device] > limits[device] for device in enough)
    fits = {"memory_limits": {**limits, **enough}, "variables": variables}
    try:
        assert placer.solve(graph, two_cpus(), **fits)
    except InfeasibleError:  # a busy machine searches too little in the usual seconds
        assert placer.solve(graph, two_cpus(), time_limit_s=120.0, **fits)


@pytest.fixture(scope="module")
def products() -> OpGraph:
    """Two products in a row with 16 KiB each."""
    a, b = tf.Variable(tf.ones([64, 64]), name="a"), tf.Variable(tf.ones([64, 64]), name="b")
    return placer.build_graph(lambda x: x @ a @ b, tf.ones([8, 64]))


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ({"CPU": 0}, {"CPU:0"}),
        ({"CPU:0": 1000, "CPU:1": 1000}, {"CPU:0", "CPU:1"}),  # the argument is on the first whatever is on the second
        ({"CPU:0": 3000, "CPU:1": 32000}, {"CPU:1"}),
        ({"CPU:0": 20000, "CPU:1": 20000}, {"CPU:0", "CPU:1"}),  # a product each
    ],
)
def test_no_limits_that_would_do_are_higher_than_they_must_be(
    products: OpGraph, limits: dict[str, int], raised: set[str]
) -> None:
    enough = limits_in(told(products, memory_limits=limits, variables="move"))
    assert set(enough) == raised
    assert placer.solve(products, two_cpus(), memory_limits={**limits, **enough}, variables="move")
    told(products, memory_limits={**limits, **{device: nbytes - 1 for device, nbytes in enough.items()}}, variables="move")


def test_variables_that_would_have_to_move(graph: OpGraph) -> None:
    limits = {"CPU:0": 6 * MIB}
    text = told(graph, memory_limits=limits)
    assert 'variables="move", with' in text
    assert re.search(r"'net_w\d\w*' \(1\.00 MiB\) on CPU:1", text)
    assert "over its limit" in text
    assert placer.solve(graph, two_cpus(), memory_limits=limits, variables="move")


def test_a_way_out_is_told_that_no_simple_placement_takes() -> None:
    """The large variable has to leave the second device, and the small one then finds no room on the first."""
    kib = 2**10 // 4
    b = GraphBuilder(process_devices=("CPU:0", "CPU:1"))
    b.argument("x", floats(32 * kib))
    for name, size in (("large", 128), ("small", 8)):
        b.variable(name, size * 2**10, "CPU:1")
        b.read(f"{name}/read", name, floats(size * kib))
    b.op("sum", "Sum", ["x"], (floats(64),))
    b.op("product", "MatMul", ["sum", "large/read"], (floats(32 * kib),))
    graph = b.build("small/read", "product")
    limits = {"CPU:0": 196 * 2**10, "CPU:1": 20 * 2**10}
    assert """variables="move", with 'large' (128 KiB) on CPU:0""" in told(graph, memory_limits=limits)
    assert placer.solve(graph, two_cpus(), memory_limits=limits, variables="move").device_of("small") == "CPU:1"


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
