"""Steps predicted for placements of one's own."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import placer
from placer.common.units import format_ns
from placer.errors import InfeasibleError, OptionError
from placer.graph.matching import matching
from placer.graph.op_graph import OpGraph
from placer.graph.shipped import shipped_graph


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return shipped_graph("decoding")


def test_what_a_plan_has_is_predicted_again(graph: OpGraph) -> None:
    plan = placer.solve(graph, "h100")
    again = placer.simulate(graph, {name: op.device for name, op in plan.ops.items()}, "h100")
    assert (again.step_time_ns, again.total_cost_ns, again.totals) == (plan.step_time_ns, plan.total_cost_ns, plan.totals)
    assert again.transfers == plan.transfers


def test_what_is_not_named_is_where_tensorflow_has_it(graph: OpGraph) -> None:
    plain = placer.simulate(graph, {}, "h100")
    assert plain.step_time_ns == plain.baselines["tf_default"].step_time_ns
    alone = next(names for names in units(plain) if len(names) == 1 and plain.ops[names[0]].device == "GPU:0")
    moved = placer.simulate(graph, {alone[0]: "CPU:0"}, "h100")
    assert [name for name, op in moved.ops.items() if op.device != plain.ops[name].device] == alone
    (only,) = (op for op in graph if op.op_type == "ArgMax")  # found by its type as `explain` finds it
    assert placer.simulate(graph, {"ArgMax": "CPU:0"}, "h100").device_of("ArgMax") == "CPU:0" != plain.ops[only.name].device


def test_names_are_those_of_pins(graph: OpGraph) -> None:
    plain = placer.simulate(graph, {}, "h100")
    for pattern in ("MatMul", "*MatMul*", next(iter(graph.resources), "MatMul")):
        named = matching(graph, pattern)
        moved = placer.simulate(graph, {pattern: "CPU:0"}, "h100")
        assert len(named) > (pattern in ("MatMul", "*MatMul*"))
        assert moved.assigned == dict.fromkeys(named, "CPU:0")
        assert {moved.ops[name].device for name in named} == {"CPU:0"}
        pinned = placer.solve(graph, "h100", pins={pattern: "CPU:0"}, solver="tf_default")
        assert {pinned.ops[name].device for name in named} == {"CPU:0"}
    assert moved.machine == plain.machine
    with pytest.raises(OptionError, match=r"name 'MatMuls' matches no op.*did you mean .*MatMul"):
        placer.simulate(graph, {"MatMuls": "CPU:0"}, "h100")
    with pytest.raises(OptionError, match="give one device"):
        placer.simulate(graph, {"MatMul": "CPU:0", "*MatMul*": "GPU:0"}, "h100")


def test_an_exact_name_means_that_op_alone_even_if_it_is_an_op_type_too() -> None:
    graph = shipped_graph("encoder_training")
    assert "Const" in graph.graph
    default = placer.simulate(graph, {}, "h100")
    given = {name: plan.device for name, plan in default.ops.items()}
    assert sum(graph.op(name).op_type == "Const" for name in given) > 1
    assert placer.simulate(graph, given | {"Const": "CPU:0"}, "h100").step_time_ns > 0


def test_a_device_of_ones_own_is_told_as_that_and_what_moving_the_op_would_change(graph: OpGraph, tmp_path: Path) -> None:
    one, two = next(names for names in units(placer.solve(graph, "h100")) if len(names) == 2)
    mine = {one: "CPU:0", "ArgMax": "CPU:0"}
    plan = placer.simulate(graph, mine, "h100")
    assert not {plan.why(op.name).kind for op in graph} & {"cost", "neighbours", "indifferent", "whole"}
    moved = placer.simulate(graph, mine | {"ArgMax": "GPU:0"}, "h100")
    change = format_ns(moved.total_cost_ns - plan.total_cost_ns)
    told = plan.explain("ArgMax")
    assert f"assigned: you have it on CPU:0; moving it alone to GPU:0 would add {change} of total cost (" in told
    assert f"assigned: it goes with {one!r} (" in plan.explain(two)
    assert "which you have on CPU:0; moving it alone to GPU:0 would" in plan.explain(two)
    other = next(names[0] for names in units(plan) if plan.ops[names[0]].device == "GPU:0")
    assert "assigned: you named no device for it, so it is where TensorFlow would have it; moving it" in plan.explain(other)

    plan.save(tmp_path / "mine.json")
    assert placer.Placement.load(tmp_path / "mine.json").explain("ArgMax") == told
    if importlib.util.find_spec("jsonschema"):
        import jsonschema

        schema = json.loads((Path(placer.__file__).parent / "common" / "plan.schema.json").read_text())
        jsonschema.validate(json.loads((tmp_path / "mine.json").read_text()), schema)


def test_what_cannot_be_is_told(graph: OpGraph) -> None:
    plan = placer.solve(graph, "h100")
    together = next(names for names in units(plan) if len(names) > 1)
    for devices, words in (
        ({"nothing": "CPU:0"}, "name 'nothing' matches no op, op type, variable or layer"),
        ({3: "CPU:0"}, "3 is no op's name"),
        ({together[0]: "GPU:7"}, "there is CPU:0, GPU:0"),
        ({together[0]: "CPU:0", together[1]: "GPU:0"}, "these share a device"),
        ([together[0]], "is no mapping"),
    ):
        with pytest.raises(OptionError, match=words):
            placer.simulate(graph, devices, "h100")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="takes no solver"):
        placer.simulate(graph, {}, "h100", solver="heft")
    with pytest.raises(InfeasibleError, match=r"GPU:0.* Way out: more in memory_limits"):
        placer.simulate(graph, {}, "h100", memory_limits={"GPU:0": 1})


def test_an_op_that_a_variable_keeps_from_a_device_goes_there_with_variables_that_move() -> None:
    graph = shipped_graph("recommender_training")
    read = next(name for name in graph.graph if graph.op(name).op_type == "ReadVariableOp")
    with pytest.raises(OptionError, match=r'cannot be on CPU:0, only on GPU:0: .*variables="move"'):
        placer.simulate(graph, {read: "CPU:0"}, "h100")
    assert placer.simulate(graph, {read: "CPU:0"}, "h100", variables="move").device_of(read) == "CPU:0"


def units(plan: placer.Placement) -> list[list[str]]:
    """The ops of each unit that may be on either device."""
    found: dict[int, list[str]] = {}
    for name, op in plan.ops.items():
        if len(plan.units[op.unit].time_ns) > 1:
            found.setdefault(op.unit, []).append(name)
    return list(found.values())
