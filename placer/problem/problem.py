"""PlacementProblem: placement as numpy arrays, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from placer.problem.arrays import Bools, Frozen, Grouped, Ints, derived, read_only
from placer.problem.dag import parts_of
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.to_dag import graphs_of

if TYPE_CHECKING:
    import networkx as nx

    from cost_models.machines import Machine

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacementProblem(Frozen):
    """Which device each unit of ops runs on.

    Ops are numbered in execution order (topological). A *unit* is the ops that must share a device. Shapes below: N ops,
    U units, D devices, T tensors, C consumer entries, P = 2·D places.

    A *place* is where a tensor's bytes are: place ``d`` is device d's own memory, place ``D + d`` is host memory as seen by
    device d. On a CPU both are the host, so only ``d`` is used there. A tensor is copied once to each place at which a consumer
    takes it, other than the place where it is made; the copy takes ``links.copy_ns``.

    All arrays are read-only.

    Raises ValueError where the parts do not fit together.
    """

    devices: Devices
    links: Links
    units: Units
    ops: Ops
    tensors: Tensors
    consumers: Consumers

    def __post_init__(self) -> None:
        ops, tensors, consumers = self.ops, self.tensors, self.consumers
        n, d = self.num_ops, self.num_devices
        wanted = {"D": d, "P": 2 * d, "U": self.num_units, "S": self.num_tensors + 1}
        for name, part in vars(self).items():
            for axis, size in part.sizes().items():
                if wanted.get(axis, size) != size:
                    raise ValueError(f"{name} has {axis}={size} where {axis}={wanted[axis]} is expected.")
        if not self.units.allowed.any(axis=1).all():
            raise ValueError(f"unit {int(np.argmin(self.units.allowed.any(axis=1)))} is allowed on no device.")
        for name, index, size in (
            ("ops.unit", ops.unit, self.num_units),
            ("ops.control_src", ops.control_src, n),
            ("ops.control_dst", ops.control_dst, n),
            ("tensors.op", tensors.op, n),
            ("consumers.op", consumers.op, n),
        ):
            if ((index < 0) | (index >= size)).any():
                raise ValueError(f"{name} leaves the range 0..{size - 1}.")
        if len(idle := np.flatnonzero(np.bincount(ops.unit, minlength=self.num_units) == 0)):
            raise ValueError(f"unit {int(idle[0])} has no ops.")
        start = consumers.start
        if start[0] != 0 or start[-1] != len(consumers) or (np.diff(start) < 0).any():
            raise ValueError("consumers.start does not run from 0 to the number of consumers.")
        for src, dst in ((tensors.op[consumers.tensor], consumers.op), (ops.control_src, ops.control_dst)):
            if (src >= dst).any():
                i = int(np.argmax(src >= dst))
                raise ValueError(f"{ops.names[src[i]]} feeds {ops.names[dst[i]]}, which does not come after it.")
        made_moment = ops.moment[tensors.op][consumers.tensor]
        if (~tensors.free[consumers.tensor] & (consumers.until < made_moment)).any():
            raise ValueError("consumers.until has a tensor given back before it is made.")
        if (consumers.until >= n).any():
            raise ValueError("consumers.until has a tensor given back after the step.")

    @classmethod
    def from_networkx(cls, dag: nx.DiGraph, machine: Machine | str | nx.Graph) -> PlacementProblem:
        """The problem of placing a networkx graph of ops on a machine.

        Attributes of a node, which is an op; times in ns, sizes in bytes:

        - ``time_ns``: time of one step's runs. One number for all devices, or a mapping from names ("GPU:1") or kinds ("GPU") of
          devices to numbers. The op may not be on a device that the mapping leaves out. Needed; all others have defaults.
        - ``dispatch_ns``: the host's share of the time, ``compute_ns``: the device's share, as one number or a mapping. By
          default the host has none, and the device has the rest, or all of it if it is asynchronous.
        - ``devices``: names or kinds of the devices on which it may be; all by default.
        - ``group``: a text; ops of one group share a device.
        - ``output_bytes``: size of the output, which its out-edges carry; 0 by default.
        - ``persistent_bytes``: size of what it holds for as long as the function lives, such as variables; 0 by default.
        - ``workspace_bytes``: memory that it holds while it runs, as one number or a mapping; 0 by default.
        - ``count``: runs per step, 1 by default.

        Attributes of an edge:

        - ``bytes``: size of the tensor on this edge, which is then a tensor of its own.
        - ``tensor``: a text; the edges from one op with one name carry one tensor, which is copied once to each device.
        - ``control``: True if the edge carries no tensor: the target runs after the source.

        Ops run in the order of the nodes, as far as the edges allow.

        Args:
            dag: a DiGraph or MultiDiGraph without circles.
            machine: a `Machine`; the name of a shipped one or a TOML file; or a networkx graph of devices with a link between any
                two. A device has the attributes ``kind`` ("CPU" or "GPU"; by default what its name begins with), ``memory_bytes``
                (no limit by default), ``threads`` (ops that it runs at once, 1 by default) and ``asynchronous`` (by default True
                for a GPU). A link has ``latency_ns`` and ``ns_per_byte``, both 0 by default. `to_networkx` writes all attributes.

        Raises:
            OptionError: an attribute is missing or wrong, the graph has a circle, or there is no such machine. The message names
                the node or edge and the attribute.

        >>> import networkx as nx
        >>> dag = nx.DiGraph()
        >>> dag.add_node("read", time_ns={"CPU": 900}, output_bytes=4096)
        >>> dag.add_node("multiply", time_ns={"CPU": 50_000, "GPU": 2_000})
        >>> dag.add_edge("read", "multiply")
        >>> problem = PlacementProblem.from_networkx(dag, "h100")
        >>> problem.devices.names, problem.units.allowed.tolist()
        (('CPU:0', 'GPU:0'), [[True, False], [True, True]])
        """
        return cls(**parts_of(dag, machine))  # type: ignore[arg-type]

    def to_networkx(self) -> tuple[nx.MultiDiGraph, nx.DiGraph]:
        """The graph of ops and the graph of devices of which `from_networkx` makes this problem, as far as it can.

        An edge has a ``tensor`` if its op makes several. `placer.research.formats.differences.differences` names the fields of
        the problem that the graphs do not hold, such as `tensors.on_host`.
        """
        return graphs_of(self)

    @property
    def num_devices(self) -> int:
        """D."""
        return len(self.devices)

    @property
    def num_units(self) -> int:
        """U."""
        return len(self.units)

    @property
    def num_ops(self) -> int:
        """N."""
        return len(self.ops)

    @property
    def num_tensors(self) -> int:
        """T."""
        return len(self.tensors)

    def copy(self) -> PlacementProblem:
        """An equal problem. The two share only arrays that nobody can write into, so nothing done to one changes the other."""
        return PlacementProblem(**{name: copy(part) for name, part in self.__getstate__().items()})

    def on_devices(self, devices: Ints) -> PlacementProblem:
        """The same problem on a machine that has only these devices, in this order.

        Raises ValueError where a unit may be on none of them.
        """
        places = np.append(devices, devices + self.num_devices)
        parts = self.__getstate__().items()
        return PlacementProblem(**{name: part.take("D", devices).take("P", places) for name, part in parts})

    def with_memory_limits(self, limit_bytes: Ints) -> PlacementProblem:
        """The same problem with other memory limits, [D]; -1 where there is none."""
        return replace(self, devices=replace(self.devices, memory_limit_bytes=limit_bytes))

    def without_memory_limits(self) -> PlacementProblem:
        """The same problem where every device may hold any number of bytes."""
        return self.with_memory_limits(np.full(self.num_devices, -1))

    def without_contention(self) -> PlacementProblem:
        """The same problem where copies never wait for a link."""
        return replace(self, links=replace(self.links, contention=False))

    def with_allowed(self, allowed: Bools) -> PlacementProblem:
        """The same problem with other devices allowed for each unit, [U, D]."""
        return replace(self, units=replace(self.units, allowed=allowed))

    def with_units(self, unit: Ints, units: Units) -> PlacementProblem:
        """The same ops in other units: the unit of each op, [N]."""
        return replace(self, units=units, ops=replace(self.ops, unit=unit))

    @derived
    def unit_ops(self) -> Grouped:
        """The ops of each unit."""
        return Grouped.by(self.ops.unit, self.num_units)

    @derived
    def unit_time_ns(self) -> Ints:
        """[U, D]: summed over the unit's ops."""
        total = np.zeros((self.num_units, self.num_devices), np.int64)
        np.add.at(total, self.ops.unit, self.ops.time_ns)
        return total

    @derived
    def tensor_place(self) -> Ints:
        """[T, D]: where a tensor is produced when its producer is on device d."""
        return np.where(self.tensors.on_host, self.devices.host_place, np.arange(self.num_devices))

    @derived
    def consumer_place(self) -> Ints:
        """[C, D]: where a consumer takes its tensor when it is on device d."""
        return np.where(self.consumers.on_host, self.devices.host_place, np.arange(self.num_devices))


@dataclass(frozen=True, eq=False)
class Assignment:
    """A device index for every unit, shape [U]."""

    device: Ints


def once_per_problem(function: Callable[[PlacementProblem], T]) -> Callable[[PlacementProblem], T]:
    """Makes a function compute its result once for each problem, and keep it for as long as the problem lives.

    The result must not refer to the problem, which would then live for ever. Its arrays are made read-only.
    """
    results: WeakKeyDictionary[PlacementProblem, T] = WeakKeyDictionary()

    @wraps(function)
    def cached(problem: PlacementProblem) -> T:
        result = results.get(problem)
        if result is None:
            result = results[problem] = read_only(function(problem))
        return result

    return cached
