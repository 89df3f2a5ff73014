"""OpGraph: the ops of a function and of every body it calls, as one networkx DAG.

Nothing here needs TensorFlow: a saved graph can be solved, compared and drawn where it is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import networkx as nx

from cost_models.base import OpSignature

Role: TypeAlias = Literal["op", "argument", "capture", "constant", "loop", "branch"]
"""What a node stands for. "loop" and "branch" nodes are the values and predicates a While, If or Case passes around:
they have no op of their own in the traced graph but become Enter, Merge, Switch and Exit when TensorFlow lowers it."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can run an op on one device type: which inputs and outputs it keeps in host memory (flat indices)."""

    host_inputs: tuple[int, ...] = ()
    host_outputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpNode:
    """One op (or loop value) of the flattened graph. Stored as the node attribute "op"."""

    name: str
    """Call path and op name: "dense/MatMul", "PartitionedCall/MatMul", "while/body/add"."""
    op_type: str
    signature: OpSignature
    count: float
    """Expected runs per step: trip counts multiplied, a branch weighted by its share."""
    body: str = ""
    """Path of the innermost loop or branch body that holds it; "" for the root."""
    role: Role = "op"
    kernels: Mapping[str, Kernel] = None  # type: ignore[assignment]
    """By device type ("CPU", "GPU")."""
    refusals: Mapping[str, str] = None  # type: ignore[assignment]
    """By device type without a kernel: the reason, in words."""
    requested_device: str = ""
    """The device string the trace carries ("" where the user asked for nothing); may be partial."""
    location: str = ""
    """For arguments and captures: the device the passed tensor sits on in this process; "" unknown."""
    resource: str = ""
    """Key into `OpGraph.resources` for a capture or op that makes a handle."""
    group: str = ""
    """Nodes of one non-empty group must share a device; see `group_reasons`."""
    flags: tuple[str, ...] = ()
    """"stateful", "bounds" (error behaviour depends on the device), "random" (stateful randomness), "unit" (a body kept whole)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A variable, table or other state behind a handle."""

    name: str
    kind: str
    device: str
    """Where it lives in this process."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class TensorEdge:
    """One tensor on an edge: output `src_index` of the source is input `dst_index` of the target."""

    src_index: int
    dst_index: int


@dataclass(frozen=True)
class OpGraph:
    """A function's ops as a DAG.

    ``graph`` is a `networkx.DiGraph` whose nodes are op names in a topological (execution) order with attribute "op"
    (`OpNode`), and whose edges carry "tensors" (tuple of `TensorEdge`, empty for a pure control edge) and "control" (bool).
    """

    name: str
    graph: nx.DiGraph
    resources: Mapping[str, Resource]
    group_reasons: Mapping[str, str]
    """Why the nodes of a group belong together, in words."""
    process_devices: tuple[str, ...]
    """Devices TensorFlow saw when the graph was read ("CPU:0", "GPU:0")."""
    trip_counts: Mapping[str, tuple[int, str]]
    """By While node: trip count and its source ("constant", "default")."""
    outputs: tuple[tuple[str, int], ...]
    """Node and output index of each result."""
    notes: tuple[str, ...] = ()
