"""PlacementProblem: placement as numpy arrays, without TensorFlow and without names where numbers do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placer.problem.crossings import Crossings

if TYPE_CHECKING:
    from placer.problem.schedule import Simulator

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Grouped:
    """Positions in an array of group numbers, by group."""

    order: Ints
    start: Ints
    """[groups + 1]: those of group g are order[start[g]:start[g + 1]], ascending."""

    @classmethod
    def by(cls, group: Ints, groups: int) -> Grouped:
        order = np.argsort(group, kind="stable")
        return cls(order, np.searchsorted(group[order], np.arange(groups + 1)))

    def of(self, groups: Ints) -> Ints:
        """The positions of several groups, one group after the other."""
        first, count = self.start[groups], self.start[groups + 1] - self.start[groups]
        gaps = np.repeat(first - np.cumsum(count) + count, count)
        return self.order[gaps + np.arange(len(gaps))]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Which device each unit of ops runs on.

    Ops are numbered in execution order (topological). A *unit* is the ops that must share a device. Shapes below: N ops,
    U units, D devices, T tensors, C consumer entries, K control edges, P = 2·D places.

    A *place* is where a tensor's bytes are: place ``d`` is device d's own memory, place ``D + d`` is host memory as seen by
    device d. On a CPU both are the host, so only ``d`` is used there. A tensor crosses once per distinct destination place
    of its consumers that differs from the place it is produced in, at ``copy_ns``.

    Raises ValueError where the arrays do not fit together.
    """

    device_names: tuple[str, ...]
    device_kinds: tuple[str, ...]
    memory_limit_bytes: Ints
    """[D]; -1 where there is no limit."""
    asynchronous: Bools
    """[D]: the device runs a stream that the host only feeds."""

    op_names: tuple[str, ...]
    op_unit: Ints
    """[N] in 0..U-1."""
    op_time_ns: Ints
    """[N, D]: serial time on each device, all runs of one step counted. Meaningless where not `unit_allowed`."""
    op_dispatch_ns: Ints
    """[N, D]: the host's share of it, all runs counted."""
    op_compute_ns: Ints
    """[N, D]: the device's share of it, all runs counted."""
    op_count: Floats
    """[N]: runs per step."""
    op_workspace_bytes: Ints
    """[N, D]"""

    unit_allowed: Bools
    """[U, D]; at least one device each."""
    unit_persistent_bytes: Ints
    """[U]: variables and constants that live as long as the function."""

    tensor_op: Ints
    """[T]: producing op."""
    tensor_bytes: Ints
    """[T]"""
    tensor_count: Floats
    """[T]: times it crosses per step, if it crosses."""
    tensor_on_host: Bools
    """[T, D]: produced in host memory when its producer is on device d."""
    consumer_start: Ints
    """[T + 1]: consumers of tensor t are entries consumer_start[t]:consumer_start[t+1]."""
    consumer_op: Ints
    """[C]"""
    consumer_on_host: Bools
    """[C, D]: taken from host memory when the consumer is on device d."""
    tensor_free: Bools
    """[T]: copying it to a further place costs no time at run time (a constant, copied when the plan is applied)."""
    tensor_is_result: Bools
    """[T]: the caller has it, as a result or an argument, so it lives to the end of the step."""

    control_src: Ints
    """[K]"""
    control_dst: Ints
    """[K]"""

    copy_latency_ns: Ints
    """[P, P]; 0 where no copy is needed."""
    copy_ns_per_byte: Floats
    """[P, P]"""
    call_overhead_ns: int

    tensor_copy_bytes: Ints | None = None
    """[T]: bytes as copies count them, more than there are where they leave slower memory; `tensor_bytes` if not given."""
    device_call_ns: Ints | None = None
    """[D]: what a call takes more where any op is on the device; nothing if not given."""
    split_ns: int = 0
    """What a call takes more for each further device that has ops."""
    waiting_ns: int = 0
    """What a call takes more where its ops take long, see `Simulator.whole_ns`."""
    device_threads: Ints | None = None
    """[D]: ops a device that is not asynchronous runs side by side; one each if not given."""
    device_wake_ns: Ints | None = None
    """[D]: what an op that uses all cores of a CPU takes more where these sleep; nothing if not given."""
    op_follows_input: Bools | None = None
    """[N]: ops that TensorFlow's placer leaves beside their first input, if all of their unit are such; none if not given."""
    tensor_shared: Bools | None = None
    """[T]: takes no memory of its own where it is made, as the value of a variable, read; none if not given."""
    copy_interval_ns: Ints | None = None
    """[P, P]: least time from the start of one copy to that of the next between the same places; 0 if not given."""
    op_moment: Ints | None = None
    """[N]: when each op takes and gives back memory, a permutation of 0..N-1 in a topological order; their own if not given."""
    consumer_until: Ints | None = None
    """[C]: the last moment at which a tensor is held for an entry: one before its consumer's where the consumer's result may take
    the tensor's memory, later where the result is a view of it; its consumer's if not given."""
    tensor_held_bytes: Ints | None = None
    """[T]: bytes as memory counts them, as allocators round up; `tensor_bytes` if not given."""
    op_serial: Bools | None = None
    """[N]: the kernel uses one thread of a CPU however long it takes, so several run side by side; None for none."""

    op_awaited: Bools | None = None
    """[N]: the kernel of an asynchronous device tells the host how to go on, so what follows waits for its end; None for none."""
    op_kind: Ints | None = None
    """[N]: ops with the same number run the same code; needed with `op_cold_ns`."""
    op_cold_ns: Ints | None = None
    """[N, D]: what a run takes more of the host where it is the first of its kind to follow a copy; nothing if not given."""

    def __post_init__(self) -> None:
        n, u, d, t, c, k = (
            len(self.op_names),
            len(self.unit_allowed),
            len(self.device_names),
            len(self.tensor_op),
            len(self.consumer_op),
            len(self.control_src),
        )
        shapes = {
            "device_kinds": (d,), "memory_limit_bytes": (d,), "asynchronous": (d,), "device_threads": (d,),
            "device_call_ns": (d,), "device_wake_ns": (d,), "tensor_copy_bytes": (t,),
            "op_unit": (n,), "op_time_ns": (n, d), "op_dispatch_ns": (n, d), "op_compute_ns": (n, d), "op_count": (n,),
            "op_workspace_bytes": (n, d), "op_follows_input": (n,), "op_serial": (n,), "op_moment": (n,), "consumer_until": (c,),
            "op_awaited": (n,), "op_kind": (n,), "op_cold_ns": (n, d),
            "unit_allowed": (u, d), "unit_persistent_bytes": (u,),
            "tensor_op": (t,), "tensor_bytes": (t,), "tensor_count": (t,), "tensor_on_host": (t, d), "consumer_start": (t + 1,),
            "consumer_op": (c,), "consumer_on_host": (c, d), "tensor_free": (t,), "tensor_is_result": (t,), "tensor_shared": (t,),
            "tensor_held_bytes": (t,),
            "control_src": (k,), "control_dst": (k,), "copy_latency_ns": (2 * d, 2 * d), "copy_ns_per_byte": (2 * d, 2 * d),
            "copy_interval_ns": (2 * d, 2 * d),
        }  # fmt: skip
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is not None and np.shape(array) != shape:
                raise ValueError(f"{name} has shape {np.shape(array)} where {shape} belongs.")
        if self.op_cold_ns is not None and self.op_kind is None:
            raise ValueError("op_cold_ns is given and op_kind is not.")
        if not self.unit_allowed.any(axis=1).all():
            raise ValueError(f"unit {int(np.argmin(self.unit_allowed.any(axis=1)))} is allowed on no device.")
        for name, index, size in (
            ("op_unit", self.op_unit, u),
            ("tensor_op", self.tensor_op, n),
            ("consumer_op", self.consumer_op, n),
        ):
            if ((index < 0) | (index >= size)).any():
                raise ValueError(f"{name} leaves the range 0..{size - 1}.")
        if len(idle := np.flatnonzero(np.bincount(self.op_unit, minlength=u) == 0)):
            raise ValueError(f"unit {int(idle[0])} has no ops.")
        if self.consumer_start[0] != 0 or self.consumer_start[-1] != c or (np.diff(self.consumer_start) < 0).any():
            raise ValueError("consumer_start does not run from 0 to the number of consumers.")
        for src, dst in ((self.tensor_op[self.consumer_tensor], self.consumer_op), (self.control_src, self.control_dst)):
            if (src >= dst).any():
                i = int(np.argmax(src >= dst))
                raise ValueError(f"{self.op_names[src[i]]} feeds {self.op_names[dst[i]]}, which does not come after it.")
        if (np.sort(self.moment) != np.arange(n)).any():
            raise ValueError("op_moment is no order of the ops.")
        if (self.consumer_last < self.tensor_begin[self.consumer_tensor]).any():
            raise ValueError("consumer_until has a tensor given back before it is made.")

    @cached_property
    def ops(self) -> int:
        """N."""
        return len(self.op_unit)

    @cached_property
    def units(self) -> int:
        """U."""
        return len(self.unit_allowed)

    @cached_property
    def devices(self) -> int:
        """D."""
        return len(self.device_names)

    @cached_property
    def host(self) -> int:
        """The device whose memory holds every host view: the first CPU, the first device where there is none."""
        return self.device_kinds.index("CPU") if "CPU" in self.device_kinds else 0

    @cached_property
    def place_device(self) -> Ints:
        """[P]: the device whose memory a place takes."""
        return np.append(np.arange(self.devices), np.full(self.devices, self.host))

    @cached_property
    def host_place(self) -> Ints:
        """[D]: host memory as seen by each device."""
        here = np.arange(self.devices)
        return np.where(np.array(self.device_kinds) == "CPU", here, here + self.devices)

    @cached_property
    def shared(self) -> Bools:
        """[T]: `tensor_shared`, none where it is not given."""
        return np.zeros(len(self.tensor_op), np.bool_) if self.tensor_shared is None else self.tensor_shared

    @cached_property
    def moment(self) -> Ints:
        """[N]: `op_moment`, the ops' own order where it is not given."""
        return np.arange(self.ops) if self.op_moment is None else self.op_moment

    @cached_property
    def moment_op(self) -> Ints:
        """[N]: the op that runs at each moment."""
        return np.argsort(self.moment)

    @cached_property
    def held_bytes(self) -> Ints:
        """[T]: what a tensor takes of a memory that it is in."""
        return self.tensor_bytes if self.tensor_held_bytes is None else self.tensor_held_bytes

    @cached_property
    def tensor_begin(self) -> Ints:
        """[T]: the first moment at which a tensor is held, wherever it is."""
        return np.where(self.tensor_free, 0, self.moment[self.tensor_op])

    @cached_property
    def consumer_last(self) -> Ints:
        """[C]: the last moment at which a tensor is held for an entry, at the entry's place."""
        until = self.moment[self.consumer_op] if self.consumer_until is None else self.consumer_until
        return np.where(self.tensor_free[self.consumer_tensor], self.ops - 1, until)

    @cached_property
    def tensor_last(self) -> Ints:
        """[T]: the last moment at which a tensor is held where it is made."""
        last = self.tensor_begin.copy()
        np.maximum.at(last, self.consumer_tensor, self.consumer_last)
        return np.where(self.tensor_is_result | self.tensor_free, self.ops - 1, last)

    @cached_property
    def consumer_tensor(self) -> Ints:
        """[C]: the tensor an entry consumes."""
        return np.repeat(np.arange(len(self.tensor_op)), np.diff(self.consumer_start))

    @cached_property
    def tensor_place(self) -> Ints:
        """[T, D]: where a tensor is produced when its producer is on device d."""
        return np.where(self.tensor_on_host, self.host_place, np.arange(self.devices))

    @cached_property
    def consumer_place(self) -> Ints:
        """[C, D]: where an entry takes its tensor when the consumer is on device d."""
        return np.where(self.consumer_on_host, self.host_place, np.arange(self.devices))

    @cached_property
    def control_count(self) -> Floats:
        """[N]: how often per step what waits for an op is told: as often as the op runs, but no more than its busiest waiter."""
        busiest = np.zeros(self.ops)
        np.maximum.at(busiest, self.control_src, self.op_count[self.control_dst])
        return np.minimum(self.op_count, busiest)

    @cached_property
    def unit_ops(self) -> Grouped:
        """The ops of each unit."""
        return Grouped.by(self.op_unit, self.units)

    @cached_property
    def crossings(self) -> Crossings:
        """What can cost a copy, between units."""
        return Crossings.of(self)

    @cached_property
    def simulator(self) -> Simulator:
        """The execution model, which remembers the steps it has played."""
        from placer.problem.schedule import Simulator

        return Simulator(self)

    @cached_property
    def copied_bytes(self) -> Ints:
        """[T]: what `copy_ns` takes for a tensor."""
        return self.tensor_bytes if self.tensor_copy_bytes is None else self.tensor_copy_bytes

    def copy_ns(self, nbytes: Ints, count: Floats, src: Ints, dst: Ints) -> Ints:
        """``round(count * (latency + nbytes * ns_per_byte))`` from place `src` to place `dst`, 0 within one; broadcasts."""
        cost = np.rint(count * (self.copy_latency_ns[src, dst] + nbytes * self.copy_ns_per_byte[src, dst]))
        return np.where(src == dst, 0, cost).astype(np.int64)

    @cached_property
    def unit_time_ns(self) -> Ints:
        """[U, D]: summed over the unit's ops."""
        total = np.zeros((self.units, self.devices), np.int64)
        np.add.at(total, self.op_unit, self.op_time_ns)
        return total


@dataclass(frozen=True, eq=False)
class Assignment:
    """A device index for every unit, shape [U]."""

    device: Ints
