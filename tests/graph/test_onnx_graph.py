"""A model in ONNX becomes an op graph with the shapes, types and work of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import placer
from cost_models.ops import work_of
from placer.command.main import main
from placer.errors import PlanError
from placer.graph.onnx_graph import read_onnx
from placer.verbs.read_target import read_target

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def weight(name: str, *dims: int) -> Any:
    size = 1
    for side in dims:
        size *= side
    return helper.make_tensor(name, FLOAT, dims, [0.0] * size)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution, its activation, a pooling, and a dense layer; an unnamed node and one that reads its input twice."""
    nodes = [
        helper.make_node("Conv", ["x", "filter"], ["c"], name="conv", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "kernel", ""], ["d"], name="dense", transB=1),
        helper.make_node("Mul", ["d", "d"], ["y"], name="square"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 8, 32, 32])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [weight("filter", 16, 8, 3, 3), weight("kernel", 10, 16)],
    )
    path = tmp_path / "small.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_nodes_have_types_shapes_and_flops(model: Path) -> None:
    graph = read_onnx(model)
    assert {op.name: op.op_type for op in graph if op.role == "op"} == {
        "conv": "Conv2D", "Relu_1": "Relu", "pool": "Mean", "flat": "Reshape", "dense": "MatMul", "square": "Mul",
    }  # fmt: skip
    conv = graph.op("conv").signature
    assert [spec.shape for spec in (*conv.inputs, *conv.outputs)] == [(None, 8, 32, 32), (3, 3, 8, 16), (None, 16, 16, 16)]
    assert work_of(conv).flops == 2 * (16 * 16 * 16) * (3 * 3 * 8)
    assert work_of(graph.op("dense").signature).flops == 2 * 10 * 16
    assert graph.outputs == (("square", 0),)
    assert [edge.dst_index for edge in graph.graph.edges["dense", "square"]["tensors"]] == [0, 1]


def test_a_model_is_solved_compared_and_converted(model: Path, tmp_path: Path) -> None:
    graph, _ = read_target(str(model))
    assert placer.solve(graph, "h100").step_time_ns > 0
    assert main(["solve", str(model), "--devices", "h100"]) == 0
    assert main(["convert", str(model), str(tmp_path / "small.graphml"), "--devices", "h100"]) == 0
    assert main(["solve", str(tmp_path / "small.graphml"), "--solver", "greedy"]) == 0


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "without nodes"),
        ([("Relu", "nothing", "y")], "reads 'nothing', which no node before it makes"),
        ([("Relu", "z", "y"), ("Relu", "y", "z")], "reads 'z', which no node before it makes"),
        ([("Relu", "x", "y"), ("Tanh", "x", "y")], "'Tanh_1' and 'Relu_0' both make 'y'"),
    ],
)
def test_a_broken_graph_is_refused_with_its_node(nodes: list[tuple[str, str, str]], message: str, tmp_path: Path) -> None:
    made = [helper.make_node(op_type, [taken], [given]) for op_type, taken, given in nodes]
    graph = helper.make_graph(made, "g", [helper.make_tensor_value_info("x", FLOAT, [2])], [])
    path = tmp_path / "broken.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(PlanError, match=rf"broken\.onnx.*{message}"):
        read_onnx(path)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"")
    with pytest.raises(PlanError, match="without nodes"):
        read_onnx(path)
    path.write_bytes(b"\xff\xff no model")
    with pytest.raises(PlanError, match=r"broken\.onnx is no model in ONNX"):
        read_onnx(path)
    body = helper.make_graph([], "body", [], [helper.make_tensor_value_info("y", FLOAT, [1])], [weight("y", 1)])
    branch = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=body, else_branch=body)
    condition = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    graph = helper.make_graph([branch], "g", [condition], [helper.make_tensor_value_info("y", FLOAT, [1])])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(PlanError, match="'choose' is a If with a body"):
        read_onnx(path)
