"""Measuring the ops of functions on the devices that are here, those that matter most first."""

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
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import PlacerError
from placer.graph.op_graph import OpGraph
from placer.problem.fusion import chains

if TYPE_CHECKING:
    from placer.plan.placement import Placement
    from placer.tf.run.harvesting import Harvest

DOUBT = {"measured": 0.1, "harvested": 0.3, "fitted": 0.3, "analytic": 1.0, "analytic-fallback": 2.0}
"""How wrong a cost from each source may be, as a share of it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiling run did. An op here is a signature on a device model: equal ops are measured once.

    Each op of the functions is counted once, by what became of it; one for which no device here has a kernel, once in all.
    """

    measured: int
    known: int
    """Measured before by themselves, under this version of TensorFlow."""
    left: int
    """Not come to in time: another run goes on with them."""
    refused: Mapping[str, Mapping[str, int]]
    """Why ops were not measured: by reason, how many of each op type."""
    seconds: float

    def __str__(self) -> str:
        refused = sum(sum(types.values()) for types in self.refused.values())
        counts = f"{self.measured} ops measured in {self.seconds:.0f} s, {self.known} known before"
        counts += f", {self.left} left for lack of time"
        lines = [f"{counts}, {refused} not to be measured" if refused else counts]
        return "\n".join([*lines, *(f"  {why}: {_counted(types)}" for why, types in self.refused.items())])


def _counted(types: Mapping[str, int]) -> str:
    return ", ".join(f"{op_type} ({count})" if count > 1 else op_type for op_type, count in types.items())


@dataclass(frozen=True, slots=True)
class _Job:
    signature: OpSignature
    device: Device
    worth: float
    """What part of a step on the device is in doubt by it, summed over the graphs."""
    likely_ns: float


def profile(graphs: OpGraph | Sequence[OpGraph], budget_s: float = 60.0) -> Profile:
    """Measures each distinct op of one or more graphs on each device model of this process that can run it, and stores that.

    The ops whose cost leaves most of a step's time in doubt come first. What is in the user's store already is not measured
    again, so a run that stopped goes on where it was; what was only harvested is measured. No op runs that has side effects;
    variables are made for the purpose. Every other op is told with why it is not run.

    Args:
        graphs: of the functions; see `placer.build_graph`. Each counts alike, however long its step takes.
        budget_s: no measurement starts that would not be done after so many seconds.

    Raises:
        OptionError: a budget that is no positive number.
        PlacerError: what was measured cannot be stored.
    """
    check_seconds("budget_s", budget_s)
    from cost_models.measuring.timing import TooLongError, expected_s, measure
    from placer.tf.devices import local_machine

    start = time.monotonic()
    check_store()
    store = Store()
    jobs, known, refused = _jobs([graphs] if isinstance(graphs, OpGraph) else graphs, local_machine().devices, store)
    measured = left = 0
    with progress("measuring") as stage:
        for job in jobs:
            spent = time.monotonic() - start
            if spent + expected_s(job.likely_ns, job.device) > budget_s:
                left += 1
                continue
            stage.at(spent / budget_s, f"{job.signature.op_type} on {job.device.name}")
            try:
                figures = measure(job.signature, job.device, within_s=budget_s - spent)
            except TooLongError:
                left += 1
                continue
            except UnmeasurableError as error:
                _count(refused, str(error), job.signature.op_type)
                continue
            _put(store, [Row(job.device.model, installed_tensorflow(), job.signature, figures)])
            measured += 1
    return Profile(measured, known, left, refused, time.monotonic() - start)


def keep(harvest: Harvest, placement: Placement) -> int:
    """Stores what ops took in real steps, where they were not measured by themselves; says of how many it is new."""
    from placer.tf.devices import local_machine

    found = harvest.measurements(placement, local_machine())
    try:
        return Store().add_missing(Row(model, installed_tensorflow(), signature, figures) for model, signature, figures in found)
    except StoreError as error:
        raise PlacerError(str(error)) from error


def check_store() -> None:
    """PlacerError where nothing can be stored: told before the work, not after it."""
    _put(Store(), [])


def _put(store: Store, rows: list[Row]) -> None:
    try:
        store.put(rows)
    except StoreError as error:
        raise PlacerError(str(error)) from error


def _jobs(
    graphs: Sequence[OpGraph], devices: Iterable[Device], store: Store
) -> tuple[list[_Job], int, dict[str, dict[str, int]]]:
    """What to measure, most valuable first; how many ops are measured already; the others, by reason and op type."""
    model, known, jobs = auto_model(store), 0, []
    reasons = {op.signature: _why_not(op.signature) for graph in graphs for op in graph}
    alone = {op: why or "no device here has a kernel for it" for op, why in reasons.items()}
    refused: dict[str, dict[str, int]] = {}
    for device in {d.model: d for d in reversed(tuple(devices))}.values():
        there = store.measured_signatures(device.model, installed_tensorflow())
        costs: dict[OpSignature, OpCost] = {}
        worth: dict[OpSignature, float] = {}
        runs: dict[OpSignature, float] = {}
        for graph in graphs:
            counts = _counts(graph, device.kind)
            reasons |= {op: _why_not(op) for op in counts if op not in reasons}
            costs |= {op: model.op_cost(op, device) for op in counts if op not in costs}
            step_ns = sum(costs[op].time_ns * count for op, count in counts.items()) or 1.0
            for op, count in counts.items():
                runs[op] = runs.get(op, 0.0) + count
                in_doubt = costs[op].time_ns * count * DOUBT.get(costs[op].source, 1.0)
                worth[op] = worth.get(op, 0.0) + in_doubt / step_ns
        for op, value in worth.items():
            alone.pop(op, None)
            if why := reasons[op] or ("" if runs[op] else "no step runs it"):
                _count(refused, why, op.op_type)
            elif signature_text(op) in there:
                known += 1
            else:
                jobs.append(_Job(op, device, value, costs[op].time_ns))
    for op, why in alone.items():
        _count(refused, why, op.op_type)
    return sorted(jobs, key=lambda job: -job.worth), known, refused


def _count(refused: dict[str, dict[str, int]], why: str, op_type: str) -> None:
    types = refused.setdefault(why, {})
    types[op_type] = types.get(op_type, 0) + 1


def _why_not(op: OpSignature) -> str:
    """Why an op is not to be run; "" for one that is."""
    from cost_models.measuring.inputs import check_runnable

    try:
        check_runnable(op)
    except UnmeasurableError as error:
        return str(error)
    work = work_of(op)
    return "" if work.kernels or work.cpu_serial_ns else "nothing but its start is priced"


def _counts(graph: OpGraph, kind: str) -> dict[OpSignature, float]:
    """Each distinct op that has a kernel for this kind of device, and how often a step runs it.

    Of a CPU's also those that TensorFlow makes of several.
    """
    counts: dict[OpSignature, float] = {}
    for op in graph:
        if kind in op.kernels:
            counts[op.signature] = counts.get(op.signature, 0.0) + (op.count if op.role == "op" else 0.0)
    for chain in chains(graph) if kind == "CPU" else ():
        counts[chain.signature] = counts.get(chain.signature, 0.0) + chain.ops[0].count
    return counts
