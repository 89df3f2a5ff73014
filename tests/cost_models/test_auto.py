"""What "auto" answers: measured, then analytic."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models import AnalyticModel, OpSignature, TensorSpec, load_machine
from cost_models.auto import auto_model
from cost_models.measurements import Measurement, Row
from cost_models.shipped import MEASUREMENTS
from cost_models.store import Store
from placer.problem.op_costs import FIRST_RUN_NS
from tests.helpers.graphs import layers

PROFILES = resources.files("cost_models").joinpath("profiles", MEASUREMENTS)
SHIPPED = load_machine("h100")
MACHINE = replace(SHIPPED, devices=tuple(replace(d, model=f"another {d.kind}") for d in SHIPPED.devices))
"""Of devices that nothing was measured on."""
CPU, GPU = MACHINE.devices


def product(n: int, dtype: str = "float32") -> OpSignature:
    matrix = TensorSpec(dtype, (n, n))
    return OpSignature("MatMul", (matrix, matrix), (matrix,))


def store_with(folder: Path, device_model: str, *measured: tuple[OpSignature, Measurement]) -> Store:
    store = Store(folder / "a.sqlite")
    store.put(Row(device_model, "2.21.0", signature, figures) for signature, figures in measured)
    return store


def test_the_nearest_source_answers_first(tmp_path: Path) -> None:
    """Products that took 5 us dispatch and 1 ns for each 1000 operations."""
    sizes = [64, 128]
    took = {n: Measurement(max(5_000, 2 * n**3 // 1000), 5_000, 2 * n**3 // 1000, 0.0) for n in sizes}
    store = store_with(tmp_path, GPU.model, *((product(n), took[n]) for n in sizes))
    auto, analytic = auto_model(store), AnalyticModel()

    for n in sizes:
        cost = auto.op_cost(product(n), GPU)
        assert (cost.time_ns, cost.dispatch_ns, cost.compute_ns) == (took[n].time_ns, took[n].dispatch_ns, took[n].compute_ns)
        assert cost.source == "measured"
    elsewhere = [(product(96), GPU), (product(64, "bfloat16"), GPU), (product(64), CPU), (OpSignature("NoOp", (), ()), GPU)]
    for signature, device in elsewhere:
        assert auto.op_cost(signature, device) == analytic.op_cost(signature, device)


def test_a_plan_says_where_its_costs_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    graph = layers()
    plain = placer.solve(graph, MACHINE)
    relu = graph.op("layer0/Relu").signature
    Store().put(Row(device.model, "2.21.0", relu, Measurement(7, 3, 4, 0.0)) for device in MACHINE.devices)
    placement = placer.solve(graph, MACHINE)
    assert {plan.cost_source for plan in plain.ops.values()} == {"", "analytic"}
    assert {name for name, plan in placement.ops.items() if plan.cost_source == "measured"} == {
        f"layer{k}/Relu" for k in range(3)
    }
    assert placement.ops["layer0/Relu"].time_ns == {"CPU:0": 7, "GPU:0": 3 + FIRST_RUN_NS}
    assert "costs      6 from a formula, 3 measured, 4 without cost" in placement.summary()


def test_what_comes_with_the_package_is_used_where_the_user_measured_nothing(tmp_path: Path) -> None:
    group = json.loads(PROFILES.read_text("utf-8"))["groups"][0]
    (device,) = (d for d in SHIPPED.devices if d.model == group["device_model"])
    first, second = (OpSignature.from_json(row[0]) for row in group["measurements"][:2])
    auto = auto_model(store_with(tmp_path, device.model, (first, Measurement(7, 3, 4, 0.0))))
    assert auto.op_cost(first, device).time_ns == 7
    shipped = auto.op_cost(second, device)
    assert (shipped.source, shipped.time_ns) == ("measured", Measurement(*group["measurements"][1][1:]).typical().time_ns)


def test_what_was_measured_before_names_told_generations_is_used_and_what_comes_along_on_its_own(tmp_path: Path) -> None:
    (old,) = load_machine("cpu2").devices
    (shipped,) = (g for g in json.loads(PROFILES.read_text("utf-8"))["groups"] if g["device_model"] == old.model)
    there = OpSignature.from_json(shipped["measurements"][0][0])
    first, second = product(64), product(128)
    store = store_with(tmp_path, old.model, *((op, Measurement(7, 3, 4, 0.0)) for op in (first, second)))
    newer, older = (replace(old, model=f"2 AMD EPYC (family {family}, model 2) cores") for family in (26, 25))
    store.put([Row(older.model, "2.21.0", second, Measurement(9, 3, 6, 0.0))])
    auto = auto_model(store)
    assert [auto.op_cost(first, device).time_ns for device in (old, newer, older)] == [7, 7, 7]
    assert [auto.op_cost(second, device).time_ns for device in (old, newer, older)] == [7, 7, 9]
    assert [auto.op_cost(there, device).source == "measured" for device in (old, newer, older)] == [True, True, False]


def test_a_harvested_figure_is_used_as_it_is_where_nothing_was_measured(tmp_path: Path) -> None:
    group = json.loads(PROFILES.read_text("utf-8"))["groups"][0]
    (device,) = (d for d in SHIPPED.devices if d.model == group["device_model"])
    measured, new = OpSignature.from_json(group["measurements"][0][0]), OpSignature("LookupTableSizeV2", (), ())
    seen = Measurement(7, 3, 4, 0.5, harvested=True)
    auto = auto_model(store_with(tmp_path, device.model, (measured, seen), (new, seen)))
    cost = auto.op_cost(new, device)
    assert (cost.source, cost.time_ns, cost.dispatch_ns, cost.compute_ns) == ("harvested", 7, 3, 4)
    assert auto.op_cost(measured, device).source == "measured"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 2), st.booleans())
def test_what_is_typical_is_the_lower_quartile(dispatch: int, compute: int, spread: float, serial: bool) -> None:
    time = dispatch + compute if serial else max(dispatch, compute)
    typical = Measurement(time, dispatch, compute, spread).typical()
    assert typical.time_ns == pytest.approx(time * (1 + spread), abs=1)
    assert typical.dispatch_ns >= dispatch
    assert typical.compute_ns >= compute - 1
    if serial:
        assert typical.time_ns == typical.dispatch_ns + typical.compute_ns
    else:
        assert typical.time_ns == max(typical.dispatch_ns, typical.compute_ns)
