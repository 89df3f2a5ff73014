"""The arrays against the graph, read again with plain loops."""

from __future__ import annotations

import dataclasses
from typing import Literal

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.base import TensorSpec
from cost_models.machine_files import load_machine
from cost_models.machines import Machine
from cost_models.overrides import Override, OverrideModel
from cost_models.registry import cost_model
from placer.errors import DeviceError, InfeasibleError, OptionError
from placer.graph.op_graph import Kernel, OpGraph
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import Formulation, formulate
from placer.problem.op_costs import FIRST_RUN_NS
from tests.helpers.graphs import ANYWHERE, CPU_ONLY, GraphBuilder, floats, layers, loop_then_wide, towers

H100 = load_machine("h100")
MODEL = cost_model("analytic")


def formulated(graph: OpGraph, **limits: str | int) -> Formulation:
    return formulate(graph, constrain(graph, H100, Options()), MODEL, H100, {k.replace("_", ":"): v for k, v in limits.items()})


def test_a_call_takes_more_for_each_thing_it_is_given() -> None:
    """Here an argument and three variables."""
    graph, slow = layers(depth=3), dataclasses.replace(H100, argument_ns=1_000, passed_ns=200)
    made = formulate(graph, constrain(graph, slow, Options()), MODEL, slow).problem
    assert made.devices.call_overhead_ns == formulated(graph).problem.devices.call_overhead_ns + (1 + 3) * 1_000 + 1 * 200


@st.composite
def graphs(draw: st.DrawFn) -> OpGraph:
    """Up to eight ops of up to three outputs each, host-memory kernels, control edges, several runs."""
    b = GraphBuilder()
    b.argument("x", floats(8))
    for k in range(draw(st.integers(1, 8))):
        known = list(b.graph)
        sources = draw(st.lists(st.sampled_from(known), max_size=3))
        inputs = [f"{s}:{draw(st.integers(0, len(b.graph.nodes[s]['op'].signature.outputs) - 1))}" for s in sources]
        waits = [f"^{s}" for s in draw(st.lists(st.sampled_from(known), max_size=1))]
        outputs = tuple(floats(draw(st.integers(1, 9))) for _ in range(draw(st.integers(1, 3))))
        host = Kernel(tuple(range(draw(st.integers(0, len(inputs))))), tuple(range(draw(st.integers(0, len(outputs))))))
        count = draw(st.sampled_from([0.0, 0.5, 1.0, 10.0]))
        b.op(f"op{k}", "Split", [*inputs, *waits], outputs, kernels={"CPU": Kernel(), "GPU": host}, count=count)
    last = list(b.graph)[-1]
    return b.build(f"{last}:0", "x")


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_every_edge_of_the_graph_is_in_the_arrays_and_nothing_else(graph: OpGraph) -> None:
    """Those to an op that never runs are none: nothing is sent to it."""
    made = formulated(graph)
    p = made.problem
    ops = {op.name: op for op in graph}
    tensor = [(p.ops.names[o], int(k)) for o, k in zip(p.tensors.op, made.tensor_output, strict=True)]
    assert len(set(tensor)) == len(tensor)
    for t, (name, k) in enumerate(tensor):
        taken = [p.ops.names[c] for c in p.consumers.op[p.consumers.start[t] : p.consumers.start[t + 1]]]
        edges = [(dst, e) for dst in graph.graph.succ[name] for e in graph.graph.edges[name, dst]["tensors"] if e.src_index == k]
        edges = [(dst, e) for dst, e in edges if ops[dst].count]
        assert sorted(taken) == sorted(dst for dst, _ in edges)
        on_host = sorted((dst, e.dst_index in ops[dst].kernels["GPU"].host_inputs) for dst, e in edges)
        rows = p.consumers.on_host[p.consumers.start[t] : p.consumers.start[t + 1]]
        assert not rows[:, 0].any()
        assert sorted(zip(taken, rows[:, 1].tolist(), strict=True)) == on_host
        assert p.tensors.on_host[t].tolist() == [False, k in ops[name].kernels["GPU"].host_outputs]
        assert p.tensors.nbytes[t] == ops[name].signature.outputs[k].nbytes
        assert p.tensors.is_result[t] == ((name, k) in graph.outputs)
        uses = [ops[dst].count for dst, _ in edges]
        if uses:
            assert p.tensors.count[t] == min(ops[name].count, max(uses))
    fed = {(src, e.src_index) for src, dst, data in graph.graph.edges(data=True) if ops[dst].count for e in data["tensors"]}
    assert set(tensor) == fed | set(graph.outputs)
    control = {(p.ops.names[a], p.ops.names[b]) for a, b in zip(p.ops.control_src, p.ops.control_dst, strict=True)}
    data_edges = {(a, b) for a, b, data in graph.graph.edges(data=True) if data["tensors"] and ops[b].count}
    edges = {(a, b) for a, b in graph.graph.edges if ops[b].count}
    assert nx.transitive_closure_dag(nx.DiGraph(data_edges | control)).edges == nx.transitive_closure_dag(nx.DiGraph(edges)).edges
    spare = [
        sum(s.nbytes for k, s in enumerate(op.signature.outputs) if op.count and (op.name, k) not in set(tensor)) for op in graph
    ]
    scratch = [0 if op.role == "argument" else MODEL.op_cost(op.signature, H100.devices[0]).workspace_bytes for op in graph]
    assert p.ops.workspace_bytes[:, 0].tolist() == [a + b for a, b in zip(spare, scratch, strict=True)]


