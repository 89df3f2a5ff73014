"""When memory is taken and given back, worked out by hand; and orders and lifetimes of graphs of any kind."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from placer.graph.op_graph import OpGraph
from placer.problem.memory import live_ranges_of, peaks, usage
from placer.problem.problem import Assignment
from tests.helpers.changed import changed
from tests.helpers.graphs import GraphBuilder, floats
from tests.problem.test_formulate import formulated, graphs

KIB = floats(256)


def held_on_gpu(graph: OpGraph) -> dict[str, int]:
    """KiB that the GPU holds while each op runs, everything being there."""
    problem = formulated(graph).problem
    held = usage(problem, Assignment(np.ones(problem.num_units, np.int64)))[1]
    return {name: int(held[problem.ops.moment[i]]) // 1024 for i, name in enumerate(problem.ops.names)}


def test_a_result_takes_the_place_of_what_nobody_needs_any_more() -> None:
    b = GraphBuilder()
    b.argument("x", KIB)
    b.op("a", "MatMul", ["x"], (KIB,))
    b.op("b", "Relu", ["a"], (KIB,))
    b.op("c", "AddV2", ["b", "a"], (KIB,))
    b.op("d", "Mul", ["c", "c"], (KIB,))
    b.op("e", "Greater", ["d", "d"], (floats(64),))
    assert held_on_gpu(b.build("e")) == {
        "x": 1,  # the caller's, throughout
        "a": 2,
        "b": 3,  # `a` is needed once more
        "c": 2,
        "d": 3,  # the kernel has two uses for `c`, so it keeps it
        "e": 2,
    }


def test_an_argument_and_a_variable_are_never_written_over() -> None:
    b = GraphBuilder()
    b.argument("x", KIB)
    b.variable("w", 1024)
    b.read("read", "w", KIB)
    b.op("a", "Relu", ["x"], (KIB,))
    b.op("b", "Relu", ["read"], (KIB,))
    b.op("c", "Sum", ["a", "b"], (floats(),))
    held = held_on_gpu(b.build("c"))
    assert held["x"] == 2
    assert held["c"] == 4


def test_a_view_is_counted_once_and_keeps_what_it_is_a_view_of() -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    b.op("a", "MatMul", ["x"], (KIB,))
    b.op("flat", "Reshape", ["a"], (KIB,))
    b.op("same", "Identity", ["flat"], (KIB,))
    b.op("b", "MatMul", ["same"], (floats(1),))
    b.op("c", "MatMul", ["b"], (KIB,))
    b.op("d", "MatMul", ["c", "same"], (floats(1),))
    held = held_on_gpu(b.build("d"))
    assert [held[name] for name in "ab"] == [1, 1]
    assert held["c"] == held["d"] == 2


def test_ops_run_breadth_first_as_tensorflow_starts_them() -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    for k in range(4):
        b.op(f"wide{k}", "MatMul", ["x"], (KIB,))
        b.op(f"small{k}", "Sum", [f"wide{k}"], (floats(1),))
    b.op("end", "AddN", [f"small{k}" for k in range(4)], (floats(1),))
    assert max(held_on_gpu(b.build("end")).values()) == 4  # in the order of the graph one would go before the next comes


@pytest.mark.parametrize("through", ["Identity", "Reshape", "StopGradient"])
def test_nothing_is_written_over_what_is_taken_as_a_view_too(through: str) -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    b.op("a", "MatMul", ["x"], (KIB,))
    b.op("same", through, ["a"], (KIB,))
    b.op("b", "AddV2", ["same", "a"], (KIB,))
    assert held_on_gpu(b.build("b"))["b"] == 2


def drawn(seed: int) -> OpGraph:
    """Products, sums, views and parts of a few sizes, with a result for everything that nothing takes."""
    rng, b = random.Random(seed), GraphBuilder()
    size: dict[str, int] = {}
    for k in range(3):
        elements = rng.choice((64, 128, 256))
        b.variable(f"w{k}", 4 * elements)
        for name in (b.argument(f"x{k}", floats(elements)), b.read(f"read{k}", f"w{k}", floats(elements))):
            size[f"{name}:0"] = elements
    for k in range(rng.randint(4, 25)):
        first = rng.choice([*size][-6:])
        elements = size[first]
        kinds = ("MatMul", "MatMul", "Relu", "AddV2", "Mul", "SelectV2", "Reshape", "Identity")
        kind = rng.choice((*kinds, "Unpack") if elements >= 64 else kinds)  # of smaller ones it makes copies
        if kind == "Unpack":
            rows = b.op(f"rows{k}", "Reshape", [first], (floats(4, elements // 4),))
            b.op(f"op{k}", kind, [rows], (floats(elements // 4),) * 4, attrs=(("axis", 0),))
            size |= {f"op{k}:{j}": elements // 4 for j in range(4)}
            continue
        inputs = (
            [first] if kind in ("Relu", "Reshape", "Identity") else [first, rng.choice([n for n in size if size[n] == elements])]
        )
        made = rng.choice((64, 128, 256)) if kind == "MatMul" else elements
        size[f"{b.op(f'op{k}', kind, inputs, (floats(made),))}:0"] = made
    taken = {f"{src}:{e.src_index}" for src, _, data in b.graph.edges(data=True) for e in data["tensors"]}
    return b.build(*(name for name in size if name not in taken))


def replayed(graph: OpGraph, order: list[str]) -> int:
    """The most bytes held when ops run in this order, each piece of memory for as long as it is referred to."""
    ops = [op for name in order if (op := graph.op(name)).role != "capture"]
    takes: dict[str, list[tuple[str, int]]] = {op.name: [] for op in ops}
    for src, dst, data in graph.graph.edges(data=True):
        takes[dst] += [(src, e.src_index) for e in data["tensors"] if src in takes]
    waiting = Counter(tensor for tensors in takes.values() for tensor in tensors) + Counter(graph.outputs)
    piece, whole = {}, {}
    references: Counter[str] = Counter()
    nbytes = {name: -(-state.nbytes // 256) * 256 for name, state in graph.resources.items()}
    held = most = sum(nbytes.values())
    for op in ops:
        given = [(piece[t], whole[t]) for t in takes[op.name]]
        for k, spec in enumerate(op.signature.outputs):
            size = -(-spec.nbytes // 256) * 256
            last = [at for at, alone in given if alone and references[at] == 1 and nbytes[at] == size]
            if op.op_type == "ReadVariableOp":
                of, alone = op.group, True
            elif op.op_type in ("Reshape", "Identity", "Unpack"):
                of, alone = given[0][0], given[0][1] and op.op_type != "Unpack"
            elif op.op_type in ("Relu", "AddV2", "Mul", "SelectV2") and last:
                of, alone = last[0], True
            else:
                of, alone = op.name, True
                nbytes[of] = size
                held += size
            piece[op.name, k], whole[op.name, k] = of, alone
            # An argument is the caller's, a variable stays.
            references[of] += waiting[op.name, k] + (op.role == "argument" or op.op_type == "ReadVariableOp")
        most = max(most, held)
        for at, _ in given:
            references[at] -= 1
            held -= 0 if references[at] else nbytes[at]
    return most


def test_what_is_held_is_what_a_replay_holds() -> None:
    for seed in range(100):
        graph = drawn(seed)
        problem = changed(formulated(graph).problem, ops_workspace_bytes=np.zeros((len(graph), 2), np.int64))
        order = [problem.ops.names[i] for i in problem.ops.at_moment]
        assert peaks(problem, Assignment(np.ones(problem.num_units, np.int64)))[1] == replayed(graph, order), seed


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_orders_are_topological_and_nothing_is_given_back_before_it_is_made(graph: OpGraph) -> None:
    problem = formulated(graph).problem  # which checks that
    for src, dst in graph.graph.edges:
        assert problem.ops.moment[problem.ops.names.index(src)] < problem.ops.moment[problem.ops.names.index(dst)]
    assert (live_ranges_of(problem).last <= problem.num_ops - 1).all()


@pytest.mark.parametrize("on_gpu", ["all", "maker", "view"])
def test_a_view_elsewhere_is_a_copy(on_gpu: str) -> None:
    b = GraphBuilder()
    b.argument("x", floats(1), location="CPU:0")
    b.op("a", "MatMul", ["x"], (KIB,))
    b.op("flat", "Reshape", ["a"], (KIB,))
    b.op("b", "MatMul", ["flat"], (floats(1),))
    problem = formulated(b.build("b")).problem
    there = {"all": ("a", "flat", "b"), "maker": ("a",), "view": ("flat", "b")}[on_gpu]
    device = np.zeros(problem.num_units, np.int64)
    for i, name in enumerate(problem.ops.names):
        device[problem.ops.unit[i]] = name in there
    held = peaks(problem, Assignment(device)) // 1024
    assert held.tolist() == [0 if on_gpu == "all" else 1, 1]


def test_parts_along_the_first_axis_are_one_memory() -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    b.op("a", "MatMul", ["x"], (floats(4, 256),))
    b.op("parts", "Unpack", ["a"], (KIB,) * 4, attrs=(("axis", 0), ("num", 4)))
    b.op("b", "Relu", ["parts:3"], (KIB,))
    b.op("c", "MatMul", ["b", "parts:0"], (floats(1),))
    held = held_on_gpu(b.build("c"))
    assert held["a"] == held["parts"] == 4
    assert held["b"] == held["c"] == 5  # a part cannot be written over while others are there


@pytest.mark.parametrize("rounds", [1, 8])
def test_a_variable_that_each_round_copies_is_there_twice(rounds: int) -> None:
    b = GraphBuilder()
    b.argument("ids", floats(1))
    b.variable("w", 1024)
    b.read("read", "w", KIB, count=float(rounds))
    b.op("rows", "ResourceGather", ["w/handle", "ids"], (floats(1),), count=float(rounds))
    b.op("a", "MatMul", ["rows", "read"], (floats(1),), count=float(rounds))
    assert held_on_gpu(b.build("a"))["a"] == (2 if rounds == 1 else 3)


@pytest.mark.parametrize("around", ["alone", "fused", "trained"])
def test_convolutions_take_more_where_their_channels_are_first(around: str) -> None:
    image, filters = floats(1, 16, 16, 64), floats(3, 3, 64, 64)
    b = GraphBuilder()
    b.argument("x", image)
    b.argument("w", filters)
    attrs = (("padding", "SAME"), ("strides", (1, 1, 1, 1)))
    b.op("a", "Conv2D", ["x", "w"], (image,), attrs=attrs)
    b.op("b", "BiasAdd", ["a"], (image,))
    b.op("c", "Relu" if around == "fused" else "Tanh", ["b"], (image,))
    if around == "trained":
        b.op("d", "Conv2DBackpropFilter", ["x", "w", "c"], (filters,), attrs=attrs)
    problem = formulated(b.build("c")).problem
    on_cpu, on_gpu = problem.ops.workspace_bytes[problem.ops.names.index("a")].tolist()
    assert on_cpu == filters.nbytes
    converted = 2 * image.nbytes + filters.nbytes
    assert on_gpu - on_cpu == {"alone": 0, "fused": converted + 4 * image.nbytes, "trained": converted}[around]


@pytest.mark.parametrize("op_type", ["AssignAddVariableOp", "AssignVariableOp", "ResourceApplyAdam"])
@pytest.mark.parametrize("used", ["before", "after"])
def test_what_is_read_of_a_variable_has_memory_of_its_own_once_it_outlives_an_update(op_type: str, used: str) -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    b.variable("w", 1024)
    b.read("read", "w", KIB)
    if used == "before":
        b.op("use", "MatMul", ["x", "read"], (floats(1),))
    b.op("update", op_type, ["w/handle", "x", "^use" if used == "before" else "^read"], ())
    if used == "after":
        b.op("use", "MatMul", ["x", "read", "^update"], (floats(1),))
    assert held_on_gpu(b.build("use"))["update"] == (1 if used == "before" else 2)


def test_variables_take_whole_pieces_of_the_allocator() -> None:
    b = GraphBuilder()
    for k in range(8):
        b.variable(f"w{k}", 4)
        b.read(f"read{k}", f"w{k}", floats())
    b.op("all", "AddN", [f"read{k}" for k in range(8)], (floats(),))
    assert held_on_gpu(b.build("all"))["read0"] == 8 * 256 // 1024


def test_a_constant_pushed_down_has_the_inner_product_made_early_and_held() -> None:
    b = GraphBuilder()
    b.argument("x", floats(1))
    b.constant("c", floats())
    b.op("early", "MatMul", ["x"], (KIB,))
    b.op("late", "MatMul", ["early"], (floats(1),))
    b.op("later", "MatMul", ["late"], (KIB,))
    b.op("inner", "Mul", ["later", "early"], (KIB,))
    b.op("outer", "Mul", ["c", "inner"], (KIB,))
    b.op("end", "MatMul", ["outer", "early"], (floats(1),))
    assert held_on_gpu(b.build("end"))["later"] == 3
    b.op("other", "MatMul", ["inner"], (floats(1),))
    assert held_on_gpu(b.build("end", "other"))["later"] == 2  # who else takes the inner product wants it as it was written
