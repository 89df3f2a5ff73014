"""Predictions for each recorded workload by models that know no measurement of ops that this workload alone has.

So a prediction is what a user gets whose function was never profiled. Constants come from `placer calibrate`, and op costs from
the measurements that come with the package or were made for the other workloads.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.exports import import_json
from cost_models.machines import Device, parse_machine
from cost_models.measured import MeasuredModel
from cost_models.measurements import Table, signature_text
from cost_models.store import Store
from placer.problem.arrays import Ints
from placer.problem.price import transfers
from placer.problem.problem import Assignment, PlacementProblem
from tests.benchmarks.recorded import Prediction, predictions
from tests.benchmarks.scoring import Score

DATA = Path(__file__).parents[1] / "data"
SETS = {
    "H100": ("recorded_h100",),
    "H200": ("recorded_h200", "recorded_h200_field"),
    "H200, 32 cores": ("recorded_h200_arguments",),
    "2 x H200": ("recorded_2xh200",),
}
"""By machine, the folders of its records. Measurements of ops in one folder count for the workloads of the others, too."""
KINDS = ("TensorFlow's default", "one device", "the plan", "split loop", "other")


@dataclass(frozen=True)
class Outcome:
    """The measured and the predicted step times of a placement, in ns."""

    machine: str
    workload: str
    label: str
    kind: str
    """One of `KINDS`."""
    measured: float
    predicted: float
    grappler: float | None
    """TensorFlow's own estimate; None if it was not made."""
    prediction: Prediction

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def by_grappler(self) -> Outcome:
        """The outcome with TensorFlow's own estimate as the prediction."""
        return replace(self, predicted=self.grappler)


def outcomes(machine: str, model_of: Callable[[str, str], CostModel]) -> list[Outcome]:
    """The outcomes of all placements that were recorded on a machine and timed more than once.

    Args:
        machine: a key of `SETS`.
        model_of: makes the cost model, from the name of the folder and that of the workload.
    """
    found = []
    for folder, record in records(machine):
        name, cases = record["workload"], record["cases"]
        predicted = predictions(record, DATA / folder, model_of(folder, name))
        for (label, case), prediction in zip(cases.items(), predicted, strict=True):
            if len(case["rounds_ms"]) > 1:
                measured, kind = 1e6 * float(np.median(case["rounds_ms"])), kind_of(label, prediction)
                found.append(Outcome(machine, name, label, kind, measured, prediction.step_ns, case["grappler_ns"], prediction))
    return found


def by_workload(found: list[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Outcomes by machine and workload."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in found:
        groups[each.machine, each.workload].append(each)
    return groups


def differ(group: list[Outcome]) -> bool:
    """Whether the placements of a workload differ by more than a tenth."""
    times = [each.measured for each in group]
    return max(times) > 1.1 * min(times)


def score_of(group: list[Outcome]) -> Score:
    return Score.of(np.array([each.measured for each in group]), np.array([each.predicted for each in group]))


def records(machine: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The folder and the record of each workload on a machine."""
    for folder in SETS[machine]:
        for path in sorted((DATA / folder).glob("*.json")):
            record = json.loads(path.read_text())
            if "cases" in record:
                yield folder, record


def kind_of(label: str, prediction: Prediction) -> str:
    """The kind of a recorded placement. A plan that makes copies in each round of a loop is a split loop, as others are."""
    if label == "default":
        return KINDS[0]
    if label == "all_cpu":
        return KINDS[1]
    if splits_loop(prediction.problem, prediction.op_device):
        return KINDS[3]
    return KINDS[2] if label in ("plan", "moved") else KINDS[4]


def splits_loop(problem: PlacementProblem, op_device: Ints) -> bool:
    """Whether an assignment of N ops, [N], copies a tensor from device to device in each round of a loop."""
    device = np.zeros(problem.num_units, np.int64)
    device[problem.ops.unit] = op_device
    made = transfers(problem, Assignment(device))
    crosses = made.src % problem.num_devices != made.dst % problem.num_devices
    return bool((problem.tensors.count[made.tensor[crosses]] > 1).any())


# -- models without the measurements of a workload -----------------------------------------------------------------------


@cache
def model_without(folder: str, workload: str) -> CostModel:
    """The default cost model for a workload, without measurements of ops that only this workload has."""
    return WithoutOwn(measured_by(folder), only_in()[workload])


class WithoutOwn:
    """A model over the measurements of another one, less those of some ops."""

    name = "measured for other workloads"

    def __init__(self, whole: MeasuredModel, dropped: frozenset[str]) -> None:
        self._whole = whole
        self._types = {json.loads(text)[0] for text in dropped}

        @cache
        def tables(device_model: str) -> Table:
            table = whole.tables(device_model)
            return {
                op_type: {text: m for text, m in table.get(op_type, {}).items() if text not in dropped} for op_type in self._types
            }

        self._rest = MeasuredModel(tables, AnalyticModel())

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The cost by the measurements that remain. For most op types, all do."""
        return (self._rest if signature.op_type in self._types else self._whole).op_cost(signature, device)


@cache
def measured_by(folder: str) -> MeasuredModel:
    """The default model over the measurements of a folder, then of the others of its machine, then those of the package."""
    machine = next(name for name, folders in SETS.items() if folder in folders)
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "measurements.sqlite")
        for each in sorted(SETS[machine], key=lambda each: each != folder):
            if (path := DATA / each / "measurements.json").exists():
                store.add_missing(import_json(path))
        model = auto_model(store)
        models = {
            device.model for at, record in records(machine) if at == folder for device in parse_machine(record["machine"]).devices
        }
        tables = {name: model.tables(name) for name in models}
    return MeasuredModel(tables.__getitem__, AnalyticModel())


@cache
def only_in() -> Mapping[str, frozenset[str]]:
    """By workload, the text of each signature that no other recorded workload has on any machine."""
    having: dict[str, set[str]] = defaultdict(set)
    for machine in SETS:
        for folder, record in records(machine):
            asked = Asked()
            for _ in predictions(record, DATA / folder, asked):
                pass
            for text in asked.texts:
                having[text].add(record["workload"])
    only: dict[str, set[str]] = defaultdict(set)
    for text, names in having.items():
        if len(names) == 1:
            only[next(iter(names))].add(text)
    return defaultdict(frozenset, {name: frozenset(texts) for name, texts in only.items()})


class Asked:
    """The analytic model, which keeps the signatures that it was asked about."""

    name = "analytic"

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The cost by formulas."""
        self.texts.add(signature_text(signature))
        return AnalyticModel().op_cost(signature, device)
