"""A problem as arrays for learners on graphs: features of nodes and edges, and the two ends of each edge."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.files import write_whole
from placer.errors import PlanError
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of

NODE_FEATURES = ("runs", "output_bytes", "workspace_bytes", "persistent_bytes", "depth")
"""Of an op: runs per step; bytes of all outputs; the most memory it holds while it runs on any device; bytes of variables and
constants of its unit, at the unit's first op; and the number of ops on the longest path to it."""
EDGE_FEATURES = ("bytes", "copies", "control")
"""Of an edge: bytes of the tensor, copies of it per step to another device, and 1 for a control edge, which has no bytes."""
DEVICE_FEATURES = ("cpu", "asynchronous", "threads", "memory_limit_bytes")
"""Of a device: 1 for a CPU; 1 if it computes in a stream; ops that it runs at once; -1 without a limit."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphFeatures:
    """The graph of the ops of a problem. N ops, E edges, D devices. Times are in ns and sizes in bytes, unscaled."""

    op_names: tuple[str, ...]
    """[N]"""
    device_names: tuple[str, ...]
    """[D]"""
    node: Floats
    """[N, 5], see `NODE_FEATURES`."""
    unit: Ints
    """[N]: ops with the same number must share a device."""
    allowed: Bools
    """[N, D]: whether the op may be on the device."""
    time_ns: Ints
    """[N, D]: of the op on the device; 0 where it is not allowed."""
    edge_index: Ints
    """[2, E]: the producer and the consumer of each edge. Producers come before their consumers."""
    edge: Floats
    """[E, 3], see `EDGE_FEATURES`."""
    copy_ns: Ints
    """[E, D, D]: the time of the copy from the device of the producer to that of the consumer."""
    device: Floats
    """[D, 4], see `DEVICE_FEATURES`."""

    def save(self, path: str | Path) -> None:
        """Writes all arrays to an ``.npz`` file, which `numpy.load` reads. Raises PlanError if it cannot be written."""
        arrays: dict[str, Any] = {field.name: np.array(getattr(self, field.name)) for field in fields(self)}
        arrays |= {"node_features": NODE_FEATURES, "edge_features": EDGE_FEATURES, "device_features": DEVICE_FEATURES}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        try:
            write_whole(path, content.getvalue())
        except OSError as error:
            raise PlanError(f"{path} cannot be written: {error.strerror}.") from error


def graph_features(problem: PlacementProblem) -> GraphFeatures:
    """The graph of a problem. If several ops read a tensor, it is on an edge to each, but is copied once to each place."""
    ops, tensors, devices, edges = problem.ops, problem.tensors, problem.devices, step_edges_of(problem)
    allowed = problem.units.allowed[ops.unit]
    output_bytes, persistent = np.zeros(problem.num_ops), np.zeros(problem.num_ops)
    np.add.at(output_bytes, tensors.op, tensors.nbytes)
    _, first = np.unique(ops.unit, return_index=True)
    persistent[first] = problem.units.persistent_bytes
    depth = [0] * problem.num_ops
    for source, to in zip(edges.producer.tolist(), edges.consumer_list, strict=True):  # by ascending producer
        depth[to] = max(depth[to], depth[source] + 1)
    _, copy = edges.pairs(problem)
    workspace = np.where(allowed, ops.workspace_bytes, 0).max(axis=1)
    return GraphFeatures(
        op_names=ops.names,
        device_names=devices.names,
        node=np.column_stack([ops.count, output_bytes, workspace, persistent, depth]),
        unit=ops.unit,
        allowed=allowed,
        time_ns=np.where(allowed, ops.time_ns, 0),
        edge_index=np.stack([edges.producer, edges.consumer]),
        edge=np.column_stack([edges.nbytes[edges.message], edges.count[edges.message], edges.is_control]),
        copy_ns=copy,
        device=np.column_stack(
            [np.array(devices.kinds) == "CPU", devices.asynchronous, devices.threads, devices.memory_limit_bytes]
        ).astype(np.float64),
    )
