"""SplitProblem: ops shared among equal accelerators and CPUs, for throughput or for latency (Tarnawski et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from placer.problem.arrays import Bools, Ints, Part, array, derived

SplitObjective: TypeAlias = Literal["max_load", "latency"]


@dataclass(frozen=True, eq=False)
class SplitProblem(Part):
    """Choosing for each unit of ops one of k equal accelerators or of l equal CPUs.

    All copies go through host memory. A tensor that is made on an accelerator and used elsewhere is copied out once, and it is
    copied in once to each accelerator that uses it. CPUs use host memory, so they pay for no copy. The units of an accelerator
    hold at most ``memory_limit_bytes``.

    Shapes below: N ops in topological order, U units, T tensors, C consumer entries. Devices 0..k-1 are the accelerators,
    k..k+l-1 the CPUs. Nobody can write into the arrays.

    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, Efficient Algorithms for Device Placement of DNN
    Graph Operators, NeurIPS 2020.

    Raises ValueError where the shapes of the arrays or the order of the ops are inconsistent.
    """

    name: str
    accelerators: int
    cpus: int
    memory_limit_bytes: int

    op_names: tuple[str, ...] = array("N")
    op_unit: Ints = array("N")
    op_time_ns: Ints = array("N2")
    """On a CPU, on an accelerator."""
    unit_bytes: Ints = array("U")
    unit_supported: Bools = array("U")
    """Whether the unit may be on an accelerator."""

    tensor_op: Ints = array("T")
    """The op that makes the tensor."""
    tensor_ns: Ints = array("T")
    """Time of one copy into or out of an accelerator."""
    consumer_start: Ints = array("S")
    """[T + 1]: consumers of tensor t are entries consumer_start[t]:consumer_start[t+1]."""
    consumer_op: Ints = array("C")

    def __post_init__(self) -> None:
        super().__post_init__()
        c, sizes = len(self.consumer_op), self.sizes()
        if sizes["2"] != 2 or sizes["S"] != sizes["T"] + 1:
            raise ValueError("op_time_ns must have the shape (N, 2), and consumer_start the shape (T + 1,).")
        if self.consumer_start[0] != 0 or self.consumer_start[-1] != c or (np.diff(self.consumer_start) < 0).any():
            raise ValueError("consumer_start must rise from 0 to the number of consumers.")
        if (self.tensor_op[self.consumer_tensor] >= self.consumer_op).any():
            raise ValueError("ops are not in topological order: a consumer comes before its producer.")
        if self.accelerators < 1 or self.cpus < 1:
            raise ValueError(f"{self.accelerators} accelerators and {self.cpus} CPUs: at least one of each is needed.")

    @derived
    def ops(self) -> int:
        """Number of ops, N."""
        return len(self.op_unit)

    @derived
    def units(self) -> int:
        """Number of units, U."""
        return len(self.unit_bytes)

    @derived
    def devices(self) -> int:
        """Number of devices, k + l."""
        return self.accelerators + self.cpus

    @derived
    def consumer_tensor(self) -> Ints:
        """[C]: the tensor that is consumed."""
        return np.repeat(np.arange(len(self.tensor_op)), np.diff(self.consumer_start))

    @derived
    def unit_time_ns(self) -> Ints:
        """[U, 2]: on a CPU, on an accelerator."""
        total = np.zeros((self.units, 2), np.int64)
        np.add.at(total, self.op_unit, self.op_time_ns)
        return total

    @derived
    def nets(self) -> Nets:
        """The sets of units that share a tensor; see `Nets`."""
        return Nets.of(self)


@dataclass(frozen=True, eq=False)
class Nets:
    """The nets of a hypergraph over units: for each tensor, the unit that makes it and the units that use it.

    There are M nets with E members in all. An accelerator that holds some but not all units of a net pays the cost of the net: it
    copies the tensor in once, or out once. Nets with the same units are merged; nets of a single unit are left out.
    """

    cost_ns: Ints
    """[M]"""
    start: Ints
    """[M + 1]: members of net m are entries start[m]:start[m+1]."""
    unit: Ints
    """[E]"""

    @classmethod
    def of(cls, problem: SplitProblem) -> Nets:
        """The nets of a problem, in the order of their first tensors."""
        members: dict[tuple[int, ...], int] = {}
        user = problem.op_unit[problem.consumer_op]
        for t, maker in enumerate(problem.op_unit[problem.tensor_op].tolist()):
            net = tuple(sorted({maker, *user[problem.consumer_start[t] : problem.consumer_start[t + 1]].tolist()}))
            if len(net) > 1 and problem.tensor_ns[t]:
                members[net] = members.get(net, 0) + int(problem.tensor_ns[t])
        sizes = [len(net) for net in members]
        return cls(
            np.array(list(members.values()), np.int64),
            np.append(0, np.cumsum(sizes, dtype=np.int64)),
            np.array([unit for net in members for unit in net], np.int64),
        )


def loads_ns(problem: SplitProblem, device: Ints) -> Ints:
    """[k + l]: the time each device needs for one sample: the times of its units and, on an accelerator, of its copies."""
    k, nets = problem.accelerators, problem.nets
    load = np.zeros(problem.devices, np.int64)
    kind = (device < k).astype(np.int64)
    np.add.at(load, device, problem.unit_time_ns[np.arange(problem.units), kind])
    net = np.repeat(np.arange(len(nets.cost_ns)), np.diff(nets.start))
    held = np.zeros((len(nets.cost_ns), problem.devices), np.int64)
    np.add.at(held, (net, device[nets.unit]), 1)
    cut = (held > 0) & (held < np.diff(nets.start)[:, None])
    load[:k] += (cut * nets.cost_ns[:, None]).sum(axis=0)[:k]
    return load


def max_load_ns(problem: SplitProblem, device: Ints) -> int:
    """The load of the busiest device, which is the time between two samples when all devices work side by side."""
    return int(loads_ns(problem, device).max())


def excess_bytes(problem: SplitProblem, device: Ints) -> int:
    """By how many bytes the fullest accelerator exceeds the limit; 0 if none does."""
    held = np.zeros(problem.devices, np.int64)
    np.add.at(held, device, problem.unit_bytes)
    return max(0, int(held[: problem.accelerators].max()) - problem.memory_limit_bytes)


def latency_ns(problem: SplitProblem, device: Ints) -> int | None:
    """The time for one sample; None if accelerators wait for each other in a circle.

    An accelerator starts when all its inputs from other devices are made. It copies them in, runs all its ops and copies out the
    results that other devices use; no result is available before that. An op on a CPU runs as soon as its inputs are available,
    and any number of ops run at the same time.
    """
    k = problem.accelerators
    where = device[problem.op_unit]
    block = np.where(where < k, where, k + np.arange(problem.ops))
    work = np.where(where < k, 0, problem.op_time_ns[:, 0])
    duration = np.zeros(k + problem.ops, np.int64)
    duration[k:] = work
    duration[:k] = loads_ns(problem, device)[:k]
    src, dst = block[problem.tensor_op[problem.consumer_tensor]], block[problem.consumer_op]
    return longest_path_ns(duration, src[src != dst], dst[src != dst])


def longest_path_ns(duration_ns: Ints, src: Ints, dst: Ints) -> int | None:
    """The longest path through blocks, of which ``dst[i]`` waits for ``src[i]``; None if blocks wait in a circle."""
    follows: list[list[int]] = [[] for _ in duration_ns]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        follows[a].append(b)
    waits = np.bincount(dst, minlength=len(duration_ns)).tolist()
    duration = duration_ns.tolist()
    start = [0] * len(duration)
    ready = [b for b, count in enumerate(waits) if not count]
    longest = finished = 0
    while ready:
        a = ready.pop()
        finished += 1
        end = start[a] + duration[a]
        longest = max(longest, end)
        for b in follows[a]:
            start[b] = max(start[b], end)
            waits[b] -= 1
            if not waits[b]:
                ready.append(b)
    return longest if finished == len(duration) else None
