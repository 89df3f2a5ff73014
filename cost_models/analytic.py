"""The analytic cost model: a roofline with dispatch overhead.

The compute time of an op is the larger of two times, arithmetic over the device's rate and memory traffic over its bandwidth
(S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009), plus the serial
part of its work. A CPU wakes its other threads only for ops that are large enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from cost_models.base import OpCost, OpSignature
from cost_models.machines import Device
from cost_models.ops import Work, entry_of, host_only, runs_on_host, work_of

_FORK_NS = 1_500
"""Waking one of the threads of a pool; there are as many as cores."""
_CORE_BYTES_PER_S = 3e10
"""Memory traffic of one core."""
_MAX_FIGURE = 2**49 - 1
"""Limit of each time (a week in ns) and size (512 TiB), so that no sum over a plan exceeds 64 bits."""


@dataclass(frozen=True, slots=True)
class AnalyticModel:
    """Prices any op on any device from its shapes alone, by the formulas of `cost_models.ops`.

    On a synchronous device (a CPU) an op takes the sum of dispatch and compute, on an asynchronous one (a GPU) the larger of the
    two. An op type without a formula is priced by its bytes; the source of such a cost is "analytic-fallback". A compiled call is
    dispatched once and computes what its ops compute. An op that runs a function for each element of a dataset takes the time of
    the function's ops as often as there are elements, its attribute "rounds".
    """

    @property
    def name(self) -> str:
        return "analytic"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The op's cost on that device. It never fails, and no figure reaches 2**50 however large the op is."""
        source = "analytic" if signature.inner or entry_of(signature.op_type).work else "analytic-fallback"
        try:
            dispatch, compute, workspace = self._figures(signature, device)
        except OverflowError:  # the sizes exceed every float
            dispatch, compute, workspace = device.dispatch_ns, _MAX_FIGURE, _MAX_FIGURE
        dispatch, compute = round(min(dispatch, _MAX_FIGURE)), round(min(compute, _MAX_FIGURE))
        time = max(dispatch, compute) if device.asynchronous else dispatch + compute
        return OpCost(time, dispatch, compute, min(workspace, _MAX_FIGURE), source)

    def _figures(self, signature: OpSignature, device: Device) -> tuple[float, float, int]:
        """Dispatch and compute time in ns, and the workspace in bytes."""
        if signature.inner:
            inner = [self.op_cost(op, device) for op in signature.inner]
            if rounds := signature.attr("rounds"):  # of a function that is run for each element of a dataset, op by op
                compute = int(rounds) * sum(cost.time_ns for cost in inner)  # type: ignore[arg-type]
            else:
                compute = sum(cost.compute_ns for cost in inner)
            return device.dispatch_ns, compute, max(cost.workspace_bytes for cost in inner)
        work = work_of(signature)
        if not device.asynchronous:
            dispatch = device.dispatch_ns if work.kernels or work.cpu_serial_ns else work.nodes * device.host_op_ns
            return dispatch, _cpu_ns(work, signature, device), work.workspace_bytes
        if work.kernels and runs_on_host(signature):
            work = host_only(signature)
        if not work.kernels:
            return work.nodes * device.host_op_ns + work.cpu_serial_ns, 0, work.workspace_bytes
        dispatch = launch_ns(signature.op_type, work, device)
        return dispatch, max(_gpu_ns(work, signature, device), work.kernels * device.min_kernel_ns), work.workspace_bytes


def launch_ns(op_type: str, work: Work, device: Device) -> int:
    """Host time to launch an op's kernels. Each kernel after the first is a bare launch, about half the start of a plain op."""
    return round(entry_of(op_type).start_factor * device.dispatch_ns) + (work.kernels - 1) * device.dispatch_ns // 2


def uses_one_core(work: Work, device: Device) -> bool:
    """Whether TensorFlow gives a product one core of a CPU, which it does if the matrices fit that core's cache."""
    return work.one_core and not device.asynchronous and work.nbytes < device.core_cache_bytes


def _flops_per_s(work: Work, op: OpSignature, device: Device) -> float:
    """Operations per second that a large instance of this op reaches."""
    if not work.is_product:
        return device.flops["default"]
    dtype = op.inputs[-1].dtype if op.inputs else "float32"
    efficiency = work.efficiency if device.asynchronous else work.cpu_efficiency
    return device.flops.get(dtype, device.flops["default"]) * efficiency


def _gpu_ns(work: Work, op: OpSignature, device: Device) -> float:
    """The times of arithmetic and of memory traffic overlap; those of a product add up, as its first factors must be there."""
    arithmetic_s, traffic_s = work.flops / _flops_per_s(work, op, device), work.nbytes / device.memory_bytes_per_s
    shared_s = arithmetic_s + traffic_s if work.is_product else max(arithmetic_s, traffic_s)
    return shared_s * 1e9 + work.gpu_serial_ns


def _cpu_ns(work: Work, op: OpSignature, device: Device) -> float:
    arithmetic_s, traffic_s = work.flops / _flops_per_s(work, op, device), work.nbytes / device.memory_bytes_per_s
    all_cores_ns = max(arithmetic_s, traffic_s) * 1e9
    cores = max(1.0, device.cores / device.threads_per_core) if work.is_product else device.cores
    one_core_ns = max(arithmetic_s * cores, work.nbytes / _CORE_BYTES_PER_S) * 1e9
    shared_ns = one_core_ns if uses_one_core(work, device) else min(one_core_ns, _FORK_NS * device.cores + all_cores_ns)
    return shared_ns + work.cpu_serial_ns
