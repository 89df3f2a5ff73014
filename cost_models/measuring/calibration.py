"""A machine's constants, measured on the devices of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from cost_models.analytic import AnalyticModel, on_one_core
from cost_models.base import OpSignature
from cost_models.fitted import robust_non_negative
from cost_models.machines import Device, Link, Machine
from cost_models.measuring import samples, waking
from cost_models.measuring.calls import argument_ns, calls_ns, cold_ns, passed_ns, waiting_ns
from cost_models.measuring.chains import Bench, plain_graphs
from cost_models.measuring.links import SIZES, Copy, copies, hand_over_ns, interval_ns
from cost_models.measuring.timing import measure
from cost_models.measuring.traffic import traffic_bytes_per_s
from cost_models.ops import UnmeasurableError, work_of
from cost_models.store import Measurement

MATRIX_DTYPES = ("float32", "float64", "float16", "bfloat16")
_SIDES = (256, 1024, 4096, 8192)
_ALONE = (64, 128, 256)
"""Of matrices whose product may be made on one core."""
_LONG_NS = 5_000_000
"""A product that takes this long reaches the rate of large ones."""
_TOO_LONG = 1 / 500
"""No op is run that is likely to take this share of the budget: it would be run some twenty times."""
_UNPINNED = (2**20, 2**26)
_PAUSE = 100
"""Tiny ops between what is handed over."""


Measured: TypeAlias = tuple[Device, OpSignature, Measurement]
"""What a run of an op takes on a device."""


@dataclass
class Calibration:
    """Measures the constants of a machine whose devices are those of this process.

    Devices of one model are measured once, on the first of them, but for what calls take. Constants that cannot be measured stay
    as they were.
    """

    seen: Machine
    """The devices, with constants that may be wrong."""
    budget_s: float
    tell: Callable[[float, str], None]
    """Is told which share of the budget is spent, and what comes next."""
    measured: list[Measured] = field(default_factory=list)
    """Single ops, on the way."""
    copies: dict[tuple[str, str], list[Copy]] = field(default_factory=dict)
    """By source and destination, from memory that TensorFlow chose for the copy."""
    kept: list[str] = field(default_factory=list)
    """Constants that could not be measured."""

    def __post_init__(self) -> None:
        self._started = time.perf_counter()
        self._effort_s, self._too_long_ns = min(0.1, self.budget_s / 600), 1e9 * _TOO_LONG * self.budget_s

    def machine(self) -> Machine:
        """The constants, which take as long as they take: each is what others leave out."""
        first = {device.model: device for device in reversed(self.seen.devices)}
        found = {model: self._device(device) for model, device in first.items()}
        machine = replace(
            self.seen,
            devices=tuple(replace(found[d.model], name=d.name, memory_bytes=d.memory_bytes) for d in self.seen.devices),
            links=tuple(self._links()),
            host_hop_ns=self._host_hop_ns(),
        )
        return self._calls(machine)

    def common_ops(self, machine: Machine) -> Iterator[Measured]:
        """Ops of common types until the budget is spent: small ones of every type first, so that a short budget too leaves
        something to fit to.
        """
        known = {(device.model, op) for device, op, _ in self.measured}
        devices = {device.model: device for device in reversed(machine.devices)}
        for op in samples.common():
            for model, device in devices.items():
                if self._spent_s(op.op_type) > self.budget_s:
                    return
                likely_ns = AnalyticModel().op_cost(op, device).time_ns
                if (model, op) not in known and likely_ns < self._too_long_ns and (figures := self._time(op, device)) is not None:
                    yield device, op, figures

    @property
    def spent_s(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._started

    def _spent_s(self, doing: str) -> float:
        self.tell(self.spent_s / self.budget_s, doing)
        return self.spent_s

    def _time(self, op: OpSignature, device: Device) -> Measurement | None:
        self._spent_s(f"{op.op_type} on {device.name}")
        try:
            figures = measure(op, device, self._effort_s)
        except UnmeasurableError:
            return None
        self.measured.append((device, op, figures))
        return figures

    # -- devices -------------------------------------------------------------------------------------------------------

    def _device(self, device: Device) -> Device:
        tiny = self._time(samples.elementwise("AddV2", 64), device)
        kernelless = self._time(samples.shape_of(64), device)
        traffic = self._traffic(device)
        rates = {dtype: rate for dtype in MATRIX_DTYPES if (rate := self._matrix_rate(device, dtype))}
        if tiny is not None and device.asynchronous:
            device = replace(device, dispatch_ns=tiny.typical().dispatch_ns, min_kernel_ns=tiny.compute_ns)
        elif tiny is not None:
            device = replace(device, dispatch_ns=tiny.typical().time_ns)
        if kernelless is not None:
            device = replace(device, host_op_ns=kernelless.typical().dispatch_ns)
        if traffic:
            device = replace(device, memory_bytes_per_s=traffic)
        found = {"dispatch": tiny, "ops that start no kernel": kernelless, "memory traffic": traffic, "matrix rates": rates}
        self.kept += [f"{what} of {device.name}" for what, figure in found.items() if not figure]
        if other := self._other_rate(device):
            rates["default"] = other
        device = replace(device, flops={**device.flops, **rates})
        if device.asynchronous or device.cores == 1:
            return device
        per_core = self._threads_per_core(device)
        return replace(device, threads_per_core=per_core, threads=self._threads(device), wake_ns=self._wake_ns(device))

    def _traffic(self, device: Device) -> float:
        """Bytes per second through its memory; 0 where it cannot be measured."""
        if not device.asynchronous:
            self._spent_s(f"memory of {device.name}")
            return traffic_bytes_per_s(device.name, self._effort_s)
        large = samples.elementwise("AddV2", 2**24)
        figures = self._time(large, device)
        return work_of(large).nbytes * 1e9 / figures.compute_ns if figures is not None and figures.compute_ns else 0.0

    def _matrix_rate(self, device: Device, dtype: str) -> float:
        """Operations per second of the largest product that it makes sense to run; 0 where none can be measured."""
        rate = 0.0
        for side, larger in zip(_SIDES, (*_SIDES[1:], _SIDES[-1]), strict=True):
            product = samples.matmul(side, dtype)
            figures = self._time(product, device)
            if figures is None or not figures.compute_ns:
                break
            rate = max(rate, work_of(product).flops * 1e9 / figures.compute_ns)
            if figures.compute_ns > _LONG_NS or figures.compute_ns * (larger / side) ** 3 > self._too_long_ns:
                break
        return rate

    def _other_rate(self, device: Device) -> float:
        """Operations per second of arithmetic that no matrix unit helps with, counted as `cost_models.ops` counts them."""
        elements = 2**24 if device.asynchronous else 2**18
        ops = (samples.elementwise("Tanh", elements), samples.random_numbers(elements))
        timed = [(op, self._time(op, device)) for op in ops]
        return max((work_of(op).flops * 1e9 / m.compute_ns for op, m in timed if m is not None and m.compute_ns), default=0.0)

    def _threads_per_core(self, device: Device) -> int:
        """How many hardware threads share a core, by a product that one core makes: a virtual machine may not tell."""
        alone = [product for side in _ALONE if on_one_core(work_of(product := samples.matmul(side)), device)]
        if not alone or "float32" not in device.flops:
            return device.threads_per_core
        known = (figures for each, op, figures in self.measured if op == alone[-1] and each.model == device.model)
        figures = next(known, None) or self._time(alone[-1], device)
        if figures is None or not figures.compute_ns:
            return device.threads_per_core
        rate = work_of(alone[-1]).flops * 1e9 / figures.compute_ns
        return min(device.cores, max(1, round(device.cores * rate / device.flops["float32"])))

    def _threads(self, device: Device) -> int:
        """How many times quicker ops on one thread each get done if they may run side by side."""
        self._spent_s(f"ops side by side on {device.name}")
        with plain_graphs():
            bench = Bench(samples.unique(4_000), device.name)
            calls = [bench.chain(1), bench.chain(21), bench.chain(21, abreast=device.cores)]
            least = [min(call.seconds() for _ in range(20)) for call in calls]
        alone, abreast = least[1] - least[0], least[2] - least[0]
        return min(device.cores, max(1, round(device.cores * alone / abreast))) if abreast > 0 < alone else device.threads

    def _wake_ns(self, device: Device) -> int:
        """What waking the threads of a CPU adds to an op that uses them all."""
        priced = [m.typical().time_ns for d, op, m in self.measured if op == waking.OP and d.model == device.model]
        if not priced:
            return device.wake_ns
        self._spent_s(f"threads woken on {device.name}")
        return waking.wake_ns(device, priced[0], 10 * self._effort_s)

    # -- between devices -----------------------------------------------------------------------------------------------

    def _links(self) -> Iterator[Link]:
        kinds: dict[tuple[str, str], tuple[int, float, float, int]] = {}
        sizes = SIZES if self.budget_s >= 30 else SIZES[:-2]
        for link in self.seen.links:
            src, dst = self.seen.device(link.src), self.seen.device(link.dst)
            if (src.model, dst.model) not in kinds:
                self._spent_s(f"copies from {src.name} to {dst.name}")
                pair = src.name, dst.name
                self.copies[pair] = copies(*pair, sizes, self._effort_s)
                unpinned = 0.0
                if src.kind == "CPU" and dst.kind == "GPU":
                    _, unpinned = latency_and_rate(copies(*pair, _UNPINNED, self._effort_s, fresh=False))
                kinds[src.model, dst.model] = *latency_and_rate(self.copies[pair]), unpinned, interval_ns(*pair, self._effort_s)
            latency, rate, unpinned, interval = kinds[src.model, dst.model]
            yield replace(link, latency_ns=latency, bytes_per_s=rate, unpinned_bytes_per_s=unpinned, interval_ns=interval)

    def _host_hop_ns(self) -> int:
        if len(self.seen.devices) == 1:
            return self.seen.host_hop_ns
        self._spent_s("handing over in host memory")
        return hand_over_ns(self.seen.devices[0].name, self.seen.devices[-1].name, self._effort_s, _PAUSE)

    def _calls(self, machine: Machine) -> Machine:
        """With what calls take, by the devices that they use; the split is that of the first two devices.

        Each device beside the host is called by itself: a GPU that is not the first may take longer to call.
        """
        host = machine.devices[0]
        others = [device for device in machine.devices if device.model != host.model]
        self._spent_s("calls")
        each_ns = max(0, argument_ns(host.name) - 2 * host.host_op_ns)
        more_ns = max(0, passed_ns(host.name) - each_ns)
        pair = [[d.name for d in machine.devices[:2]]] if len(machine.devices) > 1 else []
        host_took, *took = calls_ns([[host.name], *([d.name] for d in others), *pair])
        host_ns = max(0, host_took - host.dispatch_ns)
        alone_ns = {d.name: ns - d.dispatch_ns - d.min_kernel_ns for d, ns in zip(others, took, strict=False)}
        calls = {name: max(0, ns - host_ns) for name, ns in alone_ns.items()}
        first = {d.model: d.name for d in reversed(machine.devices)}
        cold = {model: cold_ns(name) for model, name in first.items()}
        devices = tuple(replace(d, call_ns=calls.get(d.name, 0), cold_ns=cold[d.model]) for d in machine.devices)
        if pair:
            second = devices[1]
            both_ns = took[-1] - second.dispatch_ns - second.min_kernel_ns
            machine = replace(machine, split_ns=max(0, both_ns - host_ns - second.call_ns - each_ns - more_ns))
        bare_ns = max(0, host_ns - each_ns - more_ns)  # without the one tensor that each of these calls passes for each device
        return replace(
            machine,
            devices=devices,
            call_overhead_ns=bare_ns,
            argument_ns=each_ns,
            passed_ns=more_ns,
            waiting_ns=waiting_ns(host.name),
        )


def latency_and_rate(timed: list[Copy]) -> tuple[int, float]:
    """Latency in ns and bytes per second that fit copies of several sizes best."""
    nbytes, time_ns = (np.array([getattr(copy, name) for copy in timed], np.float64) for name in ("nbytes", "time_ns"))
    latency, per_byte = robust_non_negative(np.column_stack([np.ones(len(timed)), nbytes]), time_ns, 1 / time_ns)
    return round(float(latency)), float(1e9 / per_byte if per_byte else 1e9 * np.max(nbytes / time_ns))
