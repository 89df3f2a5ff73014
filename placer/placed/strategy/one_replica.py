"""The graph of one replica, and the devices of all replicas by its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import networkx as nx

from cost_models.ops import entry_of
from placer.common.device_spec import parse
from placer.graph.op_graph import ENDS, OpGraph, OpNode
from placer.graph.requested_devices import device_with_kernel
from placer.verbs.share_host import HOST

if TYPE_CHECKING:
    from placer.tf.trace.replicas import Replicas


class OneReplica:
    """The first replica in the graph of a function that runs all replicas.

    Ops of no replica are the strategy's: sums over the replicas, updates of variables, what results are gathered with. They stay
    on the devices that the strategy has for them, and so does all state.

    Args:
        graph: of the function that runs all replicas.
        replicas: the ops of each replica.
    """

    def __init__(self, graph: OpGraph, replicas: Replicas) -> None:
        self.whole = graph
        self._all = _without_locations(graph)
        self._replicas = replicas
        self.devices = replicas.devices
        self._device = replicas.devices[0]
        self._fixed = self._fixed_devices()

    @cached_property
    def graph(self) -> OpGraph:
        """The ops of the first replica, and those of the strategy on its device and on the host.

        Ops that are on the replica's device only because the strategy has put all of the replica there ask for no device.
        """
        return self._graph(self._without_own_device)

    @cached_property
    def default_graph(self) -> OpGraph:
        """The same ops. All that can run on the replica's device ask for it, as without a plan."""
        return self._graph(self._as_by_default)

    def _graph(self, op_of: Callable[[OpNode], OpNode]) -> OpGraph:
        whole = self._all
        graph = nx.DiGraph()
        for op in whole:
            if self._is_kept(op):
                graph.add_node(op.name, op=op_of(op))
        graph.add_edges_from(edge for edge in whole.graph.edges(data=True) if edge[0] in graph and edge[1] in graph)
        states = {op.resource for op in whole if op.name in graph}
        return replace(
            whole,
            graph=graph,
            resources={key: state for key, state in whole.resources.items() if key in states},
            rounds={loop: rounds for loop, rounds in whole.rounds.items() if not self._replicas.number(loop)},
            outputs=tuple(output for output in whole.outputs if output[0] in graph),
            sizes={name: sizes for name, sizes in whole.sizes.items() if name in graph},
            taken={branch: times for branch, times in whole.taken.items() if not self._replicas.number(branch)},
        )

    def devices_of_all(self, device_of: Mapping[str, str]) -> dict[str, str]:
        """The device of each op of all replicas.

        Args:
            device_of: the device of each op in the plan of the first replica.
        """
        return {op.name: self._device_in_all(op, device_of) for op in self._all}

    def _device_in_all(self, op: OpNode, device_of: Mapping[str, str]) -> str:
        if op.name in self._fixed:
            return self._fixed[op.name]
        number = self._replicas.number(op.name)
        if number is None:
            return device_of.get(op.name, HOST)
        own = self._replicas.devices[number]
        planned = device_of.get(self._replicas.first(op.name) or "")
        if planned is None:
            return own if parse(own).type in op.kernels else HOST
        return own if planned == self._device else planned

    def _fixed_devices(self) -> dict[str, str]:
        """The devices of state and of what must be with it, of arguments, and of the ops that the strategy has put somewhere."""
        of_group: dict[str, str] = {}
        fixed: dict[str, str] = {}
        for op in self._all:
            state = self._all.resources.get(op.resource)
            if device := (state.device if state else op.location):
                fixed[op.name] = device
                if op.group:
                    of_group[op.group] = device
        for op in self._all:
            if op.group in of_group:
                fixed[op.name] = of_group[op.group]
            elif op.name not in fixed and op.requested_device and self._is_shared(op):
                device = device_with_kernel(op.requested_device, op.kernels)
                fixed[op.name] = device if device in self._all.process_devices else HOST  # as by soft placement
        return fixed

    def _is_shared(self, op: OpNode) -> bool:
        """Whether an op is of no replica, or exchanges values with other replicas."""
        return self._replicas.number(op.name) is None or entry_of(op.op_type).names_partners

    def _is_kept(self, op: OpNode) -> bool:
        number = self._replicas.number(op.name)
        if number is not None:
            return number == 0
        if op.role in ENDS and (readers := list(self._all.graph.succ[op.name])):
            return any(self._replicas.number(name) == 0 or self._is_near(name) for name in readers)
        return self._is_near(op.name)

    def _is_near(self, name: str) -> bool:
        """Whether an op of no replica is on the first replica's device or on the host."""
        return self._replicas.number(name) is None and self._fixed.get(name, HOST) in (self._device, HOST)

    def _without_own_device(self, op: OpNode) -> OpNode:
        """The op, which asks for no device if the strategy has put it on the first replica's."""
        if not op.requested_device:
            return op
        if op.name in self._fixed:
            return replace(op, requested_device=self._fixed[op.name])
        return replace(op, requested_device="") if parse(op.requested_device).short == self._device else op

    def _as_by_default(self, op: OpNode) -> OpNode:
        """The op, which asks for the device on which TensorFlow runs it without a plan."""
        if op.name in self._fixed or not op.requested_device:
            return self._without_own_device(op)
        return replace(op, requested_device=device_with_kernel(op.requested_device, op.kernels))


def _without_locations(graph: OpGraph) -> OpGraph:
    """A graph in which no op is fixed because the strategy has put it on a device."""
    free = nx.DiGraph()
    free.add_nodes_from((op.name, {"op": replace(op, location="") if op.is_of_strategy else op}) for op in graph)
    free.add_edges_from(graph.graph.edges(data=True))
    return replace(graph, graph=free)
