"""Contiguous splits against all of them, and ideals against their definition."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.instances.families import SHAPES
from placer.solvers.exact.chain_dp import ChainDp
from placer.solvers.primitives.ideals import depth_first, ideals, precedence
from tests.helpers.shapes import shaped


def graph(problem: PlacementProblem) -> nx.DiGraph:
    """Its ops are units of their own."""
    dag = nx.DiGraph()
    dag.add_nodes_from(range(problem.num_units))
    dag.add_edges_from(zip(problem.tensors.op[problem.consumers.tensor].tolist(), problem.consumers.op.tolist(), strict=True))
    dag.add_edges_from(zip(problem.ops.control_src.tolist(), problem.ops.control_dst.tolist(), strict=True))
    return dag


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_contiguous_split_is_cheaper(shape: str, limited: bool) -> None:
    problem = shaped(shape, devices=2, limited=limited, ops=7)
    assert problem.num_units == problem.num_ops
    dag = graph(problem)
    after = {u: nx.descendants(dag, u) for u in dag}
    costs = []
    for chosen in itertools.product((False, True), repeat=problem.num_units):
        piece = [u for u, there in enumerate(chosen) if there]
        between = {w for u in piece for w in after[u] - set(piece) if after[w] & set(piece)}
        split = Assignment(np.where(chosen & problem.units.allowed[:, 1], 1, 0))
        if not between and not excess(problem, split).any():
            costs.append(total_cost_ns(problem, split))
    assert ChainDp().solve(problem, "total_cost").objective_ns == min(costs)


@pytest.mark.parametrize("shape", SHAPES)
def test_ideals_are_all_sets_with_what_comes_before(shape: str) -> None:
    problem = shaped(shape, devices=2, limited=False, ops=7)
    dag = graph(problem)
    edges = precedence(problem.num_units, dag.edges)
    expected = {
        chosen
        for chosen in itertools.product((False, True), repeat=problem.num_units)
        if all(chosen[a] or not chosen[b] for a, b in dag.edges)
    }
    family, everything = ideals(problem.num_units, edges, 1_000)
    assert everything
    assert len(family) == len(expected)
    assert {tuple(row) for row in family.tolist()} == expected
    thinned, everything = ideals(problem.num_units, edges, 6)
    assert not everything
    assert {tuple(row) for row in thinned.tolist()} <= expected


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_depth_first_order_is_topological(shape: str, last_first: bool) -> None:
    problem = shaped(shape, devices=2, limited=False, ops=40)
    dag = nx.DiGraph(graph(problem).edges)
    order = depth_first(problem.num_ops, precedence(problem.num_ops, dag.edges), last_first=last_first)
    place = {unit: i for i, unit in enumerate(order)}
    assert sorted(order) == list(range(problem.num_ops))
    assert all(place[a] < place[b] for a, b in dag.edges)


def test_edges_that_close_a_circle_are_left_out() -> None:
    assert precedence(3, [(0, 1), (1, 2), (2, 0), (0, 2), (1, 1)]) == [(0, 1), (0, 2), (1, 2)]
