"""The benchmark that holds predictions against measurements: it measures, keeps what it needs, and scores rightly."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models.auto import auto_model
from cost_models.exports import import_json
from cost_models.machines import parse_machine
from cost_models.measurements import signature_text
from cost_models.registry import cost_model
from cost_models.store import Store
from placer.plan.doubt import doubts
from placer.problem.memory import peaks
from tests.benchmarks import bench_accuracy, bench_memory, bench_step_time, left_out, recorded
from tests.benchmarks.cases import as_traced, placements
from tests.benchmarks.doubt import recorded_kind
from tests.benchmarks.more_workloads import MORE
from tests.benchmarks.public_situations import PUBLIC
from tests.benchmarks.scoring import MIN_RANKED_SPREAD, NOISE, Score, expected_ranks, rank_correlation, report


def test_what_is_measured_is_predicted_again_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_step_time, "ROUND_S", 1e-4)
    monkeypatch.setattr(bench_step_time, "ROUNDS", 3)
    bench_accuracy.measure("decoding", "small", tmp_path, 60.0)
    record = json.loads((tmp_path / "decoding.json").read_text())
    assert {"default", "plan", "all_cpu", "random_0"} <= set(record["cases"])
    assert {"0", "1"} == set(record["cases"]["random_0"]["devices"])

    work = MORE["decoding"]("small")
    graph, machine = placer.build_graph(work.fn, *work.args), parse_machine(record["machine"])
    predicted = dict(zip(record["cases"], recorded.predict(record, tmp_path, cost_model("auto")), strict=True))
    plain = placer.solve(as_traced(work), machine, solver="tf_default")
    assert predicted["default"] == plain.step_time_ns
    assert max(op.count for op in plain.graph if op.op_type == "ReadVariableOp") > 1
    for label, options in placements():
        if label in predicted:
            assert predicted[label] == placer.solve(graph, machine, **options).step_time_ns

    scores = recorded.score(tmp_path)
    assert set(scores) == set(recorded.MODELS)
    for scored in scores.values():
        assert scored["all"]["placements"] == len(record["cases"]) >= 8
        assert -1 <= scored["all"]["rank_correlation"] <= 1
        assert 0 <= scored["all"]["median_error"] <= scored["all"]["error_90"]
    assert "decoding" in report(scores)


DATA = Path(__file__).parents[1] / "data"
LATER = ("encoder", "resnet50")
"""Workloads that were recorded on two more machines with an H200, after the others."""
LEAST_RANK = 0.9
"""The least rank correlation within a workload that has no bound of its own below."""
SORTED = {"sort_unique_segment": 0.87}
ALIKE = {"recommender": 0.71, "sort_unique_segment": 0.79, "unique_then_matmul": 0.86}
"""Most placements of these workloads take about as long; equal ones differed by up to 15%."""


@cache
def scores_of(folder: str, names: tuple[str, ...] | str = ()) -> dict[str, Any]:
    """Of the workloads so called, "the rest" of them, or all."""
    data = DATA / folder
    rest = {path.stem for path in data.glob("*.json")}.difference(LATER)
    return recorded.score(data, rest if names == "the rest" else names)


@pytest.mark.parametrize(
    ("folder", "names", "count", "estimates", "model", "rank", "within", "median", "high"),
    [
        ("recorded_h100", (), 142, 142, "auto", 0.992, SORTED, 0.128, 0.3455),
        ("recorded_h100", (), 142, 142, "analytic", 0.983, SORTED, 0.13, 0.36),
        ("recorded_h200", (), 149, 140, "auto", 0.994, ALIKE | {"mlp_training": 0.81}, 0.1285, 0.294),
        ("recorded_h200", LATER, 19, 10, "auto", 0.989, {}, 0.083, 0.22),
        ("recorded_h200", "the rest", 130, 130, "analytic", 0.981, ALIKE | {"mlp_training": 0.86}, 0.146, 0.367),
    ],
)
def test_what_a_gpu_took_is_predicted_no_worse_than_before(
    folder: str,
    names: tuple[str, ...] | str,
    count: int,
    estimates: int,
    model: str,
    rank: float,
    within: dict[str, float],
    median: float,
    high: float,
) -> None:
    """Step times of many placements, by the cost model and the execution model: order, and how far off."""
    scores = scores_of(folder, names)
    scored, grappler = scores[model]["all"], scores["grappler"]["all"]
    assert (scored["placements"], grappler["placements"]) == (count, estimates)
    assert scored["rank_correlation"] >= rank > grappler["rank_correlation"]
    assert scored["median_error"] <= median
    assert scored["error_90"] <= high
    for name, each in scores[model]["workloads"].items():
        assert each["spread"] < MIN_RANKED_SPREAD or each["rank_correlation"] >= within.get(name, LEAST_RANK), name


@cache
def left_out_of(machine: str) -> list[left_out.Outcome]:
    """The outcomes on a machine, each workload without its own measurements."""
    return left_out.outcomes(machine, left_out.model_without)


@pytest.mark.parametrize(
    ("machine", "count", "rank", "within", "low", "median", "high", "plans"),
    [
        ("H100", 142, 0.9835, 0.971, 1, 0.1215, 0.416, 0.1395),
        ("H200", 325, 0.98, 0.899, 11, 0.156, 0.4345, 0.221),
        ("H200, 32 cores", 30, 0.96, 0.93, 1, 0.2, 0.48, 0.27),
    ],
)
def test_steps_without_their_own_measurements_are_predicted_no_worse_than_before(
    machine: str, count: int, rank: float, within: float, low: int, median: float, high: float, plans: float
) -> None:
    """Each workload without measurements of ops that it alone has: the figures that docs/accuracy.md begins with."""
    found = left_out_of(machine)
    score = left_out.score_of(found)
    assert score.placements == count
    assert score.rank_correlation >= rank
    assert score.median_error <= median
    assert score.error_90 <= high
    inside = {key: left_out.score_of(group) for key, group in left_out.by_workload(found).items() if left_out.differ(group)}
    assert np.mean([each.rank_correlation for each in inside.values()]) >= within
    assert sum(each.rank_correlation < LEAST_RANK for each in inside.values()) <= low, inside
    assert left_out.score_of([each for each in found if each.label in ("plan", "moved")]).median_error <= plans


def test_steps_take_what_the_intervals_of_their_predictions_say() -> None:
    """After a change of the models, `python -m tests.benchmarks.doubt` finds the intervals anew."""
    inside: dict[str, list[bool]] = {}
    for found in map(left_out_of, left_out.SETS):
        for group in left_out.by_workload(found).values():
            default = next(each for each in group if each.label == "default")
            for each in group:
                kind = recorded_kind(each)
                doubt = doubts()[kind]
                if not each.label.startswith("random"):
                    inside.setdefault(kind, []).append(doubt.low <= each.measured / each.predicted <= doubt.high)
                if each.label in ("plan", "moved", "total_cost") and doubt.gain * each.predicted < default.predicted:
                    assert each.measured <= 1.05 * default.measured, (each.machine, each.workload, each.label)
    assert {kind: np.mean(each) for kind, each in inside.items()} == {kind: pytest.approx(0.8, abs=0.1) for kind in doubts()}


def test_a_model_without_a_workload_has_no_measurement_that_only_this_workload_needs() -> None:
    only = left_out.only_in()["svd_then_matmul"]
    (folder, record), *_ = (pair for pair in left_out.records("H200") if pair[1]["workload"] == "svd_then_matmul")
    everything, less = left_out.measured_by(folder), left_out.model_without(folder, "svd_then_matmul")
    graph, gpu = next(recorded.predictions(record, DATA / folder, everything)).graph, parse_machine(record["machine"]).devices[1]
    svd = next(op.signature for op in graph if op.op_type == "Svd")
    assert signature_text(svd) in only
    assert everything.op_cost(svd, gpu).source == "measured" != less.op_cost(svd, gpu).source


def test_noise_is_what_equal_placements_differ_by() -> None:
    """From placements with the same devices that were recorded under two names."""
    differences = []
    for machine in left_out.SETS:
        for _, record in left_out.records(machine):
            times: dict[tuple[str, str], list[float]] = {}
            for case in record["cases"].values():
                times.setdefault((case["graph"], case["devices"]), []).append(float(np.median(case["rounds_ms"])))
            differences += [abs(np.log(each[0] / each[1])) for each in times.values() if len(each) == 2]
    assert len(differences) == 32
    assert np.median(differences) / (0.6745 * 2**0.5) == pytest.approx(NOISE, abs=0.001)


def test_placements_that_are_not_the_same_are_ranked(tmp_path: Path) -> None:
    """Of the recommender, whose default and plan are the same and yet took 15% more or less: with those as one, their mean."""
    folder, store = DATA / "recorded_h200", Store(tmp_path / "measurements.sqlite")
    record = json.loads((folder / "recommender.json").read_text())
    store.add_missing(import_json(folder / "measurements.json"))
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for case, predicted in zip(record["cases"].values(), recorded.predict(record, folder, auto_model(store)), strict=True):
        times.setdefault((case["graph"], case["devices"]), []).append((float(np.median(case["rounds_ms"])), predicted))
    assert len(times) == len(record["cases"]) - 1
    measured, predictions = zip(*(np.mean(pairs, axis=0) for pairs in times.values()), strict=True)
    assert rank_correlation(measured, predictions, NOISE) >= 0.88


def test_what_two_gpus_took_is_predicted_no_worse_than_before() -> None:
    scored = scores_of("recorded_2xh200")["auto"]["all"]
    assert scored["placements"] == 18
    assert scored["rank_correlation"] >= 0.995
    assert scored["median_error"] <= 0.126
    assert scored["error_90"] <= 0.33


def test_what_a_gpu_held_is_estimated_no_worse_than_before() -> None:
    gpu_peaks = list(recorded.gpu_peaks(DATA / "recorded_h100"))
    errors = np.array([peak.error for peak in gpu_peaks])
    assert len(gpu_peaks) == 127
    assert np.median(np.abs(errors)) <= 0.006
    assert (np.abs(errors) <= 0.15).mean() >= 0.9
    assert (errors >= -0.05).mean() >= 0.97
    by_default = {peak.workload: peak.error for peak in gpu_peaks if peak.label == "default"}
    assert -0.05 <= by_default.pop("detector_512") <= 0.31  # what its sister's convolution takes is counted for its own too
    assert len(by_default) == 14
    assert all(-0.05 <= error <= 0.09 for error in by_default.values()), by_default


def test_what_a_function_holds_is_estimated_again_from_its_folder(tmp_path: Path) -> None:
    for name, label in (("fan", "default"), ("decoding", "random_0")):
        bench_memory.measure(name, label, "small", tmp_path)
    for record, graph, problem, assignment in bench_memory.records(tmp_path):
        assert problem.ops.names == tuple(graph.graph)
        estimate = dict(zip(problem.devices.names, peaks(problem, assignment).tolist(), strict=True))
        assert estimate == record["predicted_peak_bytes"]
    assert all(name in bench_memory.report(tmp_path) for name in ("fan.default", "decoding.random_0"))


def test_an_effect_is_predicted_where_it_was_written_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench_accuracy.measure_effects(["call_both"], tmp_path)
    assert capsys.readouterr().out.startswith("call_both")
    record = json.loads((tmp_path / "call_both.json").read_text())
    (case,) = record["cases"].values()
    assert {"0", "1"} == set(case["devices"])
    assert recorded.predict(record, tmp_path, cost_model("auto")) == pytest.approx([1e6 * case["predicted_ms"]])


@pytest.mark.parametrize("name", [*MORE, *PUBLIC])
def test_the_other_workloads_can_be_placed(name: str) -> None:
    work = (MORE | PUBLIC)[name]("small")
    placement = placer.solve(placer.build_graph(work.fn, *work.args), "h100")
    assert len(placement.ops) > 10
    assert placer.apply(work.fn, placer.solve(placement.graph)).plan(*work.args).devices == ("CPU:0", "CPU:1")
    work.fn(*work.args)


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=20, unique=True), st.randoms(use_true_random=False))
def test_rank_correlation_looks_at_order_alone(values: list[int], random: object) -> None:
    measured = np.array(values, np.float64)
    assert rank_correlation(measured, measured**3) == pytest.approx(1)
    assert rank_correlation(measured, -np.log(measured)) == pytest.approx(-1)
    assert rank_correlation(measured, np.ones(len(values))) == 0
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    rank = {value: place for place, value in enumerate(sorted(values))}
    squares = sum((rank[a] - rank[b]) ** 2 for a, b in zip(values, shuffled, strict=True))
    n = len(values)
    assert rank_correlation(measured, np.array(shuffled)) == pytest.approx(1 - 6 * squares / (n * (n * n - 1)))


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=12, unique=True), st.floats(0.001, 0.2))
def test_noise_keeps_the_order_of_ranks_and_their_sum(values: list[float], noise: float) -> None:
    times = np.sort(np.array(values))
    ranks = expected_ranks(times, noise)
    assert (np.diff(ranks) >= -1e-9).all()
    assert ranks.sum() == pytest.approx(len(values) * (len(values) + 1) / 2)
    assert expected_ranks(100.0 ** np.arange(len(values)), noise) == pytest.approx(np.arange(1, len(values) + 1))


def test_equal_times_share_a_rank() -> None:
    assert rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)
    assert expected_ranks(np.array([1.0, 2.0, 2.0, 3.0]), 0.03) == pytest.approx([1, 2.5, 2.5, 4])
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)


def test_errors_are_shares_of_what_was_measured() -> None:
    scored = Score.of(np.full(11, 100.0), 100.0 + np.arange(11) * 10 - 50)
    assert scored.median_error == pytest.approx(0.3)
    assert scored.error_90 == pytest.approx(0.5)
    assert scored.spread == 1
