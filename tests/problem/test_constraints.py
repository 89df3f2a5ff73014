"""What pins, scopes, kernels and the ends of a graph allow, and what is said when they disagree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.base import TensorSpec
from cost_models.machine_files import load_machine
from placer.errors import ConstraintError, DeviceError, OptionError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.problem.constraints import Constraints, constrain
from tests.helpers.graphs import CPU_ONLY, GPU_ONLY, GraphBuilder, floats, layers, with_op

H100 = load_machine("h100")
TWO = load_machine("2xh100")
GPU_SCOPE = "/job:localhost/replica:0/task:0/device:GPU:0"


def devices(graph: OpGraph, found: Constraints, name: str, machine: Any = H100) -> set[str]:
    """The devices an op may use."""
    row = found.allowed[found.op_unit[list(graph.graph).index(name)]]
    return {device.name for device, ok in zip(machine.devices, row, strict=True) if ok}


def pair(**changes: Any) -> OpGraph:
    """An argument and two ops behind it; `changes` are the second op's fields."""
    b = GraphBuilder()
    b.argument("x", floats(4))
    b.op("first", "Tanh", ["x"])
    b.op("second", "Tanh", ["first"], **changes)
    return b.build("second")


def test_kernels_narrow_and_say_why() -> None:
    graph = pair(kernels=CPU_ONLY, refusals={"GPU": "no GPU kernel of Tanh for string"})
    found = constrain(graph, H100, Options())
    assert devices(graph, found, "first") == {"CPU:0", "GPU:0"}
    assert devices(graph, found, "second") == {"CPU:0"}
    (reason,) = found.reasons[found.op_unit[2]]
    assert (reason.kind, reason.op, reason.text) == ("kernel", "second", "no GPU kernel of Tanh for string")


def test_a_group_shares_what_all_its_ops_can_do() -> None:
    graph = with_op(with_op(pair(kernels=CPU_ONLY), "first", group="g"), "second", group="g")
    found = constrain(graph, H100, Options())
    assert found.op_unit[1] == found.op_unit[2] != found.op_unit[0]
    assert devices(graph, found, "first") == {"CPU:0"}


def test_kernels_of_a_group_that_exclude_each_other_are_named() -> None:
    graph = with_op(pair(kernels=CPU_ONLY), "first", group="g", kernels=GPU_ONLY, refusals={"CPU": "cuDNN only"})
    graph = replace(with_op(graph, "second", group="g"), group_reasons={"g": "they are colocated in the graph"})
    with pytest.raises(ConstraintError, match="'first': cuDNN only") as error:
        constrain(graph, H100, Options())
    assert "'second': no GPU kernel" in str(error.value)
    assert "they are colocated in the graph" in str(error.value)


@pytest.mark.parametrize(
    ("pins", "pinned"),
    [
        ({"second": "GPU:0"}, {"second"}),
        ({"sec*": "/GPU:0"}, {"second"}),
        ({"Tanh": "/job:localhost/device:GPU:0"}, {"first", "second"}),
        ({"*": "gpu"}, {"first", "second"}),  # arguments are named, not globbed
        ({"x": "GPU:0"}, {"x"}),
    ],
)
def test_pins_match_names_globs_and_types(pins: dict[str, str], pinned: set[str]) -> None:
    graph = pair()
    found = constrain(graph, H100, Options(pins=pins))
    assert {name for name in graph.graph if devices(graph, found, name) == {"GPU:0"}} == pinned


def test_a_pin_by_variable_name_moves_where_it_is_taken_to_live() -> None:
    graph = layers(depth=2)
    found = constrain(graph, H100, Options(pins={"layer1/kernel": "CPU:0"}))
    assert devices(graph, found, "layer0/ReadVariableOp") == {"GPU:0"}
    assert devices(graph, found, "layer1/ReadVariableOp") == {"CPU:0"}


