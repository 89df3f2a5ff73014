"""Measuring the ops of functions on the devices that are here, those that matter most first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost_models.auto import auto_model, installed_tensorflow
from cost_models.base import OpCost, OpSignature
from cost_models.machines import Device
from cost_models.store import Row, Store, StoreError, signature_text
from cost_models.work import work_of
from placer.errors import PlacerError
from placer.opgraph import OpGraph
from placer.problem.fusing import chains
from placer.progress import progress
from placer.units import check_seconds

if TYPE_CHECKING:
    from placer.placement import Placement
    from placer.tf.harvesting import Harvest

DOUBT = {"measured": 0.1, "harvested": 0.3, "fitted": 0.3, "analytic": 1.0, "analytic-fallback": 2.0}
"""How wrong a cost from each source may be, as a share of it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiling run did. An op here is a signature on a device model: equal ops are measured once."""

    measured: int
    known: int
    """Measured before by themselves, under this version of TensorFlow."""
    left: int
    """Not come to in time: another run goes on with them."""
    refused: Mapping[str, str]
    """By op type, why an op was not measured."""
    seconds: float

    def __str__(self) -> str:
        lines = [f"{self.measured} ops measured in {self.seconds:.0f} s, {self.known} known before, {self.left} left"]
        lines += [f"not measured: {op_type}: {why}" for op_type, why in self.refused.items()]
        return "\n".join(lines)


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
    variables are made for the purpose.

    Args:
        graphs: of the functions; see `placer.build_graph`. Each counts alike, however long its step takes.
        budget_s: no measurement starts that would not be done after so many seconds.

    Raises:
        OptionError: a budget that is no positive number.
        PlacerError: what was measured cannot be stored.
    """
    check_seconds("budget_s", budget_s)
    from cost_models.measuring.inputs import UnmeasurableError
    from cost_models.measuring.timing import TooLongError, about_s, measure
    from placer.tf.devices import local_machine

    start = time.monotonic()
    check_store()
    store = Store()
    jobs, known = _jobs([graphs] if isinstance(graphs, OpGraph) else graphs, local_machine().devices, store)
    measured = left = 0
    refused: dict[str, str] = {}
    with progress("measuring") as stage:
        for job in jobs:
            spent = time.monotonic() - start
            if spent + about_s(job.likely_ns, job.device) > budget_s:
                left += 1
                continue
            stage.at(spent / budget_s, f"{job.signature.op_type} on {job.device.name}")
            try:
                figures = measure(job.signature, job.device, within_s=budget_s - spent)
            except TooLongError:
                left += 1
                continue
            except UnmeasurableError as error:
                refused.setdefault(job.signature.op_type, str(error))
                continue
            _put(store, [Row(job.device.model, installed_tensorflow(), job.signature, figures)])
            measured += 1
    return Profile(measured, known, left, refused, time.monotonic() - start)


def keep(harvest: Harvest, placement: Placement) -> int:
    """Stores what ops took in real steps, where they were not measured by themselves; says of how many it is new."""
    from placer.tf.devices import local_machine

    found = harvest.measurements(placement, local_machine())
    try:
        return Store().add(Row(model, installed_tensorflow(), signature, figures) for model, signature, figures in found)
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


def _jobs(graphs: Sequence[OpGraph], devices: Iterable[Device], store: Store) -> tuple[list[_Job], int]:
    """What to measure, most valuable first, and how many ops are measured already."""
    model, known, jobs = auto_model(store), 0, []
    for device in {d.model: d for d in reversed(tuple(devices))}.values():
        there = store.texts(device.model, installed_tensorflow())
        costs: dict[OpSignature, OpCost] = {}
        worth: dict[OpSignature, float] = {}
        for graph in graphs:
            counts = list(_counts(graph, device.kind))
            costs |= {op: model.op_cost(op, device) for op, _ in counts if op not in costs}
            step_ns = sum(costs[op].time_ns * count for op, count in counts) or 1.0
            for op, count in counts:
                in_doubt = costs[op].time_ns * count * DOUBT.get(costs[op].source, 1.0)
                worth[op] = worth.get(op, 0.0) + in_doubt / step_ns
        unknown = {op: value for op, value in worth.items() if signature_text(op) not in there}
        known += len(worth) - len(unknown)
        jobs += [_Job(op, device, value, costs[op].time_ns) for op, value in unknown.items()]
    return sorted(jobs, key=lambda job: -job.worth), known


def _counts(graph: OpGraph, kind: str) -> Iterator[tuple[OpSignature, float]]:
    """Each distinct op that has work to do and a kernel for this kind of device, and how often a step runs it.

    Of a CPU's also those that TensorFlow makes of several.
    """
    counts: dict[OpSignature, float] = {}
    for op in graph:
        if op.role == "op" and kind in op.kernels and op.count:
            counts[op.signature] = counts.get(op.signature, 0.0) + op.count
    for chain in chains(graph) if kind == "CPU" else ():
        counts[chain.signature] = counts.get(chain.signature, 0.0) + chain.ops[0].count
    for signature, count in counts.items():
        work = work_of(signature)
        if work.kernels or work.cpu_serial_ns:
            yield signature, count
