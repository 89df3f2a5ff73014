"""Measures the constants of a machine on the devices of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cost_models.analytic import uses_one_core
from cost_models.base import OpSignature
from cost_models.machines import Device, Link, Machine
from cost_models.measurements import Measurement
from cost_models.measuring import samples, waking
from cost_models.measuring.calls import call_times_ns, cold_ns, per_passed_tensor_ns, per_variable_ns, waiting_ns
from cost_models.measuring.links import COPY_SIZES_BYTES, copy_times, hand_over_ns, interval_ns, latency_and_rate
from cost_models.measuring.timing import measure
from cost_models.measuring.traffic import traffic_bytes_per_s
from cost_models.ops import UnmeasurableError, work_of

_MATRIX_DTYPES = ("float32", "float64", "float16", "bfloat16")
_MATRIX_SIDES = (256, 1024, 4096, 8192)
_SINGLE_CORE_SIDES = (64, 128, 256)
"""Sides of matrices whose product one core may make."""
_FULL_RATE_NS = 5_000_000
"""A product that takes this long reaches the rate of large products."""
_MAX_OP_SHARE = 1 / 500
"""No op is run that is likely to take more than this share of the budget, since it is run about twenty times."""
_UNPINNED_SIZES_BYTES = (2**20, 2**26)
_PAUSE_OPS = 100
"""Tiny ops between hand-overs in host memory."""


OpMeasurement: TypeAlias = tuple[Device, OpSignature, Measurement]
"""A device, an op and the measured time of the op there."""


@dataclass
class Calibration:
    """Measures the constants of a machine whose devices are those of this process.

    Devices of the same model are measured once, on the first of them. Only `Device.call_ns` is measured on each. A constant that
    cannot be measured keeps the value that it had.
    """

    uncalibrated: Machine
    """The devices, with constants that may be wrong."""
    budget_s: float
    report: Callable[[float, str], None]
    """Called with the share of the budget that is used up and with what is measured next."""
    op_measurements: list[OpMeasurement] = field(default_factory=list)
    """Measurements of single ops, from which some constants follow."""
    unmeasured: list[str] = field(default_factory=list)
    """Names of the constants that could not be measured."""

    def __post_init__(self) -> None:
        self._started = time.perf_counter()
        self._effort_s, self._max_op_ns = min(0.1, self.budget_s / 600), 1e9 * _MAX_OP_SHARE * self.budget_s

    def machine(self) -> Machine:
        """The machine with its constants. All of them are measured, even if the budget is too small for that.

        Each constant is net of the others, so leaving one out would make others wrong.
        """
        first_of_model = {device.model: device for device in reversed(self.uncalibrated.devices)}
        measured = {model: self._device(device) for model, device in first_of_model.items()}
        devices = (replace(measured[d.model], name=d.name, memory_bytes=d.memory_bytes) for d in self.uncalibrated.devices)
        machine = replace(self.uncalibrated, devices=tuple(devices), links=tuple(self._links()), host_hop_ns=self._host_hop_ns())
        return self._with_call_constants(machine)

    def _report(self, activity: str) -> None:
        """Reports progress."""
        self.report((time.perf_counter() - self._started) / self.budget_s, activity)

    def _measure(self, op: OpSignature, device: Device) -> Measurement | None:
        """The time of an op on a device, None if it cannot be measured."""
        self._report(f"{op.op_type} on {device.name}")
        try:
            measurement = measure(op, device, self._effort_s)
        except UnmeasurableError:
            return None
        self.op_measurements.append((device, op, measurement))
        return measurement

    # -- devices -------------------------------------------------------------------------------------------------------

    def _device(self, device: Device) -> Device:
        """The device with all constants but `call_ns` and `cold_ns`, which are measured with whole calls."""
        tiny_op = self._measure(samples.elementwise("AddV2", 64), device)
        op_without_kernel = self._measure(samples.shape_of(64), device)
        traffic = self._memory_bytes_per_s(device)
        matrix_rates = {dtype: rate for dtype in _MATRIX_DTYPES if (rate := self._matrix_flops(device, dtype))}
        if tiny_op is not None and device.asynchronous:
            device = replace(device, dispatch_ns=tiny_op.typical().dispatch_ns, min_kernel_ns=tiny_op.compute_ns)
        elif tiny_op is not None:
            device = replace(device, dispatch_ns=tiny_op.typical().time_ns)
        if op_without_kernel is not None:
            device = replace(device, host_op_ns=op_without_kernel.typical().dispatch_ns)
        if traffic:
            device = replace(device, memory_bytes_per_s=traffic)
        results = {
            "dispatch": tiny_op,
            "ops that start no kernel": op_without_kernel,
            "memory traffic": traffic,
            "matrix rates": matrix_rates,
        }
        self.unmeasured += [f"{constant} of {device.name}" for constant, result in results.items() if not result]
        other_rate = self._other_flops(device)
        rates = {**device.flops, **matrix_rates, **({"default": other_rate} if other_rate else {})}
        device = replace(device, flops=rates)
        if device.asynchronous or device.cores == 1:
            return device
        return replace(device, threads_per_core=self._threads_per_core(device), wake_ns=self._wake_ns(device))

    def _memory_bytes_per_s(self, device: Device) -> float:
        """`Device.memory_bytes_per_s`, 0 if it cannot be measured."""
        if not device.asynchronous:
            self._report(f"memory of {device.name}")
            return traffic_bytes_per_s(device.name, self._effort_s)
        large_op = samples.elementwise("AddV2", 2**24)
        measurement = self._measure(large_op, device)
        if measurement is None or not measurement.compute_ns:
            return 0.0
        return work_of(large_op).nbytes * 1e9 / measurement.compute_ns

    def _matrix_flops(self, device: Device, dtype: str) -> float:
        """Operations per second in the best of several matrix products of growing size; 0 if none can be measured."""
        best_rate = 0.0
        for side, next_side in zip(_MATRIX_SIDES, (*_MATRIX_SIDES[1:], _MATRIX_SIDES[-1]), strict=True):
            product = samples.matmul(side, dtype)
            measurement = self._measure(product, device)
            if measurement is None or not measurement.compute_ns:
                break
            best_rate = max(best_rate, work_of(product).flops * 1e9 / measurement.compute_ns)
            next_ns = measurement.compute_ns * (next_side / side) ** 3
            if measurement.compute_ns > _FULL_RATE_NS or next_ns > self._max_op_ns:
                break
        return best_rate

    def _other_flops(self, device: Device) -> float:
        """Operations per second of arithmetic outside matrix products, counted as in `cost_models.ops`; 0 if unmeasurable."""
        elements = 2**24 if device.asynchronous else 2**18
        ops = (samples.elementwise("Tanh", elements), samples.random_numbers(elements))
        timed = [(op, self._measure(op, device)) for op in ops]
        return max((work_of(op).flops * 1e9 / m.compute_ns for op, m in timed if m is not None and m.compute_ns), default=0.0)

    def _threads_per_core(self, device: Device) -> int:
        """`Device.threads_per_core`, from a product that one core makes: inside a virtual machine the kernel may not know it."""
        products = [product for side in _SINGLE_CORE_SIDES if uses_one_core(work_of(product := samples.matmul(side)), device)]
        if not products or "float32" not in device.flops:
            return device.threads_per_core
        product = products[-1]
        known = (m for each, op, m in self.op_measurements if op == product and each.model == device.model)
        measurement = next(known, None) or self._measure(product, device)
        if measurement is None or not measurement.compute_ns:
            return device.threads_per_core
        one_core_rate = work_of(product).flops * 1e9 / measurement.compute_ns
        return min(device.cores, max(1, round(device.cores * one_core_rate / device.flops["float32"])))

    def _wake_ns(self, device: Device) -> int:
        """`Device.wake_ns`, as it was if the op that shows it could not be measured."""
        busy_ns = [m.typical().time_ns for d, op, m in self.op_measurements if op == waking.WAKING_OP and d.model == device.model]
        if not busy_ns:
            return device.wake_ns
        self._report(f"threads woken on {device.name}")
        return waking.wake_ns(device, busy_ns[0], 10 * self._effort_s)

    # -- between devices -----------------------------------------------------------------------------------------------

    def _links(self) -> Iterator[Link]:
        """The links of the machine. Links between the same two device models are measured once."""
        measured: dict[tuple[str, str], Link] = {}
        sizes_bytes = COPY_SIZES_BYTES if self.budget_s >= 30 else COPY_SIZES_BYTES[:-2]
        for link in self.uncalibrated.links:
            src, dst = self.uncalibrated.device(link.src), self.uncalibrated.device(link.dst)
            if (src.model, dst.model) not in measured:
                self._report(f"copies from {src.name} to {dst.name}")
                latency_ns, rate = latency_and_rate(copy_times(src.name, dst.name, sizes_bytes, self._effort_s))
                unpinned_rate = 0.0
                if src.kind == "CPU" and dst.kind == "GPU":
                    arguments = copy_times(src.name, dst.name, _UNPINNED_SIZES_BYTES, self._effort_s, made_by_op=False)
                    _, unpinned_rate = latency_and_rate(arguments)
                interval = interval_ns(src.name, dst.name, self._effort_s)
                measured[src.model, dst.model] = Link(src.name, dst.name, latency_ns, rate, unpinned_rate, interval)
            yield replace(measured[src.model, dst.model], src=link.src, dst=link.dst)

    def _host_hop_ns(self) -> int:
        """`Machine.host_hop_ns`, as it was if there is only one device."""
        if len(self.uncalibrated.devices) == 1:
            return self.uncalibrated.host_hop_ns
        self._report("handing over in host memory")
        first, last = self.uncalibrated.devices[0].name, self.uncalibrated.devices[-1].name
        return hand_over_ns(first, last, self._effort_s, _PAUSE_OPS)

    def _with_call_constants(self, machine: Machine) -> Machine:
        """The machine with the constants that price a call.

        Each device of another model than the host's is called by itself, because a second GPU may take longer to call than the
        first. `Machine.split_ns` is measured on the first two devices.
        """
        host = machine.devices[0]
        others = [device for device in machine.devices if device.model != host.model]
        self._report("calls")
        # Reading a variable takes two ops that start no kernel.
        argument_ns = max(0, per_variable_ns(host.name) - 2 * host.host_op_ns)
        passed_ns = max(0, per_passed_tensor_ns(host.name) - argument_ns)
        first_two = [[d.name for d in machine.devices[:2]]] if len(machine.devices) > 1 else []
        host_call_ns, *call_ns = call_times_ns([[host.name], *([d.name] for d in others), *first_two])
        host_ns = max(0, host_call_ns - host.dispatch_ns)
        net_ns = {d.name: ns - d.dispatch_ns - d.min_kernel_ns for d, ns in zip(others, call_ns, strict=False)}
        extra_ns = {name: max(0, ns - host_ns) for name, ns in net_ns.items()}
        first_of_model = {d.model: d.name for d in reversed(machine.devices)}
        cold = {model: cold_ns(name) for model, name in first_of_model.items()}
        devices = tuple(replace(d, call_ns=extra_ns.get(d.name, 0), cold_ns=cold[d.model]) for d in machine.devices)
        if first_two:
            second = devices[1]
            both_ns = call_ns[-1] - second.dispatch_ns - second.min_kernel_ns
            split_ns = max(0, both_ns - host_ns - second.call_ns - argument_ns - passed_ns)
            machine = replace(machine, split_ns=split_ns)
        return replace(
            machine,
            devices=devices,
            call_overhead_ns=max(0, host_ns - argument_ns - passed_ns),  # each of these calls passes a tensor for each device
            argument_ns=argument_ns,
            passed_ns=passed_ns,
            waiting_ns=waiting_ns(host.name),
        )