@given(graphs())
@settings(max_examples=30, deadline=None)
def test_a_saved_graph_is_the_same_problem(graph: OpGraph) -> None:
    ours, theirs = formulated(graph), formulated(OpGraph.from_json(graph.to_json()))
    for part in dataclasses.fields(ours.problem):
        one, other = getattr(ours.problem, part.name), getattr(theirs.problem, part.name)
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), f"{part.name}.{field.name}")


@pytest.mark.parametrize("graph", [layers(), loop_then_wide(), towers()], ids=lambda g: g.name)
def test_prices_are_the_models_times_the_runs(graph: OpGraph) -> None:
    problem = formulated(graph).problem
    for i, op in enumerate(graph):
        for d, device in enumerate(H100.devices):
            free = op.role in ("argument", "capture", "constant") or device.kind not in op.kernels
            cost = None if free else MODEL.op_cost(op.signature, device)
            once_ns = FIRST_RUN_NS * min(1.0, op.count) if cost and cost.time_ns and device.asynchronous else 0
            time_ns, dispatch_ns = (round(cost.time_ns * op.count), round(cost.dispatch_ns * op.count)) if cost else (0, 0)
            assert problem.ops.dispatch_ns[i, d] == dispatch_ns + round(once_ns)
            assert problem.ops.time_ns[i, d] == max(time_ns, dispatch_ns + round(once_ns)), (op.name, device.name)


def in_part() -> OpGraph:
    """Ops of which some run in a part of the steps, never, or have a kernel for one device alone."""
    b = GraphBuilder("in_part")
    b.argument("x", floats(64))
    counts = {"Relu": (0.25, 0.5, 1.0, 0.5), "Tanh": (0.0, 2.5, 1.0), "Sqrt": (0.5,)}
    for k, (op_type, count) in enumerate((op_type, count) for op_type, some in counts.items() for count in some):
        kernels = CPU_ONLY if count > 1 else ANYWHERE
        b.op(f"op{k}", op_type, ["x"], (floats(64),), count=count, kernels=kernels, body=f"branch{k}" if count < 1 else "")
    return b.build("op7")


