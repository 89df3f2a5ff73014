"""Control edges that are left: what waited for what still does, and nothing twice."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placer.problem.waiting import left_waiting

OPS = 9
PAIRS = st.tuples(st.integers(0, OPS - 1), st.integers(0, OPS - 1)).filter(lambda pair: pair[0] < pair[1])


def left(data: set[tuple[int, int]], control: set[tuple[int, int]], joins: set[int]) -> set[tuple[int, int]]:
    edges = (np.array(sorted(pairs), np.int64).reshape(-1, 2) for pairs in (data, control))
    return set(map(tuple, left_waiting(OPS, *edges, np.isin(np.arange(OPS), sorted(joins))).tolist()))


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
