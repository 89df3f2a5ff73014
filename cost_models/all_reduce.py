"""The time of an all-reduce and of an all-gather, by the formulas of the literature.

In all of them a message of n bytes takes ``latency_ns + 1e9 * n / bytes_per_s``, each process sends and receives one message at a
time, and p is the number of processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wire:
    """The slowest link that a message of a collective takes."""

    latency_ns: float
    bytes_per_s: float

    def ns(self, nbytes: float) -> float:
        """The time to move bytes, without the latency."""
        return 1e9 * nbytes / self.bytes_per_s


def ring_ns(nbytes: float, processes: int, wire: Wire) -> float:
    """All-reduce around a ring: a reduce-scatter and an all-gather, each of p - 1 messages of n/p bytes.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in MPICH, International
    Journal of High Performance Computing Applications 19(1), 2005, doi:10.1177/1094342005051521; without its term for the sums.
    P. Patarasuk, X. Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, Journal of Parallel and
    Distributed Computing 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002, show that no algorithm sends fewer bytes.
    """
    return 2 * (processes - 1) * (wire.latency_ns + wire.ns(nbytes / processes))


def tree_ns(nbytes: float, processes: int, wire: Wire) -> float:
    """All-reduce in two binary trees: a reduction and a broadcast, each pipelined in pieces of the best size.

    Each is ``(sqrt(2 * h * latency) + sqrt(n / rate))**2`` for trees of height h = log2 p, rounded up: 2 * h + k steps with
    messages of n/k bytes, with the best k, which need not be whole. A process sends to its two children one after the other, so
    the first piece needs two steps for each level. Two trees, in which each process is a leaf of one, let all processes send at
    the full rate.

    Source: P. Sanders, J. Speck, J. L. Träff, Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan, Parallel
    Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001. NCCL has two such trees: S. Jeaugey, Massively Scale Your Deep
    Learning Training with NCCL 2.4, NVIDIA, 2019, https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/.
    """
    if processes == 1:
        return 0.0
    height = (processes - 1).bit_length()
    return 2 * (math.sqrt(2 * height * wire.latency_ns) + math.sqrt(wire.ns(nbytes))) ** 2


def all_gather_ns(nbytes: float, processes: int, wire: Wire) -> float:
    """All-gather around a ring: p - 1 messages of n bytes, where each process has n bytes. Source: Thakur and others, 2005."""
    return (processes - 1) * (wire.latency_ns + wire.ns(nbytes))