@pytest.mark.parametrize(
    ("changes", "pins", "error", "words"),
    [
        ({}, {"secnod": "GPU:0"}, OptionError, "did you mean second"),
        ({}, {"second": "GPU:7"}, DeviceError, "it has CPU:0, GPU:0"),
        ({}, {"second": "::"}, OptionError, "'::'"),
        ({"kernels": CPU_ONLY, "refusals": {"GPU": "strings stay"}}, {"second": "GPU:0"}, ConstraintError, "strings stay"),
        ({}, {"second": "GPU:0", "s*": "CPU:0"}, ConstraintError, "pin 's\\*' demands 'CPU:0'"),
    ],
)
def test_pins_that_cannot_hold(changes: dict[str, Any], pins: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        constrain(pair(**changes), H100, Options(pins=pins))


def test_a_pin_against_a_variable_that_is_elsewhere() -> None:
    graph = replace(layers(depth=1), process_devices=("CPU:0", "GPU:0"))
    with pytest.raises(ConstraintError, match="variable 'layer0/kernel' lives on CPU:0"):
        constrain(graph, H100, Options(pins={"layer0/ReadVariableOp": "GPU:0"}))
    found = constrain(graph, H100, Options(pins={"layer0/ReadVariableOp": "GPU:0"}, variables="move"))
    assert devices(graph, found, "layer0/ReadVariableOp") == {"GPU:0"}


def test_scopes_bind_or_are_relaxed_with_a_note() -> None:
    graph = pair(requested_device=GPU_SCOPE)
    assert devices(graph, constrain(graph, H100, Options()), "second") == {"GPU:0"}

    missing = pair(requested_device="/device:GPU:3")
    found = constrain(missing, H100, Options())
    assert devices(missing, found, "second") == {"CPU:0", "GPU:0"}
    assert "'second'" in found.notes[0]
    assert "GPU:3" in found.notes[0]
    assert "CPU:0, GPU:0" in found.notes[0]
    with pytest.raises(DeviceError, match=r"'second'.*GPU:3.*CPU:0, GPU:0"):
        constrain(missing, H100, Options(on_missing_device="error"))

    unable = pair(requested_device=GPU_SCOPE, kernels=CPU_ONLY)
    found = constrain(unable, H100, Options())
    assert devices(unable, found, "second") == {"CPU:0"}
    assert "no GPU kernel" in found.notes[0]


def test_one_note_is_on_all_ops_that_a_scope_cannot_serve() -> None:
    graph = pair(requested_device=GPU_SCOPE, kernels=CPU_ONLY, refusals={"GPU": "no GPU kernel of Second"})
    graph = with_op(graph, "first", requested_device=GPU_SCOPE, kernels=CPU_ONLY, refusals={"GPU": "no GPU kernel of First"})
    (note,) = constrain(graph, H100, Options()).notes
    assert all(words in note for words in ("'first', 'second'", "no GPU kernel of First", "1 more reason"))


def test_a_pin_beats_a_scope_and_partial_scopes_bind_partly() -> None:
    graph = pair(requested_device=GPU_SCOPE)
    found = constrain(graph, H100, Options(pins={"second": "CPU:0"}))
    assert devices(graph, found, "second") == {"CPU:0"}
    assert "pin 'second'" in found.notes[0]
    partial = pair(requested_device="/job:localhost/replica:0/task:0/device:GPU:*")
    assert devices(partial, constrain(partial, TWO, Options()), "second", TWO) == {"GPU:0", "GPU:1"}


def test_scopes_that_exclude_each_other() -> None:
    graph = with_op(pair(requested_device=GPU_SCOPE, group="g"), "first", group="g", requested_device="/CPU:0")
    with pytest.raises(ConstraintError, match=r"tf\.device\('/CPU:0'\) demands CPU:0") as error:
        constrain(graph, H100, Options())
    assert "change one of the tf.device scopes" in str(error.value)
    planned = with_op(graph, "first", planned_by="inner", planned_why="pin 'MatMul' demands 'CPU:0'")
    with pytest.raises(ConstraintError, match=r"the plan of placed function 'inner' demands CPU:0: pin 'MatMul'") as error:
        constrain(planned, H100, Options())
    assert "change the pins or scopes of the placed function" in str(error.value)


def test_a_variable_beats_scopes() -> None:
    graph = replace(layers(depth=1), process_devices=("CPU:0", "GPU:0"))
    graph = with_op(graph, "layer0/ReadVariableOp", requested_device=GPU_SCOPE)
    found = constrain(graph, H100, Options())
    assert devices(graph, found, "layer0/ReadVariableOp") == {"CPU:0"}
    assert "variable 'layer0/kernel' lives on CPU:0" in found.notes[0]


@pytest.mark.parametrize("here", [False, True])
def test_ends_stay_where_they_are_here_and_where_tensorflow_puts_them_elsewhere(here: bool) -> None:
    b = GraphBuilder(process_devices=("CPU:0", "GPU:0") if here else ("CPU:0",))
    b.argument("x", floats(4), location="GPU:0" if here else "CPU:0")
    b.argument("unknown", floats(4))
    b.op("table", "Placeholder", outputs=(floats(8),), role="capture", location="CPU:0")
    b.op("ids", "Placeholder", outputs=(TensorSpec("int64", (8,)),), role="capture", location="CPU:0")
    graph = b.build("x")
    found = constrain(graph, H100, Options())
    where = {name: devices(graph, found, name) for name in graph.graph}
    assert where["unknown"] == where["ids"] == {"CPU:0"}
    assert where["x"] == ({"GPU:0"} if here else {"CPU:0"})
    assert where["table"] == ({"CPU:0"} if here else {"GPU:0"})


def test_in_a_cluster_what_is_of_a_process_stays_with_the_caller(tmp_path: Path) -> None:
    described = 'client = "cpu2"\n[[workers]]\naddress = "a:1"\nmachine = "h100"\n'
    (tmp_path / "cluster.toml").write_text(described)
    cluster = load_machine(tmp_path / "cluster.toml")
    worker = {"worker:0/CPU:0", "worker:0/GPU:0"}
    b = GraphBuilder()
    b.argument("x", floats(4))
    b.variable("v", 64)
    b.op("print", "PrintV2", ["x"], (), flags=("stateful",))
    b.op("pinned", "PrintV2", ["x"], (), flags=("stateful",))
    b.op("scoped", "PrintV2", ["x"], (), flags=("stateful",), requested_device="/job:worker/task:0")
    b.op("file", "ReadFile", ["x"])
    b.op("assert", "Assert", ["x"], (), flags=("stateful",))
    b.op("draw", "RandomUniform", ["x"], flags=("stateful", "random"))
    b.read("read", "v", floats(4), flags=("stateful",))
    b.op("sum", "AddV2", ["x", "read"])
    b.op("here", "Tanh", ["sum"], requested_device="/CPU:0")
    graph = b.build("here")
    found = constrain(graph, cluster, Options(variables="move", pins={"pinned": "worker:0/GPU:0"}))
    allowed = {name: devices(graph, found, name, cluster) for name in graph.graph}
    for name in ("x", "print", "file", "here"):
        assert allowed[name] == {"CPU:0"}
    assert allowed["pinned"] == {"worker:0/GPU:0"}
    assert allowed["scoped"] == worker
    for name in ("assert", "draw", "read", "sum"):
        assert allowed[name] == {"CPU:0", *worker}
    stays = constrain(graph, cluster, Options())
    assert devices(graph, stays, "read", cluster) == {"CPU:0"}


@given(st.lists(st.tuples(st.sampled_from(["CPU", "GPU", "GPU:0", "GPU:1", "CPU:0", ""]), st.booleans()), min_size=1, max_size=6))
def test_what_is_allowed_is_what_every_demand_allows(demands: list[tuple[str, bool]]) -> None:
    """One group, scopes and CPU-only kernels at random: an error exactly where scopes contradict, else their intersection."""
    b = GraphBuilder()
    b.argument("x", floats(4))
    for k, (scope, cpu_only) in enumerate(demands):
        kernels = CPU_ONLY if cpu_only else {"CPU": b.graph.nodes["x"]["op"].kernels["CPU"], **GPU_ONLY}
        b.op(f"op{k}", "Tanh", ["x"], group="g", kernels=kernels, requested_device=f"/device:{scope}" if scope else "")
    graph = b.build("op0")
    allowed = {d.name for d in TWO.devices}
    if any(cpu_only for _, cpu_only in demands):
        allowed = {"CPU:0"}
    contradiction = False
    bound = False
    for scope, cpu_only in demands:
        wanted = {d.name for d in TWO.devices if d.name.startswith(scope)} if scope else set(allowed)
        if cpu_only and scope.startswith("GPU"):
            continue  # relaxed: it cannot run there itself
        if allowed & wanted:
            allowed, bound = allowed & wanted, bound or bool(scope)
        else:
            contradiction = contradiction or bound
    if contradiction:
        with pytest.raises(ConstraintError):
            constrain(graph, TWO, Options())
    else:
        assert devices(graph, constrain(graph, TWO, Options()), "op0", TWO) == allowed
