"""Recorded step times and memory peaks, and the predictions for them."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.exports import import_json
from cost_models.machines import Machine, parse_machine
from cost_models.store import Store
from cost_models.transfers import unpinned_factor
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import peaks
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from tests.benchmarks.scoring import rank_correlation, scores
from tests.helpers.changed import changed

PASS_THROUGH = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "ReadVariableOp"})
"""Op types whose result stays in the memory of their input."""
MODELS = ("auto", "analytic", "grappler")


def score(folder: Path, names: Collection[str] = ()) -> dict[str, Any]:
    """The scores of each model against the recorded step times, over all placements and within each workload.

    Args:
        folder: a folder that `bench_accuracy` wrote.
        names: of workloads; all by default.
    """
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "measurements.sqlite")
        if (folder / "measurements.json").exists():
            store.add_missing(import_json(folder / "measurements.json"))
        models = {"auto": auto_model(store), "analytic": AnalyticModel()}
        pairs: dict[str, dict[str, tuple[list[float], list[float]]]] = {model: {} for model in MODELS}
        for path in sorted(folder.glob("*.json")):
            record = json.loads(path.read_text())
            if "cases" not in record or (names and record["workload"] not in names):
                continue
            measured = [1e6 * float(np.median(case["rounds_ms"])) for case in record["cases"].values()]
            for name, model in models.items():
                pairs[name][record["workload"]] = measured, predict(record, folder, model)
            estimates = [case["grappler_ns"] for case in record["cases"].values()]
            known = [k for k, estimate in enumerate(estimates) if estimate is not None]
            pairs["grappler"][record["workload"]] = [measured[k] for k in known], [estimates[k] for k in known]
    return {model: scores(times) for model, times in pairs.items()}


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for a placement."""

    graph: OpGraph
    problem: PlacementProblem
    op_device: Any
    """[N]: the device of each op."""

    @property
    def assignment(self) -> Assignment:
        device = np.zeros(self.problem.num_units, np.int64)
        device[self.problem.ops.unit] = self.op_device
        return Assignment(device)

    @property
    def step_ns(self) -> float:
        return float(Simulator(self.problem).step_ns(self.assignment))

    @property
    def peak_bytes(self) -> list[int]:
        """By device."""
        return [int(peak) for peak in peaks(self.problem, self.assignment)]

    def held_bytes(self, device: int) -> int:
        """The memory of a device that is in use before a step: variables, captures and arguments."""
        problem = self.problem
        on_device = [op.role == "argument" and d == device for op, d in zip(self.graph, self.op_device.tolist(), strict=True)]
        arguments = np.array(on_device, np.bool_)[problem.tensors.op] & ~problem.tensors.on_host[:, device]
        kept = problem.units.persistent_bytes[self.assignment.device == device].sum()
        return int(kept + problem.tensors.held_bytes[arguments].sum())

    def op_times(self) -> Iterator[tuple[str, str, int]]:
        """Type, device and time in ns of each op with a time above 0."""
        times = self.problem.ops.time_ns[np.arange(self.problem.num_ops), self.op_device]
        for op, device, time_ns in zip(self.graph, self.op_device.tolist(), times.tolist(), strict=True):
            if time_ns:
                yield op.op_type, self.problem.devices.names[device], time_ns


def repeated(record: dict[str, Any]) -> float:
    """The rank correlation of the even rounds of a record with its odd rounds.

    Placements that take about as long are in no order. No prediction can rank them better than the rounds rank themselves.
    """
    rounds = [case["rounds_ms"] for case in record["cases"].values()]
    return rank_correlation(*([float(np.median(each[k::2])) for each in rounds] for k in (0, 1)))


def predict(record: dict[str, Any], folder: Path, model: CostModel) -> list[float]:
    """The predicted step times of the cases of a record in ns."""
    return [prediction.step_ns for prediction in predictions(record, folder, model)]


def predictions(record: dict[str, Any], folder: Path, model: CostModel) -> Iterator[Prediction]:
    """The predictions for the cases of a record."""
    machine = parse_machine(record["machine"])
    problems: dict[tuple[str, Any], tuple[OpGraph, PlacementProblem]] = {}
    for case in record["cases"].values():
        key = case["graph"], case.get("variables", "fixed")
        if key not in problems:
            graph = recorded_graph(folder / f"{case['graph']}.graph.json.gz")
            constraints = constrain(graph, machine, Options(variables=key[1]))
            problems[key] = graph, formulate(graph, constraints, model, machine).problem
        graph, problem = problems[key]
        op_device = np.array([int(digit) for digit in case["devices"]])
        yield Prediction(graph, pageable(problem, graph, op_device, machine) if case.get("pageable") else problem, op_device)


@cache
def recorded_graph(path: Path) -> OpGraph:
    """A graph that `bench_accuracy` wrote."""
    with gzip.open(path, "rt") as file:
        return OpGraph.from_json(json.load(file))


@dataclass(frozen=True)
class Peak:
    """The peak memory of a GPU in a step of a placement, in bytes."""

    workload: str
    label: str
    device: str
    measured: int
    estimate: int

    @property
    def error(self) -> float:
        """The relative error of the estimate: 0.2 if it is 20% too high."""
        return self.estimate / self.measured - 1 if self.measured else np.inf


def gpu_peaks(folder: Path) -> Iterator[Peak]:
    """The peaks of all GPUs on which the ops of a recorded placement use memory.

    The process also had the variables of other placements. So the measured peak is the memory that the step added, plus the
    placement's own variables and arguments.
    """
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if "cases" not in record:
            continue
        cases = record["cases"].items()
        for (label, case), prediction in zip(cases, predictions(record, folder, AnalyticModel()), strict=True):
            for device in sorted({*prediction.op_device.tolist()} - {0}):
                gpu = prediction.problem.devices.names[device]
                measured = case["peak_bytes"][gpu] - case["held_bytes"][gpu] + prediction.held_bytes(device)
                estimate = prediction.peak_bytes[device]
                if measured or estimate:
                    yield Peak(record["workload"], label, gpu, measured, estimate)


def pageable(problem: PlacementProblem, graph: OpGraph, op_device: Any, machine: Machine) -> PlacementProblem:
    """The problem of a function whose ops on the host make what they send in ordinary memory, as placed functions once did.

    The result of a pass-through op stays in the memory of its input.
    """
    makes = np.array([op.role == "op" and op.op_type not in PASS_THROUGH for op in graph], np.bool_)
    made = (makes & (op_device == 0))[problem.tensors.op]
    slow = np.rint(problem.tensors.nbytes * unpinned_factor(machine)).astype(np.int64)
    return changed(problem, tensors_copy_bytes=np.where(made, slow, problem.tensors.copy_bytes))
