"""Machines for tests and benchmarks that run where there is no GPU."""

from __future__ import annotations

from dataclasses import replace

from cost_models.machines import Link, Machine, load_machine


def two_cpus(link_latency_ns: int = 1_000) -> Machine:
    """Two CPU devices of one host: a two-core CPU:0, and a CPU:1 that costs what an H100 does.

    A process with two logical CPU devices can run a plan for it. The default latency is far below a GPU's link, so that small
    functions are worth splitting too.
    """
    gpu = load_machine("h100").device("GPU:0")
    cpu = load_machine("cpu2").device("CPU:0")
    second = replace(gpu, name="CPU:1", kind="CPU", asynchronous=False, call_ns=0)
    return Machine(
        name="two-cpus",
        devices=(cpu, second),
        links=tuple(Link(a.name, b.name, link_latency_ns, bytes_per_s=1e11) for a, b in ((cpu, second), (second, cpu))),
        call_overhead_ns=100_000,
        host_hop_ns=link_latency_ns,
    )
