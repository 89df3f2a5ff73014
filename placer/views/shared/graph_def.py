"""A placement as TensorFlow's GraphDef, for tools that draw graphs: Netron opens it, TensorBoard shows it.

Every node has its full device name, its attributes and the shapes of its outputs. The values that loops pass around are nodes
too. TensorFlow has no op types for them, so the graph can be looked at but not run.
"""

from __future__ import annotations

from typing import Any, Literal

from cost_models.base import DTYPE_BYTES, AttrValue, TensorSpec
from placer.common.device_spec import parse
from placer.common.escaping import identifier, one_line
from placer.errors import OptionError
from placer.graph.op_graph import OpNode
from placer.plan.placement import Placement


def protos() -> Any:
    """TensorBoard's copies of TensorFlow's formats, which need no TensorFlow. Raises OptionError if it is not installed."""
    try:
        from tensorboard.compat.proto import attr_value_pb2, config_pb2, event_pb2, graph_pb2, types_pb2
    except ImportError as error:
        raise OptionError(
            "this view writes TensorFlow's formats with tensorboard, which is not installed: pip install tensorboard."
        ) from error
    return attr_value_pb2, config_pb2, event_pb2, graph_pb2, types_pb2


def graph_def(placement: Placement, devices: Literal["plan", "default"]) -> Any:
    """The graph with the devices of the plan, or with those of TensorFlow's own placement; "" for a device that is not known."""
    attr_value_pb2, _, _, graph_pb2, types_pb2 = protos()
    graph = graph_pb2.GraphDef()
    graph.versions.producer = 1
    full = {"": "", **{device: parse(device).full for device in placement.devices}}
    for op in placement.graph:
        plan = placement.ops[op.name]
        node = graph.node.add(
            name=identifier(op.name), op=one_line(op.op_type), device=full[plan.device if devices == "plan" else plan.default]
        )
        node.input.extend(_inputs(placement, op))
        for name, value in op.signature.attrs:
            node.attr[one_line(name)].CopyFrom(_attribute(value, attr_value_pb2, types_pb2))
        for spec in op.signature.outputs:
            _add_shape(spec, node.attr["_output_shapes"].list.shape.add())
        if op.signature.outputs and "T" not in node.attr and "dtype" not in node.attr:
            node.attr["dtype"].type = _type(op.signature.outputs[0].dtype, types_pb2)
    return graph


def _inputs(placement: Placement, op: OpNode) -> list[str]:
    data: dict[int, str] = {}
    control: list[str] = []
    for source, _, edge in placement.graph.graph.in_edges(op.name, data=True):
        name = identifier(source)
        for tensor in edge["tensors"]:
            if tensor.dst_index >= 0:
                data[tensor.dst_index] = f"{name}:{tensor.src_index}" if tensor.src_index else name
        if edge["control"] or any(tensor.dst_index < 0 for tensor in edge["tensors"]):
            control.append(f"^{name}")
    return [*(data[k] for k in sorted(data)), *control]


def _attribute(value: AttrValue, attr_value_pb2: Any, types_pb2: Any) -> Any:
    attr = attr_value_pb2.AttrValue()
    if isinstance(value, tuple):
        kinds = {bool: "b", int: "i", float: "f"}
        for part in value:
            if isinstance(part, str) and part in DTYPE_BYTES:
                attr.list.type.append(_type(part, types_pb2))
            else:
                getattr(attr.list, kinds.get(type(part), "s")).append(one_line(part).encode() if isinstance(part, str) else part)
    elif isinstance(value, str):
        if value in DTYPE_BYTES:
            attr.type = _type(value, types_pb2)
        else:
            attr.s = one_line(value).encode()
    elif isinstance(value, bool):
        attr.b = value
    elif isinstance(value, int):
        attr.i = value
    else:
        attr.f = value
    return attr


def _type(dtype: str, types_pb2: Any) -> int:
    renamed = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bool": "BOOL"}
    try:
        return int(types_pb2.DataType.Value(f"DT_{renamed.get(dtype, dtype.upper())}"))
    except ValueError:
        return int(types_pb2.DT_INVALID)


def _add_shape(spec: TensorSpec, shape: Any) -> None:
    if spec.shape is None:
        shape.unknown_rank = True
    else:
        for size in spec.shape:
            shape.dim.add(size=-1 if size is None else size)
