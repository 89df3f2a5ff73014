"""The parts of a problem from a networkx graph of ops and a machine."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import networkx as nx
import numpy as np

from cost_models.machine_files import load_machine
from cost_models.machines import Machine, MachineError
from cost_models.transfers import copy_costs
from placer.errors import OptionError
from placer.problem.arrays import Bools, Floats, Ints, Part
from placer.problem.attributes import Attributes
from placer.problem.machine_devices import devices_of
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units

MAX_SHOWN = 6
"""The most nodes of a circle that a message lists."""
OP_ATTRIBUTES = (
    "time_ns",
    "dispatch_ns",
    "compute_ns",
    "devices",
    "group",
    "output_bytes",
    "persistent_bytes",
    "workspace_bytes",
    "count",
)
EDGE_ATTRIBUTES = ("bytes", "tensor", "control")
DEVICE_ATTRIBUTES = ("kind", "task", "memory_bytes", "asynchronous", "threads", "shares_cores", "call_ns", "wake_ns")
LINK_ATTRIBUTES = ("latency_ns", "ns_per_byte", "interval_ns")


def parts_of(dag: nx.DiGraph, machine: Machine | str | nx.Graph) -> dict[str, Part]:
    """The parts of the problem that `PlacementProblem.from_networkx` makes, by name; arguments and errors as there."""
    if not isinstance(dag, nx.Graph) or not dag.is_directed():
        raise OptionError(f"a {type(dag).__name__} is no directed networkx graph: give a DiGraph or a MultiDiGraph.")
    if not len(dag):
        raise OptionError("the graph has no nodes.")
    if equal := [name for name, nodes in Counter(map(str, dag)).items() if nodes > 1]:
        raise OptionError(f"several nodes are called {equal[0]!r}: an op has a name of its own, as text.")
    devices, links = _network_parts(machine) if isinstance(machine, nx.Graph) else _machine_parts(machine)
    order = _execution_order(dag)
    nodes = [Attributes(f"node {name!r}", dag.nodes[name]) for name in order]
    for node in nodes:
        node.check_names(OP_ATTRIBUTES, EDGE_ATTRIBUTES)
    stated = np.array([node.by_device("time_ns", devices.names, devices.kinds) for node in nodes], np.float64)
    unit, units = _units(nodes, devices, np.isfinite(stated))
    number = {name: op for op, name in enumerate(order)}
    tensors, controls = _edges(dag, order, number)

    count = np.array([node.number("count", 1) for node in nodes], np.float64)
    time = np.nan_to_num(stated)  # no number where an op may not be
    dispatch = _by_device(nodes, "dispatch_ns", devices, np.zeros_like(time))
    compute = _by_device(nodes, "compute_ns", devices, np.where(devices.asynchronous, time, np.maximum(0, time - dispatch)))
    _check_shares(nodes, devices, stated, dispatch, compute, count)
    workspace = _by_device(nodes, "workspace_bytes", devices, np.zeros_like(time))
    output = np.array([node.whole("output_bytes", 0) for node in nodes])
    made = np.array([tensor.op for tensor in tensors], np.int64)
    output[made] = 0  # what no op consumes is held while its op runs
    consumers = [sorted(set(tensor.consumers)) for tensor in tensors]
    entries = sum(map(len, consumers))
    return {
        "devices": devices,
        "links": links,
        "units": units,
        "ops": Ops(
            names=tuple(map(str, order)),
            unit=unit,
            time_ns=time.astype(np.int64),
            dispatch_ns=dispatch.astype(np.int64),
            compute_ns=compute.astype(np.int64),
            count=count,
            workspace_bytes=workspace.astype(np.int64) + output[:, None],
            control_src=np.array([a for a, _ in controls], np.int64),
            control_dst=np.array([b for _, b in controls], np.int64),
        ),
        "tensors": Tensors(
            op=made,
            nbytes=np.array([tensor.nbytes for tensor in tensors], np.int64),
            count=count[made],
            on_host=np.zeros((len(tensors), len(devices)), np.bool_),
        ),
        "consumers": Consumers(
            start=np.append(0, np.cumsum([len(each) for each in consumers], dtype=np.int64)),
            op=np.array([op for each in consumers for op in each], np.int64),
            on_host=np.zeros((entries, len(devices)), np.bool_),
        ),
    }


def _machine_parts(machine: Machine | str) -> tuple[Devices, Links]:
    if isinstance(machine, str):
        try:
            machine = load_machine(machine)
        except MachineError as error:
            raise OptionError(f"{error}.") from error
    if not isinstance(machine, Machine):
        raise OptionError(f"{machine!r} is no machine: give a Machine, a shipped one's name, or a networkx graph of devices.")
    latency, per_byte, interval = copy_costs(machine)
    links = Links(latency_ns=latency, ns_per_byte=per_byte, interval_ns=interval)
    return devices_of(machine, {}, arguments=0, captures=0), links


def _network_parts(network: nx.Graph) -> tuple[Devices, Links]:
    """The devices and links of a networkx graph of devices."""
    if not len(network):
        raise OptionError("the network has no devices.")
    if network.is_multigraph():
        raise OptionError(
            f"the network is a {type(network).__name__}; give a Graph or a DiGraph, with one link between two devices."
        )
    names = tuple(network)
    if not all(isinstance(name, str) for name in names):
        raise OptionError(f"the devices of a network have names that are text, unlike {names!r}.")
    nodes = [Attributes(f"device {name!r}", network.nodes[name]) for name in names]
    for node in nodes:
        node.check_names(DEVICE_ATTRIBUTES, LINK_ATTRIBUTES)
    kinds = tuple(node.text("kind", _kind_of_name(name)) for node, name in zip(nodes, names, strict=True))
    whole = Attributes("the network", network.graph)
    devices = Devices(
        names=names,
        kinds=kinds,
        tasks=tuple(node.text("task") for node in nodes),
        memory_limit_bytes=np.array([node.whole("memory_bytes", -1, least=-1) for node in nodes]),
        asynchronous=np.array([node.flag("asynchronous", kind == "GPU") for node, kind in zip(nodes, kinds, strict=True)]),
        threads=np.array([node.whole("threads", 1, least=1) for node in nodes]),
        shares_cores=np.array([node.flag("shares_cores") for node in nodes]),
        call_ns=np.array([node.whole("call_ns", 0) for node in nodes]),
        wake_ns=np.array([node.whole("wake_ns", 0) for node in nodes]),
        **{name: whole.whole(name, 0) for name in NETWORK_FIELDS},
    )
    count = len(names)
    costs = {f.name: np.zeros((2 * count, 2 * count)) for f in fields(Links)}
    for (a, src), (b, dst) in itertools.permutations(enumerate(names), 2):
        if not network.has_edge(src, dst):
            raise OptionError(f"the network has no link from {src!r} to {dst!r}.")
        link = Attributes(f"link {src!r} -> {dst!r}", network.edges[src, dst])
        link.check_names(LINK_ATTRIBUTES, DEVICE_ATTRIBUTES)
        cost = {"latency_ns": link.whole("latency_ns", 0), "ns_per_byte": link.number("ns_per_byte", 0)}
        cost["interval_ns"] = link.whole("interval_ns", 0)
        for name, value in cost.items():
            for place in ((a, b), (a + count, b), (a, b + count), (a + count, b + count)):
                costs[name][place] = value
    return devices, Links(
        latency_ns=costs["latency_ns"].astype(np.int64),
        ns_per_byte=costs["ns_per_byte"],
        interval_ns=costs["interval_ns"].astype(np.int64),
        contention=whole.flag("contention", True),
    )


NETWORK_FIELDS = tuple(f.name for f in fields(Devices) if "axes" not in f.metadata)
"""The plain numbers of `Devices`, which are attributes of the network as a whole."""


def _kind_of_name(name: str) -> str:
    """The kind in a name such as "GPU:0" or "worker:1/GPU:0"; "CPU" for other names."""
    kind, colon, _ = name.rpartition("/")[2].partition(":")
    return kind if colon else "CPU"


def _execution_order(dag: nx.DiGraph) -> list[Any]:
    """The nodes in topological order, as close to the order of the graph as that allows."""
    place = {name: i for i, name in enumerate(dag)}
    try:
        return list(nx.lexicographical_topological_sort(dag, key=place.__getitem__))
    except nx.NetworkXUnfeasible:
        circle = [repr(edge[0]) for edge in nx.find_cycle(dag)]
        shown = [*circle[:MAX_SHOWN], *(["…"] if len(circle) > MAX_SHOWN else []), circle[0]]
        raise OptionError(f"the graph has a circle: {' -> '.join(shown)}.") from None


def _by_device(nodes: Sequence[Attributes], name: str, devices: Devices, default: Floats) -> Floats:
    """[N, D]: an attribute of each op on each device; the default where it has none."""
    absent: list[int | None] = [None] * len(devices)
    rows = [node.by_device(name, devices.names, devices.kinds) if name in node.values else absent for node in nodes]
    given = np.array(rows, np.float64)
    return np.where(np.isnan(given), default, given)


def _check_shares(
    nodes: Sequence[Attributes], devices: Devices, stated: Floats, dispatch: Floats, compute: Floats, count: Floats
) -> None:
    """Raises OptionError for a share of a time that exceeds it, and for the time of an op that never runs. ``count`` is [N]."""
    for name, share in (("dispatch_ns", dispatch), ("compute_ns", compute)):
        for op, device in np.argwhere(share > stated)[:1].tolist():
            over, time = int(share[op, device]), int(stated[op, device])
            raise OptionError(f"{nodes[op].where}: {name}={over} must be at most time_ns={time} on {devices.names[device]}.")
    for op in np.flatnonzero((count == 0) & (np.nan_to_num(stated) > 0).any(axis=1))[:1].tolist():
        raise nodes[op].error("count", "above 0, since time_ns is; an op that never runs has count=0 and time_ns=0")


def _units(nodes: Sequence[Attributes], devices: Devices, timed: Bools) -> tuple[Ints, Units]:
    """The unit of each op, [N], and the units: the ops of a group, or a single op. ``timed`` [N, D]: whether an op has a time."""
    allowed = timed & np.array([node.chosen_devices("devices", devices.names, devices.kinds) for node in nodes])
    numbers: dict[tuple[str, int], int] = {}
    groups = [node.text("group") for node in nodes]
    unit = np.array(
        [numbers.setdefault((group, -1) if group else ("", op), len(numbers)) for op, group in enumerate(groups)], np.int64
    )
    unit_allowed, held = np.ones((len(numbers), len(devices)), np.bool_), np.zeros(len(numbers), np.int64)
    np.logical_and.at(unit_allowed, unit, allowed)
    np.add.at(held, unit, [node.whole("persistent_bytes", 0) for node in nodes])
    for nowhere in np.flatnonzero(~unit_allowed.any(axis=1)).tolist():
        members = [node.where for node, u in zip(nodes, unit.tolist(), strict=True) if u == nowhere]
        first = nodes[int(np.argmax(unit == nowhere))]
        of_group = f"group {first.text('group')!r} ({', '.join(members[:MAX_SHOWN])})" if len(members) > 1 else members[0]
        raise OptionError(f"{of_group} is allowed on no device: see its devices and time_ns.")
    return unit, Units(allowed=unit_allowed, persistent_bytes=held)


@dataclass
class _Tensor:
    """A tensor and its consumers while edges are read."""

    op: int
    nbytes: int | None
    consumers: list[int] = field(default_factory=list)


def _edges(dag: nx.DiGraph, order: Sequence[Any], number: dict[Any, int]) -> tuple[list[_Tensor], list[tuple[int, int]]]:
    """The tensors in the order of their ops, and the control edges."""
    tensors: list[_Tensor] = []
    controls: dict[tuple[int, int], None] = {}
    for op, name in enumerate(order):
        node = Attributes(f"node {name!r}", dag.nodes[name])
        own: dict[Any, _Tensor] = {}
        for k, (_, target, data) in enumerate(_out_edges(dag, name)):
            edge = Attributes(f"edge {name!r} -> {target!r}", data)
            edge.check_names(EDGE_ATTRIBUTES, OP_ATTRIBUTES)
            if edge.flag("control"):
                if carried := [each for each in ("bytes", "tensor") if each in data]:
                    raise edge.error(carried[0], "absent, since an edge with control=True carries no tensor")
                controls[op, number[target]] = None
                continue
            stated = edge.whole("bytes") if "bytes" in data else None
            key = edge.text("tensor") if "tensor" in data else None if stated is None else k
            tensor = own.setdefault(key, _Tensor(op, stated))
            if None not in (stated, tensor.nbytes) and stated != tensor.nbytes:
                raise OptionError(f"{edge.where}: bytes={stated} where another edge of tensor {key!r} has {tensor.nbytes}.")
            tensor.nbytes = tensor.nbytes if stated is None else stated
            tensor.consumers.append(number[target])
        for tensor in own.values():
            tensor.nbytes = node.whole("output_bytes", 0) if tensor.nbytes is None else tensor.nbytes
        tensors += own.values()
    return tensors, list(controls)


def _out_edges(dag: nx.DiGraph, name: Any) -> Iterable[tuple[Any, Any, dict[str, Any]]]:
    edges: Iterable[tuple[Any, Any, dict[str, Any]]] = dag.out_edges(name, data=True)
    return edges