@pytest.mark.parametrize("graph", [layers(), loop_then_wide(), towers(), in_part()], ids=lambda g: g.name)
def test_the_first_op_of_each_type_takes_more_unless_a_user_says_what_it_takes(graph: OpGraph) -> None:
    """In the steps in which it runs: in the others a later one is the first."""
    cold_ns = {"CPU": 5_000, "GPU": 9_000}
    cold = dataclasses.replace(H100, devices=tuple(dataclasses.replace(d, cold_ns=cold_ns[d.kind]) for d in H100.devices))
    told = OverrideModel(MODEL, {"Relu": {"GPU": Override(time_ns=77)}})
    warm, made = (formulate(graph, constrain(graph, m, Options()), told, m).problem for m in (H100, cold))
    for d, device in enumerate(H100.devices):
        to_come: dict[str, float] = {}
        for i, op in enumerate(graph):
            left = to_come.setdefault(op.op_type, 1.0)
            first = min(left, op.count) if warm.ops.time_ns[i, d] else 0.0
            to_come[op.op_type] = left - first
            told_so = (op.op_type, device.kind) == ("Relu", "GPU")
            whole = 0 if told_so or not warm.ops.time_ns[i, d] else cold_ns[device.kind]
            more = round(first * whole)
            assert made.ops.dispatch_ns[i, d] == warm.ops.dispatch_ns[i, d] + more
            alone = warm.ops.time_ns[i, d] + more
            assert made.ops.time_ns[i, d] == (max(warm.ops.time_ns[i, d], made.ops.dispatch_ns[i, d]) if d else alone)
        assert list(to_come.values()).count(0.0) > 1
    assert (made.ops.compute_ns == warm.ops.compute_ns).all()


def test_a_predicate_is_read_in_host_memory_by_what_it_governs() -> None:
    graph = loop_then_wide()
    made = formulated(graph)
    p = made.problem
    (t,) = [t for t, o in enumerate(p.tensors.op) if p.ops.names[o] == "while"]
    assert p.tensors.on_host[t].tolist() == [False, True]
    assert p.consumers.on_host[p.consumers.start[t] : p.consumers.start[t + 1], 1].all()
    assert p.tensors.count[t] == 64


def test_what_is_kept_for_good() -> None:
    b = GraphBuilder()
    b.variable("w", 1000)
    b.read("a", "w", floats(250))
    b.read("b", "w", floats(250))
    b.op("table", "Placeholder", outputs=(floats(16),), role="capture")
    b.constant("c", floats(3))
    b.op("sum", "AddN", ["a", "b", "table", "c"], (floats(250),))
    graph = b.build("sum")
    p = formulated(graph).problem
    kept = {name: int(p.units.persistent_bytes[p.ops.unit[i]]) for i, name in enumerate(p.ops.names)}
    assert kept == {"w/handle": 1024, "a": 1024, "b": 1024, "table": 256, "c": 0, "sum": 0}
    assert p.units.persistent_bytes.sum() == 1280
    assert [p.ops.names[o] for o in p.tensors.op[p.tensors.free]] == ["c"]


def test_memory_limits() -> None:
    graph = layers()
    rest = H100.devices[0].memory_bytes - H100.reserve_bytes.get("CPU:0", 0)
    assert formulated(graph, GPU_0="8GiB").problem.devices.memory_limit_bytes.tolist() == [rest, 8 * 2**30]
    assert formulated(graph, GPU_0="1.5 GB", CPU_0=7).problem.devices.memory_limit_bytes.tolist() == [7, 1_500_000_000]
    with pytest.raises(OptionError, match=r"'8 gigs' is not a size.*'8GiB'"):
        formulated(graph, GPU_0="8 gigs")
    with pytest.raises(DeviceError, match=r"'GPU:5'.*CPU:0, GPU:0"):
        formulated(graph, GPU_5="8GiB")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"GPU": 9}, [None, 9, 9]),
        ({"gpu:1": 9}, [None, None, 9]),
        ({"/GPU:0": 9, "/job:localhost/replica:0/task:0/device:CPU:0": 8}, [8, 9, None]),
        ({"GPU:1": 7, "GPU": 9}, [None, 9, 7]),
    ],
)
def test_a_limit_names_devices_as_a_pin_does(limits: dict[str, int], expected: list[int | None]) -> None:
    machine = load_machine("2xh100")
    graph = layers()
    own, given = (
        formulate(graph, constrain(graph, machine, Options()), MODEL, machine, asked).problem.devices.memory_limit_bytes.tolist()
        for asked in ({}, limits)
    )
    assert given == [o if e is None else e for e, o in zip(expected, own, strict=True)]


