"""The published workloads are read as what they are: classes, the time of all on CPUs, and values recomputed from the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placer.errors import PlanError
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment
from placer.research.instances.dnn_partitioning import load_placement, load_split
from placer.research.splits.problem import excess_bytes, latency_ns, loads_ns
from tests.helpers import published

CLASSES = {
    "LayerGraphs/bert24_training": (64, 32),
    "LayerGraphs/gnmt_inference": (96, 96),
    "LayerGraphs/resnet50_training": (354, 177),
    "OperatorGraphs/bert_l-3_training": (600, 142),
    "OperatorGraphs/resnet50_inference": (604, 176),
}
ALL_ON_CPUS = {
    "LayerGraphs/bert24_inference": 924.1,
    "LayerGraphs/gnmt_inference": 1824.3,
    "LayerGraphs/inceptionv3_inference": 1952.8,
    "LayerGraphs/resnet50_inference": 1874.5,
    "OperatorGraphs/bert_l-12_inference": 14016.8,
    "OperatorGraphs/bert_l-3_inference": 1099.9,
    "OperatorGraphs/bert_l-6_inference": 1724.8,
    "OperatorGraphs/resnet50_inference": 6666.7,
}


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


small = pytest.mark.parametrize("path", [p for p in published.THROUGHPUT if name(p) in CLASSES], ids=name)
latencies = pytest.mark.parametrize("path", published.LATENCY, ids=name)


@small
def test_nodes_of_a_colour_are_a_unit(path: Path) -> None:
    problem = load_split(path)
    assert (problem.ops, problem.units) == CLASSES[name(path)]


@latencies
def test_all_on_cpus_takes_what_is_published(path: Path) -> None:
    problem = load_split(path)
    value = latency_ns(problem, np.full(problem.units, problem.accelerators))
    assert value is not None
    assert value / 1e6 == pytest.approx(ALL_ON_CPUS[name(path)], abs=0.06)


@small
def test_loads_and_costs_are_those_of_the_file(path: Path) -> None:
    split, placement = load_split(path), load_placement(path)
    rng = np.random.default_rng(0)
    for _ in range(3):
        chosen = rng.integers(0, split.devices, split.units)
        device = {
            i: d if d < split.accelerators else split.accelerators - 1 - d
            for i, d in zip(published.node_ids(split.op_names), chosen[split.op_unit].tolist(), strict=True)
        }
        published.checked(path, device, limit_bytes=float("inf"))
        loads = published.loads(path, device)
        expected = [loads.get(d if d < split.accelerators else split.accelerators - 1 - d, 0.0) for d in range(split.devices)]
        assert loads_ns(split, chosen) / 1e6 == pytest.approx(expected, abs=1e-3)

        side = rng.integers(0, 2, placement.num_units)
        on = dict(zip(published.node_ids(placement.ops.names), (side[placement.ops.unit] - 1).tolist(), strict=True))
        assert total_cost_ns(placement, Assignment(side)) / 1e6 == pytest.approx(published.total_cost(path, on), abs=1e-2)


@latencies
def test_a_latency_is_that_of_the_file(path: Path) -> None:
    """Accelerators in a row, each with consecutive units as long as they fit, the rest on CPUs."""
    problem = load_split(path)
    device, held, d = np.full(problem.units, problem.accelerators), 0, 0
    for unit, nbytes in enumerate(problem.unit_bytes.tolist()):
        if held + nbytes > problem.memory_limit_bytes:
            held, d = 0, d + 1
        if d < problem.accelerators:
            device[unit], held = d, held + nbytes
    assert excess_bytes(problem, device) == 0
    value = latency_ns(problem, device)
    where = np.where(device < problem.accelerators, device, published.CPU)[problem.op_unit]
    on = dict(zip(published.node_ids(problem.op_names), where.tolist(), strict=True))
    published.checked(path, on)
    if value is None:
        with pytest.raises(RecursionError):
            published.latency(path, on)
    else:
        assert value / 1e6 == pytest.approx(published.latency(path, on), abs=1e-3)


def test_a_file_that_is_no_workload_is_refused(tmp_path: Path) -> None:
    node = {"supportedOnFpga": 1, "cpuLatency": 1.0, "fpgaLatency": 1.0, "size": 1.0}
    circle: dict[str, Any] = {
        "maxSizePerFPGA": 1.0,
        "maxFPGAs": 1,
        "maxCPUs": 1,
        "nodes": [{"id": 0, **node}, {"id": 1, **node}],
        "edges": [{"sourceId": 0, "destId": 1, "cost": 1.0}, {"sourceId": 1, "destId": 0, "cost": 1.0}],
    }
    line = circle | {"edges": circle["edges"][:1]}
    below, nan = (json.dumps(line).replace('"cpuLatency": 1.0', f'"cpuLatency": {wrong}', 1) for wrong in ("-1.0", "NaN"))
    for content in (
        "not json",
        "{}",
        json.dumps(circle),
        below,
        nan,
        json.dumps(line).replace('"cost": 1.0', '"cost": Infinity'),
    ):
        path = tmp_path / "workload.json"
        path.write_text(content)
        for load in (load_split, load_placement):
            with pytest.raises(PlanError, match="not a workload"):
                load(path)
