"""Machines for tests and benchmarks that run where there is no GPU."""

from __future__ import annotations

import itertools
from dataclasses import replace

from cost_models.base import OpCost, OpSignature
from cost_models.machine_files import load_machine
from cost_models.machines import Device, Link, Machine


def two_cpus(link_latency_ns: int = 1_000) -> Machine:
    """Two CPU devices of one host, see `cpus`."""
    return replace(cpus(2, link_latency_ns), name="two-cpus")


def cpus(count: int, link_latency_ns: int = 1_000) -> Machine:
    """CPU devices of one host: a two-core CPU:0, and others that each cost what an H100 does.

    A process with as many logical CPU devices can run a plan for it. CPU:0 is of figures that no calibration changes. The default
    latency is far below a GPU's link, so that small functions are worth splitting too.
    """
    gpu = load_machine("h100").device("GPU:0")
    rates = {"float32": 2.5e11, "float64": 1.2e11, "default": 3e10}
    devices = [Device("CPU:0", "CPU", "2 host cores", 2**34, False, 600, 0, rates, 1.5e10, cores=2, host_op_ns=300)]
    devices += [replace(gpu, name=f"CPU:{k}", kind="CPU", asynchronous=False, call_ns=0) for k in range(1, count)]
    pairs = itertools.permutations((device.name for device in devices), 2)
    return Machine(
        name=f"{count}-cpus",
        devices=tuple(devices),
        links=tuple(Link(src, dst, link_latency_ns, bytes_per_s=1e11) for src, dst in pairs),
        call_overhead_ns=100_000,
        host_hop_ns=link_latency_ns,
    )


def two_gpus() -> Machine:
    """Two H100s that NVLink joins, and their host."""
    return load_machine("2xh100")


def four_gpus() -> Machine:
    """Four H100s: NVLink joins the first two and the last two, other copies go through the host."""
    two = two_gpus()
    cpu, gpu, _ = two.devices
    gpus = [replace(gpu, name=f"GPU:{k}") for k in range(4)]

    def like(src: str, dst: str, model: Link | None) -> Link:
        assert model is not None
        return replace(model, src=src, dst=dst)

    links = [like(cpu.name, g.name, two.link("CPU:0", "GPU:0")) for g in gpus]
    links += [like(g.name, cpu.name, two.link("GPU:0", "CPU:0")) for g in gpus]
    links += [like(f"GPU:{a}", f"GPU:{b}", two.link("GPU:0", "GPU:1")) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))]
    reserved = {g.name: two.reserve_bytes["GPU:0"] for g in gpus}
    return replace(two, name="4xh100", devices=(cpu, *gpus), links=tuple(links), reserve_bytes=reserved)


def made_up() -> Machine:
    """A CPU and a GPU of round figures, which no calibration changes."""
    cpu = Device("CPU:0", "CPU", "a CPU", 2**34, False, 500, 0, {"default": 1e10}, 1e10, cores=4)
    gpu = Device("GPU:0", "GPU", "a GPU", 2**33, True, 5_000, 2_000, {"default": 1e13}, 1e12)
    links = (Link("CPU:0", "GPU:0", 20_000, 1e10), Link("GPU:0", "CPU:0", 30_000, 1e10))
    return Machine("made-up", (cpu, gpu), links, call_overhead_ns=50_000, host_hop_ns=2_000)


class Simple:
    """A cost model of round figures: products by their operands, everything else by its outputs."""

    name = "simple"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        work = 1_000 if signature.op_type == "MatMul" else 1
        moved = sum(spec.elements for spec in signature.outputs)
        compute_ns = max(device.min_kernel_ns, round(1e9 * work * moved / device.flops["default"]))
        busy = max if device.asynchronous else lambda *parts: sum(parts)
        return OpCost(busy(device.dispatch_ns, compute_ns), device.dispatch_ns, compute_ns, 0, "user")


def two_fast() -> Machine:
    """Two CPU devices that both cost what an H100 does."""
    machine = two_cpus()
    fast = machine.device("CPU:1")
    return replace(machine, name="two-fast", devices=(replace(fast, name="CPU:0"), fast))