@pytest.mark.parametrize("side", [2**31, 2**62, 2**600])
@pytest.mark.parametrize("role", ["argument", "op"])
def test_a_tensor_that_no_device_holds_is_refused_by_name(side: int, role: Literal["argument", "op"]) -> None:
    build = GraphBuilder()
    build.op("small", "Placeholder", outputs=(floats(4),), role="argument")
    build.op("huge", "Tanh", ["small"], (floats(side, side),), role=role)
    with pytest.raises(InfeasibleError, match=r"'huge' \(Tanh\) makes float32.*1 PiB.*Way out"):
        formulated(build.build("huge"))


def test_unknown_dimensions_count_once() -> None:
    b = GraphBuilder()
    b.op("strings", "Placeholder", outputs=(TensorSpec("string", (None, 2)),), role="argument")
    assert formulated(b.build("strings")).problem.tensors.nbytes.tolist() == [48]


def _slow_from_ordinary_memory(machine: Machine) -> Machine:
    return dataclasses.replace(
        machine,
        links=tuple(
            dataclasses.replace(link, unpinned_bytes_per_s=link.bytes_per_s / 4 if link.src == "CPU:0" else 0)
            for link in machine.links
        ),
    )


@pytest.mark.parametrize(
    ("machine", "lives_on", "variables", "slow"),
    [
        ("h100", "CPU:0", "fixed", True),
        ("h100", "GPU:0", "fixed", False),
        ("h100", "CPU:0", "move", True),
        ("h100", "GPU:0", "move", True),
        ("2xh100", "CPU:0", "fixed", True),
        ("2xh100", "CPU:0", "move", False),  # it may go between GPUs, which are quick
    ],
)
def test_a_gpu_reads_a_variable_slowly_where_it_may_be_on_the_host(
    machine: str, lives_on: str, variables: Literal["fixed", "move"], slow: bool
) -> None:
    where = _slow_from_ordinary_memory(load_machine(machine))
    b = GraphBuilder(process_devices=tuple(device.name for device in where.devices))
    b.variable("w", 32, lives_on)
    b.op("taken", "Relu", [b.read("read", "w", floats(8))], (floats(8),))
    graph = b.build("taken:0")
    problem = formulate(graph, constrain(graph, where, Options(variables=variables)), MODEL, where).problem
    read = next(t for t, op in enumerate(problem.tensors.op) if problem.ops.names[op] == "read")
    assert problem.tensors.copy_bytes[read] == (128 if slow else 32)


def test_a_gpu_reads_arguments_of_the_host_more_slowly_than_what_ops_make() -> None:
    machine = _slow_from_ordinary_memory(H100)
    b = GraphBuilder()
    b.argument("x", floats(8), location="CPU:0")
    b.op("made", "Relu", ["x:0"], (floats(8),))
    b.op("taken", "Relu", ["made:0"], (floats(8),))
    graph = b.build("taken:0", "x")
    problem = formulate(graph, constrain(graph, machine, Options()), MODEL, machine).problem
    named = [problem.ops.names[op] for op in problem.tensors.op]
    assert dict(zip(named, problem.tensors.copy_bytes.tolist(), strict=True)) == {"x": 128, "made": 32, "taken": 32}
    assert set(problem.tensors.nbytes.tolist()) == {32}
