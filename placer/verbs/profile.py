"""Measuring the ops of functions on the devices of this process, in the order of what their costs contribute to doubt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost_models.auto import auto_model, installed_tensorflow
from cost_models.base import OpCost, OpSignature
from cost_models.machines import Device
from cost_models.measurements import Row, signature_text
from cost_models.ops import UnmeasurableError, work_of
from cost_models.store import Store, StoreError
from placer.common.html import Html, folded, html_table, stacked
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import PlacerError
from placer.graph.op_graph import OpGraph

if TYPE_CHECKING:
    from placer.plan.placement import Placement
    from placer.tf.run.harvesting import Harvest

RELATIVE_DOUBT = {"measured": 0.1, "harvested": 0.3, "analytic": 1.0, "analytic-fallback": 2.0}
"""Assumed relative error of a cost, by its source."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Result of a profiling run.

    An op here is an op signature on a device model, so equal ops count once, and an op counts once for each device model that
    has a kernel for it. An op without a kernel on any device counts once.
    """

    measured: int
    known: int
    """Measured alone by an earlier run, with this version of TensorFlow."""
    remaining: int
    """Not measured for lack of time. Another run continues with them."""
    refused: Mapping[str, Mapping[str, int]]
    """Number of ops that cannot be measured, by reason and op type."""
    seconds: float

    @property
    def _counts(self) -> str:
        """The counts in words."""
        refused = sum(sum(types.values()) for types in self.refused.values())
        counts = f"{self.measured} ops measured in {self.seconds:.0f} s, {self.known} measured before"
        counts += f", {self.remaining} not measured for lack of time"
        return f"{counts}, {refused} that cannot be measured" if refused else counts

    def __str__(self) -> str:
        return "\n".join([self._counts, *(f"  {reason}: {_counted(types)}" for reason, types in self.refused.items())])

    def _repr_html_(self) -> Html:
        rows = [[reason, _counted(types)] for reason, types in self.refused.items()]
        refused = [folded("ops that cannot be measured", html_table(["reason", "op types"], rows, ["op types"]))] if rows else []
        return stacked(self._counts, *refused)


def _counted(types: Mapping[str, int]) -> str:
    return ", ".join(f"{op_type} ({count})" if count > 1 else op_type for op_type, count in types.items())


@dataclass(frozen=True, slots=True)
class _Job:
    """An op to measure on a device."""

    signature: OpSignature
    device: Device
    doubt: float
    """The doubt in the op's cost, as a share of the graph's step on the device, summed over the graphs."""
    expected_ns: float


def profile(graphs: OpGraph | Sequence[OpGraph], budget_s: float = 60.0) -> Profile:
    """Measures each distinct op of one or more graphs on each device model of this process that can run it, and stores the times.

    The ops whose costs put most of a step's time in doubt come first. Measurements in the user's store are not repeated, so a
    run that was stopped can be continued; ops that were only harvested are measured. Ops with side effects do not run; variables
    are created for the measurements. The result says of each op that did not run why not.

    Args:
        graphs: of the functions; see `placer.build_graph`. All have the same weight, however long their steps are.
        budget_s: in seconds. No measurement starts that would end later.

    Raises:
        OptionError: `budget_s` is no positive number.
        PlacerError: the times cannot be stored.
    """
    check_seconds("budget_s", budget_s)
    from cost_models.measuring.timing import TooLongError, expected_s, measure
    from placer.tf.devices import local_machine

    start = time.monotonic()
    check_store()
    store = Store()
    jobs, known, refused = _jobs([graphs] if isinstance(graphs, OpGraph) else graphs, local_machine().devices, store)
    measured = remaining = 0
    with progress("measuring") as stage:
        for job in jobs:
            spent = time.monotonic() - start
            if spent + expected_s(job.expected_ns, job.device) > budget_s:
                remaining += 1
                continue
            stage.at(spent / budget_s, f"{job.signature.op_type} on {job.device.name}")
            try:
                figures = measure(job.signature, job.device, within_s=budget_s - spent)
            except TooLongError:
                remaining += 1
                continue
            except UnmeasurableError as error:
                _count(refused, str(error), job.signature.op_type)
                continue
            _put(store, [Row(job.device.model, installed_tensorflow(), job.signature, figures)])
            measured += 1
    return Profile(measured, known, remaining, refused, time.monotonic() - start)


def keep(harvest: Harvest, placement: Placement) -> None:
    """Stores the times of ops in real steps, except of ops that were measured alone.

    Raises:
        PlacerError: the times cannot be stored.
    """
    from placer.tf.devices import local_machine

    measured = harvest.measurements(placement, local_machine())
    try:
        Store().add_missing(Row(model, installed_tensorflow(), signature, figures) for model, signature, figures in measured)
    except StoreError as error:
        raise PlacerError(str(error)) from error


def check_store() -> None:
    """Raises PlacerError if nothing can be stored, which is better known before the measurements than after them."""
    _put(Store(), [])


def _put(store: Store, rows: list[Row]) -> None:
    try:
        store.put(rows)
    except StoreError as error:
        raise PlacerError(str(error)) from error


def _jobs(
    graphs: Sequence[OpGraph], devices: Iterable[Device], store: Store
) -> tuple[list[_Job], int, dict[str, dict[str, int]]]:
    """The ops to measure, most doubt first; how many were measured before; and the others, counted by reason and op type."""
    model, known, jobs = auto_model(store), 0, []
    reasons = {op.signature: _refusal(op.signature) for graph in graphs for op in graph}
    without_kernel = {op: reason or "no device here has a kernel for it" for op, reason in reasons.items()}
    refused: dict[str, dict[str, int]] = {}
    for device in {d.model: d for d in reversed(tuple(devices))}.values():
        measured = store.measured_signatures(device.model, installed_tensorflow())
        costs: dict[OpSignature, OpCost] = {}
        doubt: dict[OpSignature, float] = {}
        runs: dict[OpSignature, float] = {}
        for graph in graphs:
            counts = _counts(graph, device.kind)
            reasons |= {op: _refusal(op) for op in counts if op not in reasons}
            costs |= {op: model.op_cost(op, device) for op in counts if op not in costs}
            step_ns = sum(costs[op].time_ns * count for op, count in counts.items()) or 1.0
            for op, count in counts.items():
                runs[op] = runs.get(op, 0.0) + count
                doubt_ns = costs[op].time_ns * count * RELATIVE_DOUBT.get(costs[op].source, 1.0)
                doubt[op] = doubt.get(op, 0.0) + doubt_ns / step_ns
        for op, share in doubt.items():
            without_kernel.pop(op, None)
            if reason := reasons[op] or ("" if runs[op] else "no step runs it"):
                _count(refused, reason, op.op_type)
            elif signature_text(op) in measured:
                known += 1
            else:
                jobs.append(_Job(op, device, share, costs[op].time_ns))
    for op, reason in without_kernel.items():
        _count(refused, reason, op.op_type)
    return sorted(jobs, key=lambda job: -job.doubt), known, refused


def _count(refused: dict[str, dict[str, int]], reason: str, op_type: str) -> None:
    types = refused.setdefault(reason, {})
    types[op_type] = types.get(op_type, 0) + 1


def _refusal(op: OpSignature) -> str:
    """Why an op cannot be measured; "" if it can."""
    from cost_models.measuring.inputs import check_runnable

    try:
        check_runnable(op)
    except UnmeasurableError as error:
        return str(error)
    work = work_of(op)
    return "" if work.kernels or work.cpu_serial_ns else "its cost is only the time to start it"


def _counts(graph: OpGraph, kind: str) -> dict[OpSignature, float]:
    """How often a step runs each distinct op that has a kernel for this kind of device."""
    counts: dict[OpSignature, float] = {}
    for op in graph:
        if kind in op.kernels:
            counts[op.signature] = counts.get(op.signature, 0.0) + (op.count if op.role == "op" else 0.0)
    return counts
