"""The constants of a cluster's network, measured between the processes that are connected."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from statistics import median

from cost_models.measuring.calls import call_times_ns
from cost_models.measuring.links import CopyTime, copy_times, hand_over_ns, latency_and_rate
from cost_models.network import Network

_SIZES_BYTES = (4, 2**12, 2**16, 2**20, 2**24)
_MAX_PAIRS = 6
"""Pairs of hosts that are measured, the client's first."""


def measured_network(hosts: Sequence[str], budget_s: float) -> Network:
    """The median latency, rate and call time over pairs of hosts, in both directions.

    Copies start and end in ordinary memory: no host of a network link pins its tensors.

    Args:
        hosts: full device names of one CPU of each process, the client first.
        budget_s: about how long to measure, in seconds.
    """
    pairs = sorted(permutations(hosts, 2), key=lambda pair: hosts[0] not in pair)[:_MAX_PAIRS]
    effort_s = budget_s / (len(pairs) * (2 * len(_SIZES_BYTES) + 4))
    lines = [_latency_and_rate(src, dst, effort_s) for src, dst in pairs]
    here_ns, *far_ns = call_times_ns([[host] for host in hosts])
    return Network(
        latency_us=round(median(latency for latency, _ in lines) / 1e3, 1),
        bytes_per_s=float(f"{median(rate for _, rate in lines):.3g}"),
        call_us=round(max(0.0, median(far_ns) - here_ns) / 1e3, 1),
    )


def _latency_and_rate(src: str, dst: str, effort_s: float) -> tuple[int, float]:
    """`latency_and_rate` of the link between two hosts.

    Copy times are differences, which can be almost 0 on a busy host. No copy is shorter than handing over a number, which
    crosses the network, too.
    """
    least_ns = hand_over_ns(src, dst, effort_s)
    copies = copy_times(src, dst, _SIZES_BYTES, effort_s)
    return latency_and_rate([CopyTime(copy.nbytes, max(copy.time_ns, least_ns)) for copy in copies])
