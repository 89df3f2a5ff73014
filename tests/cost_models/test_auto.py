"""What "auto" answers: measured, then fitted, then analytic; and what a fit promises."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models import AnalyticModel, OpSignature, TensorSpec, load_machine
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.fitted import MIN_SAMPLES, Fit, features_of, non_negative
from cost_models.measurements import Measurement, Row
from cost_models.overrides import Override, OverrideModel
from cost_models.shipped import MEASUREMENTS
from cost_models.store import Store
from placer.problem.op_costs import FIRST_RUN_NS
from tests.helpers.graphs import GraphBuilder, floats, layers

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
    sizes = [64, 128, 256, 512, 1024, 2048]
    took = {n: Measurement(max(5_000, 2 * n**3 // 1000), 5_000, 2 * n**3 // 1000, 0.0) for n in sizes}
    store = store_with(tmp_path, GPU.model, *((product(n), took[n]) for n in sizes))
    auto, analytic = auto_model(store), AnalyticModel()

    for n in sizes:
        cost = auto.op_cost(product(n), GPU)
        assert (cost.time_ns, cost.dispatch_ns, cost.compute_ns) == (took[n].time_ns, took[n].dispatch_ns, took[n].compute_ns)
        assert cost.source == "measured"
    for n in (96, 700, 3000):
        cost = auto.op_cost(product(n), GPU)
        assert cost.source == "fitted"
        assert cost.dispatch_ns == 5_000
        assert cost.compute_ns == pytest.approx(2 * n**3 / 1000, rel=0.02)
        assert cost.time_ns == max(cost.dispatch_ns, cost.compute_ns)
    elsewhere = [(product(20_000), GPU), (product(700, "bfloat16"), GPU), (product(64), CPU), (OpSignature("NoOp", (), ()), GPU)]
    for signature, device in elsewhere:
        assert auto.op_cost(signature, device) == analytic.op_cost(signature, device)


def test_the_host_goes_on_while_a_gpu_looks_for_what_is_different(tmp_path: Path) -> None:
    """Such ops, one after the other, were measured with the host waiting for each."""
    keys = TensorSpec("int64", (100_000,))
    unique = OpSignature("Unique", (keys,), (TensorSpec("int64", (None,)), TensorSpec("int32", (100_000,))), (("T", "int64"),))
    took = Measurement(300_000, 300_000, 250_000, 0.0)
    auto = auto_model(store_with(tmp_path, GPU.model, (unique, took), (product(64), took)))
    cost = auto.op_cost(unique, GPU)
    assert cost.dispatch_ns < 100_000
    assert cost.compute_ns == cost.time_ns == 300_000
    assert auto.op_cost(product(64), GPU).dispatch_ns == 300_000


def test_few_or_equal_sizes_are_no_fit(tmp_path: Path) -> None:
    few = [(product(64 * 2**k), Measurement(k, 0, k, 0.0)) for k in range(MIN_SAMPLES - 1)]
    equal = [(product(64 + k, "float64"), Measurement(k, 0, k, 0.0)) for k in range(10)]
    auto = auto_model(store_with(tmp_path, CPU.model, *few, *equal))
    for signature in (product(100), product(100, "float64")):
        assert auto.op_cost(signature, CPU).source == "analytic"


def test_products_of_like_sizes_are_no_fit_though_one_core_does_some_of_them(tmp_path: Path) -> None:
    took = Measurement(1_000_000, 1_000, 999_000, 0.0)
    sides = (400, 405, 410, 440, 445, 450)
    assert len({features_of(product(n), CPU)[4] > 0 for n in sides}) == 2
    auto = auto_model(store_with(tmp_path, CPU.model, *((product(n), took) for n in sides)))
    assert {auto.op_cost(product(n), CPU).source for n in (402, 447)} == {"analytic"}


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


@pytest.mark.parametrize("bias", ["CPU:0", "GPU:0"])
def test_a_chain_costs_on_a_cpu_what_it_was_measured_to_take_as_one_op(bias: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    b.argument("x", floats(8, 32))
    b.argument("w", floats(32, 16))
    b.argument("b", floats(16))
    b.op("product", "MatMul", ["x", "w"], (floats(8, 16),), attrs=(("T", "float32"),), count=3)
    b.op("sum", "AddV2", ["b", "product"], (floats(8, 16),), count=3)
    b.op("result", "Relu", ["sum"], (floats(8, 16),), count=3)
    b.op("alone", "Relu", ["result"], (floats(8, 16),), count=3)
    graph, of_chain = b.build("alone"), ("product", "sum", "result")
    attrs = (("T", "float32"), ("fused_ops", ("BiasAdd", "Relu")), ("num_args", 1))
    whole = OpSignature("_FusedMatMul", (floats(8, 32), floats(32, 16), floats(16)), (floats(8, 16),), attrs)
    took = Measurement(900, 100, 800, 0.0)
    pins = {"product": "CPU:0", "sum": bias, "result": "CPU:0"}

    def planned(model: CostModel) -> tuple[dict[str, dict[str, int]], set[str]]:
        placement = placer.solve(graph, MACHINE, cost_model=model, pins=pins)
        on_cpu = [plan for name, plan in placement.ops.items() if name in of_chain and plan.device == "CPU:0"]
        return {name: dict(plan.time_ns) for name, plan in placement.ops.items()}, {plan.cost_source for plan in on_cpu}

    plain, _ = planned(auto_model(Store(tmp_path / "empty.sqlite")))
    for device in MACHINE.devices:
        store = store_with(tmp_path, device.model, (whole, took))
    fused, sources = planned(auto_model(store))
    on_cpu = {"product": 2_700, "sum": 0, "result": 0}
    assert fused == {name: {**times, "CPU:0": on_cpu.get(name, times.get("CPU:0", 0))} for name, times in plain.items()}
    assert sources == {"measured fused"}

    others = [(replace(whole, inputs=(floats(8, n), floats(n, 16), floats(16))), took) for n in (4, 16, 64, 256, 1024)]
    assert planned(auto_model(store_with(tmp_path / "others", CPU.model, *others))) == (plain, {"analytic"})  # it can be fitted
    with_own = OverrideModel(auto_model(store), {"Relu": {"CPU": Override(time_ns=5)}})
    own, _ = planned(with_own)
    assert own == {n: {**times, **({"CPU:0": 15} if n in ("result", "alone") else {})} for n, times in plain.items()}


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


positive = st.floats(1e-3, 1e3)
columns = st.lists(st.tuples(positive, positive, positive), min_size=MIN_SAMPLES, max_size=30)


@given(columns, st.data())
def test_a_fit_is_never_negative_and_never_falls(sizes: list[tuple[float, float, float]], data: st.DataObject) -> None:
    """Whatever was measured, however absurd."""
    times = data.draw(st.lists(st.integers(0, 10**9), min_size=len(sizes), max_size=len(sizes)))
    features = np.column_stack([np.ones(len(sizes)), np.array(sizes)])
    fit = Fit.of(features, [Measurement(t, t // 3, t - t // 3, 0.0) for t in times])
    if fit is not None:
        assert fit.dispatch_ns >= 0
        assert np.all(fit.weights >= 0)
        low, more = (
            np.array([1.0, *data.draw(st.tuples(positive, positive, positive))]),
            data.draw(st.tuples(positive, positive, positive)),
        )
        assert 0 <= fit.compute_ns(low) <= fit.compute_ns(low + np.array([0.0, *more]))


@given(st.tuples(st.floats(0, 1e5), st.floats(0, 1), st.floats(0, 1)), st.integers(0, 2**32 - 1))
def test_a_fit_finds_the_line_behind_most_measurements(line: tuple[float, float, float], seed: int) -> None:
    """With 2% noise, and one in six of them five times too long."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.ones(30), 10 ** rng.uniform(3, 8, (30, 2)), np.zeros(30)])
    exact = features[:, :3] @ np.array(line) + 500
    noisy = exact * rng.normal(1, 0.02, 30) * np.where(np.arange(30) % 6 == 5, 5, 1)
    fit = Fit.of(features, [Measurement(round(t), 0, round(t), 0.0) for t in noisy])
    assert fit is not None
    np.testing.assert_allclose(features @ fit.weights, exact, rtol=0.15)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_non_negative_solution_is_the_best_there_is(count: int, seed: int) -> None:
    """Its gradient vanishes where a weight is positive and points into the forbidden side elsewhere (Karush-Kuhn-Tucker)."""
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(12, count)), rng.normal(size=12)
    weights = non_negative(matrix, target)
    gradient = matrix.T @ (matrix @ weights - target)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(gradient[weights > 0], 0, atol=1e-8)
    assert np.all(gradient[weights == 0] >= -1e-8)
