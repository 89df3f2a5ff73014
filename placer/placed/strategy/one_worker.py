"""The graph of a function that workers run, as each of them sees it: what parameter servers hold comes through its host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import networkx as nx

from cost_models.machines import task_of
from placer.common.device_spec import parse
from placer.graph.op_graph import OpGraph, OpNode
from placer.graph.requested_devices import device_with_kernel
from placer.placed.strategy.one_replica import OneReplica
from placer.verbs.share_host import HOST

if TYPE_CHECKING:
    from placer.tf.trace.replicas import Replicas


class OneWorker(OneReplica):
    """A function that any worker of a ParameterServerStrategy runs. Devices without a task are those of the worker.

    State on parameter servers and on the coordinator stays there, with the ops that read or change it. In the planned graph it is
    on the worker's host, through which all that they send and receive goes, and takes no memory there.

    Args:
        graph: of the function, as the coordinator reads it.
        replicas: the ops of each replica of a worker.
    """

    def __init__(self, graph: OpGraph, replicas: Replicas) -> None:
        nodes = nx.DiGraph()
        nodes.add_nodes_from((op.name, {"op": replace(op, location=HOST) if _is_handle_of_worker(op) else op}) for op in graph)
        nodes.add_edges_from(graph.graph.edges(data=True))
        # State that is known to be in the process that plans is the coordinator's.
        resources = {
            key: replace(state, device=parse(state.device).full) if state.device else state
            for key, state in graph.resources.items()
        }
        super().__init__(replace(graph, graph=nodes, resources=resources), replicas)

    def _graph(self, op_of: Callable[[OpNode], OpNode]) -> OpGraph:
        found = super()._graph(op_of)
        graph = nx.DiGraph()
        graph.add_nodes_from((op.name, {"op": _seen_by_worker(op)}) for op in found)
        graph.add_edges_from(found.graph.edges(data=True))
        resources = {
            key: replace(state, device=HOST, nbytes=0) if task_of(state.device) else state
            for key, state in found.resources.items()
        }
        return replace(found, graph=graph, resources=resources, process_devices=(HOST, *self.devices))

    def _fixed_devices(self) -> dict[str, str]:
        """Those of a replica, and of ops that ask for a device with its task, which may be the coordinator."""
        asked = {
            op.name: parse(device_with_kernel(op.requested_device, op.kernels)).full
            for op in self._all
            if _names_task(op.requested_device)
        }
        return asked | super()._fixed_devices()


def _is_handle_of_worker(op: OpNode) -> bool:
    """Whether an op is an argument for which each worker has a value of its own, such as the iterator of its dataset."""
    is_handle = op.role == "argument" and op.signature.outputs[0].dtype in ("resource", "variant")
    return is_handle and not (op.resource or op.location)


def _seen_by_worker(op: OpNode) -> OpNode:
    requested = HOST if _names_task(op.requested_device) else op.requested_device
    return replace(op, location=HOST if task_of(op.location) else op.location, requested_device=requested)


def _names_task(device: str) -> bool:
    return bool(device) and parse(device).job is not None
