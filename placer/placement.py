"""Placement: the frozen result of planning. What was decided, why, what it costs, how far from the optimum it can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.opgraph import OpGraph
from placer.solvers.base import Objective, Status


@dataclass(frozen=True, slots=True)
class OpPlan:
    """One op's place and price. Times count every run of one step."""

    device: str
    reason: str
    """Why it is there, in words."""
    time_ns: Mapping[str, int]
    """By device it could run on."""
    cost_source: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor's copies to one further place in one step."""

    tensor: str
    """"producer:output"."""
    src: str
    dst: str
    dst_memory: str
    """"device" or "host"."""
    nbytes: int
    """Of one copy."""
    count: float
    time_ns: int
    """All copies of one step."""


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """What one device does in a step."""

    ops: int
    time_ns: int
    peak_bytes: int
    persistent_bytes: int
    limit_bytes: int
    """-1 where there is none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another placement of the same problem, priced by the same model."""

    feasible: bool
    total_cost_ns: int
    step_time_ns: int
    note: str
    """Why it is infeasible or how it was made."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A solved placement of one graph. See `placer.solve`."""

    graph: OpGraph
    machine: str
    devices: tuple[str, ...]
    ops: Mapping[str, OpPlan]
    """By op name, in execution order."""
    transfers: tuple[Transfer, ...]
    totals: Mapping[str, DeviceTotals]
    baselines: Mapping[str, Baseline]
    """"tf_default", "all_cpu", "all_gpu"."""
    objective: Objective
    status: Status
    objective_ns: int
    lower_bound_ns: int
    total_cost_ns: int
    step_time_ns: int
    solver: str
    solver_seconds: float
    stop_reason: str
    notes: tuple[str, ...]
    """Pins relaxed, device scopes overridden, ops flagged."""
    options: Mapping[str, Any]
