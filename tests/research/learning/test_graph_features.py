"""A problem as arrays for learners on graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from placer.errors import PlanError
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.instances.families import synthetic
from placer.research.learning.graph_features import DEVICE_FEATURES, EDGE_FEATURES, NODE_FEATURES, graph_features
from tests.helpers.random_problems import problems


@given(problems())
def test_nodes_and_edges_have_the_times_of_the_problem(problem: PlacementProblem) -> None:
    found = graph_features(problem)
    ops, devices, edges = problem.num_ops, problem.num_devices, found.edge_index.shape[1]
    assert found.node.shape == (ops, len(NODE_FEATURES))
    assert found.edge.shape == (edges, len(EDGE_FEATURES))
    assert found.device.shape == (devices, len(DEVICE_FEATURES))
    assert (found.edge_index[0] < found.edge_index[1]).all()
    depth = found.node[:, NODE_FEATURES.index("depth")]
    assert (depth[found.edge_index[0]] < depth[found.edge_index[1]]).all()
    for device in range(devices):
        if problem.units.allowed[:, device].all() and not found.copy_ns[:, device, device].any():
            everything = Assignment(np.full(problem.num_units, device))
            assert found.time_ns[:, device].sum() == total_cost_ns(problem, everything)


def test_a_file_has_the_arrays_and_the_names_of_their_columns(tmp_path: Path) -> None:
    found = graph_features(synthetic("layered", ops=20, gpus=2))
    found.save(tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as file:
        assert (file["edge_index"] == found.edge_index).all()
        assert (file["node"] == found.node).all()
        assert file["copy_ns"].shape == (found.edge.shape[0], 3, 3)
        assert file["node_features"].tolist() == list(NODE_FEATURES)
        assert file["op_names"].tolist() == list(found.op_names)
    with pytest.raises(PlanError, match="cannot be written"):
        found.save(tmp_path / "no" / "graph.npz")
