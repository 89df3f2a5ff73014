"""Data-parallel training on many GPUs, on paper: replicas that each run a plan, and the all-reduce of their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import networkx as nx

from cost_models.all_reduce import Wire, all_gather_ns, ring_ns, tree_ns
from cost_models.machines import Machine, host_of
from cost_models.network import Network
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph
from placer.plan.placement import Placement
from placer.verbs.solve import solved

GPUS = (1, 2, 8, 64, 256, 1024)
"""Numbers of GPUs by default."""
MAX_GPUS = 1024
_SPARSE_UPDATES = ("ResourceScatter", "ResourceSparseApply")
"""Ops that update some rows of a variable. Their gradients are gathered, not summed."""
_UPDATES = ("Assign", "ResourceApply")
"""Ops that update a whole variable."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """One step on a number of GPUs."""

    gpus: int
    hosts: int
    ring_ns: int
    """Time of the exchange with a ring."""
    tree_ns: int
    """Time of the exchange with two trees. Rows of tables are gathered around a ring in both."""
    overlapped_ns: int
    """Time of a step, if all of the faster exchange is hidden behind the step of the plan; at least the longer of the two."""
    in_turn_ns: int
    """Time of a step, if the faster exchange starts at the end of the step of the plan."""


@dataclass(frozen=True)
class Scaling:
    """What `scale` computes."""

    placement: Placement
    """The plan of each replica."""
    gradient_bytes: int
    """Gradients of whole variables, which are summed over all replicas."""
    row_bytes: int
    """Gradients of rows of variables, and their numbers, which every replica collects from all others."""
    rows: tuple[Scaled, ...]
    constants: tuple[str, ...]
    """What the figures rest on, a sentence for each, with its origin: measured, from data sheets or assumed."""

    def efficiency(self, row: Scaled) -> tuple[float, float]:
        """Useful share of the GPUs' time at most and at least: the step of the plan divided by the step on that many GPUs."""
        alone = self.placement.step_time_ns
        return alone / max(1, row.overlapped_ns), alone / max(1, row.in_turn_ns)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON types."""
        return {
            "graph": self.placement.graph.name,
            "machine": self.placement.machine,
            "step_time_ns": self.placement.step_time_ns,
            "gradient_bytes": self.gradient_bytes,
            "row_bytes": self.row_bytes,
            "rows": [asdict(row) for row in self.rows],
            "constants": list(self.constants),
        }

    def __str__(self) -> str:
        head = ("GPUs", "hosts", "ring", "trees", "step, overlapped", "step, in turn", "efficiency")
        rows = []
        for row in self.rows:
            most, least = self.efficiency(row)
            times = map(format_ns, (row.ring_ns, row.tree_ns, row.overlapped_ns, row.in_turn_ns))
            rows.append([str(row.gpus), str(row.hosts), *times, f"{least:.0%} to {most:.0%}"])
        exchanged = f"gradients  {format_bytes(self.gradient_bytes)} summed over replicas"
        exchanged += f", {format_bytes(self.row_bytes)} of rows collected from each" if self.row_bytes else ""
        return "\n".join([table(head, rows), "", exchanged, *(f"constant   {text}" for text in self.constants)])


def scale(
    graph: OpGraph,
    machine: Machine | str | None = None,
    *,
    gpus: Iterable[int] | int = GPUS,
    gpus_per_host: int = 8,
    network: Network | None = None,
    **options: Any,
) -> Scaling:
    """Predicts a training step on many GPUs, on paper: nothing runs, and no figure was compared with a run.

    Each replica runs the plan of `solve` for `machine`, on a batch of its own. Then the replicas exchange gradients: whole ones
    by an all-reduce, those of rows by an all-gather, as `cost_models.all_reduce` prices them. A step takes at least as long as
    if all of the exchange was hidden behind the computation, and at most as long as if none was.

    Args:
        graph: a training step: the variables that it updates and from which its results are computed have gradients.
        machine: the devices of one replica, as for `solve`. If it has several GPUs, a replica uses all of them.
        gpus: numbers of GPUs, or one, from 1 to 1,024, each a multiple of those of a replica.
        gpus_per_host: how many GPUs a host has.
        network: the links between hosts; by default those of 10 Gbit Ethernet.
        **options: fields of `Options` as keywords.

    Raises:
        OptionError: a number that cannot be used; the machine has no GPU; or the graph updates no variable. Also
            as for `solve`.
    """
    numbers = [_whole("gpus", n) for n in (gpus if isinstance(gpus, Iterable) else (gpus,))]
    if not numbers:
        raise OptionError("gpus is empty: give numbers of GPUs, such as [8, 64].")
    if not isinstance(network, Network | None):
        raise OptionError(f"network={network!r} must be a cost_models.network.Network.")
    gpus_per_host = _whole("gpus_per_host", gpus_per_host)
    planned = solved(graph, machine, **options)
    target = planned.machine
    per_replica = sum(device.kind == "GPU" for device in target.devices)
    if not per_replica:
        raise OptionError(f"{target.name!r} has no GPU: give a machine for one replica, such as devices='h100'.")
    if gpus_per_host % per_replica:
        raise OptionError(f"gpus_per_host={gpus_per_host} must be a multiple of the {per_replica} GPUs of a replica.")
    if bad := [n for n in numbers if n % per_replica]:
        raise OptionError(f"gpus={bad[0]} must be a multiple of the {per_replica} GPUs of a replica.")
    whole, rows = exchanged_bytes(graph)
    if not whole + rows:
        raise OptionError(f"{graph.name!r} updates no variable from which a result is computed: give a training step.")
    inside, origin = _inside(target)
    between = network or Network()
    steps = tuple(
        _scaled(planned.placement.step_time_ns, n, per_replica, gpus_per_host, whole, rows, inside, between) for n in numbers
    )
    of_machine = "data sheets" if target.from_data_sheets else target.provenance or target.name
    alone = format_ns(planned.placement.step_time_ns)
    constants = (
        f"a replica's step of {alone}: predicted by the plan on {target.name}, priced as {of_machine}",
        "a replica has a host to itself; replicas that share a host's cores take turns on them, which is not counted",
        f"within a host {_link(inside)}: {origin}",
        f"between hosts {_link(_between(between))}: {'assumed' if network is None else 'given'}",
        f"{gpus_per_host} GPUs a host: assumed; sums of gradients take no time: assumed",
    )
    return Scaling(planned.placement, whole, rows, steps, constants)


def _whole(name: str, value: Any) -> int:
    """An argument as a number of GPUs. Raises OptionError if it is none."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 0 < int(value) <= MAX_GPUS:
        raise OptionError(f"{name}={value!r} must be a whole number from 1 to {MAX_GPUS}.")
    return int(value)


