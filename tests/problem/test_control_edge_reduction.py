"""Control edges that are left: what waited for what still does, and nothing twice."""

from __future__ import annotations

import networkx as nx
import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import placer
from placer.problem.control_edge_reduction import reduced_control_edges
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.machines import two_cpus

OPS = 9
PAIRS = st.tuples(st.integers(0, OPS - 1), st.integers(0, OPS - 1)).filter(lambda pair: pair[0] < pair[1])


def left(data: set[tuple[int, int]], control: set[tuple[int, int]], joins: set[int]) -> set[tuple[int, int]]:
    edges = (np.array(sorted(pairs), np.int64).reshape(-1, 2) for pairs in (data, control))
    return set(map(tuple, reduced_control_edges(OPS, *edges, np.isin(np.arange(OPS), sorted(joins))).tolist()))


def order(*edges: set[tuple[int, int]], among: set[int]) -> set[tuple[int, int]]:
    """Who comes before whom."""
    dag = nx.DiGraph(set().union(*edges))
    return {(a, b) for a, b in nx.transitive_closure_dag(dag).edges if a in among and b in among}


@given(st.sets(PAIRS, max_size=12), st.sets(PAIRS, max_size=16), st.sets(st.integers(0, OPS - 1), max_size=4))
def test_the_order_of_all_but_joins_stays_and_no_edge_is_implied(
    data: set[tuple[int, int]], control: set[tuple[int, int]], joins: set[int]
) -> None:
    data = {(a, b) for a, b in data if not {a, b} & joins}
    control -= data
    kept = left(data, control, joins)
    others = set(range(OPS)) - joins
    assert order(data, kept, among=others) == order(data, control, among=others)
    for edge in kept:
        assert edge not in order(data, kept - {edge}, among=set(range(OPS)))


def test_a_join_goes_where_that_adds_no_edge() -> None:
    """Of the variables that a layer reads nothing waits but what takes their values; three that five wait for are joined."""
    reads, end = {0, 1, 2}, 8
    assert left({(0, 4), (1, 5), (2, 6), (4, 5), (5, 6), (6, end)}, {(read, 3) for read in reads} | {(3, end)}, {3}) == set()
    many = {(read, 3) for read in reads} | {(3, waiter) for waiter in range(4, 9)}
    assert left(set(), many, {3}) == many


def test_a_loop_that_is_on_two_devices_is_told_of_each_round_there_and_back() -> None:
    """By its first variable and by its condition, as tensors of no bytes; beside the predicate and what counts the rounds."""
    x, total = tf.ones([4]), tf.Variable(0.0)

    def doubled(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(tf.constant(3)):
            total.assign_add(x[0])
            x = x * 2.0
        return x

    function = tf.function(doubled)
    counting = [op.name for op in placer.build_graph(function, x) if op.name.endswith(("/in0", "/out0"))]
    pins = {**dict.fromkeys(counting, "CPU:1"), "Mul": "CPU:0", "AddV2": "CPU:0", "Less": "CPU:0", "while": "CPU:0"}
    placed = placer.place(function, devices=two_cpus(), pins=pins)
    with recorded_partitions() as recorded:
        np.testing.assert_array_equal(placed(x), 8 * x)
    told = {
        (transfer.tensor.removeprefix("^").rpartition("/")[2], transfer.src)
        for transfer in placed.placement.transfers
        if transfer.tensor.startswith("^") and transfer.count > 1
    }
    sent = {
        node.attr["tensor_name"].s.decode().rpartition("/_")[0].rpartition("/")[2]: node.device[-5:]
        for function_graphs in recorded
        for graph in function_graphs.partition_graphs
        for node in graph.node
        if node.op == "_Send"
    }
    assert {("in0", sent["merge"]), ("while", sent["loop_body_control"])} <= told
    assert (sent["merge"], sent["loop_body_control"]) == ("CPU:1", "CPU:0")
