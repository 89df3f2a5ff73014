"""The parts of a problem: devices, links between places, units, ops, tensors and their consumers.

Letters of axes: D devices, P = 2·D places, U units, N ops, K control edges, T tensors, C consumer entries, S = T + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints, Part, array, derived


@dataclass(frozen=True, eq=False, kw_only=True)
class Devices(Part):
    """The devices of a machine, and what a call of the function takes beside its ops."""

    names: tuple[str, ...] = array("D")
    kinds: tuple[str, ...] = array("D")
    memory_limit_bytes: Ints = array("D", default=-1)
    """-1 where there is no limit."""
    asynchronous: Bools = array("D", default=False)
    """The device runs a stream that the host only feeds."""
    threads: Ints = array("D", default=1)
    """How many ops a device that is not asynchronous runs side by side."""
    call_ns: Ints = array("D", default=0)
    """What a call takes more where any op is on the device."""
    wake_ns: Ints = array("D", default=0)
    """What an op that uses all cores of a CPU takes more where their threads sleep."""
    call_overhead_ns: int = 0
    """What every call takes beside its ops."""
    split_ns: int = 0
    """What a call takes more for each further device that has ops."""
    waiting_ns: int = 0
    """What a call takes more where its ops take long, see `Simulator.whole_ns`."""

    def __len__(self) -> int:
        return len(self.names)

    @derived
    def host(self) -> int:
        """The device whose memory holds every host view: the first CPU, the first device where there is none."""
        return self.kinds.index("CPU") if "CPU" in self.kinds else 0

    @derived
    def place_device(self) -> Ints:
        """[P]: the device whose memory a place is in."""
        return np.append(np.arange(len(self)), np.full(len(self), self.host))

    @derived
    def host_place(self) -> Ints:
        """[D]: host memory as seen by each device."""
        own = np.arange(len(self))
        return np.where(np.array(self.kinds) == "CPU", own, own + len(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class Links(Part):
    """What a copy takes from each place to each other one: ``count * (latency + bytes * ns per byte)``."""

    latency_ns: Ints = array("PP")
    """0 where no copy is needed."""
    ns_per_byte: Floats = array("PP")
    interval_ns: Ints = array("PP", default=0)
    """The least time from the start of one copy to that of the next."""

    def copy_ns(self, nbytes: Ints, count: Floats, src: Ints, dst: Ints) -> Ints:
        """``round(count * (latency + nbytes * ns_per_byte))`` from place `src` to place `dst`, 0 within one; broadcasts."""
        cost = np.rint(count * (self.latency_ns[src, dst] + nbytes * self.ns_per_byte[src, dst]))
        return np.where(src == dst, 0, cost).astype(np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Units(Part):
    """Sets of ops that must share a device: what a solver decides."""

    allowed: Bools = array("UD")
    """At least one device for each unit."""
    persistent_bytes: Ints = array("U", default=0)
    """Variables and constants that live as long as the function."""

    def __len__(self) -> int:
        return len(self.allowed)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ops(Part):
    """The ops in execution order, which is topological, and the control edges between them."""

    names: tuple[str, ...] = array("N")
    unit: Ints = array("N")
    """The unit that each op belongs to; every unit has an op."""
    time_ns: Ints = array("ND")
    """Serial time on each device, all runs of one step counted. Meaningless where the unit is not allowed."""
    dispatch_ns: Ints = array("ND", default=0)
    """The host's share of `time_ns`."""
    compute_ns: Ints = array("ND", default="time_ns")
    """The device's share of `time_ns`."""
    count: Floats = array("N", default=1)
    """Runs per step."""
    workspace_bytes: Ints = array("ND", default=0)
    """Memory held while the op runs."""
    follows_input: Bools = array("N", default=False)
    """TensorFlow's placer leaves the op beside its first input, if all ops of its unit are such."""
    serial: Bools = array("N", default=False)
    """The kernel uses one thread of a CPU however long it takes, so several run side by side."""
    awaited: Bools = array("N", default=False)
    """The kernel of an asynchronous device tells the host how to go on, so what follows waits for its end."""
    kind: Ints = array("N", default=0)
    """Ops with the same number run the same code; needed where there is a `cold_ns`."""
    cold_ns: Ints = array("ND", default=0)
    """What a run takes more of the host where it is the first of its kind to follow a copy."""
    moment: Ints = array("N", default=np.arange)
    """When each op takes and gives back memory: a permutation of 0..N-1 in a topological order."""
    control_src: Ints = array("K", default=())
    control_dst: Ints = array("K", default=())
    """Ops that each control edge joins."""

    def __post_init__(self) -> None:
        if self.cold_ns is not None and self.kind is None:
            raise ValueError("ops.cold_ns is given and ops.kind is not.")
        super().__post_init__()
        if (np.sort(self.moment) != np.arange(len(self))).any():
            raise ValueError("ops.moment is no order of the ops.")

    def __len__(self) -> int:
        return len(self.names)

    @derived
    def at_moment(self) -> Ints:
        """[N]: the op that runs at each moment."""
        return np.argsort(self.moment)

    @derived
    def control_count(self) -> Floats:
        """[N]: how often per step an op's control edges pass: as often as it runs, but no more than its busiest successor."""
        busiest = np.zeros(len(self))
        np.maximum.at(busiest, self.control_src, self.count[self.control_dst])
        return np.minimum(self.count, busiest)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensors(Part):
    """The outputs of ops that have consumers, or that the caller has."""

    op: Ints = array("T")
    """Producing op."""
    nbytes: Ints = array("T")
    count: Floats = array("T", default=1)
    """How many times it crosses per step, if it crosses."""
    on_host: Bools = array("TD")
    """Produced in host memory when its producer is on device d."""
    free: Bools = array("T", default=False)
    """Copying it to a further place costs no time at run time (a constant, copied when the plan is applied)."""
    is_result: Bools = array("T", default=False)
    """The caller has it, as a result or an argument, so it lives to the end of the step."""
    shared: Bools = array("T", default=False)
    """Takes no memory of its own where it is made, such as the value that a read gives of a variable."""
    copy_bytes: Ints = array("T", default="nbytes")
    """Bytes as copies count them, more than there are where they leave slower memory."""
    held_bytes: Ints = array("T", default="nbytes")
    """Bytes as memory counts them, as allocators round up."""

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, eq=False, kw_only=True)
class Consumers(Part):
    """One entry for each input of an op that takes a tensor, grouped by tensor."""

    start: Ints = array("S")
    """Consumers of tensor t are entries start[t]:start[t + 1]."""
    op: Ints = array("C")
    """Consuming op."""
    on_host: Bools = array("CD")
    """Taken from host memory when the consumer is on device d."""
    until: Ints = array("C", default="op")
    """The last moment at which a tensor is held for an entry: one before its consumer's where the consumer's result may take the
    tensor's memory, later where the result is a view of it. The default is right where each op's moment is its number."""

    def __len__(self) -> int:
        return len(self.op)

    @derived
    def tensor(self) -> Ints:
        """[C]: the tensor that an entry consumes."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
