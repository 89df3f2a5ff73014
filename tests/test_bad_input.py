"""What cannot be used is refused at once: one error of the package's own, which names the value and the way out."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from cost_models import OpCost
from placer.errors import ConstraintError, DeviceError, InfeasibleError, OptionError, PlacerError, PlanError, TraceError
from placer.plan.views import views
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import Objective, Solution, Status, StopReason
from tests.helpers.graphs import layers

GRAPH = layers()
PLAN = placer.solve(GRAPH, "h100")


@dataclass
class Answers:
    """A cost model that always says the same."""

    cost: Any
    name: str = "answers"

    def op_cost(self, *_: object) -> Any:
        return self.cost


@dataclass
class Returns:
    """A solver that returns what it is told to."""

    make: Callable[[PlacementProblem], Any]
    name: str = "returns"

    def unsupported(self, *_: object) -> str:
        return ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 1.0, seed: int = 0) -> Any:
        made = self.make(problem)
        return made and Solution(made, Status.FEASIBLE, objective, 1, 0, self.name, 0.0, StopReason.COMPLETED)

    def cite(self) -> str:
        return ""


UNTYPED = ("", "/", "/job:localhost", "task:0")
"""Device strings that name no device."""
SIZES = (1.5, math.nan, "1.5", "lots", "-1", b"8GiB", None, True, 2**63, 10**400, "9" * 400 + "GB")


def fails(*_: object) -> Any:
    raise KeyError("of their own")


async def awaited(x: tf.Tensor) -> tf.Tensor:
    return x


async def awaited_often(x: tf.Tensor) -> Any:
    yield x


def yielding(x: tf.Tensor) -> Any:
    yield x


class Awaited:
    """An instance that is called as an async function is."""

    async def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x


class Model(tf.Module):  # type: ignore[misc]
    """An instance that has its variables."""

    def __call__(self) -> Any:
        return double


def everywhere(device: float) -> Callable[[PlacementProblem], Assignment]:
    return lambda problem: Assignment(np.full(problem.num_units, device))


def double(x: tf.Tensor) -> tf.Tensor:
    return 2 * x


@pytest.mark.parametrize(
    ("option", "values", "words"),
    [
        ("time_limit_s", [math.nan, math.inf, "5", b"5", 0, -1, True, [1], 10**400], "seconds above 0"),
        ("seed", ["x", b"1", None, True, 1.5, math.nan, -1, 2**31, [1]], "whole number from 0"),
        ("memory_limits", [None, 5, "8GiB", [("CPU:0", 5)], {0: "8GiB"}, {b"CPU:0": 5}], "{'GPU:0': '8GiB'}"),
        ("memory_limits", [{"CPU:0": size} for size in SIZES], "'CPU:0'.*(bytes|8 EiB)"),
        ("memory_limits", [{"somewhere": "8GiB"}], "'somewhere'.*devices look like"),
        ("memory_limits", [{device: "8GiB"} for device in UNTYPED], "names no device.*'GPU:0'"),
        ("memory_limits", [{"GPU:0": 8, "gpu:0": 9}, {"GPU": 8, "/device:GPU:*": 8}], "which are the same"),
        ("pins", [None, "matmul", [("MatMul", "CPU:0")], {3: "CPU:0"}, {b"MatMul": "CPU:0"}], r"\{'embed/\*': 'CPU:0'\}"),
        ("pins", [{"MatMul": device} for device in ("garbage", 3, None, b"CPU:0", Path("CPU:0"), "CPU:0/GPU:0")], "'MatMul'"),
        ("pins", [{"MatMul": device} for device in UNTYPED], "'MatMul'.* names no device.*'GPU:0'"),
        ("devices", [5, b"h100", ["GPU:0"], tf.config.list_logical_devices(), "bogus", "absent.toml"], r"h100|absent\.toml"),
        ("devices", [Path("absent.toml"), Path("/"), "\0.toml"], "cannot be read as a machine's TOML file"),
        ("solver", ["bogus", b"auto", None, 5, object, SimpleNamespace(solve=print)], "min_cut"),
        ("cost_model", ["bogus", b"auto", None, 5, SimpleNamespace(op_cost=print)], "analytic"),
        ("objective", ["speed", None, [], b"step_time"], "'step_time'"),
        ("on_missing_device", [True, None, b"relax"], "'relax'"),
        ("trace_for", ["h100", None], "'target'"),
        ("stale", ["keep", None], "'repoint'"),
        ("variables", [None, True, b"fixed"], "'fixed'"),
        ("seed", [tf.constant(1.0)], "seed=.*whole number from 0"),
        ("race", [tf.constant(1.0), np.array(["auto", "off"])], "race=.*'auto'"),
        ("sizes", [{"x": tf.constant(1.0)}, {"x": [tf.constant(1.0)]}], "sizes, 'x': .*whole number from 0"),
        ("no_such_option", [1], "The options are devices, "),
        ("device", ["h100"], r"unknown option 'device'; did you mean devices, .*\? The options"),
    ],
)
def test_an_option_is_refused_where_it_is_given(option: str, values: list[Any], words: str) -> None:
    for value in values:
        for take in (placer.optimized_placement, lambda **o: placer.place(double, **o), lambda **o: placer.solve(GRAPH, **o)):
            with pytest.raises(OptionError, match=words):
                take(**{option: value})


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (OptionError, "build_graph", lambda: placer.solve(double, "h100")),
        (OptionError, "'step', which is not a function", lambda: placer.serve("step", tf.TensorSpec([None]), batch_sizes=(1, 8))),
        (OptionError, "'2xh100'", lambda: placer.solve(GRAPH, "h100", devices="2xh100")),
        (OptionError, "not both", lambda: placer.solve(GRAPH, "h100", placer.Options(), seed=1)),
        (OptionError, "min_cut.*step_time", lambda: placer.solve(GRAPH, "h100", solver="min_cut")),
        (OptionError, "answers.*ReadVariableOp.*7", lambda: placer.solve(GRAPH, "h100", cost_model=Answers(7))),
        (OptionError, "'seed': 1", lambda: placer.solve(GRAPH, "h100", {"seed": 1})),
        (OptionError, "'auto'", lambda: placer.solve(GRAPH, "h100", "auto")),
        (OptionError, "returns.*None", lambda: placer.solve(GRAPH, "h100", solver=Returns(lambda _: None))),
        (OptionError, "returns.*integers.*str", lambda: placer.solve(GRAPH, "h100", solver=Returns(lambda _: "here"))),
        (OptionError, "fails.*KeyError.*of their own", lambda: placer.solve(GRAPH, "h100", solver=fails)),
        (OptionError, "returns.*KeyError", lambda: placer.solve(GRAPH, "h100", solver=Returns(fails))),
        (OptionError, "len.*TypeError", lambda: placer.solve(GRAPH, "h100", solver=len)),
        (OptionError, "lambda.*Assignment.*list", lambda: placer.solve(GRAPH, "h100", solver=lambda p: [0] * p.num_units)),
        (OptionError, "has this name; did you mean h100", lambda: placer.solve(GRAPH, "h10O")),
        (OptionError, "missing.*'x'.*type for each argument", lambda: placer.serve(lambda x: x, batch_sizes=(1, 8))),
        (OptionError, "'GPU:0' is a device.*h100.*all_gpu", lambda: placer.solve(GRAPH, "GPU:0")),
        (OptionError, "'cpu' is a device.*h100.*all_cpu", lambda: placer.solve(GRAPH, devices="cpu")),
        (OptionError, "did you mean step_time", lambda: placer.solve(GRAPH, "h100", solver="stepTime")),
        (OptionError, "returns.*shape", lambda: placer.solve(GRAPH, "h100", solver=Returns(everywhere(0.0)))),
        (OptionError, "returns.*device 9", lambda: placer.solve(GRAPH, "h100", solver=Returns(everywhere(9)))),
        (OptionError, "returns.*device -1", lambda: placer.solve(GRAPH, "h100", solver=Returns(everywhere(-1)))),
        (OptionError, "answers.*nan", lambda: placer.solve(GRAPH, "h100", cost_model=Answers(OpCost(math.nan, 0, 0, 0, "")))),
        (OptionError, "answers.*None", lambda: placer.solve(GRAPH, "h100", cost_model=Answers(OpCost(None, 0, 0, 0, "")))),
        (
            OptionError,
            "theirs.*KeyError.*of their own",
            lambda: placer.solve(GRAPH, "h100", cost_model=SimpleNamespace(name="theirs", op_cost=fails)),
        ),
        (OptionError, "'no_such_op'", lambda: placer.solve(GRAPH, "h100", pins={"no_such_op": "CPU:0"})),
        (DeviceError, "'GPU:7'.*GPU:0", lambda: placer.solve(GRAPH, "h100", pins={"MatMul": "GPU:7"})),
        (
            ConstraintError,
            "demands 'CPU'.*demands 'GPU'.*Way out",
            lambda: placer.solve(GRAPH, "h100", pins={"layer0/*": "CPU", "layer0/MatMul": "GPU"}),
        ),
        (InfeasibleError, "all_gpu", lambda: placer.solve(GRAPH, "h100", solver="all_gpu", memory_limits={"GPU:0": 9})),
        (OptionError, "not a function", lambda: placer.place(3)),
        (OptionError, "not a function", lambda: placer.apply(3, PLAN)),
        (OptionError, "None.*not a function", lambda: placer.optimized_placement(None)),
        (OptionError, "None.*not a function", lambda: placer.optimized_placement(None, seed=1)),
        (OptionError, "None.*not a function", lambda: placer.optimized_placement(seed=1)(None)),
        (OptionError, "'h100'.*not a function", lambda: placer.optimized_placement("h100")),
        (OptionError, "build=<function double.*without arguments", lambda: placer.plan_then_create(double, [])),
        (OptionError, "build=<.*is a tf.function", lambda: placer.plan_then_create(tf.function(lambda: double), [])),
        (OptionError, "build=<.*Model.*is a model", lambda: placer.plan_then_create(Model(), [])),
        (OptionError, "build=<Dense.*is a .*layer", lambda: placer.plan_then_create(tf.keras.layers.Dense(3), [])),
        (OptionError, "double .* the 2 of example_args: too many", lambda: placer.plan_then_create(lambda: double, [1, 2])),
        (OptionError, "double .* the 0 of example_args: missing.*'x'", lambda: placer.plan_then_create(lambda: double, ())),
        (
            TraceError,
            "plan_then_create: call it outside",
            lambda: tf.function(lambda x: placer.plan_then_create(lambda: double, [x]))(1.0),
        ),
        (OptionError, "build=None cannot be called.*makes the variables", lambda: placer.plan_then_create(None, [])),
        (OptionError, r"example_args=<tf.Tensor.*as one, \[", lambda: placer.plan_then_create(lambda: double, tf.ones([2]))),
        (OptionError, "example_args=None", lambda: placer.plan_then_create(lambda: double, None)),
        (OptionError, "example_args={'x': 1}", lambda: placer.plan_then_create(lambda: double, {"x": 1})),
        (OptionError, r"build returned \(\), .*\(step, model\)", lambda: placer.plan_then_create(tuple, [])),
        (OptionError, "build returned None", lambda: placer.plan_then_create(lambda: None, [])),
        (OptionError, r"build returned \[<function", lambda: placer.plan_then_create(lambda: [double], [])),
        (OptionError, r"build returned \(3, <function", lambda: placer.plan_then_create(lambda: (3, double), [])),
        (OptionError, r"cannot place .* a class", lambda: placer.plan_then_create(lambda: tf.Module, [])),
        (OptionError, r"Placement\.load", lambda: placer.apply(double, None)),
        (OptionError, "'plan.json'", lambda: placer.apply(double, "plan.json")),
        (OptionError, "None.*'x'", lambda: PLAN.explain(None)),
        (OptionError, "3", lambda: PLAN.device_of(3)),
        (OptionError, "'explain'.*'op'", lambda: PLAN.view("explain")),
        (OptionError, "boxes=0", lambda: PLAN.view("dot", boxes=0)),
        (OptionError, "boxes='many'", lambda: PLAN.view("dot", boxes="many")),
        (OptionError, "limit=-3", lambda: PLAN.view("ops", limit=-3)),
        (OptionError, "limit='x'", lambda: PLAN.view("ops", limit="x")),
        (OptionError, "scope=3", lambda: PLAN.view("ops", scope=3)),
        (OptionError, "measured='abc'", lambda: PLAN.view("timeline", measured="abc")),
        (PlanError, "None cannot be written", lambda: PLAN.write("html", None)),
        (PlanError, "cannot be written", lambda: PLAN.write("dot", "\0")),
        (PlanError, "the data.*list", lambda: placer.Placement.from_json([])),
        (PlanError, "None", lambda: placer.OpGraph.from_json(None)),
        (OptionError, "diff.*'plan.json'", lambda: PLAN.diff("plan.json")),
        (OptionError, "'dot'.*'colour'.*takes boxes", lambda: PLAN.view("dot", colour="red")),
        (OptionError, "did you mean summary", lambda: PLAN.view("sumary")),
        (PlanError, "/no/such/folder/p.json cannot be written", lambda: PLAN.save("/no/such/folder/p.json")),
        (PlanError, "cannot be written", lambda: GRAPH.save(Path("/"))),
        (PlanError, "cannot be written", lambda: GRAPH.save("\0")),
        (PlanError, "cannot be read", lambda: placer.Placement.load(None)),
    ],
)
def test_a_call_that_cannot_be_served_says_why(error: type[PlacerError], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert re.search(words, str(raised.value), re.DOTALL), str(raised.value)


@pytest.mark.parametrize("name", views())
def test_a_view_names_the_options_that_it_takes(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*It takes") as raised:
        PLAN.view(name, type="MatMul")
    takes = [p for p in inspect.signature(views()[name].load()).parameters if p != "placement"]
    assert all(option in str(raised.value) for option in takes)


@pytest.mark.parametrize("value", [2.5, -1, "no such", b"x", [], {}, [3]], ids=repr)
@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name, entry in views().items() for option in list(inspect.signature(entry.load()).parameters)[1:]],
)
def test_a_view_is_drawn_with_what_an_option_is_given_or_refuses_it(name: str, option: str, value: Any) -> None:
    """What is refused is named; no other error comes out."""
    if name == "svg":
        pytest.importorskip("matplotlib")
    refused = repr(value)
    try:
        PLAN.view(name, **{option: value})
    except OptionError as error:
        refused = str(error)
    assert repr(value) in refused


def test_a_device_is_answered_with_a_way_out_that_works() -> None:
    for kind in ("cpu", "gpu"):
        assert placer.solve(GRAPH, "h100", solver=f"all_{kind}").device_of("layer0/Relu") == f"{kind.upper()}:0"


@pytest.mark.parametrize(
    "take",
    [
        lambda fn, *args, **kwargs: fn(*args, **kwargs),
        lambda fn, *args, **kwargs: fn.plan(*args, **kwargs),
        placer.build_graph,
    ],
)
def test_too_few_or_too_many_arguments_are_told_as_the_functions(take: Callable[..., Any]) -> None:
    def added(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x + y

    for fn in (added, tf.function(added)):
        placed = placer.optimized_placement(fn)
        for args, kwargs, words in (
            ([1.0], {}, "missing.*'y'"),
            ([1.0] * 3, {}, "too many positional"),
            ([1.0, 2.0], {"z": 3}, "unexpected keyword.*'z'"),
        ):
            with pytest.raises(TypeError, match=rf"added\(x.*y.*\).*{words}") as raised:
                take(placed, *args, **kwargs)
            assert "tf.function" not in str(raised.value)


def test_a_long_value_is_not_printed_whole() -> None:
    values = [1.0] * 10_000
    for take in (placer.build_graph, placer.place, lambda v: placer.solve(v, "h100"), lambda v: placer.solve(GRAPH, v)):
        with pytest.raises(OptionError, match=r"\[1.0, 1.0, .*\.\.\.\]") as raised:
            take(values)
        assert len(str(raised.value)) < 400


PLACING = (placer.optimized_placement, placer.optimized_placement(seed=1), placer.place, lambda fn: placer.apply(fn, PLAN))


@pytest.mark.parametrize("fn", [awaited, awaited_often, yielding, Awaited(), Awaited, tf.Module, functools.partial(yielding, 1)])
def test_what_runs_no_ops_when_called_is_not_placed(fn: Any) -> None:
    for wrapped in (fn, tf.function(fn)):
        for take in PLACING:
            with pytest.raises(OptionError, match=r"cannot place .*, which is an? .*: pass"):
                take(wrapped)


def test_numbers_of_numpy_are_numbers() -> None:
    cost = OpCost(*np.array([1000, 500, 500, 0]), source="user")
    limits = {"GPU:0": np.int64(2**30)}
    given = {"memory_limits": limits, "seed": np.int64(1), "time_limit_s": np.float32(1.5)}
    assert placer.solve(GRAPH, "h100", cost_model=Answers(cost), **given).step_time_ns > 0


def test_options_do_not_change_with_what_they_were_made_from() -> None:
    pins, limits = {"MatMul": "CPU:0"}, {"GPU:0": "8GiB"}
    options = placer.Options(pins=pins, memory_limits=limits)
    pins["no_such_op"] = limits["nowhere"] = "?"
    assert (options.pins, options.memory_limits) == ({"MatMul": "CPU:0"}, {"GPU:0": "8GiB"})


@pytest.mark.parametrize("budget_s", [math.nan, math.inf, 0, -1, "5", True])
def test_a_budget_is_a_number_of_seconds(budget_s: Any) -> None:
    for measure in (placer.calibrate, lambda budget_s: placer.profile(GRAPH, budget_s)):
        with pytest.raises(OptionError, match=r"budget_s=.* seconds above 0"):
            measure(budget_s)
