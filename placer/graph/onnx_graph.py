"""Reads a model in ONNX as an OpGraph whose ops are those of the table of ops of `cost_models`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from cost_models.base import AttrValue, OpSignature, TensorSpec
from cost_models.files import FileError, read_whole
from placer.errors import OptionError, PlanError
from placer.graph.contradictions import contradictions
from placer.graph.op_graph import Kernel, OpGraph, OpNode, Role, TensorEdge

UNKNOWN = TensorSpec("float32", None)

TYPES = {
    "Add": "AddV2", "And": "LogicalAnd", "AveragePool": "AvgPool", "BatchNormalization": "FusedBatchNormV3",
    "Clip": "ClipByValue", "Concat": "ConcatV2", "Constant": "Const", "ConstantOfShape": "Fill", "CumSum": "Cumsum",
    "Div": "RealDiv", "Dropout": "Identity", "Expand": "BroadcastTo", "Flatten": "Reshape", "Gather": "GatherV2",
    "GatherND": "GatherNd", "Gelu": "Erf", "GlobalAveragePool": "Mean", "GlobalMaxPool": "Max",
    "GreaterOrEqual": "GreaterEqual", "HardSigmoid": "Relu6", "HardSwish": "Relu6", "LessOrEqual": "LessEqual",
    "Not": "LogicalNot", "Or": "LogicalOr", "PRelu": "LeakyRelu", "Pad": "PadV2", "ReduceL2": "EuclideanNorm",
    "ReduceMax": "Max", "ReduceMean": "Mean", "ReduceMin": "Min", "ReduceProd": "Prod", "ReduceSum": "Sum",
    "Resize": "ResizeBilinear", "Slice": "StridedSlice", "Split": "SplitV", "Sum": "AddN", "TopK": "TopKV2",
    "Unsqueeze": "ExpandDims", "Upsample": "ResizeNearestNeighbor", "Where": "SelectV2",
}  # fmt: skip
"""By ONNX type, the op type of the table; other types have the same name in both, or are priced by the bytes that they move."""
HOST_INPUTS = {
    "BroadcastTo": (1,), "Fill": (0,), "PadV2": (1,), "Reshape": (1,), "StridedSlice": (1, 2, 3, 4), "Tile": (1,),
    "ExpandDims": (1,), "Squeeze": (1,), "ResizeBilinear": (1, 2, 3), "Range": (0, 1, 2), "SplitV": (1,),
    "Mean": (1,), "Sum": (1,), "Max": (1,), "Min": (1,), "Prod": (1,), "EuclideanNorm": (1,),
}  # fmt: skip
"""By op type, the inputs that a GPU kernel reads in host memory: shapes, axes and sizes."""
HOST_OUTPUTS = {"Shape": (0,), "Size": (0,), "Range": (0,)}


def read_onnx(path: str | Path) -> OpGraph:
    """The graph of a model; sizes that it leaves open count as 1.

    Nodes get the shapes that ONNX infers. Weights are constants. The bodies of If, Loop and Scan are not read.

    Raises:
        OptionError: the package `onnx` is not installed.
        PlanError: the file cannot be read, is no model, or has an op with a body.
    """
    try:
        import onnx
        from onnx import inliner, shape_inference
    except ImportError as error:
        raise OptionError(f"{path} needs the package onnx to be read: pip install 'placer[onnx]'.") from error
    try:
        model = onnx.load_model_from_string(read_whole(path))
        model = shape_inference.infer_shapes(inliner.inline_local_functions(model), data_prop=True)
        graph = _graph_of(model.graph, str(path))
    except FileError as error:
        raise PlanError(str(error)) from error
    except PlanError:
        raise
    except Exception as error:  # for a broken file, protobuf and onnx raise errors of many types
        raise PlanError(f"{path} is no model in ONNX that can be read: {type(error).__name__}: {error}.") from error
    if contradiction := next(contradictions(graph), ""):
        raise PlanError(f"{path} holds a broken graph: {contradiction}.")
    return graph


def _graph_of(stated: Any, source: str) -> OpGraph:
    """The graph of a GraphProto."""
    specs = {value.name: _spec(value.type) for value in (*stated.value_info, *stated.input, *stated.output)}
    specs |= {weight.name: _sized(weight.data_type, weight.dims) for weight in stated.initializer}
    graph: nx.DiGraph = nx.DiGraph()
    maker: dict[str, tuple[str, int]] = {}
    weights = {weight.name for weight in stated.initializer}

    def add(name: str, op_type: str, inputs: Iterable[str], outputs: Iterable[str], role: Role = "op", **more: Any) -> None:
        present, made = [text for text in inputs if text], list(outputs)
        unique = name if name not in graph else f"{name}_{len(graph)}"
        taken = more.get("taken") or [specs.get(text, UNKNOWN) for text in present]
        signature = OpSignature(op_type, tuple(taken), tuple(specs.get(text, UNKNOWN) for text in made), more.get("attrs", ()))
        host_inputs = tuple(i for i in HOST_INPUTS.get(op_type, ()) if i < len(present))
        kernels = {"CPU": Kernel(), "GPU": Kernel(host_inputs, HOST_OUTPUTS.get(op_type, ()))}
        graph.add_node(unique, op=OpNode(unique, op_type, signature, 1.0, role=role, kernels=kernels))
        for position, text in enumerate(present):
            if text not in maker:
                raise PlanError(f"{source}: {name!r} reads {text!r}, which no node before it makes.")
            before, output = maker[text]
            tensors = graph.edges[before, unique]["tensors"] if graph.has_edge(before, unique) else ()
            graph.add_edge(before, unique, tensors=(*tensors, TensorEdge(output, position)), control=False)
        if twice := [text for text in made if text in maker]:
            raise PlanError(f"{source}: {name!r} and {maker[twice[0]][0]!r} both make {twice[0]!r}.")
        maker.update({text: (unique, k) for k, text in enumerate(made) if text})

    for value in stated.input:
        if value.name not in weights:
            add(value.name, "Placeholder", (), (value.name,), "argument")
    for name in weights:
        add(name, "Const", (), (name,), "constant")
    for k, node in enumerate(stated.node):
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise PlanError(f"{source}: {node.name or node.op_type!r} is a {node.op_type} with a body, which is not read.")
        op_type, taken, attrs = _translated(node, [specs.get(text, UNKNOWN) for text in node.input if text])
        role: Role = "constant" if op_type == "Const" else "op"
        add(node.name or f"{node.op_type}_{k}", op_type, node.input, node.output, role, taken=taken, attrs=attrs)
    if not stated.node:
        raise PlanError(f"{source} is a model without nodes. Was it written whole?")
    outputs = tuple(maker[value.name] for value in stated.output if value.name in maker)
    return OpGraph(stated.name or "onnx", graph, {}, {}, (), {}, outputs)


def _translated(node: Any, inputs: list[TensorSpec]) -> tuple[str, list[TensorSpec], tuple[tuple[str, AttrValue], ...]]:
    """The op type of the table; and the inputs and attributes that its formulas read, with filters in TensorFlow's order."""
    given: Mapping[str, Any] = {a.name: a.i if a.type == a.INT else tuple(a.ints) for a in node.attribute}
    op_type, attrs = TYPES.get(node.op_type, node.op_type), dict[str, AttrValue]()
    rank = len(inputs[0].shape or ()) if inputs else 0
    if op_type == "MatMul" and rank > 2:
        op_type = "BatchMatMulV2"
    elif op_type == "Gemm":
        op_type = "MatMul"
        attrs = {"transpose_a": bool(given.get("transA", 0)), "transpose_b": bool(given.get("transB", 0))}
    elif op_type == "Conv" and len(inputs) > 1 and (weights := inputs[1].shape):
        depthwise = given.get("group", 1) > 1 and weights[1] == 1
        op_type = "DepthwiseConv2dNative" if depthwise else {4: "Conv2D", 5: "Conv3D"}.get(rank, "Conv")
        channels = (weights[0], weights[1]) if depthwise else (weights[1], weights[0])
        inputs = [inputs[0], TensorSpec(inputs[1].dtype, (*weights[2:], *channels)), *inputs[2:]]
        attrs = {"data_format": "NCHW", "strides": (1, 1, *given.get("strides", (1,) * (rank - 2)))}
    elif op_type in {"MaxPool", "AvgPool"}:
        kernel = given.get("kernel_shape", ())
        attrs = {"data_format": "NCHW", "ksize": (1, 1, *kernel), "strides": (1, 1, *given.get("strides", (1,) * len(kernel)))}
    return op_type, inputs, tuple(sorted(attrs.items()))


def _spec(stated: Any) -> TensorSpec:
    """The type of a value: a dimension that is a name or below 0 is unknown."""
    tensor = stated.tensor_type
    if not tensor.HasField("shape"):
        return TensorSpec(_dtype(tensor.elem_type), None)
    sides = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim)
    return TensorSpec(_dtype(tensor.elem_type), sides)


def _sized(elem_type: int, dims: Iterable[int]) -> TensorSpec:
    return TensorSpec(_dtype(elem_type), tuple(dims))


def _dtype(elem_type: int) -> str:
    import onnx

    if elem_type == onnx.TensorProto.STRING:
        return "string"
    return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type).name) if elem_type else "float32"