def exchanged_bytes(graph: OpGraph) -> tuple[int, int]:
    """Bytes of gradients of whole variables, and of rows of variables with their numbers, that a step makes.

    Variables with gradients are those that the graph updates and from which its results are computed, such as the loss. The
    state of an optimizer is updated too, but no result is computed from it.
    """
    flows = nx.DiGraph()
    flows.add_nodes_from(graph.graph)
    flows.add_edges_from((src, dst) for src, dst, tensors in graph.graph.edges(data="tensors") if tensors)
    used = set().union(*({name} | nx.ancestors(flows, name) for name in {name for name, _ in graph.outputs}), set())
    whole: dict[str, int] = {}
    rows = 0
    for handle in (op for op in graph if op.resource in graph.resources and op.name in used):
        for name in flows.successors(handle.name):
            update = graph.op(name)
            if update.op_type.startswith(_SPARSE_UPDATES):
                rows += round(update.count * sum(spec.nbytes or 0 for spec in update.signature.inputs if spec.shape))
            elif update.op_type.startswith(_UPDATES) and _is_target(graph, handle.name, name):
                whole[handle.resource] = graph.resources[handle.resource].nbytes
    return sum(whole.values()), rows


def _is_target(graph: OpGraph, handle: str, update: str) -> bool:
    """Whether an op updates the variable of a handle: its first input. Later ones are the state of an optimizer."""
    return any(tensor.dst_index == 0 for tensor in graph.graph.edges[handle, update]["tensors"])


def _inside(machine: Machine) -> tuple[Wire, str]:
    """The slowest link between two GPUs of a host, and its origin in words."""
    known = "from data sheets" if machine.from_data_sheets else f"copies of TensorFlow as for {machine.name}, not of NCCL"
    gpus = [device.name for device in machine.devices if device.kind == "GPU"]
    direct = [link for link in machine.links if link.src in gpus and link.dst in gpus]
    if direct:
        return Wire(max(link.latency_ns for link in direct), min(link.bytes_per_s for link in direct)), known
    legs = [link for link in machine.links if {link.src, link.dst} == {gpus[0], host_of(gpus[0])}]
    s_per_byte = sum(1 / link.bytes_per_s for link in legs)
    return Wire(sum(link.latency_ns for link in legs), 1 / s_per_byte), f"through the host, {known}; assumed, as it has one GPU"


def _between(network: Network) -> Wire:
    return Wire(1e3 * network.latency_us, network.bytes_per_s)


def _link(wire: Wire) -> str:
    return f"{format_ns(wire.latency_ns)} and {wire.bytes_per_s / 1e9:.3g} GB/s"


def _scaled(
    step_ns: int, gpus: int, per_replica: int, per_host: int, whole: int, rows: int, inside: Wire, network: Network
) -> Scaled:
    """One row. In a ring over several hosts, each host has one link in and one out; all messages wait for the slowest link."""
    replicas, hosts = gpus // per_replica, -(-gpus // per_host)
    outside = _between(network)
    slowest = Wire(max(inside.latency_ns, outside.latency_ns), min(inside.bytes_per_s, outside.bytes_per_s))
    wire = inside if hosts == 1 else slowest
    gathered_ns = all_gather_ns(rows, replicas, wire) if rows else 0.0
    ring, tree = (round(gathered_ns + (summed_ns(whole, replicas, wire) if whole else 0)) for summed_ns in (ring_ns, tree_ns))
    exchange = min(ring, tree)
    return Scaled(gpus, hosts, ring, tree, max(step_ns, exchange), step_ns + exchange)
