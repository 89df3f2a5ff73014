"""What a Placement is made of: one record for each op, unit, transfer, device and baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from placer.graph.sizes import End
from placer.problem.reasons import Reason

BASELINE_NAMES = {"tf_default": "TensorFlow's default", "all_cpu": "all on CPU", "all_gpu": "all on GPU"}
"""By name of the solver that makes the baseline."""


@dataclass(frozen=True, slots=True)
class OpPlan:
    """The device of one op, and its cost on each device. All times are totals over the runs of one step."""

    device: str
    unit: int
    """Index into `Placement.units`: the ops that share its device."""
    time_ns: Mapping[str, int]
    """Cost by device that has a kernel for it."""
    cost_sources: Mapping[str, str]
    """Source of the cost by device that has a kernel for it; empty for an op that has no cost."""
    start_ns: int
    """Predicted start of the computation, counted from the start of the step."""
    end_ns: int
    """Predicted end. All runs of a step count as one: a loop's body lasts as long as the loop."""
    streamed: bool
    """True if it computes in its device's stream, one op after the other; False if it computes on a thread of the host."""
    default: str
    """The device on which TensorFlow's own placement has it; "" if that placement does not exist."""
    cold_ns: Mapping[str, int] = field(default_factory=dict)
    """By device, where it is > 0: the part of its cost for being the first op of its type in a step."""

    @property
    def cost_source(self) -> str:
        """Source of the cost on its own device; "" for an op that has no cost."""
        return self.cost_sources.get(self.device, "")


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Ops that must share a device, and what moving only them would change."""

    ops: int
    """Number of ops."""
    reasons: tuple[Reason, ...]
    """The constraints that excluded devices for it."""
    time_ns: Mapping[str, int]
    """By allowed device: total time of its ops in a step."""
    transfer_ns: Mapping[str, int]
    """By allowed device: total time of the transfers of every tensor it makes or reads, with all other units where they are."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The copies of one tensor to one other place in one step."""

    tensor: str
    """ "producer:output"; "^producer" for a control edge."""
    src: str
    dst: str
    dst_memory: Literal["device", "host"]
    """"host" for host memory that a kernel of `dst` reads."""
    nbytes: int
    """Size of one copy."""
    count: float
    """Copies in one step."""
    time_ns: int
    """Total time of the copies of one step."""
    start_ns: int
    """Predicted start of the first copy, counted from the start of the step."""
    end_ns: int
    """Predicted arrival of the last copy."""

    @property
    def producer(self) -> str:
        """The op that makes the tensor, or that the control edge starts at."""
        return self.tensor[1:] if self.tensor.startswith("^") else self.tensor.rpartition(":")[0]

    @property
    def output(self) -> int:
        """Index of the producer's output; -1 for a control edge."""
        return -1 if self.tensor.startswith("^") else int(self.tensor.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Totals of one device over one step."""

    ops: int
    """Number of ops, without constants: each device keeps those that its ops read."""
    time_ns: int
    peak_bytes: int
    """Most memory held at once."""
    persistent_bytes: int
    """Variables and constants, which are kept from step to step."""
    limit_bytes: int
    """-1 for no limit."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another placement of the same graph, priced by the same model."""

    feasible: bool
    total_cost_ns: int
    step_time_ns: int
    note: str
    """Why it is infeasible, which ops cannot be where its name says, and which of its devices the pins forbid; "" for none."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The plan where everything that the graph leaves open is at one end, beside the best simple placement there."""

    end: End
    step_time_ns: int
    """The plan's step."""
    best_step_time_ns: int
    """The step of the best placement."""
    best: str
    """The solver of the best placement; "" for the plan, unless another gains clearly (`MIN_GAIN`)."""
