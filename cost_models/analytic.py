"""The analytic cost model: a roofline with dispatch overhead.

An op's compute time is the larger of arithmetic over the device's rate and memory traffic over its bandwidth (S. Williams,
A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009), plus what the op does serially.
Small ops miss the roof: a GPU's multiprocessors are filled in whole waves, and a CPU wakes its threads only where it pays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cost_models.base import OpCost, OpSignature
from cost_models.machines import Device
from cost_models.ops import Work, entry_of, in_host_memory, runs_on_host, work_of

_FORK_NS = 5_000
"""Waking a thread pool and waiting for its last thread."""
_CACHE_BYTES_PER_S, _CACHE_BYTES = 3e10, 2**20
"""What one core moves while the data is in its cache, and how much that can be."""
_MOST = 2**49 - 1
"""Of what a cost is summed from, so that no sum of a plan leaves 64 bits: a week in ns, 512 TiB."""


@dataclass(frozen=True, slots=True)
class AnalyticModel:
    """Prices any op on any device from shapes alone. See `cost_models.ops` for the op types it has formulas for.

    A synchronous device (a CPU) takes dispatch plus compute; an asynchronous one (a GPU) the larger of the two. An op type
    without a formula is priced by its bytes, and its cost says so: source "analytic-fallback". A compiled call is dispatched once
    and computes what its ops do.
    """

    @property
    def name(self) -> str:
        return "analytic"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The op's cost on that device; never fails. No figure reaches 2**50, however large the op."""
        source = "analytic" if signature.inner or entry_of(signature.op_type).work else "analytic-fallback"
        try:
            dispatch, compute, workspace = self._figures(signature, device)
        except OverflowError:  # sizes for which no float is large enough
            dispatch, compute, workspace = device.dispatch_ns, _MOST, _MOST
        dispatch, compute = round(min(dispatch, _MOST)), round(min(compute, _MOST))
        time = max(dispatch, compute) if device.asynchronous else dispatch + compute
        return OpCost(time, dispatch, compute, min(workspace, _MOST), source)

    def _figures(self, signature: OpSignature, device: Device) -> tuple[float, float, int]:
        """What dispatch and compute take in ns, and the workspace."""
        if signature.inner:
            inner = [self.op_cost(op, device) for op in signature.inner]
            compute = sum(cost.compute_ns for cost in inner)
            return device.dispatch_ns, compute, max(cost.workspace_bytes for cost in inner)
        work = work_of(signature)
        if not device.asynchronous:
            dispatch = device.dispatch_ns if work.kernels or work.cpu_serial_ns else work.nodes * device.host_op_ns
            return dispatch, _cpu_ns(work, signature, device), work.workspace_bytes
        if work.kernels and runs_on_host(signature):
            work = in_host_memory(signature)
        if not work.kernels:
            return work.nodes * device.host_op_ns + work.cpu_serial_ns, 0, work.workspace_bytes
        dispatch = launching_ns(signature.op_type, work, device)
        return dispatch, max(_gpu_ns(work, signature, device), work.kernels * device.min_kernel_ns), work.workspace_bytes


def launching_ns(op_type: str, work: Work, device: Device) -> int:
    """What starting an op's kernels takes the host: each after the first a bare launch, about half of starting a plain op."""
    return round(entry_of(op_type).start_factor * device.dispatch_ns) + (work.kernels - 1) * device.dispatch_ns // 2


def on_one_core(work: Work, device: Device) -> bool:
    """Whether TensorFlow gives a product one core of a CPU, which it does where its matrices fit that core's cache."""
    return work.one_core and not device.asynchronous and work.nbytes < device.core_cache_bytes


def _rate(work: Work, op: OpSignature, device: Device) -> float:
    """Operations per second a large instance of this op reaches."""
    if not work.tiles:
        return device.flops["default"]
    dtype = op.inputs[-1].dtype if op.inputs else "float32"
    efficiency = work.efficiency if device.asynchronous else work.cpu_efficiency
    return device.flops.get(dtype, device.flops["default"]) * efficiency


def _gpu_ns(work: Work, op: OpSignature, device: Device) -> float:
    rate = _rate(work, op, device)
    if work.tiles:
        rate *= work.tiles / (math.ceil(work.tiles / device.cores) * device.cores)
    return max(work.flops / rate, work.nbytes / device.memory_bytes_per_s) * 1e9 + work.gpu_serial_ns


def _cpu_ns(work: Work, op: OpSignature, device: Device) -> float:
    arithmetic_s, traffic_s = work.flops / _rate(work, op, device), work.nbytes / device.memory_bytes_per_s
    on_all_cores = max(arithmetic_s, traffic_s) * 1e9
    one_core_bytes_per_s = (
        _CACHE_BYTES_PER_S if work.nbytes <= _CACHE_BYTES else min(_CACHE_BYTES_PER_S, device.memory_bytes_per_s)
    )
    shares = max(1.0, device.cores / device.threads_per_core) if work.tiles else device.cores
    on_one = max(arithmetic_s * shares, work.nbytes / one_core_bytes_per_s) * 1e9
    return (on_one if on_one_core(work, device) else min(on_one, _FORK_NS + on_all_cores)) + work.cpu_serial_ns
