"""PlacementProblem: placement as numpy arrays, without TensorFlow and without names where numbers do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Which device each unit of ops runs on.

    Ops are numbered in execution order (topological). A *unit* is the ops that must share a device. Shapes below: N ops,
    U units, D devices, T tensors, C consumer entries, K control edges, P = 2·D places.

    A *place* is where a tensor's bytes are: place ``d`` is device d's own memory, place ``D + d`` is host memory as seen by
    device d. On a CPU both are the host, so only ``d`` is used there. A tensor crosses once per distinct destination place
    of its consumers that differs from the place it is produced in, at ``copy_ns``.
    """

    device_names: tuple[str, ...]
    device_kinds: tuple[str, ...]
    memory_limit_bytes: Ints
    """[D]; -1 where there is no limit."""
    asynchronous: Bools
    """[D]: the device runs a stream that the host only feeds."""

    op_names: tuple[str, ...]
    op_unit: Ints
    """[N] in 0..U-1."""
    op_time_ns: Ints
    """[N, D]: serial time on each device, all runs of one step counted. Meaningless where not `unit_allowed`."""
    op_dispatch_ns: Ints
    """[N, D]: the host's share of it, all runs counted."""
    op_compute_ns: Ints
    """[N, D]: the device's share of it, all runs counted."""
    op_count: Floats
    """[N]: runs per step."""
    op_workspace_bytes: Ints
    """[N, D]"""

    unit_allowed: Bools
    """[U, D]; at least one device each."""
    unit_persistent_bytes: Ints
    """[U]: variables and constants that live as long as the function."""

    tensor_op: Ints
    """[T]: producing op."""
    tensor_bytes: Ints
    """[T]"""
    tensor_count: Floats
    """[T]: times it crosses per step, if it crosses."""
    tensor_on_host: Bools
    """[T, D]: produced in host memory when its producer is on device d."""
    consumer_start: Ints
    """[T + 1]: consumers of tensor t are entries consumer_start[t]:consumer_start[t+1]."""
    consumer_op: Ints
    """[C]"""
    consumer_on_host: Bools
    """[C, D]: taken from host memory when the consumer is on device d."""
    tensor_free: Bools
    """[T]: copying it to a further place costs no time at run time (a constant, copied when the plan is applied)."""
    tensor_is_result: Bools
    """[T]: returned to the caller, so it lives to the end of the step."""

    control_src: Ints
    """[K]"""
    control_dst: Ints
    """[K]"""

    copy_latency_ns: Ints
    """[P, P]; 0 where no copy is needed."""
    copy_ns_per_byte: Floats
    """[P, P]"""
    call_overhead_ns: int

    @cached_property
    def ops(self) -> int:
        return len(self.op_unit)

    @cached_property
    def units(self) -> int:
        return len(self.unit_allowed)

    @cached_property
    def devices(self) -> int:
        return len(self.device_names)

    @cached_property
    def unit_time_ns(self) -> Ints:
        """[U, D]: summed over the unit's ops."""
        total = np.zeros((self.units, self.devices), np.int64)
        np.add.at(total, self.op_unit, self.op_time_ns)
        return total


@dataclass(frozen=True, eq=False)
class Assignment:
    """A device index for every unit, shape [U]."""

    device: Ints
