"""The parts of a problem: devices, links between places, units, ops, tensors and their consumers.

The letters of axes: D devices; P = 2·D places; U units; N ops; K control edges; T tensors; C consumer entries; S = T + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints, Part, array, derived

MAX_COPY_NS = 2**50
"""The longest time of all copies of a tensor between two places, 13 days, so that sums fit 64 bits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Devices(Part):
    """The devices of a machine, and what a call of the function takes beside its ops."""

    names: tuple[str, ...] = array("D")
    kinds: tuple[str, ...] = array("D")
    tasks: tuple[str, ...] = array("D", default=lambda devices: [""] * devices)
    """The process that has each device, such as "worker:1"; "" for the process that makes the calls."""
    memory_limit_bytes: Ints = array("D", default=-1)
    """-1 where there is no limit."""
    asynchronous: Bools = array("D", default=False)
    """The device computes in a stream, to which the host only dispatches ops."""
    threads: Ints = array("D", default=1)
    """Number of ops that a device that is not asynchronous runs at once."""
    shares_cores: Bools = array("D", default=False)
    """The device is a logical CPU of its host: its ops run on the threads of the host's first CPU."""
    call_ns: Ints = array("D", default=0)
    """Time that a call takes longer if any op is on the device. A call is charged the largest of its devices."""
    wake_ns: Ints = array("D", default=0)
    """Time that an op takes longer if it uses all cores of a CPU while their threads sleep."""
    call_overhead_ns: int = 0
    """Time that every call takes beside its ops."""
    split_ns: int = 0
    """Time that a call takes longer for each further device that has ops."""
    waiting_ns: int = 0
    """Time that it takes to wake the caller of a long call, see `Simulator.whole_ns`."""
    unhidden_percent: int = 0
    """Share of the time of copies between accelerators, in percent, that real steps do not overlap with work, though the model
    does. Of two steps of equal length, `step_time` prefers the one with fewer such copies."""

    def __len__(self) -> int:
        return len(self.names)

    @derived
    def host(self) -> int:
        """The host of the process that makes the calls: the first CPU, the first device where there is none."""
        return self.kinds.index("CPU") if "CPU" in self.kinds else 0

    @derived
    def hosts(self) -> Ints:
        """[D]: the device whose memory is host memory for each device: the first CPU of its task, `host` where there is none."""
        first = {task: d for d, (task, kind) in reversed([*enumerate(zip(self.tasks, self.kinds, strict=True))]) if kind == "CPU"}
        return np.array([first.get(task, self.host) for task in self.tasks], np.int64)

    @derived
    def runner(self) -> Ints:
        """[D]: the device whose threads and stream run the ops of each device."""
        return np.where(self.shares_cores, self.hosts, np.arange(len(self)))

    @derived
    def place_device(self) -> Ints:
        """[P]: the device whose memory a place is in."""
        return np.append(np.arange(len(self)), self.hosts)

    @derived
    def host_place(self) -> Ints:
        """[D]: host memory as seen by each device."""
        own = np.arange(len(self))
        return np.where(np.array(self.kinds) == "CPU", own, own + len(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class Links(Part):
    """The time of a copy from each place to each other place: ``count * (latency + bytes * ns per byte)``."""

    latency_ns: Ints = array("PP")
    """0 where no copy is needed."""
    ns_per_byte: Floats = array("PP")
    interval_ns: Ints = array("PP", default=0)
    """The least time from the start of one copy to the start of the next."""
    contention: bool = True
    """A copy waits until its link is free. If False, any number of copies use a link at once, each as fast as one alone."""

    def copy_ns(self, nbytes: Ints, count: Floats, src: Ints, dst: Ints) -> Ints:
        """``round(count * (latency + nbytes * ns_per_byte))`` from place `src` to place `dst`, 0 within one; broadcasts.

        At most `MAX_COPY_NS`.
        """
        cost = np.rint(count * (self.latency_ns[src, dst] + nbytes * self.ns_per_byte[src, dst]))
        return np.where(src == dst, 0, np.minimum(cost, MAX_COPY_NS)).astype(np.int64)


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
    """Time on each device if nothing overlaps, of all runs of one step. Meaningless where the unit is not allowed."""
    dispatch_ns: Ints = array("ND", default=0)
    """The host's share of `time_ns`."""
    compute_ns: Ints = array("ND", default="time_ns")
    """The device's share of `time_ns`."""
    count: Floats = array("N", default=1)
    """Runs per step."""
    workspace_bytes: Ints = array("ND", default=0)
    """Memory held while the op runs."""
    follows_input: Bools = array("N", default=False)
    """TensorFlow's placer puts the op on the device of its first input, if this holds for all ops of its unit."""
    serial: Bools = array("N", default=False)
    """The kernel uses one thread of a CPU however long it takes, so several such ops run at once."""
    awaited: Bools = array("N", default=False)
    """The host needs the result of the kernel to continue, so all consumers wait for its end on asynchronous devices too."""
    moment: Ints = array("N", default=np.arange)
    """The position of each op in the order in which ops take and give back memory: a permutation of 0..N-1, topological."""
    control_src: Ints = array("K", default=())
    control_dst: Ints = array("K", default=())
    """`control_src` and `control_dst` are the two ops of each control edge."""

    def __post_init__(self) -> None:
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
        """[N]: signals per step along an op's control edges: as many as it runs, but no more than its busiest successor runs."""
        busiest = np.zeros(len(self))
        np.maximum.at(busiest, self.control_src, self.count[self.control_dst])
        return np.minimum(self.count, busiest)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensors(Part):
    """The outputs of ops that have consumers, or that the caller holds."""

    op: Ints = array("T")
    """Producing op."""
    nbytes: Ints = array("T")
    count: Floats = array("T", default=1)
    """Copies per step to each further place."""
    on_host: Bools = array("TD")
    """Produced in host memory when its producer is on device d."""
    free: Bools = array("T", default=False)
    """A copy takes no time at run time, as of a constant, which is copied when the plan is applied."""
    is_result: Bools = array("T", default=False)
    """The caller holds the tensor, as a result or an argument, so it lives to the end of the step."""
    shared: Bools = array("T", default=False)
    """Takes no memory of its own where it is made, as the value that a read gives of a variable."""
    copy_bytes: Ints = array("T", default="nbytes")
    """Bytes as copies count them: more than `nbytes` where the copy reads slower memory."""
    held_bytes: Ints = array("T", default="nbytes")
    """Bytes as memory counts them: allocators round up."""

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
    """The last moment at which a tensor is held for an entry. It is one before the consumer's moment if the consumer's result may
    take over the tensor's memory, and later if the result is a view of the tensor. The default fits where each op's moment is its
    number."""

    def __len__(self) -> int:
        return len(self.op)

    @derived
    def tensor(self) -> Ints:
        """[C]: the tensor that an entry consumes."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
